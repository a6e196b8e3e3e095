"""Barriers between the writes of some threads to shared memory and the reads (or writes) of others.

    S[tx] = A[tx]                              S[tx] = A[tx]
    B[tx] = S[31 - tx]              ▶          T.tvm_storage_sync("shared")
                                               B[tx] = S[31 - tx]

A statement gets a barrier before it when it touches an element that another thread may have touched since the last barrier,
one of the two writing. Loops are followed around once, so that an iteration does not overtake the one before it.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Call, IntImm, PrimExpr, StringImm, Var
from tilewright.ir.node import children, replace
from tilewright.ir.op import Op, PointerType
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator, free_vars
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError, func_pass, launch
from tilewright.tir.transform.gpu.shared_access import READ, SYNC, WRITE, Access, conflict

__all__ = ["ThreadSync", "barrier", "thread_sync"]


def thread_sync(f: t.PrimFunc, storage_scope: str = "shared") -> t.PrimFunc:
    """The function with the barriers that accesses to `storage_scope` need. Raises TW0565 where one would be in a branch
    that not all threads take."""
    body = _AfterWaits(storage_scope).visit(f.body) if storage_scope == "shared" else f.body
    plan = _Plan(storage_scope)
    plan.function(body)
    if plan.before:
        body = _Insert(plan.before, storage_scope).visit(body)
    return f if body is f.body else replace(f, body=body)


def ThreadSync(storage_scope: str) -> Pass:
    """Insert barriers for the memory scope; see `thread_sync`."""
    return func_pass("ThreadSync", lambda f: thread_sync(f, storage_scope))


def barrier(scope: str) -> t.Stmt:
    """All threads of the block arrive here before any goes on."""
    return t.Evaluate(Call("int32", Op.get("tir.tvm_storage_sync"), (StringImm(scope),)))


class _Entry:
    """One step of a sequence: a statement and what it touches."""

    __slots__ = ("access", "stmt")

    def __init__(self, stmt: t.Stmt, access: list[Access]) -> None:
        self.stmt, self.access = stmt, access


def scope_of(v: Any) -> str:
    """The storage scope of a pointer variable."""
    kind = getattr(v, "type_annotation", None)
    return kind.storage_scope if isinstance(kind, PointerType) else "global"


class _Plan:
    """Finds the statements that need a barrier before them."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.before: set[int] = set()
        self.kept: list[t.Stmt] = []  # keeps the ids of `before` alive
        self.seq: list[_Entry] = []
        self.threads: dict[Var, PrimExpr] = {}
        self.on_device = False
        self.divergent: list[PrimExpr] = []
        self.dynamic: Var | None = None
        self.double: set[Any] = set()
        self.lets: dict[Var, PrimExpr] = {}

    def function(self, body: t.Stmt) -> None:
        self.stmt(body)

    # ---- the walk

    def stmt(self, s: t.Stmt) -> None:
        method = getattr(self, "s_" + type(s).__name__, None)
        if method is not None:
            method(s)
        else:
            self.note(s, [c for c in children(s) if not isinstance(c, t.Stmt)])
            for c in children(s):
                if isinstance(c, t.Stmt):
                    self.stmt(c)

    def inside(self, body: t.Stmt, loop: t.For | None) -> list[Access]:
        """What a statement touches, seen from outside; barriers inside it are planned."""
        outer, self.seq = self.seq, []
        self.stmt(body)
        found = self.summary(self.seq, loop)
        self.seq = outer
        return found

    def s_SeqStmt(self, s: t.SeqStmt) -> None:
        for x in s.seq:
            self.stmt(x)

    def s_AttrStmt(self, s: t.AttrStmt) -> None:
        axis = launch(s)
        if axis is not None and s.attr_key == "thread_extent":
            is_thread = axis.tag.startswith("threadIdx")
            if is_thread:
                self.threads[axis.var] = axis.extent
            entered = not self.on_device
            self.on_device = True
            if entered:
                self.inside(s.body, None)
                self.on_device = False
            else:
                self.stmt(s.body)
            if is_thread:
                del self.threads[axis.var]
            return
        if s.attr_key == "double_buffer_write":
            self.double.add(s.node)
            self.stmt(s.body)
            self.double.discard(s.node)
            return
        self.stmt(s.body)

    def s_For(self, s: t.For) -> None:
        self.note(s, [s.min, s.extent])
        varies = self.varies(s.extent) or self.varies(s.min)
        if varies:
            self.divergent.append(s.extent)
        access = self.inside(s.body, s)
        if varies:
            self.divergent.pop()
        self.seq.append(_Entry(s, [x.left(s) if x.kind != SYNC else x for x in access]))

    def s_While(self, s: t.While) -> None:
        varies = self.varies(s.condition)
        if varies:
            self.divergent.append(s.condition)
        loop = t.For(Var("trip", "int32"), IntImm("int32", 0), Var("trips", "int32"), t.ForKind.SERIAL, s.body)
        outer, self.seq = self.seq, []
        self.note(s.body, [s.condition])
        self.stmt(s.body)
        access = self.summary(self.seq, loop)
        self.seq = outer
        if varies:
            self.divergent.pop()
        self.seq.append(_Entry(s, access))

    def s_IfThenElse(self, s: t.IfThenElse) -> None:
        access: list[Access] = []
        self.loads(s.condition, access)
        varies = self.varies(s.condition)
        if varies:
            self.divergent.append(s.condition)
        for side in (s.then_case, s.else_case):
            if side is not None:
                access += self.inside(side, None)
        if varies:
            self.divergent.pop()
        self.seq.append(_Entry(s, access))

    def s_LetStmt(self, s: t.LetStmt) -> None:
        self.note(s, [s.value])
        self.lets[s.var] = s.value
        self.stmt(s.body)

    def s_AssertStmt(self, s: t.AssertStmt) -> None:
        self.note(s, [s.condition])
        self.stmt(s.body)

    def s_Allocate(self, s: t.Allocate) -> None:
        self.stmt(s.body)

    def s_DeclBuffer(self, s: t.DeclBuffer) -> None:
        self.stmt(s.body)

    def s_BufferStore(self, s: t.BufferStore) -> None:
        access: list[Access] = []
        for i in s.indices:
            self.loads(i, access)
        self.loads(s.value, access)
        self.touch(WRITE, s.buffer, s.indices, access)
        self.seq.append(_Entry(s, access))

    def s_Evaluate(self, s: t.Evaluate) -> None:
        self.note(s, [s.value])

    def note(self, s: t.Stmt, parts: list[Any]) -> None:
        """Expressions that a statement evaluates before anything inside it."""
        access: list[Access] = []
        for e in parts:
            self.loads(e, access)
        if access or isinstance(s, t.Evaluate):
            self.seq.append(_Entry(s, access))

    # ---- accesses

    def varies(self, e: PrimExpr) -> bool:
        """Is an expression not the same for all threads, as far as can be told?"""
        todo, seen = list(free_vars(e)), set[Any]()
        while todo:
            v = todo.pop()
            if v in self.threads:
                extent = self.threads[v]
                if not (isinstance(extent, IntImm) and extent.value == 1):
                    return True
            if v in self.lets and v not in seen:
                seen.add(v)
                value = self.lets[v]
                if _reads(value):
                    return True
                todo += free_vars(value)
        return _reads(e)

    def memory(self, data: Var) -> Var | None:
        """The memory behind a pointer, if it is of the scope; all dynamic shared memory is one piece."""
        scope = scope_of(data)
        if scope != self.scope or not self.on_device:
            return None
        if scope == "shared.dyn":
            if self.dynamic is None:
                self.dynamic = data
            return self.dynamic
        return data

    def touch(self, kind: str, b: t.Buffer, indices: tuple[PrimExpr, ...], out: list[Access]) -> None:
        data = self.memory(b.data)
        if data is None:
            return
        same = data is b.data and b.elem_offset is None
        out.append(
            Access(kind, b, data, indices if same else None, dict(self.threads), None, b.data in self.double)
        )  # fmt: skip

    def loads(self, e: Any, out: list[Access]) -> None:
        if isinstance(e, t.BufferLoad):
            for i in e.indices:
                self.loads(i, out)
            self.touch(READ, e.buffer, e.indices, out)
            return
        if isinstance(e, Call) and isinstance(e.op, Op):
            if e.op.name == "tir.tvm_storage_sync":
                kind = e.args[0].value if isinstance(e.args[0], StringImm) else ""
                if kind != "warp" or self.scope == "warp":  # a barrier of the block is one for all memory
                    out.append(Access(SYNC, None, None, None, dict(self.threads)))
                return
            if e.op.name == "tir.tvm_access_ptr":
                self.pointer(e, out)
                return
            if e.op.name == "tir.address_of" and isinstance(e.args[0], t.BufferLoad):
                load = e.args[0]
                for kind in (READ, WRITE):
                    self.anywhere(kind, load.buffer.data, out)
                return
        if isinstance(e, Var):
            if e.dtype == "handle":
                for kind in (READ, WRITE):
                    self.anywhere(kind, e, out)
            return
        if not e.identity:
            for c in children(e):
                self.loads(c, out)

    def anywhere(self, kind: str, v: Var, out: list[Access]) -> None:
        data = self.memory(v)
        if data is not None:
            out.append(Access(kind, None, data, None, dict(self.threads)))

    def pointer(self, e: Call, out: list[Access]) -> None:
        """`tvm_access_ptr(type, data, offset, extent, mask)`: reads (1) and writes (2) somewhere in the range."""
        data, mask = e.args[1], e.args[4]
        self.loads(e.args[2], out)
        self.loads(e.args[3], out)
        if not isinstance(data, Var):
            return
        bits = mask.value if isinstance(mask, IntImm) else 3
        if bits & 1:
            self.anywhere(READ, data, out)
        if bits & 2:
            self.anywhere(WRITE, data, out)

    # ---- where barriers go

    def summary(self, seq: list[_Entry], loop: t.For | None) -> list[Access]:
        """Plan the barriers of a sequence; what it touches before its first and after its last barrier."""
        reads: list[Access] = []
        writes: list[Access] = []
        for s in seq:
            if self.has(s.stmt):
                reads, writes = [], []
            elif self.clash(s, reads, writes, None):
                self.insert(s.stmt)
                reads, writes = [], []
            for x in s.access:
                if x.kind == SYNC:
                    reads, writes = [], []
                else:
                    (reads if x.kind == READ else writes).append(x)
        if loop is not None:
            for s in seq:
                if self.has(s.stmt) or not (reads or writes):
                    break
                if self.clash(s, reads, writes, loop):
                    self.insert(s.stmt)
                    break
                if any(x.kind == SYNC for x in s.access):
                    break
        return self.exposed(seq, loop)

    def exposed(self, seq: list[_Entry], loop: t.For | None) -> list[Access]:
        head: list[Access] = []
        tail: list[Access] | None = None
        for s in seq:
            parts = list(s.access)
            if self.has(s.stmt):
                parts.insert(0, Access(SYNC, None, None, None, {}))
            for x in parts:
                if x.kind == SYNC:
                    if tail is None:
                        head.append(x)
                    tail = []
                elif tail is None:
                    head.append(x)
                else:
                    tail.append(x)
        out = head + (tail or [])
        if loop is not None:
            for x in out:
                x.double = False
        return out

    def clash(self, s: _Entry, reads: list[Access], writes: list[Access], loop: t.For | None) -> bool:
        for x in s.access:
            if x.kind == SYNC:
                return False
            before = writes if x.kind == READ else reads if loop is not None else [*reads, *writes]
            for p in before:
                if p.double and x.kind == READ and loop is None:
                    continue
                if conflict(p, x, loop):
                    return True
        return False

    def has(self, s: t.Stmt) -> bool:
        return id(s) in self.before

    def insert(self, s: t.Stmt) -> None:
        if self.divergent:
            raise DeviceError.at(
                "TW0565",
                f"a barrier for {self.scope} memory is needed where not all threads of the block arrive: the condition "
                f"`{self.divergent[-1]}` differs between threads",
                hint="let all threads run the accesses (guard the stores only), or bind the loop differently",
            )
        self.before.add(id(s))
        self.kept.append(s)


def _reads(e: Any) -> bool:
    """Does an expression read memory or call something?"""
    if isinstance(e, t.BufferLoad):
        return True
    if isinstance(e, Call) and getattr(e.op, "name", "") not in ("tir.likely", "tir.if_then_else"):
        return True
    return not e.identity and any(_reads(c) for c in children(e))


class _AfterWaits(Mutator):
    """A barrier after each wait for asynchronous copies: one thread's wait says nothing of the others' copies."""

    def __init__(self, scope: str) -> None:
        self.scope = scope

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        inner = s.body
        if s.attr_key != "async_wait_queue_scope" or not isinstance(inner, t.AttrStmt):
            return self.generic(s)
        return replace(s, body=replace(inner, body=t.seq(barrier(self.scope), self.visit(inner.body))))


class _Insert(Mutator):
    def __init__(self, before: set[int], scope: str) -> None:
        self.before, self.scope = before, scope

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Stmt(self, s: t.Stmt) -> t.Stmt:
        new = self.generic(s)
        if isinstance(new, t.SeqStmt) and new is not s:
            new = t.seq(*new.seq)
        return t.seq(barrier(self.scope), new) if id(s) in self.before else new
