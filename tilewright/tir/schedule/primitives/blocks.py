"""Primitives that move the computation of a block: inline it, or compute it inside a loop of its consumer or producer."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import IntImm, PrimExpr, Var, const
from tilewright.ir.node import map_children, replace, walk
from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    Stmt,
)
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.annotate import get_consumers, get_producers
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, Path, State, nearest_blocks, with_regions

__all__ = ["compute_inline", "reverse_compute_inline"]


# ---- inlining --------------------------------------------------------------------------------------------------------


def _scope_of(path: Path) -> BlockRealize:
    return next(p for p in reversed(path[:-1]) if isinstance(p, BlockRealize))


def _is_temp(s: State, block: BlockRV, b: Buffer) -> bool:
    """Does the buffer live in a block of the function (and not with the caller)?"""
    return b not in set(s.func(block.func).buffer_map.values())


def _drop_buffer(s: State, func: str, b: Buffer) -> None:
    """Remove the allocation of a buffer that nothing uses any more."""

    def visit(x: Any) -> Any:
        if isinstance(x, Block) and b in x.alloc_buffers:
            x = replace(x, alloc_buffers=tuple(a for a in x.alloc_buffers if a is not b))
        return map_children(x, lambda c: visit(c) if isinstance(c, Stmt) else c)

    s.set_body(func, visit(s.func(func).body))


def _nest(path: Path) -> Path:
    """The way to the outermost loop that holds only this block (or to the block itself)."""
    end = len(path)
    while end >= 2 and isinstance(path[end - 2], For):
        end -= 1
    return path[:end]


def _lone_store(s: State, block: BlockRV, what: str) -> BufferStore:
    realize = s.block(block)
    body = realize.block.body
    if realize.block.init is not None or not isinstance(body, BufferStore):
        reason = "it is a reduction" if realize.block.init is not None else "its body is not one store"
        raise fail("TW0421", f"cannot {what} the block {block.name!r}: {reason}", s.func(block.func), realize)
    return body


def _distinct_iters(indices: tuple[PrimExpr, ...], block: Block) -> bool:
    own = {iv.var for iv in block.iter_vars}
    seen: set[Var] = set()
    for i in indices:
        if isinstance(i, Var) and i in own and i not in seen:
            seen.add(i)
        elif not (isinstance(i, IntImm) and i.value == 0):
            return False
    return True


def _replace_blocks(s: State, func: str, table: dict[int, BlockRealize]) -> None:
    def visit(x: Any) -> Any:
        found = table.get(id(x))
        return found if found is not None else map_children(x, lambda c: visit(c) if isinstance(c, Stmt) else c)

    s.set_body(func, visit(s.func(func).body))


@primitive
def compute_inline(s: State, block: BlockRV) -> None:
    """Compute an elementwise block where it is read, and remove it: its consumers get its expression.

    Raises ScheduleError TW0421 for a reduction, a block whose store is not at its own axes, or one whose result leaves the
    function.
    """
    store = _lone_store(s, block, "inline")
    path = s.block_path(block)
    realize = path[-1]
    assert isinstance(realize, BlockRealize)
    if not _is_temp(s, block, store.buffer):
        raise fail(
            "TW0421", f"cannot inline the block {block.name!r}: it writes {store.buffer.name}, a result", s.func(block.func), realize
        )  # fmt: skip
    if not _distinct_iters(store.indices, realize.block):
        raise fail(
            "TW0421", f"cannot inline the block {block.name!r}: it does not store at its own axes", s.func(block.func), realize
        )  # fmt: skip
    table: dict[int, BlockRealize] = {}
    for user in nearest_blocks(_scope_of(path).block.body):
        if user is realize or not any(isinstance(x, BufferLoad) and x.buffer is store.buffer for x in walk(user.block)):
            continue
        table[id(user)] = replace(user, block=with_regions(_inlined(user.block, store)))
    s.put(block.func, _nest(path), None)
    _replace_blocks(s, block.func, table)
    _drop_buffer(s, block.func, store.buffer)


def _inlined(user: Block, store: BufferStore) -> Block:
    def visit(x: Any) -> Any:
        if isinstance(x, BufferLoad) and x.buffer is store.buffer:
            mapping = {v: visit(i) for v, i in zip(store.indices, x.indices, strict=True) if isinstance(v, Var)}
            return substitute(store.value, mapping)
        return x if x.identity else map_children(x, visit)

    return replace(user, body=visit(user.body), init=None if user.init is None else visit(user.init))


@primitive
def reverse_compute_inline(s: State, block: BlockRV) -> None:
    """Compute an elementwise consumer where its input is made: the producer stores the consumer's result instead.

    Raises ScheduleError TW0421 where the block is no elementwise consumer of one producer, or the producer is a reduction.
    """
    store = _lone_store(s, block, "inline")
    path = s.block_path(block)
    realize = path[-1]
    assert isinstance(realize, BlockRealize)
    makers = get_producers(s, block)
    if len(makers) != 1:
        raise fail(
            "TW0421", f"the block {block.name!r} has {len(makers)} producers, not one", s.func(block.func), realize
        )
    maker = s.block(makers[0])
    made = _lone_store(s, makers[0], "inline into")
    loads = [x for x in walk(store.value) if isinstance(x, BufferLoad) and x.buffer is made.buffer]
    same = all(
        len(x.indices) == len(loads[0].indices) and all(a is b for a, b in zip(x.indices, loads[0].indices))
        for x in loads
    )
    if not loads or not same or not _distinct_iters(loads[0].indices, realize.block):
        raise fail(
            "TW0421", f"the block {block.name!r} does not read {made.buffer.name} elementwise", s.func(block.func), realize
        )  # fmt: skip
    if len(get_consumers(s, makers[0])) != 1 or not _is_temp(s, block, made.buffer):
        raise fail("TW0421", f"{made.buffer.name} is needed elsewhere too", s.func(block.func), maker)
    covered = {i for i in loads[0].indices if isinstance(i, Var)}
    if any(iv.var not in covered and not _unit(iv) for iv in realize.block.iter_vars):
        raise fail("TW0421", f"the block {block.name!r} has axes its input does not have", s.func(block.func), realize)
    mapping: dict[Any, Any] = {v: i for v, i in zip(loads[0].indices, made.indices, strict=True) if isinstance(v, Var)}
    for iv in realize.block.iter_vars:
        mapping.setdefault(iv.var, const(0, iv.var.dtype))

    def visit(x: Any) -> Any:
        if isinstance(x, BufferLoad) and x.buffer is made.buffer:
            return made.value
        return x if x.identity else map_children(x, visit)

    value = visit(substitute(store.value, mapping))
    new = BufferStore(store.buffer, value, tuple(substitute(i, mapping) for i in store.indices))
    s.put(block.func, _nest(path), None)
    _replace_blocks(s, block.func, {id(maker): replace(maker, block=with_regions(replace(maker.block, body=new)))})
    _drop_buffer(s, block.func, made.buffer)


def _unit(iv: IterVar) -> bool:
    return iv.dom is not None and isinstance(iv.dom.extent, IntImm) and iv.dom.extent.value == 1
