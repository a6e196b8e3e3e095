"""Questions about programs under a schedule, under the names of the field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var, convert, floordiv, floormod, mul
from tilewright.arith.iter_map import IterSplitExpr, IterSumExpr, detect_iter_map
from tilewright.tir.index_map import IndexMap
from tilewright.tir.ir import BlockRealize, Buffer, For, Range
from tilewright.tir.schedule.scope import is_output, scope_path
from tilewright.tir.schedule.state import BlockRV

__all__ = ["has_block", "is_output_block", "suggest_index_map"]


def has_block(sch: Any, block_name: str) -> bool:
    """Does the function worked on have a block of that name?"""
    return block_name in sch.state.block_names(sch.state.func_name)


def is_output_block(sch: Any, block: BlockRV | str) -> bool:
    """Does the block write a buffer that outlives the scope it stands in?"""
    rv = sch.get_block(block) if isinstance(block, str) else block
    above = scope_path(sch.state.block_path(rv))
    if not above:
        return True
    scope = above[-1]
    assert isinstance(scope, BlockRealize)
    return is_output(sch.state.func(rv.func), scope, sch.state.block(rv))


def suggest_index_map(
    buffer: Buffer, indices: Sequence[PrimExpr], loops: Sequence[For], predicate: PrimExpr | bool
) -> IndexMap | None:
    """A layout in which the accesses `buffer[indices]`, made while the loops run, walk through memory in order.

    None where the indices are no map of the loops that hits no element twice, or the layout would stay as it is.
    """
    ranges = {p.loop_var: Range(p.min, p.extent) for p in loops}
    shape = list(buffer.shape)
    flat: PrimExpr = convert(0)
    for i, n in zip(indices, shape, strict=True):
        flat = mul(flat, n) + i
    ana = Analyzer()
    found = detect_iter_map([ana.simplify(flat)], ranges, predicate, analyzer=ana).indices
    if not found:
        return None
    splits = _splits(found[0], [p.loop_var for p in loops])
    if splits is None or not splits:
        return None
    inputs = [Var(f"i{k}", n.dtype) for k, n in enumerate(shape)]
    groups = _by_dimension(splits, shape)
    if groups is None:
        return None
    order = sorted(range(len(splits)), key=lambda k: splits[k][2])
    final: list[PrimExpr] = []
    where = {k: (dim, scale) for k, dim, scale in groups}
    pieces: list[tuple[int, int, int, int]] = []  # (dimension, scale inside it, extent, place among the splits)
    for k in order:
        dim, scale = where[k]
        pieces.append((dim, scale, splits[k][1], k))
    merged: list[tuple[int, int, int]] = []
    for dim, scale, extent, _ in pieces:
        if merged and merged[-1][0] == dim and merged[-1][1] == scale * extent:
            merged[-1] = (dim, scale, merged[-1][2] * extent)
        else:
            merged.append((dim, scale, extent))
    for dim, scale, extent in merged:
        size = shape[dim]
        assert isinstance(size, IntImm)
        e: PrimExpr = inputs[dim] if scale == 1 else floordiv(inputs[dim], scale)
        final.append(e if scale * extent == size.value else floormod(e, extent))
    if len(final) == len(inputs) and all(a is b for a, b in zip(final, inputs, strict=True)):
        return None
    return IndexMap(tuple(inputs), tuple(final), None)


def _splits(e: IterSumExpr, order: Sequence[Var]) -> list[tuple[int, int, tuple[int, int]]] | None:
    """The digits of an index: (scale, extent, when it moves: place of its loop, and of the digit in it)."""
    out: list[tuple[int, int, tuple[int, int]]] = []

    def visit(a: IterSplitExpr, scale: int) -> bool:
        source = a.source.source
        k, low, n = a.scale, a.lower_factor, a.extent
        if not (isinstance(k, IntImm) and isinstance(low, IntImm) and isinstance(n, IntImm)):
            return False
        if isinstance(source, Var):
            place = next(i for i, v in enumerate(order) if v is source)
            out.append((scale * k.value, n.value, (place, -low.value)))
            return True
        if low.value != 1 or not isinstance(source, IterSumExpr):
            return False
        return all(visit(b, scale * k.value) for b in source.args)

    return sorted(out, key=lambda x: -x[0]) if all(visit(a, 1) for a in e.args) else None


def _by_dimension(splits: Sequence[Any], shape: Sequence[PrimExpr]) -> list[tuple[int, int, int]] | None:
    """For each digit: (its number, the dimension it lies in, its scale there); None where one lies across dimensions."""
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        if not isinstance(n, IntImm):
            return None
        strides.append(step)
        step *= n.value
    strides.reverse()
    out: list[tuple[int, int, int]] = []
    for k, (scale, extent, _) in enumerate(splits):
        for dim, (stride, n) in enumerate(zip(strides, shape, strict=True)):
            assert isinstance(n, IntImm)
            if scale >= stride:
                if scale % stride or scale * extent > stride * n.value:
                    return None
                out.append((k, dim, scale // stride))
                break
        else:
            return None
    return out
