"""Calls of other graph functions of the module are replaced by the bodies of those.

Recursive functions stay calls, and so does one with branches or effects where it is called from a dataflow block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arith.expr import PrimExpr
from tilewright.arith.expr import Var as Symbol
from tilewright.ir.module import IRModule
from tilewright.ir.passes import PassContext, pass_
from tilewright.relax.block_builder import is_leaf
from tilewright.relax.calls import is_impure
from tilewright.relax.ir import Call, Expr, Function, GlobalVar, If, SeqExpr, Tuple, Var, VarBinding
from tilewright.relax.rewrite import GraphMutator, all_bindings, graph_functions
from tilewright.relax.struct_info import deduce_symbols
from tilewright.relax.transform.bind_params import Rebinder

__all__ = ["inline_functions"]


def _calls(f: Function, mod: IRModule) -> set[GlobalVar]:
    """The graph functions that a function calls."""
    return {
        b.value.op
        for b in all_bindings(f)
        if isinstance(b, VarBinding)
        and isinstance(b.value, Call)
        and isinstance(mod.functions.get(b.value.op), Function)
    }


def _recursive(mod: IRModule) -> set[GlobalVar]:
    """The graph functions that may come to call themselves."""
    direct = {v: _calls(f, mod) for v, f in graph_functions(mod)}
    found: set[GlobalVar] = set()
    for start in direct:
        seen: set[GlobalVar] = set()
        todo = list(direct[start])
        while todo:
            v = todo.pop()
            if v not in seen:
                seen.add(v)
                todo += direct.get(v, ())
        if start in seen:
            found.add(start)
    return found


class _Body(Rebinder):
    """Emits a function's body into another's: every variable is a new one, parameters are what is passed."""

    def __init__(self, outer: GraphMutator, params: Mapping[Var, Any], symbols: Mapping[Symbol, PrimExpr]) -> None:
        super().__init__(outer.mod, params, symbols)
        self.bb = outer.bb

    def binding(self, b: Any) -> None:
        if not isinstance(b, VarBinding):
            super().binding(b)
            return
        value = self.value(b.value, b.var)
        if not is_leaf(value) or isinstance(value, Tuple):
            value = self.bb.normal(value)
        self.env[b.var] = value if is_leaf(value) else self.bb.emit(value, b.var.name_hint)


class _Inline(GraphMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.recursive = _recursive(mod)

    def call(self, call: Call, var: Var) -> Expr:
        f = self.mod.functions.get(call.op) if isinstance(call.op, GlobalVar) else None
        if not isinstance(f, Function) or f.attrs.get("Primitive") or not isinstance(f.body, SeqExpr):
            return call
        if call.op in self.recursive or (self.bb.current_block_is_dataflow() and self.branches(f)):
            return call
        symbols: dict[Symbol, PrimExpr] = {}
        for p, a in zip(f.params, call.args):
            deduce_symbols(p.struct_info, a.struct_info, symbols)
        body = _Body(self, dict(zip(f.params, call.args)), symbols)
        for block in f.body.blocks:
            for b in block.bindings:
                body.binding(b)
        return body.operand(f.body.body)

    def branches(self, f: Function) -> bool:
        return any(
            isinstance(b, VarBinding) and (isinstance(b.value, If) or is_impure(b.value, self.mod))
            for b in all_bindings(f)
        )


@pass_(name="InlineFunctions")
def inline_functions(mod: IRModule, ctx: PassContext) -> IRModule:
    """Calls of graph functions of the module are replaced by their bodies."""
    del ctx
    for _ in range(len(mod.functions)):  # calls inside what was inlined
        new = _Inline(mod).run()
        if new is mod:
            break
        mod = new
    return mod
