"""Index expressions as sums of digits of iterators: the work behind `detect_iter_map`.

`Rewriter.rewrite` reads an expression as it is written: sums and multiples of iterators stay sums of splits; a quotient or
remainder of a sum first fuses the sum to one dense iterator (`fuse`), and is then a digit of it. Where the divisor does not
divide the extent, the iterator is padded (`padding.py`): one pass finds the common factor of all divisors of each mark, a
second uses it. A condition `lower <= sum < upper` shortens the fused iterator that it speaks of (`limit`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var, convert
from tilewright.arith.iter_expr import (
    IterMapExpr,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    is_one,
    is_zero,
    normalize_iter_map_to_expr,
)
from tilewright.arith.iter_padding import Padding
from tilewright.arith.linear import expr_key
from tilewright.ir.node import Node, children

__all__ = ["BIJECTIVE", "NOCHECK", "SURJECTIVE", "Rewriter", "split_key"]

BIJECTIVE, SURJECTIVE, NOCHECK = 0, 1, 2


class Fused(NamedTuple):
    """The mark made of a dense sum, and the offset that a lower limit put on it: sum = mark + offset."""

    mark: IterMark
    offset: PrimExpr


def split_key(s: IterSplitExpr) -> tuple[Any, ...]:
    """Equal for equal digits, whatever their scale."""
    return s.source, _key(s.lower_factor), _key(s.extent)


def _key(e: PrimExpr) -> Any:
    return e.value if isinstance(e, IntImm) else expr_key(e)


def to_sum(e: PrimExpr) -> IterSumExpr:
    """Any result of the rewriter as a sum."""
    if isinstance(e, IterSumExpr):
        return e
    if isinstance(e, IterSplitExpr):
        return IterSumExpr((e,), IntImm(e.dtype, 0))
    return IterSumExpr((), e)


def scaled(s: IterSplitExpr, scale: PrimExpr) -> IterSplitExpr:
    """The split with another scale."""
    return s if scale is s.scale else IterSplitExpr(s.source, s.lower_factor, s.extent, scale)


class Rewriter:
    """Rewrites expressions of `iters`. `errors` says what was no sum of splits."""

    def __init__(self, ana: Analyzer, iters: Mapping[Var, Any], level: int, simplify_trivial: bool) -> None:
        self.ana, self.level = ana, level
        self.errors: list[str] = []
        self.iters: dict[Var, PrimExpr] = {}
        self.marks: list[IterMark] = []
        self.fused: dict[Any, Fused] = {}
        self.flat_of: dict[IterMark, tuple[Any, tuple[IterSplitExpr, ...]]] = {}
        self.limited: list[tuple[IterSplitExpr, ...]] = []
        self.padding = Padding(self)
        for v, r in iters.items():
            low, extent = ex.cast(convert(r.min), v.dtype), ex.cast(convert(r.extent), v.dtype)
            if simplify_trivial and is_one(extent):
                self.iters[v] = IterSumExpr((), low)
                continue
            mark = IterMark(v if is_zero(low) else ex.sub(v, low), extent)
            self.marks.append(mark)
            split = IterSplitExpr(mark)
            self.iters[v] = split if is_zero(low) else IterSumExpr((split,), low)

    # ---- arithmetic of extents and scales ----------------------------------------------------------------------------

    def equal(self, a: PrimExpr, b: PrimExpr) -> bool:
        """Are two extents provably equal?"""
        if a is b:
            return True
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value == b.value
        return self.ana.can_prove_equal(a, b)

    def divisible(self, a: PrimExpr, b: PrimExpr) -> bool:
        """Is `a` provably a multiple of `b`?"""
        if isinstance(a, IntImm):
            if a.value == 0:
                return True
            if isinstance(b, IntImm):
                return b.value != 0 and a.value % b.value == 0
        if is_one(b):
            return True
        if self.equal(a, b):
            return True
        return self.ana.can_prove(ex.cmp(ex.EQ, ex.floormod(a, b), IntImm(a.dtype, 0)))

    def simple(self, e: PrimExpr) -> PrimExpr:
        """The expression simplified; constants and variables as they are."""
        return e if isinstance(e, (IntImm, Var)) else self.ana.simplify(e)

    def times(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a * b"""
        return self.simple(ex.mul(a, b))

    def over(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a // b, known to come out even"""
        return IntImm(a.dtype, 1) if a is b else self.simple(ex.floordiv(a, b))

    def plus(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a + b"""
        return self.simple(ex.add(a, b))

    def expr(self, e: Any) -> PrimExpr:
        """The plain expression of a sum or a split."""
        return normalize_iter_map_to_expr(e, self.equal)

    # ---- expressions to sums of splits -------------------------------------------------------------------------------

    def rewrite(self, e: PrimExpr) -> IterSumExpr:
        """An index as one fused split and a base (not simplified), where it can be fused."""
        s = to_sum(self.visit(e))
        if not s.args:
            return s
        if len(s.args) > 1:
            combined = self.combined(s)
            if len(combined.args) == 1 and not self.limited:
                return combined
            s = combined
        out = self.fuse(s)
        if out is None:
            self.errors.append(f"the iterators of {self.expr(s)} do not fuse to one: strides and extents do not fit")
            return s
        return out

    def mentions(self, e: Node) -> bool:
        """Does an iterator occur in it?"""
        stack: list[Node] = [e]
        while stack:
            x = stack.pop()
            if isinstance(x, Var):
                if x in self.iters:
                    return True
            else:
                stack.extend(children(x))
        return False

    def visit(self, e: Any) -> PrimExpr:
        """An expression as a split, a sum, or (without iterators) itself."""
        kind = type(e)
        if kind is IntImm:
            return e
        if isinstance(e, Var):
            return self.iters.get(e, e)
        if kind is ex.Add or kind is ex.Sub:
            return self.visit_sum(e)
        if kind is ex.Mul:
            return self.visit_product(e)
        if kind is ex.FloorDiv or kind is ex.FloorMod:
            return self.visit_division(e)
        if kind is ex.Cast and isinstance(e.value, Var) and e.value in self.iters:
            self.errors.append(f"{e} converts an iterator")
            return e
        if self.mentions(e):
            self.errors.append(f"{e} is no sum, multiple, quotient or remainder of iterators")
        return e

    def visit_sum(self, e: Any) -> PrimExpr:
        a, b = self.visit(e.a), self.visit(e.b)
        minus = type(e) is ex.Sub
        if not isinstance(a, IterMapExpr) and not isinstance(b, IterMapExpr):
            if a is e.a and b is e.b:
                return e
            return ex.sub(a, b) if minus else ex.add(a, b)
        x, y = to_sum(a), to_sum(b)
        args = list(x.args)
        for s in y.args:
            self.add_into(args, s, minus)
        return IterSumExpr(args, ex.sub(x.base, y.base) if minus else ex.add(x.base, y.base))

    def add_into(self, args: list[IterSplitExpr], s: IterSplitExpr, minus: bool) -> None:
        """Add a split to a sum's; the same digit twice becomes one with the sum of the scales."""
        key = split_key(s)
        for i, a in enumerate(args):
            if a.source is s.source and split_key(a) == key:
                scale = self.simple(ex.sub(a.scale, s.scale) if minus else ex.add(a.scale, s.scale))
                if is_zero(scale):
                    del args[i]
                else:
                    args[i] = scaled(a, scale)
                return
        args.append(scaled(s, ex.sub(IntImm(s.dtype, 0), s.scale)) if minus else s)

    def visit_product(self, e: Any) -> PrimExpr:
        a, b = self.visit(e.a), self.visit(e.b)
        if not isinstance(a, IterMapExpr) and not isinstance(b, IterMapExpr):
            return e if a is e.a and b is e.b else ex.mul(a, b)
        x, y = to_sum(a), to_sum(b)
        if x.args and y.args:
            self.errors.append(f"{e} multiplies iterators")
            return e
        if not x.args:
            x, y = y, x
        k = y.base
        if is_zero(k):
            return k
        args = [scaled(s, self.times(s.scale, k)) for s in x.args]
        return IterSumExpr(args, ex.mul(x.base, k)) if len(args) != 1 or not is_zero(x.base) else args[0]

    def visit_division(self, e: Any) -> PrimExpr:
        a, b = self.visit(e.a), self.visit(e.b)
        make = ex.floordiv if type(e) is ex.FloorDiv else ex.floormod
        if isinstance(b, IterSumExpr) and not b.args:
            b = b.base
        if isinstance(a, IterSumExpr) and not a.args and not isinstance(b, IterMapExpr):
            return e if type(a.base) is not IntImm else make(a.base, b)
        if not isinstance(a, IterMapExpr) and not isinstance(b, IterMapExpr):
            return e if a is e.a and b is e.b else make(a, b)
        if isinstance(b, IterMapExpr):
            self.errors.append(f"{e} divides by an iterator")
            return e
        s = to_sum(a)
        if len(s.args) > 1:
            found = self.fuse(self.combined(s))
            if found is None:
                self.errors.append(f"{e}: the dividend is no dense sum of iterators")
                return e
            s = found
        b = self.simple(b)
        return self.quotient(s, b, e) if type(e) is ex.FloorDiv else self.remainder(s, b, e)

    def unscaled(self, s: IterSumExpr, d: PrimExpr, e: PrimExpr) -> tuple[PrimExpr, PrimExpr] | None:
        """(base, divisor) divided by the scale of the split, where both come out even."""
        scale = s.args[0].scale
        if is_one(scale):
            return s.base, d
        if self.divisible(d, scale) and self.divisible(s.base, scale):
            return self.over(s.base, scale), self.over(d, scale)
        self.errors.append(f"{e}: the dividend counts in steps of {scale}, which the divisor is no multiple of")
        return None

    def quotient(self, s: IterSumExpr, d: PrimExpr, e: PrimExpr) -> PrimExpr:
        """(split + base) // d"""
        x = s.args[0]
        if is_one(d):
            return s
        if not is_one(x.scale) and self.divisible(x.scale, d):
            if self.divisible(s.base, d):
                y = scaled(x, self.over(x.scale, d))
                return y if is_zero(s.base) else IterSumExpr((y,), self.over(s.base, d))
        parts = self.unscaled(s, d, e)
        if parts is None:
            return e
        base, d = parts
        padded = self.padding.pad(x, base, d, True)
        if padded is None:
            self.errors.append(f"{e}: the divisor does not go evenly into {x.extent} values, starting at {base}")
            return e
        y, left = padded
        extent = self.simple(ex.floordiv(y.extent, d) if self.divisible(y.extent, d) else ex.ceildiv(y.extent, d))
        rest = self.simple(ex.floordiv(ex.sub(base, left), d))
        if is_one(extent):
            return IterSumExpr((), rest)
        out = IterSplitExpr(y.source, self.times(y.lower_factor, d), extent, IntImm(x.dtype, 1))
        return out if is_zero(rest) else IterSumExpr((out,), rest)

    def remainder(self, s: IterSumExpr, d: PrimExpr, e: PrimExpr) -> PrimExpr:
        """(split + base) % d"""
        x = s.args[0]
        if is_one(d):
            return IntImm(e.dtype, 0)
        if not is_one(x.scale) and self.divisible(x.scale, d):
            return self.simple(ex.floormod(s.base, d))
        parts = self.unscaled(s, d, e)
        if parts is None:
            return e
        base, d = parts
        padded = self.padding.pad(x, base, d, False)
        if padded is None:
            self.errors.append(f"{e}: the divisor does not go evenly into {x.extent} values, starting at {base}")
            return e
        y, _ = padded
        return IterSplitExpr(y.source, y.lower_factor, d, x.scale)

    # ---- fusing ------------------------------------------------------------------------------------------------------

    def combined(self, s: IterSumExpr) -> IterSumExpr:
        """Neighbouring digits of one mark with fitting scales as one digit: x//4*4 + x%4 is x."""
        args = list(s.args)
        if len({a.source for a in args}) == len(args):
            return s
        i = 0
        while i < len(args):
            low = args[i]
            for j, high in enumerate(args):
                if (
                    j != i
                    and high.source is low.source
                    and self.equal(self.times(low.lower_factor, low.extent), high.lower_factor)
                    and self.equal(self.times(low.scale, low.extent), high.scale)
                ):
                    both = IterSplitExpr(low.source, low.lower_factor, self.times(low.extent, high.extent), low.scale)
                    args[min(i, j)] = both
                    del args[max(i, j)]
                    i = -1
                    break
            i += 1
        return s if len(args) == len(s.args) else IterSumExpr(args, s.base)

    def base_index(self, args: Sequence[IterSplitExpr]) -> int:
        """Where the innermost iterator stands: least constant scale (a unit one first, else the last), or fewest factors."""
        best, least = -1, 0
        for i in range(len(args) - 1, -1, -1):
            scale = args[i].scale
            if isinstance(scale, IntImm):
                if (
                    best < 0
                    or scale.value < least
                    or (scale.value == least and is_one(args[i].extent) and not is_one(args[best].extent))
                ):
                    best, least = i, scale.value
        if best >= 0:
            return best
        counts = [_factors(a.scale) for a in args]
        fewest = min(counts)
        return max(i for i, c in enumerate(counts) if c == fewest)

    def exact(self, args: Sequence[IterSplitExpr], seen: list[bool], scale: PrimExpr) -> int:
        """The last iterator left of that scale; of several, one of extent 1."""
        found = -1
        for i in range(len(args) - 1, -1, -1):
            if not seen[i] and self.equal(args[i].scale, scale):
                if is_one(args[i].extent):
                    return i
                if found < 0:
                    found = i
        return found

    def overlapping(self, args: Sequence[IterSplitExpr], seen: list[bool], scale: PrimExpr, base: PrimExpr) -> int:
        """The iterator left with the greatest scale below `scale`, where indices may be hit more than once."""
        if self.level == BIJECTIVE or not is_one(base) or not isinstance(scale, IntImm):
            return -1
        found, most = -1, 0
        for i in range(len(args) - 1, -1, -1):
            k = args[i].scale
            if not seen[i] and isinstance(k, IntImm) and most < k.value <= scale.value:
                found, most = i, k.value
        return found

    def fuse(self, s: IterSumExpr) -> IterSumExpr | None:
        """The sum as one split of one mark, and a base; None where strides and extents do not fit together."""
        args = s.args
        seen = [False] * len(args)
        flat: list[IterSplitExpr] = []
        grouped: list[IterSplitExpr] = []
        at = self.base_index(args)
        base_scale = scale = args[at].scale
        zero = IntImm(scale.dtype, 0)
        tail: PrimExpr = zero
        extra: PrimExpr = zero
        first = True
        while not all(seen):
            if not first:
                at = self.exact(args, seen, scale)
                if at < 0:
                    at = self.overlapping(args, seen, scale, base_scale)
                    if at < 0:
                        return None
                    tail = ex.add(tail, ex.sub(scale, args[at].scale))
                    scale = args[at].scale
            first = False
            limit = self.limit_at(args[at])
            if limit is None:
                seen[at] = True
                part = scaled(args[at], self.over(args[at].scale, base_scale))
                flat.append(part)
                grouped.append(part)
                scale = self.times(scale, part.extent)
                continue
            for x in reversed(limit):
                k = self.same_digit(args, seen, x, scale)
                if k < 0:
                    return None
                seen[k] = True
                flat.append(scaled(args[k], self.over(args[k].scale, base_scale)))
            found = self.fused[self.flat_key(limit)]
            grouped.append(IterSplitExpr(found.mark, scale=self.over(scale, base_scale)))
            extra = ex.add(extra, ex.mul(found.offset, scale))
            scale = self.times(scale, found.mark.extent)
        return self.fused_mark(
            s, flat[::-1], grouped[::-1], base_scale, ex.add(self.over(scale, base_scale), tail), extra
        )

    def fused_mark(
        self,
        s: IterSumExpr,
        flat: list[IterSplitExpr],
        grouped: list[IterSplitExpr],
        base_scale: PrimExpr,
        extent: PrimExpr,
        extra: PrimExpr,
    ) -> IterSumExpr | None:
        """The split of the mark that the sum was given before, or of a new one."""
        base = ex.add(s.base, extra)
        key = self.flat_key(flat)
        found = self.fused.get(key)
        if found is not None:
            if not self.equal(extra, ex.mul(found.offset, base_scale)):
                return None
            return IterSumExpr((IterSplitExpr(found.mark, scale=base_scale),), base)
        zero = IntImm(base_scale.dtype, 0)
        mark = IterMark(IterSumExpr(grouped, zero), self.simple(extent))
        self.fused[key] = Fused(mark, self.over(extra, base_scale))
        self.flat_of[mark] = key, tuple(flat)
        return IterSumExpr((IterSplitExpr(mark, scale=base_scale),), base)

    def limit_at(self, innermost: IterSplitExpr) -> tuple[IterSplitExpr, ...] | None:
        """The longest limited sum whose innermost digit this is."""
        best: tuple[IterSplitExpr, ...] | None = None
        for limit in self.limited:
            if self.digit_equal(innermost, limit[-1]) and (best is None or len(best) < len(limit)):
                best = limit
        return best

    def digit_equal(self, a: IterSplitExpr, b: IterSplitExpr) -> bool:
        """Are two the same digit, scales apart?"""
        return a.source is b.source and split_key(a) == split_key(b)

    def same_digit(self, args: Sequence[IterSplitExpr], seen: list[bool], x: IterSplitExpr, scale: PrimExpr) -> int:
        for k, a in enumerate(args):
            if not seen[k] and self.digit_equal(a, x) and self.equal(ex.mul(x.scale, scale), a.scale):
                return k
        return -1

    def flat_key(self, flat: Sequence[IterSplitExpr]) -> tuple[Any, ...]:
        """What tells dense sums apart: their digits and relative scales."""
        return tuple((split_key(a), _key(a.scale)) for a in flat)

    # ---- limits ------------------------------------------------------------------------------------------------------

    def limit(self, e: PrimExpr, low: PrimExpr | None, high: PrimExpr | None) -> bool:
        """Note `low <= e < high` of a sum of iterators. False (and an error) where it is no dense sum."""
        s = to_sum(self.visit(e))
        if not s.args:
            return True
        out = self.fuse(self.combined(s))
        if out is None or not is_one(out.args[0].scale):
            self.errors.append(f"the condition on {e} speaks of no dense sum of iterators")
            return False
        old = out.args[0].source
        key, flat = self.flat_of[old]
        offset = self.fused[key].offset
        first, last = offset, ex.add(offset, old.extent)
        if low is not None:
            first = self.simple(ex.maximum(ex.sub(low, s.base), first))
        if high is not None:
            last = self.simple(ex.minimum(ex.sub(high, s.base), last))
        source = old.source
        if not self.equal(first, offset):
            assert isinstance(source, IterSumExpr)
            source = IterSumExpr(source.args, self.simple(ex.sub(source.base, ex.sub(first, offset))))
        mark = IterMark(source, self.simple(ex.sub(last, first)))
        self.fused[key] = Fused(mark, first)
        self.flat_of[mark] = key, flat
        self.limited.append(flat)
        return True

    def limits_nest(self) -> bool:
        """Is each limited sum part of, or apart from, each other one?"""
        sets = [{split_key(a) for a in flat} for flat in self.limited]
        return all(not a & b or a <= b or b <= a for i, a in enumerate(sets) for b in sets[i + 1 :])


def _factors(e: PrimExpr) -> int:
    return _factors(e.a) + _factors(e.b) if isinstance(e, ex.Mul) else 1
