"""Reading at places that other tensors say. Indices count from the end where negative, and are clamped into range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, cast, const
from tilewright.topi.loops import wrapped_index
from tilewright.topi.util import axes_of, number

__all__ = ["arange", "arange_of", "eye", "gather", "gather_nd", "one_hot", "shape_tensor", "take"]


def take(a: te.Tensor, indices: Any, axis: int | None = None) -> te.Tensor:
    """Slices of `a` along `axis` (None: elements of the flattened tensor); `indices` may be a scalar expression."""
    if axis is None:
        from tilewright.topi.transform import flatten

        a, axis = flatten(a), 0
    (k,) = axes_of(axis, len(a.shape))
    inner = list(indices.shape) if isinstance(indices, te.Tensor) else []
    shape = [*a.shape[:k], *inner, *a.shape[k + 1 :]]

    def value(*i: Any) -> PrimExpr:
        where = indices(*i[k : k + len(inner)]) if isinstance(indices, te.Tensor) else tir.convert(indices)
        return a(*i[:k], wrapped_index(where, a.shape[k]), *i[k + len(inner) :])

    return te.compute(tuple(shape), value, name="take")


def gather(data: te.Tensor, axis: int, indices: te.Tensor) -> te.Tensor:
    """`data` at the place i whose coordinate along `axis` is `indices[i]`."""
    (k,) = axes_of(axis, len(data.shape))

    def value(*i: Any) -> PrimExpr:
        return data(*i[:k], wrapped_index(indices(*i), data.shape[k]), *i[k + 1 :])

    return te.compute(indices.shape, value, name="gather")


def gather_nd(data: te.Tensor, indices: te.Tensor, batch_dims: int = 0) -> te.Tensor:
    """Slices of `data` at the coordinates in the last dimension of `indices`; the first `batch_dims` run together."""
    depth = number(indices.shape[-1])
    outer = list(indices.shape[:-1])
    shape = [*outer, *data.shape[batch_dims + depth :]]

    def value(*i: Any) -> PrimExpr:
        head, tail = i[: len(outer)], i[len(outer) :]
        at = [wrapped_index(indices(*head, const(j, "int64")), data.shape[batch_dims + j]) for j in range(depth)]
        return data(*head[:batch_dims], *at, *tail)

    return te.compute(tuple(shape), value, name="gather_nd")


def one_hot(indices: te.Tensor, on_value: Any, off_value: Any, depth: Any, axis: int, dtype: str) -> te.Tensor:
    """A new dimension `axis` of extent `depth`: `on_value` at the index, else `off_value`."""
    ndim = len(indices.shape) + 1
    k = axis % ndim
    n = cast(tir.convert(depth), "int64")
    shape = [*indices.shape[:k], n, *indices.shape[k:]]
    on, off = (cast(tir.convert(v, dtype), dtype) for v in (on_value, off_value))

    def value(*i: Any) -> PrimExpr:
        where = cast(indices(*i[:k], *i[k + 1 :]), "int64")
        where = tir.Select(where < const(0, "int64"), where + n, where)
        return tir.Select(tir.EQ(where, cast(i[k], "int64")), on, off)

    return te.compute(tuple(shape), value, name="one_hot")


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str = "float32") -> te.Tensor:
    """start, start + step, ... below `stop`; of one number, from 0 to it."""
    if stop is None:
        start, stop = 0, start
    count = max(0, math.ceil((stop - start) / step))
    return arange_of(start, step, (const(count, "int64"),), dtype)


def arange_of(start: Any, step: Any, shape: Sequence[Any], dtype: str) -> te.Tensor:
    """start, start + step, ...: as many as `shape` says."""
    begin, by = (tir.convert(v, dtype) for v in (start, step))
    return te.compute(tuple(shape), lambda i: cast(begin, dtype) + cast(by, dtype) * cast(i, dtype), name="arange")


def eye(shape: Sequence[Any], k: int, dtype: str) -> te.Tensor:
    """Ones on the k-th diagonal of a matrix."""
    one, zero = const(1, dtype), const(0, dtype)
    return te.compute(tuple(shape), lambda i, j: tir.Select(tir.EQ(i + k, j), one, zero), name="eye")


def shape_tensor(shape: Sequence[Any]) -> te.Tensor:
    """The sizes of a shape as a tensor of int64."""

    def value(i: Any) -> PrimExpr:
        out = cast(tir.convert(shape[-1]), "int64")
        for k in reversed(range(len(shape) - 1)):
            out = tir.Select(tir.EQ(i, const(k, i.dtype)), cast(tir.convert(shape[k]), "int64"), out)
        return out

    return te.compute((const(len(shape), "int64"),), value, name="shape_tensor")
