"""Dividing a map of iterators by a subspace, and inverting one.

`subspace_divide` writes each index as `outer * extent(inner) + inner`, `inner` of the `sub_iters` only and `outer` of the
others: what blockizing a part of a loop nest needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import ExprLike, IntImm, PrimExpr, Var, convert
from tilewright.arith.iter_expr import (
    IterMapExpr,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    is_one,
    is_zero,
    normalize_iter_map_to_expr,
)
from tilewright.arith.iter_map import detect
from tilewright.arith.iter_rewrite import split_key

__all__ = ["inverse_affine_iter_map", "subspace_divide"]


class _Undivided(Exception):
    """The index has no such form."""


class Division(NamedTuple):
    """`outer * inner_extent + inner`"""

    outer: IterMapExpr
    outer_extent: PrimExpr
    inner: IterMapExpr
    inner_extent: PrimExpr

    @property
    def is_outer(self) -> bool:
        """Is there nothing of the subspace in it?"""
        return _is_nothing(self.inner)

    @property
    def is_inner(self) -> bool:
        """Is it all of the subspace?"""
        return _is_nothing(self.outer)


def _is_nothing(e: IterMapExpr) -> bool:
    return isinstance(e, IterSumExpr) and not e.args and is_zero(e.base)


def splits_by_mark(sums: Sequence[IterSumExpr]) -> dict[IterMark, list[IterSplitExpr]]:
    """The digits used of each mark, of the marks inside sums too; inner marks first."""
    out: dict[IterMark, list[IterSplitExpr]] = {}
    seen: set[IterMark] = set()

    def visit(mark: IterMark) -> None:
        if mark not in seen:
            seen.add(mark)
            if isinstance(mark.source, IterSumExpr):
                for a in mark.source.args:
                    visit(a.source)
                    out.setdefault(a.source, []).append(a)

    for s in sums:
        for a in s.args:
            visit(a.source)
            out.setdefault(a.source, []).append(a)
    return out


class _Divider:
    def __init__(self, ana: Analyzer, splits: dict[IterMark, list[IterSplitExpr]], inner: set[Var]) -> None:
        self.ana, self.splits, self.inner = ana, splits, inner
        self.done: dict[Any, Division] = {}
        self.outer_preds: PrimExpr = IntImm("bool", 1)
        self.inner_preds: PrimExpr = IntImm("bool", 1)

    def equal(self, a: PrimExpr, b: PrimExpr) -> bool:
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value == b.value
        return self.ana.can_prove_equal(a, b)

    def sum(self, s: IterSumExpr, extent: PrimExpr) -> Division:
        """A sum whose mark has `extent` values (0: not known)."""
        dtype = s.dtype
        zero, one = IntImm(dtype, 0), IntImm(dtype, 1)
        nothing = IterSumExpr((), zero)
        if not s.args:
            return Division(nothing, one, IterSumExpr((), s.base), one)
        if len(s.args) == 1:
            if not is_one(s.args[0].scale):
                raise _Undivided
            found = self.split(s.args[0])
            if is_zero(s.base):
                return found
            if found.is_outer and not found.is_inner:
                return found._replace(outer=_plus(found.outer, s.base))
            return found._replace(inner=_plus(found.inner, s.base))
        size, inner_extent, outer_extent = one, one, one
        inner_args: list[IterSplitExpr] = []
        outer_args: list[IterSplitExpr] = []
        inside = True
        scale_is_one = False
        for a in reversed(s.args):
            if is_one(a.scale):
                scale_is_one = True
            part = self.split(a)
            if part.is_inner and not (part.is_outer and not inside):
                if not inside:
                    raise _Undivided
                new = _scaled(part.inner, part.inner_extent, inner_extent)
                inner_args.insert(0, new)
                inner_extent = self.ana.simplify(ex.mul(inner_extent, new.extent))
            elif part.is_outer:
                inside = False
                new = _scaled(part.outer, part.outer_extent, outer_extent)
                outer_args.insert(0, new)
                outer_extent = self.ana.simplify(ex.mul(outer_extent, new.extent))
            else:
                raise _Undivided
            size = self.ana.simplify(ex.mul(size, new.extent))
        if not scale_is_one:
            raise _Undivided
        outer = IterSumExpr(outer_args, zero) if outer_args else nothing
        inner = IterSumExpr(inner_args, s.base)
        if not self.equal(size, extent) and not is_zero(extent):
            return self.limited(outer, outer_args, inner, inner_args, extent, one)
        return Division(outer, outer_extent, inner, inner_extent)

    def limited(self, outer: Any, outer_args: Any, inner: Any, inner_args: Any, extent: Any, one: Any) -> Division:
        """A sum that a condition shortened is all outer or all inner, and the condition goes with it."""
        if not inner_args:
            less = ex.cmp(ex.LT, normalize_iter_map_to_expr(outer), extent)
            self.outer_preds = ex.logical_and(self.outer_preds, less)
            return Division(outer, extent, IterSumExpr((), IntImm(outer.dtype, 0)), one)
        if not outer_args:
            less = ex.cmp(ex.LT, normalize_iter_map_to_expr(inner), extent)
            self.inner_preds = ex.logical_and(self.inner_preds, less)
            return Division(IterSumExpr((), IntImm(inner.dtype, 0)), one, inner, extent)
        raise _Undivided

    def split(self, s: IterSplitExpr) -> Division:
        """One digit: of a variable it is inner or outer; of a sum, what its part of the sum is."""
        key = (split_key(s), id(s.scale) if not isinstance(s.scale, IntImm) else s.scale.value)
        found = self.done.get(key)
        if found is not None:
            return found
        mark = s.source
        one, nothing = IntImm(s.dtype, 1), IterSumExpr((), IntImm(s.dtype, 0))
        source = mark.source
        if not isinstance(source, IterSumExpr):
            v = next((v for v in _variables(source) if v in self.inner), None)
            out = Division(nothing, one, s, s.extent) if v is not None else Division(s, s.extent, nothing, one)
            self.done[key] = out
            return out
        whole = self.sum(source, mark.extent)
        digits = self.splits[mark]
        if len(digits) == 1 and is_one(s.lower_factor) and self.equal(s.extent, mark.extent):
            self.done[key] = whole
            return whole
        inner, outer = self.sides(digits, whole)
        inner_mark = IterMark(whole.inner, whole.inner_extent)
        outer_mark = IterMark(whole.outer, whole.outer_extent)
        for d in inner:
            new = IterSplitExpr(inner_mark, d.lower_factor, d.extent, d.scale)
            self.done[self.key(d)] = Division(nothing, one, new, d.extent)
        for d in outer:
            lower = self.ana.simplify(ex.floordiv(d.lower_factor, outer[0].lower_factor))
            new = IterSplitExpr(outer_mark, lower, d.extent, d.scale)
            self.done[self.key(d)] = Division(new, d.extent, nothing, one)
        found = self.done.get(key)
        if found is None:
            raise _Undivided
        return found

    def key(self, s: IterSplitExpr) -> Any:
        return (split_key(s), id(s.scale) if not isinstance(s.scale, IntImm) else s.scale.value)

    def sides(
        self, digits: Sequence[IterSplitExpr], whole: Division
    ) -> tuple[list[IterSplitExpr], list[IterSplitExpr]]:
        """The digits below and above the boundary between the inner and the outer part of a sum."""
        beyond = whole.is_outer
        used = [False] * len(digits)
        inner: list[IterSplitExpr] = []
        outer: list[IterSplitExpr] = []
        lower: PrimExpr = IntImm(digits[0].dtype, 1)
        for _ in digits:
            j = next((j for j, d in enumerate(digits) if not used[j] and self.equal(d.lower_factor, lower)), -1)
            if j < 0:
                raise _Undivided
            used[j] = True
            (outer if beyond else inner).append(digits[j])
            lower = self.ana.simplify(ex.mul(lower, digits[j].extent))
            if self.equal(lower, whole.inner_extent):
                beyond = True
        if not beyond:
            raise _Undivided
        return inner, outer


def _variables(e: PrimExpr) -> list[Var]:
    from tilewright.ir.rewrite import free_vars

    return [e] if isinstance(e, Var) else [v for v in free_vars(e) if isinstance(v, Var)]


def _plus(e: IterMapExpr, base: PrimExpr) -> IterSumExpr:
    if isinstance(e, IterSumExpr):
        return IterSumExpr(e.args, ex.add(e.base, base))
    assert isinstance(e, IterSplitExpr)
    return IterSumExpr((e,), base)


def _scaled(e: IterMapExpr, extent: PrimExpr, scale: PrimExpr) -> IterSplitExpr:
    """A part of a sum as a split of that scale."""
    if isinstance(e, IterSplitExpr):
        return IterSplitExpr(e.source, e.lower_factor, e.extent, scale)
    return IterSplitExpr(IterMark(e, extent), IntImm(e.dtype, 1), extent, scale)


def subspace_divide(
    bindings: Sequence[ExprLike],
    input_iters: Mapping[Var, Any],
    sub_iters: Sequence[Var],
    predicate: ExprLike = True,
    check_level: str | int = "surjective",
    simplify_trivial_iterators: bool = True,
    *,
    analyzer: Analyzer | None = None,
) -> list[list[IterMark]]:
    """Each binding as `outer * inner.extent + inner`: [outer mark, inner mark] each, `inner` of `sub_iters` alone.

    The last pair holds the conditions of the outer and of the inner space, as the extents of two empty marks. The list is
    empty where the bindings do not divide. `normalize_iter_map_to_expr(mark.source)` gives the plain expression.
    """
    ana = analyzer or Analyzer()
    found = detect(bindings, input_iters, predicate, check_level, simplify_trivial_iterators, ana)
    if not found.indices:
        return []
    divider = _Divider(ana, splits_by_mark(found.indices), set(sub_iters))
    out: list[list[IterMark]] = []
    try:
        for s in found.indices:
            d = divider.sum(s, IntImm(s.dtype, 0))
            out.append([IterMark(d.outer, d.outer_extent), IterMark(d.inner, d.inner_extent)])
    except _Undivided:
        return []
    empty = IterSumExpr((), IntImm("int32", 0))
    out.append([IterMark(empty, divider.outer_preds), IterMark(empty, divider.inner_preds)])
    return out


def inverse_affine_iter_map(iter_map: Sequence[IterSumExpr], outputs: Sequence[ExprLike]) -> dict[Var, PrimExpr]:
    """For a bijective map, each input variable in terms of the outputs."""
    ana = Analyzer()
    values: dict[IterMark, PrimExpr] = {}
    order: list[IterMark] = []
    splits_seen: set[IterMark] = set()

    def visit(mark: IterMark) -> None:
        if mark in splits_seen:
            return
        splits_seen.add(mark)
        if isinstance(mark.source, IterSumExpr):
            for a in mark.source.args:
                visit(a.source)
        order.append(mark)

    def take_apart(s: IterSumExpr, value: PrimExpr) -> None:
        for i, a in enumerate(s.args):
            part = ex.floordiv(value, a.scale)
            mark = a.source
            if i:
                part = ex.floormod(part, a.extent)
            term = ex.mul(part, a.lower_factor)
            values[mark] = ex.add(values[mark], term) if mark in values else term

    for s in iter_map:
        for a in s.args:
            visit(a.source)
    for s, out in zip(iter_map, outputs, strict=True):
        take_apart(s, ex.sub(convert(out), s.base))
    for mark in reversed(order):
        if isinstance(mark.source, IterSumExpr) and mark in values:
            values[mark] = ana.simplify(values[mark])
            take_apart(mark.source, ex.sub(values[mark], mark.source.base))
    result: dict[Var, PrimExpr] = {}
    for mark in order:
        source = mark.source
        if isinstance(source, Var):
            result[source] = ana.simplify(values[mark])
        elif isinstance(source, ex.Sub) and isinstance(source.a, Var):
            result[source.a] = ana.simplify(ex.add(values[mark], source.b))
    return result
