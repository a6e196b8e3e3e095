"""`relax.frontend.onnx.from_onnx` and its like, under the field's names."""

from __future__ import annotations

from types import SimpleNamespace

from tilewright.frontend import onnx

__all__ = ["frontend"]

frontend = SimpleNamespace(onnx=onnx)
"""The importers by format."""
