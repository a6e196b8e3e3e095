"""A map whose value depends on where along its inner axis a point lies is cut at those places: each piece has no branch.

out[i, c] = c < 34 ? a[i, c] : b[i, c - 34]     ▶     out[i, c] = a[i, c]  for c in [0, 34)
                                                      out[i, 34 + c] = b[i, c]  for the rest
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from tilewright.arith.expr import GE, GT, LE, LT, And, Call, CmpOp, Or, PrimExpr, Select, Var, add, const
from tilewright.backends.llvm.schedules.access import Access
from tilewright.backends.llvm.schedules.stages import Axis, Stage
from tilewright.ir import dtype as dt
from tilewright.ir.node import map_children, walk
from tilewright.ir.op import Op
from tilewright.ir.rewrite import substitute
from tilewright.tir.lower.index import IndexSpace
from tilewright.tir.lower.settle_loops import decide

__all__ = ["cut_into_pieces"]

MAX_PIECES = 16


def cut_into_pieces(stage: Stage) -> list[Stage]:
    """The (flattened) map stage, cut along its innermost axis where a condition changes there; itself where none does."""
    access = Access(stage)
    inner = next((a for a in reversed(stage.axes) if access.step(access.store, a.var) == 1), None)
    if inner is None or inner.size is None:
        return [stage]
    cuts = sorted(t for t in _thresholds(stage.value, inner, access.space) if 0 < t < inner.size)
    if not cuts or len(cuts) >= MAX_PIECES:
        return [stage]
    bounds = [0, *cuts, inner.size]
    return [_piece(stage, inner, low, high) for low, high in itertools.pairwise(bounds)]


def _thresholds(value: PrimExpr, axis: Axis, space: IndexSpace) -> set[int]:
    """Where comparisons with the axis change their answer."""
    out: set[int] = set()
    atom = space.atom(axis.var)
    for x in walk(value):
        if not isinstance(x, (LT, LE, GT, GE)) or not dt.is_int(x.a.dtype) or dt.lanes(x.dtype) > 1:
            continue
        p = dict(space.sum(space.poly(x.a), space.poly(x.b), -1))
        factor = p.pop((atom,), 0)
        c = p.pop((), 0)
        if p or factor not in (1, -1):
            continue
        # factor*v + c compared with 0
        if factor == 1:
            out.add(-c if isinstance(x, (LT, GE)) else 1 - c)
        else:
            out.add(c + 1 if isinstance(x, (LT, GE)) else c)
    return out


def _piece(stage: Stage, axis: Axis, low: int, high: int) -> Stage:
    dtype = axis.var.dtype
    var = Var(axis.var.name, dtype)
    mapping: dict[Any, Any] = {axis.var: add(var, const(low, dtype))}
    mine = Axis(var, const(high - low, dtype))
    axes = [mine if a is axis else a for a in stage.axes]
    space = IndexSpace()
    for a in axes:
        space.set_range(a.var, const(0, a.var.dtype), a.extent)
    value = _fold(substitute(stage.value, mapping), space)
    return replace(stage, axes=axes, value=value, index=tuple(substitute(i, mapping) for i in stage.index))


def _truth(e: PrimExpr, space: IndexSpace) -> bool | None:
    """Whether a condition holds everywhere, nowhere, or here and there (None)."""
    if isinstance(e, (And, Or)):
        a, b = _truth(e.a, space), _truth(e.b, space)
        if isinstance(e, And):
            return False if a is False or b is False else True if a and b else None
        return True if a or b else False if a is False and b is False else None
    if isinstance(e, CmpOp) and e.a.dtype in ("int32", "int64"):
        return decide(type(e), *space.bounds(space.sum(space.poly(e.a), space.poly(e.b), -1)))
    return None


def _fold(e: PrimExpr, space: IndexSpace) -> PrimExpr:
    def visit(x: Any) -> Any:
        if isinstance(x, Select) or (isinstance(x, Call) and isinstance(x.op, Op) and x.op.name == "tir.if_then_else"):
            condition, a, b = (x.condition, x.true_value, x.false_value) if isinstance(x, Select) else x.args
            known = _truth(condition, space)
            if known is not None:
                return visit(a if known else b)
        return x if x.identity else map_children(x, visit)

    return visit(e)
