"""Copies that are annotated `auto_copy` are spread over the threads of the block, neighbours next to each other.

    T.block_attr({"auto_copy": True, "vector_bytes": 16})      for outer in range(16):
    for i, j in T.grid(128, 128):                                  for ty in T.thread_binding(8, "threadIdx.y"):
        S[i, j] = A[bx*128 + i, by*128 + j]              ▶             for tx in T.thread_binding(32, "threadIdx.x"):
                                                                           for vec in T.vectorized(4): S[...] = A[...]

Between global and shared memory; `local_stage` takes a copy to shared memory through registers, so that its loads come first.
The threads are those bound around the copy, and the 32 of a warp where the function says `warp_execution`.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import IntImm, PrimExpr, Var, const, floordiv, floormod
from tilewright.ir import dtype as dt
from tilewright.ir.node import replace
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator, substitute
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError, func_pass, launch
from tilewright.tir.transform.gpu.manifest_shared_memory_local_stage import KEY as STAGE
from tilewright.tir.transform.gpu.manifest_shared_memory_local_stage import manifest_shared_memory_local_stage

__all__ = ["LowerAutoCopy", "lower_auto_copy"]


def lower_auto_copy(f: t.PrimFunc) -> t.PrimFunc:
    """The function with its annotated copies spread over threads. Raises TW0582 for copies between other memories, or of sizes that are
    not constants or not multiples of the threads."""
    run = _Lower()
    body = run.visit(f.body)
    if body is f.body:
        return f
    f = replace(f, body=body)
    return manifest_shared_memory_local_stage(f) if run.staged else f


def LowerAutoCopy() -> Pass:
    """Spread annotated copies over the threads of a block; see `lower_auto_copy`."""
    return func_pass("LowerAutoCopy", lower_auto_copy)


def _number(x: Any) -> int:
    return int(x.value if isinstance(x, IntImm) else x)


class _Lower(Mutator):
    def __init__(self) -> None:
        self.threads: dict[str, int] = {}
        self.staged = False

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_For(self, s: t.For) -> t.Stmt:
        return self.under(s)

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        return self.under(s)

    def under(self, s: Any) -> t.Stmt:
        axis = launch(s)
        if axis is None or not axis.tag.startswith("threadIdx") or not isinstance(axis.extent, IntImm):
            return self.generic(s)
        before = dict(self.threads)
        self.threads[axis.tag] = axis.extent.value
        new = self.generic(s)
        self.threads = before
        return new

    def visit_Block(self, b: t.Block) -> t.Block:
        before = dict(self.threads)
        if _number(b.annotations.get("warp_execution", 0)):
            self.threads["threadIdx.x"] = 32
        new = self.copy(b) if _number(b.annotations.get("auto_copy", 0)) else self.generic(b)
        self.threads = before
        return new

    def refuse(self, b: t.Block, why: str) -> Exception:
        return DeviceError.at("TW0582", f"the copy {b.name_hint!r} cannot be spread over threads: {why}")

    def copy(self, b: t.Block) -> t.Block:
        loops: list[t.For] = []
        s = b.body
        while isinstance(s, t.For):
            loops.append(s)
            s = s.body
        if not isinstance(s, t.BufferStore) or not loops:
            raise self.refuse(b, "it is not one store in a nest of loops")
        scopes = (b.reads[0].buffer.scope() if b.reads else "global", s.buffer.scope())
        if not all(x == "global" or x.startswith("shared") for x in scopes):
            raise self.refuse(
                b, f"it is from {scopes[0]} to {scopes[1]} memory; global and shared memory are supported"
            )
        extents = [n.extent.value if isinstance(n.extent, IntImm) else 0 for n in loops]
        total = 1
        for n in extents:
            total *= n
        if not total:
            raise self.refuse(b, "its size is not a constant")
        vector = max(_number(b.annotations.get("vector_bytes", 1)) * 8 // dt.bits(s.buffer.dtype), 1)
        tags = sorted(self.threads, reverse=True)
        step = vector
        for tag in tags:
            step *= self.threads[tag]
        if total % step:
            raise self.refuse(b, f"its {total} elements are no multiple of {step}: the threads times {vector} for each")
        staged = bool(_number(b.annotations.get("local_stage", 0))) and scopes[1].startswith("shared")
        return replace(b, body=self.spread(b, s, loops, extents, total // step, tags, vector, staged))

    def spread(
        self, b: t.Block, s: t.BufferStore, loops: list[t.For], extents: list[int], rounds: int, tags: list[str], vector: int, staged: bool
    ) -> t.Stmt:  # fmt: skip
        dtype = loops[0].loop_var.dtype
        outer, lane = Var("outer", dtype), Var("vec", dtype)
        index: PrimExpr = outer
        axes: list[tuple[Var, str]] = []
        for tag in tags:
            v = Var("t" + tag[-1], dtype)
            axes.append((v, tag))
            index = index * const(self.threads[tag], dtype) + v
        if vector > 1:
            index = index * const(vector, dtype) + lane
        values: dict[Any, Any] = {}
        size = 1
        for p, n in zip(reversed(loops), reversed(extents), strict=True):
            values[p.loop_var] = floormod(floordiv(index, const(size, dtype)), const(n, dtype)) + p.min
            size *= n
        body: t.Stmt = substitute(s, values)
        if staged:
            self.staged = True
            regions = [t.BufferRegion(x.buffer, x.region) for x in b.reads]
            inner = t.Block((), tuple(regions), b.writes, b.name_hint, body, None, (), (), {STAGE: 1})
            body = t.BlockRealize((), IntImm("bool", 1), inner)
        if vector > 1:
            body = t.For(lane, const(0, dtype), const(vector, dtype), t.ForKind.VECTORIZED, body)
        if staged:  # the registers' loops are inside the threads
            body = t.For(outer, const(0, dtype), const(rounds, dtype), t.ForKind.SERIAL, body)
        for v, tag in reversed(axes):
            binding = t.IterVar(None, Var("", "int32"), t.IterVar.ThreadIndex, tag)
            body = t.For(v, const(0, dtype), const(self.threads[tag], dtype), t.ForKind.THREAD_BINDING, body, binding)
        return body if staged else t.For(outer, const(0, dtype), const(rounds, dtype), t.ForKind.SERIAL, body)
