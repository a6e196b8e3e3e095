"""Ends of expressions as polynomials: the least and greatest value while some variables run over ranges.

    i*4 + j  for j in [0, 4)   ->   [i*4, i*4 + 3]

Ends are exact for sums, and safe (maybe too wide) for quotients, remainders, minima. `int_set` has the public sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr, Var, convert
from tilewright.arith.poly import Poly, add_into, combine, multiply
from tilewright.ir.rewrite import free_vars

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer
    from tilewright.arith.simplify.core import Simplifier

__all__ = ["eval_range"]


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
