"""Rearranging: the elements stay, their places change."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, cast, const
from tilewright.topi.util import as_int, number, prod, ravel, same, simplify, unravel

__all__ = [
    "concatenate", "expand_dims", "flatten", "flip", "repeat", "reshape", "slice_at", "split", "squeeze", "stack",
    "strided_slice",
    "tile", "transpose", "trilu",
]  # fmt: skip


def _groups(old: Sequence[Any], new: Sequence[Any]) -> list[tuple[int, int, int, int]]:
    """Pairs of runs `old[a:b]`, `new[c:d]` of provably equal products, as short as can be shown."""
    out: list[tuple[int, int, int, int]] = []
    a = c = 0
    while a < len(old) or c < len(new):
        b, d = a, c
        x: PrimExpr = const(1, "int64")
        y: PrimExpr = const(1, "int64")
        found = False
        while b < len(old) or d < len(new):
            # extend the side that is smaller so far; with symbols, the shorter run
            xi, yi = as_int(x), as_int(y)
            smaller = xi <= yi if xi is not None and yi is not None else (b - a) <= (d - c)
            if b < len(old) and (smaller or d == len(new)):
                x, b = simplify(x * old[b]), b + 1
            else:
                y, d = simplify(y * new[d]), d + 1
            if b > a and d > c and same(x, y):
                found = True
                break
        if not found:
            b, d = len(old), len(new)
        out.append((a, b, c, d))
        a, c = b, d
    return out


def reshape(x: te.Tensor, newshape: Sequence[Any]) -> te.Tensor:
    """The elements in row-major order, in another shape of as many elements."""
    groups = _groups(x.shape, newshape)

    def index(*i: Any) -> PrimExpr:
        at: list[Any] = []
        for a, b, c, d in groups:
            if b - a == 1 and d - c == 1:
                at.append(i[c])
            else:
                at += unravel(ravel(i[c:d], newshape[c:d]), x.shape[a:b])
        return x(*at)

    return te.compute(tuple(newshape), index, name="reshape")


def flatten(x: te.Tensor) -> te.Tensor:
    """All elements in one dimension."""
    return reshape(x, [prod(x.shape)])


def transpose(x: te.Tensor, axes: Sequence[int] | None = None) -> te.Tensor:
    """Dimension k of the result is dimension axes[k] of `x`; None reverses them."""
    ndim = len(x.shape)
    order = list(range(ndim))[::-1] if axes is None else [a % ndim for a in axes]

    def index(*i: Any) -> PrimExpr:
        at: list[Any] = [None] * ndim
        for k, a in enumerate(order):
            at[a] = i[k]
        return x(*at)

    return te.compute(tuple(x.shape[a] for a in order), index, name="transpose")


def expand_dims(x: te.Tensor, axis: int | Sequence[int], num_newaxis: int = 1) -> te.Tensor:
    """New dimensions of extent 1, at places `axis` of the result (an int: `num_newaxis` of them from there)."""
    if isinstance(axis, int):
        start = axis if axis >= 0 else axis + len(x.shape) + 1
        axes = list(range(start, start + num_newaxis))
    else:
        n = len(x.shape) + len(axis)
        axes = sorted(a % n for a in axis)
    rest = iter(x.shape)
    total = len(x.shape) + len(axes)
    shape = [const(1, "int64") if k in axes else next(rest) for k in range(total)]
    return te.compute(tuple(shape), lambda *i: x(*(v for k, v in enumerate(i) if k not in axes)), name="expand_dims")


def squeeze(x: te.Tensor, axis: Any = None) -> te.Tensor:
    """Without the dimensions `axis`, which have extent 1; None: without all such."""
    ndim = len(x.shape)
    if axis is None:
        axes = [k for k, d in enumerate(x.shape) if as_int(d) == 1]
    else:
        axes = [a % ndim for a in ([axis] if isinstance(axis, int) else axis)]
    shape = [d for k, d in enumerate(x.shape) if k not in axes]

    def index(*i: Any) -> PrimExpr:
        rest = iter(i)
        return x(*(const(0, "int64") if k in axes else next(rest) for k in range(ndim)))

    return te.compute(tuple(shape), index, name="squeeze")


def concatenate(tensors: Sequence[te.Tensor], axis: int = 0) -> te.Tensor:
    """The tensors one after the other along `axis`."""
    first = tensors[0]
    axis %= len(first.shape)
    tensors = [t for t in tensors if as_int(t.shape[axis]) != 0] or [first]
    starts: list[PrimExpr] = []
    total: PrimExpr = const(0, "int64")
    for t in tensors:
        starts.append(total)
        total = total + t.shape[axis]
    shape = [simplify(total) if k == axis else d for k, d in enumerate(first.shape)]

    def choose(*i: Any) -> PrimExpr:
        def part(t: te.Tensor, start: PrimExpr) -> PrimExpr:
            return t(*(v - start if k == axis else v for k, v in enumerate(i)))

        out = part(tensors[-1], starts[-1])
        for t, start, end in reversed(list(zip(tensors[:-1], starts[:-1], starts[1:], strict=True))):
            out = tir.if_then_else(i[axis] < end, part(t, start), out)
        return out

    return te.compute(tuple(shape), choose, name="concatenate")


def stack(tensors: Sequence[te.Tensor], axis: int = 0) -> te.Tensor:
    """The tensors as slices of a new dimension `axis`."""
    axis %= len(tensors[0].shape) + 1
    return concatenate([expand_dims(t, axis) for t in tensors], axis)


def split(x: te.Tensor, sections: int | Sequence[Any], axis: int = 0) -> list[te.Tensor]:
    """Parts along `axis`: an int makes that many (the last one may be shorter), a sequence gives where to cut."""
    axis %= len(x.shape)
    n = x.shape[axis]
    zero = const(0, "int64")
    if isinstance(sections, int):
        step = (n + (sections - 1)) // sections
        bounds: list[Any] = [tir.min(step * k, n) if k and not same(step * k, n) else step * k for k in range(sections)]
        bounds = [simplify(b) for b in bounds] + [n]
    else:
        bounds = [zero, *(tir.convert(s) for s in sections), n]
    out: list[te.Tensor] = []
    for part, (begin, end) in enumerate(pairwise(bounds)):
        shape = [simplify(end - begin) if k == axis else d for k, d in enumerate(x.shape)]
        out.append(
            te.compute(
                tuple(shape),
                lambda *i, begin=begin: x(*(v + begin if k == axis else v for k, v in enumerate(i))),
                name=f"split_{part}",
            )
        )
    return out


def strided_slice(
    a: te.Tensor,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
) -> te.Tensor:
    """`a[begin:end:stride]` along `axes` (by default the first ones), by numpy's rules; the sizes cut have to be numbers."""
    over = [k % len(a.shape) for k in (range(len(begin)) if axes is None else axes)]
    steps = [1] * len(over) if strides is None else list(strides)
    shape, starts = list(a.shape), list[Any]()
    for k, b, e, s in zip(over, begin, end, steps, strict=True):
        n = number(a.shape[k])
        start, stop, step = slice(int(b), None if s < 0 and int(e) < -n else int(e), s).indices(n)
        starts.append(const(start, "int64"))
        shape[k] = const(len(range(start, stop, step)), "int64")
    return slice_at(a, starts, steps, over, shape)


def slice_at(
    x: te.Tensor, starts: Sequence[Any], strides: Sequence[int], axes: Sequence[int], shape: Sequence[Any]
) -> te.Tensor:
    """`x[start + i * stride]` along `axes`; starts are in range already, `shape` is the whole result's."""
    table = {a: (s, step) for a, s, step in zip(axes, starts, strides, strict=True)}

    def index(*i: Any) -> PrimExpr:
        at: list[Any] = []
        for k, v in enumerate(i):
            if k in table:
                start, step = table[k]
                v = v * step + start
            at.append(v)
        return x(*at)

    return te.compute(tuple(shape), index, name="strided_slice")


def flip(x: te.Tensor, axis: int = 0) -> te.Tensor:
    """The elements along `axis` in the opposite order."""
    axis %= len(x.shape)
    n = x.shape[axis]
    return te.compute(x.shape, lambda *i: x(*(n - 1 - v if k == axis else v for k, v in enumerate(i))), name="flip")


def tile(x: te.Tensor, reps: Sequence[Any], shape: Sequence[Any] | None = None) -> te.Tensor:
    """The whole tensor repeated `reps` times along each dimension (as numpy.tile)."""
    ndim = max(len(x.shape), len(reps))
    one = const(1, "int64")
    dims = [one] * (ndim - len(x.shape)) + list(x.shape)
    times = [one] * (ndim - len(reps)) + list(reps)
    out = [simplify(tir.convert(d) * r) for d, r in zip(dims, times, strict=True)] if shape is None else list(shape)
    skip = ndim - len(x.shape)

    def index(*i: Any) -> PrimExpr:
        at = [v if as_int(r) == 1 else v % d for v, d, r in zip(i, dims, times, strict=True)]
        return x(*at[skip:])

    return te.compute(tuple(out), index, name="tile")


def repeat(x: te.Tensor, repeats: int, axis: int | None = None) -> te.Tensor:
    """Every element `repeats` times along `axis` (None: of the flattened tensor)."""
    if axis is None:
        x, axis = flatten(x), 0
    axis %= len(x.shape)
    shape = [simplify(d * repeats) if k == axis else d for k, d in enumerate(x.shape)]
    return te.compute(
        tuple(shape), lambda *i: x(*(v // repeats if k == axis else v for k, v in enumerate(i))), name="repeat"
    )


def trilu(x: te.Tensor, k: Any = 0, upper: bool = True) -> te.Tensor:
    """The upper (or lower) triangle of the last two dimensions, from the k-th diagonal on; zeros elsewhere."""

    def value(*i: Any) -> PrimExpr:
        diagonal = i[-2] + cast(tir.convert(k), "int64")
        keep = i[-1] >= diagonal if upper else i[-1] <= diagonal
        return tir.Select(keep, x(*i), const(0, x.dtype))

    return te.compute(x.shape, value, name="trilu")
