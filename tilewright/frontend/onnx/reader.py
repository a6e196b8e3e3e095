"""Reads a model: from a path, bytes or a ModelProto to a checked `Graph`, with every fault of the file found here.

External data is mapped, not copied, and only from inside the model's own folder: a model is data from a stranger, and must
not read `/etc/passwd` into its weights.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.frontend.onnx.errors import describe, failure, node_error
from tilewright.ir.dtype import to_numpy

__all__ = ["MIN_OPSET", "ModelSource", "all_nodes", "element_type", "load", "ordered", "subgraphs", "tensor_array"]

MIN_OPSET = 7
"""The oldest operator set read: before it, broadcasting was an attribute of each operator."""


@dataclass
class ModelSource:
    """A model that was read and checked: its proto, its name for messages, and the folder external data may come from."""

    proto: Any  # onnx.ModelProto
    name: str
    folder: Path | None
    opset: int
    opsets: dict[str, int]

    @property
    def graph(self) -> Any:
        """The main graph."""
        return self.proto.graph


def load(model: Any) -> ModelSource:
    """Read and check `model`: a path, the bytes of a file, or an `onnx.ModelProto`.

    Raises CompileError (TW0301 to TW0307, TW0315, TW0316) that names what is wrong with it.
    """
    try:
        onnx: Any = import_module("onnx")
    except ImportError as error:
        raise failure(
            "TW0315", "reading ONNX models needs the package `onnx`", "onnx", hint="pip install onnx"
        ) from error
    proto, name, folder = _parse(onnx, model)
    if len(proto.functions):
        proto = _inline(onnx, proto, name)
    opsets = {("" if o.domain == "ai.onnx" else o.domain): int(o.version) for o in proto.opset_import}
    source = ModelSource(proto, name, folder, opsets.get("", 0), opsets)
    _check_model(onnx, source)
    _check_graph(source, proto.graph, set())
    return source


def _parse(onnx: Any, model: Any) -> tuple[Any, str, Path | None]:
    if isinstance(model, onnx.ModelProto):
        return model, model.graph.name or "model", None
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _decode(onnx, bytes(model), "<bytes>"), "<bytes>", None
    if not isinstance(model, (str, os.PathLike)):
        raise failure(
            "TW0301",
            f"a model is a path, bytes or an onnx.ModelProto, not {type(model).__name__}",
            str(type(model).__name__),
        )
    path = Path(model)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise failure("TW0301", f"cannot read the model: {error.strerror}", str(path)) from error
    return _decode(onnx, data, str(path)), str(path), path.parent


def _decode(onnx: Any, data: bytes, name: str) -> Any:
    if not data:
        raise failure("TW0301", "the file is empty", name, hint="was the download interrupted?")
    if data.startswith(b"version https://git-lfs"):
        raise failure("TW0301", "this is a Git LFS pointer, not the model itself", name, hint="run: git lfs pull")
    try:
        proto = onnx.ModelProto.FromString(data)
    except Exception as error:
        raise failure(
            "TW0301",
            "the file is no ONNX model, or a part of it is missing",
            name,
            notes=(f"{len(data)} bytes were read; the protobuf reader says: {error}",),
            hint="was the download interrupted? compare the size with the source's",
        ) from error
    if not len(proto.graph.node) and not len(proto.graph.output):
        raise failure("TW0301", "the file holds no ONNX graph", name, hint="give an .onnx file")
    return proto


def _inline(onnx: Any, proto: Any, name: str) -> Any:
    """The model with its own functions expanded where they are called."""
    inliner: Any = import_module("onnx.inliner")
    try:
        return inliner.inline_local_functions(proto)
    except Exception as error:
        raise failure("TW0301", f"the model's functions cannot be expanded: {error}", name) from error


def _check_model(onnx: Any, source: ModelSource) -> None:
    newest = onnx.defs.onnx_opset_version()
    if not source.opsets:
        raise failure("TW0304", "the model names no operator set", source.name)
    if "" in source.opsets and not MIN_OPSET <= source.opset <= newest:
        raise failure(
            "TW0304",
            f"operator set {source.opset} is not supported; {MIN_OPSET} to {newest} are",
            source.name,
            hint="convert it: onnx.version_converter.convert_version(model, 17)"
            if source.opset < MIN_OPSET
            else "pip install -U onnx, or export the model with an older opset",
        )
    if not len(source.graph.output):
        raise failure("TW0316", "the graph has no outputs", source.name)


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs among a node's attributes (branches, loop bodies)."""
    for a in node.attribute:
        if a.HasField("g"):
            yield a.g
        yield from a.graphs


def all_nodes(graph: Any) -> Iterator[Any]:
    """Every node, those of subgraphs too."""
    for node in graph.node:
        yield node
        for sub in subgraphs(node):
            yield from all_nodes(sub)


def _uses(node: Any) -> set[str]:
    """The names a node needs from around it, those of its subgraphs included."""
    needed = {i for i in node.input if i}
    for sub in subgraphs(node):
        inner = (
            {i.name for i in sub.input} | {t.name for t in sub.initializer} | {o for n in sub.node for o in n.output}
        )
        wanted: set[str] = {o.name for o in sub.output}
        for n in sub.node:
            wanted |= _uses(n)
        needed |= wanted - inner
    return needed


def _check_graph(source: ModelSource, graph: Any, outer: set[str]) -> None:
    """Names are defined once, uses have a definition, and there is no cycle."""
    known = set(outer)
    defined: dict[str, str] = {}
    for i in graph.input:
        _define(source, defined, i.name, "an input")
    inputs = set(defined)
    initialised: set[str] = set()
    for t in [*graph.initializer, *(s.values for s in graph.sparse_initializer)]:
        if t.name in initialised:
            _define(source, {t.name: "an initialiser"}, t.name, "another initialiser")
        initialised.add(t.name)
        if t.name not in inputs:  # an initialiser may be the default of an input of its name
            defined[t.name] = "an initialiser"
    for node in graph.node:
        for o in node.output:
            if o:
                _define(source, defined, o, describe(node))
    known |= set(defined)
    for node in graph.node:
        missing = sorted(_uses(node) - known)
        if missing:
            raise node_error("TW0307", f"operand {missing[0]!r} is defined nowhere in the model", source.name, node)
    for o in graph.output:
        if o.name not in known:
            raise failure("TW0307", f"the graph's output {o.name!r} is made by no node", source.name)
    ordered(source, graph, known - {o for n in graph.node for o in n.output})
    for node in graph.node:
        for sub in subgraphs(node):
            _check_graph(source, sub, known)


def _define(source: ModelSource, defined: dict[str, str], name: str, by: str) -> None:
    if name in defined:
        raise failure(
            "TW0306", f"the name {name!r} is defined twice: by {defined[name]}, and by {by}", source.name,
            hint="each tensor of an ONNX graph has one definition",
        )  # fmt: skip
    defined[name] = by


def ordered(source: ModelSource, graph: Any, available: set[str]) -> list[Any]:
    """The nodes of a graph in an order in which operands come first (some exporters keep none).

    `available` are the names known before the first node. Raises TW0305 for a cycle.
    """
    done, waiting = set(available), list(graph.node)
    out: list[Any] = []
    while waiting:
        rest: list[Any] = []
        for node in waiting:
            if _uses(node) <= done:
                out.append(node)
                done.update(node.output)
            else:
                rest.append(node)
        if len(rest) == len(waiting):
            raise _cycle(source, rest)
        waiting = rest
    return out


def _cycle(source: ModelSource, nodes: list[Any]) -> Exception:
    """Follow operands backwards among nodes that wait for each other until one repeats."""
    maker = {o: n for n in nodes for o in n.output}
    path: list[Any] = []
    node = nodes[0]
    while not any(node is seen for seen in path):
        path.append(node)
        node = next(maker[i] for i in sorted(_uses(node)) if i in maker)
    start = next(k for k, seen in enumerate(path) if seen is node)
    ring = [*reversed(path[start:])]
    ring = [*ring, ring[0]]
    chain = " -> ".join(f"{n.op_type} {n.name!r}" for n in ring)
    return node_error(
        "TW0305", "the graph has a cycle through this node", source.name, node, notes=(f"the cycle: {chain}",)
    )


# ---- tensors ----------------------------------------------------------------------------------------------------------

_ELEMENT_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz",
    19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4",
}  # fmt: skip


def element_type(source: ModelSource, code: int, what: str) -> str:
    """The dtype of an ONNX element type. Raises TW0314 for strings, complex numbers and undefined."""
    found = _ELEMENT_TYPES.get(code)
    if found is None:
        named = {8: "string", 14: "complex64", 15: "complex128", 0: "undefined"}.get(code, f"number {code}")
        raise failure("TW0314", f"{what} has the element type {named}, which is not supported", source.name)
    return found


def _data_path(source: ModelSource, tensor: Any, location: str) -> Path:
    if source.folder is None:
        raise failure(
            "TW0302", f"tensor {tensor.name!r} lies in external data {location!r}, but the model has no folder",
            source.name, hint="give the path of the model, or load its external data first (onnx.load)",
        )  # fmt: skip
    base = Path(os.path.realpath(source.folder))
    path = Path(os.path.realpath(base / location))
    if os.path.isabs(location) or (base != path and base not in path.parents):
        raise failure(
            "TW0303", f"tensor {tensor.name!r} asks for external data outside the model's folder: {location!r}",
            source.name, hint="put the data file beside the model",
        )  # fmt: skip
    if not path.is_file():
        raise failure(
            "TW0302", f"tensor {tensor.name!r} lies in the external data file {location!r}, which is missing",
            source.name, hint=f"copy it to {path}",
        )  # fmt: skip
    return path


def _external(source: ModelSource, tensor: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    entries = {e.key: e.value for e in tensor.external_data}
    path = _data_path(source, tensor, entries.get("location", ""))
    offset = int(entries.get("offset", 0) or 0)
    needed = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    size = path.stat().st_size
    if offset < 0 or offset + needed > size:
        raise failure(
            "TW0302",
            f"tensor {tensor.name!r} needs bytes {offset} to {offset + needed} of {path.name!r}, which has {size}",
            source.name,
            hint="was the download interrupted?",
        )
    if needed == 0:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", offset, shape)


def _raw(source: ModelSource, data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], what: str) -> NDArray[Any]:
    """An array over the bytes of a tensor, without a copy."""
    needed = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if needed != len(data):
        raise failure("TW0311", f"{what} of shape {shape} needs {needed} bytes and has {len(data)}", source.name)
    return np.frombuffer(data, dtype).reshape(shape)


def tensor_array(source: ModelSource, tensor: Any) -> NDArray[Any]:
    """The numpy array of a TensorProto; external data is mapped read-only.

    Raises CompileError: TW0302/TW0303 for external data, TW0314 for element types without a dtype, TW0311 for bad data.
    """
    what = f"tensor {tensor.name!r}"
    dtype = element_type(source, tensor.data_type, what)
    shape = tuple(int(d) for d in tensor.dims)
    if tensor.data_location == 1 and tensor.data_type < 21:
        return _external(source, tensor, to_numpy(dtype), shape)
    if tensor.data_location == 1:
        raise failure("TW0314", f"{what}: external data of {dtype} is not supported", source.name)
    if tensor.HasField("raw_data") and tensor.data_type < 17 and sys.byteorder == "little":
        return _raw(source, tensor.raw_data, to_numpy(dtype), shape, what)
    helper: Any = import_module("onnx.numpy_helper")
    try:
        array: NDArray[Any] = helper.to_array(tensor)
    except Exception as error:
        raise failure("TW0311", f"{what} of shape {shape} is damaged: {error}", source.name) from error
    return array
