"""Building loops: serial, vectorised, unrolled, and the parallel outer loop with its work cut into tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith.expr import (
    IntImm,
    PrimExpr,
    Var,
    add,
    ceildiv,
    const,
    floordiv,
    floormod,
    maximum,
    minimum,
    mul,
    sub,
)
from tilewright.backends.llvm.schedules.stages import Axis
from tilewright.tir.ir import Block, BlockRealize, Buffer, For, ForKind, LetStmt, Stmt, decl_buffer

__all__ = ["GRAIN", "TASKS", "alloc", "bind", "local", "loop", "nest", "parallel_nest", "unrolled", "vectorized"]

TRUE = IntImm("bool", 1)
GRAIN = 24_000
"""Least work, in simple operations, that is worth a task of its own (about 5 µs)."""
TASKS = 32
"""About how many tasks a parallel loop is cut into: enough to balance, few enough to cost nothing."""

Body = Callable[[PrimExpr], Stmt]


def bind(name: str, value: PrimExpr, body: Body) -> Stmt:
    """`body(value)`, with the value in a variable where it is more than a number or a variable."""
    if isinstance(value, (IntImm, Var)):
        return body(value)
    var = Var(name, value.dtype)
    return LetStmt(var, value, body(var))


def loop(name: str, extent: PrimExpr, body: Body, kind: ForKind = ForKind.SERIAL) -> Stmt:
    """`for name in range(extent): body(name)`; no loop where the extent is 1."""
    if isinstance(extent, IntImm) and extent.value == 1:
        return body(const(0, extent.dtype))
    var = Var(name, extent.dtype)
    return For(var, const(0, extent.dtype), extent, kind, body(var))


def unrolled(name: str, n: int, dtype: str, body: Body) -> Stmt:
    """A loop that is expanded."""
    return loop(name, const(n, dtype), body, ForKind.UNROLLED)


def vectorized(n: int, dtype: str, body: Body) -> Stmt:
    """A loop whose iterations are lanes."""
    return loop("l", const(n, dtype), body, ForKind.VECTORIZED)


def nest(axes: Sequence[Axis], body: Callable[[dict[Any, PrimExpr]], Stmt]) -> Stmt:
    """Serial loops over the axes, outermost first; `body` gets the loop variables by axis variable."""

    def build(i: int, env: dict[Any, PrimExpr]) -> Stmt:
        if i == len(axes):
            return body(env)
        return loop(axes[i].var.name, axes[i].extent, lambda v: build(i + 1, {**env, axes[i].var: v}))

    return build(0, {})


def local(name: str, size: int, dtype: str) -> Buffer:
    """A small buffer that becomes registers."""
    return decl_buffer((IntImm("int64", size),), dtype, name, scope="local")


def alloc(buffers: Sequence[Buffer], body: Stmt) -> Stmt:
    """`body` with buffers that live in it."""
    return BlockRealize((), TRUE, Block((), (), (), "tile", body, None, tuple(buffers))) if buffers else body


def parallel_nest(
    axes: Sequence[Axis], work: int, body: Callable[[dict[Any, PrimExpr]], Stmt], scratch: Sequence[Buffer] = ()
) -> Stmt:
    """Loops over the axes, the outer ones shared among threads.

    `work`: operations of the whole nest, symbolic sizes guessed. `scratch`: buffers of which each task has its own.
    """
    taken, count = 0, 1
    while taken < len(axes) and count < TASKS // 2:
        if taken and taken == len(axes) - 1 and count >= 8:
            break  # the last axis is the tightest loop: no division in there
        count *= axes[taken].size or 8
        taken += 1
    static = all(a.size is not None for a in axes)
    outer, inner = list(axes[:taken]), list(axes[taken:])
    if not outer or (static and work < 2 * GRAIN):
        return alloc(scratch, nest(axes, body))
    dtype = outer[0].extent.dtype
    points: PrimExpr = const(1, dtype)
    for a in outer:
        points = mul(points, a.extent)

    def at(p: PrimExpr, i: int = len(outer) - 1, env: dict[Any, PrimExpr] | None = None) -> Stmt:
        env = env or {}
        if i == 0:
            env[outer[0].var] = p
            return nest(inner, lambda more: body({**env, **more}))
        a = outer[i]

        def rest(v: PrimExpr) -> Stmt:
            return bind("q", floordiv(p, a.extent), lambda q: at(q, i - 1, {**env, a.var: v}))

        return bind(a.var.name, floormod(p, a.extent), rest)

    return tasks(points, work, static, at, scratch)


def tasks(points: PrimExpr, work: int, static: bool, at: Body, scratch: Sequence[Buffer] = ()) -> Stmt:
    """`for p in range(points): at(p)` cut into tasks of at least `GRAIN` operations."""
    dtype = points.dtype
    if not isinstance(points, IntImm):

        def symbolic(size: PrimExpr) -> Stmt:
            chunk = maximum(ceildiv(size, const(TASKS, dtype)), const(1, dtype))
            return bind("chunk", chunk, lambda c: _cut(size, c, ceildiv(size, c), at, scratch, False))

        return bind("points", points, symbolic)
    size = points.value
    n = max(1, min(size, TASKS, work // GRAIN if static else TASKS))
    chunk = -(-size // n)
    n = -(-size // chunk)
    if n == 1:
        return alloc(scratch, loop("p", points, at))
    if chunk == 1:
        return loop("t", points, lambda p: alloc(scratch, at(p)), ForKind.PARALLEL)
    return _cut(points, const(chunk, dtype), const(n, dtype), at, scratch, size % chunk == 0)


def _cut(points: PrimExpr, chunk: PrimExpr, count: PrimExpr, at: Body, scratch: Sequence[Buffer], exact: bool) -> Stmt:
    """`count` tasks of `chunk` points each (the last of what is left)."""

    def task(t: PrimExpr) -> Stmt:
        start = mul(t, chunk)
        extent = chunk if exact else minimum(chunk, sub(points, start))

        def points_of(first: PrimExpr) -> Stmt:
            return loop(
                "p", extent, lambda q: bind("p", add(first, q), at) if not isinstance(q, IntImm) else at(add(first, q))
            )

        return alloc(scratch, bind("first", start, points_of))

    return loop("t", count, task, ForKind.PARALLEL)
