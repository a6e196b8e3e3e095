"""Named operators that a call's head refers to. `Op.get(name)` interns, so identity is equality."""

from __future__ import annotations

from typing import Any, ClassVar

from tilewright.ir.node import Node, node
from tilewright.support.lazy import resolve

__all__ = [
    "BaseExpr",
    "GlobalVar",
    "Op",
    "PrimType",
    "PointerType",
    "Type",
    "register_intrin_lowering",
    "register_op_attr",
]


@node
class Type(Node):
    """The root of types that annotate handles."""


@node
class PrimType(Type):
    """The type of a scalar or vector of `dtype`."""

    dtype: str


@node
class PointerType(Type):
    """A pointer to `element_type` in memory of `storage_scope` (`global`, `local`, `shared`, ...)."""

    element_type: Type
    storage_scope: str = "global"


@node
class BaseExpr(Node):
    """The root of expressions of both IRs."""


@node
class Op(BaseExpr):
    """A primitive that a call may name: an intrinsic (`tir.exp`). What it means stands in `tir/intrin.py`."""

    identity: ClassVar[bool] = True
    name: str

    def __reduce__(self) -> tuple[Any, ...]:
        return Op.get, (self.name,)

    @staticmethod
    def get(name: str) -> Op:
        """The operator of that name; the same object each time."""
        found = _OPS.get(name)
        if found is None:
            found = _OPS[name] = Op(name)
        return found

    def get_attr(self, attr_name: str) -> Any:
        """The attribute of that name, None where there is none."""
        return _ATTRS.get(attr_name, {}).get(self.name, (None, 0))[0]

    def has_attr(self, attr_name: str) -> bool:
        """Is there such an attribute?"""
        return self.name in _ATTRS.get(attr_name, {})

    def set_attr(self, attr_name: str, value: Any, plevel: int = 10) -> None:
        """Set an attribute; one that was set with a higher `plevel` stays. Raises ValueError for the same level twice."""
        table = _ATTRS.setdefault(attr_name, {})
        level = table[self.name][1] if self.name in table else -1
        if level == plevel:
            raise ValueError(f"the attribute {attr_name} of {self.name} is registered already with level {plevel}")
        if level < plevel:
            table[self.name] = (value, plevel)

    def reset_attr(self, attr_name: str) -> None:
        """Remove an attribute."""
        _ATTRS.get(attr_name, {}).pop(self.name, None)

    @staticmethod
    def list_op_names() -> list[str]:
        """The names of the operators that were asked for so far."""
        return sorted(_OPS)


_OPS: dict[str, Op] = {}
_ATTRS: dict[str, dict[str, tuple[Any, int]]] = {}


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    """Set an attribute of an operator, by a call or as a decorator of the value."""

    def register(v: Any) -> Any:
        Op.get(op_name).set_attr(attr_key, v, level)
        return v

    return register(value) if value is not None else register


def register_intrin_lowering(op_name: str, target: str, *, f: Any = None, level: int = 10) -> Any:
    """Say how calls of an intrinsic are lowered for a kind of target: `f(call) -> expression`. A call, or a decorator."""
    return register_op_attr(op_name, f"{target}.FLowerIntrinsic", f, level)


@node
class GlobalVar(BaseExpr):
    """Refers to a function of the module by name. Calling it builds the call of a graph function."""

    identity: ClassVar[bool] = True
    name_hint: str

    def __call__(self, *args: Any) -> Any:
        return resolve("relax.call")(self, *args)
