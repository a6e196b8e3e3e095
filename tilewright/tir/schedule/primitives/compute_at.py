"""Primitives that compute a block inside a loop of those who use it, or of those who make what it uses.

    for i: B[i] = f(i)                      for j: B[j : j + 2] = f(...)
    for j: C[j] = g(B[j], B[j + 1])   ▶            C[j] = g(B[j], B[j + 1])        compute_at(B, j)

What is needed (or made) within one iteration of the loop is a region of the buffer; the block's axes that make (or use) it
are found by inverting the indices. Axes run over no less than that; where they would leave their domain a predicate keeps
them in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import LE, LT, Call, IntImm, PrimExpr, Select, Var, cast, cmp, const, logical_and
from tilewright.arith.int_set import eval_range
from tilewright.arith.iter_map import detect_iter_map
from tilewright.ir.node import children, replace, walk
from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import Block, BlockRealize, Buffer, For, ForKind, IfThenElse, IterVar, Range, Stmt
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.caching import body_of, items_of, no_gaps, with_items
from tilewright.tir.schedule.primitives.flow import (
    check_complete,
    check_not_output,
    consumers,
    find_block,
    loops_below,
    paths_of,
    producers,
    scope_path,
)
from tilewright.tir.schedule.primitives.relax import Ends, block_ends, proves, shown, value_of
from tilewright.tir.schedule.primitives.solve import Domain, axis_domains
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, LoopRV, Path, State, conjuncts

__all__ = ["compute_at", "reverse_compute_at"]


class _Move:
    """One move: the block, the loop it goes to, and what stands around them."""

    def __init__(self, s: State, block: BlockRV, loop: LoopRV, up: bool) -> None:
        self.s, self.rv, self.up = s, block, up
        self.name = "compute_at" if up else "reverse_compute_at"
        self.code = "TW0433" if up else "TW0434"
        self.path, self.realize = find_block(s, block)
        self.loop_path = s.loop_path(loop)
        target = self.loop_path[-1]
        assert isinstance(target, For)
        self.loop = target
        self.scope = scope_path(self.path)
        self.everyone = paths_of(self.scope)
        self.producers = producers(self.everyone, self.path)
        self.consumers = consumers(self.everyone, self.path)
        self.ana = Analyzer()

    def fail(self, message: str, node: Any = None, **more: Any) -> Exception:
        """The error to raise."""
        return fail(self.code, message, self.s.func(self.rv.func), self.realize if node is None else node, **more)

    # ---- may it move? ----

    def check(self) -> None:
        """Raise ScheduleError unless the block may go to the loop."""
        root = self.s.func(self.rv.func)
        what = f"move the block {self.rv.name!r}"
        if scope_path(self.loop_path)[-1] is not self.scope[-1]:
            raise fail(
                "TW0431",
                f"cannot {what}: {self.name} requires the block and the loop {self.loop.loop_var.name!r} to stand in the "
                "same block scope",
                root,
                self.loop,
                choices=self.choices(),
            )
        if any(p is self.loop for p in self.path):
            raise fail(
                "TW0431",
                f"cannot {what}: the loop {self.loop.loop_var.name!r} is an ancestor of block {self.rv.name!r} already",
                root,
                self.loop,
                choices=self.choices(),
            )
        check_complete(self.s, self.rv, self.code, "move", or_reduction=True)
        if self.up:
            check_not_output(self.s, self.rv, self.code, "move")
        needed = self.consumers if self.up else self.producers
        kind = "consumer" if self.up else "producer"
        for p in needed:
            if not self.inside(p):
                raise self.fail(
                    f"{self.name} requires all the {kind}s of {self.rv.name!r} to stand under the loop "
                    f"{self.loop.loop_var.name!r}; {_name(p)!r} does not",
                    p[-1],
                    choices=self.choices(),
                )
        if not needed:
            raise fail(
                "TW0432",
                f"the loop {self.loop.loop_var.name!r} holds no {kind} of the block {self.rv.name!r} to move it to",
                root,
                self.loop,
                choices=self.choices(),
                hint=f"did you mean {'reverse_compute_at' if self.up else 'compute_at'}?",
            )
        self.check_order()

    def inside(self, p: Path) -> bool:
        """Does the block stand in the loop?"""
        return any(x is self.loop for x in p)

    def choices(self) -> list[str]:
        """The loops where the block could go: those around all its consumers (or producers), and not around itself."""
        needed = self.consumers if self.up else self.producers
        if not needed:
            return []
        found = [x for x in needed[0][len(self.scope) :] if isinstance(x, For)]
        return [
            x.loop_var.name
            for x in found
            if all(any(x is y for y in p) for p in needed) and not any(x is y for y in self.path)
        ]

    def check_order(self) -> None:
        """Nobody between the old and the new place may change what the block reads, or read what it writes before it does."""
        mine = next(i for i, p in enumerate(self.everyone) if p[-1] is self.realize)
        places = [i for i, p in enumerate(self.everyone) if self.inside(p)]
        first, last = min(places), max(places)
        passed = self.everyone[mine + 1 : last + 1] if self.up else self.everyone[first:mine]
        read = {r.buffer for r in self.realize.block.reads}
        written = {r.buffer for r in self.realize.block.writes}
        for p in passed:
            other = _block(p)
            changed = [r.buffer for r in other.writes if r.buffer in (read if self.up else written)]
            seen = [] if self.up else [r.buffer for r in other.reads if r.buffer in written]
            for b in [*changed, *seen]:
                raise self.fail(
                    f"cannot move the block {self.rv.name!r} past {other.name_hint!r}, which "
                    f"{'writes' if changed else 'reads'} {b.name}",
                    p[-1],
                )

    # ---- where in the loop? ----

    def position(self, index: int) -> int:
        """The place among the statements of the loop: after all producers and before all consumers in it."""
        items = items_of(body_of(self.loop))
        made = [i for i, x in enumerate(items) if any(any(x is y for y in p) for p in self.producers)]
        used = [i for i, x in enumerate(items) if any(any(x is y for y in p) for p in self.consumers)]
        first, last = max(made, default=-1) + 1, min(used, default=len(items))
        if first > last:
            raise self.fail(f"no place in the loop is after the producers and before the consumers of {self.rv.name!r}")
        if index == -1:
            return last
        if index == -2:
            return first
        if not first <= index <= last:
            raise self.fail(
                f"index must be -1 (last), -2 (first) or a place in [{first}, {last}] of the loop "
                f"{self.loop.loop_var.name!r}, got {index}",
                self.loop,
            )
        return index

    # ---- which part? ----

    def bind_around(self) -> None:
        """Tell the analyzer what is known around the new place."""
        f = self.s.func(self.rv.func)
        for b in f.buffer_map.values():
            for n in b.shape:
                if not isinstance(n, IntImm):
                    for v in walk(n):
                        if isinstance(v, Var):
                            self.ana.mark_global_non_neg_value(v - 1)
        for p in self.loop_path:
            if isinstance(p, For):
                self.ana.bind(p.loop_var, Range(p.min, p.extent))
            elif isinstance(p, BlockRealize):
                for iv in p.block.iter_vars:
                    if iv.dom is not None:
                        self.ana.bind(iv.var, iv.dom)

    def required(self) -> dict[Buffer, list[Ends]]:
        """What one iteration of the loop reads of (or makes of) each buffer that the block makes (or reads)."""
        block = self.realize.block
        mine = {r.buffer for r in (block.writes if self.up else block.reads)}
        out: dict[Buffer, list[Ends]] = {}
        for p in self.consumers if self.up else self.producers:
            realize = p[-1]
            assert isinstance(realize, BlockRealize)
            inner = loops_below(p, self.loop)
            for r in realize.block.reads if self.up else realize.block.writes:
                if r.buffer not in mine:
                    continue
                shared = self.shared_loops(r.buffer) if self.up else []
                bare = replace(realize, predicate=IntImm("bool", 1))
                ends = block_ends(bare, r, [*shared, *inner], self.ana)
                old = out.get(r.buffer)
                out[r.buffer] = ends if old is None else [self.union(a, b) for a, b in zip(old, ends, strict=True)]
        return out

    def shared_loops(self, buffer: Buffer) -> list[For]:
        """The loops over threads around the place whose threads share the buffer: all that they need is made together."""
        scope = buffer.scope()
        if scope == "global" or scope.startswith("global."):
            return []
        found: list[For] = []
        for p in self.loop_path:
            tag = p.thread_binding.thread_tag if isinstance(p, For) and p.thread_binding is not None else ""
            shares = tag.startswith(("threadIdx", "vthread")) if scope.startswith("shared") else False
            if scope.startswith("warp"):
                shares = tag == "threadIdx.x"
            if shares and isinstance(p, For):
                found.append(p)
        return found

    def union(self, a: Ends, b: Ends) -> Ends:
        """The hull of two ranges."""
        if a is None or b is None:
            return None
        low = a[0] if proves(self.ana, a[0] <= b[0]) else b[0] if proves(self.ana, b[0] <= a[0]) else None
        high = a[1] if proves(self.ana, a[1] >= b[1]) else b[1] if proves(self.ana, b[1] >= a[1]) else None
        return None if low is None or high is None else (low, high)

    # ---- moving ----

    def nest(self, domains: Sequence[Domain], preserve_unit_loops: bool) -> Stmt:
        """The block with new loops around it."""
        block = self.realize.block
        loops: list[tuple[Var, PrimExpr]] = []
        values: list[PrimExpr] = []
        predicate: PrimExpr = IntImm("bool", 1)
        for iv, d in zip(block.iter_vars, domains, strict=True):
            assert iv.dom is not None
            low = self.ana.simplify(cast(d.low, iv.var.dtype))
            extent = self.ana.simplify(cast(d.high, iv.var.dtype) - low + 1)
            if preserve_unit_loops or value_of(extent) != 1:
                v = Var(f"ax{len(loops)}", iv.var.dtype)
                loops.append((v, extent))
                self.ana.bind(v, Range(const(0, v.dtype), extent))
                values.append(v if value_of(low) == 0 else low + v)
            else:
                values.append(low)
            first, end = iv.dom.min, iv.dom.min + iv.dom.extent
            for limit in (cmp(LE, first, values[-1]), cmp(LT, values[-1], end)):
                if not proves(self.ana, limit):
                    predicate = logical_and(predicate, shown(self.ana.simplify(limit)))
        predicate = self.keep_condition(values, predicate)
        self.check_once(domains, values, loops, predicate)
        out: Stmt = BlockRealize(tuple(values), predicate, block)
        for v, extent in reversed(loops):
            out = For(v, const(0, v.dtype), extent, ForKind.SERIAL, out)
        return out

    def keep_condition(self, values: Sequence[PrimExpr], predicate: PrimExpr) -> PrimExpr:
        """The predicate with those conditions of the old one that say more than that the axes stay in their domains."""
        block = self.realize.block
        old = Analyzer()
        for p in self.path:
            if isinstance(p, For):
                old.bind(p.loop_var, Range(p.min, p.extent))
        where: dict[Any, PrimExpr] = {}
        limits: list[PrimExpr] = []
        for iv, before, now in zip(block.iter_vars, self.realize.iter_values, values, strict=True):
            if isinstance(before, Var):
                where.setdefault(before, now)
            assert iv.dom is not None
            limits += [cmp(LE, iv.dom.min, before), cmp(LT, before, iv.dom.min + iv.dom.extent)]
        above = {p.loop_var for p in self.loop_path if isinstance(p, For)}
        mine = {p.loop_var for p in self.path if isinstance(p, For)} - above
        for part in conjuncts(self.realize.predicate):
            if any(_follows(old, limit, part) for limit in limits):
                continue
            if any(x in mine and x not in where for x in walk(part)):
                raise self.fail(
                    f"cannot move the block {self.rv.name!r}: its condition {part} is in terms of loops that it leaves"
                )
            predicate = logical_and(predicate, substitute(part, {v: e for v, e in where.items() if v in mine}))
        return predicate

    def check_once(
        self,
        domains: Sequence[Domain],
        values: Sequence[PrimExpr],
        loops: Sequence[tuple[Var, PrimExpr]],
        predicate: PrimExpr,
    ) -> None:
        """A reduction that is taken apart over iterations of the loop must add each element once."""
        block = self.realize.block
        reduced = [
            v
            for iv, d, v in zip(block.iter_vars, domains, values, strict=True)
            if iv.iter_type != IterVar.DataPar and not d.whole
        ]
        if not reduced:
            return
        around = [p for p in self.loop_path[len(self.scope) :] if isinstance(p, For)]
        first = next((i for i, p in enumerate(around) if any(x is p.loop_var for e in reduced for x in walk(e))), None)
        ranges: dict[Var, Range] = {}
        for p in around if first is None else around[first:]:
            ranges[p.loop_var] = Range(p.min, p.extent)
        for v, n in loops:
            ranges[v] = Range(const(0, v.dtype), n)
        moving = {v: r for v, r in ranges.items() if value_of(r.extent) != 1}
        whole = value_of(predicate) == 1  # under a condition digits may be cut
        found = detect_iter_map(list(values), moving if whole else ranges, predicate, require_bijective=whole)
        used = {x for e in values for x in walk(e)}
        if not found.indices or any(v not in used for v in moving):
            raise self.fail(
                f"cannot move the block {self.rv.name!r}: its reduction would be split over iterations of "
                f"{self.loop.loop_var.name!r} that do not take each element once"
            )

    def put(self, nest: Stmt, position: int) -> None:
        """Take the block away from its old place and put it into the loop."""
        items = items_of(body_of(self.loop))
        items.insert(position, nest)
        grown = replace(self.loop, body=with_items(body_of(self.loop), items))
        self.s.put(self.rv.func, self.loop_path, grown)
        self.s.put(self.rv.func, _old_path(self.s, self.rv, self.path, nest), None)


def _old_path(s: State, rv: BlockRV, path: Path, nest: Stmt) -> Path:
    """The way to the outermost statement that holds nothing but the old block (the new one, in `nest`, is there already)."""
    realize = path[-1]

    def visit(x: Stmt, above: Path) -> Path | None:
        here = [*above, x]
        if x is realize:
            return here
        if x is nest:
            return None
        for c in children(x):
            if isinstance(c, Stmt):
                found = visit(c, here)
                if found is not None:
                    return found
        return None

    found = visit(s.func(rv.func).body, [])
    assert found is not None
    end = len(found)
    while end >= 2 and isinstance(found[end - 2], For):
        end -= 1
    return found[:end]


def _name(p: Path) -> str:
    return _block(p).name_hint


def _block(p: Path) -> Block:
    realize = p[-1]
    assert isinstance(realize, BlockRealize)
    return realize.block


def _follows(ana: Analyzer, limit: PrimExpr, part: PrimExpr) -> bool:
    with ana.constraint_scope(limit):
        return proves(ana, part)


def _move(s: State, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool, index: int, up: bool) -> None:
    m = _Move(s, block, loop, up)
    m.check()
    position = m.position(index)
    m.bind_around()
    required = m.required()
    made = m.realize.block.writes if up else m.realize.block.reads
    domains = axis_domains(m.realize.block, [r for r in made if r.buffer in required], required, m.ana)
    if not up:
        _check_cover(m)
        _check_made(m, domains, required)
    m.put(m.nest(domains, preserve_unit_loops), position)


def _check_cover(m: _Move) -> None:
    """What the consumer computes without reading what is made in the loop (under a condition) must not be lost: every
    element must read something of it."""
    if not any(_is_choice(x) for x in walk(m.realize.block.body)):
        return  # an element that reads what nobody makes has no meaning anyway
    block = m.realize.block
    axes = {iv.var: iv.dom for iv in block.iter_vars if iv.dom is not None}
    read = {r.buffer: r for r in block.reads}
    for p in m.producers:
        realize = p[-1]
        assert isinstance(realize, BlockRealize)
        loops = [x for x in p[len(m.scope) :] if isinstance(x, For)]
        for w in realize.block.writes:
            if w.buffer not in read:
                continue
            made = block_ends(realize, w, loops, m.ana)
            touched = all(_meets(r, ends, axes, m.ana) for r, ends in zip(read[w.buffer].region, made, strict=True))
            if not touched or not no_gaps(realize, w, loops):
                raise m.fail(
                    f"cannot move the block {m.rv.name!r}: it also computes elements that read nothing of {w.buffer.name} "
                    f"that {realize.block.name_hint!r} makes, and these would be left out"
                )


def _check_made(m: _Move, domains: Sequence[Domain], required: dict[Buffer, list[Ends]]) -> None:
    """What the block reads within an iteration must be made within it: memory may be given to each iteration anew."""
    axes: dict[Any, Any] = {iv.var: (d.low, d.high) for iv, d in zip(m.realize.block.iter_vars, domains, strict=True)}
    for r in m.realize.block.reads:
        made = required.get(r.buffer)
        if made is None:
            continue
        for x, ends in zip(r.region, made, strict=True):
            if ends is None:
                continue
            first = eval_range(x.min, axes, m.ana)
            last = eval_range(x.min + (cast(x.extent, x.min.dtype) - 1), axes, m.ana)
            if first is None or last is None or not _inside(first[0], last[1], ends, m.ana):
                raise m.fail(
                    f"cannot move the block {m.rv.name!r}: it reads more of {r.buffer.name} than one iteration of "
                    f"{m.loop.loop_var.name!r} makes",
                    m.loop,
                    choices=[],
                    hint="compute_at moves the producers to it instead, and makes what is needed",
                )


def _inside(low: PrimExpr, high: PrimExpr, ends: tuple[PrimExpr, PrimExpr], ana: Analyzer) -> bool:
    return proves(ana, cast(ends[0], low.dtype) <= low) and proves(ana, high <= cast(ends[1], high.dtype))


def _is_choice(x: Any) -> bool:
    return isinstance(x, (Select, IfThenElse)) or (
        isinstance(x, Call) and getattr(x.op, "name", "") == "tir.if_then_else"
    )


def _meets(r: Range, made: Ends, axes: dict[Var, Range], ana: Analyzer) -> bool:
    """Does the range meet what is made, wherever the axes are?"""
    first = eval_range(r.min, axes, ana)
    last = eval_range(r.min + (cast(r.extent, r.min.dtype) - 1), axes, ana)
    if made is None or first is None or last is None:
        return False
    return proves(ana, first[1] <= made[1]) and proves(ana, last[0] >= made[0])


@primitive
def compute_at(s: State, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1) -> None:
    """Compute a producer inside a loop of its consumers: each iteration makes just the part that it needs.

    All consumers must be inside the loop, and the block must be complete or a reduction, and no output. `index` is the
    place among the statements of the loop: -1 the last possible one, -2 the first. Raises ScheduleError TW0431 (the loop is
    not in the same scope, or around the block), TW0432 (no consumer there), TW0433.
    """
    _move(s, block, loop, preserve_unit_loops, index, True)


@primitive
def reverse_compute_at(
    s: State, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
) -> None:
    """Compute a consumer inside a loop of its producers: right after the part that it reads has been made.

    All producers must be inside the loop, and the block must be complete or a reduction. `index` is as of compute_at.
    Raises ScheduleError TW0431, TW0432 (no producer there), TW0434.
    """
    _move(s, block, loop, preserve_unit_loops, index, False)
