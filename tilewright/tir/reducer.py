"""Which commutative reduction an update is: `C = C + x`, `(index, value) = argmax(...)`, ...

A reducer is a template: expressions of what was gathered so far (`lhs`) and what is new (`rhs`), with the values it may
start from. `match_reducer` fits the updates of a block to one and gives what each buffer takes in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tilewright.arith import expr as ex
from tilewright.arith.expr import FloatImm, IntImm, PrimExpr, Var
from tilewright.ir.node import Node
from tilewright.ir.rewrite import substitute
from tilewright.ir.structure import structural_equal
from tilewright.tir.ir import BufferLoad

__all__ = ["Reducer", "combined", "match_reducer"]

Pair = tuple[Sequence[Any], Sequence[Any]]


class Reducer(NamedTuple):
    """How values are combined: `combine(lhs, rhs)` gives one expression a value; `starts(dtypes)` the values it may start
    from, one list of alternatives each."""

    name: str
    combine: Callable[[Sequence[Any], Sequence[Any]], Sequence[PrimExpr]]
    starts: Callable[[Sequence[str]], Sequence[Sequence[PrimExpr]]]


def _least(dtype: str) -> list[PrimExpr]:
    return [ex.min_value(dtype), *([FloatImm(dtype, float("-inf"))] if "float" in dtype else [])]


def _greatest(dtype: str) -> list[PrimExpr]:
    return [ex.max_value(dtype), *([FloatImm(dtype, float("inf"))] if "float" in dtype else [])]


def _best(kind: type[ex.CmpOp]) -> Callable[[Sequence[Any], Sequence[Any]], Sequence[PrimExpr]]:
    """(index, value): the old pair stays where its value compares so with the new one."""

    def combine(x: Sequence[Any], y: Sequence[Any]) -> Sequence[PrimExpr]:
        keep = kind(x[1], y[1])
        return ex.Select(keep, x[0], y[0]), ex.Select(keep, x[1], y[1])

    return combine


def _best_first(kind: type[ex.CmpOp]) -> Callable[[Sequence[Any], Sequence[Any]], Sequence[PrimExpr]]:
    """As `_best`; of equal values the one with the lesser index."""

    def combine(x: Sequence[Any], y: Sequence[Any]) -> Sequence[PrimExpr]:
        better = kind(x[1], y[1])
        keep = ex.Or(better, ex.And(ex.EQ(x[1], y[1]), ex.LT(x[0], y[0])))
        return ex.Select(keep, x[0], y[0]), ex.Select(better, x[1], y[1])

    return combine


def _value(n: int) -> Callable[[Sequence[str]], Sequence[Sequence[PrimExpr]]]:
    return lambda dtypes: [[ex.const(n, d)] for d in dtypes]


def _index_and(edge: Callable[[str], list[PrimExpr]]) -> Callable[[Sequence[str]], Sequence[Sequence[PrimExpr]]]:
    return lambda dtypes: [[ex.const(-1, dtypes[0])], edge(dtypes[1])]


SINGLE = (
    Reducer("sum", lambda x, y: (ex.Add(x[0], y[0]),), _value(0)),
    Reducer("prod", lambda x, y: (ex.Mul(x[0], y[0]),), _value(1)),
    Reducer("min", lambda x, y: (ex.Min(x[0], y[0]),), lambda d: [_greatest(d[0])]),
    Reducer("max", lambda x, y: (ex.Max(x[0], y[0]),), lambda d: [_least(d[0])]),
    Reducer("all", lambda x, y: (ex.And(x[0], y[0]),), _value(1)),
    Reducer("any", lambda x, y: (ex.Or(x[0], y[0]),), _value(0)),
)
DOUBLE = (
    Reducer("sums", lambda x, y: (ex.Add(x[0], y[0]), ex.Add(x[1], y[1])), _value(0)),
    Reducer("argmax", _best(ex.GE), _index_and(_least)),
    Reducer("argmin", _best(ex.LE), _index_and(_greatest)),
    Reducer("argmax", _best_first(ex.GT), _index_and(_least)),
    Reducer("argmin", _best_first(ex.LT), _index_and(_greatest)),
)


def match_reducer(
    starts: Sequence[PrimExpr], loads: Sequence[BufferLoad], updates: Sequence[PrimExpr]
) -> tuple[Reducer, list[PrimExpr]] | None:
    """(the reducer, what each value takes in) of updates `loads[i] := updates[i]` that start from `starts`; None: none fits.

    What is taken in mentions none of the loads. Operators of one value are taken either way round.
    """
    table = {1: SINGLE, 2: DOUBLE}.get(len(loads), ())
    for reducer in table:
        allowed = _starts(reducer, [x.dtype for x in loads])
        if allowed is None or not all(_among(s, a) for s, a in zip(starts, allowed, strict=True)):
            continue
        orders = (updates, *([_turned(updates[0])] if len(loads) == 1 else []))
        for order in orders:
            taken = _fit(reducer, loads, order)
            if taken is not None:
                return reducer, taken
    return None


def _starts(reducer: Reducer, dtypes: Sequence[str]) -> Sequence[Sequence[PrimExpr]] | None:
    if reducer.name in ("all", "any") and dtypes[0] != "bool":
        return None
    return reducer.starts(dtypes)


def _among(value: PrimExpr, allowed: Sequence[PrimExpr]) -> bool:
    return any(
        isinstance(value, (IntImm, FloatImm)) and isinstance(a, (IntImm, FloatImm)) and value.value == a.value
        for a in allowed
    )


def _turned(e: PrimExpr) -> list[PrimExpr]:
    """The operands of a commutative operator exchanged."""
    if isinstance(e, (ex.Add, ex.Mul, ex.Min, ex.Max, ex.And, ex.Or)):
        return [type(e)(e.b, e.a)]
    return [e]


def _fit(reducer: Reducer, loads: Sequence[BufferLoad], updates: Sequence[PrimExpr]) -> list[PrimExpr] | None:
    old = [Var(f"x{i}", x.dtype) for i, x in enumerate(loads)]
    new = [Var(f"y{i}", x.dtype) for i, x in enumerate(loads)]
    found: dict[Any, Any] = dict(zip(old, loads))
    buffers = {x.buffer for x in loads}
    for template, e in zip(reducer.combine(old, new), updates, strict=True):
        if not _match(template, e, found, set(new)):
            return None
    taken: list[Any] = [found.get(y) for y in new]
    return None if any(t is None or _reads(t, buffers) for t in taken) else taken


def _match(template: Any, e: Any, found: dict[Any, Any], free: set[Any]) -> bool:
    if isinstance(template, Var):
        known = found.get(template)
        if known is None and template in free:
            found[template] = e
            return True
        return known is not None and structural_equal(known, e)
    if type(template) is not type(e):
        return False
    return all(_match(getattr(template, f.name), getattr(e, f.name), found, free) for f in template.node_fields)


def _reads(e: Any, buffers: set[Any]) -> bool:
    from tilewright.ir.node import walk

    return isinstance(e, Node) and any(isinstance(x, BufferLoad) and x.buffer in buffers for x in walk(e))


def combined(reducer: Reducer, lhs: Sequence[PrimExpr], rhs: Sequence[PrimExpr]) -> list[PrimExpr]:
    """The combination of two lists of values."""
    old = [Var(f"x{i}", x.dtype) for i, x in enumerate(lhs)]
    new = [Var(f"y{i}", x.dtype) for i, x in enumerate(rhs)]
    table = {**dict(zip(old, lhs)), **dict(zip(new, rhs))}
    return [substitute(e, table) for e in reducer.combine(old, new)]
