"""Tensor expressions of neural networks."""

from tilewright.topi.linalg import batch_matmul, dense
from tilewright.topi.nn.bias import bias_add, flatten
from tilewright.topi.nn.conv import (
    conv,
    conv1d,
    conv2d,
    conv2d_nchw,
    conv2d_nhwc,
    conv3d,
    conv_output,
    conv_transpose,
    packed_layout,
)
from tilewright.topi.nn.elemwise import (
    celu,
    elu,
    fast_gelu,
    gelu,
    gelu_tanh,
    hardsigmoid,
    hardswish,
    leaky_relu,
    mish,
    prelu,
    relu,
    relu6,
    selu,
    silu,
    softplus,
    softsign,
    thresholded_relu,
)
from tilewright.topi.nn.norm import batch_norm, group_norm, instance_norm, layer_norm, lrn, rms_norm
from tilewright.topi.nn.pad import pad, pad_by
from tilewright.topi.nn.pooling import adaptive_pool, avg_pool, global_pool, max_pool, pool2d, pool_output
from tilewright.topi.nn.softmax import log_softmax, softmax
