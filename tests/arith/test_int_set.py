"""Intervals, regions, and conditions solved for a variable."""

import random

import pytest

from tilewright import arith, tir
from tilewright.arith import IntervalSet, int_set
from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, Var, const
from tilewright.arith.int_set import intersect, union
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import Range

A, B, C, N = (Var(n, "int32") for n in "abcn")


def equal(a, b):
    return arith.Analyzer().can_prove_equal(a, b)


def test_intervals_of_expressions():
    ana = arith.Analyzer()
    s = ana.int_set(A * 4 + B, {B: IntervalSet(0, 3)})
    assert equal(s.min_value, A * 4)
    assert equal(s.max_value, A * 4 + 3)
    assert ana.int_set(A % 8, {A: IntervalSet(9, 13)}).max_value.value == 5
    assert ana.int_set(A % 8, {A: IntervalSet(9, 17)}).min_value.value == 0
    ana.update(A, IntervalSet(2, 5))
    assert ana.int_set(A * 2).max_value.value == 10  # the sets that the analyzer was told
    assert arith.IntSet.vector(ex.Ramp(const(10), const(-2), 4)).min_value.value == 4


def test_ends():
    low, high = int_set.neg_inf(), int_set.pos_inf()
    assert arith.IntSet.everything().is_everything()
    assert arith.IntSet.nothing().is_nothing()
    assert arith.IntSet.single_point(3).is_single_point()
    assert str(arith.IntSet.nothing().min_value) == "pos_inf"
    below, above = IntervalSet(low, 0), IntervalSet(1, high)
    assert int_set.union_lower_bound([below, above, arith.IntSet.nothing()]).is_everything()
    assert int_set.union_lower_bound([IntervalSet(0, 3), IntervalSet(8, 9)]).max_value.value == 3  # a gap
    assert union([IntervalSet(0, 3), IntervalSet(8, 9)]).max_value.value == 9
    assert intersect([IntervalSet(0, 3), IntervalSet(2, 9)]).min_value.value == 2
    assert intersect([IntervalSet(0, 3), IntervalSet(5, 9)]).is_nothing()
    with pytest.raises(CompileError, match="TW0953.*PresburgerSet"):
        arith.PresburgerSet()


def test_regions():
    dom = {A: Range(const(0), const(16))}
    assert arith.estimate_region_lower_bound([Range(A, const(2)), Range(A + 2, const(2))], dom, True) is None
    first, second = arith.estimate_region_upper_bound([Range(A, const(2)), Range(A + 2, const(2))], dom, True)
    assert (first.max_value.value, second.max_value.value) == (16, 18)
    (down,) = arith.estimate_region_strict_bound([Range(5 - A * 2, const(3))], dom, True)
    assert (down.min_value.value, down.max_value.value) == (-25, 7)
    assert arith.estimate_region_strict_bound([Range(A * 4, const(3))], dom, True) is None  # gaps
    (cut,) = arith.estimate_region_strict_bound([Range(A * 2, const(2))], dom, A < 5)
    assert cut.max_value.value == 9


def test_deduced_bounds_are_the_last_that_hold():
    rng = random.Random(5)
    for _ in range(200):
        k = rng.choice([-4, -3, 2, 3, 5])
        e = [A * k + B, (A * k + 1) * 2 - B, B - A * k, A // 4 * 3 + B][rng.randrange(4)]
        limit = const(rng.randint(-20, 40))
        cond = rng.choice([ex.LT, ex.LE, ex.GT, ex.GE])(e, limit)
        doms = {B: IntervalSet(1, rng.randint(1, 4))}
        s = arith.deduce_bound(A, cond, doms, doms)
        end = s.max_value if s.min_value is int_set.neg_inf() else s.min_value
        way = 1 if end is s.max_value else -1

        def holds(a, top=doms[B].max_value.value, cond=cond):
            ana = arith.Analyzer()
            return all(
                ana.can_prove(tir.stmt_functor.substitute(cond, {A: const(a), B: const(b)})) for b in range(1, top + 1)
            )

        assert holds(end.value), (cond, s)
        assert holds(end.value - way), (cond, s)
        assert not holds(end.value + way), (cond, s)


def test_what_cannot_be_deduced():
    for cond in (tir.max(A, 5) < 9, A % 4 < 2, A * 2 - A > B, A + B, ex.EQ(A // 4, const(1)), ex.EQ(A * 4, B)):
        assert arith.deduce_bound(A, cond, {}, {}).is_nothing()
    s = arith.deduce_bound(A, ex.EQ(A - C, B), {}, {})
    assert equal(s.min_value, B + C)
    assert s.is_single_point()


def test_clip_bounds():
    low, high = arith.detect_clip_bound(tir.all(A < B * 6, A - 1 > 0), [A])
    assert low.value == 2
    assert equal(high, B * 6 - 1)
    assert arith.detect_clip_bound(tir.all(A < B * 6, A - 1 > 0), [A, B]) == []
    found = arith.detect_clip_bound(tir.all(tir.min(A, B) > 3, tir.Not(A > 9)), [A, B])
    assert [x.value if x is not None else None for x in found] == [4, 9, 4, None]


def test_linear_equations():
    k, one, rest = arith.detect_linear_equation(A * (N + 4) + A + B + 7, [A, B])
    assert equal(k, N + 5)
    assert one.value == 1
    assert rest.value == 7
    assert arith.detect_linear_equation(A * B, [A, B]) == []
    u = Var("u", "uint32")
    assert arith.detect_linear_equation(128 - u, [u])[0].value == -1
    assert isinstance(arith.detect_linear_equation(B * 7, [A])[0], IntImm)
