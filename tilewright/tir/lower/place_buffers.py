"""Buffers of blocks go where they are used, as small as what is used of them; loops that pragmas ask for are unrolled.

The jobs of the named passes `PlanAndUpdateBufferAllocationLocation`, `CompactBufferAllocation` and `UnrollLoop`, done only where a
function has such buffers or pragmas.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.node import children
from tilewright.tir.ir import AttrStmt, Block, BlockRealize, For, PrimFunc, Stmt

__all__ = ["EXPLICIT", "MAX_STEP", "place_buffers", "unroll_pragmas"]

MAX_STEP, EXPLICIT = "pragma_auto_unroll_max_step", "pragma_unroll_explicit"
"""The annotations (or attribute keys) of the pragmas on unrolling."""


def place_buffers(f: PrimFunc) -> PrimFunc:
    """The function with its block-allocated buffers placed and shrunk; the same object where it has none."""
    if not _any(f.body, _allocates):
        return f
    from tilewright.tir.transform.compact_buffers import compact_buffers
    from tilewright.tir.transform.plan_buffers import plan_buffers

    return compact_buffers(plan_buffers(f))


def unroll_pragmas(f: PrimFunc) -> PrimFunc:
    """The function with the loops unrolled that pragmas ask for; the same object where there are no pragmas."""
    if not _any(f.body, _pragma):
        return f
    from tilewright.tir.transform.unroll_loop import UnrollOptions, unroll_loops

    return unroll_loops(f, UnrollOptions())


def _allocates(s: Stmt) -> bool:
    return isinstance(s, Block) and bool(s.alloc_buffers)


def _pragma(s: Stmt) -> bool:
    if isinstance(s, For):
        return bool(s.annotations) and (MAX_STEP in s.annotations or EXPLICIT in s.annotations)
    return isinstance(s, AttrStmt) and s.attr_key in (MAX_STEP, EXPLICIT)


def _any(s: Stmt, test: Callable[[Stmt], bool]) -> bool:
    """Does the test hold for a statement inside?"""
    todo: list[Stmt] = [s]
    while todo:
        x = todo.pop()
        if test(x):
            return True
        if isinstance(x, BlockRealize):
            todo.append(x.block)
        else:
            todo.extend(c for c in children(x) if isinstance(c, Stmt))
    return False
