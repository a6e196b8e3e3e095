"""The simplifier: expressions to normal forms and back.

Integers of 32 and 64 bits become polynomials (`poly`), with quotients and remainders in the normal forms of `divide`;
everything else is rebuilt of simplified parts and goes through `rules`. Such integers are taken not to overflow: that is
what index arithmetic may assume, and other integers (narrow, unsigned) wrap and are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.linear import expr_key
from tilewright.arith.poly import Poly, add_into, combine, constant_of, multiply, scale
from tilewright.arith.simplify import match
from tilewright.arith.simplify.base import INDEX, LIMIT
from tilewright.arith.simplify.conditions import Conditions
from tilewright.arith.simplify.divide import floor_div, floor_mod, merge, symbolic_div, symbolic_mod
from tilewright.ir.node import Node, map_children, walk
from tilewright.ir.op import Op

__all__ = ["Simplifier"]

_MERGING = frozenset(("div", "mod", "sdiv", "smod"))


class Simplifier(Conditions):
    """Simplifies under what its `facts` say."""

    # ---- entry -----------------------------------------------------------------------------------------------------------

    def simplify(self, e: PrimExpr) -> PrimExpr:
        """The simplest form known of any expression."""
        kind = type(e)
        if kind is IntImm or kind is ex.FloatImm or kind is ex.StringImm:
            return e
        if e.dtype in INDEX:
            return self.shown(self.poly(e), e.dtype)
        if e.dtype == "bool":
            return self.condition(e)
        return self.other(e)

    def shown(self, p: Poly, dtype: str) -> PrimExpr:
        """A polynomial as an expression; products of sums are multiplied out where that is shorter."""
        if any(self.atoms.table[n].kind == "sum" for m in p for n in m):
            q = self.atoms.expand(p)
            if len(q) <= len(p):
                p = merge(self, q, dtype)
        return self.atoms.expr(p, dtype)

    # ---- integers --------------------------------------------------------------------------------------------------------

    def poly(self, e: PrimExpr) -> Poly:
        """The normal form of an integer expression."""
        if type(e) is IntImm:
            return {(): e.value} if e.value else {}
        found = self.memo.get(id(e))
        if found is not None:
            return found[1]
        if self.depth > 150:  # too deep for the normal form
            return self.atom(e)
        self.depth += 1
        method = _POLY.get(type(e))
        out = method(self, e) if method is not None else self.generic_parts(e)
        self.depth -= 1
        if len(self.memo) > LIMIT:
            self.memo.clear()
        self.memo[id(e)] = (e, out)
        return out

    def atom(self, e: PrimExpr) -> Poly:
        """The expression as an atom, or the constant that its bounds leave."""
        n = self.atoms.intern(e)
        bound = self.facts.bounds.get(n)
        if bound is not None and bound[0] == bound[1]:
            return {(): int(bound[0])} if bound[0] else {}
        return {(n,): 1}

    def p_var(self, e: Any) -> Poly:
        value = self.values.get(e)
        return self.atom(e) if value is None else self.poly(value)

    def p_add(self, e: Any) -> Poly:
        p = combine(self.poly(e.a), self.poly(e.b), 1 if type(e) is ex.Add else -1)
        table = self.atoms.table
        for m in p:
            for n in m:
                if table[n].kind in _MERGING and len(p) > 1:
                    return merge(self, p, e.dtype)
        return p

    def p_mul(self, e: Any) -> Poly:
        a, b = self.poly(e.a), self.poly(e.b)
        k = constant_of(b)
        if k is None:
            k = constant_of(a)
            a, b = b, a
        if k is not None:
            return self.merged(scale(a, k), e.dtype) if k else {}
        return multiply(self.factor(a, e.dtype), self.factor(b, e.dtype))

    def merged(self, p: Poly, dtype: str) -> Poly:
        """Multiples of a quotient may have become exact."""
        if any(self.atoms.table[n].kind == "div" for m in p for n in m):
            return merge(self, p, dtype)
        return p

    def factor(self, p: Poly, dtype: str) -> Poly:
        """A sum as one term, so that a product is not multiplied out: its common divisor times an atom."""
        if len(p) <= 1:
            return p
        g = math.gcd(*p.values())
        first = next((c for m, c in p.items() if m), 1)
        if first < 0:
            g = -g
        q = {m: c // g for m, c in p.items()}
        return {(self.atoms.intern(self.atoms.expr(q, dtype), "sum", q),): g}

    def p_floordiv(self, e: Any) -> Poly:
        a, b = self.poly(e.a), self.poly(e.b)
        c = constant_of(b)
        if c is None:
            return symbolic_div(self, a, b, e.dtype)
        if c == 0:
            return self.atom(ex.FloorDiv(self.atoms.expr(a, e.dtype), IntImm(e.dtype, 0)))
        if c < 0:
            a, c = scale(a, -1), -c
        return self.merged_sum(floor_div(self, a, c, e.dtype), e.dtype)

    def p_floormod(self, e: Any) -> Poly:
        a, b = self.poly(e.a), self.poly(e.b)
        c = constant_of(b)
        if c is None:
            return symbolic_mod(self, a, b, e.dtype)
        if c == 0:
            return self.atom(ex.FloorMod(self.atoms.expr(a, e.dtype), IntImm(e.dtype, 0)))
        if c < 0:  # a % -c = -((-a) % c)
            return scale(floor_mod(self, scale(a, -1), -c, e.dtype), -1)
        return self.merged_sum(floor_mod(self, a, c, e.dtype), e.dtype)

    def merged_sum(self, p: Poly, dtype: str) -> Poly:
        return merge(self, p, dtype) if len(p) > 1 else p

    def p_truncated(self, e: Any) -> Poly:
        """Truncating division is floor division where nothing is negative; else it goes by the rules."""
        a, b = self.poly(e.a), self.poly(e.b)
        if constant_of(b) != 0 and self.facts.not_negative(a) and self.facts.not_negative(combine(b, {(): -1})):
            kind = ex.FloorDiv if type(e) is ex.Div else ex.FloorMod
            return self.poly(kind(self.atoms.expr(a, e.dtype), self.atoms.expr(b, e.dtype)))
        x, y = constant_of(a), constant_of(b)
        if x is not None and y:
            q = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
            value = q if type(e) is ex.Div else x - q * y
            return {(): value} if value else {}
        return self.generic(type(e)(self.atoms.expr(a, e.dtype), self.atoms.expr(b, e.dtype)))

    def p_minmax(self, e: Any) -> Poly:
        a, b = self.poly(e.a), self.poly(e.b)
        least = type(e) is ex.Min
        gap = combine(a, b, -1)
        if self.facts.not_negative(gap):
            return b if least else a
        if self.facts.not_negative(scale(gap, -1)):
            return a if least else b
        common = {m: c for m, c in a.items() if b.get(m) == c}
        if not common:
            ka, kb = a.get((), 0), b.get((), 0)
            if len(a) > (() in a) and len(b) > (() in b) and ka and kb:
                common = {(): ka}
        if common:
            a, b = combine(a, common, -1), combine(b, common, -1)
        inner = self.generic(type(e)(self.atoms.expr(a, e.dtype), self.atoms.expr(b, e.dtype)))
        return combine(common, inner) if common else inner

    def p_choice(self, e: Any) -> Poly:
        """Select and if_then_else: each side simplified under its condition."""
        call = type(e) is ex.Call
        c, yes, no = e.args if call else (e.condition, e.true_value, e.false_value)
        c = self.condition(c)
        if isinstance(c, IntImm):
            return self.poly(yes if c.value else no)
        a = self.under(c, lambda: self.poly(yes))
        b = self.under(ex.Not(c), lambda: self.poly(no))
        if a == b:
            return a
        x, y = self.atoms.expr(a, e.dtype), self.atoms.expr(b, e.dtype)
        return self.generic(ex.Call(e.dtype, e.op, (c, x, y)) if call else ex.Select(c, x, y))

    def p_cast(self, e: Any) -> Poly:
        source: PrimExpr = e.value
        if source.dtype == e.dtype:
            return self.poly(source)
        if source.dtype == "int32" and e.dtype == "int64":
            out: Poly = {}
            for m, c in self.poly(source).items():
                term: Poly = {(): c}
                for n in m:
                    term = multiply(term, self.widened(n, e.dtype))
                add_into(out, term)
            return out
        return self.generic_parts(e)

    def widened(self, n: int, dtype: str) -> Poly:
        """An int32 atom as one of int64, with what is known of it."""
        e = ex.cast(self.atoms.table[n].expr, dtype)
        if isinstance(e, IntImm):
            return {(): e.value} if e.value else {}
        self.atoms.intern(e, "wide", {(n,): 1})
        return self.atom(e)

    def p_call(self, e: ex.Call) -> Poly:
        name = e.op.name if isinstance(e.op, Op) else ""
        if name == "tir.if_then_else" and e.args[0].dtype == "bool":
            return self.p_choice(e)
        if name in ("tir.shift_left", "tir.shift_right", "tir.bitwise_and"):
            a, b = self.poly(e.args[0]), self.poly(e.args[1])
            k = constant_of(b)
            if k is not None and name == "tir.shift_left" and 0 <= k < 63:
                return scale(a, 1 << k)
            if k is not None and name == "tir.shift_right" and 0 <= k < 63:
                return floor_div(self, a, 1 << k, e.dtype)
            if k is not None and name == "tir.bitwise_and" and k > 0 and k & (k + 1) == 0:
                return floor_mod(self, a, k + 1, e.dtype)
        return self.generic_parts(e)

    def p_let(self, e: ex.Let) -> Poly:
        if not _has_effect(e.value):
            self.values[e.var] = self.simplify(e.value)
            out = self.poly(e.body)
            del self.values[e.var]
            return out
        return self.generic_parts(e)

    def generic_parts(self, e: PrimExpr) -> Poly:
        """Any other integer expression: its parts simplified, then the rules."""
        return self.generic(map_children(e, self.part))

    def generic(self, e: PrimExpr) -> Poly:
        """An expression of simplified parts: what the rules make of it, or an atom."""
        new = match.apply(e, e.dtype, self.proves) if self.depth < 120 else None
        if new is None:
            return self.atom(e)
        return self.poly(new)

    def part(self, c: Node) -> Node:
        """A child, simplified where it is an expression."""
        return self.simplify(c) if isinstance(c, PrimExpr) else c if c.identity else map_children(c, self.part)

    # ---- other types -----------------------------------------------------------------------------------------------------

    def other(self, e: Any) -> PrimExpr:
        """Floats, narrow integers, vectors: parts simplified, and what is safe for them."""
        if isinstance(e, Var):
            return self.values.get(e, e)
        if isinstance(e, ex.Select) or (isinstance(e, ex.Call) and getattr(e.op, "name", "") == "tir.if_then_else"):
            return self._other_choice(e)
        if isinstance(e, ex.Let):
            return self._other_let(e)
        new: Any = map_children(e, self.part)
        fold = _FOLD.get(type(new))
        if fold is not None:
            if isinstance(new.a, (IntImm, ex.FloatImm)) and isinstance(new.b, (IntImm, ex.FloatImm)):
                return new if _is_zero(new.b) and type(new) not in (ex.Add, ex.Sub, ex.Mul) else fold(new.a, new.b)
            one = new.b.value if isinstance(new.b, (IntImm, ex.FloatImm)) else None
            if one == 1 and isinstance(new, (ex.Mul, ex.Div)):
                return new.a
            if isinstance(new, ex.Mul) and isinstance(new.a, (IntImm, ex.FloatImm)) and new.a.value == 1:
                return new.b
            return _vector(new)
        if isinstance(new, ex.Cast):
            return ex.cast(new.value, new.dtype)
        return new

    def _other_choice(self, e: Any) -> PrimExpr:
        call = isinstance(e, ex.Call)
        c, yes, no = e.args if call else (e.condition, e.true_value, e.false_value)
        if c.dtype != "bool":
            return map_children(e, self.part)
        c2 = self.condition(c)
        if isinstance(c2, IntImm):
            return self.simplify(yes if c2.value else no)
        a = self.under(c2, lambda: self.simplify(yes))
        b = self.under(ex.Not(c2), lambda: self.simplify(no))
        if a is b or expr_key(a) == expr_key(b):
            return a
        if c2 is c and a is yes and b is no:
            return e
        return ex.Call(e.dtype, e.op, (c2, a, b)) if call else ex.Select(c2, a, b)

    def _other_let(self, e: ex.Let) -> PrimExpr:
        value = self.simplify(e.value)
        if isinstance(value, (IntImm, ex.FloatImm, Var)):
            self.values[e.var] = value
            body = self.simplify(e.body)
            del self.values[e.var]
            return body
        body = self.simplify(e.body)
        return e if value is e.value and body is e.body else ex.Let(e.var, value, body)


def _has_effect(e: PrimExpr) -> bool:
    return any(isinstance(n, ex.Call) for n in walk(e))


def _is_zero(e: Any) -> bool:
    return e.value == 0


def _vector(e: Any) -> PrimExpr:
    """An operation on vectors of equal lanes as a vector of an operation."""
    a, b = e.a, e.b
    if isinstance(a, ex.Broadcast) and isinstance(b, ex.Broadcast) and a.lanes == b.lanes:
        return ex.Broadcast(_FOLD[type(e)](a.value, b.value), a.lanes)
    if isinstance(a, ex.Ramp) and isinstance(b, ex.Broadcast) and a.lanes == b.lanes:
        if isinstance(e, (ex.Add, ex.Sub)):
            return ex.Ramp(_FOLD[type(e)](a.base, b.value), a.stride, a.lanes)
        if isinstance(e, ex.Mul):
            return ex.Ramp(ex.mul(a.base, b.value), ex.mul(a.stride, b.value), a.lanes)
    if isinstance(b, ex.Ramp) and isinstance(a, ex.Broadcast) and a.lanes == b.lanes:
        if isinstance(e, ex.Add):
            return ex.Ramp(ex.add(b.base, a.value), b.stride, b.lanes)
        if isinstance(e, ex.Mul):
            return ex.Ramp(ex.mul(b.base, a.value), ex.mul(b.stride, a.value), b.lanes)
    return e


_FOLD: dict[type, Callable[[Any, Any], PrimExpr]] = {
    ex.Add: ex.add, ex.Sub: ex.sub, ex.Mul: ex.mul, ex.Div: ex.div, ex.Mod: ex.mod, ex.FloorDiv: ex.floordiv,
    ex.FloorMod: ex.floormod, ex.Min: ex.minimum, ex.Max: ex.maximum,
}  # fmt: skip
_POLY: dict[type, Callable[[Simplifier, Any], Poly]] = {
    Var: Simplifier.p_var, ex.SizeVar: Simplifier.p_var, ex.Add: Simplifier.p_add, ex.Sub: Simplifier.p_add,
    ex.Mul: Simplifier.p_mul, ex.FloorDiv: Simplifier.p_floordiv, ex.FloorMod: Simplifier.p_floormod,
    ex.Div: Simplifier.p_truncated, ex.Mod: Simplifier.p_truncated, ex.Min: Simplifier.p_minmax,
    ex.Max: Simplifier.p_minmax, ex.Select: Simplifier.p_choice, ex.Cast: Simplifier.p_cast, ex.Call: Simplifier.p_call,
    ex.Let: Simplifier.p_let,
}  # fmt: skip
