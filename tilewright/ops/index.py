"""Reading and writing at places: slices, gathering, scattering."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import topi
from tilewright.arith.expr import IntImm, PrimExpr, cast, ceildiv, maximum, minimum
from tilewright.ops.common import (
    as_int,
    axes,
    axis,
    check_dtype,
    dims_equal,
    fail,
    known,
    nonnegative,
    out,
    rng,
    same_dtype,
    shape_operand,
    tensor,
)
from tilewright.ops.nn.conv import set_field
from tilewright.relax.dims import difference, simplify_dim
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import PrimStructInfo, TensorStructInfo

_HUGE = 2**31 - 1
"""A bound at least this large means the end."""


def _at_most(op: Op, a: PrimExpr, b: PrimExpr, what: str) -> PrimExpr:
    """`a`, which has to be at most `b`: what nothing proves is checked at run time."""
    gap = difference(b, a)
    if gap is not None:
        return a if gap >= 0 else b
    if nonnegative(simplify_dim(b - a)):
        return a
    dims_equal(op, simplify_dim(minimum(a, b)), simplify_dim(a), what)
    return a


def slice_bounds(op: Op, n: Any, begin: Any, end: Any, stride: int) -> tuple[PrimExpr, PrimExpr]:
    """Where a slice starts, in range, and how many elements it takes (numpy's rules).

    A symbolic bound has to lie in [0, n]; a slice of one element has to exist. Both are checked at run time where nothing
    proves them. Other constant bounds are cut to the dimension.
    """
    size, first, last = as_int(n), as_int(begin), as_int(end)
    if size is not None and first is not None and last is not None:
        start, stop, step = slice(first, last if last >= -size - 1 or stride > 0 else None, stride).indices(size)
        if stride < 0 and last < -size:
            stop = -1
        return IntImm("int64", start), IntImm("int64", len(range(start, stop, step)))
    extent = cast(n, "int64")
    if stride < 0:
        low = _backward_end(extent, last, end)
        if first is None:
            high = simplify_dim(minimum(begin, extent - 1))
        elif first >= _HUGE or first == -1:
            high = simplify_dim(extent - 1)
        else:
            high = simplify_dim(extent + first if first < 0 else minimum(begin, extent - 1))
        count = simplify_dim(ceildiv(high - low, IntImm("int64", -stride)))
        return high, count if nonnegative(count) else simplify_dim(maximum(count, 0))
    what = "the bounds of the slice are outside of the dimension"
    start = _forward(op, extent, first, begin, what)
    if last is not None and last >= _HUGE:
        stop = extent
    elif last is None:
        stop = _at_most(op, cast(end, "int64"), extent, what)
    elif first is not None and 0 <= last <= first:
        stop = start
    elif last < 0:
        stop = _from_end(op, extent, last, what)
    elif first is not None and last - first == 1 and size is None:
        stop = _at_most(op, IntImm("int64", last), extent, what)
    else:
        stop = (
            IntImm("int64", last)
            if size is not None and last <= size
            else simplify_dim(minimum(IntImm("int64", last), extent))
        )
    length = simplify_dim(stop - start)
    if (value := as_int(length)) is not None:
        length = IntImm("int64", max(value, 0))
    elif not nonnegative(length) and as_int(start) != 0:
        dims_equal(op, simplify_dim(minimum(start, stop)), simplify_dim(start), what)
    return start, simplify_dim(length if stride == 1 else ceildiv(length, IntImm("int64", stride)))


def _forward(op: Op, extent: PrimExpr, first: int | None, begin: Any, what: str) -> PrimExpr:
    if first is None:
        return _at_most(op, cast(begin, "int64"), extent, what)
    if first == 0:
        return IntImm("int64", 0)
    if first < 0:
        return _from_end(op, extent, first, what)
    return _at_most(op, IntImm("int64", min(first, _HUGE)), extent, what)


def _from_end(op: Op, extent: PrimExpr, back: int, what: str) -> PrimExpr:
    """The position `-back` before the end, cut to 0; that there is a last element is taken for granted, and checked."""
    if back == -1 and as_int(extent) is None:
        _at_most(op, IntImm("int64", 1), extent, what)
        return simplify_dim(extent - 1)
    return simplify_dim(maximum(extent + back, IntImm("int64", 0)))


def _backward_end(extent: PrimExpr, last: int | None, end: Any) -> PrimExpr:
    """The position before the last one that a backward slice takes."""
    if last is None:
        return cast(end, "int64")
    if last <= -_HUGE:
        return IntImm("int64", -1)
    return simplify_dim(extent + last) if last < 0 else IntImm("int64", last)


@operator
class StridedSlice(Op, name="strided_slice"):
    """x[begin:end:stride] along each of `axes`, by numpy's rules; begin and end are shapes (they may be symbolic)."""

    axes: Any = ()
    strides: Any = None
    assume_inbound: bool = False

    def __post_init__(self) -> None:
        items = (self.axes,) if isinstance(self.axes, int) else tuple(int(a) for a in self.axes)
        steps = None if self.strides is None else tuple(int(s) for s in self.strides)
        steps = steps or (1,) * len(items)
        set_field(self, axes=items, strides=steps)
        if 0 in steps:
            fail(self, "TW0206", f"strides {list(steps)} has a 0")

    def bounds(self, shape: Any, begin: Any, end: Any) -> tuple[tuple[int, ...], list[Any], list[Any]]:
        """The axes, the starts in range, and the whole result's shape."""
        over = axes(self, self.axes, len(shape), "axes")
        if not len(over) == len(begin) == len(end) == len(self.strides):
            counts = f"{len(begin)} begins, {len(end)} ends, {len(self.strides)} strides"
            fail(self, "TW0206", f"{len(over)} axes, but {counts}")
        result, starts = list(shape), []
        for a, b, e, s in zip(over, begin, end, self.strides, strict=True):
            start, result[a] = slice_bounds(self, shape[a], b, e, s)
            starts.append(start)
        return over, starts, result

    def infer(self, x: Any, begin: Any, end: Any) -> TensorStructInfo:
        shape = known(self, x)
        b, e = shape_operand(self, begin, "begin"), shape_operand(self, end, "end")
        return out(self.bounds(shape, b, e)[2], tensor(self, x).dtype)

    def lower(self, b: Any, x: Any, begin: Any, end: Any) -> Any:
        # the bounds are worked out here, on the graph's dimensions: a kernel would not know what holds of its own
        first, last = shape_operand(self, begin, "begin"), shape_operand(self, end, "end")
        over, starts, result = self.bounds(known(self, x), first, last)

        def strided_slice(t: Any, s: Any, shape: Any) -> Any:
            return topi.slice_at(t, s, self.strides, over, shape)

        return b.call_te(strided_slice, x, tuple(starts), tuple(simplify_dim(d) for d in result))

    def reference(self, x: Any, begin: Any, end: Any) -> Any:
        index = [slice(None)] * x.ndim
        for a, b, e, s in zip(self.axes, begin, end, self.strides, strict=True):
            n = x.shape[a]
            index[a] = slice(int(b), None if s < 0 and e < -n else int(e), s)
        return x[tuple(index)].copy()

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-1, 1, (5, 6, 4)).astype(np.float32)
        big = 2**63 - 1
        return [
            Sample(cls((0,)), (x, (1,), (4,))),
            Sample(cls((1, -1), (2, 1)), (x, (0, -3), (big, -1))),
            Sample(cls((1,), (-1,)), (x, (-1,), (-big,))),
            Sample(cls((1,), (-2,)), (x, (4,), (0,))),
            Sample(cls((0, 2)), (x, (-9, 2), (9, 2**31 - 1))),
            Sample(cls((0,)), (x, (3,), (2,))),
            Sample(cls((0, 1), (3, -3)), (x, (0, 99), (5, -99))),
        ]


@operator
class Split(Op, name="split", torch="aten.split.Tensor"):
    """Parts along `axis`: a number makes that many equal ones (the last may be shorter), a tuple says where to cut."""

    indices_or_sections: Any = 1
    axis: int = 0

    def __post_init__(self) -> None:
        v = self.indices_or_sections
        set_field(self, indices_or_sections=int(v) if isinstance(v, int) else tuple(int(i) for i in v))

    def _parts(self, shape: Any) -> tuple[int, list[tuple[Any, Any]]]:
        a = axis(self, self.axis, len(shape))
        n = shape[a]
        size, cuts = as_int(n), self.indices_or_sections
        if isinstance(cuts, int):
            if cuts < 1:
                fail(self, "TW0206", f"{cuts} sections, needs at least 1")
            if size is None:
                step = simplify_dim(n // cuts)
                dims_equal(self, simplify_dim(step * cuts), n, f"dimension {a} does not divide into {cuts} equal parts")
            else:
                step = IntImm("int64", -(-size // cuts))
            ends: list[Any] = [simplify_dim(step * k) for k in range(1, cuts)]
            if size is not None:
                ends = [IntImm("int64", min(int(e), size)) for e in ends]
        else:
            ends = [IntImm("int64", c if size is None else max(min(c, size), 0)) for c in cuts]
        starts = [IntImm("int64", 0), *ends]
        return a, list(zip(starts, [*ends, n], strict=True))

    def infer(self, x: Any) -> Any:
        from tilewright.relax.struct_info import TupleStructInfo

        shape, dtype = known(self, x), tensor(self, x).dtype
        a, parts = self._parts(shape)
        return TupleStructInfo(
            tuple(out([e - s if k == a else d for k, d in enumerate(shape)], dtype) for s, e in parts)
        )

    def lower(self, b: Any, x: Any) -> Any:
        from tilewright.relax.values import make_tuple

        a, parts = self._parts(known(self, x))
        cut = StridedSlice((a,))
        return make_tuple([b.emit(cut(x, (s,), (e,))) for s, e in parts])

    def reference(self, x: Any) -> Any:
        cuts = self.indices_or_sections
        if isinstance(cuts, int):
            step = -(-x.shape[self.axis] // cuts)
            cuts = tuple(step * k for k in range(1, cuts))
        return tuple(p.copy() for p in np.split(x, cuts, self.axis))

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-1, 1, (6, 5)).astype(np.float32)
        return [
            Sample(cls(3), (x,)),
            Sample(cls(2, 1), (x,)),
            Sample(cls((1, 4), -1), (x,)),
            Sample(cls((2,), 0), (x,)),
            Sample(cls(1), (x,)),
        ]


@operator
class Take(Op, name="take"):
    """Slices of the operand along `axis` (None: elements of the flattened tensor) at `indices`, a tensor or a number.

    Negative indices count from the end, others are clamped into range.
    """

    axis: int | None = None
    mode: str = "clip"

    def infer(self, x: Any, indices: Any) -> TensorStructInfo:
        shape, dtype = known(self, x), tensor(self, x).dtype
        if isinstance(getattr(indices, "struct_info", None), PrimStructInfo):
            inner: Any = ()
        else:
            check_dtype(self, tensor(self, indices, "indices").dtype, "i", "indices", indices)
            inner = known(self, indices, "indices")
        if self.axis is None:
            return out(inner, dtype)
        a = axis(self, self.axis, len(shape))
        return out([*shape[:a], *inner, *shape[a + 1 :]], dtype)

    def compute(self, x: Any, indices: Any) -> Any:
        return topi.take(x, indices, self.axis)

    def reference(self, x: Any, indices: Any) -> Any:
        n = x.size if self.axis is None else x.shape[self.axis]
        i = np.asarray(indices).astype(np.int64)
        return np.asarray(np.take(x, np.clip(np.where(i < 0, i + n, i), 0, n - 1), axis=self.axis))

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-1, 1, (4, 3, 2)).astype(np.float32)
        return [
            Sample(cls(0), (x, np.array([[0, 3], [-1, 2]], np.int64))),
            Sample(cls(-1), (x, np.array([1, 0, 1], np.int32))),
            Sample(cls(1), (x, np.int64(2).reshape(()))),
            Sample(cls(None), (x, np.array([5, -2], np.int64))),
            Sample(cls(1), (x, 1)),
            Sample(cls(0), (x, np.array([9, -9], np.int64))),
        ]


@operator
class GatherElements(Op, name="gather_elements", torch="aten.gather.default"):
    """The operand at the place i whose coordinate along `axis` is `indices[i]`."""

    axis: int = 0

    def infer(self, x: Any, indices: Any) -> TensorStructInfo:
        shape, inner = known(self, x), known(self, indices, "indices")
        check_dtype(self, tensor(self, indices).dtype, "i", "indices", indices)
        axis(self, self.axis, len(shape))
        if len(inner) != len(shape):
            fail(self, "TW0205", f"indices have {len(inner)} dimensions, the operand has {len(shape)}", None, indices)
        return out(inner, tensor(self, x).dtype)

    def compute(self, x: Any, indices: Any) -> Any:
        return topi.gather(x, self.axis, indices)

    def reference(self, x: Any, indices: Any) -> Any:
        n = x.shape[self.axis]
        index = list(np.indices(indices.shape))
        index[self.axis] = np.where(indices < 0, indices + n, indices)
        return x[tuple(index)]

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-1, 1, (4, 3)).astype(np.float32)
        return [
            Sample(cls(0), (x, np.array([[0, 3, -1], [2, 2, 1]], np.int64))),
            Sample(cls(-1), (x, np.array([[0, 2], [1, 1], [2, 0], [0, -3]], np.int32))),
        ]


@operator
class GatherND(Op, name="gather_nd"):
    """Slices at the coordinates in the last dimension of `indices`; the first `batch_dims` dimensions run together."""

    batch_dims: int = 0

    def infer(self, x: Any, indices: Any) -> TensorStructInfo:
        shape, inner = known(self, x), known(self, indices, "indices")
        check_dtype(self, tensor(self, indices).dtype, "i", "indices", indices)
        if not inner or (depth := as_int(inner[-1])) is None:
            fail(self, "TW0206", "the last dimension of indices has to be a number", None, indices)
        if self.batch_dims + depth > len(shape) or self.batch_dims >= len(inner):
            text = (
                f"{depth} coordinates after {self.batch_dims} batch dimensions, the operand has {len(shape)} dimensions"
            )
            fail(self, "TW0205", text, None, indices)
        batch = [dims_equal(self, shape[k], inner[k], f"batch dimension {k}") for k in range(self.batch_dims)]
        return out([*batch, *inner[self.batch_dims : -1], *shape[self.batch_dims + depth :]], tensor(self, x).dtype)

    def compute(self, x: Any, indices: Any) -> Any:
        return topi.gather_nd(x, indices, self.batch_dims)

    def reference(self, x: Any, indices: Any) -> Any:
        b = self.batch_dims
        depth = indices.shape[-1]
        result = np.zeros((*indices.shape[:-1], *x.shape[b + depth :]), x.dtype)
        for at in np.ndindex(indices.shape[:-1]):
            result[at] = x[(*at[:b], *(int(v) for v in indices[at]))]
        return result

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-1, 1, (2, 3, 4)).astype(np.float32)
        return [
            Sample(cls(), (x, np.array([[0, 1], [1, -1]], np.int64))),
            Sample(cls(), (x, np.array([[[0, 1, 3]], [[1, 2, 0]]], np.int64))),
            Sample(cls(1), (x, np.array([[1], [2]], np.int64))),
            Sample(cls(), (x, np.array([1], np.int64))),
        ]


REDUCTIONS = ("update", "add", "mul", "min", "max")


def _check_reduction(op: Any) -> None:
    if op.reduction not in REDUCTIONS:
        fail(op, "TW0206", f"reduction {op.reduction!r} is not known", f"use one of {', '.join(REDUCTIONS)}")


def _scatter(target: Any, at: Any, value: Any, reduction: str) -> None:
    f = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}.get(reduction)
    target[at] = value if f is None else f(target[at], value)


@operator
class ScatterElements(Op, name="scatter_elements"):
    """`data` with `updates[i]` put (or combined: add, mul, min, max) at the place i with `indices[i]` along `axis`."""

    axis: int = 0
    reduction: str = "update"

    def __post_init__(self) -> None:
        _check_reduction(self)

    def infer(self, data: Any, indices: Any, updates: Any) -> TensorStructInfo:
        shape, inner = known(self, data), known(self, indices, "indices")
        check_dtype(self, tensor(self, indices).dtype, "i", "indices", indices)
        same_dtype(self, [tensor(self, data), tensor(self, updates)], ["data", "updates"])
        axis(self, self.axis, len(shape))
        if len(inner) != len(shape):
            fail(self, "TW0205", f"indices have {len(inner)} dimensions, data has {len(shape)}", None, indices)
        for k, (a, b) in enumerate(zip(inner, known(self, updates, "updates", len(inner)), strict=True)):
            dims_equal(self, a, b, f"indices and updates differ in dimension {k}")
        return out(shape, tensor(self, data).dtype)

    def compute(self, data: Any, indices: Any, updates: Any) -> Any:
        return topi.scatter_elements(data, indices, updates, self.axis, self.reduction)

    def reference(self, data: Any, indices: Any, updates: Any) -> Any:
        result = data.copy()
        for at in np.ndindex(indices.shape):
            place = list(at)
            place[self.axis] = int(indices[at])
            _scatter(result, tuple(place), updates[at], self.reduction)
        return result

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-1, 1, (3, 4)).astype(np.float32)
        i = np.array([[0, 2, 1], [2, -1, 0]], np.int64)
        u = rng(1).uniform(-1, 1, (2, 3)).astype(np.float32)
        return [
            Sample(cls(a, r), (x, i, u)) for a, r in ((0, "update"), (1, "add"), (-1, "mul"), (0, "max"), (0, "min"))
        ]


@operator
class ScatterND(Op, name="scatter_nd"):
    """`data` with the slices `updates[i]` put (or combined) at the coordinates `indices[i]`."""

    reduction: str = "update"

    def __post_init__(self) -> None:
        _check_reduction(self)

    def infer(self, data: Any, indices: Any, updates: Any) -> TensorStructInfo:
        shape, inner = known(self, data), known(self, indices, "indices")
        check_dtype(self, tensor(self, indices).dtype, "i", "indices", indices)
        same_dtype(self, [tensor(self, data), tensor(self, updates)], ["data", "updates"])
        if not inner or (depth := as_int(inner[-1])) is None or depth > len(shape):
            text = f"the last dimension of indices has to be a number, at most {len(shape)}"
            fail(self, "TW0206", text, None, indices)
        want = [*inner[:-1], *shape[depth:]]
        for k, (a, b) in enumerate(zip(want, known(self, updates, "updates", len(want)), strict=True)):
            dims_equal(self, a, b, f"updates differ in dimension {k} from what indices say")
        return out(shape, tensor(self, data).dtype)

    def compute(self, data: Any, indices: Any, updates: Any) -> Any:
        return topi.scatter_nd(data, indices, updates, self.reduction)

    def reference(self, data: Any, indices: Any, updates: Any) -> Any:
        result = data.copy()
        for at in np.ndindex(indices.shape[:-1]):
            _scatter(result, tuple(int(v) for v in indices[at]), updates[at], self.reduction)
        return result

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-1, 1, (3, 4, 2)).astype(np.float32)
        u = rng(1).uniform(-1, 1, (2, 2)).astype(np.float32)
        i = np.array([[0, 1], [2, -1]], np.int64)
        return [
            Sample(cls(), (x, i, u)),
            Sample(cls("add"), (x, np.array([[1, 1], [1, 1]], np.int64), u)),
            Sample(cls(), (x, np.array([[2]], np.int64), rng(2).uniform(-1, 1, (1, 4, 2)).astype(np.float32))),
            Sample(cls("max"), (x, np.array([[0, 0, 1]], np.int64), np.array([5], np.float32))),
        ]


@operator
class OneHot(Op, name="one_hot"):
    """A new dimension `axis` of extent `depth`: `on_value` at the index (negative ones from the end), else `off_value`."""

    depth: int = 1
    axis: int = -1
    dtype: str = "float32"

    def infer(self, indices: Any, on_value: Any, off_value: Any) -> TensorStructInfo:
        shape = known(self, indices, "indices")
        check_dtype(self, tensor(self, indices).dtype, "i", "indices", indices)
        a = axis(self, self.axis, len(shape) + 1)
        return out([*shape[:a], self.depth, *shape[a:]], self.dtype)

    def compute(self, indices: Any, on_value: Any, off_value: Any) -> Any:
        return topi.one_hot(indices, on_value, off_value, self.depth, self.axis, self.dtype)

    def reference(self, indices: Any, on_value: Any, off_value: Any) -> Any:
        i = np.expand_dims(np.where(indices < 0, indices + self.depth, indices), self.axis)
        shape = [1] * i.ndim
        shape[self.axis] = self.depth
        return np.where(i == np.arange(self.depth).reshape(shape), on_value, off_value).astype(self.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        i = np.array([[0, 2], [-1, 7]], np.int64)
        return [Sample(cls(3), (i, 1.0, 0.0)), Sample(cls(4, 0, "int64"), (i, 5, -1)), Sample(cls(3, 1), (i, 2.5, 0.5))]
