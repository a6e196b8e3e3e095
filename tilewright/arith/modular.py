"""How the values of an integer expression are spaced: `coefficient * k + base`; coefficient 0: the base alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.ir import dtype as dt
from tilewright.ir.op import Op

__all__ = ["Modular", "intersect", "normal"]

Set = tuple[int, int]
ANY: Set = (1, 0)


def normal(coefficient: int, base: int) -> Set:
    """The base brought below the coefficient."""
    coefficient = abs(coefficient)
    return (coefficient, base % coefficient) if coefficient else (0, base)


def union(a: Set, b: Set) -> Set:
    """The set that holds both."""
    return normal(math.gcd(math.gcd(a[0], b[0]), a[1] - b[1]), a[1])


def intersect(a: Set, b: Set) -> Set:
    """What is in both (Chinese remainders); the first where nothing is."""
    (c, r), (d, s) = a, b
    if c == 0 or d == 0:
        return a if c == 0 else b
    g = math.gcd(c, d)
    if (s - r) % g:
        return a
    k = (s - r) // g * pow(c // g, -1, d // g) if d // g > 1 else 0
    return normal(c * d // g, r + c * k)


class Modular:
    """The spacing of expressions, given that of variables (`table`); `not_negative` decides where rounding matters."""

    def __init__(self, not_negative: Callable[[PrimExpr], bool]) -> None:
        self.not_negative = not_negative
        self.table: dict[Var, Set] = {}
        self.values: dict[Var, PrimExpr] = {}
        self.memo: dict[int, tuple[PrimExpr, Set]] = {}
        self.visitors: dict[type, Callable[[Any], Set]] = {
            ex.Add: self.add, ex.Sub: self.sub, ex.Mul: self.mul, ex.Div: self.div, ex.FloorDiv: self.floordiv,
            ex.Mod: self.mod, ex.FloorMod: self.floormod, ex.Min: lambda e: union(self(e.a), self(e.b)),
            ex.Max: lambda e: union(self(e.a), self(e.b)), ex.Cast: self.cast,
            ex.Select: lambda e: union(self(e.true_value), self(e.false_value)), ex.Let: self.let, ex.Call: self.call,
        }  # fmt: skip

    def forget(self) -> None:
        """Drop what was computed, because the knowledge changed."""
        self.memo = {}

    def __call__(self, e: PrimExpr) -> Set:
        """(coefficient, base) of an expression."""
        if isinstance(e, IntImm):
            return 0, e.value
        if isinstance(e, Var):
            return self.table.get(e, ANY)
        found = self.memo.get(id(e))
        if found is not None:
            return found[1]
        visit = self.visitors.get(type(e))
        out = visit(e) if visit is not None else ANY
        if len(self.memo) > 20000:
            self.memo.clear()
        self.memo[id(e)] = e, out
        return out

    def add(self, e: Any) -> Set:
        (c, r), (d, s) = self(e.a), self(e.b)
        return normal(math.gcd(c, d), r + s)

    def sub(self, e: Any) -> Set:
        (c, r), (d, s) = self(e.a), self(e.b)
        return normal(math.gcd(c, d), r - s)

    def mul(self, e: Any) -> Set:
        (c, r), (d, s) = self(e.a), self(e.b)
        return normal(math.gcd(math.gcd(c * s, d * r), c * d), r * s)

    def divided(self, a: PrimExpr, d: int, rounds_down: bool) -> Set:
        c, r = self(a)
        if d > 0 and c % d == 0 and (rounds_down or r % d == 0 or self.not_negative(a)):
            return normal(c // d, r // d)
        return ANY

    def div(self, e: Any) -> Set:
        return self.divided(e.a, e.b.value, False) if isinstance(e.b, IntImm) else ANY

    def floordiv(self, e: Any) -> Set:
        return self.divided(e.a, e.b.value, True) if isinstance(e.b, IntImm) else ANY

    def mod(self, e: Any) -> Set:
        if not isinstance(e.b, IntImm) or e.b.value == 0:
            return ANY
        c, r = self(e.a)
        g = math.gcd(c, e.b.value)
        return normal(g, r) if r % g == 0 or self.not_negative(e.a) else ANY

    def floormod(self, e: Any) -> Set:
        c, r = self(e.a)
        if not isinstance(e.b, IntImm):
            d, s = self(e.b)
            g = math.gcd(math.gcd(c, d), s)
            return normal(g, r) if g else ANY
        return normal(math.gcd(c, e.b.value), r) if e.b.value else ANY

    def cast(self, e: Any) -> Set:
        """A cast keeps the spacing unless the value may wrap: to fewer bits, or a negative one to unsigned."""
        to, of = e.dtype, e.value.dtype
        if dt.is_float(to) or dt.is_float(of):
            return self(e.value)
        if to in ("int32", "int64") or dt.bits(to) >= dt.bits(of):
            return self(e.value)
        return ANY

    def let(self, e: Any) -> Set:
        old = self.table.get(e.var)
        self.table[e.var] = self(e.value)
        self.forget()
        out = self(e.body)
        if old is None:
            del self.table[e.var]
        else:
            self.table[e.var] = old
        self.forget()
        return out

    def call(self, e: Any) -> Set:
        name = e.op.name if isinstance(e.op, Op) else ""
        if name == "tir.shift_right" and isinstance(e.args[1], IntImm) and 0 <= e.args[1].value < 63:
            return self.divided(e.args[0], 1 << e.args[1].value, True)
        if name == "tir.bitwise_and" and isinstance(e.args[1], IntImm):
            mask = e.args[1].value
            if mask > 0 and mask & (mask + 1) == 0:
                c, r = self(e.args[0])
                return normal(math.gcd(c, mask + 1), r)
        if name == "tir.if_then_else":
            return union(self(e.args[1]), self(e.args[2]))
        return self(e.args[0]) if name == "tir.likely" else ANY
