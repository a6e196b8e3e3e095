"""Compute equal things once."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import FloatImm, IntImm
from tilewright.ir.module import IRModule
from tilewright.ir.passes import PassContext, pass_
from tilewright.relax.calls import is_impure
from tilewright.relax.dims import dim_key
from tilewright.relax.ir import (
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    ExternFunc,
    GlobalVar,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
)
from tilewright.relax.rewrite import GraphMutator
from tilewright.relax.struct_info import sinfo_equal

__all__ = ["cse"]

_SMALL = 64


class _CSE(GraphMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.seen: dict[Any, Var] = {}

    def begin(self, f: Any) -> None:
        self.seen = {}

    def inner(self, s: Any) -> SeqExpr:
        outer = dict(self.seen)  # what a branch computes is not there behind it
        try:
            return super().inner(s)
        finally:
            self.seen = outer

    def block(self, block: BindingBlock) -> None:
        super().block(block)
        if isinstance(block, DataflowBlock):  # dataflow variables end here
            self.seen = {k: v for k, v in self.seen.items() if not isinstance(v, DataflowVar)}

    def value(self, e: Any, var: Var) -> Any:
        new = super().value(e, var)
        key = self.key(new) if isinstance(new, (Call, TupleGetItem)) else None
        if key is None:
            return new
        found = self.seen.get(key)
        if found is None:
            self.seen[key] = var
            return new
        return found if sinfo_equal(found.struct_info, new.struct_info) else new

    def bind(self, b: Any, value: Any) -> None:
        super().bind(b, value)
        new = self.env.get(b.var)
        if new is not None:  # a variable with better struct info took its place
            for k, v in list(self.seen.items()):
                if v is b.var:
                    self.seen[k] = new

    def key(self, e: Any) -> Any:
        """Something hashable, equal for equal values; None: do not share."""
        if isinstance(e, (Var, GlobalVar)):
            return e
        if isinstance(e, Call):
            if is_impure(e, self.mod):
                return None
            try:
                hash(e.op)
            except TypeError:
                return None
            parts = [self.key(a) for a in e.args]
            return None if any(p is None for p in parts) else ("call", type(e.op), e.op, *parts)
        if isinstance(e, TupleGetItem):
            part = self.key(e.tuple_value)
            return None if part is None else ("get", part, e.index)
        if isinstance(e, Tuple):
            parts = [self.key(f) for f in e.fields]
            return None if any(p is None for p in parts) else ("tuple", *parts)
        if isinstance(e, Constant):
            if e.data.size <= _SMALL:
                return ("const", str(e.data.dtype), e.data.shape, e.data.tobytes())
            return ("array", id(e.data))
        if isinstance(e, ShapeExpr):
            return ("shape", *(self.scalar(d) for d in e.values))
        if isinstance(e, PrimValue):
            return ("prim", e.value.dtype, self.scalar(e.value))
        if isinstance(e, StringImm):
            return ("text", e.value)
        if isinstance(e, ExternFunc):
            return ("extern", e.global_symbol)
        return None

    @staticmethod
    def scalar(d: Any) -> Any:
        if isinstance(d, (IntImm, FloatImm)):
            return repr(d.value)
        return dim_key(d) if d.dtype in ("int64", "int32") else id(d)


@pass_(name="EliminateCommonSubexpr")
def cse(mod: IRModule, ctx: PassContext) -> IRModule:
    """Calls of one operator on the same operands become one."""
    del ctx
    return _CSE(mod).run()
