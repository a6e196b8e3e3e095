"""Names of numpy's dtypes, remembered: numpy takes 20 us to tell one."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["numpy_name"]

_NAMES: dict[np.dtype[Any], str] = {}


def numpy_name(dtype: np.dtype[Any]) -> str:
    """`float32` and so on, whatever the byte order."""
    found = _NAMES.get(dtype)
    if found is None:
        found = _NAMES[dtype] = dtype.name
    return found
