"""The common mathematical functions in float32, within 2 ulp over the whole range.

Overflow gives infinity, results below the least normal are denormal (not flushed), NaN gives NaN, log(0) is -inf and log of a
negative number NaN. Methods and fitting as in math_f64.py; the coefficients here are rounded to float32.
"""

from __future__ import annotations

import math

from tilewright.backends.llvm.math_core import Builder, Value

__all__ = ["FLOAT32"]

_MAGIC = 12582912.0  # 1.5 * 2**23
_MAGIC_BITS = 0x4B400000
_LOG2E = 1.4426950408889634
_LOG10E = 0.4342944819032518
_LN2_HI = 0.693359375  # 10 bits: n * _LN2_HI is exact
_LN2_LO = -2.1219444005469057e-4
_LOG10_2_HI = 0.30078125
_LOG10_2_LO = 2.4873996398120e-4
_SQRT_HALF_BITS = 0x3F3504F3

_EXP = (0.4999999403953552, 0.1666652113199234, 0.041668254882097244, 0.008368667215108871,
        0.0013821740867570043)  # (e**r - 1 - r) / r**2 on |r| <= ln(2)/2; relative error 3e-9  # fmt: skip
_EXP2 = (0.6931471824645996, 0.24022643268108368, 0.055503588169813156, 0.009619000367820263, 0.0013391301035881042,
         0.0001519745128462091)  # (2**r - 1) / r on |r| <= 1/2; 4e-9  # fmt: skip
_LOG = (0.3333331048488617, -0.24999986588954926, 0.20002225041389465, -0.1666925698518753, 0.14218685030937195,
        -0.12384190410375595, 0.11872615665197372, -0.1179080456495285,
        0.06917499750852585)  # (log(1+f) - f + f*f/2) / f**3 on [sqrt(1/2)-1, sqrt(2)-1]; 7e-10  # fmt: skip
_TANH = (-0.33333298563957214, 0.1333194226026535, -0.05378549173474312, 0.020801756531000137,
         -0.005901978816837072)  # (tanh(x) - x) / x**3 in x**2, |x| < 0.6; 3e-9  # fmt: skip
_ERF_SMALL = (0.12837916612625122, -0.3761262893676758, 0.11283618956804276, -0.02685517631471157, 0.005190852098166943,
              -0.000803193252068013, 7.924538658699021e-05)  # erf(x)/x - 1 in x**2, |x| < 1; 1e-9  # fmt: skip
_ERF_LARGE = (-1.1286660432815552, -0.6350806951522827, -0.10635263472795486, 0.023860927671194077, -0.003688829718157649,
              0.00033412256743758917, -1.2354159480310045e-05)  # log(erfc(t)) / t on [0.95, 4]; 6e-10 of erf  # fmt: skip


def _pow2(b: Builder, n: Value) -> Value:
    """2**n for an i32 in [-126, 127]."""
    return b.bits((n + 127) << 23)


def _reduce_exp(b: Builder, x: Value) -> tuple[Value, Value]:
    """n and e**r with x = n ln 2 + r."""
    t = b.fma(x, _LOG2E, _MAGIC)
    n = t - _MAGIC
    r = b.fma(n, -_LN2_LO, b.fma(n, -_LN2_HI, x))
    return b.bits(t) - _MAGIC_BITS, b.fma(r * r, b.poly(r, _EXP), r) + 1.0


def _scale(b: Builder, p: Value, n: Value) -> Value:
    """p * 2**n in two steps: overflows to infinity, rounds denormals once."""
    half = n >> 1
    return p * _pow2(b, half) * _pow2(b, n - half)


def exp(b: Builder, x: Value) -> Value:
    """e**x."""
    n, p = _reduce_exp(b, b.least(b.most(x, -105.0), 89.0))
    return _scale(b, p, n)


def _exp_normal(b: Builder, x: Value) -> Value:
    """e**x where the result is known to be a normal number."""
    n, p = _reduce_exp(b, x)
    return p * _pow2(b, n)


def exp2(b: Builder, x: Value) -> Value:
    """2**x."""
    x = b.least(b.most(x, -151.0), 129.0)
    t = x + _MAGIC
    r = x - (t - _MAGIC)
    return _scale(b, b.fma(r, b.poly(r, _EXP2), 1.0), b.bits(t) - _MAGIC_BITS)


def _log_parts(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """e, f, lo with x = 2**e * (1 + f) and log(1 + f) = f + lo, for finite x > 0."""
    tiny = x < 1.1754943508222875e-38
    bits = b.bits(b.where(tiny, x * 8388608.0, x))
    e = (bits - _SQRT_HALF_BITS) >> 23
    f = b.bits(bits - (e << 23)) - 1.0
    ef = b.convert(e, "f32") + b.where(tiny, -23.0, b.const(0.0, "f32"))
    z = f * f
    return ef, f, b.fma(f * z, b.poly(f, _LOG), z * -0.5)


def _log_edges(b: Builder, x: Value, y: Value) -> Value:
    """y where x is finite and positive; -inf at 0, NaN below, x itself for inf and NaN."""
    edge = b.where(x < 0.0, math.nan, b.where(x.equals(0.0), -math.inf, x))
    return b.where((x > 0.0) & (x < math.inf), y, edge)


def log(b: Builder, x: Value) -> Value:
    """The natural logarithm."""
    e, f, lo = _log_parts(b, x)
    return _log_edges(b, x, b.fma(e, _LN2_HI, b.fma(e, _LN2_LO, lo) + f))


def log2(b: Builder, x: Value) -> Value:
    """The logarithm to base 2."""
    e, f, lo = _log_parts(b, x)
    return _log_edges(b, x, b.fma(f, _LOG2E, b.fma(lo, _LOG2E, e)))


def log10(b: Builder, x: Value) -> Value:
    """The logarithm to base 10."""
    e, f, lo = _log_parts(b, x)
    y = b.fma(f, _LOG10E, b.fma(lo, _LOG10E, e * _LOG10_2_LO))
    return _log_edges(b, x, b.fma(e, _LOG10_2_HI, y))


def tanh(b: Builder, x: Value) -> Value:
    """The hyperbolic tangent: a polynomial near zero, 1 - 2 / (e**2|x| + 1) beyond."""
    a = b.abs(x)
    z = x * x
    small = b.fma(x * z, b.poly(z, _TANH), x)
    large = 1.0 - 2.0 / (_exp_normal(b, b.least(a, 10.0) * 2.0) + 1.0)
    return b.where(a < 0.6, small, b.copysign_of(large, x))


def sigmoid(b: Builder, x: Value) -> Value:
    """1 / (1 + e**-x), without overflow on either side."""
    e = exp(b, -b.abs(x))
    part = e / (e + 1.0)
    # 1 - part, or e - e * part: the division's error counts little where the result is small.
    whole = b.where(x >= 0.0, 1.0, e)
    return b.fma(-whole, part, whole)


def erf(b: Builder, x: Value) -> Value:
    """The error function: a polynomial near zero, 1 - e**p(|x|) beyond."""
    a = b.abs(x)
    z = x * x
    small = b.fma(x, b.poly(z, _ERF_SMALL), x)
    t = b.least(a, 4.0)
    large = b.copysign_of(1.0 - _exp_normal(b, t * b.poly(t, _ERF_LARGE)), x)
    return b.where(a < 1.0, small, large)


def rsqrt(b: Builder, x: Value) -> Value:
    """1 / sqrt(x)."""
    return 1.0 / b.sqrt(x)


FLOAT32 = {"exp": exp, "exp2": exp2, "log": log, "log2": log2, "log10": log10, "tanh": tanh, "sigmoid": sigmoid, "erf": erf,
           "rsqrt": rsqrt}  # fmt: skip
"""By intrinsic name: functions of float32."""
