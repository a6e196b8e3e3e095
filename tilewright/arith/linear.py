"""Expressions as sums of coefficients times atoms, and keys that make structurally equal expressions equal.

    4*i + j - 2  ->  Linear({key(i): (i, 4), key(j): (j, 1)}, -2)

An atom is whatever is no sum and no multiple by a constant: a variable, a quotient, a product of two variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.arith.expr import Add, Cast, IntImm, Mul, PrimExpr, Sub, Var
from tilewright.ir.node import INFO, Node

__all__ = ["Linear", "detect_linear_equation", "difference", "expr_key", "linear", "linear_form"]

_FIELDS: dict[type, tuple[str, ...]] = {}


def _fields(kind: type[Node]) -> tuple[str, ...]:
    found = _FIELDS.get(kind)
    if found is None:
        found = _FIELDS[kind] = tuple(f.name for f in kind.node_fields if f.role != INFO)
    return found


def expr_key(e: Any) -> Any:
    """A hashable value that two expressions share exactly when they are structurally equal (variables by identity)."""
    if isinstance(e, Node):
        if e.identity:
            return e
        if isinstance(e, IntImm):
            return (IntImm, e.dtype, e.value)
        kind = type(e)
        return (kind, *[expr_key(getattr(e, name)) for name in _fields(kind)])
    if isinstance(e, tuple):
        return tuple(expr_key(x) for x in e)
    return e


class Linear(NamedTuple):
    """`sum(coefficient * atom) + constant`; `terms` maps an atom's key to the atom and its coefficient (never 0)."""

    terms: dict[Any, tuple[PrimExpr, int]]
    constant: int


def linear(e: PrimExpr) -> Linear:
    """`e` as a sum of multiples of atoms. Wrap-around is ignored: right where the arithmetic does not overflow."""
    terms: dict[Any, tuple[PrimExpr, int]] = {}
    constant = _gather(e, 1, terms)
    return Linear({k: v for k, v in terms.items() if v[1] != 0}, constant)


def _gather(e: PrimExpr, scale: int, terms: dict[Any, tuple[PrimExpr, int]]) -> int:
    """Add `scale * e` to the terms; the constant part is returned."""
    kind = type(e)
    if kind is IntImm:
        return scale * e.value  # pyright: ignore[reportAttributeAccessIssue]
    if kind is Add:
        return _gather(e.a, scale, terms) + _gather(e.b, scale, terms)  # pyright: ignore[reportAttributeAccessIssue]
    if kind is Sub:
        return _gather(e.a, scale, terms) + _gather(e.b, -scale, terms)  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(e, Mul):
        if isinstance(e.b, IntImm):
            return _gather(e.a, scale * e.b.value, terms)
        if isinstance(e.a, IntImm):
            return _gather(e.b, scale * e.a.value, terms)
    key = e if isinstance(e, Var) else expr_key(e)
    old = terms.get(key)
    terms[key] = (e, scale + (old[1] if old is not None else 0))
    return 0


def difference(a: PrimExpr, b: PrimExpr) -> int | None:
    """`a - b` where it is a constant that plain linear arithmetic shows, else None."""
    terms: dict[Any, tuple[PrimExpr, int]] = {}
    constant = _gather(a, 1, terms) + _gather(b, -1, terms)
    return constant if all(c == 0 for _, c in terms.values()) else None


def linear_form(e: PrimExpr, variables: Sequence[Var]) -> tuple[list[int], PrimExpr] | None:
    """`e` as `sum(coefficients[i] * variables[i]) + rest`, `rest` free of the variables; None where that is not so."""
    lin = linear(e)
    coefficients = [0] * len(variables)
    rest: PrimExpr = IntImm(e.dtype, lin.constant)
    wanted = set(variables)
    for key, (atom, c) in lin.terms.items():
        if key in wanted:
            coefficients[next(i for i, v in enumerate(variables) if v is key)] = c
        elif _mentions(atom, wanted):
            return None
        else:
            rest = atom * c + rest
    return coefficients, rest


def detect_linear_equation(expr: PrimExpr, var_list: Sequence[Var]) -> list[PrimExpr]:
    """[coefficient of each variable ..., rest] of a linear expression; an empty list where it is not linear."""
    found = linear_form(expr, var_list)
    if found is None:
        return []
    return [*(IntImm(expr.dtype, c) for c in found[0]), found[1]]


def _mentions(e: PrimExpr, wanted: set[Var]) -> bool:
    if isinstance(e, Var):
        return e in wanted
    if isinstance(e, Cast):
        return _mentions(e.value, wanted)
    stack: list[Any] = [e]
    while stack:
        x = stack.pop()
        if isinstance(x, Var):
            if x in wanted:
                return True
            continue
        if isinstance(x, Node):
            stack.extend(getattr(x, name) for name in _fields(type(x)))
        elif isinstance(x, tuple):
            stack.extend(x)
    return False
