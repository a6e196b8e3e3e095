"""What a model holds, without converting it: for `tilewright inspect` and for the list of unsupported operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.frontend.onnx.reader import ModelSource, all_nodes, element_type, load
from tilewright.frontend.onnx.registry import find_row
from tilewright.support.diagnostics import CompileError

__all__ = ["inspect_model", "unsupported_operators"]


def unsupported_operators(source: ModelSource) -> dict[str, list[str]]:
    """Operators without a row in the table, with the names of their nodes (those of subgraphs too)."""
    missing: dict[str, list[str]] = {}
    for node in all_nodes(source.graph):
        domain = "" if node.domain == "ai.onnx" else node.domain
        if find_row(domain, node.op_type, source.opsets.get(domain, 1)) is None:
            name = f"{domain}.{node.op_type}" if domain else str(node.op_type)
            missing.setdefault(name, []).append(node.name or next((o for o in node.output if o), "?"))
    return missing


def inspect_model(model: Any, shape_dict: Mapping[str, Sequence[Any]] | None = None) -> dict[str, Any]:
    """The facts of an ONNX model as plain data.

    Keys: name, opset, opsets, inputs and outputs (lists of {name, dtype, shape}), operators ({name: count}), unsupported
    ({name: node names}), parameters (elements of initialisers), parameter_bytes, nodes, flops (a multiply and an add are
    two; None where the model cannot be imported; symbolic dimensions count as 1, and `flops_exact` says so), module (the
    imported IRModule or None), errors (texts of what keeps it from being imported).

    Raises CompileError if the file itself cannot be read.
    """
    source = load(model)
    nodes = list(all_nodes(source.graph))
    initialised = {t.name for t in source.graph.initializer}
    sizes = [int(np.prod(t.dims, dtype=np.int64)) for t in source.graph.initializer]
    counts = Counter(f"{n.domain}.{n.op_type}" if n.domain not in ("", "ai.onnx") else n.op_type for n in nodes)
    facts: dict[str, Any] = {
        "name": source.name,
        "producer": source.proto.producer_name,
        "opset": source.opset,
        "opsets": dict(source.opsets),
        "inputs": [_value(source, v) for v in source.graph.input if v.name not in initialised],
        "outputs": [_value(source, v) for v in source.graph.output],
        "operators": dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        "unsupported": unsupported_operators(source),
        "nodes": len(nodes),
        "parameters": sum(sizes),
        "parameter_bytes": sum(s * _item_bytes(t.data_type) for s, t in zip(sizes, source.graph.initializer)),
        "flops": None,
        "flops_exact": False,
        "module": None,
        "errors": [],
    }
    from tilewright.frontend.onnx.convert import Importer

    try:
        facts["module"] = Importer(source, dict(shape_dict or {}), None).run()
    except CompileError as error:
        facts["errors"] = [d.render() for d in error.diagnostics]
        return facts
    from tilewright.frontend.onnx.flops import count_flops

    facts["flops"], facts["flops_exact"] = count_flops(facts["module"])
    return facts


def _item_bytes(code: int) -> int:
    return {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 16: 2}.get(code, 1)


def _value(source: ModelSource, value: Any) -> dict[str, Any]:
    t = value.type.tensor_type
    try:
        dtype = element_type(source, t.elem_type, value.name)
    except CompileError:
        dtype = "unsupported"
    shape: list[int | str] | None = None
    if t.HasField("shape"):
        shape = [int(d.dim_value) if d.dim_value > 0 else (d.dim_param or "?") for d in t.shape.dim]
    return {"name": value.name, "dtype": dtype, "shape": shape}
