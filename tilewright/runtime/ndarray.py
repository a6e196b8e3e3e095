"""Tensors and devices under their known names: `nd.array`, `nd.empty`, `cpu()`, `tensor`.

Built on `tvm_ffi`, which is imported when the first of these is called. Arrays know DLPack both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt

__all__ = [
    "array", "cl", "convert", "cpu", "cuda", "device", "empty", "from_dlpack", "gpu", "metal", "numpyasarray", "opencl", "rocm", "tensor",
    "vulkan", "webgpu",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The classes `NDArray`, `Tensor`, `Device`, `ShapeTuple`: they need `tvm_ffi`, so they are made when asked for."""
    if name in ("NDArray", "Tensor", "Device", "ShapeTuple"):
        from tilewright.runtime import ffi

        return ffi.Device if name == "Device" else ffi.ffi.Shape if name == "ShapeTuple" else ffi.NDArray
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def device(kind: Any = "cpu", index: int | None = None) -> Any:
    """The device `kind` ("cpu", "cpu:0", DLPack's number) with number `index`."""
    from tilewright.runtime import ffi

    if isinstance(kind, str) and ":" in kind and index is None:
        kind, _, number = kind.partition(":")
        index = int(number)
    if isinstance(kind, str) and kind in ("llvm", "c"):
        kind = "cpu"
    return ffi.Device(kind, index or 0)


def cpu(index: int = 0) -> Any:
    """The CPU."""
    return device("cpu", index)


def _kind(name: str, text: str) -> Any:
    def make(index: int = 0) -> Any:
        return device(name, index)

    make.__doc__ = text
    make.__name__ = make.__qualname__ = name
    return make


cuda = gpu = _kind("cuda", "A CUDA GPU.")
opencl = cl = _kind("opencl", "A device of OpenCL.")
metal = _kind("metal", "A GPU of Apple's.")
vulkan = _kind("vulkan", "A device of Vulkan.")
rocm = _kind("rocm", "A GPU of AMD's.")
webgpu = _kind("webgpu", "A device of WebGPU.")


def _where(where: Any) -> Any:
    return device(where) if isinstance(where, str) else where


def empty(shape: int | Sequence[int], dtype: str = "float32", device: Any = None, mem_scope: str | None = None) -> Any:
    """A new array whose contents are undefined. Raises ValueError for a bad shape, dtype or device."""
    from tilewright.runtime import ffi

    if mem_scope not in (None, "", "global"):
        raise ValueError(f"arrays live in the global memory of a device, not in {mem_scope!r}")
    dims = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)
    return ffi.allocate(dims, str(dtype), _where(device))


def array(arr: Any, device: Any = None, mem_scope: str | None = None) -> Any:
    """A new array on `device` (the CPU) with the contents of `arr`: numpy, nested lists, a tensor with DLPack. Always a copy.

    Lists take numpy's dtype, but float64 becomes float32, as in the field's `nd.array`.
    """
    from tilewright.runtime import ffi

    if mem_scope not in (None, "", "global"):
        raise ValueError(f"arrays live in the global memory of a device, not in {mem_scope!r}")
    if hasattr(arr, "__dlpack__") and not isinstance(arr, np.ndarray):
        source = ffi.to_numpy(ffi.tensor_from(arr))
    else:
        listed = not isinstance(arr, (np.ndarray, np.generic))
        source = np.asarray(arr)
        if listed and source.dtype == np.float64:
            source = source.astype(np.float32)
    name = str(source.dtype)
    try:
        out = ffi.allocate(source.shape, dt.parse(name) and name, _where(device))
    except ValueError as e:
        raise ValueError(f"cannot make an array of {type(arr).__name__} with dtype {name}: {e}") from None
    if source.size:
        out.copyfrom(source)
    return out


def from_dlpack(source: Any) -> Any:
    """An array that shares the memory of anything with DLPack (torch, numpy, jax, ...)."""
    from tilewright.runtime import ffi

    return ffi.tensor_from(source)


tensor = array


def convert(value: Any) -> Any:
    """A Python value as an FFI object: functions, lists, dictionaries, strings, numbers; arrays become NDArrays."""
    from tilewright.runtime import ffi

    return ffi.tensor_from(value) if hasattr(value, "__dlpack__") else ffi.ffi.convert(value)


def numpyasarray(source: Any) -> Any:
    """An array that shares the memory of a numpy array."""
    return from_dlpack(source)
