"""Take padding apart: first everything gets the padding value, then what is inside is copied over it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import Call, FloatImm, IntImm, PrimExpr, Var, logical_and
from tilewright.arith.linear import linear
from tilewright.ir.node import map_children, replace
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.tir.ir import Block, BlockRealize, BufferStore, For, ForKind, IterVar, Range, Stmt, seq
from tilewright.tir.schedule.errors import ScheduleError, fail
from tilewright.tir.schedule.primitives.layout_blocks import simplified
from tilewright.tir.schedule.primitives.reduction_block import scope_position
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, LoopRV, State, conjuncts, nearest_blocks, with_regions

__all__ = ["can_decompose_padding", "decompose_padding"]

TRUE = IntImm("bool", 1)


class _Padding(NamedTuple):
    """A block `B[i] = if_then_else(inside, value, constant)`; `inside` keeps each iterator in a range."""

    store: BufferStore
    value: PrimExpr
    constant: PrimExpr
    inside: dict[Var, Range]


@primitive
def decompose_padding(s: State, block: BlockRV, loop: LoopRV) -> BlockRV:
    """Fill the output of a padding block `if_then_else(inside, value, constant)` with the constant, in a block of its own
    just before `loop`; what is left copies only what is inside. Returns the new block, `<name>_pad_const`.

    Loops of the block that `loop` holds, and that hold nothing else, get the extent of the inside; of the others, the
    iterations outside are cut by a predicate. Raises ScheduleError TW0489 where the block is no such padding, or the
    condition keeps every point.
    """
    realize = s.block(block)
    padding = _padding(s, block, realize)
    path = s.block_path(block)
    target = s.loop(loop)
    own = [p for p in path[scope_position(path) :] if isinstance(p, For)]
    if not any(p is target for p in own):
        raise fail(
            "TW0489", f"the loop {loop.var.name!r} is not around the block {block.name!r}", s.func(block.func), target,
            choices=[p.loop_var.name for p in own],
        )  # fmt: skip
    position = next(i for i, p in enumerate(own) if p is target)
    name = s.unique(block.func, f"{block.name}_pad_const")
    fill = _fill(realize, padding, own[:position], own[position:], name)
    copy = _copy(realize, padding, own[:position], own[position:])
    s.put(loop.func, s.loop_path(loop), seq(fill, copy))
    return BlockRV(name, block.func)


@primitive(changes=False)
def can_decompose_padding(s: State, block: BlockRV, loop: LoopRV) -> bool:
    """Could `decompose_padding` take the block apart at the loop?"""
    try:
        decompose_padding(s.copy(), block, loop)
    except ScheduleError:
        return False
    return True


def _padding(s: State, block: BlockRV, realize: BlockRealize) -> _Padding:
    def refuse(why: str, hint: str | None = None) -> Exception:
        return fail(
            "TW0489", f"the block {block.name!r} is no padding that can be taken apart: {why}", s.func(block.func), realize, hint=hint
        )  # fmt: skip

    b = realize.block
    body = b.body
    value: Any = body.value if isinstance(body, BufferStore) else None
    if b.init is not None or not isinstance(body, BufferStore):
        raise refuse("its body is not one store")
    if not (isinstance(value, Call) and getattr(value.op, "name", "") == "tir.if_then_else"):
        raise refuse("it does not store if_then_else(inside, value, constant)")
    condition, inner, constant = value.args
    if not isinstance(constant, (IntImm, FloatImm)):
        raise refuse(f"what it stores outside, {constant}, is no constant")
    if any(iv.iter_type != IterVar.DataPar for iv in b.iter_vars):
        raise refuse("it has iterators that are not spatial")
    domains = {iv.var: iv.dom for iv in b.iter_vars if iv.dom is not None}
    inside = _inside(condition, domains)
    if inside is None:
        raise refuse(
            f"its condition {condition} does not keep each iterator in a range of its own",
            "write `low <= i and i < high`",
        )
    if not inside:
        raise refuse("its condition always holds")
    return _Padding(body, inner, constant, inside)


def _inside(condition: PrimExpr, domains: dict[Var, Range]) -> dict[Var, Range] | None:
    """The range that a condition keeps each iterator in, where that is not all of it; None for other conditions."""
    ana = Analyzer()
    low: dict[Var, PrimExpr] = {v: r.min for v, r in domains.items()}
    high: dict[Var, PrimExpr] = {v: ana.simplify(r.min + r.extent) for v, r in domains.items()}
    for part in conjuncts(condition):
        if not isinstance(part, (ex.LT, ex.LE, ex.GT, ex.GE)):
            return None
        a, b = (part.a, part.b) if isinstance(part, (ex.LT, ex.LE)) else (part.b, part.a)
        gap = linear(b - a - 1 if isinstance(part, (ex.LT, ex.GT)) else b - a)  # not negative
        used = [(v, c) for v, (atom, c) in gap.terms.items() if any(x in domains for x in free_vars(atom))]
        if len(used) != 1 or not isinstance(used[0][0], Var) or abs(used[0][1]) != 1:
            return None
        v, sign = used[0]
        rest = ana.simplify((b - a - 1 if isinstance(part, (ex.LT, ex.GT)) else b - a) - sign * v)
        if sign > 0:  # v >= -rest
            low[v] = ana.simplify(ex.maximum(low[v], ana.simplify(-rest)))
        else:  # v <= rest
            high[v] = ana.simplify(ex.minimum(high[v], ana.simplify(rest + 1)))
    out: dict[Var, Range] = {}
    for v, r in domains.items():
        extent = ana.simplify(high[v] - low[v])
        if not (ana.can_prove_equal(low[v], r.min) and ana.can_prove_equal(extent, r.extent)):
            out[v] = Range(low[v], extent)
    return out


def _fill(realize: BlockRealize, padding: _Padding, outer: list[For], inner: list[For], name: str) -> Stmt:
    """Loops that store the constant everywhere."""
    loops = {p.loop_var: Var(p.loop_var.name, p.loop_var.dtype) for p in inner}
    fresh = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in realize.block.iter_vars}
    iters = tuple(replace(iv, var=fresh[iv.var]) for iv in realize.block.iter_vars)
    store = BufferStore(
        padding.store.buffer, padding.constant, tuple(substitute(i, fresh) for i in padding.store.indices)
    )
    block = with_regions(Block(iters, (), (), name, store))
    values = _bound(realize, outer)
    out: Stmt = BlockRealize(tuple(substitute(v, loops) for v in values), substitute(realize.predicate, loops), block)
    for p in reversed(inner):
        out = For(loops[p.loop_var], p.min, p.extent, ForKind.SERIAL, out)
    return out


def _bound(realize: BlockRealize, outer: list[For]) -> list[PrimExpr]:
    """The values of the iterators, loops of one iteration outside replaced by where they stand."""
    units = {p.loop_var: p.min for p in outer if isinstance(p.extent, IntImm) and p.extent.value == 1}
    ana = Analyzer()
    return [
        ana.simplify(substitute(v, units)) if any(u in units for u in free_vars(v)) else v for v in realize.iter_values
    ]


def _copy(realize: BlockRealize, padding: _Padding, outer: list[For], inner: list[For]) -> Stmt:
    """The old loops, for what is inside alone."""
    b = realize.block
    alone = {p.loop_var: p for p in inner if nearest_blocks(p) == [realize] and _is(p.min, 0)}
    extents: dict[Var, PrimExpr] = {}
    table: dict[Any, PrimExpr] = {}
    iters: list[IterVar] = []
    values: list[PrimExpr] = []
    ranges: dict[Var, Range] = {}
    predicate: PrimExpr = TRUE
    ana = Analyzer()
    for iv, v in zip(b.iter_vars, _bound(realize, outer), strict=True):
        kept = padding.inside.get(iv.var)
        assert iv.dom is not None
        if kept is None:
            iters.append(iv)
            values.append(v)
            ranges[iv.var] = iv.dom
            continue
        fresh = Var(iv.var.name, iv.var.dtype)
        ranges[fresh] = Range(IntImm(fresh.dtype, 0), kept.extent)
        iters.append(replace(iv, var=fresh, dom=ranges[fresh]))
        table[iv.var] = ex.add(fresh, kept.min)
        if isinstance(v, Var) and v in alone and v not in extents and not _elsewhere(v, iv.var, realize):
            extents[v] = kept.extent
            values.append(v)
            continue
        values.append(ana.simplify(v - kept.min))
        if not ana.can_prove_equal(kept.min, iv.dom.min):
            predicate = _and(predicate, ex.LE(kept.min, v))
        if not ana.can_prove_equal(kept.min + kept.extent, iv.dom.min + iv.dom.extent):
            predicate = _and(predicate, ex.LT(v, ana.simplify(kept.min + kept.extent)))
    for part in conjuncts(realize.predicate):
        predicate = _and(predicate, part)
    store = replace(padding.store, value=padding.value)
    block = simplified(substitute(replace(b, iter_vars=(), body=store), table), ranges)
    block = with_regions(replace(block, iter_vars=tuple(iters)))
    new = BlockRealize(tuple(values), predicate, block)

    def visit(x: Any) -> Any:
        if x is realize:
            return new
        if isinstance(x, For) and x.loop_var in extents:
            return replace(x, extent=extents[x.loop_var], body=visit(x.body))
        return map_children(x, lambda c: visit(c) if isinstance(c, Stmt) else c)

    return visit(inner[0])


def _elsewhere(v: Var, own: Var, realize: BlockRealize) -> bool:
    """Does a loop move another iterator, or occur in the predicate?"""
    if v in free_vars(realize.predicate):
        return True
    return any(
        v in free_vars(e)
        for iv, e in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if iv.var is not own
    )


def _and(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return b if isinstance(a, IntImm) else logical_and(a, b)


def _is(e: PrimExpr, n: int) -> bool:
    return isinstance(e, IntImm) and e.value == n
