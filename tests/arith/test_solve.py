"""Systems of linear equations and inequalities: solutions by meaning, and the forms that users rely on."""

import itertools
import random

import pytest

from tilewright import arith
from tilewright.arith import expr as ex
from tilewright.arith.expr import Var, const
from tilewright.ir.rewrite import substitute
from tilewright.ir.structure import structural_equal
from tilewright.tir.ir import Range

A, B, C = (Var(n, "int32") for n in "abc")


def span(low, high):
    return Range(const(low), const(high - low + 1))


def eq(a, b):
    return ex.EQ(a, const(b) if isinstance(b, int) else b)


def value(e, env):
    """The number that an expression or condition is at a point."""
    return arith.Analyzer().simplify(substitute(e, {v: const(n) for v, n in env.items()})).value


def points(variables, ranges):
    """All points of a box; ranges may depend on variables that come later."""
    out = [{}]
    for v in reversed(variables):
        more = []
        for env in out:
            low, n = value(ranges[v].min, env), value(ranges[v].extent, env)
            more += [{**env, v: k} for k in range(low, low + n)]
        out = more
    return out


def test_unique_and_free_solutions():
    s = arith.solve_linear_equations([eq(A + B, 20), eq(A - B, 10)], [A, B])
    assert (s.src_to_dst[A].value, s.src_to_dst[B].value) == (15, 5)
    assert not s.dst.variables
    s = arith.solve_linear_equations([eq(A + B + C, 15), eq(A + B, 10)], [A, B, C], {})
    (n,) = s.dst.variables
    assert structural_equal(s.src_to_dst[A], n + 10)
    assert s.src_to_dst[C].value == 5
    assert not arith.solve_linear_equations([eq(A * 2, 3)], [A]).src_to_dst
    untouched = arith.solve_linear_equations([eq(A + B, 20)])
    assert structural_equal(untouched.src, untouched.dst)


def test_ranges_of_free_variables_are_inferred():
    s = arith.solve_linear_equations([eq(A + B, 0)], [A, B], {A: span(-5, 4), B: span(0, 9)})
    (n,) = s.dst.variables
    assert (s.dst.ranges[n].min.value, s.dst.ranges[n].extent.value) == (-9, 10)
    (more,) = s.dst.relations
    assert structural_equal(more, ex.LE(const(-5), n))


def system(rng, count):
    """Random relations of three variables in a small box."""
    relations = []
    for _ in range(count):
        e = A * rng.randint(-2, 2) + B * rng.randint(-2, 2) + C * rng.randint(-1, 1)
        if not isinstance(e, ex.IntImm):
            relations.append(rng.choice([ex.EQ, ex.LE, ex.LT, ex.GE, ex.GT])(e, const(rng.randint(-3, 3))))
    return relations, {A: span(-2, 3), B: span(0, 3), C: span(-1, 2)}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("solve", ["equations", "inequalities"])
def test_both_systems_have_the_same_points(seed, solve):
    rng = random.Random(seed)
    relations, ranges = system(rng, rng.randint(1, 3))
    variables = [A, B, C]
    want = {tuple(p[v] for v in variables) for p in points(variables, ranges) if all(value(r, p) for r in relations)}
    if solve == "equations":
        s = arith.solve_linear_equations(relations, variables, ranges)
    else:
        s = arith.solve_linear_inequalities(relations, variables, ranges, deskew_range=True)
    if not s.src_to_dst:
        assert not want
        return
    new = list(s.dst.variables)
    assert all(v in s.dst.ranges for v in new)
    found = [p for p in points(new, s.dst.ranges) if all(value(r, p) for r in s.dst.relations)]
    got = {tuple(value(s.src_to_dst[v], p) for v in variables) for p in found}
    assert got == want
    assert len(found) == len(want)
    for p in found:
        old = {v: value(s.src_to_dst[v], p) for v in variables}
        assert all(value(s.dst_to_src[v], old) == p[v] for v in new)


def test_ranges_that_depend_on_each_other():
    relations = [A + B <= 20, A - B >= 10]
    s = arith.solve_linear_inequalities(relations, [A, B], {A: span(-100, 99), B: span(0, 9)})
    assert structural_equal(s.ranges[A].min, B + 10)
    assert s.ranges[A].extent.value == 11
    assert s.ranges[B].extent.value == 6
    (left,) = s.relations
    assert structural_equal(left, A <= 20 - B)


def test_no_solution():
    s = arith.solve_linear_inequalities([A > 3, A < 3], [A], {A: span(-9, 9)})
    assert not s.variables
    assert not s.relations[0].value
    assert not arith.solve_linear_inequalities([A > 3, A < 3], [A], {A: span(-9, 9)}, deskew_range=True).src_to_dst


def test_group_bounds():
    b = arith.IntGroupBounds.from_range(span(2, 7))
    assert (b.lower[0].value, b.upper[0].value) == (2, 7)
    assert arith.IntGroupBounds.from_range(span(2, 2)).equal[0].value == 2
    r = arith.IntGroupBounds(3, [const(4)], [], [const(20), const(16)]).find_best_range()
    assert (r.min.value, r.extent.value) == (2, 4)
    assert arith.IntGroupBounds(1, [A], [], []).find_best_range() is None
    assert len(list(itertools.chain(b.lower, b.equal, b.upper))) == 2
