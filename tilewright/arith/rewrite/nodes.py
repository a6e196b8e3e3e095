"""Building nodes for results of rules: constants folded, neutral elements dropped, nothing else."""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import Broadcast, FloatImm, IntImm, PrimExpr, Ramp
from tilewright.arith.linear import expr_key
from tilewright.ir import dtype as dt
from tilewright.support.diagnostics import CompileError, Diagnostic

__all__ = ["FALSE", "TRUE", "RAW", "Overflow", "imm", "same", "zero"]

TRUE, FALSE = IntImm("bool", 1), IntImm("bool", 0)


class Overflow(Exception):
    """A constant does not fit its dtype: the rule does not apply."""


_LIMITS: dict[str, tuple[int, int]] = {}


def limits(dtype: str) -> tuple[int, int]:
    """The least and greatest value of an integer dtype."""
    found = _LIMITS.get(dtype)
    if found is None:
        found = _LIMITS[dtype] = (0, 1) if dtype == "bool" else (dt.min_value(dtype), dt.max_value(dtype))
    return found


def imm(value: int, dtype: str) -> PrimExpr:
    """An integer constant. Raises Overflow where it does not fit."""
    n = dt.lanes(dtype)
    if n > 1:
        return Broadcast(imm(value, dt.element(dtype)), n)
    if dt.is_float(dtype):
        return FloatImm(dtype, float(value))
    low, high = limits(dtype)
    if not low <= value <= high:
        raise Overflow
    return IntImm(dtype, value)


def zero(dtype: str) -> PrimExpr:
    """The zero of a dtype."""
    return imm(0, dtype)


def same(a: PrimExpr, b: PrimExpr) -> bool:
    """Structural equality."""
    if a is b:
        return True
    if a.__class__ is not b.__class__ or isinstance(a, ex.Var):
        return False
    return expr_key(a) == expr_key(b)


def same_lanes(a: Any, b: Any) -> bool:
    """Equal numbers of lanes."""
    if isinstance(a, PrimExpr) or isinstance(b, PrimExpr):
        return isinstance(a, PrimExpr) and isinstance(b, PrimExpr) and same(a, b)
    return a == b


def _is(e: PrimExpr, value: int) -> bool:
    return (e.__class__ is IntImm or e.__class__ is FloatImm) and e.value == value  # pyright: ignore


def _both(a: PrimExpr, b: PrimExpr) -> bool:
    kind = a.__class__
    return kind is b.__class__ and (kind is IntImm or kind is FloatImm)


def _number(value: Any, like: Any) -> PrimExpr:
    if like.__class__ is FloatImm:
        return FloatImm(like.dtype, value if like.dtype == "float64" else float(dt.to_numpy(like.dtype).type(value)))
    return IntImm(like.dtype, ex.wrap(value, like.dtype))


def raw_Add(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if _both(a, b):
        return _number(a.value + b.value, a)  # pyright: ignore
    if b.__class__ is IntImm and b.value == 0:  # pyright: ignore
        return a
    return b if a.__class__ is IntImm and a.value == 0 else ex.Add(a, b)  # pyright: ignore


def raw_Sub(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if _both(a, b):
        return _number(a.value - b.value, a)  # pyright: ignore
    return a if _is(b, 0) else ex.Sub(a, b)  # x - 0.0 is x, whatever the sign of a zero


def raw_Mul(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if _both(a, b):
        return _number(a.value * b.value, a)  # pyright: ignore
    if _is(b, 1):
        return a
    if _is(a, 1):
        return b
    if a.__class__ is IntImm and a.value == 0:  # pyright: ignore
        return a
    return b if b.__class__ is IntImm and b.value == 0 else ex.Mul(a, b)  # pyright: ignore


def check_divisor(e: Any, b: PrimExpr) -> None:
    """Raises CompileError (TW0951) for a division by the constant zero."""
    del e
    value = b.value if isinstance(b, Broadcast) else b
    if isinstance(value, IntImm) and value.value == 0:
        raise CompileError(Diagnostic("TW0951", "division by the constant zero", hint="guard it by a condition"))


def raw_Div(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    check_divisor(a, b)
    if _both(a, b):
        x, y = a.value, b.value  # pyright: ignore
        if a.__class__ is FloatImm:
            return _number(x / y, a) if y else ex.Div(a, b)
        return _number(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1), a)
    if _is(b, 1):
        return a
    return a if a.__class__ is IntImm and a.value == 0 else ex.Div(a, b)  # pyright: ignore


def raw_Mod(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    check_divisor(a, b)
    if a.__class__ is IntImm and b.__class__ is IntImm:
        x, y = a.value, b.value  # pyright: ignore
        return _number(abs(x) % abs(y) * (1 if x >= 0 else -1), a)
    if b.__class__ is IntImm and b.value == 1:  # pyright: ignore
        return zero(a.dtype)
    return a if a.__class__ is IntImm and a.value == 0 else ex.Mod(a, b)  # pyright: ignore


def raw_FloorDiv(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    check_divisor(a, b)
    if _both(a, b) and not _is(b, 0):
        return _number(a.value // b.value, a)  # pyright: ignore
    if b.__class__ is IntImm and b.value == 1:  # pyright: ignore
        return a
    return a if a.__class__ is IntImm and a.value == 0 else ex.FloorDiv(a, b)  # pyright: ignore


def raw_FloorMod(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    check_divisor(a, b)
    if a.__class__ is IntImm and b.__class__ is IntImm:
        return _number(a.value % b.value, a)  # pyright: ignore
    if b.__class__ is IntImm and b.value == 1:  # pyright: ignore
        return zero(a.dtype)
    return a if a.__class__ is IntImm and a.value == 0 else ex.FloorMod(a, b)  # pyright: ignore


def raw_Min(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if _both(a, b):
        return a if a.value <= b.value else b  # pyright: ignore
    return a if a is b else ex.Min(a, b)


def raw_Max(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if _both(a, b):
        return a if a.value >= b.value else b  # pyright: ignore
    return a if a is b else ex.Max(a, b)


def raw_LT(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return (TRUE if a.value < b.value else FALSE) if _both(a, b) else ex.LT(a, b)  # pyright: ignore


def raw_LE(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return (TRUE if a.value <= b.value else FALSE) if _both(a, b) else ex.LE(a, b)  # pyright: ignore


def raw_EQ(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return (TRUE if a.value == b.value else FALSE) if _both(a, b) else ex.EQ(a, b)  # pyright: ignore


def raw_NE(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return (TRUE if a.value != b.value else FALSE) if _both(a, b) else ex.NE(a, b)  # pyright: ignore


def raw_And(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if a.__class__ is IntImm:
        return b if a.value else a  # pyright: ignore
    if b.__class__ is IntImm:
        return a if b.value else b  # pyright: ignore
    return ex.And(a, b)


def raw_Or(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if a.__class__ is IntImm:
        return a if a.value else b  # pyright: ignore
    if b.__class__ is IntImm:
        return b if b.value else a  # pyright: ignore
    return ex.Or(a, b)


def raw_Not(a: PrimExpr) -> PrimExpr:
    if a.__class__ is IntImm:
        return FALSE if a.value else TRUE  # pyright: ignore
    return ex.Not(a)


def raw_Select(c: PrimExpr, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if c.__class__ is IntImm:
        return a if c.value else b  # pyright: ignore
    return ex.Select(c, a, b)


def raw_Ramp(base: PrimExpr, stride: PrimExpr, lanes: Any) -> PrimExpr:
    if _is(stride, 0):
        return Broadcast(base, lanes)
    return Ramp(base, stride, lanes)


def raw_Broadcast(value: PrimExpr, lanes: Any) -> PrimExpr:
    return Broadcast(value, lanes)


RAW: dict[str, Any] = {name: f for name, f in list(globals().items()) if name.startswith("raw_")}
