"""Every operator of the importer against onnxruntime, over operator sets and forms of attributes and operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.onnx_tools import Const, assert_same, compiled, expected, imported, one_node

RNG = np.random.default_rng(7)


def f32(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
    return RNG.uniform(low, high, shape).astype(np.float32)


def i64(*values: int) -> Const:
    return Const(list(values), "int64")


def ints(low: int, high: int, *shape: int, dtype: str = "int64") -> Any:
    return RNG.integers(low, high, shape).astype(dtype)


CASES: list[Any] = []


def case(op: str, operands: Any, attributes: Any = None, *, tol: float = 1e-5, name: str = "", **more: Any) -> None:
    """Enter a test case; `more` goes to one_node (opset, outputs)."""
    label = "-".join([op, str(more.get("opset", 17)), name] if name else [op, str(more.get("opset", 17))])
    CASES.append(pytest.param(op, operands, attributes or {}, more, tol, id=f"{label}-{len(CASES)}"))


# ---- elementwise ------------------------------------------------------------------------------------------------------

for op in ("Abs", "Neg", "Exp", "Ceil", "Floor", "Round", "Sigmoid", "Tanh", "Erf", "Relu", "Softplus", "Softsign", "Sin",
           "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Atanh", "Sign", "Identity"):  # fmt: skip
    case(op, [f32(3, 4, low=-0.9, high=0.9)], opset=13)
for op in ("Sqrt", "Log", "Reciprocal"):
    case(op, [f32(3, 4, low=0.1, high=4)], opset=13)
case("Acosh", [f32(3, 4, low=1.1, high=4)])
case("Exp", [f32(5)], opset=7)
case("Abs", [ints(-5, 5, 4, 3)])
case("Neg", [ints(-5, 5, 4, 3, dtype="int32")])
case("Not", [f32(3, 4) > 0])
case("IsNaN", [np.array([1.0, np.nan, np.inf], np.float32)])
case("IsInf", [np.array([1.0, np.nan, np.inf, -np.inf], np.float32)])
for op in ("Add", "Sub", "Mul", "Div"):
    case(op, [f32(2, 3, 4), f32(3, 1, low=0.5, high=2)], opset=7)
    case(op, [f32(4), f32(2, 3, 4, low=0.5, high=2)], opset=14)
    case(op, [ints(-9, 9, 3, 4), ints(1, 5, 4)], opset=14)
case("Div", [ints(-9, 9, 3, 4, dtype="int32"), ints(-5, 0, 4, dtype="int32")])
for op in ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"):
    case(op, [ints(0, 3, 4, 5), ints(0, 3, 5)], opset=16)
    case(op, [f32(4, 5), f32(4, 1)], opset=16)
for op in ("And", "Or", "Xor"):
    case(op, [f32(4, 5) > 0, f32(5) > 0])
case("Mod", [ints(-9, 9, 12), ints(2, 5, 12)])
case("Mod", [f32(12), f32(12, low=0.5, high=1)], {"fmod": 1})
case("Mod", [ints(-9, 9, 12), ints(2, 5, 12)], {"fmod": 1})
case("Pow", [f32(3, 4, low=0.1, high=2), f32(3, 4)])
case("Pow", [f32(3, 4), Const(2.0, "float32")])
case("Pow", [f32(3, 4), Const(3, "int64")])
case("Pow", [f32(3, 4, low=0.1), Const([0.5], "float32")])
case("Pow", [f32(3, 4), Const([2.0], "float32")], opset=7)
for op in ("Max", "Min", "Sum", "Mean"):
    case(op, [f32(3, 4), f32(4), f32(3, 1)], opset=8)
    case(op, [f32(3, 4)], opset=13)
case("Max", [ints(0, 9, 4), ints(0, 9, 4)], opset=13)
case("Clip", [f32(3, 4)], {"min": -0.5, "max": 0.5}, opset=6 + 1)
case("Clip", [f32(3, 4)], {"min": -0.5}, opset=9)
case("Clip", [f32(3, 4), Const(-0.5, "float32"), Const(0.7, "float32")], opset=11)
case("Clip", [f32(3, 4), None, Const(0.7, "float32")], opset=13)
case("Clip", [f32(3, 4), f32(), None], opset=13)
case("Clip", [ints(-9, 9, 12), Const(-3, "int64"), Const(4, "int64")], opset=12)
case("Where", [f32(3, 4) > 0, f32(4), f32(3, 1)])
for to in (1, 6, 7, 9, 11):
    case("Cast", [f32(3, 4)], {"to": to})
    case("Cast", [ints(-3, 3, 3, 4)], {"to": to})
case("Cast", [f32(3, 4) > 0], {"to": 1})
case("CastLike", [f32(3, 4), Const(1, "int32")], opset=15)
case("BitShift", [ints(1, 9, 5, dtype="uint32"), ints(0, 3, 5, dtype="uint32")], {"direction": "LEFT"})
case("BitwiseAnd", [ints(0, 99, 5, dtype="int32"), ints(0, 99, 5, dtype="int32")], opset=18)
case("LeakyRelu", [f32(3, 4)])
case("LeakyRelu", [f32(3, 4)], {"alpha": 0.3})
case("PRelu", [f32(2, 3, 4), f32(3, 1)])
case("Elu", [f32(3, 4)], {"alpha": 0.7})
case("Celu", [f32(3, 4)], {"alpha": 0.7})
case("Selu", [f32(3, 4)])
case("Selu", [f32(3, 4)], {"alpha": 1.5, "gamma": 0.9})
case("HardSigmoid", [f32(3, 4, low=-4, high=4)])
case("HardSigmoid", [f32(3, 4, low=-4, high=4)], {"alpha": 1 / 6, "beta": 0.4})
case("HardSwish", [f32(3, 4, low=-4, high=4)])
case("ThresholdedRelu", [f32(3, 4)], {"alpha": 0.4})
case("Mish", [f32(3, 4)], opset=18)
case("Gelu", [f32(3, 4)], opset=20)
case("Gelu", [f32(3, 4)], {"approximate": "tanh"}, opset=20)
for op in ("Softmax", "LogSoftmax"):
    case(op, [f32(2, 3, 4)], {"axis": 1}, opset=9)
    case(op, [f32(2, 3, 4, 1, 1)], {"axis": 2}, opset=11)
    case(op, [f32(2, 3, 4)], opset=11)
    case(op, [f32(2, 3, 4)], opset=13)
    case(op, [f32(2, 3, 4)], {"axis": 1}, opset=13)
case("Hardmax", [f32(3, 5)], opset=13)

# ---- reductions -------------------------------------------------------------------------------------------------------

for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
           "ReduceLogSumExp"):  # fmt: skip
    case(op, [f32(2, 3, 4)], {"axes": [1]}, opset=11)
    case(op, [f32(2, 3, 4)], {"axes": [-1, 0], "keepdims": 0}, opset=11)
    case(op, [f32(2, 3, 4)], {"keepdims": 0}, opset=11)
    if op != "ReduceSum":
        case(op, [f32(2, 3, 4), i64(1, 2)], opset=18)
case("ReduceLogSum", [f32(2, 3, 4, low=0.5, high=2)], {"axes": [1]}, opset=11)
case("ReduceSum", [f32(2, 3, 4), i64(1)], opset=13)
case("ReduceSum", [f32(2, 3, 4)], opset=13)
case("ReduceSum", [f32(2, 3, 4)], {"noop_with_empty_axes": 1}, opset=13)
case("ReduceMax", [ints(0, 99, 3, 4)], {"axes": [1]}, opset=12)
case("ReduceSum", [ints(0, 99, 3, 4), i64(0)], opset=13)
for op in ("ArgMax", "ArgMin"):
    case(op, [f32(3, 5)], {"axis": 1})
    case(op, [ints(0, 3, 3, 5).astype(np.float32)], {"axis": 1, "keepdims": 0, "select_last_index": 1}, opset=13)
case("CumSum", [f32(3, 5), i64(1)], opset=14)
case("CumSum", [f32(3, 5), Const(0, "int32")], {"reverse": 1, "exclusive": 1}, opset=14)

# ---- matrix products --------------------------------------------------------------------------------------------------

case("MatMul", [f32(3, 4), f32(4, 5)])
case("MatMul", [f32(2, 1, 3, 4), f32(5, 4, 6)])
case("MatMul", [f32(4), f32(4, 5)])
case("MatMul", [f32(3, 4), f32(4)])
case("Gemm", [f32(3, 4), Const(f32(4, 5)), Const(f32(5))], opset=7)
case("Gemm", [f32(4, 3), Const(f32(5, 4)), Const(f32(3, 1))], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0})
case("Gemm", [f32(3, 4), f32(4, 5)], opset=11)
case("Einsum", [f32(2, 3, 4), f32(2, 4, 5)], {"equation": "bij,bjk->bik"})
case("Trilu", [f32(4, 5)], opset=14)
case("Trilu", [f32(4, 5), i64(1)], {"upper": 0}, opset=14)

# ---- quantisation -----------------------------------------------------------------------------------------------------

case("QuantizeLinear", [f32(3, 4, low=-20, high=20), Const(0.2, "float32"), Const(3, "int8")], opset=10)
case(
    "QuantizeLinear", [f32(3, 4), Const([0.2, 0.1, 0.05], "float32"), Const([3, 0, 9], "uint8")], {"axis": 0}, opset=13
)
case("QuantizeLinear", [f32(3, 4), Const(0.2, "float32")], opset=13)
case("DequantizeLinear", [ints(-9, 9, 3, 4, dtype="int8"), Const(0.2, "float32"), Const(3, "int8")], opset=10)
case("DequantizeLinear", [ints(0, 9, 3, 4, dtype="uint8"), Const([0.2, 0.1, 0.3, 1.0], "float32")], opset=13)
case("DequantizeLinear", [ints(-999, 999, 4, dtype="int32"), Const(0.2, "float32")], opset=13)

# ---- shapes -----------------------------------------------------------------------------------------------------------

case("Reshape", [f32(2, 3, 4), i64(0, -1)], opset=13)
case("Reshape", [f32(2, 3, 4), i64(4, 6)], opset=5 + 2)
case("Flatten", [f32(2, 3, 4)], {"axis": 2})
case("Flatten", [f32(2, 3, 4)], {"axis": 0})
case("Flatten", [f32(2, 3, 4)], {"axis": -1}, opset=13)
case("Transpose", [f32(2, 3, 4)])
case("Transpose", [f32(2, 3, 4)], {"perm": [1, 2, 0]})
case("Squeeze", [f32(2, 1, 4, 1)], {"axes": [1]}, opset=11)
case("Squeeze", [f32(2, 1, 4, 1)], opset=11)
case("Squeeze", [f32(2, 1, 4, 1), i64(-1)], opset=13)
case("Unsqueeze", [f32(2, 3)], {"axes": [0, 2]}, opset=11)
case("Unsqueeze", [f32(2, 3), i64(-1, 1)], opset=13)
case("Concat", [f32(2, 3), f32(2, 1), Const(f32(2, 2))], {"axis": -1})
case("Split", [f32(6, 3)], {"axis": 0}, outputs=3, opset=11)
case("Split", [f32(6, 3)], {"axis": 0, "split": [1, 5]}, outputs=2, opset=11)
case("Split", [f32(6, 3), i64(2, 4)], {"axis": 0}, outputs=2, opset=13)
case("Split", [f32(2, 7)], {"axis": 1, "num_outputs": 3}, outputs=3, opset=18)
case("Expand", [f32(3, 1), i64(2, 1, 4)])
case("Expand", [f32(3, 4), i64(1, 1)])
case("Tile", [f32(2, 3), i64(2, 2)])
case("ConstantOfShape", [i64(2, 3)], opset=9)
case("EyeLike", [f32(3, 4)], {"k": 1})
case("Range", [Const(1, "int64"), Const(9, "int64"), Const(3, "int64")], opset=11)
case("Slice", [f32(6, 5)], {"starts": [1, 0], "ends": [4, -1]}, opset=9)
case("Slice", [f32(6, 5)], {"starts": [1], "ends": [1000], "axes": [1]}, opset=9)
case("Slice", [f32(6, 5), i64(1), i64(-1)], opset=10)
case("Slice", [f32(6, 5), i64(-1), i64(-(2**62)), i64(0), i64(-2)], opset=13)
case("Slice", [f32(6, 5), i64(4, -4), i64(0, 2**62), i64(0, 1), i64(-1, 2)], opset=13)
case("Pad", [f32(2, 3)], {"pads": [0, 1, 2, 0], "value": 1.5}, opset=9)
case("Pad", [f32(2, 3), i64(1, 0, 0, 2), Const(2.0, "float32")], opset=11)
case("Pad", [f32(4, 5), i64(1, 2, 0, 3)], {"mode": "reflect"}, opset=13)
case("Pad", [f32(4, 5), i64(1, 2, 0, 3)], {"mode": "edge"}, opset=13)
case("Pad", [f32(4, 5), i64(-1, 2, 0, -3)], opset=13)
case("Pad", [f32(2, 3), i64(1, 2), None, i64(1)], opset=18)
case("DepthToSpace", [f32(1, 8, 2, 3)], {"blocksize": 2})
case("DepthToSpace", [f32(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"})
case("SpaceToDepth", [f32(1, 2, 4, 6)], {"blocksize": 2})
case("Shape", [f32(2, 3)])
case("Shape", [f32(2, 3, 4)], {"start": 1, "end": -1}, opset=15)
case("Size", [f32(2, 3)])
case("Dropout", [f32(2, 3)], {"ratio": 0.3}, opset=10)
case("Dropout", [f32(2, 3), Const(0.3, "float32")], opset=13)

# ---- indexing ---------------------------------------------------------------------------------------------------------

case("Gather", [f32(5, 3), i64(0, -1, 2)])
case("Gather", [f32(5, 3), ints(-5, 5, 2, 2)], {"axis": 0})
case("Gather", [f32(5, 3), ints(-3, 3, 4, dtype="int32")], {"axis": 1})
case("Gather", [f32(5, 3), Const(1, "int64")], {"axis": 1})
case("GatherElements", [f32(4, 3), ints(-4, 4, 2, 3)], {"axis": 0}, opset=13)
case("GatherND", [f32(4, 3, 2), ints(0, 3, 5, 2)], opset=13)
case("ScatterElements", [f32(4, 3), Const([[0, 2, 1]], "int64"), f32(1, 3)], {"axis": 0}, opset=16)
case("ScatterElements", [f32(4, 3), Const([[0, 0, 1]], "int64"), f32(1, 3)], {"reduction": "add"}, opset=16)
case("ScatterND", [f32(4, 3), Const([[1], [3]], "int64"), f32(2, 3)], opset=16)
case("OneHot", [ints(-4, 4, 3), Const(4, "int64"), Const([0.0, 2.0], "float32")])
case("OneHot", [ints(0, 4, 2, 3), Const([4], "int64"), Const([0.0, 2.0], "float32")], {"axis": 1})
case("TopK", [f32(3, 7), i64(3)], outputs=2, opset=11)
case("TopK", [f32(3, 7), i64(3)], {"largest": 0, "axis": 0}, outputs=2, opset=11)

# ---- layers -----------------------------------------------------------------------------------------------------------

case("Conv", [f32(1, 3, 9, 8), Const(f32(4, 3, 3, 3)), Const(f32(4))], {"pads": [1, 1, 1, 1], "strides": [2, 2]})
case("Conv", [f32(1, 3, 9, 8), Const(f32(4, 3, 3, 2))], {"pads": [1, 0, 2, 1], "dilations": [2, 1]})
case("Conv", [f32(1, 4, 7, 7), Const(f32(4, 1, 3, 3))], {"group": 4, "kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"})
case("Conv", [f32(1, 4, 7, 7), Const(f32(6, 2, 3, 3))], {"group": 2, "auto_pad": "SAME_LOWER", "strides": [2, 2]})
case("Conv", [f32(1, 4, 7, 7), Const(f32(6, 4, 2, 2))], {"auto_pad": "VALID"})
case("Conv", [f32(2, 3, 11), Const(f32(4, 3, 3)), Const(f32(4))], {"pads": [1, 1], "strides": [2]})
case("Conv", [f32(1, 2, 5, 6, 4), Const(f32(3, 2, 2, 2, 2))], {"strides": [1, 2, 1]})
case("ConvTranspose", [f32(1, 3, 4, 5), Const(f32(3, 2, 2, 2)), Const(f32(2))], {"strides": [2, 2]})
case("ConvTranspose", [f32(1, 3, 4, 5), Const(f32(3, 2, 3, 3))],
     {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]})  # fmt: skip
case("ConvTranspose", [f32(1, 4, 4, 5), Const(f32(4, 2, 3, 3))], {"group": 2, "dilations": [2, 1]})
case("ConvTranspose", [f32(1, 3, 4), Const(f32(3, 2, 3))], {"strides": [3]})
case("ConvTranspose", [f32(1, 3, 4, 4), Const(f32(3, 2, 3, 3))], {"strides": [2, 2], "auto_pad": "SAME_UPPER"})
for op in ("MaxPool", "AveragePool"):
    case(op, [f32(1, 3, 8, 9)], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, opset=10)
    case(op, [f32(1, 3, 8, 9)], {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}, opset=10)
    case(op, [f32(1, 3, 8, 9)], {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}, opset=9)
    case(op, [f32(1, 3, 8)], {"kernel_shape": [3]})
    case(op, [f32(1, 2, 5, 6, 4)], {"kernel_shape": [2, 2, 2], "strides": [2, 2, 1]})
case("MaxPool", [f32(1, 3, 8, 9)], {"kernel_shape": [2, 3], "dilations": [2, 1]}, opset=12)
case("AveragePool", [f32(1, 3, 8, 9)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1})
case("AveragePool", [f32(1, 3, 7, 7)],
     {"kernel_shape": [3, 3], "pads": [0, 0, 1, 1], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": 0})  # fmt: skip
case("GlobalAveragePool", [f32(2, 3, 4, 5)])
case("GlobalMaxPool", [f32(2, 3, 4, 5)])
case("LpPool", [f32(1, 2, 6, 6)], {"kernel_shape": [2, 2], "strides": [2, 2]})
case("BatchNormalization", [f32(2, 3, 4, 4), *(Const(f32(3, low=0.5)) for _ in range(4))], {"epsilon": 1e-3}, opset=9)
case("BatchNormalization", [f32(2, 3), *(Const(f32(3, low=0.5)) for _ in range(4))], opset=15)
case("InstanceNormalization", [f32(2, 3, 4, 4), Const(f32(3)), Const(f32(3))])
case("LayerNormalization", [f32(2, 3, 8), Const(f32(8)), Const(f32(8))], opset=17)
case("LayerNormalization", [f32(2, 3, 8), Const(f32(3, 8))], {"axis": 1, "epsilon": 1e-3}, opset=17)
case("GroupNormalization", [f32(2, 4, 3, 3), Const(f32(4)), Const(f32(4))], {"num_groups": 2}, opset=21)
case("MeanVarianceNormalization", [f32(2, 3, 4, 4)], opset=13)
case("LpNormalization", [f32(3, 4)], {"axis": 1, "p": 2})
case("LRN", [f32(1, 7, 3, 3)], {"size": 5, "alpha": 0.01, "beta": 0.6, "bias": 1.5})


def scales(*values: float) -> Const:
    return Const(list(values), "float32")


case("Upsample", [f32(1, 2, 3, 4), scales(1, 1, 2, 3)], opset=9)
case("Upsample", [f32(1, 2, 3, 4)], {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "linear"}, opset=7)
case("Resize", [f32(1, 2, 3, 4), scales(1, 1, 2, 2)], opset=10)
for mode in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"):
    attributes = {"mode": "linear", "coordinate_transformation_mode": mode}
    case("Resize", [f32(1, 2, 4, 5), scales(), scales(1, 1, 2, 2)], attributes, opset=11)
    case("Resize", [f32(1, 2, 6, 5), None, None, i64(1, 2, 3, 7)], attributes, opset=13)
for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
    attributes = {"nearest_mode": rounding, "coordinate_transformation_mode": "half_pixel"}
    case("Resize", [f32(1, 2, 4, 5), None, None, i64(1, 2, 7, 3)], attributes, opset=13)
case("Resize", [f32(1, 2, 4, 5), None, None, i64(8, 10)], {"axes": [2, 3], "mode": "linear"}, opset=18)
case("Resize", [f32(1, 2, 5), None, scales(1, 1, 2)], {"mode": "linear"}, opset=13)
case("Resize", [f32(1, 2, 4, 5), None, scales(1, 1, 2, 2)], {"mode": "cubic", "cubic_coeff_a": -0.5}, opset=13)
case("Resize", [f32(1, 2, 5, 7), None, scales(1, 1, 1.5, 0.7)], {"mode": "linear"}, opset=13)
case("Resize", [f32(1, 2, 5, 7), None, scales(1, 1, 1.5, 0.7)], opset=13)
case("Resize", [f32(1, 2, 4, 4, 4), None, scales(1, 1, 2, 1, 2)], {"mode": "linear"}, opset=13)


def recurrent(gates: int, hidden: int, size: int, directions: int, *, bias: bool = True) -> list[Any]:
    """Sequence, W, R, B of a recurrent layer."""
    d = directions
    parts = [f32(5, 2, size), Const(f32(d, gates * hidden, size, low=-0.5, high=0.5)),
             Const(f32(d, gates * hidden, hidden, low=-0.5, high=0.5))]  # fmt: skip
    return [*parts, Const(f32(d, 2 * gates * hidden, low=-0.5, high=0.5))] if bias else parts


case("LSTM", recurrent(4, 6, 3, 1), {"hidden_size": 6}, outputs=3)
case("LSTM", [*recurrent(4, 6, 3, 1), None, f32(1, 2, 6), f32(1, 2, 6)], {"hidden_size": 6}, outputs=3)
case("LSTM", recurrent(4, 6, 3, 1, bias=False), {"hidden_size": 6, "direction": "reverse"}, outputs=3)
case("LSTM", recurrent(4, 6, 3, 2), {"hidden_size": 6, "direction": "bidirectional"}, outputs=3)
case("LSTM", [*recurrent(4, 6, 3, 1), None, None, None, Const(f32(1, 18))], {"hidden_size": 6, "clip": 1.5}, outputs=3)
case("GRU", recurrent(3, 6, 3, 1), {"hidden_size": 6}, outputs=2)
case(
    "GRU", recurrent(3, 6, 3, 2), {"hidden_size": 6, "direction": "bidirectional", "linear_before_reset": 1}, outputs=2
)
case("RNN", recurrent(1, 6, 3, 1), {"hidden_size": 6}, outputs=2)


@pytest.mark.parametrize("op,operands,attributes,more,tol", CASES)
def test_operator(op: str, operands: Any, attributes: Any, more: Any, tol: float) -> None:
    """The imported graph means what onnxruntime computes."""
    model, feeds = one_node(op, operands, attributes, **more)
    assert_same(imported(model, feeds), expected(model, feeds), tol)


@pytest.mark.parametrize("op,operands,attributes,more,tol", CASES)
def test_operator_compiled(op: str, operands: Any, attributes: Any, more: Any, tol: float) -> None:
    """Native code gives what onnxruntime computes."""
    model, feeds = one_node(op, operands, attributes, **more)
    assert_same(compiled(model, feeds), expected(model, feeds), tol)
