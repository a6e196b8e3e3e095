"""Primitives that copy a whole tile of a buffer at a loop: what the loop's body reads (before it) or writes (after it).

    for i0: for i1: C[i0*4 + i1] = f(A[i0*4 + i1])   ▶   for i0:
                                                             A_l[i0*4 : i0*4 + 4] = A[i0*4 : i0*4 + 4]      read_at(i0, C, 0, ...)
                                                             for i1: C[i0*4 + i1] = f(A_l[i0*4 + i1])

The copy is one block around plain loops, marked `auto_copy`: how it runs is left to later passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import LT, IntImm, PrimExpr, Var, cast, cmp, const, logical_and
from tilewright.arith.int_set import eval_range
from tilewright.arith.linear import linear
from tilewright.ir.node import replace, walk
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    Range,
    Stmt,
)
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.caching import (
    Place,
    allocate,
    body_of,
    cache_buffer,
    edit_blocks,
    insert_at,
    items_of,
    no_gaps,
    only_writer,
    redirect,
)
from tilewright.tir.schedule.primitives.flow import (
    buffer_at,
    check_scope,
    find_block,
    loops_below,
    paths_of,
    readers,
    region_of,
    scope_path,
    why_unfinished,
    writers,
)
from tilewright.tir.schedule.primitives.relax import Ends, block_ends, proves, ranges_of, value_of
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, LoopRV, Path, State

__all__ = ["read_at", "write_at"]

CODE = "TW0469"


def threads_sharing(path: Path, scope: str) -> list[For]:
    """The loops over threads on a way whose threads share a memory: what one of them needs, all must find there."""
    if scope == "global" or scope.startswith("global."):
        return []
    found: list[For] = []
    for p in path:
        if isinstance(p, For) and p.thread_binding is not None:
            tag = p.thread_binding.thread_tag
            if (scope.startswith("shared") and tag.startswith(("threadIdx", "vthread"))) or (
                scope.startswith("warp") and tag == "threadIdx.x"
            ):
                found.append(p)
    return found


class _Tile:
    """One dimension of the tile: `axis` with its domain and value if it moves with the loops, where the tile begins in terms
    of the axis, and how long it is."""

    def __init__(self, n: int, r: Range, loops: dict[Var, Range], ana: Analyzer) -> None:
        self.axis: IterVar | None = None
        self.value: PrimExpr = r.min
        self.start: PrimExpr = r.min
        self.extent = r.extent
        form = linear(r.min)
        if not form.terms:
            return
        step = math.gcd(*(c for _, c in form.terms.values()))
        value: PrimExpr = const(0, r.min.dtype)
        for atom, c in form.terms.values():
            value = value + atom * (c // step)
        base = form.constant
        ends = eval_range(value, loops, ana)
        low = None if ends is None else value_of(ana.simplify(ends[0]))
        if ends is None or low is None:
            raise ValueError(str(r.min))
        v = Var(f"v{n}", r.min.dtype)
        self.axis = IterVar(Range(const(0, v.dtype), ana.simplify(ends[1] - low + 1)), v)
        self.value = value - low if low else value
        self.start = v * step + (base + low * step)


def _copy(
    source: Buffer, dest: Buffer, region: Sequence[Range], loops: dict[Var, Range], ana: Analyzer, name: str
) -> BlockRealize:
    tiles: list[_Tile] = []
    for r in region:
        tiles.append(_Tile(sum(t.axis is not None for t in tiles), r, loops, ana))
    inner = [Var(f"ax{i}", t.start.dtype) for i, t in enumerate(tiles)]
    index = tuple(v if value_of(t.start) == 0 else t.start + v for t, v in zip(tiles, inner, strict=True))
    body: Stmt = BufferStore(dest, BufferLoad(source, index), index)
    known = Analyzer()
    for t, v in zip(tiles, inner, strict=True):
        if t.axis is not None and t.axis.dom is not None:
            known.bind(t.axis.var, t.axis.dom)
        known.bind(v, Range(const(0, v.dtype), t.extent))
    guard: PrimExpr = IntImm("bool", 1)
    for i, n in zip(index, source.shape, strict=True):
        for limit in (cmp(LT, i, cast(n, i.dtype)), i >= 0):
            if not proves(known, limit):
                guard = logical_and(guard, known.simplify(limit))
    if not isinstance(guard, IntImm):
        body = IfThenElse(guard, body)
    for v, t in zip(reversed(inner), reversed(tiles), strict=True):
        body = For(v, const(0, v.dtype), cast(t.extent, v.dtype), ForKind.SERIAL, body)
    box = tuple(Range(t.start, t.extent) for t in tiles)
    axes = [t.axis for t in tiles if t.axis is not None]
    values = tuple(t.value for t in tiles if t.axis is not None)
    block = Block(
        tuple(axes),
        (BufferRegion(source, box),),
        (BufferRegion(dest, box),),
        name,
        body,
        None,
        (),
        (),
        {"auto_copy": True},
    )
    return BlockRealize(values, IntImm("bool", 1), block)


class _At:
    """One use: the loop, the buffer, and who touches it under the loop."""

    def __init__(self, s: State, loop: LoopRV, block: BlockRV, index: Any, scope: str, reading: bool) -> None:
        check_scope(s, block, scope)
        self.s, self.rv, self.memory, self.reading = s, block, scope, reading
        self.path, self.realize = find_block(s, block)
        _, self.buffer = buffer_at(s, block, index, "reads" if reading else "writes")
        self.loop_path = s.loop_path(loop)
        target = self.loop_path[-1]
        assert isinstance(target, For)
        self.loop = target
        if not any(p is target for p in self.path):
            raise self.fail(f"the loop {loop.var.name!r} is not around the block {block.name!r}", target)
        self.scope = scope_path(self.path)
        if scope_path(self.loop_path)[-1] is not self.scope[-1]:
            raise self.fail(f"the loop {loop.var.name!r} stands in another block scope than {block.name!r}", target)
        self.everyone = paths_of(self.scope)
        only_writer(s, block, self.everyone, self.buffer)
        inside = [p for p in self.everyone if any(x is target for x in p)]
        self.writers = writers(inside, self.buffer)
        self.readers = readers(inside, self.buffer)
        self.ana = Analyzer()
        for p in self.loop_path:
            if isinstance(p, For):
                self.ana.bind(p.loop_var, Range(p.min, p.extent))

    def fail(self, message: str, node: Any = None) -> Exception:
        """The error to raise."""
        what = "read_at" if self.reading else "write_at"
        node = self.realize if node is None else node
        return fail(CODE, f"{what}: {message}", self.s.func(self.rv.func), node)

    def region(self, users: Sequence[Path]) -> list[Range]:
        """What the users touch in one iteration of the loop (of all threads that share the memory)."""
        shared = threads_sharing(self.loop_path, self.memory)
        found: list[Ends] | None = None
        for p in users:
            realize = p[-1]
            assert isinstance(realize, BlockRealize)
            r = region_of(realize.block.reads if self.reading else realize.block.writes, self.buffer)
            assert r is not None
            bare = replace(realize, predicate=IntImm("bool", 1))
            ends = block_ends(bare, r, [*shared, *loops_below(p, self.loop)], self.ana)
            found = ends if found is None else [self.union(a, b) for a, b in zip(found, ends, strict=True)]
        assert found is not None
        return ranges_of(found, self.buffer.shape, self.ana)

    def union(self, a: Ends, b: Ends) -> Ends:
        """The hull of two ranges."""
        if a is None or b is None:
            return None
        low = a[0] if proves(self.ana, a[0] <= b[0]) else b[0] if proves(self.ana, b[0] <= a[0]) else None
        high = a[1] if proves(self.ana, a[1] >= b[1]) else b[1] if proves(self.ana, b[1] >= a[1]) else None
        return None if low is None or high is None else (low, high)

    def put(self, users: Sequence[Path], index: int) -> BlockRV:
        """Make the copy, put it at a place in the loop, and let the users use it."""
        region = self.region(self.readers if self.reading else self.writers)
        new = cache_buffer(self.buffer, self.memory, self.buffer.shape)
        name = self.s.unique(self.rv.func, new.name)
        loops = {p.loop_var: Range(p.min, p.extent) for p in self.loop_path if isinstance(p, For)}
        for p in self.loop_path:
            if isinstance(p, BlockRealize):
                loops.update({iv.var: iv.dom for iv in p.block.iter_vars if iv.dom is not None})
        source, dest = (self.buffer, new) if self.reading else (new, self.buffer)
        try:
            copy = _copy(source, dest, region, loops, self.ana, name)
        except ValueError as error:
            raise self.fail(f"no bounds are known of where the tile begins: {error}") from None
        top = self.scope[-1]
        assert isinstance(top, BlockRealize)
        grown = allocate(insert_at(top, Place(self.loop_path, index), copy), new)
        targets = [p[-1] for p in users if isinstance(p[-1], BlockRealize)]
        body = edit_blocks(
            grown.block.body,
            targets,
            lambda r: replace(r, block=redirect(r.block, self.buffer, new, None, self.ana)),
        )
        self.s.put(self.rv.func, self.scope, replace(grown, block=replace(grown.block, body=body)))
        return BlockRV(name, self.rv.func)


@primitive
def read_at(
    s: State, loop: LoopRV, block: BlockRV, read_buffer_index: int | str | Buffer, storage_scope: str
) -> BlockRV:
    """Copy the tile of a buffer that the loop's body reads into a new buffer in `storage_scope`, at the start of each
    iteration; all blocks under the loop read that. Returns the block that copies.

    Raises ScheduleError TW0451 (no such buffer), TW0452 (no such scope), TW0469 (the loop is not around the block, or the
    buffer is written under it).
    """
    a = _At(s, loop, block, read_buffer_index, storage_scope, True)
    if a.writers:
        raise a.fail(f"{a.buffer.name} is written under the loop, too", a.writers[0][-1])
    items = items_of(body_of(a.loop))
    index = next(i for i, x in enumerate(items) if any(any(x is y for y in p) for p in a.readers))
    return a.put(a.readers, index)


@primitive
def write_at(
    s: State, loop: LoopRV, block: BlockRV, write_buffer_index: int | str | Buffer, storage_scope: str
) -> BlockRV:
    """Let the blocks under a loop write a buffer into a new one in `storage_scope`, and copy the tile that they made at the end
    of each iteration. Returns the block that copies.

    Raises ScheduleError TW0451 (no such buffer), TW0452 (no such scope), TW0453 (several blocks write it), TW0469 (the loop is
    not around the block, what is there is read before it is written, or not all of the tile is written).
    """
    a = _At(s, loop, block, write_buffer_index, storage_scope, False)
    for p in a.readers:
        user = p[-1]
        assert isinstance(user, BlockRealize)
        if region_of(user.block.writes, a.buffer) is not None and user.block.init is None:
            raise a.fail(f"{user.block.name_hint!r} reads {a.buffer.name} before it is written under the loop", user)
    before = [p for p in a.readers if _index(a.everyone, p) < _index(a.everyone, a.path)]
    if before:
        raise a.fail(f"{a.buffer.name} is read before it is written under the loop", before[0][-1])
    why = why_unfinished(a.path, a.buffer)
    if why is not None:
        raise a.fail(f"{block.name!r} does not make the whole tile: {why}")
    made = region_of(a.realize.block.writes, a.buffer)
    assert made is not None
    body = a.realize.block.body
    plain = isinstance(body, BufferStore) and no_gaps(a.realize, made, loops_below(a.path, a.loop))
    opaque = not isinstance(body, BufferStore) and not any(isinstance(x, IfThenElse) for x in walk(body))
    if not (plain or opaque):
        raise a.fail(f"{block.name!r} writes only some elements of the tile, and the others are not its own")
    items = items_of(body_of(a.loop))
    users = [*a.writers, *(p for p in a.readers if not any(p[-1] is w[-1] for w in a.writers))]
    index = max(i for i, x in enumerate(items) if any(any(x is y for y in p) for p in users)) + 1
    return a.put(users, index)


def _index(everyone: Sequence[Path], me: Path) -> int:
    return next(i for i, p in enumerate(everyone) if p[-1] is me[-1])
