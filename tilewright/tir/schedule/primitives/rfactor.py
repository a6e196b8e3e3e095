"""Split a reduction in two: partial results, and what combines them."""

from __future__ import annotations

from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var, cast, logical_and
from tilewright.ir.node import map_children, replace
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    ForKind,
    IterVar,
    LetStmt,
    Range,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.lower.index import mentions
from tilewright.tir.reducer import combined
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.reduction_block import (
    Combination,
    check_reduction,
    combination_of,
    scope_position,
)
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, LoopRV, State, conjuncts, nearest_blocks

__all__ = ["rfactor"]

TRUE = IntImm("bool", 1)


@primitive
def rfactor(s: State, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
    """Split a reduction in two: one that keeps the iterations of `loop` apart (in a new axis `factor_axis` of a new buffer),
    and one that combines them. The first can run in parallel over that axis. Returns the block of the first.

    The loop is serial, holds one reduction block alone and belongs to its reduction; the block is the first of its
    outermost loop. Reductions: those of `combination_of`. Raises ScheduleError TW0461 (no reduction block), TW0463 (the
    loop or the axis does not fit), TW0481 (no known form).
    """
    work = _Factoring(s, loop, factor_axis)
    first, second = work.first(), work.second()
    path = s.block_path(work.block)
    top = next(i for i, p in enumerate(path) if p is work.loops[0])
    s.put(loop.func, path[: top + 1], seq(first, second))
    scope_path = s.block_path(BlockRV(f"{work.name}_rf", loop.func))
    scope_path = scope_path[: scope_position(scope_path) + 1]
    holder = scope_path[-1]
    assert isinstance(holder, BlockRealize)
    grown = replace(holder.block, alloc_buffers=(*holder.block.alloc_buffers, *work.partial))
    s.put(loop.func, scope_path, replace(holder, block=grown))
    return BlockRV(f"{work.name}_rf", loop.func)


class _Factoring:
    """One use of rfactor: the checks in the constructor, then the two halves."""

    def __init__(self, s: State, loop: LoopRV, factor_axis: int) -> None:
        self.s, self.func = s, loop.func
        target = s.loop(loop)
        self.target = target
        blocks = nearest_blocks(target)
        if len(blocks) != 1:
            raise self.refuse(f"the loop {loop.var.name!r} holds {len(blocks)} blocks, not one", target)
        self.name = blocks[0].block.name_hint
        self.block = BlockRV(self.name, loop.func)
        self.realize = check_reduction(s, self.block)
        if target.kind != ForKind.SERIAL:
            raise self.refuse(f"the loop {loop.var.name!r} is {target.kind.name.lower()}, not serial", target)
        path = s.block_path(self.block)
        self.loops = [p for p in path[scope_position(path) :] if isinstance(p, For)]
        pairs = list(zip(self.realize.block.iter_vars, self.realize.iter_values, strict=True))
        self.pairs = pairs
        self.spatial = {v for iv, e in pairs if iv.iter_type == IterVar.DataPar for v in free_vars(e)}
        self.reducing = {v for iv, e in pairs if iv.iter_type != IterVar.DataPar for v in free_vars(e)}
        self.check_loops()
        self.parts: Combination = combination_of(s, self.block, self.realize)
        rank = len(self.parts.indices)
        self.axis = factor_axis if factor_axis >= 0 else factor_axis + rank + 1
        if not 0 <= self.axis <= rank:
            raise self.refuse(f"factor_axis must be in [-{rank + 1}, {rank}], got {factor_axis}", target)
        self.partial = [self.partial_buffer(b) for b in self.parts.buffers]

    def refuse(self, why: str, node: Any, hint: str | None = None) -> Exception:
        return fail("TW0463", why, self.s.func(self.func), node, hint=hint)

    def check_loops(self) -> None:
        name = self.target.loop_var.name
        if nearest_blocks(self.loops[0])[0] is not self.realize:
            raise self.refuse(
                f"the block {self.name!r} is not the first one in the loop {self.loops[0].loop_var.name!r}: its partial "
                "results, made before that loop, would miss what the blocks before it make",
                self.loops[0],
            )
        below = False
        for p in self.loops:
            moves, reduces = p.loop_var in self.spatial, p.loop_var in self.reducing
            if moves and (reduces or p is self.target):
                raise self.refuse(
                    f"the loop {p.loop_var.name!r} moves a spatial iterator of {self.name!r}"
                    + (" and a reduction one" if reduces else f", so {name!r} is no reduction loop"),
                    p,
                )
            if reduces and not below and len(nearest_blocks(p)) != 1:
                raise self.refuse(f"the reduction loop {p.loop_var.name!r} holds other blocks too", p)
            below = below or reduces
            unit = isinstance(p.extent, IntImm) and p.extent.value == 1
            if not moves and not reduces and not unit and (below or p is self.target):
                raise self.refuse(f"no iterator of {self.name!r} uses the loop {p.loop_var.name!r}", p)
        self.check_predicate()

    def check_predicate(self) -> None:
        """Every partial result must be started: where a condition cuts iterations of `loop`, those at the start of all other
        reduction loops have to remain."""
        ana = Analyzer()
        starts: dict[Any, PrimExpr] = {}
        for p in self.loops:
            if p.loop_var in self.reducing and p is not self.target:
                starts[p.loop_var] = p.min
            else:
                ana.bind(p.loop_var, Range(p.min, p.extent))
        for part in conjuncts(self.realize.predicate):
            if mentions(part, self.target.loop_var) and not ana.can_prove(substitute(part, starts)):
                raise self.refuse(
                    f"where {part} does not hold for any other iteration, a partial result of {self.name!r} would never be "
                    "started",
                    self.realize,
                    hint=f"split so that every iteration of {self.target.loop_var.name!r} has work",
                )

    def partial_buffer(self, b: Buffer) -> Buffer:
        shape = list(b.shape)
        shape.insert(self.axis, self.target.extent)
        return decl_buffer(shape, b.dtype, f"{b.name}_rf", scope=b.scope(), data_alignment=b.data_alignment)

    # ---- the two halves ----

    def first(self) -> Stmt:
        """The partial reduction, with the loop's variable as a spatial axis."""
        target, old = self.target, self.realize.block
        axis = Var(f"v{target.loop_var.name}", target.loop_var.dtype)
        iters: list[IterVar] = [IterVar(Range(target.min, target.extent), axis)]
        values: list[PrimExpr] = [target.loop_var]
        known: dict[Any, PrimExpr] = {target.loop_var: axis}
        table: dict[Any, PrimExpr] = {}
        by_var = {p.loop_var: p for p in self.loops}
        for iv, e in self.pairs:
            if not mentions(e, target.loop_var):
                fresh = Var(iv.var.name, iv.var.dtype)
                iters.append(replace(iv, var=fresh))
                values.append(e)
                table[iv.var] = fresh
                continue
            for v in free_vars(e):
                if v in by_var and v not in known:
                    part = known[v] = Var(f"v{v.name}", v.dtype)
                    iters.append(IterVar(Range(by_var[v].min, by_var[v].extent), part, IterVar.CommReduce))
                    values.append(v)
            table[iv.var] = substitute(e, known)
        indices = self.at(tuple(substitute(i, table) for i in self.parts.indices), axis)
        taken = [substitute(t, table) for t in self.parts.taken]
        reads = tuple(substitute(r, table) for r in old.reads)
        writes = tuple(self.partial_region(w, table, axis) for w in old.writes)
        still = any(iv.iter_type != IterVar.DataPar for iv in iters)
        body = self.body(self.partial, indices, taken, "_rf") if still else self.plain(indices, taken)
        init = self.stores(self.partial, indices, [substitute(x, table) for x in self.parts.starts]) if still else None
        block = Block(tuple(iters), reads, writes, f"{self.name}_rf", body, init, (), (), old.annotations)
        out: Stmt = BlockRealize(tuple(values), self.realize.predicate, block)
        copies: dict[Any, Any] = {}
        for p in reversed(self.loops):
            copies[p.loop_var] = Var(p.loop_var.name, p.loop_var.dtype)
            out = replace(p, body=out, thread_binding=_fresh_thread(p.thread_binding))
        return substitute(out, copies)

    def second(self) -> Stmt:
        """The old nest, which combines the partial results: without its reduction loops, but for the one factored."""
        target, old = self.target, self.realize.block
        axis = Var(f"v{target.loop_var.name}", target.loop_var.dtype)
        spatial = [(iv, e) for iv, e in self.pairs if iv.iter_type == IterVar.DataPar]
        iters = [IterVar(Range(target.min, target.extent), axis, IterVar.CommReduce), *(iv for iv, _ in spatial)]
        values = [target.loop_var, *(e for _, e in spatial)]
        taken: list[PrimExpr] = [BufferLoad(b, self.at(self.parts.indices, axis)) for b in self.partial]
        writes = old.writes
        reads = tuple(self.partial_region(w, {}, axis) for w in writes)
        body = self.body(self.parts.buffers, self.parts.indices, taken, "")
        init = self.stores(self.parts.buffers, self.parts.indices, self.parts.starts)
        gone = {p.loop_var for p in self.loops if p.loop_var in self.reducing and p is not target}
        predicate: PrimExpr = TRUE
        for part in conjuncts(self.realize.predicate):
            if not any(mentions(part, v) for v in (*gone, target.loop_var)):
                predicate = part if predicate is TRUE else logical_and(predicate, part)
        block = Block(tuple(iters), reads, writes, self.name, body, init, (), (), old.annotations)
        realize = BlockRealize(tuple(values), predicate, block)

        def visit(x: Any) -> Any:
            if x is self.realize:
                return realize
            if isinstance(x, For) and x.loop_var in gone:
                return visit(x.body)
            return map_children(x, lambda c: visit(c) if isinstance(c, Stmt) else c)

        return visit(self.loops[0])

    # ---- pieces ----

    def at(self, indices: tuple[PrimExpr, ...], axis: PrimExpr) -> tuple[PrimExpr, ...]:
        out = list(indices)
        out.insert(self.axis, cast(axis, self.partial[0].shape[self.axis].dtype))
        return tuple(out)

    def partial_region(self, w: BufferRegion, table: dict[Any, PrimExpr], axis: Var) -> BufferRegion:
        ranges = [substitute(r, table) for r in w.region]
        ranges.insert(self.axis, Range(axis, IntImm(axis.dtype, 1)))
        return BufferRegion(self.partial[self.parts.buffers.index(w.buffer)], tuple(ranges))

    def stores(self, buffers: list[Buffer], indices: tuple[PrimExpr, ...], values: list[Any]) -> Stmt:
        return seq(*(BufferStore(b, v, indices) for b, v in zip(buffers, values, strict=True)))

    def plain(self, indices: tuple[PrimExpr, ...], taken: list[PrimExpr]) -> Stmt:
        """Partial results of one element each."""
        return self.stores(self.partial, indices, taken)

    def body(self, buffers: list[Buffer], indices: tuple[PrimExpr, ...], taken: list[PrimExpr], mark: str) -> Stmt:
        """The update: what the buffers hold combined with what is taken in."""
        values = combined(self.parts.reducer, [BufferLoad(b, indices) for b in buffers], taken)
        if len(buffers) == 1:
            return BufferStore(buffers[0], values[0], indices)
        names = [Var(f"{v.name}{mark}", v.dtype) for v in self.parts.lets]
        out = self.stores(buffers, indices, names)
        for v, e in reversed(list(zip(names, values, strict=True))):
            out = LetStmt(v, e, out)
        return out


def _fresh_thread(thread: IterVar | None) -> IterVar | None:
    return thread and replace(thread, var=Var(thread.var.name, thread.var.dtype))
