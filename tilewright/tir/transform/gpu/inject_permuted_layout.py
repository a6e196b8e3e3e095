"""Shared memory in a permuted layout, so that what one warp reads at a time lies in different banks.

In blocks annotated with `permuted_layout`, element (row, column) of a shared buffer is at column `(c ^ r) * 8 + column % 8`, where c is
column // 8, and r is row % 8 for rows of a multiple of 64 elements, row % 8 // 2 for rows of a multiple of 32.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import Call, IntImm, PrimExpr, StringImm, Var, add, bitwise, const, floordiv, floormod, mul
from tilewright.ir.node import map_children, replace
from tilewright.ir.op import Op
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError, func_pass

__all__ = ["InjectPermutedLayout", "inject_permuted_layout"]

KEY = "permuted_layout"


def inject_permuted_layout(f: t.PrimFunc) -> t.PrimFunc:
    """The function with the layouts of annotated blocks permuted. Raises TW0580 for a buffer whose rows do not fit."""
    run = _Permute()
    for b in f.buffer_map.values():
        run.buffers[b.data] = b
    body = run.visit(f.body)
    return f if body is f.body else replace(f, body=body)


def InjectPermutedLayout() -> Pass:
    """Permute the layout of shared memory in annotated blocks; see `inject_permuted_layout`."""
    return func_pass("InjectPermutedLayout", inject_permuted_layout)


def _wanted(note: Any) -> bool:
    if isinstance(note, StringImm):
        note = note.value
    if isinstance(note, str):
        return note != ""
    return bool(note.value if isinstance(note, IntImm) else note)


class _Permute(Mutator):
    def __init__(self) -> None:
        self.ana = Analyzer()
        self.buffers: dict[Var, t.Buffer] = {}
        self.inside = False

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        if e.identity or not self.inside:
            return e
        return map_children(e, self.visit)

    def visit_For(self, s: t.For) -> t.Stmt:
        self.ana.bind(s.loop_var, t.Range(s.min, s.extent))
        return self.generic(s)

    def visit_Block(self, b: t.Block) -> t.Block:
        for x in b.alloc_buffers:
            self.buffers[x.data] = x
        for m in b.match_buffers:
            self.buffers[m.buffer.data] = m.buffer
        for iv in b.iter_vars:
            if iv.dom is not None:
                self.ana.bind(iv.var, iv.dom)
        note = b.annotations.get(KEY)
        before, self.inside = self.inside, self.inside or (note is not None and _wanted(note))
        body = self.visit(b.body)
        init = None if b.init is None else self.visit(b.init)
        self.inside = before
        if note is not None and _wanted(note):
            notes = {k: v for k, v in b.annotations.items() if k != KEY}
            return replace(b, body=body, init=init, annotations=notes)
        return b if body is b.body and init is b.init else replace(b, body=body, init=init)

    # ---- the layout

    def row_size(self, b: t.Buffer) -> int:
        sizes = [n.value if isinstance(n, IntImm) else 0 for n in b.shape[-2:]]
        if len(sizes) < 2 or sizes[1] <= 0 or sizes[1] % 32 or (sizes[1] % 64 and sizes[0] % 2):
            raise DeviceError.at(
                "TW0580",
                f"the layout of buffer {b.name!r} of shape ({', '.join(map(str, b.shape))}) cannot be permuted",
                hint="its rows must be a multiple of 64 elements, or of 32 where there is an even number of rows",
            )
        return sizes[1]

    def column(self, row: PrimExpr, column: PrimExpr, size: int) -> PrimExpr:
        eight = const(8, column.dtype)
        turn = floormod(row, const(8, row.dtype))
        if size % 64:
            turn = floordiv(turn, const(2, row.dtype))
        outer = bitwise("tir.bitwise_xor", self.ana.simplify(floordiv(column, eight)), self.ana.simplify(turn))
        inner = self.ana.simplify(floormod(column, eight))
        return add(mul(outer, eight), inner)

    def places(self, b: t.Buffer, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        if not self.inside or len(indices) < 2 or b.scope() not in ("shared", "shared.dyn"):
            return indices
        return (*indices[:-1], self.column(indices[-2], indices[-1], self.row_size(b)))

    def visit_BufferLoad(self, e: t.BufferLoad) -> PrimExpr:
        indices = tuple(self.visit(i) for i in e.indices)
        return replace(e, indices=self.places(e.buffer, indices))

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        if not self.inside:
            return s
        indices = tuple(self.visit(i) for i in s.indices)
        return t.BufferStore(s.buffer, self.visit(s.value), self.places(s.buffer, indices))

    def visit_Call(self, e: Call) -> PrimExpr:
        new: Any = self.visit_PrimExpr(e)
        name = e.op.name if isinstance(e.op, Op) else ""
        if not self.inside or name not in ("tir.ptx_ldmatrix", "tir.mma_store"):
            return new
        args = list(new.args)
        if name == "tir.ptx_ldmatrix":
            args[5] = self.pointer(args[5], args[6])
            args[6] = const(0, args[6].dtype)
        else:
            args[2] = self.pointer(args[2], None)
        return replace(new, args=tuple(args))

    def pointer(self, e: Any, offset: PrimExpr | None) -> PrimExpr:
        """An access pointer, further by `offset`, into the permuted layout."""
        if not (isinstance(e, Call) and isinstance(e.op, Op) and e.op.name == "tir.tvm_access_ptr"):
            raise DeviceError.at(
                "TW0580", "a permuted layout needs its pointers as tvm_access_ptr", hint="b.access_ptr(...)"
            )
        data = e.args[1]
        b = self.buffers.get(data) if isinstance(data, Var) else None
        if b is None:
            raise DeviceError.at("TW0580", f"the buffer behind {data} is not known where its layout is permuted")
        size = self.row_size(b)
        total = e.args[2] if offset is None else add(e.args[2], offset)
        n = const(size, total.dtype)
        row, column = floordiv(total, n), floormod(total, n)
        start = self.ana.canonical_simplify(mul(self.ana.simplify(row), n))
        place = add(start, self.column(row, column, size))
        args = list(e.args)
        args[2] = place
        return replace(e, args=tuple(args))
