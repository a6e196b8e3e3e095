"""A copy to shared memory that is marked goes through registers: all loads first, then all stores.

    for i: S[i] = A[i]     ▶     for i: L[i] = A[i]
                                 for i: S[i] = L[i]

The mark is the block annotation `tir.manifest_shared_memory_local_stage`. The registers are allocated in the nearest block that
allocates the shared buffer, or holds the copy.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import IntImm, PrimExpr, Var, pointer_var
from tilewright.ir.node import replace
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError, func_pass

__all__ = ["ManifestSharedMemoryLocalStage", "manifest_shared_memory_local_stage"]

KEY = "tir.manifest_shared_memory_local_stage"


def manifest_shared_memory_local_stage(f: t.PrimFunc) -> t.PrimFunc:
    """The function with marked copies to shared memory staged in registers. Raises TW0568 where the block is no copy."""
    body = _Stage().visit(f.body)
    return f if body is f.body else replace(f, body=body)


def ManifestSharedMemoryLocalStage() -> Pass:
    """Stage marked copies to shared memory in registers; see `manifest_shared_memory_local_stage`."""
    return func_pass("ManifestSharedMemoryLocalStage", manifest_shared_memory_local_stage)


class _Stage(Mutator):
    def __init__(self) -> None:
        self.loops: list[t.For] = []
        self.stages: dict[t.Buffer, t.Buffer] = {}
        """The registers of each shared buffer that waits for its block."""
        self.pending: dict[int, tuple[t.Stmt, t.Stmt]] = {}

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_For(self, s: t.For) -> t.Stmt:
        self.loops.append(s)
        new = self.generic(s)
        self.loops.pop()
        found = self.pending.pop(id(s), None)
        return t.seq(*found) if found is not None else new

    def visit_BlockRealize(self, s: t.BlockRealize) -> t.Stmt:
        if KEY in s.block.annotations:
            return self.stage(s)
        outer, self.loops = self.loops, []
        body = self.visit(s.block.body)
        self.loops = outer
        mine = [b for b in s.block.alloc_buffers if b in self.stages]
        if body is s.block.body and not mine:
            return s
        allocated = (*s.block.alloc_buffers, *(self.stages.pop(b) for b in mine))
        return replace(s, block=replace(s.block, body=body, alloc_buffers=allocated))

    def stage(self, s: t.BlockRealize) -> t.Stmt:
        block = s.block
        store = block.body
        if not isinstance(store, t.BufferStore) or block.iter_vars:
            raise DeviceError.at(
                "TW0568", f"block {block.name_hint!r} is marked for staging in registers but is not one plain copy",
                hint="mark blocks of the form S[i] = A[j], after ConvertBlocksToOpaque()",
            )  # fmt: skip
        loops = self.inner_loops()
        shape = tuple(p.extent for p in loops) or (IntImm("int32", 1),)
        name = f"{store.buffer.name}_local"
        registers = t.Buffer(pointer_var(name, store.buffer.dtype, "local"), store.buffer.dtype, shape, (), None, name)
        here: tuple[PrimExpr, ...] = tuple(p.loop_var for p in loops) or (IntImm("int32", 0),)
        region = t.BufferRegion(registers, tuple(t.Range(i, IntImm(i.dtype, 1)) for i in here))
        load = t.Block((), block.reads, (region,), "", t.BufferStore(registers, store.value, here))
        notes = {k: v for k, v in block.annotations.items() if k != KEY}
        put = replace(
            block, annotations=notes, body=t.BufferStore(store.buffer, t.BufferLoad(registers, here), store.indices)
        )  # fmt: skip
        first: t.Stmt = t.BlockRealize((), s.predicate, load)
        second: t.Stmt = replace(s, block=put)
        for p in reversed(loops):
            first, second = replace(p, body=first), replace(p, body=second)
        if loops:
            first = _renamed(first)
        self.stages[store.buffer] = registers
        if not loops:
            return t.seq(first, second)
        self.pending[id(loops[0])] = (first, second)
        return s

    def inner_loops(self) -> list[t.For]:
        """The loops around the copy that hold nothing else and are not bound to threads, from the outermost in."""
        out: list[t.For] = []
        for i in range(len(self.loops) - 1, -1, -1):
            p = self.loops[i]
            if p.kind == t.ForKind.THREAD_BINDING:
                break
            if i + 1 < len(self.loops) and p.body is not self.loops[i + 1]:
                break
            out.insert(0, p)
        return out


def _renamed(s: t.Stmt) -> t.Stmt:
    """The statement with loop variables of its own."""
    from tilewright.ir.node import walk
    from tilewright.ir.rewrite import substitute

    table: dict[Any, Any] = {
        p.loop_var: Var(p.loop_var.name, p.loop_var.dtype) for p in walk(s) if isinstance(p, t.For)
    }
    return substitute(s, table)
