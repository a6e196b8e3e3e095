"""Every variable is defined once: what is defined again (in a copy of a statement, in another function) becomes a new variable."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Let, PrimExpr, Var
from tilewright.ir.module import IRModule
from tilewright.ir.node import map_children, replace
from tilewright.ir.passes import Pass, PassContext
from tilewright.tir import ir as t
from tilewright.tir.transform.base import BufferMutator

__all__ = ["ConvertSSA", "convert_ssa"]


def convert_ssa(f: t.PrimFunc, seen: set[Any] | None = None) -> t.PrimFunc:
    """The function with every variable defined once; `seen` are those that other functions define already."""
    return _SSA(set() if seen is None else seen).func(f)


class _SSA(BufferMutator):
    def __init__(self, seen: set[Any]) -> None:
        super().__init__()
        self.seen = seen
        self.names: dict[Var, Var] = {}
        """What stands for a variable here."""

    def func(self, f: t.PrimFunc) -> t.PrimFunc:
        params = tuple(self.define(p) for p in f.params)
        for b in f.buffer_map.values():
            self.declare(b)
        table = {self.names.get(p, p): self.buffer(b) for p, b in f.buffer_map.items()}
        body = self.visit(f.body)
        same = all(a is b for a, b in zip(params, f.params)) and all(
            x is y for x, y in zip(table.values(), f.buffer_map.values())
        )
        return f if same and body is f.body else replace(f, params=params, buffer_map=table, body=body)

    def define(self, v: Var) -> Var:
        """The variable for a definition of `v` here: `v` itself the first time."""
        if v not in self.seen:
            self.seen.add(v)
            return self.names.get(v, v)
        new = self.names[v] = Var(v.name, v.dtype, v.type_annotation)
        self.seen.add(new)
        return new

    def declare(self, b: t.Buffer, memory: bool = True) -> t.Buffer:
        """The buffer for a definition of `b` here; with `memory`, its pointer is defined too."""
        if memory:
            self.define(b.data)
        for e in (*b.shape, *b.strides, *(() if b.elem_offset is None else (b.elem_offset,))):
            if isinstance(e, Var) and e not in self.seen:
                self.seen.add(e)
        new = map_children(b, self.inside)
        if b in self.seen and new is b:
            new = replace(b)
        self.seen.add(new)
        self.seen.add(b)
        self.remap[b] = new
        return new

    def inside(self, n: Any) -> Any:
        return self.names.get(n, n) if isinstance(n, Var) else self.visit(n)

    def buffer(self, b: t.Buffer) -> t.Buffer:
        """The buffer that stands for `b`: remade where its memory or its sizes got new names."""
        found = self.remap.get(b, b)
        new = map_children(b, self.inside)
        if new is b:
            return b if found is b else found
        if found is not b and found.data is new.data:
            return found
        self.remap[b] = new
        return new

    def visit_Var(self, v: Var) -> PrimExpr:
        return self.names.get(v, v)

    def scoped(self, v: Var, work: Any) -> tuple[Var, Any]:
        """(the variable for `v`, what `work` gives) inside the scope of a definition."""
        saved = self.names.get(v)
        new = self.define(v)
        out = work()
        if saved is None:
            self.names.pop(v, None)
        else:
            self.names[v] = saved
        return new, out

    def visit_For(self, s: t.For) -> t.Stmt:
        low, extent = self.visit(s.min), self.visit(s.extent)
        var, body = self.scoped(s.loop_var, lambda: self.visit(s.body))
        if var is s.loop_var and low is s.min and extent is s.extent and body is s.body:
            return s
        return replace(s, loop_var=var, min=low, extent=extent, body=body)

    def visit_LetStmt(self, s: t.LetStmt) -> t.Stmt:
        value = self.visit(s.value)
        var, body = self.scoped(s.var, lambda: self.visit(s.body))
        if var is s.var and value is s.value and body is s.body:
            return s
        return t.LetStmt(var, value, body)

    def visit_Let(self, e: Let) -> PrimExpr:
        value = self.visit(e.value)
        var, body = self.scoped(e.var, lambda: self.visit(e.body))
        return e if var is e.var and value is e.value and body is e.body else Let(var, value, body)

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        extents = tuple(self.visit(e) for e in s.extents)
        var, body = self.scoped(s.buffer_var, lambda: self.visit(s.body))
        same = all(a is b for a, b in zip(extents, s.extents))
        if var is s.buffer_var and same and body is s.body:
            return s
        return replace(s, buffer_var=var, extents=extents, body=body)

    def visit_AllocateConst(self, s: t.AllocateConst) -> t.Stmt:
        var, body = self.scoped(s.buffer_var, lambda: self.visit(s.body))
        return s if var is s.buffer_var and body is s.body else replace(s, buffer_var=var, body=body)

    def visit_DeclBuffer(self, s: t.DeclBuffer) -> t.Stmt:
        old = self.remap.get(s.buffer)
        new = self.declare(s.buffer, memory=False)
        body = self.visit(s.body)
        self.restore(s.buffer, old)
        return s if new is s.buffer and body is s.body else t.DeclBuffer(new, body)

    def restore(self, b: t.Buffer, old: t.Buffer | None) -> None:
        if old is None:
            self.remap.pop(b, None)
        else:
            self.remap[b] = old

    def visit_BlockRealize(self, s: t.BlockRealize) -> t.Stmt:
        values = tuple(self.visit(v) for v in s.iter_values)
        b = s.block
        names = dict(self.names)
        buffers = dict(self.remap)
        iters = tuple(replace(iv, var=self.define(iv.var), dom=self.generic(iv.dom)) for iv in b.iter_vars)
        if all(x.var is y.var and x.dom is y.dom for x, y in zip(iters, b.iter_vars)):
            iters = b.iter_vars
        predicate = self.visit(s.predicate)
        allocs = tuple(self.declare(x) for x in b.alloc_buffers)
        sources = [self.visit(m.source) for m in b.match_buffers]
        views = tuple(
            replace(m, buffer=self.declare(m.buffer), source=r) for m, r in zip(b.match_buffers, sources, strict=True)
        )
        changes = {
            "iter_vars": iters, "alloc_buffers": allocs, "match_buffers": views,
            "reads": tuple(self.visit(r) for r in b.reads), "writes": tuple(self.visit(r) for r in b.writes),
            "body": self.visit(b.body), "init": None if b.init is None else self.visit(b.init),
        }  # fmt: skip
        self.names, self.remap = names, buffers
        if all(_same(getattr(b, k), v) for k, v in changes.items()):
            block = b
        else:
            block = replace(b, **changes)
        if block is b and predicate is s.predicate and _same(values, s.iter_values):
            return s
        return t.BlockRealize(values, predicate, block)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, t.MatchBufferRegion):
        return a.buffer is b.buffer and a.source is b.source
    return a is b


def ConvertSSA() -> Pass:
    """Every variable is defined once in the whole module."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        seen: set[Any] = set()
        changed: dict[Any, Any] = {}
        for var, f in mod.functions.items():
            if isinstance(f, t.PrimFunc):
                new = convert_ssa(f, seen)
                if new is not f:
                    changed[var] = new
        return mod.with_(changed) if changed else mod

    return Pass(run, "tir.ConvertSSA", doc=ConvertSSA.__doc__)
