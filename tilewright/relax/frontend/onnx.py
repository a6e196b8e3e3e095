"""`from tilewright.relax.frontend.onnx import from_onnx`: the importer of `tilewright/frontend/onnx`, found when it is used."""

from __future__ import annotations

from typing import Any

from tilewright.support.lazy import resolve


def __getattr__(name: str) -> Any:
    if name == "from_onnx":
        return resolve("frontend.from_onnx")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
