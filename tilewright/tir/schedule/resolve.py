"""Blocks and buffers by name: the one place where the arguments of primitives are brought into the form they work with."""

from __future__ import annotations

from typing import Any

from tilewright.tir.ir import Buffer
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.registry import Primitive
from tilewright.tir.schedule.state import BlockRV, State

__all__ = ["named_buffer", "resolve_blocks"]

_BY_PRIMITIVE: dict[str, tuple[str, ...]] = {}


def _block_parameters(p: Primitive) -> tuple[str, ...]:
    """The parameters that are blocks, or lists of blocks."""
    found = _BY_PRIMITIVE.get(p.name)
    if found is None:
        found = tuple(
            q.name
            for q in p.signature.parameters.values()
            if any(word in str(q.annotation) for word in ("BlockRV", "Place"))
        )
        _BY_PRIMITIVE[p.name] = found
    return found


def resolve_blocks(sch: Any, p: Primitive, arguments: dict[str, Any]) -> None:
    """Look up the blocks that are given by name; the look-ups are steps of the trace."""
    for name in _block_parameters(p):
        value = arguments.get(name)
        if isinstance(value, str):
            arguments[name] = sch.get_block(value)
        elif isinstance(value, (list, tuple)) and any(isinstance(v, str) for v in value):  # pyright: ignore
            arguments[name] = [sch.get_block(v) if isinstance(v, str) else v for v in value]  # pyright: ignore


def named_buffer(s: State, arguments: dict[str, Any]) -> None:
    """Bring the argument `buffer` of a primitive with a block into the form ("read" | "write", place).

    It may be a name, a Buffer, or a pair of "read"/"write" and a place. Raises ScheduleError TW0451 where the block has
    no such buffer, or several.
    """
    given, block = arguments["buffer"], arguments.get("block")
    if not isinstance(block, BlockRV):
        return
    realize = s.block(block)
    tables = {"read": realize.block.reads, "write": realize.block.writes}
    if isinstance(given, (str, Buffer)):
        found: dict[Buffer, tuple[str, int]] = {}
        for kind, regions in tables.items():
            for i, r in enumerate(regions):
                if r.buffer is given or r.buffer.name == given:
                    found[r.buffer] = (kind, i)
        if len(found) == 1:
            arguments["buffer"] = next(iter(found.values()))
            return
        what = given if isinstance(given, str) else given.name
    elif isinstance(given, (tuple, list)) and len(given) == 2 and given[0] in tables:  # pyright: ignore
        arguments["buffer"] = (given[0], int(given[1]))  # pyright: ignore[reportUnknownArgumentType]
        if 0 <= int(given[1]) < len(tables[given[0]]):  # pyright: ignore
            return
        what = f"{given[0]} {given[1]}"
    else:
        raise TypeError(f"a buffer is given by name, as ('read' | 'write', place), or itself; not {given!r}")
    raise fail(
        "TW0451",
        f"the block {block.name!r} has no buffer {what!r}, or more than one",
        s.func(block.func),
        realize,
        choices=[f"({k!r}, {i}) ({r.buffer.name})" for k, regions in tables.items() for i, r in enumerate(regions)],
    )
