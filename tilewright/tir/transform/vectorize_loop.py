"""The named pass on VECTORIZED loops; how it is done stands in `tir/lower/vectorize_loops.py`."""

from __future__ import annotations

from tilewright.arith.expr import PrimExpr
from tilewright.ir.node import replace
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.tir import ir as t
from tilewright.tir.lower.vectorize_loops import vectorize_loops
from tilewright.tir.transform.base import func_pass

__all__ = ["VectorizeLoop"]


class _Serial(Mutator):
    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_For(self, s: t.For) -> t.Stmt:
        body = self.visit(s.body)
        kind = t.ForKind.SERIAL if s.kind == t.ForKind.VECTORIZED else s.kind
        return s if body is s.body and kind == s.kind else replace(s, kind=kind, body=body)


def VectorizeLoop(enable_vectorize: bool = True) -> Pass:
    """VECTORIZED loops become vector operations; what has no vector form a loop over the lanes. `enable_vectorize=False`: serial
    loops."""

    def run(f: t.PrimFunc) -> t.PrimFunc:
        return vectorize_loops(f, lockstep=True) if enable_vectorize else f.with_body(_Serial().visit(f.body))

    return func_pass("VectorizeLoop", run, VectorizeLoop.__doc__)
