"""Attributes by the field's names, and nodes made by the name of their class."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from tilewright.ir.node import Node
from tilewright.support.lazy import resolve

__all__ = ["Attrs", "DictAttrs", "make_node"]


class DictAttrs(dict[str, Any]):
    """Attributes of a function or module: a dictionary."""


Attrs = DictAttrs


def _classes(root: type[Node]) -> Iterator[type[Node]]:
    for c in root.__subclasses__():
        yield c
        yield from _classes(c)


def make_node(type_key: str, **kwargs: Any) -> Any:
    """A node of the class that `type_key` names (`tir.For`, `For`), with the fields given; `DictAttrs` makes attributes.

    Raises ValueError for an unknown class, TypeError for a field that the class does not have.
    """
    name = type_key.rpartition(".")[2]
    if name == "DictAttrs":
        return DictAttrs(kwargs)
    resolve("tir.Range")  # the classes are known once their modules are loaded
    for c in _classes(Node):
        if c.__name__ == name and "node_fields" in c.__dict__:
            known = inspect.signature(c).parameters
            derived = {f.name for f in c.node_fields} - set(known)
            return c(**{k: v for k, v in kwargs.items() if k not in derived})
    raise ValueError(f"no node class is named {type_key!r}")
