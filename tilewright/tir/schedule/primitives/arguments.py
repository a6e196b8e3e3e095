"""What the primitives on layouts take as arguments, brought into the form that a trace keeps.

A buffer of a block may be given as ("read" | "write", index), by its name or as itself; a map as a Python function; a value
of padding as a number, an expression or a function of the new indices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.expr import FloatImm, IntImm, PrimExpr
from tilewright.ir import dtype as dt
from tilewright.tir.index_map import IndexMap
from tilewright.tir.ir import Buffer
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.state import BlockRV, State

__all__ = ["as_block", "as_buffer", "as_index_map", "buffer_of", "index_dtype"]


def as_block(s: State, block: BlockRV | str) -> BlockRV:
    """A block by its handle or its name."""
    return BlockRV(block, s.func_name) if isinstance(block, str) else block


def as_buffer(s: State, block: BlockRV, buffer: Any) -> tuple[str, int]:
    """("read" | "write", index) of a buffer of a block. Raises ScheduleError TW0482 where there is no such one, or a name
    stands for two."""
    realize = s.block(block)
    sides = {"read": realize.block.reads, "write": realize.block.writes}
    options = [f"({kind!r}, {i}) = {r.buffer.name}" for kind, rs in sides.items() for i, r in enumerate(rs)]
    if isinstance(buffer, (tuple, list)) and len(buffer) == 2:
        kind, index = buffer
        kind = {"read": "read", "write": "write", 0: "read", 1: "write"}.get(kind)
        if kind is not None and isinstance(index, int) and 0 <= index < len(sides[kind]):
            return kind, index
    elif isinstance(buffer, (str, Buffer)):
        found = [
            (kind, i, r.buffer)
            for kind, rs in sides.items()
            for i, r in enumerate(rs)
            if r.buffer is buffer or r.buffer.name == buffer
        ]
        if len({id(b) for _, _, b in found}) > 1:
            raise fail(
                "TW0482", f"two buffers of the block {block.name!r} are called {buffer!r}", s.func(block.func), realize, choices=options
            )  # fmt: skip
        if found:
            return found[0][0], found[0][1]
    name = buffer.name if isinstance(buffer, Buffer) else buffer
    raise fail(
        "TW0482", f"the block {block.name!r} has no buffer {name!r}", s.func(block.func), realize, choices=options
    )


def buffer_of(s: State, block: BlockRV, where: tuple[str, int]) -> Buffer:
    """The buffer at ("read" | "write", index) of a block."""
    b = s.block(block).block
    return (b.reads if where[0] == "read" else b.writes)[where[1]].buffer


def index_dtype(s: State, block: BlockRV) -> str:
    """The type of a block's iterators: int64 where one has it."""
    b = s.block(block).block
    dtypes = [iv.var.dtype for iv in b.iter_vars] + [
        x.dtype for r in (*b.reads, *b.writes) for x in r.buffer.shape if not b.iter_vars
    ]
    return "int64" if "int64" in dtypes else "int32"


def as_index_map(index_map: Any, ndim: int, dtype: str) -> IndexMap:
    """An index map of a function, its separators kept; a map stays as it is."""
    if isinstance(index_map, IndexMap):
        return index_map
    found, separators = IndexMap.from_func_with_separators(index_map, ndim, index_dtype=dtype)
    return found if not separators else found.with_separators(separators)


def as_padding(s: State, block: BlockRV, value: Any, buffer: Buffer, rank: int, dtype: str) -> IndexMap | None:
    """The value of the padding as a map of the new indices. Raises ScheduleError TW0483 where its type is another than the
    buffer's, or it reads a buffer."""
    if value is None:
        return None
    if isinstance(value, IndexMap):
        found = value
    else:
        found = IndexMap.from_func(_function(s, block, value, buffer), rank, index_dtype=dtype)
    realize = s.block(block)
    if len(found.final_indices) != 1:
        raise fail("TW0483", f"the padding has {len(found.final_indices)} values, not one", s.func(block.func), realize)
    e = found.final_indices[0]
    if e.dtype != buffer.dtype:
        raise fail(
            "TW0483",
            f"the padding {e} is of type {e.dtype}, the buffer {buffer.name} of {buffer.dtype}",
            s.func(block.func),
            realize,
            hint=f"give a value of type {buffer.dtype}",
        )
    reads = _buffers(e)
    if reads:
        raise fail(
            "TW0483", f"the padding of {buffer.name} may not depend on what {reads[0].name} holds", s.func(block.func), realize
        )  # fmt: skip
    return found


def _function(s: State, block: BlockRV, value: Any, buffer: Buffer) -> Callable[..., Any]:
    if callable(value) and not isinstance(value, PrimExpr):
        return value
    e: PrimExpr
    if isinstance(value, PrimExpr):
        e = value
    elif isinstance(value, float) and dt.is_float(buffer.dtype):
        e = FloatImm(buffer.dtype, value)
    elif isinstance(value, int) and not dt.is_float(buffer.dtype):
        e = IntImm(buffer.dtype, int(value))
    else:
        raise fail(
            "TW0483",
            f"the padding {value!r} does not fit the buffer {buffer.name} of {buffer.dtype}",
            s.func(block.func),
            s.block(block),
            hint="write 0.0 for a buffer of floats, 0 for one of integers",
        )
    return lambda *_: e


def _buffers(e: Any) -> list[Buffer]:
    from tilewright.ir.node import walk
    from tilewright.tir.ir import BufferLoad

    return [x.buffer for x in walk(e) if isinstance(x, BufferLoad)]
