"""Where blocks stand and how they are connected: what the primitives that cache, move and inline ask before they act.

All of it is about the blocks of one scope: those that stand in a block and in no other block of it, in program order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.arith.expr import PrimExpr, Var
from tilewright.ir.node import children, walk
from tilewright.tir.ir import Block, BlockRealize, Buffer, BufferRegion, For, IterVar, Stmt
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.state import BlockRV, Path, State, nearest_blocks

__all__ = [
    "buffer_at", "check_complete", "check_not_output", "check_scope", "consumers", "find_block", "holds", "loops_below", "paths_of",
    "producers", "readers", "region_of", "scope_path", "uses_pointer", "why_not_complete", "why_unfinished", "why_not_reduction", "writers",
]  # fmt: skip


def scope_path(path: Path) -> Path:
    """The way to the block that the block (or loop) at the end of `path` stands in."""
    for i in range(len(path) - 2, -1, -1):
        if isinstance(path[i], BlockRealize):
            return path[: i + 1]
    raise AssertionError("outside the root block")


def scope_of(path: Path) -> BlockRealize:
    """The block that the block (or loop) at the end of `path` stands in."""
    found = scope_path(path)[-1]
    assert isinstance(found, BlockRealize)
    return found


def find_block(s: State, block: BlockRV) -> tuple[Path, BlockRealize]:
    """The way to a block, and its realization."""
    path = s.block_path(block)
    realize = path[-1]
    assert isinstance(realize, BlockRealize)
    return path, realize


def holds(outer: Stmt, inner: Stmt) -> bool:
    """Does the statement `inner` stand in `outer` (or is it)?"""
    return outer is inner or any(isinstance(c, Stmt) and holds(c, inner) for c in children(outer))


def paths_of(scope: Path) -> list[Path]:
    """The ways to all blocks of a scope, in program order."""
    out: list[Path] = []

    def visit(s: Stmt, above: Path) -> None:
        here = [*above, s]
        if isinstance(s, BlockRealize):
            out.append(here)
            return
        for c in children(s):
            if isinstance(c, Stmt):
                visit(c, here)

    realize = scope[-1]
    assert isinstance(realize, BlockRealize)
    top = [*scope, realize.block]
    if realize.block.init is not None:
        visit(realize.block.init, top)
    visit(realize.block.body, top)
    return out


def loops_below(path: Path, container: Stmt) -> list[For]:
    """The loops on the way from `container` (not counted) to the end of `path`, outermost first."""
    start = next(i for i, p in enumerate(path) if p is container)
    return [p for p in path[start + 1 :] if isinstance(p, For)]


def region_of(regions: Iterable[BufferRegion], buffer: Buffer) -> BufferRegion | None:
    """The region of a buffer among others."""
    return next((r for r in regions if r.buffer is buffer), None)


def _block(path: Path) -> Block:
    realize = path[-1]
    assert isinstance(realize, BlockRealize)
    return realize.block


def writers(everyone: Sequence[Path], buffer: Buffer) -> list[Path]:
    """The blocks that write a buffer."""
    return [p for p in everyone if region_of(_block(p).writes, buffer)]


def readers(everyone: Sequence[Path], buffer: Buffer) -> list[Path]:
    """The blocks that read a buffer."""
    return [p for p in everyone if region_of(_block(p).reads, buffer)]


def producers(everyone: Sequence[Path], me: Path) -> list[Path]:
    """The blocks before `me` that write what it reads."""
    read = {r.buffer for r in _block(me).reads}
    before = everyone[: _position(everyone, me)]
    return [p for p in before if any(w.buffer in read for w in _block(p).writes)]


def consumers(everyone: Sequence[Path], me: Path) -> list[Path]:
    """The blocks after `me` that read what it writes."""
    written = {w.buffer for w in _block(me).writes}
    after = everyone[_position(everyone, me) + 1 :]
    return [p for p in after if any(r.buffer in written for r in _block(p).reads)]


def _position(everyone: Sequence[Path], me: Path) -> int:
    return next(i for i, p in enumerate(everyone) if p[-1] is me[-1])


def uses_pointer(n: Any, buffer: Buffer) -> bool:
    """Is the memory of the buffer used as a bare pointer in `n`?"""
    if n is buffer.data:
        return True
    return not n.identity and any(uses_pointer(c, buffer) for c in children(n))


# ---- kinds of blocks -------------------------------------------------------------------------------------------------


def why_not_complete(everyone: Sequence[Path], me: Path) -> str | None:
    """What keeps a block from being complete: all axes spatial, the only writer of its results, not reading them."""
    block = _block(me)
    for iv in block.iter_vars:
        if iv.iter_type != IterVar.DataPar:
            return f"its axis {iv.var.name!r} is not spatial"
    other = _other_writer(everyone, me)
    if other is not None:
        return other
    read = {r.buffer for r in block.reads}
    for w in block.writes:
        if w.buffer in read:
            return f"it reads {w.buffer.name}, which it writes"
    return None


def why_not_reduction(everyone: Sequence[Path], me: Path) -> str | None:
    """What keeps a block from being a reduction: an init, axes spatial or reduce, the only writer of its results, which are
    stored at spatial axes only."""
    block = _block(me)
    if block.init is None:
        return "it has no init"
    reduced: set[Var] = set()
    for iv in block.iter_vars:
        if iv.iter_type not in (IterVar.DataPar, IterVar.CommReduce):
            return f"its axis {iv.var.name!r} is neither spatial nor reduce"
        if iv.iter_type == IterVar.CommReduce:
            reduced.add(iv.var)
    other = _other_writer(everyone, me)
    if other is not None:
        return other
    for w in block.writes:
        for r in w.region:
            for x in walk(r):
                if x in reduced:
                    return f"it stores to {w.buffer.name} at the reduced axis {x.name!r}"  # pyright: ignore
    return None


def _other_writer(everyone: Sequence[Path], me: Path) -> str | None:
    for w in _block(me).writes:
        for p in writers(everyone, w.buffer):
            if p[-1] is not me[-1]:
                return f"{w.buffer.name} is written by {_block(p).name_hint!r} too"
    return None


def check_complete(s: State, block: BlockRV, code: str, what: str, *, or_reduction: bool = False) -> None:
    """Raise ScheduleError where the block is no complete block (nor a reduction, if that will do)."""
    path, realize = find_block(s, block)
    everyone = paths_of(scope_path(path))
    why = why_not_complete(everyone, path)
    if why is None:
        return
    if or_reduction:
        second = why_not_reduction(everyone, path)
        if second is None:
            return
        raise fail(
            code,
            f"cannot {what} {block.name!r}: it is neither a complete block ({why}) nor a reduction ({second})",
            s.func(block.func),
            realize,
        )
    raise fail(code, f"cannot {what} {block.name!r}: it is not a complete block: {why}", s.func(block.func), realize)


def check_not_output(s: State, block: BlockRV, code: str, what: str) -> None:
    """Raise ScheduleError where the block writes a buffer that outlives the scope it stands in."""
    path, realize = find_block(s, block)
    own = scope_of(path).block.alloc_buffers
    for w in realize.block.writes:
        if w.buffer not in own:
            raise fail(
                code,
                f"cannot {what} {block.name!r}: it is an output block, for it writes {w.buffer.name}, which is needed outside",
                s.func(block.func),
                realize,
            )


def _made_inside(block: Block, buffer: Buffer) -> bool:
    """Does a block inside make what later ones inside read?"""
    for inner in nearest_blocks(block.body):
        reads, writes = (region_of(side, buffer) is not None for side in (inner.block.reads, inner.block.writes))
        if reads or writes:
            return writes and (not reads or inner.block.init is not None or _made_inside(inner.block, buffer))
    return False


def why_unfinished(path: Path, buffer: Buffer) -> str | None:
    """Why the block at the end of `path` does not make all of what it stores to `buffer` inside its scope: it goes on from what
    was there, or loops outside the scope belong to its reduction."""
    realize = path[-1]
    assert isinstance(realize, BlockRealize)
    block = realize.block
    if (
        block.init is None
        and region_of(block.reads, buffer) is not None
        and region_of(block.writes, buffer) is not None
        and not _made_inside(block, buffer)
    ):
        return f"it goes on from what {buffer.name} holds"
    around = {p.loop_var for p in path[: len(scope_path(path))] if isinstance(p, For)}
    for iv, v in zip(block.iter_vars, realize.iter_values, strict=True):
        if iv.iter_type != IterVar.DataPar and any(x in around for x in walk(v)):
            return f"its axis {iv.var.name!r} moves with a loop outside of its scope"
    return None


# ---- arguments -------------------------------------------------------------------------------------------------------

_SCOPES = ("global", "shared", "local", "warp", "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator", "texture", "amx.tmm",
           "m16n8k8.matrixA", "m16n8k8.matrixB", "m16n8k8.matrixC")  # fmt: skip


def check_scope(s: State, block: BlockRV, scope: str) -> None:
    """Raise ScheduleError TW0452 where `scope` is the name of no memory. Tags may follow: `global.vtcm`, `shared.dyn`."""
    if not any(scope == x or scope.startswith((f"{x}.", f"{x}:")) for x in _SCOPES):
        raise fail(
            "TW0452", f"{scope!r} is no storage scope", s.func(block.func), s.block(block), choices=_SCOPES
        )  # fmt: skip


def buffer_at(s: State, block: BlockRV, index: Any, kind: str) -> tuple[int, Buffer]:
    """The place and the buffer among a block's reads or writes: by place, by name, or the buffer itself.

    Raises ScheduleError TW0451 where there is none.
    """
    realize = s.block(block)
    regions = realize.block.reads if kind == "reads" else realize.block.writes
    if isinstance(index, PrimExpr):
        index = int(index)  # pyright: ignore[reportArgumentType]
    for i, r in enumerate(regions):
        if index is r.buffer or (isinstance(index, str) and r.buffer.name == index):
            return i, r.buffer
        if isinstance(index, int) and i == index:
            return i, r.buffer
    raise fail(
        "TW0451",
        f"the block {block.name!r} has no buffer {index if isinstance(index, (int, str)) else index.name!r} among its {kind}",
        s.func(block.func),
        realize,
        choices=[f"{i} ({r.buffer.name})" for i, r in enumerate(regions)],
    )
