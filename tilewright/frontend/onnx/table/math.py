"""Elementwise operators that are no operator of one name (see `onnx=` of the classes), reductions, matrix products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.frontend.onnx.node import NodeContext
from tilewright.frontend.onnx.registry import onnx_op
from tilewright.ir import dtype as dt


@onnx_op("Mod", since=10)
def mod(n: NodeContext, a: Any, b: Any) -> Any:
    """The remainder with the sign of b, or of a (C's fmod) with fmod=1"""
    if not n.attr("fmod", 0):
        return n.op("floor_mod", a, b)
    return n.op("mod", a, b)


@onnx_op("Pow", since=7)
def power(n: NodeContext, x: Any, y: Any) -> Any:
    """x ** y, in x's dtype; small whole constant powers are products"""
    if isinstance(y, n.Constant) and y.data.size == 1:
        exponent = float(y.data.reshape(()))
        lower_rank = y.data.ndim <= n.rank(x)
        if lower_rank and exponent == 2.0:
            return n.op("multiply", x, x)
        if lower_rank and exponent == 0.5 and dt.is_float(n.dtype(x)):
            return n.op("sqrt", x)
    if dt.is_float(n.dtype(x)):
        return n.op("power", x, n.astype(y, n.dtype(x)))
    wide = n.op("power", n.astype(x, "float64"), n.astype(y, "float64"))
    return n.astype(wide, n.dtype(x))


@onnx_op("Sum", since=6)
def sum_of(n: NodeContext, *xs: Any) -> Any:
    """The sum of all operands, broadcast"""
    return n.broadcast("add", xs)


@onnx_op("Mean", since=8)
def mean_of(n: NodeContext, *xs: Any) -> Any:
    """The mean of all operands, broadcast"""
    return n.op("divide", n.broadcast("add", xs), n.scalar(len(xs), xs[0]))


@onnx_op("Max", since=8)
def max_of(n: NodeContext, *xs: Any) -> Any:
    """The greatest of all operands, broadcast"""
    return n.broadcast("maximum", xs)


@onnx_op("Min", since=8)
def min_of(n: NodeContext, *xs: Any) -> Any:
    """The least of all operands, broadcast"""
    return n.broadcast("minimum", xs)


@onnx_op("Clip", since=6)
def clip_6(n: NodeContext, x: Any) -> Any:
    """Bounds are attributes before operator set 11"""
    low, high = n.attr("min", None), n.attr("max", None)
    return _clip(n, x, None if low is None else n.scalar(low, x), None if high is None else n.scalar(high, x))


@onnx_op("Clip", since=11)
def clip(n: NodeContext, x: Any, low: Any = None, high: Any = None) -> Any:
    """min(max(x, low), high); either bound may be left out"""
    return _clip(n, x, low, high)


def _clip(n: NodeContext, x: Any, low: Any, high: Any) -> Any:
    bounds = [b.data.reshape(()).item() if isinstance(b, n.Constant) else None for b in (low, high)]
    if all(b is not None and math.isfinite(b) for b in bounds):
        return n.op("clip", x, n.prim(bounds[0]), n.prim(bounds[1]))
    out = x if low is None else n.op("maximum", x, low)
    return out if high is None else n.op("minimum", out, high)


@onnx_op("Where", since=9)
def where(n: NodeContext, c: Any, a: Any, b: Any) -> Any:
    """a where c, else b"""
    return n.op("where", c, a, b)


@onnx_op("Cast", ignore=("saturate", "round_mode"))
def cast(n: NodeContext, x: Any) -> Any:
    """The elements converted to another type"""
    return n.astype(x, n.dtype_attr("to"))


@onnx_op("CastLike", since=15, ignore=("saturate",))
def cast_like(n: NodeContext, x: Any, like: Any) -> Any:
    """The elements converted to the type of another tensor"""
    return n.astype(x, n.dtype(like))


@onnx_op("IsInf", since=10)
def is_inf(n: NodeContext, x: Any) -> Any:
    """Is the element infinite, of the wanted sign?"""
    negative, positive = n.attr("detect_negative", 1), n.attr("detect_positive", 1)
    if negative and positive:
        return n.op("isinf", x)
    if not (negative or positive):
        return n.op("logical_and", n.op("isinf", x), n.const(False))
    return n.op("equal", x, n.scalar(np.inf if positive else -np.inf, x))


@onnx_op("BitShift", since=11)
def bit_shift(n: NodeContext, a: Any, b: Any) -> Any:
    """Bits shifted left or right"""
    return n.op("left_shift" if n.attr("direction") == "LEFT" else "right_shift", a, b)


# ---- activations ------------------------------------------------------------------------------------------------------


@onnx_op("Relu", since=6)
def relu(n: NodeContext, x: Any) -> Any:
    """max(x, 0)"""
    return n.op("nn.relu", x)


@onnx_op("LeakyRelu", since=6)
def leaky_relu(n: NodeContext, x: Any) -> Any:
    """x, or alpha * x below zero"""
    return n.op("nn.leakyrelu", x, alpha=n.attr("alpha", 0.01))


@onnx_op("PRelu", since=7)
def prelu(n: NodeContext, x: Any, slope: Any) -> Any:
    """x, or slope * x below zero; the slope is broadcast"""
    zero = n.scalar(0, x)
    return n.op("where", n.op("less", x, zero), n.op("multiply", x, slope), x)


@onnx_op("Elu", since=6)
def elu(n: NodeContext, x: Any) -> Any:
    """x, or alpha * (exp(x) - 1) below zero"""
    return n.op("nn.elu", x, alpha=n.attr("alpha", 1.0))


@onnx_op("Celu", since=12)
def celu(n: NodeContext, x: Any) -> Any:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))"""
    alpha = n.scalar(n.attr("alpha", 1.0), x)
    zero, one = n.scalar(0.0, x), n.scalar(1.0, x)
    low = n.op("multiply", alpha, n.op("subtract", n.op("exp", n.op("divide", x, alpha)), one))
    return n.op("add", n.op("maximum", x, zero), n.op("minimum", low, zero))


@onnx_op("Selu", since=6)
def selu(n: NodeContext, x: Any) -> Any:
    """gamma * x, or gamma * alpha * (exp(x) - 1) below zero"""
    alpha, gamma = n.attr("alpha", 1.6732632423543772), n.attr("gamma", 1.0507009873554805)
    one, zero = n.scalar(1.0, x), n.scalar(0.0, x)
    low = n.op("multiply", n.scalar(alpha, x), n.op("subtract", n.op("exp", x), one))
    return n.op("multiply", n.scalar(gamma, x), n.op("where", n.op("greater", x, zero), x, low))


@onnx_op("HardSigmoid", since=6)
def hard_sigmoid(n: NodeContext, x: Any) -> Any:
    """min(max(alpha * x + beta, 0), 1)"""
    scaled = n.op("multiply", x, n.scalar(n.attr("alpha", 0.2), x))
    return n.op("clip", n.op("add", scaled, n.scalar(n.attr("beta", 0.5), x)), n.prim(0.0), n.prim(1.0))


@onnx_op("HardSwish", since=14)
def hard_swish(n: NodeContext, x: Any) -> Any:
    """x * min(max(x / 6 + 0.5, 0), 1)"""
    gate = n.op("add", n.op("multiply", x, n.scalar(1 / 6, x)), n.scalar(0.5, x))
    return n.op("multiply", x, n.op("clip", gate, n.prim(0.0), n.prim(1.0)))


@onnx_op("Softplus")
def softplus(n: NodeContext, x: Any) -> Any:
    """log(1 + exp(x)), written so that it does not overflow"""
    tail = n.op("log", n.op("add", n.op("exp", n.op("negative", n.op("abs", x))), n.scalar(1.0, x)))
    return n.op("add", n.op("nn.relu", x), tail)


@onnx_op("Softsign")
def softsign(n: NodeContext, x: Any) -> Any:
    """x / (1 + |x|)"""
    return n.op("divide", x, n.op("add", n.op("abs", x), n.scalar(1.0, x)))


@onnx_op("ThresholdedRelu", since=10)
def thresholded_relu(n: NodeContext, x: Any) -> Any:
    """x above alpha, else 0"""
    bound, zero = n.scalar(n.attr("alpha", 1.0), x), n.scalar(0.0, x)
    return n.op("where", n.op("greater", x, bound), x, zero)


@onnx_op("Mish", since=18)
def mish(n: NodeContext, x: Any) -> Any:
    """x * tanh(softplus(x))"""
    return n.op("multiply", x, n.op("tanh", softplus(n, x)))


@onnx_op("Gelu", since=20)
def gelu(n: NodeContext, x: Any) -> Any:
    """The Gaussian error linear unit, exact or by tanh"""
    return n.op("nn.gelu_tanh" if n.attr("approximate", "none") == "tanh" else "nn.gelu", x)


@onnx_op("Swish", since=24)
def swish(n: NodeContext, x: Any) -> Any:
    """x * sigmoid(alpha * x)"""
    return n.op("multiply", x, n.op("sigmoid", n.op("multiply", x, n.scalar(n.attr("alpha", 1.0), x))))


@onnx_op("Softmax", "LogSoftmax")
def softmax_flat(n: NodeContext, x: Any) -> Any:
    """Before operator set 13: over all dimensions from `axis` on, taken together"""
    rank = n.rank(x)
    axis = n.axis(n.attr("axis", 1), rank)
    name = "nn.softmax" if n.op_type == "Softmax" else "nn.log_softmax"
    shape = n.shape(x)
    if axis == rank - 1 or all(getattr(d, "value", 0) == 1 for d in shape[axis + 1 :]):
        return n.op(name, x, axis=axis)
    rows = n.reshape(x, [n.product(shape[:axis]), n.product(shape[axis:])])
    return n.reshape(n.op(name, rows, axis=1), shape)


@onnx_op("Softmax", "LogSoftmax", since=13)
def softmax(n: NodeContext, x: Any) -> Any:
    """exp(x - max(x)) / sum(exp(x - max(x))) along one axis"""
    axis = n.axis(n.attr("axis", -1), n.rank(x))
    return n.op("nn.softmax" if n.op_type == "Softmax" else "nn.log_softmax", x, axis=axis)


@onnx_op("Hardmax", since=13)
def hardmax(n: NodeContext, x: Any) -> Any:
    """1 at the first maximum along an axis, else 0"""
    axis = n.axis(n.attr("axis", -1), n.rank(x))
    size = n.static_shape(x, "the operand")[axis]
    best = n.op("argmax", x, axis=axis, keepdims=True)
    place = n.const(np.arange(size).reshape([size if i == axis else 1 for i in range(n.rank(x))]), "int64")
    return n.astype(n.op("equal", n.astype(best, "int64"), place), n.dtype(x))


# ---- reductions -------------------------------------------------------------------------------------------------------


@onnx_op("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
         "ReduceLogSum", "ReduceLogSumExp", symbolic=(1,))  # fmt: skip
def reduce_op(n: NodeContext, x: Any, axes: Any = None) -> Any:
    """A reduction over axes (an attribute, later an operand; none: all, or nothing with noop_with_empty_axes)"""
    where = n.int_list("axes", axes)
    keep = bool(n.attr("keepdims", 1))
    nothing = bool(n.attr("noop_with_empty_axes", 0))
    if not where and nothing:
        return x
    rank = n.rank(x)
    chosen = sorted(n.axis(a, rank, "axes") for a in where) if where else list(range(rank))
    if not chosen:
        return x
    return _REDUCE[n.op_type](n, x, {"axis": chosen, "keepdims": keep})


def _log_sum_exp(n: NodeContext, x: Any, how: dict[str, Any]) -> Any:
    most = n.op("max", x, axis=how["axis"], keepdims=True)
    total = n.op("log", n.op("sum", n.op("exp", n.op("subtract", x, most)), **how))
    return n.op("add", total, most if how["keepdims"] else n.op("squeeze", most, axis=how["axis"]))


_REDUCE: dict[str, Any] = {
    "ReduceSum": lambda n, x, how: n.op("sum", x, **how),
    "ReduceMean": lambda n, x, how: n.op("mean", x, **how),
    "ReduceMax": lambda n, x, how: n.op("any" if n.dtype(x) == "bool" else "max", x, **how),
    "ReduceMin": lambda n, x, how: n.op("all" if n.dtype(x) == "bool" else "min", x, **how),
    "ReduceProd": lambda n, x, how: n.op("prod", x, **how),
    "ReduceL1": lambda n, x, how: n.op("sum", n.op("abs", x), **how),
    "ReduceL2": lambda n, x, how: n.op("sqrt", n.op("sum", n.op("multiply", x, x), **how)),
    "ReduceSumSquare": lambda n, x, how: n.op("sum", n.op("multiply", x, x), **how),
    "ReduceLogSum": lambda n, x, how: n.op("log", n.op("sum", x, **how)),
    "ReduceLogSumExp": _log_sum_exp,
}


@onnx_op("ArgMax", "ArgMin")
def arg_reduce(n: NodeContext, x: Any) -> Any:
    """The index of the extreme element along an axis: the first one, or the last"""
    axis, keep = n.axis(n.attr("axis", 0), n.rank(x)), bool(n.attr("keepdims", 1))
    name = "argmax" if n.op_type == "ArgMax" else "argmin"
    last = bool(n.attr("select_last_index", 0))
    return n.astype(n.op(name, x, axis=axis, keepdims=keep, select_last_index=last), "int64")


@onnx_op("CumSum", since=11)
def cumsum(n: NodeContext, x: Any, axis: Any) -> Any:
    """Running sums along an axis; exclusive: without the element itself; reverse: from the end"""
    a = n.axis(n.numbers(axis, "the axis")[0], n.rank(x))
    exclusive, reverse = bool(n.attr("exclusive", 0)), bool(n.attr("reverse", 0))
    work = n.op("flip", x, axis=a) if reverse else x
    total = n.op("cumsum", work, axis=a)
    if exclusive:
        total = n.op("subtract", total, work)
    return n.op("flip", total, axis=a) if reverse else total


# ---- quantisation -----------------------------------------------------------------------------------------------------


@onnx_op("QuantizeLinear", since=10, ignore=("saturate", "precision"))
def quantize_linear(n: NodeContext, x: Any, scale: Any, zero: Any = None) -> Any:
    """round(x / scale) + zero, within the range of the zero point's type"""
    dtype = n.dtype_attr("output_dtype", "uint8") if zero is None else n.dtype(zero)
    return _affine(n, "quantize", x, scale, n.const(0, dtype) if zero is None else zero, dtype)


@onnx_op("DequantizeLinear", since=10)
def dequantize_linear(n: NodeContext, x: Any, scale: Any, zero: Any = None) -> Any:
    """(x - zero) * scale"""
    dtype = n.dtype_attr("output_dtype", n.dtype(scale))
    return _affine(n, "dequantize", x, scale, n.const(0, n.dtype(x)) if zero is None else zero, dtype)


def _affine(n: NodeContext, name: str, x: Any, scale: Any, zero: Any, dtype: str) -> Any:
    if n.attr("block_size", 0):
        raise n.unsupported("quantisation by blocks is not supported")
    if n.rank(scale) == 1 and n.rank(zero) == 0:
        zero = n.op("broadcast_to", zero, n.shape_expr(n.shape(scale)))
    axis = n.attr("axis", 1)
    axis = n.axis(axis, n.rank(x)) if n.rank(scale) else 0
    return n.op(name, x, scale, zero, axis=axis, out_dtype=dtype)


# ---- matrix products --------------------------------------------------------------------------------------------------


@onnx_op("MatMul")
def matmul(n: NodeContext, a: Any, b: Any) -> Any:
    """numpy's matmul"""
    return n.op("matmul", a, b)


@onnx_op("Gemm", since=7)
def gemm(n: NodeContext, a: Any, b: Any, c: Any = None) -> Any:
    """alpha * A' * B' + beta * C, where ' transposes if asked to"""
    alpha, beta = n.attr("alpha", 1.0), n.attr("beta", 1.0)
    a = n.op("permute_dims", a, axes=[1, 0]) if n.attr("transA", 0) else a
    b = _transposed(n, b) if n.attr("transB", 0) else b
    out = n.op("matmul", a, b)
    if alpha != 1.0:
        out = n.op("multiply", out, n.scalar(alpha, out))
    if c is None or beta == 0.0:
        return out
    return n.op("add", out, c if beta == 1.0 else n.op("multiply", c, n.scalar(beta, c)))


def _transposed(n: NodeContext, x: Any) -> Any:
    """A matrix transposed; constants by bands, which is some times faster than at once for the weights of old networks."""
    if not isinstance(x, n.Constant) or x.data.size < 1 << 20:
        return n.op("permute_dims", x, axes=[1, 0])
    out = np.empty(x.data.shape[::-1], x.data.dtype)
    for i in range(0, x.data.shape[0], 64):
        out[:, i : i + 64] = x.data[i : i + 64].T
    return n.const(out)


@onnx_op("Einsum", since=12)
def einsum(n: NodeContext, *xs: Any) -> Any:
    """Sums of products, by a formula of subscripts"""
    equation = n.attr("equation").replace(" ", "")
    return n.emit(n.operator("einsum", subscripts=equation)(n.tuple(xs)))


@onnx_op("Trilu", since=14)
def trilu(n: NodeContext, x: Any, k: Any = None) -> Any:
    """The upper or lower triangle, zeros elsewhere"""
    diagonal = 0 if k is None else n.numbers(k, "the diagonal")[0]
    return n.op("triu" if n.attr("upper", 1) else "tril", x, n.prim(diagonal))
