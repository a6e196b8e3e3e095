"""C sources: compiled by the C compiler, run, compared with numpy and with LLVM's code."""

import ctypes

import ml_dtypes
import numpy as np
import pytest
import tvm_ffi

import tilewright as tvm
from tilewright import nd
from tilewright.backends.c import cc
from tilewright.backends.c.emit import emit_c
from tilewright.backends.llvm.testing import run_kernel
from tilewright.script import tir as T
from tilewright.support.diagnostics import CompileError
from tilewright.tir.lower import lower_kernel

needs_cc = pytest.mark.skipif(cc.get_cc() is None, reason="needs a C compiler")
WARNINGS = ["-std=c99", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Wno-unused-parameter"]


def run_c(func, *arrays, tmp_path):
    """The flat function `func` compiled without a warning and called on arrays."""
    text = emit_c([func])
    source, library = tmp_path / "k.c", tmp_path / "k.so"
    source.write_text(text)
    cc.create_shared(str(library), [str(source)], [*WARNINGS, "-lm"])
    entry = getattr(ctypes.CDLL(str(library)), func.attrs["global_symbol"])
    assert entry(*[ctypes.c_void_p(a.ctypes.data) for a in arrays]) == 0
    return text


@T.prim_func
def matmul(a: T.handle, b: T.handle, c: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, 16), "float32")
    B = T.match_buffer(b, (16, n), "float16")
    C = T.match_buffer(c, (n, n), "float32")
    for i, j, k in T.grid(n, n, 16):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] += A[vi, vk] * T.Cast("float32", B[vk, vj])


def operands(n=5):
    rng = np.random.default_rng(0)
    a, b = rng.random((n, 16), np.float32), rng.random((16, n), np.float32).astype(np.float16)
    return nd.array(a), nd.array(b), nd.array(np.zeros((n, n), np.float32)), a @ b.astype(np.float32)


@needs_cc
def test_build_calls_exports_and_loads(tmp_path):
    rt = tvm.build(matmul, "c")
    a, b, c, want = operands()
    rt["matmul"](a, b, c)
    np.testing.assert_allclose(c.numpy(), want, rtol=1e-5)
    assert rt.type_key == "c"
    assert tvm.runtime.enabled("c")
    assert "__tvm_ffi_matmul" in rt.get_source()
    assert rt.get_source("c") == rt.get_source()
    for name in ("m.so", "m.o", "m.c"):
        rt.export_library(tmp_path / name)
        assert (tmp_path / name).stat().st_size
    for load in (tvm.runtime.load_module, tvm_ffi.load_module):
        again = nd.empty((5, 5))
        load(str(tmp_path / "m.so"))["matmul"](a, b, again)
        np.testing.assert_array_equal(again.numpy(), c.numpy())


@needs_cc
def test_source_compiles_without_warnings(tmp_path):
    source = tmp_path / "m.c"
    tvm.build(matmul, "c").export_library(source)
    cc.create_object(str(tmp_path / "m.o"), [str(source)], [*WARNINGS, "-Wno-unused-function"])


@needs_cc
@pytest.mark.parametrize(
    "args, kind, message",
    [
        (lambda a, b, c: (a, b), TypeError, "takes 3 arguments .A, B, C., got 2"),
        (lambda a, b, c: (a, b, 3), TypeError, "parameter 'C' must be a tensor .float32 .n, n.., got an int"),
        (lambda a, b, c: (a, a, c), TypeError, "parameter 'B' must be of dtype float16, got float32"),
        (lambda a, b, c: (a, b, nd.empty((4, 5))), ValueError, "dimension 0 of parameter 'C' is 4, it must be 5"),
        (lambda a, b, c: (nd.empty((5,)), b, c), ValueError, "must have 2 dimensions .float32 .n, 16.., got 1"),
    ],
)
def test_bad_arguments_are_named(args, kind, message):
    a, b, c, _ = operands()
    with pytest.raises(kind, match=message):
        tvm.build(matmul, "c")["matmul"](*args(a, b, c))


def test_source_reads_well():
    text = emit_c([lower_kernel(matmul).with_attr("global_symbol", "matmul")])
    for piece in ("/* matmul */", "float* A, uint16_t* B, float* C, int32_t n", "for (int64_t j = 0; j < p; ++j) {"):
        assert piece in text
    assert "((" not in text.partition("/* matmul */")[2]


DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@needs_cc
@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_wrap_and_divide_as_in_numpy(dtype, tmp_path):
    @T.prim_func
    def f(A: T.Buffer((64,), dtype), B: T.Buffer((64,), dtype), C: T.Buffer((8, 64), dtype)):
        T.func_attr({"global_symbol": "f"})
        for i in range(64):
            C[0, i] = A[i] + B[i]
            C[1, i] = A[i] - B[i]
            C[2, i] = A[i] * B[i]
            C[3, i] = T.floordiv(A[i], B[i])
            C[4, i] = T.floormod(A[i], B[i])
            C[5, i] = T.truncdiv(A[i], B[i])
            C[6, i] = T.max(A[i], B[i])
            C[7, i] = T.bitwise_xor(T.shift_left(A[i], T.Cast(dtype, 3)), T.bitwise_not(B[i]))

    info = np.iinfo(dtype)
    rng = np.random.default_rng(1)
    a = rng.integers(info.min, info.max, 64, dtype, endpoint=True)
    b = rng.integers(info.min, info.max, 64, dtype, endpoint=True)
    b[b == 0] = 1
    b[(a == info.min) & (b == -1 if info.min else False)] = 1
    out, want = np.zeros((8, 64), dtype), np.zeros((8, 64), dtype)
    low = lower_kernel(f)
    run_c(low, a, b, out, tmp_path=tmp_path)
    run_kernel(low, a, b, want)
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(out[0], a + b)
    np.testing.assert_array_equal(out[3], a // b)
    np.testing.assert_array_equal(out[4], a % b)


SMALL = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]


@needs_cc
@pytest.mark.parametrize("dtype", SMALL)
def test_small_floats_round_as_numpy(dtype, tmp_path):
    @T.prim_func
    def f(
        A: T.Buffer((512,), dtype),
        B: T.Buffer((512,), "float32"),
        C: T.Buffer((512,), "float32"),
        D: T.Buffer((2, 512), dtype),
    ):
        T.func_attr({"global_symbol": "f"})
        for i in range(512):
            C[i] = T.Cast("float32", A[i])
            D[0, i] = T.Cast(dtype, B[i])
            D[1, i] = A[i] + A[511 - i]

    kind = np.dtype(dtype) if dtype == "float16" else np.dtype(getattr(ml_dtypes, dtype))
    rng = np.random.default_rng(2)
    raw = rng.integers(0, 256 if kind.itemsize == 1 else 65536, 512).astype(
        np.uint8 if kind.itemsize == 1 else np.uint16
    )
    a = raw.view(kind)
    b = (rng.standard_normal(512) * 10.0 ** rng.integers(-9, 6, 512)).astype(np.float32)
    b[:4] = np.inf, -np.inf, np.nan, 0
    c, d = np.zeros(512, np.float32), np.zeros((2, 512), kind)
    run_c(lower_kernel(f), a, b, c, d, tmp_path=tmp_path)
    np.testing.assert_array_equal(c, a.astype(np.float32))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(d[0].astype(np.float32), b.astype(kind).astype(np.float32))
        np.testing.assert_array_equal(d[1].astype(np.float32), (a + a[::-1]).astype(np.float32))


@needs_cc
def test_vectors_keep_their_meaning(tmp_path):
    @T.prim_func
    def f(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32"), C: T.Buffer((1,), "float32")):
        T.func_attr({"global_symbol": "f"})
        A[T.Ramp(1, 1, 8)] = A[T.Ramp(0, 1, 8)]  # overlaps itself: all lanes are read first
        B[T.Ramp(0, 2, 8)] = A[T.Ramp(8, -1, 8)] * T.Broadcast(T.float32(2), 8)
        B[T.Ramp(16, 1, 4)] = T.Shuffle([A[T.Ramp(0, 1, 4)]], [3, 2, 1, 0])
        v: T.float32x4 = A[T.Ramp(4, 1, 4)] + T.Broadcast(T.float32(1), 4)
        B[T.Ramp(20, 1, 4)] = T.Select(v > T.Broadcast(T.float32(5), 4), v, T.Broadcast(T.float32(0), 4))
        C[0] = T.call_intrin("float32", "tir.reduce_lanes", "add", A[T.Ramp(0, 1, 8)])

    a = np.arange(32, dtype=np.float32)
    x, y = (
        (a.copy(), np.zeros(32, np.float32), np.zeros(1, np.float32)),
        (a.copy(), np.zeros(32, np.float32), np.zeros(1, np.float32)),
    )
    run_c(_flat(f), *x, tmp_path=tmp_path)
    run_kernel(_flat(f), *y)
    for p, q in zip(x, y):
        np.testing.assert_array_equal(p, q)
    assert x[0][1:9].tolist() == a[:8].tolist()


def _flat(f):
    from tilewright.ir.node import replace

    return replace(f, params=tuple(f.buffer_map[p].data for p in f.params), buffer_map={})


@needs_cc
def test_math_functions_give_what_llvm_gives(tmp_path):
    names = ["exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "atanh", "sqrt", "rsqrt", "sigmoid", "floor", "ceil", "trunc", "round", "nearbyint", "fabs", "erf"]  # fmt: skip
    a = np.random.default_rng(3).uniform(0.05, 0.95, 64).astype(np.float32)
    for dtype in ("float32", "float64"):
        for name in names:
            op = getattr(T, {"fabs": "abs"}.get(name, name))

            @T.prim_func
            def f(A: T.Buffer((64,), dtype), B: T.Buffer((64,), dtype)):
                T.func_attr({"global_symbol": "f"})
                for i in range(64):
                    B[i] = op(A[i])

            x = a.astype(dtype)
            got, want = np.zeros(64, dtype), np.zeros(64, dtype)
            low = lower_kernel(f)
            run_c(low, x, got, tmp_path=_fresh(tmp_path, f"{name}{dtype}"))
            run_kernel(low, x, want)
            np.testing.assert_allclose(got, want, rtol=2e-6 if dtype == "float32" else 1e-13, err_msg=name)


def _fresh(path, name):
    folder = path / name
    folder.mkdir()
    return folder


@needs_cc
def test_packed_calls_of_registered_functions():
    seen = []

    @tvm.register_func("test_c.record", override=True)
    def record(x, y, text):
        seen.append((x, y, text))
        return 7

    @T.prim_func
    def f(A: T.Buffer((4,), "float32"), B: T.Buffer((1,), "int32")):
        T.func_attr({"global_symbol": "f"})
        B[0] = T.call_packed("test_c.record", A[1], 2, "hello")

    rt = tvm.build(f, "c")
    b = nd.array(np.zeros(1, np.int32))
    rt["f"](nd.array(np.full(4, 2.5, np.float32)), b)
    assert b.numpy()[0] == 7
    assert seen == [(2.5, 2, "hello")]


@needs_cc
def test_errors_leave_a_function_and_free_its_memory():
    @T.prim_func
    def f(A: T.Buffer((4,), "float32"), n: T.int32, B: T.Buffer((4,), "float32")):
        T.func_attr({"global_symbol": "f"})
        W = T.alloc_buffer((100000,), "float32")
        for i in range(4):
            with T.block("w"):
                vi = T.axis.spatial(4, i)
                W[vi * 30000] = A[vi] * T.float32(2)
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                assert n < 3, "ValueError: n is too great"
                B[vi] = W[vi * 30000]

    rt = tvm.build(f, "c")
    assert "malloc" in rt.get_source()
    a, b = nd.array(np.arange(4, dtype=np.float32)), nd.empty((4,))
    rt["f"](a, 2, b)
    np.testing.assert_array_equal(b.numpy(), [0, 2, 4, 6])
    with pytest.raises(ValueError, match="n is too great"):
        rt["f"](a, 3, b)


def test_what_c_cannot_do_is_refused_by_name():
    @T.prim_func
    def threads(A: T.Buffer((8,), "float32")):
        T.func_attr({"global_symbol": "threads"})
        tx = T.launch_thread("threadIdx.x", 8)
        A[tx] = T.float32(1)

    with pytest.raises(CompileError, match="TW0661.*threadIdx"):
        emit_c([_flat(threads)])

    @T.prim_func
    def strange(A: T.Buffer((8,), "float32")):
        T.func_attr({"global_symbol": "strange"})
        T.evaluate(T.tvm_storage_sync("shared"))

    with pytest.raises(CompileError, match="TW0663.*'c' has no intrinsic tir.tvm_storage_sync"):
        emit_c([_flat(strange)])
    with pytest.raises(CompileError, match="TW0664"):
        emit_c([_flat(strange).with_attr("global_symbol", "no-name")])
    with pytest.raises(CompileError, match="TW0713"):
        tvm.build(matmul, "c").export_library("x.zip")
    with pytest.raises(CompileError, match="TW0666"):
        tvm.build(matmul, "c").get_source("ll")


def test_without_a_compiler_the_source_is_there(monkeypatch):
    monkeypatch.setattr(cc, "get_cc", lambda: None)
    rt = tvm.build(matmul, "c")
    assert "matmul" in rt.get_source()
    a, b, c, _ = operands()
    with pytest.raises(CompileError, match="TW0667.*no C compiler"):
        rt["matmul"](a, b, c)
    assert not tvm.runtime.enabled("c")


def test_vector_forms_without_lanes_are_refused():
    @T.prim_func
    def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int16")):
        T.func_attr({"global_symbol": "f"})
        B[T.Ramp(0, 1, 8)] = T.reinterpret("int16x8", A[T.Ramp(0, 1, 4)])

    with pytest.raises(CompileError, match="TW0660"):
        emit_c([_flat(f)])


@tvm.script.ir_module
class Calls:
    """`main` calls a function that nobody outside sees."""

    @T.prim_func
    def main(A: T.Buffer((1,), "float32")):
        Calls.subroutine(A.data)

    @T.prim_func(private=True)
    def subroutine(A_data: T.handle("float32")):
        A = T.decl_buffer((1,), "float32", data=A_data)
        A[0] = T.float32(42)


@needs_cc
@pytest.mark.parametrize("target", ["c", "llvm"])
def test_functions_call_each_other(target):
    rt = tvm.build(Calls, target)
    a = nd.array(np.zeros(1, np.float32))
    rt.main(a)
    assert a.numpy()[0] == 42
    assert rt.function_names == ["main"]
    with pytest.raises(AttributeError, match="no attribute and no function 'subroutine'"):
        _ = rt.subroutine
    if target == "c":
        assert rt.get_source().count("subroutine(float*") == 2  # declared, then defined
