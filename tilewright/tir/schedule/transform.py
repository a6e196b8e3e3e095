"""Steps of schedules that people take together."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import IntImm
from tilewright.ir.rewrite import free_vars
from tilewright.tir.ir import BlockRealize, For
from tilewright.tir.schedule.schedule import Schedule
from tilewright.tir.schedule.state import BlockRV, LoopRV
from tilewright.tir.tensor_intrin.registry import TensorIntrin, root_block

__all__ = ["tile_with_tensor_intrin"]


def _described(intrin: TensorIntrin) -> tuple[list[int], BlockRealize]:
    """(the extents of the description's loops, outermost first; the block in them)"""
    body: Any = root_block(intrin.desc).body
    extents: list[int] = []
    while isinstance(body, For):
        extents.append(int(body.extent))  # pyright: ignore[reportArgumentType]
        body = body.body
    if not isinstance(body, BlockRealize):
        raise TypeError("a description is loops around one block")
    return extents, body


def tile_with_tensor_intrin(
    sch: Schedule, block: BlockRV, intrin_name: str, allow_padding: bool = False
) -> LoopRV | None:
    """Tile the loops of a block as a tensor intrinsic wants them, its tile innermost. Gives the outermost loop of that tile,
    to hand to `tensorize`; None where the loops do not fit.

    The iterators of the block are matched with those of the description from the last to the first, by their kind. With
    `allow_padding` an extent that does not come out even is padded by `pad_einsum` first.
    """
    steps: Any = sch  # the primitives are methods that the registry adds
    intrin = TensorIntrin.get(intrin_name)
    assert intrin is not None
    extents, described = _described(intrin)
    target = steps.get(block)
    loops = steps.get_loops(block)
    realize = steps.state.block(block)
    free = list(range(len(target.iter_vars)))
    chosen: dict[int, int] = {}  # position of the description's loop -> position of the block's loop
    padding = [1] * len(target.iter_vars)
    for n in range(len(described.block.iter_vars) - 1, -1, -1):
        kind = described.block.iter_vars[n].iter_type
        at = next((i for i in reversed(free) if target.iter_vars[i].iter_type == kind), None)
        if at is None:
            return None
        free = [i for i in free if i < at]
        used = set(free_vars(realize.iter_values[at]))
        mine = [i for i, rv in enumerate(loops) if steps.get(rv).loop_var in used]
        if len(mine) != 1 or mine[0] in chosen.values():
            return None
        extent = steps.get(loops[mine[0]]).extent
        if not isinstance(extent, IntImm):
            return None
        if extent.value % extents[n]:
            if not allow_padding:
                return None
            padding[at] = extents[n]
        chosen[n] = mine[0]
    if any(p > 1 for p in padding):
        steps.pad_einsum(block, padding)
        loops = steps.get_loops(block)
    inner: dict[int, LoopRV] = {}
    for n, i in chosen.items():
        _, inner[n] = steps.split(loops[i], factors=[None, extents[n]])
    tile = [inner[n] for n in sorted(inner)]
    variables = {id(steps.get(rv).loop_var) for rv in tile}
    outer = [rv for rv in steps.get_loops(block) if id(steps.get(rv).loop_var) not in variables]
    steps.reorder(*outer, *tile)
    return tile[0]
