"""The packed wrapper: right calls run, wrong ones end in an error that names function, parameter, got and needed."""

import numpy as np
import pytest
import torch
import tvm_ffi

import tilewright as tvm
from tilewright.arith.expr import StringImm, Var, call_intrin, cast, const
from tilewright.backends.llvm.codegen import compile_object
from tilewright.backends.llvm.emit import emit_module
from tilewright.backends.llvm.jit import Engine
from tilewright.ir.op import GlobalVar
from tilewright.ir.target import Target
from tilewright.runtime.ffi import function_at
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import BufferLoad, BufferStore, Evaluate, For, ForKind, PrimFunc, SeqStmt, decl_buffer
from tilewright.tir.lower.make_packed_api import PACKED_PREFIX, dtype_word, make_packed_api

n, m = Var("n", "int64"), Var("m", "int64")


def flat(buffer, size):
    return decl_buffer((size,), buffer.dtype, buffer.name, data=buffer.data)


def loop(size, body):
    i = Var("i", "int64")
    return For(i, const(0, "int64"), cast(size, "int64"), ForKind.SERIAL, body(i))


def load(*funcs, name=None):
    packed = [make_packed_api(f) for f in funcs]
    text = emit_module(packed, Target("llvm")).text
    engine = Engine([compile_object(text, Target("llvm"), "kernel")], {})
    made = [function_at(engine.address(PACKED_PREFIX + f.attrs["global_symbol"]), engine) for f in funcs]
    return made[0] if len(made) == 1 else made


def add(rows=n, dtype="float32", outputs=1, strides=(), columns=4):
    """c[rows, 4] = a + b"""
    a, b = decl_buffer((rows, columns), dtype, "a", strides=strides), decl_buffer((rows, columns), dtype, "b")
    c = decl_buffer((rows, columns), dtype, "c")
    params = [Var(x, "handle") for x in "abc"]
    fa, fb, fc = (flat(x, rows * columns) for x in (a, b, c))
    body = loop(rows * columns, lambda i: BufferStore(fc, BufferLoad(fa, (i,)) + BufferLoad(fb, (i,)), (i,)))
    attrs = {"global_symbol": "add", "num_outputs": outputs}
    return PrimFunc(tuple(params), body, None, dict(zip(params, (a, b, c))), attrs)


@pytest.fixture(scope="module")
def f():
    return load(add())


A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = A * 2


def test_writes_into_given_memory(f):
    c = np.zeros_like(A)
    assert f(A, B, c) is None
    assert (c == A + B).all()


def test_allocates_results(f):
    r = f(A, B)
    assert r.shape == (3, 4)
    assert (r.numpy() == A + B).all()
    big = np.ones((50000, 4), np.float32)
    assert (f(big, big).numpy() == 2).all()


def test_torch_gets_torch(f):
    x = torch.from_numpy(A)
    r = f(x, x)
    assert isinstance(r, torch.Tensor)
    assert torch.equal(r, x + x)


def test_other_forms_of_tensors(f):
    for x in (tvm.nd.array(A), tvm_ffi.from_dlpack(A), torch.from_numpy(A)):
        c = np.zeros_like(A)
        f(x, B, c)
        assert (c == A + B).all()


def test_empty_and_single(f):
    assert f(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32)).shape == (0, 4)
    one = np.ones((1, 4), np.float32)
    odd = np.lib.stride_tricks.as_strided(one, (1, 4), (999, 4))
    assert (f(odd, one).numpy() == 2).all(), "the stride of a dimension of one does not matter"


wide, tall = np.zeros((3, 8), np.float32), np.zeros((4, 3), np.float32)
CASES = [
    ((), TypeError, r"add\(\): takes 2 arguments \(a, b\), or 3 with memory for the results \(c\), got 0"),
    ((A,), TypeError, "got 1"),
    ((A, B, A, A), TypeError, "got 4"),
    ((None, B), TypeError, r"parameter 'a' must be a tensor \(float32 \[n, 4\]\), got None"),
    (("x", B), TypeError, "'a' must be a tensor .* got a str"),
    (("a rather long string", B), TypeError, "'a' must be a tensor .* got a str"),
    ((1, B), TypeError, "got an int"),
    ((1.5, B), TypeError, "got a float"),
    ((True, B), TypeError, "got a bool"),
    (([1, 2], B), TypeError, "got a list or tuple"),
    (({}, B), TypeError, "got a dict"),
    ((len, B), TypeError, "got a function"),
    ((object(), B), TypeError, "got an object of another type"),
    ((A, B, None), TypeError, "'c' must be a tensor .* got None"),
    ((A.astype("float64"), B), TypeError, "'a' must be of dtype float32, got float64"),
    ((A, B > 0), TypeError, "'b' must be of dtype float32, got bool"),
    ((A, B.astype("int8")), TypeError, "'b' must be of dtype float32, got int8"),
    ((A.astype("complex64"), B), TypeError, "got complex64"),
    ((A[0], B), ValueError, r"'a' must have 2 dimensions \(float32 \[n, 4\]\), got 1"),
    ((A[:, :2].copy(), B), ValueError, "dimension 1 of parameter 'a' is 2, it must be 4"),
    ((A, B[:2]), ValueError, r"dimension 0 of parameter 'b' is 2, it must be 3 \(n"),
    ((A, B, A[:1]), ValueError, "dimension 0 of parameter 'c' is 1, it must be 3"),
    (
        (wide[:, :4], B),
        ValueError,
        r"'a' must be row-major and compact: its strides are \(8, 1\), they must be \(4, 1\)",
    ),
    ((tall.T, B), ValueError, r"its strides are \(1, 3\)"),
    (
        (A, np.frombuffer(bytearray(49), np.uint8)[1:].view(np.float32).reshape(3, 4)),
        ValueError,
        "'b' must be aligned to 4 bytes, its address is",
    ),
]


@pytest.mark.parametrize("args, kind, message", CASES, ids=range(len(CASES)))
def test_wrong_arguments(f, args, kind, message):
    with pytest.raises(kind, match=message):
        f(*args)
    assert (f(A, B).numpy() == A + B).all()


def test_scalars():
    i, x, b = Var("i", "int32"), Var("x", "float32"), Var("flag", "bool")
    out = decl_buffer((3,), "float64", "out")
    p = Var("out", "handle")
    store = [BufferStore(out, cast(e, "float64"), (const(k, "int64"),)) for k, e in enumerate((i, x, cast(b, "int32")))]
    g = load(PrimFunc((i, x, b, p), SeqStmt(tuple(store)), None, {p: out}, {"global_symbol": "scalars"}))
    r = np.zeros(3)
    g(-7, 2.5, True, r)
    assert r.tolist() == [-7, 2.5, 1]
    g(True, 3, 0, r)
    assert r.tolist() == [1, 3, 0]
    for args, message in (
        ((2.5, 1, 1, r), r"scalars\(\): parameter 'i' must be a number \(int32\), got a float"),
        ((1, "x", 1, r), "parameter 'x' must be a number .* got a str"),
        ((1, 1, None, r), "parameter 'flag' must be a number .* got None"),
        ((1, 1, r, r), "parameter 'flag' must be a number .* got a tensor"),
    ):
        with pytest.raises(TypeError, match=message):
            g(*args)
    with pytest.raises(ValueError, match="parameter 'i' is 2147483648, which int32 cannot hold"):
        g(2**31, 1, 1, r)


def symbolic(shapes, dtype="float32", extra=(), name="sym", **attrs):
    buffers = [decl_buffer(s, dtype, f"p{k}") for k, s in enumerate(shapes)]
    params = [Var(f"p{k}", "handle") for k in range(len(shapes))]
    return PrimFunc(
        (*params, *extra), Evaluate(const(0)), None, dict(zip(params, buffers)), {"global_symbol": name, **attrs}
    )


def test_expressions_of_symbols_are_checked_even_before_they_are_bound():
    g = load(symbolic([(n * 2, m), (n, m + 1)]))
    g(np.zeros((6, 2), "float32"), np.zeros((3, 3), "float32"))
    with pytest.raises(ValueError, match=r"dimension 0 of parameter 'p0' is 5, it must be 6 \(= n"):
        g(np.zeros((5, 2), "float32"), np.zeros((3, 3), "float32"))
    with pytest.raises(ValueError, match=r"dimension 1 of parameter 'p1' is 2, it must be 3 \(= m"):
        g(np.zeros((6, 2), "float32"), np.zeros((3, 2), "float32"))


def test_square():
    g = load(symbolic([(n, n)]))
    g(np.zeros((3, 3), "float32"))
    with pytest.raises(ValueError, match="dimension 1 of parameter 'p0' is 4, it must be 3"):
        g(np.zeros((3, 4), "float32"))


def test_scalar_parameter_that_is_a_dimension():
    k = Var("k", "int32")
    g = load(symbolic([(cast(k, "int64"),)], extra=(k,)), symbolic([(k,)], extra=(k,), name="direct"))
    for h in g:
        h(np.zeros(5, "float32"), 5)
        with pytest.raises(ValueError, match=r"5.*4|4.*5"):
            h(np.zeros(5, "float32"), 4)


def test_symbol_that_nothing_tells():
    with pytest.raises(CompileError, match="TW0530.*dimension 0 of parameter 'p0' is .*no argument tells n"):
        make_packed_api(symbolic([(n * 2,)]))
    with pytest.raises(CompileError, match="TW0530.*the result 'p1' has a dimension"):
        make_packed_api(symbolic([(n,), (m,)], num_outputs=1))


def test_strides_that_are_symbols():
    s = Var("s", "int64")
    a = decl_buffer((n, 4), "float32", "a", strides=(s, 1))
    out = decl_buffer((2,), "int64", "out")
    pa, po = Var("a", "handle"), Var("out", "handle")
    body = SeqStmt(tuple(BufferStore(out, v, (const(k, "int64"),)) for k, v in enumerate((n, s))))
    g = load(PrimFunc((pa, po), body, None, {pa: a, po: out}, {"global_symbol": "strided"}))
    r = np.zeros(2, np.int64)
    g(wide[:, :4], r)
    assert r.tolist() == [3, 8]
    g(A, r)
    assert r.tolist() == [3, 4]
    with pytest.raises(ValueError, match="stride 1 of parameter 'a' is 3, it must be 1"):
        g(np.zeros((4, 3), "float32").T[:, :4], r)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float16", "float64", "bool", "uint32"])
def test_dtypes(dtype):
    g = load(symbolic([(n,)], dtype))
    g(np.zeros(3, dtype))
    with pytest.raises(TypeError, match=f"must be of dtype {dtype}, got float32"):
        g(np.zeros(3, np.float32))


def test_bfloat16():
    g = load(symbolic([(n,)], "bfloat16"))
    g(torch.zeros(3, dtype=torch.bfloat16))
    with pytest.raises(TypeError, match="must be of dtype bfloat16, got float16"):
        g(np.zeros(3, np.float16))


def test_zero_dimensions():
    g = load(symbolic([()]))
    g(np.zeros((), "float32"))
    with pytest.raises(ValueError, match=r"must have 0 dimensions"):
        g(np.zeros(1, "float32"))


@pytest.mark.parametrize("returns_tuple", [False, True])
def test_several_results(returns_tuple):
    x = decl_buffer((n,), "float32", "x")
    y, z = decl_buffer((n * 2, 3), "int64", "y"), decl_buffer((), "float32", "z")
    names = [Var(k, "handle") for k in "xyz"]
    outs = (y, z) if not returns_tuple else (y,)
    names = names[: 1 + len(outs)]
    fy = flat(y, n * 6)
    body = [loop(n * 6, lambda i: BufferStore(fy, i, (i,)))]
    if not returns_tuple:
        body.append(BufferStore(flat(z, 1), const(2.5, "float32"), (const(0, "int64"),)))
    attrs = {"global_symbol": "several", "num_outputs": len(outs), "returns_tuple": True}
    g = load(PrimFunc(tuple(names), SeqStmt(tuple(body)), None, dict(zip(names, (x, *outs))), attrs))
    r = g(np.zeros(2, "float32"))
    assert len(r) == len(outs)
    assert r[0].shape == (4, 3)
    assert (r[0].numpy().ravel() == np.arange(12)).all()
    if not returns_tuple:
        assert r[1].shape == ()
        assert r[1].numpy() == 2.5
    t = g(torch.zeros(2))
    assert isinstance(t[0], torch.Tensor)


def test_names_with_percent_signs():
    a = decl_buffer((3,), "float32", "100%s")
    p = Var("p", "handle")
    g = load(PrimFunc((p,), Evaluate(const(0)), None, {p: a}, {"global_symbol": "percent"}))
    with pytest.raises(TypeError, match="parameter '100%s' must be a tensor"):
        g(3)


def test_many_parameters():
    g = load(symbolic([(n, 3)] * 60))
    arrays = [np.zeros((2, 3), "float32")] * 60
    g(*arrays)
    with pytest.raises(ValueError, match="dimension 1 of parameter 'p59' is 4"):
        g(*arrays[:-1], np.zeros((2, 4), "float32"))


def test_results_are_freed(f):
    big = np.ones((200000, 4), np.float32)
    import resource

    for _ in range(20):
        f(big, big)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(200):
        f(big, big)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "results leak"


def test_results_of_a_failed_call_are_freed():
    import resource

    x = decl_buffer((n,), "float32", "x")
    y = decl_buffer((n,), "float32", "y")
    px, py = Var("x", "handle"), Var("y", "handle")
    fail = Evaluate(call_intrin("int32", "tir.tw_raise", StringImm("RuntimeError"), StringImm("no luck with %lld"), n))
    kernel = PrimFunc((x.data, y.data, n), fail, None, {}, {"global_symbol": "kernel"})
    f = PrimFunc((px, py), Evaluate(const(0)), None, {px: x, py: y}, {"global_symbol": "f", "num_outputs": 1})
    text = emit_module([kernel, make_packed_api(f, GlobalVar("kernel"))], Target("llvm")).text
    engine = Engine([compile_object(text, Target("llvm"), "kernel")], {})
    g = function_at(engine.address(PACKED_PREFIX + "f"), engine)
    big = np.ones(1_000_000, np.float32)
    for k in range(300):
        if k == 20:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(RuntimeError, match="no luck with 1000000"):
            g(big)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "results leak"


def test_dtype_word():
    assert dtype_word("float32") == 2 | 32 << 8 | 1 << 16
    assert dtype_word("bool") == 6 | 8 << 8 | 1 << 16
    assert dtype_word("int8x4") == 8 << 8 | 4 << 16
