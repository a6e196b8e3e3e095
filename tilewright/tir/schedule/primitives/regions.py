"""Primitives that change what a block declares to read and write: by hand, at the user's risk."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, cast, convert
from tilewright.ir.node import replace
from tilewright.ir.rewrite import substitute
from tilewright.tir.index_map import IndexMap
from tilewright.tir.ir import BufferRegion, Range
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.flow import find_block
from tilewright.tir.schedule.primitives.renew import EXPLICIT
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, State

__all__ = ["annotate_buffer_access", "unsafe_hide_buffer_access"]

SIDES = {"read": "reads", "write": "writes", 0: "reads", 1: "writes"}


def _side(s: State, block: BlockRV, buf_type: Any) -> str:
    if buf_type not in SIDES:
        raise fail(
            "TW0467",
            f"{buf_type!r} is no side of a block",
            s.func(block.func),
            s.block(block),
            choices=("read", "write"),
        )
    return SIDES[buf_type]


def _at(s: State, block: BlockRV, side: str, index: Any) -> int:
    regions = getattr(s.block(block).block, side)
    n = index.value if isinstance(index, IntImm) else index
    if not isinstance(n, int) or not 0 <= n < len(regions):
        raise fail(
            "TW0467",
            f"the block {block.name!r} has no buffer {n} among its {side}",
            s.func(block.func),
            s.block(block),
            choices=[f"{i} ({r.buffer.name})" for i, r in enumerate(regions)],
        )
    return n


@primitive
def unsafe_hide_buffer_access(s: State, block: BlockRV, buf_type: str, buf_index_array: Sequence[int]) -> None:
    """Take buffers (by their places) off what a block declares to read (`buf_type` "read") or write ("write"). Unsafe: later
    steps will not know of these accesses. Raises ScheduleError TW0467 for a place or side that is not there."""
    path, realize = find_block(s, block)
    side = _side(s, block, buf_type)
    hidden = {_at(s, block, side, i) for i in buf_index_array}
    kept = tuple(r for i, r in enumerate(getattr(realize.block, side)) if i not in hidden)
    s.put(block.func, path, replace(realize, block=replace(realize.block, **{side: kept})))


def _prepare(s: State, arguments: dict[str, Any]) -> None:
    """The function of the new ranges as a map from axes to (first, end) of each dimension."""
    block = arguments["block"]
    if isinstance(block, str):
        block = arguments["block"] = BlockRV(block, s.func_name)
    given = arguments["gen_new_ranges"]
    if isinstance(given, IndexMap):
        return
    assert callable(given)
    arguments["gen_new_ranges"] = _as_map(s, block, given)


def _as_map(s: State, block: BlockRV, f: Callable[..., Any]) -> IndexMap:
    axes = s.block(block).block.iter_vars
    names = list(inspect.signature(f).parameters.values())
    if not any(p.kind is p.VAR_POSITIONAL for p in names) and len(names) != len(axes):
        raise fail(
            "TW0467",
            f"gen_new_ranges takes {len(names)} axes, the block {block.name!r} has {len(axes)}",
            s.func(block.func),
            s.block(block),
        )
    variables = [iv.var for iv in axes]
    ends: list[PrimExpr] = []
    for x in f(*variables):
        if isinstance(x, (tuple, list)):
            if len(x) != 2:  # pyright: ignore[reportUnknownArgumentType]
                raise fail("TW0467", f"a range is (start, end), got {x}", s.func(block.func), s.block(block))
            ends += [convert(x[0]), convert(x[1])]
        else:
            e = convert(x)
            ends += [e, e + 1]
    return IndexMap(variables, ends)


@primitive(prepare=_prepare)
def annotate_buffer_access(s: State, block: BlockRV, buffer_index: int, buf_type: str, gen_new_ranges: Any) -> None:
    """Give by hand the region of a buffer that a block reads or writes: `gen_new_ranges(*axes)` returns for each dimension an
    index or (start, end). It stays when regions are found anew (annotation `explicit_read_region`/`explicit_write_region`),
    and tells compute_at what is needed where an index does not.

    `buf_type` is "read" or "write". Raises ScheduleError TW0467 for a place, side or number of ranges that does not fit.
    """
    path, realize = find_block(s, block)
    side = _side(s, block, buf_type)
    n = _at(s, block, side, buffer_index)
    old: BufferRegion = getattr(realize.block, side)[n]
    found: IndexMap = gen_new_ranges
    if len(found.final_indices) != 2 * old.buffer.ndim:
        raise fail(
            "TW0467",
            f"{old.buffer.name} has {old.buffer.ndim} dimensions, gen_new_ranges gives {len(found.final_indices) // 2}",
            s.func(block.func),
            realize,
        )
    axes = {v: cast(iv.var, v.dtype) for v, iv in zip(found.initial_indices, realize.block.iter_vars, strict=True)}
    ends = [substitute(e, axes) for e in found.final_indices]
    ana = Analyzer()
    region = tuple(Range(a, ana.simplify(b - a)) for a, b in zip(ends[::2], ends[1::2], strict=True))
    regions = list(getattr(realize.block, side))
    regions[n] = BufferRegion(old.buffer, region)
    key = EXPLICIT[side]
    noted = tuple(int(x) for x in realize.block.annotations.get(key, ()))
    annotations = {**realize.block.annotations, key: noted if n in noted else (*noted, n)}
    changed = replace(realize.block, annotations=annotations, **{side: tuple(regions)})
    s.put(block.func, path, replace(realize, block=changed))
