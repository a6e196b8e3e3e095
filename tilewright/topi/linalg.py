"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, cast
from tilewright.topi.util import broadcast_index, broadcast_shape, same

__all__ = ["batch_matmul", "dense", "einsum", "matmul"]


def matmul(
    a: te.Tensor,
    b: te.Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out_dtype: str | None = None,
    packed_b: int = 0,
    n: Any = None,
) -> te.Tensor:
    """numpy.matmul: the last two dimensions multiply, the ones before broadcast, a vector is a row or a column.

    With `packed_b` p > 0, `b` is [ceil(n/p), K, p], zero padded, and stands for a matrix [K, n].
    """
    out_dtype = out_dtype or a.dtype
    row = len(a.shape) == 1
    column = not packed_b and len(b.shape) == 1
    sa: list[Any] = list(a.shape)
    k_extent = sa[0] if row else sa[-2] if transpose_a else sa[-1]
    k = te.reduce_axis((0, k_extent), name="k")
    batch_a = [] if row else sa[:-2]
    batch_b = [] if column or packed_b else list(b.shape)[:-2]
    batch = broadcast_shape(batch_a, batch_b)
    rows = [] if row else [sa[-1] if transpose_a else sa[-2]]
    if packed_b:
        columns: list[Any] = [tir.convert(n)]
    else:
        columns = [] if column else [list(b.shape)[-2] if transpose_b else b.shape[-1]]

    def body(*i: Any) -> PrimExpr:
        outer = i[: len(batch)]
        rest = list(i[len(batch) :])
        m: Any = rest.pop(0) if rows else None
        j: Any = rest.pop(0) if columns else None
        at_a = [k.var] if row else [*broadcast_index(outer, batch_a), *((k.var, m) if transpose_a else (m, k.var))]
        if packed_b:
            at_b: list[Any] = [j // packed_b, k.var, j % packed_b]
        elif column:
            at_b = [k.var]
        else:
            at_b = [*broadcast_index(outer, batch_b), *((j, k.var) if transpose_b else (k.var, j))]
        return te.sum(cast(a(*at_a), out_dtype) * cast(b(*at_b), out_dtype), axis=k)

    return te.compute((*batch, *rows, *columns), body, name="matmul")


def dense(data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, out_dtype: str | None = None) -> te.Tensor:
    """data @ weight.T (+ bias)."""
    out = matmul(data, weight, transpose_b=True, out_dtype=out_dtype)
    if bias is None:
        return out
    return te.compute(out.shape, lambda *i: out(*i) + cast(bias(i[-1]), out.dtype), name="dense_bias")


def batch_matmul(
    a: te.Tensor, b: te.Tensor, out_dtype: str | None = None, transpose_a: bool = False, transpose_b: bool = True
) -> te.Tensor:
    """Matrix products of two batches; the second one transposed by default."""
    return matmul(a, b, transpose_a, transpose_b, out_dtype)


def einsum(subscripts: str, *operands: te.Tensor) -> te.Tensor:
    """The sum of products that the letters say; see `parse_einsum` for what is taken."""
    inputs, output = parse_einsum(subscripts, [len(t.shape) for t in operands])
    extent: dict[str, Any] = {}
    for letters, t in zip(inputs, operands, strict=True):
        for letter, d in zip(letters, t.shape, strict=True):
            if letter not in extent or same(extent[letter], 1):
                extent[letter] = d
    summed = [letter for letter in extent if letter not in output]
    axes = {letter: te.reduce_axis((0, extent[letter]), name=f"k{letter}") for letter in summed}

    def body(*i: Any) -> PrimExpr:
        at = {**dict(zip(output, i, strict=True)), **{letter: a.var for letter, a in axes.items()}}
        product: PrimExpr | None = None
        for letters, t in zip(inputs, operands, strict=True):
            factor = t(*broadcast_index([at[letter] for letter in letters], t.shape))
            product = factor if product is None else product * factor
        assert product is not None
        return te.sum(product, axis=list(axes.values())) if axes else product

    return te.compute(tuple(extent[letter] for letter in output), body, name="einsum")


def parse_einsum(subscripts: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, an ellipsis spelled out by capital letters not in use.

    Raises ValueError on another number of operands or letters than the ranks say.
    """
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise ValueError(f"{subscripts!r} has {len(parts)} operands, got {len(ranks)}")
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in text]
    widest = max((r - len(p.replace("...", "")) for p, r in zip(parts, ranks, strict=True) if "..." in p), default=0)
    dots = "".join(free[:widest])
    inputs: list[str] = []
    for part, rank in zip(parts, ranks, strict=True):
        if "..." in part:
            width = rank - len(part.replace("...", ""))
            part = part.replace("...", dots[widest - width :] if width else "")
        if len(part) != rank:
            raise ValueError(f"{part!r} of {subscripts!r} names {len(part)} dimensions of a tensor with {rank}")
        inputs.append(part)
    if not arrow:
        letters = "".join(inputs)
        right = ("..." if "..." in left else "") + "".join(
            sorted(c for c in set(letters) if letters.count(c) == 1 and c not in dots)
        )
    output = right.replace("...", dots)
    for c in output:
        if all(c not in p for p in inputs):
            raise ValueError(f"{c!r} of the result of {subscripts!r} is in no operand")
    return inputs, output
