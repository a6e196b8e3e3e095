"""The analytic schedule of a kernel: block form in, the same function with its loops arranged out. No search.

    read      the stages that the blocks compute                        stages.py
    inline    producers into consumers, consumers into reductions       inline.py
    cluster   stages that share their rows run row by row               cluster.py halo.py
    arrange   each stage by its kind                                    elementwise.py pieces.py tiles.py rows.py

What is not recognised keeps its loops (opaque stages); a function that carries a schedule already is left alone.
"""

from __future__ import annotations

from typing import Any

from tilewright.backends.llvm.schedules.access import Flattener, flatten_stage, total
from tilewright.backends.llvm.schedules.cluster import Cluster, find_clusters
from tilewright.backends.llvm.schedules.elementwise import schedule_map, work_of
from tilewright.backends.llvm.schedules.inline import inline_stages
from tilewright.backends.llvm.schedules.loops import TRUE, parallel_nest
from tilewright.backends.llvm.schedules.pieces import cut_into_pieces
from tilewright.backends.llvm.schedules.rows import schedule_rows, schedule_scalar
from tilewright.backends.llvm.schedules.stages import Opaque, Stage, read_program
from tilewright.backends.llvm.schedules.tiles import schedule_tiles
from tilewright.ir.node import replace, walk
from tilewright.ir.rewrite import substitute
from tilewright.ir.target import Target
from tilewright.tir.ir import Block, BlockRealize, For, ForKind, IterVar, PrimFunc, Stmt, seq

__all__ = ["schedule_kernel"]


def schedule_kernel(f: PrimFunc, target: Target) -> PrimFunc:
    """The kernel `f` (block form) with its loops arranged for the target; `f` itself where it is scheduled already.

    The schedules may compute a point of a result twice, to the same value: results must not share memory with inputs.
    """
    program = read_program(f)
    if program is None:
        return f
    inline_stages(program)
    flat = Flattener()
    clusters = find_clusters(program, target)
    body = seq(*(_arrange(c, flat, target) for c in clusters))
    root = Block((), (), (), "root", body, None, tuple(program.temps))
    return replace(f, body=BlockRealize((), TRUE, root))


def _arrange(c: Cluster, flat: Flattener, target: Target) -> Stmt:
    if not c.rows:
        return seq(*(_stage(s, flat, target, True) for s in c.stages))
    work = 0
    for s in c.stages:
        assert isinstance(s, Stage)
        work += total([*c.rows, *s.axes, *s.reduce]) * work_of(s.value)

    def body(env: dict[Any, Any]) -> Stmt:
        return substitute(seq(*(_stage(s, flat, target, False) for s in c.stages)), env)

    return parallel_nest(c.rows, work, body, c.scratch)


def _stage(s: Stage | Opaque, flat: Flattener, target: Target, parallel: bool) -> Stmt:
    if isinstance(s, Opaque):
        return _parallel_outer(s.stmt) if parallel else s.stmt
    s = flatten_stage(s, flat)
    if s.combine is None:
        return seq(*(schedule_map(piece, target, parallel) for piece in cut_into_pieces(s)))
    return (
        schedule_tiles(s, target, parallel)
        or schedule_rows(s, target, parallel)
        or schedule_scalar(s, target, parallel)
    )


def _parallel_outer(s: Stmt) -> Stmt:
    """The outermost loop of a nest over one block in parallel, where it is a spatial axis of the block."""
    if not isinstance(s, For) or s.kind != ForKind.SERIAL:
        return s
    inner: Stmt = s
    points = 1
    while isinstance(inner, For):
        points *= getattr(inner.extent, "value", 256)
        inner = inner.body
    if not isinstance(inner, BlockRealize) or points < 16_384:
        return s
    for iv, value in zip(inner.block.iter_vars, inner.iter_values, strict=True):
        if value is s.loop_var:
            if iv.iter_type == IterVar.DataPar and not any(
                value is not other and s.loop_var in walk_vars(other) for other in inner.iter_values
            ):
                return replace(s, kind=ForKind.PARALLEL)
    return s


def walk_vars(e: Any) -> set[Any]:
    """The variables in an expression."""
    from tilewright.arith.expr import Var

    return {x for x in walk(e) if isinstance(x, Var)}
