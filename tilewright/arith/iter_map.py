"""Are index expressions a rearrangement of loop iterators? Fusions and splits, found and inverted.

    io in [0, 4), ii in [0, 8):   io*8 + ii, (io*8 + ii)//16, ii % 4   ->   sums of *splits* of *marks*

A mark is an iterator: an input variable, or a dense sum of splits (`io*8 + ii` counts 0..31). A split is a digit of a mark:
`mark // lower_factor % extent`, times `scale`. An index is a sum of splits and a base. The map is bijective when the digits
used of each mark are all of its digits, once each.

Extents may be symbolic, as long as divisions come out even. A condition such as `io*8 + ii < 30` shortens a sum's mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import ExprLike, IntImm, PrimExpr, Var, convert
from tilewright.arith.poly import Poly, combine, constant_of, multiply
from tilewright.arith.simplify.divide import factor_out
from tilewright.ir.rewrite import free_vars

__all__ = [
    "IterMapResult", "IterMark", "IterSplitExpr", "IterSumExpr", "detect_iter_map", "inverse_affine_iter_map",
    "iter_map_simplify", "normalize_iter_map_to_expr",
]  # fmt: skip

_ONE: Poly = {(): 1}


class NotIterMap(Exception):
    """The expression is no sum of splits; the message says why."""


class IterMark:
    """An iterator of `extent` values: an input variable (shifted to start at 0), or a dense sum of splits."""

    def __init__(self, source: Var | IterSumExpr, extent: PrimExpr, size: Poly) -> None:
        self.source, self.extent, self.size = source, extent, size

    def __repr__(self) -> str:
        return f"IterMark({self.source}, extent={self.extent})"


class IterSplitExpr:
    """`source // lower_factor % extent * scale`"""

    def __init__(self, source: IterMark, lower: Poly, size: Poly, factor: Poly, s: Any) -> None:
        self.source = source
        self.lower, self.size, self.factor = lower, size, factor
        self._s = s

    @property
    def lower_factor(self) -> PrimExpr:
        """What the source is divided by."""
        return self._s.atoms.expr(self.lower, self.source.extent.dtype)

    @property
    def extent(self) -> PrimExpr:
        """How many values it takes."""
        return self._s.atoms.expr(self.size, self.source.extent.dtype)

    @property
    def scale(self) -> PrimExpr:
        """What it is multiplied by."""
        return self._s.atoms.expr(self.factor, self.source.extent.dtype)

    def scaled(self, k: Poly) -> IterSplitExpr:
        """The split with its scale multiplied."""
        return IterSplitExpr(self.source, self.lower, self.size, multiply(self.factor, k), self._s)

    def key(self) -> tuple[Any, ...]:
        """Equal for equal splits, scale apart."""
        return id(self.source), frozenset(self.lower.items()), frozenset(self.size.items())

    def __repr__(self) -> str:
        return f"IterSplit({self.source}, //{self.lower_factor}, %{self.extent}, *{self.scale})"


class IterSumExpr:
    """`sum(args) + base`"""

    def __init__(self, args: Sequence[IterSplitExpr], base: PrimExpr, offset: Poly) -> None:
        self.args, self.base, self.offset = list(args), base, offset

    def is_dense(self, extent: PrimExpr) -> bool:
        """Do windows of `extent` elements at these points leave no gap between them?"""
        size = extent.value if isinstance(extent, IntImm) else None
        if size is None:
            return len(self.args) == 1 and self.args[0].factor == _ONE
        reach = size
        for a in sorted(self.args, key=lambda a: constant_of(a.factor) or 0):
            factor, count = constant_of(a.factor), constant_of(a.size)
            if factor is None or count is None or not 0 < factor <= reach:
                return False
            reach += factor * (count - 1)
        return True

    def __repr__(self) -> str:
        return f"IterSum({self.args}, {self.base})"


class IterMapResult:
    """`indices`: one IterSumExpr each, or empty with `errors` that say why."""

    def __init__(self, indices: list[IterSumExpr], errors: list[str]) -> None:
        self.indices, self.errors = indices, errors
        self.padding_predicate: PrimExpr = IntImm("bool", 0)


class _Detector:
    def __init__(self, iters: Mapping[Var, Any], ana: Analyzer) -> None:
        self.ana = ana
        self.s = ana._s
        self.iters: dict[Var, tuple[IterMark, Poly]] = {}
        self.fused: dict[Any, IterMark] = {}
        self.limits: dict[Any, Poly] = {}
        for v, r in iters.items():
            low = self.s.poly(ex.cast(convert(r.min), v.dtype))
            size = self.s.poly(ex.cast(convert(r.extent), v.dtype))
            self.iters[v] = (IterMark(v, self.s.atoms.expr(size, v.dtype), size), low)

    # ---- expressions to sums of splits ----

    def index(self, e: Any) -> IterSumExpr:
        """An index expression as a sum of splits. It is read as it is written, for its normal form may hide the iterators."""
        if not any(v in self.iters for v in free_vars(e)):
            return self.make((), self.s.poly(e), e.dtype)
        if isinstance(e, Var):
            return self.variable(e, e.dtype)
        if isinstance(e, ex.Cast) and isinstance(e.value, Var):
            return self.variable(e.value, e.dtype)
        if isinstance(e, (ex.Add, ex.Sub)):
            a, b = self.index(e.a), self.index(e.b)
            k = _ONE if isinstance(e, ex.Add) else {(): -1}
            return self.make([*a.args, *(x.scaled(k) for x in b.args)], combine(a.offset, b.offset, k[()]), e.dtype)
        if isinstance(e, ex.Mul):
            a, b = self.index(e.a), self.index(e.b)
            if a.args and b.args:
                raise NotIterMap(f"{e} multiplies iterators")
            x, k = (a, b.offset) if a.args else (b, a.offset)
            return self.make([y.scaled(k) for y in x.args] if k else [], multiply(x.offset, k), e.dtype)
        if isinstance(e, (ex.FloorDiv, ex.FloorMod)):
            d = self.index(e.b)
            if d.args:
                raise NotIterMap(f"{e} divides by an iterator")
            return self.divide(self.index(e.a), d.offset, isinstance(e, ex.FloorDiv), e)
        raise NotIterMap(f"{e} is no sum, quotient or remainder of iterators")

    def variable(self, v: Var, dtype: str) -> IterSumExpr:
        mark, low = self.iters[v]
        args = [] if mark.size == _ONE else [IterSplitExpr(mark, _ONE, mark.size, _ONE, self.s)]
        return self.make(args, low, dtype)

    def make(self, args: Iterable[IterSplitExpr], offset: Poly, dtype: str) -> IterSumExpr:
        merged: dict[Any, IterSplitExpr] = {}
        for a in args:
            key = a.key()
            old = merged.get(key)
            if old is None:
                merged[key] = a
                continue
            factor = combine(old.factor, a.factor)
            if factor:
                merged[key] = IterSplitExpr(a.source, a.lower, a.size, factor, self.s)
            else:
                del merged[key]
        return IterSumExpr(list(merged.values()), self.s.atoms.expr(offset, dtype), offset)

    # ---- splitting and fusing ----

    def quotient(self, a: Poly, b: Poly) -> Poly | None:
        """a / b where it comes out even."""
        x, y = constant_of(a), constant_of(b)
        if x is not None and y is not None:
            return ({(): x // y} if x else {}) if y and x % y == 0 else None
        if a == b:
            return _ONE
        q, r = factor_out(a, b)
        return q if q and not r else None

    def fuse(self, x: IterSumExpr, what: object, dtype: str) -> IterSplitExpr | None:
        """The sum as one split of one mark; None for a sum without iterators."""
        if not x.args:
            return None
        order = self.chain(x.args, what)
        scale = order[-1].factor
        if len(order) == 1:
            only = order[0]
            limit = self.limits.get(self.key(order, scale))
            if limit is None:
                return only
        key = self.key(order, scale)
        mark = self.fused.get(key)
        if mark is None:
            size = _ONE
            for a in order:
                size = multiply(size, a.size)
            limit = self.limits.get(key)
            if limit is not None:
                size = limit
            args = [
                IterSplitExpr(a.source, a.lower, a.size, self.quotient(a.factor, scale) or _ONE, self.s) for a in order
            ]
            source = IterSumExpr(args, IntImm(dtype, 0), {})
            mark = self.fused[key] = IterMark(source, self.s.atoms.expr(size, dtype), size)
        return IterSplitExpr(mark, _ONE, mark.size, scale, self.s)

    def key(self, order: Sequence[IterSplitExpr], scale: Poly) -> Any:
        return tuple((a.key(), frozenset((self.quotient(a.factor, scale) or {}).items())) for a in order)

    def chain(self, args: Sequence[IterSplitExpr], what: object) -> list[IterSplitExpr]:
        """The splits of a dense sum, outermost first: each scale is the scale times the extent of the next."""
        for first in sorted(args, key=lambda a: abs(constant_of(a.factor) or 1 << 60)):
            left = [a for a in args if a is not first]
            order = [first]
            reach = multiply(first.factor, first.size)
            while left:
                found = next((a for a in left if a.factor == reach), None)
                if found is None:
                    break
                left.remove(found)
                order.append(found)
                reach = multiply(reach, found.size)
            if not left and (constant_of(first.factor) or 1) > 0:
                return order[::-1]
        raise NotIterMap(f"{what} is no dense sum of iterators: strides and extents do not fit together")

    def divide(self, x: IterSumExpr, d: Poly, div: bool, e: PrimExpr) -> IterSumExpr:
        """x // d or x % d"""
        offset = self.quotient(x.offset, d)
        if x.offset and offset is None:
            raise NotIterMap(f"{e}: the offset does not divide evenly")
        rest = (offset or {}) if div else {}
        if not x.args:
            return self.make((), rest, e.dtype)
        order = self.chain(x.args, e)
        if self.key(order, order[-1].factor) not in self.limits:
            digits = self.by_digits(order, d, div)
            if digits is not None:
                return self.make(digits, rest, e.dtype)
        f = self.fuse(x, e, e.dtype)
        assert f is not None
        digits = self.by_digits([f], d, div)
        if digits is None:
            raise NotIterMap(f"{e}: the divisor does not go evenly into {f.extent} steps of {f.scale}")
        return self.make(digits, rest, e.dtype)

    def by_digits(self, order: Sequence[IterSplitExpr], d: Poly, div: bool) -> list[IterSplitExpr] | None:
        """The splits of a dense sum (outermost first) above or below d; None where d falls inside a split unevenly."""
        high: list[IterSplitExpr] = []
        for i, a in enumerate(order):
            k = self.quotient(a.factor, d)
            if k is not None:
                high.append(IterSplitExpr(a.source, a.lower, a.size, k, self.s))
                continue
            reach = multiply(a.factor, a.size)
            if reach == d or (i == 0 and self.s.facts.not_negative(combine(d, reach, -1))):
                return high if div else list(order[i:])
            c = self.quotient(d, a.factor)
            count = self.quotient(a.size, c) if c is not None else None
            if c is None or count is None:
                return None
            if div:
                return [*high, IterSplitExpr(a.source, multiply(a.lower, c), count, _ONE, self.s)]
            return [IterSplitExpr(a.source, a.lower, c, a.factor, self.s), *order[i + 1 :]]
        return high if div else []

    # ---- conditions ----

    def limit(self, condition: PrimExpr) -> None:
        """Note what `sum < bound` says of a dense sum of iterators; other conditions say nothing."""
        if isinstance(condition, ex.And):
            self.limit(condition.a)
            self.limit(condition.b)
            return
        if not isinstance(condition, (ex.LT, ex.LE, ex.GT, ex.GE)):
            return
        a, b = (condition.a, condition.b) if isinstance(condition, (ex.LT, ex.LE)) else (condition.b, condition.a)
        try:
            x, bound = self.index(a), self.index(b)
            if bound.args or not x.args:
                return
            order = self.chain(x.args, a)
        except NotIterMap:
            return
        size = combine(bound.offset, x.offset, -1)
        if isinstance(condition, (ex.LE, ex.GE)):
            size = combine(size, _ONE)
        scale = order[-1].factor
        if scale == _ONE:
            self.limits[self.key(order, scale)] = size

    # ---- is every digit used once? ----

    def check(self, indices: Sequence[IterSumExpr], dtype: str, bijective: bool) -> None:
        pool: list[IterSplitExpr] = []
        for x in indices:
            f = self.fuse(x, normalize_iter_map_to_expr(x), dtype)
            if f is not None:
                pool.append(f)
        done: set[int] = set()
        while True:
            mark = next(
                (a.source for a in pool if id(a.source) not in done and isinstance(a.source.source, IterSumExpr)), None
            )
            if mark is None:
                break
            # a sum that another sum's digits contain comes later
            inner = {id(b.source) for a in pool if a.source is not mark and isinstance(a.source.source, IterSumExpr)
                     and id(a.source) not in done for b in a.source.source.args}  # fmt: skip
            if id(mark) in inner:
                mark = next(a.source for a in pool if id(a.source) not in done
                            and isinstance(a.source.source, IterSumExpr) and id(a.source) not in inner)  # fmt: skip
            self.digits([a for a in pool if a.source is mark], mark, bijective)
            done.add(id(mark))
            assert isinstance(mark.source, IterSumExpr)
            pool += mark.source.args
        for v, (mark, _) in self.iters.items():
            used = [a for a in pool if a.source is mark]
            if used:
                self.digits(used, mark, bijective)
            elif bijective and mark.size != _ONE:
                raise NotIterMap(f"iterator {v.name} does not occur")

    def digits(self, used: list[IterSplitExpr], mark: IterMark, bijective: bool) -> None:
        """The splits used of a mark are digits of it, each at most once; all of them for a bijection."""
        left = list(used)
        lower = _ONE
        while left:
            found = next((a for a in left if a.lower == lower), None)
            if found is None and not bijective:
                found = min(left, key=lambda a: constant_of(a.lower) or 0)
                if self.quotient(found.lower, lower) is None:
                    found = None
            if found is None:
                raise NotIterMap(f"digits of {mark.source} overlap or are missing")
            left.remove(found)
            lower = multiply(found.lower, found.size)
        if bijective and lower != mark.size:
            raise NotIterMap(f"not all of {mark.source} is used")


def detect_iter_map(
    indices: Sequence[ExprLike],
    input_iters: Mapping[Var, Any],
    predicate: ExprLike = True,
    check_level: str | int | None = None,
    require_bijective: bool = False,
    analyzer: Analyzer | None = None,
) -> IterMapResult:
    """Each index as a sum of splits of the input iterators, if all of them together are a map that hits no value twice.

    `input_iters` gives each variable its Range. `require_bijective` (or check_level "bijective") demands that every digit
    of every iterator is used; check_level "nocheck" only that each index is a sum of splits. The result's `indices` are
    empty where that fails, and `errors` say why.
    """
    ana = analyzer or Analyzer()
    saved = ana._s.enter(IntImm("bool", 1))
    try:
        for v, r in input_iters.items():
            if not (isinstance(r.extent, IntImm) and r.extent.value == 1):
                ana.bind(v, r)
        exprs = [convert(i) for i in indices]
        detector = _Detector(input_iters, ana)
        detector.limit(convert(predicate))
        ana._s.assume(convert(predicate))
        found = [detector.index(e) for e in exprs]
        level = {0: "nocheck", 1: "surjective", 3: "bijective"}.get(check_level, check_level)  # pyright: ignore
        if level != "nocheck":
            detector.check(found, exprs[0].dtype if exprs else "int32", require_bijective or level == "bijective")
        return IterMapResult(found, [])
    except NotIterMap as why:
        return IterMapResult([], [str(why)])
    finally:
        ana._s.leave(saved)


def normalize_iter_map_to_expr(e: IterSumExpr | IterSplitExpr) -> PrimExpr:
    """The expression that a sum of splits (or a split) stands for."""
    if isinstance(e, IterSumExpr):
        out = e.base
        for a in e.args:
            out = normalize_iter_map_to_expr(a) + out
        return out
    mark = e.source
    value = mark.source if isinstance(mark.source, Var) else normalize_iter_map_to_expr(mark.source)
    value = ex.floordiv(value, e.lower_factor)
    if multiply(e.lower, e.size) != mark.size:
        value = ex.floormod(value, e.extent)
    return ex.mul(value, e.scale)


def iter_map_simplify(
    indices: Sequence[ExprLike],
    input_iters: Mapping[Var, Any],
    predicate: ExprLike = True,
    analyzer: Analyzer | None = None,
) -> list[PrimExpr]:
    """The indices, simplified while the iterators run over their ranges and the predicate holds."""
    ana = analyzer or Analyzer()
    saved = ana._s.enter(IntImm("bool", 1))
    try:
        for v, r in input_iters.items():
            ana.bind(v, r)
        ana._s.assume(convert(predicate))
        return [ana.simplify(i) for i in indices]
    finally:
        ana._s.leave(saved)


def inverse_affine_iter_map(iter_map: Sequence[IterSumExpr], outputs: Sequence[ExprLike]) -> dict[Var, PrimExpr]:
    """For a bijective map, each input variable (shifted to start at 0) in terms of the outputs."""
    marks: dict[int, IterMark] = {}
    values: dict[int, PrimExpr] = {}

    def note(split: IterSplitExpr, value: PrimExpr) -> None:
        mark = split.source
        marks[id(mark)] = mark
        term = ex.mul(value, split.lower_factor)
        values[id(mark)] = values[id(mark)] + term if id(mark) in values else term

    def take_apart(args: Sequence[IterSplitExpr], value: PrimExpr) -> None:
        for i, a in enumerate(_outermost_first(args)):
            part = ex.floordiv(value, a.scale)
            note(a, part if i == 0 else ex.floormod(part, a.extent))

    for x, out in zip(iter_map, outputs, strict=True):
        take_apart(x.args, convert(out) - x.base)
    done: set[int] = set()
    for _ in range(64):
        pending = [m for m in marks.values() if id(m) not in done and isinstance(m.source, IterSumExpr)]
        if not pending:
            break
        inner = {id(a.source) for m in pending if isinstance(m.source, IterSumExpr) for a in m.source.args}
        mark = next(m for m in pending if id(m) not in inner)
        done.add(id(mark))
        assert isinstance(mark.source, IterSumExpr)
        take_apart(mark.source.args, values[id(mark)])
    return {m.source: values[id(m)] for m in marks.values() if isinstance(m.source, Var)}


def _outermost_first(args: Sequence[IterSplitExpr]) -> list[IterSplitExpr]:
    """Splits of a dense sum by falling scale."""
    if all(constant_of(a.factor) is not None for a in args):
        return sorted(args, key=lambda a: -(constant_of(a.factor) or 0))
    left, order = list(args), []
    while left:
        inner = next(a for a in left if not any(b.factor == multiply(a.factor, a.size) for b in left if b is not a))
        order.append(inner)
        left.remove(inner)
    return order
