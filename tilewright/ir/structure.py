"""Structure: equality up to renaming, a hash that agrees with it, and the first difference as a path.

Variables and buffers are compared by where they are bound: `for i: A[i]` equals `for j: B[j]`. A variable that nothing
binds equals only itself, or, with `map_free_vars`, any other used in the same places. Names, spans and cached facts are not
compared. Fields that bind (`DEF`) are compared first.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir.node import DEF, INFO, Field, Node
from tilewright.support.lazy import resolve

__all__ = [
    "Difference", "assert_structural_equal", "first_difference", "structural_digest", "structural_equal", "structural_hash",
]  # fmt: skip


class Difference(NamedTuple):
    """Where two structures first differ: the path from the root, what stands there on each side, and why it differs."""

    path: str
    lhs: Any
    rhs: Any
    reason: str

    def __str__(self) -> str:
        return f"at {self.path}: {self.reason}\n  left:  {_brief(self.lhs)}\n  right: {_brief(self.rhs)}"


def _brief(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 400 else text[:400] + " ..."


def _like(value: Any, other: Any) -> Any:
    """A Python number beside an expression as a constant of its dtype."""
    if isinstance(other, Node) and isinstance(value, (int, float, str)) and hasattr(other, "dtype"):
        return resolve("tir.convert")(value)
    return value


class _Compare:
    """One comparison: pairs of variables met so far, and the first difference found."""

    def __init__(self, map_free: bool) -> None:
        self.map_free = map_free
        self.left: dict[Any, Any] = {}
        self.right: dict[Any, Any] = {}
        self.difference: Difference | None = None

    def fail(self, path: str, a: Any, b: Any, reason: str) -> bool:
        if self.difference is None:
            self.difference = Difference(path, a, b, reason)
        return False

    def value(self, a: Any, b: Any, path: str, binding: bool) -> bool:
        if isinstance(a, Node) is not isinstance(b, Node):  # an expression and a Python number
            a, b = _like(a, b), _like(b, a)
        if isinstance(a, Node) and isinstance(b, Node):
            return self.node(a, b, path, binding)
        if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
            if len(a) != len(b):
                return self.fail(path, a, b, f"{len(a)} against {len(b)} elements")
            return all(self.value(x, y, f"{path}[{i}]", binding) for i, (x, y) in enumerate(zip(a, b, strict=True)))
        if isinstance(a, dict) and isinstance(b, dict):
            return self.table(a, b, path, binding)
        return same_attribute(a, b) or self.fail(path, a, b, "different values")

    def table(self, a: dict[Any, Any], b: dict[Any, Any], path: str, binding: bool) -> bool:
        keys_b = {_key(k, self.left): k for k in b}
        if len(a) != len(b):
            return self.fail(path, list(a), list(b), f"{len(a)} against {len(b)} entries")
        for k, v in a.items():
            other = keys_b.get(_key(self.left.get(k, k), self.left))
            if other is None:
                return self.fail(f"{path}[{_step(k)}]", k, list(b), "missing on the right")
            if (
                type(k).__name__ == "GlobalVar"
            ):  # each function has variables of its own, also where two share the objects
                saved = self.left, self.right
                self.left, self.right = dict(self.left), dict(self.right)
                if not self.value(v, b[other], f"{path}[{_step(k)}]", binding):
                    return False
                self.left, self.right = saved
                continue
            if not self.value(v, b[other], f"{path}[{_step(k)}]", binding):
                return False
        return True

    def node(self, a: Node, b: Node, path: str, binding: bool) -> bool:
        if type(a) is not type(b):
            return self.fail(path, a, b, f"{type(a).__name__} against {type(b).__name__}")
        if a.identity:
            return self.identity(a, b, path, binding)
        fields = a.node_fields
        for field in _in_order(fields):
            inside = binding or field.role == DEF
            x, y = getattr(a, field.name), getattr(b, field.name)
            if not self.value(x, y, f"{path}.{field.name}", inside):
                return False
        return True

    def identity(self, a: Any, b: Any, path: str, binding: bool) -> bool:
        known = self.left.get(a)
        if known is not None or b in self.right:
            return known is b or self.fail(path, a, b, "they stand for different things")
        if not a.variable and not a.node_fields:
            return a is b or self.fail(path, a, b, "different objects")
        if a.variable and a is not b and not binding and not self.map_free:
            return self.fail(path, a, b, "different free variables")
        for field in a.node_fields:
            if field.role != INFO:
                x, y = getattr(a, field.name), getattr(b, field.name)
                if not self.value(x, y, f"{path}.{field.name}", binding or field.role == DEF):
                    return False
        self.left[a] = b
        self.right[b] = a
        return True


def _in_order(fields: Iterable[Field]) -> list[Field]:
    """The compared fields: binding ones first, then those whose nodes bind (the views of a block), then the others."""
    rank = {DEF: 0, "": 2}
    compared = [f for f in fields if f.role in rank]
    return sorted(compared, key=lambda f: 1 if f.name == "match_buffers" else rank[f.role])


def _step(key: Any) -> str:
    """A key of a mapping as it stands in a path."""
    return f'I.GlobalVar("{key.name_hint}")' if type(key).__name__ == "GlobalVar" else _name(key)


def _name(key: Any) -> str:
    return str(getattr(key, "name", None) or getattr(key, "name_hint", None) or key)


def _key(key: Any, _: Any) -> Any:
    return ("global", key.name_hint) if type(key).__name__ == "GlobalVar" else key


def same_attribute(a: Any, b: Any) -> bool:
    """Are two attribute values (numbers, strings, arrays, operator objects, enums) equal? nan equals nan."""
    if a is b:
        return True
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        same = isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape
        return same and a.tobytes() == b.tobytes()
    if hasattr(a, "__dlpack__") and hasattr(b, "__dlpack__"):
        return a.shape == b.shape and str(a.dtype) == str(b.dtype) and _contents(a) == _contents(b)
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    if type(a) is not type(b) and not (isinstance(a, (int, float, Enum)) and isinstance(b, (int, float, Enum))):
        return False
    return bool(a == b)


def _contents(array: Any) -> bytes:
    return np.ascontiguousarray(array.numpy()).tobytes()


def first_difference(lhs: Any, rhs: Any, map_free_vars: bool = False) -> Difference | None:
    """The first difference of two structures, or None when they are equal."""
    compare = _Compare(map_free_vars)
    if compare.value(lhs, rhs, "<root>", False):
        return None
    return compare.difference


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Are the two equal up to the names of bound variables (and of free ones with `map_free_vars`)?"""
    return lhs is rhs or first_difference(lhs, rhs, map_free_vars) is None


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raise ValueError that says where the two first differ, unless they are equal."""
    difference = first_difference(lhs, rhs, map_free_vars)
    if difference is not None:
        raise ValueError(f"the two structures differ {difference}")


class _Digest:
    """Writes a structure as bytes in which variables are numbers in order of binding or first use."""

    def __init__(self, free: frozenset[Any] = frozenset()) -> None:
        self.free = free
        """Variables that stand for themselves."""
        self.hash = hashlib.blake2b(digest_size=20)
        self.numbers: dict[Any, int] = {}
        self.update = self.hash.update

    def value(self, x: Any) -> None:
        if isinstance(x, Node):
            self.node(x)
        elif isinstance(x, (tuple, list)):
            self.update(b"(%d" % len(x))
            for item in x:
                self.value(item)
        elif isinstance(x, dict):
            self.table(x)
        elif isinstance(x, np.ndarray) or hasattr(x, "__dlpack__"):
            self.update(f"A{x.dtype}{tuple(x.shape)}".encode())
            self.update(np.ascontiguousarray(x if isinstance(x, np.ndarray) else x.numpy()).tobytes())
        elif isinstance(x, Enum):
            self.update(f"V{x.value!r};".encode())
        else:
            self.update(f"V{x!r};".encode())

    def table(self, x: dict[Any, Any]) -> None:
        self.update(b"{%d" % len(x))
        for key, item in sorted(x.items(), key=lambda kv: self.order(kv[0])):
            self.value(key if not isinstance(key, Node) or key.variable else _name(key))
            self.value(item)

    def order(self, key: Any) -> Any:
        if isinstance(key, Node):
            return (0, self.numbers.get(key, 1 << 30), _name(key) if not key.variable else "")
        return (1, 0, str(key))

    def node(self, x: Any) -> None:
        if x.identity:
            number = self.numbers.get(x)
            if number is not None:
                self.update(b"#%d;" % number)
                return
            if x in self.free:
                self.update(b"@%d;" % id(x))
                return
            self.numbers[x] = len(self.numbers)
        kind = type(x)
        order = _ORDERS.get(kind) or _order(kind)
        self.update(order[0])
        for name in order[1]:
            value = getattr(x, name)
            if isinstance(value, Node):
                self.node(value)
            elif type(value) is str or type(value) is int:
                self.update(f"V{value!r};".encode())
            else:
                self.value(value)


_ORDERS: dict[type, tuple[bytes, list[str]]] = {}


def _order(kind: type[Node]) -> tuple[bytes, list[str]]:
    """A class's name as bytes, and its compared fields, binding ones first."""
    fields = kind.node_fields
    names = [f.name for f in _in_order(fields)]
    found = _ORDERS[kind] = (kind.__name__.encode(), names)
    return found


def structural_digest(n: Any) -> str:
    """A hexadecimal digest, the same in every process, that equal structures (free variables mapped) share."""
    digest = _Digest()
    digest.value(n)
    return digest.hash.hexdigest()


def structural_hash(n: Any, map_free_vars: bool = False) -> int:
    """A 64-bit hash that agrees with `structural_equal`; without `map_free_vars` it holds in this process only."""
    free: frozenset[Any] = frozenset()
    if not map_free_vars and isinstance(n, Node):
        from tilewright.ir.rewrite import free_vars

        free = frozenset({n} if n.variable else free_vars(n))
    digest = _Digest(free)
    digest.value(n)
    return int(digest.hash.hexdigest()[:16], 16)


def paths(n: Node, prefix: str = "<root>") -> Iterator[tuple[str, Node]]:
    """Every node below `n` with its path, parents first."""
    yield prefix, n
    for field in n.node_fields:
        if field.role != INFO:
            yield from _paths(getattr(n, field.name), f"{prefix}.{field.name}")


def _paths(value: Any, path: str) -> Iterator[tuple[str, Node]]:
    if isinstance(value, Node):
        yield from paths(value, path)
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from _paths(item, f"{path}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _paths(item, f"{path}[{_name(key)}]")
