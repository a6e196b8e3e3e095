"""What instructions of machines mean, on numpy vectors: those that the tensor intrinsics use, under LLVM's names.

`MEANINGS[name](*arguments)` gives the result; integers wrap as the instructions do. `__dp4a` is CUDA's function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["MEANINGS"]


def _groups(x: Any, dtype: str, size: int) -> Any:
    """A vector's bits as rows of `size` elements of a type, widened to 64 bits."""
    return np.ascontiguousarray(x).view(dtype).reshape(-1, size).astype(np.int64)


def _wrapped(x: Any) -> Any:
    return x.astype(np.int64).astype(np.int32)


def _dots(a: str, b: str, size: int) -> Callable[..., Any]:
    """acc + sums of `size` products of the elements in each word of x (of type a) and y (of type b)."""

    def run(acc: Any, x: Any, y: Any) -> Any:
        total = (_groups(x, a, size) * _groups(y, b, size)).sum(1)
        kept = np.asarray(acc)
        return _wrapped(kept.astype(np.int64) + total).view(kept.dtype if kept.dtype.itemsize == 4 else np.int32)

    return run


def _pairs_saturated(x: Any, y: Any) -> Any:
    total = (_groups(x, "uint8", 2) * _groups(y, "int8", 2)).sum(1)
    return np.clip(total, -(1 << 15), (1 << 15) - 1).astype(np.int16)


def _word(x: Any, dtype: str) -> Any:
    """Four bytes of a word or a vector."""
    a = np.asarray(x)
    return (np.asarray([int(x)], np.int64).astype(np.int32).view(dtype) if a.ndim == 0 else a).astype(np.int64)


def _sdot4(x: Any, y: Any, acc: Any, clamp: Any) -> int:
    del clamp  # four products of bytes do not leave 32 bits; the accumulator may
    return int(np.clip(int(acc) + int((_word(x, "int8") * _word(y, "int8")).sum()), -(1 << 31), (1 << 31) - 1))


def _dp4a(x: Any, y: Any, acc: Any = 0) -> int:
    return int(_wrapped(np.asarray([int(acc) + int((_word(x, "int8") * _word(y, "int8")).sum())]))[0])


def _add_pairs(x: Any, y: Any) -> Any:
    return _wrapped(np.concatenate([_groups(x, "int32", 2).sum(1), _groups(y, "int32", 2).sum(1)]))


MEANINGS: dict[str, Callable[..., Any]] = {
    "llvm.x86.avx512.vpdpbusd.512": _dots("uint8", "int8", 4),
    "llvm.x86.avx512.pmaddubs.w.512": _pairs_saturated,
    "llvm.x86.avx512.pmaddw.d.512": lambda x, y: _wrapped((_groups(x, "int16", 2) * _groups(y, "int16", 2)).sum(1)),
    "llvm.aarch64.neon.smull.v8i16": lambda x, y: (np.asarray(x, np.int16) * np.asarray(y, np.int16)).astype(np.int16),
    "llvm.aarch64.neon.saddlp.v4i32.v8i16": lambda x: _wrapped(_groups(x, "int16", 2).sum(1)),
    "llvm.aarch64.neon.addp.v4i32": _add_pairs,
    "llvm.aarch64.neon.sdot.v4i32.v16i8": _dots("int8", "int8", 4),
    "llvm.aarch64.neon.udot.v4i32.v16i8": _dots("uint8", "uint8", 4),
    "llvm.amdgcn.sdot4": _sdot4,
    "llvm.hexagon.V6.vrmpyubv.acc.128B": _dots("uint8", "uint8", 4),
    "llvm.hexagon.V6.vrmpybusv.acc.128B": _dots("uint8", "int8", 4),
    "llvm.hexagon.V6.vdmpyhvsat.acc.128B": _dots("int16", "int16", 2),
    "__dp4a": _dp4a,
}
"""By name; what is not here, the interpreter does not run."""
