"""Buffers of mma m16n8k8 become each thread's own registers, in the layout in which the instructions hold them.

    C = T.alloc_buffer((64, 64), scope="m16n8k8.matrixC")     ▶    C = T.alloc_buffer((4, 8, 2, 2), scope="local")
    C[i, j]                                                        C[i // 16, j // 8, i % 16 // 8, j % 2]

Matrices A and B are only touched by instructions, which know their layout; C is also read and written by element.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var, const, floordiv, floormod, pointer_var
from tilewright.ir.node import map_children, replace
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError, func_pass

__all__ = ["TransformMmaBufferLayout", "transform_mma_buffer_layout"]

_TILES = {"m16n8k8.matrixA": (32, 8, 4, 2), "m16n8k8.matrixB": (8, 32, 1, 8), "m16n8k8.matrixC": (16, 8, 2, 2)}
"""What one warp's registers hold of each matrix: rows and columns, and the shape of a thread's part."""


def transform_mma_buffer_layout(f: t.PrimFunc) -> t.PrimFunc:
    """The function without buffers of scope m16n8k8.*. Raises TW0581 where a shape is no multiple of the tile, or an element of A or
    B is accessed."""
    body = _Transform().visit(f.body)
    return f if body is f.body else replace(f, body=body)


def TransformMmaBufferLayout() -> Pass:
    """Lay buffers of mma m16n8k8 out in registers; see `transform_mma_buffer_layout`."""
    return func_pass("TransformMmaBufferLayout", transform_mma_buffer_layout)


class _Transform(Mutator):
    def __init__(self) -> None:
        self.buffers: dict[t.Buffer, t.Buffer] = {}
        self.data: dict[Var, Var] = {}
        self.ana = Analyzer()

    def visit_Block(self, b: t.Block) -> t.Block:
        for x in b.alloc_buffers:
            if x.scope() in _TILES:
                self.buffers[x] = self.registers(x)
                self.data[x.data] = self.buffers[x].data
        new: t.Block = self.generic(b)
        if any(x in self.buffers for x in b.alloc_buffers):
            new = replace(new, alloc_buffers=tuple(self.buffers.get(x, x) for x in b.alloc_buffers))
        return new

    def registers(self, b: t.Buffer) -> t.Buffer:
        rows, columns, *part = _TILES[b.scope()]
        sizes = [n.value if isinstance(n, IntImm) else 0 for n in b.shape[-2:]]
        if len(sizes) < 2 or not sizes[0] or not sizes[1] or sizes[0] % rows or sizes[1] % columns:
            raise DeviceError.at(
                "TW0581",
                f"buffer {b.name!r} of scope {b.scope()} has the shape ({', '.join(map(str, b.shape))}); its last two dimensions must "
                f"be multiples of {rows} and {columns}",
            )
        counts = [sizes[0] // rows, sizes[1] // columns, *part]
        shape = (*b.shape[:-2], *(const(n, b.shape[-1].dtype) for n in counts))
        return replace(b, data=pointer_var(b.name, b.dtype, "local"), shape=shape, strides=())

    def indices(self, b: t.Buffer, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        if b.scope() != "m16n8k8.matrixC":
            raise DeviceError.at(
                "TW0581",
                f"an element of {b.name!r} of scope {b.scope()} is accessed",
                hint="only ldmatrix and mma may touch it",
            )
        i, j = indices[-2:]
        eight, sixteen = const(8, i.dtype), const(16, i.dtype)
        place = (
            floordiv(i, sixteen),
            floordiv(j, const(8, j.dtype)),
            floordiv(floormod(i, sixteen), eight),
            floormod(j, const(2, j.dtype)),
        )
        return (*indices[:-2], *(self.ana.simplify(x) for x in place))

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e if e.identity else map_children(e, self.visit)

    def visit_Var(self, v: Var) -> Var:
        return self.data.get(v, v)

    def visit_Buffer(self, b: Any) -> Any:
        return self.buffers.get(b, b)

    def visit_BufferLoad(self, e: t.BufferLoad) -> PrimExpr:
        indices = tuple(self.visit(i) for i in e.indices)
        new = self.buffers.get(e.buffer)
        return replace(e, indices=indices) if new is None else t.BufferLoad(new, self.indices(e.buffer, indices))

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        indices, value = tuple(self.visit(i) for i in s.indices), self.visit(s.value)
        new = self.buffers.get(s.buffer)
        if new is None:
            return t.BufferStore(s.buffer, value, indices)
        return t.BufferStore(new, value, self.indices(s.buffer, indices))

    def visit_BufferRegion(self, r: t.BufferRegion) -> t.BufferRegion:
        new = self.buffers.get(r.buffer)
        if new is None:
            return self.generic(r)
        return t.BufferRegion(new, tuple(t.Range(const(0, n.dtype), n) for n in new.shape))
