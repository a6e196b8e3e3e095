"""Count the iterations of a block differently."""

from __future__ import annotations

from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.iter_map import iter_map_simplify
from tilewright.ir.node import map_children, replace
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.ir.structure import structural_equal
from tilewright.tir.index_map import IndexMap, NoInverse
from tilewright.tir.ir import Block, BlockRealize, For, ForKind, IterVar, Range, Stmt
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.arguments import as_block, as_index_map, index_dtype
from tilewright.tir.schedule.primitives.reduction_block import scope_position
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, State

__all__ = ["simplified", "transform_block_layout"]


def _prepare(s: State, arguments: dict[str, Any]) -> None:
    block = arguments["block"] = as_block(s, arguments["block"])
    count = len(s.block(block).block.iter_vars)
    arguments["index_map"] = as_index_map(arguments["index_map"], count, index_dtype(s, block))


@primitive(prepare=_prepare)
def transform_block_layout(s: State, block: BlockRV | str, index_map: Any) -> None:
    """Give a block the iterators `index_map(*iterators)`, and loops of its own over them.

    Its iterators are bound to the loops around it one to one, the loops hold nothing else, the map is a bijection, and none
    of its results mixes spatial with reduction iterators; else ScheduleError TW0486.
    """
    assert isinstance(block, BlockRV)
    realize = s.block(block)

    def refuse(why: str, node: Any = realize, hint: str | None = None) -> Exception:
        return fail("TW0486", f"cannot transform the block {block.name!r}: {why}", s.func(block.func), node, hint=hint)

    path = s.block_path(block)
    top, bound = len(path) - 1, list(realize.iter_values)
    loops: list[For] = []
    while top - 1 > scope_position(path) and isinstance(path[top - 1], For) and len(loops) < len(bound):
        top -= 1
        loops.append(path[top])  # pyright: ignore[reportArgumentType]
    by_var = {p.loop_var: p for p in loops}
    for iv, v in zip(realize.block.iter_vars, bound, strict=True):
        p = by_var.pop(v, None) if isinstance(v, Var) else None
        if p is None:
            raise refuse(
                f"its iterator {iv.var.name!r} is not a loop of its own",
                hint="transform the block before its loops are split or fused",
            )
        dom = iv.dom
        if dom is None or not (
            structural_equal(dom.extent, p.extent) and isinstance(p.min, IntImm) and not p.min.value
        ):
            raise refuse(f"the loop {p.loop_var.name!r} does not run over the whole iterator {iv.var.name!r}")
    if by_var or any(isinstance(p, For) for p in path[scope_position(path) : top]):
        extra = next(iter(by_var.values()), None) or next(
            p for p in path[scope_position(path) : top] if isinstance(p, For)
        )
        raise refuse(f"the loop {extra.loop_var.name!r} around it moves none of its iterators", extra)
    new = _transformed(realize, index_map, refuse)
    s.put(block.func, path[: top + 1], new)


def _transformed(realize: BlockRealize, m: IndexMap, refuse: Any) -> Stmt:
    b = realize.block
    extents = [iv.dom.extent for iv in b.iter_vars if iv.dom is not None]
    dtype = "int64" if any(n.dtype == "int64" for n in extents) else "int32"
    m = m.with_dtype(dtype)
    own = [iv.var for iv in b.iter_vars]
    images = m.map_indices(own)
    kinds = [_kind(e, b.iter_vars, refuse) for e in images]
    try:
        inverse, shape = m.inverse(extents), m.map_shape(extents)
    except NoInverse as why:
        raise refuse(why.reason, hint="the map must be a bijection of the iterators") from None
    loops = [Var(f"ax{i}", n.dtype) for i, n in enumerate(shape)]
    axes = [Var(f"v{i}", n.dtype) for i, n in enumerate(shape)]
    table = dict(zip(own, inverse.apply(axes)))
    ranges = {v: Range(IntImm(v.dtype, 0), n) for v, n in zip(axes, shape)}
    block = simplified(substitute(replace(b, iter_vars=()), table), ranges)
    iters = tuple(IterVar(ranges[v], v, kind) for v, kind in zip(axes, kinds))
    block = replace(block, iter_vars=iters)
    predicate = realize.predicate
    if not (isinstance(predicate, IntImm) and predicate.value):
        at_loops = {v: substitute(e, dict(zip(axes, loops))) for v, e in zip(realize.iter_values, table.values())}
        predicate = substitute(predicate, at_loops)
    out: Stmt = BlockRealize(tuple(loops), predicate, block)
    for v, n in zip(reversed(loops), reversed(shape)):
        out = For(v, IntImm(v.dtype, 0), n, ForKind.SERIAL, out)
    return out


def _kind(e: PrimExpr, iters: tuple[IterVar, ...], refuse: Any) -> int:
    used = set(free_vars(e))
    kinds = {iv.iter_type for iv in iters if iv.var in used}
    if len(kinds) > 1:
        raise refuse(f"{e} mixes spatial and reduction iterators")
    return kinds.pop() if kinds else IterVar.DataPar


def simplified(block: Block, ranges: dict[Var, Range]) -> Block:
    """The block with the index expressions in it simplified, given the ranges of its iterators."""
    ana = Analyzer()
    known = dict(ranges)
    for v, r in ranges.items():
        if not (isinstance(r.extent, IntImm) and r.extent.value == 1):
            ana.bind(v, r)

    def expr(e: PrimExpr) -> PrimExpr:
        used = {v: known[v] for v in free_vars(e) if v in known}
        if not used or e.dtype not in ("int32", "int64"):
            return e
        return iter_map_simplify([ana.simplify(e)], used, check_level="nocheck", simplify_trivial_iterators=False)[0]

    def visit(x: Any) -> Any:
        if isinstance(x, PrimExpr) and x.dtype in ("int32", "int64") and not x.identity and not isinstance(x, IntImm):
            return expr(x) if _is_index(x) else map_children(x, visit)
        if isinstance(x, For):
            known[x.loop_var] = Range(x.min, x.extent)
            if not (isinstance(x.extent, IntImm) and x.extent.value == 1):
                ana.bind(x.loop_var, known[x.loop_var])
        if isinstance(x, Block):
            for iv in x.iter_vars:
                if iv.dom is not None:
                    known[iv.var] = iv.dom
                    if not (isinstance(iv.dom.extent, IntImm) and iv.dom.extent.value == 1):
                        ana.bind(iv.var, iv.dom)
        return x if x.identity else map_children(x, visit)

    return visit(block)


def _is_index(e: Any) -> bool:
    """Is it made of integer arithmetic alone?"""
    from tilewright.arith.expr import BinaryOp, Cast
    from tilewright.ir.node import children

    if isinstance(e, (Var, IntImm)):
        return True
    return isinstance(e, (BinaryOp, Cast)) and all(_is_index(c) for c in children(e))
