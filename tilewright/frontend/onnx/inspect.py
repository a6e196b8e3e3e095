"""What a model holds: for `tilewright inspect`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.frontend.onnx.convert import Importer
from tilewright.frontend.onnx.expand import expand, unsupported_operators
from tilewright.frontend.onnx.flops import count_flops
from tilewright.frontend.onnx.reader import ModelSource, all_nodes, element_type, load
from tilewright.support.diagnostics import CompileError

__all__ = ["inspect_model"]


def inspect_model(model: Any, shape_dict: Mapping[str, Sequence[Any]] | None = None) -> dict[str, Any]:
    """The facts of an ONNX model as plain data (JSON holds it).

    Keys: name, producer, opset, opsets, inputs and outputs (lists of {name, dtype, shape}), operators (a list of {op, count,
    supported, nodes}; `nodes` names those that are not supported), nodes, parameters (elements of initialisers and of constant tensors),
    parameter_bytes, flops (a multiply and an add are two; None where the model cannot be imported), flops_partial
    (unknown dimensions counted as 1), errors (texts of what keeps the model from being imported).

    Raises CompileError if the file itself cannot be read.
    """
    source = load(model)
    nodes = list(all_nodes(source.graph))
    initialised = {t.name for t in source.graph.initializer}
    fixed = dict(shape_dict or {})
    tensors = [*source.graph.initializer, *_constant_tensors(nodes)]
    sizes = [int(np.prod(t.dims, dtype=np.int64)) for t in tensors]
    expanded = expand(source)
    missing = unsupported_operators(expanded)
    counts = Counter(f"{n.domain}.{n.op_type}" if n.domain not in ("", "ai.onnx") else n.op_type for n in nodes)
    facts: dict[str, Any] = {
        "name": source.name,
        "producer": source.proto.producer_name,
        "opset": source.opset,
        "opsets": dict(source.opsets),
        "inputs": [_value(source, v, fixed) for v in source.graph.input if v.name not in initialised],
        "outputs": [_value(source, v, fixed) for v in source.graph.output],
        "operators": [
            {"op": op, "count": count, "supported": op not in missing, "nodes": missing.get(op, [])}
            for op, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ],
        "nodes": len(nodes),
        "parameters": sum(sizes),
        "parameter_bytes": sum(s * _item_bytes(t.data_type) for s, t in zip(sizes, tensors)),
        "flops": None,
        "flops_partial": False,
        "errors": [],
    }
    try:
        module = Importer(expanded, dict(shape_dict or {}), None).run()
    except CompileError as error:
        facts["errors"] = [d.render() for d in error.diagnostics]
        return facts
    facts["flops"], exact = count_flops(module)
    facts["flops_partial"] = not exact
    return facts


def _item_bytes(code: int) -> int:
    return {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 16: 2}.get(code, 1)


def _constant_tensors(nodes: Sequence[Any]) -> list[Any]:
    """The tensors of Constant nodes: some exporters keep weights there. Scalars are counted as attributes, not parameters."""
    tensors = [a.t for n in nodes if n.op_type == "Constant" for a in n.attribute if a.name == "value"]
    return [t for t in tensors if t.dims]


def _value(source: ModelSource, value: Any, fixed: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    t = value.type.tensor_type
    try:
        dtype = element_type(source, t.elem_type, value.name)
    except CompileError:
        dtype = "unsupported"
    shape: list[int | str] = []
    if t.HasField("shape"):
        shape = [int(d.dim_value) if d.dim_value > 0 else (d.dim_param or "?") for d in t.shape.dim]
    given = fixed.get(value.name, ())
    if given:
        said = shape or ["?"] * len(given)
        shape = [s if g is None else g for g, s in zip(given, said)]
    return {"name": value.name, "dtype": dtype, "shape": shape}
