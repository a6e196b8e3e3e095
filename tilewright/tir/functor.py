"""Visitors and mutators of loop programs that people write: classes with `visit_for_`, `visit_add_`, ... methods.

    @tvm.tir.functor.mutator
    class Double(tvm.tir.PyStmtExprMutator):
        def visit_int_imm_(self, op): return tvm.tir.IntImm(op.dtype, op.value * 2)

    Double().visit_stmt(f.body)

A method that is not overridden visits the children; `super().visit_for_(op)` does so from one that is.
"""

from __future__ import annotations

import re
from typing import Any

from tilewright.arith.expr import PrimExpr
from tilewright.ir.node import Node, children, map_children

__all__ = ["PyStmtExprMutator", "PyStmtExprVisitor", "method_name", "mutator", "visitor"]

_NAMES = {"EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le", "GT": "gt", "GE": "ge"}


def method_name(kind: type) -> str:
    """The name of the method for a class of nodes: `IntImm` ▸ `visit_int_imm_`."""
    name = _NAMES.get(kind.__name__) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()
    return f"visit_{name}_"


class _Functor:
    def _method(self, n: Node) -> Any:
        for kind in type(n).__mro__:
            found = (
                getattr(self, method_name(kind), None) if isinstance(kind, type) and issubclass(kind, Node) else None
            )
            if found is not None:
                return found
        return None


class PyStmtExprVisitor(_Functor):
    """Walks a program; override `visit_<node>_(self, op) -> None`."""

    def visit_stmt(self, stmt: Node) -> None:
        """Visit a statement."""
        self._visit(stmt)

    def visit_expr(self, expr: Node) -> None:
        """Visit an expression."""
        self._visit(expr)

    def _visit(self, n: Node) -> None:
        found = self._method(n)
        if found is not None:
            found(n)
        else:
            self._children(n)

    def _children(self, n: Node) -> None:
        if not n.identity:
            for c in children(n):
                (self.visit_expr if isinstance(c, PrimExpr) else self.visit_stmt)(c)


class PyStmtExprMutator(_Functor):
    """Rewrites a program; override `visit_<node>_(self, op) -> node`. The same object comes back where nothing changed."""

    def visit_stmt(self, stmt: Node) -> Any:
        """The rewritten statement."""
        return self._visit(stmt)

    def visit_expr(self, expr: Node) -> Any:
        """The rewritten expression."""
        return self._visit(expr)

    def _visit(self, n: Node) -> Any:
        found = self._method(n)
        return found(n) if found is not None else self._children(n)

    def _children(self, n: Node) -> Any:
        if n.identity:
            return n
        return map_children(n, lambda c: (self.visit_expr if isinstance(c, PrimExpr) else self.visit_stmt)(c))


def _defaults() -> None:
    """Give both classes a method for every class of nodes, so that `super().visit_for_(op)` works."""
    from tilewright.arith import expr as arith_expr
    from tilewright.tir import ir

    def walk(self: Any, op: Node) -> Any:
        """Visit the children."""
        return self._children(op)

    for module in (arith_expr, ir):
        for name in module.__all__:
            kind = getattr(module, name)
            if isinstance(kind, type) and issubclass(kind, Node):
                for cls in (PyStmtExprVisitor, PyStmtExprMutator):
                    setattr(cls, method_name(kind), walk)


_defaults()


def visitor(cls: type[Any]) -> type[Any]:
    """Decorator of a visitor class. Nothing is left to do: the class is ready as it is written."""
    return cls


def mutator(cls: type[Any]) -> type[Any]:
    """Decorator of a mutator class. Nothing is left to do: the class is ready as it is written."""
    return cls
