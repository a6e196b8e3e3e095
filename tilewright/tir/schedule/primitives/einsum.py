"""Pad an einsum: its operands get zeros up to multiples of what a machine wants, its result is cut back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr, Var, cast, const, if_then_else, logical_and
from tilewright.ir.node import replace, walk
from tilewright.ir.rewrite import substitute
from tilewright.ir.structure import structural_equal
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
    decl_buffer,
    seq,
)
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.arguments import as_block
from tilewright.tir.schedule.primitives.reduction_block import combination_of, scope_position
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, State, with_regions

__all__ = ["pad_einsum"]

TRUE = IntImm("bool", 1)


def _prepare(s: State, arguments: dict[str, Any]) -> None:
    arguments["block"] = as_block(s, arguments["block"])


@primitive(prepare=_prepare)
def pad_einsum(s: State, block: BlockRV, padding: Sequence[int | PrimExpr | None]) -> None:
    """Let each iterator of a block run up to a multiple of its entry in `padding` (1 or None: as it is).

    Operands that this makes larger are copied into buffers padded with zeros, `<name>_pad`, before the block; the result goes to
    one of these and is copied back after it. The iterators are the loops one to one, accesses are at iterators (or
    constants), and where a reduction is padded it is a sum of products that vanish there. Raises ScheduleError TW0494.
    """
    work = _Einsum(s, block, list(padding))
    before, after = work.copies()
    path = s.block_path(block)
    scope = path[scope_position(path)]
    assert isinstance(scope, BlockRealize)
    top = next(i for i, p in enumerate(path) if p is (work.loops[0] if work.loops else work.realize))
    s.put(block.func, path[: top + 1], seq(*before, work.padded(), *after))
    scope_path = s.block_path(BlockRV(scope.block.name_hint, block.func))
    holder = scope_path[-1]
    assert isinstance(holder, BlockRealize)
    grown = replace(holder.block, alloc_buffers=(*holder.block.alloc_buffers, *work.new.values()))
    s.put(block.func, scope_path, replace(holder, block=grown))


class _Einsum:
    """The checks, the padded buffers, and the statements that make them."""

    def __init__(self, s: State, block: BlockRV, padding: list[Any]) -> None:
        self.s, self.block = s, block
        self.realize = s.block(block)
        b = self.realize.block
        if len(padding) != len(b.iter_vars):
            raise self.refuse(f"it has {len(b.iter_vars)} iterators, {len(padding)} paddings are given")
        starts = [iv.dom.min for iv in b.iter_vars if iv.dom is not None]
        if not all(isinstance(x, IntImm) and x.value == 0 for x in starts):
            raise self.refuse("an iterator does not start at 0")
        path = s.block_path(block)
        self.loops = [p for p in path[scope_position(path) :] if isinstance(p, For)]
        by_var = {p.loop_var: p for p in self.loops}
        self.extents: dict[Var, PrimExpr] = {}  # of the iterators that grow
        self.loop_extents: dict[Var, PrimExpr] = {}
        for iv, v, n in zip(b.iter_vars, self.realize.iter_values, padding, strict=True):
            p = by_var.pop(v, None) if isinstance(v, Var) else None
            if p is None or iv.dom is None or not structural_equal(iv.dom.extent, p.extent):
                raise self.refuse(
                    f"its iterator {iv.var.name!r} is not a loop of its own", "pad before loops are split"
                )
            extent = self.grown(iv.dom.extent, n)
            if extent is not None:
                self.extents[iv.var] = self.loop_extents[p.loop_var] = extent
        if by_var:
            raise self.refuse(f"the loop {next(iter(by_var)).name!r} around it moves none of its iterators")
        if path[len(path) - 1 - len(self.loops) :][: len(self.loops)] != self.loops:
            raise self.refuse("its loops hold other statements")
        if not (isinstance(self.realize.predicate, IntImm) and self.realize.predicate.value):
            raise self.refuse("it has a predicate")
        self.check_reduction(b)
        self.new: dict[Buffer, Buffer] = {}
        self.points: dict[Buffer, tuple[PrimExpr, ...]] = {}
        self.reads, self.writes = self.accesses(b)

    def refuse(self, why: str, hint: str | None = None) -> Exception:
        return fail(
            "TW0494",
            f"cannot pad the block {self.block.name!r}: {why}",
            self.s.func(self.block.func),
            self.realize,
            hint=hint,
        )

    def grown(self, extent: PrimExpr, n: Any) -> PrimExpr | None:
        """The extent up to a multiple of n; None where it is one already."""
        if n is None:
            return None
        if (isinstance(n, int) and n < 1) or (isinstance(n, IntImm) and n.value < 1):
            raise self.refuse(f"a padding is at least 1, not {n}", "1 or None leaves an iterator as it is")
        n = cast(ex.convert(n, extent.dtype), extent.dtype)
        if isinstance(n, IntImm) and (n.value == 1 or (isinstance(extent, IntImm) and extent.value % n.value == 0)):
            return None
        return ex.mul(ex.ceildiv(extent, n), n)

    def check_reduction(self, b: Block) -> None:
        if b.init is None and not isinstance(b.body, BufferStore):
            raise self.refuse("its body is not one store")
        padded = [iv.var for iv in b.iter_vars if iv.iter_type == IterVar.CommReduce and iv.var in self.extents]
        if not padded:
            return
        if b.init is None:
            raise self.refuse("it reduces, and has no init", "pad before decompose_reduction")
        found = combination_of(self.s, self.block, self.realize)
        if found.reducer.name not in ("sum", "sums"):
            raise self.refuse(f"its reduction is {found.reducer.name}: zeros would take part in it")
        for v in padded:
            if not all(_vanishes(t, v) for t in found.taken):
                raise self.refuse(f"what it sums is not zero where the iterator {v.name!r} is padded with zeros")

    def accesses(self, b: Block) -> tuple[list[Buffer], list[Buffer]]:
        """The buffers to pad that are read, and those that are written, in the order of the declarations."""
        written = {w.buffer for w in b.writes}
        for x in walk(b):
            if not isinstance(x, (BufferLoad, BufferStore)):
                continue
            known = self.points.setdefault(x.buffer, x.indices)
            if not structural_equal(known, x.indices):
                raise self.refuse(f"{x.buffer.name} is accessed at {list(known)} and at {list(x.indices)}")
        own = {iv.var for iv in b.iter_vars}
        for buffer, indices in self.points.items():
            for i in indices:
                if not (isinstance(i, IntImm) or (isinstance(i, Var) and i in own)):
                    raise self.refuse(f"{buffer.name} is accessed at {i}, which is no iterator")
        order = [r.buffer for r in (*b.reads, *b.writes)]
        for buffer in dict.fromkeys([*order, *self.points]):
            indices = self.points.get(buffer)
            if indices is None or not any(i in self.extents for i in indices if isinstance(i, Var)):
                continue
            if b.init is None and buffer in written and _reads(b, buffer):
                raise self.refuse(f"it reads {buffer.name}, which it writes", "pad before decompose_reduction")
            shape = [self.extents.get(i, n) if isinstance(i, Var) else n for i, n in zip(indices, buffer.shape)]
            self.new[buffer] = decl_buffer(shape, buffer.dtype, f"{buffer.name}_pad", scope=buffer.scope())
        return [b for b in self.new if b not in written], [b for b in self.new if b in written]

    def copies(self) -> tuple[list[Stmt], list[Stmt]]:
        """(the blocks that fill padded operands, the blocks that cut results back)"""
        return [self.fill(b) for b in self.reads], [self.cut(b) for b in self.writes]

    def fill(self, b: Buffer) -> Stmt:
        new = self.new[b]

        def body(at: list[Var]) -> Stmt:
            inside: PrimExpr = TRUE
            for v, n, big in zip(at, b.shape, new.shape, strict=True):
                if not structural_equal(n, big):
                    part = ex.LT(v, n)
                    inside = part if inside is TRUE else logical_and(inside, part)
            zero = const(0, b.dtype)
            return BufferStore(new, if_then_else(inside, BufferLoad(b, tuple(at)), zero), tuple(at))

        return self.nest(new.name, new.shape, body)

    def cut(self, b: Buffer) -> Stmt:
        new = self.new[b]
        return self.nest(new.name, b.shape, lambda at: BufferStore(b, BufferLoad(new, tuple(at)), tuple(at)))

    def nest(self, name: str, shape: Sequence[PrimExpr], body: Any) -> Stmt:
        loops = [Var(f"i{k}", n.dtype) for k, n in enumerate(shape)]
        axes = [Var(f"v{k}", n.dtype) for k, n in enumerate(shape)]
        iters = tuple(IterVar(Range(IntImm(v.dtype, 0), n), v) for v, n in zip(axes, shape, strict=True))
        block = with_regions(Block(iters, (), (), self.s.unique(self.block.func, name), body(axes)))
        out: Stmt = BlockRealize(tuple(loops), TRUE, block)
        for v, n in zip(reversed(loops), reversed(shape)):
            out = For(v, IntImm(v.dtype, 0), n, ForKind.SERIAL, out)
        return out

    def padded(self) -> Stmt:
        """The block over the padded buffers, in loops that run up to the padded extents."""
        b = substitute(self.realize.block, self.new)
        iters = tuple(
            replace(iv, dom=Range(iv.dom.min, self.extents[iv.var])) if iv.var in self.extents and iv.dom else iv
            for iv in b.iter_vars
        )
        out: Stmt = replace(self.realize, block=replace(b, iter_vars=iters))
        for p in reversed(self.loops):
            out = replace(p, extent=self.loop_extents.get(p.loop_var, p.extent), body=out)
        return out


def _reads(b: Block, buffer: Buffer) -> bool:
    return any(isinstance(x, BufferLoad) and x.buffer is buffer for x in walk(b.body))


def _vanishes(e: Any, v: Var) -> bool:
    """Is an expression zero where all buffers accessed at `v` are?"""
    if isinstance(e, BufferLoad):
        return any(i is v for i in e.indices)
    if isinstance(e, ex.Mul):
        return _vanishes(e.a, v) or _vanishes(e.b, v)
    if isinstance(e, (ex.Add, ex.Sub)):
        return _vanishes(e.a, v) and _vanishes(e.b, v)
    if isinstance(e, ex.Cast):
        return _vanishes(e.value, v)
    return False
