"""Operators that the ONNX standard defines by a graph of simpler ones are replaced by it where the table has no row."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from tilewright.frontend.onnx.reader import ModelSource, all_nodes
from tilewright.frontend.onnx.registry import find_row

__all__ = ["expand", "is_defined", "unsupported_operators"]

_ROUNDS = 4
"""Definitions that use defined operators themselves are expanded this many times at most."""


def is_defined(domain: str, op_type: str, opset: int) -> bool:
    """Does the standard define the operator by a graph?"""
    onnx: Any = import_module("onnx")
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _without_row(source: ModelSource) -> list[tuple[Any, str, int]]:
    """Nodes without a row, with their domain and operator set."""
    out: list[tuple[Any, str, int]] = []
    for node in all_nodes(source.graph):
        domain = "" if node.domain == "ai.onnx" else str(node.domain)
        opset = source.opsets.get(domain, 1)
        if find_row(domain, node.op_type, opset) is None:
            out.append((node, domain, opset))
    return out


def _with_defaults(source: ModelSource, found: list[tuple[str, str]]) -> Any:
    """A copy of the model whose nodes to be expanded say their attributes' defaults: the inliner drops what is left out."""
    onnx: Any = import_module("onnx")
    proto = type(source.proto)()
    proto.CopyFrom(source.proto)
    for node in all_nodes(proto.graph):
        domain = "" if node.domain == "ai.onnx" else node.domain
        if (domain, node.op_type) not in found:
            continue
        said = {a.name for a in node.attribute}
        schema = onnx.defs.get_schema(node.op_type, source.opsets.get(domain, 1), domain)
        for name, attribute in schema.attributes.items():
            if name not in said and attribute.default_value.name:
                node.attribute.append(attribute.default_value)
    return proto


def expand(source: ModelSource) -> ModelSource:
    """The model with such operators expanded; the same object if it has none. The caller's proto is not changed."""
    for _ in range(_ROUNDS):
        found = sorted({(d, n.op_type) for n, d, opset in _without_row(source) if is_defined(d, n.op_type, opset)})
        if not found:
            break
        inliner: Any = import_module("onnx.inliner")
        try:
            made = inliner.inline_selected_functions(_with_defaults(source, found), found, False, True)
        except Exception:  # the standard's own expansion fails: the operators are reported as unsupported
            break
        if len(made.graph.node) == len(source.graph.node):
            break
        source = replace(source, proto=made)
    return source


def unsupported_operators(source: ModelSource) -> dict[str, list[str]]:
    """Operators without a row, with the names of their nodes (those of subgraphs too). Give it the expanded model."""
    missing: dict[str, list[str]] = {}
    for node, domain, _ in _without_row(source):
        name = f"{domain}.{node.op_type}" if domain else str(node.op_type)
        missing.setdefault(name, []).append(node.name or next((o for o in node.output if o), "?"))
    return missing
