"""What the conditions of rules ask: signs, ranges, remainders of the matched parts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.arith.linear import linear
from tilewright.arith.rewrite.nodes import imm, raw_Add, raw_FloorDiv, raw_FloorMod, same

if TYPE_CHECKING:
    from tilewright.arith.const_bound import ConstBounds
    from tilewright.arith.modular import Modular

__all__ = ["Known"]


class Known:
    """The functions that conditions and results of rules call, by the same names."""

    bounds: ConstBounds
    modular: Modular

    def nonneg(self, e: PrimExpr) -> bool:
        """e >= 0"""
        return self.bounds(e)[0] >= 0

    def pos(self, e: PrimExpr) -> bool:
        """e > 0"""
        return self.bounds(e)[0] > 0

    def less(self, e: PrimExpr, c: int) -> bool:
        """0 <= e < c"""
        low, high = self.bounds(e)
        return low >= 0 and high < c

    def between(self, e: PrimExpr, end: PrimExpr) -> bool:
        """0 <= e < end, the end being no constant"""
        return not isinstance(end, IntImm) and self.bounds(e)[0] >= 0 and self.compare(e, end) == 2

    def compare(self, a: PrimExpr, b: PrimExpr) -> int:
        """What is known of two expressions; 2: a < b."""
        raise NotImplementedError

    def whole(self, e: PrimExpr, c: int) -> bool:
        """Is e a multiple of c by its spacing?"""
        coefficient, base = self.modular(e)
        return coefficient % c == 0 and base % c == 0

    def isconst(self, e: PrimExpr) -> bool:
        """Is it a constant?"""
        return isinstance(e, IntImm)

    def known(self, e: PrimExpr, c: int) -> bool:
        """Is e's remainder by c known?"""
        return self.modular(e)[0] % c == 0

    def rest(self, e: PrimExpr, c: int, dtype: str) -> PrimExpr:
        """e's remainder by c."""
        return imm(self.modular(e)[1] % c, dtype)

    def base(self, e: PrimExpr, c: int, dtype: str) -> PrimExpr:
        """e's remainder by c, of the dtype of e."""
        del dtype
        return imm(self.modular(e)[1] % c, e.dtype)

    def reduced(self, e: PrimExpr, c: int) -> bool:
        """Is e a constant below c?"""
        return isinstance(e, IntImm) and 0 <= e.value < c

    def in_block(self, e: PrimExpr, step: int, lanes: Any, c: int) -> bool:
        """Do e, e + step, ... lie within one block of c, e's remainder being known?"""
        return isinstance(lanes, int) and self.modular(e)[1] % c + (lanes - 1) * step < c

    def one_block(self, e: PrimExpr, step: int, lanes: Any, c: int) -> bool:
        """Do e, e + step, ... lie within one block of c, wherever e is in it?"""
        if not isinstance(lanes, int):
            return False
        coefficient, base = self.modular(e)
        g = math.gcd(coefficient, c)
        return base % g + (lanes - 1) * step < g

    def gap_of(self, a: PrimExpr, b: PrimExpr) -> int | None:
        """a - b where it is a constant."""
        x, y = linear(a), linear(b)
        if len(x.terms) != len(y.terms):
            return None
        for key, (_, c) in x.terms.items():
            other = y.terms.get(key)
            if other is None or other[1] != c:
                return None
        return x.constant - y.constant

    def has_gap(self, a: PrimExpr, b: PrimExpr) -> bool:
        """Do the two differ by a constant?"""
        return self.gap_of(a, b) is not None

    def same_gap(self, a: PrimExpr, b: PrimExpr, c: PrimExpr, d: PrimExpr) -> bool:
        """a - b == c - d, both constant"""
        return self.gap_of(a, b) == self.gap_of(c, d)

    def gap(self, a: PrimExpr, b: PrimExpr, dtype: str) -> PrimExpr:
        """a - b"""
        return imm(self.gap_of(a, b) or 0, dtype)

    def block(self, x: PrimExpr, c1: int, c2: int, c3: int, dtype: str) -> PrimExpr:
        """(x + c1) // c3 - (x + c2) // c3 as ((x + c2) % c3 + (c1 - c2)) // c3, what is whole taken out"""
        rest = raw_FloorMod(raw_Add(x, imm(c2 % c3, dtype)), imm(c3, dtype))
        gap = c1 - c2
        if gap % c3:
            return raw_FloorDiv(raw_Add(rest, imm(gap, dtype)), imm(c3, dtype))
        return raw_Add(raw_FloorDiv(rest, imm(c3, dtype)), imm(gap // c3, dtype))

    def cancels(self, a: PrimExpr, b: PrimExpr) -> bool:
        """Are the two the same?"""
        return same(a, b)

    def padded(self, x: PrimExpr, y: PrimExpr, z: PrimExpr, w: PrimExpr) -> bool:
        """Is x + y % z a multiple of w: w divides z, and w divides x + y?"""
        return self._divides(w, z) and self._multiple(x, y, 1, w)

    def unpadded(self, x: PrimExpr, y: PrimExpr, z: PrimExpr, w: PrimExpr) -> bool:
        """Is x - y % z a multiple of w?"""
        return self._divides(w, z) and self._multiple(x, y, -1, w)

    def _divides(self, w: PrimExpr, z: PrimExpr) -> bool:
        if isinstance(w, IntImm) and isinstance(z, IntImm):
            return w.value != 0 and z.value % w.value == 0
        a, b = linear(w), linear(z)
        if a.constant or b.constant or len(a.terms) != 1 or len(b.terms) != 1:
            return same(w, z)
        ((key, (_, c)),) = a.terms.items()
        other = b.terms.get(key)
        return other is not None and other[1] % c == 0

    def _multiple(self, x: PrimExpr, y: PrimExpr, sign: int, w: PrimExpr) -> bool:
        total = linear(ex.Add(x, y) if sign > 0 else ex.Sub(x, y))
        if not total.terms and total.constant == 0:
            return True
        if not isinstance(w, IntImm) or w.value == 0:
            return False
        return total.constant % w.value == 0 and all(c % w.value == 0 for _, c in total.terms.values())
