"""Layers: convolution, pooling, normalisation, resize."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arith import expr as e
from tilewright.arith.expr import IntImm
from tilewright.frontend.onnx.node import NodeContext
from tilewright.frontend.onnx.registry import onnx_op

_LAYOUT = {1: ("NCW", "OIW", "IOW"), 2: ("NCHW", "OIHW", "IOHW"), 3: ("NCDHW", "OIDHW", "IODHW")}


def _pads(n: NodeContext, x: Any, kernel: list[int], strides: list[int], dilations: list[int]) -> list[int]:
    """Begins then ends: as given, or worked out for auto_pad"""
    spatial = len(kernel)
    auto, given = n.attr("auto_pad", "NOTSET"), n.attr("pads", [0] * (2 * spatial))
    if auto in ("NOTSET", ""):
        if len(given) != 2 * spatial:
            raise n.malformed(f"pads {given} must have {2 * spatial} numbers")
        return given
    if auto == "VALID":
        return [0] * (2 * spatial)
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise n.unsupported(f"auto_pad {auto!r} is not supported")
    begin, end = [], []
    for size, k, s, d in zip(n.shape(x)[2:], kernel, strides, dilations):
        reach = (k - 1) * d + 1
        if s == 1:
            total = reach - 1
        elif isinstance(size, IntImm):
            total = max((-(-size.value // s) - 1) * s + reach - size.value, 0)
        else:
            raise n.unknown("the size of a dimension that auto_pad and a stride meet")
        small = total // 2
        begin.append(small if auto == "SAME_UPPER" else total - small)
        end.append(total - begin[-1])
    return begin + end


def _window(n: NodeContext, x: Any, kernel: list[int]) -> dict[str, Any]:
    """Strides, padding, dilation of a convolution or a pooling."""
    ones = [1] * len(kernel)
    strides, dilation = n.attr("strides", ones), n.attr("dilations", ones)
    return {"strides": strides, "padding": _pads(n, x, kernel, strides, dilation), "dilation": dilation}


@onnx_op("Conv")
def conv(n: NodeContext, x: Any, w: Any, bias: Any = None) -> Any:
    """Cross-correlation in 1 to 3 dimensions"""
    spatial = n.rank(x) - 2
    if spatial not in _LAYOUT:
        raise n.unsupported(f"convolution in {spatial} dimensions is not supported")
    sizes = n.static_shape(w, "the weight")
    if len(sizes) != spatial + 2:
        raise n.malformed(f"the weight has {len(sizes)} dimensions, the operand {spatial + 2}")
    kernel = n.attr("kernel_shape", sizes[2:])
    if kernel != sizes[2:]:
        raise n.malformed(f"kernel_shape {kernel} differs from the weight's {sizes[2:]}")
    data, weight, _ = _LAYOUT[spatial]
    how = _window(n, x, kernel)
    out = n.op(
        f"nn.conv{spatial}d", x, w, **how, groups=n.attr("group", 1), data_layout=data, kernel_layout=weight
    )  # fmt: skip
    return out if bias is None else n.op("add", out, _channels(n, bias, spatial))


def _channels(n: NodeContext, bias: Any, spatial: int) -> Any:
    """A vector over channels, to go with [batch, channels, ...]"""
    return n.reshape(bias, [n.shape(bias)[0], *[1] * spatial])


@onnx_op("ConvTranspose")
def conv_transpose(n: NodeContext, x: Any, w: Any, bias: Any = None) -> Any:
    """The gradient of a convolution by its input"""
    spatial = n.rank(x) - 2
    sizes = n.static_shape(w, "the weight")
    ones, zeros = [1] * spatial, [0] * spatial
    kernel = n.attr("kernel_shape", sizes[2:])
    strides, dilation, extra = n.attr("strides", ones), n.attr("dilations", ones), n.attr("output_padding", zeros)
    auto, wanted = n.attr("auto_pad", "NOTSET"), n.attr("output_shape", None)
    pads = n.attr("pads", zeros + zeros)
    if wanted is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
        pads, extra = _transpose_pads(n, x, kernel, strides, dilation, extra, wanted, auto)
    elif auto == "VALID":
        pads = zeros + zeros
    data, _, weight = _LAYOUT[spatial]
    out = n.op(
        f"nn.conv{spatial}d_transpose", x, w, strides=strides, padding=pads, output_padding=extra, dilation=dilation,
        groups=n.attr("group", 1), data_layout=data, kernel_layout=weight,
    )  # fmt: skip
    return out if bias is None else n.op("add", out, _channels(n, bias, spatial))


def _transpose_pads(
    n: NodeContext, x: Any, kernel: Any, strides: Any, dilation: Any, extra: Any, wanted: Any, auto: str
) -> Any:
    """Padding that gives the wanted output shape, or size * stride"""
    begin, end = [], []
    for i, (k, s, d) in enumerate(zip(kernel, strides, dilation)):
        size = n.shape(x)[2 + i]
        if not isinstance(size, IntImm):
            raise n.unknown("the size of a dimension with automatic padding")
        target = wanted[len(wanted) - len(kernel) + i] if wanted is not None else size.value * s
        total = s * (size.value - 1) + extra[i] + (k - 1) * d + 1 - target
        if total < 0:
            raise n.unsupported("an output_shape greater than the full one is not supported")
        small = total // 2
        begin.append(small if auto == "SAME_UPPER" else total - small)
        end.append(total - begin[-1])
    return begin + end, extra


# ---- pooling ----------------------------------------------------------------------------------------------------------


@onnx_op("MaxPool", ignore=("storage_order",))
def max_pool(n: NodeContext, x: Any) -> Any:
    """The greatest element of each window"""
    n.only_output("Indices")
    return _pool(n, x, "max")


@onnx_op("AveragePool")
def average_pool(n: NodeContext, x: Any) -> Any:
    """The mean of each window, with or without padding"""
    return _pool(n, x, "avg", count_include_pad=bool(n.attr("count_include_pad", 0)))


def _pool(n: NodeContext, x: Any, kind: str, **more: Any) -> Any:
    kernel = n.attr("kernel_shape")
    spatial = len(kernel)
    if spatial not in _LAYOUT or n.rank(x) != spatial + 2:
        raise n.malformed(f"kernel_shape {kernel} does not go with {n.rank(x)} dimensions")
    how = _window(n, x, kernel)
    return n.op(
        f"nn.{kind}_pool{spatial}d", x, pool_size=kernel, **how, ceil_mode=bool(n.attr("ceil_mode", 0)),
        layout=_LAYOUT[spatial][0], **more,
    )  # fmt: skip


@onnx_op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(n: NodeContext, x: Any) -> Any:
    """The mean (the maximum) of each channel"""
    axes = list(range(2, n.rank(x)))
    return n.op("mean" if n.op_type == "GlobalAveragePool" else "max", x, axis=axes, keepdims=True)


@onnx_op("LpPool", since=2)
def lp_pool(n: NodeContext, x: Any) -> Any:
    """The p-norm of each window"""
    p = float(n.attr("p", 2))
    kernel = n.attr("kernel_shape")
    power = n.op("power", n.op("abs", x), n.scalar(p, x))
    total = n.op("multiply", _pool(n, power, "avg", count_include_pad=True), n.scalar(float(np.prod(kernel)), x))
    return n.op("power", total, n.scalar(1 / p, x))


@onnx_op("GlobalLpPool", since=2)
def global_lp_pool(n: NodeContext, x: Any) -> Any:
    """The p-norm of each channel"""
    p = float(n.attr("p", 2))
    total = n.op("sum", n.op("power", n.op("abs", x), n.scalar(p, x)), axis=list(range(2, n.rank(x))), keepdims=True)
    return n.op("power", total, n.scalar(1 / p, x))


# ---- normalisation ----------------------------------------------------------------------------------------------------


@onnx_op("BatchNormalization", since=7, ignore=("momentum",))
def batch_norm(n: NodeContext, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    """(x - mean) / sqrt(var + epsilon) * scale + bias, per channel; statistics are fixed at inference"""
    n.only_output("mean", "var", "saved_mean", "saved_var")
    if n.attr("training_mode", 0) or not n.attr("spatial", 1):
        raise n.unsupported("training mode, or spatial=0, is not supported")
    epsilon = n.attr("epsilon", 1e-5)
    if all(isinstance(p, n.Constant) and n.dtype(p) == n.dtype(x) for p in (scale, bias, mean, var)):
        return n.item(n.op("nn.batch_norm", x, scale, bias, mean, var, axis=1, epsilon=epsilon), 0)
    factor = n.op("divide", scale, n.op("sqrt", n.op("add", var, n.scalar(epsilon, var))))
    offset = n.op("subtract", bias, n.op("multiply", mean, factor))
    spatial = n.rank(x) - 2
    scaled = n.op("multiply", x, _channels(n, n.astype(factor, n.dtype(x)), spatial))
    return n.op("add", scaled, _channels(n, n.astype(offset, n.dtype(x)), spatial))


@onnx_op("InstanceNormalization", since=6)
def instance_norm(n: NodeContext, x: Any, scale: Any, bias: Any) -> Any:
    """Each channel of each sample by its own mean and variance"""
    axes = list(range(2, n.rank(x)))
    return _normalise(
        n, x, axes, _channels(n, scale, len(axes)), _channels(n, bias, len(axes)), n.attr("epsilon", 1e-5)
    )


def _normalise(n: NodeContext, x: Any, axes: list[int], scale: Any, bias: Any, eps: float) -> Any:
    mean = n.op("mean", x, axis=axes, keepdims=True)
    centred = n.op("subtract", x, mean)
    var = n.op("mean", n.op("multiply", centred, centred), axis=axes, keepdims=True)
    out = n.op("multiply", centred, n.op("rsqrt", n.op("add", var, n.scalar(eps, x))))
    return n.op("add", n.op("multiply", out, scale), bias)


@onnx_op("LayerNormalization", since=17)
def layer_norm(n: NodeContext, x: Any, scale: Any, bias: Any = None) -> Any:
    """The dimensions from `axis` on by their mean and variance; computed in float32 unless x is float64"""
    n.attr("stash_type", 1)
    rank = n.rank(x)
    axes = list(range(n.axis(n.attr("axis", -1), rank), rank))
    eps = n.attr("epsilon", 1e-5)
    if n.wants(1) or n.wants(2):
        return _layer_norm_statistics(n, x, scale, bias, axes, eps)
    if n.rank(scale) == len(axes):
        shift = bias if bias is not None else n.const(np.zeros(n.static_shape(scale, "the scale")), n.dtype(scale))
        return n.op("nn.layer_norm", x, scale, shift, axes=axes, epsilon=eps)
    shift = bias if bias is not None else n.scalar(0, x)
    return _normalise(n, x, axes, scale, shift, eps)


def _layer_norm_statistics(n: NodeContext, x: Any, scale: Any, bias: Any, axes: list[int], eps: float) -> list[Any]:
    """The result, the mean, and one over the standard deviation"""
    mean = n.op("mean", x, axis=axes, keepdims=True)
    centred = n.op("subtract", x, mean)
    var = n.op("mean", n.op("multiply", centred, centred), axis=axes, keepdims=True)
    factor = n.op("rsqrt", n.op("add", var, n.scalar(eps, x)))
    out = n.op("multiply", n.op("multiply", centred, factor), scale)
    return [out if bias is None else n.op("add", out, bias), mean, factor]


@onnx_op("RMSNormalization", since=23)
def rms_norm(n: NodeContext, x: Any, scale: Any) -> Any:
    """x / sqrt(mean(x * x) + epsilon) * scale over the dimensions from `axis` on"""
    n.attr("stash_type", 1)
    rank = n.rank(x)
    axes = list(range(n.axis(n.attr("axis", -1), rank), rank))
    mean = n.op("mean", n.op("multiply", x, x), axis=axes, keepdims=True)
    unit = n.op("multiply", x, n.op("rsqrt", n.op("add", mean, n.scalar(n.attr("epsilon", 1e-5), x))))
    return n.op("multiply", unit, scale)


@onnx_op("GroupNormalization", since=21)
def group_norm(n: NodeContext, x: Any, scale: Any, bias: Any) -> Any:
    """Groups of channels by their mean and variance; scale and bias per channel"""
    n.attr("stash_type", 1)
    groups, eps = n.attr("num_groups"), n.attr("epsilon", 1e-5)
    batch, channels, *rest = n.shape(x)
    split = n.reshape(x, [batch, groups, e.floordiv(channels, groups), *rest])
    axes = list(range(2, n.rank(split)))
    out = n.reshape(_normalise(n, split, axes, n.scalar(1.0, x), n.scalar(0.0, x), eps), n.shape(x))
    scaled = n.op("multiply", out, _channels(n, scale, len(rest)))
    return n.op("add", scaled, _channels(n, bias, len(rest)))


@onnx_op("MeanVarianceNormalization", since=9)
def mean_variance(n: NodeContext, x: Any) -> Any:
    """(x - mean) / sqrt(var) over axes"""
    axes = n.attr("axes", [0, 2, 3])
    return _normalise(n, x, axes, n.scalar(1.0, x), n.scalar(0.0, x), 1e-9)


@onnx_op("LpNormalization")
def lp_norm(n: NodeContext, x: Any) -> Any:
    """x / norm(x) along an axis"""
    axis, p = n.axis(n.attr("axis", -1), n.rank(x)), n.attr("p", 2)
    if p == 1:
        norm = n.op("sum", n.op("abs", x), axis=[axis], keepdims=True)
    else:
        norm = n.op("sqrt", n.op("sum", n.op("multiply", x, x), axis=[axis], keepdims=True))
    return n.op("divide", x, norm)


@onnx_op("LRN")
def lrn(n: NodeContext, x: Any) -> Any:
    """x / (bias + alpha / size * sum of squares of near channels) ** beta"""
    size = n.attr("size")
    return n.op(
        "nn.lrn", x, size=size, axis=1, bias=n.attr("bias", 1.0), alpha=n.attr("alpha", 1e-4), beta=n.attr("beta", 0.75)
    )  # fmt: skip
