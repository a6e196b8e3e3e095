"""IR as JSON and back: every node class, objects that matter by identity kept shared, arrays in base64."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from enum import Enum
from importlib import import_module
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.support.diagnostics import CompileError

__all__ = ["load_json", "save_json"]

FORMAT = 1


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.index: dict[int, int] = {}
        self.keep: list[Any] = []

    def value(self, x: Any) -> Any:
        if x is None or isinstance(x, (bool, str)) or type(x) is int:
            return x
        if isinstance(x, Enum):
            return {"enum": [type(x).__module__, type(x).__name__, x.name]}
        if isinstance(x, float):
            return {"float": x.hex()}
        if isinstance(x, Node):
            return {"node": self.node(x)}
        if isinstance(x, (tuple, list)):
            return [self.value(i) for i in x]
        if isinstance(x, dict):
            return {"dict": [[self.value(k), self.value(v)] for k, v in x.items()]}
        if isinstance(x, np.ndarray):
            data = base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()
            return {"array": [str(x.dtype), list(x.shape), data]}
        if isinstance(x, np.generic):
            return self.value(x.item())
        fields = getattr(x, "__dataclass_fields__", None)
        if fields is not None:
            return {"object": [type(x).__module__, type(x).__name__, {f: self.value(getattr(x, f)) for f in fields}]}
        raise TypeError(f"{type(x).__name__} cannot be written as JSON")

    def node(self, x: Node) -> int:
        known = self.index.get(id(x))
        if known is not None:
            return known
        if isinstance(x, Op):
            entry: Any = {"intrinsic": x.name}
        else:
            kw = {
                name: self.value(getattr(x, name)) for name in x._kw if name != "span" and getattr(x, name) is not None
            }
            entry = [type(x).__module__, type(x).__name__, [self.value(getattr(x, f.name)) for f in x.node_fields], kw]
        self.keep.append(x)
        self.index[id(x)] = len(self.nodes)
        self.nodes.append(entry)
        return self.index[id(x)]


def save_json(n: Any) -> str:
    """`n` (a node, or tuples and dictionaries of nodes) as JSON text. Spans are not kept."""
    writer = _Writer()
    root = writer.value(n)
    return json.dumps({"tilewright": FORMAT, "root": root, "nodes": writer.nodes})


def _class(module: str, name: str) -> Any:
    if not module.startswith("tilewright."):
        raise CompileError.at("TW0902", f"the JSON names a class outside this package: {module}.{name}")
    return getattr(import_module(module), name)


class _Reader:
    def __init__(self, nodes: list[Any]) -> None:
        self.entries, self.nodes = nodes, list[Any]()

    def value(self, x: Any) -> Any:
        if isinstance(x, list):
            return tuple(self.value(i) for i in x)
        if not isinstance(x, dict):
            return x
        (kind, data), *_ = x.items()
        readers: dict[str, Callable[[Any], Any]] = {
            "node": lambda i: self.nodes[i],
            "float": float.fromhex,
            "enum": lambda d: getattr(_class(d[0], d[1]), d[2]),
            "dict": lambda d: {self.value(k): self.value(v) for k, v in d},
            "array": lambda d: np.frombuffer(base64.b64decode(d[2]), dt.to_numpy(d[0])).reshape(d[1]),
            "object": lambda d: _class(d[0], d[1])(**{k: self.value(v) for k, v in d[2].items()}),
        }
        return readers[kind](data)

    def read(self) -> None:
        for entry in self.entries:
            if isinstance(entry, dict):
                self.nodes.append(Op.get(entry["intrinsic"]))
            else:
                module, name, fields, kw = entry
                values = [self.value(f) for f in fields]
                self.nodes.append(_class(module, name)(*values, **{k: self.value(v) for k, v in kw.items()}))


def load_json(text: str) -> Any:
    """What `save_json` wrote. Raises CompileError (TW0902) for text that is something else."""
    try:
        data = json.loads(text)
        if data.get("tilewright") != FORMAT:
            raise ValueError(f"format {data.get('tilewright')!r}, this version reads {FORMAT}")
        reader = _Reader(data["nodes"])
        reader.read()
        return reader.value(data["root"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise CompileError.at("TW0902", f"not IR written by save_json: {error}") from error
