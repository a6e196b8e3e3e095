"""What the primitives on reductions ask of a block: that it is a reduction, and how it combines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.arith.expr import PrimExpr, Var
from tilewright.arith.iter_map import detect_iter_map
from tilewright.ir.rewrite import free_vars
from tilewright.ir.structure import structural_equal
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    LetStmt,
    Range,
    SeqStmt,
    Stmt,
)
from tilewright.tir.reducer import Reducer, match_reducer
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.state import BlockRV, Path, State, nearest_blocks

__all__ = ["Combination", "combination_of", "reduction_of", "scope_position"]


def scope_position(path: Path) -> int:
    """Where in the way to a block the block stands that it is in."""
    return max(i for i, p in enumerate(path[:-1]) if isinstance(p, BlockRealize))


def reduction_of(s: State, block: BlockRV) -> BlockRealize:
    """The block, which has an init. Raises ScheduleError TW0461 where it has none."""
    realize = s.block(block)
    if realize.block.init is None:
        raise fail("TW0461", f"the block {block.name!r} is no reduction: it has no init", s.func(block.func), realize)
    return realize


def check_reduction(s: State, block: BlockRV) -> BlockRealize:
    """The block, which is a reduction block of its scope: it has an init, its iterators are spatial or commutative, the
    loops move them as an affine map, no reduction iterator chooses what is written, and no other block of the scope writes
    the same buffers. Raises ScheduleError TW0461."""
    realize = reduction_of(s, block)
    b = realize.block

    def refuse(why: str) -> CompileError:
        return fail("TW0461", f"the block {block.name!r} is no reduction: {why}", s.func(block.func), realize)

    for iv in b.iter_vars:
        if iv.iter_type not in (IterVar.DataPar, IterVar.CommReduce):
            raise refuse(f"its iterator {iv.var.name!r} is neither spatial nor reduce")
    reduced = {iv.var for iv in b.iter_vars if iv.iter_type == IterVar.CommReduce}
    for w in b.writes:
        used = [v for r in w.region for v in free_vars(r) if v in reduced]
        if used:
            raise refuse(f"where it writes {w.buffer.name} depends on the reduction iterator {used[0].name!r}")
    path = s.block_path(block)
    position = scope_position(path)
    scope = path[position]
    assert isinstance(scope, BlockRealize)
    written = {w.buffer for w in b.writes}
    for other in nearest_blocks(scope.block.body):
        if other is not realize and any(w.buffer in written for w in other.block.writes):
            raise refuse(f"the block {other.block.name_hint!r} writes to the same buffer")
    loops = {p.loop_var: Range(p.min, p.extent) for p in path[position:] if isinstance(p, For)}
    if realize.iter_values:
        found = detect_iter_map(realize.iter_values, loops, realize.predicate)
        if not found.indices:
            raise refuse(f"its iterators are no affine map of the loops: {found.errors[0]}")
    return realize


class Combination(NamedTuple):
    """How a reduction block combines: `buffers[i][indices]` starts from `starts[i]` and takes in `taken[i]`."""

    reducer: Reducer
    buffers: list[Buffer]
    indices: tuple[PrimExpr, ...]
    starts: list[PrimExpr]
    taken: list[PrimExpr]
    lets: list[Var]


class _NoPattern(Exception):
    pass


def combination_of(s: State, block: BlockRV, realize: BlockRealize) -> Combination:
    """How a reduction block combines. Raises ScheduleError TW0481 where that is none of the known reductions."""
    try:
        return _combination(realize.block)
    except _NoPattern as why:
        raise fail(
            "TW0481",
            f"the block {block.name!r} is no reduction of a known form: {why}",
            s.func(block.func),
            realize,
            hint="a sum, product, minimum or maximum `A[i] = A[i] + x`, or a pair (sums, argmax, argmin) whose new values are "
            "bound by let before they are stored",
        ) from None


def _stores(s: Stmt, what: str) -> list[BufferStore]:
    out: list[BufferStore] = []
    for x in s.seq if isinstance(s, SeqStmt) else (s,):
        if not isinstance(x, BufferStore):
            raise _NoPattern(f"{what} has a {type(x).__name__} among its stores")
        out.append(x)
    if len({x.buffer for x in out}) != len(out):
        raise _NoPattern(f"{what} stores to a buffer twice")
    return out


def _combination(b: Block) -> Combination:
    assert b.init is not None
    inits = _stores(b.init, "the init")
    buffers, values, variables = _updates(b.body, len(inits))
    first = {x.buffer: x for x in inits}
    if set(first) != {x.buffer for x in buffers}:
        raise _NoPattern("the init and the updates store to different buffers")
    indices = buffers[0].indices
    for x in (*inits, *buffers):
        if not structural_equal(x.indices, indices):
            raise _NoPattern("the stores are not all at the same indices")
        if not structural_equal(x.buffer.shape, buffers[0].buffer.shape):
            raise _NoPattern("the buffers differ in shape")
    starts = [first[x.buffer].value for x in buffers]
    loads = [BufferLoad(x.buffer, indices) for x in buffers]
    found = match_reducer(starts, loads, values)
    if found is None:
        raise _NoPattern("no reducer fits its initial value and its update")
    return Combination(found[0], [x.buffer for x in buffers], indices, starts, found[1], variables)


def _updates(body: Stmt, n: int) -> tuple[list[BufferStore], list[PrimExpr], list[Var]]:
    """(the stores, the value of each, the variables of the lets around them), in the order of the lets."""
    variables: list[Var] = []
    values: list[PrimExpr] = []
    while isinstance(body, LetStmt):
        variables.append(body.var)
        values.append(body.value)
        body = body.body
    stores = _stores(body, "the update")
    if len(stores) != n:
        raise _NoPattern(f"its init stores {n} values, its update {len(stores)}")
    if not variables:
        if n > 1:
            raise _NoPattern("several buffers are updated without lets")
        return stores, [stores[0].value], []
    if len(variables) != n:
        raise _NoPattern(f"it stores {n} values and binds {len(variables)}")
    by_value: dict[Var, BufferStore] = {}
    for x in stores:
        if not isinstance(x.value, Var) or x.value not in variables:
            raise _NoPattern("what it stores is not a value bound by let")
        if x.value in by_value:
            raise _NoPattern(f"{x.value.name} is stored twice")
        by_value[x.value] = x
    return [by_value[v] for v in variables], values, variables


def names_of(loops: Sequence[For]) -> list[str]:
    """The names of loops."""
    return [p.loop_var.name for p in loops]
