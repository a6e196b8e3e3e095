"""Reductions with a contiguous result axis: matrix products, convolutions, pooling, sums over outer axes.

A tile of `rows` x `lanes` results is kept in registers while the reduction runs:

    for (outer points, blocks of columns, tiles of rows), shared among threads:
        acc[rows, lanes] = init
        for the reduction, the axis that the vector operand walks least far along innermost:
            acc[i, :] = acc[i, :] combine value(i, :)          rows unrolled, lanes one vector
        out[i, :] = epilogue(acc[i, :])                        bias, activation, residual: before the only store

The vector operand (weights) is loaded once for all rows of the tile. Row counts that the tile does not divide are cut into
nearly equal tiles, or, when there are many, the last tile is moved back to end with the axis (computing some points twice,
to the same values). Columns that do not fill a vector use a narrower one; loads outside the buffer are masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.arith.expr import (
    GE,
    GT,
    LT,
    FloorDiv,
    FloorMod,
    IntImm,
    PrimExpr,
    Var,
    add,
    ceildiv,
    cmp,
    const,
    floordiv,
    floormod,
    if_then_else,
    minimum,
    mul,
    sub,
)
from tilewright.backends.llvm.schedules.access import Access, merge_axes, packed_width, total
from tilewright.backends.llvm.schedules.elementwise import store
from tilewright.backends.llvm.schedules.loops import alloc, bind, local, loop, nest, parallel_nest, unrolled, vectorized
from tilewright.backends.llvm.schedules.stages import Axis, Stage
from tilewright.ir import dtype as dt
from tilewright.ir.node import map_children
from tilewright.ir.rewrite import substitute
from tilewright.ir.target import Target
from tilewright.tir.ir import BufferLoad, BufferStore, IfThenElse, Stmt, seq

__all__ = ["schedule_tiles"]

Env = dict[Any, PrimExpr]


@dataclass
class _Plan:
    """What was decided for a stage."""

    stage: Stage
    columns: Axis
    lanes: int
    rows: Axis | None
    height: int
    batch: list[Axis]
    """Axes that the vector operand depends on: always outermost."""
    others: list[Axis]
    """The remaining axes."""
    reduce: list[Axis]
    """In the order of the loops."""
    columns_outside: bool
    """Blocks of columns outside the rows: the vector operand is too large to stay in cache."""
    unroll: int
    blocks: int
    """Blocks of columns in one tile."""

    @property
    def dtype(self) -> str:
        return self.columns.var.dtype


def schedule_tiles(stage: Stage, target: Target, parallel: bool = True) -> Stmt | None:
    """Register-tiled loops for a reduction (flattened); None where no axis of the result allows it."""
    stage = merge_axes(stage)
    plan = _plan(stage, target)
    return None if plan is None else _Tiles(plan, parallel).build()


# ---- deciding --------------------------------------------------------------------------------------------------------


def _plan(stage: Stage, target: Target) -> _Plan | None:
    access = Access(stage)
    for columns in reversed(stage.axes):
        packed = packed_width(stage, columns.var)
        if packed is None and access.step(access.store, columns.var) != 1:
            continue
        if columns.size is not None and columns.size < 4 and packed is None:
            continue
        for lanes in _widths(stage, columns, packed, target):
            vectors = _vector_loads(stage, columns, lanes)
            if vectors is not None:
                return _decide(stage, access, columns, lanes, vectors, target)
    return None


def _widths(stage: Stage, columns: Axis, packed: int | None, target: Target) -> list[int]:
    """Vector lengths to try, best first."""
    bytes_ = max(4, dt.bits(stage.acc_dtype) // 8)
    best = max(4, 2 * target.vector_bytes // bytes_)
    if packed is not None:
        return [packed] if packed <= 4 * best else []
    out: list[int] = []
    while best >= 4:
        if columns.size is None or columns.size >= best or not out:
            if columns.size is None or columns.size > best // 2:
                out.append(best)
        best //= 2
    return out or [4]


def _vector_loads(stage: Stage, columns: Axis, lanes: int) -> list[int] | None:
    """The positions (in `value_loads`) of loads that are vectors along the columns; None where one is neither a vector nor
    the same in all lanes."""
    dtype = columns.var.dtype
    block, lane = Axis(Var("b", dtype), ceildiv(columns.extent, lanes)), Axis(Var("l", dtype), const(lanes, dtype))
    split = {columns.var: add(mul(block.var, lanes), lane.var)}
    probe = replace(
        stage,
        value=substitute(stage.value, split),
        index=tuple(substitute(i, split) for i in stage.index),
        init=None if stage.init is None else substitute(stage.init, split),
        epilogue=None if stage.epilogue is None else substitute(stage.epilogue, split),
    )
    access = Access(probe, [block, lane])
    out: list[int] = []
    for i, x in enumerate(access.value_loads):
        step = access.step(access.poly(x), lane.var)
        if step == 1:
            out.append(i)
        elif step != 0:
            return None
    return out if access.step(access.store, lane.var) == 1 else None


def _decide(stage: Stage, access: Access, columns: Axis, lanes: int, vectors: list[int], target: Target) -> _Plan:
    operands = [access.value_loads[i] for i in vectors]
    others = [a for a in stage.axes if a is not columns]
    uses = {a.var: sum(bool(access.stride(access.poly(x), a.var) != {}) for x in operands) for a in others}
    rows = _choose_rows(others, uses)
    tall = 6 if target.vector_bytes <= 32 and "neon" not in target.features else 12
    per_vector = max(1, lanes * dt.bits(stage.acc_dtype) // 8 // max(16, target.vector_bytes))
    height = max(1, tall * 2 // per_vector) if per_vector > 2 else tall
    weights = total([columns, *stage.reduce]) * 4
    many = rows is None or rows.size is None or rows.size > height
    if rows is not None:
        others.remove(rows)
    outside = bool(operands) and weights > target.l2_bytes // 2 and bool(many or total(others) > 4)
    batch = [a for a in others if operands and uses[a.var] == len(operands)]
    rest = [a for a in others if a not in batch]
    size = rows.size if rows is not None else 1
    blocks = 1
    if size is not None and size < 4:
        blocks = max(1, min(4, 6 // size))
    return _Plan(
        stage, columns, lanes, rows, height, batch, rest, _reduce_order(stage, access, operands), outside, 4, blocks
    )  # fmt: skip


def _choose_rows(others: list[Axis], uses: dict[Var, int]) -> Axis | None:
    """The axis that shares most vector loads, long enough, innermost."""
    best: Axis | None = None
    score = (-1, -1, -1)
    for i, a in enumerate(others):
        long = 2 if a.size is None or a.size >= 4 else 1 if a.size >= 2 else 0
        mine = (-uses[a.var] if long else -99, long, i)
        if long and (best is None or mine > score):
            best, score = a, mine
    return best


def _reduce_order(stage: Stage, access: Access, operands: Sequence[BufferLoad]) -> list[Axis]:
    """The reduction axes, the one with the longest steps outermost."""
    loads = list(operands) or access.value_loads

    def reach(a: Axis) -> int:
        steps = [access.stride(access.poly(x), a.var) for x in loads]
        known = [
            0 if s is None else max((abs(c) * (1 if not m else 1 << 20) for m, c in s.items()), default=0)
            for s in steps
        ]
        return max(known, default=0)

    return sorted(stage.reduce, key=reach, reverse=True)


# ---- building --------------------------------------------------------------------------------------------------------


class _Tiles:
    def __init__(self, plan: _Plan, parallel: bool) -> None:
        self.plan, self.parallel = plan, parallel
        self.masked = _mask_loads(plan.stage.value, plan.columns)

    def around(self, axes: list[Axis], body: Callable[[Env], Stmt]) -> Stmt:
        p = self.plan
        if not self.parallel:
            return nest(axes, body)
        work = total([*p.stage.axes, *p.stage.reduce]) // 4
        return parallel_nest(axes, work, body)

    def build(self) -> Stmt:
        """The whole nest."""
        p = self.plan
        n, lanes = p.columns.size, p.lanes
        if n is None:
            full: PrimExpr = floordiv(p.columns.extent, const(lanes, p.dtype))
            tail: PrimExpr = floormod(p.columns.extent, const(lanes, p.dtype))
        else:
            full, tail = const(n // lanes, p.dtype), const(n % lanes, p.dtype)
        rows = p.rows
        if rows is None or (rows.size is not None and rows.size <= p.height):
            height = 1 if rows is None else rows.size or 1
            return self.ordered(full, tail, None, lambda env, col: self.column(env, const(0, p.dtype), height, col))
        if (
            rows.size is not None
            and rows.size < 8 * p.height
            and (p.columns_outside or total([*p.batch, *p.others]) > 1)
        ):
            return self.ordered(full, tail, None, self.balanced)
        tall = self.moved_back(full, tail)
        if rows.size is not None:
            return tall
        single = Axis(rows.var, rows.extent)
        blocks, p.blocks = p.blocks, 3
        low = self.ordered(full, tail, single, lambda env, col: self.column(env, env[rows.var], 1, col))
        p.blocks = blocks
        return IfThenElse(cmp(GE, rows.extent, const(p.height, p.dtype)), tall, low)

    def moved_back(self, full: PrimExpr, tail: PrimExpr) -> Stmt:
        """Tiles of full height; the last one ends with the axis."""
        p = self.plan
        assert p.rows is not None
        height = const(p.height, p.dtype)
        exact = p.rows.size is not None and p.rows.size % p.height == 0
        axis = Axis(p.rows.var, ceildiv(p.rows.extent, height))
        last = sub(p.rows.extent, height)

        def at(env: Env, col: Callable[..., Stmt]) -> Stmt:
            start = mul(env[axis.var], height)
            if exact:
                return self.column(env, start, p.height, col)
            return bind("y", minimum(start, last), lambda y: self.column(env, y, p.height, col))

        return self.ordered(full, tail, axis, at)

    def balanced(self, env: Env, col: Callable[..., Stmt]) -> Stmt:
        """The rows in nearly equal tiles."""
        p = self.plan
        assert p.rows is not None
        assert p.rows.size is not None
        size = p.rows.size
        count = -(-size // p.height)
        big = -(-size // count)
        n_big = size - count * (big - 1)
        parts: list[Stmt] = [
            loop("y", const(n_big, p.dtype), lambda t: self.column(env, mul(t, const(big, p.dtype)), big, col))
        ]
        if count > n_big:
            done = const(n_big * big, p.dtype)
            step = const(big - 1, p.dtype)
            parts.append(
                loop(
                    "y",
                    const(count - n_big, p.dtype),
                    lambda t: self.column(env, add(done, mul(t, step)), big - 1, col),
                )
            )
        return seq(*parts)

    def column(self, env: Env, start: PrimExpr, height: int, col: Callable[..., Stmt]) -> Stmt:
        return col(env, start, height)

    def ordered(
        self, full: PrimExpr, tail: PrimExpr, row_axis: Axis | None, rows: Callable[[Env, Callable[..., Stmt]], Stmt]
    ) -> Stmt:
        """The loops over outer points, rows and blocks of columns in the order decided. `rows` gets what to do at a tile's
        first row: the blocks of columns, or the one block that an outer loop has chosen."""
        p = self.plan
        row_axes = [] if row_axis is None else [row_axis]
        plain = not row_axes and not p.others and not p.batch
        if p.columns_outside or plain:
            parts: list[Stmt] = []
            for first, count, blocks in self.groups(full):
                axis = Axis(Var("x", p.dtype), count)

                def block(env: Env, first: PrimExpr = first, blocks: int = blocks, axis: Axis = axis) -> Stmt:
                    b = add(first, mul(env.get(axis.var, const(0, p.dtype)), const(blocks, p.dtype)))
                    return rows(env, lambda e, start, h: self.tile(e, start, h, b, blocks, None))

                if not (isinstance(count, IntImm) and count.value == 0):
                    parts.append(self.around([*p.batch, axis, *p.others, *row_axes], block))
            if not (isinstance(tail, IntImm) and tail.value == 0):
                outer = [*p.batch, *p.others, *row_axes]
                last = self.around(outer, lambda env: rows(env, lambda e, s, h: self.tile(e, s, h, full, 1, tail)))
                parts.append(self.if_any(tail, last))
            return seq(*parts)

        def blocks_inside(env: Env, start: PrimExpr, height: int) -> Stmt:
            parts: list[Stmt] = []
            for first, count, blocks in self.groups(full):

                def block(x: PrimExpr, first: PrimExpr = first, blocks: int = blocks) -> Stmt:
                    return self.tile(env, start, height, add(first, mul(x, const(blocks, p.dtype))), blocks, None)

                if not (isinstance(count, IntImm) and count.value == 0):
                    parts.append(loop("x", count, block))
            if not (isinstance(tail, IntImm) and tail.value == 0):
                parts.append(self.if_any(tail, self.tile(env, start, height, full, 1, tail)))
            return seq(*parts)

        return self.around([*p.batch, *p.others, *row_axes], lambda env: rows(env, blocks_inside))

    def if_any(self, tail: PrimExpr, s: Stmt) -> Stmt:
        return s if isinstance(tail, IntImm) else IfThenElse(cmp(GT, tail, const(0, tail.dtype)), s)

    def groups(self, full: PrimExpr) -> list[tuple[PrimExpr, PrimExpr, int]]:
        """Blocks of columns in groups of `blocks`: (first block, number of groups, blocks in each)."""
        k = self.plan.blocks
        zero = const(0, full.dtype)
        if k == 1:
            return [(zero, full, 1)]
        if isinstance(full, IntImm):
            k = min(k, max(1, full.value))
        whole, rest = floordiv(full, const(k, full.dtype)), floormod(full, const(k, full.dtype))
        return [(zero, whole, k), (mul(whole, const(k, full.dtype)), rest, 1)]

    # ---- one tile ------------------------------------------------------------------------------------------------------

    def tile(self, env: Env, start: PrimExpr, height: int, block: PrimExpr, blocks: int, tail: PrimExpr | None) -> Stmt:
        """`height` rows from `start`, `blocks` blocks of columns from `block` (or the `tail` columns of the last one)."""
        p, stage = self.plan, self.plan.stage
        dtype = p.dtype
        lanes = p.lanes
        if isinstance(tail, IntImm):
            lanes = min(lanes, 1 << (tail.value - 1).bit_length())
        value = stage.value if tail is None or (isinstance(tail, IntImm) and tail.value == lanes) else self.masked
        acc = local("acc", height * blocks * lanes, stage.acc_dtype)

        def point(i: PrimExpr, j: PrimExpr, lane: PrimExpr) -> Env:
            column = add(mul(add(block, j), const(p.lanes, dtype)), lane)
            out: Env = {**env, p.columns.var: column}
            if p.rows is not None:
                out[p.rows.var] = add(start, i)
            return out

        def cell(i: PrimExpr, j: PrimExpr, lane: PrimExpr) -> PrimExpr:
            return add(mul(add(mul(i, const(blocks, dtype)), j), const(lanes, dtype)), lane)

        def each(body: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt], width: int = lanes) -> Stmt:
            def lane_loop(i: PrimExpr, j: PrimExpr) -> Stmt:
                return vectorized(width, dtype, lambda v: body(i, j, v)) if width > 1 else body(i, j, const(0, dtype))

            return unrolled("i", height, dtype, lambda i: unrolled("j", blocks, dtype, lambda j: lane_loop(i, j)))

        assert stage.init is not None
        init = stage.init
        begin = each(lambda i, j, v: BufferStore(acc, substitute(init, point(i, j, v)), (cell(i, j, v),)))

        def update(at: Env) -> Stmt:
            def one(i: PrimExpr, j: PrimExpr, v: PrimExpr) -> Stmt:
                index = (cell(i, j, v),)
                new = substitute(value, {**point(i, j, v), **at})
                return BufferStore(acc, stage.join(BufferLoad(acc, index), new), index)

            return each(one)

        def finish(i: PrimExpr, j: PrimExpr, v: PrimExpr) -> Stmt:
            return store(stage, stage.finished(BufferLoad(acc, (cell(i, j, v),))), point(i, j, v))

        body = [begin, self.reduction(update)]
        if tail is None:
            return alloc([acc], seq(*body, each(finish)))
        if isinstance(tail, IntImm):
            return alloc([acc], seq(*body, each(finish, tail.value)))
        # The number of columns is known at run time only: through a buffer that may be indexed by it.
        spill = local("spill", height * lanes, stage.acc_dtype)
        zero = const(0, dtype)
        copy = each(lambda i, j, v: BufferStore(spill, BufferLoad(acc, (cell(i, j, v),)), (cell(i, j, v),)))

        def last(i: PrimExpr, v: PrimExpr) -> Stmt:
            return store(stage, stage.finished(BufferLoad(spill, (cell(i, zero, v),))), point(i, zero, v))

        end = loop("i", const(height, dtype), lambda i: loop("l", tail, lambda v: last(i, v)))
        return alloc([acc, spill], seq(*body, copy, end))

    def reduction(self, update: Callable[[Env], Stmt]) -> Stmt:
        """The loops of the reduction, the innermost unrolled a little."""
        p = self.plan
        if not p.reduce:
            return update({})
        *outer, inner = p.reduce
        dtype = inner.var.dtype
        k = p.unroll
        size = inner.size

        def innermost(env: Env) -> Stmt:
            def chunk(first: PrimExpr, n: int) -> Stmt:
                return unrolled("k", n, dtype, lambda u: update({**env, inner.var: add(first, u)}))

            if size is not None and size <= k:
                return chunk(const(0, dtype), size)
            step = const(k, dtype)
            whole, rest = floordiv(inner.extent, step), floormod(inner.extent, step)
            parts = [loop("k", whole, lambda t: chunk(mul(t, step), k))]
            if size is None:
                first = mul(whole, step)
                parts.append(loop("k", rest, lambda t: chunk(add(first, t), 1)))
            elif size % k:
                parts.append(chunk(const(size - size % k, dtype), size % k))
            return seq(*parts)

        return nest(outer, innermost)


def _mask_loads(e: PrimExpr, columns: Axis) -> PrimExpr:
    """The value with every load that would leave its buffer beyond the last column made conditional."""
    inside = cmp(LT, columns.var, columns.extent)

    def bare(x: Any) -> bool:
        """Does the address mention the column other than as (column // n, column % n) of a padded buffer?"""
        if x is columns.var:
            return True
        if isinstance(x, (FloorDiv, FloorMod)) and x.a is columns.var:
            return False
        return not x.identity and any(bare(c) for c in _children(x))

    def visit(x: Any) -> Any:
        if isinstance(x, BufferLoad):
            return if_then_else(inside, x, const(0, x.dtype)) if bare(x.indices[0]) else x
        return x if x.identity else map_children(x, visit)

    return visit(e)


def _children(x: Any) -> Any:
    from tilewright.ir.node import children

    return children(x)
