"""Integer expressions as polynomials over numbered atoms: the form in which everything is compared and simplified.

    i*16 + n*j - 2   ->   {(i,): 16, (j, n): 1, (): -2}

A `Poly` maps a monomial (the sorted tuple of its atoms' numbers; `()` for the constant) to its coefficient, never 0. Terms
keep the order in which they came, so that what is printed looks like what was written. An *atom* is what is no sum and no
product: a variable, a quotient or remainder, a load, a minimum; or a whole sum, where a product of sums is not multiplied
out (`expand` does that). `Atoms` numbers them: structurally equal atoms have one number.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Add, IntImm, Mul, PrimExpr, Sub, Var
from tilewright.arith.linear import expr_key

__all__ = ["Atom", "Atoms", "Monomial", "Poly", "add_into", "combine", "constant_of", "multiply", "scale"]

Monomial = tuple[int, ...]
Poly = dict[Monomial, int]


class Atom:
    """One atom. `kind` is `div` or `mod` (of the polynomial `num` by the positive constant `den`), `sdiv` or `smod` (by the
    polynomial `by`), `sum` (of `num`), `wide` (an int32 `num` as int64), or ''."""

    __slots__ = ("by", "den", "expr", "kind", "num", "number")

    def __init__(self, number: int, expr: PrimExpr, kind: str = "", num: Poly | None = None, den: int = 1) -> None:
        self.number, self.expr, self.kind, self.den = number, expr, kind, den
        self.num: Poly = num if num is not None else {}
        self.by: Poly = {}

    def __repr__(self) -> str:
        return f"#{self.number}:{self.expr}"


def add_into(p: Poly, q: Poly, k: int = 1) -> None:
    """p += k * q, in place."""
    for m, c in q.items():
        n = p.get(m, 0) + k * c
        if n:
            p[m] = n
        else:
            p.pop(m, None)


def combine(p: Poly, q: Poly, k: int = 1) -> Poly:
    """p + k * q"""
    out = dict(p)
    add_into(out, q, k)
    return out


def scale(p: Poly, k: int) -> Poly:
    """k * p"""
    return {m: c * k for m, c in p.items()} if k else {}


def multiply(p: Poly, q: Poly) -> Poly:
    """p * q, multiplied out."""
    out: Poly = {}
    for m, c in p.items():
        for n, d in q.items():
            key = m + n if not m or not n else tuple(sorted(m + n))
            value = out.get(key, 0) + c * d
            if value:
                out[key] = value
            else:
                out.pop(key, None)
    return out


def constant_of(p: Poly) -> int | None:
    """The value of a polynomial without atoms, else None."""
    if not p:
        return 0
    return p[()] if len(p) == 1 and () in p else None


class Atoms:
    """The table of atoms, and the way back from polynomials to expressions."""

    def __init__(self) -> None:
        self.table: list[Atom] = []
        self.numbers: dict[Any, int] = {}

    def intern(self, expr: PrimExpr, kind: str = "", num: Poly | None = None, den: int = 1) -> int:
        """The number of an atom."""
        key = expr if isinstance(expr, Var) else expr_key(expr)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.table)
            self.table.append(Atom(number, expr, kind, num, den))
        return number

    def expand(self, p: Poly, limit: int = 64) -> Poly:
        """`p` with products of sums multiplied out, as long as that gives at most `limit` terms."""
        table = self.table
        for _ in range(8):
            found: tuple[Monomial, int] | None = None
            for m in p:
                for n in m:
                    if table[n].kind == "sum":
                        found = m, n
                        break
                if found:
                    break
            if found is None:
                return p
            m, n = found
            rest = list(m)
            rest.remove(n)
            if len(p) + len(table[n].num) > limit:
                return p
            c = p[m]
            p = {k: v for k, v in p.items() if k is not m and k != m}
            add_into(p, multiply({tuple(rest): c}, table[n].num))
        return p

    # ---- back to expressions ----

    def product(self, m: Monomial, dtype: str) -> PrimExpr:
        """The product of a monomial's atoms."""
        out: PrimExpr | None = None
        for n in m:
            e = self.table[n].expr
            out = e if out is None else Mul(out, e)
        return out if out is not None else IntImm(dtype, 1)

    def expr(self, p: Poly, dtype: str) -> PrimExpr:
        """The polynomial as an expression: positive terms first, the constant last."""
        out: PrimExpr | None = None
        for m, c in p.items():
            if c > 0 and m:
                e = self.product(m, dtype)
                if c != 1:
                    e = Mul(e, IntImm(dtype, c))
                out = e if out is None else Add(out, e)
        k = p.get((), 0)
        if out is None and k > 0:
            out, k = IntImm(dtype, k), 0
        for m, c in p.items():
            if c < 0 and m:
                e = self.product(m, dtype)
                if out is None:
                    out = Sub(IntImm(dtype, 0), e) if c == -1 else Mul(e, IntImm(dtype, c))
                else:
                    out = Sub(out, Mul(e, IntImm(dtype, -c)) if c != -1 else e)
        if out is None:
            return IntImm(dtype, k)
        if k > 0:
            return Add(out, IntImm(dtype, k))
        return Sub(out, IntImm(dtype, -k)) if k < 0 else out
