"""Primitives that move the computation of a block: inline it, or compute it inside a loop of its consumer or producer."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import GE, LT, IntImm, PrimExpr, Var, add, cast, cmp, const, logical_and, sub
from tilewright.ir.node import map_children, replace, walk
from tilewright.ir.rewrite import substitute
from tilewright.tir.analysis.regions import accesses
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    IterVar,
    Range,
    Stmt,
    seq,
)
from tilewright.tir.lower.index import IndexSpace
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.annotate import get_consumers, get_producers, siblings
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, LoopRV, Path, State, iter_kinds, nearest_blocks, with_regions

__all__ = ["compute_at", "compute_inline", "reverse_compute_at", "reverse_compute_inline"]


# ---- inlining --------------------------------------------------------------------------------------------------------


def _scope_of(path: Path) -> BlockRealize:
    return next(p for p in reversed(path[:-1]) if isinstance(p, BlockRealize))


def _is_temp(s: State, block: BlockRV, b: Buffer) -> bool:
    """Does the buffer live in a block of the function (and not with the caller)?"""
    return b not in set(s.func(block.func).buffer_map.values())


def _drop_buffer(s: State, func: str, b: Buffer) -> None:
    """Remove the allocation of a buffer that nothing uses any more."""

    def visit(x: Any) -> Any:
        if isinstance(x, Block) and b in x.alloc_buffers:
            x = replace(x, alloc_buffers=tuple(a for a in x.alloc_buffers if a is not b))
        return map_children(x, lambda c: visit(c) if isinstance(c, Stmt) else c)

    s.set_body(func, visit(s.func(func).body))


def _nest(path: Path) -> Path:
    """The way to the outermost loop that holds only this block (or to the block itself)."""
    end = len(path)
    while end >= 2 and isinstance(path[end - 2], For):
        end -= 1
    return path[:end]


def _lone_store(s: State, block: BlockRV, what: str) -> BufferStore:
    realize = s.block(block)
    body = realize.block.body
    if realize.block.init is not None or not isinstance(body, BufferStore):
        reason = "it is a reduction" if realize.block.init is not None else "its body is not one store"
        raise fail("TW0421", f"cannot {what} the block {block.name!r}: {reason}", s.func(block.func), realize)
    return body


def _distinct_iters(indices: tuple[PrimExpr, ...], block: Block) -> bool:
    own = {iv.var for iv in block.iter_vars}
    seen: set[Var] = set()
    for i in indices:
        if isinstance(i, Var) and i in own and i not in seen:
            seen.add(i)
        elif not (isinstance(i, IntImm) and i.value == 0):
            return False
    return True


def _replace_blocks(s: State, func: str, table: dict[int, BlockRealize]) -> None:
    def visit(x: Any) -> Any:
        found = table.get(id(x))
        return found if found is not None else map_children(x, lambda c: visit(c) if isinstance(c, Stmt) else c)

    s.set_body(func, visit(s.func(func).body))


@primitive
def compute_inline(s: State, block: BlockRV) -> None:
    """Compute an elementwise block where it is read, and remove it: its consumers get its expression.

    Raises ScheduleError TW0421 for a reduction, a block whose store is not at its own axes, or one whose result leaves the
    function.
    """
    store = _lone_store(s, block, "inline")
    path = s.block_path(block)
    realize = path[-1]
    assert isinstance(realize, BlockRealize)
    if not _is_temp(s, block, store.buffer):
        raise fail(
            "TW0421", f"cannot inline the block {block.name!r}: it writes {store.buffer.name}, a result", s.func(block.func), realize
        )  # fmt: skip
    if not _distinct_iters(store.indices, realize.block):
        raise fail(
            "TW0421", f"cannot inline the block {block.name!r}: it does not store at its own axes", s.func(block.func), realize
        )  # fmt: skip
    table: dict[int, BlockRealize] = {}
    for user in nearest_blocks(_scope_of(path).block.body):
        if user is realize or not any(isinstance(x, BufferLoad) and x.buffer is store.buffer for x in walk(user.block)):
            continue
        table[id(user)] = replace(user, block=with_regions(_inlined(user.block, store)))
    s.put(block.func, _nest(path), None)
    _replace_blocks(s, block.func, table)
    _drop_buffer(s, block.func, store.buffer)


def _inlined(user: Block, store: BufferStore) -> Block:
    def visit(x: Any) -> Any:
        if isinstance(x, BufferLoad) and x.buffer is store.buffer:
            mapping = {v: visit(i) for v, i in zip(store.indices, x.indices, strict=True) if isinstance(v, Var)}
            return substitute(store.value, mapping)
        return x if x.identity else map_children(x, visit)

    return replace(user, body=visit(user.body), init=None if user.init is None else visit(user.init))


@primitive
def reverse_compute_inline(s: State, block: BlockRV) -> None:
    """Compute an elementwise consumer where its input is made: the producer stores the consumer's result instead.

    Raises ScheduleError TW0421 where the block is no elementwise consumer of one producer, or the producer is a reduction.
    """
    store = _lone_store(s, block, "inline")
    path = s.block_path(block)
    realize = path[-1]
    assert isinstance(realize, BlockRealize)
    makers = get_producers(s, block)
    if len(makers) != 1:
        raise fail(
            "TW0421", f"the block {block.name!r} has {len(makers)} producers, not one", s.func(block.func), realize
        )
    maker = s.block(makers[0])
    made = _lone_store(s, makers[0], "inline into")
    loads = [x for x in walk(store.value) if isinstance(x, BufferLoad) and x.buffer is made.buffer]
    same = all(
        len(x.indices) == len(loads[0].indices) and all(a is b for a, b in zip(x.indices, loads[0].indices))
        for x in loads
    )
    if not loads or not same or not _distinct_iters(loads[0].indices, realize.block):
        raise fail(
            "TW0421", f"the block {block.name!r} does not read {made.buffer.name} elementwise", s.func(block.func), realize
        )  # fmt: skip
    if len(get_consumers(s, makers[0])) != 1 or not _is_temp(s, block, made.buffer):
        raise fail("TW0421", f"{made.buffer.name} is needed elsewhere too", s.func(block.func), maker)
    covered = {i for i in loads[0].indices if isinstance(i, Var)}
    if any(iv.var not in covered and not _unit(iv) for iv in realize.block.iter_vars):
        raise fail("TW0421", f"the block {block.name!r} has axes its input does not have", s.func(block.func), realize)
    mapping: dict[Any, Any] = {v: i for v, i in zip(loads[0].indices, made.indices, strict=True) if isinstance(v, Var)}
    for iv in realize.block.iter_vars:
        mapping.setdefault(iv.var, const(0, iv.var.dtype))

    def visit(x: Any) -> Any:
        if isinstance(x, BufferLoad) and x.buffer is made.buffer:
            return made.value
        return x if x.identity else map_children(x, visit)

    value = visit(substitute(store.value, mapping))
    new = BufferStore(store.buffer, value, tuple(substitute(i, mapping) for i in store.indices))
    s.put(block.func, _nest(path), None)
    _replace_blocks(s, block.func, {id(maker): replace(maker, block=with_regions(replace(maker.block, body=new)))})
    _drop_buffer(s, block.func, made.buffer)


def _unit(iv: IterVar) -> bool:
    return iv.dom is not None and isinstance(iv.dom.extent, IntImm) and iv.dom.extent.value == 1


# ---- moving ----------------------------------------------------------------------------------------------------------


def _target_loop(s: State, block: BlockRV, loop: LoopRV) -> For:
    found = s.loop(loop)
    if any(b is s.block(block) for b in nearest_blocks(found.body)):
        raise fail(
            "TW0431", f"the block {block.name!r} is inside the loop {loop.var.name!r} already", s.func(loop.func), found
        )
    if not any(any(b is x for x in siblings(s, block)) for b in nearest_blocks(found.body)):
        raise fail(
            "TW0431",
            f"the loop {loop.var.name!r} is not in the scope of the block {block.name!r}",
            s.func(loop.func),
            found,
        )
    return found


def _loops_for(
    block: Block, domain: dict[Var, tuple[PrimExpr, PrimExpr] | None]
) -> tuple[list[tuple[Var, PrimExpr]], list[PrimExpr], PrimExpr]:
    """New loops of a moved block: (loops, values of the block's axes, predicate). `domain` gives the part of an axis that is
    needed; None: all of it."""
    loops: list[tuple[Var, PrimExpr]] = []
    values: list[PrimExpr] = []
    predicate: PrimExpr = IntImm("bool", 1)
    for iv in block.iter_vars:
        assert iv.dom is not None
        part = domain.get(iv.var)
        start, extent = (iv.dom.min, iv.dom.extent) if part is None else part
        start, extent = cast(start, iv.var.dtype), cast(extent, iv.var.dtype)
        if isinstance(extent, IntImm) and extent.value == 1:
            values.append(start)
        else:
            v = Var(f"ax{len(loops)}", iv.var.dtype)
            loops.append((v, extent))
            values.append(add(start, v))
        if part is not None:
            end = add(iv.dom.min, iv.dom.extent)
            predicate = logical_and(predicate, cmp(LT, values[-1], end))
            if not (isinstance(start, IntImm) and start.value >= 0):
                predicate = logical_and(predicate, cmp(GE, values[-1], iv.dom.min))
    return loops, values, predicate


def _insert(s: State, block: BlockRV, loop: LoopRV, domain: Any, first: bool, preserve_unit_loops: bool) -> None:
    """Take the block's nest away and build it anew inside the loop, before or after what is there."""
    realize = s.block(block)
    loops, values, predicate = _loops_for(realize.block, domain)
    del preserve_unit_loops
    moved: Stmt = BlockRealize(tuple(values), predicate, realize.block)
    for v, extent in reversed(loops):
        moved = For(v, const(0, v.dtype), extent, ForKind.SERIAL, moved)
    s.put(block.func, _nest(s.block_path(block)), None)
    path = s.loop_path(loop)
    target = path[-1]
    assert isinstance(target, For)
    body = seq(moved, target.body) if first else seq(target.body, moved)
    s.put(loop.func, path, replace(target, body=body))
    s.simplify(loop.func)


def _sole_writer(s: State, block: BlockRV, code: str) -> None:
    """A block that moves must make its result alone: no other block may write the same buffers."""
    me = s.block(block)
    for w in me.block.writes:
        for other in siblings(s, block):
            if other is not me and any(o.buffer is w.buffer for o in other.block.writes):
                raise fail(
                    code,
                    f"cannot move the block {block.name!r}: {w.buffer.name} is written by {other.block.name_hint!r} too",
                    s.func(block.func),
                    other,
                    hint="move blocks before decompose_reduction takes them apart",
                )


def _order(s: State, block: BlockRV, loop: For, before: bool) -> None:
    """Check that nothing that the block depends on (or that depends on it) is passed by the move."""
    everyone = siblings(s, block)
    inside = {id(b) for b in nearest_blocks(loop.body)}
    places = [i for i, b in enumerate(everyone) if id(b) in inside]
    mine = next(i for i, b in enumerate(everyone) if b is s.block(block))
    if (mine > min(places)) if before else (mine < max(places)):
        side = "consumer" if before else "producer"
        name = "reverse_compute_at" if before else "compute_at"
        raise fail(
            "TW0432",
            f"the loop {loop.loop_var.name!r} holds no {side} of the block {block.name!r} to move it to",
            s.func(block.func),
            loop,
            hint=f"did you mean {name}?",
        )


@primitive
def compute_at(s: State, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1) -> None:
    """Compute a producer inside a loop of its consumers: each iteration makes just the part that it needs.

    All consumers must be inside the loop. Raises ScheduleError TW0431/TW0432/TW0433 otherwise.
    """
    del index
    target = _target_loop(s, block, loop)
    _sole_writer(s, block, "TW0433")
    _order(s, block, target, True)
    realize = s.block(block)
    inside = {id(b) for b in nearest_blocks(target.body)}
    for c in get_consumers(s, block):
        if id(s.block(c)) not in inside:
            raise fail(
                "TW0433", f"the consumer {c.name!r} of {block.name!r} is outside the loop {loop.var.name!r}",
                s.func(block.func), s.block(c),
            )  # fmt: skip
    if not get_consumers(s, block):
        raise fail(
            "TW0433", f"the block {block.name!r} has no consumer: it makes a result", s.func(block.func), realize
        )
    needed, _, _ = accesses(target.body)
    domain: dict[Var, Any] = {}
    for w in realize.block.writes:
        if w.buffer not in needed:
            continue
        for r, need in zip(w.region, needed[w.buffer].ranges(), strict=True):
            if isinstance(r.min, Var):
                domain[r.min] = (need.min, need.extent)
            elif not isinstance(r.min, IntImm):
                raise fail("TW0433", f"{block.name!r} does not write at its own axes", s.func(block.func), realize)
    _check_axes(s, block, domain)
    _insert(s, block, loop, domain, True, preserve_unit_loops)


def _check_axes(s: State, block: BlockRV, domain: dict[Var, Any]) -> None:
    """Axes that are computed in part must be spatial."""
    for iv in s.block(block).block.iter_vars:
        if iv.var in domain and iv.iter_type != IterVar.DataPar:
            raise fail(
                "TW0433",
                f"the axis {iv.var.name!r} of {block.name!r} is not spatial",
                s.func(block.func),
                s.block(block),
            )


@primitive
def reverse_compute_at(
    s: State, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
) -> None:
    """Compute a consumer inside a loop of its producers: right after the part that it reads has been made.

    All producers must be inside the loop, and their reductions must be finished within one iteration of it. Raises
    ScheduleError TW0431/TW0432/TW0434 otherwise.
    """
    del index
    target = _target_loop(s, block, loop)
    _sole_writer(s, block, "TW0434")
    _order(s, block, target, False)
    realize = s.block(block)
    inside = {id(b): b for b in nearest_blocks(target.body)}
    makers = [s.block(p) for p in get_producers(s, block)]
    for m in makers:
        if id(m) not in inside:
            raise fail(
                "TW0434", f"the producer {m.block.name_hint!r} of {block.name!r} is outside the loop {loop.var.name!r}",
                s.func(block.func), m,
            )  # fmt: skip
        path = s.block_path(BlockRV(m.block.name_hint, block.func))
        outer = [p for p in path[: path.index(target) + 1] if isinstance(p, For)]
        for o in outer:
            if iter_kinds(m, o.loop_var) - {IterVar.DataPar}:
                raise fail(
                    "TW0434",
                    f"{m.block.name_hint!r} reduces over {o.loop_var.name!r}: its result is not finished inside {loop.var.name!r}",
                    s.func(block.func),
                    o,
                    hint="reorder the reduction loops inside, or choose a loop outside them",
                )
    _, made, _ = accesses(target.body)
    domain: dict[Var, Any] = {}
    for r in realize.block.reads:
        if r.buffer not in made:
            continue
        for want, have in zip(r.region, made[r.buffer].ranges(), strict=True):
            var, shift = _plain(want)
            if var is None:
                continue
            if var in domain:
                old_start, old_extent = domain[var]
                if not _same(old_start, sub(have.min, shift)) or not _same(old_extent, have.extent):
                    raise fail(
                        "TW0434", f"{block.name!r} reads its producers at different places", s.func(block.func), realize
                    )
            domain[var] = (sub(have.min, shift), have.extent)
    _check_axes(s, block, domain)
    if not domain:
        raise fail("TW0434", f"{block.name!r} does not read its producers at its own axes", s.func(block.func), realize)
    _insert(s, block, loop, domain, False, preserve_unit_loops)


def _plain(r: Range) -> tuple[Var | None, PrimExpr]:
    """(v, c) where the range is the single element v + c."""
    zero = const(0, r.min.dtype)
    if not (isinstance(r.extent, IntImm) and r.extent.value == 1):
        return None, zero
    space = IndexSpace()
    p = dict(space.poly(r.min))
    c = p.pop((), 0)
    if len(p) == 1:
        ((mono, factor),) = p.items()
        if factor == 1 and len(mono) == 1 and isinstance(space.atoms[mono[0]], Var):
            found = space.atoms[mono[0]]
            assert isinstance(found, Var)
            return found, const(c, r.min.dtype)
    return None, zero


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    space = IndexSpace()
    return space.poly(a) == space.poly(b)
