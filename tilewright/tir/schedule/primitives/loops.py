"""Primitives on loops: split, fuse, reorder, and how iterations run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tilewright.arith.expr import (
    LT,
    IntImm,
    PrimExpr,
    Var,
    add,
    ceildiv,
    cmp,
    const,
    floordiv,
    floormod,
    logical_and,
    mul,
)
from tilewright.ir.node import children, replace
from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import BlockRealize, For, ForKind, IterVar, Stmt
from tilewright.tir.lower.index import mentions
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, LoopRV, State, iter_kinds, nearest_blocks

__all__ = ["bind", "fuse", "get_block", "get_loops", "parallel", "reorder", "split", "unroll", "vectorize"]

_KIND = {IterVar.DataPar: "spatial", IterVar.CommReduce: "reduce", IterVar.Ordered: "scan", IterVar.Opaque: "opaque"}


@primitive(changes=False)
def get_block(s: State, name: str, func_name: str | None = None) -> BlockRV:
    """The block of that name, in the function worked on or in `func_name`."""
    rv = BlockRV(name, func_name or s.func_name)
    s.block_path(rv)
    return rv


@primitive(changes=False)
def get_loops(s: State, block: BlockRV) -> list[LoopRV]:
    """The loops around a block, inside the block that it stands in, outermost first."""
    out: list[LoopRV] = []
    for parent in reversed(s.block_path(block)[:-1]):
        if isinstance(parent, For):
            out.append(LoopRV(parent.loop_var, block.func))
        elif isinstance(parent, BlockRealize):
            break
    return out[::-1]


def _serial(s: State, loop: LoopRV, what: str) -> For:
    found = s.loop(loop)
    if found.kind != ForKind.SERIAL:
        raise fail(
            "TW0411",
            f"cannot {what} the loop {loop.var.name!r}: it is {found.kind.name.lower()} already",
            s.func(loop.func),
            found,
            hint="split, fuse and reorder loops first, then say how they run",
        )
    return found


def _number(s: State, factor: Any) -> PrimExpr | int | None:
    """A factor as a number where it is one (sampled variables have values)."""
    if isinstance(factor, Var) and factor in s.values:
        return s.values[factor]
    if isinstance(factor, IntImm):
        return factor.value
    return factor


@primitive
def split(
    s: State,
    loop: LoopRV,
    factors: Sequence[int | PrimExpr | None],
    preserve_unit_iters: bool = True,
    disable_predication: bool = False,
) -> list[LoopRV]:
    """One loop becomes several nested ones: `for i` ▶ `for i_0: for i_1: ...`, with i = i_0*f1*... + i_1*... + ...

    `factors` are the extents, outermost first; one of them may be None: it is inferred. Where the product is larger than
    the loop, blocks inside get a predicate (unless `disable_predication`). Raises ScheduleError TW0412 if the product is
    smaller than the loop.
    """
    del preserve_unit_iters
    node = _serial(s, loop, "split")
    sizes = [_number(s, f) for f in factors]
    if not sizes or sum(f is None for f in sizes) > 1:
        raise fail("TW0412", "split needs factors, at most one of them None", s.func(loop.func), node)
    dtype = loop.var.dtype
    if any(isinstance(f, int) and f <= 0 for f in sizes):
        raise fail("TW0412", f"factors must be positive, got {list(factors)}", s.func(loop.func), node)
    extents: list[PrimExpr | None] = [
        None if f is None else const(f, dtype) if isinstance(f, int) else f for f in sizes
    ]
    known: PrimExpr = const(1, dtype)
    for e in extents:
        if e is not None:
            known = mul(known, e)
    if None in sizes:
        extents[sizes.index(None)] = ceildiv(node.extent, known)
    full: list[PrimExpr] = [e for e in extents if e is not None]
    total: PrimExpr = const(1, dtype)
    for e in full:
        total = mul(total, e)
    if isinstance(total, IntImm) and isinstance(node.extent, IntImm) and total.value < node.extent.value:
        raise fail(
            "TW0412",
            f"the factors {list(factors)} make {total.value} iterations, but the loop {loop.var.name!r} has {node.extent.value}",
            s.func(loop.func),
            node,
            hint="give one factor as None and it is inferred",
        )
    variables = [Var(f"{loop.var.name}_{i}", dtype) for i in range(len(full))]
    value: PrimExpr = const(0, dtype)
    for v, e in zip(variables, full, strict=True):
        value = add(mul(value, e), v)
    value = add(node.min, value)
    body = substitute(node.body, {loop.var: value})
    exact = isinstance(total, IntImm) and isinstance(node.extent, IntImm) and total.value == node.extent.value
    if not exact and not disable_predication:
        body = _restrict(body, cmp(LT, value, add(node.min, node.extent)))
    for v, e in zip(reversed(variables), reversed(full), strict=True):
        body = For(v, const(0, dtype), e, ForKind.SERIAL, body, None, node.annotations if v is variables[0] else {})
    s.put(loop.func, s.loop_path(loop), body)
    s.simplify(loop.func)
    return [LoopRV(v, loop.func) for v in variables]


def _restrict(body: Stmt, condition: PrimExpr) -> Stmt:
    """The statement with every block in it run only where the condition holds."""
    if isinstance(body, BlockRealize):
        return replace(body, predicate=logical_and(body.predicate, condition))
    changes: dict[str, Any] = {}
    for f in body.node_fields:
        old = getattr(body, f.name)
        if isinstance(old, Stmt):
            changes[f.name] = _restrict(old, condition)
        elif isinstance(old, tuple) and any(isinstance(x, Stmt) for x in old):  # pyright: ignore
            changes[f.name] = tuple(_restrict(x, condition) for x in old)  # pyright: ignore
    return replace(body, **changes) if changes else body


def _chain(s: State, loops: Sequence[LoopRV], what: str) -> list[For]:
    """The loops as statements, checked to be each the only child of the one before."""
    found = [_serial(s, rv, what) for rv in loops]
    for outer, inner in itertools.pairwise(found):
        if outer.body is not inner:
            raise fail(
                "TW0413",
                f"cannot {what}: the loop {inner.loop_var.name!r} is not the only statement directly inside {outer.loop_var.name!r}",
                s.func(loops[0].func),
                outer,
                choices=[c.loop_var.name for c in children(outer) if isinstance(c, For)],
            )
    return found


@primitive
def fuse(s: State, *loops: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
    """Perfectly nested loops, given outermost first, become one. Raises ScheduleError TW0413 where they are not nested so."""
    del preserve_unit_iters
    if not loops:
        raise fail("TW0413", "fuse needs at least one loop")
    found = _chain(s, loops, "fuse")
    func = loops[0].func
    for inner in found[1:]:
        if any(mentions(inner.extent, o.loop_var) for o in found):
            raise fail("TW0413", f"the extent of {inner.loop_var.name!r} depends on an outer loop", s.func(func), inner)
    dtype = found[0].loop_var.dtype
    fused = Var("_".join(f.loop_var.name for f in found) + "_fused", dtype)
    extent: PrimExpr = const(1, dtype)
    for f in found:
        extent = mul(extent, f.extent)
    mapping: dict[Any, PrimExpr] = {}
    rest: PrimExpr = fused
    for i, f in enumerate(reversed(found)):
        last = i == len(found) - 1
        mapping[f.loop_var] = add(f.min, rest if last else floormod(rest, f.extent))
        rest = floordiv(rest, f.extent)
    body = substitute(found[-1].body, mapping)
    s.put(func, s.loop_path(loops[0]), For(fused, const(0, dtype), extent, ForKind.SERIAL, body))
    s.simplify(func)
    return LoopRV(fused, func)


@primitive
def reorder(s: State, *ordered_loops: LoopRV) -> None:
    """Put loops of one nest into the given order; loops not named stay where they are.

    The loops must form a chain with nothing beside it, and the blocks inside must be made of spatial and reduce axes.
    Raises ScheduleError TW0414 or TW0415 otherwise.
    """
    if len({id(rv.var) for rv in ordered_loops}) != len(ordered_loops):
        raise fail("TW0414", "a loop is named twice in reorder")
    if len(ordered_loops) < 2:
        return
    func = ordered_loops[0].func
    paths = {rv.var: s.loop_path(rv) for rv in ordered_loops}
    deepest = max(paths.values(), key=len)
    top = min(paths.values(), key=len)
    chain = list(deepest[len(top) - 1 :])
    for p in chain:
        if not isinstance(p, For):
            raise fail(
                "TW0414",
                f"the loops {', '.join(v.name for v in paths)} are not one nest: something stands between them",
                s.func(func),
                p if not isinstance(p, (type(None),)) else chain[0],
            )
    loops = [p for p in chain if isinstance(p, For)]
    inside = {p.loop_var for p in loops}
    missing = [rv.var.name for rv in ordered_loops if rv.var not in inside]
    if missing:
        raise fail("TW0414", f"the loop {missing[0]!r} is not in the same nest", s.func(func), loops[0])
    for b in nearest_blocks(loops[-1].body):
        for iv, value in zip(b.block.iter_vars, b.iter_values, strict=True):
            if iv.iter_type not in (IterVar.DataPar, IterVar.CommReduce) and any(mentions(value, v) for v in inside):
                raise fail(
                    "TW0415",
                    f"cannot reorder: the axis {iv.var.name!r} of block {b.block.name_hint!r} is {_KIND.get(iv.iter_type)}",
                    s.func(func),
                    b,
                    hint="only spatial and reduce axes may run in another order",
                )
    named = iter([next(p for p in loops if p.loop_var is rv.var) for rv in ordered_loops])
    wanted = set(paths)
    order = [next(named) if p.loop_var in wanted else p for p in loops]
    seen: set[Var] = set()
    for p in order:
        for other in loops:
            if other.loop_var not in seen and other is not p and mentions(p.extent, other.loop_var):
                raise fail(
                    "TW0414",
                    f"the extent of {p.loop_var.name!r} needs {other.loop_var.name!r} outside",
                    s.func(func),
                    p,
                )
        seen.add(p.loop_var)
    body = loops[-1].body
    for p in reversed(order):
        body = replace(p, body=body)
    s.put(func, top, body)


def _mark(s: State, loop: LoopRV, kind: ForKind, what: str, thread: IterVar | None = None) -> None:
    node = _serial(s, loop, what)
    if kind in (ForKind.PARALLEL, ForKind.VECTORIZED):
        for b in nearest_blocks(node.body):
            kinds = iter_kinds(b, loop.var)
            bad = kinds - {IterVar.DataPar}
            if bad:
                names = [
                    rv.var.name
                    for rv in get_loops(s, BlockRV(b.block.name_hint, loop.func))
                    if iter_kinds(b, rv.var) == {IterVar.DataPar}
                ]
                raise fail(
                    "TW0416",
                    f"cannot {what} the loop {loop.var.name!r}: it runs over a {_KIND.get(min(bad))} axis of block "
                    f"{b.block.name_hint!r}, whose iterations depend on each other",
                    s.func(loop.func),
                    node,
                    choices=names,
                    hint="use rfactor to make a reduction parallel, or take a spatial loop",
                )
    s.put(loop.func, s.loop_path(loop), replace(node, kind=kind, thread_binding=thread))


@primitive
def parallel(s: State, loop: LoopRV) -> None:
    """Share the iterations of a loop among threads. Raises ScheduleError TW0416 for a loop over a reduction."""
    _mark(s, loop, ForKind.PARALLEL, "parallelise")


@primitive
def vectorize(s: State, loop: LoopRV) -> None:
    """Run the iterations of a loop in the lanes of vectors. Raises ScheduleError TW0416 for a loop over a reduction."""
    _mark(s, loop, ForKind.VECTORIZED, "vectorise")


@primitive
def unroll(s: State, loop: LoopRV) -> None:
    """Expand a loop at compile time."""
    _mark(s, loop, ForKind.UNROLLED, "unroll")


_THREADS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z", "vthread", "vthread.x",
            "vthread.y", "vthread.z")  # fmt: skip


@primitive
def bind(s: State, loop: LoopRV, thread_axis: str) -> None:
    """Let the iterations of a loop be GPU threads (`threadIdx.x`, `blockIdx.y`, ...)."""
    if thread_axis not in _THREADS:
        raise fail("TW0417", f"{thread_axis!r} is no thread axis", s.func(loop.func), s.loop(loop), choices=_THREADS)
    if thread_axis.startswith("blockIdx"):
        for b in nearest_blocks(s.loop(loop).body):
            if iter_kinds(b, loop.var) - {IterVar.DataPar}:
                raise fail(
                    "TW0416",
                    f"cannot bind the loop {loop.var.name!r} to {thread_axis}: block {b.block.name_hint!r} reduces over it",
                    s.func(loop.func),
                    s.loop(loop),
                    hint="thread blocks cannot combine results",
                )
    axis = IterVar(None, Var(thread_axis, loop.var.dtype), IterVar.ThreadIndex, thread_axis)
    _mark(s, loop, ForKind.THREAD_BINDING, "bind", axis)
