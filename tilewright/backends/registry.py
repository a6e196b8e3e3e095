"""The backends there are: those of this package, and those that others bring through the entry point `tilewright.backends`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from tilewright.ir.backend import Backend

__all__ = ["backends", "device_api", "find"]

_OWN = ("llvm", "c", "cuda", "opencl", "metal", "webgpu")


@cache
def backends() -> dict[str, Backend]:
    """Every backend by the kinds of targets it makes code for."""
    found: dict[str, Backend] = {}
    given: list[Backend] = [import_module(f"tilewright.backends.{name}").BACKEND for name in _OWN]
    given += [e.load() for e in entry_points(group="tilewright.backends")]
    for b in given:
        for kind in b.kinds:
            found[kind] = b
    return found


def find(kind: str) -> Backend | None:
    """The backend for a kind of target; None where there is none."""
    return backends().get(kind)


def device_api(kind: str) -> Any:
    """The run time of a kind of device; None where there is none."""
    found = find(kind)
    return found.load(found.device) if found is not None and found.device else None
