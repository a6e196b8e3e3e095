"""What a backend is: one folder of `tilewright/backends`, described by one manifest.

    BACKEND = Backend("opencl", kinds=("opencl",), emit="tilewright.backends.opencl.emit:emit", ...)

What a manifest names as `module:attribute` is imported when it is first used. Third parties add a backend through the entry
point group `tilewright.backends`, whose objects are Backends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

__all__ = ["Backend"]


@dataclass(frozen=True)
class Backend:
    """A manifest. `kinds`: the target kinds it makes code for."""

    name: str
    kinds: tuple[str, ...]
    title: str
    """What it makes, for people: "OpenCL C"."""
    build: str
    """`build(module of PrimFuncs, target) -> runtime Module`."""
    device: str = ""
    """The run time of its devices (`runtime/device_api.py: DeviceApi`); "" where code runs on the host."""
    available: str = ""
    """`available() -> None | str`: why code of this backend cannot run on this machine; None: it can."""

    def load(self, path: str) -> Any:
        """The object that `module:attribute` names."""
        module, _, attribute = path.partition(":")
        return getattr(import_module(module), attribute)

    def runs(self) -> str | None:
        """Why its code cannot run here; None where it can."""
        check: Callable[[], str | None] | None = self.load(self.available) if self.available else None
        return check() if check is not None else None
