"""Loop programs to Metal's shading language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.backends.metal.dialect import MetalDialect
from tilewright.backends.source.host import build_for_device
from tilewright.ir.module import IRModule
from tilewright.ir.target import Target
from tilewright.runtime.module import Module
from tilewright.support.diagnostics import CompileError

__all__ = ["available", "build"]


def available() -> str | None:
    """Why Metal programs cannot run here: this package has no run time for them."""
    return "this package has no run time for Metal"


def build(mod: IRModule, target: Target) -> Module:
    """Kernels as Metal source; calling them says that they cannot run. Raises CompileError TW066x for what Metal cannot express."""
    return build_for_device(mod, target, MetalDialect(), _starter)


def _starter(source: str) -> Callable[..., None]:
    del source

    def refuse(name: str, *_: Any) -> None:
        raise CompileError.at(
            "TW0672", f"the kernel {name} cannot run: {available()}", hint="get_source() gives the code"
        )

    return refuse
