"""Branches that need not be taken, and blocks that rewrite the layout of weights."""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import PrimExpr, Var, const
from tilewright.ir.node import replace, walk
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator, substitute
from tilewright.ir.structure import structural_equal
from tilewright.tir import ir as t
from tilewright.tir.transform.base import NOTHING, BufferMutator, func_pass, is_nothing
from tilewright.tir.transform.remove_no_op import remove_no_op
from tilewright.tir.transform.simplify import simplify_func

__all__ = ["ReduceBranchingThroughOvercompute", "RemoveWeightLayoutRewriteBlock"]


class _Overcompute(Mutator):
    """`if c: s` is `s`, where `s` does nothing when `c` does not hold; with an else, where it then does what that does."""

    def __init__(self) -> None:
        self.domains: list[tuple[Var, t.Range]] = []

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_For(self, s: t.For) -> t.Stmt:
        self.domains.append((s.loop_var, t.Range(s.min, s.extent)))
        out = self.generic(s)
        self.domains.pop()
        return out

    def visit_IfThenElse(self, s: t.IfThenElse) -> t.Stmt:
        new = self.generic(s)
        if any(isinstance(x, (t.BufferLoad, ex.Call)) for x in walk(new.condition)):
            return new
        if any(isinstance(x, ex.Call) for x in walk(new.then_case)):
            return new
        without = self.otherwise(new.then_case, new.condition)
        if new.else_case is None:
            return new.then_case if is_nothing(without) else new
        same = structural_equal(without, self.otherwise(new.else_case, new.condition))
        return new.then_case if same else new

    def otherwise(self, s: t.Stmt, c: PrimExpr) -> t.Stmt:
        """What a statement is where the condition does not hold."""
        ana = Analyzer()
        for v, r in self.domains:
            ana.bind(v, r)
        with ana.constraint_scope(ex.Not(c)):
            bounds = [(v, ana.const_int_bound(v)) for v, _ in self.domains]
            known = {v: const(b.min_value, v.dtype) for v, b in bounds if b.min_value == b.max_value}
            f = simplify_func(t.PrimFunc((), substitute(s, known)), ana)
        return remove_no_op(f).body


def ReduceBranchingThroughOvercompute() -> Pass:
    """Branches go whose statement may as well run where their condition does not hold."""

    def run(f: t.PrimFunc) -> t.PrimFunc:
        body = _Overcompute().visit(f.body)
        return f if body is f.body else f.with_body(body)

    return func_pass("ReduceBranchingThroughOvercompute", run, ReduceBranchingThroughOvercompute.__doc__)


_MARK = "meta_schedule.layout_rewrite_preproc"


class _Layouts(BufferMutator):
    """Blocks that rewrite a parameter's layout do nothing; what they wrote is the parameter itself, in its new shape."""

    def __init__(self, free: set[t.Buffer]) -> None:
        super().__init__()
        self.free = free

    def visit_Block(self, b: t.Block) -> t.Block:
        if not b.annotations.get(_MARK):
            new = self.generic(b)
            allocs = tuple(x for x in b.alloc_buffers if x not in self.remap)
            return replace(new, alloc_buffers=allocs) if len(allocs) != len(b.alloc_buffers) else new
        return replace(b, reads=(), writes=(), body=NOTHING, init=None)


def _remove_layout_blocks(f: t.PrimFunc, skip_tensor_rewrite: bool) -> t.PrimFunc:
    params = {b: p for p, b in f.buffer_map.items()}
    run = _Layouts(set(params))
    changed: dict[Any, t.Buffer] = {}
    for n in walk(f.body):
        if isinstance(n, t.Block) and n.annotations.get(_MARK) and n.reads and n.writes:
            source, target = n.reads[0].buffer, n.writes[0].buffer
            if source in params:
                new = replace(target, data=source.data, name=source.name)
                run.remap[target] = new
                if not skip_tensor_rewrite:
                    changed[params[source]] = new
    if not run.remap:
        return f
    buffers = {p: changed.get(p, b) for p, b in f.buffer_map.items()}
    return replace(f, buffer_map=buffers, body=run.visit(f.body))


def RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite: bool = False) -> Pass:
    """Blocks that rewrite the layout of a weight are emptied: the weight comes in its new layout. `skip_tensor_rewrite`: the
    parameter keeps its declared shape."""
    return func_pass(
        "RemoveWeightLayoutRewriteBlock",
        lambda f: _remove_layout_blocks(f, skip_tensor_rewrite),
        RemoveWeightLayoutRewriteBlock.__doc__,
    )
