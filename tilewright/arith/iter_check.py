"""Are the indices of a map independent, and do they cover the iterators?"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.arith.iter_expr import IterMark, IterSplitExpr, IterSumExpr
from tilewright.arith.iter_rewrite import BIJECTIVE, NOCHECK, Rewriter

__all__ = ["check_mapping"]

Used = dict[IterMark, list[IterSplitExpr]]


def check_mapping(r: Rewriter, sums: Sequence[IterSumExpr], level: int) -> str:
    """Why the map is not what the level asks for; empty where it is."""
    if level == NOCHECK:
        return ""
    used, roots = _used(r, sums)
    for mark, splits in used.items():
        why = _digits(r, mark, splits, level)
        if why:
            return why
    if level == BIJECTIVE:
        for mark in r.marks:
            if mark not in used and mark not in roots:
                return f"the map is no bijection: iterator {mark.source} does not occur"
    return _shared(r, used, roots)


def _used(r: Rewriter, sums: Sequence[IterSumExpr]) -> tuple[Used, dict[IterMark, list[IterMark]]]:
    """(the digits used of each mark, of the parts of sums too; for each padded iterator, its padded marks)."""
    used: Used = {}
    roots: dict[IterMark, list[IterMark]] = {}
    seen: set[IterMark] = set()

    def visit(mark: IterMark) -> None:
        if mark in seen:
            return
        seen.add(mark)
        source = mark.source
        if mark in r.padding.origin:
            root = mark
            while root in r.padding.origin:
                root = r.padding.origin[root]
            roots.setdefault(root, []).append(mark)
            if root not in seen:
                seen.add(root)
                source = root.source
        if isinstance(source, IterSumExpr) and (mark not in r.padding.origin or source is not mark.source):
            for a in source.args:
                visit(a.source)
                used.setdefault(a.source, []).append(a)

    for s in sums:
        for a in s.args:
            visit(a.source)
            used.setdefault(a.source, []).append(a)
    return used, roots


def _digits(r: Rewriter, mark: IterMark, splits: list[IterSplitExpr], level: int) -> str:
    """The digits of one mark: each once, without overlap; all of them for a bijection."""
    left = list(splits)
    expected: PrimExpr = IntImm(mark.source.dtype, 1)
    while left:
        found = next((s for s in left if r.equal(s.lower_factor, expected)), None)
        if found is None and level != BIJECTIVE:
            found = _next_above(r, left, expected)
        if found is None:
            return f"the indices are not independent: they use digits of {r.expr(mark)} that overlap"
        left.remove(found)
        expected = r.times(found.lower_factor, found.extent)
    whole = r.equal(expected, mark.extent)
    origin = r.padding.origin.get(mark)
    if level == BIJECTIVE:
        return "" if whole and origin is None else f"the map is no bijection: not all of {r.expr(mark)} is used"
    if origin is None:
        if whole or r.divisible(mark.extent, expected):
            return ""
        return f"the indices do not take all values: a digit of {r.expr(mark)} ends within its extent {mark.extent}"
    if whole and len(splits) == 1 and not r.equal(splits[0].extent, mark.extent):
        return ""
    if not r.divisible(mark.extent, expected):
        return f"the indices do not take all values of the padded {r.expr(mark)}"
    if r.ana.can_prove(ex.cmp(ex.GE, origin.extent, expected)):
        return ""
    return f"the indices are not independent: {r.expr(mark)} is padded to {mark.extent}, and not all its values occur"


def _next_above(r: Rewriter, left: list[IterSplitExpr], expected: PrimExpr) -> IterSplitExpr | None:
    """The next digit where some below it are left out: its lower factor is a multiple of what is used so far."""
    best: IterSplitExpr | None = None
    for s in left:
        if r.divisible(s.lower_factor, expected) and (best is None or r.divisible(best.lower_factor, s.lower_factor)):
            best = s
    return best


def _shared(r: Rewriter, used: Used, roots: dict[IterMark, list[IterMark]]) -> str:
    """One iterator padded in two ways, or padded and as it is: do all values of its digits together occur? By counting."""
    for root, padded in roots.items():
        marks = [m for m in (*padded, root) if m in used]
        if len(marks) > 1 and not _all_occur(r, root, [(m, s) for m in marks for s in used[m]]):
            return f"the indices are not independent: {r.expr(root)} is padded in more than one way"
    return ""


def _all_occur(r: Rewriter, root: IterMark, digits: list[tuple[IterMark, IterSplitExpr]]) -> bool:
    """Does every combination of the digits' values occur?"""
    total = 1
    rows: list[tuple[int, int, int]] = []
    for mark, s in digits:
        left, m = 0, mark
        while m in r.padding.origin:
            assert isinstance(m.source, IterSumExpr)
            if not isinstance(m.source.base, IntImm):
                return False
            left += m.source.base.value
            m = r.padding.origin[m]
        if not isinstance(s.lower_factor, IntImm) or not isinstance(s.extent, IntImm):
            return False
        rows.append((left, s.lower_factor.value, s.extent.value))
        total *= s.extent.value
    count = root.extent.value if isinstance(root.extent, IntImm) else 0
    if not 0 < total <= count <= 1 << 16:
        return False
    return len({tuple((i + left) // lower % extent for left, lower, extent in rows) for i in range(count)}) == total
