"""A buffer of which consecutive iterations of a loop need overlapping parts becomes a ring: what is there already is kept.

for o: B[o*4 : o*4 + 6] = ...; C[o*4 : ...] = f(B)   ▶   for o: B[...] of 6 elements, index % 6, computed only where
                                                               o < 1 or it was not in the part before
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import LE, LT, FloorMod, IntImm, Or, PrimExpr, Var, cast, cmp, const, logical_and
from tilewright.ir.node import map_children, replace, walk
from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    ForKind,
    IterVar,
    Range,
    Stmt,
    decl_buffer,
)
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.caching import only_writer
from tilewright.tir.schedule.primitives.flow import (
    buffer_at,
    check_not_output,
    find_block,
    loops_below,
    paths_of,
    readers,
    region_of,
    scope_path,
    uses_pointer,
)
from tilewright.tir.schedule.primitives.relax import block_ends, ranges_of, shown, value_of
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, Path, State

__all__ = ["rolling_buffer"]

CODE = "TW0471"
LIMIT = 1 << 16
"""Loops of more iterations are not looked through for the distances of their parts."""


class _Overlap:
    """A dimension in which the parts of consecutive iterations of `loop` overlap by `rows`."""

    def __init__(self, dim: int, loop: For, rows: int) -> None:
        self.dim, self.loop, self.rows = dim, loop, rows


def _overlap(dim: int, r: Range, loops: Sequence[For], ana: Analyzer) -> _Overlap | None:
    size = value_of(r.extent)
    used = [p for p in loops if any(x is p.loop_var for x in walk(r.min))]
    if size is None or len(used) != 1:
        return None
    (loop,) = used
    first, count = value_of(loop.min), value_of(loop.extent)
    if first is None or count is None or count > LIMIT:
        return None
    if any(isinstance(x, Var) and x is not loop.loop_var for x in walk(r.min)):
        return None
    starts: list[int] = []
    for t in range(first, first + count):
        at = value_of(ana.simplify(substitute(r.min, {loop.loop_var: const(t, loop.loop_var.dtype)})))
        if at is None:
            return None
        starts.append(at)
    steps = [b - a for a, b in zip(starts, starts[1:])]  # noqa: RUF007
    if not steps or min(steps) < 0 or size - max(steps) <= 0:
        return None
    return _Overlap(dim, loop, size - max(steps))


@primitive
def rolling_buffer(s: State, block: BlockRV, write_buffer_index: int | str | Buffer) -> None:
    """Let the buffer that a block writes, at a loop of its consumers (compute_at), hold only what one iteration needs: a
    ring in the dimension that the outermost such loop walks along. What an earlier iteration made is not computed again.

    Raises ScheduleError TW0451 (no such buffer), TW0453 (several blocks write it), TW0471 (an output; consumers elsewhere; no
    overlap; a loop that is not serial).
    """
    path, realize = find_block(s, block)
    _, old = buffer_at(s, block, write_buffer_index, "writes")
    check_not_output(s, block, CODE, "roll the buffer of")
    scope = scope_path(path)
    everyone = paths_of(scope)
    only_writer(s, block, everyone, old)
    users = [p for p in readers(everyone, old) if p[-1] is not realize]
    loops = [p for p in path[len(scope) :] if isinstance(p, For)]
    shared = [p for p in loops if users and all(any(p is x for x in u) for u in users)]
    root = s.func(block.func)
    if not shared:
        raise fail(
            CODE,
            f"cannot roll {old.name}: {block.name!r} and those who read it stand in no common loop",
            root,
            realize,
            hint="compute_at moves the block into a loop of its consumers",
        )
    if any(uses_pointer(p[-1], old) for p in (path, *users)):
        raise fail(CODE, f"cannot roll {old.name}: it is used as a pointer", root, realize)
    ana = Analyzer()
    for p in path:
        if isinstance(p, For):
            ana.bind(p.loop_var, Range(p.min, p.extent))
    made = region_of(realize.block.writes, old)
    assert made is not None
    bare = replace(realize, predicate=IntImm("bool", 1))
    region = ranges_of(block_ends(bare, made, loops_below(path, shared[-1]), ana), old.shape, ana)
    found = [o for o in (_overlap(d, r, shared, ana) for d, r in enumerate(region)) if o is not None]
    rolled = next((o for p in shared for o in found if o.loop is p), None)
    if rolled is None:
        raise fail(CODE, f"cannot roll {old.name}: the parts of consecutive iterations do not overlap", root, realize)
    for o in found:
        if o.loop.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
            raise fail(CODE, f"cannot roll {old.name}: the loop {o.loop.loop_var.name!r} is not serial", root, o.loop)
    where = _skip(realize, made, region, found, loops_below(path, shared[-1]), ana)
    _rewrite(s, block, scope, path, old, region, rolled, where)


def _skip(
    realize: BlockRealize,
    made: BufferRegion,
    region: Sequence[Range],
    found: Sequence[_Overlap],
    inner: Sequence[For],
    ana: Analyzer,
) -> PrimExpr:
    """The condition for an element to be computed: nobody made it before."""
    values: dict[Any, Any] = {iv.var: v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    out = realize.predicate
    for o in found:
        at = substitute(made.region[o.dim].min, values)
        start = substitute(at, {p.loop_var: p.min for p in inner})
        low = start if ana.can_prove_equal(start, region[o.dim].min) else cast(region[o.dim].min, at.dtype)
        inside = ana.simplify(at - low)
        v = o.loop.loop_var
        first = cmp(LT, v, o.loop.min + 1)
        later = shown(cmp(LE, const(o.rows, inside.dtype), inside))
        out = logical_and(out, Or(first, later))
    return out


def _rewrite(
    s: State,
    block: BlockRV,
    scope: Path,
    path: Path,
    old: Buffer,
    region: Sequence[Range],
    rolled: _Overlap,
    where: PrimExpr,
) -> None:
    size = region[rolled.dim].extent
    shape = [size if d == rolled.dim else n for d, n in enumerate(old.shape)]
    new = decl_buffer(shape, old.dtype, old.name, scope=old.scope())
    target = path[-1]
    var = rolled.loop.loop_var

    def ring(i: PrimExpr) -> PrimExpr:
        return FloorMod(i, cast(size, i.dtype))

    def at(indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        return tuple(ring(i) if d == rolled.dim else i for d, i in enumerate(indices))

    def part(r: Range, d: int) -> Range:
        if d != rolled.dim:
            return r
        return Range(ring(r.min), r.extent) if value_of(r.extent) == 1 else Range(const(0, r.min.dtype), size)

    def visit(x: Any) -> Any:
        if isinstance(x, BufferRegion) and x.buffer is old:
            return BufferRegion(new, tuple(part(r, d) for d, r in enumerate(x.region)))
        if isinstance(x, BufferLoad) and x.buffer is old:
            return BufferLoad(new, at([visit(i) for i in x.indices]))
        if isinstance(x, BufferStore) and x.buffer is old:
            return BufferStore(new, visit(x.value), at([visit(i) for i in x.indices]))
        if isinstance(x, BlockRealize):
            changed = map_children(x, visit)
            changed = replace(changed, block=_opaque(changed, var))
            return replace(changed, predicate=where) if x is target else changed
        return x if x.identity else map_children(x, visit)

    top = scope[-1]
    assert isinstance(top, BlockRealize)
    kept = tuple(new if b is old else b for b in top.block.alloc_buffers)
    body: Stmt = visit(top.block.body)
    s.put(block.func, scope, replace(top, block=replace(top.block, body=body, alloc_buffers=kept)))


def _opaque(realize: BlockRealize, var: Var) -> Block:
    """The block with the axes that walk with the loop marked as opaque: their order matters now."""
    iters = tuple(
        replace(iv, iter_type=IterVar.Opaque) if any(x is var for x in walk(v)) else iv
        for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)
    )
    return replace(realize.block, iter_vars=iters)
