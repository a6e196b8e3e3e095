"""Accuracy of the mathematical functions, in ulp against numpy/scipy in float64, over all float32 exponents."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from tilewright.arith import expr as E
from tilewright.arith.expr import Ramp, Var, call_intrin
from tilewright.backends.llvm.testing import load_kernel
from tilewright.tir import ir as T

REFERENCE = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: np.power(10.0, x), "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "tanh": np.tanh, "sigmoid": special.expit, "erf": special.erf,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "nearbyint": np.rint, "fabs": np.abs,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}  # fmt: skip


def kernel(name, dtype, lanes, arity=1, opt="kernel", target="llvm"):
    n = Var("n", "int64")
    ins = [T.decl_buffer([n], dtype, f"x{i}") for i in range(arity)]
    out = T.decl_buffer([n], dtype, "y")
    i = Var("i", "int64")
    index = i if lanes == 1 else Ramp(i * lanes, E.IntImm("int64", 1), lanes)
    vec = dtype if lanes == 1 else f"{dtype}x{lanes}"
    value = call_intrin(vec, "tir." + name, *(T.BufferLoad(b, (index,)) for b in ins))
    body = T.For(i, E.IntImm("int64", 0), n // lanes, T.ForKind.SERIAL, T.BufferStore(out, value, (index,)))
    params = [*(b.data for b in ins), out.data, n]
    return load_kernel(T.PrimFunc(tuple(params), body, attrs={"global_symbol": "f", "tir.noalias": True}), target, opt)


def ulp(got, want):
    """The distance in units of the result's last place; infinities and NaN must agree."""
    dtype = got.dtype
    with np.errstate(all="ignore"):
        rounded = want.astype(dtype)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        info = np.finfo(dtype)
        step = np.maximum(np.spacing(np.abs(rounded)).astype(want.dtype), want.dtype.type(info.smallest_subnormal))
        near_max = np.isinf(rounded) & ~np.isinf(got) & (np.abs(got) == info.max)
        error = np.abs(got.astype(want.dtype) - want) / step
    error = np.where(same, np.where(np.isfinite(rounded), np.minimum(error, 0.5), 0), error)
    error = np.where(near_max, 1, error)
    return np.where(np.isnan(error), np.inf, error)


def sample(dtype, n, seed=0):
    """Numbers of every exponent and sign, all edge cases, and a dense part around the origin."""
    rng = np.random.default_rng(seed)
    if dtype == "float32":
        x = rng.integers(0, 2**32, n, dtype=np.uint64).astype(np.uint32).view(np.float32)
        dense = np.concatenate([rng.uniform(-1, 1, n), rng.uniform(-20, 20, n), rng.uniform(-110, 110, n)])
    else:
        x = rng.integers(0, 2**64 - 1, n, dtype=np.uint64).view(np.float64)
        dense = np.concatenate([rng.uniform(-1, 1, n), rng.uniform(-20, 20, n), rng.uniform(-750, 750, n)])
    info = np.finfo(dtype)
    edge = [0.0, -0.0, 1, -1, 2, 0.5, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny, info.smallest_subnormal]
    with np.errstate(all="ignore"):
        out = np.concatenate([x, dense.astype(dtype), np.array(edge, dtype)])
    return np.concatenate([out, np.zeros(-len(out) % 16, dtype)])


def worst(name, dtype, n=200_000, lanes=8, f=None):
    x = sample(dtype, n)
    y = np.zeros_like(x)
    kernel(name, dtype, lanes)(x, y, len(x))
    with np.errstate(all="ignore"):
        want = (f or REFERENCE[name])(x.astype(np.float64 if dtype == "float32" else np.longdouble))
    error = ulp(y, want)
    at = int(np.argmax(error))
    return float(error[at]), x[at], y[at], want[at]


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_float32_within_two_ulp(name):
    f = REFERENCE[name]
    if name == "round":

        def f(x):
            return np.where(np.abs(x) < 2**52, np.copysign(np.floor(np.abs(x) + 0.5), x), x)

    error, x, got, want = worst(name, "float32", f=f)
    assert error <= 2.0, (error, x, got, want)


@pytest.mark.parametrize(
    "name",
    ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sigmoid", "rsqrt", "sinh", "cosh", "asinh"],
)
def test_float64_within_four_ulp(name):
    f = (lambda x: np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))) if name == "sigmoid" else None
    error, x, got, want = worst(name, "float64", 50_000, 4, f)
    assert error <= 4.0, (error, x, got, want)


@pytest.mark.parametrize("name", ["erf", "acosh", "atanh", "sin", "cos", "atan"])
def test_float64_against_float64(name):
    x = sample("float64", 20_000)
    y = np.zeros_like(x)
    kernel(name, "float64", 4)(x, y, len(x))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(y, REFERENCE[name](x), rtol=2e-15, atol=1e-300)


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
def test_lane_counts_agree(lanes):
    x = sample("float32", 1000)
    outs = []
    for n in (8, lanes):
        y = np.zeros_like(x)
        kernel("tanh", "float32", n)(x, y, len(x))
        outs.append(y)
    np.testing.assert_array_equal(*outs)


def test_sin_of_huge_arguments_near_multiples_of_half_pi():
    """The hardest cases: float32 numbers that lie closest to multiples of pi/2, without fused multiply-add too."""
    rng = np.random.default_rng(3)
    n = np.round(np.exp(rng.uniform(0, 45, 400_000)))
    x = np.concatenate([(n * (np.pi / 2)).astype("f4"), np.array([16367173 * 2.0**72, 1e38, -3e38], "f4")])
    x = np.concatenate([x, np.zeros(-len(x) % 8, "f4")])
    for target in ("llvm", "llvm -mcpu=x86-64"):
        for name in ("sin", "cos", "tan"):
            y = np.zeros_like(x)
            kernel(name, "float32", 8, target=target)(x, y, len(x))
            error = ulp(y, REFERENCE[name](x.astype("f8")))
            at = int(np.argmax(error))
            assert error[at] <= 1.0, (target, name, error[at], x[at], y[at])


def test_pow_float32():
    rng = np.random.default_rng(1)
    edge = np.array([0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e-40, 2.5, -2.5, 1e30], "f4")
    a, c = (v.ravel() for v in np.meshgrid(edge, edge))
    n = 200_000
    x = np.concatenate([a, np.exp(rng.uniform(-30, 30, n)).astype("f4"), rng.uniform(-10, 10, n).astype("f4")])
    y = np.concatenate([c, rng.uniform(-4, 4, n).astype("f4"), np.round(rng.uniform(-9, 9, n)).astype("f4")])
    pad = -len(x) % 8
    x, y = np.concatenate([x, np.ones(pad, "f4")]), np.concatenate([y, np.ones(pad, "f4")])
    z = np.zeros_like(x)
    kernel("pow", "float32", 8, 2)(x, y, z, len(x))
    with np.errstate(all="ignore"):
        error = ulp(z, np.power(x.astype("f8"), y.astype("f8")))
    at = int(np.argmax(error))
    assert error[at] <= 1.0, (error[at], x[at], y[at], z[at])


@pytest.mark.parametrize("name", ["atan2", "hypot"])
def test_two_arguments_float32(name):
    rng = np.random.default_rng(1)
    edge = np.array([0.0, -0.0, 1, -1, 2, -2, np.inf, -np.inf, np.nan, 1e-40, 1e30, -1e30], "f4")
    a, c = (v.ravel() for v in np.meshgrid(edge, edge))
    x = np.concatenate([a, rng.normal(size=100_000).astype("f4")])
    y = np.concatenate([c, rng.normal(size=100_000).astype("f4")])
    z = np.zeros_like(x)
    kernel(name, "float32", 8, 2)(x, y, z, len(x))
    with np.errstate(all="ignore"):
        want = {"atan2": np.arctan2, "hypot": np.hypot}[name](x.astype("f8"), y.astype("f8"))
        error = ulp(z, want)
    at = int(np.argmax(error))
    assert error[at] <= 1.0, (error[at], x[at], y[at], z[at], want[at])


def test_scalar_code_is_vectorised_by_llvm():
    k = kernel("exp", "float32", 1, opt="scalar")
    assert "ymm" in k.assembly() or "zmm" in k.assembly() or "xmm" in k.assembly()
    x = sample("float32", 1000)
    y = np.zeros_like(x)
    k(x, y, len(x))
    with np.errstate(all="ignore"):
        assert ulp(y, np.exp(x.astype("f8"))).max() <= 2
