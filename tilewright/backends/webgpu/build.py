"""Loop programs to WebGPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tilewright.backends.source.host import build_for_device
from tilewright.backends.webgpu.dialect import SEPARATOR, WgslDialect
from tilewright.backends.webgpu.runtime import API
from tilewright.ir.module import IRModule
from tilewright.ir.target import Target
from tilewright.runtime.device_api import required_api
from tilewright.runtime.module import Module

__all__ = ["build", "starter"]

_BINDING = re.compile(r"@group\(0\) @binding\((\d+)\) var<[a-z_, ]+> (\w+) ")


def build(mod: IRModule, target: Target) -> Module:
    """Kernels in WGSL and their host. Raises CompileError TW066x for what WGSL cannot express."""
    return build_for_device(mod, target, WgslDialect(), starter)


def starter(source: str) -> Callable[..., None]:
    """What starts kernels of a source; each is compiled at its first start."""
    shaders: dict[str, str] = {}
    for part in source.split(SEPARATOR)[1:]:
        name, _, text = part.partition("\n")
        shaders[name] = text
    ready: dict[str, tuple[Any, list[bool]]] = {}

    def start(name: str, dtypes: Any, values: Any, grid: Any, block: Any, shared: int) -> None:
        required_api(15, 0)
        if name not in ready:
            text = shaders[name]
            names = [n for _, n in sorted((int(i), n) for i, n in _BINDING.findall(text))]
            body = text.rpartition("@compute")[2]
            used = [re.search(rf"\b{n}\b", body) is not None for n in names]
            ready[name] = API.pipeline(text, name), used
        pipeline, used = ready[name]
        API.launch(pipeline, dtypes, values, grid, used)

    return start
