"""Data types are interned strings in the field's spelling: `float32`, `int8x4`, `bool`, `bfloat16`, `handle`, `void`.

`<code><bits>[x<lanes>]`, or `x vscalex<lanes>` without the blank for vectors whose length the machine decides: a multiple of
that many lanes, counted here as -lanes; `bool` is a 1-bit unsigned integer that is stored in a byte. Functions here are cached, so asking
costs a dictionary look-up.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "DataType",
    "Parts",
    "bits",
    "canonical",
    "code",
    "element",
    "is_bool",
    "is_float",
    "is_int",
    "is_uint",
    "lanes",
    "max_value",
    "min_value",
    "parse",
    "storage_bytes",
    "to_numpy",
    "with_lanes",
]

_PATTERN = re.compile(
    r"(bool|handle|void|bfloat|float8_[a-wyz0-9]+|float4_[a-wyz0-9]+|float|int|uint)(\d*)(?:x(vscalex)?(\d+))?$",
    re.ASCII,
)


class Parts(NamedTuple):
    """The parts of a dtype: `code` (`int`, `uint`, `float`, `bfloat`, `float8_e4m3fn`, `bool`, `handle`, `void`), bits, lanes."""

    code: str
    bits: int
    lanes: int


@cache
def parse(dtype: str) -> Parts:
    """The parts of `dtype`. Raises ValueError on text that is no dtype."""
    match = _PATTERN.match(dtype)
    if match is None:
        raise ValueError(f"{dtype!r} is not a dtype; examples: float32, int64, bool, bfloat16, float32x8")
    name, width, scalable, count = match.groups()
    if name == "bool":
        size = 1
    elif name.startswith("float8"):
        size = 8
    elif name.startswith("float4"):
        size = 4
    elif name == "handle":
        size = 64
    elif name == "void":
        size = 0
    else:
        size = int(width) if width else 32
    return Parts(name, size, (-int(count) if scalable else int(count)) if count else 1)


_OTHER_NAMES = {
    "e4m3_float8": "float8_e4m3fn",
    "e5m2_float8": "float8_e5m2",
    "boolean": "bool",
    "uint1": "bool",
    "": "void",
}


@cache
def canonical(dtype: str) -> str:
    """The spelling used here of a dtype that programs may spell otherwise: `e4m3_float8x4` is `float8_e4m3fnx4`."""
    if dtype in _OTHER_NAMES:
        return _OTHER_NAMES[dtype]
    base, _, count = dtype.rpartition("x")
    return f"{_OTHER_NAMES[base]}x{count}" if base in _OTHER_NAMES and count.isdigit() else dtype


@cache
def lanes(dtype: str) -> int:
    """How many elements a value of this dtype holds; -n for a scalable vector: n for each `vscale` of the machine."""
    return parse(dtype).lanes


@cache
def bits(dtype: str) -> int:
    """Bits of one element."""
    return parse(dtype).bits


@cache
def code(dtype: str) -> str:
    """The kind of the element: `int`, `uint`, `float`, `bfloat`, `float8_*`, `bool`, `handle`, `void`."""
    return parse(dtype).code


@cache
def element(dtype: str) -> str:
    """The dtype of one lane."""
    return dtype.partition("x")[0] if lanes(dtype) != 1 else dtype


@cache
def with_lanes(dtype: str, n: int) -> str:
    """The same element type with `n` lanes."""
    base = element(dtype)
    return base if n == 1 else f"{base}x{n}" if n > 0 else f"{base}xvscalex{-n}"


@cache
def is_float(dtype: str) -> bool:
    """Is the element a floating-point number of any format?"""
    return "float" in code(dtype)


@cache
def is_int(dtype: str) -> bool:
    """Is the element an integer, signed or not (bool is not)?"""
    return code(dtype) in ("int", "uint")


@cache
def is_uint(dtype: str) -> bool:
    """Is the element unsigned (bool counts)?"""
    return code(dtype) in ("uint", "bool")


@cache
def is_bool(dtype: str) -> bool:
    """Is the element a bool?"""
    return code(dtype) == "bool"


@cache
def storage_bytes(dtype: str) -> int:
    """Bytes of one value (all lanes) in memory; sub-byte elements are packed, a lone one takes a byte."""
    d = parse(dtype)
    if d.code == "bool":
        return d.lanes
    return (d.bits * d.lanes + 7) // 8


@cache
def min_value(dtype: str) -> int:
    """The least integer of an integer dtype."""
    d = parse(dtype)
    return 0 if d.code in ("uint", "bool") else -(1 << (d.bits - 1))


@cache
def max_value(dtype: str) -> int:
    """The greatest integer of an integer dtype."""
    d = parse(dtype)
    return (1 << d.bits) - 1 if d.code in ("uint", "bool") else (1 << (d.bits - 1)) - 1


@cache
def to_numpy(dtype: str) -> np.dtype[Any]:
    """The numpy dtype of one element; bfloat16, float8, int4 come from the `ml_dtypes` package."""
    base = element(dtype)
    if base.startswith(("bfloat", "float8", "float4", "int4", "uint4", "int2", "uint2")):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, base))
    return np.dtype(base)


class DataType(str):
    """A dtype as an object: the text itself, with its parts. Raises ValueError for text that is no dtype."""

    __slots__ = ()

    def __new__(cls, type_str: str) -> DataType:
        """`DataType("float32x4")`"""
        parse(str(type_str))
        return super().__new__(cls, str(type_str))

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return bits(self)

    @property
    def lanes(self) -> int:
        """How many elements a value holds."""
        return lanes(self)

    @property
    def itemsize(self) -> int:
        """Bytes of a value."""
        return (self.bits * self.lanes + 7) // 8

    @property
    def type_code(self) -> int:
        """DLPack's number of the kind."""
        return _TYPE_CODES.get(code(self), 0)

    def with_lanes(self, n: int) -> DataType:
        """The same element with another number of lanes."""
        return DataType(with_lanes(str(self), n))


_TYPE_CODES = {"int": 0, "uint": 1, "float": 2, "handle": 3, "bfloat": 4, "bool": 6}
