"""Pooling in one, two and three dimensions."""

from __future__ import annotations

import itertools
import math
from typing import Any, ClassVar

import numpy as np

from tilewright import topi
from tilewright.ops.common import as_int, check_dtype, fail, ints, known, out, pair_up, rng, tensor
from tilewright.ops.nn.conv import from_channels_first, set_field, to_channels_first
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.topi.nn.pooling import pool_output

_LAYOUTS = ("NCW", "NCHW", "NCDHW")


def _check_layout(op: Any) -> None:
    letters = "NC" + "DHW"[3 - op.rank :]
    if not op.layout:
        set_field(op, layout=letters)
    if sorted(op.layout) != sorted(letters):
        fail(op, "TW0206", f"layout {op.layout!r} is not known", f"use the letters {', '.join(letters)}")
    if op.out_layout and op.out_layout != op.layout:
        fail(op, "TW0206", f"out_layout {op.out_layout!r} differs from layout {op.layout!r}")


def windows(op: Any, n: int, j: int) -> list[list[int]]:
    """The positions in the data (some outside) of each window along spatial dimension `j` of extent `n`."""
    rank = op.rank
    k, s, d = op.pool_size[j], op.strides[j], op.dilation[j]
    low, high = op.padding[j], op.padding[rank + j]
    count = int(pool_output(n, k, s, low, high, d, op.ceil_mode))  # pyright: ignore[reportArgumentType]
    return [[i * s - low + t * d for t in range(k)] for i in range(count)]


@operator
class Pool(Op):
    """The family of poolings over windows; `padding` has the amounts before, then after, each spatial dimension.

    `ceil_mode`: the last window may end past the padding (what lies there does not count).
    """

    pool_size: Any = 1
    strides: Any = 1
    padding: Any = 0
    dilation: Any = 1
    ceil_mode: bool = False
    count_include_pad: bool = False
    layout: str = ""
    out_layout: str = ""

    rank: ClassVar[int] = 2
    kinds: ClassVar[str] = "f"

    def __post_init__(self) -> None:
        set_field(
            self,
            pool_size=ints(self, "pool_size", self.pool_size, self.rank, 1),
            strides=ints(self, "strides", self.strides, self.rank, 1),
            dilation=ints(self, "dilation", self.dilation, self.rank, 1),
            padding=ints(self, "padding", pair_up(self.padding, self.rank), 2 * self.rank),
        )
        _check_layout(self)
        for j in range(self.rank):
            span = (self.pool_size[j] - 1) * self.dilation[j] + 1
            if max(self.padding[j], self.padding[self.rank + j]) >= span:
                text = f"padding {list(self.padding)} is not less than the window of {list(self.pool_size)}"
                fail(self, "TW0206", text, "a window must not lie in the padding alone")

    def infer(self, x: Any) -> TensorStructInfo:
        si = tensor(self, x)
        check_dtype(self, si.dtype, self.kinds, operand=x)
        shape = list(known(self, x, f"the operand ({self.layout})", self.rank + 2))
        spatial = [k for k, c in enumerate(self.layout) if c not in "NC"]
        for j, a in enumerate(spatial):
            size = pool_output(
                shape[a],
                self.pool_size[j],
                self.strides[j],
                self.padding[j],
                self.padding[self.rank + j],
                self.dilation[j],
                self.ceil_mode,
            )
            if (value := as_int(size)) is not None and value < 1:
                fail(
                    self, "TW0203", f"the window is larger than the padded data in dimension {self.layout[a]}", None, x
                )
            shape[a] = size
        return out(shape, si.dtype)

    def _geometry(self) -> tuple[Any, Any, Any, Any]:
        return self.pool_size, self.strides, self.padding, self.dilation

    def _reduce(self, values: list[Any], taps: int, included: int) -> Any:
        raise TypeError

    def reference(self, x: Any) -> Any:
        data = to_channels_first(x, self.layout)
        per_axis = [windows(self, n, j) for j, n in enumerate(data.shape[2:])]
        result = np.zeros((*data.shape[:2], *map(len, per_axis)), np.float64)
        extents = data.shape[2:]
        for at in itertools.product(*(range(len(w)) for w in per_axis)):
            rows = [w[i] for w, i in zip(per_axis, at, strict=True)]
            inside = [[p for p in r if 0 <= p < n] for r, n in zip(rows, extents, strict=True)]
            padded = [
                sum(-self.padding[j] <= p < n + self.padding[self.rank + j] for p in r)
                for j, (r, n) in enumerate(zip(rows, extents, strict=True))
            ]
            block = data[np.ix_(range(data.shape[0]), range(data.shape[1]), *inside)]
            flat = block.reshape(*data.shape[:2], -1).astype(np.float64)
            result[(..., *at)] = self._reduce([flat], math.prod(map(len, inside)), math.prod(padded))
        return from_channels_first(result.astype(x.dtype), self.layout)

    @classmethod
    def samples(cls) -> list[Sample]:
        rank = cls.rank
        x = rng().uniform(-3, 3, (1, 2, *(7, 6, 5)[:rank])).astype(np.float32)
        last = "NHWC" if rank == 2 else "NWC" if rank == 1 else "NDHWC"
        y = rng(1).uniform(-3, 3, (1, *(7, 6, 5)[:rank], 2)).astype(np.float32)
        return [
            Sample(cls(2, 2), (x,)),
            Sample(cls(3, 2, 1), (x,)),
            Sample(cls(3, 2, 1, count_include_pad=True), (x,)),
            Sample(cls(3, 2, 0, 1, True), (x,)),
            Sample(cls(3, 2, 1, 1, True, True), (x,)),
            Sample(cls(2, 1, (1, 0, 1)[:rank] + (0, 1, 0)[:rank], 2), (x,)),
            Sample(cls(3, 3, 1, 1, True, layout=last), (y,)),
        ]


class _Max(Pool):
    kinds: ClassVar[str] = "fi"

    def compute(self, x: Any) -> Any:
        return topi.nn.max_pool(x, *self._geometry(), self.ceil_mode, self.layout)

    def _reduce(self, values: list[Any], taps: int, included: int) -> Any:
        return values[0].max(axis=-1)


class _Avg(Pool):
    def compute(self, x: Any) -> Any:
        return topi.nn.avg_pool(x, *self._geometry(), self.ceil_mode, self.count_include_pad, self.layout)

    def _reduce(self, values: list[Any], taps: int, included: int) -> Any:
        return values[0].sum(axis=-1) / (included if self.count_include_pad else taps)


@operator
class MaxPool1d(_Max, name="nn.max_pool1d"):
    """The greatest element of each window, one spatial dimension."""

    rank: ClassVar[int] = 1


@operator
class MaxPool2d(_Max, name="nn.max_pool2d"):
    """The greatest element of each window, two spatial dimensions."""


@operator
class MaxPool3d(_Max, name="nn.max_pool3d"):
    """The greatest element of each window, three spatial dimensions."""

    rank: ClassVar[int] = 3


@operator
class AvgPool1d(_Avg, name="nn.avg_pool1d"):
    """The mean of each window, one spatial dimension."""

    rank: ClassVar[int] = 1


@operator
class AvgPool2d(_Avg, name="nn.avg_pool2d"):
    """The mean of each window, two spatial dimensions."""


@operator
class AvgPool3d(_Avg, name="nn.avg_pool3d"):
    """The mean of each window, three spatial dimensions."""

    rank: ClassVar[int] = 3


@operator
class LpPool2d(Pool, name="nn.lp_pool2d"):
    """The p-norm of each window, two spatial dimensions."""

    p: int = 2

    def compute(self, x: Any) -> Any:
        return topi.nn.avg_pool(x, *self._geometry(), self.ceil_mode, False, self.layout, power=self.p)

    def _reduce(self, values: list[Any], taps: int, included: int) -> Any:
        return (np.abs(values[0]) ** self.p).sum(axis=-1) ** (1 / self.p)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-3, 3, (1, 2, 6, 5)).astype(np.float32)
        return [Sample(cls(2, 2), (x,)), Sample(cls(3, 2, 1, p=3), (x,))]


@operator
class AdaptivePool(Op):
    """The family of poolings to a given size: bin i of m takes floor(i*n/m) up to ceil((i+1)*n/m)."""

    output_size: Any = 1
    layout: str = ""
    out_layout: str = ""

    rank: ClassVar[int] = 2
    kind: ClassVar[str] = "avg"

    def __post_init__(self) -> None:
        _check_layout(self)
        if self.output_size is not None:
            set_field(self, output_size=ints(self, "output_size", self.output_size, self.rank, 1))

    def _sizes(self, shape: Any) -> list[Any]:
        spatial = [k for k, c in enumerate(self.layout) if c not in "NC"]
        return [shape[k] for k in spatial] if self.output_size is None else list(self.output_size)

    def infer(self, x: Any) -> TensorStructInfo:
        si = tensor(self, x)
        check_dtype(self, si.dtype, "f" if self.kind == "avg" else "fi", operand=x)
        shape = list(known(self, x, f"the operand ({self.layout})", self.rank + 2))
        spatial = [k for k, c in enumerate(self.layout) if c not in "NC"]
        for k, m in zip(spatial, self._sizes(shape), strict=True):
            shape[k] = m
        return out(shape, si.dtype)

    def compute(self, x: Any) -> Any:
        spatial = [k for k, c in enumerate(self.layout) if c not in "NC"]
        if self.kind == "avg" and self.output_size is not None and all(m == 1 for m in self.output_size):
            return topi.mean(x, spatial, True)
        return topi.nn.adaptive_pool(x, self._sizes(x.shape), self.kind, self.layout)

    def reference(self, x: Any) -> Any:
        data = to_channels_first(x, self.layout).astype(np.float64)
        sizes = self._sizes(x.shape)
        result = np.zeros((*data.shape[:2], *sizes))
        f = np.mean if self.kind == "avg" else np.max
        for at in itertools.product(*map(range, sizes)):
            cut = tuple(
                slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(at, data.shape[2:], sizes, strict=True)
            )
            result[(..., *at)] = f(data[(..., *cut)].reshape(*data.shape[:2], -1), axis=-1)
        return from_channels_first(result.astype(x.dtype), self.layout)

    @classmethod
    def samples(cls) -> list[Sample]:
        rank = cls.rank
        x = rng().uniform(-3, 3, (1, 2, *(7, 6, 5)[:rank])).astype(np.float32)
        last = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[rank]
        y = rng(1).uniform(-3, 3, (1, *(7, 6, 5)[:rank], 2)).astype(np.float32)
        return [
            Sample(cls(1), (x,)),
            Sample(cls((3, 3, 2)[:rank]), (x,)),
            Sample(cls(1, last), (y,)),
            Sample(cls((2, 3, 5)[:rank], last), (y,)),
            Sample(cls(None), (x,)),
        ]


@operator
class AdaptiveAvgPool1d(AdaptivePool, name="nn.adaptive_avg_pool1d"):
    """Means of bins, one spatial dimension."""

    rank: ClassVar[int] = 1


@operator
class AdaptiveAvgPool2d(AdaptivePool, name="nn.adaptive_avg_pool2d"):
    """Means of bins, two spatial dimensions."""


@operator
class AdaptiveAvgPool3d(AdaptivePool, name="nn.adaptive_avg_pool3d"):
    """Means of bins, three spatial dimensions."""

    rank: ClassVar[int] = 3


@operator
class AdaptiveMaxPool2d(AdaptivePool, name="nn.adaptive_max_pool2d"):
    """Maxima of bins, two spatial dimensions."""

    kind: ClassVar[str] = "max"
