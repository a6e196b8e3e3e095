"""A padded copy is made a few rows at a time, just before the convolution or pooling that reads them.

    pad = [whole padded picture]                  for block of rows:
    for h, ...: out[h] = f(pad[h*s + kh])    ▶        strip = [the rows of `pad` that the block needs]
                                                      for h in block: out[h] = f(strip[...])

The strip stays in cache; the rows where blocks overlap are made twice. Done for sizes known at compile time, where the copy
does not fit the cache and the weights do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.arith.expr import PrimExpr, Var, add, const, mul
from tilewright.backends.llvm.schedules.inline import consumers, is_plain
from tilewright.backends.llvm.schedules.stages import Axis, Program, Stage
from tilewright.ir import dtype as dt
from tilewright.ir.node import map_children, walk
from tilewright.ir.rewrite import substitute
from tilewright.ir.target import Target
from tilewright.tir.ir import Buffer, BufferLoad, decl_buffer
from tilewright.tir.lower.index import IndexSpace

__all__ = ["Strips", "split_rows"]

SMALL = 128 * 1024
"""A copy of fewer bytes than this is made at once."""
OVERLAP = 1.7
"""How much more may be copied, for the rows that blocks share."""


class Strips:
    """The two stages over one block of rows, the loops around them, and the strip's buffer."""

    def __init__(self, rows: list[Axis], stages: list[Stage], strip: Buffer) -> None:
        self.rows, self.stages, self.strip = rows, stages, strip


def split_rows(p: Program, copy: Any, user: Any, target: Target) -> Strips | None:
    """`copy` (a map that `user`, a reduction, reads) in blocks of rows; None where that is not possible or does not pay."""
    if not isinstance(copy, Stage) or not isinstance(user, Stage) or user.combine is None or not is_plain(copy):
        return None
    if copy.out not in p.temps or any(s is not user for s, _ in consumers(p, copy.out)):
        return None
    if any(a.size is None for a in [*copy.axes, *user.axes, *user.reduce]):
        return None
    loads = [x for x in user.reads() if x.buffer is copy.out]
    inside = [x for x in walk(user.value) if isinstance(x, BufferLoad) and x.buffer is copy.out]
    if len(loads) != 1 or len(inside) != 1 or not _pays(copy, user, target):
        return None
    load = loads[0]
    shared = 0
    while shared < min(len(user.axes), len(load.indices)) - 1 and _same_axis(copy, user, load, shared):
        shared += 1
    found = _window(user, load, shared)
    if found is None:
        return None
    step, reach, start = found
    height = _height(copy, user, shared, step, reach, target)
    return None if height is None else _build(copy, user, load, shared, height, step, reach, start)


def _bytes(b: Buffer) -> int:
    total = dt.storage_bytes(b.dtype)
    for n in b.shape:
        total *= getattr(n, "value", 1)
    return total


def _pays(copy: Stage, user: Stage, target: Target) -> bool:
    weights = sum(_bytes(x.buffer) for x in walk(user.value) if isinstance(x, BufferLoad) and x.buffer is not copy.out)
    return _bytes(copy.out) >= SMALL and weights <= target.l2_bytes // 2


def _same_axis(copy: Stage, user: Stage, load: BufferLoad, d: int) -> bool:
    """Is dimension d of the copy just axis d of the user?"""
    axis = user.axes[d]
    whole = load.indices[d] is axis.var and copy.axes[d].size == axis.size
    return whole and not any(axis.var is v for i in load.indices[d + 1 :] for v in walk(i))


def _window(user: Stage, load: BufferLoad, d: int) -> tuple[int, int, int] | None:
    """(step, reach, start) where the index is row*step + start + [0, reach) over the reduction."""
    row = user.axes[d]
    if any(row.var is v for i in load.indices[d + 1 :] for v in walk(i)):
        return None
    space = IndexSpace()
    p = dict(space.poly(load.indices[d]))
    start = p.pop((), 0)
    step = p.pop((space.atom(row.var),), 0)
    reach = 1
    sizes = {space.atom(a.var): a.size or 0 for a in user.reduce}
    for mono, c in p.items():
        if len(mono) != 1 or mono[0] not in sizes or c < 0:
            return None
        reach += c * (sizes[mono[0]] - 1)
    return (step, reach, start) if step > 0 and start >= 0 else None


def _height(copy: Stage, user: Stage, d: int, step: int, reach: int, target: Target) -> int | None:
    """How many rows of the result a block has: as many as fit the cache, so that there is work for all threads."""
    size = user.axes[d].size or 0
    line = dt.storage_bytes(copy.out.dtype)
    for a in copy.axes[d + 1 :]:
        line *= a.size or 0
    around = 1
    for a in user.axes[:d]:
        around *= a.size or 0
    for height in range(size, 1, -1):
        strip = (height - 1) * step + reach
        if size % height or strip * line > target.l2_bytes // 2 or around * (size // height) < 4:
            continue
        return height if strip <= OVERLAP * height * step else None
    return None


def _build(
    copy: Stage, user: Stage, load: BufferLoad, d: int, height: int, step: int, reach: int, start: int
) -> Strips:  # fmt: skip
    row = user.axes[d]
    dtype = row.var.dtype
    outer = [Axis(Var(a.var.name, a.var.dtype), a.extent) for a in user.axes[:d]]
    block = Axis(Var(f"{row.var.name}_block", dtype), const((row.size or 0) // height, dtype))
    lines = Axis(Var("line", dtype), const((height - 1) * step + reach, dtype))
    here = Axis(Var(row.var.name, dtype), const(height, dtype))
    strip = decl_buffer((lines.extent, *copy.out.shape[d + 1 :]), copy.out.dtype, copy.out.name)
    first = mul(block.var, const(height, dtype))
    origin = add(mul(first, const(step, dtype)), const(start, dtype))

    own: dict[Any, PrimExpr] = {a.var: o.var for a, o in zip(copy.axes[:d], outer)}
    own[copy.axes[d].var] = add(origin, lines.var)
    rest = copy.axes[d + 1 :]
    made = replace(
        copy,
        axes=[lines, *rest],
        out=strip,
        index=(lines.var, *(a.var for a in rest)),
        value=substitute(copy.value, own),
    )
    theirs: dict[Any, PrimExpr] = {a.var: o.var for a, o in zip(user.axes[:d], outer)}
    theirs[row.var] = add(first, here.var)
    local: dict[Any, PrimExpr] = {row.var: here.var}
    window = add(substitute(load.indices[d], local), const(-start, dtype))
    inner = BufferLoad(strip, (window, *(substitute(i, local) for i in load.indices[d + 1 :])))
    hole = Var("strip", load.dtype)

    def visit(x: Any) -> Any:
        if isinstance(x, BufferLoad) and x.buffer is copy.out:
            return hole
        return x if x.identity else map_children(x, visit)

    value = substitute(substitute(visit(user.value), theirs), {hole: inner})
    used = replace(
        user,
        axes=[here, *user.axes[d + 1 :]],
        index=tuple(substitute(i, theirs) for i in user.index),
        value=value,
        init=None if user.init is None else substitute(user.init, theirs),
        epilogue=None if user.epilogue is None else substitute(user.epilogue, theirs),
    )
    return Strips([*outer, block], [made, used], strip)
