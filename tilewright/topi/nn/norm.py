"""Normalisations: statistics in float32 at least, then one elementwise stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, cast, const
from tilewright.topi.nn.pad import pad
from tilewright.topi.reduction import full_index, kept_shape
from tilewright.topi.util import accumulator, axes_of, grid, prod

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "lrn", "rms_norm"]


def _moments(x: te.Tensor, axes: Sequence[int], acc: str) -> tuple[te.Tensor, te.Tensor]:
    """Mean and variance over `axes`, which the results lack."""
    shape = tuple(kept_shape(x.shape, axes, False))
    count = cast(prod([x.shape[a] for a in axes]), acc)
    ks = grid([x.shape[a] for a in axes], [f"k{a}" for a in axes])
    total = te.compute(
        shape, lambda *i: te.sum(cast(x(*full_index(i, ks, axes, False)), acc), axis=ks), name="mean_sum"
    )
    mean = te.compute(shape, lambda *i: tir.div(total(*i), count), name="mean")
    rs = grid([x.shape[a] for a in axes], [f"r{a}" for a in axes])

    def square(*i: Any) -> PrimExpr:
        d = cast(x(*full_index(i, rs, axes, False)), acc) - mean(*i)
        return te.sum(d * d, axis=rs)

    moment = te.compute(shape, square, name="variance_sum")
    return mean, te.compute(shape, lambda *i: tir.div(moment(*i), count), name="variance")


def _outer(i: Sequence[Any], axes: Sequence[int]) -> list[Any]:
    return [v for k, v in enumerate(i) if k not in axes]


def layer_norm(
    x: te.Tensor, gamma: te.Tensor | None, beta: te.Tensor | None, axis: Sequence[int], epsilon: float = 1e-5
) -> te.Tensor:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, with the statistics over `axis`; gamma has those dimensions."""
    axes = axes_of(axis, len(x.shape))
    acc = accumulator(x.dtype)
    mean, variance = _moments(x, axes, acc)
    eps = const(epsilon, acc)

    def value(*i: Any) -> PrimExpr:
        o, inner = _outer(i, axes), [i[a] for a in axes]
        y = (cast(x(*i), acc) - mean(*o)) * tir.rsqrt(variance(*o) + eps)
        if gamma is not None:
            y = y * cast(gamma(*inner), acc)
        if beta is not None:
            y = y + cast(beta(*inner), acc)
        return cast(y, x.dtype)

    return te.compute(x.shape, value, name="layer_norm")


def rms_norm(x: te.Tensor, weight: te.Tensor | None, axis: Sequence[int], epsilon: float = 1e-5) -> te.Tensor:
    """x / sqrt(mean(x * x) + epsilon) * weight, with the mean over `axis`."""
    axes = axes_of(axis, len(x.shape))
    acc = accumulator(x.dtype)
    shape = tuple(kept_shape(x.shape, axes, False))
    count = cast(prod([x.shape[a] for a in axes]), acc)
    ks = grid([x.shape[a] for a in axes], [f"k{a}" for a in axes])

    def square(*i: Any) -> PrimExpr:
        v = cast(x(*full_index(i, ks, axes, False)), acc)
        return te.sum(v * v, axis=ks)

    total = te.compute(shape, square, name="square_sum")
    eps = const(epsilon, acc)
    scale = te.compute(shape, lambda *i: tir.rsqrt(tir.div(total(*i), count) + eps), name="rms_scale")

    def value(*i: Any) -> PrimExpr:
        y = cast(x(*i), acc) * scale(*_outer(i, axes))
        return cast(y if weight is None else y * cast(weight(*(i[a] for a in axes)), acc), x.dtype)

    return te.compute(x.shape, value, name="rms_norm")


def instance_norm(
    x: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    channel_axis: int,
    axis: Sequence[int],
    epsilon: float = 1e-5,
) -> te.Tensor:
    """Statistics over `axis` for every instance and channel; gamma and beta belong to the channels."""
    axes = axes_of(axis, len(x.shape))
    (c,) = axes_of(channel_axis, len(x.shape))
    acc = accumulator(x.dtype)
    mean, variance = _moments(x, axes, acc)
    eps = const(epsilon, acc)

    def value(*i: Any) -> PrimExpr:
        o = _outer(i, axes)
        y = (cast(x(*i), acc) - mean(*o)) * tir.rsqrt(variance(*o) + eps)
        return cast(y * cast(gamma(i[c]), acc) + cast(beta(i[c]), acc), x.dtype)

    return te.compute(x.shape, value, name="instance_norm")


def group_norm(
    x: te.Tensor,
    gamma: te.Tensor | None,
    beta: te.Tensor | None,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
) -> te.Tensor:
    """Statistics over the channels of a group and over `axes`; gamma and beta belong to the channels."""
    ndim = len(x.shape)
    (c,) = axes_of(channel_axis, ndim)
    spatial = axes_of(axes, ndim)
    acc = accumulator(x.dtype)
    size = tir.convert(x.shape[c]) // num_groups
    outer = [k for k in range(ndim) if k != c and k not in spatial]
    shape = (*(x.shape[k] for k in outer), const(num_groups, "int64"))
    count = cast(size * prod([x.shape[a] for a in spatial]), acc)

    def gathered(ks: Sequence[Any]) -> Any:
        def at(*i: Any) -> PrimExpr:
            index: list[Any] = [None] * ndim
            for k, v in zip(outer, i[:-1], strict=True):
                index[k] = v
            index[c] = i[-1] * size + ks[0].var
            for k, v in zip(spatial, ks[1:], strict=True):
                index[k] = v.var
            return cast(x(*index), acc)

        return at

    def axes_grid() -> list[Any]:
        return grid([size, *(x.shape[a] for a in spatial)], ["rc", *(f"k{a}" for a in spatial)])

    k1, k2 = axes_grid(), axes_grid()
    total = te.compute(shape, lambda *i: te.sum(gathered(k1)(*i), axis=k1), name="mean_sum")
    mean = te.compute(shape, lambda *i: tir.div(total(*i), count), name="mean")

    def square(*i: Any) -> PrimExpr:
        d = gathered(k2)(*i) - mean(*i)
        return te.sum(d * d, axis=k2)

    moment = te.compute(shape, square, name="variance_sum")
    eps = const(epsilon, acc)
    scale = te.compute(shape, lambda *i: tir.rsqrt(tir.div(moment(*i), count) + eps), name="group_scale")

    def value(*i: Any) -> PrimExpr:
        o = [*(i[k] for k in outer), i[c] // size]
        y = (cast(x(*i), acc) - mean(*o)) * scale(*o)
        if gamma is not None:
            y = y * cast(gamma(i[c]), acc)
        if beta is not None:
            y = y + cast(beta(i[c]), acc)
        return cast(y, x.dtype)

    return te.compute(x.shape, value, name="group_norm")


def batch_norm(
    x: te.Tensor,
    gamma: te.Tensor | None,
    beta: te.Tensor | None,
    mean: te.Tensor,
    variance: te.Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
) -> te.Tensor:
    """(x - mean) * (gamma / sqrt(variance + epsilon)) + beta with given statistics: inference."""
    (c,) = axes_of(axis, len(x.shape))
    acc = accumulator(x.dtype)
    eps = const(epsilon, acc)

    def factor(k: Any) -> PrimExpr:
        root = tir.sqrt(cast(variance(k), acc) + eps)
        return tir.div(cast(gamma(k), acc) if gamma is not None else const(1.0, acc), root)

    scale = te.compute((x.shape[c],), factor, name="batch_norm_scale")

    def value(*i: Any) -> PrimExpr:
        y = (cast(x(*i), acc) - cast(mean(i[c]), acc)) * scale(i[c])
        return cast(y + cast(beta(i[c]), acc) if beta is not None else y, x.dtype)

    return te.compute(x.shape, value, name="batch_norm")


def lrn(
    x: te.Tensor, size: int, axis: int = 1, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> te.Tensor:
    """x / (bias + alpha / size * sum of squares of `size` neighbours along `axis`) ** beta.

    The window begins floor((size - 1) / 2) before the element and is cut at the ends.
    """
    (c,) = axes_of(axis, len(x.shape))
    acc = accumulator(x.dtype)
    before: list[Any] = [0] * len(x.shape)
    after = list(before)
    before[c], after[c] = (size - 1) // 2, size // 2
    padded = pad(x, before, after, const(0, x.dtype))
    k = te.reduce_axis((0, const(size, "int64")), name="k")

    def square(*i: Any) -> PrimExpr:
        v = cast(padded(*(a + k.var if d == c else a for d, a in enumerate(i))), acc)
        return te.sum(v * v, axis=k)

    total = te.compute(x.shape, square, name="square_sum")
    factor = const(alpha / size, acc)

    def value(*i: Any) -> PrimExpr:
        base = const(bias, acc) + factor * total(*i)
        if beta == 0.75:  # two square roots are far cheaper than a power
            root = tir.sqrt(base)
            power = root * tir.sqrt(root)
        elif beta == 0.5:
            power = tir.sqrt(base)
        else:
            power = tir.pow(base, const(beta, acc))
        return cast(tir.div(cast(x(*i), acc), power), x.dtype)

    return te.compute(x.shape, value, name="lrn")
