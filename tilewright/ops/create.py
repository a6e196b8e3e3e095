"""Tensors from shapes and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import topi
from tilewright.arith.expr import cast, convert, maximum
from tilewright.ops.common import (
    as_int,
    check_rank,
    fail,
    known,
    like,
    nonnegative,
    numpy_dtype,
    out,
    prim_value,
    rng,
    shape_operand,
    tensor,
)
from tilewright.relax.dims import simplify_dim
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import PrimStructInfo, ShapeStructInfo, TensorStructInfo


@operator
class Full(Op, name="full"):
    """A tensor of the shape, every element `fill_value`: a number, or a tensor of no dimensions."""

    dtype: str = ""

    def infer(self, shape: Any, fill_value: Any) -> TensorStructInfo:
        dims = shape_operand(self, shape)
        si = getattr(fill_value, "struct_info", None)
        if isinstance(si, PrimStructInfo):
            return out(dims, self.dtype or si.dtype)
        check_rank(self, known(self, fill_value, "fill_value"), "fill_value", 0, fill_value)
        return out(dims, self.dtype or tensor(self, fill_value).dtype)

    def compute(self, shape: Any, fill_value: Any) -> Any:
        scalar = fill_value if not hasattr(fill_value, "op") else fill_value()
        value = convert(scalar)
        return topi.full(shape, self.dtype or value.dtype, value)

    def reference(self, shape: Any, fill_value: Any) -> Any:
        dtype = self.dtype or (fill_value.dtype if hasattr(fill_value, "dtype") else str(convert(fill_value).dtype))
        return np.full(shape, fill_value).astype(dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [
            Sample(cls("float32"), ((2, 3), 1.5)),
            Sample(cls(), ((2,), np.int64(7).reshape(()))),
            Sample(cls("int64"), ((), 3)),
            Sample(cls("bool"), ((2, 2), True)),
            Sample(cls("float16"), ((3,), np.float32(0.5).reshape(()))),
        ]


@operator
class FullLike(Op, name="full_like"):
    """A tensor with the operand's shape, every element `fill_value`: a number, or a tensor of no dimensions."""

    dtype: str = ""

    def infer(self, x: Any, fill_value: Any) -> TensorStructInfo:
        si = tensor(self, x)
        if not isinstance(getattr(fill_value, "struct_info", None), PrimStructInfo):
            check_rank(self, known(self, fill_value, "fill_value"), "fill_value", 0, fill_value)
        return like(si, self.dtype or None)

    def lower(self, b: Any, x: Any, fill_value: Any) -> Any:
        return b.emit(Full(self.dtype or tensor(self, x).dtype)(known(self, x), fill_value))

    def reference(self, x: Any, fill_value: Any) -> Any:
        return np.full(x.shape, fill_value).astype(self.dtype or x.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = np.ones((2, 3), np.float32)
        return [Sample(cls(), (x, 2.0)), Sample(cls("int32"), (x, np.int32(4).reshape(())))]


@operator
class _Filled(Op):
    dtype: str = "float32"

    def infer(self, shape: Any) -> TensorStructInfo:
        return out(shape_operand(self, shape), self.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(), ((2, 3),)), Sample(cls("int64"), ((),)), Sample(cls("bool"), ((2,),))]


@operator
class Zeros(_Filled, name="zeros"):
    """A tensor of zeros."""

    def compute(self, shape: Any) -> Any:
        return topi.full(shape, self.dtype, 0)

    def reference(self, shape: Any) -> Any:
        return np.zeros(shape, numpy_dtype(self.dtype))


@operator
class Ones(_Filled, name="ones"):
    """A tensor of ones."""

    def compute(self, shape: Any) -> Any:
        return topi.full(shape, self.dtype, 1)

    def reference(self, shape: Any) -> Any:
        return np.ones(shape, numpy_dtype(self.dtype))


@operator
class _FilledLike(Op):
    dtype: str = ""

    def infer(self, x: Any) -> TensorStructInfo:
        return like(tensor(self, x), self.dtype or None)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(), (np.full((2, 3), 7, np.float32),)), Sample(cls("int64"), (np.full((2,), 7, np.float32),))]


@operator
class ZerosLike(_FilledLike, name="zeros_like"):
    """Zeros with the operand's shape."""

    def lower(self, b: Any, x: Any) -> Any:
        return b.emit(Zeros(self.dtype or tensor(self, x).dtype)(known(self, x)))

    def reference(self, x: Any) -> Any:
        return np.zeros(x.shape, self.dtype or x.dtype)


@operator
class OnesLike(_FilledLike, name="ones_like"):
    """Ones with the operand's shape."""

    def lower(self, b: Any, x: Any) -> Any:
        return b.emit(Ones(self.dtype or tensor(self, x).dtype)(known(self, x)))

    def reference(self, x: Any) -> Any:
        return np.ones(x.shape, self.dtype or x.dtype)


@operator
class Arange(Op, name="arange"):
    """start, start + step, ... below `end`; the three are numbers, integers may be symbolic."""

    dtype: str = "int64"

    def _count(self, start: Any, end: Any, step: Any) -> Any:
        values = [getattr(v, "value", v) for v in (start, end, step)]
        if all(isinstance(v, (int, float)) for v in values):
            first, last, by = values
            if by == 0:
                fail(self, "TW0206", "the step is 0")
            return max(0, int(np.ceil((last - first) / by)))
        if as_int(step) is None or as_int(step) == 0:
            fail(self, "TW0206", "the step has to be a number other than 0")
        by = int(as_int(step) or 1)
        a, b = cast(convert(start), "int64"), cast(convert(end), "int64")
        count = simplify_dim((b - a + (by - 1)) // by if by > 0 else (a - b + (-by - 1)) // -by)
        return count if nonnegative(count) else simplify_dim(maximum(count, 0))

    def infer(self, start: Any, end: Any, step: Any) -> TensorStructInfo:
        values = [prim_value(self, v, w) for v, w in ((start, "start"), (end, "end"), (step, "step"))]
        if any(v is None for v in values):
            return TensorStructInfo(None, self.dtype, 1)
        return out([self._count(*values)], self.dtype)

    def lower(self, b: Any, start: Any, end: Any, step: Any) -> Any:
        # the length is worked out on the graph's symbols
        count = self.infer(start, end, step).shape
        if count is None:
            fail(self, "TW0202", "start, end and step are not known as formulas", "use symbolic dimensions")
        dtype = self.dtype

        def arange(first: Any, by: Any, shape: Any) -> Any:
            return topi.arange_of(first, by, shape, dtype)

        return b.call_te(arange, start, step, tuple(count))

    def reference(self, start: Any, end: Any, step: Any) -> Any:
        return np.arange(start, end, step).astype(self.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [
            Sample(cls(), (0, 5, 1)),
            Sample(cls(), (7, -2, -3)),
            Sample(cls("float32"), (0.5, 2.0, 0.25)),
            Sample(cls("int32"), (3, 3, 1)),
        ]


@operator
class _Triangle(Op):
    def infer(self, x: Any, k: Any = None) -> TensorStructInfo:
        shape = known(self, x)
        if len(shape) < 2:
            fail(self, "TW0205", f"the operand needs at least 2 dimensions, got {len(shape)}", None, x)
        if k is not None:
            prim_value(self, k, "k")
        return tensor(self, x)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(1, 2, (2, 3, 4)).astype(np.float32)
        return [
            Sample(cls(), (x,)),
            Sample(cls(), (x, 1)),
            Sample(cls(), (x, -2)),
            Sample(cls(), (x[0].astype(np.int64), 0)),
        ]


@operator
class Tril(_Triangle, name="tril", torch="aten.tril.default"):
    """The lower triangle of the last two dimensions, up to the k-th diagonal."""

    def compute(self, x: Any, k: Any = 0) -> Any:
        return topi.trilu(x, k, upper=False)

    def reference(self, x: Any, k: Any = 0) -> Any:
        return np.tril(x, k)


@operator
class Triu(_Triangle, name="triu", torch="aten.triu.default"):
    """The upper triangle of the last two dimensions, from the k-th diagonal on."""

    def compute(self, x: Any, k: Any = 0) -> Any:
        return topi.trilu(x, k, upper=True)

    def reference(self, x: Any, k: Any = 0) -> Any:
        return np.triu(x, k)


@operator
class Eye(Op, name="eye"):
    """Ones on the k-th diagonal of an n x m matrix, zeros elsewhere; the operand is the shape (n, m)."""

    k: int = 0
    dtype: str = "float32"

    def infer(self, shape: Any) -> TensorStructInfo:
        dims = shape_operand(self, shape)
        check_rank(self, dims, "the shape", 2, shape)
        return out(dims, self.dtype)

    def compute(self, shape: Any) -> Any:
        return topi.eye(shape, self.k, self.dtype)

    def reference(self, shape: Any) -> Any:
        return np.eye(*shape, k=self.k).astype(self.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(), ((3, 3),)), Sample(cls(1, "int32"), ((2, 4),)), Sample(cls(-1), ((3, 2),))]


@operator
class ShapeOf(Op, name="shape_of"):
    """The shape of a tensor, as a shape."""

    def infer(self, x: Any) -> ShapeStructInfo:
        si = tensor(self, x)
        return ShapeStructInfo(si.shape, si.ndim)

    def lower(self, b: Any, x: Any) -> Any:
        from tilewright.relax.ir import ShapeExpr

        return b.normalize(ShapeExpr(known(self, x)))

    def reference(self, x: Any) -> Any:
        return np.array(x.shape, np.int64)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(), (np.zeros((2, 3), np.float32),))]


@operator
class ShapeToTensor(Op, name="shape_to_tensor"):
    """A shape as a tensor of int64."""

    def infer(self, shape: Any) -> TensorStructInfo:
        return out([len(shape_operand(self, shape))], "int64")

    def compute(self, shape: Any) -> Any:
        return topi.shape_tensor(shape)

    def reference(self, shape: Any) -> Any:
        return np.array(shape, np.int64)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(), ((2, 3, 5),)), Sample(cls(), ((4,),))]
