"""Multi-dimensional accesses become offsets into one dimension: A[i, j] ▶ A[elem_offset + i*stride0 + j*stride1]."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Broadcast, IntImm, PrimExpr, Ramp, Var, add, const, mul
from tilewright.ir import dtype as dt
from tilewright.ir.rewrite import Mutator
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    PrimFunc,
    Stmt,
)
from tilewright.tir.lower.lower_blocks import strides_of

__all__ = ["flatten_buffers", "span_of"]


def flatten_buffers(f: PrimFunc) -> PrimFunc:
    """The function with every buffer one-dimensional and every access an offset. Raises TW0502 on a wrong index count."""
    return f.with_body(_Flatten(f.param_buffers).visit(f.body))


def span_of(b: Buffer) -> PrimExpr:
    """The number of elements from the start of a buffer's memory to its last element."""
    total: PrimExpr = IntImm(b.shape[0].dtype if b.shape else "int64", 1)
    if not b.strides and b.elem_offset is None:
        for n in b.shape:
            total = mul(total, n)
        return total
    total = total if b.elem_offset is None else add(total, b.elem_offset)
    for n, stride in zip(b.shape, strides_of(b), strict=True):
        total = add(total, mul(add(n, -1), stride))
    return total


class _Flatten(Mutator):
    def __init__(self, params: list[Buffer]) -> None:
        self.flat: dict[Buffer, tuple[Buffer, tuple[PrimExpr, ...]]] = {}
        self.owners: dict[Var, Buffer] = {}
        """The one-dimensional buffer of each piece of memory; views of it use the same."""
        for b in params:
            self.own(b.data, b.dtype, span_of(b), b)

    def own(self, data: Var, dtype: str, size: PrimExpr, like: Buffer | None = None) -> None:
        if like is not None and len(like.shape) == 1 and not like.strides and like.elem_offset is None:
            self.owners[data] = like
        else:
            align = 64 if like is None else like.data_alignment
            self.owners[data] = Buffer(data, dtype, (size,), (), None, data.name, align)

    def buffer(self, b: Buffer) -> tuple[Buffer, tuple[PrimExpr, ...]]:
        found = self.flat.get(b)
        if found is None:
            owner = self.owners.get(b.data)
            if owner is not None and owner.dtype == b.dtype:
                flat = owner
            elif len(b.shape) == 1 and not b.strides and b.elem_offset is None:
                flat = b
            else:
                flat = Buffer(b.data, b.dtype, (span_of(b),), (), None, b.name, b.data_alignment)
            found = self.flat[b] = (flat, strides_of(b))
        return found

    def offset(self, b: Buffer, indices: tuple[PrimExpr, ...], strides: tuple[PrimExpr, ...]) -> PrimExpr:
        if len(indices) != len(b.shape):
            raise CompileError.at(
                "TW0502", f"buffer {b.name} has {len(b.shape)} dimensions but is accessed with {len(indices)} indices"
            )
        dtype = dt.element(indices[0].dtype) if indices else "int64"
        out: PrimExpr = const(0, dtype) if b.elem_offset is None else b.elem_offset
        for i, stride in zip(indices, strides):
            out = add(out, _scale(i, stride))
        return out

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return self.generic(e)

    def visit_BufferLoad(self, e: BufferLoad) -> PrimExpr:
        flat, strides = self.buffer(e.buffer)
        indices = tuple(self.visit(i) for i in e.indices)
        return BufferLoad(flat, (self.offset(e.buffer, indices, strides),))

    def visit_BufferStore(self, s: BufferStore) -> Stmt:
        flat, strides = self.buffer(s.buffer)
        indices = tuple(self.visit(i) for i in s.indices)
        return BufferStore(flat, self.visit(s.value), (self.offset(s.buffer, indices, strides),))

    def visit_DeclBuffer(self, s: DeclBuffer) -> Stmt:
        return self.visit(s.body)

    def visit_Allocate(self, s: Allocate) -> Stmt:
        total: PrimExpr = const(1, s.extents[0].dtype if s.extents else "int64")
        for n in s.extents:
            total = mul(total, n)
        self.own(s.buffer_var, s.dtype, total)
        return Allocate(s.buffer_var, s.dtype, (total,), s.condition, self.visit(s.body), s.annotations)

    def visit_Buffer(self, b: Any) -> Any:
        return b


def _scale(index: PrimExpr, stride: PrimExpr) -> PrimExpr:
    """index * stride, keeping a ramp a ramp."""
    if isinstance(index, Ramp):
        return Ramp(mul(index.base, stride), mul(index.stride, stride), index.lanes)
    if isinstance(index, Broadcast):
        return Broadcast(mul(index.value, stride), index.lanes)
    return mul(index, stride)
