"""Convolutions in any layout and any number of spatial dimensions.

A layout is a string of one letter a dimension: data N, C and of D, H, W; weights O, I and of D, H, W. A weight layout may
end in a block of output channels, such as `OHWI16o`: the weight is [ceil(O/16), H, W, I, 16] then, zero padded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, cast, const
from tilewright.topi.nn.pad import pad
from tilewright.topi.util import as_int, grid, is_one, number, simplify

__all__ = [
    "conv",
    "conv1d",
    "conv2d",
    "conv2d_nchw",
    "conv2d_nhwc",
    "conv3d",
    "conv_output",
    "conv_transpose",
    "packed_layout",
]


def packed_layout(layout: str) -> tuple[str, int]:
    """A weight layout without its block, and the block's size (0: none): `OHWI16o` is ("OHWI", 16)."""
    match = re.fullmatch(r"([A-Z]+)(?:(\d+)o)?", layout)
    if match is None:
        raise ValueError(f"{layout!r} is no weight layout; examples: OIHW, HWIO, OHWI16o")
    return match.group(1), int(match.group(2) or 0)


def conv_output(n: Any, kernel: Any, stride: int, low: Any, high: Any, dilation: int) -> PrimExpr:
    """The extent of a convolution's result along one dimension."""
    span = (tir.convert(kernel) - 1) * dilation + 1
    return simplify((tir.convert(n) + low + high - span) // stride + 1)


def _put(layout: str, spatial: str, n: Any, c: Any, at: Sequence[Any]) -> list[Any]:
    """Values for N, C and the spatial dimensions, in the order of a data layout."""
    table = {"N": n, "C": c, **dict(zip(spatial, at, strict=True))}
    return [table[letter] for letter in layout]


def _weight_at(layout: str, block: int, spatial: str, o: Any, i: Any, at: Sequence[Any]) -> list[Any]:
    table = {"O": o // block if block else o, "I": i, **dict(zip(spatial, at, strict=True))}
    return [table[letter] for letter in layout] + ([o % block] if block else [])


def _spatial(data_layout: str) -> str:
    return "".join(letter for letter in data_layout if letter not in "NC")


def conv(
    data: te.Tensor,
    weight: te.Tensor,
    strides: Sequence[int],
    padding: Sequence[Any],
    dilation: Sequence[int],
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_dtype: str | None = None,
    channels: Any = None,
) -> te.Tensor:
    """A convolution. `padding` has the amounts before, then those after, each spatial dimension.

    With a packed weight `channels` is the number of output channels. In `HWIO` a weight of shape (KH, KW, 1, C*m) with
    `groups` equal to the input channels is a depthwise convolution.
    """
    spatial = _spatial(data_layout)
    rank = len(spatial)
    order, block = packed_layout(kernel_layout)
    out_dtype = out_dtype or data.dtype
    zero: list[Any] = [0] * rank
    padded = pad(
        data,
        _put(data_layout, spatial, 0, 0, padding[:rank] or zero),
        _put(data_layout, spatial, 0, 0, padding[rank:] or zero),
        const(0, data.dtype),
    )
    extent = dict(zip(data_layout, data.shape, strict=True))
    kernel = [weight.shape[order.index(s)] for s in spatial]
    per_group = weight.shape[order.index("I")]
    out_channels = tir.convert(channels) if block else weight.shape[order.index("O")]
    sizes = [
        conv_output(extent[s], k, st, padding[j], padding[rank + j], d)
        for j, (s, k, st, d) in enumerate(zip(spatial, kernel, strides, dilation, strict=True))
    ]
    taps = grid(kernel, ["k" + s.lower() for s in spatial])
    depthwise = groups > 1 and is_one(per_group)
    channel_axis = [] if depthwise else grid([per_group], ["rc"])
    group_size = out_channels // groups
    # the axes run as the data lies in memory: channels outermost in NCHW, innermost in NHWC
    axes = [*taps, *channel_axis] if data_layout.endswith("C") else [*channel_axis, *taps]

    def body(*i: Any) -> PrimExpr:
        index = dict(zip(data_layout, i, strict=True))
        o = index["C"]
        inner = const(0, "int64") if depthwise else channel_axis[0].var
        group = o if is_one(group_size) else o // group_size
        c = inner if groups == 1 else group if depthwise else group * per_group + inner
        at: list[Any] = []
        for s, tap, stride, step in zip(spatial, taps, strides, dilation, strict=True):
            v = index[s]
            at.append((v if stride == 1 else v * stride) + (tap.var if step == 1 else tap.var * step))
        a = padded(*_put(data_layout, spatial, index["N"], c, at))
        w = weight(*_weight_at(order, block, spatial, o, inner, [t.var for t in taps]))
        return te.sum(cast(a, out_dtype) * cast(w, out_dtype), axis=axes)

    shape = _put(data_layout, spatial, extent["N"], out_channels, sizes)
    return te.compute(tuple(shape), body, name=f"conv{rank}d" if not depthwise else f"depthwise_conv{rank}d")


def conv1d(
    data: te.Tensor, weight: te.Tensor, strides: Any = 1, padding: Any = 0, dilation: Any = 1, **options: Any
) -> te.Tensor:
    """A convolution over one spatial dimension; layouts default to NCW and OIW."""
    options = {"data_layout": "NCW", "kernel_layout": "OIW", **options}
    return conv(data, weight, _tuple(strides, 1), _sides(padding, 1), _tuple(dilation, 1), **options)


def conv2d(
    data: te.Tensor, weight: te.Tensor, strides: Any = 1, padding: Any = 0, dilation: Any = 1, **options: Any
) -> te.Tensor:
    """A convolution over two spatial dimensions; layouts default to NCHW and OIHW."""
    return conv(data, weight, _tuple(strides, 2), _sides(padding, 2), _tuple(dilation, 2), **options)


def conv2d_nchw(
    Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any, out_dtype: str | None = None
) -> te.Tensor:
    """conv2d in NCHW with OIHW weights."""
    return conv2d(Input, Filter, stride, padding, dilation, out_dtype=out_dtype)


def conv2d_nhwc(
    Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any, out_dtype: str | None = None
) -> te.Tensor:
    """conv2d in NHWC with HWIO weights."""
    return conv2d(
        Input, Filter, stride, padding, dilation, data_layout="NHWC", kernel_layout="HWIO", out_dtype=out_dtype
    )


def conv3d(
    data: te.Tensor, weight: te.Tensor, strides: Any = 1, padding: Any = 0, dilation: Any = 1, **options: Any
) -> te.Tensor:
    """A convolution over three spatial dimensions; layouts default to NCDHW and OIDHW."""
    options = {"data_layout": "NCDHW", "kernel_layout": "OIDHW", **options}
    return conv(data, weight, _tuple(strides, 3), _sides(padding, 3), _tuple(dilation, 3), **options)


def _tuple(value: Any, rank: int) -> tuple[Any, ...]:
    return (value,) * rank if not isinstance(value, (list, tuple)) else tuple(value)


def _sides(value: Any, rank: int) -> tuple[Any, ...]:
    items = _tuple(value, 2 * rank)
    return items * 2 if len(items) == rank else items


def conv_transpose(
    data: te.Tensor,
    weight: te.Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_dtype: str | None = None,
) -> te.Tensor:
    """A transposed convolution; the weight's I counts the input channels, its O those of the result in one group.

    Without zero insertion: an output at y takes input (y + p) // s - t with tap (y + p) % s + t * s, t = 0, 1, ...; the
    weight is zero padded to whole strides. With dilation, each tap that does not divide evenly is skipped by a test.
    """
    spatial = _spatial(data_layout)
    rank = len(spatial)
    out_dtype = out_dtype or data.dtype
    extent = dict(zip(data_layout, data.shape, strict=True))
    kernel = [tir.convert(weight.shape[kernel_layout.index(s)]) for s in spatial]
    sizes = [
        simplify(
            (tir.convert(extent[s]) - 1) * strides[j]
            + ((kernel[j] - 1) * dilation[j] + 1)
            - padding[j]
            - padding[rank + j]
            + output_padding[j]
        )
        for j, s in enumerate(spatial)
    ]
    per_group = weight.shape[kernel_layout.index("O")]
    shape = _put(data_layout, spatial, extent["N"], simplify(tir.convert(per_group) * groups), sizes)
    parts = _Transposed(data, weight, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype)
    body = parts.phases(sizes) if all(d == 1 for d in dilation) else parts.tested()
    return te.compute(tuple(shape), body, name=f"conv{rank}d_transpose")


class _Transposed:
    """The two bodies of a transposed convolution."""

    def __init__(
        self,
        data: te.Tensor,
        weight: te.Tensor,
        strides: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
        data_layout: str,
        kernel_layout: str,
        out_dtype: str,
    ) -> None:
        self.data, self.weight, self.strides, self.padding, self.dilation = data, weight, strides, padding, dilation
        self.data_layout, self.kernel_layout, self.out_dtype = data_layout, kernel_layout, out_dtype
        self.spatial = _spatial(data_layout)
        self.groups = groups
        channels = data.shape[data_layout.index("C")]
        self.in_group = channels if groups == 1 else simplify(channels // groups)
        self.out_group = weight.shape[kernel_layout.index("O")]
        self.kernel = [number(weight.shape[kernel_layout.index(s)]) for s in self.spatial]

    def channels(self, o: Any, rc: Any) -> tuple[Any, Any]:
        """The input channel, and the weight's output index, of output channel `o`."""
        if self.groups == 1:
            return rc, o
        return (o // self.out_group) * self.in_group + rc, o % self.out_group

    def phases(self, sizes: Sequence[Any]) -> Any:
        """Products of an input and a tap, none wasted."""
        taps = [-(-k // s) for k, s in zip(self.kernel, self.strides, strict=True)]
        extent = dict(zip(self.data_layout, self.data.shape, strict=True))
        low = [t - 1 for t in taps]
        high = []
        for j, s in enumerate(self.spatial):
            last = (tir.convert(sizes[j]) - 1 + self.padding[j]) // self.strides[j]  # the last input position needed
            need = simplify(last - (tir.convert(extent[s]) - 1))
            high.append(max(number(need), 0) if as_int(need) is not None else tir.max(need, const(0, "int64")))
        zeros: list[Any] = [0] * len(self.spatial)
        padded = pad(
            self.data,
            _put(self.data_layout, self.spatial, 0, 0, low),
            _put(self.data_layout, self.spatial, 0, 0, high),
            const(0, self.data.dtype),
        )
        extra = [t * s - k for t, s, k in zip(taps, self.strides, self.kernel, strict=True)]
        weight = pad(
            self.weight,
            _weight_at(self.kernel_layout, 0, self.spatial, 0, 0, zeros),
            _weight_at(self.kernel_layout, 0, self.spatial, 0, 0, extra),
            const(0, self.weight.dtype),
            name="pad_weight",
        )
        rc = te.reduce_axis((0, self.in_group), name="rc")
        ts = grid([const(t, "int64") for t in taps], ["t" + s.lower() for s in self.spatial])

        def body(*i: Any) -> PrimExpr:
            index = dict(zip(self.data_layout, i, strict=True))
            c, o = self.channels(index["C"], rc.var)
            at: list[Any] = []
            tap: list[Any] = []
            for j, s in enumerate(self.spatial):
                y = index[s] + self.padding[j]
                stride = self.strides[j]
                at.append(y // stride + (taps[j] - 1) - ts[j].var)
                tap.append(y % stride + ts[j].var * stride if stride > 1 else ts[j].var)
            a = padded(*_put(self.data_layout, self.spatial, index["N"], c, at))
            w = weight(*_weight_at(self.kernel_layout, 0, self.spatial, o, c, tap))
            return te.sum(cast(a, self.out_dtype) * cast(w, self.out_dtype), axis=[rc, *ts])

        return body

    def tested(self) -> Any:
        """Every tap, those that fall between inputs skipped by a test."""
        rc = te.reduce_axis((0, self.in_group), name="rc")
        ks = grid([const(k, "int64") for k in self.kernel], ["k" + s.lower() for s in self.spatial])
        extent = dict(zip(self.data_layout, self.data.shape, strict=True))

        def body(*i: Any) -> PrimExpr:
            index = dict(zip(self.data_layout, i, strict=True))
            c, o = self.channels(index["C"], rc.var)
            at: list[Any] = []
            tests: list[PrimExpr] = []
            for j, s in enumerate(self.spatial):
                y = index[s] + self.padding[j] - ks[j].var * self.dilation[j]
                source = tir.floordiv(y, self.strides[j])
                at.append(source)
                tests.append(tir.EQ(tir.floormod(y, const(self.strides[j], "int64")), const(0, "int64")))
                tests += [source >= 0, source < extent[s]]
            a = cast(self.data(*_put(self.data_layout, self.spatial, index["N"], c, at)), self.out_dtype)
            w = self.weight(*_weight_at(self.kernel_layout, 0, self.spatial, o, c, [k.var for k in ks]))
            product = a * cast(w, self.out_dtype)
            return te.sum(tir.if_then_else(tir.all(*tests), product, const(0, self.out_dtype)), axis=[rc, *ks])

        return body
