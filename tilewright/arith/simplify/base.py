"""What a simplifier knows: facts, conditions that hold, values of variables; and scopes in which more is assumed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.facts import Facts
from tilewright.arith.linear import expr_key
from tilewright.arith.poly import Atoms, Poly, combine, scale
from tilewright.ir.node import Node

__all__ = ["FALSE", "INDEX", "LIMIT", "OPPOSITE", "TRUE", "Base"]

INDEX = ("int32", "int64")
LIMIT = 20000
TRUE, FALSE = IntImm("bool", 1), IntImm("bool", 0)
OPPOSITE: dict[type, Any] = {
    ex.LT: ex.GE, ex.GE: ex.LT, ex.LE: ex.GT, ex.GT: ex.LE, ex.EQ: ex.NE, ex.NE: ex.EQ,
}  # fmt: skip


class Base:
    """The state of a simplifier. `known` are conditions that hold or not, by key; `values` replace variables."""

    def __init__(self) -> None:
        self.atoms = Atoms()
        self.facts = Facts(self.atoms)
        self.known: dict[Any, bool] = {}
        self.values: dict[Var, PrimExpr] = {}
        self.memo: dict[int, tuple[PrimExpr, Poly]] = {}
        self.conditions: dict[int, tuple[PrimExpr, PrimExpr]] = {}
        self.depth = 0

    def forget(self) -> None:
        """Drop what was computed, because the facts changed."""
        self.memo = {}
        self.conditions = {}
        self.facts.memo.clear()

    def poly(self, e: PrimExpr) -> Poly:
        """The normal form of an integer expression."""
        raise NotImplementedError

    def simplify(self, e: PrimExpr) -> PrimExpr:
        """The simplest form known of any expression."""
        raise NotImplementedError

    def generic(self, e: PrimExpr) -> Poly:
        """An integer expression of simplified parts: what the rules make of it, or an atom."""
        raise NotImplementedError

    def part(self, c: Node) -> Node:
        """A child, simplified where it is an expression."""
        raise NotImplementedError

    # ---- scopes ----------------------------------------------------------------------------------------------------------

    def under(self, condition: PrimExpr, work: Callable[[], Any]) -> Any:
        """What `work` gives while the condition holds."""
        saved = self.enter(condition)
        try:
            return work()
        finally:
            self.leave(saved)

    def enter(self, condition: PrimExpr) -> Any:
        """Assume the condition; gives what `leave` needs."""
        saved = (self.facts.snapshot(), self.known, self.memo, self.conditions)
        self.known, self.memo, self.conditions = dict(self.known), {}, {}
        self.assume(condition)
        return saved

    def leave(self, saved: Any) -> None:
        """Go back to before `enter`."""
        facts, self.known, self.memo, self.conditions = saved
        self.facts.restore(facts)

    def assume(self, e: Any) -> None:
        """Take a condition as true from here on."""
        if isinstance(e, ex.And):
            self.assume(e.a)
            self.assume(e.b)
            return
        if isinstance(e, ex.Not) and isinstance(e.a, ex.Or):
            self.assume(ex.Not(e.a.a))
            self.assume(ex.Not(e.a.b))
            return
        if isinstance(e, ex.Call) and getattr(e.op, "name", "") == "tir.likely":
            self.assume(e.args[0])
            return
        inner: Any = e.a if isinstance(e, ex.Not) else None
        if type(inner) in OPPOSITE:
            e = OPPOSITE[type(inner)](inner.a, inner.b)
        self.known[expr_key(e)] = True
        self.known[expr_key(_negation(e))] = False
        if isinstance(e, ex.CmpOp) and not isinstance(e, (ex.And, ex.Or)) and e.a.dtype in INDEX:
            self._assume_comparison(e)

    def _assume_comparison(self, e: Any) -> None:
        kind = type(e)
        a, b = self.poly(e.a), self.poly(e.b)
        gap = self.atoms.expand(combine(b, a, -1))
        if kind in (ex.LT, ex.LE):
            self.not_negative(combine(gap, {(): -1}) if kind is ex.LT else gap)
        elif kind in (ex.GT, ex.GE):
            gap = scale(gap, -1)
            self.not_negative(combine(gap, {(): -1}) if kind is ex.GT else gap)
        elif kind is ex.EQ:
            self.not_negative(gap)
            self.not_negative(scale(gap, -1))
            self._assume_remainder(gap)
        elif kind is ex.NE:
            self._assume_unequal(gap)
        self.memo, self.conditions = {}, {}
        self.facts.memo.clear()

    def not_negative(self, p: Poly) -> None:
        """Note that p >= 0."""
        k = p.get((), 0)
        terms = [(m, c) for m, c in p.items() if m]
        if len(terms) == 1 and len(terms[0][0]) == 1:
            (n,), c = terms[0]
            low, high = self.facts.bounds.get(n, (-math.inf, math.inf))
            if c > 0:
                low = max(low, -(k // c))
            else:
                high = min(high, k // -c)
            self.facts.bounds[n] = (low, high)
        elif terms:
            self.facts.positive.append(p)

    def _assume_remainder(self, gap: Poly) -> None:
        """x % c == b says how x is spaced."""
        terms = [(m, c) for m, c in gap.items() if m]
        if len(terms) != 1 or abs(terms[0][1]) != 1 or len(terms[0][0]) != 1:
            return
        (n,), c = terms[0]
        atom = self.atoms.table[n]
        base = -gap.get((), 0) * c
        if atom.kind == "mod" and len(atom.num) == 1:
            (m,) = atom.num
            if len(m) == 1 and atom.num[m] == 1:
                self.facts.remainders[m[0]] = (atom.den, base % atom.den)

    def _assume_unequal(self, gap: Poly) -> None:
        """An atom that differs from the end of its range lies inside."""
        terms = [(m, c) for m, c in gap.items() if m]
        if len(terms) != 1 or len(terms[0][0]) != 1:
            return
        (n,), c = terms[0]
        k = gap.get((), 0)
        if k % c:
            return
        value = -k // c
        low, high = self.facts.atom_bound(n)
        if value == low:
            self.facts.bounds[n] = (low + 1, high)
        elif value == high:
            self.facts.bounds[n] = (low, high - 1)


def _negation(e: Any) -> PrimExpr:
    """The opposite of a condition, as the simplifier writes it."""
    if isinstance(e, ex.Not):
        return e.a
    opposite = OPPOSITE.get(type(e))
    return opposite(e.a, e.b) if opposite is not None else ex.Not(e)
