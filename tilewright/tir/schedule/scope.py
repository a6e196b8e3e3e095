"""Blocks of one scope and how they depend on each other, and the properties that primitives ask of them.

A scope is a block with the blocks that stand in it and in no other block of it, in program order. An *edge* says that one
block must run before another: the later reads what the earlier wrote (RAW), writes it again (WAW), or overwrites what the
earlier read (WAR).

- *dominant*: the only block of the scope that writes its buffers.
- *complete*: all axes spatial, dominant, reads nothing that it writes.
- *reduction*: has an init, axes spatial or reduce, dominant, stores at spatial axes only, affine bindings.
- *affine binding*: no two iterations of the loops around run the block at the same point.
- *region cover*: what a block reads of its producers has been made, at each loop that holds both.
- *stage pipeline*: only RAW and WAW edges, and every block of the scope has region cover.
- *compact dataflow*: in a part of a scope, every block is complete or a reduction.

Each `why_not_...` gives the reason as text, or None where the property holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.int_set import estimate_region_lower_bound, estimate_region_upper_bound
from tilewright.arith.iter_map import detect_iter_map
from tilewright.ir.node import walk
from tilewright.ir.rewrite import substitute
from tilewright.tir.analysis.regions import accesses
from tilewright.tir.ir import BlockRealize, Buffer, BufferRegion, For, IterVar, PrimFunc, Range, Stmt
from tilewright.tir.schedule.state import Path, Place, State, linear_form, nearest_blocks

__all__ = [
    "DepKind", "Edge", "Scope", "blocks_of", "buffers_of", "open_blocks", "has_region_cover", "is_affine", "is_output", "loops_in_scope", "scope_of",
    "scope_path", "why_not_compact", "why_not_complete", "why_not_dominant", "why_not_reduction", "why_not_stage_pipeline",
]  # fmt: skip


class DepKind(IntEnum):
    """How one block depends on an earlier one."""

    RAW = 0
    WAW = 1
    WAR = 2
    OPAQUE = 3


class Edge(NamedTuple):
    """`dst` depends on `src`, which runs before it."""

    src: BlockRealize
    dst: BlockRealize
    kind: DepKind


def scope_path(path: Path) -> Path:
    """The way to the block that the block (or loop) at the end of `path` stands in; empty for the root block."""
    for i in range(len(path) - 2, -1, -1):
        if isinstance(path[i], BlockRealize):
            return path[: i + 1]
    return []


def loops_in_scope(path: Path) -> list[For]:
    """The loops around the end of `path`, inside the scope that it stands in, outermost first."""
    return [p for p in path[len(scope_path(path)) : -1] if isinstance(p, For)]


def blocks_of(scope: BlockRealize) -> list[BlockRealize]:
    """The blocks of a scope, in program order."""
    first = [] if scope.block.init is None else nearest_blocks(scope.block.init)
    return [*first, *nearest_blocks(scope.block.body)]


def buffers_of(b: BlockRealize) -> tuple[list[Buffer], list[Buffer]]:
    """The buffers that a block reads and writes; of a block that declares nothing, those of what is inside."""
    block = b.block
    if block.reads or block.writes or block.iter_vars:
        return list(dict.fromkeys(r.buffer for r in block.reads)), list(dict.fromkeys(w.buffer for w in block.writes))
    reads, writes, opaque = accesses(block)
    return [*reads, *(x for x in opaque if x not in reads)], [*writes, *(x for x in opaque if x not in writes)]


def open_blocks(s: Stmt) -> list[BlockRealize]:
    """The blocks of a statement, those in blocks without iterators instead of these."""
    out: list[BlockRealize] = []
    for b in nearest_blocks(s):
        inner = [] if b.block.iter_vars else open_blocks(b.block.body)
        out += inner or [b]
    return out


class Scope:
    """A scope's blocks, the edges between them, and who writes which buffer."""

    def __init__(self, blocks: Sequence[BlockRealize]) -> None:
        self.blocks = list(blocks)
        self.edges: list[Edge] = []
        self.writers: dict[Buffer, list[BlockRealize]] = {}
        readers: dict[Buffer, list[BlockRealize]] = {}
        for b in self.blocks:
            read, written = buffers_of(b)
            for kind, buffers, before in (
                (DepKind.RAW, read, self.writers),
                (DepKind.WAW, written, self.writers),
                (DepKind.WAR, written, readers),
            ):
                for buffer in buffers:
                    self.edges += [Edge(src, b, kind) for src in before.get(buffer, ())]
            for buffers, table in ((read, readers), (written, self.writers)):
                for buffer in buffers:
                    table.setdefault(buffer, []).append(b)

    def producers(self, b: BlockRealize) -> list[BlockRealize]:
        """The blocks that `b` needs, each once."""
        found = [e.src for e in self.edges if e.dst is b and e.kind in (DepKind.RAW, DepKind.WAW)]
        return list({id(x): x for x in found}.values())

    def consumers(self, b: BlockRealize) -> list[BlockRealize]:
        """The blocks that need `b`, each once."""
        found = [e.dst for e in self.edges if e.src is b and e.kind in (DepKind.RAW, DepKind.WAW)]
        return list({id(x): x for x in found}.values())


def scope_of(s: State, rv: Place) -> Scope:
    """The scope that a block or loop stands in."""
    above = scope_path(s.path(rv))
    if not above:
        return Scope([])
    realize = above[-1]
    assert isinstance(realize, BlockRealize)
    return Scope(blocks_of(realize))


# ---- properties ------------------------------------------------------------------------------------------------------


def why_not_dominant(scope: Scope, b: BlockRealize) -> str | None:
    """What else writes the block's buffers."""
    for w in b.block.writes:
        for other in scope.writers.get(w.buffer, ()):
            if other is not b:
                return f"{w.buffer.name} is written by {other.block.name_hint!r} too"
    return None


def why_not_complete(scope: Scope, b: BlockRealize) -> str | None:
    """What keeps a block from being complete."""
    for iv in b.block.iter_vars:
        if iv.iter_type != IterVar.DataPar:
            return f"its axis {iv.var.name!r} is not spatial"
    why = why_not_dominant(scope, b)
    if why is None:
        read = {r.buffer for r in b.block.reads}
        why = next((f"it reads {w.buffer.name}, which it writes" for w in b.block.writes if w.buffer in read), None)
    return why


def why_not_reduction(scope: Scope, b: BlockRealize, loops: Sequence[For] = ()) -> str | None:
    """What keeps a block from being a reduction; `loops` are those around it in the scope."""
    block = b.block
    if block.init is None:
        return "it has no init"
    reduced: set[Var] = set()
    for iv in block.iter_vars:
        if iv.iter_type not in (IterVar.DataPar, IterVar.CommReduce):
            return f"its axis {iv.var.name!r} is neither spatial nor reduce"
        if iv.iter_type == IterVar.CommReduce:
            reduced.add(iv.var)
    if not is_affine(b, loops):
        return "it may run twice at one point: what it is bound to is no affine map of the loops"
    why = why_not_dominant(scope, b)
    if why is not None:
        return why
    for w in block.writes:
        for r in w.region:
            if any(x in reduced for x in walk(r)):
                return f"it stores to {w.buffer.name} at a reduce axis"
    return None


def is_affine(b: BlockRealize, loops: Sequence[For]) -> bool:
    """Does each point of the block's domain come from one iteration of the loops at most, in steps of one?"""
    if not loops:
        return True
    ranges = {p.loop_var: Range(p.min, p.extent) for p in loops}
    if all(isinstance(v, (Var, IntImm)) for v in b.iter_values):
        used = [v for v in b.iter_values if isinstance(v, Var) and v in ranges]
        return len(used) == len(set(used))
    found = detect_iter_map(list(b.iter_values), ranges, b.predicate).indices
    if not found:
        return False
    return all(not x.args or (isinstance(x.args[0].scale, IntImm) and x.args[0].scale.value == 1) for x in found)


def why_not_compact(scope: Scope, part: Stmt, path_of: dict[int, list[For]] | None = None) -> str | None:
    """Why the part of a scope holds something else than complete blocks and reductions."""
    for b in nearest_blocks(part):
        first = why_not_complete(scope, b)
        if first is None:
            continue
        second = why_not_reduction(scope, b, (path_of or {}).get(id(b), ()))
        if second is not None:
            name = b.block.name_hint
            return f"the block {name!r} is neither a complete block ({first}) nor a reduction ({second})"
    return None


def is_output(f: PrimFunc, scope: BlockRealize, b: BlockRealize) -> bool:
    """Does the block write a buffer that outlives the scope?"""
    del f
    own = set(scope.block.alloc_buffers)
    return any(w.buffer not in own for w in b.block.writes)


# ---- regions ---------------------------------------------------------------------------------------------------------


def has_region_cover(s: State, func: str, scope: BlockRealize, b: BlockRealize) -> bool:
    """Has what the block reads of its producers been made, at each loop that holds both?"""
    table = Scope(blocks_of(scope))
    mine = s.path_to(func, b)
    limit = next(i for i, p in enumerate(mine) if p is scope)
    levels: dict[int, list[tuple[BlockRealize, list[For]]]] = {}
    for e in table.edges:
        if e.dst is not b or e.kind != DepKind.RAW:
            continue
        theirs = s.path_to(func, e.src)
        common = limit
        while common + 1 < min(len(mine), len(theirs)) and mine[common + 1] is theirs[common + 1]:
            common += 1
        while common > limit + 1 and not isinstance(mine[common], For):
            common -= 1
        levels.setdefault(common, []).append((e.src, [p for p in theirs[common + 1 : -1] if isinstance(p, For)]))
    ana = Analyzer()
    for p in mine:
        if isinstance(p, For):
            ana.bind(p.loop_var, Range(p.min, p.extent))
    for level, makers in levels.items():
        inner = [p for p in mine[level + 1 : -1] if isinstance(p, For)]
        for r in b.block.reads:
            if not _covered(r, b, inner, makers, ana):
                return False
    return True


def _bound(r: BufferRegion, b: BlockRealize) -> list[Range]:
    table = {iv.var: v for iv, v in zip(b.block.iter_vars, b.iter_values, strict=True)}
    return [Range(substitute(x.min, table), substitute(x.extent, table)) for x in r.region]


def _ranges(loops: Sequence[For]) -> dict[Var, Range]:
    return {p.loop_var: Range(p.min, p.extent) for p in loops}


def _covered(
    r: BufferRegion,
    b: BlockRealize,
    inner: Sequence[For],
    makers: Sequence[tuple[BlockRealize, list[For]]],
    ana: Analyzer,
) -> bool:
    """Do the makers together make what `b` reads of one buffer?"""
    if any(_plainly_covered(r, b, inner, w, maker, loops) for maker, loops in makers for w in maker.block.writes):
        return True
    made: list[list[tuple[PrimExpr, PrimExpr]] | None] = []
    for maker, loops in makers:
        for w in maker.block.writes:
            if w.buffer is r.buffer:
                if not _by_iterators(w, maker):
                    made.append(None)
                    continue
                found = estimate_region_lower_bound(_bound(w, maker), _ranges(loops), maker.predicate, ana)
                made.append(None if found is None else [(x.min_value, x.max_value) for x in found])  # pyright: ignore
    if not made:
        return True
    if r.region == () and all(m is not None for m in made):
        return True
    need = estimate_region_upper_bound(_bound(r, b), _ranges(inner), b.predicate, ana)
    for m in made:
        if m is None:
            continue
        if all(_inside(x.min_value, x.max_value, y, n, ana) for x, y, n in zip(need, m, r.buffer.shape, strict=True)):
            return True
    return False


def _plainly_covered(
    r: BufferRegion, b: BlockRealize, inner: Sequence[For], w: BufferRegion, maker: BlockRealize, loops: Sequence[For]
) -> bool:
    """Does one maker make all that is read, as far as sums with constant factors show it?"""
    if w.buffer is not r.buffer or not isinstance(maker.predicate, IntImm) or not _by_iterators(w, maker):
        return False
    made = _boxes(_bound(w, maker), loops, True)
    need = _boxes(_bound(r, b), inner, False)
    if made is None or need is None:
        return False
    for (p, a, m), (q, x, n), size in zip(made, need, r.buffer.shape, strict=True):
        whole = not p and isinstance(size, IntImm) and a <= 0 and a + m >= size.value
        if not whole and not (p == q and a <= x and x + n <= a + m):
            return False
    return True


def _boxes(region: Sequence[Range], loops: Sequence[For], exact: bool) -> list[tuple[dict[Var, int], int, int]] | None:
    """(terms of the start that stand still, its constant, the width) a dimension while the loops run; None where it is not
    known, or with `exact` where there may be gaps."""
    sizes: dict[Var, int] = {}
    for p in loops:
        if not (isinstance(p.extent, IntImm) and isinstance(p.min, IntImm) and p.min.value == 0 and p.extent.value > 0):
            return None
        sizes[p.loop_var] = p.extent.value
    used: set[Var] = set()
    out: list[tuple[dict[Var, int], int, int]] = []
    for d in region:
        form = linear_form(d.min)
        if form is None or not isinstance(d.extent, IntImm):
            return None
        width, start = d.extent.value, form[1]
        for v, c in sorted(((v, c) for v, c in form[0].items() if v in sizes), key=lambda x: abs(x[1])):
            if exact and (abs(c) > width or v in used):
                return None
            used.add(v)
            width += abs(c) * (sizes[v] - 1)
            start += min(c, 0) * (sizes[v] - 1)
        out.append(({v: c for v, c in form[0].items() if v not in sizes}, start, width))
    return out


def _by_iterators(w: BufferRegion, maker: BlockRealize) -> bool:
    """Does each run of the block write its own part: is every spatial iterator in the region?"""
    for iv in maker.block.iter_vars:
        unit = iv.dom is not None and isinstance(iv.dom.extent, IntImm) and iv.dom.extent.value == 1
        if iv.iter_type == IterVar.DataPar and not unit and not any(x is iv.var for r in w.region for x in walk(r)):
            return False
    return True


def _inside(low: object, high: object, box: tuple[object, object], size: PrimExpr, ana: Analyzer) -> bool:
    first, last = box
    if not isinstance(first, PrimExpr) or not isinstance(last, PrimExpr):
        return False
    zero = ana.can_prove(first <= 0) if not isinstance(first, IntImm) else first.value <= 0
    below = zero or (isinstance(low, PrimExpr) and ana.can_prove(first <= low))
    return below and (ana.can_prove(last >= size - 1) or (isinstance(high, PrimExpr) and ana.can_prove(last >= high)))


def why_not_stage_pipeline(s: State, func: str, scope: BlockRealize) -> str | None:
    """What keeps a scope from being a stage pipeline."""
    table = Scope(blocks_of(scope))
    for e in table.edges:
        if e.kind in (DepKind.WAR, DepKind.OPAQUE):
            return f"the block {e.dst.block.name_hint!r} overwrites what {e.src.block.name_hint!r} reads"
    for b in table.blocks:
        if not has_region_cover(s, func, scope, b):
            return f"not all that the block {b.block.name_hint!r} reads has been made where it runs"
    return None
