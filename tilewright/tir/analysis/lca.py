"""The innermost loop or block that holds all accesses of a buffer: where the buffer may be allocated at the latest.

Loops and blocks are scopes; branches and lets are not. Beyond the accesses themselves: an opaque or ordered block iterator
carries values from one iteration to the next, so what it indexes must live outside of the loops that it is bound to; what a
reduction writes lives outside of its reduction loops; global memory lives outside of the GPU's blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.arith.expr import PrimExpr, Var
from tilewright.ir.node import Node, children, walk
from tilewright.tir import ir as t

__all__ = ["detect_buffer_access_lca"]


class _Scope:
    __slots__ = ("depth", "parent", "stmt")

    def __init__(self, parent: _Scope | None, stmt: t.Stmt | None) -> None:
        self.parent, self.stmt = parent, stmt
        self.depth: int = 0 if parent is None else parent.depth + 1


def _common(a: _Scope, b: _Scope) -> _Scope:
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        assert a.parent is not None
        a = a.parent
    return a


class _Finder:
    def __init__(self, func: t.PrimFunc) -> None:
        self.root = _Scope(None, None)
        self.here = self.root
        self.found: dict[t.Buffer, _Scope] = {}
        self.by_data: dict[Var, t.Buffer] = {}
        self.loops: dict[Var, _Scope] = {}
        self.views: set[t.Buffer] = set()
        self.block_index: list[_Scope] = []
        for b in func.buffer_map.values():
            self.by_data[b.data] = b
            self.found[b] = self.root
        self.stmt(func.body)

    def touch(self, b: t.Buffer, scope: _Scope) -> None:
        owner = self.by_data.setdefault(b.data, b)
        if owner is not b and b not in self.views:  # another buffer over the same memory
            self.touch(owner, scope)
        old = self.found.get(b)
        self.found[b] = scope if old is None else _common(old, scope)

    def expr(self, e: Any) -> None:
        if isinstance(e, Var):
            if e.dtype == "handle" and e in self.by_data:
                self.touch(self.by_data[e], self.here)
            return
        if isinstance(e, t.BufferLoad):
            self.touch(e.buffer, self.here)
        for c in children(e):
            if isinstance(c, t.Buffer):
                if not isinstance(e, t.BufferLoad):
                    self.touch(c, self.here)
            else:
                self.expr(c)

    def within(self, s: t.Stmt, body: t.Stmt) -> None:
        outer = self.here
        self.here = _Scope(outer, s)
        self.stmt(body)
        self.here = outer

    def stmt(self, s: t.Stmt) -> None:
        if isinstance(s, t.For):
            self.expr(s.min)
            self.expr(s.extent)
            if s.thread_binding is not None and s.thread_binding.thread_tag.startswith("blockIdx"):
                self.block_index.append(self.here)
            outer = self.here
            self.here = self.loops[s.loop_var] = _Scope(outer, s)
            self.stmt(s.body)
            self.here = outer
        elif isinstance(s, t.BlockRealize):
            self.block(s)
        elif isinstance(s, t.BufferStore):
            self.touch(s.buffer, self.here)
            self.expr(s.value)
            for i in s.indices:
                self.expr(i)
        else:
            self.other(s)

    def other(self, s: t.Stmt) -> None:
        if isinstance(s, t.AttrStmt) and isinstance(s.node, t.IterVar):
            if s.attr_key == "thread_extent" and s.node.thread_tag.startswith("blockIdx"):
                self.block_index.append(self.here)
        if isinstance(s, t.DeclBuffer):
            self.by_data.setdefault(s.buffer.data, s.buffer)
        for c in children(s):
            if isinstance(c, t.Stmt):
                self.stmt(c)
            elif isinstance(c, PrimExpr) and not isinstance(s, t.Allocate):
                self.expr(c)

    def block(self, s: t.BlockRealize) -> None:
        b = s.block
        for e in (*s.iter_values, s.predicate):
            self.expr(e)
        for buffer in b.alloc_buffers:
            self.by_data[buffer.data] = buffer
        outer = self.here
        self.here = _Scope(outer, b)
        self.carried(s)
        for m in b.match_buffers:
            self.touch(m.source.buffer, self.here)
            self.views.add(m.buffer)
            self.by_data[m.buffer.data] = m.buffer
        if b.init is not None:
            self.stmt(b.init)
        self.stmt(b.body)
        self.here = outer

    def carried(self, s: t.BlockRealize) -> None:
        """Buffers that iterations of the block hand on to each other live outside of the loops in question."""
        opaque: dict[Var, _Scope] = {}
        reduced: _Scope | None = None
        for iv, value in zip(s.block.iter_vars, s.iter_values, strict=True):
            if iv.iter_type == t.IterVar.DataPar:
                continue
            outer = self.outside(value)
            if outer is None:
                continue
            if iv.iter_type == t.IterVar.CommReduce:
                reduced = outer if reduced is None or outer.depth < reduced.depth else reduced
            else:
                opaque[iv.var] = outer
        for regions, write in ((s.block.reads, False), (s.block.writes, True)) if opaque or reduced else ():
            for r in regions:
                scope = self.here
                for d in r.region:
                    for v in _variables((d.min, d.extent)):
                        if v in opaque and opaque[v].depth < scope.depth:
                            scope = opaque[v]
                if write and reduced is not None and reduced.depth < scope.depth:
                    scope = reduced
                self.touch(r.buffer, scope)

    def outside(self, value: PrimExpr) -> _Scope | None:
        """The scope around the outermost loop that a value depends on."""
        scopes = [self.loops[v].parent for v in _variables((value,)) if v in self.loops]
        return min((x for x in scopes if x is not None), key=lambda x: x.depth, default=None)


def _variables(parts: Iterable[Node]) -> list[Var]:
    return [x for p in parts for x in walk(p) if isinstance(x, Var)]


def detect_buffer_access_lca(func: t.PrimFunc) -> dict[t.Buffer, t.Stmt | None]:
    """For each buffer that is accessed: the innermost For or Block that holds all of its accesses (see the head of the
    module); None where that is the function itself, as it is for every parameter."""
    run = _Finder(func)
    out: dict[t.Buffer, t.Stmt | None] = {}
    for b, scope in run.found.items():
        if b in run.views:
            continue
        if b.scope() == "global":
            for outer in run.block_index:
                scope = _common(scope, outer)
        out[b] = scope.stmt
    return out
