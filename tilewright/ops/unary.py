"""One operand, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright import topi
from tilewright.ops.common import check_dtype, like, member, prim_value, rng, tensor
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import TensorStructInfo


@operator
class Unary(Op):
    """The family of operators on the elements of one tensor; made by `unary`."""

    elementwise: ClassVar[bool] = True

    kinds: ClassVar[str] = "f"
    bool_result: ClassVar[bool] = False
    span_: ClassVar[tuple[float, float]] = (-3.0, 3.0)
    numpy: ClassVar[Callable[..., Any]]
    tensor: ClassVar[Callable[..., Any]]

    def infer(self, x: Any) -> TensorStructInfo:
        si = tensor(self, x)
        check_dtype(self, si.dtype, self.kinds, operand=x)
        return like(si, "bool" if self.bool_result else None)

    def compute(self, x: Any) -> Any:
        return type(self).tensor(x)

    def reference(self, x: Any) -> Any:
        with np.errstate(all="ignore"):
            out = np.asarray(type(self).numpy(x))
        return out.astype(bool if self.bool_result else x.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        low, high = cls.span_
        values = rng().uniform(low, high, (2, 5))
        out: list[Sample] = []
        if "f" in cls.kinds:
            extra = np.array([low, 0.0 if low <= 0 <= high else low, high, np.nan, np.inf], np.float32)
            out += [
                Sample(cls(), (values.astype(np.float32),)),
                Sample(cls(), (values.astype(np.float64),), rtol=1e-9),
                Sample(cls(), (extra if cls.bool_result else extra[:3],)),
                Sample(cls(), (np.float32(values[0, 0]).reshape(()),)),
            ]
        if "i" in cls.kinds:
            out += [Sample(cls(), (np.array([[-3, 0], [2, 7]], d),)) for d in (np.int32, np.int64)]
        if "b" in cls.kinds:
            out.append(Sample(cls(), (np.array([True, False]),)))
        return out


def unary(
    name: str,
    reference: Callable[..., Any],
    build: Callable[..., Any],
    *,
    onnx: str | Sequence[str] = (),
    torch: str | Sequence[str] = (),
    kinds: str = "f",
    span: tuple[float, float] = (-3.0, 3.0),
    bool_result: bool = False,
    doc: str | None = None,
) -> type[Unary]:
    """An operator class: `name`, its numpy reference, its tensor expression, the kinds of dtypes it takes."""
    body: dict[str, Any] = {
        "__doc__": doc or f"{name.rpartition('.')[2]} of every element.",
        "__module__": __name__,
        "kinds": kinds,
        "span_": span,
        "bool_result": bool_result,
        "numpy": staticmethod(reference),
        "tensor": staticmethod(build),
    }
    label = "".join(part.title() for part in name.rpartition(".")[2].split("_"))
    return member(label, Unary, body, name=name, onnx=onnx, torch=torch)


def _aten(name: str) -> str:
    return f"aten.{name}.default"


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


_vector_erf = np.vectorize(math.erf, otypes=[np.float64])


def erf_of(x: Any) -> Any:
    """The error function in numpy."""
    return _vector_erf(x) if np.size(x) else np.asarray(x, np.float64)


Exp = unary("exp", np.exp, topi.exp, onnx="Exp@6", torch=_aten("exp"))
Log = unary("log", np.log, topi.log, onnx="Log@6", torch=_aten("log"), span=(0.1, 9))
Log2 = unary("log2", np.log2, topi.log2, torch=_aten("log2"), span=(0.1, 9))
Log10 = unary("log10", np.log10, topi.log10, torch=_aten("log10"), span=(0.1, 9))
Log1p = unary("log1p", np.log1p, topi.log1p, torch=_aten("log1p"), span=(-0.5, 9))
Expm1 = unary("expm1", np.expm1, topi.expm1, torch=_aten("expm1"))
Exp2 = unary("exp2", np.exp2, topi.exp2, torch=_aten("exp2"))
Sqrt = unary("sqrt", np.sqrt, topi.sqrt, onnx="Sqrt@6", torch=_aten("sqrt"), span=(0, 9))
Rsqrt = unary("rsqrt", lambda x: 1 / np.sqrt(x), topi.rsqrt, torch=_aten("rsqrt"), span=(0.1, 9))
Sin = unary("sin", np.sin, topi.sin, onnx="Sin@7", torch=_aten("sin"))
Cos = unary("cos", np.cos, topi.cos, onnx="Cos@7", torch=_aten("cos"))
Tan = unary("tan", np.tan, topi.tan, onnx="Tan@7", torch=_aten("tan"), span=(-1.4, 1.4))
Asin = unary("asin", np.arcsin, topi.asin, onnx="Asin@7", torch=_aten("asin"), span=(-1, 1))
Acos = unary("acos", np.arccos, topi.acos, onnx="Acos@7", torch=_aten("acos"), span=(-1, 1))
Atan = unary("atan", np.arctan, topi.atan, onnx="Atan@7", torch=_aten("atan"))
Sinh = unary("sinh", np.sinh, topi.sinh, onnx="Sinh@9", torch=_aten("sinh"))
Cosh = unary("cosh", np.cosh, topi.cosh, onnx="Cosh@9", torch=_aten("cosh"))
Tanh = unary("tanh", np.tanh, topi.tanh, onnx="Tanh@6", torch=_aten("tanh"))
Asinh = unary("asinh", np.arcsinh, topi.asinh, onnx="Asinh@9", torch=_aten("asinh"))
Acosh = unary("acosh", np.arccosh, topi.acosh, onnx="Acosh@9", torch=_aten("acosh"), span=(1, 9))
Atanh = unary("atanh", np.arctanh, topi.atanh, onnx="Atanh@9", torch=_aten("atanh"), span=(-0.9, 0.9))
Sigmoid = unary("sigmoid", _sigmoid, topi.sigmoid, onnx="Sigmoid@6", torch=_aten("sigmoid"))
Erf = unary("erf", erf_of, topi.erf, onnx="Erf@9", torch=_aten("erf"))
Floor = unary("floor", np.floor, topi.floor, onnx="Floor@6", torch=_aten("floor"), kinds="fi")
Ceil = unary("ceil", np.ceil, topi.ceil, onnx="Ceil@6", torch=_aten("ceil"), kinds="fi")
Trunc = unary("trunc", np.trunc, topi.trunc, torch=_aten("trunc"), kinds="fi")
Round = unary(
    "round",
    np.rint,
    topi.round,
    onnx="Round@11",
    torch=_aten("round"),
    kinds="fi",
    doc="The nearest integer, halves to even.",
)
Abs = unary("abs", np.abs, topi.abs, onnx="Abs@6", torch=_aten("abs"), kinds="fi")
Sign = unary("sign", np.sign, topi.sign, onnx="Sign@9", torch=_aten("sign"), kinds="fi")
Negative = unary("negative", np.negative, topi.negative, onnx="Neg@6", torch=_aten("neg"), kinds="fi")
Square = unary("square", np.square, topi.square, torch=_aten("square"), kinds="fi")
Reciprocal = unary(
    "reciprocal", lambda x: 1 / x, topi.reciprocal, onnx="Reciprocal@6", torch=_aten("reciprocal"), span=(0.2, 5)
)
Identity = unary("identity", lambda x: x, topi.identity, onnx=("Identity@1",), kinds="fib")
LogicalNot = unary("logical_not", np.logical_not, topi.logical_not, onnx="Not@1", torch=_aten("logical_not"), kinds="b")
BitwiseNot = unary(
    "bitwise_not", np.invert, topi.bitwise_not, onnx="BitwiseNot@18", torch=_aten("bitwise_not"), kinds="i"
)
IsNan = unary("isnan", np.isnan, topi.isnan, onnx="IsNaN@9", torch=_aten("isnan"), bool_result=True)
IsInf = unary("isinf", np.isinf, topi.isinf, torch=_aten("isinf"), bool_result=True)
IsFinite = unary("isfinite", np.isfinite, topi.isfinite, torch=_aten("isfinite"), bool_result=True)


@operator
class Clip(Op, name="clip"):
    """min(max(x, min), max); the bounds are scalar values. NaN stays NaN."""

    elementwise: ClassVar[bool] = True

    def infer(self, x: Any, min: Any, max: Any) -> TensorStructInfo:
        si = tensor(self, x)
        check_dtype(self, si.dtype, "fi", operand=x)
        prim_value(self, min, "min")
        prim_value(self, max, "max")
        return si

    def compute(self, x: Any, min: Any, max: Any) -> Any:
        return topi.clip(x, min, max)

    def reference(self, x: Any, min: Any, max: Any) -> Any:
        low, high = np.asarray(min).astype(x.dtype), np.asarray(max).astype(x.dtype)
        return np.minimum(np.maximum(x, low), high).astype(x.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-9, 9, (3, 4))
        return [
            Sample(cls(), (x.astype(np.float32), 0.0, 6.0)),
            Sample(cls(), (x.astype(np.int32), -2, 3)),
            Sample(cls(), (x.astype(np.float32), -math.inf, 1.5)),
        ]


@operator
class AsType(Op, name="astype", torch="aten._to_copy.default"):
    """Every element converted to `dtype`: float to integer truncates, anything to bool is `x != 0`."""

    elementwise: ClassVar[bool] = True

    dtype: str = "float32"

    def infer(self, x: Any) -> TensorStructInfo:
        return like(tensor(self, x), self.dtype)

    def compute(self, x: Any) -> Any:
        return topi.cast(x, self.dtype)

    def reference(self, x: Any) -> Any:
        from tilewright.ops.common import numpy_dtype

        with np.errstate(all="ignore"):
            return x.astype(numpy_dtype(self.dtype))

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-9, 9, (2, 3))
        return [
            Sample(cls("int32"), (x.astype(np.float32),)),
            Sample(cls("float16"), (x.astype(np.float32),)),
            Sample(cls("float32"), (x.astype(np.int64),)),
            Sample(cls("bool"), (np.array([0.0, 0.5, -2.0], np.float32),)),
            Sample(cls("float32"), (np.array([True, False]),)),
            Sample(cls("int64"), (np.array([3, -4], np.int8),)),
            Sample(cls("float64"), (x.astype(np.float32),)),
        ]
