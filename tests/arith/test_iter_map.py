"""Fusions and splits of iterators are recognised, checked and inverted."""

import itertools
import random

import numpy as np
import pytest
from evaluate import evaluate, grid

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import Var, const
from tilewright.arith.int_set import estimate_region_lower_bound, estimate_region_upper_bound
from tilewright.arith.iter_divide import inverse_affine_iter_map
from tilewright.arith.iter_map import detect_iter_map, iter_map_simplify, normalize_iter_map_to_expr
from tilewright.ir.structure import structural_equal
from tilewright.tir.ir import Range

X, Y, Z, N, M = (Var(v, "int32") for v in "xyznm")


def iters(**extents):
    table = {"x": X, "y": Y, "z": Z}
    return {table[k]: Range(const(0), const(e) if isinstance(e, int) else e) for k, e in extents.items()}


def found(indices, doms, **kw):
    return bool(detect_iter_map(indices, doms, **kw).indices)


def test_simple_maps():
    doms = iters(x=4, y=8)
    assert found([X, Y], doms, require_bijective=True)
    assert found([X * 8 + Y], doms, require_bijective=True)
    assert found([(X * 8 + Y) // 16, (X * 8 + Y) % 16], doms, require_bijective=True)
    assert found([Y // 4, X, Y % 4], doms, require_bijective=True)
    assert found([X + 3, Y - 1], doms, require_bijective=True)
    assert found([X], doms)
    assert not found([X], doms, require_bijective=True)  # y does not occur
    assert not found([Y // 4], iters(y=8), require_bijective=True)
    assert found([Y // 4], iters(y=8))


def test_maps_that_hit_a_value_twice():
    doms = iters(x=4, y=8)
    assert not found([X, X], doms)
    assert not found([X + Y], doms, require_bijective=True)
    assert not found([X * 4 + Y], doms, require_bijective=True)
    assert found([X + Y], doms)  # every value from 0 to 10 occurs
    assert not found([Y // 2, Y % 4], doms)
    assert not found([X * Y], doms)
    assert detect_iter_map([X * Y], doms).errors[0].endswith("multiplies iterators")
    assert found([X * 2 + Y], doms, check_level="nocheck")
    assert not found([X * 3 + Y * 2], doms)


def test_uneven_splits_need_a_condition():
    doms = iters(x=4, y=8)
    whole = X * 8 + Y
    assert not found([whole // 5, whole % 5], doms, require_bijective=True)
    assert found([whole], doms, predicate=whole < 30, require_bijective=True)
    r = detect_iter_map([whole // 5, whole % 5], doms, predicate=whole < 30, require_bijective=True)
    assert [i.args[0].extent.value for i in r.indices] == [6, 5]


def test_symbolic_extents():
    doms = {X: Range(const(0), N), Y: Range(const(0), M)}
    assert found([X * M + Y], doms, require_bijective=True)
    assert found([X, Y], doms, require_bijective=True)
    assert not found([X * N + Y], doms)


def test_unit_iterators_do_not_matter():
    assert found([X], iters(x=4, y=1), require_bijective=True)
    assert found([X + Y], iters(x=4, y=1), require_bijective=True)


def test_inverse():
    doms = iters(x=4, y=8)
    fused = X * 8 + Y
    r = detect_iter_map([fused // 16, fused % 16], doms, require_bijective=True)
    a, b = Var("a", "int32"), Var("b", "int32")
    inverse = inverse_affine_iter_map(r.indices, [a, b])
    for x, y in itertools.product(range(4), range(8)):
        env = {a: np.int64((x * 8 + y) // 16), b: np.int64((x * 8 + y) % 16)}
        assert evaluate(inverse[X], env) == x
        assert evaluate(inverse[Y], env) == y


def random_map(rng):
    """A random chain of fusions and splits; bijective by construction."""
    extents = [rng.choice([2, 3, 4, 6]) for _ in range(rng.randint(1, 3))]
    doms = dict(zip((X, Y, Z), (Range(const(0), const(e)) for e in extents)))
    digits = list(zip(doms, extents))
    for _ in range(rng.randint(1, 4)):
        k = rng.randrange(len(digits))
        e, n = digits[k]
        if rng.random() < 0.5 and len(digits) > 1:
            other = rng.randrange(len(digits))
            if other != k:
                f, m = digits[other]
                digits = [d for i, d in enumerate(digits) if i not in (k, other)]
                digits.append((e * m + f, n * m))
                continue
        divisors = [d for d in range(2, n) if n % d == 0]
        if divisors:
            d = rng.choice(divisors)
            digits[k : k + 1] = [(e // d, n // d), (e % d, d)]
    rng.shuffle(digits)
    return [e for e, _ in digits], doms


@pytest.mark.parametrize("seed", range(5))
def test_random_bijections_are_found_and_inverted(seed):
    rng = random.Random(seed)
    for _ in range(40):
        indices, doms = random_map(rng)
        r = detect_iter_map(indices, doms, require_bijective=True)
        assert r.indices, (indices, r.errors)
        env = grid({v: (0, d.extent.value - 1) for v, d in doms.items()})
        for e, i in zip(indices, r.indices):
            assert np.all(evaluate(e, env) == evaluate(normalize_iter_map_to_expr(i), env)), (e, i)
        outs = [Var(f"o{n}", "int32") for n in range(len(indices))]
        inverse = inverse_affine_iter_map(r.indices, outs)
        back = {o: np.broadcast_to(evaluate(e, env), env[next(iter(env))].shape) for o, e in zip(outs, indices)}
        for v in doms:
            assert np.all(evaluate(inverse[v], back) == env[v]), (indices, inverse)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_found_is_injective(seed):
    rng = random.Random(seed + 50)
    accepted = 0
    for _ in range(150):
        doms = iters(x=rng.choice([2, 3, 4]), y=rng.choice([2, 4, 6]))
        indices = []
        for _ in range(rng.randint(1, 3)):
            e = X * rng.choice([0, 1, 2, 4, 6]) + Y * rng.choice([0, 1, 2, 3])
            if not isinstance(e, Var) and rng.random() < 0.6:
                e = rng.choice([lambda a, c: a // c, lambda a, c: a % c])(e, rng.choice([2, 3, 4]))
            indices.append(e)
        r = detect_iter_map(indices, doms, require_bijective=True)
        if not r.indices:
            continue
        accepted += 1
        env = grid({v: (0, d.extent.value - 1) for v, d in doms.items()})
        size = len(env[X])
        points = set(zip(*[np.broadcast_to(evaluate(e, env), (size,)).tolist() for e in indices]))
        assert len(points) == size, indices
    assert accepted > 2


def test_simplify_with_a_predicate():
    (out,) = iter_map_simplify([X // 4 * 4 + X % 4], iters(x=8))
    assert out is X
    (out,) = iter_map_simplify([X // 4], {X: Range(const(0), const(8))}, predicate=X < 4)
    assert out.value == 0


def test_regions():
    (r,) = estimate_region_upper_bound([Range(X * 4 + N, const(3))], iters(x=5))
    assert structural_equal(r.min_value, N)
    assert structural_equal(r.max_value, N + 18)
    lower = estimate_region_lower_bound([Range(X * 4, const(4))], iters(x=5))
    assert (lower[0].min_value.value, lower[0].max_value.value) == (0, 19)
    assert estimate_region_lower_bound([Range(X * 4, const(3))], iters(x=5)) is None  # gaps
    assert estimate_region_lower_bound([Range(X * 4, const(5))], iters(x=5)) is not None


def test_the_analyzer_is_left_as_it_was():
    ana = Analyzer()
    detect_iter_map([X * 8 + Y], iters(x=4, y=8), analyzer=ana)
    assert not ana.can_prove(X < 4)
