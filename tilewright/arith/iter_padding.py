"""Padding of iterators whose extent a divisor does not divide.

`(v + base) // d` and `(v + base) % d` are digits of v only where `base` and the extent are multiples of d. Otherwise v is
replaced by a longer iterator: `left` points before it so that it starts at a multiple of d, and points after it so that it
ends at one. All digits of one mark share one padded mark, so its factor is the least common multiple of all divisors, which
a first pass over the indices gathers (`gathering`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.arith.iter_expr import IterMark, IterSplitExpr, IterSumExpr, is_zero
from tilewright.arith.linear import expr_key

if TYPE_CHECKING:
    from tilewright.arith.iter_rewrite import Rewriter

__all__ = ["Padding"]


class _Info:
    """What is known of one mark: its divisors' common multiple, whether it needs padding, and its padded marks by `left`."""

    def __init__(self, factor: PrimExpr) -> None:
        self.factor = factor
        self.needed = False
        self.padded: dict[Any, IterMark] = {}


class Padding:
    """The padded marks of a rewriter. `off`: nothing is padded, a division that is not even is refused."""

    def __init__(self, owner: Rewriter) -> None:
        self.owner = owner
        self.gathering = False
        self.off = False
        self.needed = False
        self.infos: dict[IterMark, _Info] = {}
        self.origin: dict[IterMark, IterMark] = {}
        self.predicate: PrimExpr = IntImm("bool", 0)

    def pad(
        self, split: IterSplitExpr, base: PrimExpr, d: PrimExpr, quotient: bool
    ) -> tuple[IterSplitExpr, PrimExpr] | None:
        """(the digit, padded so that `digit - left + base` divides evenly; left). None where that cannot be."""
        o = self.owner
        zero = IntImm(split.dtype, 0)
        left = zero if o.divisible(base, d) else o.simple(ex.floormod(base, d))
        edge = ex.add(left, split.extent)
        even = is_zero(left) and o.divisible(edge, d)
        mark = split.source
        unit = o.times(d, split.lower_factor)
        if self.off:
            fits = even or (is_zero(left) and (quotient or self.is_top(split)))
            return (split, zero) if fits else None
        if o.level == 0:
            return (split, zero) if even else None
        if self.gathering:
            self.gather(mark, unit, even)
            return split, left
        info = self.infos.get(mark)
        if info is None or not info.needed:
            if even:
                return split, zero
            info = self.infos[mark] = _Info(unit)
            info.needed = True
        return self.padded_split(split, base, d, info, even)

    def gather(self, mark: IterMark, unit: PrimExpr, even: bool) -> None:
        """Note a divisor of a mark."""
        info = self.infos.get(mark)
        if info is None:
            info = self.infos[mark] = _Info(unit)
        else:
            info.factor = _multiple(self.owner, info.factor, unit)
        if not even:
            info.needed = self.needed = True

    def is_top(self, split: IterSplitExpr) -> bool:
        """Does the digit reach the end of its mark?"""
        o = self.owner
        lower, extent, whole = split.lower_factor, split.extent, split.source.extent
        if isinstance(lower, IntImm) and isinstance(extent, IntImm) and isinstance(whole, IntImm):
            return lower.value * extent.value >= whole.value
        return o.equal(o.times(lower, extent), whole)

    def padded_split(
        self, split: IterSplitExpr, base: PrimExpr, d: PrimExpr, info: _Info, even: bool
    ) -> tuple[IterSplitExpr, PrimExpr] | None:
        o = self.owner
        mark, lower = split.source, split.lower_factor
        zero = IntImm(split.dtype, 0)
        if not self.is_top(split):
            if not even:
                return None
            return IterSplitExpr(
                self.padded_mark(mark, info, info.factor, zero), lower, split.extent, split.scale
            ), zero
        unit = o.times(lower, d)
        factor = info.factor if o.divisible(info.factor, unit) else unit
        step = o.over(factor, lower)
        left = zero if o.divisible(base, step) else o.simple(ex.floormod(base, step))
        padded = self.padded_mark(mark, info, factor, o.times(left, lower))
        extent = o.simple(ex.ceildiv(padded.extent, lower))
        return IterSplitExpr(padded, lower, extent, split.scale), left

    def padded_mark(self, mark: IterMark, info: _Info, factor: PrimExpr, left: PrimExpr) -> IterMark:
        """The mark with `left` points before it, its end brought to a multiple of `factor`."""
        o = self.owner
        key = expr_key(left), expr_key(factor)
        found = info.padded.get(key)
        if found is None:
            total = o.simple(ex.add(mark.extent, left))
            extent = total if o.divisible(total, factor) else o.times(ex.ceildiv(total, factor), factor)
            if is_zero(left) and o.equal(extent, mark.extent):
                found = mark
            else:
                found = IterMark(IterSumExpr((IterSplitExpr(mark),), left), o.simple(extent))
                self.origin[found] = mark
                self.note(mark, left, found)
            info.padded[key] = found
        return found

    def note(self, mark: IterMark, left: PrimExpr, padded: IterMark) -> None:
        """Which values are padding: below 0, and from the old extent on."""
        o = self.owner
        value = o.expr(mark)
        if not is_zero(left):
            self.predicate = ex.logical_or(self.predicate, ex.cmp(ex.LT, value, IntImm(value.dtype, 0)))
        if not o.equal(o.plus(left, mark.extent), padded.extent):
            self.predicate = ex.logical_or(self.predicate, ex.cmp(ex.GE, value, mark.extent))


def _multiple(o: Rewriter, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """The least common multiple of two divisors; of symbolic ones the product, where neither divides the other."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return IntImm(a.dtype, math.lcm(a.value, b.value))
    if o.divisible(a, b):
        return a
    return b if o.divisible(b, a) else o.times(a, b)
