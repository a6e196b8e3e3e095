"""Blocks become plain loops: iterators replaced by their values, `init` guarded, views resolved, buffers allocated.

with T.block("B"):                                        for i, k:
    vi, vk = T.axis.remap("SR", [i, k])           ▶           if k == 0: B[i] = 0
    with T.init(): B[vi] = 0                                  B[i] = B[i] + A[i, k]
    B[vi] = B[vi] + A[vi, vk]
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import EQ, IntImm, PrimExpr, Var, add, cast, cmp, const, floordiv, logical_and, mul
from tilewright.ir.node import replace
from tilewright.ir.rewrite import Mutator, substitute
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import (
    Allocate,
    Block,
    BlockRealize,
    Buffer,
    BufferRealize,
    IfThenElse,
    IterVar,
    MatchBufferRegion,
    PrimFunc,
    Stmt,
    seq,
)

__all__ = ["allocation_shape", "lower_blocks", "strides_of"]

TRUE = IntImm("bool", 1)


def strides_of(buffer: Buffer) -> tuple[PrimExpr, ...]:
    """The strides of a buffer in elements, row-major where it declares none."""
    if buffer.strides:
        return buffer.strides
    out: list[PrimExpr] = []
    for i in range(len(buffer.shape)):
        stride: PrimExpr = IntImm(buffer.shape[-1].dtype, 1)
        for n in reversed(buffer.shape[i + 1 :]):
            stride = mul(n, stride)
        out.append(stride)
    return tuple(out)


def allocation_shape(b: Buffer) -> tuple[PrimExpr, ...]:
    """The extents of the memory of a buffer: what its strides skip is part of it."""
    if not b.strides:
        return b.shape
    *outer, last = (*b.shape[:1], *(floordiv(s, n) for s, n in zip(b.strides, b.strides[1:])))
    return (*outer, mul(last, b.strides[-1]))


def lower_blocks(f: PrimFunc) -> PrimFunc:
    """The function with its blocks replaced by plain statements over the same multi-dimensional buffers."""
    return f.with_body(_Lower().visit(f.body))


class _Lower(Mutator):
    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_BufferRealize(self, s: BufferRealize) -> Stmt:
        b = s.buffer
        return Allocate(b.data, b.dtype, tuple(r.extent for r in s.bounds), s.condition, self.visit(s.body))

    def visit_BlockRealize(self, s: BlockRealize) -> Stmt:
        block: Block = s.block
        while block.match_buffers:  # from the outside in: a view may be of a view
            first, *others = block.match_buffers
            block = _view(first, replace(block, match_buffers=tuple(others)))
        iters = {iv.var: cast(v, iv.var.dtype) for iv, v in zip(block.iter_vars, s.iter_values, strict=True)}
        body = self.visit(block.body)
        if block.init is not None:
            body = seq(_guard(_at_start(block, s.iter_values), self.visit(block.init)), body)
        body = substitute(body, iters)
        for buffer in reversed(block.alloc_buffers):
            body = Allocate(buffer.data, buffer.dtype, allocation_shape(buffer), TRUE, body)
        return _guard(substitute(s.predicate, iters), body)


def _guard(condition: PrimExpr, body: Stmt) -> Stmt:
    if isinstance(condition, IntImm) and condition.value:
        return body
    return IfThenElse(condition, body)


def _at_start(block: Block, values: tuple[PrimExpr, ...]) -> PrimExpr:
    """Are all reduce iterators at the start of their domains?"""
    out: PrimExpr = TRUE
    for iv, value in zip(block.iter_vars, values, strict=True):
        if iv.iter_type != IterVar.CommReduce or iv.dom is None:
            continue
        out = logical_and(out, cmp(EQ, value, cast(iv.dom.min, value.dtype)))
    return out


def _view(match: MatchBufferRegion, body: Block) -> Block:
    """The block with the view replaced by the part of the source buffer that it stands for."""
    view, source = match.buffer, match.source.buffer
    strides = strides_of(source)
    index_dtype = strides[0].dtype if strides else "int64"
    offset: PrimExpr = const(0, index_dtype) if source.elem_offset is None else source.elem_offset
    for r, stride in zip(match.source.region, strides, strict=True):
        offset = add(offset, mul(r.min, stride))
    if len(view.shape) > len(source.shape):
        raise CompileError.at("TW0501", f"match_buffer {view.name}: the view has more dimensions than {source.name}")
    kept = strides[len(strides) - len(view.shape) :]
    binding: dict[Any, Any] = {}
    if isinstance(view.elem_offset, Var):
        binding[view.elem_offset] = cast(offset, view.elem_offset.dtype)
    for declared, actual in zip(view.strides, kept):
        if isinstance(declared, Var):
            binding[declared] = cast(actual, declared.dtype)
    dims = [r.extent for r in match.source.region][len(strides) - len(view.shape) :]
    for declared, actual in zip(view.shape, dims):
        if isinstance(declared, Var):
            binding[declared] = cast(actual, declared.dtype)
    shape = tuple(substitute(n, binding) for n in view.shape)
    binding[view] = Buffer(source.data, view.dtype, shape, kept, offset, view.name)
    binding[view.data] = source.data
    return substitute(body, binding)
