"""Conditions on iterators as limits: `low <= sum < high`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var, convert
from tilewright.ir.node import children

__all__ = ["Limit", "Unread", "limits_of"]


class Unread(Exception):
    """A condition is no conjunction of limits."""


class Limit(NamedTuple):
    """`low <= expr < high`; None where there is no such end."""

    expr: PrimExpr
    low: PrimExpr | None
    high: PrimExpr | None


class Iters(NamedTuple):
    """The range of an iterator that conditions on it alone have narrowed."""

    min: PrimExpr
    extent: PrimExpr


def limits_of(condition: PrimExpr, iters: Mapping[Var, Any], ana: Analyzer) -> tuple[list[Limit], dict[Var, Any]]:
    """(the limits that a condition sets, shortest expressions first; the ranges, narrowed by those on one variable).

    Raises Unread for a condition that is no conjunction of comparisons.
    """
    narrowed: dict[Var, Any] = dict(iters)
    limits: list[Limit] = []
    for part in _conjuncts(condition):
        found = _limit(part, iters, ana)
        if found is None:
            continue
        if isinstance(found.expr, Var) and found.expr in narrowed:
            narrowed[found.expr] = _narrow(narrowed[found.expr], found, ana)
        else:
            limits.append(found)
    limits.sort(key=lambda x: _size(x.expr))
    return limits, narrowed


def _conjuncts(e: PrimExpr) -> list[PrimExpr]:
    if isinstance(e, ex.And):
        return _conjuncts(e.a) + _conjuncts(e.b)
    if isinstance(e, ex.Call) and getattr(e.op, "name", "") == "tir.likely":
        return _conjuncts(e.args[0])
    if isinstance(e, IntImm):
        if not e.value:
            raise Unread("the condition never holds")
        return []
    return [e]


def _mentions(e: Any, iters: Mapping[Var, Any]) -> bool:
    if isinstance(e, Var):
        return e in iters
    return any(_mentions(c, iters) for c in children(e))


def _limit(e: Any, iters: Mapping[Var, Any], ana: Analyzer) -> Limit | None:
    kind = type(e)
    if kind not in (ex.LT, ex.LE, ex.GT, ex.GE, ex.EQ):
        raise Unread(f"the condition {e} is no limit of a sum of iterators")
    if kind in (ex.GT, ex.GE):
        a, b, strict = e.b, e.a, kind is ex.GT
    else:
        a, b, strict = e.a, e.b, kind is ex.LT
    left, right = _mentions(a, iters), _mentions(b, iters)
    if not left and not right:
        return None
    one = IntImm(a.dtype, 1)
    if left and right:
        a, b = _apart(a, b, iters, ana)
        right = False
    if kind is ex.EQ:
        value, of = (b, a) if not right else (a, b)
        return Limit(of, value, ana.simplify(ex.add(value, one)))
    if not right:
        return Limit(a, None, b if strict else ana.simplify(ex.add(b, one)))
    return Limit(b, ana.simplify(ex.add(a, one)) if strict else a, None)


def _apart(a: PrimExpr, b: PrimExpr, iters: Mapping[Var, Any], ana: Analyzer) -> tuple[PrimExpr, PrimExpr]:
    """a ? b with the terms of iterators on the left and the others on the right."""
    lhs: PrimExpr = IntImm(a.dtype, 0)
    rhs: PrimExpr = IntImm(a.dtype, 0)

    def spread(e: Any, sign: int) -> None:
        nonlocal lhs, rhs
        if isinstance(e, (ex.Add, ex.Sub)):
            spread(e.a, sign)
            spread(e.b, sign if isinstance(e, ex.Add) else -sign)
        elif _mentions(e, iters):
            lhs = ex.add(lhs, e) if sign > 0 else ex.sub(lhs, e)
        else:
            rhs = ex.sub(rhs, e) if sign > 0 else ex.add(rhs, e)

    spread(a, 1)
    spread(b, -1)
    return lhs, ana.simplify(rhs)


def _narrow(r: Any, limit: Limit, ana: Analyzer) -> Iters:
    dtype = limit.expr.dtype
    low, extent = ex.cast(convert(r.min), dtype), ex.cast(convert(r.extent), dtype)
    high = ex.add(low, extent)
    first = low if limit.low is None else ana.simplify(ex.maximum(limit.low, low))
    last = high if limit.high is None else ana.simplify(ex.minimum(limit.high, high))
    return Iters(first, ana.simplify(ex.sub(last, first)))


def _size(e: Any) -> int:
    return 1 + sum(_size(c) for c in children(e))
