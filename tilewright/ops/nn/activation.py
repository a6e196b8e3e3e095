"""Activation functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from tilewright import topi
from tilewright.ops.common import as_int, axis, dims_equal, floats, known, member, rng
from tilewright.ops.unary import erf_of, unary
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.topi import nn as tnn


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _silu(x: Any) -> Any:
    return x / (1 + np.exp(-x.astype(np.float64)))


def _gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _hard(x: Any, alpha: float, beta: float) -> Any:
    return np.clip(alpha * x + beta, 0, 1)


Relu = unary("nn.relu", lambda x: np.maximum(x, 0), tnn.relu, onnx="Relu@6", torch="aten.relu.default", kinds="fi")
Relu6 = unary("nn.relu6", lambda x: np.clip(x, 0, 6), tnn.relu6, torch="aten.relu6.default", span=(-3, 9))
Gelu = unary(
    "nn.gelu", lambda x: 0.5 * x * (1 + erf_of(x * math.sqrt(0.5))), tnn.gelu, doc="x * (1 + erf(x / sqrt 2)) / 2."
)
GeluTanh = unary("nn.gelu_tanh", _gelu_tanh, tnn.gelu_tanh, doc="The approximation of gelu by tanh.")
Silu = unary("nn.silu", _silu, tnn.silu, torch="aten.silu.default", doc="x * sigmoid(x).")
Mish = unary("nn.mish", lambda x: x * np.tanh(_softplus(x)), tnn.mish, onnx="Mish@18", torch="aten.mish.default")
HardSwish = unary(
    "nn.hardswish",
    lambda x: x * _hard(x, 1 / 6, 0.5),
    tnn.hardswish,
    onnx="HardSwish@14",
    torch="aten.hardswish.default",
    span=(-4, 4),
    doc="x * max(0, min(1, x / 6 + 1 / 2)).",
)
Softsign = unary("nn.softsign", lambda x: x / (1 + np.abs(x)), tnn.softsign, onnx="Softsign@1")


@operator
class Parametric(Op):
    """The family of activations with attributes; made by `parametric`."""

    elementwise: ClassVar[bool] = True

    numpy: ClassVar[Callable[..., Any]]
    tensor: ClassVar[Callable[..., Any]]

    def infer(self, x: Any) -> TensorStructInfo:
        return floats(self, x)

    def _attributes(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def compute(self, x: Any) -> Any:
        return type(self).tensor(x, **self._attributes())

    def reference(self, x: Any) -> Any:
        with np.errstate(over="ignore"):
            return np.asarray(type(self).numpy(x.astype(np.float64), **self._attributes())).astype(x.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-4, 4, (2, 9)).astype(np.float32)
        first = fields(cls)[0].name
        return [Sample(cls(), (x,)), Sample(cls(**{first: 0.3}), (x,)), Sample(cls(), (x.astype(np.float64),))]


def parametric(
    name: str,
    defaults: dict[str, float],
    reference: Callable[..., Any],
    build: Callable[..., Any],
    doc: str,
    onnx: str | Sequence[str] = (),
    torch: str | Sequence[str] = (),
) -> type[Parametric]:
    """An operator class of an elementwise function with float attributes."""
    body: dict[str, Any] = {
        "__doc__": doc,
        "__module__": __name__,
        "__annotations__": dict.fromkeys(defaults, "float"),
        "numpy": staticmethod(reference),
        "tensor": staticmethod(build),
        **defaults,
    }
    label = "".join(part.title() for part in name.rpartition(".")[2].split("_"))
    return member(label, Parametric, body, name=name, onnx=onnx, torch=torch)


def _elu(x: Any, alpha: float) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


LeakyRelu = parametric(
    "nn.leakyrelu",
    {"alpha": 0.01},
    lambda x, alpha: np.where(x > 0, x, alpha * x),
    tnn.leaky_relu,
    "x where x > 0, else alpha * x.",
)
Elu = parametric("nn.elu", {"alpha": 1.0}, _elu, tnn.elu, "x where x > 0, else alpha * (exp(x) - 1).")
Celu = parametric(
    "nn.celu",
    {"alpha": 1.0},
    lambda x, alpha: np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)),
    tnn.celu,
    "max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).",
)
Selu = parametric(
    "nn.selu",
    {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805},
    lambda x, alpha, gamma: gamma * _elu(x, alpha),
    tnn.selu,
    "gamma * elu(x, alpha).",
    torch="aten.selu.default",
)
HardSigmoid = parametric(
    "nn.hardsigmoid",
    {"alpha": 1 / 6, "beta": 0.5},
    _hard,
    tnn.hardsigmoid,
    "max(0, min(1, alpha * x + beta)).",
    torch="aten.hardsigmoid.default",
)
ThresholdedRelu = parametric(
    "nn.thresholded_relu",
    {"alpha": 1.0},
    lambda x, alpha: np.where(x > alpha, x, 0),
    tnn.thresholded_relu,
    "x where x > alpha, else 0.",
)
Softplus = parametric(
    "nn.softplus",
    {"beta": 1.0, "threshold": math.inf},
    lambda x, beta, threshold: np.where(beta * x > threshold, x, _softplus(beta * x) / beta),
    tnn.softplus,
    "log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold.",
)


@operator
class PRelu(Op, name="nn.prelu", torch="aten.prelu.default"):
    """x where x > 0, else alpha[c] * x, c the index along `axis`; alpha has one value, or one a channel."""

    axis: int = 1

    def infer(self, x: Any, alpha: Any) -> TensorStructInfo:
        si = floats(self, x)
        shape = known(self, x)
        (n,) = known(self, alpha, "alpha", 1)
        c = axis(self, self.axis, len(shape))
        if as_int(n) != 1:
            dims_equal(self, n, shape[c], "alpha needs one value a channel")
        return si

    def compute(self, x: Any, alpha: Any) -> Any:
        return topi.nn.prelu(x, alpha, self.axis)

    def reference(self, x: Any, alpha: Any) -> Any:
        shape = [1] * x.ndim
        shape[self.axis] = -1
        return np.where(x > 0, x, alpha.reshape(shape) * x).astype(x.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        g = rng()
        x = g.uniform(-2, 2, (2, 3, 4)).astype(np.float32)
        return [
            Sample(cls(), (x, g.uniform(0, 1, 3).astype(np.float32))),
            Sample(cls(2), (x, g.uniform(0, 1, 4).astype(np.float32))),
            Sample(cls(), (x, np.array([0.25], np.float32))),
        ]


@operator
class Dropout(Op, name="nn.dropout"):
    """Inference: the identity, and a mask of ones."""

    rate: float = 0.5

    def infer(self, x: Any) -> Any:
        from tilewright.relax.struct_info import TupleStructInfo

        si = floats(self, x)
        return TupleStructInfo((si, si))

    def compute(self, x: Any) -> Any:
        return [topi.identity(x), topi.full_like(x, 1.0)]

    def reference(self, x: Any) -> Any:
        return x.copy(), np.ones_like(x)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(), (np.ones((2, 3), np.float32),))]
