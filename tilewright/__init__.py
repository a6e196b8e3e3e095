"""tilewright: a machine-learning compiler written in Python. The public names; each is loaded when it is first used.

`import tilewright as tvm` gives the names of Apache TVM 0.18's Python API.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from tilewright.version import __version__

if TYPE_CHECKING:
    from tilewright import (
        arith,
        contrib,
        driver,
        error,
        frontend,
        ir,
        ops,
        relax,
        runtime,
        script,
        target,
        te,
        testing,
        tir,
        topi,
        transform,
    )
    from tilewright.driver.build import build, compile
    from tilewright.driver.lower import lower
    from tilewright.error import TVMError
    from tilewright.ir.module import IRModule
    from tilewright.runtime import ndarray as nd
    from tilewright.runtime.ndarray import Device, cl, cpu, cuda, device, gpu, metal, opencl, rocm, vulkan, webgpu
    from tilewright.runtime.registry import get_global_func, register_func, register_object, remove_global_func
    from tilewright.runtime.threads import get_num_threads, set_num_threads

_MODULES = (
    "arith", "contrib", "driver", "error", "frontend", "ir", "ops", "relax", "runtime", "script", "target", "te", "testing", "tir",
    "topi", "transform",
)  # fmt: skip
_NAMES = {
    "nd": "runtime.ndarray",
    "instrument": "ir.passes",
    "DataType": "ir.dtype:DataType",
    "Object": "ir.node:Node",
    "IRModule": "ir.module:IRModule",
    "build": "driver.build:build",
    "compile": "driver.build:compile",
    "lower": "driver.lower:lower",
    "TVMError": "error:TVMError",
    "Device": "runtime.ndarray:Device",
    "cpu": "runtime.ndarray:cpu",
    "device": "runtime.ndarray:device",
    **{
        kind: f"runtime.ndarray:{kind}" for kind in ("cl", "cuda", "gpu", "metal", "opencl", "rocm", "vulkan", "webgpu")
    },
    "register_func": "runtime.registry:register_func",
    "get_global_func": "runtime.registry:get_global_func",
    "remove_global_func": "runtime.registry:remove_global_func",
    "register_global_func": "runtime.registry:register_func",
    "get_num_threads": "runtime.threads:get_num_threads",
    "set_num_threads": "runtime.threads:set_num_threads",
}
__all__ = ["__version__", *_MODULES, *_NAMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = _import_module(f"tilewright.{name}")
    elif name in _NAMES:
        module, _, attribute = _NAMES[name].partition(":")
        value = _import_module(f"tilewright.{module}")
        value = getattr(value, attribute) if attribute else value
    else:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
