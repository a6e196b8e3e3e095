"""Sets of integers with symbolic ends, what sets expressions lie in, and the regions that accesses cover.

    Analyzer().int_set(i*4 + j, {j: IntervalSet(0, 3)})     [i*4, i*4 + 3]

An end that does not exist is the variable `neg_inf()` or `pos_inf()`. The empty set is [pos_inf, neg_inf].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import ExprLike, IntImm, PrimExpr, Var, convert
from tilewright.arith.int_eval import eval_range
from tilewright.ir import dtype as dt
from tilewright.ir.node import Node, children, node
from tilewright.ir.op import Op
from tilewright.support.diagnostics import CompileError, Diagnostic

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer

__all__ = [
    "IntSet", "IntervalSet", "PresburgerSet", "estimate_region_lower_bound", "estimate_region_strict_bound",
    "estimate_region_upper_bound", "eval_range", "eval_set", "intersect", "neg_inf", "pos_inf", "union", "union_lower_bound",
]  # fmt: skip

_POS, _NEG = Var("pos_inf", "handle"), Var("neg_inf", "handle")


def pos_inf() -> Var:
    """The end of a set without an upper end."""
    return _POS


def neg_inf() -> Var:
    """The end of a set without a lower end."""
    return _NEG


@node
class IntSet(Node):
    """A set of integers."""

    def is_nothing(self) -> bool:
        """Is it empty?"""
        return False

    def is_everything(self) -> bool:
        """Is nothing known of it?"""
        return False

    def is_single_point(self) -> bool:
        """Is it one value?"""
        return False

    @staticmethod
    def vector(vec: PrimExpr) -> IntervalSet:
        """The set that covers all lanes of a vector."""
        from tilewright.arith.analyzer import Analyzer

        return _Evaluator(Analyzer(), {})(vec)

    @staticmethod
    def single_point(point: ExprLike) -> IntervalSet:
        """The set of one value."""
        e = convert(point)
        return IntervalSet(e, e)

    @staticmethod
    def interval(min_value: ExprLike, max_value: ExprLike) -> IntervalSet:
        """The integers from `min_value` to `max_value`, both included."""
        return IntervalSet(min_value, max_value)

    @staticmethod
    def everything() -> IntervalSet:
        """All integers."""
        return EVERYTHING

    @staticmethod
    def nothing() -> IntervalSet:
        """No integer."""
        return NOTHING


@node
class IntervalSet(IntSet):
    """The integers from `min_value` to `max_value`, both included; `neg_inf()`, `pos_inf()`: no end on that side."""

    min_value: PrimExpr
    max_value: PrimExpr

    def __init__(self, min_value: ExprLike, max_value: ExprLike, *, span: Any = None) -> None:
        this: Any = self
        this.min_value, this.max_value, this.span = convert(min_value), convert(max_value), span

    def is_everything(self) -> bool:
        """Is nothing known?"""
        return self.min_value is _NEG and self.max_value is _POS

    def is_nothing(self) -> bool:
        """Is it empty?"""
        if self.min_value is _POS or self.max_value is _NEG:
            return True
        low, high = self.min_value, self.max_value
        return isinstance(low, IntImm) and isinstance(high, IntImm) and low.value > high.value

    def is_single_point(self) -> bool:
        """Is it one value, the same at both ends?"""
        low, high = self.min_value, self.max_value
        if low is _NEG or high is _POS:
            return False
        return low is high or (isinstance(low, IntImm) and isinstance(high, IntImm) and low.value == high.value)

    def __iter__(self) -> Any:
        return iter((self.min_value, self.max_value))


@node
class PresburgerSet(IntSet):
    """Sets of Presburger arithmetic, which need a library of their own and are not supported."""

    def __init__(self, *_: Any) -> None:
        raise CompileError(
            Diagnostic(
                "TW0953",
                "PresburgerSet is not supported: sets are intervals here",
                hint="use IntervalSet, or solve_linear_inequalities for systems of conditions",
            )
        )


EVERYTHING = IntervalSet(_NEG, _POS)
NOTHING = IntervalSet(_POS, _NEG)


def _finite(e: PrimExpr) -> bool:
    return e is not _POS and e is not _NEG


def _both(s: IntervalSet) -> bool:
    return _finite(s.min_value) and _finite(s.max_value)


class _Evaluator:
    """What interval an expression lies in while the variables of `domains` run over theirs."""

    def __init__(self, ana: Analyzer, domains: Mapping[Var, IntervalSet]) -> None:
        self.ana, self.domains = ana, domains
        self.open: set[Var] = set()
        self.visitors: dict[type, Callable[[Any], IntervalSet]] = {
            ex.Add: self.add, ex.Sub: self.sub, ex.Mul: self.mul, ex.FloorDiv: self.div, ex.Div: self.div,
            ex.FloorMod: self.mod, ex.Mod: self.mod, ex.Min: self.extreme, ex.Max: self.extreme, ex.Select: self.select,
            ex.Cast: self.cast, ex.Ramp: self.ramp, ex.Broadcast: lambda e: self(e.value), ex.Call: self.call,
        }  # fmt: skip

    def simple(self, e: PrimExpr) -> PrimExpr:
        return self.ana.simplify(e) if _finite(e) else e

    def moves(self, e: Node) -> bool:
        """Does a running variable occur in it?"""
        if isinstance(e, Var):
            return e in self.domains
        return any(self.moves(c) for c in children(e))

    def __call__(self, e: Any) -> IntervalSet:
        if isinstance(e, IntImm):
            return IntervalSet(e, e)
        if isinstance(e, Var):
            return self.var(e)
        visit = self.visitors.get(type(e))
        if visit is not None and (type(e) in (ex.Ramp, ex.Broadcast) or self.moves(e)):
            return visit(e)
        if isinstance(e, ex.CmpOp) and self.moves(e):
            return IntervalSet(IntImm("bool", 0), IntImm("bool", 1))
        return EVERYTHING if self.moves(e) else IntervalSet(e, e)

    def var(self, v: Var) -> IntervalSet:
        found = self.domains.get(v)
        if found is None or v in self.open:
            return IntervalSet(v, v)
        low, high = found.min_value, found.max_value
        self.open.add(v)
        try:
            if _finite(low) and self.moves(low):
                low = self(low).min_value
            if _finite(high) and self.moves(high):
                high = self(high).max_value
        finally:
            self.open.discard(v)
        if low is found.min_value and high is found.max_value:
            return found
        return IntervalSet(low, high)

    def plus(self, a: PrimExpr, b: PrimExpr, none: PrimExpr) -> PrimExpr:
        return self.simple(ex.add(a, b)) if _finite(a) and _finite(b) else none

    def minus(self, a: PrimExpr, b: PrimExpr, none: PrimExpr) -> PrimExpr:
        return self.simple(ex.sub(a, b)) if _finite(a) and _finite(b) else none

    def add(self, e: Any) -> IntervalSet:
        a, b = self(e.a), self(e.b)
        return IntervalSet(self.plus(a.min_value, b.min_value, _NEG), self.plus(a.max_value, b.max_value, _POS))

    def sub(self, e: Any) -> IntervalSet:
        a, b = self(e.a), self(e.b)
        return IntervalSet(self.minus(a.min_value, b.max_value, _NEG), self.minus(a.max_value, b.min_value, _POS))

    def scaled(self, a: IntervalSet, k: PrimExpr, f: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> IntervalSet:
        """f of both ends and k, turned round where k is negative."""
        zero = IntImm(k.dtype, 0)
        low = self.simple(f(a.min_value, k)) if _finite(a.min_value) else a.min_value
        high = self.simple(f(a.max_value, k)) if _finite(a.max_value) else a.max_value
        if self.ana.can_prove(ex.GE(k, zero)):
            return IntervalSet(low, high)
        if self.ana.can_prove(ex.LE(k, zero)):
            return IntervalSet(high if _finite(a.max_value) else _NEG, low if _finite(a.min_value) else _POS)
        if _both(a):
            sign = ex.GE(k, zero)
            return IntervalSet(ex.Select(sign, low, high), ex.Select(sign, high, low))
        return EVERYTHING

    def mul(self, e: Any) -> IntervalSet:
        a, b = self(e.a), self(e.b)
        if a.is_single_point():
            a, b = b, a
        if b.is_single_point():
            return self.scaled(a, b.min_value, ex.mul)
        if all(isinstance(x, IntImm) for x in (*a, *b)):
            corners = [x.value * y.value for x in a for y in b]
            return IntervalSet(IntImm(e.dtype, min(corners)), IntImm(e.dtype, max(corners)))
        zero = IntImm(e.dtype, 0)
        if all(_finite(x.min_value) and self.ana.can_prove(ex.GE(x.min_value, zero)) for x in (a, b)):
            high = self.simple(ex.mul(a.max_value, b.max_value)) if _both(a) and _both(b) else _POS
            return IntervalSet(self.simple(ex.mul(a.min_value, b.min_value)), high)
        return EVERYTHING

    def div(self, e: Any) -> IntervalSet:
        a, b = self(e.a), self(e.b)
        if not b.is_single_point() or dt.is_float(e.dtype):
            return EVERYTHING
        return self.scaled(a, b.min_value, ex.floordiv if isinstance(e, ex.FloorDiv) else ex.truncdiv)

    def mod(self, e: Any) -> IntervalSet:
        a, b = self(e.a), self(e.b)
        if not b.is_single_point() or dt.is_float(e.dtype):
            return EVERYTHING
        d = b.min_value
        zero, last = IntImm(e.dtype, 0), self.simple(ex.sub(d, IntImm(e.dtype, 1)))
        if not self.ana.can_prove(ex.GT(d, zero)):
            return EVERYTHING
        if isinstance(e, ex.Mod):
            if _finite(a.min_value) and self.ana.can_prove(ex.GE(a.min_value, zero)):
                return IntervalSet(zero, last)
            return IntervalSet(self.simple(ex.sub(zero, last)), last)
        if _both(a):
            first = self.simple(ex.floordiv(a.min_value, d))
            if self.ana.can_prove_equal(first, ex.floordiv(a.max_value, d)):
                start = ex.mul(d, first)
                return IntervalSet(self.minus(a.min_value, start, zero), self.minus(a.max_value, start, last))
        return IntervalSet(zero, last)

    def extreme(self, e: Any) -> IntervalSet:
        a, b = self(e.a), self(e.b)
        least = isinstance(e, ex.Min)
        f = ex.minimum if least else ex.maximum
        lows = [x for x in (a.min_value, b.min_value) if _finite(x)]
        highs = [x for x in (a.max_value, b.max_value) if _finite(x)]
        low = self.simple(f(*lows)) if len(lows) == 2 else _NEG if least or not lows else lows[0]
        high = self.simple(f(*highs)) if len(highs) == 2 else (highs[0] if least and highs else _POS)
        return IntervalSet(low, high)

    def select(self, e: Any) -> IntervalSet:
        return union([self(e.true_value), self(e.false_value)], self.ana)

    def cast(self, e: Any) -> IntervalSet:
        a = self(e.value)
        if dt.is_float(e.dtype) or dt.is_float(e.value.dtype):
            return EVERYTHING
        return IntervalSet(*(ex.cast(x, e.dtype) if _finite(x) else x for x in a))

    def ramp(self, e: Any) -> IntervalSet:
        base = self(e.base)
        if not isinstance(e.stride, IntImm):
            return EVERYTHING
        if not isinstance(e.lanes, int):
            return IntervalSet(base.min_value, _POS) if e.stride.value >= 0 else IntervalSet(_NEG, base.max_value)
        reach = e.stride.value * (e.lanes - 1)
        low, high = min(reach, 0), max(reach, 0)
        dtype = e.base.dtype
        return IntervalSet(
            self.plus(base.min_value, IntImm(dtype, low), _NEG), self.plus(base.max_value, IntImm(dtype, high), _POS)
        )

    def call(self, e: Any) -> IntervalSet:
        name = e.op.name if isinstance(e.op, Op) else ""
        if name == "tir.if_then_else":
            return union([self(e.args[1]), self(e.args[2])], self.ana)
        if name == "tir.likely":
            return self(e.args[0])
        if name == "tir.shift_right" and isinstance(e.args[1], IntImm):
            return self(ex.floordiv(e.args[0], IntImm(e.dtype, 1 << e.args[1].value)))
        return EVERYTHING


def _domain(value: Any, dtype: str) -> IntervalSet:
    """A Range, a pair or a set, as an interval."""
    if isinstance(value, IntervalSet):
        return value
    if hasattr(value, "extent"):
        low, extent = ex.cast(convert(value.min), dtype), ex.cast(convert(value.extent), dtype)
        return IntervalSet(low, ex.sub(ex.add(low, extent), IntImm(dtype, 1)))
    low, high = value
    return IntervalSet(low, high)


def eval_set(e: ExprLike, dom_map: Mapping[Any, Any], analyzer: Analyzer | None = None) -> IntervalSet:
    """The interval that an expression lies in while the variables of `dom_map` run over their sets (or Ranges)."""
    from tilewright.arith.analyzer import Analyzer as Make

    domains: dict[Var, IntervalSet] = {}
    for key, value in dom_map.items():
        v: Var = key if isinstance(key, Var) else key.var
        domains[v] = _domain(value, v.dtype)
    run = _Evaluator(analyzer or Make(), domains)
    found = run(convert(e))
    return IntervalSet(run.simple(found.min_value), run.simple(found.max_value))


# ---- unions and intersections ----------------------------------------------------------------------------------------


def union(sets: Sequence[IntervalSet], analyzer: Analyzer | None = None) -> IntervalSet:
    """The smallest interval that holds all of them."""
    from tilewright.arith.analyzer import Analyzer as Make

    ana = analyzer or Make()
    out: IntervalSet | None = None
    for x in sets:
        if x.is_nothing():
            continue
        if out is None:
            out = x
            continue
        low, high = _NEG, _POS
        if _finite(out.min_value) and _finite(x.min_value):
            low = ana.simplify(ex.minimum(out.min_value, x.min_value))
        if _finite(out.max_value) and _finite(x.max_value):
            high = ana.simplify(ex.maximum(out.max_value, x.max_value))
        out = IntervalSet(low, high)
    return NOTHING if out is None else out


def intersect(sets: Sequence[IntervalSet], analyzer: Analyzer | None = None) -> IntervalSet:
    """What is in all of them."""
    from tilewright.arith.analyzer import Analyzer as Make

    ana = analyzer or Make()
    out = EVERYTHING
    for x in sets:
        if x.is_nothing():
            return NOTHING
        lows = [e for e in (out.min_value, x.min_value) if _finite(e)]
        highs = [e for e in (out.max_value, x.max_value) if _finite(e)]
        low = ana.simplify(ex.maximum(*lows)) if len(lows) == 2 else lows[0] if lows else _NEG
        high = ana.simplify(ex.minimum(*highs)) if len(highs) == 2 else highs[0] if highs else _POS
        if _finite(low) and _finite(high) and ana.can_prove(ex.LT(high, low)):
            return NOTHING
        out = IntervalSet(low, high)
    return out


def union_lower_bound(sets: Sequence[IntervalSet]) -> IntervalSet:
    """An interval inside the union: sets are joined where they provably touch or overlap, others are left out."""
    from tilewright.arith.analyzer import Analyzer as Make

    ana = Make()
    left = [s for s in sets if not s.is_nothing()]
    if not left:
        return NOTHING
    out = left.pop(0)
    grown = True
    while grown and left:
        grown = False
        for x in list(left):
            if _touch(ana, out, x):
                out = union([out, x], ana)
                left.remove(x)
                grown = True
    return out


def _touch(ana: Analyzer, a: IntervalSet, b: IntervalSet) -> bool:
    """Do two intervals overlap or stand side by side?"""
    for x, y in ((a, b), (b, a)):
        if _finite(x.max_value) and _finite(y.min_value):
            if not ana.can_prove(ex.cmp(ex.GE, ex.add(x.max_value, IntImm(x.max_value.dtype, 1)), y.min_value)):
                return False
    return True


# ---- regions ---------------------------------------------------------------------------------------------------------


def estimate_region_strict_bound(
    region: Sequence[Any], var_dom: Mapping[Var, Any], predicate: ExprLike = True, analyzer: Analyzer | None = None
) -> list[IntervalSet] | None:
    """For each Range of a region, exactly what it covers while the variables run where `predicate` holds.

    None where the indices are no independent sums of iterators, or leave gaps.
    """
    from tilewright.arith.analyzer import Analyzer as Make
    from tilewright.arith.iter_map import detect_iter_map

    ana = analyzer or Make()
    starts = [convert(r.min) for r in region]
    found = detect_iter_map(starts, var_dom, predicate, analyzer=ana)
    if not found.indices:
        return None
    out: list[IntervalSet] = []
    for r, start, index, base in zip(region, starts, found.indices, found.bases, strict=True):
        extent = ex.cast(convert(r.extent), start.dtype)
        one = IntImm(start.dtype, 1)
        low, size = base, extent
        if index.args:
            (a,) = index.args
            if not ana.can_prove(ex.cmp(ex.GE, extent, a.scale)):
                return None
            reach = ex.mul(ex.sub(a.extent, one), a.scale)
            if ana.can_prove(ex.cmp(ex.LT, a.scale, IntImm(start.dtype, 0))):
                low, size = ex.add(low, reach), ex.sub(size, reach)
            else:
                size = ex.add(size, reach)
        # what base and extent share goes first, for rules might hide it
        high = ana.canonical_simplify(ex.sub(ex.add(low, size), one))
        out.append(IntervalSet(ana.simplify(low), ana.simplify(high)))
    return out


def estimate_region_lower_bound(
    region: Sequence[Any], var_dom: Mapping[Var, Any], predicate: ExprLike = True, analyzer: Analyzer | None = None
) -> list[IntervalSet] | None:
    """For each Range of a region, a box that is covered whole; None where that cannot be shown."""
    return estimate_region_strict_bound(region, var_dom, predicate, analyzer)


def estimate_region_upper_bound(
    region: Sequence[Any], var_dom: Mapping[Var, Any], predicate: ExprLike = True, analyzer: Analyzer | None = None
) -> list[IntervalSet]:
    """For each Range of a region, a box that holds all it covers while the variables run where `predicate` holds."""
    from tilewright.arith.analyzer import Analyzer as Make

    ana = analyzer or Make()
    strict = estimate_region_strict_bound(region, var_dom, predicate, ana)
    if strict is not None:
        return strict
    out: list[IntervalSet] = []
    for r in region:
        one = estimate_region_strict_bound([r], var_dom, predicate, ana)
        if one is None:
            low = convert(r.min)
            last = ex.sub(ex.add(low, ex.cast(convert(r.extent), low.dtype)), IntImm(low.dtype, 1))
            out.append(IntervalSet(eval_set(low, var_dom, ana).min_value, eval_set(last, var_dom, ana).max_value))
        else:
            out.append(one[0])
    return out
