"""Activation functions."""

from __future__ import annotations

import math
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, cast, const
from tilewright.topi.elemwise import elementwise
from tilewright.topi.util import axes_of, is_one

__all__ = [
    "celu", "elu", "fast_gelu", "gelu", "gelu_tanh", "hardsigmoid", "hardswish", "leaky_relu", "mish", "prelu", "relu",
    "relu6", "selu", "silu", "softplus", "softsign", "thresholded_relu",
]  # fmt: skip


def _c(v: float, x: PrimExpr) -> PrimExpr:
    return const(v, x.dtype)


def _gelu(x: PrimExpr) -> PrimExpr:
    return x * (_c(0.5, x) + _c(0.5, x) * tir.erf(x * _c(math.sqrt(0.5), x)))


def _gelu_tanh(x: PrimExpr) -> PrimExpr:
    inner = x * _c(math.sqrt(2 / math.pi), x) * (_c(1, x) + _c(0.044715, x) * x * x)
    return _c(0.5, x) * x * (_c(1, x) + tir.tanh(inner))


def _softplus(x: PrimExpr) -> PrimExpr:
    return tir.max(x, _c(0, x)) + tir.log1p(tir.exp(-tir.abs(x)))


def _hard(x: PrimExpr, alpha: float, beta: float) -> PrimExpr:
    return tir.max(tir.min(x * _c(alpha, x) + _c(beta, x), _c(1, x)), _c(0, x))


relu = elementwise("relu", lambda x: tir.max(x, _c(0, x)))
relu6 = elementwise("relu6", lambda x: tir.min(tir.max(x, _c(0, x)), _c(6, x)))
gelu = elementwise("gelu", _gelu)
gelu_tanh = elementwise("gelu_tanh", _gelu_tanh)
fast_gelu = gelu_tanh
silu = elementwise("silu", lambda x: x * tir.sigmoid(x))
mish = elementwise("mish", lambda x: x * tir.tanh(_softplus(x)))
hardswish = elementwise("hardswish", lambda x: x * _hard(x, 1 / 6, 0.5))
softsign = elementwise("softsign", lambda x: tir.div(x, _c(1, x) + tir.abs(x)))


def softplus(x: te.Tensor, beta: float = 1.0, threshold: float = math.inf) -> te.Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold."""

    def value(*i: Any) -> PrimExpr:
        v = x(*i)
        y = _softplus(v) if beta == 1 else tir.div(_softplus(v * _c(beta, v)), _c(beta, v))
        return y if threshold == math.inf else tir.Select(v * _c(beta, v) > _c(threshold, v), v, y)

    return te.compute(x.shape, value, name="softplus")


def hardsigmoid(x: te.Tensor, alpha: float = 1 / 6, beta: float = 0.5) -> te.Tensor:
    """max(0, min(1, alpha * x + beta))."""
    return te.compute(x.shape, lambda *i: _hard(x(*i), alpha, beta), name="hardsigmoid")


def leaky_relu(x: te.Tensor, alpha: float = 0.01) -> te.Tensor:
    """x where x > 0, else alpha * x."""

    def value(*i: Any) -> PrimExpr:
        v = x(*i)
        return tir.Select(v > _c(0, v), v, v * _c(alpha, v))

    return te.compute(x.shape, value, name="leaky_relu")


def _expm1(x: PrimExpr) -> PrimExpr:
    return tir.exp(x) - _c(1, x)


def elu(x: te.Tensor, alpha: float = 1.0) -> te.Tensor:
    """x where x > 0, else alpha * (exp(x) - 1)."""

    def value(*i: Any) -> PrimExpr:
        v = x(*i)
        return tir.Select(v > _c(0, v), v, _c(alpha, v) * _expm1(tir.min(v, _c(0, v))))

    return te.compute(x.shape, value, name="elu")


def celu(x: te.Tensor, alpha: float = 1.0) -> te.Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    def value(*i: Any) -> PrimExpr:
        v = x(*i)
        low = tir.min(v, _c(0, v))
        return tir.max(v, _c(0, v)) + _c(alpha, v) * _expm1(tir.div(low, _c(alpha, v)))

    return te.compute(x.shape, value, name="celu")


def selu(x: te.Tensor, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> te.Tensor:
    """gamma * elu(x, alpha)."""

    def value(*i: Any) -> PrimExpr:
        v = x(*i)
        return _c(gamma, v) * tir.Select(v > _c(0, v), v, _c(alpha, v) * _expm1(tir.min(v, _c(0, v))))

    return te.compute(x.shape, value, name="selu")


def thresholded_relu(x: te.Tensor, alpha: float = 1.0) -> te.Tensor:
    """x where x > alpha, else 0."""

    def value(*i: Any) -> PrimExpr:
        v = x(*i)
        return tir.Select(v > _c(alpha, v), v, _c(0, v))

    return te.compute(x.shape, value, name="thresholded_relu")


def prelu(x: te.Tensor, slope: te.Tensor, axis: int = 1) -> te.Tensor:
    """x where x > 0, else slope[c] * x, c the index along `axis`."""
    (c,) = axes_of(axis, len(x.shape))
    one = is_one(slope.shape[0])

    def value(*i: Any) -> PrimExpr:
        v = x(*i)
        return tir.Select(v > _c(0, v), v, v * cast(slope(const(0, "int64") if one else i[c]), x.dtype))

    return te.compute(x.shape, value, name="prelu")
