"""Bring graph functions to normal form: nested expressions are bound to variables, struct info is inferred."""

from __future__ import annotations

from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.node import replace
from tilewright.ir.passes import PassContext, pass_
from tilewright.relax.block_builder import is_leaf
from tilewright.relax.calls import is_impure
from tilewright.relax.ir import (
    Call,
    DataflowBlock,
    Function,
    If,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from tilewright.relax.rewrite import GraphMutator
from tilewright.relax.values import make_var

__all__ = ["convert_to_dataflow", "normalise"]


class _Normaliser(GraphMutator):
    def operand(self, e: Any) -> Any:
        if isinstance(e, (Call, If, SeqExpr, TupleGetItem)):
            self.changed = True
            return self.bb.normalize(self.nested(e))
        return super().operand(e)

    def nested(self, e: Any) -> Any:
        """A nested expression with the variables in it replaced, its own parts nested no more."""
        if isinstance(e, SeqExpr):
            for block in e.blocks:
                self.block(block)
            return self.operand(e.body)
        if isinstance(e, TupleGetItem):
            return replace(e, tuple_value=self.operand(e.tuple_value), struct_info=None)
        return self.value(e, make_var("", None))

    def value(self, e: Any, var: Var) -> Any:
        if isinstance(e, Call):
            args = tuple(self.operand(a) for a in e.args)
            if any(a is not b for a, b in zip(args, e.args)) or e.struct_info is None:
                return self.bb.normal(replace(e, args=args, struct_info=None))
            return e
        if isinstance(e, TupleGetItem):
            value = self.operand(e.tuple_value)
            if isinstance(value, Tuple):
                return value.fields[e.index]
            if value is e.tuple_value and e.struct_info is not None:
                return e
            return self.bb.normal(replace(e, tuple_value=value, struct_info=None))
        if isinstance(e, If):
            if e.struct_info is None or not all(isinstance(b, SeqExpr) for b in (e.true_branch, e.false_branch)):
                self.changed = True
                e = replace(
                    e, true_branch=self.inner(e.true_branch), false_branch=self.inner(e.false_branch), struct_info=None
                )
                return self.bb.normal(replace(e, cond=self.operand(e.cond)))
            return super().value(e, var)
        if isinstance(e, SeqExpr):
            for block in e.blocks:
                self.block(block)
            return self.operand(e.body)
        return super().operand(e)

    def binding(self, b: Any) -> None:
        if isinstance(b, VarBinding) and b.var.struct_info is None:
            value = self.value(b.value, b.var)
            self.changed = True
            made = self.bb.normal(value) if not is_leaf(value) else value
            name, span = b.var.name_hint, b.var.span
            fresh: Any = type(b.var)(name_hint=name, struct_info=getattr(made, "struct_info", None))
            fresh.span = span
            self.env[b.var] = fresh
            self.bb.emit_normalized(VarBinding(fresh, made))
            return
        super().binding(b)

    def sequence(self, s: Any) -> SeqExpr:
        if not isinstance(s, SeqExpr):
            self.changed = True
        return super().sequence(s)


@pass_(gives="graph", name="Normalize")
def normalise(mod: IRModule, ctx: PassContext) -> IRModule:
    """Nested operands are bound to variables, bodies become SeqExprs, missing struct info is inferred."""
    del ctx
    return _Normaliser(mod).run()


@pass_(name="ConvertToDataflow")
def convert_to_dataflow(f: Function, ctx: PassContext) -> Function:
    """Runs of bindings without effects and branches, in the body of a function, become dataflow blocks."""
    del ctx
    if not isinstance(f.body, SeqExpr) or all(isinstance(b, DataflowBlock) for b in f.body.blocks):
        return f
    from tilewright.relax.ir import BindingBlock

    blocks: list[BindingBlock] = []
    for block in f.body.blocks:
        if isinstance(block, DataflowBlock):
            blocks.append(block)
            continue
        run: list[Any] = []
        for b in block.bindings:
            value = getattr(b, "value", None)
            if isinstance(value, If) or is_impure(value):
                if run:
                    blocks.append(DataflowBlock(tuple(run)))
                    run = []
                if blocks and type(blocks[-1]) is BindingBlock:
                    blocks[-1] = BindingBlock((*blocks[-1].bindings, b))
                else:
                    blocks.append(BindingBlock((b,)))
            else:
                run.append(b)
        if run:
            blocks.append(DataflowBlock(tuple(run)))
    if len(blocks) == len(f.body.blocks) and all(type(a) is type(b) for a, b in zip(blocks, f.body.blocks)):
        return f
    return replace(f, body=replace(f.body, blocks=tuple(blocks)))
