"""Are index expressions a rearrangement of loop iterators? Fusions and splits, found, checked and simplified.

    io in [0, 4), ii in [0, 8):   io*8 + ii, (io*8 + ii)//16, ii % 4   ->   sums of digits of iterators (`iter_expr`)

`check_level` says what the map of all indices together must be: "bijective" (each point of the iterators' space is hit once,
all of it), "surjective" (the indices are independent and take all values below their extents; the default), "nocheck".

Extents may be symbolic, as long as divisions come out even. A condition such as `io*8 + ii < 30` shortens a fused iterator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import ExprLike, IntImm, PrimExpr, Var, convert
from tilewright.arith.iter_check import check_mapping
from tilewright.arith.iter_expr import IterMapExpr, IterMark, IterSplitExpr, IterSumExpr, normalize_iter_map_to_expr
from tilewright.arith.iter_predicate import Unread, limits_of
from tilewright.arith.iter_rewrite import BIJECTIVE, NOCHECK, SURJECTIVE, Rewriter, to_sum

__all__ = [
    "IterMapExpr", "IterMapLevel", "IterMapResult", "IterMark", "IterSplitExpr", "IterSumExpr", "detect", "detect_iter_map",
    "iter_map_simplify", "normalize_iter_map_to_expr", "normalize_to_iter_sum",
]  # fmt: skip


class IterMapLevel:
    """How much of the map is checked."""

    Bijective = BIJECTIVE
    Surjective = SURJECTIVE
    NoCheck = NOCHECK

    @staticmethod
    def from_str(name: str) -> int:
        """The level of a name: bijective, surjective or nocheck. Raises ValueError for another."""
        level = {"bijective": BIJECTIVE, "surjective": SURJECTIVE, "nocheck": NOCHECK}.get(name.lower())
        if level is None:
            raise ValueError(f"unknown check level {name!r}: it is bijective, surjective or nocheck")
        return level


class IterMapResult:
    """`indices`: one IterSumExpr each, or empty with `errors` that say why; `padding_predicate`: where padding was added."""

    def __init__(
        self, indices: list[IterSumExpr], errors: list[str], padding_predicate: PrimExpr | None = None
    ) -> None:
        self.indices, self.errors = indices, errors
        self.bases: list[PrimExpr] = [s.base for s in indices]  # as they came, not simplified
        self.padding_predicate: PrimExpr = padding_predicate if padding_predicate is not None else IntImm("bool", 0)

    def __repr__(self) -> str:
        return f"IterMapResult(indices={self.indices}, errors={self.errors})"


def _level(level: str | int | None) -> int:
    if level is None:
        return SURJECTIVE
    return IterMapLevel.from_str(level) if isinstance(level, str) else min(int(level), NOCHECK)


def detect(
    indices: Sequence[ExprLike],
    input_iters: Mapping[Var, Any],
    predicate: ExprLike,
    check_level: str | int | None,
    simplify_trivial_iterators: bool,
    ana: Analyzer,
) -> IterMapResult:
    """`detect_iter_map` with the analyzer at hand."""
    level = _level(check_level)
    exprs = [convert(i) for i in indices]
    try:
        limits, iters = limits_of(convert(predicate), input_iters, ana)
    except Unread as why:
        return IterMapResult([], [str(why)])
    rewriter = Rewriter(ana, iters, level, simplify_trivial_iterators)
    for e, low, high in limits:
        if not rewriter.limit(e, low, high):
            return IterMapResult([], rewriter.errors)
    if not rewriter.limits_nest():
        return IterMapResult([], ["the conditions speak of sums that share only a part of their iterators"])
    found = _rewrite_all(rewriter, exprs)
    if rewriter.errors:
        return IterMapResult([], rewriter.errors)
    why = check_mapping(rewriter, found, level)
    predicate = rewriter.padding.predicate
    if why:
        return IterMapResult([], [why], predicate)
    out = IterMapResult([IterSumExpr(s.args, rewriter.simple(s.base)) for s in found], [], predicate)
    out.bases = [s.base for s in found]
    return out


def _rewrite_all(rewriter: Rewriter, exprs: Sequence[PrimExpr]) -> list[IterSumExpr]:
    """All indices; twice where iterators must be padded, for the first pass only finds the divisors."""
    rewriter.padding.gathering = rewriter.level != BIJECTIVE
    found = [rewriter.rewrite(e) for e in exprs]
    if rewriter.padding.needed and not rewriter.errors:
        rewriter.padding.gathering = False
        found = [rewriter.rewrite(e) for e in exprs]
    return found


def detect_iter_map(
    indices: Sequence[ExprLike],
    input_iters: Mapping[Var, Any],
    predicate: ExprLike = True,
    check_level: str | int | None = "surjective",
    simplify_trivial_iterators: bool = True,
    *,
    require_bijective: bool = False,
    analyzer: Analyzer | None = None,
) -> IterMapResult:
    """Each index as a sum of digits of the input iterators, if all of them together are such a map as `check_level` says.

    `input_iters` gives each variable its Range. `simplify_trivial_iterators` drops iterators of extent 1. The result's
    `indices` are empty where it is no such map, and `errors` say why.
    """
    level = "bijective" if require_bijective else check_level
    return detect(indices, input_iters, predicate, level, simplify_trivial_iterators, analyzer or Analyzer())


def normalize_to_iter_sum(
    index: ExprLike, input_iters: Mapping[Var, Any], *, analyzer: Analyzer | None = None
) -> IterSumExpr:
    """The index as a sum of digits, greatest scale first; what is no digit goes into the base."""
    ana = analyzer or Analyzer()
    rewriter = Rewriter(ana, input_iters, NOCHECK, True)
    rewriter.padding.off = True
    s = rewriter.combined(to_sum(rewriter.visit(convert(index))))
    args = sorted(s.args, key=_weight)
    return IterSumExpr(args, rewriter.simple(s.base))


def _weight(s: IterSplitExpr) -> tuple[int, int]:
    """Sorts by the number of symbolic factors of a scale, then by its constant factor; both falling."""
    count, constant = 0, 1
    stack: list[Any] = [s.scale]
    while stack:
        e = stack.pop()
        if isinstance(e, ex.Mul):
            stack += [e.a, e.b]
        elif isinstance(e, IntImm):
            constant *= e.value
        else:
            count += 1
    return -count, -constant


def iter_map_simplify(
    indices: Sequence[ExprLike],
    input_iters: Mapping[Var, Any],
    predicate: ExprLike = True,
    check_level: str | int | None = "surjective",
    simplify_trivial_iterators: bool = True,
    *,
    analyzer: Analyzer | None = None,
) -> list[PrimExpr]:
    """The indices as their map of iterators reads; as they are where they are no such map."""
    ana = analyzer or Analyzer()
    exprs = [convert(i) for i in indices]
    found = detect(exprs, input_iters, predicate, check_level, simplify_trivial_iterators, ana).indices
    if not found and _level(check_level) != BIJECTIVE and not isinstance(predicate, (bool, IntImm)):
        found = detect(exprs, input_iters, True, check_level, simplify_trivial_iterators, ana).indices
    if not found:
        return exprs
    same = Rewriter(ana, {}, NOCHECK, True).equal
    return [normalize_iter_map_to_expr(s, same) for s in found]
