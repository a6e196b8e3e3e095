"""Between real numbers and small integers: real = scale * (integer - zero_point)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, cast, const
from tilewright.ir import dtype as dt
from tilewright.ops.common import as_int, axis, check_dtype, dims_equal, fail, known, like, rng, tensor
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import TensorStructInfo


@operator
class _Affine(Op):
    """Scale and zero point are scalars, tensors of one value, or of one value for each index along `axis`."""

    axis: int = -1
    out_dtype: str = ""

    def _parameters(self, data: Any, scale: Any, zero_point: Any) -> None:
        shape = known(self, data)
        for x, what in ((scale, "scale"), (zero_point, "zero_point")):
            dims = known(self, x, what, (0, 1))
            if dims and as_int(dims[0]) != 1:
                a = axis(self, self.axis, len(shape))
                dims_equal(self, dims[0], shape[a], f"{what} needs one value for each index along the axis")
        check_dtype(self, tensor(self, scale).dtype, "f", "scale", scale)

    def _at(self, x: Any, ndim: int) -> Any:
        """The parameter that belongs to an index."""
        if not x.shape:
            return lambda i: x()
        if as_int(x.shape[0]) == 1:
            return lambda i: x(const(0, "int64"))
        return lambda i: x(i[self.axis % ndim])

    def _numpy(self, x: Any, ndim: int) -> Any:
        if x.ndim == 0 or x.size == 1:
            return x.reshape(())
        shape = [1] * ndim
        shape[self.axis] = -1
        return x.reshape(shape)


@operator
class Quantize(_Affine, name="quantize"):
    """round(data / scale) + zero_point, halves to even, brought into the range of `out_dtype` (int8, uint8, int32, ...)."""

    out_dtype: str = "int8"

    def infer(self, data: Any, scale: Any, zero_point: Any) -> TensorStructInfo:
        si = tensor(self, data)
        check_dtype(self, si.dtype, "f", "data", data)
        if not dt.is_int(self.out_dtype):
            fail(self, "TW0206", f"out_dtype {self.out_dtype} is no integer dtype", "use int8 or uint8")
        self._parameters(data, scale, zero_point)
        return like(si, self.out_dtype)

    def compute(self, data: Any, scale: Any, zero_point: Any) -> Any:
        n = len(data.shape)
        s, z = self._at(scale, n), self._at(zero_point, n)
        low, high = (const(float(f(self.out_dtype)), "float32") for f in (dt.min_value, dt.max_value))

        def value(*i: Any) -> PrimExpr:
            q = tir.nearbyint(tir.div(cast(data(*i), "float32"), cast(s(i), "float32"))) + cast(z(i), "float32")
            return cast(tir.max(tir.min(q, high), low), self.out_dtype)

        return te.compute(data.shape, value, name="quantize")

    def reference(self, data: Any, scale: Any, zero_point: Any) -> Any:
        s, z = self._numpy(scale, data.ndim), self._numpy(zero_point, data.ndim)
        q = np.rint(data / s).astype(np.float64) + z
        return np.clip(q, dt.min_value(self.out_dtype), dt.max_value(self.out_dtype)).astype(self.out_dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-40, 40, (3, 4)).astype(np.float32)
        scale, per_axis = np.float32(0.25).reshape(()), np.array([0.5, 0.1, 2.0], np.float32)
        return [
            Sample(cls(), (x, scale, np.int8(3).reshape(()))),
            Sample(cls(0, "uint8"), (x, per_axis, np.array([10, 128, 0], np.uint8))),
            Sample(cls(), (x, scale.reshape(1), np.array([0], np.int8))),
        ]


@operator
class Dequantize(_Affine, name="dequantize"):
    """scale * (data - zero_point)."""

    out_dtype: str = "float32"

    def infer(self, data: Any, scale: Any, zero_point: Any) -> TensorStructInfo:
        si = tensor(self, data)
        check_dtype(self, si.dtype, "i", "data", data)
        self._parameters(data, scale, zero_point)
        return like(si, self.out_dtype)

    def compute(self, data: Any, scale: Any, zero_point: Any) -> Any:
        n = len(data.shape)
        s, z = self._at(scale, n), self._at(zero_point, n)

        def value(*i: Any) -> PrimExpr:
            d = cast(data(*i), "int32") - cast(z(i), "int32")
            return cast(cast(d, "float32") * cast(s(i), "float32"), self.out_dtype)

        return te.compute(data.shape, value, name="dequantize")

    def reference(self, data: Any, scale: Any, zero_point: Any) -> Any:
        s, z = self._numpy(scale, data.ndim), self._numpy(zero_point, data.ndim)
        return ((data.astype(np.int32) - z.astype(np.int32)).astype(np.float32) * s).astype(self.out_dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().integers(-120, 120, (3, 4)).astype(np.int8)
        scale, per_axis = np.float32(0.25).reshape(()), np.array([0.5, 0.1, 2.0], np.float32)
        return [
            Sample(cls(), (x, scale, np.int8(3).reshape(()))),
            Sample(cls(0), (x.astype(np.uint8), per_axis, np.array([10, 128, 0], np.uint8))),
            Sample(cls(), (x.astype(np.int32), scale.reshape(1), np.array([0], np.int32))),
        ]
