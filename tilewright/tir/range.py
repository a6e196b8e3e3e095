"""`Range` as people call it: `Range(begin, end)`, or `Range(extent)`. What comes out is the node `tir.ir.Range`."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import ExprLike, const, convert, sub
from tilewright.tir import ir

__all__ = ["Range"]


class _Meta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, ir.Range)

    def __call__(cls, begin: ExprLike, end: ExprLike | None = None, span: Any = None) -> ir.Range:
        start = convert(begin)
        if end is None:
            return ir.Range(const(0, start.dtype), start, span=span)  # pyright: ignore[reportCallIssue]
        return ir.Range(start, sub(convert(end), start), span=span)  # pyright: ignore[reportCallIssue]


class Range(metaclass=_Meta):
    """The integers from `begin` to below `end`; one argument is the extent, from 0 on."""

    from_min_extent = staticmethod(ir.Range.from_min_extent)
