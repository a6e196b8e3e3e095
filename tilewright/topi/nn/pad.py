"""Padding: a constant, or values taken from inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, cast, const
from tilewright.topi.util import as_int, simplify

__all__ = ["pad", "pad_by"]


def _padded(shape: Sequence[Any], before: Sequence[Any], after: Sequence[Any]) -> list[PrimExpr]:
    return [simplify(tir.convert(n) + b + a) for n, b, a in zip(shape, before, after, strict=True)]


def pad(
    x: te.Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    pad_value: Any = 0.0,
    name: str = "pad",
) -> te.Tensor:
    """`x` with `pad_value` around it; negative amounts cut. No stage at all where nothing is added."""
    after = pad_before if pad_after is None else pad_after
    if all(as_int(p) == 0 for p in [*pad_before, *after]):
        return x
    value = cast(tir.convert(pad_value, x.dtype), x.dtype)

    def inside(*i: Any) -> PrimExpr:
        at: list[Any] = []
        tests: list[PrimExpr] = []
        for v, n, b, a in zip(i, x.shape, pad_before, after, strict=True):
            low, high = as_int(b), as_int(a)
            at.append(v if low == 0 else v - b)
            if low is None or low > 0:
                tests.append(v >= b)
            if high is None or high > 0:
                tests.append(v < n + b)
        return tir.if_then_else(tir.all(*tests), x(*at), value) if tests else x(*at)

    return te.compute(tuple(_padded(x.shape, pad_before, after)), inside, name=name)


def pad_by(x: te.Tensor, pad_before: Sequence[Any], pad_after: Sequence[Any], mode: str) -> te.Tensor:
    """Padding with values of `x`: "reflect" (the edge once), "symmetric" (the edge twice), "edge", or "circular"."""

    def source(v: Any, n: Any, before: Any, after: Any) -> Any:
        if as_int(before) == 0 and as_int(after) == 0:
            return v
        i = v - before
        if mode == "edge":
            return tir.max(tir.min(i, n - 1), const(0, i.dtype))
        if mode == "circular":
            return tir.floormod(i, n)
        if mode == "symmetric":
            j = tir.floormod(i, n * 2)
            return tir.min(j, n * 2 - 1 - j)
        period = tir.max(n * 2 - 2, const(1, i.dtype)) if as_int(n) is None else const(max(2 * int(n) - 2, 1), i.dtype)
        j = tir.floormod(i, period)
        return tir.min(j, period - j) if as_int(n) != 1 else const(0, i.dtype)

    def index(*i: Any) -> PrimExpr:
        return x(*(source(*t) for t in zip(i, x.shape, pad_before, pad_after, strict=True)))

    return te.compute(tuple(_padded(x.shape, pad_before, pad_after)), index, name=f"pad_{mode}")
