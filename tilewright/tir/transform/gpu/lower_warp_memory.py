"""Memory of a warp becomes registers of its threads; what another thread holds comes by a shuffle.

    W = T.allocate([32*m], ..., "warp")                    L = T.allocate([m], ..., "local")
    W[tx*m + i] = x                               ▶        L[i] = x
    y = W[other*m + j]                                     y = T.tvm_warp_shuffle(mask, L[j], other, 32, 32)

Each thread stores into its own part: the index of a store is m times the thread plus what is in [0, m), in groups of the width
of the warp.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import Call, IntImm, PrimExpr, Ramp, Var, add, const, floordiv, floormod, mul, pointer_var
from tilewright.arith.linear import linear
from tilewright.ir import dtype as dt
from tilewright.ir.node import map_children, replace, walk
from tilewright.ir.op import Op
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator, free_vars
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError, func_pass, launch, limits_of, target_of
from tilewright.tir.transform.gpu.thread_sync import scope_of

__all__ = ["LowerWarpMemory", "lower_warp_memory"]


def lower_warp_memory(f: t.PrimFunc) -> t.PrimFunc:
    """The function without memory of scope `warp`. Raises TW0577 where a thread stores into another's part."""
    warp = limits_of(target_of(f)).warp
    run = _Find(warp)
    body = run.visit(f.body)
    return f if body is f.body else replace(f, body=body)


def LowerWarpMemory() -> Pass:
    """Memory of warps becomes registers and shuffles; see `lower_warp_memory`."""
    return func_pass("LowerWarpMemory", lower_warp_memory)


class _Find(Mutator):
    def __init__(self, warp: int) -> None:
        self.warp = warp
        self.thread: tuple[Var, int] | None = None
        self.ana = Analyzer()

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_For(self, s: t.For) -> t.Stmt:
        self.ana.bind(s.loop_var, t.Range(s.min, s.extent))
        return self.generic(s)

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        axis = launch(s)
        if axis is not None:
            self.ana.bind(axis.var, t.Range(const(0, axis.var.dtype), axis.extent))
            if axis.tag == "threadIdx.x" and isinstance(axis.extent, IntImm):
                self.thread = (axis.var, axis.extent.value)
        return self.generic(s)

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        if scope_of(s.buffer_var) != "warp":
            return self.generic(s)
        if self.warp <= 1:
            raise DeviceError.at(
                "TW0577", f"{s.buffer_var.name!r} is memory of a warp, but the target has no warps",
                hint="use shared memory, or say how many threads a warp has: -thread_warp_size=N",
            )  # fmt: skip
        return _Rewrite(self, s).run(self.visit(s.body))


class _Rewrite(Mutator):
    """Replaces one piece of warp memory."""

    def __init__(self, owner: _Find, s: t.Allocate) -> None:
        self.owner, self.s, self.ana = owner, s, owner.ana
        self.buffers: dict[t.Buffer, t.Buffer] = {}
        self.local = pointer_var(s.buffer_var.name, s.dtype, "local")

    def refuse(self, why: str) -> CompileError:
        return DeviceError.at("TW0577", f"memory of the warp {self.s.buffer_var.name!r}: {why}")

    def run(self, body: t.Stmt) -> t.Stmt:
        s = self.s
        thread = self.owner.thread or self.launched(body)
        if thread is None:
            raise self.refuse("there is no threadIdx.x with a constant number of threads")
        self.index, count = thread
        self.width = min(count, self.owner.warp)
        self.ana.bind(self.index, t.Range(const(0, self.index.dtype), const(count, self.index.dtype)))
        size = 1
        for n in s.extents:
            if not isinstance(n, IntImm):
                raise self.refuse(f"its size {n} is not a constant")
            size *= n.value
        self.coefficient = self.step(body)
        part = self.width * self.coefficient
        if size % part:
            raise self.refuse(
                f"its size {size} is no multiple of {part}: {self.coefficient} for each of {self.width} threads"
            )
        self.groups = size // part
        extents = (IntImm("int32", self.groups * self.coefficient),)
        return t.Allocate(self.local, s.dtype, extents, s.condition, self.visit(body), s.annotations)

    def launched(self, body: t.Stmt) -> tuple[Var, int] | None:
        for n in walk(body):
            axis = launch(n) if isinstance(n, t.Stmt) else None
            if axis is not None and axis.tag == "threadIdx.x" and isinstance(axis.extent, IntImm):
                return axis.var, axis.extent.value
        return None

    def step(self, body: t.Stmt) -> int:
        """How far apart the parts of neighbouring threads are, from the stores."""
        found: int | None = None
        for n in walk(body):
            if not (isinstance(n, t.BufferStore) and n.buffer.data is self.s.buffer_var):
                continue
            index = n.indices[0]
            base = index.base if isinstance(index, Ramp) else index
            term = linear(self.ana.simplify(base)).terms.get(self.index)
            c = term[1] if term is not None else 0
            if c <= 0:
                raise self.refuse(f"a store at {index} is not linear in {self.index.name}")
            if found not in (None, c):
                raise self.refuse(f"stores with different steps between threads: {found} and {c}")
            found = c
        if found is None:
            raise self.refuse("nothing is stored into it")
        return found

    def split(self, index: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """(the place in the thread's own memory, the thread)"""
        if isinstance(index, Ramp):
            local, thread = self.split(index.base)
            return Ramp(local, index.stride, index.lanes), thread
        m, part = const(self.coefficient, index.dtype), const(self.coefficient * self.width, index.dtype)
        inner = floormod(index, m)
        thread = floordiv(floormod(index, part), m)
        local = inner if self.groups == 1 else add(mul(floordiv(index, part), m), inner)
        return self.ana.simplify(local), self.ana.simplify(thread)

    def buffer(self, b: t.Buffer) -> t.Buffer:
        found = self.buffers.get(b)
        if found is None:
            size = IntImm("int32", self.groups * self.coefficient)
            found = self.buffers[b] = replace(b, data=self.local, shape=(size,))
        return found

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e if e.identity else map_children(e, self.visit)

    def visit_Var(self, v: Var) -> Var:
        return self.local if v is self.s.buffer_var else v

    def visit_DeclBuffer(self, s: t.DeclBuffer) -> t.Stmt:
        body = self.visit(s.body)
        if s.buffer.data is self.s.buffer_var:
            return t.DeclBuffer(self.buffer(s.buffer), body)
        return s if body is s.body else replace(s, body=body)

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        value = self.visit(s.value)
        if s.buffer.data is not self.s.buffer_var:
            indices = tuple(self.visit(i) for i in s.indices)
            return t.BufferStore(s.buffer, value, indices)
        local, thread = self.split(s.indices[0])
        if not self.own(thread):
            raise self.refuse(f"a store at {s.indices[0]} is not into the thread's own part")
        return t.BufferStore(self.buffer(s.buffer), value, (local,))

    def own(self, thread: PrimExpr) -> bool:
        here = floormod(self.index, const(self.width, self.index.dtype))
        return self.ana.can_prove_equal(thread, here) or self.ana.can_prove_equal(thread, self.index)

    def visit_BufferLoad(self, e: t.BufferLoad) -> PrimExpr:
        if e.buffer.data is not self.s.buffer_var:
            return map_children(e, self.visit)
        local, thread = self.split(self.visit(e.indices[0]))
        if any(v is self.index for v in free_vars(local)):
            raise self.refuse(f"a load at {e.indices[0]} is at a different place for each thread")
        load = t.BufferLoad(self.buffer(e.buffer), (local,))
        if self.own(thread):
            return load
        mask = Call("uint32", Op.get("tir.tvm_warp_activemask"), ())
        sizes: tuple[Any, ...] = (IntImm("int32", self.width), IntImm("int32", self.owner.warp))
        if dt.lanes(thread.dtype) > 1:
            raise self.refuse(f"a load at {e.indices[0]} is from several threads at once")
        return Call(load.dtype, Op.get("tir.tvm_warp_shuffle"), (mask, load, thread, *sizes))
