"""What is known of an integer expression without solving anything: the least and the greatest value it can take.

Exact integers, before any wrapping: a caller compares them with the range of the dtype. A code generator asks whether an
operation can wrap, whether a division may be written as the machine's, whether an index fits in 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arith import expr as E
from tilewright.ir import dtype as dt

__all__ = ["Range", "fits", "range_of"]

Range = tuple[int, int]
"""The least and the greatest value."""


def dtype_range(dtype: str) -> Range:
    """All values of an integer dtype; those of int64 for what is no integer."""
    if dt.is_int(dtype) or dt.is_bool(dtype):
        return dt.min_value(dtype), dt.max_value(dtype)
    return dt.min_value("int64"), dt.max_value("int64")


def fits(found: Range, dtype: str) -> bool:
    """Do all values lie in the range of the dtype?"""
    low, high = dtype_range(dtype)
    return low <= found[0] and found[1] <= high


def range_of(e: E.PrimExpr, known: Mapping[E.Var, Range]) -> Range:
    """The range of a scalar integer expression, given those of variables."""
    t = type(e)
    if t is E.IntImm:
        return e.value, e.value  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(e, E.Var):
        found = known.get(e)
        if found is not None:
            return found
        low, high = dtype_range(e.dtype)
        return (0, high) if isinstance(e, E.SizeVar) else (low, high)
    if isinstance(e, E.BinaryOp):
        return _binary(t, e, known)
    if isinstance(e, E.Cast) and (dt.is_int(e.value.dtype) or dt.is_bool(e.value.dtype)):
        inner = _wrapped(e.value, known)
        return inner if fits(inner, e.dtype) else dtype_range(e.dtype)
    if isinstance(e, E.Select):
        a, b = _wrapped(e.true_value, known), _wrapped(e.false_value, known)
        return min(a[0], b[0]), max(a[1], b[1])
    return dtype_range(e.dtype)


def _wrapped(e: E.PrimExpr, known: Mapping[E.Var, Range]) -> Range:
    """The range after wrapping: that of the dtype where the exact one leaves it."""
    found = range_of(e, known)
    return found if fits(found, e.dtype) else dtype_range(e.dtype)


def _binary(t: type, e: E.BinaryOp, known: Mapping[E.Var, Range]) -> Range:
    (a0, a1), (b0, b1) = _wrapped(e.a, known), _wrapped(e.b, known)
    if t is E.Add:
        return a0 + b0, a1 + b1
    if t is E.Sub:
        return a0 - b1, a1 - b0
    if t is E.Mul:
        ends = (a0 * b0, a0 * b1, a1 * b0, a1 * b1)
        return min(ends), max(ends)
    if t is E.Min:
        return min(a0, b0), min(a1, b1)
    if t is E.Max:
        return max(a0, b0), max(a1, b1)
    if t is E.FloorDiv and b0 > 0:
        return min(a0 // b0, a0 // b1), max(a1 // b0, a1 // b1)
    if t is E.Div and b0 > 0 and a0 >= 0:
        return a0 // b1, a1 // b0
    if t is E.FloorMod and b0 > 0:
        return (0, min(a1, b1 - 1)) if a0 >= 0 else (0, b1 - 1)
    if t is E.Mod and b0 > 0 and a0 >= 0:
        return 0, min(a1, b1 - 1)
    return dtype_range(e.dtype)
