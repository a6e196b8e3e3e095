"""A block's `init` becomes the first part of its body, guarded by "every reduction axis is at its start"."""

from __future__ import annotations

from tilewright.arith.expr import EQ, And, PrimExpr
from tilewright.ir.node import replace
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.tir import ir as t
from tilewright.tir.transform.base import func_pass

__all__ = ["LowerInitBlock", "lower_init_block"]


def lower_init_block(f: t.PrimFunc) -> t.PrimFunc:
    """The function without `init` in its blocks."""
    body = _LowerInit().visit(f.body)
    return f if body is f.body else f.with_body(body)


class _LowerInit(Mutator):
    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Block(self, b: t.Block) -> t.Block:
        body = self.visit(b.body)
        if b.init is None:
            return b if body is b.body else replace(b, body=body)
        return replace(b, init=None, body=t.seq(_guarded(self.visit(b.init), b.iter_vars), body))


def _guarded(init: t.Stmt, iters: tuple[t.IterVar, ...]) -> t.Stmt:
    condition: PrimExpr | None = None
    for iv in iters:
        if iv.iter_type == t.IterVar.CommReduce and iv.dom is not None:
            here = EQ(iv.var, iv.dom.min)
            condition = here if condition is None else And(condition, here)
    return init if condition is None else t.IfThenElse(condition, init)


def LowerInitBlock() -> Pass:
    """`with T.init(): B[i] = 0` ▸ `if k == 0: B[i] = 0` at the head of the block's body."""
    return func_pass("LowerInitBlock", lower_init_block)
