"""Blocks whose bodies have changed: what they declare to read and write is found anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.node import map_children, replace
from tilewright.tir.analysis.block_access import block_access_regions
from tilewright.tir.ir import Block, Buffer, BufferRegion
from tilewright.tir.schedule.primitives.flow import region_of, uses_pointer

__all__ = ["renew_block", "renew_regions"]

EXPLICIT = {"reads": "explicit_read_region", "writes": "explicit_write_region"}
"""Annotations that say which regions of a block were given by hand."""


def renew_regions(n: Any, change: Callable[[Any], Any], gone: set[Buffer] | None = None) -> Any:
    """A statement with its parts changed by `change`, and the regions of the blocks that this changed found anew.

    `gone` are buffers that exist no more: blocks that still declare them are renewed too.
    """

    def visit(x: Any) -> Any:
        if x.identity:
            return x
        if not isinstance(x, Block):
            new = map_children(x, visit)
            return _own(new, change)
        body = change(visit(x.body))
        init = None if x.init is None else change(visit(x.init))
        stale = gone is not None and any(r.buffer in gone for r in (*x.reads, *x.writes))
        if body is x.body and init is x.init and not stale:
            return x
        return renew_block(x, replace(x, body=body, init=init))

    return visit(n)


def _own(x: Any, change: Callable[[Any], Any]) -> Any:
    """The expressions of a statement outside blocks (bindings, conditions, bounds) changed."""
    from tilewright.arith.expr import PrimExpr
    from tilewright.tir.ir import Stmt

    if not isinstance(x, Stmt):
        return x
    return map_children(x, lambda c: change(c) if isinstance(c, PrimExpr) else c)


def renew_block(old: Block, new: Block) -> Block:
    """The block with the regions that its accesses show, in their order. Regions given by hand stay, and so do those of
    buffers that are used as pointers, as far as they were declared."""
    try:
        reads, writes = block_access_regions(new)
    except ValueError:
        return new
    return replace(
        new, reads=_merged(old, old.reads, reads, new, "reads"), writes=_merged(old, old.writes, writes, new, "writes")
    )


def _merged(
    old: Block, declared: Sequence[BufferRegion], found: Sequence[BufferRegion], new: Block, kind: str
) -> tuple[BufferRegion, ...]:
    by_hand = {int(i) for i in old.annotations.get(EXPLICIT[kind], ())}
    kept = {r.buffer: r for i, r in enumerate(declared) if i in by_hand}
    pointers = [r for r in declared if uses_pointer(new.body, r.buffer)]
    out: list[BufferRegion] = []
    for r in found:
        pointer = region_of(pointers, r.buffer)
        if pointer is not None:
            out.append(pointer)
        elif _escapes(new, r.buffer):
            continue
        else:
            out.append(kept.get(r.buffer, r))
    first = [p for p in pointers if region_of(out, p.buffer) is None]
    return (*first, *out)


def _escapes(new: Block, buffer: Buffer) -> bool:
    return uses_pointer(new.body, buffer)
