"""Put a tensor intrinsic in the place of the loops that compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr, Var, cast
from tilewright.ir.node import map_children, replace
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    MatchBufferRegion,
    PrimFunc,
    Range,
)
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.arguments import as_block
from tilewright.tir.schedule.primitives.blockize import blockized, only_block
from tilewright.tir.schedule.primitives.match_intrin import Matching, Mismatch
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, LoopRV, State
from tilewright.tir.stmt_functor import renew_defs
from tilewright.tir.tensor_intrin.registry import TensorIntrin, root_block

__all__ = ["tensorize"]


def _prepare(s: State, arguments: dict[str, Any]) -> None:
    target = arguments["block_or_loop"]
    if isinstance(target, str):
        arguments["block_or_loop"] = as_block(s, target)
    intrin = arguments["tensor_intrin"]
    if isinstance(intrin, TensorIntrin) and intrin.name is not None:
        arguments["tensor_intrin"] = intrin.name


@primitive(prepare=_prepare)
def tensorize(
    s: State, block_or_loop: BlockRV | LoopRV, tensor_intrin: str | TensorIntrin, preserve_unit_iters: bool = True
) -> None:
    """Compute a block, or a loop and the one block in it, by a tensor intrinsic (its name, or itself).

    A loop is made a block first, as by `blockize`. The block then has the intrinsic's implementation as its body, and views
    of the buffers (match_buffer) as its operands. Raises ScheduleError TW0488 where the block does not compute what the
    intrinsic describes, with the first difference; ValueError TW0490 for a name that is not known.
    """
    intrin = TensorIntrin.get(tensor_intrin) if isinstance(tensor_intrin, str) else tensor_intrin
    assert intrin is not None
    func = block_or_loop.func
    if isinstance(block_or_loop, LoopRV):
        path = s.loop_path(block_or_loop)
        inside = only_block(s, block_or_loop, path[-1])
        block = BlockRV(inside.block.name_hint, func)
        realize = blockized(s, block, s.block_path(block), path[-1], preserve_unit_iters)
    else:
        path = s.block_path(block_or_loop)
        realize = path[-1]
    assert isinstance(realize, BlockRealize)
    found = Matching()
    desc = root_block(intrin.desc)
    try:
        found.root(realize.block, desc)
        new = _implemented(realize.block, intrin, found)
    except Mismatch as why:
        raise fail(
            "TW0488",
            f"{realize.block.name_hint!r} does not compute what the tensor intrinsic {intrin.name or ''!r} describes: {why}",
            s.func(func),
            path[-1],
            hint=f"the intrinsic describes:\n{intrin.desc.script()}",
        ) from None
    s.put(func, path, replace(realize, block=new))


def _implemented(block: Block, intrin: TensorIntrin, found: Matching) -> Block:
    """The block with the implementation as its body."""
    impl = renew_defs(intrin.impl)
    if any(d.extent.dtype == "int64" for r in (*block.reads, *block.writes) for d in r.region):
        impl = _with_long_indices(impl)
    body = root_block(impl)
    theirs = dict(zip(impl.param_buffers, intrin.desc.param_buffers, strict=True))
    regions: dict[Buffer, BufferRegion] = {}
    for r in (*body.reads, *body.writes):
        regions.setdefault(r.buffer, r)
    views: list[MatchBufferRegion] = []
    for b, desc in theirs.items():
        mine = found.buffers.get(desc)
        if mine is None or b not in regions:
            raise Mismatch(f"its parameter {b.name} takes no part in what it describes, or declares no region")
        if mine.scope() != b.scope():
            raise Mismatch(f"the buffer {mine.name} is in {mine.scope()} memory, the intrinsic takes it in {b.scope()}")
        base = found.bases[mine]
        region = regions[b].region
        skip = len(base) - len(region)
        ranges = [Range(e, IntImm(e.dtype, 1)) for e in base[:skip]]
        ranges += [Range(e, cast(r.extent, e.dtype)) for e, r in zip(base[skip:], region, strict=True)]
        views.append(MatchBufferRegion(b, BufferRegion(mine, tuple(ranges))))
    return replace(
        block,
        body=body.body,
        alloc_buffers=(*block.alloc_buffers, *body.alloc_buffers),
        match_buffers=(*block.match_buffers, *views),
        annotations={**block.annotations, **body.annotations},
    )


# ---- indices of 64 bits ----------------------------------------------------------------------------------------------


def _with_long_indices(f: PrimFunc) -> PrimFunc:
    """The implementation for a program whose indices are int64: its shapes, offsets, strides and loops are so too."""
    table: dict[Any, Any] = {}

    def long(e: Any) -> Any:
        return cast(visit(e), "int64")

    def fresh(v: Var) -> Var:
        return table.setdefault(v, Var(v.name, "int64"))

    def buffer(b: Buffer) -> Buffer:
        if b not in table:
            for e in (b.elem_offset, *b.strides):
                if isinstance(e, Var):
                    fresh(e)
            offset = None if b.elem_offset is None else long(b.elem_offset)
            table[b] = replace(
                b, shape=tuple(map(long, b.shape)), strides=tuple(map(long, b.strides)), elem_offset=offset
            )
        return table[b]

    def visit(x: Any) -> Any:
        if isinstance(x, Var):
            return table.get(x, x)
        if isinstance(x, Buffer):
            return buffer(x)
        if isinstance(x, Range):
            return Range(long(x.min), long(x.extent))
        if isinstance(x, (BufferLoad, BufferStore)):
            indices = tuple(_widened(visit(i)) for i in x.indices)
            value: Mapping[str, Any] = {"value": visit(x.value)} if isinstance(x, BufferStore) else {}
            return replace(x, buffer=buffer(x.buffer), indices=indices, **value)
        if isinstance(x, IterVar):
            return replace(x, var=fresh(x.var), dom=x.dom and visit(x.dom))
        if isinstance(x, For):
            v = x.loop_var if x.thread_binding is not None else fresh(x.loop_var)
            ends = (x.min, x.extent) if x.thread_binding is not None else (long(x.min), long(x.extent))
            return replace(x, loop_var=v, min=ends[0], extent=ends[1], body=visit(x.body))
        if isinstance(x, BlockRealize):
            values = tuple(long(v) for v in x.iter_values)
            return replace(x, iter_values=values, predicate=visit(x.predicate), block=visit(x.block))
        if isinstance(x, Block):
            for b in x.alloc_buffers:
                buffer(b)
        if isinstance(x, (ex.BinaryOp, ex.CmpOp)):
            a, b = visit(x.a), visit(x.b)
            if a.dtype != b.dtype:
                a, b = (cast(a, b.dtype), b) if b.dtype == "int64" else (a, cast(b, a.dtype))
            return x if a is x.a and b is x.b else type(x)(a, b)
        return x if x.identity else map_children(x, visit)

    params = {p: buffer(b) for p, b in f.buffer_map.items()}
    return replace(f, buffer_map=params, body=visit(f.body))


def _widened(e: PrimExpr) -> PrimExpr:
    if isinstance(e, ex.Ramp):
        return ex.Ramp(cast(e.base, "int64"), cast(e.stride, "int64"), e.lanes)
    return cast(e, "int64") if e.dtype == "int32" else e
