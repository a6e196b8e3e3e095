"""Primitives that say how the iterations of a loop run: in threads, in lanes, expanded, on a GPU's threads."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith.expr import IntImm, Var
from tilewright.arith.iter_map import detect_iter_map
from tilewright.ir.node import replace, walk
from tilewright.tir.ir import BlockRealize, Buffer, BufferLoad, BufferStore, For, ForKind, IterVar, Range, Stmt
from tilewright.tir.lower.index import mentions
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.reorder import KIND_NAMES
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.scope import (
    DepKind,
    Scope,
    blocks_of,
    has_region_cover,
    is_affine,
    loops_in_scope,
    open_blocks,
    scope_path,
    why_not_complete,
)
from tilewright.tir.schedule.state import LoopRV, Path, State, iter_kinds

__all__ = ["bind", "parallel", "unroll", "vectorize"]

_THREADS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z", "vthread", "vthread.x",
            "vthread.y", "vthread.z")  # fmt: skip


def _independent(s: State, loop: LoopRV, what: str, thread: str = "") -> None:
    """Check that the iterations of a loop may run at the same time. Raises ScheduleError TW0416 where they may not.

    Every iterator that the loop moves must be spatial (a thread of a GPU block may run over a reduction too); a block that
    reads what it writes must reach each point once; no block may read or overwrite what another iteration makes.
    """
    path = s.loop_path(loop)
    node = path[-1]
    assert isinstance(node, For)
    if isinstance(node.extent, IntImm) and node.extent.value <= 1:
        return
    above = scope_path(path)
    scope = above[-1] if above else None
    blocks = open_blocks(node.body)
    table = Scope(blocks)
    outside: set[Buffer] | None = None
    for b in blocks:
        kinds = iter_kinds(b, loop.var)
        bad = kinds - {IterVar.DataPar}
        if bad and not (bad == {IterVar.CommReduce} and thread.startswith("threadIdx")):
            raise _refusal(s, loop, what, thread, b, min(bad))
        if why_not_complete(table, b) is None:
            continue
        reads = {r.buffer for r in b.block.reads}
        updated = [w.buffer for w in b.block.writes if b.block.init is not None or w.buffer in reads]
        if not updated:
            continue
        if not is_affine(b, loops_in_scope(s.path_to(loop.func, b))):
            raise fail(
                "TW0416",
                f"cannot {what} the loop {loop.var.name!r}: two iterations may update one element in {b.block.name_hint!r}, "
                "for what it is bound to is no affine map of the loops",
                s.func(loop.func),
                b,
            )
        if kinds and not _injective(b, node, loops_in_scope(s.path_to(loop.func, b))):
            raise fail(
                "TW0416",
                f"cannot {what} the loop {loop.var.name!r}: several of its iterations update one element in {b.block.name_hint!r}",
                s.func(loop.func),
                b,
            )
        if not kinds:
            if outside is None:
                outside = _used_outside(path)
            shared = next((x for x in updated if x in outside), None)
            if shared is not None:
                raise fail(
                    "TW0416",
                    f"cannot {what} the loop {loop.var.name!r}: every iteration of it updates the same elements of {shared.name}",
                    s.func(loop.func),
                    b,
                )
    if isinstance(scope, BlockRealize):
        _no_traffic(s, loop, what, scope, table)


def _injective(b: BlockRealize, loop: For, loops: Sequence[For]) -> bool:
    """Do two iterations of the loop never run the block at one point, all other loops standing still?"""
    if any(v is loop.loop_var for v in b.iter_values):
        return True
    values = [v for v in b.iter_values if mentions(v, loop.loop_var)]
    alone = {loop.loop_var: Range(loop.min, loop.extent)}
    together = {x.loop_var: Range(x.min, x.extent) for x in loops if any(mentions(v, x.loop_var) for v in values)}
    return any(
        bool(detect_iter_map(values, ranges, b.predicate, require_bijective=True).indices)
        for ranges in (alone, {**alone, **together})
    )


def _used_outside(path: Path) -> set[Buffer]:
    """The buffers that are used outside of the loop at the end of `path`, or live longer than the function."""
    loop = path[-1]
    out: set[Buffer] = set()
    own: set[Buffer] = set()

    def visit(s: Stmt) -> None:
        if s is loop:
            return
        for x in [*getattr(s, "reads", ()), *getattr(s, "writes", ())]:
            if isinstance(s, type(s)) and getattr(s, "iter_vars", None):
                out.add(x.buffer)
        own.update(getattr(s, "alloc_buffers", ()))
        if isinstance(s, BufferStore):
            out.add(s.buffer)
            out.update(x.buffer for x in walk(s.value) if isinstance(x, BufferLoad))
        for name in s.child_fields:
            value = getattr(s, name)
            for c in value if isinstance(value, tuple) else (value,):  # pyright: ignore[reportUnknownVariableType]
                if isinstance(c, Stmt):
                    visit(c)

    visit(path[0])
    for w in walk(loop):
        if isinstance(w, BufferStore) and w.buffer not in own and not _inside(loop, w.buffer):
            out.add(w.buffer)
    return out


def _inside(loop: Stmt, buffer: Buffer) -> bool:
    return any(buffer in getattr(x, "alloc_buffers", ()) for x in walk(loop))


def _no_traffic(s: State, loop: LoopRV, what: str, scope: BlockRealize, table: Scope) -> None:
    """Check that no block under the loop needs or overwrites what another iteration makes."""
    asked: set[int] = set()
    direct = {id(b) for b in blocks_of(scope)}
    for e in table.edges:
        if e.kind == DepKind.WAR and e.src is not e.dst:
            raise fail(
                "TW0416",
                f"cannot {what} the loop {loop.var.name!r}: the block {e.dst.block.name_hint!r} overwrites what "
                f"{e.src.block.name_hint!r} reads, perhaps in another iteration",
                s.func(loop.func),
                e.dst,
            )
        if e.kind == DepKind.RAW and id(e.dst) not in asked and id(e.dst) in direct and id(e.src) in direct:
            asked.add(id(e.dst))
            if not has_region_cover(s, loop.func, scope, e.dst):
                raise fail(
                    "TW0416",
                    f"cannot {what} the loop {loop.var.name!r}: the block {e.dst.block.name_hint!r} may read what another "
                    f"iteration makes in {e.src.block.name_hint!r}",
                    s.func(loop.func),
                    e.dst,
                )


def _refusal(s: State, loop: LoopRV, what: str, thread: str, b: BlockRealize, kind: int) -> Exception:
    around = loops_in_scope(s.path_to(loop.func, b))
    names = [p.loop_var.name for p in around if iter_kinds(b, p.loop_var) == {IterVar.DataPar}]
    if thread:
        message = f"cannot bind the loop {loop.var.name!r} to {thread}: block {b.block.name_hint!r} "
        message += "reduces over it" if kind == IterVar.CommReduce else f"has a {KIND_NAMES.get(kind)} axis in it"
        hint = "only threads of one thread block (threadIdx) can combine results"
    else:
        message = (
            f"cannot {what} the loop {loop.var.name!r}: it runs over a {KIND_NAMES.get(kind)} axis of block "
            f"{b.block.name_hint!r}, whose iterations depend on each other"
        )
        hint = "use rfactor to make a reduction parallel, or take a spatial loop"
    return fail("TW0416", message, s.func(loop.func), s.loop(loop), choices=names, hint=hint)


def _mark(s: State, loop: LoopRV, kind: ForKind, what: str, thread: IterVar | None = None) -> None:
    path = s.loop_path(loop)
    node = path[-1]
    assert isinstance(node, For)
    if node.kind == ForKind.THREAD_BINDING and kind != ForKind.THREAD_BINDING:
        raise fail(
            "TW0411",
            f"cannot {what} the loop {loop.var.name!r}: it is bound to {node.thread_binding and node.thread_binding.thread_tag}",
            s.func(loop.func),
            node,
        )
    s.put(loop.func, path, replace(node, kind=kind, thread_binding=thread))


@primitive
def parallel(s: State, loop: LoopRV) -> None:
    """Share the iterations of a loop among threads. Raises ScheduleError TW0416 where they depend on each other."""
    _independent(s, loop, "parallelise")
    _mark(s, loop, ForKind.PARALLEL, "parallelise")


@primitive
def vectorize(s: State, loop: LoopRV) -> None:
    """Run the iterations of a loop in the lanes of vectors. Raises ScheduleError TW0416 where they depend on each other."""
    _independent(s, loop, "vectorise")
    _mark(s, loop, ForKind.VECTORIZED, "vectorise")


@primitive
def unroll(s: State, loop: LoopRV) -> None:
    """Expand a loop at compile time."""
    _mark(s, loop, ForKind.UNROLLED, "unroll")


@primitive
def bind(s: State, loop: LoopRV, thread_axis: str) -> None:
    """Let the iterations of a loop be GPU threads (`threadIdx.x`, `blockIdx.y`, ...).

    A loop over a reduction may be bound to threadIdx only. Raises ScheduleError TW0416 where iterations depend on each
    other, TW0417 where there is no such axis.
    """
    if thread_axis not in _THREADS:
        raise fail("TW0417", f"{thread_axis!r} is no thread axis", s.func(loop.func), s.loop(loop), choices=_THREADS)
    _independent(s, loop, "bind", thread_axis)
    axis = IterVar(None, Var(thread_axis, loop.var.dtype), IterVar.ThreadIndex, thread_axis)
    _mark(s, loop, ForKind.THREAD_BINDING, "bind", axis)
