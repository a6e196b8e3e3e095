"""ONNX models as graphs."""

from tilewright.frontend.onnx.convert import from_onnx
from tilewright.frontend.onnx.inspect import inspect_model
from tilewright.frontend.onnx.registry import onnx_op, supported_operators
