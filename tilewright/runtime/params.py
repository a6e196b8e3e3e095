"""Parameters of a model as bytes: a zip of numpy's `.npy` files, one an array, which numpy.load opens too."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.runtime.dtypes import numpy_name

__all__ = ["load_param_dict", "load_param_dict_from_file", "save_param_dict", "save_param_dict_to_file"]


def save_param_dict(params: Mapping[str, Any]) -> bytes:
    """The arrays (numpy, or anything with DLPack) by name, as bytes. Raises TypeError for a value that is no array."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, value in params.items():
            array = value if isinstance(value, np.ndarray) else _numpy(name, value)
            kind = numpy_name(array.dtype)
            raw = np.ascontiguousarray(array)
            data = io.BytesIO()
            np.save(data, raw if raw.dtype.isbuiltin else raw.view(f"u{raw.itemsize}"))
            archive.writestr(f"{name}.{kind}.npy", data.getvalue())
    return out.getvalue()


def _numpy(name: str, value: Any) -> np.ndarray[Any, Any]:
    if not hasattr(value, "__dlpack__"):
        raise TypeError(f"the parameter {name!r} is no array but {type(value).__name__}")
    from tilewright.runtime import ffi

    return ffi.to_numpy(ffi.tensor_from(value))


def load_param_dict(param_bytes: bytes | bytearray) -> dict[str, Any]:
    """The arrays by name, as NDArrays. Raises ValueError for bytes that `save_param_dict` did not make."""
    from tilewright.ir import dtype as dt
    from tilewright.runtime.ndarray import array

    try:
        archive = zipfile.ZipFile(io.BytesIO(param_bytes))
    except zipfile.BadZipFile as error:
        raise ValueError(f"these bytes are no saved parameters: {error}") from error
    out: dict[str, Any] = {}
    for entry in archive.namelist():
        name, kind, _ = entry.rsplit(".", 2)
        data: np.ndarray[Any, Any] = np.load(io.BytesIO(archive.read(entry)))
        out[name] = array(data.view(dt.to_numpy(kind)))
    return out


def save_param_dict_to_file(params: Mapping[str, Any], path: str | PathLike[str]) -> None:
    """Write the arrays to a file."""
    Path(path).write_bytes(save_param_dict(params))


def load_param_dict_from_file(path: str | PathLike[str]) -> dict[str, Any]:
    """Read the arrays of a file."""
    return load_param_dict(Path(path).read_bytes())
