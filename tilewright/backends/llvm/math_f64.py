"""Mathematical functions in float64, and those of float32 that are rare enough to be computed through float64.

Ranges are reduced in the textbook ways: exp by x = n ln 2 + r with ln 2 in two parts (Cody and Waite), log by a mantissa in
[sqrt(1/2), sqrt(2)) and s = f / (2 + f), sin and cos by multiples of pi/2, atan by pi/4 and reciprocals. Coefficients
are near-minimax fits on the reduced interval: weighted least squares at Chebyshev nodes in 50 digits, the weights raised where
the error is large (Lawson's iteration), then rounded to float64 from the lowest power on, each time refitting the rest.

Float64 results are within a few ulp. Functions that end in `_f32` take and give float32 and are correctly rounded but for rare
ties. sin, cos and tan of float32 reduce |x| < 2**20 as above; for the rest of the range there is a second function, with
2/pi to 116 bits, that is called when a lane needs it (`LARGE`; after Payne and Hanek, in floats).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.backends.llvm.math_core import Builder, Value

__all__ = ["FLOAT32_THROUGH_FLOAT64", "FLOAT64", "LARGE"]

_MAGIC = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer, in the low bits
_MAGIC_BITS = 0x4338000000000000
_LN2_HI = 0.6931471803691238  # ln 2 with the low 21 bits zero: n * _LN2_HI is exact
_LN2_LO = 1.9082149292705877e-10
_LOG2E = 1.4426950408889634
_LOG10E = 0.4342944819032518
_LOG10_2_HI = 0.3010299955494702  # log10(2) in two parts
_LOG10_2_LO = 1.1451100898021838e-10
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD

_EXP = (0.5, 0.16666666666666682, 0.0416666666666665, 0.008333333333317653, 0.0013888888888985496, 0.00019841269895099856,
        2.4801587117882718e-05, 2.7557235972643417e-06, 2.755745068412381e-07, 2.5111693804112347e-08,
        2.086073510294902e-09)  # (e**r - 1 - r) / r**2 on |r| <= ln(2)/2; relative error 6e-20  # fmt: skip
_LOG = (0.6666666666666666, 0.4000000000000488, 0.28571428569427876, 0.22222222604397712, 0.18181778553765862,
        0.15386980636088185, 0.13252322600871036, 0.1323328250077767)  # (2 atanh(s)/s - 2) / s**2 in s**2; 2e-20  # fmt: skip
_TANH = (-0.3333333333333333, 0.1333333333333297, -0.05396825396799051, 0.02186948852630465, -0.008863235310150704,
         0.003592124875275527, -0.001455803740699995, 0.0005898226364441054, -0.00023817987639320924,
         9.389528070157735e-05, -3.287852276655528e-05, 7.402116932774503e-06)  # |x| < 0.55  # fmt: skip
_ERF_SMALL = (0.1283791670955126, -0.3761263890318388, 0.11283791670959029, -0.02686617064567328, 0.00522397762961079,
              -0.0008548327218654382, 0.0001205533881584724, -1.4925762933980577e-05, 1.6463470888646452e-06,
              -1.6374623466066478e-07, 1.4812807332076509e-08, -1.1930044191640347e-09,
              6.849713265842498e-11)  # erf(x)/x - 1 in x**2, |x| < 1  # fmt: skip
_ERF_LARGE = (-14.11243740214837, -18.16524897092005, -6.042206592170233, -0.0816509089895232, 0.03412841966165919,
              -0.014384520813244712, 0.0059536293944289515, -0.002374839746477691, 0.0008911396404735418,
              -0.00030866395309167224, 0.00010477548281086847, 2.4000294298111252e-05, 4.981817852264422e-05,
              -6.027203253334675e-06, -0.00013942910619806068, -0.0002301009228768048, -0.0002198177235351885,
              -0.00012608874975931497, -4.2657920253901106e-05,
              -6.4857734675425985e-06)  # log(erfc(t)) in (t - 3.5) / 2.5, 1 <= t <= 6  # fmt: skip
_SIN = (-0.16666654936434971, 0.008332177729893381, -0.00019517244159404396)  # for float32: 4e-9
_COS = (0.04166664685784399, -0.001388736716319905, 2.4438413833819394e-05)  # 1e-10
_ATAN = (-0.3333333251326055, 0.1999990511052061, -0.14282040547732094, 0.11045079341411743, -0.08478342797611806,
         0.04748164297829625)  # (atan(x) - x) / x**3 in x**2, |x| <= tan(pi/8); for float32: 2e-11  # fmt: skip


def _pow2(b: Builder, n: Value) -> Value:
    """2**n for an i64 in [-1022, 1023]."""
    return b.bits((n + 1023) << 52)


def _scale(b: Builder, p: Value, n: Value) -> Value:
    """p * 2**n in two steps, so that results below the least normal are rounded once."""
    half = b.lshr(n + 4096, 1) - 2048
    return p * _pow2(b, half) * _pow2(b, n - half)


def _reduce_exp(b: Builder, x: Value) -> tuple[Value, Value]:
    """n and r with x = n ln 2 + r."""
    t = b.fma(x, _LOG2E, _MAGIC)
    n = t - _MAGIC
    r = b.fma(n, -_LN2_LO, b.fma(n, -_LN2_HI, x))
    return b.bits(t) - _MAGIC_BITS, r


def exp(b: Builder, x: Value) -> Value:
    """e**x."""
    n, r = _reduce_exp(b, b.least(b.most(x, -746.0), 710.0))
    return _scale(b, b.fma(r * r, b.poly(r, _EXP), r) + 1.0, n)


def exp2(b: Builder, x: Value) -> Value:
    """2**x."""
    x = b.least(b.most(x, -1080.0), 1030.0)
    t = x + _MAGIC
    r = (x - (t - _MAGIC)) * math.log(2)
    return _scale(b, b.fma(r * r, b.poly(r, _EXP), r) + 1.0, b.bits(t) - _MAGIC_BITS)


def expm1(b: Builder, x: Value) -> Value:
    """e**x - 1."""
    n, r = _reduce_exp(b, b.least(b.most(x, -40.0), 710.0))
    em = b.fma(r * r, b.poly(r, _EXP), r)
    half = _pow2(b, n - 1)
    big = b.fma(em, half, half - 0.5) * 2.0
    return b.where(b.abs(x) < 0.34, em, big)


def _log_parts(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """e, f, lo with x = 2**e * (1 + f) and log(1 + f) = f + lo, for finite x > 0."""
    tiny = x < 2.2250738585072014e-308
    bits = b.bits(b.where(tiny, x * 2.0**54, x))
    e = b.lshr(bits + (0x3FF0000000000000 - _SQRT_HALF_BITS), 52) - 1023
    f = b.bits(bits - (e << 52)) - 1.0
    ef = b.bits(e + _MAGIC_BITS) - _MAGIC + b.where(tiny, -54.0, b.const(0.0, "f64"))
    half = f * f * 0.5
    s = f / (f + 2.0)
    z = s * s
    return ef, f, b.fma(s, b.fma(z, b.poly(z, _LOG), half), -half)


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


def log1p(b: Builder, x: Value) -> Value:
    """log(1 + x): the rounding error of 1 + x, relative to it, is put back."""
    u = x + 1.0
    lost = b.where(x > 1.0, 1.0 - (u - x), x - (u - 1.0))
    y = log(b, u) + lost / u
    return b.where(b.abs(x) < 1e-17, x, b.where((u > 0.0) & (u < math.inf), y, log(b, u)))


def tanh(b: Builder, x: Value) -> Value:
    """The hyperbolic tangent."""
    a = b.abs(x)
    z = x * x
    small = b.fma(x * z, b.poly(z, _TANH), x)
    large = b.copysign_of(1.0 - 2.0 / (exp(b, b.least(a, 25.0) * 2.0) + 1.0), x)
    return b.where(a < 0.55, small, large)


def sigmoid(b: Builder, x: Value) -> Value:
    """1 / (1 + e**-x)."""
    e = exp(b, -b.abs(x))
    part = e / (e + 1.0)
    # 1 - part, or e - e * part: the division's error counts little where the result is small.
    whole = b.where(x >= 0.0, 1.0, e)
    return b.fma(-whole, part, whole)


def erf(b: Builder, x: Value) -> Value:
    """The error function."""
    a = b.abs(x)
    z = x * x
    small = b.fma(x, b.poly(z, _ERF_SMALL), x)
    u = (b.least(a, 6.0) - 3.5) * 0.4
    large = b.copysign_of(1.0 - exp(b, b.poly(u, _ERF_LARGE)), x)
    return b.where(a < 1.0, small, large)


def rsqrt(b: Builder, x: Value) -> Value:
    """1 / sqrt(x)."""
    return 1.0 / b.sqrt(x)


def hypot(b: Builder, x: Value, y: Value) -> Value:
    """sqrt(x*x + y*y) without overflow."""
    p, q = b.abs(x), b.abs(y)
    big = b.where(p > q, p, q)
    ratio = b.where(p > q, q, p) / b.where(big > 0.0, big, b.const(1.0, big.kind))
    out = big * b.sqrt(b.fma(ratio, ratio, 1.0))
    infinite = p.equals(math.inf) | q.equals(math.inf)
    return b.where(infinite, math.inf, b.where(p.is_nan() | q.is_nan(), math.nan, out))


def sinh(b: Builder, x: Value) -> Value:
    """The hyperbolic sine."""
    t = expm1(b, b.least(b.abs(x), 709.0))
    y = (t + t / (t + 1.0)) * 0.5
    root = exp(b, b.abs(x) * 0.5)
    return b.copysign_of(b.where(b.abs(x) > 700.0, root * 0.5 * root, y), x)


def cosh(b: Builder, x: Value) -> Value:
    """The hyperbolic cosine."""
    e = exp(b, b.least(b.abs(x), 709.0)) * 0.5
    root = exp(b, b.abs(x) * 0.5)
    return b.where(b.abs(x) > 700.0, root * 0.5 * root, e + 0.25 / e)


def asinh(b: Builder, x: Value) -> Value:
    """The inverse of sinh."""
    a = b.abs(x)
    z = a * a
    y = log1p(b, a + z / (b.sqrt(z + 1.0) + 1.0))
    return b.copysign_of(b.where(a > 1e150, log(b, a) + math.log(2), y), x)


def acosh(b: Builder, x: Value) -> Value:
    """The inverse of cosh."""
    d = x - 1.0
    y = log1p(b, d + b.sqrt(d * (d + 2.0)))
    return b.where(x > 1e150, log(b, x) + math.log(2), b.where(x >= 1.0, y, math.nan))


def atanh(b: Builder, x: Value) -> Value:
    """The inverse of tanh."""
    a = b.abs(x)
    return b.copysign_of(log1p(b, a * 2.0 / (1.0 - a)) * 0.5, x)


# ---- float32 through float64 -----------------------------------------------------------------------------------------

_PIO2_HI = 1.5707963267948966
_PIO2_LO = 6.123233995736766e-17
_PIO2_33 = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)  # pi/2 in parts of 33 bits


def _reduce_trig(b: Builder, x: Value) -> tuple[Value, Value]:
    """r and n (i64) with x = n pi/2 + r, |r| <= pi/4."""
    t = b.fma(x, 2 / math.pi, _MAGIC)
    n = t - _MAGIC
    if b.has_fma:
        r = b.fma(n, -_PIO2_LO, b.fma(n, -_PIO2_HI, x))
    else:
        r = ((x - n * _PIO2_33[0]) - n * _PIO2_33[1]) - n * _PIO2_33[2]
    return r, b.bits(t)


def _sin_cos(b: Builder, r: Value) -> tuple[Value, Value]:
    z = r * r
    return b.fma(r * z, b.poly(z, _SIN), r), b.fma(z * z, b.poly(z, _COS), b.fma(z, -0.5, 1.0))


# 2**e * 2/pi modulo 2**25 in four parts of 29 bits, for e = 20, 46, 72, 98, 124: products with 24 bits are exact.
_TWO_OVER_PI = (
    (667544.1875, 0.026930108899250627, 7.514614559951671e-11, 8.070579982021904e-20),
    (14390161.0, 0.02066797239240259, 7.817565063177045e-11, 6.594963278441895e-20),
    (1387004.125, 0.028683779062703252, 4.808155045984974e-11, 1.8350637776538618e-19),
    (10313543.8125, 0.018851698143407702, 9.962639589168598e-11, 5.1045525626974744e-20),
    (22236636.0, 0.0535608142381534, 1.7977522465476015e-11, 6.754001191226146e-21),
)


def _reduce_large(b: Builder, x: Value) -> tuple[Value, Value]:
    """The same for 2**20 <= |x| < 2**128, x of 24 bits: x * 2/pi modulo 4 from exact partial products."""
    a = b.abs(x)
    scale = b.const(2.0**-20, "f64")
    parts = [b.const(p, "f64") for p in _TWO_OVER_PI[0]]
    for k in range(1, 5):
        here = a >= 2.0 ** (20 + 26 * k)
        scale = b.where(here, 2.0 ** -(20 + 26 * k), scale)
        parts = [b.where(here, _TWO_OVER_PI[k][i], parts[i]) for i in range(4)]
    y = x * scale
    p0, p1, p2, p3 = (y * p for p in parts)
    p0, p1 = (p - ((p * 0.25 + _MAGIC) - _MAGIC) * 4.0 for p in (p0, p1))
    t = (p0 + p1) + _MAGIC
    quarter = ((p0 - (t - _MAGIC)) + p1) + (p2 + p3)
    return b.where(a < math.inf, quarter * _PIO2_HI, math.nan), b.bits(t)


Reduction = Callable[[Builder, Value], tuple[Value, Value]]


def _quadrant(b: Builder, x: Value, shift: int, reduce: Reduction) -> Value:
    r, n = reduce(b, x)
    s, c = _sin_cos(b, r)
    n = n + shift
    y = b.where((n & 1).equals(0), s, c)
    return b.bits(b.bits(y) ^ ((n & 2) << 62))


def _wide(b: Builder, x: Value) -> Value:
    return b.convert(x, "f64")


def _narrow(b: Builder, x: Value) -> Value:
    return b.convert(x, "f32")


def sin_f32(b: Builder, x: Value, reduce: Reduction = _reduce_trig) -> Value:
    """The sine."""
    return b.where(x.equals(0.0), x, _narrow(b, _quadrant(b, _wide(b, x), 0, reduce)))


def cos_f32(b: Builder, x: Value, reduce: Reduction = _reduce_trig) -> Value:
    """The cosine."""
    return _narrow(b, _quadrant(b, _wide(b, x), 1, reduce))


def tan_f32(b: Builder, x: Value, reduce: Reduction = _reduce_trig) -> Value:
    """The tangent."""
    r, n = reduce(b, _wide(b, x))
    s, c = _sin_cos(b, r)
    even = (n & 1).equals(0)
    return b.where(x.equals(0.0), x, _narrow(b, b.where(even, s, -c) / b.where(even, c, s)))


def sin_large(b: Builder, x: Value) -> Value:
    """The sine where |x| >= 2**20."""
    return sin_f32(b, x, _reduce_large)


def cos_large(b: Builder, x: Value) -> Value:
    """The cosine where |x| >= 2**20."""
    return cos_f32(b, x, _reduce_large)


def tan_large(b: Builder, x: Value) -> Value:
    """The tangent where |x| >= 2**20."""
    return tan_f32(b, x, _reduce_large)


def _atan64(b: Builder, x: Value) -> Value:
    """atan of x >= 0 to about 1e-10."""
    inverse = x > 1.0
    y = b.where(inverse, 1.0, x) / b.where(inverse, x, b.const(1.0, "f64"))
    upper = y > math.tan(math.pi / 8)
    y = b.where(upper, y - 1.0, y) / b.where(upper, y + 1.0, b.const(1.0, "f64"))
    z = y * y
    out = b.fma(y * z, b.poly(z, _ATAN), y) + b.where(upper, math.pi / 4, b.const(0.0, "f64"))
    return b.where(inverse, math.pi / 2 - out, out)


def atan_f32(b: Builder, x: Value) -> Value:
    """The arc tangent."""
    return b.copysign_of(_narrow(b, _atan64(b, _wide(b, b.abs(x)))), x)


def atan2_f32(b: Builder, y: Value, x: Value) -> Value:
    """The angle of the point (x, y)."""
    p, q = _wide(b, b.abs(y)), _wide(b, b.abs(x))
    ratio = b.where(p.equals(q), 1.0, p / q)
    a = b.where(p.equals(0.0), 0.0, _atan64(b, ratio))
    negative = b.bits(x) < 0
    a = b.where(negative, math.pi - a, a)
    return b.where(x.is_nan() | y.is_nan(), math.nan, b.copysign_of(_narrow(b, a), y))


def asin_f32(b: Builder, x: Value) -> Value:
    """The arc sine."""
    w = _wide(b, b.abs(x))
    return b.copysign_of(_narrow(b, _atan64(b, w / b.sqrt((1.0 - w) * (w + 1.0)))), x)


def acos_f32(b: Builder, x: Value) -> Value:
    """The arc cosine."""
    w = _wide(b, x)
    a = b.abs(w)
    y = _atan64(b, b.sqrt((1.0 - a) * (a + 1.0)) / a)
    return _narrow(b, b.where(w < 0.0, math.pi - y, y))


def sinh_f32(b: Builder, x: Value) -> Value:
    """The hyperbolic sine."""
    return _narrow(b, sinh(b, _wide(b, x)))


def cosh_f32(b: Builder, x: Value) -> Value:
    """The hyperbolic cosine."""
    return _narrow(b, cosh(b, _wide(b, x)))


def asinh_f32(b: Builder, x: Value) -> Value:
    """The inverse of sinh."""
    return _narrow(b, asinh(b, _wide(b, x)))


def acosh_f32(b: Builder, x: Value) -> Value:
    """The inverse of cosh."""
    return _narrow(b, acosh(b, _wide(b, x)))


def atanh_f32(b: Builder, x: Value) -> Value:
    """The inverse of tanh."""
    return _narrow(b, atanh(b, _wide(b, x)))


def log1p_f32(b: Builder, x: Value) -> Value:
    """log(1 + x)."""
    return b.where(x.equals(0.0), x, _narrow(b, log1p(b, _wide(b, x))))


def expm1_f32(b: Builder, x: Value) -> Value:
    """e**x - 1."""
    return b.where(x.equals(0.0), x, _narrow(b, expm1(b, _wide(b, x))))


def exp10_f32(b: Builder, x: Value) -> Value:
    """10**x."""
    return _narrow(b, exp2(b, _wide(b, b.least(b.most(x, -60.0), 50.0)) * math.log2(10)))


def hypot_f32(b: Builder, x: Value, y: Value) -> Value:
    """sqrt(x*x + y*y): float64 has the range."""
    p, q = _wide(b, x), _wide(b, y)
    infinite = b.abs(x).equals(math.inf) | b.abs(y).equals(math.inf)
    return b.where(infinite, math.inf, _narrow(b, b.sqrt(b.fma(p, p, q * q))))


def pow_f32(b: Builder, x: Value, y: Value) -> Value:
    """x**y with C's rules for zeros, infinities and negative x."""
    w, v = _wide(b, x), _wide(b, y)
    a = b.abs(w)
    size = exp2(b, log2(b, a) * v)
    whole = b.call("trunc", v).equals(v)
    odd = whole & (b.abs(v) < 9007199254740992.0) & b.call("trunc", v * 0.5).differs(v * 0.5)
    size = b.where((w < 0.0) & (a < math.inf) & whole.negated(), math.nan, size)
    size = b.where(odd, b.copysign_of(size, w), size)
    one = v.equals(0.0) | w.equals(1.0) | (w.equals(-1.0) & b.abs(v).equals(math.inf))
    return _narrow(b, b.where(one, 1.0, size))


FLOAT64 = {
    "exp": exp, "exp2": exp2, "expm1": expm1, "log": log, "log2": log2, "log10": log10, "log1p": log1p, "tanh": tanh,
    "sigmoid": sigmoid, "erf": erf, "rsqrt": rsqrt, "hypot": hypot, "sinh": sinh, "cosh": cosh, "asinh": asinh,
    "acosh": acosh, "atanh": atanh,
}  # fmt: skip
"""By intrinsic name: functions of float64."""

FLOAT32_THROUGH_FLOAT64 = {
    "sin": sin_f32, "cos": cos_f32, "tan": tan_f32, "atan": atan_f32, "atan2": atan2_f32, "asin": asin_f32, "acos": acos_f32,
    "sinh": sinh_f32, "cosh": cosh_f32, "asinh": asinh_f32, "acosh": acosh_f32, "atanh": atanh_f32, "log1p": log1p_f32,
    "expm1": expm1_f32, "exp10": exp10_f32, "hypot": hypot_f32, "pow": pow_f32,
}  # fmt: skip
"""By intrinsic name: functions of float32 computed in float64."""

LARGE = {"sin": (1048576.0, sin_large), "cos": (1048576.0, cos_large), "tan": (1048576.0, tan_large)}
"""Functions of float32 that another function computes from a size of the argument on."""
