"""Stages that share their outer axes run row by row, so that what passes between them stays in cache.

A softmax is four stages over (row, column): maximum, exponential, sum, quotient. Here `row` becomes one loop around all
four, and the exponentials of one row need a row of memory only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.arith.expr import IntImm, Var
from tilewright.backends.llvm.schedules.halo import split_rows
from tilewright.backends.llvm.schedules.stages import Axis, Opaque, Program, Stage
from tilewright.ir.node import map_children, walk
from tilewright.ir.rewrite import substitute
from tilewright.ir.target import Target
from tilewright.tir.ir import Buffer, BufferLoad, decl_buffer
from tilewright.tir.lower.index import IndexSpace

__all__ = ["Cluster", "find_clusters"]

MIN_ROWS = 8
"""Fewer rows than this are no work to share among threads: such stages stay apart."""


@dataclass
class Cluster:
    """Stages under common loops `rows` (none: each stage has its own nest). `scratch`: buffers of one row's values."""

    stages: list[Stage | Opaque]
    rows: list[Axis] = field(default_factory=lambda: list[Axis]())
    scratch: list[Buffer] = field(default_factory=lambda: list[Buffer]())


def find_clusters(p: Program, target: Target) -> list[Cluster]:
    """The stages in order, neighbours with common rows joined; buffers that stay inside a cluster leave `p.temps`."""
    out: list[Cluster] = []
    i = 0
    while i < len(p.stages):
        strips = split_rows(p, p.stages[i], p.stages[i + 1], target) if i + 1 < len(p.stages) else None
        if strips is not None:
            copy = p.stages[i]
            assert isinstance(copy, Stage)
            p.temps.remove(copy.out)
            out.append(Cluster(list(strips.stages), strips.rows, [strips.strip]))
            i += 2
            continue
        best = (i + 1, 0)
        for j in range(i + 2, len(p.stages) + 1):
            k = _shared_axes(p.stages[i:j])
            if k == 0:
                break
            best = (j, k)
        j, k = best
        group = p.stages[i:j]
        out.append(_join(p, [s for s in group if isinstance(s, Stage)], k) if k else Cluster(list(group)))
        i = j
    return out


def _shared_axes(group: list[Stage | Opaque]) -> int:
    """How many leading axes all stages share, such that rows depend on no other row; 0 where it does not pay."""
    stages = [s for s in group if isinstance(s, Stage)]
    if len(stages) != len(group) or all(s.combine is None for s in stages):
        return 0
    space = IndexSpace()
    k = min(len(s.axes) for s in stages)
    for s in stages:
        same = 0
        while same < k and space.poly(s.axes[same].extent) == space.poly(stages[0].axes[same].extent):
            same += 1
        k = same
    made: dict[Buffer, Stage] = {s.out: s for s in stages}
    linked = False
    for i, s in enumerate(stages):
        k = min(k, _plain_prefix(s, s.index, k))
        for x in s.reads():
            producer = made.get(x.buffer)
            if producer is None:
                continue
            if producer is s or stages.index(producer) > i:
                return 0
            linked = True
            k = min(k, _plain_prefix(s, x.indices, k))
    rows = 1
    for a in stages[0].axes[:k]:
        rows *= MIN_ROWS if a.size is None else a.size
    if not linked or rows < MIN_ROWS or any(_shares_operands(s, k) for s in stages):
        return 0
    return k


def _shares_operands(s: Stage, k: int) -> bool:
    """Does a reduction use the same data for several rows, as a matrix product does? Then rows are better taken in tiles."""
    if s.combine is None:
        return False
    reduced = {a.var for a in s.reduce}
    rows = {a.var for a in s.axes[:k] if a.size != 1}
    for x in walk(s.value):
        if isinstance(x, BufferLoad):
            used = {v for i in x.indices for v in walk(i) if isinstance(v, Var)}
            if used & reduced and rows - used:
                return True
    return False


def _plain_prefix(s: Stage, indices: tuple[Any, ...], k: int) -> int:
    """How many of the first k indices are just the stage's own axes."""
    n = 0
    while n < k and n < len(indices) and _is_axis(s.axes[n], indices[n]):
        n += 1
    return n


def _is_axis(a: Axis, i: Any) -> bool:
    return i is a.var or (a.size == 1 and isinstance(i, IntImm) and i.value == 0)


def _join(p: Program, stages: list[Stage], k: int) -> Cluster:
    rows = [Axis(Var(a.var.name, a.var.dtype), a.extent) for a in stages[0].axes[:k]]
    inside = {s.out for s in stages}
    outside = {x.buffer for s in p.stages if s not in stages for x in s.reads()}
    outside |= {b for s in p.stages if isinstance(s, Opaque) for b in s.buffers}
    small: dict[Buffer, Buffer] = {}
    for b in list(p.temps):
        if b in inside and b not in outside:
            shape = b.shape[k:] or (IntImm(b.shape[0].dtype, 1),)
            small[b] = decl_buffer(shape, b.dtype, b.name)
            p.temps.remove(b)
    return Cluster([_in_row(s, rows, small) for s in stages], rows, list(small.values()))


def _in_row(s: Stage, rows: list[Axis], small: dict[Buffer, Buffer]) -> Stage:
    """The stage at one row: its first axes are the variables of the cluster's loops."""
    k = len(rows)
    mapping = {mine.var: row.var for mine, row in zip(s.axes, rows)}

    def cut(b: Buffer, indices: tuple[Any, ...]) -> tuple[Any, ...]:
        return indices[k:] or (IntImm(b.shape[0].dtype, 0),)

    def visit(x: Any) -> Any:
        if isinstance(x, BufferLoad):
            indices = tuple(visit(i) for i in x.indices)
            if x.buffer in small:
                return BufferLoad(small[x.buffer], cut(x.buffer, indices))
            return BufferLoad(x.buffer, indices)
        return x if x.identity else map_children(x, visit)

    def expr(e: Any) -> Any:
        return None if e is None else visit(substitute(e, mapping))

    index = tuple(substitute(i, mapping) for i in s.index)
    out = s.out
    if out in small:
        index, out = cut(out, index), small[out]
    return replace(
        s, axes=s.axes[k:], index=index, out=out, value=expr(s.value), init=expr(s.init), epilogue=expr(s.epilogue)
    )  # fmt: skip
