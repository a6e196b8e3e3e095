"""Simplify bindings: aliases, fields of known tuples, checks that are proved."""

from __future__ import annotations

from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.node import replace
from tilewright.ir.passes import PassContext, pass_
from tilewright.relax.ir import (
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    MatchCast,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from tilewright.relax.rewrite import GraphMutator
from tilewright.relax.struct_info import sinfo_equal, subsumes

__all__ = ["canonicalise_bindings"]


class _Canonicaliser(GraphMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.rename: dict[Var, Var] = {}

    def block(self, block: BindingBlock) -> None:
        if isinstance(block, DataflowBlock):  # `gv = lv` behind `lv = f(x)`: bind gv at once
            local = {b.var for b in block.bindings if isinstance(b, VarBinding) and isinstance(b.var, DataflowVar)}
            for b in block.bindings:
                if not isinstance(b, VarBinding) or isinstance(b.var, DataflowVar):
                    continue
                source = b.value
                if isinstance(source, DataflowVar) and source in local and source not in self.rename:
                    if sinfo_equal(source.struct_info, b.var.struct_info):
                        self.rename[source] = b.var
        super().block(block)

    def binding(self, b: Any) -> None:
        if isinstance(b, VarBinding):
            if b.value in self.rename and self.rename[b.value] is b.var:  # pyright: ignore
                self.changed = True
                return
            new = self.rename.get(b.var)
            if new is not None:
                self.changed = True
                self.env[b.var] = new
                b = replace(b, var=new)
        super().binding(b)

    def bind(self, b: VarBinding, value: Any) -> None:
        if isinstance(value, Var) and not (isinstance(value, DataflowVar) and not isinstance(b.var, DataflowVar)):
            self.changed = True
            self.env[b.var] = value
            return
        super().bind(b, value)

    def match_cast(self, b: MatchCast) -> Any:
        have = getattr(b.value, "struct_info", None)
        return None if have is not None and subsumes(b.struct_info, have) else b

    def operand(self, e: Any) -> Any:
        e = super().operand(e)
        while isinstance(e, TupleGetItem):
            value = e.tuple_value
            known = self.bb.visible_binding(value) if isinstance(value, Var) else value
            if not isinstance(known, Tuple):
                return e
            e = known.fields[e.index]
        return e


@pass_(name="CanonicalizeBindings")
def canonicalise_bindings(mod: IRModule, ctx: PassContext) -> IRModule:
    """Uses of `y` bound to `x` become uses of `x`; `t[i]` of a known tuple its field; a proved match_cast its operand."""
    del ctx
    return _Canonicaliser(mod).run()
