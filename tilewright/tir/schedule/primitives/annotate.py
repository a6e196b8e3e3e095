"""Primitives that attach facts to loops and blocks, or look at how blocks are connected."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.ir.node import replace
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.tir.ir import BlockRealize, For, Stmt
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.scope import blocks_of, scope_of, scope_path
from tilewright.tir.schedule.state import BlockRV, Place, State, nearest_blocks

__all__ = ["annotate", "get_child_blocks", "get_consumers", "get_output_blocks", "get_producers", "unannotate"]


def _edit(s: State, place: Place, change: Any) -> None:
    path = s.path(place)
    node = path[-1]
    if isinstance(node, BlockRealize):
        block = replace(node.block, annotations=change(node.block.annotations))
        s.put(place.func, path, replace(node, block=block))
    else:
        assert isinstance(node, For)
        s.put(place.func, path, replace(node, annotations=change(node.annotations)))


def _plain(s: State, v: Any) -> Any:
    """An annotation's value with sampled numbers in it replaced by what they are, and tuples as lists."""
    if isinstance(v, PrimExpr) and not isinstance(v, IntImm):
        known = {x: IntImm(x.dtype, s.values[x]) for x in free_vars(v) if x in s.values}
        v = substitute(v, known) if known else v
    if isinstance(v, IntImm) and v.dtype != "bool":
        return v.value
    if isinstance(v, (list, tuple)):
        return [_plain(s, x) for x in v]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(v, dict):
        return {str(k): _plain(s, x) for k, x in v.items()}  # pyright: ignore
    return v


@primitive
def annotate(s: State, block_or_loop: Place, ann_key: str, ann_val: Any) -> None:
    """Attach a value to a block or loop under a name: a number, text, sampled number, or lists and dictionaries of such."""
    value = _plain(s, ann_val)
    _edit(s, block_or_loop, lambda old: {**old, ann_key: value})  # pyright: ignore


@primitive
def unannotate(s: State, block_or_loop: Place, ann_key: str) -> None:
    """Remove an annotation. Raises ScheduleError TW0405 where there is none of that name."""

    def change(old: dict[str, Any]) -> dict[str, Any]:
        if ann_key not in old:
            raise fail(
                "TW0405",
                f"there is no annotation {ann_key!r} here",
                s.func(block_or_loop.func),
                s.path(block_or_loop)[-1],
                choices=old,
            )
        return {k: v for k, v in old.items() if k != ann_key}

    _edit(s, block_or_loop, change)


def _handles(func: str, blocks: list[BlockRealize]) -> list[BlockRV]:
    return [BlockRV(b.block.name_hint, func) for b in blocks]


@primitive(changes=False)
def get_child_blocks(s: State, block_or_loop: Place) -> list[BlockRV]:
    """The blocks directly inside a block or loop."""
    if isinstance(block_or_loop, BlockRV):
        return _handles(block_or_loop.func, blocks_of(s.block(block_or_loop)))
    return _handles(block_or_loop.func, nearest_blocks(s.loop(block_or_loop).body))


def siblings(s: State, block: BlockRV) -> list[BlockRealize]:
    """The blocks of the scope that a block stands in, in order."""
    above = scope_path(s.block_path(block))
    if not above:
        return [s.block(block)]
    scope = above[-1]
    assert isinstance(scope, BlockRealize)
    return blocks_of(scope)


@primitive(changes=False)
def get_producers(s: State, block: BlockRV) -> list[BlockRV]:
    """The blocks of the same scope that run before this one and write what it reads or writes."""
    return _handles(block.func, scope_of(s, block).producers(s.block(block)))


@primitive(changes=False)
def get_consumers(s: State, block: BlockRV) -> list[BlockRV]:
    """The blocks of the same scope that run after this one and read or write what it writes."""
    return _handles(block.func, scope_of(s, block).consumers(s.block(block)))


@primitive(changes=False)
def get_output_blocks(s: State, scope_block: BlockRV) -> list[BlockRV]:
    """The blocks in a block, at any depth, that write a buffer which outlives that block."""
    scope = s.block(scope_block)
    inner: list[BlockRealize] = []
    own = set(scope.block.alloc_buffers)

    def visit(body: Stmt) -> None:
        for b in nearest_blocks(body):
            inner.append(b)
            own.update(b.block.alloc_buffers)
            visit(b.block.body)

    visit(scope.block.body)
    return _handles(scope_block.func, [b for b in inner if any(w.buffer not in own for w in b.block.writes)])
