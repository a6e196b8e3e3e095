"""Primitives that copy a buffer into one that lies as a block walks: its indices are the block's axes, or a map of them.

C[i, j] = f(A[j, i*2])    ▶    A_r[i, j] = A[j, i*2];  C[i, j] = f(A_r[i, j])      reindex(C, ("read", 0))
                          ▶    A_l[j, i] = A[j, i*2];  C[i, j] = f(A_l[j, i])      reindex_cache_read(C, 0, "local", lambda i, j: (j, i))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Select, Var, cast, const, logical_and
from tilewright.arith.int_set import eval_range
from tilewright.arith.iter_map import detect_iter_map
from tilewright.ir.node import map_children, replace, walk
from tilewright.ir.rewrite import substitute
from tilewright.ir.structure import structural_equal
from tilewright.tir.index_map import IndexMap
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
    decl_buffer,
)
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.arguments import as_buffer, as_index_map, buffer_of, index_dtype
from tilewright.tir.schedule.primitives.caching import (
    Place,
    allocate,
    body_of,
    edit_blocks,
    find_place,
    insert_at,
    items_of,
    only_writer,
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
    uses_pointer,
    why_unfinished,
    writers,
)
from tilewright.tir.schedule.primitives.relax import domains_of, proves, relax, value_of
from tilewright.tir.schedule.primitives.solve import invert
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, Path, State, conjuncts

__all__ = ["reindex", "reindex_cache_read", "reindex_cache_write"]

CODE = "TW0468"


def _rv(s: State, block: BlockRV | str) -> BlockRV:
    return BlockRV(block, s.func_name) if isinstance(block, str) else block


def _point(s: State, block: BlockRV, realize: BlockRealize, buffer: Buffer, what: str) -> tuple[PrimExpr, ...]:
    """The indices at which the block touches the buffer: the same everywhere."""
    body = realize.block
    root = s.func(block.func)
    for side in (body.reads, body.writes):
        r = region_of(side, buffer)
        if r is not None and any(value_of(x.extent) != 1 for x in r.region):
            raise fail(
                CODE, f"{what} needs a single point: {block.name!r} touches a region of {buffer.name}", root, realize
            )
    if uses_pointer(body, buffer) or any(
        isinstance(x, Block) and any(m.source.buffer is buffer for m in x.match_buffers) for x in walk(body)
    ):
        raise fail(CODE, f"{block.name!r} uses {buffer.name} as a pointer or a view", root, realize)
    found = [
        x.indices for x in walk(body) if isinstance(x, (BufferLoad, BufferStore)) and x.buffer is buffer
    ]  # fmt: skip
    if not found:
        raise fail(CODE, f"{block.name!r} does not touch {buffer.name} by its elements", root, realize)
    inner: set[Any] = {x.loop_var for x in walk(body.body) if isinstance(x, For)}
    inner |= {iv.var for x in walk(body.body) if isinstance(x, Block) for iv in x.iter_vars}
    if any(x in inner for e in found[0] for x in walk(e)):
        raise fail(
            CODE,
            f"{what} needs a single point: {block.name!r} touches {buffer.name} in loops or blocks of its own",
            root,
            realize,
        )
    for other in found[1:]:
        if not structural_equal(found[0], other):
            raise fail(
                CODE,
                f"{what} needs a single point: {block.name!r} touches {buffer.name} at {list(found[0])} and {list(other)}",
                root,
                realize,
            )
    inside = {x.loop_var for x in walk(body) if isinstance(x, For)}
    if any(x in inside for i in found[0] for x in walk(i)):
        raise fail(CODE, f"{block.name!r} touches {buffer.name} in loops or blocks of its own", root, realize)
    return found[0]


def _at(n: Any, old: Buffer, new: Buffer, indices: Sequence[PrimExpr]) -> Any:
    """A block with every access of `old` made one of `new` at the indices."""
    point = tuple(indices)
    region = tuple(Range(i, const(1, i.dtype)) for i in point)

    def visit(x: Any) -> Any:
        if isinstance(x, BufferRegion) and x.buffer is old:
            return BufferRegion(new, region)
        if isinstance(x, BufferLoad) and x.buffer is old:
            return BufferLoad(new, point)
        if isinstance(x, BufferStore) and x.buffer is old:
            return BufferStore(new, visit(x.value), point)
        return x if x.identity else map_children(x, visit)

    return visit(n)


def _copy(
    iters: Sequence[IterVar], values: Sequence[PrimExpr], predicate: PrimExpr, ends: Any, name: str
) -> BlockRealize:
    """A block that copies one element: `ends` is (from, at, to, at)."""
    source, there, dest, here = ends
    store = BufferStore(dest, BufferLoad(source, there), here)
    reads = BufferRegion(source, tuple(Range(i, const(1, i.dtype)) for i in there))
    writes = BufferRegion(dest, tuple(Range(i, const(1, i.dtype)) for i in here))
    return BlockRealize(tuple(values), predicate, Block(tuple(iters), (reads,), (writes,), name, store))


# ---- reindex ---------------------------------------------------------------------------------------------------------


def _prepare(s: State, arguments: dict[str, Any]) -> None:
    block = arguments["block"] = _rv(s, arguments["block"])
    given = arguments["buffer"]
    if isinstance(given, str):
        realize = s.block(block).block
        # a reduction reads what it writes: its result is meant by the name
        for kind, side in (("write", realize.writes), ("read", realize.reads)):
            found = [i for i, r in enumerate(side) if r.buffer.name == given]
            if len(found) == 1:
                arguments["buffer"] = (kind, found[0])
                return
    arguments["buffer"] = as_buffer(s, block, given)


@primitive(prepare=_prepare)
def reindex(s: State, block: BlockRV, buffer: tuple[str, int] | str | Buffer) -> BlockRV:
    """Copy a buffer that a block reads (before it) or writes (after it) into one whose indices are the axes of the block that
    occur in the access. Returns the block that copies. `buffer`: ("read" | "write", index), a name, or the buffer.

    Raises ScheduleError TW0482 (no such buffer), TW0453 (several blocks write it), TW0468 (accesses at several places, or
    who makes or uses the buffer stands in the same loops).
    """
    assert isinstance(buffer, tuple)
    reading = buffer[0] == "read"
    path, realize = find_block(s, block)
    scope = scope_path(path)
    everyone = paths_of(scope)
    old = buffer_of(s, block, buffer)
    indices = _point(s, block, realize, old, "reindex")
    only_writer(s, block, everyone, old)
    related = writers(everyone, old) if reading else [p for p in readers(everyone, old) if p[-1] is not realize]
    if reading and any(p[-1] is realize for p in related):
        raise fail(CODE, f"{block.name!r} writes {old.name} too: reindex what it writes", s.func(block.func), realize)
    around = {p.loop_var for p in path[: len(scope)] if isinstance(p, For)}
    if not reading and any(x in around for v in realize.iter_values for x in walk(v)):
        raise fail(
            CODE,
            f"cannot reindex what {block.name!r} writes: loops outside of its scope move it, so that the scope makes a part only",
            s.func(block.func),
            realize,
        )
    place = _beside(s, block, scope, path, related, old, reading)
    ana = Analyzer()
    for iv in realize.block.iter_vars:
        if iv.dom is not None and value_of(iv.dom.extent) != 1:
            ana.bind(iv.var, iv.dom)
    in_bounds = all(proves(ana, i >= 0) and proves(ana, i < n) for i, n in zip(indices, old.shape, strict=True))
    if not in_bounds:
        if any(_is_choice(x) for x in walk(realize.block.body)):
            raise fail(
                CODE,
                f"cannot reindex {old.name}: {block.name!r} touches it under a condition only, and the copy would leave its bounds",
                s.func(block.func),
                realize,
            )
    simple = [ana.simplify(i) for i in indices]
    used = [iv for iv in realize.block.iter_vars if any(x is iv.var for e in simple for x in walk(e))]
    if not reading:
        _not_in_place(s, block, path, realize, old)
    if not reading or not in_bounds:
        _walks_all(s, block, scope, path, realize, used, old)
    axes = [Var(f"v{n}", iv.var.dtype) for n, iv in enumerate(used)]
    loops = [Var(f"ax{n}", iv.var.dtype) for n, iv in enumerate(used)]
    shape = [iv.dom.min + iv.dom.extent if iv.dom is not None else const(1) for iv in used]
    new = decl_buffer(shape, old.dtype, f"{old.name}_reindex", scope=old.scope())
    there = tuple(substitute(e, {iv.var: v for iv, v in zip(used, axes, strict=True)}) for e in simple)
    here: tuple[PrimExpr, ...] = tuple(axes)
    ends = (old, there, new, here) if reading else (new, here, old, there)
    name = s.unique(block.func, f"{new.name if reading else old.name}_reindex")
    iters = [replace(iv, var=v, iter_type=IterVar.DataPar) for iv, v in zip(used, axes, strict=True)]
    nest: Stmt = _copy(iters, loops, IntImm("bool", 1), ends, name)
    for v, iv in zip(reversed(loops), reversed(used), strict=True):
        assert iv.dom is not None
        nest = For(v, iv.dom.min, iv.dom.extent, ForKind.SERIAL, nest)
    _finish(s, block, scope, place, nest, new, lambda r: _at(r, old, new, [iv.var for iv in used]))
    return BlockRV(name, block.func)


def _is_choice(x: Any) -> bool:
    return isinstance(x, (Select, IfThenElse)) or getattr(getattr(x, "op", None), "name", "") == "tir.if_then_else"


def _not_in_place(s: State, block: BlockRV, path: Path, realize: BlockRealize, buffer: Buffer) -> None:
    why = why_unfinished(path, buffer)
    if why is not None:
        raise fail(CODE, f"cannot copy what {block.name!r} writes: {why}", s.func(block.func), realize)


def _walks_all(
    s: State, block: BlockRV, scope: Path, path: Path, realize: BlockRealize, used: Sequence[IterVar], buffer: Buffer
) -> None:
    """The copy covers the domains of the axes: the block must run over all of them."""
    loops = loops_below(path, scope[-1])
    bound = {iv.var: v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    point = [bound[iv.var] for iv in used]
    shape = [iv.dom.min + iv.dom.extent for iv in used if iv.dom is not None]
    ana = Analyzer()
    for p in scope:
        if isinstance(p, For):
            ana.bind(p.loop_var, Range(p.min, p.extent))
    ends = relax([Range(e, const(1, e.dtype)) for e in point], domains_of(loops), ana, shape, realize.predicate)
    whole = all(
        e is not None and iv.dom is not None and proves(ana, e[0] <= iv.dom.min) and proves(ana, e[1] >= n - 1)
        for e, iv, n in zip(ends, used, shape, strict=True)
    )
    inside = {v: r for v, r in domains_of(loops).items() if any(x is v for e in point for x in walk(e))}
    if not whole or (inside and not detect_iter_map(point, inside, realize.predicate).indices):
        raise fail(
            CODE,
            f"cannot reindex {buffer.name}: {block.name!r} does not run over all of its axes, as the copy would",
            s.func(block.func),
            realize,
        )


def _beside(
    s: State, block: BlockRV, scope: Path, path: Path, related: Sequence[Path], buffer: Buffer, before: bool
) -> Place:
    """The place before or after the statement of the scope that holds the block."""
    items = items_of(body_of(scope[-1]))
    n = next(i for i, x in enumerate(items) if any(x is p for p in path))
    for p in related:
        if any(items[n] is x for x in p):
            other = p[-1].block.name_hint  # pyright: ignore
            raise fail(
                CODE,
                f"cannot reindex {buffer.name}: {other!r}, which {'writes' if before else 'reads'} it, stands in the same loops",
                s.func(block.func),
                p[-1],
            )
        m = next(i for i, x in enumerate(items) if any(x is y for y in p))
        if (m > n) if before else (m < n):
            raise fail(
                CODE,
                f"cannot reindex {buffer.name}: {p[-1].block.name_hint!r} uses it on the other side",  # pyright: ignore
                s.func(block.func),
                p[-1],
            )
    return Place(list(scope), n if before else n + 1)


def _finish(s: State, block: BlockRV, scope: Path, place: Place, nest: Stmt, new: Buffer, change: Any) -> None:
    """Put the copy in its place, allocate the new buffer, and change the block."""
    realize = s.block(block)
    top = scope[-1]
    assert isinstance(top, BlockRealize)
    grown = allocate(insert_at(top, place, nest), new)
    body = edit_blocks(grown.block.body, [realize], lambda r: replace(r, block=change(r.block)))
    s.put(block.func, scope, replace(grown, block=replace(grown.block, body=body)))


# ---- reindexed caches ------------------------------------------------------------------------------------------------


def _prepare_map(s: State, arguments: dict[str, Any]) -> None:
    block = arguments["block"] = _rv(s, arguments["block"])
    n = len(s.block(block).block.iter_vars)
    arguments["index_map"] = as_index_map(arguments["index_map"], n, index_dtype(s, block))


def _mapped(
    s: State, block: BlockRV, realize: BlockRealize, indices: Sequence[PrimExpr], index_map: IndexMap, what: str
) -> tuple[list[IterVar], list[PrimExpr], list[PrimExpr]]:
    """(the axes that occur, where the map puts them, the shape of the cache)."""
    root = s.func(block.func)
    axes = realize.block.iter_vars
    if len(index_map.initial_indices) != len(axes):
        raise fail(
            CODE,
            f"the index map takes {len(index_map.initial_indices)} axes, {block.name!r} has {len(axes)}",
            root,
            realize,
        )
    table: dict[Any, Any] = {v: cast(iv.var, v.dtype) for v, iv in zip(index_map.initial_indices, axes, strict=True)}
    points = [substitute(e, table) for e in index_map.final_indices]
    for iv in axes:
        accessed = any(x is iv.var for e in indices for x in walk(e))
        mapped = any(x is iv.var for e in points for x in walk(e))
        if accessed != mapped:
            one, other = ("the access", "the map") if accessed else ("the map", "the access")
            raise fail(CODE, f"{what}: the axis {iv.var.name!r} occurs in {one}, but not in {other}", root, realize)
    used = [iv for iv in axes if any(x is iv.var for e in points for x in walk(e))]
    domains = {iv.var: iv.dom for iv in used if iv.dom is not None}
    marks = [Var(f"o{n}", e.dtype) for n, e in enumerate(points)]
    if invert(points, domains, marks) is None:
        raise fail(CODE, f"{what}: the index map puts different elements into one place", root, realize)
    shape: list[PrimExpr] = []
    ana = Analyzer()
    for e in points:
        ends = eval_range(e, domains, ana)
        if ends is None or not proves(ana, ends[0] >= 0):
            raise fail(CODE, f"{what}: the index {e} of the map is not bounded from 0 on", root, realize)
        shape.append(ana.simplify(ends[1] + 1))
    return used, points, shape


def _nest(realize: BlockRealize, used: Sequence[IterVar], loops: Sequence[For], ends: Any, name: str) -> Stmt:
    """A copy at the points where the block runs: its own loops, as far as the axes that occur need them."""
    values = {
        iv.var: v
        for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if any(iv is u for u in used)
    }
    needed = [p for p in loops if any(x is p.loop_var for v in values.values() for x in walk(v))]
    dropped = {p.loop_var for p in loops} - {p.loop_var for p in needed}
    fresh: dict[Any, Any] = {p.loop_var: Var(p.loop_var.name, p.loop_var.dtype) for p in needed}
    axes: dict[Any, Any] = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in used}
    predicate: PrimExpr = IntImm("bool", 1)
    for part in conjuncts(realize.predicate):
        if not any(x in dropped for x in walk(part)):
            predicate = logical_and(predicate, part)
    source, there, dest, here = ends
    moved = (source, tuple(substitute(e, axes) for e in there), dest, tuple(substitute(e, axes) for e in here))
    iters = [replace(iv, var=axes[iv.var], iter_type=IterVar.DataPar) for iv in used]
    out: Stmt = _copy(
        iters, [substitute(values[iv.var], fresh) for iv in used], substitute(predicate, fresh), moved, name
    )
    for p in reversed(needed):
        kind = p.kind if p.kind == ForKind.THREAD_BINDING else ForKind.SERIAL
        out = For(fresh[p.loop_var], p.min, p.extent, kind, out, p.thread_binding)
    return out


def _cache(s: State, block: BlockRV, index: Any, storage_scope: str, index_map: IndexMap, reading: bool) -> BlockRV:
    what = "reindex_cache_read" if reading else "reindex_cache_write"
    check_scope(s, block, storage_scope)
    path, realize = find_block(s, block)
    _, old = buffer_at(s, block, index, "reads" if reading else "writes")
    scope = scope_path(path)
    everyone = paths_of(scope)
    indices = _point(s, block, realize, old, what)
    used, points, shape = _mapped(s, block, realize, indices, index_map, what)
    writer = only_writer(s, block, everyone, old)
    mine = next(i for i, p in enumerate(everyone) if p[-1] is realize)
    order = [next(i for i, q in enumerate(everyone) if q[-1] is p[-1]) for p in readers(everyone, old)]
    if reading:
        if writer is not None and writer[-1] is realize:
            raise fail(CODE, f"{block.name!r} writes {old.name} too", s.func(block.func), realize)
        late = writer is not None and next(i for i, p in enumerate(everyone) if p[-1] is writer[-1]) > mine
        if late:
            assert writer is not None
            raise fail(CODE, f"{old.name} is written after {block.name!r} reads it", s.func(block.func), writer[-1])
        place = find_place(scope, writer, [path])
    else:
        _not_in_place(s, block, path, realize, old)
        early = [p for p, i in zip(readers(everyone, old), order, strict=True) if i < mine]
        if early:
            raise fail(CODE, f"{old.name} is read before {block.name!r} writes it", s.func(block.func), early[0][-1])
        place = find_place(scope, path, [p for p, i in zip(readers(everyone, old), order, strict=True) if i > mine])
    new = decl_buffer(shape, old.dtype, f"{old.name}_{storage_scope}", scope=storage_scope)
    name = s.unique(block.func, new.name)
    ends = (old, indices, new, points) if reading else (new, points, old, indices)
    nest = _nest(realize, used, loops_below(path, place.container), ends, name)
    _finish(s, block, scope, place, nest, new, lambda b: _at(b, old, new, points))
    return BlockRV(name, block.func)


@primitive(prepare=_prepare_map)
def reindex_cache_read(
    s: State, block: BlockRV, read_buffer_index: int | str | Buffer, storage_scope: str, index_map: Any
) -> BlockRV:
    """Copy what a block reads of a buffer into a new one in `storage_scope`, where the element that the block reads at its
    axes lies at `index_map(*axes)`. Only this block reads it. Returns the block that copies.

    Raises ScheduleError TW0451, TW0452, TW0453 as cache_read, TW0468 (accesses at several places; a map of other axes than
    those of the access, or that puts two elements into one place).
    """
    return _cache(s, block, read_buffer_index, storage_scope, index_map, True)


@primitive(prepare=_prepare_map)
def reindex_cache_write(
    s: State, block: BlockRV, write_buffer_index: int | str | Buffer, storage_scope: str, index_map: Any
) -> BlockRV:
    """Let a block write into a new buffer in `storage_scope` at `index_map(*axes)`, and copy that to the old one afterwards.
    Returns the block that copies. Raises ScheduleError as reindex_cache_read."""
    return _cache(s, block, write_buffer_index, storage_scope, index_map, False)
