"""int4 and uint4 arrays: two elements a byte, the first in the low half, as DLPack packs them; numpy has one a byte."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import dtype as dt

__all__ = ["SUBBYTE", "pack", "unpack"]

SUBBYTE = ("int4", "uint4")
"""The dtypes whose elements share bytes."""


def pack(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bytes of an array of int4 or uint4."""
    flat = array.astype(np.int8).view(np.uint8).reshape(-1) & 15
    if flat.size % 2:
        flat = np.append(flat, np.uint8(0))
    return flat[0::2] | flat[1::2] << 4


def unpack(data: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """The array of `dtype` whose bytes are `data` (uint8), in ml_dtypes' form."""
    count = int(np.prod(shape, dtype=np.int64))
    halves = np.stack([data & 15, data >> 4], axis=-1).reshape(-1)[:count].astype(np.int8)
    if dtype == "int4":
        halves = np.where(halves > 7, halves - 16, halves).astype(np.int8)
    return halves.astype(dt.to_numpy(dtype)).reshape(shape)
