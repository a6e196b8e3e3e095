"""What is built on the `tvm_ffi` package: the tensor and device classes. Import this module only when something is called.

`tvm_ffi` makes a Python object for every tensor that comes out of a native call; from here on these are our `NDArray`s,
unless another package has set its own class before.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.runtime.device_api import api_of, required_api
from tilewright.runtime.dtypes import numpy_name
from tilewright.runtime.subbyte import SUBBYTE, pack, unpack
from tilewright.support.lazy import resolve
from tilewright.version import __version__

__all__ = ["Device", "NDArray", "ffi", "function_at", "tensor_from", "to_numpy", "write"]


def _import_ffi() -> Any:
    """The package `tvm_ffi`. By itself it imports torch, where torch is installed, which takes seconds; it needs it only for a
    clash of symbols seen on Windows. A program that uses torch has imported it before, and then nothing is kept away."""
    if "torch" in sys.modules or "tvm_ffi" in sys.modules or sys.platform == "win32":
        return import_module("tvm_ffi")
    sys.modules["torch"] = None  # pyright: ignore[reportArgumentType]  (imports of it fail until it is taken out again)
    try:
        return import_module("tvm_ffi")
    finally:
        del sys.modules["torch"]


_TESTED = "0.1.15"

ffi: Any = _import_ffi()
if not str(ffi.__version__).startswith(_TESTED):
    warnings.warn(
        f"apache-tvm-ffi {ffi.__version__} is installed; tilewright {__version__} was tested with {_TESTED}",
        RuntimeWarning,
        stacklevel=2,
    )
_core: Any = import_module("tvm_ffi.core")

_DEVICE_CODES = {"llvm": 1, "stackvm": 1, "cpu": 1, "c": 1, "hybrid": 1, "cuda": 2, "nvptx": 2, "cl": 4, "opencl": 4, "vulkan": 7,
                 "metal": 8, "rocm": 10, "webgpu": 15, "hexagon": 16}  # fmt: skip


_ATTRIBUTES = frozenset(
    [
        "max_threads_per_block",
        "warp_size",
        "max_shared_memory_per_block",
        "compute_version",
        "device_name",
        "max_clock_rate",
        "multi_processor_count",
        "max_thread_dimensions",
        "api_version",
        "driver_version",
        "l2_cache_size_bytes",
        "total_global_memory",
        "available_global_memory",
    ]
)


class Device(_core.Device):  # type: ignore[misc]
    """A device: `device_type` (DLPack's number) and `device_id`."""

    @property
    def device_type(self) -> int:
        """DLPack's number of the kind of device: 1 for the CPU."""
        return int(self.dlpack_device_type())

    @property
    def device_id(self) -> int:
        """Which of the devices of that kind."""
        return int(self.index)

    @property
    def exist(self) -> bool:
        """Is there such a device here?"""
        if self.device_type == 1:
            return self.device_id == 0
        api = api_of(self.device_type)
        return api is not None and api.reason() is None and self.device_id < api.count()

    def sync(self, stream: Any = None) -> None:
        """Wait for the work on the device; work on the CPU is done when its call returns."""
        del stream
        if self.device_type != 1:
            required_api(self.device_type, self.device_id).sync(self.device_id)

    def __getattr__(self, name: str) -> Any:
        """What is known of the device: `max_threads_per_block`, `warp_size`, `max_shared_memory_per_block`, `compute_version`,
        `device_name`, `max_clock_rate`, `multi_processor_count`, `max_thread_dimensions`, `total_global_memory`, ...

        None for the CPU, and where the device does not say. Raises CompileError TW0670 where there is no such device.
        """
        if name not in _ATTRIBUTES:
            raise AttributeError(f"a device has no attribute {name!r}")
        if self.device_type == 1:
            return None
        return required_api(self.device_type, self.device_id).attributes(self.device_id).get(name)


class NDArray(_core.Tensor):  # type: ignore[misc]
    """A tensor in memory that generated code works on. Shares memory with whatever it was made from by DLPack."""

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy as a numpy array. (`np.from_dlpack(x)` gives a view.)"""
        return to_numpy(self).copy()

    asnumpy = numpy

    def copyto(self, target: Any) -> Any:
        """Copy into another array of the same shape and dtype, or onto a device as a new one; the target.

        Raises ValueError where shapes differ and TypeError where `target` is neither array nor device.
        """
        if isinstance(target, _core.Device):
            fresh = allocate(self.shape, str(self.dtype), target)
            return fresh.copyfrom(self)
        if not isinstance(target, NDArray):
            raise TypeError(f"copyto takes an array or a device, got {type(target).__name__}")
        return target.copyfrom(self)

    def copyfrom(self, source: Any) -> NDArray:
        """Copy from an array (numpy or anything with DLPack), converted to this dtype; itself.

        Raises ValueError where the shapes differ.
        """
        value = source if isinstance(source, _core.Tensor) else np.asarray(source)
        if tuple(value.shape) != tuple(self.shape):
            raise ValueError(
                f"cannot copy an array of shape {tuple(value.shape)} into one of shape {tuple(self.shape)}"
            )
        if is_on_cpu(self):
            write(self, to_numpy(value) if isinstance(value, _core.Tensor) else value)
        else:
            to_device(self, value)
        return self

    def __getitem__(self, index: Any) -> Any:
        return to_numpy(self)[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if not is_on_cpu(self):
            raise TypeError(f"elements of an array on {self.device} cannot be set; copyfrom() copies a whole array")
        whole = to_numpy(self)
        whole[index] = to_numpy(value) if isinstance(value, _core.Tensor) else value
        if str(self.dtype) in SUBBYTE:
            write(self, whole)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        view = to_numpy(self)
        return view.astype(dtype) if dtype is not None and view.dtype != dtype else view.copy() if copy else view

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return int(self.shape[0])

    def __repr__(self) -> str:
        return f"<tilewright.nd.NDArray shape={tuple(self.shape)}, {self.device}>\n{to_numpy(self)!r}"

    def same_as(self, other: Any) -> bool:
        """Is it the same memory?"""
        return isinstance(other, _core.Tensor) and self.data_ptr() == other.data_ptr() and self.shape == other.shape

    def to_device(self, device: Any) -> NDArray:
        """A copy on `device`."""
        return self.copyto(device)


_LOCK = threading.RLock()
if _core._CLASS_TENSOR is _core.Tensor:
    _core._set_class_tensor(NDArray)
if _core._CLASS_DEVICE is _core.Device:
    _core._set_class_device(Device)


def _as_ndarray(make: Any) -> Any:
    """What `make` makes, as our class even where another package's class is set."""
    if _core._CLASS_TENSOR is NDArray:
        return make()
    with _LOCK:
        before = _core._CLASS_TENSOR
        _core._set_class_tensor(NDArray)
        try:
            return make()
        finally:
            _core._set_class_tensor(before)


class _Alias:
    """The memory of an array that may not be written to, as one that may: plain DLPack has no word for read-only, and
    generated code only reads its inputs. Keeps the array alive."""

    def __init__(self, source: np.ndarray[Any, Any]) -> None:
        self.source = source
        self.__array_interface__ = {
            **source.__array_interface__,
            "data": (source.__array_interface__["data"][0], False),
        }


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]  # fmt: skip


_EXOTIC = {"bfloat16": (4, 16), "float8_e3m4": (7, 8), "float8_e4m3": (8, 8), "float8_e4m3b11fnuz": (9, 8), "float8_e4m3fn": (10, 8),
           "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8), "float8_e5m2fnuz": (13, 8), "float8_e8m0fnu": (14, 8)}  # fmt: skip
"""Element types that numpy's DLPack does not know: (code, bits)."""


def tensor_from(source: Any) -> Any:
    """An NDArray that shares memory with `source`: a numpy array (read-only and ml_dtypes ones too), or anything with DLPack.

    Raises TypeError for what has no DLPack, BufferError where the exporter refuses.
    """
    if isinstance(source, NDArray):
        return source
    if isinstance(source, np.ndarray):
        if numpy_name(source.dtype) in _EXOTIC:
            return _exotic(source)
        if numpy_name(source.dtype) in SUBBYTE:
            return packed(source)
        if not source.flags.writeable:
            source = np.asarray(_Alias(source))
    elif not hasattr(source, "__dlpack__"):
        raise TypeError(f"a {type(source).__name__} is no array: it has no __dlpack__")
    return _as_ndarray(lambda: ffi.from_dlpack(source))


def _exotic(source: np.ndarray[Any, Any]) -> Any:
    """A tensor of a dtype that numpy cannot export: the same memory as unsigned integers, then seen as the dtype."""
    code, bits = _EXOTIC[numpy_name(source.dtype)]
    plain = tensor_from(source.view(np.uint16 if bits == 16 else np.uint8))
    return _view_as(plain, source.shape, code, bits)


def _view_as(plain: Any, shape: Sequence[int], code: int, bits: int) -> Any:
    n = len(shape)
    dims = (ctypes.c_int64 * max(n, 1))(*shape)
    strides = (ctypes.c_int64 * max(n, 1))(*(plain.strides or ()))
    proto = _DLTensor(
        plain.data_ptr(), 1, 0, n, code, bits, 1, ctypes.addressof(dims), ctypes.addressof(strides), 0
    )  # fmt: skip
    return _as_ndarray(lambda: _unsafe_view(plain, proto))


class _Any(ctypes.Structure):
    _fields_ = [("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", ctypes.c_void_p)]


def _unsafe_view(source: Any, proto: _DLTensor) -> Any:
    """TVMFFITensorCreateUnsafeView through a function of our own, so that the FFI wraps what comes out."""

    def call(_: Any, args: Any, count: int, result: Any) -> int:
        out = ctypes.c_void_p()
        given = ctypes.cast(args, ctypes.POINTER(_Any))[0]
        if ffi.LIB.TVMFFITensorCreateUnsafeView(ctypes.c_void_p(given.value), ctypes.byref(proto), ctypes.byref(out)):
            return -1
        filled = ctypes.cast(result, ctypes.POINTER(_Any))
        filled[0].type_index, filled[0].value = 70, out.value
        return 0

    made = _SAFE_CALL(call)
    address = ctypes.cast(made, ctypes.c_void_p).value
    return function_at(int(address or 0), made)(source)


_SAFE_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)


def function_at(address: int, keep: Any) -> Any:
    """The FFI function at a machine address; `keep` stays alive as long as it does."""
    return ffi.Function.__from_extern_c__(address, keep_alive_object=keep)


def packed(source: np.ndarray[Any, Any]) -> Any:
    """A new tensor with the elements of an int4 or uint4 array, two a byte."""
    out = allocate(source.shape, numpy_name(source.dtype))
    write(out, source)
    return out


def _bytes_of(tensor: Any) -> np.ndarray[Any, Any]:
    """The memory of a compact tensor of int4 or uint4."""
    count = (int(np.prod(tensor.shape, dtype=np.int64)) + 1) // 2
    dims, strides = (ctypes.c_int64 * 1)(count), (ctypes.c_int64 * 1)(1)
    proto = _DLTensor(
        tensor.data_ptr(), 1, 0, 1, 1, 8, 1, ctypes.addressof(dims), ctypes.addressof(strides), 0
    )  # fmt: skip
    return np.from_dlpack(_as_ndarray(lambda: _unsafe_view(tensor, proto)))


def write(tensor: Any, value: Any) -> None:
    """Copy an array (numpy; of the same shape, or one that stretches to it) into a CPU tensor, converted to its dtype."""
    name = str(tensor.dtype)
    if name in SUBBYTE:
        _bytes_of(tensor)[...] = pack(np.broadcast_to(np.asarray(value), tuple(tensor.shape)))
    else:
        to_numpy(tensor)[...] = value


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    """A numpy view of a CPU tensor (of ours or of anything with DLPack), a copy of one on another device; ml_dtypes where numpy
    has no such type.

    Of int4 and uint4, whose elements share bytes, a copy: `write` writes them."""
    if isinstance(tensor, _core.Tensor) and not is_on_cpu(tensor):
        return from_device(tensor)
    name = str(getattr(tensor, "dtype", ""))
    if name in SUBBYTE and isinstance(tensor, _core.Tensor):
        return unpack(_bytes_of(tensor), tuple(tensor.shape), name)
    if name in _EXOTIC and isinstance(tensor, _core.Tensor):
        plain = _view_as(tensor, tensor.shape, 1, _EXOTIC[name][1])
        return np.from_dlpack(plain).view(dt.to_numpy(name))
    return np.from_dlpack(tensor)


def is_on_cpu(tensor: Any) -> bool:
    """Is the tensor in memory that the CPU reads?"""
    return int(tensor.device.dlpack_device_type()) in (1, 3)


def allocate(shape: Sequence[int], dtype: str, device: Any = None) -> Any:
    """A new, uninitialised NDArray, 64-byte aligned, on the CPU or on `device`."""
    n = len(shape)
    for d in shape:
        if not isinstance(d, (int, np.integer)) or d < 0:
            raise ValueError(f"a shape consists of whole numbers from 0 on, got {tuple(shape)}")
    if device is not None and int(device.dlpack_device_type()) != 1:
        return _on_device(tuple(int(d) for d in shape), dtype, int(device.dlpack_device_type()), int(device.index))
    from_pool: Any = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
        resolve("runtime.pool")().addresses["tw_tensor_alloc"]
    )
    dims = (ctypes.c_int64 * max(n, 1))(*(int(d) for d in shape))
    word = dl_dtype(dtype)
    proto = _DLTensor(None, 1, 0, n, word & 255, word >> 8 & 255, word >> 16, ctypes.addressof(dims), None, 0)

    def call(_: Any, args: Any, count: int, result: Any) -> int:
        out = ctypes.c_void_p()
        if from_pool(ctypes.addressof(proto), ctypes.addressof(out)):
            return -1
        filled = ctypes.cast(result, ctypes.POINTER(_Any))
        filled[0].type_index, filled[0].value = 70, out.value
        return 0

    made = _SAFE_CALL(call)
    address = ctypes.cast(made, ctypes.c_void_p).value
    return _as_ndarray(lambda: function_at(int(address or 0), made)())


class _Managed(ctypes.Structure):
    """DLPack's DLManagedTensorVersioned."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]  # fmt: skip


_ALIVE: dict[int, tuple[Any, ...]] = {}
"""What belongs to the tensors of devices that are alive, by the address of their block."""


def _drop(address: int) -> None:
    entry = _ALIVE.pop(address, None)
    if entry is not None:
        entry[0].free(entry[1])


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_drop)


def _on_device(shape: tuple[int, ...], dtype: str, device_type: int, index: int) -> Any:
    """A tensor in the memory of a device. Raises CompileError TW0670 where there is no such device."""
    api = required_api(device_type, index)
    word, n = dl_dtype(dtype), len(shape)
    size = (int(np.prod(shape, dtype=np.int64)) * (word >> 8 & 255) * (word >> 16) + 7) // 8
    handle = api.allocate(index, max(size, 4))
    dims, strides = (ctypes.c_int64 * max(n, 1))(*shape), (ctypes.c_int64 * max(n, 1))()
    step = 1
    for i in reversed(range(n)):
        strides[i], step = step, step * shape[i]
    inner = _DLTensor(handle, device_type, index, n, word & 255, word >> 8 & 255, word >> 16, ctypes.addressof(dims),
                      ctypes.addressof(strides), 0)  # fmt: skip
    block = _Managed(1, 1, None, ctypes.cast(_DELETER, ctypes.c_void_p).value, 0, inner)
    address = ctypes.addressof(block)
    _ALIVE[address] = (api, handle, block, dims, strides)

    def call(_: Any, args: Any, count: int, result: Any) -> int:
        out = ctypes.c_void_p()
        if ffi.LIB.TVMFFITensorFromDLPackVersioned(ctypes.c_void_p(address), 0, 0, ctypes.byref(out)):
            return -1
        filled = ctypes.cast(result, ctypes.POINTER(_Any))
        filled[0].type_index, filled[0].value = 70, out.value
        return 0

    made = _SAFE_CALL(call)
    where = ctypes.cast(made, ctypes.c_void_p).value
    return _as_ndarray(lambda: function_at(int(where or 0), made)())


def _size_of(tensor: Any) -> int:
    word = dl_dtype(str(tensor.dtype))
    return (int(np.prod(tensor.shape, dtype=np.int64)) * (word >> 8 & 255) * (word >> 16) + 7) // 8


def from_device(tensor: Any) -> np.ndarray[Any, Any]:
    """The contents of a tensor on a device, as a new numpy array."""
    device = tensor.device
    api = required_api(int(device.dlpack_device_type()), int(device.index))
    element = dt.to_numpy(str(tensor.dtype))
    out = np.empty(tuple(tensor.shape), element)
    if out.size:
        api.download(int(device.index), int(tensor.data_ptr()), out.reshape(-1).view(np.uint8))
    return out


def to_device(tensor: Any, value: Any) -> None:
    """Copy an array (numpy, or a tensor anywhere) into a tensor on a device."""
    device = tensor.device
    kind, index = int(device.dlpack_device_type()), int(device.index)
    api = required_api(kind, index)
    size = _size_of(tensor)
    if size == 0:
        return
    if isinstance(value, _core.Tensor) and not is_on_cpu(value):
        same = (int(value.device.dlpack_device_type()), int(value.device.index)) == (kind, index)
        if same and str(value.dtype) == str(tensor.dtype):
            api.copy(index, int(value.data_ptr()), int(tensor.data_ptr()), size)
            return
    source = to_numpy(value) if isinstance(value, _core.Tensor) else np.asarray(value)
    data = np.ascontiguousarray(source.astype(dt.to_numpy(str(tensor.dtype)), copy=False))
    api.upload(index, int(tensor.data_ptr()), data.reshape(-1).view(np.uint8))


def dl_dtype(dtype: str) -> int:
    """A DLDataType as a number: code, bits << 8, lanes << 16."""
    d = dt.parse(dtype)
    if dtype in _EXOTIC:
        code, bits = _EXOTIC[dtype]
    else:
        codes = {"int": 0, "uint": 1, "float": 2, "bool": 6}
        if d.code not in codes:
            raise ValueError(f"no tensors of dtype {dtype!r}")
        code, bits = codes[d.code], 8 if d.code == "bool" else d.bits
    return code | bits << 8 | d.lanes << 16
