"""Random expressions: simplifying keeps their meaning, comes to rest, and bounds and remainders hold."""

import random

import numpy as np
import pytest
from evaluate import evaluate, grid

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, Var, const
from tilewright.ir.structure import structural_equal
from tilewright.tir.ir import Range

RANGES = {"a": (0, 7), "b": (0, 15), "c": (-6, 6), "d": (3, 9)}


def integer(rng, variables, depth):
    if depth == 0 or rng.random() < 0.12:
        return rng.choice(variables) if rng.random() < 0.7 else const(rng.randint(-6, 12))
    a = integer(rng, variables, depth - 1)
    kind = rng.random()
    if kind < 0.45:
        b = integer(rng, variables, depth - 1)
        return rng.choice([ex.add, ex.add, ex.sub, ex.minimum, ex.maximum])(a, b)
    if kind < 0.6:
        return ex.mul(a, rng.choice([2, 3, 4, 8, -1, -2]))
    if kind < 0.9:
        c = rng.choice([2, 3, 4, 8, 6, 12, -2, -3]) if rng.random() < 0.95 else 16
        return rng.choice([ex.floordiv, ex.floormod, ex.floordiv, ex.floormod, ex.truncdiv, ex.truncmod])(a, c)
    if kind < 0.94:
        return ex.mul(a, integer(rng, variables, depth - 2 if depth > 1 else 0))
    if kind < 0.97:
        return ex.select(boolean(rng, variables, depth - 1), a, integer(rng, variables, depth - 1))
    return ex.if_then_else(boolean(rng, variables, depth - 1), a, integer(rng, variables, depth - 1))


def boolean(rng, variables, depth):
    if depth > 1 and rng.random() < 0.4:
        a, b = boolean(rng, variables, depth - 1), boolean(rng, variables, depth - 1)
        return rng.choice([ex.logical_and, ex.logical_or, lambda x, y: ex.logical_not(x)])(a, b)
    kind = rng.choice([ex.LT, ex.LE, ex.GT, ex.GE, ex.EQ, ex.NE])
    a = integer(rng, variables, max(depth - 1, 0))
    return ex.cmp(kind, a, integer(rng, variables, max(depth - 1, 0)))


def check(seed, count):
    rng = random.Random(seed)
    variables = [Var(n, "int32") for n in RANGES]
    env = grid(dict(zip(variables, RANGES.values())))
    for _ in range(count):
        used = rng.sample(variables, rng.randint(1, 3))
        e = integer(rng, used, 4) if rng.random() < 0.7 else boolean(rng, used, 4)
        ana = Analyzer()
        for v, (lo, hi) in zip(variables, RANGES.values()):
            ana.bind(v, Range(const(lo), const(hi - lo + 1)))
        want = evaluate(e, env)
        out = ana.simplify(e)
        got = evaluate(out, env)
        assert np.all(want == got), f"seed {seed}: {e} became {out}"
        assert out.dtype == e.dtype
        again = ana.simplify(out)
        assert structural_equal(again, out), f"seed {seed}: {e} became {out}, then {again}"
        fresh = Analyzer()
        for v, (lo, hi) in zip(variables, RANGES.values()):
            fresh.bind(v, Range(const(lo), const(hi - lo + 1)))
        if e.dtype == "int32":
            bound = fresh.const_int_bound(e)
            assert bound.min_value <= np.min(want), (e, bound)
            assert np.max(want) <= bound.max_value, (e, bound)
            m = fresh.modular_set(e)
            assert np.all((want - m.base) % m.coeff == 0 if m.coeff else want == m.base), (e, m)
            assert fresh.can_prove_equal(e, out)


@pytest.mark.parametrize("seed", range(12))
def test_random_expressions(seed):
    check(seed, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_many_random_expressions(seed):
    check(seed, 200)


@pytest.mark.parametrize("seed", range(6))
def test_random_constraints(seed):
    rng = random.Random(seed + 500)
    variables = [Var(n, "int32") for n in RANGES]
    env = grid(dict(zip(variables, RANGES.values())))
    for _ in range(40):
        ana = Analyzer()
        for v, (lo, hi) in zip(variables, RANGES.values()):
            ana.bind(v, Range(const(lo), const(hi - lo + 1)))
        condition = boolean(rng, variables, 3)
        e = integer(rng, variables, 3) if rng.random() < 0.5 else boolean(rng, variables, 3)
        before = ana.simplify(e)
        with ana.constraint_scope(condition):
            out = ana.simplify(e)
        holds = np.broadcast_to(evaluate(condition, env), env[variables[0]].shape)
        same = np.broadcast_to(evaluate(e, env) == evaluate(out, env), holds.shape)
        assert np.all(same[holds]), f"{e} became {out} where {condition}"
        assert structural_equal(ana.simplify(e), before)  # the scope left nothing behind


@pytest.mark.parametrize("seed", range(4))
def test_random_symbolic_divisors(seed):
    rng = random.Random(seed + 900)
    i, j, n, m = (Var(v, "int32") for v in "ijnm")
    for _ in range(40):
        ana = Analyzer()
        ana.bind(n, Range(const(1), const(6)))
        ana.bind(m, Range(const(1), const(4)))
        ana.bind(i, Range(const(0), n))
        ana.bind(j, Range(const(0), m))
        parts = [i, j, i * m, j * n, n, m, n * m, const(rng.randint(0, 3))]
        e = sum((rng.choice(parts) for _ in range(rng.randint(1, 4))), const(0))
        for f in rng.sample(
            [lambda x: x // n, lambda x: x % n, lambda x: x // m, lambda x: x % (n * m), lambda x: x * 2], 2
        ):
            e = f(e) if not isinstance(e, IntImm) else e
        env = grid({n: (1, 6), m: (1, 4), i: (0, 5), j: (0, 3)})
        keep = (env[i] < env[n]) & (env[j] < env[m])
        env = {v: a[keep] for v, a in env.items()}
        out = ana.simplify(e)
        assert np.all(evaluate(e, env) == evaluate(out, env)), f"{e} became {out}"
