"""The `I` of IRBuilder: `with I.ir_module(): with T.prim_func(): T.func_name("main")`."""

from __future__ import annotations

from typing import Any

from tilewright.ir.op import GlobalVar
from tilewright.script.immediate import active
from tilewright.script.ir_builder.base import IRBuilder, ModuleFrame
from tilewright.support.diagnostics import CompileError

__all__ = ["decl_function", "def_function", "ir_module", "module_attrs"]


def ir_module() -> ModuleFrame:
    """A module."""
    return ModuleFrame()


def _module(what: str) -> ModuleFrame:
    state = active()
    if not isinstance(state, IRBuilder) or state.module is None:
        raise CompileError.at("TW0117", f"{what} belongs in `with I.ir_module():`")
    return state.module


def decl_function(func_name: str, func_signature: Any) -> GlobalVar:
    """A function of the module before it is defined, so that others may call it."""
    m = _module("I.decl_function")
    if any(v.name_hint == func_name for v in m.functions):
        raise CompileError.at("TW0116", f"the module has two functions named {func_name!r}")
    var = GlobalVar(func_name)
    m.functions[var] = func_signature
    return var


def def_function(func_name: str, func: Any) -> None:
    """Define a function of the module."""
    m = _module("I.def_function")
    var = next((v for v in m.functions if v.name_hint == func_name), None)
    m.functions[var or GlobalVar(func_name)] = func


def module_attrs(attrs: dict[str, Any]) -> None:
    """Attributes of the module."""
    _module("I.module_attrs").attrs.update(attrs)
