"""Systems of integer constraints: variables, their ranges, and relations between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import ExprLike, FloatImm, IntImm, PrimExpr, Var, convert
from tilewright.arith.int_set import eval_set, neg_inf, pos_inf
from tilewright.ir.node import Node, node, walk
from tilewright.support.lazy import resolve

__all__ = ["IntConstraints", "IntConstraintsTransform", "IntGroupBounds", "make_range", "unsolvable"]


def make_range(low: PrimExpr, extent: PrimExpr) -> Any:
    """The Range of `extent` integers from `low` on."""
    return resolve("tir.Range").from_min_extent(low, extent)


@node
class IntConstraints(Node):
    """`variables` within `ranges` (Var to Range), such that all `relations` (bools) hold."""

    variables: tuple[Var, ...]
    ranges: dict[Var, Any]
    relations: tuple[PrimExpr, ...]

    def __init__(
        self,
        variables: Sequence[Var] | None,
        ranges: Mapping[Var, Any] | None,
        relations: Sequence[PrimExpr] | None,
        *,
        span: Any = None,
    ) -> None:
        this: Any = self
        this.variables, this.ranges = tuple(variables or ()), dict(ranges or {})
        this.relations, this.span = tuple(convert(r) for r in relations or ()), span


@node
class IntConstraintsTransform(Node):
    """Two systems that stand for each other: `src_to_dst` gives each variable of `src` in those of `dst`, and back."""

    src: IntConstraints
    dst: IntConstraints
    src_to_dst: dict[Var, PrimExpr]
    dst_to_src: dict[Var, PrimExpr]


@node
class IntGroupBounds(Node):
    """What bounds `coef * variable`: lower and upper bounds (both included), and what it equals."""

    coef: PrimExpr
    lower: tuple[PrimExpr, ...]
    equal: tuple[PrimExpr, ...]
    upper: tuple[PrimExpr, ...]

    def __init__(
        self,
        coef: ExprLike,
        lower: Sequence[ExprLike],
        equal: Sequence[ExprLike],
        upper: Sequence[ExprLike],
        *,
        span: Any = None,
    ) -> None:
        this: Any = self
        this.coef, this.span = convert(coef), span
        this.lower, this.equal, this.upper = (tuple(convert(e) for e in x) for x in (lower, equal, upper))

    @staticmethod
    def from_range(rng: Any) -> IntGroupBounds:
        """The bounds that a Range sets; one of a single value is an equality."""
        low, extent = convert(rng.min), convert(rng.extent)
        one = IntImm(low.dtype, 1)
        if isinstance(extent, IntImm) and extent.value == 1:
            return IntGroupBounds(one, (), (low,), ())
        last = Analyzer().simplify(ex.sub(ex.add(low, extent), one))
        return IntGroupBounds(one, (low,), (), (last,))

    def find_best_range(self, ranges: Mapping[Var, Any] | None = None, analyzer: Analyzer | None = None) -> Any:
        """The Range of the least extent that a pair of bounds gives, while other variables run over `ranges`; or None."""
        ana = analyzer or Analyzer()
        coef = self.coef
        assert isinstance(coef, IntImm)
        best: tuple[PrimExpr, PrimExpr] | None = None
        for low in (*self.equal, *self.lower):
            first = low
            if coef.value != 1:
                first = ex.floordiv(ex.add(low, IntImm(coef.dtype, coef.value - 1)), coef)
            for high in (*self.equal, *self.upper):
                wide = ex.floordiv(ex.sub(high, low), coef)
                tight = ex.sub(ex.floordiv(high, coef), first)
                for gap in (wide, tight):
                    most = _most(gap, ranges or {}, ana)
                    if most is not None and (best is None or _is_less(ana, most, best[1])):
                        best = ana.simplify(first), most
        if best is None:
            return None
        return make_range(best[0], ana.simplify(ex.add(best[1], IntImm(coef.dtype, 1))))


def _most(e: PrimExpr, ranges: Mapping[Var, Any], ana: Analyzer) -> PrimExpr | None:
    """The greatest value of an expression; None where it is not known."""
    e = ana.simplify(e)
    if any(isinstance(x, (ex.Call, FloatImm)) for x in walk(e)):
        return None
    most = eval_set(e, ranges, ana).max_value
    return None if most is pos_inf() or most is neg_inf() else most


def _is_less(ana: Analyzer, a: PrimExpr, b: PrimExpr) -> bool:
    return ana.can_prove(ex.cmp(ex.LT, a, b))


def unsolvable() -> IntConstraints:
    """The system that nothing fulfils."""
    return IntConstraints((), {}, (IntImm("bool", 0),))
