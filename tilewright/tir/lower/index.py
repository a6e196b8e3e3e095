"""Index arithmetic as polynomials: what the lowering passes use to flatten, split, vectorise and hoist addresses.

An integer expression becomes `{monomial: coefficient}`: a monomial is the sorted tuple of the numbers of its *atoms*
(variables, and sub-expressions that are no polynomial: a quotient, a load, a call), `()` is the constant. So equal
expressions have equal polynomials whatever their shape, `(i*4 + j) // 4` is `i` once `j` is known to lie in [0, 4), and the
terms of an address can be sorted by the loop that they vary in.

Index arithmetic is taken not to overflow (dimensions and addresses fit their dtype), so a cast from int32 to int64 is
looked through. Atoms are interned in an `IndexSpace`, which also knows the ranges of variables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from typing import cast as typed

from tilewright.arith.expr import (
    Add,
    BinaryOp,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    PrimExpr,
    Select,
    Sub,
    Var,
    add,
    cast,
    const,
    floordiv,
    floormod,
    mul,
    sub,
)
from tilewright.ir import dtype as dt
from tilewright.ir.node import Node, children

__all__ = ["Bounds", "IndexSpace", "Poly", "expr_key"]

Poly = dict[tuple[int, ...], int]
Bounds = tuple[int | None, int | None]

_UNKNOWN: Bounds = (None, None)
_MAX_TERMS = 24


def expr_key(e: Any) -> Any:
    """A hashable key that is equal for structurally equal expressions (variables and buffers by identity)."""
    if isinstance(e, Node):
        if e.identity:
            return id(e)
        return (type(e), *(expr_key(getattr(e, f.name)) for f in e.node_fields), getattr(e, "dtype", None))
    if isinstance(e, (tuple, list)):
        return tuple(expr_key(x) for x in typed("tuple[Any, ...]", e))
    if isinstance(e, float):
        return ("f", repr(e))
    return e


class IndexSpace:
    """Interned atoms, the ranges of variables, and the arithmetic of polynomials over them."""

    def __init__(self) -> None:
        self.atoms: list[PrimExpr] = []
        self._ids: dict[Any, int] = {}
        self._bounds: dict[int, Bounds] = {}
        self.ranges: dict[Var, Bounds] = {}
        self.extents: dict[Var, Poly] = {}
        """The extent of a variable that starts at 0, where it is symbolic."""
        self.values: dict[Var, Poly] = {}
        """Variables that stand for something else (an unrolled loop's variable, a let)."""
        self.dtype: str | None = None
        """The dtype in which quotients and remainders are computed; that of the expression by default."""
        self.rewrite: Callable[[PrimExpr], PrimExpr] | None = None
        """How the children of an opaque atom are rewritten; `simplify` by default."""

    # ---- atoms and bounds ----------------------------------------------------------------------------------------------

    def atom(self, e: PrimExpr) -> int:
        """The number of the atom `e`."""
        key = id(e) if isinstance(e, Var) else expr_key(e)
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self.atoms)
            self.atoms.append(e)
        return found

    def set_range(self, var: Var, lo: PrimExpr, extent: PrimExpr) -> None:
        """Declare `lo <= var < lo + extent`."""
        start, size = self.poly(lo), self.poly(extent)
        low = self.bounds(start)[0]
        last = self.sum(self.sum(start, size), {(): -1})
        self.ranges[var] = (low, self.bounds(last)[1])
        self._bounds.pop(self.atom(var), None)
        if not start and not self.is_const(size):
            self.extents[var] = size

    def atom_bounds(self, a: int) -> Bounds:
        """The least and the greatest value of an atom; None where unknown."""
        found = self._bounds.get(a)
        if found is None:
            found = self._bounds[a] = self._find_bounds(self.atoms[a])
        return found

    def _find_bounds(self, e: PrimExpr) -> Bounds:
        if isinstance(e, Var):
            found = self.ranges.get(e)
            return found if found is not None else ((0, None) if type(e).__name__ == "SizeVar" else _UNKNOWN)
        if isinstance(e, FloorMod) and isinstance(e.b, IntImm) and e.b.value > 0:
            return (0, e.b.value - 1)
        if isinstance(e, FloorDiv) and isinstance(e.b, IntImm) and e.b.value > 0:
            lo, hi = self.bounds(self.poly(e.a))
            return (None if lo is None else lo // e.b.value, None if hi is None else hi // e.b.value)
        if isinstance(e, (FloorDiv, FloorMod)):
            lo, hi = self.bounds(self.poly(e.a))
            divisor = self.bounds(self.poly(e.b))[0]
            if lo is not None and lo >= 0 and divisor is not None and divisor >= 0:
                return (0, hi)
            return _UNKNOWN
        if isinstance(e, (Min, Max)):
            a, b = self.bounds(self.poly(e.a)), self.bounds(self.poly(e.b))
            if isinstance(e, Min):
                return (_both(min, a[0], b[0]), _either(min, a[1], b[1]))
            return (_either(max, a[0], b[0]), _both(max, a[1], b[1]))
        if isinstance(e, Select):
            a, b = self.bounds(self.poly(e.true_value)), self.bounds(self.poly(e.false_value))
            return (_both(min, a[0], b[0]), _both(max, a[1], b[1]))
        return _UNKNOWN

    def bounds(self, p: Poly) -> Bounds:
        """The least and the greatest value of a polynomial; None where unknown."""
        lo: int | None = 0
        hi: int | None = 0
        for mono, c in p.items():
            if not mono:
                low = high = 1
            elif len(mono) == 1:
                low, high = self.atom_bounds(mono[0])
            else:
                low, high = self._product_bounds(mono)
            if c < 0:
                low, high = high, low
            lo = None if lo is None or low is None else lo + c * low
            hi = None if hi is None or high is None else hi + c * high
        return lo, hi

    def _product_bounds(self, mono: tuple[int, ...]) -> Bounds:
        low: int | None = 1
        high: int | None = 1
        for a in mono:
            x, y = self.atom_bounds(a)
            if x is None or x < 0 or low is None:
                return _UNKNOWN
            low *= x
            high = None if high is None or y is None else high * y
        return low, high

    # ---- polynomials ---------------------------------------------------------------------------------------------------

    @staticmethod
    def sum(a: Poly, b: Poly, factor: int = 1) -> Poly:
        """a + factor * b"""
        if not b:
            return a
        out = dict(a)
        for mono, c in b.items():
            total = out.get(mono, 0) + factor * c
            if total:
                out[mono] = total
            else:
                out.pop(mono, None)
        return out

    @staticmethod
    def product(a: Poly, b: Poly) -> Poly:
        """a * b"""
        out: Poly = {}
        for ma, ca in a.items():
            for mb, cb in b.items():
                mono = tuple(sorted(ma + mb)) if ma and mb else ma or mb
                total = out.get(mono, 0) + ca * cb
                if total:
                    out[mono] = total
                else:
                    out.pop(mono, None)
        return out

    @staticmethod
    def is_const(p: Poly) -> bool:
        """Is the polynomial a number?"""
        return not p or (len(p) == 1 and () in p)

    @staticmethod
    def value(p: Poly) -> int | None:
        """The number that the polynomial is, or None."""
        if not p:
            return 0
        return p.get(()) if len(p) == 1 else None

    def poly(self, e: PrimExpr) -> Poly:
        """The polynomial of an integer expression."""
        kind = type(e)
        if kind is IntImm:
            v = typed(IntImm, e).value
            return {(): v} if v else {}
        if isinstance(e, Var):
            stands = self.values.get(e)
            return stands if stands is not None else {(self.atom(e),): 1}
        handler = _POLY.get(kind)
        if handler is not None and dt.lanes(e.dtype) == 1:
            return handler(self, e)
        return {(self.atom(self._rebuild(e)),): 1}

    def _rebuild(self, e: PrimExpr) -> PrimExpr:
        return (self.rewrite or self.simplify_opaque)(e)

    def simplify_opaque(self, e: PrimExpr) -> PrimExpr:
        """An opaque atom with the index arithmetic inside it simplified, and variables that stand for others replaced."""
        from tilewright.ir.node import map_children

        def visit(x: Any) -> Any:
            if isinstance(x, Var):
                stands = self.values.get(x)
                return x if stands is None else self.expr(stands, x.dtype)
            if isinstance(x, PrimExpr) and not x.identity:
                if dt.is_int(x.dtype) and type(x) in _POLY and dt.lanes(x.dtype) == 1:
                    return self.simplify(x)
                return map_children(x, visit)
            return x

        return map_children(e, visit)

    def simplify(self, e: PrimExpr) -> PrimExpr:
        """An equal expression in canonical form."""
        return self.expr(self.poly(e), e.dtype)

    def expr(self, p: Poly, dtype: str) -> PrimExpr:
        """The expression of a polynomial, terms in the order of their atoms, the constant last."""
        out: PrimExpr | None = None
        later: list[tuple[PrimExpr, int]] = []
        for mono in sorted(p):
            if not mono:
                continue
            c = p[mono]
            term = self.monomial(mono, dtype)
            if c < 0 and out is None:
                later.append((term, c))
                continue
            scaled = mul(term, const(abs(c), dtype))
            out = scaled if out is None else (add(out, scaled) if c > 0 else sub(out, scaled))
        constant = p.get((), 0)
        if out is None:
            out = const(constant, dtype)
            constant = 0
        for term, c in later:
            out = sub(out, mul(term, const(-c, dtype)))
        if constant > 0:
            out = add(out, const(constant, dtype))
        elif constant < 0:
            out = sub(out, const(-constant, dtype))
        return out

    def monomial(self, mono: tuple[int, ...], dtype: str) -> PrimExpr:
        """The product of a monomial's atoms."""
        out: PrimExpr | None = None
        for a in mono:
            e = self.atoms[a]
            if e.dtype != dtype:
                e = cast(e, dtype)
            out = e if out is None else Mul(out, e)
        assert out is not None
        return out

    # ---- division ------------------------------------------------------------------------------------------------------

    def divide(self, p: Poly, q: Poly) -> tuple[Poly, Poly]:
        """(quotient, rest) with p == quotient*q + rest, where `quotient` takes every term that `q` divides."""
        n = self.value(q)
        quotient: Poly = {}
        rest: Poly = {}
        if n is not None:
            for mono, c in p.items():
                whole, part = divmod(c, n)
                if whole and (not mono or not part):
                    quotient[mono] = whole
                    c = part
                if c:
                    rest[mono] = c
            return quotient, rest
        if len(q) == 1:
            ((mono_q, cq),) = q.items()
            for mono, c in p.items():
                left = list(mono)
                if c % cq == 0 and all(a in left and not left.remove(a) for a in mono_q):
                    quotient[tuple(left)] = c // cq
                else:
                    rest[mono] = c
            return quotient, rest
        return {}, p

    def _below(self, rest: Poly, q: Poly) -> bool:
        """Is 0 <= rest < q known?"""
        lo, hi = self.bounds(rest)
        if lo is None or lo < 0:
            return False
        n = self.value(q)
        if n is not None:
            return hi is not None and hi < n
        if not rest:
            return (self.bounds(q)[0] or 0) > 0
        if len(rest) == 1:
            ((mono, c),) = rest.items()
            if c == 1 and len(mono) == 1:
                e = self.atoms[mono[0]]
                return isinstance(e, Var) and self.extents.get(e) == q
        return False

    def floordiv(self, p: Poly, q: Poly, dtype: str) -> Poly:
        """p // q"""
        n = self.value(q)
        if n == 1:
            return p
        quotient, rest = self.divide(p, q)
        if not rest or self._below(rest, q):
            return quotient
        inner = self._lone_atom(rest)
        if (
            n is not None
            and n > 0
            and isinstance(inner, FloorDiv)
            and isinstance(inner.b, IntImm)
            and inner.b.value > 0
        ):
            more = self.floordiv(self.poly(inner.a), {(): inner.b.value * n}, dtype)
            return self.sum(quotient, more)
        if n is not None and n > 0:
            lo, hi = self.bounds(rest)
            if lo is not None and hi is not None and lo // n == hi // n:
                return self.sum(quotient, {(): lo // n} if lo // n else {})
            rest, n2 = self._reduce_fraction(rest, n)
            q = {(): n2}
        top = floordiv(self.expr(rest, dtype), self.expr(q, dtype))
        return self.sum(quotient, self._atomic(top))

    @staticmethod
    def _reduce_fraction(rest: Poly, n: int) -> tuple[Poly, int]:
        """(a*g + b) // (m*g) with 0 <= b < g is a // m."""
        from math import gcd

        g = n
        for mono, c in rest.items():
            if mono:
                g = gcd(g, c)
        if g <= 1 or g == n:
            return rest, n
        return {m: (c // g) for m, c in rest.items() if c // g}, n // g

    def floormod(self, p: Poly, q: Poly, dtype: str) -> Poly:
        """p % q"""
        n = self.value(q)
        if n == 1:
            return {}
        _, rest = self.divide(p, q)
        if not rest or self._below(rest, q):
            return rest
        if n is not None and n > 0:
            lo, hi = self.bounds(rest)
            if lo is not None and hi is not None and lo // n == hi // n:
                return self.sum(rest, {(): -(lo // n) * n} if lo // n else {})
        return self._atomic(floormod(self.expr(rest, dtype), self.expr(q, dtype)))

    def _lone_atom(self, p: Poly) -> PrimExpr | None:
        """The atom that the polynomial is, if it is one."""
        if len(p) == 1:
            ((mono, c),) = p.items()
            if c == 1 and len(mono) == 1:
                return self.atoms[mono[0]]
        return None

    def recombine(self, p: Poly) -> Poly:
        """`(x // n)*n*k + (x % n)*k` is `x*k`: what flattening makes of a reshape."""
        for mono, k in p.items():
            for a in mono:
                e = self.atoms[a]
                if not isinstance(e, FloorMod):
                    continue
                x, n = self.poly(e.a), self.poly(e.b)
                q = self.floordiv(x, n, e.dtype)
                if len(q) != 1 or len(n) != 1:
                    continue
                others = list(mono)
                others.remove(a)
                ((mq, cq),), ((mn, cn),) = q.items(), n.items()
                whole = tuple(sorted((*others, *mq, *mn)))
                if cq == 1 and p.get(whole) == k * cn:
                    left = {m: c for m, c in p.items() if m not in (whole, mono)}
                    return self.recombine(self.sum(left, self.product(x, {tuple(others): k})))
        return p

    def _atomic(self, e: PrimExpr) -> Poly:
        if isinstance(e, IntImm):
            return {(): e.value} if e.value else {}
        return {(self.atom(e),): 1}

    def depends(self, p: Poly, var: Var) -> bool:
        """Does the polynomial mention `var`, also inside its atoms?"""
        return any(self.atom_mentions(a, var) for mono in p for a in mono)

    def atom_mentions(self, a: int, var: Var) -> bool:
        """Does the atom mention `var`?"""
        e = self.atoms[a]
        return e is var if isinstance(e, Var) else mentions(e, var)


def mentions(e: Node, var: Var) -> bool:
    """Does the expression (or statement) mention `var`?"""
    if e is var:
        return True
    return not e.identity and any(mentions(c, var) for c in children(e))


def _both(f: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else f(a, b)


def _either(f: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else f(a, b)


def _add(s: IndexSpace, e: Add) -> Poly:
    return s.sum(s.poly(e.a), s.poly(e.b))


def _sub(s: IndexSpace, e: Sub) -> Poly:
    return s.sum(s.poly(e.a), s.poly(e.b), -1)


def _mul(s: IndexSpace, e: Mul) -> Poly:
    a, b = s.poly(e.a), s.poly(e.b)
    if len(a) * len(b) <= _MAX_TERMS:
        return s.product(a, b)
    dtype = s.dtype or e.dtype
    return s._atomic(Mul(s.expr(a, dtype), s.expr(b, dtype)))


def _floordiv(s: IndexSpace, e: FloorDiv) -> Poly:
    return s.floordiv(s.poly(e.a), s.poly(e.b), s.dtype or e.dtype)


def _floormod(s: IndexSpace, e: FloorMod) -> Poly:
    return s.floormod(s.poly(e.a), s.poly(e.b), s.dtype or e.dtype)


def _trunc(s: IndexSpace, e: BinaryOp) -> Poly:
    """Truncating division of what is known not to be negative is floor division."""
    a, b = s.poly(e.a), s.poly(e.b)
    low = s.bounds(a)[0]
    if low is not None and low >= 0:
        if (s.bounds(b)[0] or 0) > 0:
            return s.floordiv(a, b, s.dtype or e.dtype) if type(e) is Div else s.floormod(a, b, s.dtype or e.dtype)
    dtype = s.dtype or e.dtype
    return s._atomic(type(e)(s.expr(a, dtype), s.expr(b, dtype)))


def _minmax(s: IndexSpace, e: BinaryOp) -> Poly:
    a, b = s.poly(e.a), s.poly(e.b)
    lo, hi = s.bounds(s.sum(a, b, -1))
    smaller: Poly | None = a if hi is not None and hi <= 0 else b if lo is not None and lo >= 0 else None
    if smaller is not None:
        return smaller if type(e) is Min else (b if smaller is a else a)
    dtype = s.dtype or e.dtype
    return s._atomic(type(e)(s.expr(a, dtype), s.expr(b, dtype)))


def _cast(s: IndexSpace, e: Cast) -> Poly:
    if dt.is_int(e.value.dtype) and dt.lanes(e.value.dtype) == 1 and dt.bits(e.dtype) >= dt.bits(e.value.dtype):
        if dt.code(e.value.dtype) == "int" and dt.bits(e.value.dtype) >= 32:
            return s.poly(e.value)
    return {(s.atom(s._rebuild(e)),): 1}


_POLY: Mapping[type, Callable[[IndexSpace, Any], Poly]] = {
    Add: _add,
    Sub: _sub,
    Mul: _mul,
    FloorDiv: _floordiv,
    FloorMod: _floormod,
    Div: _trunc,
    Mod: _trunc,
    Min: _minmax,
    Max: _minmax,
    Cast: _cast,
}
"""Operations that polynomials see through, on integers."""
