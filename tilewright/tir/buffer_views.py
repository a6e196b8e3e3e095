"""What `Buffer.access_ptr`, `offset_of` and `get_flattened_buffer` give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arith.analyzer import simplify
from tilewright.arith.expr import ExprLike, IntImm, PrimExpr, add, const, convert, floordiv, mul, sub
from tilewright.ir import dtype as dt
from tilewright.ir.node import replace

if TYPE_CHECKING:
    from tilewright.tir.ir import Buffer

__all__ = ["access_ptr", "flattened", "offset_of"]

_MASKS = {"r": 1, "w": 2}


def _offset_dtype(b: Buffer) -> str:
    if b.elem_offset is not None:
        return b.elem_offset.dtype
    return b.shape[0].dtype if b.shape else "int32"


def _product(values: Sequence[PrimExpr]) -> PrimExpr:
    out: PrimExpr = IntImm("int32", 1)
    for v in values:
        out = v if isinstance(out, IntImm) and out.value == 1 else mul(out, v)
    return out


def access_ptr(
    b: Buffer,
    access_mask: int | str,
    ptr_type: str = "handle",
    content_lanes: int = 1,
    offset: ExprLike = 0,
    extent: ExprLike | None = None,
) -> PrimExpr:
    """`tvm_access_ptr(dtype, data, elem_offset + offset, extent, mask)`; the extent is the rest of the buffer unless given.

    `access_mask` is 1 to read, 2 to write, or "r", "w", "rw". Raises ValueError on another.
    """
    from tilewright.tir.build_calls import CALLS

    if isinstance(access_mask, str):
        if not access_mask or set(access_mask) - set(_MASKS):
            raise ValueError(f"access mask {access_mask!r}: it is made of 'r' (read) and 'w' (write)")
        access_mask = sum(_MASKS[c] for c in set(access_mask))
    start = convert(offset)
    if not b.shape:
        size: PrimExpr = const(1, "int32")
    elif len(b.strides) == len(b.shape):
        size = sub(mul(b.strides[0], b.shape[0]), start)
    else:
        size = sub(_product(b.shape), start)
    at: PrimExpr = start if b.elem_offset is None else add(b.elem_offset, start)
    dtype = b.dtype
    if content_lanes > 1:
        dtype = dt.with_lanes(b.dtype, dt.lanes(b.dtype) * content_lanes)
        size, at = floordiv(size, content_lanes), floordiv(at, content_lanes)
    if extent is not None:
        size = convert(extent)
    call = CALLS["tvm_access_ptr"](CALLS["type_annotation"](dtype), b.data, at, size, access_mask)
    return replace(call, dtype=ptr_type) if ptr_type != "handle" else call


def offset_of(b: Buffer, indices: Sequence[ExprLike]) -> list[PrimExpr]:
    """How many elements behind `data` the element at `indices` lies. Raises ValueError on a wrong number of them."""
    if len(indices) != len(b.shape):
        raise ValueError(f"buffer {b.name} has {len(b.shape)} dimensions, not {len(indices)}")
    total: Any = const(0, _offset_dtype(b)) if b.elem_offset is None else b.elem_offset
    if b.strides:
        for i, s in zip(indices, b.strides, strict=True):
            total = add(total, mul(convert(i), s))
        return [simplify(total)]
    inner: Any = None
    for i, n in zip(indices, b.shape, strict=True):
        inner = convert(i) if inner is None else add(mul(inner, n), convert(i))
    return [simplify(total if inner is None else add(total, inner))]


def flattened(b: Buffer) -> Buffer:
    """The same memory as a buffer of one dimension (one more for each axis separator), without strides."""
    if len(b.shape) == 1 and not b.strides:
        return b
    groups: list[list[PrimExpr]] = [[]]
    for d, n in enumerate(b.shape):
        if d in b.axis_separators:
            groups.append([])
        groups[-1].append(n)
    if b.strides and b.shape and not b.axis_separators:
        shape: tuple[PrimExpr, ...] = (mul(b.strides[0], b.shape[0]),)
    else:
        shape = tuple(_product(g) for g in groups)
    separators = tuple(range(1, len(groups)))
    return replace(b, shape=shape, strides=(), axis_separators=separators)
