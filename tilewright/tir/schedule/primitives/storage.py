"""Primitives that change what a buffer is: where it lives, how its rows are aligned, what its elements are, which of its
dimensions stay apart in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith.expr import IntImm, cast, pointer_var
from tilewright.ir import dtype as dt
from tilewright.ir.node import map_children, replace
from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import Block, BlockRealize, Buffer, BufferLoad, BufferStore
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.arguments import as_buffer, buffer_of
from tilewright.tir.schedule.primitives.flow import buffer_at, check_scope, find_block
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, State

__all__ = ["set_axis_separator", "set_scope", "storage_align", "unsafe_set_dtype"]

DIM_ALIGN = "buffer_dim_align"
"""The annotation of a block that says how the buffers that it writes are aligned: [buffer, axis, factor, offset] each."""


def _number(value: Any) -> int:
    return value.value if isinstance(value, IntImm) else int(value)


@primitive
def storage_align(
    s: State, block: BlockRV, buffer_index: int | str | Buffer, axis: int, factor: int, offset: int
) -> None:
    """Let the stride of dimension `axis` of the buffer that a block writes be k*factor + offset, for some k.

    It is recorded as the annotation `buffer_dim_align`, which counts where the buffer is given memory. Raises ScheduleError
    TW0451 (no such buffer), TW0465 (not a buffer of the function's own, no such axis, no positive factor, an annotation that
    is none).
    """
    path, realize = find_block(s, block)
    index, buffer = buffer_at(s, block, buffer_index, "writes")
    root = s.func(block.func)
    if not any(isinstance(p, BlockRealize) and buffer in p.block.alloc_buffers for p in path):
        raise fail("TW0465", f"cannot align {buffer.name}: it is not allocated around {block.name!r}", root, realize)
    axis, factor, offset = _number(axis), _number(factor), _number(offset)
    if not -buffer.ndim <= axis < buffer.ndim:
        raise fail("TW0465", f"{buffer.name} has {buffer.ndim} dimensions, there is no axis {axis}", root, realize)
    if factor <= 0:
        raise fail("TW0465", f"the factor must be positive, got {factor}", root, realize)
    entries = realize.block.annotations.get(DIM_ALIGN, ())
    well_formed = isinstance(entries, (list, tuple)) and all(
        isinstance(e, (list, tuple)) and len(e) == 4  # pyright: ignore[reportUnknownArgumentType]
        for e in entries  # pyright: ignore[reportUnknownVariableType]
    )
    if not well_formed:
        raise fail(
            "TW0465",
            f"the annotation {DIM_ALIGN} of {block.name!r} is no list of [buffer, axis, factor, offset]: {entries}",
            root,
            realize,
        )
    axis %= buffer.ndim
    rows: list[list[int]] = [[_number(x) for x in e] for e in entries]
    same = next((r for r in rows if r[:2] == [index, axis]), None)
    if same is None:
        rows.append([index, axis, factor, offset])
    else:
        same[2:] = [factor, offset]
    noted = {**realize.block.annotations, DIM_ALIGN: tuple(tuple(r) for r in rows)}
    s.put(block.func, path, replace(realize, block=replace(realize.block, annotations=noted)))


# ---- another buffer in its place -------------------------------------------------------------------------------------


def _owned(s: State, block: BlockRV, buffer: Buffer, code: str, what: str) -> None:
    """Raise ScheduleError unless a block of the function allocates the buffer."""
    path, realize = find_block(s, block)
    if not any(isinstance(p, BlockRealize) and buffer in p.block.alloc_buffers for p in path):
        raise fail(
            code,
            f"{buffer.name} belongs to the caller: its {what} cannot change",
            s.func(block.func),
            realize,
            hint="cache_write gives the block a buffer of its own to write",
        )


def _views(n: Any, adapt: Callable[[Buffer, Buffer, Buffer], Buffer], table: dict[Any, Any]) -> None:
    """Note new buffers for all views of those in `table`, and views of views."""

    def visit(x: Any) -> None:
        if isinstance(x, Block):
            for m in x.match_buffers:
                source = m.source.buffer
                if source in table and m.buffer not in table:
                    new = adapt(m.buffer, source, table[source])
                    table[m.buffer] = new
                    table.setdefault(m.buffer.data, new.data)
        if not x.identity:
            map_children(x, lambda c: visit(c) or c)

    visit(n)


def _swap(
    s: State, func: str, old: Buffer, new: Buffer, adapt: Callable[[Buffer, Buffer, Buffer], Buffer]
) -> dict[Any, Any]:
    """Replace a buffer of the function, and its views; the table of what was replaced."""
    f = s.func(func)
    table: dict[Any, Any] = {old: new, old.data: new.data}
    _views(f.body, adapt, table)
    table = {k: v for k, v in table.items() if k is not v}
    body = substitute(f.body, table)
    if old in f.buffer_map.values():
        params = {p: new if b is old else b for p, b in f.buffer_map.items()}
        s.mod.update_func(s.mod.get_global_var(func), replace(f, body=body, buffer_map=params))
    else:
        s.set_body(func, body)
    return table


def _renewed(b: Buffer, dtype: str, scope: str, suffix: str = "") -> Buffer:
    """A buffer like `b` of another type or in another memory."""
    name = b.name + suffix
    return replace(b, data=pointer_var(name, dtype, scope), dtype=dtype, name=name)


@primitive
def set_scope(s: State, block: BlockRV, buffer_index: int | str | Buffer, storage_scope: str) -> None:
    """Let the buffer that a block writes live in another memory (`local`, `shared`, ...), with all views of it.

    Raises ScheduleError TW0451 (no such buffer), TW0452 (no such scope, or a buffer of the caller).
    """
    check_scope(s, block, storage_scope)
    _, old = buffer_at(s, block, buffer_index, "writes")
    _owned(s, block, old, "TW0452", "scope")
    if old.scope() == storage_scope:
        return

    def moved(b: Buffer) -> Buffer:
        return _renewed(b, b.dtype, storage_scope, f"_{storage_scope}")

    _swap(s, block.func, old, moved(old), lambda view, *_: moved(view))


@primitive
def unsafe_set_dtype(s: State, block: BlockRV, buffer_index: int | str | Buffer, dtype: str) -> None:
    """Let the elements of the buffer that a block writes be of another type: what is stored is converted to it, what is read
    back from it. Unsafe, for results may lose precision.

    Raises ScheduleError TW0451 (no such buffer), TW0466 (a buffer of the caller, or one used as a pointer, or no dtype).
    """
    _, old = buffer_at(s, block, buffer_index, "writes")
    _owned(s, block, old, "TW0466", "dtype")
    try:
        dt.bits(dtype)
    except (ValueError, KeyError, TypeError):
        raise fail("TW0466", f"{dtype!r} is no dtype", s.func(block.func), s.block(block)) from None
    if old.dtype == dtype:
        return
    table = _swap(
        s,
        block.func,
        old,
        _renewed(old, dtype, old.scope()),
        lambda view, *_: _renewed(view, dtype, view.scope()),
    )
    changed = {b: o for o, b in table.items() if isinstance(b, Buffer)}

    def visit(x: Any) -> Any:
        if x.identity:
            return x
        if isinstance(x, BufferLoad):
            x = map_children(x, visit)
            was = changed.get(x.buffer)
            return x if was is None else cast(x, dt.with_lanes(was.dtype, dt.lanes(x.dtype)))
        x = map_children(x, visit)
        if isinstance(x, BufferStore) and x.buffer in changed:
            return replace(x, value=cast(x.value, dt.with_lanes(dtype, dt.lanes(x.value.dtype))))
        return x

    s.set_body(block.func, visit(s.func(block.func).body))


def _prepare(s: State, arguments: dict[str, Any]) -> None:
    block = arguments["block"]
    if isinstance(block, str):
        block = arguments["block"] = BlockRV(block, s.func_name)
    arguments["buffer"] = as_buffer(s, block, arguments["buffer"])


@primitive(prepare=_prepare)
def set_axis_separator(
    s: State, block: BlockRV, buffer: tuple[str, int] | str | Buffer, axis_separators: Sequence[int] | None
) -> None:
    """Say between which dimensions of a buffer the memory is cut: dimensions on both sides of a separator become
    different dimensions of what is allocated. `buffer`: ("read" | "write", index), a name, or the buffer.

    Raises ScheduleError TW0482 (no such buffer), TW0465 (separators that do not fit).
    """
    assert isinstance(buffer, tuple)
    old = buffer_of(s, block, buffer)
    wanted = tuple(_number(x) for x in axis_separators or ())
    if list(wanted) != sorted(wanted) or any(not 0 <= x <= old.ndim for x in wanted):
        raise fail(
            "TW0465",
            f"separators of {old.name} must rise from 0 to {old.ndim}, got {list(wanted)}",
            s.func(block.func),
            s.block(block),
        )

    def adapt(view: Buffer, source: Buffer, new: Buffer) -> Buffer:
        lost = source.ndim - view.ndim
        return replace(view, axis_separators=tuple(max(x - lost, 0) for x in new.axis_separators))

    _swap(s, block.func, old, replace(old, axis_separators=wanted), adapt)
