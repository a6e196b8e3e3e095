"""Make constants of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.arith.expr import Var as Symbol
from tilewright.ir.module import IRModule
from tilewright.ir.node import replace
from tilewright.ir.passes import Pass, PassContext
from tilewright.relax.ir import Call, Constant, DataflowVar, Function, GlobalVar, MatchCast, PrimValue, ShapeExpr, Var
from tilewright.relax.rewrite import GraphMutator
from tilewright.relax.struct_info import TensorStructInfo, as_int, describe, free_symbols, substitute_symbols
from tilewright.relax.values import convert, make_var
from tilewright.support.diagnostics import CompileError

__all__ = ["Rebinder", "bind_params", "bind_symbolic_vars"]


def _find(f: Function, key: Any) -> Var:
    if isinstance(key, Var):
        return key
    found = [p for p in f.params if p.name_hint == key]
    if len(found) != 1:
        names = ", ".join(p.name_hint for p in f.params)
        raise CompileError.at("TW0213", f"no parameter is named {key!r}", hint=f"the parameters are: {names}")
    return found[0]


def _check(p: Var, value: Any, symbols: dict[Symbol, PrimExpr]) -> None:
    si = p.struct_info
    if not isinstance(si, TensorStructInfo) or not isinstance(value, Constant):
        return
    data = value.data
    fits = (not si.dtype or str(data.dtype) == si.dtype) and (si.ndim in (-1, data.ndim))
    if fits and si.shape is not None:
        for d, n in zip(si.shape, data.shape):
            if isinstance(d, Symbol):
                fits = fits and as_int(symbols.setdefault(d, IntImm("int64", n))) == n
            else:
                fits = fits and as_int(d) in (None, n)
    if not fits:
        raise CompileError.at(
            "TW0213",
            f"the parameter {p.name_hint} is {describe(si)}; it cannot be bound to {data.dtype} of shape {data.shape}",
        )


class Rebinder(GraphMutator):
    """Rewrites a function whose parameters became other values and whose symbols became numbers; infers anew."""

    def __init__(self, mod: IRModule, params: Mapping[Var, Any], symbols: Mapping[Symbol, PrimExpr]) -> None:
        super().__init__(mod)
        self.env.update(params)
        self.symbols = symbols

    def leaf(self, e: Any) -> Any:
        if self.symbols and isinstance(e, (ShapeExpr, PrimValue)):
            if isinstance(e, ShapeExpr):
                new = tuple(substitute_symbols(d, self.symbols) for d in e.values)
                return e if all(a is b for a, b in zip(new, e.values)) else ShapeExpr(new)
            value = substitute_symbols(e.value, self.symbols)
            return e if value is e.value else PrimValue(value)
        return e

    def value(self, e: Any, var: Var) -> Any:
        if isinstance(e, Call) and e.sinfo_args and self.symbols:
            infos = tuple(substitute_symbols(si, self.symbols) for si in e.sinfo_args)
            if any(a is not b for a, b in zip(infos, e.sinfo_args)):
                e = replace(e, sinfo_args=infos, struct_info=None)
                e = self.bb.normal(e)
        return super().value(e, var)

    def match_cast(self, b: MatchCast) -> Any:
        si = substitute_symbols(b.struct_info, self.symbols)
        if si is b.struct_info:
            return b
        fresh = make_var(b.var.name_hint, si, isinstance(b.var, DataflowVar), b.var.span)
        self.env[b.var] = fresh
        return MatchCast(fresh, b.value, si)


def _rebuild(mod: IRModule, f: Function, params: Mapping[Var, Any], symbols: Mapping[Symbol, PrimExpr]) -> Function:
    """The function with parameters replaced by values (or, where their symbols became numbers, by new parameters)."""
    table = dict(params)
    kept: list[Var] = []
    for p in f.params:
        if p in params:
            continue
        si = substitute_symbols(p.struct_info, symbols)
        fresh = p if si is p.struct_info else make_var(p.name_hint, si, False, p.span)
        if fresh is not p:
            table[p] = fresh
        kept.append(fresh)
    new = Rebinder(mod, table, symbols).function(f)
    ret = None if f.ret_struct_info is None else substitute_symbols(f.ret_struct_info, symbols)
    body_info = new.body.struct_info  # pyright: ignore
    ret = body_info if symbols and body_info is not None else ret
    return replace(new, params=tuple(kept), ret_struct_info=ret, struct_info=None)


def _bind(mod: IRModule, f: Function, params: Mapping[Any, Any]) -> Function:
    symbols: dict[Symbol, PrimExpr] = {}
    mapping: dict[Var, Any] = {}
    for key, value in params.items():
        p = _find(f, key)
        made = convert(value if isinstance(value, np.ndarray) or not hasattr(value, "numpy") else value.numpy())
        _check(p, made, symbols)
        mapping[p] = made
    return _rebuild(mod, f, mapping, symbols)


def bind_params(func_name: str, params: Mapping[Any, Any]) -> Pass:
    """The pass that binds parameters (by name or variable) of a function to arrays. Raises CompileError (TW0213) on a misfit."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        gv = mod.get_global_var(func_name)
        f = mod[gv]
        return mod.with_({gv: _bind(mod, f, params)}) if params else mod

    return Pass(run, "BindParams")


def bind_symbolic_vars(values: Mapping[str | Symbol, int], func_name: str | None = None) -> Pass:
    """The pass that fixes symbolic dimensions (by name or variable) of a function, or of all."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        changed: dict[GlobalVar, Any] = {}
        for gv, f in mod.functions.items():
            if not isinstance(f, Function) or (func_name is not None and gv.name_hint != func_name):
                continue
            known = free_symbols(*(p.struct_info for p in f.params))
            table: dict[Symbol, PrimExpr] = {
                v: IntImm(v.dtype, values[k]) for v in known for k in (v, v.name) if k in values
            }
            if table:
                changed[gv] = _rebuild(mod, f, {}, table)
        return mod.with_(changed) if changed else mod

    return Pass(run, "BindSymbolicVars")
