"""Allocations move to the outside of the serial loops around them, and share memory where they are not alive together.

    for i in range(n):                            A = alloc(200)
        for j in range(10):                       for i in range(n):
            A = alloc(200); A[j] = 1         ▶        for j in range(10): A[j] = 1
        for j in range(10):                           for j in range(10): A[j] = 2
            B = alloc(200); B[j] = 2

Memory of a parallel loop's body, or of one thread, stays inside. Shared are allocations of constant size, of one dtype and
one scope, in functions of one thread each.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.ir.node import children, replace, walk
from tilewright.ir.passes import Pass
from tilewright.tir import ir as t
from tilewright.tir.transform.base import TRUE, BufferMutator, func_pass

__all__ = ["StorageRewrite", "rewrite_storage"]


def rewrite_storage(f: t.PrimFunc) -> t.PrimFunc:
    """The function with its allocations moved out and shared; see the head of the module."""
    if not any(isinstance(n, t.Allocate) for n in walk(f.body)):
        return f
    return f.with_body(_place(f.body))


class _Item:
    """One allocation: the statement, and the first and last position at which it is used."""

    def __init__(self, s: t.Allocate, loops: list[tuple[int, int]]) -> None:
        self.s, self.loops = s, loops
        self.first: int | None = None
        self.last = -1

    def touch(self, low: int, high: int) -> None:
        self.first = low if self.first is None else min(self.first, low)
        self.last = max(self.last, high)


def _is_scope(s: t.Stmt) -> bool:
    """Does the statement begin a place with memory of its own?"""
    if isinstance(s, t.For):
        return s.kind in (t.ForKind.PARALLEL, t.ForKind.THREAD_BINDING)
    if isinstance(s, t.AttrStmt):
        return s.attr_key in ("thread_extent", "virtual_thread", "device_scope") or s.attr_key.startswith(
            "pragma_scope"
        )
    return False


class _Survey:
    """Positions of what happens in one scope, in order; loops extend the life of what they use from outside."""

    def __init__(self) -> None:
        self.now = 0
        self.items: dict[Var, _Item] = {}
        self.spans: list[list[int]] = []
        """The loops around: [start, end], the end filled in later."""
        self.uses: list[tuple[_Item, int, list[list[int]]]] = []
        self.depth: dict[Var, int] = {}
        self.fixed: set[Var] = set()
        self.inside: set[Var] = set()
        """Variables that the scope itself defines: what depends on them cannot move out."""

    def use(self, v: Var) -> None:
        item = self.items.get(v)
        if item is not None:
            self.uses.append((item, self.now, self.spans[self.depth[v] :]))

    def visit(self, n: Any) -> None:
        self.now += 1
        if isinstance(n, t.Allocate):
            self.items[n.buffer_var] = _Item(n, [])
            self.depth[n.buffer_var] = len(self.spans)
            if any(v in self.inside for e in n.extents for v in walk(e) if isinstance(v, Var)):
                self.fixed.add(n.buffer_var)
            self.visit(n.body)
            return
        if isinstance(n, Var):
            self.use(n)
            return
        if isinstance(n, (t.BufferLoad, t.BufferStore)):
            self.use(n.buffer.data)
        if isinstance(n, t.LetStmt):
            self.inside.add(n.var)
        if isinstance(n, (t.For, t.While)):
            if isinstance(n, t.For):
                self.inside.add(n.loop_var)
            span = [self.now, 0]
            self.spans.append(span)
            for c in children(n):
                self.visit(c)
            self.now += 1
            span[1] = self.now
            self.spans.pop()
            return
        if n.identity:
            return
        for c in children(n):
            if not isinstance(c, t.Buffer):
                self.visit(c)
        if isinstance(n, t.AttrStmt) and isinstance(n.node, Var):
            self.use(n.node)

    def finish(self) -> None:
        for item, at, spans in self.uses:
            item.touch(spans[0][0], spans[0][1]) if spans else item.touch(at, at)


def _place(body: t.Stmt) -> t.Stmt:
    """One scope: inner scopes first, then the allocations of this one at its head."""
    body = _Inner().visit(body)
    survey = _Survey()
    _own(body, survey)
    survey.finish()
    items = [x for x in survey.items.values() if x.s.buffer_var not in survey.fixed and x.first is not None]
    pools: list[tuple[t.Allocate, int, int]] = []  # the allocation, its size, when its last user ends
    names: dict[Var, Var] = {}
    sizes: dict[int, int] = {}
    for item in sorted(items, key=lambda x: x.first or 0):
        size = _size(item.s)
        found = None
        if size is not None and item.first is not None:
            for n, (pool, room, end) in enumerate(pools):
                if end < item.first and room >= 0 and _alike(pool, item.s):
                    found = n
                    break
        if found is None:
            pools.append((item.s, -1 if size is None else size, item.last))
            sizes[len(pools) - 1] = size or 0
            continue
        pool, room, _ = pools[found]
        sizes[found] = max(sizes[found], size or 0)
        pools[found] = (pool, room, item.last)
        names[item.s.buffer_var] = pool.buffer_var
    moved = {x.s.buffer_var for x in items}
    body = _Rename(names, moved).visit(body)
    for n in reversed(range(len(pools))):
        pool = pools[n][0]
        extents: tuple[PrimExpr, ...] = pool.extents
        if pools[n][1] >= 0 and _size(pool) != sizes[n]:
            extents = (IntImm(pool.extents[0].dtype, sizes[n]),)
        body = t.Allocate(pool.buffer_var, pool.dtype, extents, TRUE, body, pool.annotations)
    return body


def _own(n: t.Stmt, survey: _Survey) -> None:
    """Survey a scope; allocations of inner scopes are theirs."""
    inner = [
        x.buffer_var
        for s in walk(n)
        if isinstance(s, t.Stmt) and _is_scope(s)
        for x in walk(s)
        if isinstance(x, t.Allocate)
    ]
    survey.visit(n)
    for v in inner:
        survey.items.pop(v, None)


def _size(s: t.Allocate) -> int | None:
    total = 1
    for n in s.extents:
        if not isinstance(n, IntImm):
            return None
        total *= n.value
    return total


def _alike(a: t.Allocate, b: t.Allocate) -> bool:
    scope = [getattr(x.buffer_var.type_annotation, "storage_scope", "global") for x in (a, b)]
    return a.dtype == b.dtype and scope[0] == scope[1] and len(a.extents) == len(b.extents) == 1 and not a.annotations


class _Inner(BufferMutator):
    """Does the scopes inside a statement."""

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_For(self, s: t.For) -> t.Stmt:
        body = _place(s.body) if _is_scope(s) else self.visit(s.body)
        return s if body is s.body else replace(s, body=body)

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        body = _place(s.body) if _is_scope(s) else self.visit(s.body)
        return s if body is s.body else replace(s, body=body)


class _Rename(BufferMutator):
    """Takes allocations out, and puts the shared memory's pointer for those that share it."""

    def __init__(self, names: dict[Var, Var], moved: set[Var]) -> None:
        super().__init__()
        self.names, self.moved = names, moved

    def visit_Var(self, v: Var) -> PrimExpr:
        return self.names.get(v, v)

    def buffer(self, b: t.Buffer) -> t.Buffer:
        data = self.names.get(b.data)
        if data is None:
            return b
        found = self.remap.get(b)
        if found is None:
            found = self.remap[b] = replace(b, data=data)
        return found

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        return self.visit(s.body) if s.buffer_var in self.moved else self.generic(s)

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        node = self.names.get(s.node, s.node) if isinstance(s.node, Var) else s.node
        body, value = self.visit(s.body), self.visit(s.value)
        return (
            s
            if node is s.node and body is s.body and value is s.value
            else replace(s, node=node, body=body, value=value)
        )


def StorageRewrite() -> Pass:
    """Allocations move out of serial loops and share memory."""
    return func_pass("StorageRewrite", rewrite_storage)
