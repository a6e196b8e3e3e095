"""Intervals with symbolic ends: what values an expression takes while some of its variables run over ranges.

    i*4 + j  for j in [0, 4)   ->   [i*4, i*4 + 3]

Ends are exact for sums, and safe (maybe too wide) for quotients, remainders, minima. What cannot be bounded is `EVERYTHING`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.arith import expr as ex
from tilewright.arith.expr import ExprLike, IntImm, PrimExpr, Var, convert
from tilewright.arith.poly import Poly, add_into, combine, multiply
from tilewright.ir.rewrite import free_vars

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer
    from tilewright.arith.simplify.core import Simplifier

__all__ = [
    "EVERYTHING", "IntSet", "IntervalSet", "estimate_region_lower_bound", "estimate_region_upper_bound", "eval_range",
    "eval_set", "union",
]  # fmt: skip


class IntervalSet(NamedTuple):
    """The integers from `min_value` to `max_value`, both included; None: no end on that side."""

    min_value: PrimExpr | None
    max_value: PrimExpr | None

    def is_everything(self) -> bool:
        """Is nothing known?"""
        return self.min_value is None and self.max_value is None

    def is_single_point(self) -> bool:
        """Is it one value, the same expression at both ends?"""
        return self.min_value is not None and self.min_value is self.max_value


IntSet = IntervalSet
EVERYTHING = IntervalSet(None, None)
_Ends = tuple[Poly, Poly]


class _Eval:
    def __init__(self, s: Simplifier, domains: Mapping[int, _Ends], variables: set[Var], dtype: str) -> None:
        self.s, self.domains, self.variables, self.dtype = s, domains, variables, dtype

    def moves(self, n: int) -> bool:
        """Does the atom depend on a running variable?"""
        if n in self.domains:
            return True
        e = self.s.atoms.table[n].expr
        return not isinstance(e, Var) and any(v in self.variables for v in free_vars(e))

    def poly(self, p: Poly) -> _Ends | None:
        """The ends of a polynomial."""
        low: Poly = {}
        high: Poly = {}
        for m, c in p.items():
            moving = [n for n in m if self.moves(n)]
            if not moving:
                add_into(low, {m: c})
                add_into(high, {m: c})
                continue
            if len(moving) > 1:
                return self.squares(p)
            ends = self.atom(moving[0])
            rest = list(m)
            rest.remove(moving[0])
            factor = {tuple(rest): c}
            sign = self.s.facts.bound(factor)
            if ends is None or not (sign[0] >= 0 or sign[1] <= 0):
                return None
            a, b = (multiply(factor, x) for x in ends)
            if sign[0] < 0:
                a, b = b, a
            add_into(low, a)
            add_into(high, b)
        return low, high

    def squares(self, p: Poly) -> _Ends | None:
        """Products of running atoms: constant bounds, if there are any."""
        low, high = self.s.facts.bound(p)
        if low in (float("-inf"), float("inf")) or high in (float("-inf"), float("inf")):
            return None
        return {(): low} if low else {}, {(): high} if high else {}

    def atom(self, n: int) -> _Ends | None:
        """The ends of a running atom."""
        found = self.domains.get(n)
        if found is not None:
            return found
        s = self.s
        atom = s.atoms.table[n]
        if atom.kind == "sum":
            return self.poly(atom.num)
        if atom.kind in ("div", "mod"):
            ends = self.poly(atom.num)
            if ends is None:
                return ({}, {(): atom.den - 1}) if atom.kind == "mod" else None
            from tilewright.arith.simplify.divide import floor_div

            low, high = (floor_div(s, x, atom.den, self.dtype) for x in ends)
            if atom.kind == "div":
                return low, high
            if not combine(low, high, -1):  # within one period
                return combine(ends[0], low, -atom.den), combine(ends[1], low, -atom.den)
            return {}, {(): atom.den - 1}
        return self.other(atom.expr)

    def other(self, e: Any) -> _Ends | None:
        s = self.s
        if isinstance(e, (ex.Min, ex.Max, ex.Select)):
            sides = (e.true_value, e.false_value) if isinstance(e, ex.Select) else (e.a, e.b)
            (a, b), (c, d) = ((self.poly(s.poly(x)) or (None, None)) for x in sides)
            if a is None or b is None or c is None or d is None:
                return None
            low = ex.Max if isinstance(e, ex.Max) else ex.Min
            high = ex.Min if isinstance(e, ex.Min) else ex.Max
            x, y = (
                s.poly(f(s.atoms.expr(u, e.dtype), s.atoms.expr(v, e.dtype))) for f, u, v in ((low, a, c), (high, b, d))
            )
            return x, y
        if isinstance(e, ex.Cast) and e.value.dtype in ("int32", "int64"):
            return self.poly(s.poly(e.value))
        if isinstance(e, ex.FloorMod):
            d = s.poly(e.b)
            if s.facts.not_negative(combine(d, {(): -1})) and not any(self.moves(n) for m in d for n in m):
                return {}, combine(d, {(): -1})
        return None


def _ends_of(value: Any, s: Simplifier, dtype: str) -> _Ends:
    """(least, greatest) of a Range, an IntervalSet or a pair (least, greatest)."""
    if hasattr(value, "extent"):
        low = s.poly(ex.cast(convert(value.min), dtype))
        n = s.poly(ex.cast(convert(value.extent), dtype))
        return low, combine(combine(low, n), {(): -1})
    low, high = value
    return s.poly(ex.cast(convert(low), dtype)), s.poly(ex.cast(convert(high), dtype))


def eval_range(e: PrimExpr, dom_map: Mapping[Any, Any], analyzer: Analyzer) -> tuple[PrimExpr, PrimExpr] | None:
    """(least, greatest) of `e` while each variable of `dom_map` runs over its Range (or pair least, greatest).

    A range may depend on other running variables. None where no bounds are known.
    """
    s = analyzer._s
    dtype = e.dtype
    domains: dict[int, _Ends] = {}
    variables: set[Var] = set()
    # to bound is to know: the ranges also decide remainders and signs while we are here
    saved = s.enter(IntImm("bool", 1))
    try:
        for key, value in dom_map.items():
            v: Var = key if isinstance(key, Var) else key.var
            variables.add(v)
            ends = _ends_of(value, s, dtype)
            number = s.atoms.intern(v if v.dtype == dtype else ex.cast(v, dtype))
            domains[number] = ends
            low, high = s.facts.bound(ends[0])[0], s.facts.bound(ends[1])[1]
            for n in {number, s.atoms.intern(v)}:
                old = s.facts.bounds.get(n, (float("-inf"), float("inf")))
                s.facts.bounds[n] = (max(low, old[0]), min(high, old[1]))
        s.forget()
        run = _Eval(s, domains, variables, dtype)
        low, high = (_settled(run, s.poly(e), side) for side in (0, 1))
    finally:
        s.leave(saved)
    if low is None or high is None:
        return None
    return s.shown(low, dtype), s.shown(high, dtype)


def _settled(run: _Eval, p: Poly, side: int) -> Poly | None:
    """One end, with running variables replaced until none is left."""
    for _ in range(8):
        if not any(run.moves(n) for m in p for n in m):
            return p
        ends = run.poly(p)
        if ends is None:
            return None
        p = ends[side]
    return None


def eval_set(e: ExprLike, dom_map: Mapping[Any, Any], analyzer: Analyzer | None = None) -> IntervalSet:
    """The interval of an expression; `EVERYTHING` where it is not known."""
    from tilewright.arith.analyzer import Analyzer as Make

    ends = eval_range(convert(e), dom_map, analyzer or Make())
    return EVERYTHING if ends is None else IntervalSet(*ends)


def union(sets: Sequence[IntervalSet], analyzer: Analyzer | None = None) -> IntervalSet:
    """The smallest interval that holds all of them."""
    from tilewright.arith.analyzer import Analyzer as Make

    ana = analyzer or Make()
    low: PrimExpr | None = sets[0].min_value
    high: PrimExpr | None = sets[0].max_value
    for x in sets[1:]:
        low = None if low is None or x.min_value is None else ana.simplify(ex.minimum(low, x.min_value))
        high = None if high is None or x.max_value is None else ana.simplify(ex.maximum(high, x.max_value))
    return IntervalSet(low, high)


def estimate_region_upper_bound(
    region: Sequence[Any], var_dom: Mapping[Var, Any], predicate: ExprLike = True, analyzer: Analyzer | None = None
) -> list[IntervalSet]:
    """For each Range of a region: all that it covers while the variables run where `predicate` holds."""
    from tilewright.arith.analyzer import Analyzer as Make

    ana = analyzer or Make()
    out: list[IntervalSet] = []
    with ana.constraint_scope(convert(predicate)):
        for r in region:
            first = eval_range(convert(r.min), var_dom, ana)
            last = eval_range(convert(r.min) + convert(r.extent) - 1, var_dom, ana)
            out.append(EVERYTHING if first is None or last is None else IntervalSet(first[0], last[1]))
    return out


def estimate_region_lower_bound(
    region: Sequence[Any], var_dom: Mapping[Var, Any], predicate: ExprLike = True, analyzer: Analyzer | None = None
) -> list[IntervalSet] | None:
    """For each Range of a region: a box that is covered whole; None where that cannot be shown.

    Shown for sums in which the variables walk without gaps: strides 1, then the extent before it, and so on.
    """
    from tilewright.arith.analyzer import Analyzer as Make
    from tilewright.arith.iter_map import detect_iter_map

    ana = analyzer or Make()
    starts = [convert(r.min) for r in region]
    found = detect_iter_map(starts, var_dom, predicate, require_bijective=False, analyzer=ana)
    if not found.indices:
        return None
    out: list[IntervalSet] = []
    for r, start, index in zip(region, starts, found.indices, strict=True):
        ends = eval_range(start, var_dom, ana)
        extent = convert(r.extent)
        if ends is None or not _dense(index, extent, ana):
            return None
        out.append(IntervalSet(ends[0], ana.simplify(ends[1] + extent - 1)))
    return out


def _dense(index: Any, extent: PrimExpr, ana: Analyzer) -> bool:
    """Do windows of `extent` elements at the points of a fused index leave no gap between them?"""
    if not index.args:
        return True
    (a,) = index.args
    return ana.can_prove(ex.cmp(ex.LE, a.scale, extent))
