"""Two operands, element by element, with numpy's broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright import topi
from tilewright.arith.expr import FloatImm, IntImm
from tilewright.ir.dtype import is_float
from tilewright.ops.common import check_dtype, fail, member, out, result_shape, rng, same_dtype, tensor
from tilewright.relax.ir import Constant, PrimValue
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import PrimStructInfo, TensorStructInfo


@operator
class Binary(Op):
    """The family of operators on the elements of two tensors; made by `binary`.

    One operand may be a scalar value (a PrimValue): it takes the dtype of the other.
    """

    elementwise: ClassVar[bool] = True

    kinds: ClassVar[str] = "fi"
    bool_result: ClassVar[bool] = False
    mixed: ClassVar[bool] = False
    positive: ClassVar[bool] = False
    numpy: ClassVar[Callable[..., Any]]
    tensor: ClassVar[Callable[..., Any]]

    def infer(self, lhs: Any, rhs: Any) -> TensorStructInfo:
        infos: list[TensorStructInfo] = []
        names: list[str] = []
        for x, what in ((lhs, "the left operand"), (rhs, "the right operand")):
            if isinstance(getattr(x, "struct_info", None), PrimStructInfo):
                continue
            infos.append(tensor(self, x, what))
            names.append(what)
            check_dtype(self, infos[-1].dtype, "fi" if self.mixed else self.kinds, what, x)
        if not infos:
            fail(self, "TW0201", "both operands are scalar values", "one of them has to be a tensor", lhs)
        dtype = infos[0].dtype if self.mixed else same_dtype(self, infos, names)
        if self.bool_result:
            dtype = "bool"
        if any(si.shape is None for si in infos):
            ndim = -1 if any(si.ndim < 0 for si in infos) else max(si.ndim for si in infos)
            return out(None, dtype, ndim)
        return out(result_shape(self, *(si.shape or () for si in infos)), dtype)

    def compute(self, lhs: Any, rhs: Any) -> Any:
        return type(self).tensor(lhs, rhs)

    def reference(self, lhs: Any, rhs: Any) -> Any:
        dtype = lhs.dtype if isinstance(lhs, (np.ndarray, np.generic)) else rhs.dtype
        with np.errstate(all="ignore"):
            scalar = not all(isinstance(x, (np.ndarray, np.generic)) for x in (lhs, rhs))
            if scalar or not self.mixed:
                lhs, rhs = np.asarray(lhs, dtype), np.asarray(rhs, dtype)
            return np.asarray(type(self).numpy(lhs, rhs)).astype(bool if self.bool_result else dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        g = rng()
        shapes: list[tuple[Any, Any]] = [((2, 3), (2, 3)), ((2, 1, 3), (4, 1)), ((), (3,)), ((1, 3), (2, 1))]
        out: list[Sample] = []
        for k, (a, b) in enumerate(shapes):
            for kind, dtype in (("f", np.float32), ("i", np.int32), ("b", np.bool_)):
                if kind not in cls.kinds:
                    continue
                out.append(Sample(cls(), (cls._values(g, a, dtype), cls._values(g, b, dtype, cls.positive))))
            if "i" in cls.kinds and k == 0:
                out.append(Sample(cls(), (cls._values(g, a, np.int64), cls._values(g, b, np.int64, cls.positive))))
        if "f" in cls.kinds:
            x = cls._values(g, (2, 3), np.float32, True)
            out += [Sample(cls(), (x, 2.0)), Sample(cls(), (1.5, x))]
        return out

    @staticmethod
    def _values(g: Any, shape: Any, dtype: Any, positive: bool = False) -> Any:
        if dtype is np.bool_:
            return g.integers(0, 2, shape).astype(bool)
        if np.issubdtype(dtype, np.integer):
            values = g.integers(1, 7, shape) if positive else g.integers(1, 7, shape) * g.choice([-1, 1], shape)
        else:
            values = g.uniform(0.5, 3, shape) if positive else g.uniform(0.5, 3, shape) * g.choice([-1, 1], shape)
        return np.asarray(values).astype(dtype)


def binary(
    name: str,
    reference: Callable[..., Any],
    build: Callable[..., Any],
    *,
    onnx: str | Sequence[str] = (),
    torch: str | Sequence[str] = (),
    kinds: str = "fi",
    bool_result: bool = False,
    mixed: bool = False,
    positive: bool = False,
    lower: Callable[..., Any] | None = None,
    doc: str,
) -> type[Binary]:
    """An operator class: `name`, its numpy reference, its tensor expression, the kinds of dtypes it takes.

    `mixed`: the right operand may have another dtype, the result has the left one's. `positive`: the samples' right
    operands are.
    """
    body: dict[str, Any] = {
        "__doc__": f"{doc}, with broadcasting.",
        "__module__": __name__,
        "kinds": kinds,
        "bool_result": bool_result,
        "mixed": mixed,
        "positive": positive,
        "numpy": staticmethod(reference),
        "tensor": staticmethod(build),
        **({"lower": lower} if lower is not None else {}),
    }
    label = "".join(part.title() for part in name.split("_"))
    return member(label, Binary, body, name=name, onnx=onnx, torch=torch)


def _divide(a: Any, b: Any) -> Any:
    """Division; of integers, truncating (C)."""
    if not np.issubdtype(np.asarray(a).dtype, np.integer):
        return np.divide(a, b)
    quotient = np.abs(a) // np.abs(b)
    return np.where((a < 0) == (b < 0), quotient, -quotient)


def _power(a: Any, b: Any) -> Any:
    if np.issubdtype(a.dtype, np.integer) and np.issubdtype(np.asarray(b).dtype, np.integer):
        return np.power(a, np.asarray(b).astype(a.dtype))
    wide = np.float64 if np.issubdtype(a.dtype, np.integer) else a.dtype
    return np.power(a.astype(wide), np.asarray(b).astype(wide))


def _cube(x: Any) -> Any:
    return topi.multiply(topi.square(x), x)


_POWERS: dict[float, Callable[[Any], Any]] = {
    1.0: topi.identity,
    2.0: topi.square,
    3.0: _cube,
    0.5: topi.sqrt,
    -0.5: topi.rsqrt,
    -1.0: topi.reciprocal,
}
"""Powers with a cheaper form than the general function."""


def _lower_power(self: Binary, b: Any, lhs: Any, rhs: Any) -> Any:
    """A small constant exponent of a float becomes products or roots."""
    value = None
    if isinstance(rhs, Constant) and rhs.data.size == 1:
        value = float(rhs.data.reshape(()))
    elif isinstance(rhs, PrimValue) and isinstance(rhs.value, (IntImm, FloatImm)):
        value = float(rhs.value.value)
    si = getattr(lhs, "struct_info", None)
    f = _POWERS.get(value) if value is not None else None
    if f is None or not isinstance(si, TensorStructInfo) or not is_float(si.dtype):
        return b.call_te(self.compute, lhs, rhs)
    if isinstance(rhs, Constant) and rhs.data.ndim > si.ndim:
        return b.call_te(self.compute, lhs, rhs)
    return b.call_te(f, lhs)


def _pair(name: str) -> tuple[str, str]:
    return f"aten.{name}.Tensor", f"aten.{name}.Scalar"


Add = binary("add", np.add, topi.add, onnx="Add@7", torch="aten.add.Tensor", doc="a + b")
Subtract = binary("subtract", np.subtract, topi.subtract, onnx="Sub@7", torch="aten.sub.Tensor", doc="a - b")
Multiply = binary("multiply", np.multiply, topi.multiply, onnx="Mul@7", torch="aten.mul.Tensor", doc="a * b")
Divide = binary("divide", _divide, topi.divide, onnx="Div@7", torch="aten.div.Tensor", doc="a / b; integers truncate")
FloorDivide = binary(
    "floor_divide", np.floor_divide, topi.floor_divide, torch="aten.floor_divide.default", doc="a / b rounded down"
)
FloorMod = binary("floor_mod", np.mod, topi.floor_mod, torch=_pair("remainder"), doc="the remainder with the sign of b")
Mod = binary("mod", np.fmod, topi.fmod, torch=_pair("fmod"), doc="the remainder with the sign of a (C)")
Power = binary(
    "power",
    _power,
    topi.power,
    onnx="Pow@7",
    torch="aten.pow.Tensor_Tensor",
    mixed=True,
    positive=True,
    lower=_lower_power,
    doc="a ** b; the exponent may have another dtype",
)
Maximum = binary("maximum", np.maximum, topi.maximum, torch="aten.maximum.default", doc="the greater")
Minimum = binary("minimum", np.minimum, topi.minimum, torch="aten.minimum.default", doc="the smaller")
LogAddExp = binary(
    "log_add_exp", np.logaddexp, topi.log_add_exp, torch="aten.logaddexp.default", kinds="f", doc="log(exp(a) + exp(b))"
)
Equal = binary(
    "equal", np.equal, topi.equal, onnx="Equal@7", torch=_pair("eq"), kinds="fib", bool_result=True, doc="a == b"
)
NotEqual = binary(
    "not_equal", np.not_equal, topi.not_equal, torch=_pair("ne"), kinds="fib", bool_result=True, doc="a != b"
)
Less = binary("less", np.less, topi.less, onnx="Less@7", torch=_pair("lt"), bool_result=True, doc="a < b")
LessEqual = binary(
    "less_equal",
    np.less_equal,
    topi.less_equal,
    onnx="LessOrEqual@12",
    torch=_pair("le"),
    bool_result=True,
    doc="a <= b",
)
Greater = binary(
    "greater", np.greater, topi.greater, onnx="Greater@7", torch=_pair("gt"), bool_result=True, doc="a > b"
)
GreaterEqual = binary(
    "greater_equal",
    np.greater_equal,
    topi.greater_equal,
    onnx="GreaterOrEqual@12",
    torch=_pair("ge"),
    bool_result=True,
    doc="a >= b",
)
LogicalAnd = binary(
    "logical_and",
    np.logical_and,
    topi.logical_and,
    onnx="And@7",
    torch="aten.logical_and.default",
    kinds="b",
    doc="both",
)
LogicalOr = binary(
    "logical_or", np.logical_or, topi.logical_or, onnx="Or@7", torch="aten.logical_or.default", kinds="b", doc="either"
)
LogicalXor = binary(
    "logical_xor", np.logical_xor, topi.logical_xor, onnx="Xor@7", torch="aten.logical_xor.default", kinds="b", doc="one, not both"
)  # fmt: skip
BitwiseAnd = binary(
    "bitwise_and", np.bitwise_and, topi.bitwise_and, onnx="BitwiseAnd@18", torch="aten.bitwise_and.Tensor", kinds="i", doc="a & b"
)  # fmt: skip
BitwiseOr = binary(
    "bitwise_or", np.bitwise_or, topi.bitwise_or, onnx="BitwiseOr@18", torch="aten.bitwise_or.Tensor", kinds="i", doc="a | b"
)  # fmt: skip
BitwiseXor = binary(
    "bitwise_xor", np.bitwise_xor, topi.bitwise_xor, onnx="BitwiseXor@18", torch="aten.bitwise_xor.Tensor", kinds="i", doc="a ^ b"
)  # fmt: skip
LeftShift = binary("left_shift", np.left_shift, topi.left_shift, kinds="i", positive=True, doc="a << b")
RightShift = binary(
    "right_shift", np.right_shift, topi.right_shift, kinds="i", positive=True, doc="a >> b; arithmetic if signed"
)
