"""Building scalar expressions: dtypes matched, constants folded. What Python's operators on expressions call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    CmpOp,
    Div,
    ExprLike,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Select,
    StringImm,
    Sub,
    Var,
)  # fmt: skip
from tilewright.ir import dtype as dt
from tilewright.ir.node import Node
from tilewright.ir.op import Op, PointerType, PrimType
from tilewright.support.diagnostics import CompileError

__all__ = [
    "add",
    "all_of",
    "any_of",
    "bitwise",
    "bitwise_not",
    "call_intrin",
    "cast",
    "ceildiv",
    "cmp",
    "const",
    "convert",
    "div",
    "floordiv",
    "floormod",
    "if_then_else",
    "is_const",
    "logical_and",
    "logical_not",
    "logical_or",
    "max_value",
    "maximum",
    "min_value",
    "minimum",
    "match_dtypes",
    "mod",
    "mul",
    "neg",
    "pointer_var",
    "same_value",
    "select",
    "sub",
    "true_div",
    "truncdiv",
    "truncmod",
    "wrap",
]


def same_value(a: PrimExpr, b: PrimExpr) -> bool:
    if a is b:
        return True
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
        return a.value == b.value
    return False


def const(value: float, dtype: str | None = None) -> PrimExpr:
    """A constant; without `dtype`: bool, int32 (int64 where it does not fit) or float32. Vectors are broadcast."""
    if dtype is None:
        if isinstance(value, bool):
            dtype = "bool"
        elif hasattr(value, "dtype"):  # a number of numpy
            dtype = str(value.dtype)  # pyright: ignore
        elif isinstance(value, int):
            dtype = "int32" if -(2**31) <= value < 2**31 else "int64"
        else:
            dtype = "float32" if not math.isfinite(value) or abs(value) <= _FLOAT_MAX["float32"] else "float64"
    n = dt.lanes(dtype)
    if n != 1:
        return Broadcast(const(value, dt.element(dtype)), n)
    if dt.is_float(dtype):
        _check_float(float(value), dtype)
        return FloatImm(dtype, float(value))
    kept = wrap(int(value), dtype)
    if kept != int(value) and not dt.is_bool(dtype):
        raise _wrong(f"{value} is out of the range of {dtype}", "take a wider dtype")
    return IntImm(dtype, kept)


def _check_float(value: float, dtype: str) -> None:
    greatest = _FLOAT_MAX.get(dtype)
    if greatest is not None and math.isfinite(value) and abs(value) > greatest:
        raise _wrong(f"{value} is out of the range of {dtype}", "take a wider dtype, or infinity")


def wrap(value: int, dtype: str) -> int:
    """`value` brought into the range of an integer dtype, as the machine does."""
    if dtype == "bool":
        return int(value != 0)
    n = dt.bits(dtype)
    value &= (1 << n) - 1
    return value - (1 << n) if not dt.is_uint(dtype) and value >> (n - 1) else value


def convert(value: Any, dtype: str | None = None) -> PrimExpr:
    """`value` as an expression: Python and numpy numbers become constants, strings StringImm, expressions stay."""
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, (bool, int, float)):
        return const(value, dtype)
    if isinstance(value, str):
        return StringImm(value)
    asexpr = getattr(value, "asobject", None) or getattr(value, "as_expr", None)
    if asexpr is not None:
        return asexpr()
    if hasattr(value, "item") and hasattr(value, "dtype"):
        return const(value.item(), dtype or str(value.dtype))
    raise TypeError(f"cannot make an expression of {value!r} ({type(value).__name__})")


def match_dtypes(a: ExprLike, b: ExprLike) -> tuple[PrimExpr, PrimExpr]:
    """Both sides as expressions of one dtype: vectors win over scalars, floats over integers, wider over narrower."""
    if not isinstance(a, PrimExpr) and not isinstance(b, PrimExpr):
        a = convert(a)
    if not isinstance(a, PrimExpr):
        assert isinstance(b, PrimExpr)
        a = _like(a, b)
    elif not isinstance(b, PrimExpr):
        b = _like(b, a)
    if a.dtype == b.dtype:
        return a, b
    la, lb = dt.lanes(a.dtype), dt.lanes(b.dtype)
    if la != lb:
        if la == 1:
            a = Broadcast(a, lb)
        elif lb == 1:
            b = Broadcast(b, la)
        else:
            raise ValueError(f"vectors of {la} and {lb} lanes do not match")
    target = dt.with_lanes(_common(dt.element(a.dtype), dt.element(b.dtype)), max(la, lb))
    return cast(a, target), cast(b, target)


def _like(value: Any, other: PrimExpr) -> PrimExpr:
    """A Python number as a constant that goes with `other`: a float beside an integer stays a float."""
    if isinstance(value, float) and not dt.is_float(other.dtype) and other.dtype != "handle":
        return const(value)
    if isinstance(value, (bool, int, float)):
        if dt.is_bool(other.dtype) and not isinstance(value, bool):
            return const(value)
        if not dt.is_float(other.dtype) and not dt.is_bool(other.dtype) and other.dtype != "handle":
            base = dt.element(other.dtype)
            if not dt.min_value(base) <= int(value) <= dt.max_value(base):
                return const(value)
        return const(value, other.dtype if other.dtype != "handle" else None)
    return convert(value)


def _common(a: str, b: str) -> str:
    if a == b:
        return a
    fa, fb = dt.is_float(a), dt.is_float(b)
    if fa != fb:
        return a if fa else b
    if fa:
        return a if dt.bits(a) > dt.bits(b) else b if dt.bits(b) > dt.bits(a) else "float32"
    ba, bb = dt.bits(a), dt.bits(b)
    if ba != bb:
        return a if ba > bb else b
    return a if dt.is_uint(a) else b  # as in C


def cast(value: ExprLike, dtype: str) -> PrimExpr:
    """`value` converted to `dtype`; constants at once."""
    value = convert(value)
    if value.dtype == dtype:
        return value
    if isinstance(value, StringImm):
        raise _wrong(f"the string {value.value!r} cannot be cast to {dtype}", "a handle is no number")
    n = dt.lanes(dtype)
    if dt.lanes(value.dtype) == 1 and n != 1:
        return Broadcast(cast(value, dt.element(dtype)), n)
    if isinstance(value, Broadcast) and dt.lanes(value.value.dtype) == 1:
        return Broadcast(cast(value.value, dt.element(dtype)), n)
    if isinstance(value, IntImm) and dtype != "handle":
        return _number(value.value, dtype)
    if isinstance(value, FloatImm):
        if dt.is_float(dtype):
            return FloatImm(dtype, value.value)
        if math.isfinite(value.value) and dt.is_int(dtype):
            return _number(int(value.value), dtype)
    return Cast(dtype, value)


def _number(value: int, dtype: str) -> PrimExpr:
    """An integer converted to `dtype`: out of range, it wraps."""
    return const(value if dt.is_float(dtype) else wrap(value, dt.element(dtype)), dtype)


def _scalar(e: PrimExpr) -> IntImm | FloatImm | None:
    if isinstance(e, (IntImm, FloatImm)):
        return e
    if isinstance(e, Broadcast) and isinstance(e.value, (IntImm, FloatImm)):
        return e.value
    return None


def is_const(e: ExprLike, value: float) -> bool:
    """Is `e` the constant `value`, or a broadcast of it?"""
    if not isinstance(e, PrimExpr):
        return e == value
    imm = _scalar(e)
    return imm is not None and imm.value == value


def _fold(
    kind: Callable[[PrimExpr, PrimExpr], PrimExpr], a: PrimExpr, b: PrimExpr, f: Callable[[Any, Any], Any]
) -> PrimExpr:
    """`f` of two constants (a zero too, which is false as a truth value), else the node `kind`."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return IntImm(a.dtype, wrap(f(a.value, b.value), a.dtype))
    if isinstance(a, FloatImm) and isinstance(b, FloatImm):
        try:
            return FloatImm(a.dtype, _round(f(a.value, b.value), a.dtype))
        except (ZeroDivisionError, OverflowError):  # inf or nan: left to the machine
            return kind(a, b)
    return kind(a, b)


def _round(value: float, dtype: str) -> float:
    """`value` as a number of the float format `dtype` can hold."""
    return value if dtype == "float64" else float(dt.to_numpy(dtype).type(value))


def add(a: ExprLike, b: ExprLike) -> PrimExpr:
    """a + b"""
    a, b = match_dtypes(a, b)
    if is_const(b, 0) and not dt.is_float(a.dtype):
        return a
    if is_const(a, 0) and not dt.is_float(a.dtype):
        return b
    return _fold(Add, a, b, lambda x, y: x + y)


def sub(a: ExprLike, b: ExprLike) -> PrimExpr:
    """a - b"""
    a, b = match_dtypes(a, b)
    if is_const(b, 0):
        return a
    return _fold(Sub, a, b, lambda x, y: x - y)


def mul(a: ExprLike, b: ExprLike) -> PrimExpr:
    """a * b"""
    a, b = match_dtypes(a, b)
    if is_const(b, 1):
        return a
    if is_const(a, 1):
        return b
    if not dt.is_float(a.dtype):
        if is_const(a, 0):
            return a
        if is_const(b, 0):
            return b
    return _fold(Mul, a, b, lambda x, y: x * y)


def neg(a: ExprLike) -> PrimExpr:
    """-a, as `a * -1`"""
    a = convert(a)
    if isinstance(a, FloatImm):
        return FloatImm(a.dtype, -a.value)
    if dt.is_uint(a.dtype):
        return sub(const(0, a.dtype), a)
    return mul(a, const(-1, a.dtype))


def _check_divisor(b: PrimExpr) -> None:
    if is_const(b, 0) and not dt.is_float(b.dtype):
        raise _wrong("division by the constant zero", "guard the division, or divide by something else")


def true_div(a: ExprLike, b: ExprLike) -> PrimExpr:
    a, b = match_dtypes(a, b)
    if not dt.is_float(a.dtype):
        raise TypeError("`/` on integers is ambiguous: use `//` (floor), tir.truncdiv, or cast to a float first")
    return div(a, b)


def div(a: ExprLike, b: ExprLike) -> PrimExpr:
    """a / b; integers truncate towards zero (C)"""
    a, b = match_dtypes(a, b)
    _check_divisor(b)
    if is_const(b, 1):
        return a
    if isinstance(b, FloatImm) and b.value == 0:
        return Div(a, b)
    if dt.is_float(a.dtype):
        return _fold(Div, a, b, lambda x, y: x / y)
    return _fold(Div, a, b, lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1))


def mod(a: ExprLike, b: ExprLike) -> PrimExpr:
    """The remainder of truncating division: the sign of `a` (C)"""
    a, b = match_dtypes(a, b)
    _check_divisor(b)
    if is_const(b, 1) and not dt.is_float(a.dtype):
        return const(0, a.dtype)
    return _fold(
        Mod, a, b, lambda x, y: int(math.fmod(x, y)) if abs(x) < 2**52 else abs(x) % abs(y) * (1 if x >= 0 else -1)
    )


truncdiv = div
truncmod = mod


def floordiv(a: ExprLike, b: ExprLike) -> PrimExpr:
    """The quotient rounded down (Python's `//`)"""
    a, b = match_dtypes(a, b)
    _check_divisor(b)
    if is_const(b, 1) and not dt.is_float(a.dtype):
        return a
    if is_const(a, 0) and not dt.is_float(a.dtype):
        return a
    return _fold(FloorDiv, a, b, lambda x, y: x // y)


def floormod(a: ExprLike, b: ExprLike) -> PrimExpr:
    """The remainder of floor division (Python's `%`)"""
    a, b = match_dtypes(a, b)
    _check_divisor(b)
    if is_const(b, 1) and not dt.is_float(a.dtype):
        return const(0, a.dtype)
    if is_const(a, 0) and not dt.is_float(a.dtype):
        return a
    return _fold(FloorMod, a, b, lambda x, y: x % y)


def ceildiv(a: ExprLike, b: ExprLike) -> PrimExpr:
    """The quotient rounded up; `b` positive"""
    a, b = match_dtypes(a, b)
    return floordiv(a + (b - 1), b)


def minimum(a: ExprLike, b: ExprLike) -> PrimExpr:
    """The smaller of two"""
    a, b = match_dtypes(a, b)
    return a if a is b else _fold(Min, a, b, min)


def maximum(a: ExprLike, b: ExprLike) -> PrimExpr:
    """The greater of two"""
    a, b = match_dtypes(a, b)
    return a if a is b else _fold(Max, a, b, max)


_CMP: dict[Any, Callable[[Any, Any], bool]] = {}


def cmp(kind: type[CmpOp], a: ExprLike, b: ExprLike) -> PrimExpr:
    """The comparison `kind` (EQ, NE, LT, LE, GT, GE) of a and b; constants at once."""
    if not _CMP:
        import operator as o

        _CMP.update({EQ: o.eq, NE: o.ne, LT: o.lt, LE: o.le, GT: o.gt, GE: o.ge})
    a, b = match_dtypes(a, b)
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
        return IntImm("bool", int(_CMP[kind](a.value, b.value)))
    return kind(a, b)


def logical_and(a: ExprLike, b: ExprLike) -> PrimExpr:
    """Both of two bools"""
    a, b = convert(a), convert(b)
    if isinstance(a, IntImm):
        return b if a.value else a
    if isinstance(b, IntImm):
        return a if b.value else b
    return And(a, b)


def logical_or(a: ExprLike, b: ExprLike) -> PrimExpr:
    """Either of two bools"""
    a, b = convert(a), convert(b)
    if isinstance(a, IntImm):
        return a if a.value else b
    if isinstance(b, IntImm):
        return b if b.value else a
    return Or(a, b)


def logical_not(a: ExprLike) -> PrimExpr:
    """The opposite of a bool"""
    a = convert(a)
    return IntImm("bool", int(not a.value)) if isinstance(a, IntImm) else Not(a)


def all_of(*args: ExprLike) -> PrimExpr:
    """All of the conditions; true for none"""
    out: PrimExpr = IntImm("bool", 1)
    for a in args:
        out = logical_and(out, a)
    return out


def any_of(*args: ExprLike) -> PrimExpr:
    """Any of the conditions; false for none"""
    out: PrimExpr = IntImm("bool", 0)
    for a in args:
        out = logical_or(out, a)
    return out


def select(condition: ExprLike, true_value: ExprLike, false_value: ExprLike) -> PrimExpr:
    """`true_value` where `condition`, else `false_value`; both may be evaluated"""
    condition = convert(condition)
    a, b = match_dtypes(true_value, false_value)
    if isinstance(condition, IntImm):
        return a if condition.value else b
    return Select(condition, a, b)


def if_then_else(cond: ExprLike, t: ExprLike, f: ExprLike) -> PrimExpr:
    """`t` if `cond`, else `f`; only the one chosen is evaluated, so the other may be out of bounds"""
    cond = convert(cond)
    if not dt.is_bool(cond.dtype):
        raise _wrong(f"the condition of if_then_else is {cond.dtype}, not bool", "compare it with something: x != 0")
    a, b = match_dtypes(t, f)
    if isinstance(cond, IntImm):
        return a if cond.value else b
    return call_intrin(a.dtype, "tir.if_then_else", cond, a, b)


def call_intrin(dtype: str, name: str, *args: Any) -> Call:
    """A call of the intrinsic `name`; numbers and strings among the arguments become constants"""
    return Call(dtype, Op.get(name), tuple(a if isinstance(a, Node) else convert(a) for a in args))


def _wrong(message: str, hint: str) -> CompileError:
    return CompileError.at("TW0904", message, hint=hint)


def _check_bits(name: str, a: PrimExpr, b: PrimExpr) -> None:
    for e in (a, b):
        if dt.is_float(e.dtype):
            raise _wrong(f"{name} takes integers, not {e.dtype}", "cast the operand, or reinterpret its bits")
    amount = b.value if isinstance(b, Broadcast) else b
    if name.startswith("tir.shift") and isinstance(amount, IntImm) and not 0 <= amount.value < dt.bits(a.dtype):
        raise _wrong(f"a shift of {a.dtype} by {amount.value}", f"shift by 0 to {dt.bits(a.dtype) - 1}")


def bitwise_not(a: PrimExpr) -> PrimExpr:
    _check_bits("tir.bitwise_not", a, a)
    return call_intrin(a.dtype, "tir.bitwise_not", a)


def bitwise(name: str, a: ExprLike, b: ExprLike) -> PrimExpr:
    a, b = match_dtypes(a, b)
    _check_bits(name, a, b)
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        x, y = a.value, b.value
        table: dict[str, Callable[[], int]] = {
            "tir.shift_left": lambda: x << y,
            "tir.shift_right": lambda: x >> y,
            "tir.bitwise_and": lambda: x & y,
            "tir.bitwise_or": lambda: x | y,
            "tir.bitwise_xor": lambda: x ^ y,
        }
        return IntImm(a.dtype, wrap(table[name](), a.dtype))
    if dt.is_bool(a.dtype) and name == "tir.bitwise_and":
        return logical_and(a, b)
    if dt.is_bool(a.dtype) and name == "tir.bitwise_or":
        return logical_or(a, b)
    return call_intrin(a.dtype, name, a, b)


_FLOAT_MAX = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}


def min_value(dtype: str) -> PrimExpr:
    """The least finite value of `dtype`"""
    return FloatImm(dtype, -_FLOAT_MAX[dtype]) if dt.is_float(dtype) else const(dt.min_value(dtype), dtype)


def max_value(dtype: str) -> PrimExpr:
    """The greatest finite value of `dtype`"""
    return FloatImm(dtype, _FLOAT_MAX[dtype]) if dt.is_float(dtype) else const(dt.max_value(dtype), dtype)


def pointer_var(name: str, dtype: str, scope: str = "global") -> Var:
    """A handle that points to elements of `dtype` in memory of `scope`"""
    return Var(name, "handle", PointerType(PrimType(dtype), scope))
