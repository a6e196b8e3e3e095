"""Emits the three parts of a software pipeline, with the groups and waits of asynchronous stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import (
    GE,
    LE,
    LT,
    IntImm,
    PrimExpr,
    Var,
    add,
    cmp,
    if_then_else,
    logical_and,
    logical_not,
    maximum,
    sub,
)
from tilewright.arith.linear import expr_key
from tilewright.ir.node import replace
from tilewright.ir.rewrite import substitute
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import NOTHING, TRUE, DeviceError

__all__ = ["PipelinedBlock", "emit"]

ZERO = IntImm("int32", 0)
MakeBlock = Callable[[t.Stmt], t.Block]


class PipelinedBlock:
    """One statement of a pipeline: its stage, its order in a round, and whether it is asynchronous."""

    def __init__(self, block: t.Block, stage: int, order: int, is_async: bool) -> None:
        self.block, self.stage, self.order, self.is_async = block, stage, order, is_async
        self.rewritten = block
        self.writes: set[t.Buffer] = set()


class _Async:
    """What is known of an asynchronous stage over the whole pipeline: the last group committed, if it is known."""

    def __init__(self) -> None:
        self.head: PrimExpr | None = IntImm("int32", -1)
        self.buffers: set[t.Buffer] = set()


class _Local:
    """What is known of an asynchronous stage within one part."""

    def __init__(self) -> None:
        self.head: PrimExpr | None = None
        self.predicate: PrimExpr | None = None
        self.groups: list[list[int]] = []
        self.group_of: dict[t.Buffer, int] = {}
        self.consumed = False
        self.wait: tuple[int, PrimExpr] | None = None


class _Item:
    """A statement of one part."""

    def __init__(self, part: PipelinedBlock, predicate: PrimExpr, block: t.Block, index: PrimExpr) -> None:
        self.part, self.predicate, self.block, self.index = part, predicate, block, index


def emit(
    loop: t.For, ordered: list[PipelinedBlock], last: int, annotations: dict[str, Any], make_block: MakeBlock
) -> list[t.Stmt]:
    """[prologue, body, epilogue] of the pipeline of `loop`, its statements in order, `last` the greatest stage."""
    run = _Emit(loop, ordered, annotations, make_block)
    low, n = loop.min, loop.extent
    first = add(low, last)
    end = add(low, n)
    prologue = run.part(low, first, True)
    body = run.part(first, end, False)
    start, bound = end, None
    if last > 1 and not Analyzer().can_prove(cmp(GE, n, IntImm(n.dtype, last))):
        if isinstance(end, IntImm):
            start = maximum(end, first)
        else:
            bound = first
    epilogue = run.part(start, add(end, last), True, bound)
    return [prologue, body, epilogue]


class _Emit:
    def __init__(
        self, loop: t.For, ordered: list[PipelinedBlock], annotations: dict[str, Any], make_block: MakeBlock
    ) -> None:
        self.loop, self.ordered, self.annotations, self.make_block = loop, ordered, annotations, make_block
        self.ana = Analyzer()
        self.stages: dict[int, _Async] = {}
        for p in ordered:
            if p.is_async:
                self.stages.setdefault(p.stage, _Async()).buffers.update(p.writes)

    def part(self, start: PrimExpr, end: PrimExpr, unroll: bool, bound: PrimExpr | None = None) -> t.Stmt:
        """The rounds from `start` to `end`, each statement where its own iteration exists."""
        loop = self.loop
        extent = self.ana.simplify(sub(end, start))
        unit = isinstance(extent, IntImm) and extent.value == 1
        if isinstance(extent, IntImm) and extent.value <= 0:
            return self.nothing()
        var: Any = start if unit else Var(loop.loop_var.name, loop.loop_var.dtype)
        ana, normal = Analyzer(), Analyzer()
        if not unit:
            ana.bind(var, t.Range(start, extent))
            normal.bind(var, t.Range(loop.min, extent))
        delta = sub(start, loop.min)
        items: list[_Item] = []
        local: dict[int, _Local] = {}
        for p in self.ordered:
            skewed = sub(var, IntImm(loop.loop_var.dtype, p.stage))
            below = cmp(LT, skewed, add(loop.min, loop.extent))
            inside = logical_and(ana.simplify(cmp(LE, loop.min, skewed)), below)
            if bound is not None:
                inside = logical_and(inside, cmp(GE, var, bound))
            if ana.can_prove(logical_not(inside)):
                continue
            index = skewed if unit else add(skewed, delta)
            if not unit:
                inside = substitute(inside, {var: add(var, delta)})
            block = substitute(p.rewritten, {loop.loop_var: index})
            self.note(p, block, inside, index, items, local, normal)
        self.waits(items, local, normal)
        stmts = self.statements(items, local, normal)
        self.advance(local, extent, normal)
        if not stmts:
            return self.nothing()
        body = stmts[0] if len(stmts) == 1 else t.SeqStmt(tuple(stmts))
        if not unit:
            kind = t.ForKind.UNROLLED if unroll else loop.kind
            body = t.For(var, loop.min, extent, kind, body, None, self.annotations)
        return t.BlockRealize((), TRUE, self.make_block(body))

    def nothing(self) -> t.Stmt:
        return t.BlockRealize((), TRUE, t.Block((), (), (), "", NOTHING))

    # ---- asynchronous stages

    def note(
        self, p: PipelinedBlock, block: t.Block, inside: PrimExpr, index: PrimExpr, items: list[_Item], local: dict[int, _Local], normal: Analyzer
    ) -> None:  # fmt: skip
        """Add a statement, in the group it belongs to."""
        if p.is_async:
            state = local.setdefault(p.stage, _Local())
            if not state.groups or state.consumed:
                state.groups.append([])
            state.groups[-1].append(len(items))
            state.consumed = False
            for b in p.writes:
                state.group_of[b] = len(state.groups) - 1
            state.head = index
            if state.predicate is None or normal.can_prove(state.predicate):
                state.predicate = inside
            else:
                state.predicate = normal.simplify(logical_and(state.predicate, inside))
            block = replace(block, body=t.AttrStmt(ZERO, "async_scope", IntImm("int32", 1), block.body))
        items.append(_Item(p, inside, block, index))
        for r in block.reads:
            for stage, known in self.stages.items():
                if stage <= p.stage and r.buffer in known.buffers:
                    local.setdefault(stage, _Local()).consumed = True

    def producer(self, item: _Item) -> int | None:
        """The asynchronous stage that a statement reads from."""
        found: set[int] = set()
        for r in item.block.reads:
            found.update(s for s, known in self.stages.items() if s <= item.part.stage and r.buffer in known.buffers)
        if len(found) > 1:
            raise DeviceError.at(
                "TW0569",
                f"a statement of a pipeline reads what the asynchronous stages {sorted(found)} write; one is allowed",
            )
        return found.pop() if found else None

    def waits(self, items: list[_Item], local: dict[int, _Local], normal: Analyzer) -> None:
        """How many groups may still be on their way when a reader runs."""
        for i, item in enumerate(items):
            stage = self.producer(item)
            if stage is None:
                continue
            state = local.setdefault(stage, _Local())
            heads: list[PrimExpr | None] = []
            if not state.groups:
                heads.append(self.stages[stage].head)
            else:
                done: set[int] = set()
                for r in item.block.reads:
                    if r.buffer not in self.stages[stage].buffers:
                        continue
                    group = state.group_of.get(r.buffer, 0)
                    if group in done:
                        continue
                    assert state.head is not None
                    later = state.groups[group][0] > i  # written after this reader: the last round's
                    heads.append(sub(state.head, 1) if later else state.head)
                    done.add(group)
            count = self.in_flight(heads, item.index, normal)
            if state.wait is None:
                state.wait = (i, count)
            elif self.ana.can_prove(cmp(LT, count, state.wait[1])):
                state.wait = (state.wait[0], count)

    def in_flight(self, heads: list[PrimExpr | None], index: PrimExpr, normal: Analyzer) -> PrimExpr:
        total: PrimExpr = IntImm("int32", 0)
        for head in heads:
            if head is None or not normal.can_prove(cmp(GE, head, IntImm(head.dtype, 0))):
                return IntImm("int32", 0)
            total = add(total, self.ana.simplify(sub(head, index)))
        return total

    def statements(self, items: list[_Item], local: dict[int, _Local], normal: Analyzer) -> list[t.Stmt]:
        """The statements with waits attached and groups put together."""
        group_of = [-1] * len(items)
        for stage, state in sorted(local.items()):
            for group in state.groups:
                for i in group:
                    group_of[i] = stage
            if state.wait is not None:
                at, count = state.wait
                if state.predicate is not None and not normal.can_prove(state.predicate):
                    count = if_then_else(state.predicate, count, IntImm("int32", 0))
                item = items[at]
                inner = t.AttrStmt(ZERO, "async_wait_inflight_count", count, item.block.body)
                waiting = t.AttrStmt(ZERO, "async_wait_queue_scope", IntImm("int32", stage), inner)
                item.block = replace(item.block, body=waiting)
        out: list[t.Stmt] = []
        i = 0
        while i < len(items):
            stage, predicate = group_of[i], items[i].predicate
            if stage < 0:
                out.append(t.BlockRealize((), predicate, items[i].block))
                i += 1
                continue
            bodies: list[t.Stmt] = []
            while i < len(items) and group_of[i] == stage and expr_key(items[i].predicate) == expr_key(predicate):
                bodies.append(items[i].block.body)
                i += 1
            body = bodies[0] if len(bodies) == 1 else t.SeqStmt(tuple(bodies))
            commit = t.AttrStmt(ZERO, "async_commit_queue_scope", IntImm("int32", stage), body)
            out.append(t.BlockRealize((), predicate, self.make_block(commit)))
        return out

    def advance(self, local: dict[int, _Local], extent: PrimExpr, normal: Analyzer) -> None:
        """After a part: how many groups have been committed, where that is known."""
        for stage, state in local.items():
            known = self.stages.get(stage)
            if known is None:
                continue
            if state.predicate is not None and normal.can_prove(state.predicate) and known.head is not None:
                known.head = add(known.head, extent)
            else:
                known.head = None
