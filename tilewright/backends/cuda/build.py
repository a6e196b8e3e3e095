"""Loop programs to CUDA."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.backends.cuda import intrinsics  # noqa: F401  (fills the dialect's table)
from tilewright.backends.cuda.compile import compile_source
from tilewright.backends.cuda.dialect import CudaDialect
from tilewright.backends.cuda.runtime import API
from tilewright.backends.source.host import build_for_device
from tilewright.ir.module import IRModule
from tilewright.ir.target import Target
from tilewright.runtime.device_api import required_api
from tilewright.runtime.module import Module

__all__ = ["build"]


def build(mod: IRModule, target: Target) -> Module:
    """Kernels in CUDA C and their host; `imported_modules[0].get_source("ptx")` compiles them for the target's architecture.

    Raises CompileError TW066x for what CUDA C cannot express.
    """
    arch = str(target.attrs.get("arch") or "sm_75")

    def formats(source: str) -> Mapping[str, Callable[[], str]]:
        return {"ptx": lambda: compile_source(source, arch, "ptx").rstrip(b"\0").decode()}

    return build_for_device(mod, target, CudaDialect(), starter, formats)


def starter(source: str) -> Callable[..., None]:
    """What starts kernels of a source; it is compiled for the GPU at the first start."""
    loaded: dict[str, Any] = {}

    def start(name: str, dtypes: Any, values: Any, grid: Any, block: Any, shared: int) -> None:
        if not loaded:
            required_api(2, 0)
            version = API.attributes(0)["compute_version"].replace(".", "")
            loaded[""] = API.load(0, compile_source(source, f"sm_{version}", "cubin"))
        if name not in loaded:
            loaded[name] = API.function(loaded[""], name)
        API.launch(0, loaded[name], dtypes, values, grid, block, shared)

    return start
