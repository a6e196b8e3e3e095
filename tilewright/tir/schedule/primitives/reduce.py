"""Primitives on reductions: take the initialisation apart, or split the reduction in two."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Add, And, IntImm, Max, Min, Mul, Or, PrimExpr, Var, cast, const
from tilewright.ir.node import map_children, replace
from tilewright.ir.rewrite import substitute
from tilewright.ir.structure import structural_equal
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    IterVar,
    Range,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.lower.index import mentions
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.caching import _scope_path  # pyright: ignore[reportPrivateUsage]
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, LoopRV, State, conjuncts, with_regions

__all__ = ["decompose_reduction", "rfactor"]


def _reduction(s: State, block: BlockRV) -> BlockRealize:
    realize = s.block(block)
    if realize.block.init is None:
        raise fail("TW0461", f"the block {block.name!r} is no reduction: it has no init", s.func(block.func), realize)
    return realize


def _reduces(realize: BlockRealize, var: Var) -> bool:
    return any(
        iv.iter_type != IterVar.DataPar and mentions(v, var)
        for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)
    )


@primitive
def decompose_reduction(s: State, block: BlockRV, loop: LoopRV) -> BlockRV:
    """Initialise in a block of its own, just before `loop`; what is left only updates. Returns the new block.

    No loop outside `loop` may belong to the reduction (ScheduleError TW0462). The block is called `<name>_update` from then
    on, the new one `<name>_init`; the old handle stays good.
    """
    realize = _reduction(s, block)
    path = s.block_path(block)
    target = s.loop(loop)
    if not any(p is target for p in path):
        raise fail(
            "TW0462", f"the loop {loop.var.name!r} is not around the block {block.name!r}", s.func(block.func), target
        )
    position = next(i for i, p in enumerate(path) if p is target)
    for p in path[:position]:
        if isinstance(p, For) and _reduces(realize, p.loop_var):
            raise fail(
                "TW0462",
                f"cannot initialise {block.name!r} at {loop.var.name!r}: the loop {p.loop_var.name!r} outside it belongs to "
                "the reduction",
                s.func(block.func),
                p,
                hint=f"decompose at {p.loop_var.name!r}, or reorder it inside",
            )
    inner = [p for p in path[position:] if isinstance(p, For)]
    old = realize.block
    assert old.init is not None
    name = old.name_hint
    spatial = [
        (iv, v) for iv, v in zip(old.iter_vars, realize.iter_values, strict=True) if iv.iter_type == IterVar.DataPar
    ]
    kept = [p for p in inner if any(mentions(v, p.loop_var) for _, v in spatial)]
    loops = {p.loop_var: Var(f"{p.loop_var.name}_init", p.loop_var.dtype) for p in kept}
    fresh = {iv.var: Var(f"{iv.var.name}_init", iv.var.dtype) for iv, _ in spatial}
    iters = tuple(replace(iv, var=fresh[iv.var]) for iv, _ in spatial)
    init_block = Block(
        iters, (), tuple(substitute(w, fresh) for w in old.writes), s.unique(block.func, f"{name}_init"), substitute(old.init, fresh)
    )  # fmt: skip
    dropped = {p.loop_var for p in inner if p.loop_var not in loops}
    predicate: PrimExpr = IntImm("bool", 1)
    for part in conjuncts(realize.predicate):
        if not any(mentions(part, v) for v in dropped):
            predicate = part if isinstance(predicate, IntImm) else And(predicate, part)
    start: Stmt = BlockRealize(
        tuple(substitute(v, loops) for _, v in spatial), substitute(predicate, loops), with_regions(init_block)
    )
    for p in reversed(kept):
        kind = p.kind if p.kind in (ForKind.PARALLEL, ForKind.VECTORIZED, ForKind.UNROLLED) else ForKind.SERIAL
        start = For(loops[p.loop_var], p.min, p.extent, kind, start)
    update_name = s.unique(block.func, f"{name}_update")
    update = with_regions(replace(old, init=None, name_hint=update_name))
    s.put(block.func, path, replace(realize, block=update))
    s.aliases[name] = update_name
    path = s.loop_path(loop)
    s.put(loop.func, path, seq(start, path[-1]))
    s.simplify(block.func)
    return BlockRV(init_block.name_hint, block.func)


_COMBINE = (Add, Mul, Max, Min, And, Or)


@primitive
def rfactor(s: State, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
    """Split a reduction in two: one that keeps the iterations of `loop` apart (in a new axis of a new buffer), and one that
    combines them. The first can run in parallel over that axis. Returns the block of the first.

    The loop must run over a reduction alone. Raises ScheduleError TW0463 otherwise.
    """
    path = s.loop_path(loop)
    target = path[-1]
    assert isinstance(target, For)
    inside: Stmt = target
    while isinstance(inside, For):
        inside = inside.body
    if not isinstance(inside, BlockRealize):
        raise fail("TW0463", f"the loop {loop.var.name!r} holds more than one block", s.func(loop.func), target)
    name = inside.block.name_hint
    block = BlockRV(name, loop.func)
    realize = _reduction(s, block)
    store = _pattern(s, block, realize)
    old = realize.block
    carriers = [
        (iv, v) for iv, v in zip(old.iter_vars, realize.iter_values, strict=True) if mentions(v, loop.var)
    ]  # fmt: skip
    if not carriers or any(iv.iter_type != IterVar.CommReduce for iv, _ in carriers):
        raise fail(
            "TW0463", f"the loop {loop.var.name!r} does not run over a reduction alone", s.func(loop.func), target
        )
    whole = s.block_path(block)
    loops = [p for p in whole if isinstance(p, For) and p in whole[len(_scope_path(whole)) :]]
    rank = len(store.indices)
    axis = factor_axis if factor_axis >= 0 else factor_axis + rank + 1
    if not 0 <= axis <= rank:
        raise fail(
            "TW0463", f"factor_axis must be in [-{rank + 1}, {rank}], got {factor_axis}", s.func(loop.func), target
        )
    shape = list(store.buffer.shape)
    shape.insert(axis, cast(target.extent, shape[0].dtype if shape else "int64"))
    rf = decl_buffer(shape, store.buffer.dtype, f"{store.buffer.name}_rf")
    first = _first(s, loop, realize, loops, store, rf, axis)
    second = _second(loop, realize, loops, store, rf, axis)
    scope = _scope_path(whole)
    top = whole[: len(scope) + _depth_below(whole, len(scope))]
    s.put(loop.func, top, seq(first, second))
    scope_now = s.block_path(BlockRV(name, loop.func))
    scope_path = _scope_path(scope_now)
    holder = scope_path[-1]
    assert isinstance(holder, BlockRealize)
    grown = replace(holder.block, alloc_buffers=(*holder.block.alloc_buffers, rf))
    s.put(loop.func, scope_path, replace(holder, block=grown))
    s.simplify(loop.func)
    return BlockRV(f"{name}_rf", loop.func)


def _depth_below(path: list[Stmt], start: int) -> int:
    """How many more steps lead to the outermost loop of the block's own nest."""
    i = start
    while i < len(path) and not isinstance(path[i], (For, BlockRealize)):
        i += 1
    return i - start + 1


def _pattern(s: State, block: BlockRV, realize: BlockRealize) -> BufferStore:
    body = realize.block.body
    if (
        isinstance(body, BufferStore)
        and isinstance(body.value, _COMBINE)
        and isinstance(realize.block.init, BufferStore)
    ):
        for side in (body.value.a, body.value.b):
            if (
                isinstance(side, BufferLoad)
                and side.buffer is body.buffer
                and structural_equal(side.indices, body.indices)
            ):
                return body
    raise fail(
        "TW0463", f"the block {block.name!r} is not of the form A[i] = A[i] + x (or *, min, max)", s.func(block.func), realize
    )  # fmt: skip


def _swap(e: Any, old: BufferLoad, new: BufferLoad) -> Any:
    def visit(x: Any) -> Any:
        if isinstance(x, BufferLoad) and x.buffer is old.buffer:
            return new
        return x if x.identity else map_children(x, visit)

    return visit(e)


def _first(
    s: State, loop: LoopRV, realize: BlockRealize, loops: list[For], store: BufferStore, rf: Any, axis: int
) -> Stmt:
    """The partial reduction, with the loop's variable as a spatial axis."""
    old = realize.block
    extent = rf.shape[axis]
    axis_var = Var(f"v{loop.var.name}", loop.var.dtype)
    names: dict[Any, Any] = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in old.iter_vars}
    iters: list[IterVar] = [IterVar(Range(const(0, axis_var.dtype), cast(extent, axis_var.dtype)), axis_var)]
    values: list[PrimExpr] = [loop.var]
    inner: dict[Any, PrimExpr] = {}
    for iv, v in zip(old.iter_vars, realize.iter_values, strict=True):
        if not mentions(v, loop.var):
            iters.append(replace(iv, var=names[iv.var]))
            values.append(v)
            continue
        # The axis is rebuilt from the new spatial axis and the loops that remain in it.
        mapping: dict[Any, PrimExpr] = {loop.var: axis_var}
        for p in loops:
            if p.loop_var is not loop.var and mentions(v, p.loop_var):
                part = Var(f"v{p.loop_var.name}", p.loop_var.dtype)
                iters.append(IterVar(Range(p.min, p.extent), part, IterVar.CommReduce))
                values.append(p.loop_var)
                mapping[p.loop_var] = part
        inner[iv.var] = substitute(v, mapping)
    replace_iters = {**{k: v for k, v in names.items() if k not in inner}, **inner}
    point = [substitute(i, replace_iters) for i in store.indices]
    point.insert(axis, cast(axis_var, rf.shape[axis].dtype))
    index = tuple(point)
    own = BufferLoad(rf, index)
    value = _swap(substitute(store.value, replace_iters), BufferLoad(store.buffer, store.indices), own)
    assert isinstance(old.init, BufferStore)
    block = Block(
        tuple(iters), (), (), s.unique(loop.func, f"{old.name_hint}_rf"), BufferStore(rf, value, index),
        BufferStore(rf, substitute(old.init.value, replace_iters), index),
    )  # fmt: skip
    out: Stmt = BlockRealize(tuple(values), realize.predicate, with_regions(block))
    for p in reversed(loops):
        out = replace(p, body=out)
    copies = {p.loop_var: Var(p.loop_var.name, p.loop_var.dtype) for p in loops if p.loop_var is not loop.var}
    return substitute(out, copies)


def _second(loop: LoopRV, realize: BlockRealize, loops: list[For], store: BufferStore, rf: Any, axis: int) -> Stmt:
    """The reduction over what the first one kept apart."""
    old = realize.block
    var = Var(f"v{loop.var.name}", loop.var.dtype)
    spatial = [
        (iv, v) for iv, v in zip(old.iter_vars, realize.iter_values, strict=True) if iv.iter_type == IterVar.DataPar
    ]
    outer = [p for p in loops if any(mentions(v, p.loop_var) for _, v in spatial)]
    again = Var(loop.var.name, loop.var.dtype)
    target = next(p for p in loops if p.loop_var is loop.var)
    iters = [*(iv for iv, _ in spatial), IterVar(Range(target.min, target.extent), var, IterVar.CommReduce)]
    values = [*(v for _, v in spatial), again]
    index = list(store.indices)
    index.insert(axis, cast(var, rf.shape[axis].dtype))
    own = BufferLoad(store.buffer, store.indices)
    kind: Any = type(store.value)
    value = kind(own, BufferLoad(rf, tuple(index)))
    block = Block(tuple(iters), (), (), old.name_hint, BufferStore(store.buffer, value, store.indices), old.init)
    predicate: PrimExpr = IntImm("bool", 1)
    for part in conjuncts(realize.predicate):
        used = [p for p in loops if mentions(part, p.loop_var)]
        if all(any(p is o for o in outer) for p in used):
            predicate = part if isinstance(predicate, IntImm) else And(predicate, part)
    out: Stmt = BlockRealize(tuple(values), predicate, with_regions(block))
    out = For(again, target.min, target.extent, ForKind.SERIAL, out)
    for p in reversed(outer):
        out = replace(p, body=out)
    return out
