"""What the loop passes share: making a pass of a function on PrimFuncs, and a rewriter that swaps buffers consistently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.expr import Call, IntImm, PrimExpr
from tilewright.ir.module import IRModule
from tilewright.ir.node import map_children
from tilewright.ir.op import Op
from tilewright.ir.passes import Pass, PassContext
from tilewright.ir.rewrite import Mutator
from tilewright.tir import ir as t

__all__ = ["FALSE", "NOTHING", "TRUE", "BufferMutator", "call_name", "func_pass", "is_nothing", "is_one", "option"]

TRUE = IntImm("bool", 1)
FALSE = IntImm("bool", 0)
NOTHING = t.Evaluate(IntImm("int32", 0))
"""The statement that does nothing."""


def func_pass(name: str, run: Callable[[t.PrimFunc], t.PrimFunc], doc: str | None = None) -> Pass:
    """A pass `tir.<name>` that applies `run` to every PrimFunc of a module."""

    def on_module(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        changed: dict[Any, Any] = {}
        for var, f in mod.functions.items():
            if isinstance(f, t.PrimFunc):
                new = run(f)
                if new is not f:
                    changed[var] = new
        return mod.with_(changed) if changed else mod

    return Pass(on_module, "tir." + name, doc=doc or run.__doc__)


def option(key: str, field: str, default: Any) -> Any:
    """The option `field` of the configuration object `key` of the current PassContext (a mapping, or an object with it)."""
    value = PassContext.current().config.get(key)
    if value is None:
        return default
    found = value.get(field) if isinstance(value, dict) else getattr(value, field, None)  # pyright: ignore
    return default if found is None else found  # pyright: ignore[reportUnknownVariableType]


def is_nothing(s: t.Stmt | None) -> bool:
    """Is it the statement that does nothing?"""
    return isinstance(s, t.Evaluate) and isinstance(s.value, IntImm)


def is_one(e: Any) -> bool:
    """Is it the constant 1 (or true)?"""
    return isinstance(e, IntImm) and e.value == 1


def call_name(e: Any) -> str:
    """The name of the intrinsic that a call calls (`tir.exp`), or an empty string."""
    return e.op.name if isinstance(e, Call) and isinstance(e.op, Op) else ""


class BufferMutator(Mutator):
    """Rewrites top down; `buffer(b)` says what stands for a buffer wherever it is accessed, declared or listed."""

    def __init__(self) -> None:
        self.remap: dict[t.Buffer, t.Buffer] = {}

    def buffer(self, b: t.Buffer) -> t.Buffer:
        """The buffer that stands for `b`; by default the one noted in `remap`."""
        return self.remap.get(b, b)

    def visit_Buffer(self, b: t.Buffer) -> t.Buffer:
        return self.buffer(b)

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e if e.identity or not e.node_fields else map_children(e, self.visit)

    def visit_BufferRegion(self, r: t.BufferRegion) -> t.BufferRegion:
        return self.generic(r)
