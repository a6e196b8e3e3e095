"""Buffers are allocated at the innermost loop or block that holds all of their accesses."""

from __future__ import annotations

from tilewright.arith.expr import PrimExpr, Var
from tilewright.ir.node import replace, walk
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.tir import ir as t
from tilewright.tir.analysis.lca import detect_buffer_access_lca
from tilewright.tir.analysis.regions import get_block_read_write_region
from tilewright.tir.transform.base import TRUE, func_pass

__all__ = ["PlanAndUpdateBufferAllocationLocation", "plan_buffers"]


def plan_buffers(f: t.PrimFunc) -> t.PrimFunc:
    """The function with each block-allocated buffer moved to where it is needed; a buffer that nothing uses is dropped."""
    order = [b for s in walk(f.body) if isinstance(s, t.Block) for b in s.alloc_buffers]
    if not order:
        return f
    body = _Plan(f, order).visit(f.body)
    return f if body is f.body else f.with_body(body)


class _Plan(Mutator):
    def __init__(self, f: t.PrimFunc, order: list[t.Buffer]) -> None:
        self.managed = set(order)
        self.known: dict[Var, t.Buffer] = {b.data: b for b in f.buffer_map.values()}
        self.places: dict[int, list[t.Buffer]] = {}
        lca = detect_buffer_access_lca(f)
        for b in order:
            if b in lca:
                self.places.setdefault(id(lca[b]), []).append(b)
                self.known[b.data] = b

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_For(self, s: t.For) -> t.Stmt:
        here = [b for b in self.places.get(id(s), ()) if b in self.managed]
        body = self.visit(s.body)
        if here:
            for b in here:
                self.known.pop(b.data, None)
            body = self.opaque(body, here)
        return s if body is s.body else replace(s, body=body)

    def opaque(self, body: t.Stmt, buffers: list[t.Buffer]) -> t.Stmt:
        """A block without iterators that allocates `buffers` around `body`."""
        block = t.Block((), (), (), "", body, None, tuple(buffers))
        reads, writes = get_block_read_write_region(block, self.known)
        return t.BlockRealize((), TRUE, replace(block, reads=tuple(reads), writes=tuple(writes)))

    def visit_Block(self, b: t.Block) -> t.Block:
        here = tuple(self.places.get(id(b), ()))
        for m in b.match_buffers:
            self.known[m.buffer.data] = m.buffer
        body = self.visit(b.body)
        init = None if b.init is None else self.visit(b.init)
        for x in (*(m.buffer for m in b.match_buffers), *here):
            self.known.pop(x.data, None)
        reads = tuple(r for r in b.reads if r.buffer.data in self.known)
        writes = tuple(r for r in b.writes if r.buffer.data in self.known)
        same = body is b.body and init is b.init and len(reads) == len(b.reads) and len(writes) == len(b.writes)
        if same and len(here) == len(b.alloc_buffers) and all(x is y for x, y in zip(here, b.alloc_buffers)):
            return b
        return replace(b, reads=reads, writes=writes, body=body, init=init, alloc_buffers=here)


def PlanAndUpdateBufferAllocationLocation() -> Pass:
    """Buffers are allocated at the innermost loop or block that holds all of their accesses."""
    return func_pass("PlanAndUpdateBufferAllocationLocation", plan_buffers)
