"""Choosing, running sums, sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ops.common import (
    as_int,
    axis,
    check_dtype,
    fail,
    known,
    like,
    out,
    result_shape,
    rng,
    same_dtype,
    tensor,
)
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import PrimStructInfo, TensorStructInfo, TupleStructInfo


@operator
class Where(Op, name="where", onnx="Where@9", torch="aten.where.self"):
    """Elements of `x` where `condition`, else of `y`, with broadcasting; one of them may be a number."""

    def infer(self, condition: Any, x: Any, y: Any) -> TensorStructInfo:
        check_dtype(self, tensor(self, condition, "the condition").dtype, "bi", "the condition", condition)
        infos, names = [], []
        for v, what in ((x, "x"), (y, "y")):
            if not isinstance(getattr(v, "struct_info", None), PrimStructInfo):
                infos.append(tensor(self, v, what))
                names.append(what)
        if not infos:
            fail(self, "TW0201", "x and y are both numbers", "one of them has to be a tensor", x)
        dtype = same_dtype(self, infos, names)
        shapes = [known(self, condition, "the condition"), *(known(self, si) for si in infos)]
        return out(result_shape(self, *shapes), dtype)

    def compute(self, condition: Any, x: Any, y: Any) -> Any:
        return topi.where(condition, x, y)

    def reference(self, condition: Any, x: Any, y: Any) -> Any:
        dtype = x.dtype if isinstance(x, np.ndarray) else y.dtype
        return np.where(condition, x, y).astype(dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        g = rng()
        c = g.integers(0, 2, (2, 1, 3)).astype(bool)
        x, y = g.uniform(-1, 1, (4, 3)).astype(np.float32), g.uniform(-1, 1, (1,)).astype(np.float32)
        return [
            Sample(cls(), (c, x, y)),
            Sample(cls(), (c[:, 0], np.int64(3).reshape(()), np.arange(3))),
            Sample(cls(), (c[:, 0], x[:2], -1.0)),
        ]


@operator
class _Running(Op):
    axis: int | None = None
    dtype: str = ""
    exclusive: bool = False
    reverse: bool = False

    def infer(self, data: Any) -> TensorStructInfo:
        from tilewright.relax.dims import shape_product

        si = tensor(self, data)
        check_dtype(self, self.dtype or si.dtype, "fi", operand=data)
        shape = known(self, data)
        if self.axis is None:
            return out([shape_product(shape)], self.dtype or si.dtype)
        axis(self, self.axis, len(shape))
        return like(si, self.dtype or None)

    def _operand(self, data: Any) -> Any:
        x = topi.cast(data, self.dtype) if self.dtype and self.dtype != data.dtype else data
        return topi.flatten(x) if self.axis is None else x

    def _numpy(self, f: Any, data: Any, start: float) -> Any:
        x = data.astype(self.dtype) if self.dtype else data
        a = 0 if self.axis is None else self.axis
        x = x.reshape(-1) if self.axis is None else x
        x = np.flip(x, a) if self.reverse else x
        wide = np.float32 if x.dtype == np.float16 else x.dtype
        y = f(x, axis=a, dtype=wide)
        if self.exclusive:
            y = np.roll(y, 1, a)
            first = [slice(None)] * y.ndim
            first[a] = slice(0, 1)
            y[tuple(first)] = start
        return (np.flip(y, a) if self.reverse else y).astype(x.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(0.5, 1.5, (2, 3, 4)).astype(np.float32)
        return [
            Sample(cls(1), (x,)),
            Sample(cls(-1, "", True), (x,)),
            Sample(cls(0, "", False, True), (x,)),
            Sample(cls(1, "", True, True), (x,)),
            Sample(cls(None), (np.array([[1, 2], [3, 4]], np.int64),)),
            Sample(cls(0, "float64"), (x,)),
        ]


@operator
class CumSum(_Running, name="cumsum", torch="aten.cumsum.default"):
    """Running sums along `axis` (None: of the flattened tensor)."""

    def compute(self, data: Any) -> Any:
        return topi.cumsum(self._operand(data), self.axis or 0, self.exclusive, self.reverse)

    def reference(self, data: Any) -> Any:
        return self._numpy(np.cumsum, data, 0)


@operator
class CumProd(_Running, name="cumprod", torch="aten.cumprod.default"):
    """Running products along `axis` (None: of the flattened tensor)."""

    def compute(self, data: Any) -> Any:
        return topi.cumprod(self._operand(data), self.axis or 0, self.exclusive, self.reverse)

    def reference(self, data: Any) -> Any:
        return self._numpy(np.cumprod, data, 1)


def _reversed(x: Any) -> Any:
    """A key that sorts the other way round; integers are inverted bit by bit, since negating the least one wraps."""
    return np.invert(x) if x.dtype.kind in "iu" else -x


@operator
class TopK(Op, name="topk"):
    """The k greatest (or smallest) elements along `axis`, in order, and their positions; of equals the first come first.

    `ret_type`: both, values, indices.
    """

    k: int = 1
    axis: int = -1
    ret_type: str = "both"
    largest: bool = True
    dtype: str = "int64"

    def infer(self, data: Any) -> Any:
        si = tensor(self, data)
        check_dtype(self, si.dtype, "fi", operand=data)
        shape: list[Any] = list(known(self, data))
        a = axis(self, self.axis, len(shape))
        if self.ret_type not in ("both", "values", "indices"):
            fail(self, "TW0206", f"ret_type {self.ret_type!r} is not known", "use both, values or indices")
        n = as_int(shape[a])
        if self.k < 1 or (n is not None and self.k > n):
            fail(self, "TW0206", f"k is {self.k}, needs 1 up to the dimension's {n if n is not None else 'size'}")
        shape[a] = self.k
        values, places = out(shape, si.dtype), out(shape, self.dtype)
        return {"both": TupleStructInfo((values, places)), "values": values, "indices": places}[self.ret_type]

    def compute(self, data: Any) -> Any:
        values, places = topi.topk(data, self.k, self.axis, self.largest, self.dtype)
        return {"both": [values, places], "values": values, "indices": places}[self.ret_type]

    def reference(self, data: Any) -> Any:
        key = _reversed(data) if self.largest else data
        order = np.argsort(key, axis=self.axis, kind="stable")
        places = np.take(order, range(self.k), axis=self.axis)
        values = np.take_along_axis(data, places, self.axis)
        places = places.astype(self.dtype)
        return {"both": (values, places), "values": values, "indices": places}[self.ret_type]

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().integers(-4, 5, (3, 7, 2))
        f = x.astype(np.float32)
        return [
            Sample(cls(3, 1), (f,)),
            Sample(cls(7, 1, largest=False), (f,)),
            Sample(cls(1, 0), (x,)),
            Sample(cls(2, -1, dtype="int32"), (f,)),
        ]


@operator
class ArgSort(Op, name="argsort"):
    """The positions of the elements along `axis` in order; of equals the first come first."""

    axis: int = -1
    descending: bool = False
    dtype: str = "int64"

    def infer(self, data: Any) -> TensorStructInfo:
        axis(self, self.axis, len(known(self, data)))
        return like(tensor(self, data), self.dtype)

    def compute(self, data: Any) -> Any:
        return topi.topk(data, data.shape[self.axis], self.axis, self.descending, self.dtype)[1]

    def reference(self, data: Any) -> Any:
        return np.argsort(_reversed(data) if self.descending else data, axis=self.axis, kind="stable").astype(
            self.dtype
        )

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().integers(-4, 5, (3, 5)).astype(np.float32)
        return [Sample(cls(), (x,)), Sample(cls(0, True), (x,))]


@operator
class Sort(Op, name="sort"):
    """The elements along `axis` in order."""

    axis: int = -1
    descending: bool = False

    def infer(self, data: Any) -> TensorStructInfo:
        axis(self, self.axis, len(known(self, data)))
        return tensor(self, data)

    def compute(self, data: Any) -> Any:
        return topi.topk(data, data.shape[self.axis], self.axis, self.descending)[0]

    def reference(self, data: Any) -> Any:
        y = np.sort(data, axis=self.axis)
        return np.flip(y, self.axis).copy() if self.descending else y

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().integers(-4, 5, (3, 5)).astype(np.float32)
        return [Sample(cls(), (x,)), Sample(cls(0, True), (x,))]
