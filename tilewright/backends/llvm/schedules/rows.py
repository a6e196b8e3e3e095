"""Reductions along contiguous memory (softmax, norms, means, dot products), and the plain loops for everything else.

The reduced axis runs in vectors; each lane keeps its own partial result, and the lanes are combined at the end. What does not
fill a vector is loaded under a mask, as the value that changes nothing. Dot products of two rows are computed for a small
tile of result points at once, so that each vector that is loaded is used several times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.expr import (
    GE,
    GT,
    LT,
    IntImm,
    PrimExpr,
    Ramp,
    StringImm,
    add,
    call_intrin,
    ceildiv,
    cmp,
    const,
    floordiv,
    floormod,
    if_then_else,
    minimum,
    mul,
    sub,
)
from tilewright.backends.llvm.schedules.access import Access, merge_axes, total
from tilewright.backends.llvm.schedules.elementwise import store, work_of
from tilewright.backends.llvm.schedules.loops import alloc, local, loop, nest, parallel_nest, unrolled, vectorized
from tilewright.backends.llvm.schedules.stages import Axis, Stage, identity_of
from tilewright.ir import dtype as dt
from tilewright.ir.rewrite import substitute
from tilewright.ir.target import Target
from tilewright.tir.ir import BufferLoad, BufferStore, IfThenElse, Stmt, seq

__all__ = ["schedule_rows", "schedule_scalar"]

Env = dict[Any, PrimExpr]


def schedule_rows(stage: Stage, target: Target, parallel: bool = True) -> Stmt | None:
    """Lanes along a reduced axis; None where no reduced axis is contiguous in every operand, or it is too short."""
    stage = merge_axes(stage)
    if stage.combine not in ("add", "mul", "max", "min"):
        return None
    access = Access(stage)
    register = max(1, target.vector_bytes // max(4, dt.bits(stage.acc_dtype) // 8))
    for axis in reversed(stage.reduce):
        steps = [access.step(access.poly(x), axis.var) for x in access.value_loads]
        if any(s not in (0, 1) for s in steps) or 1 not in steps:
            continue
        if axis.size is not None and axis.size < register:
            continue
        return _Rows(stage, access, axis, register, parallel).build()
    return None


class _Rows:
    def __init__(self, stage: Stage, access: Access, axis: Axis, register: int, parallel: bool) -> None:
        self.stage, self.axis, self.parallel = stage, axis, parallel
        self.others = [a for a in stage.reduce if a is not axis]
        self.dtype = axis.var.dtype
        self.work = total([*stage.axes, *stage.reduce]) * work_of(stage.value) // 4
        self.tile = self.dot_tile(access)
        size = axis.size
        count = 1
        if not self.tile:
            while count < 4 and (size is None or size >= register * count * 2):
                count *= 2
        self.lanes = register * count
        identity = identity_of(stage.combine or "", stage.acc_dtype)
        assert identity is not None
        self.identity = identity

    def dot_tile(self, access: Access) -> list[tuple[Axis, int]]:
        """Axes of the result to take several points of at once, where operands are shared between points."""
        wide = [x for x in access.value_loads if access.step(access.poly(x), self.axis.var) == 1]
        if len(wide) < 2:
            return []
        out: list[tuple[Axis, int]] = []
        for a, n in zip(reversed(self.stage.axes), (4, 3)):
            shared = any(access.stride(access.poly(x), a.var) == {} for x in wide)
            if shared and (a.size is None or a.size >= n):
                out.append((a, n))
            elif shared and a.size is not None and a.size > 1:
                out.append((a, a.size))
        return out

    def build(self) -> Stmt:
        """Loops over the result, each point (or tile of points) a reduction in lanes."""
        sizes = self.tile
        if not sizes:
            return self.around(self.stage.axes, lambda env: self.points(env, []))
        symbolic = [a for a, _ in sizes if a.size is None]
        tiled = self.tiled()
        if not symbolic:
            return tiled
        condition: PrimExpr | None = None
        for a, n in sizes:
            if a.size is None:
                c = cmp(GE, a.extent, const(n, a.extent.dtype))
                condition = c if condition is None else _and(condition, c)
        assert condition is not None
        return IfThenElse(condition, tiled, self.around(self.stage.axes, lambda env: self.points(env, [])))

    def tiled(self) -> Stmt:
        height = {a.var: n for a, n in self.tile}
        axes = [Axis(a.var, ceildiv(a.extent, height[a.var])) if a.var in height else a for a in self.stage.axes]
        extents = {a.var: a.extent for a in self.stage.axes}

        def at(env: Env) -> Stmt:
            start = dict(env)
            for a, n in self.tile:
                step = const(n, a.var.dtype)
                first = mul(env.get(a.var, const(0, step.dtype)), step)
                exact = a.size is not None and a.size % n == 0
                start[a.var] = first if exact else minimum(first, sub(extents[a.var], step))
            return self.points(start, self.tile)

        return self.around(axes, at)

    def around(self, axes: list[Axis], body: Callable[[Env], Stmt]) -> Stmt:
        return parallel_nest(axes, self.work, body) if self.parallel else nest(axes, body)

    def points(self, env: Env, tile: list[tuple[Axis, int]]) -> Stmt:
        """One tile of results from `env` on."""
        stage, lanes, dtype = self.stage, self.lanes, self.dtype
        count = 1
        for _, n in tile:
            count *= n
        acc = local("acc", count * lanes, stage.acc_dtype)

        def each(body: Callable[[Env, PrimExpr], Stmt]) -> Stmt:
            def build(i: int, at: Env, cell: PrimExpr) -> Stmt:
                if i == len(tile):
                    return body(at, cell)
                a, n = tile[i]
                return unrolled(
                    "i", n, dtype, lambda u: build(i + 1, {**at, a.var: add(env[a.var], u)}, add(mul(cell, n), u))
                )

            return build(0, dict(env), const(0, dtype))

        def cells(cell: PrimExpr, v: PrimExpr) -> tuple[PrimExpr]:
            return (add(mul(cell, const(lanes, dtype)), v),)

        def lanewise(body: Callable[[Env, PrimExpr, PrimExpr], Stmt]) -> Stmt:
            return each(
                lambda at, c: (
                    vectorized(lanes, dtype, lambda v: body(at, c, v)) if lanes > 1 else body(at, c, const(0, dtype))
                )
            )

        begin = lanewise(lambda at, c, v: BufferStore(acc, self.identity, cells(c, v)))

        def step(first: PrimExpr, more: Env, masked: bool) -> Stmt:
            def one(at: Env, c: PrimExpr, v: PrimExpr) -> Stmt:
                k = add(first, v)
                value = substitute(stage.value, {**at, **more, self.axis.var: k})
                if masked:
                    value = if_then_else(cmp(LT, k, self.axis.extent), value, self.identity)
                old = BufferLoad(acc, cells(c, v))
                return BufferStore(acc, stage.join(old, value), cells(c, v))

            return lanewise(one)

        n = const(lanes, dtype)
        whole, rest = floordiv(self.axis.extent, n), floormod(self.axis.extent, n)

        def run(more: Env) -> Stmt:
            parts = [loop("k", whole, lambda t: step(mul(t, n), more, False))]
            last = mul(whole, n)
            if isinstance(rest, IntImm):
                if rest.value:
                    parts.append(step(last, more, True))
            else:
                parts.append(IfThenElse(cmp(GT, rest, const(0, dtype)), step(last, more, True)))
            return seq(*parts)

        def end(at: Env, c: PrimExpr) -> Stmt:
            assert stage.init is not None
            assert stage.combine is not None
            value: PrimExpr = BufferLoad(acc, (Ramp(mul(c, n), const(1, dtype), lanes) if lanes > 1 else c,))
            if lanes > 1:
                value = call_intrin(stage.acc_dtype, "tir.reduce_lanes", StringImm(stage.combine), value)
            if not _is_identity(stage.init, self.identity):
                value = stage.join(stage.init, value)
            return store(stage, stage.finished(value), at)

        return alloc([acc], seq(begin, nest(self.others, run), each(end)))


def _and(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    from tilewright.arith.expr import logical_and

    return logical_and(a, b)


def _is_identity(init: PrimExpr, identity: PrimExpr) -> bool:
    return getattr(init, "value", None) == getattr(identity, "value", 0) and init.dtype == identity.dtype


def schedule_scalar(stage: Stage, target: Target, parallel: bool = True) -> Stmt:
    """Plain loops with one accumulator: right for every reduction."""
    del target
    stage = merge_axes(stage)
    acc = local("acc", 1, stage.acc_dtype)
    zero = (const(0, "int64"),)

    def point(env: Env) -> Stmt:
        assert stage.init is not None
        begin = BufferStore(acc, substitute(stage.init, env), zero)

        def update(more: Env) -> Stmt:
            value = substitute(stage.value, {**env, **more})
            return BufferStore(acc, stage.join(BufferLoad(acc, zero), value), zero)

        end = store(stage, stage.finished(BufferLoad(acc, zero)), env)
        return alloc([acc], seq(begin, nest(stage.reduce, update), end))

    work = total([*stage.axes, *stage.reduce]) * work_of(stage.value)
    return parallel_nest(stage.axes, work, point) if parallel else nest(stage.axes, point)
