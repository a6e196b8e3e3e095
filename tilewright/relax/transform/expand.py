"""Operators made of others become those, before anything else looks at the graph (see `Op.composite`)."""

from __future__ import annotations

from tilewright.ir.module import IRModule
from tilewright.ir.passes import PassContext, pass_
from tilewright.relax.ir import Call, Expr, Var
from tilewright.relax.op import Op
from tilewright.relax.rewrite import GraphMutator

__all__ = ["expand_composites"]


class _Expand(GraphMutator):
    def call(self, call: Call, var: Var) -> Expr:
        return call.op.lower(self.bb, *call.args) if isinstance(call.op, Op) and call.op.composite else call


@pass_(name="ExpandComposites")
def expand_composites(mod: IRModule, ctx: PassContext) -> IRModule:
    """nn.lstm, linear, nn.depth_to_space, ... become what they are made of, so that weights are folded and packed."""
    del ctx
    return _Expand(mod).run()
