"""Systems of linear inequalities over the integers, solved by eliminating one variable after the other (Fourier, Motzkin).

x + y <= 20, x - y >= 10, 0 <= y < 10    ->   0 <= y <= 5,  y + 10 <= x <= 20 - y
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.constraint_system import (
    IntConstraints,
    IntConstraintsTransform,
    IntGroupBounds,
    make_range,
    unsolvable,
)
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.linear import detect_linear_equation, difference, expr_key
from tilewright.ir.rewrite import substitute

__all__ = ["solve_linear_inequalities"]

Line = tuple[int, PrimExpr]  # c*v + e <= 0


class _Eliminated:
    """The bounds of each variable (in terms of later ones), and the conditions left."""

    def __init__(self, system: IntConstraints) -> None:
        self.system = system
        self.ana = Analyzer()
        self.outer = Analyzer()
        for v, r in system.ranges.items():
            self.ana.bind(v, r)
            if v not in system.variables:
                self.outer.bind(v, r)
        self.bounds: dict[Var, IntGroupBounds] = {}
        self.left: list[PrimExpr] = []
        self.possible = True
        self.run()

    def normal(self, e: Any) -> list[PrimExpr]:
        """A comparison as `e <= 0` or `e == 0`; another condition as it is."""
        kind = type(e)
        if isinstance(e, ex.And):
            return self.normal(e.a) + self.normal(e.b)
        if kind not in (ex.LT, ex.LE, ex.GT, ex.GE, ex.EQ) or not e.a.dtype.startswith("int"):
            return [e]
        a, b = (e.b, e.a) if kind in (ex.GT, ex.GE) else (e.a, e.b)
        gap = ex.sub(a, b)
        if kind in (ex.LT, ex.GT):
            gap = ex.add(gap, IntImm(gap.dtype, 1))
        gap = self.outer.simplify(gap)
        return [(ex.EQ if kind is ex.EQ else ex.LE)(gap, IntImm(gap.dtype, 0))]

    def add(self, table: dict[Any, PrimExpr], e: Any) -> None:
        """Note a condition, unless it holds anyway; find out that it cannot hold."""
        if isinstance(e, (ex.LE, ex.EQ)) and isinstance(e.a, IntImm):
            e = ex.cmp(type(e), e.a, e.b)
        truth = e if isinstance(e, IntImm) else self.outer.simplify(e)
        if isinstance(truth, IntImm):
            self.possible = self.possible and bool(truth.value)
            return
        table.setdefault(expr_key(e), e)

    def run(self) -> None:
        current: dict[Any, PrimExpr] = {}
        for r in self.system.relations:
            for e in self.normal(r):
                self.add(current, e)
        for v in self.system.variables:
            r = self.system.ranges.get(v)
            if r is not None:
                low, extent = ex.cast(r.min, v.dtype), ex.cast(r.extent, v.dtype)
                for e in (*self.normal(ex.GE(v, low)), *self.normal(ex.LT(v, ex.add(low, extent)))):
                    self.add(current, e)
        for v in self.system.variables:
            current = self.eliminate(v, current)
        left = list(current.values())
        self.left = [
            e for i, e in enumerate(left) if not any(_weaker(e, f, i > j) for j, f in enumerate(left) if i != j)
        ]

    def eliminate(self, v: Var, current: dict[Any, PrimExpr]) -> dict[Any, PrimExpr]:
        """Note the bounds of `v`; gives the conditions without it."""
        above: list[Line] = []
        below: list[Line] = []
        rest: dict[Any, PrimExpr] = {}
        for key, e in current.items():
            found = detect_linear_equation(e.a, [v]) if isinstance(e, (ex.LE, ex.EQ)) else []
            c = found[0].value if found and isinstance(found[0], IntImm) else 0
            if not c:
                rest[key] = e
                continue
            if c > 0 or isinstance(e, ex.EQ):
                above.append((c, found[1]) if c > 0 else (-c, self.negated(found[1])))
            if c < 0 or isinstance(e, ex.EQ):
                below.append((c, found[1]) if c < 0 else (-c, self.negated(found[1])))
        for c, e in above:
            for d, f in below:
                g = math.gcd(c, d)
                both = ex.sub(ex.mul(f, IntImm(f.dtype, c // g)), ex.mul(e, IntImm(e.dtype, d // g)))
                self.add(rest, ex.LE(self.outer.simplify(both), IntImm(both.dtype, 0)))
        if above or below:
            coef = math.lcm(*[abs(c) for c, _ in (*above, *below)])
            upper = self.tightest([self.negated(ex.mul(e, IntImm(e.dtype, coef // c))) for c, e in above], True)
            lower = self.tightest([self.settled(ex.mul(e, IntImm(e.dtype, coef // -c))) for c, e in below], False)
            keys = {expr_key(e) for e in lower} & {expr_key(e) for e in upper}
            equal = [e for e in lower if expr_key(e) in keys]
            lower = [e for e in lower if expr_key(e) not in keys]
            upper = [e for e in upper if expr_key(e) not in keys]
            self.bounds[v] = IntGroupBounds(IntImm(v.dtype, coef), lower, equal, upper)
        return rest

    def settled(self, e: PrimExpr) -> PrimExpr:
        return self.outer.simplify(e)

    def negated(self, e: PrimExpr) -> PrimExpr:
        return self.outer.simplify(ex.sub(IntImm(e.dtype, 0), e))

    def tightest(self, ends: Sequence[PrimExpr], upper: bool) -> list[PrimExpr]:
        """The ends without those that another implies."""
        kept: list[PrimExpr] = []
        for e in ends:
            if any(self.implied(e, k, upper) for k in kept):
                continue
            kept = [k for k in kept if not self.implied(k, e, upper)]
            kept.append(e)
        return kept

    def implied(self, e: PrimExpr, by: PrimExpr, upper: bool) -> bool:
        return self.ana.can_prove(ex.cmp(ex.GE if upper else ex.LE, e, by))

    def conditions(self) -> list[PrimExpr]:
        """All bounds as conditions, then what is left."""
        out: list[PrimExpr] = []
        for v in self.system.variables:
            b = self.bounds.get(v)
            if b is None:
                continue
            x = ex.mul(v, b.coef)
            out += [ex.cmp(ex.EQ, x, e) for e in b.equal]
            out += [ex.cmp(ex.GE, x, e) for e in b.lower]
            out += [ex.cmp(ex.LE, x, e) for e in b.upper]
        return out + self.left


def _weaker(e: Any, f: Any, later: bool) -> bool:
    """Does `e` (e.a <= 0) follow from `f`, the two differing by a constant only?"""
    if not isinstance(e, ex.LE) or not isinstance(f, ex.LE):
        return False
    gap = difference(e.a, f.a)
    return gap is not None and (gap < 0 or (gap == 0 and later))


def solve_linear_inequalities(
    equations: Sequence[PrimExpr] | IntConstraints,
    variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Any] | None = None,
    deskew_range: bool = False,
) -> IntConstraints | IntConstraintsTransform:
    """The ranges of the variables that follow from linear inequalities; what no range says stays as relations.

    A range may depend on later variables. With `deskew_range` each range begins at zero: new variables stand for the old
    ones, and the result is an IntConstraintsTransform. An unsolvable system gives the relation False.
    """
    system = equations if isinstance(equations, IntConstraints) else IntConstraints(variables, ranges, equations)
    solved = _Eliminated(system)
    if not solved.possible:
        return IntConstraintsTransform(system, unsolvable(), {}, {}) if deskew_range else unsolvable()
    return _deskewed(system, solved) if deskew_range else _ranges(system, solved)


def _known(system: IntConstraints) -> Analyzer:
    ana = Analyzer()
    for v, r in system.ranges.items():
        if v not in system.variables:
            ana.bind(v, r)
    return ana


def _ranges(system: IntConstraints, solved: _Eliminated) -> IntConstraints:
    ana = _known(system)
    found: dict[Var, Any] = {v: r for v, r in system.ranges.items() if v not in system.variables}
    for v in reversed(system.variables):
        b = solved.bounds.get(v)
        best = None if b is None else b.find_best_range(found, ana)
        if best is not None:
            if ana.can_prove(ex.cmp(ex.LE, best.extent, IntImm(v.dtype, 0))):
                return unsolvable()
            found[v] = best
            ana.bind(v, best)
    relations: list[PrimExpr] = []
    for c in solved.conditions():
        truth = ana.simplify(c)
        if not isinstance(truth, IntImm):
            relations.append(c)
        elif not truth.value:
            return unsolvable()
    ordered = {v: found[v] for v in (*system.variables, *found) if v in found}
    return IntConstraints(system.variables, ordered, relations)


def _deskewed(system: IntConstraints, solved: _Eliminated) -> IntConstraintsTransform:
    ana = _known(system)
    nothing = IntConstraintsTransform(system, unsolvable(), {}, {})
    outer: dict[Var, Any] = {v: r for v, r in system.ranges.items() if v not in system.variables}
    found = dict(outer)
    there: dict[Var, PrimExpr] = {}
    back: dict[Var, PrimExpr] = {}
    fresh: list[Var] = []
    for v in reversed(system.variables):
        b = solved.bounds.get(v)
        if b is not None:
            b = IntGroupBounds(b.coef, *([substitute(e, dict(there)) for e in x] for x in (b.lower, b.equal, b.upper)))
        best = None if b is None else b.find_best_range(found, ana)
        if best is None:
            there[v] = back[v] = v
            fresh.append(v)
            continue
        if ana.can_prove(ex.cmp(ex.LE, best.extent, IntImm(v.dtype, 0))):
            return nothing
        if isinstance(best.extent, IntImm) and best.extent.value == 1:
            there[v] = best.min
            continue
        new = Var(v.name + ".shifted", v.dtype)
        fresh.append(new)
        there[v] = ex.add(new, best.min)
        back[new] = ana.simplify(ex.sub(v, substitute(best.min, dict(back))))
        found[new] = make_range(IntImm(v.dtype, 0), best.extent)
        ana.bind(new, found[new])
    relations: list[PrimExpr] = []
    for c in solved.conditions():
        truth = ana.simplify(substitute(c, dict(there)))
        if isinstance(truth, IntImm):
            if not truth.value:
                return nothing
        else:
            relations.append(truth)
    fresh.reverse()
    dst = IntConstraints(fresh, {v: found[v] for v in fresh if v in found}, relations)
    return IntConstraintsTransform(system, dst, there, back)
