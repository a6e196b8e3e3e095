"""Make a block of a piece of a program: of a loop and what is in it, or of neighbouring blocks.

The iterators of the block inside are divided: what the loops outside move becomes an iterator of the new block, what the
loops inside move stays one of the old block.

    for i, j: block B(vi = i, vj = j)      ->     for i: block B_o(vi_o = i): for j: block B(vj_i = j)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var, logical_and
from tilewright.arith.iter_divide import subspace_divide
from tilewright.arith.iter_expr import normalize_iter_map_to_expr
from tilewright.ir.node import replace
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.ir.structure import structural_equal
from tilewright.tir.analysis.regions import RegionUnion, relax_range
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    For,
    IterVar,
    Range,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.lower.index import mentions
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.arguments import as_block
from tilewright.tir.schedule.primitives.layout_blocks import simplified
from tilewright.tir.schedule.primitives.reduction_block import scope_position
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, LoopRV, Path, State, conjuncts, nearest_blocks

__all__ = ["blockize", "blockized", "only_block"]


def _prepare(s: State, arguments: dict[str, Any]) -> None:
    target = arguments["target"]
    if isinstance(target, (list, tuple)):
        arguments["target"] = [as_block(s, b) for b in target]


@primitive(prepare=_prepare)
def blockize(s: State, target: LoopRV | Sequence[BlockRV], preserve_unit_iters: bool = True) -> BlockRV:
    """Make a block of a loop and the one block in it, or of several blocks of one scope with the loops that they do not
    share. Returns the new block, called `<name>_o`, or `outer_<names>_`.

    `preserve_unit_iters`: an iterator of extent 1 stays bound to its loop. Raises ScheduleError TW0487 where the loop holds
    several blocks, or the iterators cannot be divided into an outer and an inner part.
    """
    if isinstance(target, LoopRV):
        path = s.loop_path(target)
        inside = only_block(s, target, path[-1])
        block = BlockRV(inside.block.name_hint, target.func)
        made = blockized(s, block, s.block_path(block), path[-1], preserve_unit_iters)
        s.put(target.func, path, made)
        return BlockRV(made.block.name_hint, target.func)
    return _blockize_blocks(s, list(target), preserve_unit_iters)


def only_block(s: State, loop: LoopRV, stmt: Stmt) -> BlockRealize:
    """The block in a loop; there is one, and nothing else."""
    step = stmt
    while isinstance(step, For):
        step = step.body
    if isinstance(step, BlockRealize):
        return step
    inside = nearest_blocks(step)
    raise fail(
        "TW0487",
        f"the loop {loop.var.name!r} holds {len(inside)} blocks: {', '.join(b.block.name_hint for b in inside)}",
        s.func(loop.func),
        stmt,
        hint="give the list of the blocks instead",
    )


class _Divided:
    """A block whose iterators are divided at a loop: the iterators and values of the outer and the inner part."""

    def __init__(
        self,
        s: State,
        block: BlockRV,
        path: Path,
        inner_top: int,
        keep_units: bool,
        shared: Sequence[IterVar] | None = None,
    ) -> None:
        realize = path[-1]
        assert isinstance(realize, BlockRealize)
        self.realize = realize
        scope = scope_position(path)
        self.inner = [p for p in path[inner_top:] if isinstance(p, For)]
        outer = [p for p in path[scope:inner_top] if isinstance(p, For)]
        division = _division(realize, outer, self.inner, keep_units)
        if division is None:
            raise fail(
                "TW0487",
                f"the iterators of the block {block.name!r} cannot be divided between the loops "
                f"{_names(outer)} and the loops {_names(self.inner)}",
                s.func(block.func),
                self.inner[0] if self.inner else realize,
                hint="split the loops so that each iterator is `outer * extent + inner`, without a remainder",
            )
        pairs, self.outer_predicate, self.inner_predicate = division
        self.outer_iters: list[IterVar] = []
        self.outer_values: list[PrimExpr] = []
        self.inner_iters: list[IterVar] = []
        self.inner_values: list[PrimExpr] = []
        table: dict[Any, PrimExpr] = {}
        self.ranges: dict[Var, Range] = {}
        for n, (iv, (outer_value, outer_extent, inner_value, inner_extent)) in enumerate(
            zip(realize.block.iter_vars, pairs, strict=True)
        ):
            if shared is not None and n < len(shared):
                big = shared[n]
            else:
                big = IterVar(_from_zero(outer_extent), Var(f"{iv.var.name}_o", iv.var.dtype), iv.iter_type)
            self.outer_iters.append(big)
            self.outer_values.append(outer_value)
            self.ranges[big.var] = _from_zero(outer_extent)
            if _is_one(inner_extent):
                table[iv.var] = IntImm(iv.var.dtype, 0) if _is_one(outer_extent) and not keep_units else big.var
                continue
            small = IterVar(_from_zero(inner_extent), Var(f"{iv.var.name}_i", iv.var.dtype), iv.iter_type)
            self.inner_iters.append(small)
            self.inner_values.append(inner_value)
            self.ranges[small.var] = _from_zero(inner_extent)
            table[iv.var] = small.var if _is_one(outer_extent) else big.var * inner_extent + small.var
        self.block = simplified(substitute(replace(realize.block, iter_vars=()), table), self.ranges)

    def inner_nest(self) -> Stmt:
        """The old block over its inner iterators, in its loops."""
        b = self.block
        reads = b.reads
        if b.init is not None:
            written = {w.buffer for w in b.writes}
            reads = (*b.writes, *(r for r in b.reads if r.buffer not in written))
        inner = replace(b, iter_vars=tuple(self.inner_iters), init=None, reads=reads)
        out: Stmt = BlockRealize(tuple(self.inner_values), self.inner_predicate, inner)
        for p in reversed(self.inner):
            out = replace(p, body=out)
        return out

    def init_nest(self, name: str) -> Stmt | None:
        """The init of the old block over the inner iterators that are spatial, in loops of its own."""
        if self.block.init is None:
            return None
        kept = [
            (iv, v)
            for iv, v in zip(self.inner_iters, self.inner_values, strict=True)
            if iv.iter_type == IterVar.DataPar
        ]
        fresh = {iv.var: Var(f"{iv.var.name}_init", iv.var.dtype) for iv, _ in kept}
        loops = [p for p in self.inner if any(mentions(v, p.loop_var) for _, v in kept)]
        moved = {p.loop_var: Var(f"{p.loop_var.name}_init", p.loop_var.dtype) for p in loops}
        dropped = [p.loop_var for p in self.inner if p.loop_var not in moved]
        predicate = self.inner_predicate
        if any(mentions(predicate, v) for v in dropped):
            predicate = _without(predicate, dropped, list(moved))
        block = Block(
            tuple(replace(iv, var=fresh[iv.var]) for iv, _ in kept), (), tuple(substitute(w, fresh) for w in self.block.writes),
            name, substitute(self.block.init, fresh),
        )  # fmt: skip
        out: Stmt = BlockRealize(tuple(substitute(v, moved) for _, v in kept), substitute(predicate, moved), block)
        for p in reversed(loops):
            thread = p.thread_binding and replace(p.thread_binding, var=replace(p.thread_binding.var))
            out = replace(p, loop_var=moved[p.loop_var], body=out, thread_binding=thread)
        return out

    def regions(self, regions: Sequence[BufferRegion], unions: dict[Buffer, RegionUnion]) -> None:
        """Add the regions, over all of the inner iterators."""
        domains = {iv.var: (iv.dom.min, iv.dom.extent) for iv in self.inner_iters if iv.dom is not None}
        for r in regions:
            box = [relax_range(d.min, d.extent, domains) for d in r.region]
            unions.setdefault(r.buffer, RegionUnion(r.buffer)).add(box)


def blockized(s: State, block: BlockRV, path: Path, top: Stmt, keep_units: bool) -> BlockRealize:
    """The block that holds `top` (a loop around the block at the end of `path`, or its realization itself)."""
    position = next(i for i, p in enumerate(path) if p is top)
    d = _Divided(s, block, path, position, keep_units)
    name = s.unique(block.func, f"{block_name(d)}_o")
    return _outer(s, block.func, [d], d.inner_nest(), name)


def block_name(d: _Divided) -> str:
    return d.realize.block.name_hint


def _outer(s: State, func: str, parts: Sequence[_Divided], body: Stmt, name: str) -> BlockRealize:
    reads: dict[Buffer, RegionUnion] = {}
    writes: dict[Buffer, RegionUnion] = {}
    for d in parts:
        d.regions(d.block.reads, reads)
        d.regions(d.block.writes, writes)
    first = parts[0]
    ana = Analyzer()
    for v, r in first.ranges.items():
        if not _is_one(r.extent):
            ana.bind(v, r)

    def simple(unions: Mapping[Buffer, RegionUnion]) -> tuple[BufferRegion, ...]:
        return tuple(
            BufferRegion(b, tuple(Range(ana.simplify(d.min), ana.simplify(d.extent)) for d in u.ranges()))
            for b, u in unions.items()
        )

    inits = [d.init_nest(s.unique(func, f"{block_name(d)}_init")) for d in parts]
    init = seq(*(i for i in inits if i is not None)) if any(i is not None for i in inits) else None
    block = Block(tuple(first.outer_iters), simple(reads), simple(writes), name, body, init)
    return BlockRealize(tuple(first.outer_values), first.outer_predicate, block)


def _division(
    realize: BlockRealize, outer: Sequence[For], inner: Sequence[For], keep_units: bool
) -> tuple[list[tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr]], PrimExpr, PrimExpr] | None:
    """((outer value, its extent, inner value, its extent) an iterator, the outer condition, the inner one); None where the
    values of the iterators do not divide so."""
    if any(not (isinstance(p.min, IntImm) and p.min.value == 0) for p in (*outer, *inner)):
        return None
    iters = {p.loop_var: Range(p.min, p.extent) for p in (*outer, *inner)}
    subs = [p.loop_var for p in inner]
    ana = Analyzer()
    for p in (*outer, *inner):
        if not (keep_units and _is_one(p.extent)):
            ana.bind(p.loop_var, iters[p.loop_var])
    found = subspace_divide(
        realize.iter_values, iters, subs, realize.predicate, "surjective", not keep_units, analyzer=ana
    )
    if found:
        pairs = [
            (normalize_iter_map_to_expr(a.source), a.extent, normalize_iter_map_to_expr(b.source), b.extent)
            for a, b in found[:-1]
        ]
        parts = _divided_predicate(realize.predicate, found[-1][0].extent, found[-1][1].extent, outer, subs, iters)
        if parts is not None and _same_values(realize, pairs, iters):
            return pairs, *parts
    return _plain_division(realize, [p.loop_var for p in outer], subs)


def _divided_predicate(
    predicate: PrimExpr,
    outside: PrimExpr,
    inside: PrimExpr,
    outer: Sequence[For],
    inner: Sequence[Var],
    iters: Mapping[Var, Range],
) -> tuple[PrimExpr, PrimExpr] | None:
    """The conditions of the outer and the inner space, with those parts of the predicate that the division left out; None
    where such a part depends on both."""
    ana = Analyzer()
    for v, r in iters.items():
        ana.bind(v, r)
    outer_vars = {p.loop_var for p in outer if not _is_one(p.extent)}
    inner_vars = {v for v in inner if not _is_one(iters[v].extent)}
    units = {v: r.min for v, r in iters.items() if _is_one(r.extent)}
    with ana.constraint_scope(logical_and(outside, inside)):
        left = [part for part in conjuncts(predicate) if not ana.can_prove(part)]
    for part in left:
        used = set(free_vars(part))
        if used & outer_vars and used & inner_vars:
            return None
        if used & inner_vars:
            inside = _and(inside, substitute(part, {v: e for v, e in units.items() if v not in inner}))
        else:
            outside = _and(outside, substitute(part, {v: e for v, e in units.items() if v in inner}))
    return outside, inside


def _same_values(
    realize: BlockRealize, pairs: Sequence[tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr]], iters: Mapping[Var, Range]
) -> bool:
    """Do the two parts of each iterator make up its value?"""
    ana = Analyzer()
    for v, r in iters.items():
        ana.bind(v, r)
    return all(
        ana.can_prove_equal(v, outside if _is_one(extent) else outside * extent + inside)
        for v, (outside, _, inside, extent) in zip(realize.iter_values, pairs, strict=True)
    )


def _and(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return b if isinstance(a, IntImm) and a.value else logical_and(a, b)


def _plain_division(
    realize: BlockRealize, outer: Sequence[Var], inner: Sequence[Var]
) -> tuple[list[tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr]], PrimExpr, PrimExpr] | None:
    """The division where each iterator depends on the outer loops alone or on the inner ones alone."""
    pairs: list[tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr]] = []
    true = IntImm("bool", 1)
    for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        used = set(free_vars(v))
        zero, one = IntImm(v.dtype, 0), IntImm(v.dtype, 1)
        if iv.dom is None or (used & set(outer) and used & set(inner)):
            return None
        if used & set(inner):
            pairs.append((zero, one, v, iv.dom.extent))
        else:
            pairs.append((v, iv.dom.extent, zero, one))
    used = set(free_vars(realize.predicate))
    if used & set(outer) and used & set(inner):
        return None
    if used & set(inner):
        return pairs, true, realize.predicate
    return pairs, realize.predicate, true


# ---- several blocks --------------------------------------------------------------------------------------------------


def _blockize_blocks(s: State, blocks: list[BlockRV], keep_units: bool) -> BlockRV:
    if not blocks:
        raise fail("TW0487", "no block is given")
    func = blocks[0].func
    paths = [s.block_path(b) for b in blocks]
    depth = 0
    while all(len(p) > depth + 1 for p in paths) and len({id(p[depth]) for p in paths}) == 1:
        depth += 1
    holder = paths[0][depth - 1]  # the innermost statement around all of them
    if len(blocks) == 1:
        holder = paths[0][-2]
    items = list(holder.seq) if isinstance(holder, SeqStmt) else None
    if items is None and len(blocks) > 1:
        raise fail("TW0487", "the blocks do not stand one after the other", s.func(func), paths[0][-1])
    tops = [next(x for i, x in enumerate(p) if i > 0 and p[i - 1] is holder) for p in paths]
    if items is not None:
        _check_neighbours(s, func, items, tops, blocks)
    parts: list[_Divided] = []
    for b, p, top in zip(blocks, paths, tops):
        position = next(i for i, x in enumerate(p) if x is top)
        parts.append(_Divided(s, b, p, position, keep_units, parts[0].outer_iters if parts else None))
        if parts[0] is not parts[-1] and not _alike(parts[0], parts[-1]):
            raise fail(
                "TW0487",
                f"the blocks {blocks[0].name!r} and {b.name!r} have different iterators outside the new block",
                s.func(func),
                p[-1],
            )
    name = s.unique(func, "outer_" + "".join(f"{d.realize.block.name_hint}_" for d in parts))
    made = _outer(s, func, parts, seq(*(d.inner_nest() for d in parts)), name)
    if items is None:
        s.put(func, s.block_path(blocks[0]), made)
    else:
        first = next(i for i, x in enumerate(items) if x is tops[0])
        path = paths[0][: next(i for i, x in enumerate(paths[0]) if x is holder) + 1]
        s.put(func, path, seq(*items[:first], made, *items[first + len(tops) :]))
    return BlockRV(name, func)


def _check_neighbours(s: State, func: str, items: list[Stmt], tops: list[Stmt], blocks: list[BlockRV]) -> None:
    where = [next(i for i, x in enumerate(items) if x is t) for t in tops]
    if where != list(range(where[0], where[0] + len(where))):
        raise fail(
            "TW0487",
            f"the blocks {', '.join(b.name for b in blocks)} do not stand one after the other in this order",
            s.func(func),
            tops[0],
        )
    for t, b in zip(tops, blocks):
        if len(nearest_blocks(t)) != 1:
            raise fail("TW0487", f"the loops of the block {b.name!r} hold other blocks too", s.func(func), t)


def _alike(a: _Divided, b: _Divided) -> bool:
    """Have two blocks the same iterators outside?"""
    if len(a.outer_iters) != len(b.outer_iters) or not structural_equal(a.outer_predicate, b.outer_predicate):
        return False
    return all(
        structural_equal(x, y) and structural_equal(a.ranges[m.var], b.ranges[n.var])
        for x, y, m, n in zip(a.outer_values, b.outer_values, a.outer_iters, b.outer_iters, strict=True)
    )


# ---- small things ----------------------------------------------------------------------------------------------------


def _from_zero(extent: PrimExpr) -> Range:
    return Range(IntImm(extent.dtype, 0), extent)


def _is_one(e: PrimExpr) -> bool:
    return isinstance(e, IntImm) and e.value == 1


def _names(loops: Sequence[For]) -> str:
    return ", ".join(repr(p.loop_var.name) for p in loops) or "(none)"


def _without(predicate: PrimExpr, dropped: Sequence[Var], kept: Sequence[Var]) -> PrimExpr:
    """The parts of a condition that do not depend on some loops. Raises ScheduleError TW0487 where a part depends on the
    others too."""
    out: PrimExpr = IntImm("bool", 1)
    for part in conjuncts(predicate):
        if not any(mentions(part, v) for v in dropped):
            out = _and(out, part)
        elif any(mentions(part, v) for v in kept):
            raise fail("TW0487", f"the init cannot be cut by {part}, which depends on a reduction loop too")
    return out
