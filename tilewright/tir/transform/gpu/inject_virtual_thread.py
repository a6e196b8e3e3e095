"""Virtual threads become copies of the statements that depend on them, side by side in one real thread.

    with T.launch_thread("vthread.x", 2) as vt:              L[0] = A[tx]
        L[0] = A[vt*32 + tx]                        ▶        L[1] = A[32 + tx]
        T.tvm_storage_sync("shared")                         T.tvm_storage_sync("shared")
        B[vt*32 + tx] = L[0]                                 B[tx] = L[0]; B[32 + tx] = L[1]

Memory that is written differently by different virtual threads gets room for all of them. What does not depend on the virtual
thread is run once.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var, add, const, mul
from tilewright.ir.node import children, map_children, replace
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator, substitute
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError, func_pass

__all__ = ["InjectVirtualThread", "inject_virtual_thread"]

_UNROLL = 16
"""Fewer copies than this are written out."""


def inject_virtual_thread(f: t.PrimFunc) -> t.PrimFunc:
    """The function without virtual threads. Raises TW0567 where their number is not a constant."""
    body = _Find().visit(f.body)
    return f if body is f.body else replace(f, body=body)


def InjectVirtualThread() -> Pass:
    """Write virtual threads out; see `inject_virtual_thread`."""
    return func_pass("InjectVirtualThread", inject_virtual_thread)


class _Find(Mutator):
    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        body = self.visit(s.body)
        if s.attr_key != "virtual_thread" or not isinstance(s.node, t.IterVar):
            return s if body is s.body else replace(s, body=body)
        if not isinstance(s.value, IntImm):
            raise DeviceError.at(
                "TW0567",
                f"the number of virtual threads {s.node.thread_tag} is {s.value}, not a constant",
                hint="split the loop with a constant factor and bind the loop of that factor",
            )
        var, n = s.node.var, s.value.value
        return _Inject(var, n, _touched(body, var), s.node.thread_tag.startswith("vthread")).visit(body)


def _touched(body: t.Stmt, var: Var) -> set[Any]:
    """The variables and memory whose content depends on the virtual thread."""
    flows: list[tuple[Any, set[Any]]] = []

    def uses(e: Any, out: set[Any]) -> set[Any]:
        if isinstance(e, t.BufferLoad):
            out.add(e.buffer.data)
        elif isinstance(e, Var):
            out.add(e)
        if not e.identity:
            for c in children(e):
                if not isinstance(c, t.Buffer):
                    uses(c, out)
        return out

    def visit(n: Any) -> None:
        if isinstance(n, t.BufferStore):
            used = uses(n.value, set())
            for i in n.indices:
                uses(i, used)
            flows.append((n.buffer.data, used))
        elif isinstance(n, t.LetStmt):
            flows.append((n.var, uses(n.value, set())))
        elif isinstance(n, t.For):
            flows.append((n.loop_var, uses(n.extent, set())))
        elif isinstance(n, ex.Call) and getattr(n.op, "name", "") == "tir.tvm_access_ptr":
            mask = n.args[4]
            if isinstance(n.args[1], Var) and not (isinstance(mask, IntImm) and not mask.value & 2):
                flows.append((n.args[1], uses(n.args[2], set())))
        elif isinstance(n, t.Evaluate) and isinstance(n.value, ex.Call):
            everything = uses(n.value, set())
            for v in list(everything):
                if isinstance(v, Var) and v.dtype == "handle":
                    flows.append((v, everything))
        if not n.identity:
            for c in children(n):
                visit(c)

    visit(body)
    touched: set[Any] = {var}
    grown = True
    while grown:
        grown = False
        for target, used in flows:
            if target not in touched and not touched.isdisjoint(used - {target}):
                touched.add(target)
                grown = True
    return touched - {var}


class _Inject(Mutator):
    def __init__(self, var: Var, n: int, touched: set[Any], share: bool) -> None:
        self.var, self.n, self.touched, self.share = var, n, touched, share
        self.strides: dict[Any, PrimExpr] = {}
        self.buffers: dict[t.Buffer, t.Buffer] = {}
        self.seen = False
        self.injected = False
        self.depth = 0
        self.ana = Analyzer()

    # ---- expressions

    def visit_Var(self, v: Var) -> Var:
        if v is self.var or v in self.touched:
            self.seen = True
        return v

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e if e.identity else map_children(e, self.visit)

    def visit_Buffer(self, b: t.Buffer) -> t.Buffer:
        return self.buffer(b)

    def buffer(self, b: t.Buffer) -> t.Buffer:
        stride = self.strides.get(b.data)
        if stride is None:
            return b
        found = self.buffers.get(b)
        if found is None:
            if len(b.shape) != 1:
                raise DeviceError.at(
                    "TW0567", f"buffer {b.name} has {len(b.shape)} dimensions; virtual threads need flat memory",
                    hint="run FlattenBuffer() before",
                )  # fmt: skip
            total = mul(b.shape[0], const(self.n, b.shape[0].dtype))
            found = self.buffers[b] = replace(b, shape=(total,))
        return found

    def place(self, index: PrimExpr, stride: PrimExpr) -> PrimExpr:
        """The index in this virtual thread's part of the memory."""
        self.seen = True
        dtype = index.dtype if "x" not in index.dtype else index.base.dtype if isinstance(index, ex.Ramp) else "int32"
        offset = self.ana.simplify(mul(ex.cast(self.var, dtype), ex.cast(stride, dtype)))
        if isinstance(index, ex.Ramp):
            return ex.Ramp(add(index.base, offset), index.stride, index.lanes)
        if "x" in index.dtype:
            return ex.Add(index, ex.Broadcast(offset, int(index.dtype.split("x")[1])))
        return add(index, offset)

    def visit_BufferLoad(self, e: t.BufferLoad) -> PrimExpr:
        indices = tuple(self.visit(i) for i in e.indices)
        b = self.buffer(e.buffer)
        if b is not e.buffer:
            indices = (self.place(indices[0], self.strides[e.buffer.data]),)
        return t.BufferLoad(b, indices)

    def visit_Call(self, e: ex.Call) -> PrimExpr:
        name = getattr(e.op, "name", "")
        if name == "tir.tvm_access_ptr" and e.args[1] in self.strides:
            stride = self.strides[e.args[1]]
            kind, data, offset, extent, mask = e.args
            return ex.Call(
                e.dtype, e.op, (kind, data, self.place(self.visit(offset), stride), self.visit(extent), mask)
            )
        if name == "tir.tvm_context_id":
            self.seen = True
            return self.var if self.share else e
        return self.visit_PrimExpr(e)

    # ---- statements

    def finish(self, s: t.Stmt) -> t.Stmt:
        """The statement once for each virtual thread, if it depends on them."""
        return self.loop(s, False) if self.seen and not self.injected else s

    def visit_Evaluate(self, s: t.Evaluate) -> t.Stmt:
        self.seen = False if not self.injected else self.seen
        return self.finish(map_children(s, self.visit))

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        self.seen = False if not self.injected else self.seen
        value = self.visit(s.value)
        indices = tuple(self.visit(i) for i in s.indices)
        b = self.buffer(s.buffer)
        if b is not s.buffer:
            indices = (self.place(indices[0], self.strides[s.buffer.data]),)
        return self.finish(t.BufferStore(b, value, indices))

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        value = self.visit(s.value)
        if self.seen and not self.injected:
            return self.loop(s, True)
        body = self.visit(s.body)
        node = self.buffer(s.node) if isinstance(s.node, t.Buffer) else s.node
        return (
            s
            if value is s.value and body is s.body and node is s.node
            else replace(s, node=node, value=value, body=body)
        )

    def visit_LetStmt(self, s: t.LetStmt) -> t.Stmt:
        value = self.visit(s.value)
        if self.seen and not self.injected:
            return self.loop(s, True)
        self.seen = False if not self.injected else self.seen
        body = self.visit(s.body)
        return s if value is s.value and body is s.body else replace(s, value=value, body=body)

    def visit_For(self, s: t.For) -> t.Stmt:
        low, extent = self.visit(s.min), self.visit(s.extent)
        if self.seen and not self.injected:
            out = self.loop(s, True)
            self.depth += 1
            return out
        self.seen = False if not self.injected else self.seen
        body = self.visit(s.body)
        self.depth += 1
        return (
            s
            if body is s.body and extent is s.extent and low is s.min
            else replace(s, min=low, extent=extent, body=body)
        )

    def visit_IfThenElse(self, s: t.IfThenElse) -> t.Stmt:
        condition = self.visit(s.condition)
        if self.seen and not self.injected:
            return self.loop(s, True)
        self.seen = False if not self.injected else self.seen
        depth, self.depth = self.depth, 0
        yes = self.visit(s.then_case)
        no = None
        if s.else_case is not None:
            used, self.depth = self.depth, 0
            no = self.visit(s.else_case)
            self.depth = max(used, self.depth)
        self.depth = max(depth, self.depth)
        if condition is s.condition and yes is s.then_case and no is s.else_case:
            return s
        return t.IfThenElse(condition, yes, no)

    def visit_While(self, s: t.While) -> t.Stmt:
        condition = self.visit(s.condition)
        if self.seen and not self.injected:
            return self.loop(s, True)
        body = self.visit(s.body)
        return s if condition is s.condition and body is s.body else t.While(condition, body)

    def visit_SeqStmt(self, s: t.SeqStmt) -> t.Stmt:
        out: list[t.Stmt] = []
        for x in s.seq:
            depth, self.depth = self.depth, 0
            out.append(self.visit(x))
            self.depth = max(depth, self.depth)
        return t.seq(*out)

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        extents = tuple(self.visit(x) for x in s.extents)
        if self.seen and not self.injected:
            return self.loop(s, True)
        self.seen = False if not self.injected else self.seen
        if s.buffer_var in self.touched or not self.share:
            stride: PrimExpr = const(1, extents[0].dtype)
            for x in extents:
                stride = mul(stride, x)
            self.strides[s.buffer_var] = stride
            extents = (mul(stride, const(self.n, stride.dtype)),)
        body = self.visit(s.body)
        same = all(a is b for a, b in zip(extents, s.extents)) and len(extents) == len(s.extents)
        return s if same and body is s.body else replace(s, extents=extents, body=body)

    def visit_DeclBuffer(self, s: t.DeclBuffer) -> t.Stmt:
        b = self.buffer(s.buffer)
        body = self.visit(s.body)
        return s if b is s.buffer and body is s.body else t.DeclBuffer(b, body)

    def loop(self, s: t.Stmt, mutate: bool) -> t.Stmt:
        """The statement for all virtual threads."""
        self.seen, self.injected = False, True
        if mutate:
            s = self.visit(s)
        self.seen = self.injected = False
        if self.depth == 0 and self.n < _UNROLL:
            copies = [_copy(s, {self.var: const(i, self.var.dtype)}) for i in range(self.n)]
            return t.seq(*copies)
        index = Var(f"{self.var.name}.s", self.var.dtype)
        zero = const(0, index.dtype)
        body = substitute(s, {self.var: index})
        return t.For(index, zero, const(self.n, index.dtype), t.ForKind.SERIAL, body)


def _copy(s: t.Stmt, values: dict[Any, Any]) -> t.Stmt:
    """The statement with values for variables, and variables of its own where it binds some."""
    table = dict(values)

    def bind(n: Any) -> None:
        if isinstance(n, (t.For, t.LetStmt, t.Allocate, ex.Let)):
            v: Any = n.loop_var if isinstance(n, t.For) else n.buffer_var if isinstance(n, t.Allocate) else n.var
            table[v] = replace(v)
        if not n.identity:
            for c in children(n):
                bind(c)

    bind(s)
    return substitute(s, table)
