"""Take the initialisation of a reduction apart from its updates."""

from __future__ import annotations

from tilewright.arith.expr import IntImm, PrimExpr, Var, logical_and
from tilewright.ir.node import replace
from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import Block, BlockRealize, BufferRegion, For, IterVar, Stmt, seq
from tilewright.tir.lower.index import mentions
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.reduction_block import reduction_of
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, LoopRV, Path, State, conjuncts, with_regions

__all__ = ["decompose_reduction"]


def _reduces(realize: BlockRealize, var: Var) -> bool:
    return any(
        iv.iter_type != IterVar.DataPar and mentions(v, var)
        for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)
    )


def _split_path(s: State, block: BlockRV, loop: LoopRV, realize: BlockRealize) -> list[For]:
    """The loops from `loop` on inwards. Raises ScheduleError TW0462 unless `loop` is around the block and no loop outside
    it belongs to the reduction."""
    path = s.block_path(block)
    target = s.loop(loop)
    scope = max(i for i, p in enumerate(path[:-1]) if isinstance(p, BlockRealize))
    own = [p for p in path[scope:] if isinstance(p, For)]
    if not any(p is target for p in own):
        raise fail(
            "TW0462",
            f"the loop {loop.var.name!r} is not around the block {block.name!r}",
            s.func(block.func),
            target,
            choices=[p.loop_var.name for p in own],
        )
    position = next(i for i, p in enumerate(own) if p is target)
    around = [p for p in path[:scope] if isinstance(p, For)]
    for p in (*around, *own[:position]):
        if _reduces(realize, p.loop_var):
            raise fail(
                "TW0462",
                f"cannot initialise {block.name!r} at {loop.var.name!r}: the loop {p.loop_var.name!r} outside it belongs to "
                "the reduction",
                s.func(block.func),
                p,
                hint=f"decompose at {p.loop_var.name!r}, or reorder it inside",
            )
    return own[position:]


@primitive
def decompose_reduction(s: State, block: BlockRV, loop: LoopRV) -> BlockRV:
    """Initialise in a block of its own, just before `loop`; what is left only updates. Returns the new block.

    No loop outside `loop` may belong to the reduction (ScheduleError TW0462; TW0461 where the block is no reduction). The
    block is called `<name>_update` from then on, the new one `<name>_init`; the old handle stays good.
    """
    realize = reduction_of(s, block)
    inner = _split_path(s, block, loop, realize)
    old = realize.block
    name = old.name_hint
    init_name = s.unique(block.func, f"{name}_init")
    init = _init_nest(init_name, realize, inner)
    update_name = s.unique(block.func, f"{name}_update")
    update = replace(old, init=None, name_hint=update_name, reads=_reads_of_update(old))
    path: Path = s.block_path(block)
    s.put(block.func, path, replace(realize, block=update))
    s.aliases[name] = update_name
    path = s.loop_path(loop)
    s.put(loop.func, path, seq(init, path[-1]))
    return BlockRV(init_name, block.func)


def _reads_of_update(old: Block) -> tuple[BufferRegion, ...]:
    """What the updates read: what they write too, which the whole reduction need not say."""
    known = {r.buffer for r in old.reads}
    return (*(w for w in old.writes if w.buffer not in known), *old.reads)


def _init_nest(name: str, realize: BlockRealize, inner: list[For]) -> Stmt:
    """The loops of `inner` that move the block's spatial iterators, around its init."""
    old = realize.block
    assert old.init is not None
    spatial = [
        (iv, v) for iv, v in zip(old.iter_vars, realize.iter_values, strict=True) if iv.iter_type == IterVar.DataPar
    ]
    kept = [p for p in inner if any(mentions(v, p.loop_var) for _, v in spatial)]
    loops = {p.loop_var: Var(f"{p.loop_var.name}_init", p.loop_var.dtype) for p in kept}
    fresh = {iv.var: Var(f"{iv.var.name}_init", iv.var.dtype) for iv, _ in spatial}
    iters = tuple(replace(iv, var=fresh[iv.var]) for iv, _ in spatial)
    writes = tuple(substitute(w, fresh) for w in old.writes)
    init = substitute(old.init, fresh)
    new = Block(iters, (), writes, name, init, None, (), (), old.annotations)
    dropped = [p.loop_var for p in inner if p.loop_var not in loops]
    single = {p.loop_var: p.min for p in inner if isinstance(p.extent, IntImm) and p.extent.value == 1}
    predicate: PrimExpr = IntImm("bool", 1)
    for part in conjuncts(substitute(realize.predicate, {v: e for v, e in single.items() if v not in loops})):
        if not any(mentions(part, v) for v in dropped):
            predicate = part if isinstance(predicate, IntImm) else logical_and(predicate, part)
    values = tuple(substitute(v, loops) for _, v in spatial)
    nest: Stmt = BlockRealize(values, substitute(predicate, loops), with_regions(new))
    for p in reversed(kept):
        thread = p.thread_binding
        if thread is not None:
            thread = replace(thread, var=Var(thread.var.name, thread.var.dtype))
        nest = For(loops[p.loop_var], p.min, p.extent, p.kind, nest, thread, p.annotations)
    return nest
