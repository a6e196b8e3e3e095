"""Loops bound to one thread index move out to the innermost loop that holds all of them."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import PrimExpr, Var
from tilewright.ir.node import children, replace
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator, substitute
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import check_same_extent, func_pass

__all__ = ["LiftThreadBinding", "lift_thread_binding"]


def lift_thread_binding(f: t.PrimFunc) -> t.PrimFunc:
    """The function with the thread-bound loops of each kernel at the innermost place that covers all of the same index."""
    body = _Lift().visit(f.body)
    return f if body is f.body else replace(f, body=body)


def LiftThreadBinding() -> Pass:
    """Lift loops bound to the same thread index to where they can be one; see `lift_thread_binding`."""
    return func_pass("LiftThreadBinding", lift_thread_binding)


class _Found:
    def __init__(self, loop: t.For, path: list[t.For]) -> None:
        binding = loop.thread_binding
        assert binding is not None
        self.loop, self.path, self.iter_type = loop, path, binding.iter_type
        self.var = Var(binding.thread_tag, loop.loop_var.dtype)
        self.annotations: dict[str, Any] = {}


class _Lift(Mutator):
    def __init__(self) -> None:
        self.at: dict[int, list[tuple[str, _Found]]] | None = None

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_For(self, s: t.For) -> t.Stmt:
        root = s.kind == t.ForKind.THREAD_BINDING and self.at is None
        values: dict[Any, Any] = {}
        if root:
            self.at = {}
            values = self.find(s)
        body = self.visit(s.body)
        for tag, found in (self.at or {}).get(id(s), ()):
            loop = found.loop
            binding = t.IterVar(None, Var(tag, found.var.dtype), found.iter_type, tag)
            body = t.For(
                found.var, loop.min, loop.extent, t.ForKind.THREAD_BINDING, body, binding, found.annotations
            )  # fmt: skip
        if root:
            self.at = None
            body = substitute(body, values)
        if s.kind == t.ForKind.THREAD_BINDING:
            return body
        return s if body is s.body else replace(s, body=body)

    def find(self, root: t.For) -> dict[Any, Any]:
        """Where the loops of each index go, and what their variables become."""
        found: dict[str, _Found] = {}
        values: dict[Any, Any] = {}

        def visit(n: Any, path: list[t.For]) -> None:
            if isinstance(n, PrimExpr) or n.identity:
                return
            inside = [*path, n] if isinstance(n, t.For) else path
            for c in children(n):
                visit(c, inside)
            if isinstance(n, t.For) and n.kind == t.ForKind.THREAD_BINDING and n.thread_binding is not None:
                tag = n.thread_binding.thread_tag
                first = found.get(tag)
                if first is None:
                    first = found[tag] = _Found(n, inside)
                else:
                    k = 0
                    while k < min(len(first.path), len(inside)) and first.path[k] is inside[k]:
                        k += 1
                    first.path = first.path[:k]
                    check_same_extent(tag, first.loop.min, n.min, first.loop.extent, n.extent)
                first.annotations.update(n.annotations)
                values[n.loop_var] = first.var

        visit(root, [])
        assert self.at is not None
        for tag in sorted(found, reverse=True):
            self.at.setdefault(id(found[tag].path[-1]), []).append((tag, found[tag]))
        return values
