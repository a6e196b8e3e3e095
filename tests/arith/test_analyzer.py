"""The analyzer: simplification, bounds, modular sets, proofs, constraints, intervals, and that it is quick."""

import itertools
import random
import time

import numpy as np
import pytest
from evaluate import evaluate

from tilewright import arith, tir
from tilewright.arith import expr as ex
from tilewright.arith import int_set
from tilewright.arith.analyzer import Analyzer, ConstIntBound, ModularSet, simplify
from tilewright.arith.expr import Var, const
from tilewright.arith.int_set import eval_set, union
from tilewright.arith.linear import difference, linear_form
from tilewright.ir.structure import structural_equal
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import Range, decl_buffer

I, J, K, N, M = (Var(v, "int32") for v in "ijknm")
X = Var("x", "int64")


@pytest.fixture
def ana():
    a = Analyzer()
    a.bind(I, Range(const(0), const(16)))
    a.bind(J, Range(const(0), const(8)))
    return a


SIMPLE = [
    ((K * 16 + I) // 16, K),
    ((K * 16 + I) % 16, I),
    ((I * 8 + J) // 16, I // 2),
    ((I * 8 + J) % 16, I % 2 * 8 + J),
    (K // 4 * 4 + K % 4, K),
    (K - K // 4 * 4, K % 4),
    ((K // 4 * 4 + K % 4) // 2, K // 2),
    ((I + 3) * 4 - I * 2, I * 2 + 12),
    (K // 2 // 3, K // 6),
    (K % 12 // 4, K % 12 // 4),
    (K // 4 % 3, K % 12 // 4),
    (K % 12 % 4, K % 4),
    ((K + 12) % 4, K % 4),
    ((K * 5) % 4, K % 4),
    ((K + 8) // 4, K // 4 + 2),
    (7 - I - (7 - I), const(0)),
    (tir.max(I, 0), I),
    (tir.min(I, 20), I),
    (tir.min(K + 1, K + 3), K + 1),
    (tir.max(tir.min(K, 5), 7), const(7)),
    (tir.min(tir.max(K, J), J), J),
    (tir.truncdiv(I * 4 + 2, 4), I),
    (tir.truncmod(I, 32), I),
    (I < 16, const(True)),
    (I >= 16, const(False)),
    (I * 4 < 15, I < 4),
    (K * 4 < 16, K < 4),
    (K // 4 < 3, K < 12),
    (K + 4 <= N + 4, K <= N),
    (ex.EQ(K * 2, const(3)), const(False)),
    (tir.any(I < 3, I >= 3), const(True)),
    (tir.all(K < 3, K >= 3), const(False)),
    (tir.select(I >= 0, K, J), K),
    (tir.if_then_else(K < 4, tir.min(K, 7), 3), tir.if_then_else(K < 4, K, 3)),
    ((K * N + J * N) // N, K + J),
    ((K * N) % N, const(0)),
    (const(1) << 10, const(1024)),
    ((K + N) * (K + N) - (K + N) * (K + N), const(0)),
    (((I * 8 + J) * 16 + K % 16) // 128, I),
    (tir.cast(I * 4, "int64") // 4, tir.cast(I, "int64")),
    (K * 0 + 5, const(5)),
    (K // N * N + K % N, K),
    (K - K // N * N, K % N),
    ((K // N * N + K % N) * 3 + J, K * 3 + J),
]


@pytest.mark.parametrize("before, after", SIMPLE, ids=lambda e: str(e))
def test_simplify(ana, before, after):
    out = ana.simplify(before)
    assert structural_equal(out, after), f"{before} became {out}"


def test_the_same_object_when_nothing_changes(ana):
    for e in [K, K + 1, K * 4 + J, K // 4, tir.min(K, N), K < N, tir.exp(Var("f", "float32"))]:
        assert ana.simplify(e) is e


def test_narrow_and_unsigned_integers_wrap_and_stay():
    u = Var("u", "uint32")
    e = (u * const(3, "uint32")) // const(3, "uint32")
    assert structural_equal(simplify(e), e)
    s = Var("s", "int8")
    assert structural_equal(
        simplify((s + const(100, "int8")) - const(100, "int8")), (s + const(100, "int8")) - const(100, "int8")
    )


def test_floats_keep_their_meaning():
    f = Var("f", "float32")
    assert simplify(f * 1.0) is f
    kept = ex.Add(f, const(0.0))  # -0.0 + 0.0 is 0.0
    assert simplify(kept) is kept
    assert simplify(ex.Sub(ex.Add(f, f), f)).dtype == "float32"
    b = decl_buffer((64,), "float32", "b")
    out = simplify(b[(K * 4) // 2] + b[K * 2])
    assert structural_equal(out, b[K * 2] + b[K * 2])


def test_vectors():
    r = ex.Ramp(K * 4, const(1), 4)
    assert structural_equal(simplify(ex.Add(r, ex.Broadcast(const(3), 4))), ex.Ramp(K * 4 + 3, const(1), 4))
    assert structural_equal(simplify(ex.Mul(ex.Broadcast(K, 4), ex.Broadcast(const(2), 4))), ex.Broadcast(K * 2, 4))
    assert structural_equal(simplify(ex.Ramp(K * 2 - K, const(1), 4)), ex.Ramp(K, const(1), 4))


def test_bounds(ana):
    assert ana.const_int_bound(I * 2 - J + 1) == (-6, 31)
    assert ana.const_int_bound(X) == (ConstIntBound.NEG_INF, ConstIntBound.POS_INF)
    assert ana.const_int_bound(K) == (-(2**31), 2**31 - 1)
    assert ana.const_int_bound(K % 5) == (0, 4)
    assert ana.const_int_bound(tir.cast(Var("b", "uint8"), "int32")) == (0, 255)
    assert ana.const_int_bound(tir.SizeVar("s", "int32")).min_value == 0
    assert ana.const_int_bound(tir.min(I, 3) // 2) == (0, 1)
    assert ana.const_int_bound_is_bound(I)
    assert not ana.const_int_bound_is_bound(M)
    ana.update(K, ConstIntBound(2, 9))
    assert ana.const_int_bound(K * 3) == (6, 27)


def test_modular_sets(ana):
    assert ana.modular_set(K * 4 + 3) == (4, 3)
    assert ana.modular_set(K * 4 + N * 6) == (2, 0)
    assert ana.modular_set(const(7)) == (0, 7)
    ana.update(K, ModularSet(8, 3))
    assert ana.modular_set(K * 2 + 1) == (16, 7)
    assert structural_equal(ana.simplify((K + 5) // 8 * 8), K + 5)
    assert ana.can_prove(ex.NE(K, N * 8))


def test_symbolic_ranges(ana):
    strong = arith.ProofStrength.SYMBOLIC_BOUND
    ana.bind(M, Range(const(0), N))
    assert ana.can_prove(M < N)
    assert ana.can_prove(M >= 0)
    assert not ana.can_prove(M < N - 1)
    assert ana.simplify((K * N + M) // N) is K
    assert ana.simplify((K * N + M) % N) is M
    assert ana.can_prove(K * N + M < (K + 1) * N, strong)
    i2, h, w = Var("i2", "int32"), Var("h", "int32"), Var("w", "int32")
    ana.bind(h, Range(const(1), const(100)))
    ana.bind(w, Range(const(1), const(100)))
    ana.bind(i2, Range(const(0), h * w))
    assert ana.can_prove(i2 // w * w + i2 % w < h * w, strong)
    assert ana.can_prove(i2 % w < w)


def test_values():
    a = Analyzer()
    a.bind(K, 4)
    assert a.simplify(K * 2).value == 8
    a.bind(M, N + 1)
    assert structural_equal(a.simplify(M - 1), N)
    a.bind(J, Range(N, const(1)))
    assert structural_equal(a.simplify(J + 1), N + 1)
    b = Analyzer()
    b.bind(J, Range(const(0), const(8)))
    b.bind(J, Range(const(0), const(4)), allow_override=True)  # told anew
    assert b.const_int_bound(J + 1) == (1, 4)
    with pytest.raises(CompileError, match="TW0952.*different const bound"):
        b.bind(J, Range(const(0), const(3)))
    assert b.can_prove(J < 4)
    with pytest.raises(TypeError, match="ConstIntBound, ModularSet or IntSet"):
        b.update(J, 3)


def test_a_division_by_zero_is_told():
    with pytest.raises(CompileError, match="TW0951"):
        Analyzer().simplify(ex.FloorDiv(ex.Ramp(K, const(1), 4), ex.Broadcast(const(0), 4)))
    with pytest.raises(CompileError, match="TW0951"):
        Analyzer().simplify(ex.FloorMod(K, N - N))


def test_constraints(ana):
    with ana.constraint_scope(tir.all(K >= 0, K < 10)):
        assert ana.can_prove(K // 10 < 1)
        assert ana.const_int_bound(K) == (0, 9)
        with ana.constraint_scope(N > K):
            assert ana.can_prove(N > K)
            assert ana.can_prove(N >= 1)
            assert ana.can_prove(ex.NE(N, K))
    assert not ana.can_prove(K < 10)
    with ana.constraint_scope(ex.EQ(N % 16, const(0))):
        assert structural_equal(ana.simplify(N // 16 * 16), N)
        assert ana.can_prove(ex.EQ(N % 8, const(0)))
    with ana.constraint_scope(tir.Not(tir.any(K < 0, K > 3))):
        assert ana.const_int_bound(K) == (0, 3)
    cond = tir.call_intrin("bool", "tir.call_pure_extern", "f")
    with ana.constraint_scope(cond):
        assert ana.can_prove(cond)


def test_proofs_of_equality(ana):
    assert ana.can_prove_equal((K + 1) * (N + 1), K * N + K + N + 1)
    assert not ana.can_prove_equal(K, N)
    assert ana.can_prove_equal(tir.floordiv(K * 6 + 3, 3), K * 2 + 1)
    assert ana.can_prove_less(I, 16)
    assert ana.can_prove_greater_equal(I + 1, 1)
    assert structural_equal(ana.canonical_simplify((K + 1) * 4 - K), K * 3 + 4)


def test_intervals(ana):
    low, high = ana.int_set(N * 4 + I, {I: Range(const(0), const(4))})
    assert structural_equal(low, N * 4)
    assert structural_equal(high, N * 4 + 3)
    low, high = ana.int_set(N - K, {K: Range(M, const(3))})
    assert structural_equal(low, N - M - 2)
    assert structural_equal(high, N - M)
    low, _ = eval_set(K // N, {K: Range(const(0), const(3))})  # the sign of N is not known
    assert isinstance(low, ex.Select)
    s = union([eval_set(I, {}), eval_set(I + 2, {})])
    assert structural_equal(s.max_value, I + 2)
    # a range that depends on another running variable
    low, high = Analyzer().int_set(J, {J: Range(K, const(2)), K: Range(const(0), const(5))})
    assert (low.value, high.value) == (0, 5)


def test_intervals_hold_every_value():
    rng = random.Random(3)
    found = 0
    for _ in range(150):
        e = const(rng.randint(-3, 3))
        for v in (I, J, N):
            e = e + v * rng.randint(-3, 3)
        for _ in range(rng.randint(0, 2)):
            c = rng.randint(2, 5)
            e = rng.choice([lambda x: x // c, lambda x: x % c, lambda x: tir.min(x, I), lambda x: x * 2 + J])(e)
        doms = {I: Range(const(1), const(rng.randint(2, 5))), J: Range(const(0), const(rng.randint(2, 4)))}
        ends = Analyzer().int_set(e, doms)
        if ends.min_value is int_set.neg_inf() or ends.max_value is int_set.pos_inf():
            continue
        found += 1
        values = [range(r.min.value, r.min.value + r.extent.value) for r in doms.values()]
        points = np.array(list(itertools.product(*values)))
        for n in range(-4, 5):
            env = {I: points[:, 0], J: points[:, 1], N: np.full(len(points), n)}
            got = evaluate(e, env)
            assert np.all(evaluate(ends.min_value, env) <= got), (e, ends)
            assert np.all(got <= evaluate(ends.max_value, env)), (e, ends)
    assert found > 120


def test_linear_forms():
    coefficients, rest = linear_form(I * 3 - J + K * 2 + 5, [I, J])
    assert coefficients == [3, -1]
    assert structural_equal(simplify(rest), K * 2 + 5)
    assert linear_form(I // 2 + J, [I]) is None
    assert [e.value for e in arith.detect_linear_equation(I * 3 + 5, [I, J])] == [3, 0, 5]
    assert arith.detect_linear_equation(I % 2, [I]) == []
    assert linear_form(I * J, [I]) is None
    assert difference(I * 2 + K + 3, K + I + I) == 3
    assert difference(I, J) is None


def test_lets_and_likely(ana):
    v = Var("v", "int32")
    assert structural_equal(ana.simplify(ex.Let(v, const(2), v // 2 + I)), I + 1)
    assert ana.simplify(tir.likely(I < 16)).value == 1


def test_it_is_quick(ana):
    e = ((I * 16 + J) // 16) * 8 + ((I * 16 + J) % 16) + K * 128 - (K * 4) // 2
    best = 1.0
    for _ in range(30):
        ana.forget()
        start = time.perf_counter()
        ana.simplify(e)
        best = min(best, time.perf_counter() - start)
    assert best < 0.0006


def test_wide_casts_follow_their_variable():
    a = Analyzer()
    a.bind(I, Range(const(0), const(4)))
    wide = tir.cast(I, "int64")
    assert a.const_int_bound(wide * 2) == (0, 6)
    a.bind(I, Range(const(0), const(16)), allow_override=True)
    assert a.const_int_bound(wide * 2) == (0, 30)
    with a.constraint_scope(I < 2):
        assert a.can_prove(wide < 2)
    assert not a.can_prove(wide < 2)


def test_public_names():
    for names in arith._LAZY.values():
        for name in names:
            assert getattr(arith, name) is not None
    with pytest.raises(AttributeError, match="nothing_here"):
        arith.nothing_here
