"""Primitives that attach facts to loops and blocks, or look at how blocks are connected."""

from __future__ import annotations

from typing import Any, Union

from tilewright.ir.node import replace
from tilewright.tir.ir import BlockRealize, Stmt
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, LoopRV, State, nearest_blocks

__all__ = ["annotate", "get_child_blocks", "get_consumers", "get_producers", "unannotate"]

Place = Union[BlockRV, LoopRV]


def _edit(s: State, place: Place, change: Any) -> None:
    if isinstance(place, BlockRV):
        path = s.block_path(place)
        realize = path[-1]
        assert isinstance(realize, BlockRealize)
        block = realize.block
        s.put(place.func, path, replace(realize, block=replace(block, annotations=change(block.annotations))))
    else:
        loop = s.loop(place)
        s.put(place.func, s.loop_path(place), replace(loop, annotations=change(loop.annotations)))


@primitive
def annotate(s: State, block_or_loop: Place, ann_key: str, ann_val: Any) -> None:
    """Attach a value to a block or loop under a name."""
    _edit(s, block_or_loop, lambda old: {**old, ann_key: ann_val})  # pyright: ignore


@primitive
def unannotate(s: State, block_or_loop: Place, ann_key: str) -> None:
    """Remove an annotation. Raises ScheduleError TW0405 where there is none of that name."""

    def change(old: dict[str, Any]) -> dict[str, Any]:
        if ann_key not in old:
            raise fail("TW0405", f"there is no annotation {ann_key!r} here", choices=old)
        return {k: v for k, v in old.items() if k != ann_key}

    _edit(s, block_or_loop, change)


@primitive(changes=False)
def get_child_blocks(s: State, block_or_loop: Place) -> list[BlockRV]:
    """The blocks directly inside a block or loop."""
    if isinstance(block_or_loop, BlockRV):
        body: Stmt = s.block(block_or_loop).block.body
    else:
        body = s.loop(block_or_loop).body
    return [BlockRV(b.block.name_hint, block_or_loop.func) for b in nearest_blocks(body)]


def siblings(s: State, block: BlockRV) -> list[BlockRealize]:
    """The blocks of the scope that a block stands in, in order."""
    path = s.block_path(block)
    scope = next(p for p in reversed(path[:-1]) if isinstance(p, BlockRealize))
    return nearest_blocks(scope.block.body)


@primitive(changes=False)
def get_producers(s: State, block: BlockRV) -> list[BlockRV]:
    """The blocks of the same scope that write what this block reads."""
    read = {r.buffer for r in s.block(block).block.reads}
    me = s.block(block)
    out = [b for b in siblings(s, block) if b is not me and any(w.buffer in read for w in b.block.writes)]
    return [BlockRV(b.block.name_hint, block.func) for b in out]


@primitive(changes=False)
def get_consumers(s: State, block: BlockRV) -> list[BlockRV]:
    """The blocks of the same scope that read what this block writes."""
    written = {r.buffer for r in s.block(block).block.writes}
    me = s.block(block)
    out = [b for b in siblings(s, block) if b is not me and any(r.buffer in written for r in b.block.reads)]
    return [BlockRV(b.block.name_hint, block.func) for b in out]


@primitive(changes=False)
def get_output_blocks(s: State, scope_block: BlockRV | str) -> list[BlockRV]:
    """The blocks in a scope that write the function's own buffers."""
    rv = BlockRV(scope_block, s.func_name) if isinstance(scope_block, str) else scope_block
    outputs = set(s.func(rv.func).buffer_map.values())
    inside = nearest_blocks(s.block(rv).block.body)
    return [BlockRV(b.block.name_hint, rv.func) for b in inside if any(w.buffer in outputs for w in b.block.writes)]
