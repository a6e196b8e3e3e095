"""What is known about atoms: constant bounds, symbolic bounds, remainders; and what follows for polynomials.

Bounds are pairs (low, high) of Python integers, with -inf / +inf of float where nothing is known.
"""

from __future__ import annotations

import math
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import PrimExpr, SizeVar
from tilewright.arith.poly import Atom, Atoms, Monomial, Poly, combine, multiply
from tilewright.ir import dtype as dt
from tilewright.ir.op import Op

__all__ = ["ANY", "Bound", "Facts", "product_bound"]

Bound = tuple[Any, Any]
INF = math.inf
ANY: Bound = (-INF, INF)


def _times(a: Any, b: Any) -> Any:
    return 0 if a == 0 or b == 0 else a * b


def product_bound(a: Bound, b: Bound) -> Bound:
    """The bounds of a product."""
    if a[0] >= 0 and b[0] >= 0:
        return _times(a[0], b[0]), _times(a[1], b[1])
    corners = [_times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def floor_div_bound(a: Bound, c: int) -> Bound:
    """The bounds of a quotient by a positive constant."""
    return (a[0] // c if a[0] != -INF else a[0]), (a[1] // c if a[1] != INF else a[1])


class Facts:
    """Knowledge about the atoms of one table. `bounds` and the rest are replaced, not changed, by a scope."""

    def __init__(self, atoms: Atoms) -> None:
        self.atoms = atoms
        self.bounds: dict[int, Bound] = {}
        self.symbolic: dict[int, tuple[list[Poly], list[Poly]]] = {}  # lower and upper bounds, inclusive
        self.remainders: dict[int, tuple[int, int]] = {}  # atom = coefficient * k + base
        self.positive: list[Poly] = []  # polynomials known to be >= 0
        self.memo: dict[int, Bound] = {}

    def snapshot(self) -> tuple[Any, ...]:
        """The state, for `restore`."""
        saved = (self.bounds, self.symbolic, self.remainders, self.positive, self.memo)
        self.bounds, self.symbolic = dict(self.bounds), dict(self.symbolic)
        self.remainders, self.positive, self.memo = dict(self.remainders), list(self.positive), {}
        return saved

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Go back to a snapshot."""
        self.bounds, self.symbolic, self.remainders, self.positive, self.memo = saved

    # ---- constant bounds ----

    def bound(self, p: Poly) -> Bound:
        """The bounds of a polynomial."""
        low: Any = 0
        high: Any = 0
        for m, c in p.items():
            if not m:
                low += c
                high += c
                continue
            a, b = self.atom_bound(m[0]) if len(m) == 1 else self.monomial_bound(m)
            if c > 0:
                low += a * c
                high += b * c
            else:
                low += b * c
                high += a * c
        return low, high

    def monomial_bound(self, m: Monomial) -> Bound:
        """The bounds of a product of atoms; a square is not negative."""
        out: Bound = (1, 1)
        i = 0
        while i < len(m):
            b = self.atom_bound(m[i])
            if i + 1 < len(m) and m[i + 1] == m[i]:
                size = max(abs(b[0]), abs(b[1]))
                least = 0 if b[0] <= 0 <= b[1] else min(abs(b[0]), abs(b[1]))
                b = (least * least, _times(size, size))
                i += 1
            out = product_bound(out, b)
            i += 1
        return out

    def atom_bound(self, n: int) -> Bound:
        """The bounds of one atom."""
        found = self.memo.get(n)
        if found is None:
            low, high = self._structure_bound(self.atoms.table[n])
            known = self.bounds.get(n)
            if known is not None:
                low, high = max(low, known[0]), min(high, known[1])
            found = self.memo[n] = (low, high)
        return found

    def _structure_bound(self, atom: Atom) -> Bound:
        e = atom.expr
        if atom.kind == "div":
            return floor_div_bound(self.bound(atom.num), atom.den)
        if atom.kind == "mod":
            low, high = self.bound(atom.num)
            if low >= 0 and high < atom.den:
                return low, high
            if low > -INF and high < INF and low // atom.den == high // atom.den:
                return low % atom.den, high % atom.den
            coefficient, base = self.remainder(atom.num)
            step = math.gcd(coefficient, atom.den)
            return base % step, atom.den - step + base % step
        if atom.kind in ("sum", "wide"):
            return self.bound(atom.num)
        if isinstance(e, SizeVar):
            return 0, INF
        return self.expr_bound(e)

    def expr_bound(self, e: PrimExpr) -> Bound:
        """The bounds of an expression that is no polynomial, from its structure."""
        if isinstance(e, ex.IntImm):
            return e.value, e.value
        number = self.atoms.numbers.get(e) if isinstance(e, ex.Var) else None
        if number is not None:
            return self.bounds.get(number, (0, INF) if isinstance(e, SizeVar) else _dtype_bound(e.dtype))
        if isinstance(e, (ex.Min, ex.Max)):
            a, b = self.expr_bound(e.a), self.expr_bound(e.b)
            f: Any = min if isinstance(e, ex.Min) else max
            return f(a[0], b[0]), f(a[1], b[1])
        if isinstance(e, (ex.Add, ex.Sub)):
            a, b = self.expr_bound(e.a), self.expr_bound(e.b)
            return (a[0] + b[0], a[1] + b[1]) if isinstance(e, ex.Add) else (a[0] - b[1], a[1] - b[0])
        if isinstance(e, ex.Mul):
            return product_bound(self.expr_bound(e.a), self.expr_bound(e.b))
        if isinstance(e, ex.FloorDiv) and isinstance(e.b, ex.IntImm) and e.b.value > 0:
            return floor_div_bound(self.expr_bound(e.a), e.b.value)
        if isinstance(e, (ex.FloorMod, ex.Mod, ex.FloorDiv, ex.Div)):
            return self._division_bound(e)
        if isinstance(e, ex.Select):
            a, b = self.expr_bound(e.true_value), self.expr_bound(e.false_value)
            return min(a[0], b[0]), max(a[1], b[1])
        if isinstance(e, ex.Cast):
            inner = self.expr_bound(e.value) if not dt.is_float(e.value.dtype) else ANY
            fits = _dtype_bound(e.dtype)
            if fits[0] <= inner[0] and inner[1] <= fits[1]:
                return inner
            return fits
        if isinstance(e, ex.Call) and isinstance(e.op, Op):
            return self._call_bound(e, e.op.name)
        return (0, INF) if isinstance(e, SizeVar) else _dtype_bound(e.dtype)

    def _division_bound(self, e: Any) -> Bound:
        a, b = self.expr_bound(e.a), self.expr_bound(e.b)
        if isinstance(e, ex.FloorMod) and b[0] > 0:
            return 0, (min(a[1], b[1] - 1) if a[0] >= 0 else b[1] - 1)
        if isinstance(e, ex.Mod) and b[0] > 0:
            return (0 if a[0] >= 0 else max(a[0], -(b[1] - 1))), max(0, min(a[1], b[1] - 1))
        if isinstance(e, (ex.Div, ex.FloorDiv)) and b[0] > 0:
            if a[0] >= 0:
                return (a[0] // b[1] if b[1] != INF else 0), (a[1] // b[0] if a[1] != INF else INF)
            size = max(abs(a[0]), abs(a[1]))
            size = size if size == INF else size // b[0] + 1
            return -size, size
        return ANY

    def _call_bound(self, e: ex.Call, name: str) -> Bound:
        if name == "tir.if_then_else":
            a, b = self.expr_bound(e.args[1]), self.expr_bound(e.args[2])
            return min(a[0], b[0]), max(a[1], b[1])
        if name == "tir.likely":
            return self.expr_bound(e.args[0])
        if name == "tir.bitwise_and":
            a, b = self.expr_bound(e.args[0]), self.expr_bound(e.args[1])
            high = min([x[1] for x in (a, b) if x[0] >= 0], default=INF)
            return (0, high) if a[0] >= 0 or b[0] >= 0 else _dtype_bound(e.dtype)
        if name in ("tir.popcount", "tir.clz"):
            return 0, dt.bits(e.args[0].dtype)
        return _dtype_bound(e.dtype)

    # ---- remainders ----

    def remainder(self, p: Poly) -> tuple[int, int]:
        """(coefficient, base) with p = coefficient * k + base for some integer k; coefficient 0: p is the base."""
        coefficient, base = 0, 0
        for m, c in p.items():
            if not m:
                base += c
                continue
            mc, mb = 0, 1
            for n in m:
                ac, ab = self.atom_remainder(n)
                mc, mb = math.gcd(mc * ab, math.gcd(ac * mb, mc * ac)), mb * ab
            coefficient = math.gcd(coefficient, mc * c)
            base += mb * c
        if coefficient:
            base %= coefficient
        return coefficient, base

    def atom_remainder(self, n: int) -> tuple[int, int]:
        """(coefficient, base) of one atom."""
        known = self.remainders.get(n)
        if known is not None:
            return known
        bound = self.bounds.get(n)
        if bound is not None and bound[0] == bound[1]:
            return 0, bound[0]
        atom = self.atoms.table[n]
        if atom.kind in ("sum", "wide"):
            return self.remainder(atom.num)
        if atom.kind == "div":
            c, b = self.remainder(atom.num)
            if c % atom.den == 0:
                return c // atom.den, b // atom.den
        if atom.kind == "mod":
            c, b = self.remainder(atom.num)
            g = math.gcd(c, atom.den)
            return g, b % g
        e = atom.expr
        if isinstance(e, (ex.Min, ex.Max, ex.Select)):
            return self.expr_remainder(e)
        return 1, 0

    def expr_remainder(self, e: PrimExpr) -> tuple[int, int]:
        """(coefficient, base) of an expression by its structure."""
        if isinstance(e, ex.IntImm):
            return 0, e.value
        if isinstance(e, ex.Var):
            number = self.atoms.numbers.get(e)
            return self.remainders.get(number, (1, 0)) if number is not None else (1, 0)
        if isinstance(e, (ex.Min, ex.Max, ex.Select)):
            sides = (e.true_value, e.false_value) if isinstance(e, ex.Select) else (e.a, e.b)
            (c, b), (d, f) = (self.expr_remainder(x) for x in sides)
            g = math.gcd(math.gcd(c, d), b - f)
            return (g, b % g) if g else (0, b)
        if isinstance(e, (ex.Add, ex.Sub, ex.Mul)):
            (c, b), (d, f) = self.expr_remainder(e.a), self.expr_remainder(e.b)
            if isinstance(e, ex.Mul):
                g, base = math.gcd(math.gcd(c * f, d * b), c * d), b * f
            else:
                g, base = math.gcd(c, d), (b + f if isinstance(e, ex.Add) else b - f)
            return (g, base % g) if g else (0, base)
        return 1, 0

    # ---- proofs ----

    def not_negative(self, p: Poly, depth: int = 4) -> bool:
        """Is p >= 0 known: by constant bounds, by a fact, or by replacing atoms by their symbolic bounds?"""
        if self.bound(p)[0] >= 0:
            return True
        if not self.positive and not self.symbolic:
            return False
        return self._prove(self.atoms.expand(p), depth)

    def _prove(self, p: Poly, depth: int) -> bool:
        if self.bound(p)[0] >= 0:
            return True
        for fact in self.positive:
            q = combine(p, fact, -1)
            if self.bound(q)[0] >= 0 or (depth > 2 and len(q) < len(p) and self._prove(q, depth - 2)):
                return True
        if depth == 0 or not self.symbolic:
            return False
        for n in sorted({n for m in p for n in m if n in self.symbolic}, reverse=True):
            sign = self._sign_of(p, n)
            if sign == 0:
                continue
            lower, upper = self.symbolic[n]
            for replacement in lower if sign > 0 else upper:
                if self._prove(self.atoms.expand(self.replaced(p, n, replacement)), depth - 1):
                    return True
        return False

    def _sign_of(self, p: Poly, n: int) -> int:
        """1 if p never falls when atom n grows, -1 if it never rises, 0 if that is not known (or n is not linear)."""
        sign = 0
        for m, c in p.items():
            count = m.count(n)
            if count == 0:
                continue
            if count > 1:
                return 0
            rest = list(m)
            rest.remove(n)
            low, high = self.monomial_bound(tuple(rest))
            s = 1 if low >= 0 else -1 if high <= 0 else 0
            s = s if c > 0 else -s
            if s == 0 or (sign and s != sign):
                return 0
            sign = s
        return sign

    def replaced(self, p: Poly, n: int, q: Poly) -> Poly:
        """p with atom n replaced by q (where n occurs once in a monomial)."""
        out: Poly = {}
        for m, c in p.items():
            if n not in m:
                part: Poly = {m: c}
            else:
                rest = list(m)
                rest.remove(n)
                part = multiply({tuple(rest): c}, q)
            out = combine(out, part)
        return out


def _dtype_bound(dtype: str) -> Bound:
    """The range of narrow and unsigned integers; 32- and 64-bit ones are taken as unbounded, for they do not overflow."""
    if dt.is_float(dtype) or dtype == "handle":
        return ANY
    if dt.is_uint(dtype) or dt.bits(dtype) < 32:
        return dt.min_value(dtype), dt.max_value(dtype)
    return ANY
