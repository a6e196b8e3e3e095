"""Element by element: one operand, the shape kept. Each function takes a te.Tensor and gives one of the same shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, const
from tilewright.arith.expr import cast as cast_expr
from tilewright.ir import dtype as dt

__all__ = [
    "EXPRESSIONS", "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "cast", "ceil", "clip", "cos",
    "cosh", "elementwise", "erf", "exp", "exp2", "expm1", "floor", "full", "full_like", "identity", "isfinite", "isinf",
    "isnan", "log", "log10", "log1p", "log2", "logical_not", "negative", "reciprocal", "round", "rsqrt", "sigmoid", "sign",
    "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
]  # fmt: skip

EXPRESSIONS: dict[str, Callable[[PrimExpr], PrimExpr]] = {}
"""The scalar expression of each function of this file, by name."""


def elementwise(name: str, expr: Callable[[Any], Any]) -> Callable[[te.Tensor], te.Tensor]:
    """A function from tensor to tensor that applies `expr` to every element."""
    EXPRESSIONS[name] = expr

    def build(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: expr(x(*i)), name=name)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{name} of every element."
    return build


def _sign(x: PrimExpr) -> PrimExpr:
    zero, one = const(0, x.dtype), const(1, x.dtype)
    if dt.is_uint(x.dtype):
        return tir.Select(x > zero, one, zero)
    minus = const(-1, x.dtype)
    signed = tir.Select(x > zero, one, tir.Select(x < zero, minus, zero))
    return tir.Select(tir.isnan(x), x, signed) if dt.is_float(x.dtype) else signed


identity = elementwise("identity", lambda x: x)
exp = elementwise("exp", tir.exp)
exp2 = elementwise("exp2", tir.exp2)
expm1 = elementwise("expm1", tir.expm1)
log = elementwise("log", tir.log)
log2 = elementwise("log2", tir.log2)
log10 = elementwise("log10", tir.log10)
log1p = elementwise("log1p", tir.log1p)
sin = elementwise("sin", tir.sin)
cos = elementwise("cos", tir.cos)
tan = elementwise("tan", tir.tan)
asin = elementwise("asin", tir.asin)
acos = elementwise("acos", tir.acos)
atan = elementwise("atan", tir.atan)
sinh = elementwise("sinh", tir.sinh)
cosh = elementwise("cosh", tir.cosh)
tanh = elementwise("tanh", tir.tanh)
asinh = elementwise("asinh", tir.asinh)
acosh = elementwise("acosh", tir.acosh)
atanh = elementwise("atanh", tir.atanh)
sqrt = elementwise("sqrt", tir.sqrt)
rsqrt = elementwise("rsqrt", tir.rsqrt)
sigmoid = elementwise("sigmoid", tir.sigmoid)
erf = elementwise("erf", tir.erf)
floor = elementwise("floor", tir.floor)
ceil = elementwise("ceil", tir.ceil)
trunc = elementwise("trunc", tir.trunc)
round = elementwise("round", tir.nearbyint)
abs = elementwise("abs", tir.abs)
sign = elementwise("sign", _sign)
negative = elementwise("negative", lambda x: -x)
square = elementwise("square", lambda x: x * x)
reciprocal = elementwise("reciprocal", lambda x: tir.div(const(1, x.dtype), x))
logical_not = elementwise("logical_not", tir.logical_not)
bitwise_not = elementwise("bitwise_not", tir.bitwise_not)
isnan = elementwise("isnan", tir.isnan)
isinf = elementwise("isinf", tir.isinf)
isfinite = elementwise("isfinite", tir.isfinite)


def cast_value(x: PrimExpr, dtype: str) -> PrimExpr:
    """A scalar converted: to bool it is `x != 0`, not truncation to one bit."""
    if x.dtype != dtype and dt.is_bool(dtype):
        return tir.NE(x, const(0, x.dtype))
    return cast_expr(x, dtype)


def cast(x: te.Tensor, dtype: str) -> te.Tensor:
    """Every element converted to `dtype`."""
    return te.compute(x.shape, lambda *i: cast_value(x(*i), dtype), name="cast")


def clip(x: te.Tensor, a_min: Any, a_max: Any) -> te.Tensor:
    """Every element brought into [a_min, a_max]; None leaves a side open. NaN stays NaN."""

    def bound(v: Any) -> PrimExpr:
        e = tir.convert(v, x.dtype)
        return cast_expr(e, x.dtype)

    def value(*i: Any) -> PrimExpr:
        out = x(*i)
        if a_min is not None:
            out = tir.max(out, bound(a_min))
        if a_max is not None:
            out = tir.min(out, bound(a_max))
        return out

    return te.compute(x.shape, value, name="clip")


def full(shape: Sequence[Any], dtype: str, fill_value: Any) -> te.Tensor:
    """A tensor of one value, a number or a scalar expression."""
    value = tir.convert(fill_value, dtype)
    return te.compute(tuple(shape), lambda *_: cast_value(value, dtype), name="full")


def full_like(x: te.Tensor, fill_value: Any) -> te.Tensor:
    """A tensor of one value, with the shape and dtype of `x`."""
    return full(x.shape, x.dtype, fill_value)
