"""Small functions that generated sources carry, only where they are used: floor division, NaN-keeping min and max, small floats.

A helper is known by its name, `tw_<what>_<dtype>`; its text is C that every dialect accepts, with the dialect's type names.
The conversions of small floats follow backends/llvm/emit_cast.py: round to nearest even, subnormals, NaN stays NaN.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.ir import dtype as dt
from tilewright.support.diagnostics import CompileError

if TYPE_CHECKING:
    from tilewright.backends.source.dialect import Dialect
    from tilewright.backends.source.writer import SourceModule

__all__ = ["helper_text", "long", "short"]

_SHORT = {"int": "i", "uint": "u", "float": "f", "bfloat": "bf", "bool": "b"}


def short(dtype: str) -> str:
    """`f32` for float32; float8 formats keep their names."""
    d = dt.parse(dtype)
    name = _SHORT.get(d.code)
    return f"{name}{d.bits}" if name else d.code


def long(name: str) -> str:
    """The dtype of a short name."""
    for code, letter in (("uint", "u"), ("bfloat", "bf"), ("int", "i"), ("float", "f"), ("bool", "b")):
        if name.startswith(letter) and name[len(letter) :].isdigit():
            return "bool" if code == "bool" else code + name[len(letter) :]
    return name


class _Format(NamedTuple):
    exponent: int
    mantissa: int
    bias: int
    infinite: bool
    nan: int
    largest: int


_FORMATS = {
    "float16": _Format(5, 10, 15, True, 0x7E00, 0x7BFF),
    "bfloat16": _Format(8, 7, 127, True, 0x7FC0, 0x7F7F),
    "float8_e5m2": _Format(5, 2, 15, True, 0x7E, 0x7B),
    "float8_e4m3fn": _Format(4, 3, 7, False, 0x7F, 0x7E),
}


def helper_text(d: Dialect, mod: SourceModule, name: str) -> str:
    """The text of a helper. Raises CompileError TW0662 where a dtype has no conversion."""
    what, _, rest = name.removeprefix("tw_").partition("_")
    writers: Any = {
        "min": _minmax, "max": _minmax, "floordiv": _floordiv, "floormod": _floormod, "from": _from_small, "to": _to_small,
        "bits": _bits, "popcount": _popcount, "clz": _clz,
    }  # fmt: skip
    return writers[what](d, mod, what, rest)


def _function(d: Dialect, result: str, name: str, params: str, body: str) -> str:
    return f"{d.static} {result} {name}({params}) {{\n  {body}\n}}"


def _minmax(d: Dialect, mod: SourceModule, what: str, rest: str) -> str:
    dtype = long(rest)
    ty, sign = d.type(dtype), "<" if what == "min" else ">"
    nan = " || a != a" if dt.is_float(dtype) else ""
    return _function(d, ty, f"tw_{what}_{rest}", f"{ty} a, {ty} b", f"return a {sign} b{nan} ? a : b;")


def _floordiv(d: Dialect, mod: SourceModule, what: str, rest: str) -> str:
    ty = d.type(long(rest))
    body = f"{ty} q = a / b;\n  {ty} r = a % b;\n  return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;"
    return _function(d, ty, f"tw_floordiv_{rest}", f"{ty} a, {ty} b", body)


def _floormod(d: Dialect, mod: SourceModule, what: str, rest: str) -> str:
    dtype = long(rest)
    ty = d.type(dtype)
    if dt.is_float(dtype):
        mod.include("math.h")
        fmod = "fmod" + (d.f32_suffix if dtype == "float32" else "")
        body = f"{ty} r = {fmod}(a, b);\n  return r != 0 && (r < 0) != (b < 0) ? r + b : r;"
    else:
        body = f"{ty} r = a % b;\n  return r != 0 && (r < 0) != (b < 0) ? r + b : r;"
    return _function(d, ty, f"tw_floormod_{rest}", f"{ty} a, {ty} b", body)


def _popcount(d: Dialect, mod: SourceModule, what: str, rest: str) -> str:
    ty, result = d.type("u" + long(rest).lstrip("u")), d.type("int32")
    body = f"{result} n = 0;\n  for (; x != 0; x &= x - 1) ++n;\n  return n;"
    return _function(d, result, f"tw_popcount_{rest}", f"{ty} x", body)


def _clz(d: Dialect, mod: SourceModule, what: str, rest: str) -> str:
    dtype = "u" + long(rest).lstrip("u")
    ty, result, bits = d.type(dtype), d.type("int32"), dt.bits(dtype)
    body = f"{result} n = {bits};\n  for (; x != 0; x >>= 1) --n;\n  return n;"
    return _function(d, result, f"tw_clz_{rest}", f"{ty} x", body)


def _bits(d: Dialect, mod: SourceModule, what: str, rest: str) -> str:
    a, _, b = rest.partition("_")
    source, target = long(a), long(b)
    return _function(d, d.type(target), f"tw_bits_{rest}", f"{d.type(source)} x", d.bits_cast(source, target))


def _format(d: Dialect, dtype: str) -> _Format:
    found = _FORMATS.get(dtype)
    if found is None:
        raise CompileError.at(
            "TW0662", f"{d.title} has no conversion for dtype {dtype}", hint="use float8_e4m3fn or float8_e5m2"
        )
    return found


def _from_small(d: Dialect, mod: SourceModule, what: str, rest: str) -> str:
    dtype = long(rest)
    f = _format(d, dtype)
    to_float = mod.helper("tw_bits_u32_f32")
    u32, ty = d.type("uint32"), d.type(dtype)
    if dtype == "bfloat16":
        return _function(d, "float", f"tw_from_{rest}", f"{ty} x", f"return {to_float}(({u32})x << 16);")
    bits = mod.helper("tw_bits_f32_u32")
    size = f.exponent + f.mantissa
    scale = 2.0 ** (127 - f.bias)
    top = ((1 << f.exponent) - 1) << f.mantissa
    if f.infinite:
        special = f"if (rest >= 0x{top:X}u) value = 0x7F800000u | rest << {23 - f.mantissa};"
    else:
        special = f"if (rest == 0x{f.nan:X}u) value = 0x7FC00000u;"
    lines = [
        f"{u32} sign = ({u32})(x >> {size}) << 31;",
        f"{u32} rest = x & 0x{(1 << size) - 1:X}u;",
        f"{u32} value = {bits}({to_float}(rest << {23 - f.mantissa}) * {scale!r}f);",
        special,
        f"return {to_float}(sign | value);",
    ]
    return _function(d, "float", f"tw_from_{rest}", f"{ty} x", "\n  ".join(lines))


def _to_small(d: Dialect, mod: SourceModule, what: str, rest: str) -> str:
    dtype = long(rest)
    f = _format(d, dtype)
    bits = mod.helper("tw_bits_f32_u32")
    u32, ty = d.type("uint32"), d.type(dtype)
    if dtype == "bfloat16":
        lines = [
            f"{u32} b = {bits}(x);",
            f"if (x != x) return ({ty})(b >> 16 | 0x40u);",
            f"return ({ty})((b + 0x7FFFu + (b >> 16 & 1u)) >> 16);",
        ]
        return _function(d, ty, f"tw_to_{rest}", "float x", "\n  ".join(lines))
    to_float = mod.helper("tw_bits_u32_f32")
    size, cut = f.exponent + f.mantissa, 23 - f.mantissa
    rebias = ((127 - f.bias) << 23) - ((1 << (cut - 1)) - 1)
    magic = 2.0 ** (1 - f.bias - f.mantissa + 23)
    over = f.largest + 1 if f.infinite else f.nan
    lines = [
        f"{u32} b = {bits}(x);",
        f"{u32} sign = b >> 31 << {size};",
        f"{u32} rest = b & 0x7FFFFFFFu;",
        f"{u32} value = (rest - 0x{rebias:X}u + (rest >> {cut} & 1u)) >> {cut};",
        f"if (rest < 0x{_f32_bits(2.0 ** (1 - f.bias)):X}u) value = {bits}({to_float}(rest) + {magic!r}f) - 0x{_f32_bits(magic):X}u;",
        f"if (rest >= 0x{_overflow_bits(f):X}u) value = 0x{over:X}u;",
        f"if (x != x) value = 0x{f.nan:X}u;",
        f"return ({ty})(sign | value);",
    ]
    return _function(d, ty, f"tw_to_{rest}", "float x", "\n  ".join(lines))


def _f32_bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def _overflow_bits(f: _Format) -> int:
    """The least float32 magnitude that rounds beyond the largest number."""
    exponent = (f.largest >> f.mantissa) - f.bias
    largest = (1 + (f.largest & ((1 << f.mantissa) - 1)) / (1 << f.mantissa)) * 2.0**exponent
    tie = _f32_bits(largest + 2.0 ** (exponent - f.mantissa) / 2)
    return tie if f.largest & 1 else tie + 1
