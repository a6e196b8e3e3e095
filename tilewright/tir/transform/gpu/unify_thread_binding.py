"""All axes of a kernel that are bound to one thread index become one variable, launched outermost.

for i in T.thread_binding(128, "blockIdx.x"):             for blockIdx_x in T.thread_binding(128, "blockIdx.x"):
    for j in T.thread_binding(4, "threadIdx.x"): s(i, j)  ▶   for threadIdx_x in T.thread_binding(4, "threadIdx.x"):
    for k in T.thread_binding(4, "threadIdx.x"): u(i, k)          s(blockIdx_x, threadIdx_x); u(blockIdx_x, threadIdx_x)
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import IntImm, PrimExpr, Var, cast
from tilewright.ir.node import replace
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator, substitute
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import check_same_extent, func_pass

__all__ = ["UnifyThreadBinding", "unify_thread_binding"]


def unify_thread_binding(f: t.PrimFunc) -> t.PrimFunc:
    """The function with one variable for each thread index of a kernel. Raises TW0560 where two extents of one differ."""
    run = _Unify()
    body = run.visit(f.body)
    return f if body is f.body else replace(f, body=substitute(body, run.values))


def UnifyThreadBinding() -> Pass:
    """Unify the axes bound to one thread index; see `unify_thread_binding`."""
    return func_pass("UnifyThreadBinding", unify_thread_binding)


class _Axis:
    def __init__(self, var: Var, low: PrimExpr, extent: PrimExpr, iter_type: int, tag: str) -> None:
        self.var, self.low, self.extent, self.iter_type, self.tag = var, low, extent, iter_type, tag


class _Unify(Mutator):
    def __init__(self) -> None:
        self.depth = 0
        self.axes: dict[str, _Axis] = {}
        self.launches: list[_Axis] = []
        self.values: dict[Any, PrimExpr] = {}

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_For(self, s: t.For) -> t.Stmt:
        if s.kind != t.ForKind.THREAD_BINDING or s.thread_binding is None:
            return self.generic(s)
        out = self.bind(s.loop_var, s.thread_binding, s.min, s.extent, s.body)
        if not s.annotations:
            return out
        if isinstance(out, t.For):
            return replace(out, annotations=s.annotations)
        dtype = s.loop_var.dtype
        unit = Var("var", dtype)
        return t.For(unit, IntImm(dtype, 0), IntImm(dtype, 1), t.ForKind.SERIAL, out, None, s.annotations)

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        if s.attr_key not in ("thread_extent", "virtual_thread") or not isinstance(s.node, t.IterVar):
            return self.generic(s)
        return self.bind(s.node.var, s.node, IntImm(s.value.dtype, 0), s.value, s.body)

    def bind(self, old: Var, axis: t.IterVar, low: PrimExpr, extent: PrimExpr, body: t.Stmt) -> t.Stmt:
        tag = axis.thread_tag
        outermost, depth = False, self.depth
        if tag.startswith("blockIdx.") or not self.depth:
            if not self.depth:
                self.axes.clear()
                outermost = True
            self.depth += 1
        found = self.axes.get(tag)
        if found is None:
            kind = axis.iter_type or t.IterVar.ThreadIndex
            found = self.axes[tag] = _Axis(Var(tag, extent.dtype), low, extent, kind, tag)
            self.launches.append(found)
        else:
            check_same_extent(tag, found.low, low, found.extent, extent)
        self.values[old] = cast(found.var, old.dtype)
        body = self.visit(body)
        self.depth = depth
        return self.launch(body) if outermost else body

    def launch(self, body: t.Stmt) -> t.Stmt:
        while self.launches:
            a = self.launches.pop()
            binding = t.IterVar(None, Var("", "int32"), a.iter_type, a.tag)
            body = t.For(a.var, a.low, a.extent, t.ForKind.THREAD_BINDING, body, binding)
        return body
