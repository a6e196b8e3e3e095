"""Passes on whole modules: which functions there are, which targets they run on, which is the entry, what constants they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.arith.expr import Call, StringImm
from tilewright.ir.module import IRModule, attrs_of
from tilewright.ir.node import replace, walk
from tilewright.ir.op import GlobalVar
from tilewright.ir.passes import Pass, PassContext
from tilewright.ir.rewrite import Mutator
from tilewright.ir.target import Target
from tilewright.tir import ir as t
from tilewright.tir.transform.base import call_name, func_pass

__all__ = ["AnnotateEntryFunc", "Apply", "BindTarget", "ExtractPrimFuncConstants", "Filter"]


def Apply(ftransform: Callable[[t.PrimFunc], t.PrimFunc]) -> Pass:
    """`ftransform` on every PrimFunc."""
    return func_pass("Apply", ftransform, Apply.__doc__)


def Filter(fcond: Callable[[t.PrimFunc], bool]) -> Pass:
    """Only the PrimFuncs for which `fcond` holds stay; other functions stay too."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        gone = [v for v, f in mod.functions.items() if isinstance(f, t.PrimFunc) and not fcond(f)]
        return mod.without(*gone) if gone else mod

    return Pass(run, "tir.Filter", doc=Filter.__doc__)


def AnnotateEntryFunc() -> Pass:
    """The only function (or the only public one) of the module is marked as its entry."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        funcs = {v: f for v, f in mod.functions.items() if isinstance(f, t.PrimFunc)}
        public = {v: f for v, f in funcs.items() if "global_symbol" in attrs_of(f)}
        chosen = funcs if len(funcs) == 1 else public if len(public) == 1 else {}
        return mod.with_({v: f.with_attr("tir.is_entry_func", True) for v, f in chosen.items()}) if chosen else mod

    return Pass(run, "tir.AnnotateEntryFunc", doc=AnnotateEntryFunc.__doc__)


def _calls(f: t.PrimFunc) -> set[str]:
    """The functions of the module that `f` calls."""
    out: set[str] = set()
    for x in walk(f.body):
        if isinstance(x, Call):
            if isinstance(x.op, GlobalVar):
                out.add(x.op.name_hint)
            elif (
                call_name(x) in ("tir.tvm_call_packed", "tir.call_extern")
                and x.args
                and isinstance(x.args[0], StringImm)
            ):
                out.add(x.args[0].value)
    return out


def BindTarget(target: Target | str) -> Pass:
    """Each function gets a target: the given one for what is public or called from a device, its host for what runs there.

    A function that has one keeps it. Of the private functions those that only host functions call go to the host.
    """
    chosen = target if isinstance(target, Target) else Target(target)
    host = chosen.host

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        funcs = {v: f for v, f in mod.functions.items() if isinstance(f, t.PrimFunc)}
        on_host: set[str] = set()
        on_device: set[str] = set()
        changed: dict[GlobalVar, Any] = {}
        for f in funcs.values():
            if attrs_of(f).get("tir.is_host_func"):
                on_host |= _calls(f)
            elif "global_symbol" in attrs_of(f):
                on_device |= _calls(f)
        for v, f in funcs.items():
            attrs = attrs_of(f)
            if "target" in attrs:
                continue
            if attrs.get("tir.is_host_func"):
                changed[v] = f.without_attr("tir.is_host_func").with_attr("target", host or Target("llvm"))
            elif host is not None and v.name_hint in on_host and v.name_hint not in on_device:
                changed[v] = f.with_attr("target", host)
            else:
                changed[v] = f.with_attr("target", chosen)
        return mod.with_(changed) if changed else mod

    return Pass(run, "tir.BindTarget", doc=BindTarget.__doc__)


def ExtractPrimFuncConstants() -> Pass:
    """Constants of functions are listed in the module's attribute `constants`, each once; allocations say which they are
    (`irmod_storage_idx` among their annotations)."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        constants: list[Any] = list(mod.attrs.get("constants", ()))
        changed: dict[Any, Any] = {}
        for v, f in mod.functions.items():
            if isinstance(f, t.PrimFunc):
                body = _Extract(constants).visit(f.body)
                if body is not f.body:
                    changed[v] = f.with_body(body)
        return mod.with_(changed).with_attr("constants", constants) if changed else mod

    return Pass(run, "tir.ExtractPrimFuncConstants", doc=ExtractPrimFuncConstants.__doc__)


class _Extract(Mutator):
    def __init__(self, constants: list[Any]) -> None:
        self.constants = constants

    def visit_AllocateConst(self, s: t.AllocateConst) -> t.Stmt:
        index = self.index(np.asarray(s.data))
        notes = {**s.annotations, "irmod_storage_idx": index}
        return replace(s, annotations=notes, body=self.visit(s.body))

    def index(self, data: np.ndarray[Any, Any]) -> int:
        for n, known in enumerate(self.constants):
            other = np.asarray(known)
            if other.dtype == data.dtype and other.shape == data.shape and other.tobytes() == data.tobytes():
                return n
        self.constants.append(data)
        return len(self.constants) - 1
