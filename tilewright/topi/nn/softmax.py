"""Softmax and its kin: stages that find the maximum, add the exponentials, and normalise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, cast
from tilewright.topi.reduction import full_index
from tilewright.topi.util import accumulator, axes_of

__all__ = ["log_softmax", "softmax"]


def _stages(x: te.Tensor, axis: int) -> tuple[int, str, te.Tensor, te.Tensor]:
    """The axis, the dtype of sums, the maximum and the sum of exponentials along it."""
    (a,) = axes_of(axis, len(x.shape))
    acc = accumulator(x.dtype)
    n = x.shape[a]
    shape = tuple(d for k, d in enumerate(x.shape) if k != a)
    k1, k2 = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="k")
    top = te.compute(shape, lambda *i: te.max(x(*full_index(i, [k1], [a], False)), axis=k1), name="softmax_max")

    def term(*i: Any) -> PrimExpr:
        return te.sum(tir.exp(cast(x(*full_index(i, [k2], [a], False)) - top(*i), acc)), axis=k2)

    return a, acc, top, te.compute(shape, term, name="softmax_expsum")


def _drop(i: Sequence[Any], a: int) -> list[Any]:
    return [v for k, v in enumerate(i) if k != a]


def softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """exp(x - max(x)) / sum(exp(x - max(x))) along `axis`."""
    a, acc, top, total = _stages(x, axis)

    def norm(*i: Any) -> PrimExpr:
        rest = _drop(i, a)
        return cast(tir.div(tir.exp(cast(x(*i) - top(*rest), acc)), total(*rest)), x.dtype)

    return te.compute(x.shape, norm, name="softmax_norm")


def log_softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """x - max(x) - log(sum(exp(x - max(x)))) along `axis`."""
    a, acc, top, total = _stages(x, axis)

    def norm(*i: Any) -> PrimExpr:
        rest = _drop(i, a)
        return cast(cast(x(*i) - top(*rest), acc) - tir.log(total(*rest)), x.dtype)

    return te.compute(x.shape, norm, name="log_softmax_norm")
