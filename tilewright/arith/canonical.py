"""The canonical simplifier: integer expressions as sums of digits, and back.

    x // 4 * 4 + x % 4 + 2*y + 3    ->    x + y*2 + 3

A *split* is `(index // lower) % (upper / lower) * scale` (of index % upper, divided by lower), with `upper` None for no
remainder; `floor` says how it rounds. A *sum* is a list of splits and a constant. Splits of one index stand together, the
greatest `lower` first, so that neighbours merge: `x // 4 * 4` and `x % 4` are one digit of x. A sum is written with its
terms by falling scale, positive ones first, the constant after them, then what is subtracted.
"""

from __future__ import annotations

import math
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.const_bound import INF, dtype_range
from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.arith.linear import expr_key
from tilewright.arith.rewrite.engine import INDEX, Rewriter
from tilewright.arith.rewrite.nodes import Overflow, check_divisor, limits
from tilewright.ir import dtype as dt
from tilewright.ir.node import children

__all__ = ["Canonical"]


class Split:
    """One digit of an index, scaled."""

    __slots__ = ("floor", "index", "key", "lower", "scale", "upper")

    def __init__(
        self,
        index: PrimExpr,
        lower: int = 1,
        upper: int | None = None,
        scale: int = 1,
        floor: bool = True,
        key: Any = None,
    ) -> None:
        self.index, self.lower, self.upper, self.scale, self.floor = index, lower, upper, scale, floor
        self.key = expr_key(index) if key is None else key

    def with_scale(self, scale: int) -> Split:
        """The digit with another scale."""
        return Split(self.index, self.lower, self.upper, scale, self.floor, self.key)

    def fits(self, floor: bool) -> bool:
        """Does it mean the same in the other way of rounding?"""
        return self.floor == floor or (self.lower == 1 and self.upper is None)

    def expr(self, scale: int) -> PrimExpr:
        """The digit times `scale` as an expression."""
        dtype = self.index.dtype
        if scale == 0:
            return IntImm(dtype, 0)
        out = self.index
        div, mod = (ex.FloorDiv, ex.FloorMod) if self.floor else (ex.Div, ex.Mod)
        if self.upper is not None:
            out = mod(out, IntImm(dtype, self.upper))
        if self.lower != 1:
            out = div(out, IntImm(dtype, self.lower))
        if scale == 1:
            return out
        low, high = limits(dtype)
        if not low <= scale <= high:
            raise Overflow
        return ex.Mul(out, IntImm(dtype, scale))


class Sum:
    """Splits and a constant."""

    __slots__ = ("args", "base", "dtype")

    def __init__(self, args: list[Split], base: int, dtype: str) -> None:
        self.args, self.base, self.dtype = args, base, dtype

    def scaled(self, k: int) -> Sum:
        """k times the sum"""
        return Sum([a.with_scale(a.scale * k) for a in self.args] if k else [], self.base * k, self.dtype)

    def divided(self, d: int) -> Sum:
        """The sum by d, which divides every part."""
        return Sum([a.with_scale(a.scale // d) for a in self.args], self.base // d, self.dtype)

    def plus(self, other: Split | Sum, k: int) -> Sum:
        """self + k * other"""
        if isinstance(other, Sum):
            args = list(self.args)
            for a in other.args:
                _insert(args, a, k)
            return Sum(args, self.base + k * other.base, self.dtype)
        args = list(self.args)
        _insert(args, other, k)
        return Sum(args, self.base, self.dtype)


def _insert(args: list[Split], s: Split, k: int) -> None:
    """Add k * s to the list, beside the splits of its index, by falling `lower`."""
    if s.scale == 0:
        return
    key, n = s.key, len(args)
    start = 0
    while start < n and args[start].key != key:
        start += 1
    for j in range(start, n):
        a = args[j]
        if a.key != key or s.lower > a.lower:
            args.insert(j, s.with_scale(s.scale * k))
            return
        if s.lower == a.lower and s.upper == a.upper and a.fits(s.floor):
            args[j] = a.with_scale(a.scale + s.scale * k)
            return
    args.append(s.with_scale(s.scale * k))


def _merged(args: list[Split]) -> list[Split]:
    """Splits without zeros, neighbouring digits merged, by falling scale."""
    work: list[Split | None] = [a if a.scale else None for a in args]
    n = len(work)
    for i in range(n):
        for j in range(i + 1, n):
            a, b = work[i], work[j]
            if a is None:
                break
            if b is None:
                continue
            if a.key != b.key or (a.upper is not None and a.upper < b.lower):
                break
            if not a.fits(b.floor):
                continue
            if a.lower == b.lower and a.upper == b.upper:
                work[j] = b.with_scale(a.scale + b.scale) if a.scale + b.scale else None
                work[i] = None
            elif a.lower == b.upper and a.scale % b.scale == 0 and a.lower == a.scale // b.scale * b.lower:
                floor = a.floor if b.lower == 1 and b.upper is None else b.floor
                work[j] = Split(b.index, b.lower, a.upper, b.scale, floor, b.key)
                work[i] = None
                break
    out = [a for a in work if a is not None]
    out.sort(key=_order)
    return out


def _order(s: Split) -> tuple[Any, ...]:
    return -s.scale, -s.lower, -(INF if s.upper is None else s.upper), not s.floor


Form = Any
"""What visiting gives: a Split, a Sum, or a plain expression."""


class Canonical(Rewriter):
    """Simplifies by normal forms; what is no integer arithmetic goes by the rules. Shares what is known with a rewriter."""

    def __init__(self, other: Rewriter) -> None:
        super().__init__()
        self.modular, self.bounds, self.transitive = other.modular, other.bounds, other.transitive
        self.literals, self.values = other.literals, other.values
        self.forms: dict[int, tuple[Any, Form]] = {}
        self.mutators: dict[type, Any] = {
            ex.Add: self.form_sum, ex.Sub: self.form_sum, ex.Mul: self.form_product, ex.FloorDiv: self.form_quotient,
            ex.Div: self.form_quotient, ex.FloorMod: self.form_remainder, ex.Mod: self.form_remainder,
        }  # fmt: skip
        for kind in self.mutators:
            self.visitors[kind] = self.number_visitor(self.visitors[kind])
        self.visitors[ex.Cast] = self.number_visitor(self.visitors[ex.Cast])
        self.mutators[ex.Cast] = self.form_cast
        self.visitors[ex.LT] = self.visit_less
        self.visitors[ex.GT] = lambda e: self.visit_less(ex.LT(e.b, e.a))

    def forget(self) -> None:
        """Drop what was computed, because the knowledge changed."""
        self.memo, self.forms = {}, {}

    def number_visitor(self, by_rules: Any) -> Any:
        """The visitor of an operation: normal form for integers, rules for the rest."""

        def visit(e: Any) -> PrimExpr:
            if e.dtype not in INDEX:
                return by_rules(e)
            try:
                out = self.plain(self.form(e))
            except Overflow:
                return by_rules(e)
            return e if expr_key(out) == expr_key(e) else out

        return visit

    # ---- forms -------------------------------------------------------------------------------------------------------

    def form(self, e: Any) -> Form:
        """An expression as a Split or Sum, or simplified."""
        mutate = self.mutators.get(type(e)) if e.dtype in INDEX else None
        if mutate is None:
            return self.visit(e)
        found = self.forms.get(id(e))
        if found is not None:
            return found[1]
        out = mutate(e)
        if len(self.forms) > 20000:
            self.forms.clear()
        self.forms[id(e)] = e, out
        return out

    def plain(self, f: Form) -> PrimExpr:
        """The expression of a form."""
        if isinstance(f, Split):
            return f.expr(f.scale)
        if not isinstance(f, Sum):
            return f
        dtype = f.dtype
        low, high = limits(dtype)
        if not low <= f.base <= high:
            raise Overflow
        args = _merged(f.args)
        out: PrimExpr | None = None
        for a in args:
            if a.scale > 0:
                e = a.expr(a.scale)
                out = e if out is None else ex.Add(out, e)
        base = f.base
        if base > 0 or base == low:
            out = IntImm(dtype, base) if out is None else ex.Add(out, IntImm(dtype, base))
            base = 0
        for a in args:
            if a.scale < 0:
                out = ex.Sub(IntImm(dtype, 0) if out is None else out, a.expr(-a.scale))
        if base < 0:
            return IntImm(dtype, base) if out is None else ex.Sub(out, IntImm(dtype, -base))
        return IntImm(dtype, 0) if out is None else out

    def to_split(self, f: Form) -> Split:
        """A form as one split."""
        if isinstance(f, Split):
            return f
        if isinstance(f, Sum) and f.base == 0 and len(f.args) == 1:
            return f.args[0]
        return Split(self.plain(f))

    def to_sum(self, f: Form, dtype: str) -> Sum:
        """A form as a sum."""
        if isinstance(f, Sum):
            return f
        if isinstance(f, IntImm):
            return Sum([], f.value, dtype)
        return Sum([f if isinstance(f, Split) else Split(f)], 0, dtype)

    def form_sum(self, e: Any) -> Form:
        a, b = self.form(e.a), self.form(e.b)
        k = 1 if type(e) is ex.Add else -1
        left = self.to_sum(a, e.dtype)
        if isinstance(b, (Sum, Split)):
            return left.plus(b, k)
        if isinstance(b, IntImm):
            return Sum(left.args, left.base + k * b.value, e.dtype)
        return left.plus(Split(b), k)

    def form_product(self, e: Any) -> Form:
        a, b = self.form(e.a), self.form(e.b)
        for x, y in ((a, b), (b, a)):
            c = y.value if isinstance(y, IntImm) else y.base if isinstance(y, Sum) and not y.args else None
            if c is not None:
                if isinstance(x, IntImm):
                    return Sum([], x.value * c, e.dtype)
                if isinstance(x, Sum):
                    return x.scaled(c)
                s = self.to_split(x)
                return s.with_scale(s.scale * c)
        left, right = self.plain(a), self.plain(b)
        k, factors = 1, []
        for side in (left, right):
            c, more = _factors(side)
            k *= c
            factors += more
        if not factors:
            return Sum([], k, e.dtype)
        return Split(_product(factors), scale=k)

    # ---- quotients and remainders ------------------------------------------------------------------------------------

    def parts(self, s: Sum, d: int) -> tuple[Sum, Sum]:
        """(the part that d divides, the rest)"""
        whole = [a for a in s.args if a.scale % d == 0]
        rest = [a for a in s.args if a.scale % d]
        even = s.base % d == 0
        return Sum(whole, s.base if even else 0, s.dtype), Sum(rest, 0 if even else s.base, s.dtype)

    def in_mode(self, s: Split, floor: bool) -> Split:
        """The split in a way of rounding."""
        if s.floor == floor:
            return s
        if s.fits(floor):
            return Split(s.index, s.lower, s.upper, s.scale, floor, s.key)
        return Split(self.plain(s), floor=floor)

    def positive_constant(self, b: Form) -> int | None:
        """The value of a positive constant divisor."""
        c = b.value if isinstance(b, IntImm) else b.base if isinstance(b, Sum) and not b.args else None
        return c if c is not None and c > 0 else None

    def form_quotient(self, e: Any) -> Form:
        floor = type(e) is ex.FloorDiv
        a, b = self.form(e.a), self.form(e.b)
        d = self.positive_constant(b)
        if d is not None:
            return self.by_constant(a, d, floor, e.dtype)
        x, y = self.plain(a), self.plain(b)
        check_divisor(e, y)
        if isinstance(x, IntImm) and isinstance(y, IntImm):
            return (self.make_FloorDiv if floor else self.make_Div)(x, y)
        found = _cancel(x, y)
        if found is not None:
            x, y, _ = found
            if isinstance(y, IntImm) and y.value > 0:
                return self.by_constant(self.form(x), y.value, floor, e.dtype)
        return (self.make_FloorDiv if floor else self.make_Div)(x, y)

    def by_constant(self, a: Form, d: int, floor: bool, dtype: str) -> Form:
        """a // d"""
        if isinstance(a, IntImm):
            return IntImm(dtype, a.value // d if floor else int(math.copysign(abs(a.value) // d, a.value)))
        if d == 1:
            return a
        if isinstance(a, Sum):
            whole, rest = self.parts(a, d)
            if not rest.args and rest.base == 0:
                return whole.divided(d)
            if floor or (self.nonneg(self.plain(whole)) and self.nonneg(self.plain(rest))):
                out = whole.divided(d)
                e = self.plain(rest)
                if isinstance(e, IntImm):
                    return Sum(out.args, out.base + e.value // d, dtype)
                if self.less(e, d):
                    return out
                return out.plus(self.split_quotient(self.positive(rest), d, floor), 1)
        elif self.less(self.plain(a), d):
            return IntImm(dtype, 0)
        return self.split_quotient(self.to_split(self.from_sum(a)), d, floor)

    def from_sum(self, f: Form) -> Form:
        """A sum whose splits merge to one, as that split."""
        if isinstance(f, Sum) and f.base == 0 and len(f.args) > 1:
            args = _merged(f.args)
            if len(args) == 1:
                return args[0]
        return f

    def positive(self, f: Sum) -> Split:
        """A sum as one split whose scale is not negative."""
        s = self.to_split(self.from_sum(f))
        return s if s.scale >= 0 else Split(self.plain(f))

    def split_quotient(self, s: Split, d: int, floor: bool) -> Split:
        """A digit divided by a positive constant."""
        s = self.in_mode(s, floor)
        if s.scale % d == 0:
            return s.with_scale(s.scale // d)
        if s.scale and d % s.scale == 0 and (s.scale > 0 or not floor or (s.lower == 1 and s.upper is None)):
            lower = s.lower * (d // s.scale)
            if s.upper is None or s.upper % lower == 0:
                return self.inside(s, lower, floor) or Split(s.index, lower, s.upper, 1, floor, s.key)
            if s.scale > 0 and s.upper <= lower:
                return Split(IntImm(s.index.dtype, 0), scale=0)
            inner = Split(s.index, 1, s.upper, 1, floor, s.key)
            return Split(inner.expr(1), lower, None, 1, floor)
        inner = Split(self.plain(s), floor=floor)
        return Split(inner.index, d, None, 1, floor, inner.key)

    def inside(self, s: Split, lower: int, floor: bool) -> Split | None:
        """sum % upper // lower as (sum // lower) % (upper // lower), where the sum has parts that `lower` divides and the
        others are smaller than it."""
        if s.upper is None or not floor or not isinstance(s.index, (ex.Add, ex.Sub)):
            return None
        f = self.form(s.index)
        if not isinstance(f, Sum):
            return None
        whole, rest = self.parts(f, lower)
        if not whole.args or not self.less(self.plain(rest), lower):
            return None
        if s.upper == lower:
            return Split(IntImm(s.index.dtype, 0), scale=0)
        return self.to_split(self.rest_of(whole.divided(lower), s.upper // lower, True, s.index.dtype))

    def form_remainder(self, e: Any) -> Form:
        floor = type(e) is ex.FloorMod
        a, b = self.form(e.a), self.form(e.b)
        d = self.positive_constant(b)
        if d is not None:
            return self.rest_of(a, d, floor, e.dtype)
        x, y = self.plain(a), self.plain(b)
        check_divisor(e, y)
        if isinstance(x, IntImm) and isinstance(y, IntImm):
            return (self.make_FloorMod if floor else self.make_Mod)(x, y)
        found = _cancel(x, y)
        if found is not None:
            x, y, common = found
            if isinstance(y, IntImm) and y.value > 0:
                out = self.plain(self.rest_of(self.form(x), y.value, floor, e.dtype))
            else:
                out = (self.make_FloorMod if floor else self.make_Mod)(x, y)
            k, factors = _factors(common)
            if isinstance(out, IntImm) and out.value == 0:
                return out
            return Split(ex.Mul(out, common)) if factors else self.to_split(self.form(out)).with_scale(k)
        return (self.make_FloorMod if floor else self.make_Mod)(x, y)

    def rest_of(self, a: Form, d: int, floor: bool, dtype: str) -> Form:
        """a % d"""
        if isinstance(a, IntImm):
            return IntImm(dtype, a.value % d if floor else int(math.fmod(a.value, d)) if abs(a.value) < 1 << 52 else
                          (abs(a.value) % d if a.value >= 0 else -(abs(a.value) % d)))  # fmt: skip
        if d == 1:
            return IntImm(dtype, 0)
        if isinstance(a, Sum):
            whole, rest = self.parts(a, d)
            if not rest.args and rest.base == 0:
                return IntImm(dtype, 0)
            if floor or (self.nonneg(self.plain(whole)) and self.nonneg(self.plain(rest))):
                e = self.plain(rest)
                if isinstance(e, IntImm):
                    return IntImm(dtype, e.value % d)
                if self.less(e, d):
                    return e
                a = rest
            a = self.reduced_base(a, d, floor)
            return self.split_remainder(self.positive(a), d, floor)
        if self.less(self.plain(a), d):
            return a
        return self.split_remainder(self.to_split(a), d, floor)

    def reduced_base(self, a: Sum, d: int, floor: bool) -> Sum:
        """The sum with its constant brought below d."""
        if floor:
            return Sum(a.args, a.base % d, a.dtype)
        base = abs(a.base) % d * (1 if a.base >= 0 else -1)
        if base != a.base:
            low = self.bounds(self.plain(a))[0]
            if low >= 0 and low - a.base + base >= 0:
                return Sum(a.args, base, a.dtype)
        return a

    def split_remainder(self, s: Split, d: int, floor: bool) -> Split:
        """The remainder of a digit by a positive constant."""
        s = self.in_mode(s, floor)
        if s.scale % d == 0:
            return s.with_scale(0)
        if s.scale and d % s.scale == 0 and (s.scale > 0 or not floor or (s.lower == 1 and s.upper is None)):
            upper = s.lower * (d // s.scale)
            if s.upper is None or s.upper % upper == 0:
                if s.upper is not None and s.lower == 1 and upper > 0 and isinstance(s.index, (ex.Add, ex.Sub)):
                    again = self.to_split(self.rest_of(self.form(s.index), upper, floor, s.index.dtype))
                    return again.with_scale(again.scale * s.scale)
                return Split(s.index, s.lower, upper, s.scale, floor, s.key)
            if upper % s.upper == 0:
                return s
        inner = Split(self.plain(s), floor=floor)
        return Split(inner.index, 1, d, 1, floor, inner.key)

    # ---- casts and comparisons ---------------------------------------------------------------------------------------

    def form_cast(self, e: Any) -> Form:
        of = e.value.dtype
        if of not in INDEX:
            value = self.visit(e.value)
            if isinstance(value, (IntImm, ex.FloatImm)):
                return ex.cast(value, e.dtype)
            return e if value is e.value else ex.Cast(e.dtype, value)
        f = self.form(e.value)
        to = e.dtype
        if isinstance(f, IntImm):
            return ex.cast(f, to)
        if isinstance(f, Sum) and self.may_spread(f.args, f.base, to, of):
            return Sum([self.cast_split(a, to) for a in f.args], f.base, to)
        if isinstance(f, Split) and self.may_spread([f], 0, to, of):
            return self.cast_split(f, to)
        value = self.plain(f)
        return ex.cast(value, to) if expr_key(value) != expr_key(e.value) else e

    def cast_split(self, s: Split, to: str) -> Split:
        """The digit of the index converted."""
        return Split(ex.cast(s.index, to), s.lower, s.upper, s.scale, s.floor)

    def may_spread(self, args: list[Split], base: int, to: str, of: str) -> bool:
        """May each part be converted by itself? Always to a wider dtype; to a narrower one where all parts fit."""
        if dt.bits(to) >= dt.bits(of):
            return True
        low, high = dtype_range(to)
        total: tuple[Any, Any] = (0, 0)
        for a in args:
            inner, part = self.bounds(a.index), self.bounds(a.expr(a.scale))
            total = total[0] + part[0], total[1] + part[1]
            if min(inner[0], part[0], total[0]) < low or max(inner[1], part[1], total[1]) > high:
                return False
        return low <= base <= high and low <= total[0] + base and total[1] + base <= high

    def visit_less(self, e: Any) -> PrimExpr:
        """a < b, divided by what all terms share."""
        if e.a.dtype not in INDEX:
            return self.make_LT(self.visit(e.a), self.visit(e.b))
        try:
            found = self.scaled_less(self.to_sum(self.form(ex.Sub(e.a, e.b)), e.a.dtype))
            if found is not None:
                return found
        except Overflow:
            pass
        return self.make_LT(self.visit(e.a), self.visit(e.b))

    def scaled_less(self, gap: Sum) -> PrimExpr | None:
        """`gap < 0` divided by what the terms of great scale share, where the other terms stay below that."""
        args = sorted(_merged(gap.args), key=lambda a: -abs(a.scale))
        for n in range(1, len(args) + 1):
            g = math.gcd(*[a.scale for a in args[:n]])
            if g < 2:
                break
            rest = Sum(args[n:], gap.base % g, gap.dtype)
            if n == len(args) or self.less(self.plain(rest), g):
                left = self.plain(Sum(args[:n], 0, gap.dtype).divided(g))
                return self.make_LT(left, IntImm(gap.dtype, -(gap.base // g)))
            found = self.rest_divided(args, n, math.gcd(g, gap.base), gap)
            if found is not None:
                return found
        return None

    def rest_divided(self, args: list[Split], n: int, g: int, gap: Sum) -> PrimExpr | None:
        """terms*g + rest + base*g < 0 as terms + rest//g + base < 0, where rest//g is simpler than rest."""
        if g < 2 or any(a.upper is None for a in args[n:]):
            return None
        rest = Sum(args[n:], 0, gap.dtype)
        quotient = self.by_constant(rest, g, True, gap.dtype)
        small = self.plain(quotient)
        if _size(small) + 2 > _size(self.plain(rest)):
            return None
        total = self.to_sum(quotient, gap.dtype).plus(Sum(args[:n], 0, gap.dtype).divided(g), 1)
        return self.make_LT(self.plain(Sum(total.args, 0, gap.dtype)), IntImm(gap.dtype, -(gap.base // g) - total.base))

    def apply(self, table: Any, op: str, *sides: PrimExpr) -> PrimExpr | None:
        """As by the rules, which write `x - 2` as `x + -2`."""
        if op in ("LT", "EQ"):
            sides = tuple(_negative_constant(e) for e in sides)
        return super().apply(table, op, *sides)


def _negative_constant(e: PrimExpr) -> PrimExpr:
    if isinstance(e, ex.Sub) and isinstance(e.b, IntImm) and e.b.value > limits(e.dtype)[0]:
        return ex.Add(e.a, IntImm(e.dtype, -e.b.value))
    return e


def _size(e: Any) -> int:
    return 1 + sum(_size(c) for c in children(e))


def _factors(e: PrimExpr) -> tuple[int, list[PrimExpr]]:
    """(the constant factor, the other factors) of a product, as written."""
    if isinstance(e, IntImm):
        return e.value, []
    if isinstance(e, ex.Mul):
        k, left = _factors(e.a)
        c, right = _factors(e.b)
        return k * c, left + right
    return 1, [e]


def _product(factors: list[PrimExpr]) -> PrimExpr:
    out = factors[0]
    for f in factors[1:]:
        out = ex.Mul(out, f)
    return out


def _scaled_product(k: int, factors: list[PrimExpr], dtype: str) -> PrimExpr:
    if not factors:
        return IntImm(dtype, k)
    out = _product(factors)
    return out if k == 1 else ex.Mul(out, IntImm(dtype, k))


def _cancel(a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr] | None:
    """(a, b, common) without the factors that two products share; None where they share none."""
    k, top = _factors(a)
    c, bottom = _factors(b)
    keys = [expr_key(f) for f in top]
    rest: list[PrimExpr] = []
    common: list[PrimExpr] = []
    for f in bottom:
        key = expr_key(f)
        if key in keys:
            i = keys.index(key)
            del keys[i], top[i]
            common.append(f)
        else:
            rest.append(f)
    g = math.gcd(k, c) if c else 1
    if not common and (g <= 1 or (not rest and not bottom)):
        return None
    if c < 0:
        g = g if common or g > 1 else 1
    dtype = a.dtype
    return (
        _scaled_product(k // g, top, dtype), _scaled_product(c // g, rest, dtype), _scaled_product(g, common, dtype)
    )  # fmt: skip
