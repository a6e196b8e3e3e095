"""Loop programs to OpenCL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.backends.opencl.dialect import OpenCLDialect
from tilewright.backends.opencl.runtime import API
from tilewright.backends.source.host import build_for_device
from tilewright.ir.module import IRModule
from tilewright.ir.target import Target
from tilewright.runtime.device_api import required_api
from tilewright.runtime.module import Module

__all__ = ["build", "starter"]


def build(mod: IRModule, target: Target) -> Module:
    """Kernels in OpenCL C and their host. Raises CompileError TW066x for what OpenCL C cannot express."""
    return build_for_device(mod, target, OpenCLDialect(), starter)


def starter(source: str) -> Callable[..., None]:
    """What starts kernels of a source; the driver compiles it at the first start."""
    kernels: dict[str, Any] = {}

    def start(name: str, dtypes: Any, values: Any, grid: Any, block: Any, shared: int) -> None:
        if not kernels:
            required_api(4, 0)
            kernels.update({k.function_name: k for k in API.program(0, source).all_kernels()})
        API.launch(0, kernels[name], dtypes, values, grid, block, shared)

    return start
