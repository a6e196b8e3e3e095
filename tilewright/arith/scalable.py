"""Vectors whose length the machine decides: `k * T.vscale()` lanes, written -k where a number of lanes is a number."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Call, Cast, IntImm, Mul, PrimExpr
from tilewright.ir.op import Op

__all__ = ["lane_count", "scalable_lanes"]


def scalable_lanes(extent: PrimExpr) -> int:
    """k where the expression is k times the machine's vscale, 0 where it is not."""
    while isinstance(extent, Cast):
        extent = extent.value
    if isinstance(extent, Call):
        return 1 if isinstance(extent.op, Op) and extent.op.name == "tir.vscale" else 0
    if isinstance(extent, Mul):
        for a, b in ((extent.a, extent.b), (extent.b, extent.a)):
            if isinstance(b, IntImm) and b.value > 0:
                return scalable_lanes(a) * b.value
    return 0


def lane_count(lanes: Any) -> int:
    """A number of lanes as the number that dtypes, Ramp and Broadcast have: n, or -k for `k * T.vscale()`.

    Raises ValueError for any other expression.
    """
    if isinstance(lanes, IntImm):
        return lanes.value
    if isinstance(lanes, PrimExpr):
        k = scalable_lanes(lanes)
        if not k:
            raise ValueError(f"a number of lanes is a constant or a multiple of T.vscale(), not {lanes}")
        return -k
    return int(lanes)
