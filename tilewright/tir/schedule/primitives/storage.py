"""Primitives that change what a buffer is: where it lives, how its rows are laid out, what its elements are."""

from __future__ import annotations

from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import Buffer, decl_buffer
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.flow import buffer_at, check_scope
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, State

__all__ = ["set_scope"]


@primitive
def set_scope(s: State, block: BlockRV, buffer_index: int | str | Buffer, storage_scope: str) -> None:
    """Let the buffer that a block writes live in another memory (`local`, `shared`, ...)."""
    check_scope(s, block, storage_scope)
    _, old = buffer_at(s, block, buffer_index, "writes")
    if old in set(s.func(block.func).buffer_map.values()):
        raise fail(
            "TW0452", f"{old.name} belongs to the caller: its scope cannot change", s.func(block.func), s.block(block)
        )
    new = decl_buffer(old.shape, old.dtype, old.name, scope=storage_scope)
    s.set_body(block.func, substitute(s.func(block.func).body, {old: new}))
