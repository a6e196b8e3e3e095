"""Primitives on loops: find blocks and loops, split, fuse, add loops of one iteration."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import (
    LT,
    IntImm,
    PrimExpr,
    Var,
    add,
    cast,
    ceildiv,
    cmp,
    const,
    floordiv,
    floormod,
    logical_and,
    mul,
)
from tilewright.ir.node import children, replace
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.tir.ir import BlockRealize, For, ForKind, Range, Stmt
from tilewright.tir.lower.index import mentions
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.scope import loops_in_scope
from tilewright.tir.schedule.state import BlockRV, LoopRV, Place, State, simplify_bindings

__all__ = ["add_unit_loop", "fuse", "get_block", "get_loops", "number", "plain_loop", "split"]


@primitive(changes=False)
def get_block(s: State, name: str, func_name: str | None = None) -> BlockRV:
    """The block of that name, in the function worked on or in `func_name`.

    Raises ScheduleError TW0402 where there is none, or more than one.
    """
    s.func(func_name)
    rv = BlockRV(name, func_name or s.func_name)
    found = s.index(rv.func).blocks.get(name, ())
    if len(found) != 1:
        if found:
            raise fail(
                "TW0402",
                f"{len(found)} blocks of {rv.func} are named {name!r}",
                s.func(rv.func),
                found[1],
                hint="take the one that is meant from get_child_blocks, get_producers or get_consumers",
            )
        raise fail("TW0402", f"the function {rv.func} has no block {name!r}", choices=s.block_names(rv.func))
    return BlockRV(found[0].block.name_hint, rv.func)


@primitive(changes=False)
def get_loops(s: State, block: BlockRV) -> list[LoopRV]:
    """The loops around a block, inside the block that it stands in, outermost first."""
    return [LoopRV(p.loop_var, block.func) for p in loops_in_scope(s.block_path(block))]


def plain_loop(s: State, loop: LoopRV, what: str) -> For:
    """The loop, if its iterations run one after the other. Raises ScheduleError TW0411 where they do not."""
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


def number(s: State, factor: Any) -> PrimExpr | int | None:
    """A factor as a number where it is one (sampled variables have values); None and -1 stand for "infer it"."""
    if factor is None or isinstance(factor, int):
        return None if factor == -1 else factor
    if isinstance(factor, PrimExpr):
        known = {v: IntImm(v.dtype, s.values[v]) for v in free_vars(factor) if v in s.values}
        e = Analyzer().simplify(substitute(factor, known)) if not isinstance(factor, IntImm) else factor
        if isinstance(e, IntImm):
            return None if e.value == -1 else e.value
        return e
    raise fail("TW0412", f"a factor is a number, an expression or None, not {factor!r}")


def factors_of(s: State, loop: LoopRV, node: For, factors: Sequence[Any], what: str) -> list[PrimExpr | None]:
    """The factors as expressions of the loop's dtype, at most one of them None; all positive."""
    sizes = [number(s, f) for f in factors]
    if not sizes or sum(f is None for f in sizes) > 1:
        raise fail("TW0412", f"{what} needs factors, at most one of them None", s.func(loop.func), node)
    if any(isinstance(f, int) and f <= 0 for f in sizes):
        raise fail("TW0412", f"factors must be positive, got {list(factors)}", s.func(loop.func), node)
    dtype = loop.var.dtype
    return [None if f is None else const(f, dtype) if isinstance(f, int) else cast(f, dtype) for f in sizes]


def bound_analyzer(path: Sequence[Stmt]) -> Analyzer:
    """An analyzer that knows the loops on a path."""
    ana = Analyzer()
    for p in path:
        if isinstance(p, For):
            ana.bind(p.loop_var, Range(p.min, p.extent))
    return ana


@primitive
def split(
    s: State,
    loop: LoopRV,
    factors: Sequence[int | PrimExpr | None],
    preserve_unit_iters: bool = True,
    disable_predication: bool = False,
) -> list[LoopRV]:
    """One loop becomes several nested ones: `for i` ▶ `for i_0: for i_1: ...`, with i = i_0*f1*... + i_1*... + ...

    `factors` are the extents, outermost first; one of them may be None: it is inferred. Where the product may be larger
    than the loop, blocks inside get a predicate (unless `disable_predication`). With `preserve_unit_iters`, loops of one
    iteration stay in what blocks are bound to. Raises ScheduleError TW0412 if the product may be smaller than the loop.
    """
    node = plain_loop(s, loop, "split")
    extents = factors_of(s, loop, node, factors, "split")
    path = s.loop_path(loop)
    dtype = loop.var.dtype
    known: PrimExpr = const(1, dtype)
    for e in extents:
        if e is not None:
            known = mul(known, e)
    if None in extents:
        inferred = ceildiv(node.extent, known)
        extents[extents.index(None)] = inferred if isinstance(inferred, IntImm) else Analyzer().simplify(inferred)
    full: list[PrimExpr] = [e for e in extents if e is not None]
    total: PrimExpr = const(1, dtype)
    for e in full:
        total = mul(total, e)
    numbers = isinstance(total, IntImm) and isinstance(node.extent, IntImm)
    covers = total.value >= node.extent.value if numbers else _covers(path, total, node.extent)  # pyright: ignore
    if not covers:
        raise fail(
            "TW0412",
            f"the factors {list(factors)} make {total} iterations, but the loop {loop.var.name!r} has {node.extent}",
            s.func(loop.func),
            node,
            hint="give one factor as None and it is inferred",
        )
    variables = [Var(f"{loop.var.name}_{i}", dtype) for i in range(len(full))]
    value: PrimExpr = const(0, dtype)
    for v, e in zip(variables, full, strict=True):
        value = add(mul(value, e), v)
    inside = cmp(LT, value, node.extent)
    value = add(node.min, value)
    body = substitute(node.body, {loop.var: value})
    if not disable_predication and not (numbers and total.value == node.extent.value):  # pyright: ignore
        ana = bound_analyzer(path[:-1])
        for v, e in zip(variables, full, strict=True):
            ana.bind(v, Range(const(0, dtype), e))
        if numbers or not ana.can_prove(inside):
            body = restrict(body, inside)
    for v, e in zip(reversed(variables), reversed(full), strict=True):
        body = For(v, const(0, dtype), e, ForKind.SERIAL, body, None, node.annotations if v is variables[0] else {})
    s.put(loop.func, path, simplify_bindings(body, path[:-1], preserve_unit_iters))
    return [LoopRV(v, loop.func) for v in variables]


def _covers(path: Sequence[Stmt], total: PrimExpr, extent: PrimExpr) -> bool:
    ana = bound_analyzer(path[:-1])
    if ana.can_prove(total >= extent):
        return True
    # ceil(n / f) * f >= n, whatever n is
    return any(ana.can_prove_equal(total, mul(ceildiv(extent, f), f)) for f in _divisors(total))


def _divisors(e: PrimExpr) -> list[PrimExpr]:
    """What the quotients in an expression divide by."""
    out: list[PrimExpr] = []

    def visit(x: Any) -> None:
        if type(x).__name__ == "FloorDiv":
            out.append(x.b)
        for c in children(x):
            visit(c)

    visit(e)
    return out


def restrict(body: Stmt, condition: PrimExpr) -> Stmt:
    """The statement with every block in it run only where the condition holds."""
    if isinstance(body, BlockRealize):
        return replace(body, predicate=logical_and(body.predicate, condition))
    changes: dict[str, Any] = {}
    for f in body.node_fields:
        old = getattr(body, f.name)
        if isinstance(old, Stmt):
            changes[f.name] = restrict(old, condition)
        elif isinstance(old, tuple) and any(isinstance(x, Stmt) for x in old):  # pyright: ignore
            changes[f.name] = tuple(restrict(x, condition) for x in old)  # pyright: ignore
    return replace(body, **changes) if changes else body


def chain(s: State, loops: Sequence[LoopRV], what: str) -> list[For]:
    """The loops as statements, checked to be each the only child of the one before."""
    found = [plain_loop(s, rv, what) for rv in loops]
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
    """Perfectly nested loops, given outermost first, become one.

    With `preserve_unit_iters`, loops of one iteration stay in what blocks are bound to. Raises ScheduleError TW0413 where
    the loops are not nested so, TW0411 for one that is annotated or does not run one iteration after the other.
    """
    if not loops:
        raise fail("TW0413", "fuse needs at least one loop")
    found = chain(s, loops, "fuse")
    func = loops[0].func
    for i, inner in enumerate(found):
        if any(mentions(x, o.loop_var) for o in found[:i] for x in (inner.min, inner.extent)):
            raise fail("TW0413", f"the extent of {inner.loop_var.name!r} depends on an outer loop", s.func(func), inner)
        if inner.annotations:
            raise fail(
                "TW0411", f"cannot fuse the loop {inner.loop_var.name!r}: its annotations would be lost", s.func(func), inner,
                hint="annotate the loop that fuse returns",
            )  # fmt: skip
    dtype = found[0].loop_var.dtype
    if any(f.loop_var.dtype == "int64" for f in found):
        dtype = "int64"
    fused = Var("_".join(f.loop_var.name for f in found) + "_fused", dtype)
    mapping: dict[Any, PrimExpr] = {}
    lower: PrimExpr = const(1, dtype)
    for f in reversed(found):
        extent = cast(f.extent, dtype)
        if isinstance(extent, IntImm) and extent.value == 1:
            part: PrimExpr = const(0, dtype)
        elif f is found[0]:
            part = floordiv(fused, lower)
        else:
            part = floordiv(floormod(fused, mul(lower, extent)), lower)
        mapping[f.loop_var] = cast(add(cast(f.min, dtype), part), f.loop_var.dtype)
        lower = mul(lower, extent)
    size = lower if isinstance(lower, IntImm) else Analyzer().simplify(lower)
    body: Stmt = For(fused, const(0, dtype), size, ForKind.SERIAL, substitute(found[-1].body, mapping))
    path = s.loop_path(loops[0])
    s.put(func, path, simplify_bindings(body, path[:-1], preserve_unit_iters))
    return LoopRV(fused, func)


@primitive
def add_unit_loop(s: State, block_or_loop: Place) -> LoopRV:
    """A new loop of one iteration around a block or loop."""
    path = s.path(block_or_loop)
    v = Var("u", "int32")
    s.put(block_or_loop.func, path, For(v, const(0, "int32"), const(1, "int32"), ForKind.SERIAL, path[-1]))
    return LoopRV(v, block_or_loop.func)
