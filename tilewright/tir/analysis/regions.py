"""Which parts of which buffers a piece of IR touches.

A region is a box, one range a dimension, in terms of variables that the piece does not bind. Unions are boxes too: the
hull, exact where the bounds differ by constants, else the whole dimension.
"""

from __future__ import annotations

from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.arith.linear import difference, expr_key
from tilewright.tir.ir import Buffer, Range

__all__ = ["RegionUnion"]


class RegionUnion:
    """The hull of what is touched of one buffer. In each dimension: a start and a constant or symbolic extent, or all."""

    __slots__ = ("buffer", "dims", "points")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.dims: list[tuple[PrimExpr, PrimExpr] | None] | None = None
        self.points: set[object] = set()

    def add_point(self, indices: tuple[PrimExpr, ...]) -> None:
        """Add one element."""
        key = tuple(expr_key(i) for i in indices)
        if key in self.points:
            return
        self.points.add(key)
        self.add([(i, IntImm(i.dtype, 1)) for i in indices])

    def add(self, box: list[tuple[PrimExpr, PrimExpr]] | list[tuple[PrimExpr, PrimExpr] | None]) -> None:
        """Add a box: (start, extent) a dimension; None stands for the whole dimension."""
        if self.dims is None:
            self.dims = list(box)
            return
        for d, (old, new) in enumerate(zip(self.dims, box, strict=True)):
            if old is not None and old is not new:
                self.dims[d] = None if new is None else _hull(old, new)

    def ranges(self) -> tuple[Range, ...]:
        """The hull as ranges."""
        out: list[Range] = []
        for d, n in zip(self.dims or (), self.buffer.shape, strict=False):
            out.append(Range(IntImm(n.dtype, 0), n) if d is None else Range(d[0], d[1]))
        return tuple(out)


def _hull(a: tuple[PrimExpr, PrimExpr], b: tuple[PrimExpr, PrimExpr]) -> tuple[PrimExpr, PrimExpr] | None:
    """The hull of two ranges, or None when their starts do not differ by a constant."""
    gap = difference(b[0], a[0])
    if gap is None:
        return None
    if gap == 0 and expr_key(a[1]) == expr_key(b[1]):
        return a
    ends = difference(b[0] + b[1], a[0] + a[1])
    if ends is None:
        return None
    low = a if gap >= 0 else b
    extent = a[1] if ends <= 0 else b[1]
    start_gap = (gap if ends > 0 and gap > 0 else 0) if ends > 0 else (-gap if gap < 0 else 0)
    return low[0], extent + start_gap if start_gap else extent
