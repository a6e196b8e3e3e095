"""Conversions between dtypes as LLVM text, including the small floats that no instruction handles.

float16 is LLVM's `half`; converted by the hardware where it can (F16C, AArch64), by bit operations elsewhere, so that no
compiler-rt routine is ever needed. bfloat16 is the upper half of a float32, rounded to nearest even. The float8 formats are
storage: a value goes through float32 both ways. NaN stays NaN everywhere.

The rounding of a float32 to a format with `e` exponent and `m` mantissa bits follows the usual integer method: normal
numbers add half an ulp (minus one for even) to the bits and shift; numbers below the least normal are rounded by adding a
float32 constant whose ulp is the format's least step, which leaves the rounded mantissa in the low bits.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tilewright.backends.llvm.emit_core import Writer, float_literal, llvm_type, splat, unsupported, vector
from tilewright.ir import dtype as dt

__all__ = ["convert", "from_float32", "is_small_float", "to_float32"]


class _Format(NamedTuple):
    """A binary float format: exponent and mantissa bits, bias, whether it has infinities, code of NaN and of the largest."""

    exponent: int
    mantissa: int
    bias: int
    infinite: bool
    nan: int
    largest: int


_FORMATS = {
    "float16": _Format(5, 10, 15, True, 0x7E00, 0x7BFF),
    "float8_e5m2": _Format(5, 2, 15, True, 0x7E, 0x7B),
    "float8_e4m3fn": _Format(4, 3, 7, False, 0x7F, 0x7E),
}


def is_small_float(dtype: str) -> bool:
    """Is it a float that is computed in float32 (float16, bfloat16, float8)?"""
    return dt.is_float(dtype) and dt.bits(dtype) < 32


def _f32_bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


class _Vec:
    """Writes integer and float32 instructions of one lane count."""

    def __init__(self, w: Writer, lanes: int) -> None:
        self.w, self.lanes = w, lanes
        self.i32, self.f32 = self.ty("i32"), self.ty("float")
        self.i1 = self.ty("i1")

    def ty(self, base: str) -> str:
        return vector(self.lanes, base)

    def k(self, value: int, base: str = "i32") -> str:
        return splat(str(value), base, self.lanes)

    def i(self, opcode: str, a: str, b: str) -> str:
        return self.w.op(f"{opcode} {self.i32} {a}, {b}")

    def select(self, c: str, a: str, b: str) -> str:
        return self.w.op(f"select {self.i1} {c}, {self.i32} {a}, {self.i32} {b}")

    def convert(self, opcode: str, source: str, value: str, target: str) -> str:
        return self.w.op(f"{opcode} {source} {value} to {target}")


def to_float32(w: Writer, value: str, dtype: str) -> str:
    """A small float as float32 (exact)."""
    v = _Vec(w, dt.lanes(dtype))
    base = dt.element(dtype)
    if base == "float16" and w.mod.has_half:
        return v.convert("fpext", v.ty("half"), value, v.f32)
    if base == "bfloat16":
        wide = v.convert("zext", v.ty("i16"), value, v.i32)
        return v.convert("bitcast", v.i32, v.i("shl", wide, v.k(16)), v.f32)
    f = _format(base)
    if base == "float16":
        value = v.convert("bitcast", v.ty("half"), value, v.ty("i16"))
    bits = v.convert("zext", v.ty("i16" if base == "float16" else "i8"), value, v.i32)
    size = f.exponent + f.mantissa
    sign = v.i("shl", v.i("and", bits, v.k(1 << size)), v.k(31 - size))
    magnitude = v.i("and", bits, v.k((1 << size) - 1))
    # Place exponent and mantissa where float32 has them, then multiply by 2**(127 - bias): denormals come out right.
    shifted = v.convert("bitcast", v.i32, v.i("shl", magnitude, v.k(23 - f.mantissa)), v.f32)
    scale = splat(float_literal(2.0 ** (127 - f.bias), "float32"), "float", v.lanes)
    scaled = v.convert("bitcast", v.f32, w.op(f"fmul {v.f32} {shifted}, {scale}"), v.i32)
    if f.infinite:
        top = ((1 << f.exponent) - 1) << f.mantissa
        special = v.i("or", v.i("shl", magnitude, v.k(23 - f.mantissa)), v.k(0x7F800000))
        is_special = w.op(f"icmp uge {v.i32} {magnitude}, {v.k(top)}")
    else:
        special = v.k(0x7FC00000)
        is_special = w.op(f"icmp eq {v.i32} {magnitude}, {v.k(f.nan)}")
    return v.convert("bitcast", v.i32, v.i("or", v.select(is_special, special, scaled), sign), v.f32)


def from_float32(w: Writer, value: str, dtype: str) -> str:
    """A float32 rounded to a small float, to nearest, ties to even."""
    v = _Vec(w, dt.lanes(dtype))
    base = dt.element(dtype)
    if base == "float16" and w.mod.has_half:
        return v.convert("fptrunc", v.f32, value, v.ty("half"))
    bits = v.convert("bitcast", v.f32, value, v.i32)
    is_nan = w.op(f"fcmp uno {v.f32} {value}, {value}")
    if base == "bfloat16":
        odd = v.i("and", v.i("lshr", bits, v.k(16)), v.k(1))
        rounded = v.i("lshr", v.i("add", v.i("add", bits, v.k(0x7FFF)), odd), v.k(16))
        quiet = v.i("or", v.i("lshr", bits, v.k(16)), v.k(0x40))
        return v.convert("trunc", v.i32, v.select(is_nan, quiet, rounded), v.ty("i16"))
    f = _format(base)
    size = f.exponent + f.mantissa
    sign = v.i("lshr", v.i("and", bits, v.k(-0x80000000)), v.k(31 - size))
    magnitude = v.i("and", bits, v.k(0x7FFFFFFF))
    cut = 23 - f.mantissa
    odd = v.i("and", v.i("lshr", magnitude, v.k(cut)), v.k(1))
    rebias = ((127 - f.bias) << 23) - ((1 << (cut - 1)) - 1)
    normal = v.i("lshr", v.i("add", v.i("sub", magnitude, v.k(rebias)), odd), v.k(cut))
    magic = 2.0 ** (1 - f.bias - f.mantissa + 23)
    absolute = v.convert("bitcast", v.i32, magnitude, v.f32)
    summed = w.op(f"fadd {v.f32} {absolute}, {splat(float_literal(magic, 'float32'), 'float', v.lanes)}")
    tiny = v.i("sub", v.convert("bitcast", v.f32, summed, v.i32), v.k(_f32_bits(magic)))
    is_tiny = w.op(f"icmp ult {v.i32} {magnitude}, {v.k(_f32_bits(2.0 ** (1 - f.bias)))}")
    result = v.select(is_tiny, tiny, normal)
    # The first float32 magnitude that rounds beyond the largest number becomes infinity, or NaN where there is none.
    over = 0x7F800000 if f.largest < 0 else _overflow_bits(f)
    is_over = w.op(f"icmp uge {v.i32} {magnitude}, {v.k(over)}")
    result = v.select(is_over, v.k(f.largest + 1 if f.infinite else f.nan), result)
    result = v.i("or", v.select(is_nan, v.k(f.nan), result), sign)
    narrow = v.convert("trunc", v.i32, result, v.ty("i16" if base == "float16" else "i8"))
    return v.convert("bitcast", v.ty("i16"), narrow, v.ty("half")) if base == "float16" else narrow


def _overflow_bits(f: _Format) -> int:
    exponent = (f.largest >> f.mantissa) - f.bias
    mantissa = f.largest & ((1 << f.mantissa) - 1)
    step = 2.0 ** (exponent - f.mantissa)
    largest = (1 + mantissa / (1 << f.mantissa)) * 2.0**exponent
    tie = _f32_bits(largest + step / 2)
    # A tie goes to the even neighbour: upwards when the largest is odd.
    return tie if f.largest & 1 else tie + 1


def _format(base: str) -> _Format:
    found = _FORMATS.get(base)
    if found is None:
        raise unsupported(
            "TW0601", f"the LLVM emitter has no conversion for dtype {base}", "use float8_e4m3fn or float8_e5m2"
        )
    return found


def convert(w: Writer, value: str, source: str, target: str) -> str:
    """`value` of dtype `source` as dtype `target` (same lanes): C's conversions; floats to integers truncate."""
    if source == target:
        return value
    if is_small_float(source):
        value, source = to_float32(w, value, source), dt.with_lanes("float32", dt.lanes(source))
    if is_small_float(target):
        middle = dt.with_lanes("float32", dt.lanes(target))
        return from_float32(w, convert(w, value, source, middle), target)
    ts, tt = llvm_type(source), llvm_type(target)
    if ts == tt and dt.is_bool(source) == dt.is_bool(target):
        return value
    if dt.is_float(source):
        return _from_float(w, value, source, target)
    if dt.is_float(target):
        return w.op(f"{'uitofp' if dt.is_uint(source) else 'sitofp'} {ts} {value} to {tt}")
    return _integer(w, value, source, target)


def _from_float(w: Writer, value: str, source: str, target: str) -> str:
    ts, tt = llvm_type(source), llvm_type(target)
    if dt.is_bool(target):
        return w.op(f"fcmp une {ts} {value}, zeroinitializer" if ts[0] == "<" else f"fcmp une {ts} {value}, 0.0")
    if dt.is_float(target):
        return w.op(f"{'fpext' if dt.bits(target) > dt.bits(source) else 'fptrunc'} {ts} {value} to {tt}")
    n = dt.lanes(target)
    if dt.bits(target) < 32 or target == "uint32":
        # Through a wider signed integer: negative numbers then wrap as they do in numpy.
        wide = llvm_type(dt.with_lanes("int64" if target == "uint32" else "int32", n))
        return w.op(f"trunc {wide} {w.op(f'fptosi {ts} {value} to {wide}')} to {tt}")
    return w.op(f"{'fptoui' if dt.is_uint(target) else 'fptosi'} {ts} {value} to {tt}")


def _integer(w: Writer, value: str, source: str, target: str) -> str:
    ts, tt = llvm_type(source), llvm_type(target)
    if dt.is_bool(target):
        zero = "zeroinitializer" if ts[0] == "<" else "null" if ts == "ptr" else "0"
        return w.op(f"icmp ne {ts} {value}, {zero}")
    if ts == "ptr":
        return w.op(f"ptrtoint ptr {value} to {tt}")
    if tt == "ptr":
        return w.op(f"inttoptr {ts} {value} to ptr")
    a, b = dt.bits(source), dt.bits(target)
    if a == b:
        return value
    if b < a:
        return w.op(f"trunc {ts} {value} to {tt}")
    return w.op(f"{'zext' if dt.is_uint(source) else 'sext'} {ts} {value} to {tt}")
