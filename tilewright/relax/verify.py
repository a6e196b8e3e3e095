"""Is a graph function well formed? What passes may rely on.

- every variable is bound once, before its use, and a DataflowVar is used in its dataflow block only;
- every symbol in struct info comes from a parameter or a MatchCast;
- normal form: operands are leaves, function bodies and branches are SeqExprs, bindings know their struct info;
- a dataflow block has no branches and no effects; functions that are called exist.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as E
from tilewright.ir.module import IRModule
from tilewright.relax.block_builder import is_leaf
from tilewright.relax.calls import is_impure
from tilewright.relax.ir import (
    Call,
    DataflowBlock,
    DataflowVar,
    Function,
    GlobalVar,
    If,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from tilewright.relax.rewrite import graph_functions
from tilewright.relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    free_symbols,
)
from tilewright.support.diagnostics import CompileError, Diagnostic

__all__ = ["defined_symbols", "problems", "verify_module", "well_formed"]

_CODE = "TW0212"


def well_formed(mod: IRModule | Function) -> bool:
    """Is every graph function of the module well formed?"""
    return not problems(mod)


def verify_module(mod: IRModule) -> None:
    """Raise CompileError (TW0212) with everything that is wrong with the module's graph functions."""
    found = problems(mod)
    if found:
        raise CompileError(*found)


def problems(mod: IRModule | Function) -> list[Diagnostic]:
    """What is wrong, in order; empty for a well-formed module."""
    if isinstance(mod, Function):
        mod = IRModule({GlobalVar("main"): mod})
    out: list[Diagnostic] = []
    for gv, f in graph_functions(mod):
        out += _Verifier(mod, gv.name_hint).function(f)
    return out


def defined_symbols(si: StructInfo | None) -> list[E.Var]:
    """The symbols that a parameter or a MatchCast of this struct info binds: lone ones."""
    if isinstance(si, TensorStructInfo):
        return [d for d in si.shape or () if isinstance(d, E.Var)]
    if isinstance(si, ShapeStructInfo):
        return [d for d in si.values or () if isinstance(d, E.Var)]
    if isinstance(si, PrimStructInfo):
        return [si.value] if isinstance(si.value, E.Var) else []
    if isinstance(si, TupleStructInfo):
        return [v for f in si.fields for v in defined_symbols(f)]
    return []


class _Verifier:
    def __init__(self, mod: IRModule, name: str) -> None:
        self.mod, self.name = mod, name
        self.found: list[Diagnostic] = []
        self.visible: set[Var] = set()
        self.ever: set[Var] = set()
        self.symbols: set[E.Var] = set()

    def fail(self, message: str, span: Any = None) -> None:
        self.found.append(Diagnostic(_CODE, f"in {self.name}: {message}", span))

    def function(self, f: Function) -> list[Diagnostic]:
        for p in f.params:
            if isinstance(p, DataflowVar):
                self.fail(f"the parameter {p.name_hint} is a DataflowVar")
            self.define(p)
            self.symbols.update(defined_symbols(p.struct_info))
        for p in f.params:
            self.info(p.struct_info, f"parameter {p.name_hint}")
        if not isinstance(f.body, SeqExpr):
            self.fail(f"the body is a {type(f.body).__name__}, not a SeqExpr")
        else:
            self.sequence(f.body)
        return self.found

    def define(self, v: Var) -> None:
        if v in self.ever:
            self.fail(f"{v.name_hint} is bound twice", v.span)
        self.ever.add(v)
        self.visible.add(v)

    def info(self, si: StructInfo | None, what: str) -> None:
        if si is None:
            self.fail(f"nothing is known of {what}: its struct info is missing")
            return
        lost = [v.name for v in free_symbols(si) if v not in self.symbols]
        if lost:
            self.fail(f"{what} mentions {', '.join(lost)}, which no parameter and no match_cast binds")

    def sequence(self, s: SeqExpr) -> None:
        for block in s.blocks:
            dataflow = isinstance(block, DataflowBlock)
            local: list[Var] = []
            for b in block.bindings:
                self.binding(b, dataflow)
                if isinstance(b.var, DataflowVar):
                    local.append(b.var)
                    if not dataflow:
                        self.fail(f"the DataflowVar {b.var.name_hint} is bound outside of a dataflow block", b.var.span)
            self.visible.difference_update(local)
        self.operand(s.body, "the result")

    def binding(self, b: Any, dataflow: bool) -> None:
        name = b.var.name_hint
        if isinstance(b, MatchCast):
            self.operand(b.value, f"match_cast {name}")
            self.symbols.update(defined_symbols(b.struct_info))
        elif isinstance(b, VarBinding):
            self.value(b.value, name, dataflow)
        self.info(b.var.struct_info, name)
        self.define(b.var)

    def value(self, e: Any, name: str, dataflow: bool) -> None:
        if isinstance(e, Call):
            if dataflow and is_impure(e, self.mod):
                self.fail(f"{name} calls something with effects in a dataflow block", e.span)
            if isinstance(e.op, GlobalVar) and e.op not in self.mod.functions:
                self.fail(f"{name} calls {e.op.name_hint}, which the module does not have", e.span)
            for i, a in enumerate(e.args):
                self.operand(a, f"operand {i} of {name}")
        elif isinstance(e, TupleGetItem):
            self.operand(e.tuple_value, name)
        elif isinstance(e, If):
            if dataflow:
                self.fail(f"{name} branches inside a dataflow block", e.span)
            self.operand(e.cond, f"the condition of {name}")
            for branch in (e.true_branch, e.false_branch):
                visible, symbols = set(self.visible), set(self.symbols)
                if isinstance(branch, SeqExpr):
                    self.sequence(branch)
                else:
                    self.fail(f"a branch of {name} is a {type(branch).__name__}, not a SeqExpr")
                self.visible, self.symbols = visible, symbols
        elif isinstance(e, SeqExpr):
            self.fail(f"{name} is bound to a nested SeqExpr")
        else:
            self.operand(e, name)

    def operand(self, e: Any, what: str) -> None:
        if isinstance(e, Var):
            if e not in self.visible:
                why = (
                    "outside of its dataflow block"
                    if e in self.ever and isinstance(e, DataflowVar)
                    else "before it is bound"
                )
                self.fail(f"{what} uses {e.name_hint} {why}", e.span)
        elif isinstance(e, Tuple):
            for f in e.fields:
                self.operand(f, what)
        elif isinstance(e, ShapeExpr):
            self.info(e.struct_info, what)
        elif isinstance(e, GlobalVar):
            if e not in self.mod.functions:
                self.fail(f"{what} refers to {e.name_hint}, which the module does not have")
        elif not is_leaf(e):
            self.fail(
                f"{what} is a nested {type(e).__name__}; operands have to be bound to variables",
                getattr(e, "span", None),
            )
