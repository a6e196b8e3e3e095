"""Pooling over windows, in any layout and any number of spatial dimensions.

`padding` has the amounts before, then those after, each spatial dimension. With `ceil_mode` the last window may begin in
the data and end past the padding; the positions past it count neither for a maximum nor for an average.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, cast, const
from tilewright.topi.nn.pad import pad
from tilewright.topi.util import accumulator, as_int, grid, simplify

__all__ = ["adaptive_pool", "avg_pool", "global_pool", "max_pool", "pool2d", "pool_output"]


def pool_output(n: Any, kernel: int, stride: int, low: int, high: int, dilation: int, ceil_mode: bool) -> PrimExpr:
    """The extent of a pooling's result along one dimension."""
    span = (kernel - 1) * dilation + 1
    size = tir.convert(n)
    if not ceil_mode:
        return simplify((size + (low + high - span)) // stride + 1)
    out = (size + (low + high - span + stride - 1)) // stride + 1
    # a window that would begin in the padding after the data is dropped
    if (value := as_int(out)) is not None and (extent := as_int(n)) is not None:
        return const(value - 1 if (value - 1) * stride >= extent + low else value, "int64")
    return simplify(tir.min(out, (size + low + stride - 1) // stride))


def _where(layout: str) -> list[int]:
    return [k for k, letter in enumerate(layout) if letter not in "NC"]


class _Windows:
    """The geometry of the windows: output shape, reduction axes, where a tap lies."""

    def __init__(
        self,
        x: te.Tensor,
        kernel: Sequence[int],
        strides: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
        layout: str,
    ) -> None:
        self.kernel, self.strides, self.dilation = kernel, strides, dilation
        self.axes = _where(layout)
        rank = len(self.axes)
        self.low, self.high = padding[:rank], padding[rank:]
        self.shape = list(x.shape)
        self.extra: list[Any] = []
        for j, a in enumerate(self.axes):
            n = x.shape[a]
            out = pool_output(n, kernel[j], strides[j], self.low[j], self.high[j], dilation[j], ceil_mode)
            self.shape[a] = out
            used = (
                (out - 1) * strides[j] + (kernel[j] - 1) * dilation[j] + 1
            )  # positions of the padded data that are read
            need = simplify(used - (tir.convert(n) + self.low[j]))
            if (value := as_int(need)) is not None:
                self.extra.append(max(value, 0))
            else:
                self.extra.append(simplify(tir.max(need, const(0, "int64"))) if ceil_mode else self.high[j])
        self.taps = grid([const(k, "int64") for k in kernel], [f"k{letter.lower()}" for letter in "DHW"[3 - rank :]])

    def padded(self, x: te.Tensor, value: PrimExpr) -> te.Tensor:
        before: list[Any] = [0] * len(x.shape)
        after: list[Any] = [0] * len(x.shape)
        for j, a in enumerate(self.axes):
            before[a], after[a] = self.low[j], self.extra[j]
        return pad(x, before, after, value)

    def at(self, index: Sequence[Any]) -> list[Any]:
        out = list(index)
        for j, a in enumerate(self.axes):
            step = self.dilation[j]
            out[a] = index[a] * self.strides[j] + (self.taps[j].var if step == 1 else self.taps[j].var * step)
        return out


def max_pool(
    x: te.Tensor,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool = False,
    layout: str = "NCHW",
) -> te.Tensor:
    """The greatest element of each window."""
    w = _Windows(x, kernel, strides, padding, dilation, ceil_mode, layout)
    data = w.padded(x, tir.min_value(x.dtype))
    return te.compute(tuple(w.shape), lambda *i: te.max(data(*w.at(i)), axis=w.taps), name="max_pool")


def avg_pool(
    x: te.Tensor,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCHW",
    power: Any = None,
) -> te.Tensor:
    """The mean of each window; padding counts as zeros only with `count_include_pad`.

    `power` p gives the p-norm of the window instead (LpPool).
    """
    w = _Windows(x, kernel, strides, padding, dilation, ceil_mode, layout)
    acc = accumulator(x.dtype)
    data = w.padded(x, const(0, x.dtype))

    def term(v: PrimExpr) -> PrimExpr:
        v = cast(v, acc)
        return v if power is None else tir.pow(tir.abs(v), const(float(power), acc))

    total = te.compute(tuple(w.shape), lambda *i: te.sum(term(data(*w.at(i))), axis=w.taps), name="pool_sum")
    if power is not None:
        root = const(1.0 / power, acc)
        return te.compute(total.shape, lambda *i: cast(tir.pow(total(*i), root), x.dtype), name="lp_pool")

    def count(index: Sequence[Any]) -> PrimExpr:
        out: PrimExpr = const(1, "int64")
        for j, a in enumerate(w.axes):
            outside = (w.low[j], w.high[j]) if count_include_pad else (0, 0)
            shift = 0 if count_include_pad else w.low[j]
            k, d = w.kernel[j], w.dilation[j]
            padless = as_int(shift) == 0
            covered = as_int(
                simplify(
                    tir.convert(w.shape[a] - 1) * w.strides[j] + (k - 1) * d + 1 - shift - x.shape[a] - sum(outside)
                )
            )
            if padless and covered is not None and covered <= 0:
                out = out * k  # every window lies inside
                continue
            start = index[a] * w.strides[j] - shift
            limit = x.shape[a] + sum(outside)
            first = const(0, "int64") if padless else tir.max((const(d - 1, "int64") - start) // d, const(0, "int64"))
            last = tir.min((limit - start + (d - 1)) // d, const(k, "int64"))
            out = out * tir.max(last - first, const(1, "int64"))
        return cast(out, acc)

    return te.compute(total.shape, lambda *i: cast(tir.div(total(*i), count(i)), x.dtype), name="avg_pool")


def adaptive_pool(x: te.Tensor, output: Sequence[Any], kind: str = "avg", layout: str = "NCHW") -> te.Tensor:
    """Bins that cover the data evenly: bin i of m takes [floor(i*n/m), ceil((i+1)*n/m)); `kind` is avg or max."""
    axes = _where(layout)
    shape = list(x.shape)
    extents: list[Any] = []
    for a, m in zip(axes, output, strict=True):
        n = tir.convert(x.shape[a])
        shape[a] = tir.convert(m)
        even = as_int(simplify(n % m)) == 0
        extents.append(simplify(n // m) if even else simplify(tir.min((n + m - 1) // m + 1, n)))
    taps = grid(extents, [f"k{letter.lower()}" for letter in "DHW"[3 - len(axes) :]])
    acc = accumulator(x.dtype)

    def bounds(index: Sequence[Any], j: int) -> tuple[Any, Any]:
        a, m = axes[j], output[j]
        n, i = x.shape[a], index[a]
        return (i * n) // m, ((i + 1) * n + (m - 1)) // m

    def body(*i: Any) -> PrimExpr:
        at = list(i)
        tests: list[PrimExpr] = []
        for j, a in enumerate(axes):
            start, end = bounds(i, j)
            at[a] = start + taps[j].var
            if as_int(simplify(tir.convert(x.shape[a]) % output[j])) != 0:
                tests.append(at[a] < end)
        empty = const(0, acc) if kind == "avg" else tir.min_value(x.dtype)
        value = cast(x(*at), acc) if kind == "avg" else x(*at)
        if tests:
            value = tir.if_then_else(tir.all(*tests), value, empty)
        return te.sum(value, axis=taps) if kind == "avg" else te.max(value, axis=taps)

    total = te.compute(tuple(shape), body, name="adaptive_" + ("sum" if kind == "avg" else "max_pool"))
    if kind == "max":
        return total

    def mean(*i: Any) -> PrimExpr:
        count: PrimExpr = const(1, "int64")
        for j in range(len(axes)):
            start, end = bounds(i, j)
            even = as_int(simplify(tir.convert(x.shape[axes[j]]) % output[j])) == 0
            count = count * (extents[j] if even else end - start)
        return cast(tir.div(total(*i), cast(count, acc)), x.dtype)

    return te.compute(tuple(shape), mean, name="adaptive_avg_pool")


def pool2d(
    data: te.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> te.Tensor:
    """Pooling over two spatial dimensions; `pool_type` is max or avg."""
    if pool_type == "max":
        return max_pool(data, kernel, stride, padding, dilation, ceil_mode, layout)
    if pool_type != "avg":
        raise ValueError(f"pool_type {pool_type!r} is not known; use max or avg")
    return avg_pool(data, kernel, stride, padding, dilation, ceil_mode, count_include_pad, layout)


def global_pool(data: te.Tensor, pool_type: str, layout: str = "NCHW") -> te.Tensor:
    """One element a channel: the mean or the maximum over the spatial dimensions."""
    return adaptive_pool(data, (1,) * len(_where(layout)), pool_type, layout)
