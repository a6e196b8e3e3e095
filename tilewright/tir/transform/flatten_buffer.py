"""Buffers of many dimensions become buffers of one (of one for each group that axis separators make)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import PrimExpr, Var, add, cast, const, mul
from tilewright.ir import dtype as dt
from tilewright.ir.node import replace
from tilewright.ir.passes import Pass
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.lower.index import IndexSpace
from tilewright.tir.transform.base import BufferMutator, func_pass

__all__ = ["FlattenBuffer", "flat_buffer", "flat_indices", "flatten_buffer"]


def flatten_buffer(f: t.PrimFunc) -> t.PrimFunc:
    """The function with flat buffers; parameters keep their shape in the buffer_map. Raises TW0502 on a wrong index count."""
    run = _Flatten(f)
    body = run.visit(f.body)
    return f if body is f.body else f.with_body(body)


def _groups(b: t.Buffer) -> list[tuple[int, int]]:
    """The (first, after last) dimension of each dimension of the flat buffer."""
    cuts = [0, *b.axis_separators, len(b.shape)]
    return list(itertools.pairwise(cuts))


def flat_buffer(b: t.Buffer, simplify: Any = None) -> t.Buffer:
    """The flat buffer over the same memory; `b` itself where it is flat."""
    groups = _groups(b)
    if len(groups) == len(b.shape) and not b.strides:
        return b
    shape: list[PrimExpr] = []
    for low, high in groups:
        total: PrimExpr = const(1, b.shape[0].dtype if b.shape else "int32")
        if b.strides:
            total = mul(b.strides[low], b.shape[low])
        else:
            for n in b.shape[low:high]:
                total = mul(total, n)
        shape.append(simplify(total) if simplify is not None else total)
    cuts = tuple(range(1, len(groups)))
    return replace(b, shape=tuple(shape), strides=(), axis_separators=cuts)


def flat_indices(b: t.Buffer, indices: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Where the element at `indices` lies in the flat buffer (its offset apart)."""
    if len(indices) != len(b.shape):
        what = f"buffer {b.name} has {len(b.shape)} dimensions but is accessed with {len(indices)} indices"
        raise CompileError.at("TW0502", what)
    out: list[PrimExpr] = []
    for low, high in _groups(b):
        total: PrimExpr = const(0, dt.element(indices[0].dtype) if indices else "int32")
        for d in range(low, high):
            if b.strides:
                total = _add(total, _scale(indices[d], b.strides[d]))
            else:
                total = _add(_scale(total, b.shape[d]), indices[d])
        out.append(total)
    return out


def _add(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if isinstance(b, ex.Ramp) and dt.lanes(a.dtype) == 1:
        return ex.Ramp(add(a, b.base), b.stride, b.lanes)
    if dt.lanes(b.dtype) > 1 and dt.lanes(a.dtype) == 1:
        return b if isinstance(a, ex.IntImm) and a.value == 0 else ex.Add(ex.Broadcast(a, dt.lanes(b.dtype)), b)
    return add(a, b)


def _scale(index: PrimExpr, by: PrimExpr) -> PrimExpr:
    if isinstance(index, ex.Ramp):
        return ex.Ramp(mul(index.base, by), mul(index.stride, by), index.lanes)
    if isinstance(index, ex.Broadcast):
        return ex.Broadcast(mul(index.value, by), index.lanes)
    if dt.lanes(index.dtype) > 1:
        return ex.Mul(index, ex.Broadcast(cast(by, dt.element(index.dtype)), dt.lanes(index.dtype)))
    return mul(index, by)


class _Flatten(BufferMutator):
    def __init__(self, f: t.PrimFunc) -> None:
        super().__init__()
        self.ana = Analyzer()
        self.space = IndexSpace()
        self.space.dtype = None
        self.boxes: dict[Var, t.Buffer] = {}
        for b in f.buffer_map.values():
            for n in b.shape:
                if isinstance(n, Var):
                    self.ana.mark_global_non_neg_value(n)
                    self.space.ranges[n] = (0, None)

    # ---- buffers -----------------------------------------------------------------------------------------------------------

    def buffer(self, b: t.Buffer) -> t.Buffer:
        """The flat buffer of `b`; bools are stored as int8."""
        found = self.remap.get(b)
        if found is None:
            found = flat_buffer(b, self.ana.simplify)
            if dt.is_bool(b.dtype):
                found = replace(found, dtype=dt.with_lanes("int8", dt.lanes(b.dtype)))
            self.remap[b] = found
        return found

    def indices(self, b: t.Buffer, indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        return tuple(self.simple(i) for i in flat_indices(b, [self.visit(i) for i in indices]))

    def simple(self, e: PrimExpr) -> PrimExpr:
        """An index in its simplest form; quotients and remainders of one value are put together again."""
        if isinstance(e, ex.Ramp):
            return ex.Ramp(self.simple(e.base), self.ana.simplify(e.stride), e.lanes)
        if dt.lanes(e.dtype) == 1 and dt.is_int(e.dtype) and any(map(_is_mod, _parts(e))):
            p = self.space.poly(e)
            q = self.space.recombine(p)
            if q is not p:
                e = self.space.expr(q, e.dtype)
        return self.ana.simplify(e)

    # ---- accesses ----------------------------------------------------------------------------------------------------------

    def visit_BufferLoad(self, e: t.BufferLoad) -> PrimExpr:
        out = t.BufferLoad(self.buffer(e.buffer), self.indices(e.buffer, e.indices))
        return ex.Cast(e.dtype, out) if dt.is_bool(e.dtype) else out

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        flat = self.buffer(s.buffer)
        value = self.visit(s.value)
        if dt.is_bool(s.buffer.dtype):
            value = ex.Cast(dt.with_lanes("int8", dt.lanes(value.dtype)), value)
        return t.BufferStore(flat, value, self.indices(s.buffer, s.indices))

    def visit_Call(self, e: ex.Call) -> PrimExpr:
        """`address_of` keeps its load: it is a place, not a value."""
        if getattr(e.op, "name", "") == "tir.address_of" and isinstance(e.args[0], t.BufferLoad):
            load = e.args[0]
            return ex.Call(
                e.dtype, e.op, (t.BufferLoad(self.buffer(load.buffer), self.indices(load.buffer, load.indices)),)
            )
        return self.visit_PrimExpr(e)

    def visit_BufferRegion(self, r: t.BufferRegion) -> t.BufferRegion:
        """A flat region: the hull of what the region covers."""
        flat = self.buffer(r.buffer)
        if flat is r.buffer:
            return self.generic(r)
        low = self.indices(r.buffer, [x.min for x in r.region])
        last = self.indices(r.buffer, [x.min + (x.extent - 1) for x in r.region])
        ranges = [t.Range(a, self.ana.simplify(b - a + 1)) for a, b in zip(low, last, strict=True)]
        return t.BufferRegion(flat, tuple(ranges))

    # ---- statements --------------------------------------------------------------------------------------------------------

    def visit_For(self, s: t.For) -> t.Stmt:
        self.ana.bind(s.loop_var, t.Range(s.min, s.extent))
        self.space.set_range(s.loop_var, s.min, s.extent)
        return self.generic(s)

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        if isinstance(s.node, t.IterVar) and s.attr_key in ("thread_extent", "virtual_thread"):
            zero = const(0, s.node.var.dtype)
            extent = cast(s.value, s.node.var.dtype)
            self.ana.bind(s.node.var, t.Range(zero, extent))
            self.space.set_range(s.node.var, zero, extent)
        body, value = self.visit(s.body), self.visit(s.value)
        return s if body is s.body and value is s.value else replace(s, body=body, value=value)

    def visit_DeclBuffer(self, s: t.DeclBuffer) -> t.Stmt:
        return self.visit(s.body)

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        shape = self.allocated(s)
        dtype = dt.with_lanes("int8", dt.lanes(s.dtype)) if dt.is_bool(s.dtype) else s.dtype
        body = self.visit(s.body)
        return replace(s, dtype=dtype, extents=shape, body=body)

    def allocated(self, s: t.Allocate) -> tuple[PrimExpr, ...]:
        """The extents of an allocation: those of its buffer where that has axis separators, else one."""
        inner = s.body
        cuts: tuple[int, ...] = ()
        if isinstance(inner, t.DeclBuffer) and inner.buffer.data is s.buffer_var:
            cuts = inner.buffer.axis_separators
        if not cuts or len(s.extents) == 1:
            total: PrimExpr = const(1, s.extents[0].dtype if s.extents else "int32")
            for n in s.extents:
                total = mul(total, n)
            return (self.ana.simplify(total),)
        assert isinstance(inner, t.DeclBuffer)
        return flat_buffer(replace(inner.buffer, shape=s.extents, strides=()), self.ana.simplify).shape


def _parts(e: Any) -> list[Any]:
    out, todo = [], [e]
    while todo:
        x = todo.pop()
        out.append(x)
        if isinstance(x, (ex.BinaryOp, ex.CmpOp)):
            todo += [x.a, x.b]
    return out


def _is_mod(e: Any) -> bool:
    return isinstance(e, ex.FloorMod)


def FlattenBuffer() -> Pass:
    """Multi-dimensional accesses become offsets; axis separators say where dimensions of the flat buffer begin."""
    return func_pass("FlattenBuffer", flatten_buffer)
