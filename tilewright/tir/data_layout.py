"""Layouts of tensors by letters: `NCHW`, `NCHW16c`, `OIHW4i16o`; and the maps between two of them.

An upper-case letter is a primal axis; a number with a lower-case letter a part of that axis, split off with that extent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.arith.analyzer import simplify
from tilewright.arith.expr import IntImm, PrimExpr, convert
from tilewright.tir.index_map import IndexMap

__all__ = ["BijectiveLayout", "Layout", "bijective_layout", "layout"]

_AXIS = re.compile(r"(\d*)([A-Za-z])")


class Layout:
    """A layout. Raises ValueError for text that is none: an axis twice, a part without its axis or without an extent."""

    def __init__(self, name: str, dtype: str = "int32") -> None:
        self.name, self.dtype = name, dtype
        parts = _AXIS.findall(name)
        if "".join(n + a for n, a in parts) != name:
            raise ValueError(f"{name!r} is no layout: write letters, and numbers before lower-case ones, as in NCHW16c")
        self.axes: list[tuple[str, int]] = [(a, int(n) if n else 0) for n, a in parts]
        letters = [a for a, _ in self.axes]
        for a, n in self.axes:
            if letters.count(a) > 1:
                raise ValueError(f"the layout {name!r} has the axis {a} twice")
            if a.isupper() and n:
                raise ValueError(f"in the layout {name!r} the primal axis {a} has an extent")
            if a.islower() and not n:
                raise ValueError(f"in the layout {name!r} the part {a} has no extent: write a number before it")
            if a.islower() and a.upper() not in letters:
                raise ValueError(f"the layout {name!r} has a part {a} without its axis {a.upper()}")

    def __len__(self) -> int:
        return len(self.axes)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.axes)

    def __contains__(self, axis: str) -> bool:
        return any(a == axis.strip("0123456789") for a, _ in self.axes)

    def __getitem__(self, index: int) -> str:
        return self.axes[index][0]

    def __iter__(self) -> Iterator[str]:
        return (a for a, _ in self.axes)

    def index_of(self, axis: str) -> int:
        """The position of an axis, -1 where it is not there."""
        return next((i for i, (a, _) in enumerate(self.axes) if a == axis), -1)

    def factor_of(self, axis: str) -> int:
        """The product of the extents split off an axis (1 where none is); -1 where the axis is not there."""
        if axis not in self:
            return -1
        if axis.islower():
            return dict(self.axes)[axis]
        return dict(self.axes).get(axis.lower(), 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f'Layout("{self.name}")'


class BijectiveLayout:
    """The map between two layouts of the same primal axes. Raises ValueError where these differ."""

    def __init__(self, src: Layout, dst: Layout) -> None:
        self.src_layout, self.dst_layout = src, dst
        ours, theirs = ({a.upper() for a in x} for x in (src, dst))
        if ours != theirs:
            raise ValueError(f"{src.name} and {dst.name} have different axes: {', '.join(sorted(ours ^ theirs))}")
        self._forward, self._backward = _rule(src, dst), _rule(dst, src)

    def forward_index(self, index: Sequence[Any]) -> list[PrimExpr]:
        """The index in the destination of an index in the source."""
        return _indices(self._forward, index, self.src_layout)

    def backward_index(self, index: Sequence[Any]) -> list[PrimExpr]:
        """The index in the source of an index in the destination."""
        return _indices(self._backward, index, self.dst_layout)

    def forward_shape(self, shape: Sequence[Any]) -> list[PrimExpr]:
        """The shape in the destination of a shape in the source."""
        return _shape(self.src_layout, self.dst_layout, shape)

    def backward_shape(self, shape: Sequence[Any]) -> list[PrimExpr]:
        """The shape in the source of a shape in the destination."""
        return _shape(self.dst_layout, self.src_layout, shape)

    def index_map(self) -> IndexMap:
        """The forward map as an IndexMap."""
        return IndexMap.from_func(lambda *i: self.forward_index(i), len(self.src_layout))


def _linear(layout_: Layout, index: Sequence[PrimExpr]) -> dict[str, PrimExpr]:
    """The position along each primal axis of an index in a layout."""
    out: dict[str, PrimExpr] = {}
    for a in layout_:
        if a.isupper():
            part = layout_.index_of(a.lower())
            whole = index[layout_.index_of(a)]
            out[a] = whole if part < 0 else whole * layout_.factor_of(a) + index[part]
    return out


def _rule(src: Layout, dst: Layout) -> Any:
    def rule(index: Sequence[PrimExpr]) -> list[PrimExpr]:
        at = _linear(src, index)
        out: list[PrimExpr] = []
        for a, n in dst.axes:
            whole = at[a.upper()]
            factor = dst.factor_of(a.upper())
            out.append(whole % n if a.islower() else whole if factor == 1 else whole // factor)
        return out

    return rule


def _indices(rule: Any, index: Sequence[Any], layout_: Layout) -> list[PrimExpr]:
    if len(index) != len(layout_):
        raise ValueError(f"an index of {layout_.name} has {len(layout_)} numbers, got {len(index)}")
    return [simplify(e) for e in rule([convert(i) for i in index])]


def _shape(src: Layout, dst: Layout, shape: Sequence[Any]) -> list[PrimExpr]:
    if len(shape) != len(src):
        raise ValueError(f"a shape of {src.name} has {len(src)} numbers, got {len(shape)}")
    sizes = [convert(n) for n in shape]
    whole = {a: sizes[i] * src.factor_of(a) for i, (a, _) in enumerate(src.axes) if a.isupper()}
    out: list[PrimExpr] = []
    for a, n in dst.axes:
        if a.islower():
            out.append(IntImm(sizes[0].dtype, n))
        else:
            factor = dst.factor_of(a)
            out.append(simplify(whole[a] if factor == 1 else (whole[a] + (factor - 1)) // factor))
    return out


def layout(layout_str: str, dtype: str = "int32") -> Layout:
    """A layout by its letters."""
    return Layout(layout_str, dtype)


def bijective_layout(src_layout: str | Layout, dst_layout: str | Layout) -> BijectiveLayout:
    """The map between two layouts."""
    src, dst = (x if isinstance(x, Layout) else Layout(x) for x in (src_layout, dst_layout))
    return BijectiveLayout(src, dst)
