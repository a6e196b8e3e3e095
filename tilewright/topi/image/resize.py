"""Resampling along any dimensions: nearest, linear, cubic, with the coordinate conventions that ONNX and others use."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, cast, const
from tilewright.topi.util import as_int, same

__all__ = ["COORDINATES", "METHODS", "ROUNDINGS", "resize"]

METHODS = ("nearest_neighbor", "linear", "cubic")
COORDINATES = (
    "half_pixel",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "round", "floor", "ceil")
_F = "float32"


def _f(v: Any) -> PrimExpr:
    return const(float(v), _F) if isinstance(v, (int, float)) else cast(tir.convert(v), _F)


class _Axis:
    """The geometry of one dimension: its extent `n`, the result's `m`, and where position i of the result lies."""

    def __init__(self, n: Any, m: Any, scale: float | None, coordinates: str, roi: tuple[float, float] | None) -> None:
        self.n, self.m = tir.convert(n), tir.convert(m)
        self.coordinates, self.roi = coordinates, roi
        self.scale = _f(scale) if scale is not None else tir.div(_f(self.m), _f(self.n))
        size, result = as_int(n), as_int(m)
        self.factor: int | None = None
        for f in (int(scale),) if scale is not None else (1, 2, 3, 4, 8):
            # the whole number that the result's extent is a multiple by; then i // f is in range
            if f >= 1 and (scale is None or scale == f):
                if size is not None and result is not None:
                    fits = size * f == result
                else:
                    fits = same(self.m, self.n * f)
                if fits:
                    self.factor = f

    def source(self, i: Any) -> PrimExpr:
        """The position in the data, a float32."""
        x, n, m = _f(i), _f(self.n), _f(self.m)
        half, one, zero = _f(0.5), _f(1), _f(0)
        kind = self.coordinates
        if kind == "asymmetric":
            return tir.div(x, self.scale)
        if kind == "align_corners":
            step = tir.div(n - one, tir.max(m - one, one))
            return x * step
        if kind == "tf_half_pixel_for_nn":
            return tir.div(x + half, self.scale)
        if kind == "tf_crop_and_resize":
            assert self.roi is not None
            start, end = _f(self.roi[0]), _f(self.roi[1])
            several = start * (n - one) + tir.div(x * (end - start) * (n - one), tir.max(m - one, one))
            return tir.select(m > one, several, half * (start + end) * (n - one))
        centre = tir.div(x + half, self.scale) - half
        if kind == "pytorch_half_pixel":
            return tir.select(m > one, centre, zero)
        if kind == "half_pixel_symmetric":
            adjustment = tir.div(m, self.scale * n)
            return tir.div(n, _f(2)) * (one - adjustment) + centre
        return centre

    def clamp(self, i: PrimExpr) -> PrimExpr:
        """A position as an index in range."""
        return tir.max(tir.min(cast(i, "int64"), cast(self.n, "int64") - 1), const(0, "int64"))


def _nearest(a: _Axis, i: Any, rounding: str) -> PrimExpr:
    factor = a.factor
    if factor is not None:
        if a.coordinates == "asymmetric" and rounding == "floor":
            return i // factor
        if a.coordinates in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric") and rounding in (
            "round",
            "round_prefer_floor",
        ):
            if a.coordinates != "pytorch_half_pixel" or as_int(a.m) not in (None, 1):
                return i // factor  # (i + 1/2) / s - 1/2 rounds to the pixel that holds it
    x = a.source(i)
    half = const(0.5, _F)
    if rounding in ("round", "round_prefer_floor"):
        x = tir.ceil(x - half)
    elif rounding == "round_prefer_ceil":
        x = tir.floor(x + half)
    else:
        x = tir.floor(x) if rounding == "floor" else tir.ceil(x)
    return a.clamp(x)


def _linear(a: _Axis, i: Any) -> list[tuple[PrimExpr, PrimExpr]]:
    x = a.source(i)
    low = tir.floor(x)
    part = x - low
    return [(a.clamp(low), const(1.0, _F) - part), (a.clamp(low + const(1.0, _F)), part)]


def _cubic_weights(a: _Axis, alpha: float, exclude: bool, name: str) -> te.Tensor:
    """The four weights of every position: [m, 4]."""
    c = const(alpha, _F)

    def raw(i: Any, t: int) -> PrimExpr:
        x = a.source(i)
        s = x - tir.floor(x)
        one, two, three = const(1.0, _F), const(2.0, _F), const(3.0, _F)

        def near(d: PrimExpr) -> PrimExpr:
            return ((c + two) * d - (c + three)) * d * d + one

        def far(d: PrimExpr) -> PrimExpr:
            return ((c * d - const(5.0, _F) * c) * d + const(8.0, _F) * c) * d - const(4.0, _F) * c

        w = [far(s + one), near(s), near(one - s), far(two - s)][t]
        if not exclude:
            return w
        position = cast(tir.floor(x), "int64") + (t - 1)
        inside = tir.all(position >= const(0, "int64"), position < cast(a.n, "int64"))
        return tir.Select(inside, w, const(0.0, _F))

    def pick(i: Any, t: Any) -> PrimExpr:
        out = raw(i, 3)
        for k in (2, 1, 0):
            out = tir.Select(tir.EQ(t, const(k, t.dtype)), raw(i, k), out)
        return out

    plain = te.compute((a.m, const(4, "int64")), pick, name=f"cubic_{name}")
    if not exclude:
        return plain
    four = [const(k, "int64") for k in range(4)]
    return te.compute(
        plain.shape,
        lambda i, t: tir.div(
            plain(i, t), plain(i, four[0]) + plain(i, four[1]) + plain(i, four[2]) + plain(i, four[3])
        ),
        name=f"cubic_{name}_scaled",
    )


def resize(
    x: te.Tensor,
    axes: Sequence[int],
    size: Sequence[Any],
    method: str = "linear",
    coordinates: str = "half_pixel",
    rounding: str = "round_prefer_floor",
    scales: Sequence[float | None] | None = None,
    cubic_alpha: float = -0.75,
    cubic_exclude: bool = False,
    roi: Sequence[float] | None = None,
    extrapolation_value: float = 0.0,
) -> te.Tensor:
    """`x` resampled to `size` along `axes`. Positions are computed in float32, by `scales` where given, else by the sizes.

    `roi` has the starts, then the ends, of the region along the axes (tf_crop_and_resize only).
    """
    rank = len(axes)
    shape = list(x.shape)
    places: list[_Axis] = []
    for j, (a, m) in enumerate(zip(axes, size, strict=True)):
        region = None if roi is None else (roi[j], roi[rank + j])
        places.append(_Axis(x.shape[a], m, scales[j] if scales else None, coordinates, region))
        shape[a] = tir.convert(m)
    weights = [
        _cubic_weights(p, cubic_alpha, cubic_exclude, str(a)) if method == "cubic" else None
        for p, a in zip(places, axes, strict=True)
    ]

    def taps(j: int, i: Any) -> list[tuple[PrimExpr, PrimExpr | None]]:
        p, w = places[j], weights[j]
        if method == "nearest_neighbor":
            return [(_nearest(p, i, rounding), None)]
        if w is None:
            return [(index, weight) for index, weight in _linear(p, i)]
        low = tir.floor(p.source(i))
        return [(p.clamp(low + const(float(t - 1), _F)), w(i, const(t, "int64"))) for t in range(4)]

    def value(*i: Any) -> PrimExpr:
        total: PrimExpr | None = None
        per_axis = [taps(j, i[a]) for j, a in enumerate(axes)]
        for chosen in itertools.product(*per_axis):
            at = list(i)
            weight: PrimExpr | None = None
            for a, (index, w) in zip(axes, chosen, strict=True):
                at[a] = index
                if w is not None:
                    weight = w if weight is None else weight * w
            if weight is None:
                total = x(*at)
            else:
                term = weight * cast(x(*at), _F)
                total = term if total is None else total + term
        assert total is not None
        total = cast(total, x.dtype)
        if coordinates != "tf_crop_and_resize":
            return total
        outside = [
            tir.any(p.source(i[a]) < _f(0), p.source(i[a]) > _f(p.n) - _f(1)) for p, a in zip(places, axes, strict=True)
        ]
        return tir.Select(tir.any(*outside), const(extrapolation_value, x.dtype), total)

    return te.compute(tuple(shape), value, name="resize")
