"""Executables and modules: what people call."""

import time

import numpy as np
import pytest
import torch

import tilewright as tvm
from tilewright import te
from tilewright.runtime.executable import Executable
from tilewright.runtime.signature import Param, Signature
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import PrimFunc


def scale_add(dtype: str = "float32", outputs: int = 1) -> PrimFunc:
    """out[n, 4] = data * 2 + bias"""
    n = te.var("n", "int64")
    data = te.placeholder((n, 4), dtype, "data")
    bias = te.placeholder((4,), dtype, "bias")
    out = te.compute((n, 4), lambda i, j: data[i, j] * 2 + bias[j], "out")
    func = te.create_prim_func([data, bias, out])
    return func.with_attr({"global_symbol": "main", "num_outputs": outputs})


@pytest.fixture(scope="module")
def exe() -> Executable:
    return Executable(tvm.build(scale_add(), target="llvm"))


X = np.arange(12, dtype=np.float32).reshape(3, 4)
BIAS = np.array([1, 2, 3, 4], np.float32)
WANT = X * 2 + BIAS


def test_signature(exe):
    assert exe.signature.inputs == (Param("data", "float32", ("n", 4)), Param("bias", "float32", (4,)))
    assert str(exe.signature) == "main(data: float32[n, 4], bias: float32[4]) -> out: float32[n, 4]"
    assert Signature.from_json("main", exe.signature.to_json()) == exe.signature
    assert exe.stats["compile_seconds"] > 0
    assert "out" in exe.script()


def test_numpy_in_numpy_out(exe):
    y = exe(X, BIAS)
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(y, WANT)
    y[0, 0] = 5  # writeable, and nobody else's
    np.testing.assert_array_equal(exe(X, BIAS), WANT)


def test_by_name_and_by_dictionary(exe):
    np.testing.assert_array_equal(exe(bias=BIAS, data=X), WANT)
    np.testing.assert_array_equal(exe(X, bias=BIAS), WANT)
    np.testing.assert_array_equal(exe({"data": X, "bias": BIAS}), WANT)


def test_torch_in_torch_out(exe):
    y = exe(torch.from_numpy(X), torch.from_numpy(BIAS))
    assert isinstance(y, torch.Tensor)
    assert torch.equal(y, torch.from_numpy(WANT))
    mixed = exe(torch.from_numpy(X), BIAS)
    assert isinstance(mixed, torch.Tensor)
    grad = torch.from_numpy(X).requires_grad_()
    assert torch.equal(exe(grad, torch.from_numpy(BIAS)), torch.from_numpy(WANT))


def test_ndarray_in_ndarray_out(exe):
    y = exe(tvm.nd.array(X), tvm.nd.array(BIAS))
    assert isinstance(y, tvm.runtime.NDArray)
    np.testing.assert_array_equal(y.numpy(), WANT)


def test_other_dlpack(exe):
    class Foreign:
        """An array of some other library."""

        def __init__(self, array):
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    np.testing.assert_array_equal(exe(Foreign(X), Foreign(BIAS)), WANT)


def test_layouts_are_repaired_by_a_copy(exe):
    np.testing.assert_array_equal(exe(np.asfortranarray(X), BIAS), WANT)
    np.testing.assert_array_equal(exe(np.repeat(X, 2, axis=1)[:, ::2], BIAS), WANT)
    np.testing.assert_array_equal(exe(X[::-1], BIAS), WANT[::-1])
    np.testing.assert_array_equal(exe(X, np.broadcast_to(np.float32(1), (4,))), X * 2 + 1)
    np.testing.assert_array_equal(exe(X.astype(">f4"), BIAS), WANT)
    odd = np.frombuffer(bytearray(b"x" + X.tobytes()), np.uint8)[1:].view(np.float32).reshape(3, 4)
    np.testing.assert_array_equal(exe(odd, BIAS), WANT)
    assert torch.equal(exe(torch.from_numpy(X.T.copy()).T, torch.from_numpy(BIAS)), torch.from_numpy(WANT))


def test_read_only_arrays_are_not_copied(exe, monkeypatch):
    x = X.copy()
    x.flags.writeable = False
    monkeypatch.setattr(np, "array", lambda *a, **k: pytest.fail("copied"))
    np.testing.assert_array_equal(exe(x, BIAS), WANT)


@pytest.mark.parametrize(
    "args, named, kind, message",
    [
        ((), {}, TypeError, r"main\(\) takes 2 inputs \(data: float32\[n, 4\], bias: float32\[4\]\), got 0"),
        ((X,), {}, TypeError, "got 1"),
        ((X, BIAS, X, X), {}, TypeError, "got 4"),
        ((), {"dat": X, "bias": BIAS}, TypeError, "no input 'dat'; did you mean 'data'?"),
        ((X,), {"zzz": BIAS}, TypeError, r"no input 'zzz'\. Its inputs: data"),
        ((X,), {"data": X}, TypeError, "got the input 'data' twice"),
        ((), {"data": X}, TypeError, "misses the input 'bias'"),
        ((X.astype(float), BIAS), {}, TypeError, r"input 'data' must be of dtype float32, got float64; .*astype\('float32'\)"),
        ((torch.ones(3, 4).double(), BIAS), {}, TypeError, r"input 'data' must be of dtype float32, got float64; .*torch.float32"),
        ((X[0], BIAS), {}, ValueError, r"input 'data' must have 2 dimensions \(float32\[n, 4\]\), got 1: shape \(4,\)"),
        ((X, BIAS[:3]), {}, ValueError, r"input 'bias' has shape \(3,\), but dimension 0 must be 4"),
        ((X[:, :3], BIAS), {}, ValueError, r"input 'data' has shape \(3, 3\), but dimension 1 must be 4"),
        (([[1, 2]], BIAS), {}, TypeError, r"input 'data' must be an array \(float32\[n, 4\]\), got list; np.asarray"),
        ((None, BIAS), {}, TypeError, "input 'data' must be an array .* got NoneType"),
        ((X, "bias"), {}, TypeError, "input 'bias' must be an array .* got str"),
        ((X, 1.0), {}, TypeError, "input 'bias' must be an array .* got float"),
    ],
)  # fmt: skip
def test_wrong_inputs(exe, args, named, kind, message):
    with pytest.raises(kind, match=message):
        exe(*args, **named)


def test_symbols_must_agree():
    n = te.var("n", "int64")
    a, b = te.placeholder((n,), "float32", "a"), te.placeholder((n,), "float32", "b")
    c = te.compute((n,), lambda i: a[i] + b[i], "c")
    func = te.create_prim_func([a, b, c]).with_attr({"global_symbol": "f", "num_outputs": 1})
    f = Executable(tvm.build(func))
    with pytest.raises(
        ValueError, match=r"input 'b' has shape \(3,\), but dimension 0 must be 2 \(n, from 'a', dimension 0\)"
    ):
        f(np.zeros(2, np.float32), np.zeros(3, np.float32))


def test_errors_of_the_callers_own_functions_are_not_retried():
    calls: list[int] = []

    @tvm.register_func("test.runtime.fails", override=True)
    def fails(data, bias):
        calls.append(1)
        raise ValueError("mine")

    try:
        f = tvm.get_global_func("test.runtime.fails")
        exe = Executable(tvm.build(scale_add()))
        exe.function = f
        with pytest.raises(ValueError, match="mine"):
            exe(X, BIAS)
        assert calls == [1]
    finally:
        tvm.runtime.remove_global_func("test.runtime.fails")


def test_half_precision_of_ml_dtypes():
    import ml_dtypes

    exe = Executable(tvm.build(scale_add("float16")))
    y = exe(X.astype("float16"), BIAS.astype("float16"))
    assert y.dtype == np.float16
    np.testing.assert_array_equal(y, WANT.astype("float16"))
    n = te.var("n", "int64")
    a = te.placeholder((n,), "bfloat16", "a")
    c = te.compute((n,), lambda i: a[i], "c")
    copy = Executable(tvm.build(te.create_prim_func([a, c]).with_attr({"global_symbol": "f", "num_outputs": 1})))
    z = copy(BIAS.astype(ml_dtypes.bfloat16))
    assert z.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(z.astype("float32"), BIAS)
    assert copy(torch.from_numpy(BIAS).bfloat16()).dtype == torch.bfloat16


# ---- modules


def test_module_names():
    rt = tvm.build(scale_add(outputs=0))
    assert rt.function_names == ["main"]
    assert rt.entry_name == "main"
    assert rt.mod is rt
    assert rt.imported_modules == []
    assert rt.implements_function("main")
    with pytest.raises(AttributeError, match="no function 'nope'; it has: main"):
        rt["nope"]
    out = np.zeros_like(X)
    rt["main"](X, BIAS, out)
    np.testing.assert_array_equal(out, WANT)
    rt(X, BIAS, out)
    rt.entry_func(X, BIAS, out)
    other = tvm.build(scale_add(outputs=0).with_attr("global_symbol", "second"))
    rt.import_module(other)
    rt["second"](X, BIAS, out)
    assert "define i32 @__tvm_ffi_main" in rt.get_source().replace("dso_local ", "")
    assert "main" in rt.get_source("asm")
    with pytest.raises(ValueError, match="no source in format"):
        rt.get_source("cuda")


def test_time_evaluator():
    rt = tvm.build(scale_add(outputs=0))
    arrays = [tvm.nd.array(X), tvm.nd.array(BIAS), tvm.nd.empty((3, 4))]
    result = rt.time_evaluator("main", tvm.cpu(), number=50, repeat=4)(*arrays)
    assert len(result.results) == 4
    assert 0 < result.min <= result.median <= result.max < 1e-2
    assert result.min <= result.mean <= result.max
    assert result.std >= 0
    assert "median (ms)" in str(result)
    begin = time.perf_counter()
    rt.mod.time_evaluator(rt.entry_name, dev=tvm.cpu(), number=1, repeat=2, min_repeat_ms=20)(*arrays)
    assert time.perf_counter() - begin > 0.04
    with pytest.raises(ValueError, match="at least 1"):
        rt.time_evaluator("main", number=0)


def test_prim_function_with_memory_for_results_is_not_copied_behind_the_back():
    exe = Executable(tvm.build(scale_add(outputs=0)))
    out = np.zeros((4, 3), np.float32).T
    with pytest.raises(ValueError, match="'out'.*row-major"):
        exe(X, BIAS, out)


def test_raw_function_takes_memory_for_results(exe):
    out = np.zeros_like(X)
    assert exe.function(X, BIAS, out) is None
    np.testing.assert_array_equal(out, WANT)
    again = np.zeros_like(X)
    assert exe(X, BIAS, again) is None
    np.testing.assert_array_equal(again, WANT)
    with pytest.raises(TypeError, match="parameter 'out' must be of dtype float32, got float64"):
        exe(X, BIAS, again.astype(float))


def test_source_of_a_loaded_module(tmp_path):
    rt = tvm.build(scale_add())
    rt.export_library(tmp_path / "m.tw")
    loaded = tvm.runtime.load_module(tmp_path / "m.tw")
    with pytest.raises(CompileError, match="TW0714"):
        loaded.get_source()
    with pytest.raises(CompileError, match="TW0714"):
        Executable(loaded).script()
