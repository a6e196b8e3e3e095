"""Iterators, their digits and sums of those: the vocabulary of `iter_map`.

    IterMark(source, extent)                     an iterator that counts 0 .. extent-1: a variable, or a dense sum
    IterSplitExpr(mark, lower, extent, scale)    a digit of a mark: (mark // lower % extent) * scale
    IterSumExpr([split, ...], base)              their sum

They are nodes: `structural_equal` compares them; `normalize_iter_map_to_expr` writes them as plain expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

from tilewright.arith import expr as ex
from tilewright.arith.expr import ExprLike, IntImm, PrimExpr, convert
from tilewright.ir.node import Node, derived, node

__all__ = ["IterMapExpr", "IterMark", "IterSplitExpr", "IterSumExpr", "is_one", "is_zero", "normalize_iter_map_to_expr"]


def is_one(e: PrimExpr) -> bool:
    """Is it the constant 1?"""
    return isinstance(e, IntImm) and e.value == 1


def is_zero(e: PrimExpr) -> bool:
    """Is it the constant 0?"""
    return isinstance(e, IntImm) and e.value == 0


def _like(value: ExprLike, dtype: str) -> PrimExpr:
    return (
        value if isinstance(value, PrimExpr) else convert(value, dtype if dtype.startswith(("int", "uint")) else None)
    )


@node
class IterMark(Node):
    """An iterator over [0, extent): `source` is a variable (or what behaves like one) or an `IterSumExpr`."""

    source: PrimExpr
    extent: PrimExpr

    def __init__(self, source: PrimExpr, extent: ExprLike, *, span: Any = None) -> None:
        this: Any = self
        this.source = source
        this.extent = _like(extent, source.dtype)
        this.span = span


@node
class IterMapExpr(PrimExpr):
    """The root of splits and sums."""


@node
class IterSplitExpr(IterMapExpr):
    """`(source // lower_factor % extent) * scale`"""

    source: IterMark
    lower_factor: PrimExpr
    extent: PrimExpr
    scale: PrimExpr
    dtype: str = derived("source.source.dtype")

    def __init__(
        self,
        source: IterMark,
        lower_factor: ExprLike = 1,
        extent: ExprLike | None = None,
        scale: ExprLike = 1,
        *,
        span: Any = None,
    ) -> None:
        this: Any = self
        dtype = source.source.dtype
        this.source = source
        this.lower_factor = _like(lower_factor, dtype)
        this.extent = source.extent if extent is None else _like(extent, dtype)
        this.scale = _like(scale, dtype)
        this.span = span
        this.dtype = dtype


@node
class IterSumExpr(IterMapExpr):
    """`sum(args) + base`"""

    args: tuple[IterSplitExpr, ...]
    base: PrimExpr
    dtype: str = derived("base.dtype")

    def __init__(self, args: Sequence[IterSplitExpr], base: ExprLike, *, span: Any = None) -> None:
        this: Any = self
        this.args = tuple(args)
        this.base = _like(base, this.args[0].dtype if this.args else "int32")
        this.span = span
        this.dtype = this.base.dtype


IterLike = Union[IterMark, PrimExpr]


def _mark(mark: IterMark, same: Any) -> PrimExpr:
    source = mark.source
    return normalize_iter_map_to_expr(source, same) if isinstance(source, IterMapExpr) else source


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    """Are two extents equal? Without an analyzer, by their value or their normal form."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value == b.value
    if a is b:
        return True
    from tilewright.arith.analyzer import Analyzer

    return Analyzer().can_prove_equal(a, b)


def normalize_iter_map_to_expr(expr: IterLike, same: Any = _same) -> PrimExpr:
    """The plain expression that a sum, a split (or a mark) stands for. `same(a, b)` decides whether extents are equal."""
    if isinstance(expr, IterSumExpr):
        out: PrimExpr = IntImm(expr.dtype, 0)
        for a in expr.args:
            out = ex.add(out, normalize_iter_map_to_expr(a, same))
        return ex.add(out, expr.base)
    if isinstance(expr, IterMark):
        return _mark(expr, same)
    if not isinstance(expr, IterSplitExpr):
        return expr
    mark = expr.source
    source, lower, extent = _mark(mark, same), expr.lower_factor, expr.extent
    if is_one(lower):
        value = source if same(extent, mark.extent) else ex.floormod(source, extent)
    elif isinstance(mark.extent, IntImm) and isinstance(lower, IntImm):
        top = mark.extent.value <= extent.value * lower.value if isinstance(extent, IntImm) else False
        value = ex.floordiv(source, lower) if top else ex.floordiv(ex.floormod(source, ex.mul(lower, extent)), lower)
    elif same(ex.mul(lower, extent), mark.extent):
        value = ex.floordiv(source, lower)
    else:
        value = ex.floordiv(ex.floormod(source, ex.mul(lower, extent)), lower)
    return ex.mul(value, expr.scale)
