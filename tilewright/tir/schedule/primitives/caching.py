"""Primitives that put a copy of a buffer between its maker and its users.

    B = f(A); C = g(B)      cache_read(C, B, "local")  ▶   B = f(A); B_local = B; C = g(B_local)
                            cache_write(B, B, "local") ▶   B_local = f(A); B = B_local; C = g(B)

The copy stands just before the first block that needs it, as deep in the loops as its maker and that block stand together.
The new buffer has the shape of the part that is copied, where all who use it stand in the same block; else of all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import LE, LT, IntImm, PrimExpr, Var, cast, cmp, const, logical_and
from tilewright.arith.iter_map import detect_iter_map
from tilewright.ir.node import map_children, replace, walk
from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import (
    Allocate,
    AllocateConst,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    For,
    ForKind,
    IterVar,
    LetStmt,
    Range,
    SeqStmt,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.flow import (
    buffer_at,
    check_scope,
    find_block,
    loops_below,
    paths_of,
    readers,
    region_of,
    scope_path,
    uses_pointer,
    why_unfinished,
    writers,
)
from tilewright.tir.schedule.primitives.relax import (
    block_ends,
    domains_of,
    full_region,
    proves,
    ranges_of,
    shown,
    value_of,
)
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, Path, State, conjuncts

__all__ = ["cache_read", "cache_write"]


# ---- where a copy goes -----------------------------------------------------------------------------------------------


@dataclass
class Place:
    """A place for a new statement: in `container` (a loop, or the block of a realization), before its statement `index`."""

    path: Path
    """The way to the loop or BlockRealize."""
    index: int

    @property
    def container(self) -> Stmt:
        """The loop or BlockRealize that gets the statement."""
        return self.path[-1]


_WRAPPERS = (AllocateConst, Allocate, DeclBuffer, AttrStmt, LetStmt)


def body_of(container: Stmt) -> Stmt:
    """The body of a loop or of a realized block."""
    if isinstance(container, BlockRealize):
        return container.block.body
    assert isinstance(container, For)
    return container.body


def items_of(body: Stmt) -> list[Stmt]:
    """The statements of a body, below what only declares something."""
    while isinstance(body, _WRAPPERS):
        body = body.body
    return list(body.seq) if isinstance(body, SeqStmt) else [body]


def with_items(body: Stmt, items: Sequence[Stmt]) -> Stmt:
    """The body with other statements, below what only declares something."""
    if isinstance(body, _WRAPPERS):
        return replace(body, body=with_items(body.body, items))
    return seq(*items)


def place_in(path: Path, container: Stmt, blocks: Sequence[Path]) -> Place:
    """The place in a container before the first statement that holds one of the blocks; at the end if none does."""
    depth = next(i for i, p in enumerate(path) if p is container)
    items = items_of(body_of(container))
    for i, x in enumerate(items):
        if any(any(x is p for p in b) for b in blocks):
            return Place(path[: depth + 1], i)
    return Place(path[: depth + 1], len(items))


def find_place(scope: Path, writer: Path | None, related: Sequence[Path]) -> Place:
    """Where a copy of what `writer` makes for the blocks `related` goes: in the innermost loop or block that holds the
    writer and one of them, before the first of them; without a writer at the start of the scope; without users at its end."""
    top = scope[-1]
    if writer is None:
        return Place(list(scope), 0)
    if not related:
        return Place(list(scope), len(items_of(body_of(top))))
    for step in reversed(writer[len(scope) - 1 : -1]):
        if isinstance(step, (For, BlockRealize)) and any(any(step is p for p in b) for b in related):
            inside = [b for b in related if any(step is p for p in b)]
            return place_in(writer, step, inside)
    raise AssertionError("a scope holds its blocks")


# ---- the copy --------------------------------------------------------------------------------------------------------


@dataclass
class Copy:
    """A copy between two buffers: of `region` (in terms of what is outside), which in the cache starts at 0 if `shrunk`."""

    source: Buffer
    dest: Buffer
    region: list[Range]
    shrunk: bool
    reading: bool

    @property
    def cache(self) -> Buffer:
        """The new buffer."""
        return self.dest if self.reading else self.source

    def nest(self, name: str, ana: Analyzer) -> Stmt:
        """The loops with the block that copies; what lies beyond the buffer is left out."""
        shape = self.cache.shape
        outer = self.source.shape if self.reading else self.dest.shape
        loops = [Var(f"ax{i}", r.extent.dtype) for i, r in enumerate(self.region)]
        domain = shape if self.shrunk else outer
        axes = [Var(f"v{i}", n.dtype) for i, n in enumerate(domain)]
        iters = tuple(IterVar(Range(const(0, v.dtype), n), v) for v, n in zip(axes, domain, strict=True))
        here: tuple[PrimExpr, ...] = tuple(axes)
        there = here
        values = [cast(x, v.dtype) for x, v in zip(loops, axes, strict=True)]
        if self.shrunk:
            there = tuple(cast(r.min, v.dtype) + v for r, v in zip(self.region, axes, strict=True))
        else:
            values = [cast(r.min, x.dtype) + x for r, x in zip(self.region, values, strict=True)]
        read_at, write_at = (there, here) if self.reading else (here, there)
        where: PrimExpr = IntImm("bool", 1)
        for v, x, r, n in zip(loops, values, self.region, outer, strict=True):
            ana.bind(v, Range(const(0, v.dtype), r.extent))
            at = cast(r.min, x.dtype) + x if self.shrunk else x
            for limit in (cmp(LE, const(0, at.dtype), at), cmp(LT, at, cast(n, at.dtype))):
                if not proves(ana, limit):
                    where = logical_and(where, shown(ana.simplify(limit)))
        store = BufferStore(self.dest, BufferLoad(self.source, read_at), write_at)
        reads = BufferRegion(self.source, tuple(Range(i, const(1, i.dtype)) for i in read_at))
        writes = BufferRegion(self.dest, tuple(Range(i, const(1, i.dtype)) for i in write_at))
        out: Stmt = BlockRealize(tuple(values), where, Block(iters, (reads,), (writes,), name, store))
        for v, r in zip(reversed(loops), reversed(self.region), strict=True):
            out = For(v, const(0, v.dtype), r.extent, ForKind.SERIAL, out)
        return out


def cache_buffer(old: Buffer, scope: str, shape: Sequence[PrimExpr], suffix: str | None = None) -> Buffer:
    """A buffer for a copy."""
    return decl_buffer(shape, old.dtype, f"{old.name}_{suffix or scope}", scope=scope)


def redirect(n: Any, old: Buffer, new: Buffer, starts: Sequence[PrimExpr] | None, ana: Analyzer) -> Any:
    """A statement with `old` replaced by `new`, whose indices begin at `starts` (None: the same indices)."""
    if starts is None:
        return substitute(n, {old: new, old.data: new.data})

    def shifted(i: PrimExpr, start: PrimExpr) -> PrimExpr:
        return i if value_of(start) == 0 else ana.simplify(i - cast(start, i.dtype))

    def visit(x: Any) -> Any:
        if isinstance(x, BufferRegion) and x.buffer is old:
            region = tuple(replace(r, min=shifted(r.min, s)) for r, s in zip(x.region, starts, strict=True))
            return BufferRegion(new, region)
        if isinstance(x, BufferLoad) and x.buffer is old:
            return BufferLoad(new, tuple(shifted(visit(i), s) for i, s in zip(x.indices, starts, strict=True)))
        if isinstance(x, BufferStore) and x.buffer is old:
            indices = tuple(shifted(visit(i), s) for i, s in zip(x.indices, starts, strict=True))
            return BufferStore(new, visit(x.value), indices)
        return x if x.identity else map_children(x, visit)

    return visit(n)


def edit_blocks(n: Any, blocks: Sequence[BlockRealize], change: Any) -> Any:
    """A statement with `change(realize)` instead of each of the realizations."""
    chosen = {id(b) for b in blocks}

    def visit(x: Any) -> Any:
        if id(x) in chosen:
            return change(x)
        return map_children(x, lambda c: visit(c) if isinstance(c, Stmt) else c)

    return visit(n)


def insert_at(scope: BlockRealize, place: Place, new: Stmt) -> BlockRealize:
    """The scope with a statement put in at a place."""
    target = place.container
    items = items_of(body_of(target))
    items.insert(place.index, new)
    body = with_items(body_of(target), items)

    def visit(x: Any) -> Any:
        if x is target:
            if isinstance(x, BlockRealize):
                return replace(x, block=replace(x.block, body=body))
            return replace(x, body=body)
        return map_children(x, lambda c: visit(c) if isinstance(c, Stmt) else c)

    return visit(scope)


def allocate(scope: BlockRealize, buffer: Buffer) -> BlockRealize:
    """The scope with a buffer added to what it allocates."""
    block = scope.block
    return replace(scope, block=replace(block, alloc_buffers=(*block.alloc_buffers, buffer)))


# ---- preconditions ---------------------------------------------------------------------------------------------------


def only_writer(s: State, block: BlockRV, everyone: Sequence[Path], buffer: Buffer) -> Path | None:
    """The block of the scope that writes the buffer, if one does. Raises ScheduleError TW0453 for several."""
    found = writers(everyone, buffer)
    if len(found) > 1:
        names = ", ".join(repr(p[-1].block.name_hint) for p in found)  # pyright: ignore
        raise fail(
            "TW0453",
            f"cannot cache {buffer.name}: {len(found)} blocks write it ({names}), and it must be one",
            s.func(block.func),
            found[1][-1],
            hint="cache before decompose_reduction takes blocks apart",
        )
    return found[0] if found else None


def _index(everyone: Sequence[Path], me: Path) -> int:
    return next(i for i, p in enumerate(everyone) if p[-1] is me[-1])


def consumer_paths(s: State, block: BlockRV, everyone: Sequence[Path], chosen: Sequence[Any]) -> list[Path]:
    """The ways to blocks given as consumers, which must stand in the same scope (ScheduleError TW0464)."""
    out: list[Path] = []
    for c in chosen:
        rv = BlockRV(c, block.func) if isinstance(c, str) else c
        path, realize = find_block(s, rv)
        if not any(p[-1] is realize for p in everyone):
            raise fail(
                "TW0464",
                f"the consumer {rv.name!r} does not stand in the same block as {block.name!r}",
                s.func(block.func),
                realize,
            )
        out.append(path)
    return out


def _within(users: Sequence[Path], scope: Path, buffer: Buffer, region: Sequence[Range], ana: Analyzer) -> bool:
    """Do the users touch nothing of the buffer outside the region?"""
    for p in users:
        realize = p[-1]
        assert isinstance(realize, BlockRealize)
        if uses_pointer(realize.block, buffer):
            return False
        loops = loops_below(p, scope[-1])
        for kind in (realize.block.reads, realize.block.writes):
            touched = region_of(kind, buffer)
            if touched is None:
                continue
            for ends, r in zip(block_ends(realize, touched, loops, ana), region, strict=True):
                if ends is None:
                    return False
                end = r.min + r.extent
                if not (proves(ana, ends[0] >= r.min) and proves(ana, ends[1] < end)):
                    return False
    return True


# ---- primitives ------------------------------------------------------------------------------------------------------


@primitive
def cache_read(
    s: State,
    block: BlockRV,
    read_buffer_index: int | str | Buffer,
    storage_scope: str,
    consumer_blocks: Sequence[BlockRV | str] | None = None,
) -> BlockRV:
    """Copy a buffer that a block reads into a new one in `storage_scope`, and let those who read it read that. Returns the
    block that copies; `compute_at` moves it close.

    `consumer_blocks` are the blocks that read the copy (by default all that read the buffer after it is written). Raises
    ScheduleError TW0451 (no such buffer), TW0452 (no such scope), TW0453 (several blocks write the buffer), TW0464.
    """
    check_scope(s, block, storage_scope)
    path = s.block_path(block)
    _, old = buffer_at(s, block, read_buffer_index, "reads")
    scope = scope_path(path)
    everyone = paths_of(scope)
    chosen = consumer_paths(s, block, everyone, consumer_blocks or ())
    writer = only_writer(s, block, everyone, old)
    if writer is not None and _index(everyone, writer) >= _index(everyone, path):
        users, place, region = _read_before_written(s, block, scope, everyone, writer, old, chosen)
    else:
        after = everyone if writer is None else everyone[_index(everyone, writer) + 1 :]
        users = chosen or readers(after, old)
        place = find_place(scope, writer, users)
        region = _region_read(scope, writer, place, old)
    ana = _analyzer(scope, place)
    shrunk = isinstance(place.container, BlockRealize) and _within(users, scope, old, region, ana)
    new = cache_buffer(old, storage_scope, [r.extent for r in region] if shrunk else old.shape)
    name = s.unique(block.func, new.name)
    copy = Copy(old, new, region, shrunk, True)
    starts = [r.min for r in region] if shrunk else None
    return _finish(s, block.func, scope, place, copy, name, users, starts, ana)


def _read_before_written(
    s: State,
    block: BlockRV,
    scope: Path,
    everyone: Sequence[Path],
    writer: Path,
    old: Buffer,
    chosen: Sequence[Path],
) -> tuple[Sequence[Path], Place, list[Range]]:
    """(who uses the copy, its place, what it covers) of a buffer that is overwritten after the block reads it."""
    path, realize = find_block(s, block)
    users = chosen or readers(everyone[: _index(everyone, writer)], old)
    late = [c for c in chosen if _index(everyone, c) > _index(everyone, writer)]
    if late or writer[-1] is realize:
        raise fail(
            "TW0453",
            f"cannot cache {old.name} for {block.name!r}: it is written after it is read",
            s.func(block.func),
            writer[-1],
        )
    if _apart(scope, writer, path):
        return users, Place(list(scope), 0), full_region(old.shape)
    shared = [p for p in path if isinstance(p, (For, BlockRealize)) and any(p is w for w in writer)]
    users = [u for u in users if u[-1] is realize]  # others may stand where the copy is not filled yet
    place = place_in(path, shared[-1], users)
    ana = _analyzer(scope, place)
    taken = region_of(realize.block.reads, old)
    assert taken is not None
    ends = block_ends(realize, taken, loops_below(path, shared[-1]), ana)
    return users, place, ranges_of(ends, old.shape, ana)


def _apart(scope: Path, a: Path, b: Path) -> bool:
    """Do two blocks stand in different statements, with no loop around both that runs more than once?"""
    shared = [p for p in a[len(scope) :] if any(p is q for q in b)]
    return all(not isinstance(p, For) or value_of(p.extent) == 1 for p in shared)


def _region_read(scope: Path, writer: Path | None, place: Place, old: Buffer) -> list[Range]:
    """What a copy for reading covers: what the writer has made at that place, or what the scope says that it reads."""
    ana = _analyzer(scope, place)
    top = scope[-1]
    assert isinstance(top, BlockRealize)
    if writer is None:
        declared = region_of(top.block.reads, old)
        return full_region(old.shape) if declared is None else list(declared.region)
    realize = writer[-1]
    assert isinstance(realize, BlockRealize)
    made = region_of(realize.block.writes, old)
    assert made is not None
    loops = loops_below(writer, place.container)
    return ranges_of(block_ends(realize, made, loops, ana), old.shape, ana)


def _analyzer(scope: Path, place: Place) -> Analyzer:
    """What is known of the loops and axes around a place."""
    ana = Analyzer()
    for p in place.path:
        if isinstance(p, For):
            ana.bind(p.loop_var, Range(p.min, p.extent))
        elif isinstance(p, BlockRealize):
            for iv in p.block.iter_vars:
                if iv.dom is not None:
                    ana.bind(iv.var, iv.dom)
    del scope
    return ana


def _finish(
    s: State,
    func: str,
    scope: Path,
    place: Place,
    copy: Copy,
    name: str,
    users: Sequence[Path],
    starts: Sequence[PrimExpr] | None,
    ana: Analyzer,
) -> BlockRV:
    """Put the copy in its place, allocate the cache, and let the users use it."""
    old, new = (copy.source, copy.dest) if copy.reading else (copy.dest, copy.source)
    realize = scope[-1]
    assert isinstance(realize, BlockRealize)
    changed = allocate(insert_at(realize, place, copy.nest(name, ana)), new)
    targets = [p[-1] for p in users if isinstance(p[-1], BlockRealize)]
    inside = replace(
        changed.block,
        body=edit_blocks(
            changed.block.body, targets, lambda r: replace(r, block=redirect(r.block, old, new, starts, ana))
        ),
    )
    s.put(func, scope, replace(changed, block=inside))
    return BlockRV(name, func)


def _within_loop(scope: Path, path: Path, carried: Sequence[Path], late: Sequence[Path], found: Place) -> Place:
    """The place in the innermost loop that the writer shares with an earlier reader, if that is deeper than `found`."""
    for step in reversed(path[len(scope) :]):
        if step is found.container:
            return found
        if isinstance(step, For) and any(any(step is x for x in p) for p in carried):
            inside = [p for p in late if any(step is x for x in p)]
            place = place_in(path, step, inside)
            items = items_of(body_of(step))
            mine = next(i for i, x in enumerate(items) if any(x is y for y in path))
            return Place(place.path, min(place.index, mine + 1) if inside else mine + 1)
    return found


@primitive
def cache_write(
    s: State,
    block: BlockRV,
    write_buffer_index: int | str | Buffer,
    storage_scope: str,
    consumer_blocks: Sequence[BlockRV | str] | None = None,
) -> BlockRV:
    """Let a block write into a new buffer in `storage_scope`, and copy that to the old one afterwards. Returns the block that
    copies; `reverse_compute_at` moves it close.

    `consumer_blocks` read the new buffer, the others the old one. Raises ScheduleError TW0451 (no such buffer), TW0452 (no
    such scope), TW0453 (several blocks write the buffer, or the block leaves parts of a buffer of the caller unwritten),
    TW0464.
    """
    check_scope(s, block, storage_scope)
    path, realize = find_block(s, block)
    _, old = buffer_at(s, block, write_buffer_index, "writes")
    scope = scope_path(path)
    everyone = paths_of(scope)
    only_writer(s, block, everyone, old)
    why = why_unfinished(path, old)
    if why is not None:
        raise fail("TW0453", f"cannot cache what {block.name!r} writes: {why}", s.func(block.func), realize)
    chosen = consumer_paths(s, block, everyone, consumer_blocks or ())
    mine = _index(everyone, path)
    for c in chosen:
        if _index(everyone, c) < mine:
            raise fail(
                "TW0464",
                f"the consumer {c[-1].block.name_hint!r} comes before {block.name!r} writes {old.name}",  # pyright: ignore
                s.func(block.func),
                c[-1],
            )
    others = [p for p in readers(everyone, old) if not any(p[-1] is c[-1] for c in chosen) and p[-1] is not realize]
    late = [p for p in others if _index(everyone, p) > mine]
    early = [p for p in others if _index(everyone, p) < mine]
    place = find_place(scope, path, late)
    carried = [p for p in early if not _apart(scope, p, path)]
    if carried:  # what they read next time around must be back in the buffer by then
        place = _within_loop(scope, path, carried, late, place)
    ana = _analyzer(scope, place)
    loops = loops_below(path, place.container)
    made = region_of(realize.block.writes, old)
    assert made is not None
    region = ranges_of(block_ends(realize, made, loops, ana), old.shape, ana)
    if not (place.container is scope[-1] and old in scope[-1].block.alloc_buffers):  # pyright: ignore
        _covered(s, block, realize, made, loops)
    users = [path, *chosen]
    shrunk = isinstance(place.container, BlockRealize) and _within(users, scope, old, region, ana)
    new = cache_buffer(old, storage_scope, [r.extent for r in region] if shrunk else old.shape)
    name = s.unique(block.func, new.name)
    copy = Copy(new, old, region, shrunk, False)
    starts = [r.min for r in region] if shrunk else None
    return _finish(s, block.func, scope, place, copy, name, users, starts, ana)


def _covered(s: State, block: BlockRV, realize: BlockRealize, made: BufferRegion, loops: Sequence[For]) -> None:
    """A copy writes all of its region: where the block itself does not, what was there before would be lost."""
    body = realize.block.body
    while isinstance(body, (LetStmt, AttrStmt)):
        body = body.body
    whole = not isinstance(body, BufferStore) or no_gaps(realize, made, loops)
    conditional = not isinstance(body, BufferStore) and any(
        type(x).__name__ == "IfThenElse"
        and any(isinstance(y, BufferStore) and y.buffer is made.buffer for y in walk(x))
        for x in walk(body)
    )
    if not whole or conditional:
        raise fail(
            "TW0453",
            f"cannot cache {made.buffer.name}: {block.name!r} writes only some elements of the part that would be copied "
            "back, and the others are not its own",
            s.func(block.func),
            realize,
        )


def _follows(limit: PrimExpr, condition: PrimExpr) -> bool:
    ana = Analyzer()
    with ana.constraint_scope(limit):
        return proves(ana, condition)


def no_gaps(realize: BlockRealize, made: BufferRegion, loops: Sequence[For]) -> bool:
    """Does the block write every element of the box that its region covers?"""
    values: dict[Any, Any] = {iv.var: v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    point = [substitute(r.min, values) for r in made.region]
    inner = {p.loop_var for p in loops}
    if not any(x in inner for e in point for x in walk(e)):
        return True
    domains = {v: r for v, r in domains_of(loops).items() if any(x is v for e in point for x in walk(e))}
    limits = [cmp(LT, e, cast(n, e.dtype)) for e, n in zip(point, made.buffer.shape, strict=True)]
    where: PrimExpr = IntImm("bool", 1)
    for c in conjuncts(realize.predicate):
        if any(_follows(x, c) for x in limits):
            continue  # the copy keeps to the buffer, too
        if any(isinstance(x, Var) and x not in domains for x in walk(c)):
            return False
        where = logical_and(where, c)
    found = detect_iter_map(point, domains, where)
    if not found.indices:
        return False
    return all(not x.args or (len(x.args) == 1 and value_of(x.args[0].scale) == 1) for x in found.indices)
