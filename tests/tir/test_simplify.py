"""The pass Simplify: smaller functions of the same meaning."""

import random

import numpy as np
import pytest

from tilewright import te, tir
from tilewright.arith.expr import EQ, const
from tilewright.ir.module import IRModule
from tilewright.ir.node import walk
from tilewright.ir.structure import structural_equal
from tilewright.tir import ir as t
from tilewright.tir.interp import interpret
from tilewright.tir.transform import Simplify
from tilewright.tir.transform.simplify import simplify_func
from tilewright.tir.verify import verify_well_formed

A, B = t.decl_buffer((64,), "int32", "A"), t.decl_buffer((64,), "int32", "B")
I, J = tir.Var("i", "int32"), tir.Var("j", "int32")


def func(body):
    return t.PrimFunc((h := tir.Var("a", "handle"), g := tir.Var("b", "handle")), body, None, {h: A, g: B})


def loop(v, extent, body):
    return t.For(v, const(0), const(extent), t.ForKind.SERIAL, body)


def check(before, after):
    out = simplify_func(func(before))
    assert structural_equal(out.body, after, map_free_vars=True), out.script()


def store(value, index):
    return t.BufferStore(A, value, (index,))


def test_indices_and_conditions():
    check(loop(I, 16, store(B[(I * 4 + 3) // 4], I * 2 - I)), loop(I, 16, store(B[I], I)))
    check(loop(I, 16, t.IfThenElse(I < 16, store(B[I], I))), loop(I, 16, store(B[I], I)))
    check(loop(I, 16, t.IfThenElse(I >= 16, store(B[I], I), store(B[I], I + 1))), loop(I, 16, store(B[I], I + 1)))
    guarded = tir.if_then_else(I + 1 >= 1, B[I], 0)
    check(loop(I, 16, store(guarded, I)), loop(I, 16, store(B[I], I)))


def test_conditions_hold_inside():
    before = loop(I, 16, t.IfThenElse(I < 4, store(B[I // 4], I), store(tir.if_then_else(I >= 4, B[I], 7), I)))
    after = loop(I, 16, t.IfThenElse(I < 4, store(B[0], I), store(B[I], I)))
    check(before, after)


def test_data_may_wrap_and_stays():
    body = loop(I, 16, store((B[I] * 4) // 4, I))
    f = func(body)
    assert simplify_func(f) is f
    inner = loop(I, 16, store((B[I * 1 + 0 * J] * 4) // 4, I))
    assert structural_equal(simplify_func(func(inner)).body, body, map_free_vars=True)


def test_what_never_runs_goes():
    check(loop(I, 0, store(B[I], I)), t.Evaluate(const(0)))
    two = t.SeqStmt((loop(I, 4, t.IfThenElse(I > 9, store(B[I], I))), store(B[0], const(1))))
    check(two, store(B[0], const(1)))
    check(t.LetStmt(J, const(2), store(B[J + 1], J)), store(B[3], const(2)))
    ok = t.AssertStmt(EQ(const(1), const(1)), tir.StringImm("no"), store(B[0], const(1)))
    check(ok, store(B[0], const(1)))


def test_blocks_and_symbolic_shapes():
    n = te.var("n", "int64")
    a = te.placeholder((n, const(4, "int64")), name="A")
    b = te.compute(
        a.shape, lambda i, j: te.if_then_else(te.all(i >= 0, i < n), a[(i * 4 + j) // 4, (i * 4 + j) % 4], 0.0)
    )
    f = te.create_prim_func([a, b])
    out = simplify_func(f)
    (s,) = [s for s in walk(out.body) if isinstance(s, t.BufferStore)]
    assert isinstance(s.value, t.BufferLoad)
    assert all(isinstance(i, tir.Var) for i in s.value.indices)
    x = np.random.rand(3, 4).astype("float32")
    y = np.empty_like(x)
    interpret(out, x, y)
    np.testing.assert_array_equal(x, y)
    assert simplify_func(out) is out


def test_as_a_pass():
    mod = IRModule.from_expr(func(loop(I, 16, store(B[I + I - I], I))), "f")
    out = Simplify()(mod)
    assert structural_equal(out["f"].body, loop(I, 16, store(B[I], I)), map_free_vars=True)


def random_index(rng, depth=3):
    if depth == 0:
        return rng.choice([I, J, const(rng.randint(0, 7))])
    a = random_index(rng, depth - 1)
    f = rng.choice([
        lambda: a + random_index(rng, depth - 1), lambda: a * rng.randint(1, 4), lambda: a // rng.choice([2, 3, 4]),
        lambda: a % rng.choice([2, 3, 4, 8]), lambda: tir.min(a, random_index(rng, depth - 1)),
        lambda: tir.max(a, random_index(rng, depth - 1)), lambda: tir.if_then_else(I < J + 1, a, 3),
    ])  # fmt: skip
    return f()


@pytest.mark.parametrize("seed", range(8))
def test_random_functions_keep_their_meaning(seed):
    rng = random.Random(seed)
    for _ in range(12):
        value = B[random_index(rng) % 64] + random_index(rng) * 3
        s = store(value, random_index(rng) % 64)
        if rng.random() < 0.5:
            s = t.IfThenElse(random_index(rng) < random_index(rng), s, store(const(1), random_index(rng) % 64))
        f = func(loop(I, rng.randint(1, 6), loop(J, rng.randint(1, 5), s)))
        out = simplify_func(f)
        verify_well_formed(out)
        x, y = np.zeros(64, "int32"), np.arange(64, dtype="int32") * 7
        want = x.copy()
        interpret(f, want, y)
        interpret(out, x, y)
        np.testing.assert_array_equal(x, want)
