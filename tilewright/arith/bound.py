"""Conditions solved for a variable: what interval it must lie in for the condition to hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import ExprLike, IntImm, PrimExpr, Var, convert
from tilewright.arith.int_set import NOTHING, IntervalSet, eval_set, neg_inf, pos_inf
from tilewright.arith.linear import detect_linear_equation
from tilewright.ir.node import children

__all__ = ["deduce_bound", "detect_clip_bound"]

LESS, GREATER, EQUAL = -1, 1, 0


class _NoBound(Exception):
    """The condition says nothing that can be solved."""


def _count(e: Any, v: Var) -> int:
    return 1 if e is v else sum(_count(c, v) for c in children(e))


class _Solver:
    def __init__(self, ana: Analyzer, hints: Mapping[Var, Any]) -> None:
        self.ana, self.hints = ana, hints

    def sign(self, k: PrimExpr) -> int:
        """1 or -1 where the sign of k is known."""
        zero = IntImm(k.dtype, 0)
        s = eval_set(k, self.hints, self.ana)
        if s.min_value is not neg_inf() and self.ana.can_prove(ex.cmp(ex.GT, s.min_value, zero)):
            return 1
        if s.max_value is not pos_inf() and self.ana.can_prove(ex.cmp(ex.LT, s.max_value, zero)):
            return -1
        raise _NoBound

    def solve(self, e: Any, v: Var, way: int, value: PrimExpr) -> tuple[int, PrimExpr]:
        """`e (<=, >=, ==) value` as the same of v: (way, value)."""
        while e is not v:
            left = isinstance(e, ex.BinaryOp) and _count(e.a, v) > 0
            if isinstance(e, ex.Add):
                e, value = (e.a, ex.sub(value, e.b)) if left else (e.b, ex.sub(value, e.a))
            elif isinstance(e, ex.Sub):
                if left:
                    e, value = e.a, ex.add(value, e.b)
                else:
                    e, value, way = e.b, ex.sub(e.a, value), -way
            elif isinstance(e, ex.Mul):
                e, k = (e.a, e.b) if left else (e.b, e.a)
                way, value = self.divided(way, self.ana.simplify(value), self.ana.simplify(k))
            elif isinstance(e, ex.FloorDiv) and left and way != EQUAL:
                k = self.ana.simplify(e.b)
                e = e.a
                way, value = self.of_quotient(way, self.ana.simplify(value), k)
            else:
                raise _NoBound
        return way, self.ana.simplify(value)

    def divided(self, way: int, value: PrimExpr, k: PrimExpr) -> tuple[int, PrimExpr]:
        """x * k (<=, >=, ==) value, for x"""
        even = self.ana.can_prove(ex.cmp(ex.EQ, ex.floormod(value, k), IntImm(k.dtype, 0)))
        quotient = ex.floordiv(value, k)
        if way == EQUAL:
            if not even:
                raise _NoBound
            return way, quotient
        way *= self.sign(k)
        return way, quotient if way == LESS or even else ex.add(quotient, IntImm(k.dtype, 1))

    def of_quotient(self, way: int, value: PrimExpr, k: PrimExpr) -> tuple[int, PrimExpr]:
        """x // k (<=, >=) value, for x"""
        one = IntImm(k.dtype, 1)
        if self.sign(k) > 0:
            return way, (ex.mul(value, k) if way == GREATER else ex.sub(ex.mul(ex.add(value, one), k), one))
        if way == GREATER:
            return LESS, ex.mul(value, k)
        return GREATER, ex.add(ex.mul(ex.add(value, one), k), one)


def _sides(cond: Any, v: Var) -> tuple[PrimExpr, PrimExpr, int]:
    """(the side of the variable, the other, which way they compare; both included)"""
    a, b, kind = cond.a, cond.b, type(cond)
    if kind in (ex.GT, ex.GE):
        a, b, kind = b, a, ex.LT if kind is ex.GT else ex.LE
    left = _count(a, v) > 0
    if kind is ex.EQ:
        return (a, b, EQUAL) if left else (b, a, EQUAL)
    one = IntImm(a.dtype, 1)
    if kind is ex.LT:
        return (a, ex.sub(b, one), LESS) if left else (b, ex.add(a, one), GREATER)
    return (a, b, LESS) if left else (b, a, GREATER)


def deduce_bound(var: Var, cond: ExprLike, hint_map: Mapping[Var, Any], relax_map: Mapping[Var, Any]) -> IntervalSet:
    """The interval of `var` in which a comparison holds: for all values of the variables of `relax_map`.

    `hint_map` gives the ranges that decide signs. The empty set where nothing can be deduced (the variable occurs more than
    once, or below something that is no sum, product or quotient), or where the condition cannot hold.
    """
    e: Any = convert(cond)
    if type(e) not in (ex.LT, ex.LE, ex.GT, ex.GE, ex.EQ) or _count(e, var) != 1 or not e.a.dtype.startswith("int"):
        return NOTHING
    target, value, way = _sides(e, var)
    ana = Analyzer()
    try:
        if relax_map:
            a, b = eval_set(target, relax_map, ana), eval_set(value, relax_map, ana)
            if way == EQUAL:
                if not (_point(ana, a) and _point(ana, b)):
                    return NOTHING
            target, value = (a.min_value, b.max_value) if way == GREATER else (a.max_value, b.min_value)
            if not _plain(target) or not _plain(value) or _count(target, var) != 1:
                return NOTHING
        way, value = _Solver(ana, {**hint_map, **relax_map}).solve(target, var, way, value)
    except _NoBound:
        return NOTHING
    if way == EQUAL:
        return IntervalSet(value, value)
    return IntervalSet(neg_inf(), value) if way == LESS else IntervalSet(value, pos_inf())


def _plain(e: PrimExpr) -> bool:
    return e is not neg_inf() and e is not pos_inf()


def _point(ana: Analyzer, s: IntervalSet) -> bool:
    return _plain(s.min_value) and _plain(s.max_value) and ana.can_prove_equal(s.min_value, s.max_value)


def detect_clip_bound(expr: ExprLike, var_list: Sequence[Var]) -> list[Any]:
    """[least, greatest] of each variable, in a row, as a conjunction of comparisons bounds them; None where it does not.

    The list is empty where a part is no comparison that is linear in one of the variables.
    """
    ana = Analyzer()
    bounds: dict[Var, list[Any]] = {v: [None, None] for v in var_list}
    stack: list[Any] = [convert(expr)]
    while stack:
        e = stack.pop()
        if isinstance(e, ex.And):
            stack += [e.b, e.a]
            continue
        if isinstance(e, ex.Not):
            e = ana.rewrite_simplify(e)
        more = _spread(e)
        if more is not None:
            stack += more
        elif not _clip(e, bounds, ana):
            return []
    return [None if b is None else ana.simplify(b) for v in var_list for b in bounds[v]]


def _spread(e: Any) -> list[PrimExpr] | None:
    """min(a, b) > c and max(a, b) < c as two comparisons."""
    if type(e) not in (ex.LT, ex.LE, ex.GT, ex.GE):
        return None
    less = isinstance(e, (ex.LT, ex.LE))
    for side, kind in ((e.a, ex.Max if less else ex.Min), (e.b, ex.Min if less else ex.Max)):
        if isinstance(side, kind):
            pairs = [(x, e.b) if side is e.a else (e.a, x) for x in (side.a, side.b)]  # pyright: ignore
            return [type(e)(*p) for p in pairs]
    return None


def _clip(e: Any, bounds: dict[Var, list[Any]], ana: Analyzer) -> bool:
    """Learn from one comparison. False where it is none that bounds a single variable."""
    if type(e) not in (ex.LT, ex.LE, ex.GT, ex.GE, ex.EQ):
        return False
    kind, a, b = type(e), e.a, e.b
    if kind in (ex.GT, ex.GE):
        a, b = b, a
    used = [v for v in bounds if _count(e, v)]
    if len(used) != 1:
        return False
    (v,) = used
    gap = ex.sub(a, b) if kind not in (ex.LT, ex.GT) else ex.add(ex.sub(a, b), IntImm(a.dtype, 1))
    found = detect_linear_equation(gap, [v])  # c*v + rest <= 0 (or == 0)
    if not found or not isinstance(found[0], IntImm) or abs(found[0].value) != 1:
        return False
    c, rest = found[0].value, found[1]
    value = ana.simplify(ex.sub(IntImm(rest.dtype, 0), rest) if c > 0 else rest)
    if kind is ex.EQ or c > 0:
        old = bounds[v][1]
        bounds[v][1] = value if old is None else ex.minimum(old, value)
    if kind is ex.EQ or c < 0:
        old = bounds[v][0]
        bounds[v][0] = value if old is None else ex.maximum(old, value)
    return True
