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
    """[coefficient of each variable ..., rest] of a linear expression, `sum(coefficient * var) + rest`; coefficients may be
    symbolic. An empty list where it is not linear."""
    from tilewright.arith.analyzer import Analyzer

    ana = Analyzer()
    wanted = set(var_list)
    rest: PrimExpr = expr
    out: list[PrimExpr] = []
    for v in var_list:
        found = _linear_in(rest, v)
        if found is None or _mentions(found[0], wanted):
            return []
        out.append(_settled(found[0], ana))
        rest = found[1]
    if _mentions(rest, wanted):
        return []
    return [*out, ana.simplify(rest)]


def _settled(e: PrimExpr, ana: Any) -> PrimExpr:
    """A coefficient, simplified. One of an unsigned variable may be negative, so constants of those are signed."""
    if e.dtype.startswith("uint") and isinstance(e, IntImm):
        n = int(e.dtype[4:])
        value = e.value - (1 << n) if e.value >> (n - 1) else e.value
        return IntImm("int32" if n <= 32 else "int64", value)
    return ana.simplify(e)


def _linear_in(e: PrimExpr, v: Var) -> tuple[PrimExpr, PrimExpr] | None:
    """(k, r) with e = k*v + r, both free of v; None where e is not linear in v."""
    from tilewright.arith import expr as ex

    zero = IntImm(e.dtype, 0)
    if e is v:
        return IntImm(e.dtype, 1), zero
    if not _mentions(e, {v}):
        return zero, e
    if isinstance(e, (Add, Sub)):
        a, b = _linear_in(e.a, v), _linear_in(e.b, v)
        if a is None or b is None:
            return None
        f = ex.add if isinstance(e, Add) else ex.sub
        return f(a[0], b[0]), f(a[1], b[1])
    if isinstance(e, Mul):
        side, k = (e.a, e.b) if _mentions(e.a, {v}) else (e.b, e.a)
        found = _linear_in(side, v)
        if found is None or _mentions(k, {v}):
            return None
        return ex.mul(found[0], k), ex.mul(found[1], k)
    return None


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
