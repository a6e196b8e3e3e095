"""Maps: one store a point, no reduction. Vectors along the innermost axis of the result, threads over the outer ones.

The last vector of a row is moved back so that it ends with the row (some elements are computed twice, to the same values);
rows shorter than a vector are cut into powers of two. Where an input is walked across (a transpose), the loops run over
square blocks, so that every cache line that is fetched is used up before it is dropped.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import GE, IntImm, Let, PrimExpr, add, ceildiv, cmp, const, minimum, mul, sub
from tilewright.backends.llvm.schedules.access import Access, merge_axes, total
from tilewright.backends.llvm.schedules.loops import loop, nest, parallel_nest, vectorized
from tilewright.backends.llvm.schedules.stages import Axis, Stage
from tilewright.ir import dtype as dt
from tilewright.ir.node import walk
from tilewright.ir.rewrite import substitute
from tilewright.ir.target import Target
from tilewright.tir.ir import BufferStore, ForKind, IfThenElse, LetStmt, Stmt

__all__ = ["schedule_map", "store", "vector_lanes"]

BLOCK = 16


def store(stage: Stage, value: PrimExpr, env: dict[Any, PrimExpr]) -> Stmt:
    """The store of `value` (in the stage's axes) at the point `env`; lets of the value become statements."""
    lets: list[tuple[Any, PrimExpr]] = []
    while isinstance(value, Let):
        lets.append((value.var, value.value))
        value = value.body
    out: Stmt = BufferStore(stage.out, value, stage.index)
    for var, bound in reversed(lets):
        out = LetStmt(var, bound, out)
    return substitute(out, env)


def vector_lanes(dtype: str, target: Target, registers: int = 2) -> int:
    """Lanes of a vector of `registers` machine registers (at least 4-byte elements)."""
    return max(1, target.vector_bytes * registers // max(4, dt.bits(dtype) // 8))


def work_of(value: PrimExpr) -> int:
    """About how many machine operations a point costs."""
    n = sum(1 for x in walk(value) if not dt.is_int(getattr(x, "dtype", "int32")))
    return max(1, n // 2 + 8 * sum(1 for x in walk(value) if type(x).__name__ == "Call"))


def schedule_map(stage: Stage, target: Target, parallel: bool = True) -> Stmt:
    """Loops for a map stage (flattened)."""
    stage = merge_axes(stage)
    if not stage.axes:
        return store(stage, stage.value, {})
    access = Access(stage)
    inner = _vector_axis(stage, access)
    work = total(stage.axes) * work_of(stage.value)
    around = parallel_nest if parallel else _serial_nest
    if inner is None:
        return around(stage.axes, work, lambda env: store(stage, stage.value, env))
    crossing = _crossing_axis(stage, access, inner)
    outer = [a for a in stage.axes if a is not inner]
    lanes = vector_lanes(stage.out.dtype, target)
    if crossing is not None:
        return _blocked(stage, inner, crossing, target, around, work)
    return _rows(stage, outer, inner, lanes, around, work)


def _serial_nest(axes: Any, work: int, body: Any, scratch: Any = ()) -> Stmt:
    del work, scratch
    return nest(axes, body)


def _vector_axis(stage: Stage, access: Access) -> Axis | None:
    """The axis along which the result is contiguous, if vectors pay along it."""
    for a in reversed(stage.axes):
        if access.step(access.store, a.var) == 1:
            if a.size is not None and a.size < 4:
                return None
            return a
    return None


def _crossing_axis(stage: Stage, access: Access, inner: Axis) -> Axis | None:
    """An axis that some input is contiguous along while `inner` strides through it."""
    for x in access.value_loads:
        p = access.poly(x)
        step = access.stride(p, inner.var)
        if step is None or access.space.value(step) in (0, 1):
            continue
        for a in stage.axes:
            if a is not inner and access.step(p, a.var) == 1 and (a.size is None or a.size >= 4):
                return a
    return None


def _rows(stage: Stage, outer: list[Axis], inner: Axis, lanes: int, around: Any, work: int) -> Stmt:
    """Rows of vectors."""
    dtype = inner.var.dtype
    n = inner.extent
    size = inner.size

    def at(env: dict[Any, PrimExpr], position: PrimExpr) -> Stmt:
        return store(stage, stage.value, {**env, inner.var: position})

    if size is not None and size < lanes:

        def short(env: dict[Any, PrimExpr]) -> Stmt:
            return vectorized(size, dtype, lambda v: at(env, v)) if size > 1 else at(env, const(0, dtype))

        return around(outer, work, short)

    def vectors(env: dict[Any, PrimExpr], v: PrimExpr) -> Stmt:
        start = mul(v, const(lanes, dtype))
        if size is None or size % lanes:
            start = minimum(start, sub(n, const(lanes, dtype)))
        return vectorized(lanes, dtype, lambda lane: at(env, add(start, lane)))

    count = ceildiv(n, const(lanes, dtype))
    blocks = Axis(inner.var, count)
    if size is not None:
        return around(
            [*outer, blocks], work, lambda env: vectors(_without(env, inner), env.get(inner.var, const(0, dtype)))
        )

    def symbolic(env: dict[Any, PrimExpr]) -> Stmt:
        long = loop("v", count, lambda v: vectors(env, v))
        return IfThenElse(cmp(GE, n, const(lanes, dtype)), long, loop("i", n, lambda i: at(env, i)))

    if outer:
        return around(outer, work, symbolic)
    whole = around([blocks], work, lambda env: vectors({}, env[inner.var]))
    return IfThenElse(cmp(GE, n, const(lanes, dtype)), whole, loop("i", n, lambda i: at({}, i)))


def _without(env: dict[Any, PrimExpr], axis: Axis) -> dict[Any, PrimExpr]:
    return {k: v for k, v in env.items() if k is not axis.var}


def _blocked(stage: Stage, inner: Axis, crossing: Axis, target: Target, around: Any, work: int) -> Stmt:
    """Square blocks over the result's and the input's contiguous axes."""
    del target
    others = [a for a in stage.axes if a is not inner and a is not crossing]
    size = const(BLOCK, inner.var.dtype)
    rows = Axis(crossing.var, ceildiv(crossing.extent, size))
    columns = Axis(inner.var, ceildiv(inner.extent, size))

    def block(env: dict[Any, PrimExpr]) -> Stmt:
        top = mul(env.get(crossing.var, const(0, size.dtype)), size)
        left = mul(env.get(inner.var, const(0, size.dtype)), size)

        def fill(height: PrimExpr, width: PrimExpr) -> Stmt:
            def row(i: PrimExpr) -> Stmt:
                def point(j: PrimExpr) -> Stmt:
                    return store(stage, stage.value, {**env, crossing.var: add(top, i), inner.var: add(left, j)})

                if isinstance(width, IntImm):
                    return (
                        vectorized(8, width.dtype, point)
                        if width.value == 8
                        else loop("j", width, point, ForKind.VECTORIZED)
                    )
                return loop("j", width, point)

            return loop("i", height, row)

        exact = (
            crossing.size is not None and inner.size is not None and crossing.size % BLOCK == 0 == inner.size % BLOCK
        )
        if exact:
            return fill(size, size)
        height, width = minimum(size, sub(crossing.extent, top)), minimum(size, sub(inner.extent, left))
        if isinstance(height, IntImm) and isinstance(width, IntImm):
            return fill(height, width)
        full = cmp(GE, width, size)
        return IfThenElse(full, fill(height, size), fill(height, width))

    return around([*others, rows, columns], work, block)
