"""What the importer says when a model is at fault: one diagnostic a fault, with the node's name and operator.

TW0301 the file cannot be read            TW0309 an attribute or form of an operator is not supported
TW0302 external data is missing or short  TW0310 a given shape or dtype contradicts the model
TW0303 external data outside the folder   TW0311 a node is malformed (operands, attributes)
TW0304 operator set too old or too new    TW0312 a value must be known at compile time and is not
TW0305 the graph has a cycle              TW0313 the operands of a node do not fit
TW0306 a name is defined twice            TW0314 an element type is not supported
TW0307 a name is used and never defined   TW0315 the package `onnx` is missing
TW0308 operators are not supported        TW0316 the graph has no usable inputs or outputs
"""

from __future__ import annotations

from typing import Any

from tilewright.support.diagnostics import CompileError, Diagnostic
from tilewright.support.span import Span

__all__ = ["describe", "failure", "node_error", "node_span"]


def describe(node: Any) -> str:
    """A node as people find it in a viewer: operator, name (or its first output), operands."""
    domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
    return f"{domain}{node.op_type} node {label(node)}: ({', '.join(node.input)}) -> ({', '.join(node.output)})"


def label(node: Any) -> str:
    """The node's name in quotes; a nameless node is called by its first output."""
    if node.name:
        return repr(node.name)
    first = next((o for o in node.output if o), "")
    return f"that makes {first!r}" if first else "without a name"


def node_span(model: str, node: Any) -> Span:
    """The place of a node: the model's name, with the node's description as the text."""
    return Span(model, text=describe(node))


def failure(
    code: str, message: str, model: str, *, hint: str | None = None, notes: tuple[str, ...] = ()
) -> CompileError:
    """An error about the model as a whole."""
    return CompileError(Diagnostic(code, message, Span(model), notes=notes, hint=hint))


def node_error(
    code: str, message: str, model: str, node: Any, *, hint: str | None = None, notes: tuple[str, ...] = ()
) -> CompileError:
    """An error about one node."""
    text = f"{node.op_type} node {label(node)}: {message}"
    return CompileError(Diagnostic(code, text, node_span(model, node), notes=notes, hint=hint))
