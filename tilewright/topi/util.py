"""Index arithmetic that the tensor expressions share.

Dimensions are ints or PrimExprs; constants fold at once, what stays symbolic is simplified by the analyser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import IntImm, PrimExpr, cast, const, convert
from tilewright.ir import dtype as dt
from tilewright.support.lazy import resolve

__all__ = [
    "accumulator", "as_int", "axes_of", "broadcast_index", "broadcast_shape", "combine", "dim", "grid", "is_one", "number", "prod",
    "ravel", "same", "simplify", "unravel",
]  # fmt: skip


def simplify(e: Any) -> PrimExpr:
    """`e` simplified; constants and lone variables stay as they are."""
    e = convert(e)
    if isinstance(e, (IntImm, tir.Var)):
        return e
    return resolve("arith.simplify")(e)


def as_int(e: Any) -> int | None:
    """The value of a constant, or None."""
    if isinstance(e, int):
        return int(e)
    return e.value if isinstance(e, IntImm) else None


def number(e: Any) -> int:
    """The value of a dimension that has to be a number. Raises ValueError where it is a formula."""
    value = as_int(e)
    if value is None:
        raise ValueError("this dimension has to be a number, not a formula")
    return value


def is_one(d: Any) -> bool:
    """Is the dimension the constant 1?"""
    return as_int(d) == 1


def same(a: Any, b: Any) -> bool:
    """Are two dimensions provably equal?"""
    if a is b:
        return True
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return x == y
    return as_int(simplify(cast(convert(a), "int64") - cast(convert(b), "int64"))) == 0


def dim(e: Any) -> PrimExpr:
    """A dimension as an expression, simplified."""
    return simplify(e)


def prod(shape: Sequence[Any]) -> PrimExpr:
    """The product of dimensions; 1 for none."""
    out: PrimExpr | None = None
    for d in shape:
        out = convert(d) if out is None else out * d
    return const(1, "int64") if out is None else out


def ravel(index: Sequence[Any], shape: Sequence[Any]) -> PrimExpr:
    """The row-major position of `index` in `shape`."""
    out: PrimExpr | None = None
    for i, n in zip(index, shape, strict=True):
        if is_one(n):
            continue
        out = convert(i) if out is None else out * n + i
    return const(0, "int64") if out is None else out


def unravel(position: Any, shape: Sequence[Any]) -> list[PrimExpr]:
    """The index in `shape` of a row-major position."""
    position = convert(position)
    out: list[PrimExpr] = []
    rest = position
    left = sum(not is_one(d) for d in shape)
    for d in reversed(shape):
        if is_one(d):
            out.append(const(0, position.dtype))
            continue
        left -= 1
        out.append(rest if left == 0 else rest % d)  # the leading index needs no wrap
        rest = rest // d
    return out[::-1]


def broadcast_shape(*shapes: Sequence[Any]) -> list[Any]:
    """The common shape of operands, aligned at the right. Dimensions that are not provably different count as equal."""
    ndim = max((len(s) for s in shapes), default=0)
    out: list[Any] = []
    for k in range(ndim):
        found: Any = const(1, "int64")
        for s in shapes:
            j = k - (ndim - len(s))
            if j < 0 or is_one(s[j]):
                continue
            # a constant says more than a symbol
            if is_one(found) or (as_int(found) is None and as_int(s[j]) is not None):
                found = s[j]
        out.append(found)
    return out


def broadcast_index(index: Sequence[Any], shape: Sequence[Any], ndim_out: int | None = None) -> list[Any]:
    """Where element `index` of the broadcast result lies in an operand of `shape`."""
    skip = (len(index) if ndim_out is None else ndim_out) - len(shape)
    return [const(0, convert(i).dtype) if is_one(d) else i for i, d in zip(index[skip:], shape, strict=True)]


def axes_of(axis: Any, ndim: int) -> list[int]:
    """Axes as sorted non-negative ints; None means all of them."""
    if axis is None:
        return list(range(ndim))
    items = [axis] if isinstance(axis, int) else list(axis)
    return sorted(a + ndim if a < 0 else a for a in items)


def accumulator(dtype: str) -> str:
    """The dtype in which sums over `dtype` are kept: float32 for the narrow floats."""
    return "float32" if dt.is_float(dtype) and dt.bits(dtype) < 32 else dtype


def combine(name: str, out_shape: Sequence[Any], f: Callable[..., Any]) -> te.Tensor:
    """`te.compute` with a name."""
    return te.compute(tuple(out_shape), f, name=name)


def grid(shape: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Reduction axes over `shape`."""
    return [te.reduce_axis((0, n), name=name) for n, name in zip(shape, names, strict=True)]
