"""Normalisations. Statistics are kept in float32 at least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ops.common import as_int, axes, axis, dims_equal, fail, floats, known, rng, same_dtype, tensor
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import TensorStructInfo, TupleStructInfo


def _per_channel(op: Op, x: Any, c: int, params: Sequence[tuple[str, Any]]) -> None:
    """Every parameter has one value a channel, of the operand's dtype."""
    shape = known(op, x)
    for what, p in params:
        if p is None:
            continue
        same_dtype(op, [tensor(op, x), tensor(op, p, what)], ["the operand", what])
        (n,) = known(op, p, what, 1)
        dims_equal(op, n, shape[c], f"{what} needs one value a channel")


def _spread(p: Any, ndim: int, c: int) -> Any:
    shape = [1] * ndim
    shape[c] = -1
    return p.astype(np.float64).reshape(shape)


def _values(seed: int, *shape: int) -> Any:
    return rng(seed).uniform(-2, 3, shape).astype(np.float32)


@operator
class BatchNorm(Op, name="nn.batch_norm"):
    """Inference: ((data - moving_mean) / sqrt(moving_var + epsilon) * gamma + beta, moving_mean, moving_var)."""

    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True
    momentum: float = 0.1

    def infer(self, data: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any) -> TupleStructInfo:
        si = floats(self, data)
        c = axis(self, self.axis, len(known(self, data)))
        names = ("gamma", "beta", "moving_mean", "moving_var")
        params = list(zip(names, (gamma, beta, moving_mean, moving_var), strict=True))
        _per_channel(self, data, c, params)
        return TupleStructInfo((si, tensor(self, moving_mean), tensor(self, moving_var)))

    def compute(self, data: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any) -> Any:
        y = topi.nn.batch_norm(
            data,
            gamma if self.scale else None,
            beta if self.center else None,
            moving_mean,
            moving_var,
            self.axis,
            self.epsilon,
        )
        return [y, topi.identity(moving_mean), topi.identity(moving_var)]

    def reference(self, data: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any) -> Any:
        g, b, m, v = (_spread(p, data.ndim, self.axis) for p in (gamma, beta, moving_mean, moving_var))
        y = (data - m) / np.sqrt(v + self.epsilon) * (g if self.scale else 1) + (b if self.center else 0)
        return y.astype(data.dtype), moving_mean.copy(), moving_var.copy()

    @classmethod
    def samples(cls) -> list[Sample]:
        x = _values(0, 2, 3, 4, 2)
        p = [_values(k, 3) for k in range(3)]
        q = [_values(k, 2) for k in range(3)]
        return [
            Sample(cls(), (x, *p, np.abs(_values(9, 3)))),
            Sample(cls(3, 1e-3, False, False), (x, *q, np.abs(_values(9, 2)))),
        ]


@operator
class LayerNorm(Op, name="nn.layer_norm"):
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta, statistics over `axes`; gamma has those dimensions."""

    axes: Any = -1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True

    def infer(self, data: Any, gamma: Any, beta: Any = None) -> TensorStructInfo:
        si = floats(self, data)
        shape = known(self, data)
        over = axes(self, self.axes, len(shape), "axes")
        for what, p in (("gamma", gamma), ("beta", beta)):
            if p is None:
                continue
            for a, n in zip(sorted(over), known(self, p, what, len(over)), strict=True):
                dims_equal(self, n, shape[a], f"{what} needs the shape of the normalised dimensions")
        return si

    def compute(self, data: Any, gamma: Any, beta: Any = None) -> Any:
        return topi.nn.layer_norm(
            data, gamma if self.scale else None, beta if self.center else None, self.axes, self.epsilon
        )

    def reference(self, data: Any, gamma: Any, beta: Any = None) -> Any:
        over = tuple(sorted(a % data.ndim for a in ((self.axes,) if isinstance(self.axes, int) else self.axes)))
        wide = data.astype(np.float64)
        d = wide - wide.mean(axis=over, keepdims=True)
        y = d / np.sqrt((d * d).mean(axis=over, keepdims=True) + self.epsilon)
        shape = [n if k in over else 1 for k, n in enumerate(data.shape)]
        if self.scale:
            y = y * gamma.reshape(shape)
        if beta is not None and self.center:
            y = y + beta.reshape(shape)
        return y.astype(data.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = _values(0, 2, 3, 8)
        return [
            Sample(cls(), (x, _values(1, 8), _values(2, 8))),
            Sample(cls((-2, -1), 1e-3), (x, _values(1, 3, 8), _values(2, 3, 8))),
            Sample(cls(center=False), (x, _values(1, 8), _values(2, 8))),
            Sample(cls(), (x, _values(1, 8))),
            Sample(cls(), (x.astype(np.float16), _values(1, 8).astype(np.float16), _values(2, 8).astype(np.float16))),
        ]


@operator
class RmsNorm(Op, name="nn.rms_norm"):
    """data / sqrt(mean(data * data) + epsilon) * weight, the mean over `axes`; weight has those dimensions."""

    axes: Any = -1
    epsilon: float = 1e-5

    def infer(self, data: Any, weight: Any) -> TensorStructInfo:
        si = floats(self, data)
        shape = known(self, data)
        over = axes(self, self.axes, len(shape), "axes")
        for a, n in zip(sorted(over), known(self, weight, "weight", len(over)), strict=True):
            dims_equal(self, n, shape[a], "weight needs the shape of the normalised dimensions")
        return si

    def compute(self, data: Any, weight: Any) -> Any:
        return topi.nn.rms_norm(data, weight, self.axes, self.epsilon)

    def reference(self, data: Any, weight: Any) -> Any:
        over = tuple(sorted(a % data.ndim for a in ((self.axes,) if isinstance(self.axes, int) else self.axes)))
        wide = data.astype(np.float64)
        y = wide / np.sqrt((wide * wide).mean(axis=over, keepdims=True) + self.epsilon)
        return (y * weight.reshape([n if k in over else 1 for k, n in enumerate(data.shape)])).astype(data.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = _values(0, 2, 3, 8)
        return [Sample(cls(), (x, _values(1, 8))), Sample(cls((-2, -1), 1e-3), (x, _values(1, 3, 8)))]


@operator
class InstanceNorm(Op, name="nn.instance_norm"):
    """Statistics over `axes` for every instance and channel; gamma and beta belong to the channels."""

    channel_axis: int = 1
    axes: Any = (2, 3)
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True

    def infer(self, data: Any, gamma: Any, beta: Any) -> TensorStructInfo:
        si = floats(self, data)
        ndim = len(known(self, data))
        c = axis(self, self.channel_axis, ndim, "channel_axis")
        if c in axes(self, self.axes, ndim, "axes"):
            fail(self, "TW0207", f"channel_axis {self.channel_axis} is one of axes {list(self.axes)}")
        _per_channel(self, data, c, [("gamma", gamma), ("beta", beta)])
        return si

    def compute(self, data: Any, gamma: Any, beta: Any) -> Any:
        g = gamma if self.scale else topi.full_like(gamma, 1.0)
        b = beta if self.center else topi.full_like(beta, 0.0)
        return topi.nn.instance_norm(data, g, b, self.channel_axis, self.axes, self.epsilon)

    def reference(self, data: Any, gamma: Any, beta: Any) -> Any:
        over = tuple(a % data.ndim for a in ((self.axes,) if isinstance(self.axes, int) else self.axes))
        wide = data.astype(np.float64)
        d = wide - wide.mean(axis=over, keepdims=True)
        y = d / np.sqrt((d * d).mean(axis=over, keepdims=True) + self.epsilon)
        if self.scale:
            y = y * _spread(gamma, data.ndim, self.channel_axis)
        if self.center:
            y = y + _spread(beta, data.ndim, self.channel_axis)
        return y.astype(data.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = _values(0, 2, 3, 4, 5)
        return [
            Sample(cls(), (x, _values(1, 3), _values(2, 3))),
            Sample(cls(1, (2,)), (_values(3, 2, 3, 6), _values(1, 3), _values(2, 3))),
            Sample(cls(-1, (1, 2), 1e-3), (x, _values(1, 5), _values(2, 5))),
        ]


@operator
class GroupNorm(Op, name="nn.group_norm"):
    """Statistics over the channels of a group and over `axes`; gamma and beta belong to the channels."""

    num_groups: int = 1
    channel_axis: int = 1
    axes: Any = (2, 3)
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True

    def infer(self, data: Any, gamma: Any, beta: Any) -> TensorStructInfo:
        si = floats(self, data)
        shape = known(self, data)
        c = axis(self, self.channel_axis, len(shape), "channel_axis")
        axes(self, self.axes, len(shape), "axes")
        n = as_int(shape[c])
        if n is not None and n % self.num_groups:
            fail(self, "TW0206", f"{n} channels do not divide into {self.num_groups} groups")
        _per_channel(self, data, c, [("gamma", gamma), ("beta", beta)])
        return si

    def compute(self, data: Any, gamma: Any, beta: Any) -> Any:
        g, b = gamma if self.scale else None, beta if self.center else None
        return topi.nn.group_norm(data, g, b, self.num_groups, self.channel_axis, self.axes, self.epsilon)

    def reference(self, data: Any, gamma: Any, beta: Any) -> Any:
        c = self.channel_axis % data.ndim
        over = [a % data.ndim for a in self.axes]
        wide = data.astype(np.float64)
        split = wide.reshape(*data.shape[:c], self.num_groups, -1, *data.shape[c + 1 :])
        where = tuple(a + (a > c) for a in over) + (c + 1,)
        d = split - split.mean(axis=where, keepdims=True)
        y = (d / np.sqrt((d * d).mean(axis=where, keepdims=True) + self.epsilon)).reshape(data.shape)
        if self.scale:
            y = y * _spread(gamma, data.ndim, c)
        if self.center:
            y = y + _spread(beta, data.ndim, c)
        return y.astype(data.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = _values(0, 2, 6, 4, 3)
        return [
            Sample(cls(3), (x, _values(1, 6), _values(2, 6))),
            Sample(cls(2, 1, (2,)), (_values(3, 2, 6, 5), _values(1, 6), _values(2, 6))),
        ]


@operator
class Lrn(Op, name="nn.lrn"):
    """x / (bias + alpha / size * sum of squares of `size` neighbours along the channels) ** beta."""

    size: int = 5
    axis: int = 1
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    def infer(self, x: Any) -> TensorStructInfo:
        si = floats(self, x)
        axis(self, self.axis, len(known(self, x)))
        if self.size < 1:
            fail(self, "TW0206", f"size is {self.size}, needs at least 1")
        return si

    def compute(self, x: Any) -> Any:
        return topi.nn.lrn(x, self.size, self.axis, self.alpha, self.beta, self.bias)

    def reference(self, x: Any) -> Any:
        wide = np.moveaxis(x.astype(np.float64), self.axis, 0)
        total = np.zeros_like(wide)
        n = wide.shape[0]
        for c in range(n):
            low, high = max(0, c - (self.size - 1) // 2), min(n, c + self.size // 2 + 1)
            total[c] = (wide[low:high] ** 2).sum(axis=0)
        y = wide / (self.bias + self.alpha / self.size * total) ** self.beta
        return np.ascontiguousarray(np.moveaxis(y, 0, self.axis)).astype(x.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = _values(0, 2, 6, 3, 2)
        return [
            Sample(cls(), (x,)),
            Sample(cls(4, 1, 0.5, 0.5, 2.0), (x,)),
            Sample(cls(3, 3, 0.1, 0.9), (x,)),
        ]
