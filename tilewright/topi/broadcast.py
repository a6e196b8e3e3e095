"""Two or more operands, element by element, with numpy's broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, cast, const
from tilewright.ir import dtype as dt
from tilewright.topi.util import broadcast_index, broadcast_shape

__all__ = [
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "broadcast", "broadcast_to", "divide", "equal", "floor_divide",
    "floor_mod", "fmod", "greater", "greater_equal", "left_shift", "less", "less_equal", "log_add_exp", "logical_and",
    "logical_or", "logical_xor", "maximum", "minimum", "mod", "multiply", "not_equal", "power", "right_shift", "subtract",
    "trunc_divide", "trunc_mod", "where",
]  # fmt: skip

Operand = Any
"""A te.Tensor, or a number or scalar expression."""


def broadcast(name: str, f: Callable[..., PrimExpr], *operands: Operand, dtype: str | None = None) -> te.Tensor:
    """`f` of the elements of all operands under numpy's broadcasting; numbers take `dtype`, or that of the first tensor."""
    tensors = [x for x in operands if isinstance(x, te.Tensor)]
    shape = broadcast_shape(*(t.shape for t in tensors))
    scalar = dtype or tensors[0].dtype

    def at(x: Operand, index: Sequence[Any]) -> PrimExpr:
        if isinstance(x, te.Tensor):
            return x(*broadcast_index(index, x.shape))
        return cast(tir.convert(x, scalar), scalar)

    return te.compute(tuple(shape), lambda *i: f(*(at(x, i) for x in operands)), name=name)


def _binary(name: str, f: Callable[[Any, Any], Any], doc: str) -> Callable[[Operand, Operand], te.Tensor]:
    def build(a: Operand, b: Operand) -> te.Tensor:
        return broadcast(name, f, a, b)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{doc}, with broadcasting."
    return build


def _power(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """a ** b. Of integers, through float64: right where the result has at most 53 bits."""
    if dt.is_float(a.dtype):
        return tir.pow(a, cast(b, a.dtype))
    value = tir.pow(cast(a, "float64"), cast(b, "float64"))
    whole = tir.nearbyint(value)
    if dt.is_float(b.dtype):  # a root is cut, but what is a whole number up to rounding is that number
        near = tir.abs(value - whole) <= tir.abs(value) * const(1e-14, "float64")
        return cast(tir.Select(near, whole, value), a.dtype)
    return cast(whole, a.dtype)


def _floor_divide(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return tir.floor(tir.div(a, b)) if dt.is_float(a.dtype) else tir.floordiv(a, b)


def _floor_mod(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if not dt.is_float(a.dtype):
        return tir.floormod(a, b)
    r = tir.fmod(a, b)
    zero = const(0.0, a.dtype)
    wrong = tir.logical_and(tir.NE(r, zero), tir.NE(r < zero, b < zero))
    return tir.Select(wrong, r + b, r)


def _fmod(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return tir.fmod(a, b) if dt.is_float(a.dtype) else tir.truncmod(a, b)


def _log_add_exp(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return tir.max(a, b) + tir.log1p(tir.exp(-tir.abs(a - b)))


add = _binary("add", lambda a, b: a + b, "a + b")
subtract = _binary("subtract", lambda a, b: a - b, "a - b")
multiply = _binary("multiply", lambda a, b: a * b, "a * b")
divide = _binary("divide", tir.div, "a / b; integers truncate towards zero")
trunc_divide = divide
floor_divide = _binary("floor_divide", _floor_divide, "a / b rounded down")
floor_mod = _binary("floor_mod", _floor_mod, "the remainder with the sign of b")
mod = floor_mod
fmod = _binary("fmod", _fmod, "the remainder with the sign of a (C)")
trunc_mod = fmod
power = _binary("power", _power, "a ** b")
maximum = _binary("maximum", tir.max, "the greater")
minimum = _binary("minimum", tir.min, "the smaller")
log_add_exp = _binary("log_add_exp", _log_add_exp, "log(exp(a) + exp(b))")
equal = _binary("equal", tir.EQ, "a == b")
not_equal = _binary("not_equal", tir.NE, "a != b")
less = _binary("less", tir.LT, "a < b")
less_equal = _binary("less_equal", tir.LE, "a <= b")
greater = _binary("greater", tir.GT, "a > b")
greater_equal = _binary("greater_equal", tir.GE, "a >= b")
logical_and = _binary("logical_and", tir.logical_and, "both")
logical_or = _binary("logical_or", tir.logical_or, "either")
logical_xor = _binary("logical_xor", tir.NE, "one, not both")
bitwise_and = _binary("bitwise_and", tir.bitwise_and, "a & b")
bitwise_or = _binary("bitwise_or", tir.bitwise_or, "a | b")
bitwise_xor = _binary("bitwise_xor", tir.bitwise_xor, "a ^ b")
left_shift = _binary("left_shift", tir.shift_left, "a << b")
right_shift = _binary("right_shift", tir.shift_right, "a >> b")


def where(condition: Operand, x: Operand, y: Operand) -> te.Tensor:
    """Elements of `x` where `condition`, else of `y`."""
    dtype = next((t.dtype for t in (x, y) if isinstance(t, te.Tensor)), None)

    def choose(c: PrimExpr, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        c = c if dt.is_bool(c.dtype) else tir.NE(c, const(0, c.dtype))
        return tir.Select(c, cast(a, dtype or a.dtype), cast(b, dtype or b.dtype))

    return broadcast("where", choose, condition, x, y, dtype=dtype)


def broadcast_to(x: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """`x` repeated along dimensions of extent 1, and new leading ones, to `shape`."""
    return te.compute(tuple(shape), lambda *i: x(*broadcast_index(i, x.shape)), name="broadcast_to")
