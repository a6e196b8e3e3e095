"""What is known of a graph value at compile time.

si ::= TensorStructInfo(shape, dtype, ndim)    shape: a ShapeExpr, or None when only the rank (or nothing: -1) is known;
                                               dtype "" when unknown
     | ShapeStructInfo(values, ndim) | PrimStructInfo(dtype, value) | TupleStructInfo(fields) | ObjectStructInfo
     | FuncStructInfo(params, ret)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith.expr import ExprLike, IntImm, PrimExpr, convert
from tilewright.ir.node import Node, node

__all__ = [
    "FuncStructInfo", "ObjectStructInfo", "PrimStructInfo", "ShapeStructInfo", "StructInfo", "TensorStructInfo",
    "TupleStructInfo", "dims", "tensor",
]  # fmt: skip


@node
class StructInfo(Node):
    """The root of struct infos."""


@node
class ObjectStructInfo(StructInfo):
    """Any value."""


@node
class PrimStructInfo(StructInfo):
    """A scalar of `dtype`, perhaps with a known (symbolic) value."""

    dtype: str
    value: PrimExpr | None = None


@node
class ShapeStructInfo(StructInfo):
    """A shape: its values if known, else its length (-1: not even that)."""

    values: tuple[PrimExpr, ...] | None = None
    ndim: int = -1


@node
class TensorStructInfo(StructInfo):
    """A tensor. `shape` holds the dimensions (int64 expressions), or None where only `ndim` is known (-1: nothing)."""

    shape: tuple[PrimExpr, ...] | None = None
    dtype: str = "float32"
    ndim: int = -1


@node
class TupleStructInfo(StructInfo):
    """Several values as one."""

    fields: tuple[StructInfo, ...]


@node
class FuncStructInfo(StructInfo):
    """A function: of these params (None: any), to `ret`."""

    params: tuple[StructInfo, ...] | None
    ret: StructInfo
    purity: bool = True


def tensor(shape: Sequence[ExprLike] | None, dtype: str = "float32", ndim: int = -1) -> TensorStructInfo:
    """A tensor's struct info from numbers and expressions; dimensions become int64."""
    if shape is None:
        return TensorStructInfo(None, dtype, ndim)
    return TensorStructInfo(dims(shape), dtype, len(shape))


def dims(shape: Sequence[Any]) -> tuple[PrimExpr, ...]:
    """Dimensions as int64 expressions."""
    out: list[PrimExpr] = []
    for d in shape:
        e = convert(d, "int64") if isinstance(d, int) else convert(d)
        out.append(IntImm("int64", e.value) if isinstance(e, IntImm) else e)
    return tuple(out)
