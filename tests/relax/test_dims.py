"""Reasoning about dimensions: proofs agree with arithmetic on numbers."""

from __future__ import annotations

import random

import pytest

from tilewright.arith import expr as E
from tilewright.arith.expr import Var
from tilewright.relax.dims import (
    Assumptions,
    collect_assumptions,
    difference,
    prove_equal,
    require_equal,
    show_dim,
    simplify_dim,
)
from tilewright.relax.evaluate import evaluate_dim
from tilewright.support.diagnostics import CompileError

n, m = Var("n", "int64"), Var("m", "int64")


@pytest.mark.parametrize(
    "a, b",
    [
        (2 * (n + 1) - 2, n * 2),
        ((n * 4 + 8) // 4, n + 2),
        (((n + 1) // 2 + 1) // 2, (n + 3) // 4),
        (n * m // m, n),
        ((n * 6 + m * 3 + 7) % 3, E.IntImm("int64", 1)),
        ((n - 1) // 2 + 1, (n + 1) // 2),
        (E.maximum(n, n + 3), n + 3),
        (E.cast(E.cast(n, "int32"), "int64") + m, m + n),
        (n * (m + 2), n * m + n * 2),
    ],
)
def test_equal(a, b):
    assert prove_equal(a, b)
    assert difference(a + 3, b) == 3


def test_not_proved():
    assert not prove_equal(n, m)
    assert not prove_equal((n + 1) // 2 * 2, n)
    assert difference(n, m) is None


def _random_expr(rng: random.Random, depth: int):
    if depth == 0:
        return rng.choice([n, m, E.IntImm("int64", rng.randint(-5, 9))])
    a, b = _random_expr(rng, depth - 1), _random_expr(rng, depth - 1)
    kind = rng.randrange(7)
    if kind < 2:
        return a + b
    if kind == 2:
        return a - b
    if kind == 3:
        return a * b
    c = rng.randint(1, 6)
    return [a // c, a % c, E.minimum(a, b), E.maximum(a, b)][rng.randrange(4)]


def test_simplify_keeps_meaning():
    rng = random.Random(1)
    for _ in range(400):
        e = _random_expr(rng, rng.randint(1, 4))
        s = simplify_dim(e)
        for _ in range(6):
            values = {n: rng.randint(0, 40), m: rng.randint(0, 40)}
            assert evaluate_dim(e, values) == evaluate_dim(s, values), f"{show_dim(e)} became {show_dim(s)}"


def test_require_equal():
    with pytest.raises(CompileError, match="56 differs from 3"):
        require_equal(E.IntImm("int64", 56), E.IntImm("int64", 3), "channels")
    with pytest.raises(CompileError, match="TW0203"):
        require_equal(n, m, "rows")
    known = Assumptions()
    with collect_assumptions(known):
        assert require_equal(n, E.IntImm("int64", 7), "rows").value == 7
        assert prove_equal(n, 7)
        require_equal(E.IntImm("int64", 7), n, "rows")
    assert len(known.pending) == 1
