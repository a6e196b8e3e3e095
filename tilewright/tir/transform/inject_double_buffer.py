"""Double buffering: while one half of a buffer is used, the next iteration's data is written into the other half.

    for i in range(n):                               B[0:16] = load(0)
        with T.attr(B, "double_buffer_scope", 1):    for i in range(n - 1):
            B[0:16] = load(i)                  ▶         B[(i + 1) % 2 * 16 : ...] = load(i + 1)
        use(B[0:16])                                     use(B[i % 2 * 16 : ...])
                                                     use(B[(n - 1) % 2 * 16 : ...])

The producer is what the attribute `double_buffer_scope` marks: it must depend on nothing but the loop's variable and memory
that the loop does not write. The option `tir.InjectDoubleBuffer` `split_loop` (even, or 1) unrolls the main loop by so much,
so that the halves are known at compile time.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import LT, IntImm, PrimExpr, Var, add, const, floordiv, floormod, mul
from tilewright.ir.node import replace, walk
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator, substitute
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.transform.base import BufferMutator, func_pass, option
from tilewright.tir.transform.convert_ssa import convert_ssa

__all__ = ["InjectDoubleBuffer", "inject_double_buffer"]

SCOPE, WRITE = "double_buffer_scope", "double_buffer_write"


def inject_double_buffer(f: t.PrimFunc, split_loop: int = 1) -> t.PrimFunc:
    """The function with double buffers where `double_buffer_scope` marks a producer. Raises TW0533 where it is in no loop."""
    marked = {s.node for s in walk(f.body) if isinstance(s, t.AttrStmt) and s.attr_key == SCOPE}
    if not marked:
        return f
    if split_loop != 1 and split_loop % 2:
        raise CompileError.at("TW0533", f"tir.InjectDoubleBuffer: split_loop must be even or 1, not {split_loop}")
    run = _Inject(marked, split_loop)
    return convert_ssa(f.with_body(run.visit(f.body)))


class _Inject(Mutator):
    """Finds the marked producers, doubles the memory, and splits the loops around."""

    def __init__(self, marked: set[Any], split: int) -> None:
        self.marked, self.split = marked, split
        self.loops: list[t.For] = []
        self.jobs: dict[int, list[tuple[Var, t.Stmt]]] = {}
        self.sizes: dict[Var, PrimExpr] = {}

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        if s.buffer_var not in self.marked:
            return self.generic(s)
        total: PrimExpr = s.extents[0]
        for n in s.extents[1:]:
            total = mul(total, n)
        self.sizes[s.buffer_var] = total
        body = self.visit(s.body)
        two = const(2, total.dtype)
        body = _Wider(s.buffer_var, mul(total, two)).visit(body)
        return replace(s, extents=(mul(total, two),), body=body)

    def visit_For(self, s: t.For) -> t.Stmt:
        self.loops.append(s)
        body = self.visit(s.body)
        self.loops.pop()
        jobs = self.jobs.pop(id(s), None)
        if jobs is None:
            return s if body is s.body else replace(s, body=body)
        return self.doubled(replace(s, body=body), jobs)

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        if s.attr_key != SCOPE:
            return self.generic(s)
        if not self.loops:
            raise CompileError.at("TW0533", f"the double buffer {s.node.name} is filled outside of every loop", s.span)
        if s.node not in self.sizes:
            raise CompileError.at(
                "TW0533", f"the double buffer {s.node.name} is not allocated in this function", s.span
            )
        loop = self.loops[-1]
        self.jobs.setdefault(id(loop), []).append((s.node, self.visit(s.body)))
        return t.Evaluate(IntImm("int32", 0))

    def doubled(self, s: t.For, jobs: list[tuple[Var, t.Stmt]]) -> t.Stmt:
        """The loop without its last iteration, the producers one iteration ahead; the last iteration after it."""
        v = s.loop_var
        one, two = const(1, v.dtype), const(2, v.dtype)
        first: list[t.Stmt] = []
        ahead: list[t.Stmt] = []
        body = s.body
        for data, producer in jobs:
            size = self.sizes[data]
            here = mul(floormod(v - s.min, two), size)
            after = mul(floormod(v - s.min + one, two), size)
            first.append(substitute(producer, {v: s.min}))
            moved = substitute(producer, {v: add(v, one)})
            ahead.append(t.AttrStmt(data, WRITE, IntImm("int32", 1), _Shift(data, after).visit(moved)))
            body = _Shift(data, here).visit(body)
        n = s.extent - one
        last = substitute(body, {v: add(s.min, n)})
        main = self.main_loop(s, n, t.seq(*ahead, body))
        guard = t.seq(*first, main, last)
        if isinstance(s.extent, IntImm):
            return guard if s.extent.value > 0 else t.Evaluate(IntImm("int32", 0))
        return t.IfThenElse(LT(const(0, v.dtype), s.extent), guard)

    def main_loop(self, s: t.For, n: PrimExpr, body: t.Stmt) -> t.Stmt:
        v = s.loop_var
        k = self.split
        if k == 1:
            return replace(s, extent=n, body=body)
        outer = Var(v.name + ".outer", v.dtype)
        step = const(k, v.dtype)
        copies = [substitute(body, {v: add(add(mul(outer, step), s.min), const(i, v.dtype))}) for i in range(k)]
        main = t.For(outer, const(0, v.dtype), floordiv(n, step), t.ForKind.SERIAL, t.seq(*copies))
        start = add(mul(floordiv(n, step), step), s.min)
        tail = [
            t.IfThenElse(LT(const(i, v.dtype), floormod(n, step)), substitute(body, {v: add(start, const(i, v.dtype))}))
            for i in range(k - 1)
        ]
        return t.seq(main, *tail)


class _Shift(BufferMutator):
    """Accesses of one piece of flat memory, moved."""

    def __init__(self, data: Var, by: PrimExpr) -> None:
        super().__init__()
        self.data, self.by = data, by

    def moved(self, b: t.Buffer, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        if len(indices) != 1:
            raise CompileError.at(
                "TW0533", f"the double buffer {b.name} has {len(indices)} dimensions", hint="run FlattenBuffer before"
            )
        i = self.visit(indices[0])
        from tilewright.arith.expr import Ramp, cast

        if isinstance(i, Ramp):
            return (Ramp(add(i.base, cast(self.by, i.base.dtype)), i.stride, i.lanes),)
        return (add(i, cast(self.by, i.dtype)),)

    def visit_BufferLoad(self, e: t.BufferLoad) -> PrimExpr:
        if e.buffer.data is not self.data:
            return self.visit_PrimExpr(e)
        return t.BufferLoad(e.buffer, self.moved(e.buffer, e.indices))

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        if s.buffer.data is not self.data:
            return self.generic(s)
        return t.BufferStore(s.buffer, self.visit(s.value), self.moved(s.buffer, s.indices))


class _Wider(BufferMutator):
    """The buffers of one piece of memory with its new size."""

    def __init__(self, data: Var, size: PrimExpr) -> None:
        super().__init__()
        self.data, self.size = data, size

    def buffer(self, b: t.Buffer) -> t.Buffer:
        if b.data is not self.data or len(b.shape) != 1:
            return b
        found = self.remap.get(b)
        if found is None:
            found = self.remap[b] = replace(b, shape=(self.size,))
        return found


def InjectDoubleBuffer() -> Pass:
    """Buffers that `double_buffer_scope` marks are doubled, and filled one iteration ahead."""

    def run(f: t.PrimFunc) -> t.PrimFunc:
        return inject_double_buffer(f, int(option("tir.InjectDoubleBuffer", "split_loop", 1)))

    return func_pass("InjectDoubleBuffer", run, InjectDoubleBuffer.__doc__)
