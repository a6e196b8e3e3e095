"""Convolutions and transposed convolutions in one, two and three dimensions."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np

from tilewright import topi
from tilewright.ops.common import (
    as_int,
    check_rank,
    dims_equal,
    fail,
    ints,
    known,
    numpy_dtype,
    out,
    pair_up,
    rng,
    same_dtype,
    tensor,
)
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.topi.nn.conv import conv_output, packed_layout


def set_field(op: Any, **values: Any) -> None:
    """Normalise fields of a frozen operator while it is made."""
    for name, value in values.items():
        object.__setattr__(op, name, value)


def split_layout(layout: str) -> str:
    """The spatial letters of a layout, in order."""
    return "".join(c for c in layout if c in "DHW")


def to_channels_first(x: Any, layout: str) -> Any:
    """An array of the data layout as N, C, spatial."""
    return np.transpose(x, [layout.index(c) for c in "NC" + split_layout(layout)])


def from_channels_first(x: Any, layout: str) -> Any:
    """The inverse of `to_channels_first`."""
    order = "NC" + split_layout(layout)
    return np.ascontiguousarray(np.transpose(x, [order.index(c) for c in layout]))


def plain_weight(w: Any, layout: str, channels: int) -> Any:
    """An array of the weight layout as O, I, spatial, without a block or padding."""
    order, block = packed_layout(layout)
    if block:
        o = order.index("O")
        w = np.moveaxis(w, -1, o + 1)
        w = w.reshape(w.shape[:o] + (-1,) + w.shape[o + 2 :])
        w = np.take(w, range(channels), axis=o)
    return np.transpose(w, [order.index(c) for c in "OI" + split_layout(order)])


def conv_reference(x: Any, w: Any, strides: Any, padding: Any, dilation: Any, groups: int, dtype: Any) -> Any:
    """The convolution of N, C, spatial with O, I, spatial, tap by tap."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *zip(padding[:rank], padding[rank:], strict=True)])
    sizes = [
        (n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], w.shape[2:], strides, dilation, strict=True)
    ]
    wide = np.float64 if np.issubdtype(dtype, np.floating) else dtype
    n, ic, oc = x.shape[0], x.shape[1] // groups, w.shape[0] // groups
    result = np.zeros((n, groups, oc, *sizes), wide)
    xs = x.reshape(n, groups, ic, *x.shape[2:]).astype(wide)
    ws = w.reshape(groups, oc, ic, *w.shape[2:]).astype(wide)
    for tap in itertools.product(*map(range, w.shape[2:])):
        window = tuple(
            slice(t * d, t * d + (m - 1) * s + 1, s) for t, d, m, s in zip(tap, dilation, sizes, strides, strict=True)
        )
        result += np.einsum("ngc...,goc->ngo...", xs[(..., *window)], ws[(..., *tap)])
    return result.reshape(n, groups * oc, *sizes).astype(dtype)


@operator
class Conv(Op):
    """The family of convolutions; `padding` has the amounts before, then after, each spatial dimension.

    Layouts: data N, C and D, H, W in any order; weights O, I and D, H, W, perhaps with a block of output channels
    (`OHWI16o`: [ceil(O/16), H, W, I, 16], zero padded, with `channels` = O).
    """

    strides: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    data_layout: str = ""
    kernel_layout: str = ""
    out_layout: str = ""
    out_dtype: str = ""
    channels: int = 0

    rank: ClassVar[int] = 2
    default_layouts: ClassVar[tuple[str, str]] = ("NCHW", "OIHW")

    def __post_init__(self) -> None:
        set_field(
            self,
            data_layout=self.data_layout or self.default_layouts[0],
            kernel_layout=self.kernel_layout or self.default_layouts[1],
            strides=ints(self, "strides", self.strides, self.rank, 1),
            dilation=ints(self, "dilation", self.dilation, self.rank, 1),
            padding=ints(self, "padding", pair_up(self.padding, self.rank), 2 * self.rank),
        )
        self._check_layouts()

    def _check_layouts(self) -> None:
        spatial = "DHW"[3 - self.rank :]
        if sorted(self.data_layout) != sorted("NC" + spatial):
            hint = f"use the letters N, C, {', '.join(spatial)}, for example {self.default_layouts[0]}"
            fail(self, "TW0206", f"data_layout {self.data_layout!r} is not known", hint)
        try:
            order, _ = packed_layout(self.kernel_layout)
        except ValueError:
            order = ""
        if sorted(order) != sorted("OI" + spatial):
            fail(
                self,
                "TW0206",
                f"kernel_layout {self.kernel_layout!r} is not known",
                f"use the letters O, I, {', '.join(spatial)}, for example {self.default_layouts[1]}",
            )
        if self.out_layout and self.out_layout != self.data_layout:
            fail(self, "TW0206", f"out_layout {self.out_layout!r} differs from data_layout {self.data_layout!r}")
        if self.groups < 1:
            fail(self, "TW0206", f"groups is {self.groups}, needs at least 1")

    def infer(self, data: Any, weight: Any) -> TensorStructInfo:
        infos = [tensor(self, data, "the data"), tensor(self, weight, "the weight")]
        dtype = same_dtype(self, infos, ["the data", "the weight"])
        order, block = packed_layout(self.kernel_layout)
        dims = known(self, data, f"the data ({self.data_layout})", self.rank + 2)
        kernel = known(self, weight, f"the weight ({self.kernel_layout})", self.rank + 2 + bool(block))
        table: dict[str, Any] = dict(zip(self.data_layout, dims, strict=True))
        taps = dict(zip(order, kernel, strict=False))
        channels = self.channels if block else taps["O"]
        if block and not self.channels:
            fail(self, "TW0206", f"kernel_layout {self.kernel_layout} needs the attribute channels")
        what = "the data's channels and the weight's, times groups, differ"
        dims_equal(self, table["C"], taps["I"] * self.groups, what)
        count = as_int(channels)
        if count is not None and count % self.groups:
            fail(self, "TW0206", f"{count} output channels do not divide into {self.groups} groups")
        rank = self.rank
        for j, s in enumerate(split_layout(self.data_layout)):
            size = conv_output(
                table[s], taps[s], self.strides[j], self.padding[j], self.padding[rank + j], self.dilation[j]
            )
            if (value := as_int(size)) is not None and value < 1:
                fail(self, "TW0203", f"the kernel is larger than the padded data in dimension {s}", None, data)
            table[s] = size
        table["C"] = channels
        return out([table[c] for c in self.data_layout], self.out_dtype or dtype)

    def compute(self, data: Any, weight: Any) -> Any:
        return topi.nn.conv(
            data,
            weight,
            self.strides,
            self.padding,
            self.dilation,
            self.groups,
            self.data_layout,
            self.kernel_layout,
            self.out_dtype or None,
            self.channels or None,
        )

    def reference(self, data: Any, weight: Any) -> Any:
        dtype = numpy_dtype(self.out_dtype) if self.out_dtype else data.dtype
        x = to_channels_first(data, self.data_layout)
        order, _ = packed_layout(self.kernel_layout)
        w = plain_weight(weight, self.kernel_layout, self.channels)
        del order
        return from_channels_first(
            conv_reference(x, w, self.strides, self.padding, self.dilation, self.groups, dtype), self.data_layout
        )

    @classmethod
    def samples(cls) -> list[Sample]:
        rank = cls.rank
        x = _random(0, 1, 4, *(7, 6, 5)[:rank])
        w = _random(1, 6, 4, *(3, 2, 3)[:rank])
        asymmetric = (1, 0, 2)[:rank] + (2, 1, 0)[:rank]
        return [
            Sample(cls(), (x, w)),
            Sample(cls(2, 1), (x, w)),
            Sample(cls(1, asymmetric, 2), (_random(2, 2, 4, *(9, 8, 7)[:rank]), w)),
            Sample(cls(groups=2, padding=1), (x, _random(3, 6, 2, *(3, 3, 2)[:rank]))),
            Sample(cls(groups=4, padding=1), (x, _random(4, 8, 1, *(3, 3, 2)[:rank]))),
        ]


def _random(seed: int, *shape: int) -> Any:
    return rng(seed).uniform(-1, 1, shape).astype(np.float32)


@operator
class Conv1d(Conv, name="nn.conv1d"):
    """A convolution over one spatial dimension."""

    rank: ClassVar[int] = 1
    default_layouts: ClassVar[tuple[str, str]] = ("NCW", "OIW")


@operator
class Conv2d(Conv, name="nn.conv2d"):
    """A convolution over two spatial dimensions."""

    @classmethod
    def samples(cls) -> list[Sample]:
        x = _random(0, 1, 6, 5, 4)
        packed = _random(5, 2, 3, 3, 4, 8)  # OHWI8o of 12 channels: the last four are padding
        packed[1, ..., 4:] = 0
        grouped = _random(6, 1, 1, 3, 2, 8)
        bytes_ = (
            rng(7).integers(-9, 9, (1, 3, 5, 5)).astype(np.int8),
            rng(8).integers(-9, 9, (2, 3, 3, 3)).astype(np.int8),
        )
        return [
            *super().samples(),
            Sample(cls(2, 1, data_layout="NHWC", kernel_layout="HWIO"), (x, _random(4, 3, 2, 4, 6))),
            Sample(cls(1, 1, data_layout="NHWC", kernel_layout="OHWI8o", channels=12), (x, packed)),
            Sample(cls(1, (0, 1, 0, 1), 1, 2, "NHWC", "OHWI8o", channels=6), (x, grouped)),
            Sample(cls(2, 1, groups=4, data_layout="NHWC", kernel_layout="HWIO"), (x, _random(9, 3, 3, 1, 4))),
            Sample(cls(1, 1, groups=4, data_layout="NHWC", kernel_layout="HWIO"), (x, _random(9, 3, 3, 1, 8))),
            Sample(cls(out_dtype="int32"), bytes_),
        ]


@operator
class Conv3d(Conv, name="nn.conv3d"):
    """A convolution over three spatial dimensions."""

    rank: ClassVar[int] = 3
    default_layouts: ClassVar[tuple[str, str]] = ("NCDHW", "OIDHW")


@operator
class ConvTranspose(Op):
    """The family of transposed convolutions: the gradient of a convolution by its data.

    The weight's I counts the input's channels, its O the result's channels in one group.
    """

    strides: Any = 1
    padding: Any = 0
    output_padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    data_layout: str = ""
    kernel_layout: str = ""
    out_layout: str = ""
    out_dtype: str = ""

    rank: ClassVar[int] = 2
    default_layouts: ClassVar[tuple[str, str]] = ("NCHW", "IOHW")

    def __post_init__(self) -> None:
        set_field(
            self,
            data_layout=self.data_layout or self.default_layouts[0],
            kernel_layout=self.kernel_layout or self.default_layouts[1],
            strides=ints(self, "strides", self.strides, self.rank, 1),
            dilation=ints(self, "dilation", self.dilation, self.rank, 1),
            output_padding=ints(self, "output_padding", self.output_padding, self.rank),
            padding=ints(self, "padding", pair_up(self.padding, self.rank), 2 * self.rank),
        )
        spatial = "DHW"[3 - self.rank :]
        for layout, letters, what in (
            (self.data_layout, "NC" + spatial, "data_layout"),
            (self.kernel_layout, "IO" + spatial, "kernel_layout"),
        ):
            if sorted(layout) != sorted(letters):
                fail(self, "TW0206", f"{what} {layout!r} is not known", f"use the letters {', '.join(letters)}")
        if self.out_layout and self.out_layout != self.data_layout:
            fail(self, "TW0206", f"out_layout {self.out_layout!r} differs from data_layout {self.data_layout!r}")

    def infer(self, data: Any, weight: Any) -> TensorStructInfo:
        infos = [tensor(self, data, "the data"), tensor(self, weight, "the weight")]
        dtype = same_dtype(self, infos, ["the data", "the weight"])
        dims = known(self, data, f"the data ({self.data_layout})", self.rank + 2)
        kernel = known(self, weight, f"the weight ({self.kernel_layout})")
        check_rank(self, kernel, "the weight", self.rank + 2, weight)
        table = dict(zip(self.data_layout, dims, strict=True))
        taps = dict(zip(self.kernel_layout, kernel, strict=True))
        dims_equal(self, table["C"], taps["I"], "the data's channels and the weight's differ")
        count = as_int(taps["I"])
        if count is not None and count % self.groups:
            fail(self, "TW0206", f"{count} input channels do not divide into {self.groups} groups")
        rank = self.rank
        for j, s in enumerate(split_layout(self.data_layout)):
            if as_int(taps[s]) is None:
                fail(self, "TW0206", f"the weight's dimension {s} has to be a number", None, weight)
            span = (taps[s] - 1) * self.dilation[j] + 1
            table[s] = (
                (table[s] - 1) * self.strides[j]
                + span
                - self.padding[j]
                - self.padding[rank + j]
                + self.output_padding[j]
            )
        table["C"] = taps["O"] * self.groups
        return out([table[c] for c in self.data_layout], self.out_dtype or dtype)

    def compute(self, data: Any, weight: Any) -> Any:
        return topi.nn.conv_transpose(
            data,
            weight,
            self.strides,
            self.padding,
            self.dilation,
            self.output_padding,
            self.groups,
            self.data_layout,
            self.kernel_layout,
            self.out_dtype or None,
        )

    def reference(self, data: Any, weight: Any) -> Any:
        dtype = numpy_dtype(self.out_dtype) if self.out_dtype else data.dtype
        x = to_channels_first(data, self.data_layout).astype(np.float64)
        spatial = split_layout(self.kernel_layout)
        w = np.transpose(weight, [self.kernel_layout.index(c) for c in "IO" + spatial]).astype(np.float64)
        rank, groups = self.rank, self.groups
        full = [
            (n - 1) * s + (k - 1) * d + 1 + p
            for n, s, k, d, p in zip(
                x.shape[2:], self.strides, w.shape[2:], self.dilation, self.output_padding, strict=True
            )
        ]
        n, ic, oc = x.shape[0], x.shape[1] // groups, w.shape[1]
        result = np.zeros((n, groups, oc, *full))
        xs = x.reshape(n, groups, ic, *x.shape[2:])
        ws = w.reshape(groups, ic, oc, *w.shape[2:])
        for tap in itertools.product(*map(range, w.shape[2:])):
            window = tuple(
                slice(t * d, t * d + (m - 1) * s + 1, s)
                for t, d, m, s in zip(tap, self.dilation, x.shape[2:], self.strides, strict=True)
            )
            result[(..., *window)] += np.einsum("ngc...,gco->ngo...", xs, ws[(..., *tap)])
        result = result.reshape(n, groups * oc, *full)
        cut = tuple(slice(self.padding[j], full[j] - self.padding[rank + j]) for j in range(rank))
        return from_channels_first(result[(..., *cut)].astype(dtype), self.data_layout)

    @classmethod
    def samples(cls) -> list[Sample]:
        rank = cls.rank
        x = _random(0, 1, 4, *(4, 3, 3)[:rank])
        w = _random(1, 4, 5, *(3, 2, 3)[:rank])
        return [
            Sample(cls(), (x, w)),
            Sample(cls(2), (x, _random(2, 4, 3, *(2,) * rank))),
            Sample(cls(2, 1, 1), (x, _random(3, 4, 3, *(3, 4, 3)[:rank]))),
            Sample(cls(3, (1, 0, 0)[:rank] + (0, 1, 1)[:rank]), (x, _random(4, 4, 3, *(2, 4, 3)[:rank]))),
            Sample(cls(2, 1, groups=2), (x, _random(5, 4, 3, *(3,) * rank))),
            Sample(cls(2, 1, 1, 2), (x, w)),
        ]


@operator
class Conv1dTranspose(ConvTranspose, name="nn.conv1d_transpose"):
    """A transposed convolution over one spatial dimension."""

    rank: ClassVar[int] = 1
    default_layouts: ClassVar[tuple[str, str]] = ("NCW", "IOW")


@operator
class Conv2dTranspose(ConvTranspose, name="nn.conv2d_transpose"):
    """A transposed convolution over two spatial dimensions."""

    @classmethod
    def samples(cls) -> list[Sample]:
        x = _random(0, 1, 3, 4, 2)
        return [
            *super().samples(),
            Sample(cls(2, 1, data_layout="NHWC", kernel_layout="IOHW"), (x, _random(1, 2, 3, 3, 3))),
        ]


@operator
class Conv3dTranspose(ConvTranspose, name="nn.conv3d_transpose"):
    """A transposed convolution over three spatial dimensions."""

    rank: ClassVar[int] = 3
    default_layouts: ClassVar[tuple[str, str]] = ("NCDHW", "IODHW")
