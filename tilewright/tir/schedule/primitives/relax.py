"""The parts of buffers that are touched while loops run: regions of blocks, relaxed over the loops around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.int_set import eval_range
from tilewright.arith.linear import difference
from tilewright.ir.node import walk
from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import BlockRealize, BufferRegion, For, Range
from tilewright.tir.schedule.state import conjuncts

__all__ = ["Ends", "block_ends", "domains_of", "full_region", "proves", "ranges_of", "relax", "shown", "value_of"]

Ends = tuple[PrimExpr, PrimExpr] | None
"""(least, greatest) of a dimension; None where nothing is known."""


def value_of(e: PrimExpr) -> int | None:
    """The number that the expression is, or None."""
    return e.value if isinstance(e, IntImm) else None


def proves(ana: Analyzer, condition: PrimExpr) -> bool:
    """Does the condition follow from what is known, also where ranges are symbolic?"""
    return ana.can_prove(condition, 1)


def domains_of(loops: Iterable[For]) -> dict[Var, Range]:
    """The ranges of loop variables."""
    return {p.loop_var: Range(p.min, p.extent) for p in loops}


def full_region(shape: Sequence[PrimExpr]) -> list[Range]:
    """All of a buffer."""
    return [Range(IntImm(n.dtype, 0), n) for n in shape]


def relax(
    region: Sequence[Range],
    domains: Mapping[Var, Range],
    ana: Analyzer,
    shape: Sequence[PrimExpr],
    predicate: PrimExpr | None = None,
) -> list[Ends]:
    """What a region covers while the variables of `domains` run over their ranges where `predicate` holds: never less.

    Ends are exact for sums of the variables and conditions that bound such a sum. Where both are numbers they are kept in
    `shape`.
    """
    limits = (
        [] if predicate is None else [p for p in conjuncts(predicate) if isinstance(p, (ex.LT, ex.LE, ex.GT, ex.GE))]
    )
    out: list[Ends] = []
    for r, n in zip(region, shape, strict=True):
        last = r.min if value_of(r.extent) == 1 else r.min + (ex.cast(r.extent, r.min.dtype) - 1)
        first = eval_range(r.min, domains, ana)
        ends = first if last is r.min else eval_range(last, domains, ana)
        if first is None or ends is None:
            out.append(None)
            continue
        low, high = first[0], ends[1]
        for p in limits:
            low, high = _limited(p, r.min, last, low, high, domains, ana)
        a, b, size = value_of(low), value_of(high), value_of(n)
        if a is not None and a < 0:
            low = IntImm(low.dtype, 0)
        if b is not None and size is not None and b >= size:
            high = IntImm(high.dtype, size - 1)
        out.append((low, high))
    return out


def _limited(
    p: Any, first: PrimExpr, last: PrimExpr, low: PrimExpr, high: PrimExpr, domains: Mapping[Var, Range], ana: Analyzer
) -> tuple[PrimExpr, PrimExpr]:
    """The ends, brought closer by a condition on the index itself: `index < c`."""
    small, big = (p.a, p.b) if isinstance(p, (ex.LT, ex.LE)) else (p.b, p.a)
    if small.dtype not in ("int32", "int64"):
        return low, high
    strict = 1 if isinstance(p, (ex.LT, ex.GT)) else 0
    moving = [x for x in walk(small) if x in domains], [x for x in walk(big) if x in domains]
    if moving[0] and not moving[1]:  # small <= big - strict
        gap = difference(ex.cast(last, small.dtype), small)
        if gap is not None:
            bound = ana.simplify(ex.cast(big, high.dtype) + (gap - strict))
            a, b = value_of(bound), value_of(high)
            if a is not None and b is not None:
                high = bound if a < b else high
            elif proves(ana, bound <= high):
                high = bound
    elif moving[1] and not moving[0]:
        gap = difference(ex.cast(first, big.dtype), big)
        if gap is not None:
            bound = ana.simplify(ex.cast(small, low.dtype) + (gap + strict))
            a, b = value_of(bound), value_of(low)
            if a is not None and b is not None:
                low = bound if a > b else low
            elif proves(ana, bound >= low):
                low = bound
    return low, high


def block_ends(realize: BlockRealize, region: BufferRegion, loops: Iterable[For], ana: Analyzer) -> list[Ends]:
    """What a block touches of a buffer (`region`, in terms of its axes) while the loops run."""
    values: dict[Any, Any] = {iv.var: v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    bound = [Range(substitute(r.min, values), substitute(r.extent, values)) for r in region.region]
    return relax(bound, domains_of(loops), ana, region.buffer.shape, realize.predicate)


def ranges_of(ends: Sequence[Ends], shape: Sequence[PrimExpr], ana: Analyzer) -> list[Range]:
    """The ends as ranges; the whole dimension where nothing is known."""
    out: list[Range] = []
    for e, n in zip(ends, shape, strict=True):
        if e is None:
            out.append(Range(IntImm(n.dtype, 0), n))
        else:
            low, high = (ex.cast(x, n.dtype) if isinstance(x, IntImm) else x for x in e)
            out.append(Range(ana.simplify(low), ana.simplify(high - low + 1)))
    return out


def shown(condition: PrimExpr) -> PrimExpr:
    """A condition with its number on the left of `<=`, as people write lower bounds."""
    if isinstance(condition, ex.GE) and isinstance(condition.b, IntImm):
        return ex.LE(condition.b, condition.a)
    return condition
