"""Control flow, memory, errors and calls."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.arith import expr as E
from tilewright.arith.expr import Broadcast, Call, IntImm, Let, Ramp, Var, call_intrin, const
from tilewright.backends.llvm.testing import contiguous, load_kernel, run_kernel
from tilewright.ir.op import GlobalVar, Op
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as T

SERIAL, PARALLEL = T.ForKind.SERIAL, T.ForKind.PARALLEL


def buf(name, dtype, n, scope="global"):
    return T.decl_buffer([n], dtype, name, scope=scope)


def func(params, body, name="f", **attrs):
    params = tuple(p.data if isinstance(p, T.Buffer) else p for p in params)
    return T.PrimFunc(params, body, attrs={"global_symbol": name, "tir.noalias": True, **attrs})


def loop(var, extent, body, kind=SERIAL, low=0, **annotations):
    return T.For(
        var,
        E.const(low, var.dtype) if isinstance(low, int) else low,
        E.cast(extent, var.dtype),
        kind,
        body,
        annotations=annotations,
    )


def raise_(kind, text, *args):
    return T.Evaluate(call_intrin("int32", "tir.tw_raise", kind, text, *args))


def test_while_let_and_branches():
    a, n = buf("a", "int32", 4), Var("n", "int32")
    m = Var("m", "int32")
    collatz = T.seq(
        T.BufferStore(a, n, (const(0),)),
        T.BufferStore(a, const(0), (const(1),)),
        T.While(
            a[0] > 1,
            T.LetStmt(
                m,
                a[0],
                T.seq(
                    T.IfThenElse(
                        E.floormod(m, 2).__eq__(0),
                        T.BufferStore(a, E.floordiv(m, 2), (const(0),)),
                        T.BufferStore(a, m * 3 + 1, (const(0),)),
                    ),
                    T.BufferStore(a, a[1] + 1, (const(1),)),
                ),
            ),
        ),
    )
    x = np.zeros(4, "i4")
    run_kernel(func([a, n], collatz), x, 27)
    assert list(x[:2]) == [1, 111]


def test_loop_bounds_and_zero_extents():
    a, n, lo = buf("a", "float32", 16), Var("n", "int32"), Var("lo", "int32")
    i, j = Var("i", "int32"), Var("j", "int64")
    body = loop(i, n, loop(j, i - lo, T.BufferStore(a, a[j] + 1.0, (j,)), low=0), low=lo)
    k = load_kernel(func([a, n, lo], body))
    for count, low in ((0, 3), (5, 2), (-4, 0), (3, -1)):
        x, want = np.zeros(16, "f4"), np.zeros(16, "f4")
        for ii in range(low, low + count):
            for jj in range(ii - low):
                want[jj] += 1
        k(x, count, low)
        np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("stride", [-1, 0, 1, 2, 3, 7])
def test_strided_loads_and_stores(stride):
    a, c, off = buf("a", "float32", 64), buf("c", "float32", 64), Var("off", "int32")
    index = Ramp(off, const(stride), 8)
    x, z = np.arange(64, dtype="f4"), np.zeros(8, "f4")
    run_kernel(func([a, c, off], T.BufferStore(c, T.BufferLoad(a, (index,)), (Ramp(const(0), const(1), 8),))), x, z, 8)
    np.testing.assert_array_equal(z, x[8 + stride * np.arange(8)])
    z = np.zeros(64, "f4")
    run_kernel(func([a, c, off], T.BufferStore(c, T.BufferLoad(a, (Ramp(const(0), const(1), 8),)), (index,))), x, z, 8)
    want = np.zeros(64, "f4")
    for lane in range(8):
        want[8 + stride * lane] = x[lane]
    np.testing.assert_array_equal(z, want)


def test_dynamic_stride_gather_scatter_and_mask():
    a, b, c, s = buf("a", "float32", 64), buf("b", "int32", 8), buf("c", "float32", 64), Var("s", "int32")
    ramp = Ramp(const(0), const(1), 8)
    x, idx = np.arange(64, dtype="f4"), np.array([3, 60, 7, 7, 0, 9, 33, 1], "i4")
    z = np.zeros(64, "f4")
    run_kernel(func([a, c, s], T.BufferStore(c, T.BufferLoad(a, (Ramp(const(1), s, 8),)), (ramp,))), x, z, 5)
    np.testing.assert_array_equal(z[:8], x[1:41:5])
    gather = T.BufferLoad(a, (T.BufferLoad(b, (ramp,)),))
    run_kernel(func([a, b, c], T.BufferStore(c, gather, (ramp,))), x, idx, z)
    np.testing.assert_array_equal(z[:8], x[idx])
    run_kernel(func([a, b, c], T.BufferStore(c, T.BufferLoad(a, (ramp,)), (T.BufferLoad(b, (ramp,)),))), x, idx, z)
    assert z[60] == 1
    assert z[7] == 3  # the last lane wins
    wild = np.array([3, 1 << 30, 7, -(1 << 30), 0, 9, 33, 1], "i4")
    ok = E.And(T.BufferLoad(b, (ramp,)) >= const(0, "int32x8"), T.BufferLoad(b, (ramp,)) < const(64, "int32x8"))
    safe = call_intrin("float32x8", "tir.if_then_else", ok, gather, const(-1.0, "float32x8"))
    run_kernel(func([a, b, c], T.BufferStore(c, safe, (ramp,))), x, wild, z)
    np.testing.assert_array_equal(z[:8], [3, -1, 7, -1, 0, 9, 33, 1])
    z[:] = 0
    scatter = T.IfThenElse(ok, T.BufferStore(c, const(1.0, "float32x8"), (T.BufferLoad(b, (ramp,)),)))
    run_kernel(func([a, b, c], scatter), x, wild, z)
    assert z.sum() == 6


def test_masked_division_and_scalar_loads_under_a_mask():
    a, c, n = buf("a", "int32", 8), buf("c", "int32", 8), Var("n", "int32")
    ramp = Ramp(const(0), const(1), 8)
    ok = ramp < Broadcast(n, 8)
    wild = Broadcast(a[const(1 << 30)], 8)
    value = call_intrin("int32x8", "tir.if_then_else", ok, E.Div(wild, T.BufferLoad(a, (ramp,))), const(7, "int32x8"))
    z = np.zeros(8, "i4")
    run_kernel(func([a, c, n], T.BufferStore(c, value, (ramp,))), np.zeros(8, "i4"), z, 0)
    np.testing.assert_array_equal(z, 7)


def test_if_then_else_guards_scalar_loads():
    a, c, n = buf("a", "float32", 8), buf("c", "float32", 16), Var("n", "int32")
    i = Var("i", "int32")
    inside = E.And(i >= 4, i < 4 + n)
    value = call_intrin("float32", "tir.if_then_else", inside, a[i - 4], const(0.0))
    z = np.ones(16, "f4")
    run_kernel(func([a, c, n], loop(i, 16, T.BufferStore(c, value, (i,)))), np.arange(1, 9, dtype="f4"), z, 8)
    np.testing.assert_array_equal(z, [0] * 4 + list(range(1, 9)) + [0] * 4)


def test_let_shuffle_ramp_values():
    c = buf("c", "int32", 8)
    v = Var("v", "int32x8")
    ramp = Ramp(const(5), const(3), 8)
    order = [7, 0, 1, 1, 15, 8, 9, 2]
    value = Let(v, ramp * const(2, "int32x8"), E.Shuffle((v, v + const(100, "int32x8")), [const(i) for i in order]))
    z = np.zeros(8, "i4")
    run_kernel(func([c], T.BufferStore(c, value, (Ramp(const(0), const(1), 8),))), z)
    both = np.concatenate([(5 + 3 * np.arange(8)) * 2, (5 + 3 * np.arange(8)) * 2 + 100])
    np.testing.assert_array_equal(z, both[order])


def test_bool_buffers():
    a, b, c = buf("a", "bool", 32), buf("b", "float32", 32), buf("c", "bool", 32)
    i = Var("i", "int32")
    index = Ramp(i * 8, const(1), 8)
    value = E.And(T.BufferLoad(a, (index,)), T.BufferLoad(b, (index,)) > const(0.0, "float32x8"))
    x, y = np.arange(32) % 3 == 0, np.sin(np.arange(32)).astype("f4")
    z = np.zeros(32, bool)
    run_kernel(func([a, b, c], loop(i, 4, T.BufferStore(c, value, (index,)))), x, y, z)
    np.testing.assert_array_equal(z, x & (y > 0))
    assert set(z.view(np.uint8)) <= {0, 1}


def test_constants_are_external():
    c, i = buf("c", "float32", 8), Var("i", "int32")
    data = contiguous("float32", [8])
    data[:] = np.arange(8) * 3
    k = buf("k", "float32", 8)
    body = T.AllocateConst(k.data, "float32", (const(8),), data, loop(i, 8, T.BufferStore(c, k[i], (i,))))
    kernel = load_kernel(func([c], body))
    z = np.zeros(8, "f4")
    kernel(z)
    np.testing.assert_array_equal(z, data)
    data[0] = 42  # the very memory, not a copy
    kernel(z)
    assert z[0] == 42


def test_direct_calls_propagate_errors_and_free():
    n, i = Var("n", "int64"), Var("i", "int64")
    a = buf("a", "float32", 4)
    bad = func([n], T.IfThenElse(n > 3, raise_("ValueError", "n is %ld", n)), "callee")
    tmp = buf("tmp", "float32", n)
    call = T.Evaluate(Call("int32", GlobalVar("callee"), (i,)))
    inner = T.Allocate(
        tmp.data, "float32", (n * 100000,), const(True), T.seq(T.BufferStore(tmp, const(1.0), (i,)), call)
    )
    after = T.BufferStore(a, a[0] + 1.0, (IntImm("int64", 0),))
    main = func([a, n], loop(i, n, T.seq(inner, after)))
    k = load_kernel([main, bad], entry="f")
    x = np.zeros(4, "f4")
    k(x, 4)
    assert x[0] == 4
    with pytest.raises(ValueError, match="n is 4"):
        k(x, 10)
    assert x[0] == 8


def test_assert_and_ret():
    n, a = Var("n", "int32"), buf("a", "int32", 1)
    store = T.BufferStore(a, n, (const(0),))
    leave = T.IfThenElse(n > 10, T.Evaluate(call_intrin("int32", "tir.ret", const(0))))
    body = T.AssertStmt(n >= 0, E.StringImm("IndexError: n is negative"), T.seq(leave, store))
    k = load_kernel(func([a, n], body))
    x = np.zeros(1, "i4")
    k(x, 5)
    k(x, 11)
    assert x[0] == 5
    with pytest.raises(IndexError, match="n is negative"):
        k(x, -1)


def test_parallel_grain_offset_and_nesting():
    a, n = buf("a", "int64", 1000), Var("n", "int64")
    i, j = Var("i", "int32"), Var("j", "int32")
    body = loop(
        i,
        n,
        loop(j, 10, T.BufferStore(a, E.cast(i, "int64") * 10 + E.cast(j, "int64"), ((i - 3) * 10 + j,)), PARALLEL),
        PARALLEL,
        low=3,
        grain=7,
    )
    x = np.zeros(1000, "i8")
    run_kernel(func([a, n], body), x, 100)
    np.testing.assert_array_equal(x, np.arange(1000) + 30)


def test_call_extern_and_pointers():
    a, c = buf("a", "float32", 8), buf("c", "float32", 8)
    src = call_intrin("handle", "tir.address_of", a[const(2)])
    dst = call_intrin("handle", "tir.address_of", c[const(1)])
    body = T.Evaluate(call_intrin("handle", "tir.call_extern", "memcpy", dst, src, IntImm("int64", 16)))
    x, z = np.arange(8, dtype="f4"), np.zeros(8, "f4")
    run_kernel(func([a, c], body), x, z)
    np.testing.assert_array_equal(z, [0, 2, 3, 4, 5, 0, 0, 0])


def test_raw_memory_through_reinterpret():
    args, c = buf("args", "int64", 2), buf("c", "float32", 1)
    p = E.pointer_var("p", "float32")
    view = T.decl_buffer([4], "float32", "view", data=p)
    body = T.LetStmt(
        p, call_intrin("handle", "tir.reinterpret", args[const(1)]), T.BufferStore(c, view[const(3)], (const(0),))
    )
    data, z = np.arange(4, dtype="f4"), np.zeros(1, "f4")
    run_kernel(func([args, c], body), np.array([0, data.ctypes.data], "i8"), z)
    assert z[0] == 3


def test_packed_calls_of_registered_functions():
    import tvm_ffi

    seen = []

    def record(x, text, n, f, flag):
        seen.append((np.from_dlpack(x).copy(), text, n, f, flag))
        np.from_dlpack(x)[...] *= 2
        return n * 2

    tvm_ffi.register_global_func("tilewright.test.record", record, override=True)
    a, n, out = buf("a", "float32", 6), Var("n", "int32"), buf("out", "int64", 1)
    grid = T.decl_buffer([2, 3], "float32", "grid", data=a.data)
    call = Call(
        "int64",
        Op.get("tir.tvm_call_packed"),
        (E.StringImm("tilewright.test.record"), grid, E.StringImm("hi"), n, const(2.5), const(True)),
    )
    k = load_kernel(func([a, n, out], T.BufferStore(out, call, (const(0),))))
    x, z = np.arange(6, dtype="f4"), np.zeros(1, "i8")
    k(x, 7, z)
    assert z[0] == 14
    (got, text, count, f, flag) = seen[0]
    np.testing.assert_array_equal(got, np.arange(6, dtype="f4").reshape(2, 3))
    assert (text, count, f, flag) == ("hi", 7, 2.5, True)
    np.testing.assert_array_equal(x, np.arange(6) * 2)

    def fail(*_):
        raise KeyError("not today")

    tvm_ffi.register_global_func("tilewright.test.record", fail, override=True)
    with pytest.raises(KeyError, match="not today"):
        k(x, 7, z)


def test_packed_call_of_unknown_function():
    call = T.Evaluate(Call("int32", Op.get("tir.tvm_call_packed"), (E.StringImm("tilewright.test.nothing"),)))
    with pytest.raises(ValueError, match=r"no function is registered as .tilewright.test.nothing"):
        run_kernel(func([], call))


def test_long_chains_of_lets_and_constants():
    a, total = buf("a", "int64", 1), E.const(0, "int64")
    names = [Var(f"v{i}", "int64") for i in range(3000)]
    body = T.BufferStore(a, names[-1], (const(0),))
    for i in reversed(range(3000)):
        body = T.LetStmt(names[i], (names[i - 1] if i else total) + 1, body)
    for _ in range(500):
        body = T.AllocateConst(E.pointer_var("k", "float32"), "float32", (const(4),), np.zeros(4, "f4"), body)
    x = np.zeros(1, "i8")
    run_kernel(func([a], body), x)
    assert x[0] == 3000


def test_an_index_read_from_memory_is_read_again():
    a, b = buf("a", "int32", 4), buf("b", "int32", 4)
    index = b[const(0)] + 1
    body = T.seq(
        T.BufferStore(a, const(5), (index,)),
        T.BufferStore(b, const(2), (const(0),)),
        T.BufferStore(a, const(7), (index,)),
    )
    for attrs in ({}, {"tir.noalias": False}):
        x, y = np.zeros(4, "i4"), np.zeros(4, "i4")
        run_kernel(func([a, b], body, **attrs), x, y)
        np.testing.assert_array_equal(x, [0, 5, 0, 7])


def test_accumulators_become_registers():
    from tests.backends.llvm.kernels import sgemm

    rng = np.random.default_rng(0)
    m, n, k = 12, 32, 16
    a, b = rng.random((m, k), "f4"), rng.random((k, n), "f4")
    packed = np.ascontiguousarray(b.reshape(k, n // 16, 16).transpose(1, 0, 2))
    for parallel in (False, True):
        for dtype in ("int32", "int64"):
            c = np.zeros((m, n), "f4")
            kernel = load_kernel(sgemm(m, n, k, dtype=dtype, parallel=parallel))
            kernel(a, packed, c)
            np.testing.assert_allclose(c, a @ b, rtol=1e-5)
            assert "Spill" not in kernel.assembly()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (T.Evaluate(call_intrin("float32", "tir.no_such_thing", const(1.0))), "TW0605"),
        (T.Evaluate(Var("loose", "int32")), "TW0603"),
        (T.For(Var("i"), const(0), const(4), T.ForKind.VECTORIZED, T.Evaluate(const(0))), "TW0607"),
        (T.Evaluate(E.Cast("int4", Var("loose", "int32"))), "TW0603"),
        (T.BufferStore(T.decl_buffer([2, 2], "float32"), const(1.0), (const(0), const(0))), "TW0604"),
        (T.BlockRealize((), const(True), T.Block((), (), (), "b", T.Evaluate(const(0)))), "TW0602"),
    ],
)
def test_what_cannot_be_emitted(body, code):
    with pytest.raises(CompileError, match=code):
        load_kernel(func([], body))


def test_llvm_rejects_with_the_line():
    call = T.Evaluate(call_intrin("float32", "tir.call_llvm_pure_intrin", "llvm.fma.f32", const(1.0)))
    with pytest.raises(CompileError, match="TW0611"):
        load_kernel(func([], call))


def test_missing_symbol_is_named():
    call = T.Evaluate(call_intrin("int32", "tir.call_extern", "no_such_c_function_xyz"))
    with pytest.raises(CompileError, match="no_such_c_function_xyz"):
        load_kernel(func([], call))


def test_atomic_add_from_many_threads():
    import tilewright as tvm
    from tilewright.script import tir as S

    @S.prim_func
    def histogram(A: S.Buffer((4096,), "int32"), H: S.Buffer((4,), "int32"), F: S.Buffer((1,), "float32")):
        for i in S.parallel(4096):
            S.evaluate(S.call_intrin("int32", "tir.atomic_add", S.address_of(H[A[i] % 4]), 1))
            S.evaluate(S.call_intrin("float32", "tir.atomic_add", S.address_of(F[0]), S.float32(0.5)))

    a = np.random.default_rng(0).integers(0, 1000, 4096).astype("int32")
    h, f = tvm.nd.array(np.zeros(4, "int32")), tvm.nd.array(np.zeros(1, "float32"))
    tvm.build(histogram, "llvm")["histogram"](tvm.nd.array(a), h, f)
    np.testing.assert_array_equal(h.numpy(), np.bincount(a % 4, minlength=4))
    assert f.numpy()[0] == 2048
