"""The runtime: arrays, modules, executables, threads. A deployed model needs this and the JIT linker only."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from tilewright.support.lazy import resolve as _resolve

if TYPE_CHECKING:
    from tilewright.runtime.executable import Executable, load
    from tilewright.runtime.module import Module, enabled, load_module
    from tilewright.runtime.ndarray import (
        NDArray,
        ShapeTuple,
        Tensor,
        array,
        cl,
        convert,
        cpu,
        cuda,
        device,
        empty,
        from_dlpack,
        gpu,
        metal,
        opencl,
        rocm,
        tensor,
        vulkan,
        webgpu,
    )
    from tilewright.runtime.params import (
        load_param_dict,
        load_param_dict_from_file,
        save_param_dict,
        save_param_dict_to_file,
    )
    from tilewright.runtime.registry import get_global_func, register_func, register_object, remove_global_func
    from tilewright.runtime.signature import Param, Signature
    from tilewright.runtime.threads import get_num_threads, set_num_threads
    from tilewright.runtime.timing import BenchmarkResult

_NAMES = {
    "Executable": "executable", "load": "executable",
    "Module": "module", "enabled": "module", "load_module": "module",
    "NDArray": "ndarray", "Tensor": "ndarray", "Device": "ndarray", "array": "ndarray", "cpu": "ndarray", "cuda": "ndarray",
    "ShapeTuple": "ndarray", "convert": "ndarray", "device": "ndarray", "empty": "ndarray", "from_dlpack": "ndarray", "tensor": "ndarray",
    "opencl": "ndarray", "cl": "ndarray", "gpu": "ndarray", "metal": "ndarray", "vulkan": "ndarray", "rocm": "ndarray", "webgpu": "ndarray",
    "get_global_func": "registry", "register_func": "registry", "register_object": "registry", "remove_global_func": "registry",
    "load_param_dict": "params", "load_param_dict_from_file": "params", "save_param_dict": "params", "save_param_dict_to_file": "params",
    "Param": "signature", "Signature": "signature",
    "get_num_threads": "threads", "set_num_threads": "threads",
    "BenchmarkResult": "timing",
}  # fmt: skip
_MODULES = ("executable", "module", "ndarray", "params", "registry", "signature", "threads", "timing")
__all__ = [*_NAMES, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in ("DataType", "Object"):
        value = getattr(_import_module("tilewright.ir.dtype"), name, None) or _import_module("tilewright.ir.node").Node
    elif name == "const":
        value = _resolve("tir.const")
    elif name in _NAMES:
        value = getattr(_import_module(f"tilewright.runtime.{_NAMES[name]}"), name)
    elif name in _MODULES:
        value = _import_module(f"tilewright.runtime.{name}")
    else:
        raise AttributeError(f"module 'tilewright.runtime' has no attribute {name!r}")
    globals()[name] = value
    return value
