"""Floor division and remainder of polynomials: their normal forms.

By a positive constant c, with p = c*Q + R (coefficients of R smaller than c):
    p // c  =  Q + R // c                              p % c  =  R % c
    R // c  =  m, R % c = R - m*c                      where R lies in [m*c, (m+1)*c)
    (g*X + S) // c  =  X // (c/g)                      where g divides c and 0 <= S < g
    (g*X + S) % c   =  g * (X % (c/g)) + S
    (k - X) // c    =  -((X + c-1-k) // c)             (k - X) % c  =  c-1 - (X + c-1-k) % c
    (x // a + k) // c  =  (x + k*a) // (a*c)           (x % m) // c  =  (x // c) % (m/c)      where c divides m
    (k*(x % m) + y) % c  =  (k*x + y) % c              where c divides k*m
By a symbolic d: multiples of d come out, and a rest proved to lie in [0, d) goes.

`merge` undoes it in sums: (x // c)*c + x % c = x.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilewright.arith.expr import FloorDiv, FloorMod, IntImm, PrimExpr
from tilewright.arith.poly import Monomial, Poly, add_into, combine, constant_of, multiply, scale

if TYPE_CHECKING:
    from tilewright.arith.simplify.base import Base

__all__ = ["factor_out", "floor_div", "floor_mod", "merge", "symbolic_div", "symbolic_mod"]


def _split(p: Poly, c: int) -> tuple[Poly, Poly]:
    """(Q, R) with p = c*Q + R: coefficients of R smaller than c, of the sign they had; its constant in [0, c)."""
    q: Poly = {}
    r: Poly = {}
    for m, k in p.items():
        if not m:
            a, b = divmod(k, c)
        else:
            a = abs(k) // c
            b = abs(k) - a * c
            if k < 0:
                a, b = -a, -b
        if a:
            q[m] = a
        if b:
            r[m] = b
    return q, r


def _reduce(s: Base, r: Poly, c: int) -> tuple[int, Poly, Poly, int]:
    """(g, X, S, c/g): R = g*X + S with 0 <= S < g; g is 1 (and X = R, S = 0) where there is nothing to take out."""
    for g in sorted({math.gcd(k, c) for m, k in r.items() if m}, reverse=True):
        if g <= 1:
            break
        x: Poly = {}
        rest: Poly = {}
        for m, k in r.items():
            if not m:
                if k // g:
                    x[m] = k // g
                if k % g:
                    rest[m] = k % g
            elif k % g == 0:
                x[m] = k // g
            else:
                rest[m] = k
        low, high = s.facts.bound(rest)
        if low >= 0 and high < g:
            return g, x, rest, c // g
    return 1, r, {}, c


def _flipped(r: Poly, c: int) -> Poly | None:
    """For R = k - X with only negative coefficients in -X: X + c-1-k. None otherwise."""
    if any(k > 0 for m, k in r.items() if m) or len(r) <= (1 if () in r else 0):
        return None
    x = {m: -k for m, k in r.items() if m}
    k = c - 1 - r.get((), 0)
    if k:
        x[()] = k
    return x


def floor_div(s: Base, p: Poly, c: int, dtype: str) -> Poly:
    """p // c for a constant c > 0."""
    if c == 1:
        return p
    q, r = _split(p, c)
    k = constant_of(r)
    if k is not None:
        return q  # the constant of R lies in [0, c)
    low, high = s.facts.bound(r)
    if low // c == high // c and low != -math.inf and high != math.inf:
        return combine(q, {(): low // c}) if low // c else q
    coefficient, base = s.facts.remainder(r)
    if coefficient == 0:
        return combine(q, {(): base // c}) if base // c else q
    g, x, _, d = _reduce(s, r, c)
    if g > 1:
        return combine(q, floor_div(s, x, d, dtype))
    flipped = _flipped(r, c)
    if flipped is not None:
        return combine(q, floor_div(s, flipped, c, dtype), -1)
    return combine(q, _div_atom(s, r, c, dtype))


def _div_atom(s: Base, r: Poly, c: int, dtype: str) -> Poly:
    inner = _single(s, r)
    if inner is not None:
        atom = s.atoms.table[inner]
        k = r.get((), 0)
        if atom.kind == "div":
            return floor_div(s, combine(atom.num, {(): k * atom.den}) if k else atom.num, atom.den * c, dtype)
        if atom.kind == "mod" and k == 0 and atom.den % c == 0:
            return floor_mod(s, floor_div(s, atom.num, c, dtype), atom.den // c, dtype)
    e = FloorDiv(s.atoms.expr(r, dtype), IntImm(dtype, c))
    return {(s.atoms.intern(e, "div", r, c),): 1}


def _single(s: Base, r: Poly) -> int | None:
    """The atom of `atom + constant`."""
    terms = [(m, k) for m, k in r.items() if m]
    if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1:
        return terms[0][0][0]
    return None


def floor_mod(s: Base, p: Poly, c: int, dtype: str) -> Poly:
    """p % c for a constant c > 0."""
    if c == 1:
        return {}
    _, r = _split(p, c)
    k = constant_of(r)
    if k is not None:
        return r
    low, high = s.facts.bound(r)
    if low // c == high // c and low != -math.inf and high != math.inf:
        return combine(r, {(): -(low // c) * c}) if low // c else r
    coefficient, base = s.facts.remainder(r)
    if coefficient % c == 0:
        return {(): base % c} if base % c else {}
    g, x, rest, d = _reduce(s, r, c)
    if g > 1:
        return combine(scale(floor_mod(s, x, d, dtype), g), rest)
    flipped = _flipped(r, c)
    if flipped is not None:
        return combine({(): c - 1}, floor_mod(s, flipped, c, dtype), -1)
    opened = _open_mods(s, r, c)
    if opened is not None:
        return floor_mod(s, opened, c, dtype)
    e = FloorMod(s.atoms.expr(r, dtype), IntImm(dtype, c))
    return {(s.atoms.intern(e, "mod", r, c),): 1}


def _open_mods(s: Base, r: Poly, c: int) -> Poly | None:
    """R with k*(x % m) replaced by k*x where c divides k*m; None where there is no such term."""
    table = s.atoms.table
    for m, k in r.items():
        if len(m) == 1:
            atom = table[m[0]]
            if atom.kind == "mod" and (k * atom.den) % c == 0:
                return combine({n: v for n, v in r.items() if n != m}, atom.num, k)
    return None


# ---- sums --------------------------------------------------------------------------------------------------------------


def merge(s: Base, p: Poly, dtype: str) -> Poly:
    """(x // c)*c + x % c = x, and x - (x // c)*c = x % c, wherever they stand in a sum."""
    table = s.atoms.table
    for _ in range(16):
        for m, k in p.items():
            for n in m:
                kind = table[n].kind
                new = None
                if kind == "mod":
                    new = _merge_mod(s, p, m, n, k, dtype)
                elif kind == "div":
                    new = _merge_div(s, p, m, n, k, dtype)
                elif kind == "smod":
                    new = _merge_symbolic_mod(s, p, m, n, k, dtype)
                elif kind == "sdiv":
                    new = _merge_symbolic_div(s, p, m, n, k, dtype)
                if new is not None:
                    break
            else:
                continue
            break
        else:
            return p
        p = new
    return p


def _without(m: Monomial, n: int) -> Monomial:
    rest = list(m)
    rest.remove(n)
    return tuple(rest)


def _times(rest: Monomial, p: Poly, k: int) -> Poly:
    return {tuple(sorted(rest + m)) if rest else m: c * k for m, c in p.items()}


def _covers(p: Poly, q: Poly) -> bool:
    """Does the sum contain all atoms' terms of q?"""
    found = False
    for m, c in q.items():
        if m:
            found = True
            if p.get(m) != c:
                return False
    return found


def _merge_mod(s: Base, p: Poly, m: Monomial, n: int, k: int, dtype: str) -> Poly | None:
    """rest*k*(x % c) + rest*k*c*(x // c)  ->  rest*k*x"""
    atom = s.atoms.table[n]
    rest = _without(m, n)
    quotient = _times(rest, floor_div(s, atom.num, atom.den, dtype), k * atom.den)
    if not _covers(p, quotient):
        return None
    out = combine(p, quotient, -1)
    add_into(out, {m: k}, -1)
    add_into(out, _times(rest, atom.num, k))
    return out


def _merge_div(s: Base, p: Poly, m: Monomial, n: int, k: int, dtype: str) -> Poly | None:
    """rest*j*x - rest*j*c*(x // c)  ->  rest*j*(x % c), and x // c * c where c divides x"""
    atom = s.atoms.table[n]
    if k % atom.den:
        return None
    j = -k // atom.den
    rest = _without(m, n)
    coefficient, base = s.facts.remainder(atom.num)
    if coefficient % atom.den == 0:  # x = c * (x // c) + base % c
        out = {a: b for a, b in p.items() if a != m}
        add_into(out, _times(rest, combine(atom.num, {(): base % atom.den}, -1), -j))
        return out
    if not _covers(p, _times(rest, atom.num, j)):
        return None
    out = {a: b for a, b in p.items() if a != m}
    add_into(out, _times(rest, atom.num, -j))
    remainder = floor_mod(s, atom.num, atom.den, dtype)
    if len(combine(out, _times(rest, remainder, j))) > len(p):
        return None
    add_into(out, _times(rest, remainder, j))
    return out


# ---- symbolic divisors -------------------------------------------------------------------------------------------------


def factor_out(p: Poly, d: Poly) -> tuple[Poly, Poly]:
    """(Q, R) with p = Q*d + R, where d is one term, or p a multiple of it."""
    if len(d) == 1:
        ((md, cd),) = d.items()
        q: Poly = {}
        r: Poly = {}
        for m, c in p.items():
            rest = list(m)
            try:
                for n in md:
                    rest.remove(n)
            except ValueError:
                r[m] = c
                continue
            if c % cd:
                r[m] = c
            else:
                q[tuple(rest)] = c // cd
        return q, r
    first = next(iter(d))
    k = p.get(first, 0)
    if k and k % d[first] == 0:
        k //= d[first]
        rest_p = combine(p, d, -k)
        if len(rest_p) < len(p):
            return {(): k}, rest_p
    return {}, p


def _sides(s: Base, p: Poly, d: Poly) -> tuple[Poly, Poly]:
    q, r = factor_out(p, d)
    if not q:
        p2, d2 = s.atoms.expand(p), s.atoms.expand(d)
        if p2 is not p or d2 is not d:
            q2, r2 = factor_out(p2, d2)
            if q2:
                return q2, r2
    return q, r


def symbolic_div(s: Base, p: Poly, d: Poly, dtype: str) -> Poly:
    """p // d for a divisor that is no constant."""
    q, r = _sides(s, p, d)
    if not r:
        return q
    if s.facts.not_negative(r) and s.facts.not_negative(combine(combine(d, r, -1), {(): -1})):
        return q
    return combine(q, _labelled(s, s.generic(_node(s, FloorDiv, r, d, dtype)), "sdiv", r, d))


def symbolic_mod(s: Base, p: Poly, d: Poly, dtype: str) -> Poly:
    """p % d for a divisor that is no constant."""
    _, r = _sides(s, p, d)
    if not r:
        return {}
    if s.facts.not_negative(r) and s.facts.not_negative(combine(combine(d, r, -1), {(): -1})):
        return r
    out = _labelled(s, s.generic(_node(s, FloorMod, r, d, dtype)), "smod", r, d)
    if len(out) == 1 and s.facts.bound(d)[0] > 0:
        (m,) = out
        if len(m) == 1:
            s.facts.symbolic.setdefault(m[0], ([{}], [combine(d, {(): -1})]))
    return out


def _node(s: Base, kind: type, r: Poly, d: Poly, dtype: str) -> PrimExpr:
    return kind(s.atoms.expr(r, dtype), s.atoms.expr(d, dtype))


def _labelled(s: Base, p: Poly, kind: str, num: Poly, by: Poly) -> Poly:
    """Note of a fresh atom what it is a quotient or remainder of."""
    if len(p) == 1:
        (m,) = p
        if len(m) == 1:
            atom = s.atoms.table[m[0]]
            if isinstance(atom.expr, FloorDiv if kind == "sdiv" else FloorMod):
                atom.kind, atom.num, atom.by = kind, num, by
    return p


def _merge_symbolic_mod(s: Base, p: Poly, m: Monomial, n: int, k: int, dtype: str) -> Poly | None:
    """rest*k*(x % d) + rest*k*d*(x // d)  ->  rest*k*x"""
    atom = s.atoms.table[n]
    rest = _without(m, n)
    quotient = multiply(symbolic_div(s, atom.num, atom.by, dtype), atom.by)
    if len(quotient) > 8 or not _covers(p, _times(rest, quotient, k)):
        return None
    out = combine(p, _times(rest, quotient, k), -1)
    add_into(out, {m: k}, -1)
    add_into(out, _times(rest, atom.num, k))
    return out


def _merge_symbolic_div(s: Base, p: Poly, m: Monomial, n: int, k: int, dtype: str) -> Poly | None:
    """rest*j*x - rest*j*d*(x // d)  ->  rest*j*(x % d), for a divisor of one term"""
    atom = s.atoms.table[n]
    if len(atom.by) != 1:
        return None
    ((md, cd),) = atom.by.items()
    rest = list(_without(m, n))
    for x in md:
        if x not in rest:
            return None
        rest.remove(x)
    j = -k // cd
    if k % cd or not _covers(p, _times(tuple(rest), atom.num, j)):
        return None
    out = {a: b for a, b in p.items() if a != m}
    add_into(out, _times(tuple(rest), atom.num, -j))
    add_into(out, _times(tuple(rest), symbolic_mod(s, atom.num, atom.by, dtype), j))
    return out
