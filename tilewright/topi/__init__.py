"""Operators as tensor expressions, under their known names."""

from tilewright.topi import image, nn
from tilewright.topi.broadcast import *
from tilewright.topi.elemwise import *
from tilewright.topi.elemwise import abs, round
from tilewright.topi.index import arange, arange_of, eye, gather, gather_nd, one_hot, shape_tensor, take
from tilewright.topi.linalg import batch_matmul, dense, einsum, matmul
from tilewright.topi.loops import cumprod, cumsum, scatter_elements, scatter_nd, topk
from tilewright.topi.reduction import all, any, argmax, argmin, max, mean, min, prod, sum, variance
from tilewright.topi.transform import *
