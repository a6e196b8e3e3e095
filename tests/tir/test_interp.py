"""The reference interpreter: the meaning of each construct."""

import math
import time

import ml_dtypes
import numpy as np
import pytest

from tilewright import te, tir
from tilewright.arith.expr import const, convert, pointer_var
from tilewright.ir.module import IRModule
from tilewright.ir.op import GlobalVar
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.interp import interpret, interpreter_source

TRUE = const(True)


def func(params, body, **attrs):
    """A PrimFunc of buffers and scalar variables as parameters."""
    handles, buffer_map = [], {}
    for p in params:
        if isinstance(p, t.Buffer):
            h = tir.Var(p.name + "_handle", "handle")
            buffer_map[h] = p
            handles.append(h)
        else:
            handles.append(p)
    return t.PrimFunc(tuple(handles), body, None, buffer_map, attrs)


def loop(var, extent, body, kind=t.ForKind.SERIAL, start=0):
    return t.For(var, convert(start), convert(extent), kind, body)


def run1(expr_of, dtype_in, dtype_out, values):
    """The values of `expr_of(x)` for each x of `values`."""
    x = np.array(values).astype(tir.intrin.dt.to_numpy(dtype_in))
    a, b = t.decl_buffer((len(x),), dtype_in, "a"), t.decl_buffer((len(x),), dtype_out, "b")
    i = tir.Var("i", "int32")
    f = func([a, b], loop(i, len(x), t.BufferStore(b, expr_of(a[i]), (i,))))
    out = np.zeros(len(x), tir.intrin.dt.to_numpy(dtype_out))
    interpret(f, x, out)
    return out


def test_integers_wrap():
    assert run1(lambda x: x + 100, "int8", "int8", [100, -100]).tolist() == [-56, 0]
    assert run1(lambda x: x * x, "uint8", "uint8", [20]).tolist() == [144]
    assert run1(lambda x: x - 1, "uint32", "uint32", [0]).tolist() == [2**32 - 1]
    assert run1(lambda x: x * 3, "int64", "int64", [2**62]).tolist() == [-(2**62)]
    assert run1(lambda x: -x, "int32", "int32", [-(2**31)]).tolist() == [-(2**31)]
    assert run1(lambda x: x << 4, "int8", "int8", [0x1F]).tolist() == [-16]
    assert run1(lambda x: ~x, "uint16", "uint16", [1]).tolist() == [65534]


def test_division():
    values = [7, -7, 6, -6]
    assert run1(lambda x: x // 3, "int32", "int32", values).tolist() == [2, -3, 2, -2]
    assert run1(lambda x: x % 3, "int32", "int32", values).tolist() == [1, 2, 0, 0]
    assert run1(lambda x: tir.truncdiv(x, 3), "int32", "int32", values).tolist() == [2, -2, 2, -2]
    assert run1(lambda x: tir.truncmod(x, 3), "int32", "int32", values).tolist() == [1, -1, 0, 0]
    assert run1(lambda x: tir.truncmod(x, -4), "int32", "int32", values).tolist() == [3, -3, 2, -2]
    assert run1(lambda x: x // -4, "int32", "int32", values).tolist() == [-2, 1, -2, 1]
    with pytest.raises(ZeroDivisionError):
        run1(lambda x: x // x, "int32", "int32", [0])
    out = run1(lambda x: x / const(0.0, "float32"), "float32", "float32", [1, -1, 0])
    assert out[0] == math.inf
    assert out[1] == -math.inf
    assert math.isnan(out[2])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floats_round_after_each_operation(dtype):
    kind = tir.intrin.dt.to_numpy(dtype)
    x = np.random.default_rng(0).uniform(-2, 2, 50)
    out = run1(lambda a: a * a + a / 3.0 - 1.0, dtype, dtype, x)
    a = x.astype(kind)
    third = kind.type(3.0)
    want = (a * a + a / third) - kind.type(1.0)
    np.testing.assert_array_equal(out, want)


def test_float8_is_storage():
    out = run1(
        lambda a: tir.cast(tir.cast(a, "float32") * 1.5, "float8_e4m3fn"), "float8_e4m3fn", "float8_e4m3fn", [1, 2]
    )
    assert out.dtype == ml_dtypes.float8_e4m3fn
    assert out.astype(float).tolist() == [1.5, 3.0]


def test_casts():
    assert run1(lambda x: tir.cast(x, "int32"), "float32", "int32", [1.9, -1.9, 3e10, math.nan]).tolist() == [
        1, -1, 2**31 - 1, 0,
    ]  # fmt: skip
    assert run1(lambda x: tir.cast(x, "uint8"), "int32", "uint8", [257, -1]).tolist() == [1, 255]
    assert run1(lambda x: tir.cast(x, "bool"), "int32", "bool", [0, 5]).tolist() == [False, True]
    assert run1(lambda x: tir.cast(x, "int32"), "bool", "int32", [0, 1]).tolist() == [0, 1]
    assert run1(lambda x: tir.cast(x, "float32"), "int64", "float32", [2**24 + 1]).tolist() == [2.0**24]
    assert run1(lambda x: tir.reinterpret("int32", x), "float32", "int32", [1.0]).tolist() == [0x3F800000]


@pytest.mark.parametrize(
    "name, f",
    [
        ("exp", np.exp), ("log", lambda x: np.log(x)), ("tanh", np.tanh), ("sqrt", np.sqrt), ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))), ("erf", np.vectorize(math.erf)), ("floor", np.floor), ("ceil", np.ceil),
        ("trunc", np.trunc), ("nearbyint", np.rint), ("fabs", np.abs), ("atan", np.arctan), ("exp2", np.exp2),
        ("log1p", np.log1p), ("sinh", np.sinh), ("acosh", lambda x: np.arccosh(x)), ("exp10", lambda x: 10**x),
    ],
)  # fmt: skip
def test_math(name, f):
    x = np.array([1.0, 1.5, 2.5, 0.3 if name != "acosh" else 3.0], "float32")
    out = run1(lambda a: getattr(tir, name)(a), "float32", "float32", x)
    np.testing.assert_array_equal(out, f(x.astype("float64")).astype("float32"))


def test_bits_and_tests():
    assert run1(tir.popcount, "int32", "int32", [-1, 5]).tolist() == [32, 2]
    assert run1(tir.clz, "int32", "int32", [1, 0, -1]).tolist() == [31, 32, 0]
    assert run1(lambda x: x >> 1, "int8", "int8", [-2]).tolist() == [-1]
    assert run1(lambda x: x >> 1, "uint8", "uint8", [254]).tolist() == [127]
    assert run1(lambda x: (x & 12) | (x ^ 3), "int32", "int32", [10]).tolist() == [(10 & 12) | (10 ^ 3)]
    assert run1(tir.isnan, "float32", "bool", [math.nan, 1]).tolist() == [True, False]
    assert run1(tir.isinf, "float32", "bool", [-math.inf, 1]).tolist() == [True, False]
    assert run1(tir.isfinite, "float32", "bool", [math.inf, math.nan, 1]).tolist() == [False, False, True]
    assert run1(tir.round, "float32", "float32", [0.5, -0.5, 1.5, 2.5]).tolist() == [1, -1, 2, 3]
    assert run1(tir.abs, "int32", "int32", [-3, 3]).tolist() == [3, 3]
    assert run1(lambda x: tir.max(x, 2) - tir.min(x, 1), "int32", "int32", [0, 5]).tolist() == [2, 4]


def test_out_of_bounds_names_buffer_index_and_shape():
    a = t.decl_buffer((4,), "float32", "a")
    i = tir.Var("i", "int32")
    f = func([a], loop(i, 6, t.BufferStore(a, const(1.0), (i - 1,))))
    with pytest.raises(IndexError, match=r"a\[-1\] of shape \[4\]"):
        interpret(f, np.zeros(4, "float32"))
    f = func([a], loop(i, 6, t.BufferStore(a, const(1.0), (i,))))
    with pytest.raises(IndexError, match=r"a\[4\] of shape \[4\]"):
        interpret(f, np.zeros(4, "float32"))


def test_select_evaluates_both_sides_and_if_then_else_one():
    a, b = t.decl_buffer((4,), "float32", "a"), t.decl_buffer((4,), "float32", "b")
    i = tir.Var("i", "int32")
    x, out = np.arange(4, dtype="float32"), np.zeros(4, "float32")
    guarded = func([a, b], loop(i, 4, t.BufferStore(b, tir.if_then_else(i > 0, a[i - 1], -1.0), (i,))))
    interpret(guarded, x, out)
    assert out.tolist() == [-1, 0, 1, 2]
    both = func([a, b], loop(i, 4, t.BufferStore(b, tir.select(i > 0, a[i - 1], const(-1.0)), (i,))))
    with pytest.raises(IndexError):
        interpret(both, x, out)


def test_arguments_are_checked():
    a = t.decl_buffer((4, 2), "float32", "a")
    f = func([a], t.Evaluate(const(0)), global_symbol="f")
    with pytest.raises(TypeError, match="f: parameter a needs float32, got an array of float64"):
        interpret(f, np.zeros((4, 2)))
    with pytest.raises(ValueError, match="needs rank 2"):
        interpret(f, np.zeros(4, "float32"))
    with pytest.raises(ValueError, match="dimension 1 of parameter a must be 2, got 3"):
        interpret(f, np.zeros((4, 3), "float32"))
    with pytest.raises(TypeError, match="takes 1 arguments, got 0"):
        interpret(f)
    with pytest.raises(TypeError, match="needs a numpy array, got list"):
        interpret(f, [1.0])


def test_fresh_memory_is_poisoned():
    a = t.decl_buffer((2,), "float32", "a")
    tmp = t.decl_buffer((2,), "float32", "tmp")
    i = tir.Var("i", "int32")
    block = t.Block((), (), (), "root", loop(i, 2, t.BufferStore(a, tmp[i], (i,))), None, (tmp,))
    out = np.zeros(2, "float32")
    interpret(func([a], t.BlockRealize((), TRUE, block)), out)
    assert np.isnan(out).all()


def test_block_predicate_init_and_domain():
    a, b = t.decl_buffer((10,), "float32", "a"), t.decl_buffer((1,), "float32", "b")
    io, ii = tir.Var("io", "int32"), tir.Var("ii", "int32")
    vk = t.IterVar(t.Range(const(0), const(10)), tir.Var("vk", "int32"), t.IterVar.CommReduce)
    update = t.BufferStore(b, b[0] + a[vk.var], (const(0),))
    block = t.Block((vk,), (), (), "sum", update, t.BufferStore(b, const(0.0), (const(0),)))
    value = io * 4 + ii
    x, out = np.arange(10, dtype="float32"), np.full(1, 99, "float32")
    good = t.BlockRealize((value,), value < 10, block)
    interpret(func([a, b], loop(io, 3, loop(ii, 4, good))), x, out)
    assert out[0] == 45
    bad = t.BlockRealize((value,), TRUE, block)
    with pytest.raises(IndexError, match=r"block sum: vk = 10 lies outside of its domain \[0, 10\)"):
        interpret(func([a, b], loop(io, 3, loop(ii, 4, bad))), x, out)


def test_match_buffer_is_a_view():
    a = t.decl_buffer((4, 6), "float32", "a")
    s0, off = tir.Var("s0", "int32"), tir.Var("off", "int32")
    m = t.decl_buffer((2, 3), "float32", "m", strides=(s0, 1), elem_offset=off)
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    region = t.BufferRegion(a, (t.Range(const(1), const(2)), t.Range(const(2), const(3))))
    body = loop(i, 2, loop(j, 3, t.BufferStore(m, tir.cast(s0 * 100 + off, "float32"), (i, j))))
    block = t.Block((), (), (), "b", body, None, (), (t.MatchBufferRegion(m, region),))
    x = np.zeros((4, 6), "float32")
    interpret(func([a], t.BlockRealize((), TRUE, block)), x)
    want = np.zeros((4, 6))
    want[1:3, 2:5] = 608
    np.testing.assert_array_equal(x, want)


def test_while_let_if_assert():
    a = t.decl_buffer((2,), "int32", "a")
    n = tir.Var("n", "int32")
    v = tir.Var("v", "int32")
    step = t.LetStmt(
        v, a[0] * 2, t.SeqStmt((t.BufferStore(a, v, (const(0),)), t.BufferStore(a, a[1] + 1, (const(1),))))
    )
    body = t.AssertStmt(
        n > 0,
        tir.StringImm("ValueError: n must be positive"),
        t.SeqStmt(
            (
                t.While(a[0] < n, step),
                t.IfThenElse(
                    a[1] > 3, t.BufferStore(a, const(0), (const(0),)), t.BufferStore(a, const(-5), (const(0),))
                ),
            )
        ),
    )
    f = func([a, n], body)
    x = np.array([1, 0], "int32")
    interpret(f, x, 100)
    assert x.tolist() == [0, 7]
    x = np.array([1, 0], "int32")
    interpret(f, x, 4)
    assert x.tolist() == [-5, 2]
    with pytest.raises(ValueError, match="n must be positive"):
        interpret(f, x, 0)


def test_an_if_whose_side_changes_its_condition_takes_one_side_only():
    a = t.decl_buffer((1,), "int32", "a")
    zero = (const(0),)
    s = t.IfThenElse(a[0] > 0, t.BufferStore(a, const(-1), zero), t.BufferStore(a, const(7), zero))
    x = np.array([1], "int32")
    interpret(func([a], s), x)
    assert x.tolist() == [-1]


def test_raise_and_return():
    n = tir.Var("n", "int64")
    f = func([n], t.Evaluate(tir.tw_raise("IndexError", "index %lld of %lld", n, const(3))))
    with pytest.raises(IndexError, match="index 5 of 3"):
        interpret(f, 5)
    assert interpret(func([n], t.Evaluate(tir.ret(n + 1))), 5) == 6


def test_flat_memory_vectors_and_gathers():
    a, b = pointer_var("a", "float32"), pointer_var("b", "float32")
    fa = t.decl_buffer((16,), "float32", "fa", data=a)
    fb = t.decl_buffer((16,), "float32", "fb", data=b)
    i = tir.Var("i", "int32")
    load = t.BufferLoad(fa, (tir.Ramp(i * 4, const(1), 4),))
    twice = t.BufferStore(fb, load * tir.Broadcast(const(2.0), 4), (tir.Ramp(i * 4 + 3, const(-1), 4),))
    x, out = np.arange(16, dtype="float32"), np.zeros(16, "float32")
    interpret(t.PrimFunc((a, b), loop(i, 4, twice)), x.reshape(4, 4), out)
    np.testing.assert_array_equal(out, (2 * x).reshape(4, 4)[:, ::-1].ravel())
    total = tir.reduce_lanes("add", t.BufferLoad(fa, (tir.Ramp(const(0), const(4), 4),)))
    interpret(t.PrimFunc((a, b), t.BufferStore(fb, total, (const(0),))), x, out)
    assert out[0] == x[::4].sum()
    beyond = t.BufferLoad(fa, (tir.Ramp(const(14), const(1), 4),))
    with pytest.raises(IndexError, match="fa"):
        interpret(t.PrimFunc((a, b), t.BufferStore(fb, beyond, (tir.Ramp(const(0), const(1), 4),))), x, out)


def test_vector_if_then_else_guards_each_lane():
    a, b = t.decl_buffer((4,), "float32", "a"), t.decl_buffer((8,), "float32", "b")
    lanes = tir.Ramp(const(0), const(1), 8)
    guarded = tir.call_intrin(
        "float32x8",
        "tir.if_then_else",
        lanes < tir.Broadcast(const(4), 8),
        t.BufferLoad(a, (lanes,)),
        tir.Broadcast(const(-1.0), 8),
    )
    out = np.zeros(8, "float32")
    interpret(func([a, b], t.BufferStore(b, guarded, (lanes,))), np.arange(4, dtype="float32"), out)
    assert out.tolist() == [0, 1, 2, 3, -1, -1, -1, -1]


def test_vector_integers_shuffles_and_selects():
    b = t.decl_buffer((4,), "int32", "b")
    lanes = tir.Ramp(const(-2), const(1), 4)
    four = tir.Ramp(const(0), const(1), 4)
    e = tir.Select(
        lanes > tir.Broadcast(const(0), 4), tir.Broadcast(const(7), 4), tir.truncdiv(lanes, tir.Broadcast(const(2), 4))
    )
    out = np.zeros(4, "int32")
    interpret(func([b], t.BufferStore(b, e, (four,))), out)
    assert out.tolist() == [-1, 0, 0, 7]
    s = tir.Shuffle((lanes, four), tuple(const(i) for i in (7, 0, 5, 2)))
    interpret(func([b], t.BufferStore(b, s, (four,))), out)
    assert out.tolist() == [3, -2, 1, 0]


def test_allocate_decl_buffer_const_and_strides():
    b = t.decl_buffer((6,), "float32", "b")
    p, c = pointer_var("p", "float32"), pointer_var("c", "float32")
    view = t.decl_buffer((2, 3), "float32", "view", data=p, strides=(1, 2), elem_offset=1)
    flat = t.decl_buffer((8,), "float32", "flat", data=p)
    table = t.decl_buffer((6,), "float32", "table", data=c)
    i, j, k = (tir.Var(n, "int32") for n in "ijk")
    body = t.SeqStmt(
        (
            loop(i, 2, loop(j, 3, t.BufferStore(view, table[i * 3 + j], (i, j)))),
            loop(k, 6, t.BufferStore(b, flat[k + 1], (k,))),
        )
    )
    stmt = t.Allocate(p, "float32", (const(8),), TRUE, t.DeclBuffer(view, body))
    stmt = t.AllocateConst(c, "float32", (const(6),), np.arange(6, dtype="float32"), stmt)
    out = np.zeros(6, "float32")
    interpret(func([b], stmt), out)
    np.testing.assert_array_equal(out, np.arange(6).reshape(2, 3).T.ravel())


def test_a_view_that_leaves_its_memory_is_refused():
    b = t.decl_buffer((6,), "float32", "b")
    p = pointer_var("p", "float32")
    view = t.decl_buffer((9,), "float32", "view", data=p)
    stmt = t.Allocate(p, "float32", (const(8),), TRUE, t.DeclBuffer(view, t.Evaluate(const(0))))
    with pytest.raises(IndexError, match="buffer view of shape"):
        interpret(func([b], stmt), np.zeros(6, "float32"))


def test_strided_parameters():
    s = tir.Var("s", "int32")
    a = t.decl_buffer((3, 2), "float32", "a", strides=(s, 1))
    b = t.decl_buffer((3, 2), "float32", "b")
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    f = func([a, b], loop(i, 3, loop(j, 2, t.BufferStore(b, a[i, j] + tir.cast(s, "float32"), (i, j)))))
    x = np.arange(15, dtype="float32").reshape(3, 5)[:, :2]
    out = np.zeros((3, 2), "float32")
    interpret(f, x, out)
    np.testing.assert_array_equal(out, x + 5)


def test_a_variable_inside_of_dimensions_is_solved():
    n = te.var("n", "int64")
    a = te.placeholder((n * 2 + 1,), name="A")
    b = te.compute((n,), lambda i: a[i * 2] + a[i * 2 + 2], name="B")
    c = te.compute((n * 3,), lambda i: b[i // 3], name="C")
    f = te.create_prim_func([a, c])
    x, out = np.arange(9, dtype="float32"), np.empty(12, "float32")
    interpret(f, x, out)
    np.testing.assert_array_equal(out, np.repeat(x[:8:2] + x[2::2], 3))
    with pytest.raises(ValueError, match="dimension 0 of parameter A must be 9, got 10"):
        interpret(f, np.arange(10, dtype="float32"), out)


def test_thread_bound_loops_run_as_loops():
    a = t.decl_buffer((6,), "int32", "a")
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    bind = [t.IterVar(None, tir.Var(n, "int32"), t.IterVar.ThreadIndex, n) for n in ("blockIdx.x", "threadIdx.x")]
    inner = t.For(j, const(0), const(3), t.ForKind.THREAD_BINDING, t.BufferStore(a, i * 10 + j, (i * 3 + j,)), bind[1])
    outer = t.For(i, const(0), const(2), t.ForKind.THREAD_BINDING, inner, bind[0])
    x = np.zeros(6, "int32")
    interpret(func([a], outer), x)
    assert x.tolist() == [0, 1, 2, 10, 11, 12]
    tx = t.IterVar(t.Range(const(0), const(3)), tir.Var("tx", "int32"), t.IterVar.ThreadIndex, "threadIdx.x")
    attr = t.AttrStmt(tx, "thread_extent", const(3), t.BufferStore(a, const(5), (tx.var,)))
    interpret(func([a], attr), x)
    assert x.tolist() == [5, 5, 5, 10, 11, 12]


def test_backwards_shows_loops_that_are_not_parallel():
    a = t.decl_buffer((5,), "int32", "a")
    i = tir.Var("i", "int32")
    shift = t.BufferStore(a, a[i], (i + 1,))
    for kind, same in [(t.ForKind.PARALLEL, False), (t.ForKind.SERIAL, True)]:
        x, y = np.arange(5, dtype="int32"), np.arange(5, dtype="int32")
        f = func([a], loop(i, 4, shift, kind))
        interpret(f, x)
        interpret(f, y, backwards=True)
        assert (x.tolist() == y.tolist()) == same


def test_calls_between_functions_of_a_module():
    p = pointer_var("p", "float32")
    flat = t.decl_buffer((4,), "float32", "flat", data=p)
    i = tir.Var("i", "int32")
    helper = t.PrimFunc((p, i), t.BufferStore(flat, flat[i] + 1.0, (i,)))
    a = t.decl_buffer((2, 4), "float32", "a")
    gv = GlobalVar("helper")
    k = tir.Var("k", "int32")
    call = t.Evaluate(tir.Call("int32", gv, (tir.address_of(t.BufferLoad(a, (const(1), const(0)))), k)))
    main = func([a], loop(k, 3, call))
    x = np.zeros((2, 4), "float32")
    interpret(IRModule({GlobalVar("main"): main, gv: helper}), x)
    np.testing.assert_array_equal(x, [[0] * 4, [1, 1, 1, 0]])
    with pytest.raises(CompileError, match="TW0950"):
        interpret(main, x)


def test_external_functions():
    a = t.decl_buffer((2,), "float32", "a")
    body = t.SeqStmt(
        (
            t.BufferStore(a, tir.call_extern("float32", "twice", a[0]), (const(0),)),
            t.Evaluate(tir.call_packed("fill", a, const(9.0))),
        )
    )
    x = np.array([4, 0], "float32")
    seen = []

    def fill(arr, value):
        seen.append(arr[0])
        arr[1] = value

    interpret(func([a], body), x, externs={"twice": lambda v: 2 * v, "fill": fill})
    assert x.tolist() == [8, 9]
    assert seen == [8]


def test_deep_nests():
    a = t.decl_buffer((1,), "int32", "a")
    n = tir.Var("n", "int32")
    zero = (const(0),)
    body = t.BufferStore(a, a[0] + 1, zero)
    for d in range(40):
        body = t.For(tir.Var(f"i{d}", "int32"), const(0), n if d < 2 else n - n + 1, t.ForKind.SERIAL, body)
        body = t.IfThenElse(n > 0, body, t.BufferStore(a, const(-1), zero))
    x = np.zeros(1, "int32")
    interpret(func([a, n], body), x, 3)
    assert x[0] == 9


def test_let_expressions_and_bool_buffers():
    b = t.decl_buffer((3,), "bool", "b")
    i, v = tir.Var("i", "int32"), tir.Var("v", "int32")
    e = tir.Let(v, i * i, tir.all(v > 0, tir.Not(v > 3)))
    out = np.zeros(3, bool)
    interpret(func([b], loop(i, 3, t.BufferStore(b, e, (i,)))), out)
    assert out.tolist() == [False, True, False]


def test_refusals_say_why():
    p = tir.Var("p", "handle")
    address = tir.reinterpret("int64", p)
    with pytest.raises(CompileError, match="reinterpret"):
        interpret(t.PrimFunc((p,), t.Evaluate(tir.ret(address))), np.zeros(4, "float32"))
    with pytest.raises(CompileError, match="one after the other"):
        interpret(t.PrimFunc((), t.Evaluate(tir.tvm_storage_sync("shared"))))
    a = t.decl_buffer((1,), "int32", "a")
    with pytest.raises(CompileError, match="a store of float32 into a"):
        interpret(func([a], t.BufferStore(a, const(1.0), (const(0),))), np.zeros(1, "int32"))


def test_it_is_fast_enough():
    a, b = te.placeholder((32, 32), name="A"), te.placeholder((32, 32), name="B")
    k = te.reduce_axis((0, 32), "k")
    c = te.compute((32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    f = te.create_prim_func([a, b, c])
    x, y = np.random.rand(2, 32, 32).astype("float32")
    out = np.empty((32, 32), "float32")
    start = time.perf_counter()
    interpret(f, x, y, out)
    assert time.perf_counter() - start < 0.5
    np.testing.assert_allclose(out, x @ y, rtol=1e-5)
    assert "_ck(" not in interpreter_source(f)  # all accesses proven
