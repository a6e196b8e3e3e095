"""Conditions: comparisons of integers as `0 <= p` and `0 == p`, logic under what the other side says."""

from __future__ import annotations

import math
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.linear import expr_key
from tilewright.arith.poly import Poly, combine, scale
from tilewright.arith.simplify import match
from tilewright.arith.simplify.base import FALSE, INDEX, LIMIT, TRUE, Base
from tilewright.arith.simplify.divide import merge
from tilewright.ir.node import map_children
from tilewright.ir.op import Op

__all__ = ["Conditions"]


class Conditions(Base):
    """The part of the simplifier that decides and simplifies bools."""

    def proves(self, condition: PrimExpr) -> bool:
        """Does the condition hold?"""
        out = self.condition(condition)
        return isinstance(out, IntImm) and out.value != 0

    def condition(self, e: PrimExpr) -> PrimExpr:
        """The simplest form known of a bool."""
        if type(e) is IntImm:
            return e
        found = self.conditions.get(id(e))
        if found is not None:
            return found[1]
        self.depth += 1
        out = self._condition(e)
        self.depth -= 1
        if len(self.conditions) > LIMIT:
            self.conditions.clear()
        self.conditions[id(e)] = (e, out)
        return out

    def _condition(self, e: Any) -> PrimExpr:
        if isinstance(e, ex.And):
            return self._and(e)
        if isinstance(e, ex.Or):
            return self._or(e)
        if isinstance(e, ex.Not):
            return self._not(e)
        if isinstance(e, ex.CmpOp) and e.a.dtype in INDEX:
            return self.comparison(e)
        if isinstance(e, ex.Call) and isinstance(e.op, Op) and e.op.name == "tir.likely":
            inner = self.condition(e.args[0])
            return inner if isinstance(inner, IntImm) or inner is e.args[0] else ex.Call("bool", e.op, (inner,))
        if isinstance(e, ex.Select):
            c = self.condition(e.condition)
            if isinstance(c, IntImm):
                return self.condition(e.true_value if c.value else e.false_value)
            yes = self.under(c, lambda: self.condition(e.true_value))
            no = self.under(ex.Not(c), lambda: self.condition(e.false_value))
            return self.ruled(ex.Select(c, yes, no))
        if isinstance(e, Var):
            value = self.values.get(e)
            return self.recall(e if value is None else value)
        return self.recall(self.ruled(map_children(e, self.part)))

    def recall(self, e: PrimExpr) -> PrimExpr:
        """The constant, if the condition is known to hold or not."""
        if self.known:
            known = self.known.get(expr_key(e))
            if known is not None:
                return TRUE if known else FALSE
        return e

    def ruled(self, e: PrimExpr) -> PrimExpr:
        """What the rules make of a condition of simplified parts; simplified again if they did anything."""
        sides: Any = e
        dtype = sides.a.dtype if isinstance(e, ex.CmpOp) else "bool"
        new = match.apply(e, dtype, self.proves) if self.depth < 120 else None
        return e if new is None else self.condition(new)

    def _and(self, e: ex.And) -> PrimExpr:
        a = self.condition(e.a)
        if isinstance(a, IntImm):
            return self.condition(e.b) if a.value else a
        b = self.under(a, lambda: self.condition(e.b))
        if isinstance(b, IntImm):
            return a if b.value else b
        a2 = self.under(b, lambda: self.condition(a))
        if isinstance(a2, IntImm):
            return b if a2.value else a2
        return self.ruled(e if a is e.a and b is e.b else ex.And(a, b))

    def _or(self, e: ex.Or) -> PrimExpr:
        a = self.condition(e.a)
        if isinstance(a, IntImm):
            return a if a.value else self.condition(e.b)
        b = self.under(ex.Not(a), lambda: self.condition(e.b))
        if isinstance(b, IntImm):
            return b if b.value else a
        a2 = self.under(ex.Not(b), lambda: self.condition(a))
        if isinstance(a2, IntImm):
            return a2 if a2.value else b
        return self.ruled(e if a is e.a and b is e.b else ex.Or(a, b))

    def _not(self, e: ex.Not) -> PrimExpr:
        a = self.condition(e.a)
        if isinstance(a, IntImm):
            return FALSE if a.value else TRUE
        return self.recall(self.ruled(e if a is e.a else ex.Not(a)))

    def comparison(self, e: Any) -> PrimExpr:
        """A comparison of integers, as `0 <= p` or `0 == p`."""
        kind = type(e)
        a, b = (e.b, e.a) if kind in (ex.GT, ex.GE) else (e.a, e.b)
        p = combine(self.poly(b), self.poly(a), -1)
        if any(self.atoms.table[n].kind == "sum" for m in p for n in m):
            q = self.atoms.expand(p)
            p = q if len(q) <= len(p) else p
        if kind in (ex.EQ, ex.NE):
            return self.equality(merge(self, p, a.dtype), a.dtype, kind is ex.NE)
        if kind in (ex.LT, ex.GT):
            p = combine(p, {(): -1})
        return self.inequality(merge(self, p, a.dtype), a.dtype)

    def inequality(self, p: Poly, dtype: str) -> PrimExpr:
        """p >= 0"""
        if self.facts.not_negative(p):
            return TRUE
        if self.facts.not_negative(combine(scale(p, -1), {(): -1})):
            return FALSE
        k = p.get((), 0)
        terms = {m: c for m, c in p.items() if m}
        g = math.gcd(*terms.values())
        if g > 1:
            terms = {m: c // g for m, c in terms.items()}
            k //= g
        single = next(iter(terms)) if len(terms) == 1 else None
        if single is not None and len(single) == 1 and self.atoms.table[single[0]].kind == "div":
            atom = self.atoms.table[single[0]]  # x // c >= -k is x >= -k*c; x // c <= k is x <= k*c + c-1
            if terms[single] == 1:
                return self.inequality(combine(atom.num, {(): k * atom.den}), dtype)
            if terms[single] == -1:
                return self.inequality(combine({(): k * atom.den + atom.den - 1}, atom.num, -1), dtype)
        return self.recall(self.ruled(self._order(terms, k, dtype)))

    def _order(self, terms: Poly, k: int, dtype: str) -> PrimExpr:
        """terms + k >= 0, with positive terms on one side and negative ones on the other."""
        more = {m: c for m, c in terms.items() if c > 0}
        less = {m: -c for m, c in terms.items() if c < 0}
        right = self.atoms.expr(more, dtype)
        left = self.atoms.expr(less, dtype)
        if not less:
            return ex.GE(right, IntImm(dtype, -k))
        if not more:
            return ex.LT(left, IntImm(dtype, k + 1))
        if k == 0:
            return ex.LE(left, right)
        if k == -1:
            return ex.LT(left, right)
        if k > 0:
            return ex.LE(left, ex.Add(right, IntImm(dtype, k)))
        return ex.LE(ex.Add(left, IntImm(dtype, -k)), right)

    def equality(self, p: Poly, dtype: str, negated: bool) -> PrimExpr:
        """p == 0, or its opposite"""
        yes, no = (FALSE, TRUE) if negated else (TRUE, FALSE)
        if not p:
            return yes
        low, high = self.facts.bound(p)
        if low > 0 or high < 0:
            return no
        k = p.get((), 0)
        terms = {m: c for m, c in p.items() if m}
        if not terms:
            return no
        g = math.gcd(*terms.values())
        if k % g:
            return no
        coefficient, base = self.facts.remainder(p)
        if coefficient and base % coefficient:
            return no
        plus_one = {(): -1}
        if self.facts.positive or self.facts.symbolic:
            if self.facts.not_negative(combine(p, plus_one)) or self.facts.not_negative(
                combine(scale(p, -1), plus_one)
            ):
                return no
            if self.facts.not_negative(p) and self.facts.not_negative(scale(p, -1)):
                return yes
        g = g if terms[min(terms)] > 0 else -g
        terms = {m: c // g for m, c in terms.items()}
        k //= g
        left = self.atoms.expr({m: c for m, c in terms.items() if c > 0}, dtype)
        rest = {m: -c for m, c in terms.items() if c < 0}
        if k:
            rest[()] = -k
        kind = ex.NE if negated else ex.EQ
        out = self.ruled(kind(left, self.atoms.expr(rest, dtype)))
        if self.known and not isinstance(out, IntImm):
            opposite = (ex.EQ if negated else ex.NE)(left, self.atoms.expr(rest, dtype))
            known = self.known.get(expr_key(opposite))
            if known is not None:
                return FALSE if known else TRUE
        return self.recall(out)
