"""Named operators that a call's head refers to. `Op.get(name)` interns, so identity is equality."""

from __future__ import annotations

from typing import Any, ClassVar

from tilewright.ir.node import Node, node
from tilewright.support.lazy import resolve

__all__ = ["BaseExpr", "GlobalVar", "Op", "PrimType", "PointerType", "Type"]


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


_OPS: dict[str, Op] = {}


@node
class GlobalVar(BaseExpr):
    """Refers to a function of the module by name. Calling it builds the call of a graph function."""

    identity: ClassVar[bool] = True
    name_hint: str

    def __call__(self, *args: Any) -> Any:
        return resolve("relax.call")(self, *args)
