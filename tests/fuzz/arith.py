"""Random expressions: simplifying keeps their meaning and comes to rest; bounds, spacings and sets hold.

python -m tests.fuzz.arith --count 100000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import numpy as np

from tilewright.arith import expr as ex
from tilewright.arith import int_set
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, Var, const
from tilewright.ir.node import map_children
from tilewright.ir.structure import structural_equal
from tilewright.tir.ir import Range

sys.path.insert(0, str(Path(__file__).parents[1] / "arith"))
from evaluate import evaluate, grid

RANGES = {"a": (0, 7), "b": (0, 15), "c": (-6, 6), "d": (3, 9)}


def integer(rng, variables, depth):
    """A random integer expression."""
    if depth == 0 or rng.random() < 0.12:
        return rng.choice(variables) if rng.random() < 0.7 else const(rng.randint(-6, 12), variables[0].dtype)
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
    """A random condition."""
    if depth > 1 and rng.random() < 0.4:
        a, b = boolean(rng, variables, depth - 1), boolean(rng, variables, depth - 1)
        return rng.choice([ex.logical_and, ex.logical_or, lambda x, y: ex.logical_not(x)])(a, b)
    kind = rng.choice([ex.LT, ex.LE, ex.GT, ex.GE, ex.EQ, ex.NE])
    a = integer(rng, variables, max(depth - 1, 0))
    return ex.cmp(kind, a, integer(rng, variables, max(depth - 1, 0)))


def told(variables):
    """An analyzer that knows the ranges."""
    ana = Analyzer()
    for v, (lo, hi) in zip(variables, RANGES.values()):
        ana.bind(v, Range(const(lo, v.dtype), const(hi - lo + 1, v.dtype)))
    return ana


def scalar(rng):
    """Simplification, bounds and spacings of a random expression."""
    variables = [Var(n, rng.choice(["int32", "int32", "int64"])) for n in RANGES]
    if len({v.dtype for v in variables}) > 1:
        variables = [Var(n, "int32") for n in RANGES]
    env = grid(dict(zip(variables, RANGES.values())))
    used = rng.sample(variables, rng.randint(1, 3))
    e = integer(rng, used, 4) if rng.random() < 0.7 else boolean(rng, used, 4)
    ana = told(variables)
    want = evaluate(e, env)
    out = ana.simplify(e)
    assert np.all(want == evaluate(out, env)), f"{e} became {out}"
    assert out.dtype == e.dtype
    again = ana.simplify(out)
    assert structural_equal(again, out), f"{e} became {out}, then {again}"
    for name in ("rewrite_simplify", "canonical_simplify"):
        one = getattr(ana, name)(e)
        assert np.all(want == evaluate(one, env)), f"{e} became {one} by {name}"
    if e.dtype == "bool":
        return
    fresh = told(variables)
    bound = fresh.const_int_bound(e)
    assert bound.min_value <= np.min(want), (e, bound)
    assert np.max(want) <= bound.max_value, (e, bound)
    m = fresh.modular_set(e)
    assert np.all((want - m.base) % m.coeff == 0 if m.coeff else want == m.base), (e, m)
    assert fresh.can_prove_equal(e, out), f"{e} is not shown to be {out}"
    s = Analyzer().int_set(e, {v: int_set.IntervalSet(*map(const, r)) for v, r in zip(variables, RANGES.values())}) \
        if variables[0].dtype == "int32" else int_set.IntSet.everything()  # fmt: skip
    if isinstance(s.min_value, IntImm):
        assert s.min_value.value <= np.min(want), (e, s)
    if isinstance(s.max_value, IntImm):
        assert np.max(want) <= s.max_value.value, (e, s)


def constrained(rng):
    """Simplification while a condition holds."""
    variables = [Var(n, "int32") for n in RANGES]
    env = grid(dict(zip(variables, RANGES.values())))
    ana = told(variables)
    condition = boolean(rng, variables, 3)
    e = integer(rng, variables, 3) if rng.random() < 0.5 else boolean(rng, variables, 3)
    before = ana.simplify(e)
    with ana.constraint_scope(condition):
        out = ana.simplify(e)
        bound = ana.const_int_bound(e)
        m = ana.modular_set(e)
    holds = np.broadcast_to(evaluate(condition, env), env[variables[0]].shape)
    want = np.broadcast_to(evaluate(e, env), holds.shape)[holds]
    assert np.all(want == np.broadcast_to(evaluate(out, env), holds.shape)[holds]), (
        f"{e} became {out} where {condition}"
    )
    assert structural_equal(ana.simplify(e), before), f"the scope of {condition} left something behind for {e}"
    if len(want) and e.dtype != "bool":
        assert bound.min_value <= np.min(want), (e, condition, bound)
        assert np.max(want) <= bound.max_value, (e, condition, bound)
        assert np.all((want - m.base) % m.coeff == 0 if m.coeff else want == m.base), (e, condition, m)


def symbolic(rng):
    """Quotients and remainders by symbols; ranges with symbolic ends."""
    i, j, n, m = (Var(v, "int32") for v in "ijnm")
    ana = Analyzer()
    ana.bind(n, Range(const(1), const(6)))
    ana.bind(m, Range(const(1), const(4)))
    ana.bind(i, Range(const(0), n))
    ana.bind(j, Range(const(0), m))
    parts = [i, j, i * m, j * n, n, m, n * m, const(rng.randint(0, 3))]
    e = sum((rng.choice(parts) for _ in range(rng.randint(1, 4))), const(0))
    calls = [
        lambda x: x // n,
        lambda x: x % n,
        lambda x: x // m,
        lambda x: x % (n * m),
        lambda x: x * 2,
        lambda x: x % 3,
    ]
    for f in rng.sample(calls, 2):
        e = f(e) if not isinstance(e, IntImm) else e
    if rng.random() < 0.4:
        e = rng.choice([ex.LT, ex.LE, ex.EQ])(e, rng.choice([*parts, n * m - 1]))
    env = grid({n: (1, 6), m: (1, 4), i: (0, 5), j: (0, 3)})
    keep = (env[i] < env[n]) & (env[j] < env[m])
    env = {v: a[keep] for v, a in env.items()}
    out = ana.simplify(e)
    assert np.all(evaluate(e, env) == evaluate(out, env)), f"{e} became {out}"
    assert structural_equal(ana.simplify(out), out), f"{e} became {out}, then {ana.simplify(out)}"
    if e.dtype == "bool":
        assert not ana.can_prove(e, 1) or np.all(evaluate(e, env)), f"{e} does not always hold"


def lane(e, k):
    """One lane of a vector expression."""
    if isinstance(e, ex.Ramp):
        return e.base + e.stride * k
    if isinstance(e, ex.Broadcast):
        return e.value
    new = map_children(e, lambda c: lane(c, k))
    return ex.Cast(new.dtype, new.value) if isinstance(new, ex.Cast) else new


def vector(rng):
    """Vectors of equal steps and of one value."""
    variables = [Var(n, "int32") for n in RANGES]
    env = grid(dict(zip(variables, RANGES.values())))
    lanes = rng.choice([2, 4, 5])

    def make(depth):
        if depth == 0:
            base = integer(rng, variables, 1)
            if rng.random() < 0.4:
                return ex.Broadcast(base, lanes)
            return ex.Ramp(base, const(rng.choice([1, 1, 2, 4, 8, -1])), lanes)
        f = rng.choice([ex.Add, ex.Sub, ex.Min, ex.Max, ex.Mul, ex.FloorDiv, ex.FloorMod, ex.Div, ex.Mod])
        if f in (ex.FloorDiv, ex.FloorMod, ex.Div, ex.Mod, ex.Mul):
            return f(make(depth - 1), ex.Broadcast(const(rng.choice([2, 3, 4, 8])), lanes))
        return f(make(depth - 1), make(depth - 1))

    e = make(rng.randint(1, 2))
    if rng.random() < 0.2:
        e = rng.choice([ex.LT, ex.LE, ex.EQ, ex.NE])(e, make(1))
    ana = told(variables)
    out = ana.simplify(e)
    assert out.dtype == e.dtype, f"{e} became {out}"
    for k in range(lanes):
        want, got = evaluate(lane(e, k), env), evaluate(lane(out, k), env)
        assert np.all(want == got), f"lane {k}: {e} became {out}"


KINDS = ((0.6, scalar), (0.8, constrained), (0.92, symbolic), (1.0, vector))


def run(count, seed, stop=10):
    """Check `count` expressions; the messages of those that fail, at most `stop`."""
    found = []
    for n in range(count):
        rng = random.Random(f"{seed}/{n}")
        draw = rng.random()
        check = next(f for limit, f in KINDS if draw <= limit)
        try:
            check(rng)
        except AssertionError as why:
            found.append(f"seed {seed}/{n} ({check.__name__}): {why}")
            if len(found) >= stop:
                break
    return found


def main():
    """The command line."""
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--count", type=int, default=1000)
    args.add_argument("--seed", type=int, default=0)
    given = args.parse_args()
    found = run(given.count, given.seed)
    print("\n".join(found) or f"{given.count} expressions, no fault")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
