"""Questions about graph functions, under the field's names."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Var as Symbol
from tilewright.ir.module import IRModule
from tilewright.ir.op import GlobalVar
from tilewright.relax.calls import is_impure
from tilewright.relax.ir import Binding, Expr, Function, MatchCast, Var, VarBinding
from tilewright.relax.rewrite import all_bindings, uses_of, vars_in
from tilewright.relax.struct_info import StructInfo, free_symbols
from tilewright.relax.verify import defined_symbols, well_formed

__all__ = [
    "all_global_vars", "all_vars", "bound_vars", "contains_impure_call", "definable_tir_vars_in_struct_info", "defined_symbolic_vars",
    "free_symbolic_vars", "free_vars", "get_var2val", "name_to_binding", "tir_vars_in_struct_info", "udchain", "well_formed",
]  # fmt: skip


def _unique(items: Any) -> list[Any]:
    return list(dict.fromkeys(items))


def bound_vars(e: Expr | Function) -> list[Var]:
    """The variables that parameters and bindings define, in order."""
    params = e.params if isinstance(e, Function) else ()
    return _unique([*params, *(b.var for b in all_bindings(e))])


def all_vars(e: Expr | Function) -> list[Var]:
    """The variables that are defined or used."""
    return _unique([*bound_vars(e), *vars_in(e)])


def free_vars(e: Expr | Function) -> list[Var]:
    """The variables that are used and not defined."""
    bound = set(bound_vars(e))
    return _unique(v for v in vars_in(e) if v not in bound)


def all_global_vars(e: Any) -> list[GlobalVar]:
    """The functions of the module that are referred to."""
    return sorted(uses_of(e), key=lambda v: v.name_hint)


def name_to_binding(func: Function) -> dict[str, list[Binding]]:
    """The bindings of each variable name."""
    out: dict[str, list[Binding]] = {}
    for b in all_bindings(func):
        out.setdefault(b.var.name_hint, []).append(b)
    return out


def get_var2val(func: Function) -> dict[Var, Expr]:
    """What each variable is bound to."""
    return {b.var: b.value for b in all_bindings(func) if isinstance(b, (VarBinding, MatchCast))}


def udchain(func: Function) -> dict[Var, list[Var]]:
    """For each variable the variables whose values use it."""
    out: dict[Var, list[Var]] = {v: [] for v in bound_vars(func)}
    for b in all_bindings(func):
        if isinstance(b, (VarBinding, MatchCast)):
            for v in _unique(vars_in(b.value)):
                out.setdefault(v, []).append(b.var)
    return out


def tir_vars_in_struct_info(sinfo: StructInfo) -> list[Symbol]:
    """The symbols that occur in a struct info."""
    return free_symbols(sinfo)


def definable_tir_vars_in_struct_info(sinfo: StructInfo) -> list[Symbol]:
    """The symbols that a parameter of this struct info defines: dimensions that are just the symbol."""
    return _unique(defined_symbols(sinfo))


def defined_symbolic_vars(func: Function) -> list[Symbol]:
    """The symbols that parameters and match_casts define."""
    found = [s for p in func.params for s in defined_symbols(p.struct_info)]
    found += [s for b in all_bindings(func) if isinstance(b, MatchCast) for s in defined_symbols(b.struct_info)]
    return _unique(found)


def free_symbolic_vars(func: Function) -> list[Symbol]:
    """The symbols that occur in struct infos and that nothing defines."""
    infos = [p.struct_info for p in func.params] + [b.var.struct_info for b in all_bindings(func)]
    defined = set(defined_symbolic_vars(func))
    return [s for s in free_symbols(*infos) if s not in defined]


def contains_impure_call(e: Expr | Function, mod: IRModule | None = None) -> bool:
    """May running it have effects?"""
    return any(is_impure(getattr(b, "value", None), mod) for b in all_bindings(e))
