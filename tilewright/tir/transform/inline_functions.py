"""Calls of private functions become their bodies.

A function without `global_symbol` is private. Inlined is a call that stands as a statement, of a function that takes scalars and
pointers only (no buffer_map), returns nothing and calls nothing that leads back to it. A private function that nothing calls any
more is dropped.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Call, PrimExpr, cast
from tilewright.ir.module import IRModule, attrs_of
from tilewright.ir.node import walk
from tilewright.ir.op import GlobalVar
from tilewright.ir.passes import Pass, PassContext
from tilewright.ir.rewrite import Mutator, substitute
from tilewright.tir import ir as t
from tilewright.tir.transform.base import call_name
from tilewright.tir.transform.convert_ssa import convert_ssa

__all__ = ["InlinePrivateFunctions"]


def _callees(f: t.PrimFunc) -> set[GlobalVar]:
    return {x.op for x in walk(f.body) if isinstance(x, Call) and isinstance(x.op, GlobalVar)}


def _inlinable(mod: IRModule) -> dict[GlobalVar, t.PrimFunc]:
    """The private functions whose calls may become their bodies."""
    funcs = {v: f for v, f in mod.functions.items() if isinstance(f, t.PrimFunc)}
    calls = {v: _callees(f) for v, f in funcs.items()}

    def recursive(v: GlobalVar) -> bool:
        seen: set[GlobalVar] = set()
        todo = list(calls[v])
        while todo:
            x = todo.pop()
            if x is v:
                return True
            if x not in seen:
                seen.add(x)
                todo.extend(calls.get(x, ()))
        return False

    out: dict[GlobalVar, t.PrimFunc] = {}
    for v, f in funcs.items():
        returns = any(call_name(x) == "tir.ret" for x in walk(f.body))
        if "global_symbol" not in attrs_of(f) and not f.buffer_map and not returns and not recursive(v):
            out[v] = f
    return out


class _Inline(Mutator):
    def __init__(self, table: dict[GlobalVar, t.PrimFunc]) -> None:
        self.table = table

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Evaluate(self, s: t.Evaluate) -> t.Stmt:
        call = s.value
        if not isinstance(call, Call) or not isinstance(call.op, GlobalVar):
            return s
        f = self.table.get(call.op)
        if f is None or len(f.params) != len(call.args):
            return s
        values = {p: cast(a, p.dtype) if p.dtype != "handle" else a for p, a in zip(f.params, call.args, strict=True)}
        return self.visit(substitute(f.body, values))


def InlinePrivateFunctions() -> Pass:
    """Calls of private functions become their bodies; what nothing calls any more is dropped."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        table = _inlinable(mod)
        if not table:
            return mod
        changed: dict[Any, Any] = {}
        for v, f in mod.functions.items():
            if isinstance(f, t.PrimFunc) and _callees(f) & set(table):
                body = _Inline(table).visit(f.body)
                if body is not f.body:
                    changed[v] = convert_ssa(f.with_body(body))
        if not changed:
            return mod
        new = mod.with_(changed)
        used = {
            c for v, f in new.functions.items() if isinstance(f, t.PrimFunc) and v not in table for c in _callees(f)
        }
        called = {c for f in mod.functions.values() if isinstance(f, t.PrimFunc) for c in _callees(f)}
        return new.without(*(v for v in table if v in called and v not in used))

    return Pass(run, "tir.InlinePrivateFunctions", doc=InlinePrivateFunctions.__doc__)
