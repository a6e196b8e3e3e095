"""Views are resolved: an access of a match_buffer becomes one of the buffer that it is a part of."""

from __future__ import annotations

from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import EQ, IntImm, PrimExpr, Var, add, cast, const, floormod, mul
from tilewright.ir.node import map_children, replace
from tilewright.ir.passes import Pass
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.transform.base import BufferMutator, func_pass

__all__ = ["LowerMatchBuffer", "element_offset", "lower_match_buffer"]


def lower_match_buffer(f: t.PrimFunc) -> t.PrimFunc:
    """The function without match_buffers in its blocks. Raises TW0532 where a view does not fit its region."""
    body = _LowerMatch(f).visit(f.body)
    return f if body is f.body else f.with_body(body)


def element_offset(b: t.Buffer, indices: tuple[PrimExpr, ...] | list[PrimExpr]) -> PrimExpr:
    """How many elements after the start of a buffer (not of its memory) the element at `indices` lies."""
    if not indices:
        return const(0, "int32")
    out: PrimExpr = const(0, indices[0].dtype)
    for d, i in enumerate(indices):
        if b.strides:
            out = add(out, mul(i, b.strides[d]))
        else:
            out = add(mul(out, b.shape[d]), i)
    return out


class _LowerMatch(BufferMutator):
    def __init__(self, f: t.PrimFunc) -> None:
        super().__init__()
        self.ana = Analyzer()
        self.values: dict[Any, PrimExpr] = {}
        self.views: dict[t.Buffer, t.BufferRegion] = {}
        for b in f.buffer_map.values():
            for n in b.shape:
                if isinstance(n, Var):
                    self.ana.mark_global_non_neg_value(n)

    def visit_Var(self, v: Var) -> PrimExpr:
        return self.values.get(v, v)

    def visit_For(self, s: t.For) -> t.Stmt:
        self.ana.bind(s.loop_var, t.Range(s.min, s.extent))
        return self.generic(s)

    def visit_Block(self, b: t.Block) -> t.Block:
        for m in b.match_buffers:
            self.match(m)
        return self.generic(replace(b, match_buffers=()) if b.match_buffers else b)

    # ---- accesses --------------------------------------------------------------------------------------------------------

    def point(self, b: t.Buffer, indices: tuple[PrimExpr, ...]) -> tuple[t.Buffer, tuple[PrimExpr, ...]]:
        region = self.views[b]
        skip = len(region.region) - len(indices)
        own = [r.min for r in region.region[:skip]]
        own += [add(r.min, i) for r, i in zip(region.region[skip:], indices, strict=True)]
        return region.buffer, tuple(own)

    def visit_BufferLoad(self, e: t.BufferLoad) -> PrimExpr:
        indices = tuple(self.visit(i) for i in e.indices)
        if e.buffer in self.views:
            return t.BufferLoad(*self.point(e.buffer, indices))
        return e if all(a is b for a, b in zip(indices, e.indices)) else t.BufferLoad(e.buffer, indices)

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        if s.buffer not in self.views:
            return self.generic(s)
        indices = tuple(self.visit(i) for i in s.indices)
        buffer, own = self.point(s.buffer, indices)
        return t.BufferStore(buffer, self.visit(s.value), own)

    def visit_BufferRegion(self, r: t.BufferRegion) -> t.BufferRegion:
        new = map_children(r, self.visit)
        if r.buffer not in self.views:
            return new
        region = self.views[r.buffer]
        skip = len(region.region) - len(new.region)
        own = [t.Range(x.min, const(1, x.min.dtype)) for x in region.region[:skip]]
        own += [t.Range(add(x.min, y.min), y.extent) for x, y in zip(region.region[skip:], new.region, strict=True)]
        return t.BufferRegion(region.buffer, tuple(own))

    # ---- views -----------------------------------------------------------------------------------------------------------

    def fail(self, m: t.MatchBufferRegion, why: str) -> None:
        raise CompileError.at("TW0532", f"match_buffer {m.buffer.name!r} of {m.source.buffer.name!r}: {why}", m.span)

    def match(self, m: t.MatchBufferRegion) -> None:
        view, source = m.buffer, self.visit_BufferRegion(m.source)
        whole = source.buffer
        if view.scope() != whole.scope() or view.dtype != whole.dtype:
            have, want = f"{view.dtype} in {view.scope()}", f"{whole.dtype} in {whole.scope()}"
            self.fail(m, f"the view is {have} memory, the buffer {want}")
        skip = len(source.region) - len(view.shape)
        if skip < 0:
            self.fail(m, "the view has more dimensions than the region")
        self.views[view] = source
        self.values[view.data] = whole.data
        if view.elem_offset is not None:
            self.offset(m, view, source)
        if view.strides:
            self.strides(m, view, whole, skip)
        for d, (n, r) in enumerate(zip(view.shape, source.region[skip:], strict=True)):
            self.bind(m, f"dimension {d}", n, r.extent)

    def offset(self, m: t.MatchBufferRegion, view: t.Buffer, source: t.BufferRegion) -> None:
        assert view.elem_offset is not None
        whole = source.buffer
        start = element_offset(whole, [r.min for r in source.region])
        if whole.elem_offset is not None:
            start = add(whole.elem_offset, cast(start, whole.elem_offset.dtype))
        self.bind(m, "the element offset", view.elem_offset, start)
        if view.offset_factor > 1:
            value = self.visit(view.elem_offset)
            if not self.ana.can_prove(EQ(floormod(value, view.offset_factor), const(0, value.dtype))):
                self.fail(m, f"the offset is no multiple of offset_factor={view.offset_factor}")

    def strides(self, m: t.MatchBufferRegion, view: t.Buffer, whole: t.Buffer, skip: int) -> None:
        stride: PrimExpr = const(1, view.strides[-1].dtype)
        for d in reversed(range(len(view.strides))):
            self.bind(m, f"stride {d}", view.strides[d], whole.strides[d + skip] if whole.strides else stride)
            stride = mul(stride, whole.shape[d + skip])

    def bind(self, m: t.MatchBufferRegion, what: str, declared: PrimExpr, actual: PrimExpr) -> None:
        """A new symbol takes the actual value; anything else must be equal to it."""
        actual = cast(self.visit(actual), declared.dtype)
        if isinstance(declared, Var):
            if declared not in self.values:
                self.values[declared] = actual
                self.ana.bind(declared, actual, allow_override=True)
                return
        known = self.visit(declared)
        if isinstance(known, IntImm) and isinstance(actual, IntImm) and known.value == actual.value:
            return
        if not self.ana.can_prove_equal(known, actual):
            self.fail(m, f"{what} is declared as {known!r}, but it is {self.ana.simplify(actual)!r}")


def LowerMatchBuffer() -> Pass:
    """Accesses of views become accesses of the buffers that they are parts of."""
    return func_pass("LowerMatchBuffer", lower_match_buffer)
