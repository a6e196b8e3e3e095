"""Primitives that change an order: of loops in a nest, of a block's iterators."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tilewright.arith.expr import Var
from tilewright.ir.node import replace
from tilewright.tir.ir import BlockRealize, For, IterVar
from tilewright.tir.lower.index import mentions
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.scope import is_affine, loops_in_scope
from tilewright.tir.schedule.state import BlockRV, LoopRV, State, nearest_blocks

__all__ = ["KIND_NAMES", "reorder", "reorder_block_iter_var"]

KIND_NAMES = {
    IterVar.DataPar: "spatial", IterVar.CommReduce: "reduce", IterVar.Ordered: "scan", IterVar.Opaque: "opaque"
}  # fmt: skip


@primitive
def reorder(s: State, *ordered_loops: LoopRV) -> None:
    """Put loops of one nest into the given order; loops not named stay where they are.

    The loops must form a chain with nothing beside it, and the blocks inside must be made of spatial and reduce axes that
    the loops reach once each. Raises ScheduleError TW0414 or TW0415 otherwise.
    """
    if len({id(rv.var) for rv in ordered_loops}) != len(ordered_loops):
        raise fail("TW0414", "a loop is named twice in reorder")
    if len(ordered_loops) < 2:
        return
    func = ordered_loops[0].func
    paths = {rv.var: s.loop_path(rv) for rv in ordered_loops}
    deepest = max(paths.values(), key=len)
    top = min(paths.values(), key=len)
    between = deepest[len(top) - 1 :]
    loops = [p for p in between if isinstance(p, For)]
    inside = {p.loop_var for p in loops}
    missing = [rv for rv in ordered_loops if rv.var not in inside]
    if missing:
        raise fail(
            "TW0414",
            f"the loop {missing[0].var.name!r} is not in the same nest",
            s.func(func),
            s.loop(missing[0]),
            choices=[p.loop_var.name for p in loops],
        )
    if len(loops) != len(between):
        raise fail(
            "TW0414",
            f"the loops {', '.join(v.name for v in paths)} are not one nest: something stands between them",
            s.func(func),
            next(p for p, q in itertools.pairwise(between) if not isinstance(q, For)),
        )
    _check_blocks(s, func, loops, inside)
    named = iter([paths[rv.var][-1] for rv in ordered_loops])
    order = [next(named) if p.loop_var in paths else p for p in loops]
    _check_extents(s, func, [p for p in order if isinstance(p, For)], inside)
    body = loops[-1].body
    for p in reversed(order):
        body = replace(p, body=body)
    s.put(func, top, body)


def _check_blocks(s: State, func: str, loops: Sequence[For], inside: set[Var]) -> None:
    for b in nearest_blocks(loops[-1].body):
        for iv, value in zip(b.block.iter_vars, b.iter_values, strict=True):
            if iv.iter_type not in (IterVar.DataPar, IterVar.CommReduce) and any(mentions(value, v) for v in inside):
                raise fail(
                    "TW0415",
                    f"cannot reorder: the axis {iv.var.name!r} of block {b.block.name_hint!r} is {KIND_NAMES.get(iv.iter_type)}",
                    s.func(func),
                    b,
                    hint="only spatial and reduce axes may run in another order",
                )
        if not is_affine(b, loops_in_scope(s.path_to(func, b))):
            raise fail(
                "TW0415",
                f"cannot reorder: the block {b.block.name_hint!r} may run more than once at one point, for what it is "
                "bound to is no affine map of the loops",
                s.func(func),
                b,
            )


def _check_extents(s: State, func: str, order: Sequence[For], inside: set[Var]) -> None:
    seen: set[Var] = set()
    for p in order:
        for v in inside:
            if v not in seen and v is not p.loop_var and (mentions(p.extent, v) or mentions(p.min, v)):
                raise fail("TW0414", f"the extent of {p.loop_var.name!r} needs {v.name!r} outside", s.func(func), p)
        seen.add(p.loop_var)


@primitive
def reorder_block_iter_var(s: State, block: BlockRV, new_order: Sequence[int]) -> None:
    """Put a block's iterators into another order: `new_order[i]` is the old place of the new i-th.

    Raises ScheduleError TW0422 where `new_order` is no permutation of all places.
    """
    path = s.block_path(block)
    realize = path[-1]
    assert isinstance(realize, BlockRealize)
    order = [int(getattr(i, "value", i)) for i in new_order]
    n = len(realize.block.iter_vars)
    if sorted(order) != list(range(n)):
        raise fail(
            "TW0422",
            f"{order} is no order of the {n} iterators of {block.name!r}: each of 0..{n - 1} is needed once",
            s.func(block.func),
            realize,
        )
    new = replace(realize.block, iter_vars=tuple(realize.block.iter_vars[i] for i in order))
    s.put(block.func, path, replace(realize, iter_values=tuple(realize.iter_values[i] for i in order), block=new))
