"""Matching the patterns of `rules`: compiled once to closures, with the swapped forms of commutative operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.linear import expr_key
from tilewright.arith.simplify.rules import CONSTANTS, RULES, Rule
from tilewright.ir.node import map_children

__all__ = ["rules_for"]

Binding = dict[Var, PrimExpr]
_COMMUTATIVE = (ex.Add, ex.Mul, ex.Min, ex.Max, ex.And, ex.Or, ex.EQ, ex.NE)


class Compiled(NamedTuple):
    """A rule ready to use: `match(e)` binds the variables, `condition` and `given` check them, `build` gives the result."""

    match: Callable[[PrimExpr], Binding | None]
    condition: CodeType | None
    unknown: tuple[Var, ...]  # constants that the condition defines
    rule: Rule


def _variants(e: Any) -> Iterator[Any]:
    """The pattern with the sides of commutative operations swapped in every way."""
    if isinstance(e, (Var, IntImm)):
        yield e
    elif isinstance(e, (ex.BinaryOp, ex.CmpOp)):
        for a in _variants(e.a):
            for b in _variants(e.b):
                yield type(e)(a, b)
                if isinstance(e, _COMMUTATIVE):
                    yield type(e)(b, a)
    elif isinstance(e, ex.Not):
        for a in _variants(e.a):
            yield ex.Not(a)
    else:
        assert isinstance(e, ex.Select)
        for c in _variants(e.condition):
            for a in _variants(e.true_value):
                for b in _variants(e.false_value):
                    yield ex.Select(c, a, b)


def _matches(pattern: Any, e: Any, env: Binding) -> bool:
    if isinstance(pattern, Var):
        if pattern in CONSTANTS:
            if not isinstance(e, IntImm):
                return False
            old = env.get(pattern)
            if old is None:
                env[pattern] = e
                return True
            return old.value == e.value  # pyright: ignore[reportAttributeAccessIssue]
        old = env.get(pattern)
        if old is None:
            env[pattern] = e
            return True
        return old is e or expr_key(old) == expr_key(e)
    if isinstance(pattern, IntImm):
        return isinstance(e, IntImm) and e.value == pattern.value and (e.dtype == "bool") == (pattern.dtype == "bool")
    if type(pattern) is not type(e):
        return False
    if isinstance(pattern, ex.Select):
        return (
            _matches(pattern.condition, e.condition, env)
            and _matches(pattern.true_value, e.true_value, env)
            and _matches(pattern.false_value, e.false_value, env)
        )
    if isinstance(pattern, ex.Not):
        return _matches(pattern.a, e.a, env)
    return _matches(pattern.a, e.a, env) and _matches(pattern.b, e.b, env)


def _matcher(pattern: PrimExpr) -> Callable[[PrimExpr], Binding | None]:
    def match(e: PrimExpr) -> Binding | None:
        env: Binding = {}
        return env if _matches(pattern, e, env) else None

    return match


def _vars(e: Any) -> set[Var]:
    if isinstance(e, Var):
        return {e}
    if isinstance(e, ex.Select):
        return _vars(e.condition) | _vars(e.true_value) | _vars(e.false_value)
    if isinstance(e, ex.Not):
        return _vars(e.a)
    return _vars(e.a) | _vars(e.b) if isinstance(e, (ex.BinaryOp, ex.CmpOp)) else set()


def _compile() -> dict[type, list[Compiled]]:
    table: dict[type, list[Compiled]] = {}
    for rule in RULES:
        seen: set[Any] = set()
        defined = tuple(v for v in sorted(_vars(rule.result), key=lambda v: v.name) if v not in _vars(rule.pattern))
        code = compile(_defining(rule.when, defined), f"<rule {rule.when}>", "eval") if rule.when else None
        for variant in _variants(rule.pattern):
            key = expr_key(variant)
            if key in seen:
                continue
            seen.add(key)
            table.setdefault(type(variant), []).append(Compiled(_matcher(variant), code, defined, rule))
    return table


def _defining(when: str, defined: tuple[Var, ...]) -> str:
    """The condition with `c3 == expression` of a constant that only the result has turned into a definition."""
    for v in defined:
        when = when.replace(f"{v.name} == ", f"{v.name} := ", 1) if f"{v.name} == " in when else when
    parts = [f"(({part.strip()}),)" if ":=" in part else f"({part.strip()})" for part in when.split(" and ")]
    return " and ".join(parts)


def build(e: Any, env: Binding, dtype: str) -> PrimExpr:
    """The result of a rule, with constants of the dtype at hand."""
    if isinstance(e, Var):
        return env[e]
    if isinstance(e, IntImm):
        return e if e.dtype == "bool" else IntImm(dtype, e.value)
    return map_children(e, lambda c: build(c, env, dtype))


_TABLE = _compile()


def rules_for(kind: type) -> list[Compiled]:
    """The rules whose pattern begins with a node of `kind`."""
    return _TABLE.get(kind, [])


def apply(e: PrimExpr, dtype: str, prove: Callable[[PrimExpr], bool]) -> PrimExpr | None:
    """The result of the first rule that applies to `e`; `dtype` is that of its integers, `prove` decides `given`."""
    for match, condition, defined, rule in _TABLE.get(type(e), ()):
        env = match(e)
        if env is None:
            continue
        if condition is not None:
            names: dict[str, Any] = {v.name: env[v].value for v in env if v in CONSTANTS}  # pyright: ignore
            if not eval(condition, {}, names):
                continue
            for v in defined:
                env[v] = IntImm(dtype, names[v.name])
        if rule.given is not None and not prove(build(rule.given, env, dtype)):
            continue
        return build(rule.result, env, dtype)
    return None
