"""Images: resampling."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np

from tilewright import topi
from tilewright.ops.common import check_dtype, fail, known, out, rng, shape_operand, tensor
from tilewright.ops.nn.conv import set_field
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.topi.image.resize import COORDINATES, METHODS, ROUNDINGS


@operator
class Resize(Op):
    """The family of resamplings of the spatial dimensions of `layout` to the operand `size`.

    `method`: nearest_neighbor, linear, cubic. Positions follow from `scales` where given (one a spatial dimension), else
    from the sizes. `roi` (starts, then ends) and `extrapolation_value` belong to tf_crop_and_resize.
    """

    roi: Any = None
    layout: str = ""
    method: str = "linear"
    coordinate_transformation_method: str = "half_pixel"
    rounding_method: str = "round"
    cubic_alpha: float = -0.75
    cubic_exclude: Any = 0
    extrapolation_value: float = 0.0
    out_dtype: str = ""
    scales: Any = None

    rank: ClassVar[int] = 2

    def __post_init__(self) -> None:
        letters = "NC" + "DHW"[3 - self.rank :]
        set_field(
            self,
            layout=self.layout or letters,
            rounding_method=self.rounding_method or "round",
            roi=None if not self.roi else tuple(float(v) for v in self.roi),
            scales=None if not self.scales else tuple(float(v) for v in self.scales),
        )
        if sorted(self.layout) != sorted(letters):
            fail(self, "TW0206", f"layout {self.layout!r} is not known", f"use the letters {', '.join(letters)}")
        for value, allowed, what in (
            (self.method, METHODS, "method"),
            (self.coordinate_transformation_method, COORDINATES, "coordinate_transformation_method"),
            (self.rounding_method, ROUNDINGS, "rounding_method"),
        ):
            if value not in allowed:
                fail(self, "TW0206", f"{what} {value!r} is not known", f"use one of {', '.join(allowed)}")
        if self.coordinate_transformation_method == "tf_crop_and_resize" and len(self.roi or ()) != 2 * self.rank:
            fail(self, "TW0206", f"tf_crop_and_resize needs a roi of {2 * self.rank} numbers")

    def _axes(self) -> list[int]:
        return [self.layout.index(c) for c in "DHW"[3 - self.rank :]]

    def infer(self, data: Any, size: Any) -> TensorStructInfo:
        si = tensor(self, data)
        check_dtype(self, si.dtype, "fib" if self.method == "nearest_neighbor" else "f", operand=data)
        shape = list(known(self, data, f"the operand ({self.layout})", self.rank + 2))
        sizes = shape_operand(self, size, "size")
        if len(sizes) != self.rank:
            fail(self, "TW0206", f"size has {len(sizes)} values, needs {self.rank}", None, size)
        for a, m in zip(self._axes(), sizes, strict=True):
            shape[a] = m
        return out(shape, self.out_dtype or si.dtype)

    def compute(self, data: Any, size: Any) -> Any:
        y = topi.image.resize(
            data,
            self._axes(),
            size,
            self.method,
            self.coordinate_transformation_method,
            self.rounding_method,
            self.scales,
            self.cubic_alpha,
            bool(self.cubic_exclude),
            self.roi,
            self.extrapolation_value,
        )
        return topi.cast(y, self.out_dtype) if self.out_dtype and self.out_dtype != y.dtype else y

    def reference(self, data: Any, size: Any) -> Any:
        outside: Any = np.zeros((), bool)
        y = data if self.method == "nearest_neighbor" else data.astype(np.float64)
        rank = self.rank
        for j, (a, m) in enumerate(zip(self._axes(), size, strict=True)):
            n = data.shape[a]
            x = self._positions(j, n, int(m), rank)
            y = self._along(y, a, n, x)
            shape = [1] * data.ndim
            shape[a] = -1
            outside = outside | ((x < 0) | (x > n - 1)).reshape(shape)
        if self.coordinate_transformation_method == "tf_crop_and_resize":
            y = np.where(np.broadcast_to(outside, y.shape), self.extrapolation_value, y)
        return np.ascontiguousarray(y).astype(self.out_dtype or data.dtype)

    def _positions(self, j: int, n: int, m: int, rank: int) -> Any:
        i = np.arange(m, dtype=np.float32)
        scale = np.float32(self.scales[j] if self.scales else m / n)
        kind = self.coordinate_transformation_method
        if kind == "asymmetric":
            return i / scale
        if kind == "align_corners":
            return i * np.float32((n - 1) / max(m - 1, 1))
        if kind == "tf_half_pixel_for_nn":
            return (i + np.float32(0.5)) / scale
        if kind == "tf_crop_and_resize":
            start, end = self.roi[j], self.roi[rank + j]
            several = start * (n - 1) + i * (end - start) * (n - 1) / max(m - 1, 1)
            return (several if m > 1 else np.full(m, 0.5 * (start + end) * (n - 1))).astype(np.float32)
        x = (i + np.float32(0.5)) / scale - np.float32(0.5)
        if kind == "half_pixel_symmetric":
            x = x + np.float32(n / 2 * (1 - m / (float(scale) * n)))
        return np.zeros_like(x) if kind == "pytorch_half_pixel" and m <= 1 else x

    def _along(self, y: Any, a: int, n: int, x: Any) -> Any:
        if self.method == "nearest_neighbor":
            half = np.float32(0.5)
            rounded = {
                "round": lambda: np.ceil(x - half),
                "round_prefer_floor": lambda: np.ceil(x - half),
                "round_prefer_ceil": lambda: np.floor(x + half),
                "floor": lambda: np.floor(x),
                "ceil": lambda: np.ceil(x),
            }[self.rounding_method]()
            return np.take(y, np.clip(rounded.astype(np.int64), 0, n - 1), axis=a)
        low = np.floor(x).astype(np.int64)
        s = (x - low).astype(np.float64)
        if self.method == "linear":
            taps = [(0, 1 - s), (1, s)]
        else:
            c = self.cubic_alpha

            def far(d: Any) -> Any:
                return ((c * d - 5 * c) * d + 8 * c) * d - 4 * c

            def near(d: Any) -> Any:
                return ((c + 2) * d - (c + 3)) * d * d + 1

            taps = [(-1, far(s + 1)), (0, near(s)), (1, near(1 - s)), (2, far(2 - s))]
            if self.cubic_exclude:
                taps = [(t, np.where((low + t >= 0) & (low + t < n), w, 0)) for t, w in taps]
                total = sum(w for _, w in taps)
                taps = [(t, w / total) for t, w in taps]
        shape = [1] * y.ndim
        shape[a] = -1
        return sum(np.take(y, np.clip(low + t, 0, n - 1), axis=a) * np.asarray(w).reshape(shape) for t, w in taps)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-3, 3, (1, 2, *(4, 5, 3)[: cls.rank])).astype(np.float32)
        up, down = tuple(2 * n for n in x.shape[2:]), (3, 7, 2)[: cls.rank]
        out = [
            Sample(
                cls(method="nearest_neighbor", coordinate_transformation_method="asymmetric", rounding_method="floor"),
                (x, up),
            ),
            Sample(cls(), (x, up), atol=1e-5),
            Sample(cls(), (x, down), atol=1e-5),
        ]
        if cls.rank != 2:
            return out
        kinds = [k for k in COORDINATES if k != "tf_crop_and_resize"]
        for kind, method in itertools.product(kinds, ("linear", "cubic")):
            out.append(
                Sample(cls(method=method, coordinate_transformation_method=kind), (x, down), rtol=1e-4, atol=1e-5)
            )
        for kind, r in itertools.product(("half_pixel", "align_corners", "asymmetric"), ROUNDINGS):
            op = cls(method="nearest_neighbor", coordinate_transformation_method=kind, rounding_method=r)
            out += [Sample(op, (x, up)), Sample(op, (x, (3, 7)))]
        crop = cls((0.1, 0.2, 0.8, 1.3), coordinate_transformation_method="tf_crop_and_resize", extrapolation_value=9.0)
        last = rng(1).uniform(-1, 1, (1, 3, 4, 2)).astype(np.float32)
        return [
            *out,
            Sample(crop, (x, (3, 4)), atol=1e-5),
            Sample(cls(method="cubic", cubic_exclude=1, cubic_alpha=-0.5), (x, (6, 7)), rtol=1e-4, atol=1e-5),
            Sample(cls(scales=(1.7, 0.6)), (x, (6, 3)), atol=1e-5),
            Sample(cls(layout="NHWC"), (last, (5, 3)), atol=1e-5),
            Sample(
                cls(method="nearest_neighbor", coordinate_transformation_method="asymmetric"),
                (x.astype(np.int32), (8, 3)),
            ),
            Sample(cls(coordinate_transformation_method="pytorch_half_pixel"), (x, (1, 1)), atol=1e-5),
        ]


@operator
class Resize1d(Resize, name="image.resize1d"):
    """Resampling of one spatial dimension."""

    rank: ClassVar[int] = 1


@operator
class Resize2d(Resize, name="image.resize2d"):
    """Resampling of two spatial dimensions."""


@operator
class Resize3d(Resize, name="image.resize3d"):
    """Resampling of three spatial dimensions."""

    rank: ClassVar[int] = 3
