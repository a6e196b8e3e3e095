"""All shared memory of a kernel becomes one allocation of bytes; buffers that are not needed at the same time share room.

    A = T.allocate([256], "float16", "shared.dyn")            buf_dyn_shmem = T.allocate([1024], "uint8", "shared.dyn")
    B = T.allocate([256], "float16", "shared.dyn")      ▶     A[i] is the half at i + 256 of it, B[i] the half at i
    C = T.allocate([256], "float32", "shared.dyn")            C[i] is the float at i of it: A and B are done by then

Dynamic shared memory is always merged: a kernel has one piece of it. Static shared memory is merged where the context's option
`tir.merge_static_smem` is set.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import (
    Call,
    IntImm,
    PrimExpr,
    Ramp,
    Var,
    add,
    const,
    floordiv,
    floormod,
    maximum,
    mul,
    pointer_var,
    sub,
)
from tilewright.ir import dtype as dt
from tilewright.ir.node import children, map_children, replace
from tilewright.ir.op import Op
from tilewright.ir.passes import Pass, PassContext
from tilewright.ir.rewrite import Mutator
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import TRUE, func_pass
from tilewright.tir.transform.gpu.split_host_device import bytes_of
from tilewright.tir.transform.gpu.thread_sync import scope_of

__all__ = ["MergeDynamicSharedMemoryAllocations", "MergeSharedMemoryAllocations", "merge_shared_memory"]


def merge_shared_memory(f: t.PrimFunc, scope: str = "shared.dyn") -> t.PrimFunc:
    """The function with one allocation for all memory of `scope` in each kernel that has several."""
    body = _Kernels(scope).visit(f.body)
    return f if body is f.body else replace(f, body=body)


def _both(f: t.PrimFunc) -> t.PrimFunc:
    f = merge_shared_memory(f, "shared.dyn")
    if PassContext.current().config.get("tir.merge_static_smem"):
        f = merge_shared_memory(f, "shared")
    return f


def MergeSharedMemoryAllocations() -> Pass:
    """Merge dynamic shared memory, and static too where `tir.merge_static_smem` is set; see `merge_shared_memory`."""
    return func_pass("MergeSharedMemoryAllocations", _both)


def MergeDynamicSharedMemoryAllocations() -> Pass:
    """The older name: merge dynamic shared memory."""
    return func_pass("MergeDynamicSharedMemoryAllocations", lambda f: merge_shared_memory(f, "shared.dyn"))


class _Kernels(Mutator):
    """Finds the outermost launches."""

    def __init__(self, scope: str) -> None:
        self.scope = scope

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        if s.attr_key != "thread_extent":
            return self.generic(s)
        plan = _Plan(self.scope)
        plan.stmt(s.body, [])
        if len(plan.allocs) < 2:
            return s
        offsets, size = plan.offsets()
        name, scope = ("buf_dyn_shmem", "shared.dyn") if self.scope == "shared.dyn" else ("buf_shmem", "shared")
        merged = pointer_var(name, "uint8", scope)
        body = _Rewrite(merged, plan.allocs, offsets).visit(s.body)
        return replace(s, body=t.Allocate(merged, "uint8", (size,), TRUE, body))


class _Slot:
    """Room that buffers have in turn: layers of buffers side by side."""

    def __init__(self, bits: int, layers: list[list[Var]]) -> None:
        self.bits, self.layers = bits, layers


class _Plan:
    """When each buffer is in use, and where it goes."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.allocs: dict[Var, t.Allocate] = {}
        self.level: dict[Var, int] = {}
        self.count = 0
        self.units: list[tuple[int, int, list[Var]]] = []
        """(first, last, the buffers touched) of each statement, or scope, seen at the level where the buffer was allocated."""

    # ---- lifetimes

    def stmt(self, s: t.Stmt, scopes: list[list[Any]]) -> None:
        if isinstance(s, t.SeqStmt):
            for x in s.seq:
                self.stmt(x, scopes)
            return
        if isinstance(s, t.Allocate):
            if scope_of(s.buffer_var) == self.scope:
                self.allocs[s.buffer_var] = s
                self.level[s.buffer_var] = len(scopes)
            self.stmt(s.body, scopes)
            return
        if isinstance(s, (t.For, t.IfThenElse, t.While)) or (
            isinstance(s, t.AttrStmt) and s.attr_key == "virtual_thread"
        ):
            unit: list[Any] = [self.count, 0, []]
            self.count += 1
            inside = [*scopes, unit]
            for c in children(s):
                if isinstance(c, t.Stmt):
                    self.stmt(c, inside)
                else:
                    self.touch(c, inside)
            unit[1] = self.count
            self.count += 1
            self.units.append((unit[0], unit[1], unit[2]))
            return
        here: list[Any] = [self.count, self.count, []]
        self.count += 1
        inner: list[t.Stmt] = []
        for c in children(s):
            if isinstance(c, t.Stmt):
                inner.append(c)
            elif not (isinstance(s, t.DeclBuffer) and isinstance(c, t.Buffer)):
                self.touch(c, scopes, here)
        if here[2]:
            self.units.append((here[0], here[1], here[2]))
        for c in inner:
            self.stmt(c, scopes)

    def touch(self, e: Any, scopes: list[list[Any]], here: list[Any] | None = None) -> None:
        v = e.data if isinstance(e, t.Buffer) else e
        if isinstance(v, Var):
            if v in self.allocs:
                level = self.level[v]
                unit = scopes[level] if level < len(scopes) else here
                if unit is None:
                    unit = scopes[-1]
                unit[2].append(v)
            return
        if not e.identity:
            for c in children(e):
                self.touch(c, scopes, here)

    def events(self) -> tuple[dict[int, list[Var]], dict[int, list[Var]]]:
        """The buffers whose use begins, and ends, at each position."""
        first: dict[Var, int] = {}
        last: dict[Var, int] = {}
        order: list[Var] = []
        for low, high, touched in sorted(self.units, key=lambda u: u[0]):
            for v in dict.fromkeys(touched):
                if v not in first:
                    first[v] = low
                    order.append(v)
                last[v] = max(last.get(v, 0), high)
        begins: dict[int, list[Var]] = {}
        ends: dict[int, list[Var]] = {}
        for v in order:
            begins.setdefault(first[v], []).append(v)
            ends.setdefault(last[v], []).append(v)
        return begins, ends

    # ---- places

    def bits(self, v: Var) -> int:
        """The size of a buffer in bits; 0 where it is not a constant."""
        a = self.allocs[v]
        total = dt.bits(a.dtype) * dt.lanes(a.dtype)
        for n in a.extents:
            if not isinstance(n, IntImm):
                return 0
            total *= n.value
        return total

    def offsets(self) -> tuple[dict[Var, PrimExpr], PrimExpr]:
        """(where each buffer begins, in bytes; the size of all)"""
        free: list[_Slot] = []
        symbolic: list[_Slot] = []
        used: dict[Var, _Slot] = {}
        begins, ends = self.events()
        for position in range(self.count):
            for v in begins.get(position, ()):
                used[v] = self.place(v, free, symbolic)
            for v in ends.get(position, ()):
                slot = used.pop(v)
                if slot.bits:
                    at = next((i for i, x in enumerate(free) if x.bits > slot.bits), len(free))
                    free.insert(at, slot)
                else:
                    symbolic.append(slot)
        ana = Analyzer()
        slots = [*free, *symbolic]
        align = [0] * max((len(s.layers) for s in slots), default=0)
        for s in slots:
            for i, layer in enumerate(s.layers):
                align[i] = max([align[i], *(bytes_of(self.allocs[v].dtype) for v in layer)])
        out: dict[Var, PrimExpr] = {}
        total: PrimExpr = IntImm("int32", 0)
        for s in slots:
            most: PrimExpr = IntImm("int32", 0)
            for i, layer in enumerate(s.layers):
                inner: PrimExpr = IntImm("int32", 0)
                for v in layer:
                    out[v] = ana.simplify(add(total, inner))
                    inner = add(inner, self.bytes(v))
                    a = const(align[i], "int32")
                    inner = ana.simplify(add(inner, floormod(sub(a, floormod(inner, a)), a)))
                most = ana.simplify(maximum(most, inner))
            total = ana.simplify(add(total, most))
        return out, total

    def bytes(self, v: Var) -> PrimExpr:
        a = self.allocs[v]
        size: PrimExpr = IntImm("int32", bytes_of(a.dtype))
        for n in a.extents:
            size = mul(IntImm("int32", n.value) if isinstance(n, IntImm) else n, size)
        return size

    def place(self, v: Var, free: list[_Slot], symbolic: list[_Slot]) -> _Slot:
        bits = self.bits(v)
        if bits == 0:
            slot = symbolic.pop(0) if symbolic else _Slot(0, [])
            slot.layers.append([v])
            return slot
        if bits > 32:
            for i, s in enumerate(free):
                if bits <= s.bits <= bits * 16:
                    s.layers.append([v])
                    return free.pop(i)
            layers: list[list[Var]] = []
            total = 0
            smaller = [s for s in free if s.bits < bits]
            while smaller and total < bits:
                s = smaller.pop()
                free.remove(s)
                total += s.bits
                for i, layer in enumerate(s.layers):
                    if i == len(layers):
                        layers.append([])
                    layers[i] += layer
            if total:
                return _Slot(max(bits, total), [*layers, [v]])
        return _Slot(bits, [[v]])


class _Rewrite(Mutator):
    """Replaces the buffers by the merged memory."""

    def __init__(self, merged: Var, allocs: dict[Var, t.Allocate], offsets: dict[Var, PrimExpr]) -> None:
        self.merged, self.allocs, self.offsets = merged, allocs, offsets
        self.buffers: dict[t.Buffer, t.Buffer] = {}

    def buffer(self, b: t.Buffer) -> t.Buffer:
        if b.data not in self.allocs:
            return b
        found = self.buffers.get(b)
        if found is None:
            found = self.buffers[b] = replace(b, data=self.merged)
        return found

    def start(self, v: Var, dtype: str) -> PrimExpr:
        """Where a buffer begins, in elements of `dtype`."""
        size = bytes_of(dt.element(dtype))
        return floordiv(self.offsets.get(v, IntImm("int32", 0)), IntImm("int32", size))

    def place(self, b: t.Buffer, index: PrimExpr) -> PrimExpr:
        offset = self.start(b.data, b.dtype)
        if isinstance(index, Ramp):
            return Ramp(add(index.base, _as(offset, index.base)), index.stride, index.lanes)
        return add(index, _as(offset, index))

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e if e.identity else map_children(e, self.visit)

    def visit_Buffer(self, b: t.Buffer) -> t.Buffer:
        return self.buffer(b)

    def visit_BufferLoad(self, e: t.BufferLoad) -> PrimExpr:
        indices = tuple(self.visit(i) for i in e.indices)
        if e.buffer.data in self.allocs:
            indices = (self.place(e.buffer, indices[0]),)
        return t.BufferLoad(self.buffer(e.buffer), indices)

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        indices = tuple(self.visit(i) for i in s.indices)
        if s.buffer.data in self.allocs:
            indices = (self.place(s.buffer, indices[0]),)
        return t.BufferStore(self.buffer(s.buffer), self.visit(s.value), indices)

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        body = self.visit(s.body)
        if s.buffer_var in self.allocs:
            return body
        return s if body is s.body else replace(s, body=body)

    def visit_DeclBuffer(self, s: t.DeclBuffer) -> t.Stmt:
        b, body = self.buffer(s.buffer), self.visit(s.body)
        return s if b is s.buffer and body is s.body else t.DeclBuffer(b, body)

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        node = self.merged if isinstance(s.node, Var) and s.node in self.allocs else s.node
        value, body = self.visit(s.value), self.visit(s.body)
        return (
            s if node is s.node and value is s.value and body is s.body else t.AttrStmt(node, s.attr_key, value, body)
        )

    def visit_Call(self, e: Call) -> PrimExpr:
        name = e.op.name if isinstance(e.op, Op) else ""
        data: Any = e.args[1] if name == "tir.tvm_access_ptr" else e.args[0] if e.args else None
        if isinstance(data, Var) and data in self.allocs:
            if name == "tir.tvm_access_ptr":
                offset = add(self.start(data, e.args[0].dtype), self.visit(e.args[2]))
                return Call(e.dtype, e.op, (e.args[0], self.merged, offset, *(self.visit(a) for a in e.args[3:])))
            if name == "tir.ptx_cp_async":
                offset = add(self.start(data, e.dtype), self.visit(e.args[1]))
                size = const(bytes_of(dt.element(e.dtype)), "int32")
                return Call(e.dtype, e.op, (self.merged, mul(offset, size), *(self.visit(a) for a in e.args[2:])))
        return self.visit_PrimExpr(e)

    def visit_Var(self, v: Var) -> Var:
        return self.merged if v in self.allocs else v


def _as(offset: PrimExpr, like: PrimExpr) -> PrimExpr:
    from tilewright.arith.expr import cast

    return cast(offset, dt.element(like.dtype))
