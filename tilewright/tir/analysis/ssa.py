"""Is every variable defined once?"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Let, Var
from tilewright.ir.node import children
from tilewright.tir import ir as t

__all__ = ["verify_ssa"]


def verify_ssa(func: t.PrimFunc) -> bool:
    """Does each definition of the function (parameters, loops, lets, allocations, block iterators) define a new variable?"""
    defined: set[Any] = set()

    def define(*variables: Var) -> bool:
        for v in variables:
            if v in defined:
                return False
            defined.add(v)
        return True

    def visit(n: Any) -> bool:
        if isinstance(n, t.For):
            ok = define(n.loop_var)
        elif isinstance(n, (t.LetStmt, Let)):
            ok = define(n.var)
        elif isinstance(n, (t.Allocate, t.AllocateConst)):
            ok = define(n.buffer_var)
        elif isinstance(n, t.Block):
            views = (m.buffer.data for m in n.match_buffers)
            ok = define(*(iv.var for iv in n.iter_vars), *(b.data for b in n.alloc_buffers), *views)
        else:
            ok = True
        return ok and (n.identity or all(visit(c) for c in children(n)))

    return define(*func.params) and visit(func.body)
