"""Softmax and log-softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tilewright import topi
from tilewright.ops.common import axis, floats, known, rng
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import TensorStructInfo


@operator
class _Softmax(Op):
    axis: int = -1

    tensor: ClassVar[Callable[..., Any]]

    def infer(self, x: Any) -> TensorStructInfo:
        si = floats(self, x)
        ndim = si.ndim if si.shape is None else len(known(self, x))
        if ndim >= 0:
            axis(self, self.axis, ndim)
        return si

    def compute(self, x: Any) -> Any:
        return type(self).tensor(x, self.axis)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-50, 60, (2, 3, 5)).astype(np.float32)
        return [
            Sample(cls(), (x,)),
            Sample(cls(1), (x,)),
            Sample(cls(0), (x.astype(np.float64),)),
            Sample(cls(), (x.astype(np.float16),)),
            Sample(cls(), (np.array([-np.inf, 0.0, 1.0], np.float32),)),
        ]


@operator
class Softmax(_Softmax, name="nn.softmax", onnx="Softmax@13", torch=("aten._softmax.default", "aten.softmax.int")):
    """exp(x - max(x)) / sum(exp(x - max(x))) along `axis`."""

    tensor = staticmethod(topi.nn.softmax)

    def reference(self, x: Any) -> Any:
        wide = x.astype(np.float64)
        e = np.exp(wide - wide.max(axis=self.axis, keepdims=True))
        return (e / e.sum(axis=self.axis, keepdims=True)).astype(x.dtype)


@operator
class LogSoftmax(_Softmax, name="nn.log_softmax", onnx="LogSoftmax@13", torch="aten._log_softmax.default"):
    """x - max(x) - log(sum(exp(x - max(x)))) along `axis`."""

    tensor = staticmethod(topi.nn.log_softmax)

    def reference(self, x: Any) -> Any:
        wide = x.astype(np.float64)
        d = wide - wide.max(axis=self.axis, keepdims=True)
        return (d - np.log(np.exp(d).sum(axis=self.axis, keepdims=True))).astype(x.dtype)
