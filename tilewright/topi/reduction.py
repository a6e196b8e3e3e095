"""Reductions over axes. `axis` is an int, a sequence of ints, or None for all; `keepdims` leaves extents of 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, cast, const
from tilewright.topi.util import accumulator, axes_of, grid
from tilewright.topi.util import prod as product

__all__ = [
    "all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "reduce", "sum", "variance",
]  # fmt: skip

Axis = Any


def kept_shape(shape: Sequence[Any], axes: Sequence[int], keepdims: bool) -> list[Any]:
    """The shape after reducing over `axes`."""
    one = const(1, "int64")
    if keepdims:
        return [one if k in axes else d for k, d in enumerate(shape)]
    return [d for k, d in enumerate(shape) if k not in axes]


def full_index(index: Sequence[Any], reduced: Sequence[Any], axes: Sequence[int], keepdims: bool) -> list[Any]:
    """The index into the operand from the result's index and the reduction axes."""
    inner = iter(reduced)
    if keepdims:
        return [next(inner) if k in axes else i for k, i in enumerate(index)]
    outer = iter(index)
    return [next(inner) if k in axes else next(outer) for k in range(len(index) + len(axes))]


def reduce(
    x: te.Tensor,
    reducer: Callable[..., Any],
    axis: Axis = None,
    keepdims: bool = False,
    name: str = "reduce",
    value: Callable[[PrimExpr], PrimExpr] = lambda v: v,
) -> te.Tensor:
    """`reducer` (te.sum, te.max, ...) of `value` of every element over the axes. Reducing over no axis maps `value`."""
    axes = axes_of(axis, len(x.shape))
    shape = kept_shape(x.shape, axes, keepdims)
    if not axes:
        return te.compute(tuple(shape), lambda *i: value(x(*i)), name=name)
    ks = grid([x.shape[a] for a in axes], [f"k{a}" for a in axes])

    def body(*i: Any) -> Any:
        return reducer(value(x(*full_index(i, ks, axes, keepdims))), axis=ks)

    return te.compute(tuple(shape), body, name=name)


def _narrowed(t: te.Tensor, dtype: str) -> te.Tensor:
    if t.dtype == dtype:
        return t
    return te.compute(t.shape, lambda *i: cast(t(*i), dtype), name=f"{t.op.name}_cast")


def sum(
    x: te.Tensor, axis: Axis = None, keepdims: bool = False, value: Callable[[PrimExpr], PrimExpr] = lambda v: v
) -> te.Tensor:
    """The sum of `value` of the elements; narrow floats are added in float32."""
    acc = accumulator(x.dtype)
    return _narrowed(reduce(x, te.sum, axis, keepdims, "sum", lambda v: value(cast(v, acc))), x.dtype)


def prod(x: te.Tensor, axis: Axis = None, keepdims: bool = False) -> te.Tensor:
    """The product; narrow floats are multiplied in float32."""
    acc = accumulator(x.dtype)
    reducer = te.comm_reducer(lambda a, b: a * b, lambda t: const(1, t), name="prod")
    return _narrowed(reduce(x, reducer, axis, keepdims, "prod", lambda v: cast(v, acc)), x.dtype)


def max(x: te.Tensor, axis: Axis = None, keepdims: bool = False) -> te.Tensor:
    """The greatest."""
    return reduce(x, te.max, axis, keepdims, "max")


def min(x: te.Tensor, axis: Axis = None, keepdims: bool = False) -> te.Tensor:
    """The smallest."""
    return reduce(x, te.min, axis, keepdims, "min")


def all(x: te.Tensor, axis: Axis = None, keepdims: bool = False) -> te.Tensor:
    """Are all of the bools true?"""
    reducer = te.comm_reducer(tir.logical_and, lambda t: const(True, t), name="all")
    return reduce(x, reducer, axis, keepdims, "all")


def any(x: te.Tensor, axis: Axis = None, keepdims: bool = False) -> te.Tensor:
    """Is one of the bools true?"""
    reducer = te.comm_reducer(tir.logical_or, lambda t: const(False, t), name="any")
    return reduce(x, reducer, axis, keepdims, "any")


def _count(x: te.Tensor, axes: Sequence[int], dtype: str) -> PrimExpr:
    return cast(product([x.shape[a] for a in axes]), dtype)


def mean(x: te.Tensor, axis: Axis = None, keepdims: bool = False) -> te.Tensor:
    """The arithmetic mean; narrow floats are added in float32, integers divide with truncation."""
    axes = axes_of(axis, len(x.shape))
    acc = accumulator(x.dtype)
    total = reduce(x, te.sum, axis, keepdims, "sum", lambda v: cast(v, acc))
    count = _count(x, axes, acc)
    return te.compute(total.shape, lambda *i: cast(tir.div(total(*i), count), x.dtype), name="mean")


def variance(x: te.Tensor, axis: Axis = None, keepdims: bool = False) -> te.Tensor:
    """The mean of the squared distances from the mean (not the unbiased estimate)."""
    axes = axes_of(axis, len(x.shape))
    acc = accumulator(x.dtype)
    count = _count(x, axes, acc)
    total = reduce(x, te.sum, axis, True, "sum", lambda v: cast(v, acc))
    middle = te.compute(total.shape, lambda *i: tir.div(total(*i), count), name="mean")
    ks = grid([x.shape[a] for a in axes], [f"k{a}" for a in axes])

    def squares(*i: Any) -> Any:
        at = full_index(i, ks, axes, keepdims)
        zero = const(0, "int64")
        d = cast(x(*at), acc) - middle(*(zero if k in axes else j for k, j in enumerate(at)))
        return te.sum(d * d, axis=ks)

    moment = te.compute(tuple(kept_shape(x.shape, axes, keepdims)), squares, name="squares")
    return te.compute(moment.shape, lambda *i: cast(tir.div(moment(*i), count), x.dtype), name="variance")


def _arg(x: te.Tensor, axis: int | None, keepdims: bool, select_last_index: bool, greatest: bool) -> te.Tensor:
    """The position of the extreme: first the extreme value, then the first (or last) position that has it.

    Two plain reductions vectorise where one over pairs does not. For NaNs the position is one in range.
    """
    if axis is None:
        from tilewright.topi.transform import reshape

        ndim = len(x.shape)
        flat = reshape(x, [product(x.shape)])
        out = _arg(flat, 0, False, select_last_index, greatest)
        return reshape(out, [const(1, "int64")] * ndim) if keepdims else out
    (a,) = axes_of(axis, len(x.shape))
    n = cast(tir.convert(x.shape[a]), "int64")
    best = reduce(x, te.max if greatest else te.min, a, True, "best")
    k = te.reduce_axis((0, x.shape[a]), name="k")
    last = n - 1

    def position(*i: Any) -> Any:
        at = full_index(i, [k], [a], keepdims)
        found = tir.EQ(x(*at), best(*(const(0, "int64") if j == a else v for j, v in enumerate(at))))
        here = cast(tir.convert(k), "int64")
        if select_last_index:
            return te.max(tir.Select(found, here, const(0, "int64")), axis=k)
        return te.min(tir.Select(found, here, last), axis=k)

    shape = kept_shape(x.shape, [a], keepdims)
    reducer_name = "argmax" if greatest else "argmin"
    return te.compute(tuple(shape), position, name=reducer_name)


def argmax(x: te.Tensor, axis: int | None = None, keepdims: bool = False, select_last_index: bool = False) -> te.Tensor:
    """The position of the greatest element along `axis`, int64; of equals the first, or the last."""
    return _arg(x, axis, keepdims, select_last_index, True)


def argmin(x: te.Tensor, axis: int | None = None, keepdims: bool = False, select_last_index: bool = False) -> te.Tensor:
    """The position of the smallest element along `axis`, int64; of equals the first, or the last."""
    return _arg(x, axis, keepdims, select_last_index, False)
