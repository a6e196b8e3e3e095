"""Every simplification rule is proved: for all integers by z3 where it can, and by enumeration always."""

import numpy as np
import pytest
import z3
from evaluate import evaluate, grid

from tilewright.arith import expr as ex
from tilewright.arith.simplify.match import rules_for
from tilewright.arith.simplify.rules import CONSTANTS, RULES
from tilewright.ir.node import walk


def variables(*exprs):
    seen = {}
    for e in exprs:
        if e is not None:
            for n in walk(e):
                if isinstance(n, ex.Var):
                    seen[n] = None
    return list(seen)


def nonzero_divisors(e, env):
    """Where no division of the expression is by zero."""
    ok = np.bool_(True)
    for n in walk(e):
        if isinstance(n, (ex.FloorDiv, ex.FloorMod, ex.Div, ex.Mod)):
            ok = ok & (evaluate(n.b, env) != 0)
    return ok


@pytest.mark.parametrize("rule", RULES, ids=lambda r: f"{r.pattern}")
def test_by_enumeration(rule):
    names = variables(rule.pattern, rule.result)
    bools = [v for v in names if v.dtype == "bool"]
    width = 4 if len(names) > 4 else 6 if len(names) > 3 else 9
    ranges = {v: ((0, 1) if v in bools else (-width, width)) for v in names}
    env = grid(ranges)
    env = {v: (a.astype(bool) if v in bools else a) for v, a in env.items()}
    keep = np.ones(len(next(iter(env.values()))), bool)
    if rule.when:
        for part in rule.when.split(" and "):
            with np.errstate(all="ignore"):
                keep &= eval(part, {}, {v.name: a for v, a in env.items()})
    with np.errstate(all="ignore"):
        if rule.given is not None:
            keep &= evaluate(rule.given, env)
        keep &= nonzero_divisors(rule.pattern, env)
        env = {v: a[keep] for v, a in env.items()}
        assert len(next(iter(env.values()))) > 0, "the condition never holds"
        same = evaluate(rule.pattern, env) == evaluate(rule.result, env)
    assert np.all(same), {v.name: a[~same][:5] for v, a in env.items()}


def to_z3(e, env):
    """The expression in z3, with floor and truncating division spelt out (z3's rounds so that the remainder is >= 0)."""
    if isinstance(e, ex.IntImm):
        return z3.BoolVal(bool(e.value)) if e.dtype == "bool" else z3.IntVal(e.value)
    if isinstance(e, ex.Var):
        return env[e]
    if isinstance(e, ex.Not):
        return z3.Not(to_z3(e.a, env))
    if isinstance(e, ex.Select):
        return z3.If(to_z3(e.condition, env), to_z3(e.true_value, env), to_z3(e.false_value, env))
    a, b = to_z3(e.a, env), to_z3(e.b, env)
    if isinstance(e, (ex.And, ex.Or)):
        return (z3.And if isinstance(e, ex.And) else z3.Or)(a, b)
    if isinstance(e, (ex.FloorDiv, ex.FloorMod, ex.Div, ex.Mod)):
        floor = z3.If(b > 0, a / b, (-a) / (-b))
        size = z3.If(b > 0, z3.If(a >= 0, a / b, -((-a) / b)), z3.If(a >= 0, -(a / (-b)), (-a) / (-b)))
        quotient = floor if isinstance(e, (ex.FloorDiv, ex.FloorMod)) else size
        return quotient if isinstance(e, (ex.FloorDiv, ex.Div)) else a - quotient * b
    table = {
        ex.Add: lambda: a + b, ex.Sub: lambda: a - b, ex.Mul: lambda: a * b,
        ex.Min: lambda: z3.If(a < b, a, b), ex.Max: lambda: z3.If(a > b, a, b), ex.EQ: lambda: a == b,
        ex.NE: lambda: a != b, ex.LT: lambda: a < b, ex.LE: lambda: a <= b, ex.GT: lambda: a > b, ex.GE: lambda: a >= b,
    }  # fmt: skip
    return table[type(e)]()


@pytest.mark.parametrize("rule", RULES, ids=lambda r: f"{r.pattern}")
def test_by_z3(rule):
    env = {v: (z3.Bool if v.dtype == "bool" else z3.Int)(v.name) for v in variables(rule.pattern, rule.result)}
    solver = z3.Solver()
    solver.set("timeout", 500)
    for part in rule.when.split(" and ") if rule.when else []:
        # constants are positive where they divide, so z3's `/` and `%` are Python's here
        solver.add(eval(part.replace("//", "/"), {}, {v.name: z for v, z in env.items()}))
    if rule.given is not None:
        solver.add(to_z3(rule.given, env))
    for n in walk(rule.pattern):
        if isinstance(n, (ex.FloorDiv, ex.FloorMod, ex.Div, ex.Mod)):
            solver.add(to_z3(n.b, env) != 0)
    solver.add(to_z3(rule.pattern, env) != to_z3(rule.result, env))
    answer = solver.check()
    assert answer != z3.sat, solver.model()
    if answer == z3.unknown:
        return  # nonlinear: z3 cannot tell; enumeration has checked it


def test_every_rule_can_be_found():
    for rule in RULES:
        assert any(c.rule is rule for c in rules_for(type(rule.pattern)))
    assert all(v.name[0] == "c" for v in CONSTANTS)
