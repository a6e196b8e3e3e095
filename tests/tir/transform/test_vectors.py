"""Vector loops: tails, gathers, conditions; and builds that check bounds."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.ir.node import walk
from tilewright.ir.structure import structural_equal
from tilewright.script import tir as T
from tilewright.tir import transform as tr
from tilewright.tir.lower import lower_kernel

from .programs import POOL, arguments, run, same_meaning


def apply(f, *passes):
    mod = tvm.IRModule.from_expr(f.with_attr("global_symbol", "main"))
    return tvm.transform.Sequential(list(passes))(mod)["main"]


def native(f, n=3):
    """Machine code gives what the interpreter does."""
    args = arguments(f, n)
    want = run(f, args)
    got = [tvm.nd.array(a) if isinstance(a, np.ndarray) else a for a in args]
    tvm.build(f, "llvm")(*got)
    for g, w in zip([a for a in got if not isinstance(a, int)], want, strict=True):
        np.testing.assert_allclose(g.numpy(), w, rtol=1e-5, atol=1e-6)


def ramps(f):
    return [x for x in walk(f.body) if isinstance(x, tir.Ramp)]


@pytest.mark.parametrize("name", POOL)
def test_the_pass_and_machine_code_keep_the_meaning(name):
    f = POOL[name]
    lowered = apply(f, tr.LowerInitBlock(), tr.ConvertBlocksToOpaque(), tr.LowerMatchBuffer(), tr.LowerOpaqueBlock())
    same_meaning(f, apply(lowered, tr.VectorizeLoop()))
    same_meaning(f, apply(lowered, tr.VectorizeLoop(enable_vectorize=False)))
    native(f)


def test_statements_of_several_dimensions():
    @T.prim_func
    def before(A: T.Buffer((4, 16), "int32"), B: T.Buffer((4, 16), "float32")):
        for i in range(4):
            for j in T.vectorized(16):
                B[i, j] = T.reinterpret("float32", A[i, j])

    @T.prim_func
    def after(A: T.Buffer((4, 16), "int32"), B: T.Buffer((4, 16), "float32")):
        for i in range(4):
            B[i, 0:16] = T.reinterpret("float32x16", A[i, 0:16])

    out = apply(before, tr.VectorizeLoop())
    assert structural_equal(out, after.with_attr("global_symbol", "main"))
    off = apply(before, tr.VectorizeLoop(False))
    assert not ramps(off)
    same_meaning(before, off)


def test_what_has_no_vector_form_is_a_loop_over_the_lanes():
    @T.prim_func
    def f(A: T.Buffer((4,), "float32"), n: T.int32, x: T.int32):
        for i in T.vectorized(4):
            if x < n:
                A[i] = A[i] + 1.0
            else:
                if i < n:
                    A[i] = 2.0

    body = apply(f, tr.VectorizeLoop()).body
    assert isinstance(body, tir.IfThenElse)
    assert isinstance(body.then_case.indices[0], tir.Ramp)
    assert isinstance(body.else_case, tir.For)


@pytest.mark.parametrize("n", [1, 8, 37, 64])
def test_tails_are_vectors_where_all_lanes_hold(n):
    @T.prim_func
    def f(a: T.handle, c: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        C = T.match_buffer(c, (n,), "float32")
        for i in range((n + 7) // 8):
            for j in T.vectorized(8):
                if i * 8 + j < n:
                    C[i * 8 + j] = A[i * 8 + j] * 2.0

    flat = lower_kernel(f)
    assert ramps(flat)
    native(f, n)


def test_padding_reads_vectors_inside():
    @T.prim_func
    def f(A: T.Buffer((16, 16), "float32"), C: T.Buffer((18, 24), "float32")):
        for i, jo in T.grid(18, 3):
            for j in T.vectorized(8):
                C[i, jo * 8 + j] = T.if_then_else(
                    i >= 1 and i < 17 and jo * 8 + j >= 1 and jo * 8 + j < 17, A[i - 1, jo * 8 + j - 1], T.float32(0)
                )

    assert ramps(lower_kernel(f))
    native(f)


def test_gathers():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), I: T.Buffer((16,), "int32"), C: T.Buffer((16,), "float32")):
        for j in T.vectorized(16):
            C[j] = A[I[j]] + A[j * 3]

    native(f)


def test_buffers_shrink_on_the_way_to_machine_code():
    @T.prim_func
    def f(A: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32")):
        B = T.alloc_buffer((64, 64))
        for i in T.parallel(64):
            for j in range(64):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] + 1.0
            for j in range(64):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, 63 - vj]

    sizes = [int(s.extents[0]) for s in walk(lower_kernel(f).body) if isinstance(s, tir.Allocate)]
    assert sizes == [64]
    native(f)


def test_unroll_pragmas_hold_for_machine_code():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32")):
        for i in T.serial(4, annotations={"pragma_auto_unroll_max_step": 16, "pragma_unroll_explicit": 1}):
            for j in range(4):
                A[i * 4 + j] = A[i * 4 + j] + 1.0

    assert not any(isinstance(x, tir.For) for x in walk(lower_kernel(f).body))
    native(f)


# ---- bounds --------------------------------------------------------------------------------------------------------------


def checked(f):
    with tvm.transform.PassContext(config={"tir.instrument_bound_checkers": True}):
        return tvm.build(f, "llvm")


@pytest.mark.parametrize("name", POOL)
def test_checks_do_not_change_what_is_right(name):
    f = POOL[name]
    same_meaning(f, apply(f, tr.InstrumentBoundCheckers()))


@pytest.mark.parametrize("kind", [T.serial, T.parallel, T.vectorized])
@pytest.mark.parametrize(("load", "store"), [(1, 0), (0, 1), (-1, 0)])
def test_an_access_out_of_bounds_is_reported(kind, load, store):
    @T.prim_func(check_well_formed=False)
    def f(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for i in kind(16):
            C[i + store] = A[i + load]

    arrays = [tvm.nd.array(np.zeros(16, "float32")) for _ in range(2)]
    with pytest.raises(IndexError, match=rf"index {-1 if load < 0 else 16} .*'{'A' if load else 'C'}'.*16"):
        checked(f)(*arrays)


def test_accesses_under_conditions_are_checked_under_them():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32"), C: T.Buffer((18,), "float32")):
        for i in range(18):
            C[i] = T.if_then_else(i >= 1 and i < 17, A[i - 1], T.float32(0))

    a, c = np.arange(16, dtype="float32"), tvm.nd.array(np.ones(18, "float32"))
    checked(f)(tvm.nd.array(a), c)
    np.testing.assert_array_equal(c.numpy(), np.pad(a, 1))


def test_symbolic_shapes_and_indices_from_memory():
    @T.prim_func
    def f(a: T.handle, i: T.handle, n: T.int32):
        A = T.match_buffer(a, (n, 4), "float32")
        I = T.match_buffer(i, (2,), "int32")
        for k in range(2):
            with T.block("b"):
                vk = T.axis.spatial(2, k)
                A[I[vk], 3] = 1.0

    run = checked(f)
    A = tvm.nd.array(np.zeros((5, 4), "float32"))
    run(A, tvm.nd.array(np.array([0, 4], "int32")), 5)
    with pytest.raises(IndexError, match="index 5 of dimension 0 of buffer 'A'"):
        run(A, tvm.nd.array(np.array([0, 5], "int32")), 5)
