"""The struct info of a function of the loop IR, seen from the graph: `prim_func.struct_info`."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Call
from tilewright.ir.node import INFO, Node
from tilewright.ir.op import PrimType
from tilewright.relax.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from tilewright.tir.intrin import effect_of
from tilewright.tir.ir import BufferStore, PrimFunc

__all__ = ["prim_func_struct_info"]


def prim_func_struct_info(f: PrimFunc) -> FuncStructInfo:
    """Buffers are tensors, scalars prims, other pointers objects; pure is what writes to no argument and calls nothing opaque."""
    params: list[StructInfo] = []
    for v in f.params:
        b = f.buffer_map.get(v)
        if b is not None:
            params.append(TensorStructInfo(b.shape, b.dtype))
        else:
            params.append(ObjectStructInfo() if v.dtype == "handle" else PrimStructInfo(v.dtype))
    ret: StructInfo = TupleStructInfo(())
    if isinstance(f.ret_type, PrimType):
        ret = ObjectStructInfo() if f.ret_type.dtype == "handle" else PrimStructInfo(f.ret_type.dtype)
    return FuncStructInfo(tuple(params), ret, purity=_is_pure(f))


def _is_pure(f: PrimFunc) -> bool:
    arguments = {f.buffer_map[v].data if v in f.buffer_map else v for v in f.params}
    stack: list[Any] = [f.body]
    while stack:
        n = stack.pop()
        if isinstance(n, (tuple, list)):
            stack.extend(n)  # pyright: ignore[reportUnknownArgumentType]
        writes = isinstance(n, BufferStore) and n.buffer.data in arguments
        if writes or (isinstance(n, Call) and effect_of(n.op) == "opaque" and getattr(n.op, "name", "") != "tir.ret"):
            return False
        if isinstance(n, Node) and not n.identity:
            stack.extend(getattr(n, x.name) for x in n.node_fields if x.role != INFO)
    return True
