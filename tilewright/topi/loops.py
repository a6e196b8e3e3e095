"""Kernels written as loops, for what is no comprehension over elements: running sums, scattering, selection.

Each function gives a te.Tensor made by `te.extern`, so it composes with the others. Loops are serial along the dimension
that carries a dependence and nest the others inside, where they run along memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, Var, cast, const
from tilewright.ir import dtype as dt
from tilewright.tir.ir import Buffer, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from tilewright.topi.util import accumulator, axes_of, number

__all__ = ["cumprod", "cumsum", "let", "nest", "scatter_elements", "scatter_nd", "topk"]


def nest(
    shape: Sequence[Any],
    body: Callable[..., Stmt | None],
    names: Sequence[str] | None = None,
    kind: ForKind = ForKind.SERIAL,
) -> Stmt:
    """Loops over `shape` around `body(i, j, ...)`; without dimensions, `body()` itself."""
    extents = [tir.convert(n) for n in shape]
    variables = [Var(names[k] if names else f"i{k}", n.dtype) for k, n in enumerate(extents)]
    inner = body(*variables)
    assert inner is not None
    for v, n in reversed(list(zip(variables, extents, strict=True))):
        inner = For(v, const(0, n.dtype), n, kind, inner)
    return inner


def let(name: str, value: PrimExpr, body: Callable[[Var], Stmt]) -> Stmt:
    """`body(v)` where v holds `value`, evaluated once."""
    v = Var(name, value.dtype)
    return LetStmt(v, value, body(v))


def _store(b: Buffer, value: Any, index: Sequence[Any]) -> Stmt:
    return BufferStore(b, cast(tir.convert(value, b.dtype), b.dtype), tuple(tir.convert(i) for i in index))


def _put(index: Sequence[Any], axis: int, v: Any) -> list[Any]:
    return [*index[:axis], v, *index[axis:]]


def _running(
    x: te.Tensor, axis: int, exclusive: bool, reverse: bool, f: Callable[[Any, Any], Any], start: float, name: str
) -> te.Tensor:
    (a,) = axes_of(axis, len(x.shape))
    n = tir.convert(x.shape[a])
    acc = accumulator(x.dtype)

    def build(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        source, target = ins[0], outs[0]

        def step(*i: Any) -> Stmt:
            # i: the dimensions before the axis, the step along it, the dimensions after it
            k = i[a]
            rest = [*i[:a], *i[a + 1 :]]
            here = n - 1 - k if reverse else k
            before = n - k if reverse else k - 1
            at, last = _put(rest, a, here), _put(rest, a, before)
            first = tir.EQ(k, const(0, k.dtype))
            neutral = const(start, target.dtype)
            total = tir.if_then_else(first, neutral, target[tuple(last)])
            if exclusive:
                new = tir.if_then_else(first, neutral, cast(source[tuple(last)], target.dtype))
            else:
                new = cast(source[tuple(at)], target.dtype)
            return _store(target, f(total, new), at)

        return nest([*x.shape[:a], n, *x.shape[a + 1 :]], step)

    out = te.extern(x.shape, [x], build, name=name, dtype=acc)
    return out if acc == x.dtype else te.compute(out.shape, lambda *i: cast(out(*i), x.dtype), name=f"{name}_cast")


def cumsum(x: te.Tensor, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> te.Tensor:
    """Running sums along `axis`; `exclusive` leaves out the element itself, `reverse` runs from the end."""
    return _running(x, axis, exclusive, reverse, lambda a, b: a + b, 0, "cumsum")


def cumprod(x: te.Tensor, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> te.Tensor:
    """Running products along `axis`."""
    return _running(x, axis, exclusive, reverse, lambda a, b: a * b, 1, "cumprod")


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": tir.min,
    "max": tir.max,
}


def wrapped_index(i: PrimExpr, n: Any) -> PrimExpr:
    """An index from memory as one in range: negative ones count from the end, others are clamped."""
    i = cast(i, "int64")
    extent = cast(tir.convert(n), "int64")
    if not dt.is_uint(i.dtype):
        i = tir.Select(i < const(0, "int64"), i + extent, i)
    return tir.max(tir.min(i, extent - 1), const(0, "int64"))


def _copy(source: Buffer, target: Buffer) -> Stmt:
    return nest(
        source.shape,
        lambda *i: _store(target, source[tuple(i)] if i else source[()], i),
        [f"c{k}" for k in range(len(source.shape))],
    )


def scatter_elements(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int = 0, reduction: str = "update"
) -> te.Tensor:
    """`data` with `updates[i]` put at the place i whose coordinate along `axis` is `indices[i]`, in order."""
    (a,) = axes_of(axis, len(data.shape))
    combine = _COMBINE[reduction]

    def build(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        d, ix, up = ins
        out = outs[0]

        def step(*i: Any) -> Stmt:
            def put(k: Var) -> Stmt:
                at = [*i[:a], k, *i[a + 1 :]]
                return _store(out, combine(out[tuple(at)], up[tuple(i)]), at)

            return let("k", wrapped_index(ix[tuple(i)], data.shape[a]), put)

        return seq(_copy(d, out), nest(indices.shape, step))

    return te.extern(data.shape, [data, indices, updates], build, name="scatter_elements", dtype=data.dtype)


def scatter_nd(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, reduction: str = "update") -> te.Tensor:
    """`data` with the slices `updates[i]` put at the places `indices[i]` (the last dimension: coordinates), in order."""
    depth = number(indices.shape[-1])
    combine = _COMBINE[reduction]
    outer = list(indices.shape[:-1])

    def build(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        d, ix, up = ins
        out = outs[0]

        def step(*i: Any) -> Stmt:
            head = i[: len(outer)]
            tail = i[len(outer) :]
            coordinates = [wrapped_index(ix[(*head, const(k, "int64"))], data.shape[k]) for k in range(depth)]
            at = [*coordinates, *tail]
            value = up[tuple(i)] if i else up[()]
            return _store(out, combine(out[tuple(at)], value), at)

        return seq(_copy(d, out), nest([*outer, *data.shape[depth:]], step))

    return te.extern(data.shape, [data, indices, updates], build, name="scatter_nd", dtype=data.dtype)


def topk(
    x: te.Tensor, k: Any, axis: int = -1, largest: bool = True, index_dtype: str = "int64"
) -> tuple[te.Tensor, te.Tensor]:
    """The k greatest (or smallest) elements along `axis` in order, and their positions; of equals the first come first.

    Insertion into the sorted list so far: most elements are refused by one comparison with its last.
    """
    (a,) = axes_of(axis, len(x.shape))
    n = tir.convert(x.shape[a])
    count = cast(tir.convert(k), "int64")
    shape = [*x.shape[:a], count, *x.shape[a + 1 :]]

    def better(v: Any, w: Any) -> PrimExpr:
        return v > w if largest else v < w

    def build(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        source, (values, places) = ins[0], outs

        def row(*rest: Any) -> Stmt:
            def at(v: Any) -> tuple[Any, ...]:
                return tuple(_put(rest, a, v))

            def element(i: Var) -> Stmt:
                return let("v", source[at(i)], lambda v: insert(i, v))

            def insert(i: Var, v: Var) -> Stmt:
                def place(t: Var) -> Stmt:
                    j = count - 1 - t
                    inside = tir.all(j > 0, j - 1 < i)
                    shift = tir.if_then_else(
                        inside, better(v, values[at(tir.max(j - 1, const(0, "int64")))]), const(False)
                    )
                    here = tir.any(j >= i, better(v, values[at(j)]))
                    move = seq(
                        _store(values, values[at(j - 1)], at(j)),
                        _store(places, places[at(j - 1)], at(j)),
                    )
                    put = IfThenElse(here, seq(_store(values, v, at(j)), _store(places, i, at(j))), None)
                    return IfThenElse(j <= i, IfThenElse(shift, move, put), None)

                wanted = tir.any(i < count, better(v, values[at(count - 1)]))
                return IfThenElse(wanted, nest([count], place, ["t"]), None)

            return nest([n], element, ["i"])

        return nest([*x.shape[:a], *x.shape[a + 1 :]], row, [f"r{j}" for j in range(len(x.shape) - 1)])

    return te.extern([shape, shape], [x], build, name="topk", dtype=[x.dtype, index_dtype])
