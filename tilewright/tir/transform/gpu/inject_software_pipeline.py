"""Software pipelines: the statements of a loop run for different iterations at the same time, so that loads run ahead.

    for i in T.serial(16, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
        S[0] = A[i]                                S[0, 0] = A[0]                                     prologue
        B[i] = S[0] + 1                     ▶      for i in range(15):                                body
                                                       S[(i + 1) % 2, 0] = A[i + 1]
                                                       B[i] = S[i % 2, 0] + 1
                                                   B[15] = S[1, 0] + 1                                epilogue

A statement of stage s runs s iterations late. Within one round, statements run by their order. A buffer that is written in one
stage and read in a later one gets as many versions as it needs. Stages listed in `software_pipeline_async_stages` are asynchronous:
their statements are marked (`async_scope`), grouped (`async_commit_queue_scope`), and their readers wait for what they read
(`async_wait_queue_scope`, with the number of groups that may still be on their way).
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var, floormod
from tilewright.ir.node import map_children, replace
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.tir import ir as t
from tilewright.tir.analysis import accesses
from tilewright.tir.transform.gpu.common import TRUE, DeviceError, func_pass
from tilewright.tir.transform.gpu.pipeline_emit import PipelinedBlock, emit

__all__ = ["InjectSoftwarePipeline", "inject_software_pipeline"]

STAGE, ORDER, ASYNC = "software_pipeline_stage", "software_pipeline_order", "software_pipeline_async_stages"


def inject_software_pipeline(f: t.PrimFunc) -> t.PrimFunc:
    """The function with its annotated loops as pipelines. Raises TW0569 where the annotations do not fit the loop."""
    body = _Inject().visit(f.body)
    return f if body is f.body else replace(f, body=body)


def InjectSoftwarePipeline() -> Pass:
    """Turn loops with pipeline annotations into prologue, body and epilogue; see `inject_software_pipeline`."""
    return func_pass("InjectSoftwarePipeline", inject_software_pipeline)


def _refuse(message: str, hint: str | None = None) -> Exception:
    return DeviceError.at("TW0569", message, hint=hint)


def make_block(body: t.Stmt) -> t.Block:
    """The statement as a block with the regions it reads and writes; a block without a predicate is itself."""
    if isinstance(body, t.BlockRealize) and isinstance(body.predicate, IntImm) and body.predicate.value:
        return body.block
    reads, writes, pointers = accesses(body)
    escaped = [u.region() for u in pointers.values()]
    regions = [tuple(u.region() for u in part.values()) + tuple(escaped) for part in (reads, writes)]
    return t.Block((), regions[0], regions[1], "", body)


class _Inject(Mutator):
    def __init__(self) -> None:
        self.double: set[t.Buffer] = set()

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Block(self, b: t.Block) -> t.Block:
        index = b.annotations.get("double_buffer_scope")
        if index is not None:
            at = index.value if isinstance(index, IntImm) else int(index)
            if not 0 <= at < len(b.writes):
                raise _refuse(
                    f"block {b.name_hint!r}: double_buffer_scope {at} is out of range for {len(b.writes)} writes"
                )
            self.double.add(b.writes[at].buffer)
        return self.generic(b)

    def visit_For(self, s: t.For) -> t.Stmt:
        new = self.generic(s)
        if not _annotated(s):
            return new
        body, allocs = new.body, list[t.Buffer]()
        if isinstance(body, t.BlockRealize):
            allocs = list(body.block.alloc_buffers)
            body = body.block.body
        if not isinstance(body, t.SeqStmt):
            raise _refuse(f"the pipelined loop {s.loop_var.name!r} holds one statement; a pipeline needs several")
        blocks: list[t.Block] = []
        for x in body.seq:
            if (
                isinstance(x, t.BlockRealize)
                and isinstance(x.predicate, IntImm)
                and x.predicate.value
                and isinstance(x.block.body, t.SeqStmt)
            ):
                allocs += x.block.alloc_buffers
                blocks += [make_block(y) for y in x.block.body.seq]
            else:
                blocks.append(make_block(x))
        return _Pipeline(new, blocks, allocs, self.double).build()


def _annotated(s: t.For) -> bool:
    has = [k in s.annotations for k in (STAGE, ORDER)]
    if all(has):
        return True
    if any(has):
        missing = ORDER if has[0] else STAGE
        raise _refuse(f"the loop {s.loop_var.name!r} is annotated as a pipeline, but {missing} is missing")
    return False


def _numbers(values: Any) -> list[int]:
    return [v.value if isinstance(v, IntImm) else int(v) for v in values]


class _Pipeline:
    def __init__(self, loop: t.For, blocks: list[t.Block], allocs: list[t.Buffer], double: set[t.Buffer]) -> None:
        self.loop, self.allocs, self.double = loop, allocs, double
        stages, orders = _numbers(loop.annotations[STAGE]), _numbers(loop.annotations[ORDER])
        waits = set(_numbers(loop.annotations.get(ASYNC, ())))
        name = loop.loop_var.name
        for key, values in ((STAGE, stages), (ORDER, orders)):
            if len(values) != len(blocks):
                raise _refuse(
                    f"the pipelined loop {name!r} has {len(blocks)} statements, but {key} has {len(values)} entries"
                )
        if len(set(orders)) != len(orders):
            raise _refuse(f"the pipelined loop {name!r}: two statements have the same order in {orders}")
        if sorted(orders) != list(range(len(orders))):
            raise _refuse(f"the pipelined loop {name!r}: the orders {orders} are not 0..{len(orders) - 1}")
        self.parts = [
            PipelinedBlock(b, stage, order, stage in waits) for b, stage, order in zip(blocks, stages, orders, strict=True)
        ]  # fmt: skip
        self.last = max(stages, default=0)
        self.check()

    def check(self) -> None:
        """What depends on another statement comes later, by stage or by order."""
        writers: dict[Var, list[PipelinedBlock]] = {}
        for p in self.parts:
            for r in p.block.reads:
                for w in writers.get(r.buffer.data, ()):
                    if w is p:
                        continue
                    what = f"a statement that reads {r.buffer.name!r}"
                    if w.stage > p.stage:
                        raise _refuse(f"{what} is in stage {p.stage}, before stage {w.stage} that writes it")
                    if w.stage == p.stage and w.order > p.order:
                        raise _refuse(f"{what} comes, in the same stage, before the statement that writes it")
            for r in p.block.writes:
                writers.setdefault(r.buffer.data, []).append(p)

    # ---- versions of buffers

    def versions(self, b: t.Buffer) -> int:
        """How many iterations' content of a buffer is needed at one time."""
        defs = [p.stage for p in self.parts for w in p.block.writes if w.buffer is b]
        uses = [p.stage for p in self.parts for r in p.block.reads if r.buffer is b]
        if not defs:
            return 1
        n = max(uses, default=-1) - min(defs) + 1
        if n == 2 and not self.overlap(b):
            n = 1
        return 2 if n <= 1 and b in self.double else max(n, 1)

    def overlap(self, b: t.Buffer) -> bool:
        """Does an earlier stage write, earlier in a round, what a later one still reads?"""
        for w in self.parts:
            to = next((x for x in w.block.writes if x.buffer is b), None)
            for r in self.parts:
                source = next((x for x in r.block.reads if x.buffer is b), None)
                if to is None or source is None:
                    continue
                if w.order < r.order and w.stage < r.stage and _may_meet(to.region, source.region):
                    return True
        return False

    # ---- the result

    def build(self) -> t.Stmt:
        loop = self.loop
        versions: dict[t.Buffer, t.Buffer] = {}
        for b in self.allocs:
            n = self.versions(b)
            if n > 1:
                versions[b] = _with_versions(b, n)
        ordered = sorted(self.parts, key=lambda p: p.order)
        rewrite = _Versions(versions, loop, self.last != 1)
        for p in ordered:
            p.rewritten = rewrite.block(p.block)
            p.writes = {w.buffer for w in p.block.writes} | {w.buffer for w in p.rewritten.writes}
        kept = {k: v for k, v in loop.annotations.items() if k not in (STAGE, ORDER, ASYNC)}
        stmts = emit(loop, ordered, self.last, kept, make_block)
        block = make_block(t.SeqStmt(tuple(stmts)))
        mine = {*self.allocs, *versions.values()}
        block = replace(
            block,
            reads=tuple(r for r in block.reads if r.buffer not in mine),
            writes=tuple(r for r in block.writes if r.buffer not in mine),
            alloc_buffers=tuple(versions.get(b, b) for b in self.allocs),
        )
        return t.BlockRealize((), TRUE, block)


def _may_meet(a: tuple[t.Range, ...], b: tuple[t.Range, ...]) -> bool:
    ana = Analyzer()
    for x, y in zip(a, b, strict=True):
        if ana.can_prove(x.min + x.extent <= y.min) or ana.can_prove(y.min + y.extent <= x.min):
            return False
    return True


def _with_versions(b: t.Buffer, n: int) -> t.Buffer:
    count = IntImm("int32", n)
    strides = (b.strides[0] * b.shape[0], *b.strides) if b.strides else ()
    return replace(b, shape=(count, *b.shape), strides=strides)


class _Versions:
    """Rewrites accesses to buffers that have versions: the iteration's own."""

    def __init__(self, versions: dict[t.Buffer, t.Buffer], loop: t.For, all_versions: bool) -> None:
        self.versions, self.loop, self.all_versions = versions, loop, all_versions
        self.by_data = {b.data: b for b in versions}

    def version(self, new: t.Buffer) -> PrimExpr:
        return floormod(self.loop.loop_var - self.loop.min, new.shape[0])

    def region(self, r: t.BufferRegion) -> t.BufferRegion:
        new = self.versions.get(r.buffer)
        if new is None:
            return r
        if self.all_versions:
            which = t.Range(IntImm("int32", 0), new.shape[0])
        else:
            which = t.Range(self.version(new), IntImm("int32", 1))
        return t.BufferRegion(new, (which, *r.region))

    def block(self, b: t.Block) -> t.Block:
        if not self.versions:
            return b
        return self.visit(b)

    def visit(self, n: Any) -> Any:
        if n.identity:
            return self.versions.get(n, n) if isinstance(n, t.Buffer) else n
        if isinstance(n, t.BufferRegion):
            return self.region(n)
        new: Any = map_children(n, self.visit)
        if isinstance(n, (t.BufferLoad, t.BufferStore)) and n.buffer in self.versions:
            return replace(new, indices=(self.version(self.versions[n.buffer]), *new.indices))
        if getattr(getattr(n, "op", None), "name", "") in ("tir.tvm_access_ptr", "tir.ptx_cp_async"):
            return self.pointer(new)
        return new

    def pointer(self, e: Any) -> Any:
        """A pointer into a buffer with versions: further by whole versions."""
        at = 1 if e.op.name == "tir.tvm_access_ptr" else 0
        old = self.by_data.get(e.args[at])
        if old is None:
            return e
        new = self.versions[old]
        size: PrimExpr = IntImm("int32", 1)
        if new.strides:
            size = new.strides[0]
        else:
            for x in old.shape:
                size = size * x
        args = list(e.args)
        args[at + 1] = args[at + 1] + self.version(new) * size
        return replace(e, args=tuple(args))
