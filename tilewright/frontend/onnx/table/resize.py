"""Resize and its ancestor Upsample."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from tilewright.arith import expr as e
from tilewright.arith.expr import IntImm
from tilewright.frontend.onnx.node import NodeContext
from tilewright.frontend.onnx.registry import onnx_op

_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}
_LAYOUTS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


def _floats(n: NodeContext, x: Any, what: str) -> list[float] | None:
    """The numbers of a constant operand; None if it is left out or empty."""
    if x is None or n.size(x) == 0:
        return None
    return [float(v) for v in n.array(x, what).reshape(-1)]


@onnx_op("Upsample", since=7)
def upsample(n: NodeContext, x: Any, scales: Any = None) -> Any:
    """What Resize was before: scales, asymmetric coordinates"""
    factors = n.attr("scales") if scales is None else _floats(n, scales, "the scales")
    return _resize(n, x, None, factors, coordinate_transformation_method="asymmetric", rounding_method="floor")


@onnx_op("Resize", since=10)
def resize_10(n: NodeContext, x: Any, scales: Any) -> Any:
    """Scales only, asymmetric coordinates"""
    factors = _floats(n, scales, "the scales")
    return _resize(n, x, None, factors, coordinate_transformation_method="asymmetric", rounding_method="floor")


@onnx_op("Resize", since=11, symbolic=(1, 2, 3))
def resize(n: NodeContext, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    """Another size of the dimensions behind the channels, by scales or by sizes"""
    if n.attr("keep_aspect_ratio_policy", "stretch") != "stretch" or n.attr("antialias", 0):
        raise n.unsupported("antialias and keep_aspect_ratio_policy are not supported")
    factors = _floats(n, scales, "the scales")
    target = n.formulas(sizes, "the new size") if sizes is not None and n.size(sizes) else None
    box = None
    coordinates = n.attr("coordinate_transformation_mode", "half_pixel")
    if coordinates == "tf_crop_and_resize":
        box = _floats(n, roi, "the region")
    axes = n.attr("axes", None)
    if axes is not None:
        factors, target, box = _spread(n, x, axes, factors, target, box)
    return _resize(
        n, x, target, factors, box, coordinate_transformation_method=coordinates,
        rounding_method=n.attr("nearest_mode", "round_prefer_floor"), cubic_alpha=n.attr("cubic_coeff_a", -0.75),
        cubic_exclude=n.attr("exclude_outside", 0), extrapolation_value=n.attr("extrapolation_value", 0.0),
    )  # fmt: skip


def _spread(n: NodeContext, x: Any, axes: list[int], factors: Any, target: Any, box: Any) -> Any:
    """Scales, sizes and region for all dimensions, from those for some axes"""
    rank, shape = n.rank(x), n.shape(x)
    where = {n.axis(a, rank, "axes"): i for i, a in enumerate(axes)}
    if factors is not None:
        factors = [factors[where[i]] if i in where else 1.0 for i in range(rank)]
    if target is not None:
        target = [target[where[i]] if i in where else shape[i] for i in range(rank)]
    if box is not None:
        half = len(axes)
        box = [box[where[i]] if i in where else 0.0 for i in range(rank)] + [
            box[half + where[i]] if i in where else 1.0 for i in range(rank)
        ]
    return factors, target, box


def _resize(n: NodeContext, x: Any, target: Any, factors: Any, box: Any = None, **how: Any) -> Any:
    rank, shape = n.rank(x), n.shape(x)
    mode = n.attr("mode", "nearest")
    if mode not in _METHODS:
        raise n.unsupported(f"the mode {mode!r} is not supported; {', '.join(_METHODS)} are")
    if rank not in _LAYOUTS:
        raise n.unsupported(f"resizing {rank} dimensions is not supported; 3 to 5 are (batch, channels, 1 to 3 more)")
    if target is None:
        if factors is None:
            raise n.malformed("neither scales nor sizes are given")
        target = [_scaled(n, d, f) for d, f in zip(shape, factors)]
    if len(target) != rank:
        raise n.malformed(f"{len(target)} sizes are given for {rank} dimensions")
    if not all(n.same(target[i], shape[i]) for i in (0, 1)):
        raise n.unsupported("only the dimensions behind batch and channels can be resized")
    if box is None and all(n.same(a, b) for a, b in zip(target, shape)):
        return x
    if box is not None:
        how["roi"] = [*box[2:rank], *box[rank + 2 :]]
    exact = factors is None or all(_is_ratio(d, t, f) for d, t, f in zip(shape, target, factors))
    return n.op(
        f"image.resize{rank - 2}d", x, n.shape_expr(target[2:]), layout=_LAYOUTS[rank], method=_METHODS[mode],
        scales=None if exact or factors is None else factors[2:], **how,
    )  # fmt: skip


def _scaled(n: NodeContext, size: Any, factor: float) -> Any:
    """floor(size * factor); of a dimension that is not fixed, for factors that are simple fractions."""
    if isinstance(size, IntImm):
        return math.floor(size.value * factor)
    simple = Fraction(factor).limit_denominator(64)
    if float(simple) != factor:
        raise n.unsupported(
            f"a scale of {factor:g} of a dimension that is not fixed", "fix it with --shape or shape_dict="
        )
    return e.floordiv(e.mul(size, simple.numerator), simple.denominator)


def _is_ratio(size: Any, target: Any, factor: float) -> bool:
    """Is the scale the ratio of the sizes, so that it need not be said?"""
    if isinstance(size, IntImm) and isinstance(target, int):
        return target == size.value * factor
    return factor == int(factor)
