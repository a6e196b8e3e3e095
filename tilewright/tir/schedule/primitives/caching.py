"""Primitives that put a copy of a buffer between its maker and its users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith.expr import IntImm, PrimExpr, Var, const
from tilewright.ir.node import map_children, replace
from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    ForKind,
    IterVar,
    Range,
    SeqStmt,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, Path, State, nearest_blocks

__all__ = ["cache_read", "cache_write", "set_scope"]


def _buffer_at(s: State, block: BlockRV, index: Any, kind: str) -> Buffer:
    """The buffer of a block's reads or writes by its position, its name, or itself."""
    realize = s.block(block)
    regions = realize.block.reads if kind == "reads" else realize.block.writes
    for i, r in enumerate(regions):
        if (
            index is r.buffer
            or (isinstance(index, str) and r.buffer.name == index)
            or (isinstance(index, int) and i == index)
        ):
            return r.buffer
    raise fail(
        "TW0451",
        f"the block {block.name!r} has no buffer {index!r} among its {kind}",
        s.func(block.func),
        realize,
        choices=[f"{i} ({r.buffer.name})" for i, r in enumerate(regions)],
    )


def _copy_block(s: State, func: str, source: Buffer, dest: Buffer) -> tuple[Stmt, str]:
    """Loops with a block that copies one buffer into another of the same shape."""
    name = s.unique(func, dest.name if dest.scope() != "global" or "_" in dest.name else source.name)
    loops = [Var(f"ax{i}", n.dtype) for i, n in enumerate(dest.shape)]
    axes = [Var(f"v{i}", n.dtype) for i, n in enumerate(dest.shape)]
    point = tuple(Range(v, const(1, v.dtype)) for v in axes)
    iters = tuple(IterVar(Range(const(0, v.dtype), n), v) for v, n in zip(axes, dest.shape, strict=True))
    store = BufferStore(dest, BufferLoad(source, tuple(axes)), tuple(axes))
    block = Block(iters, (BufferRegion(source, point),), (BufferRegion(dest, point),), name, store)
    out: Stmt = BlockRealize(tuple(loops), IntImm("bool", 1), block)
    for v, n in zip(reversed(loops), reversed(dest.shape), strict=True):
        out = For(v, const(0, v.dtype), n, ForKind.SERIAL, out)
    return out, name


def _scope_path(path: Path) -> Path:
    """The way to the block that the block at the end of `path` stands in."""
    for i in range(len(path) - 2, -1, -1):
        if isinstance(path[i], BlockRealize):
            return path[: i + 1]
    raise AssertionError("a block outside the root")


def _insert(s: State, func: str, path: Path, new: Stmt, buffer: Buffer, after: bool, old: Buffer) -> None:
    """Put a statement before or after the outermost statement (within the scope) that holds the block at the end of
    `path`, and allocate `buffer` in the scope."""
    scope = _scope_path(path)
    realize = scope[-1]
    assert isinstance(realize, BlockRealize)
    body = realize.block.body
    items = list(body.seq) if isinstance(body, SeqStmt) else [body]
    holder = next(i for i, x in enumerate(items) if any(x is p for p in path))
    for b in nearest_blocks(items[holder]):
        others = b.block.reads if after else b.block.writes
        mine = b.block.writes if after else ()
        if any(r.buffer is old for r in others) and not any(w.buffer is old for w in mine):
            raise fail(
                "TW0453",
                f"cannot copy {old.name} {'after' if after else 'before'} the nest of {path[-1].block.name_hint!r}: "  # pyright: ignore
                f"{b.block.name_hint!r} in the same nest {'reads' if after else 'writes'} it",
                s.func(func),
                b,
                hint="make caches before compute_at and reverse_compute_at join the nests",
            )
    items.insert(holder + 1 if after else holder, new)
    block = replace(realize.block, body=seq(*items), alloc_buffers=(*realize.block.alloc_buffers, buffer))
    s.put(func, scope, replace(realize, block=block))


def _rename_in(s: State, func: str, blocks: Sequence[BlockRealize], old: Buffer, new: Buffer) -> None:
    chosen = {id(b) for b in blocks}

    def visit(x: Any) -> Any:
        if id(x) in chosen:
            return replace(x, block=substitute(x.block, {old: new}))
        return map_children(x, lambda c: visit(c) if isinstance(c, Stmt) else c)

    s.set_body(func, visit(s.func(func).body))


def _same_shape(b: Buffer, scope: str) -> Buffer:
    shape: tuple[PrimExpr, ...] = b.shape
    return decl_buffer(shape, b.dtype, f"{b.name}_{scope}", scope=scope)


@primitive
def cache_write(
    s: State,
    block: BlockRV,
    write_buffer_index: int | str | Buffer,
    storage_scope: str,
    consumer_blocks: Sequence[BlockRV] | None = None,
) -> BlockRV:
    """Let a block write into a new buffer in `storage_scope`, and copy that to the old one afterwards. Returns the block that
    copies; `reverse_compute_at` moves it close."""
    del consumer_blocks
    old = _buffer_at(s, block, write_buffer_index, "writes")
    new = _same_shape(old, storage_scope)
    copy, name = _copy_block(s, block.func, new, old)
    path = s.block_path(block)
    writers = [b for b in nearest_blocks(_scope(path).block.body) if any(w.buffer is old for w in b.block.writes)]
    _insert(s, block.func, _last(s, block.func, writers), copy, new, True, old)
    _rename_in(s, block.func, writers, old, new)
    return BlockRV(name, block.func)


def _scope(path: Path) -> BlockRealize:
    found = _scope_path(path)[-1]
    assert isinstance(found, BlockRealize)
    return found


def _last(s: State, func: str, blocks: Sequence[BlockRealize]) -> Path:
    return s.block_path(BlockRV(blocks[-1].block.name_hint, func))


@primitive
def cache_read(
    s: State,
    block: BlockRV,
    read_buffer_index: int | str | Buffer,
    storage_scope: str,
    consumer_blocks: Sequence[BlockRV] | None = None,
) -> BlockRV:
    """Copy a buffer that a block reads into a new one in `storage_scope` first, and let the block (with `consumer_blocks`,
    these too) read that. Returns the block that copies; `compute_at` moves it close."""
    old = _buffer_at(s, block, read_buffer_index, "reads")
    new = _same_shape(old, storage_scope)
    copy, name = _copy_block(s, block.func, old, new)
    copy = _rename_block(copy, s.unique(block.func, new.name))
    name = s.unique(block.func, new.name)
    readers = [s.block(block), *(s.block(b) for b in consumer_blocks or ())]
    order = nearest_blocks(_scope(s.block_path(block)).block.body)
    first = next(b for b in order if any(b is r for r in readers))
    _insert(s, block.func, s.block_path(BlockRV(first.block.name_hint, block.func)), copy, new, False, old)
    _rename_in(s, block.func, readers, old, new)
    return BlockRV(name, block.func)


def _rename_block(nest: Stmt, name: str) -> Stmt:
    if isinstance(nest, For):
        return replace(nest, body=_rename_block(nest.body, name))
    assert isinstance(nest, BlockRealize)
    return replace(nest, block=replace(nest.block, name_hint=name))


@primitive
def set_scope(s: State, block: BlockRV, buffer_index: int | str | Buffer, storage_scope: str) -> None:
    """Let the buffer that a block writes live in another memory (`local`, `shared`, ...)."""
    old = _buffer_at(s, block, buffer_index, "writes")
    if old in set(s.func(block.func).buffer_map.values()):
        raise fail(
            "TW0452", f"{old.name} belongs to the caller: its scope cannot change", s.func(block.func), s.block(block)
        )
    new = decl_buffer(old.shape, old.dtype, old.name, scope=storage_scope)
    s.set_body(block.func, substitute(s.func(block.func).body, {old: new}))
