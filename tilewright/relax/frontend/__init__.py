"""The importers under the field's names: `relax.frontend.onnx.from_onnx`. They live in `tilewright/frontend`."""

from tilewright.relax.frontend import onnx
