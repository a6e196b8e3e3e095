"""Arrays, devices and the function registry under their known names."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm_ffi

import tilewright as tvm
from tilewright import nd
from tilewright.support.diagnostics import CompileError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_array_copies():
    a = nd.array(X)
    assert isinstance(a, tvm.runtime.NDArray)
    assert isinstance(a, tvm_ffi.Tensor)
    assert (a.shape, a.dtype, a.ndim, len(a)) == ((2, 3), "float32", 2, 2)
    assert a.device == tvm.cpu(0)
    assert a.data_ptr() % 64 == 0
    np.testing.assert_array_equal(a.numpy(), X)
    np.testing.assert_array_equal(a.asnumpy(), X)
    a.numpy()[0, 0] = 9
    a[1, 1] = 7
    assert X[1, 1] == 4
    assert a.numpy()[1, 1] == 7
    assert a.numpy()[0, 0] == 0
    a[:] = 1
    assert (np.asarray(a) == 1).all()
    np.testing.assert_array_equal(tvm.runtime.tensor(X).numpy(), X)
    np.testing.assert_array_equal(nd.array(X.T).numpy(), X.T)
    np.testing.assert_array_equal(nd.array(a).numpy(), np.ones((2, 3)))


def test_lists_and_numbers():
    assert nd.array([1.0, 2.0]).dtype == "float32"
    assert nd.array([1, 2]).dtype == "int64"
    assert nd.array(np.float64(3)).dtype == "float64"
    assert nd.array(5).shape == ()
    assert nd.array(torch.ones(2, dtype=torch.float64)).dtype == "float64"


def test_empty_and_copies():
    a, b = nd.array(X), nd.empty((2, 3), "float32", tvm.cpu())
    assert a.copyto(b) is b
    np.testing.assert_array_equal(b.numpy(), X)
    b.copyfrom(X * 2)
    np.testing.assert_array_equal(b.numpy(), X * 2)
    c = a.copyto(tvm.cpu(0))
    assert c.data_ptr() != a.data_ptr()
    np.testing.assert_array_equal(c.numpy(), X)
    assert nd.empty(4).shape == (4,)
    assert nd.empty((0, 3)).numpy().shape == (0, 3)
    assert nd.empty((), "int32").numpy().shape == ()


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int16", "int64", "uint32", "bool"])
def test_dtypes(dtype):
    a = nd.empty((3,), dtype)
    a[:] = 1
    assert a.dtype == dtype
    assert a.numpy().dtype == np.dtype(dtype)
    assert (a.numpy() == 1).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dtypes_that_numpy_lacks(dtype):
    x = X.astype(getattr(ml_dtypes, dtype))
    for a in (nd.array(x), nd.from_dlpack(x)):
        assert a.dtype == dtype
        assert a.numpy().dtype == x.dtype
        np.testing.assert_array_equal(a.numpy().astype("float32"), X)
    shared = nd.from_dlpack(x)
    x[0, 0] = 2
    assert shared.numpy()[0, 0] == 2


def test_dlpack_both_ways_shares_memory():
    t = torch.zeros(2, 3)
    a = nd.from_dlpack(t)
    a[0, 1] = 5
    assert t[0, 1] == 5
    b = nd.array(X)
    back = torch.from_dlpack(b)
    back[0, 0] = 8
    assert b.numpy()[0, 0] == 8
    assert np.from_dlpack(b)[0, 0] == 8
    frozen = X.copy()
    frozen.flags.writeable = False
    c = nd.from_dlpack(frozen)
    assert c.data_ptr() == frozen.ctypes.data
    with pytest.raises(TypeError, match="a list is no array"):
        nd.from_dlpack([1, 2])


def test_memory_outlives_its_maker():
    views = [np.from_dlpack(nd.array(np.full((1000,), k, np.float32))) for k in range(50)]
    for k, v in enumerate(views):
        assert (v == k).all()


@pytest.mark.parametrize(
    "call, kind, message",
    [
        (lambda: nd.empty((-1,)), ValueError, "whole numbers from 0 on"),
        (lambda: nd.empty((1.5,)), ValueError, "whole numbers from 0 on"),
        (lambda: nd.empty((2,), "foo"), ValueError, "'foo' is not a dtype"),
        (lambda: nd.empty((2,), "handle"), ValueError, "no tensors of dtype 'handle'"),
        (lambda: nd.empty((2,), "float32", tvm.runtime.metal()), CompileError, "TW0670.*metal"),
        (
            lambda: nd.array(X).copyfrom(X[0]),
            ValueError,
            r"cannot copy an array of shape \(3,\) into one of shape \(2, 3\)",
        ),
        (lambda: nd.array(X).copyto(3), TypeError, "copyto takes an array or a device, got int"),
        (lambda: nd.array("text"), ValueError, "cannot make an array of str"),
        (lambda: nd.empty((1 << 50,)), MemoryError, "no memory for a new tensor"),
    ],
)
def test_errors(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_devices():
    assert tvm.cpu() == tvm.device("cpu", 0) == tvm.device("cpu:0") == tvm.device("llvm")
    assert (tvm.cpu().device_type, tvm.cpu(2).device_id) == (1, 2)
    assert tvm.cpu().exist
    assert not tvm.runtime.cuda().exist
    assert str(tvm.cpu()) == "cpu:0"
    tvm.cpu().sync()


def test_registered_functions_get_arrays_with_numpy():
    @tvm.register_func("test.nd.scale")
    def scale(a, factor, out):
        out.copyfrom(a.numpy() * factor)
        return "done"

    try:
        out = np.zeros_like(X)
        assert tvm.get_global_func("test.nd.scale")(X, 3, out) == "done"
        np.testing.assert_array_equal(out, X * 3)
        assert scale(nd.array(X), 2, nd.empty((2, 3))) == "done", "the function itself stays what it was"
        with pytest.raises(ValueError, match="'test.nd.scale' is registered already; override=True"):
            tvm.register_func("test.nd.scale", scale)
        tvm.register_func("test.nd.scale", lambda a: 1, override=True)
        assert tvm.get_global_func("test.nd.scale")(1) == 1
        assert "test.nd.scale" in tvm.runtime.registry.list_global_func_names()
    finally:
        tvm.runtime.remove_global_func("test.nd.scale")
    assert tvm.get_global_func("test.nd.scale", allow_missing=True) is None
    with pytest.raises(ValueError, match="no function 'test.nd.scale' is registered"):
        tvm.get_global_func("test.nd.scale")
    with pytest.raises(ValueError, match="no function"):
        tvm.runtime.remove_global_func("test.nd.scale")


def test_register_bare_and_with_errors():
    @tvm.register_func
    def test_nd_bare(x):
        raise KeyError("mine")

    try:
        with pytest.raises(KeyError, match="mine"):
            tvm.get_global_func("test_nd_bare")(1)
    finally:
        tvm.runtime.remove_global_func("test_nd_bare")
    with pytest.raises(TypeError, match="the name of a function is a str"):
        tvm.register_func(3)


def test_the_ffi_is_not_imported_with_the_package():
    code = "import tilewright, sys; tilewright.nd, tilewright.runtime.threads; print([m for m in ('tvm_ffi', 'torch', 'llvmlite') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_contrib(tmp_path):
    from tilewright.contrib import utils
    from tilewright.contrib.dlpack import convert_func, to_pytorch_func

    with utils.tempdir() as folder:
        path = folder.relpath("a.txt")
        open(path, "w").close()
        assert folder.listdir() == ["a.txt"]
        where = folder.temp_dir
    assert not utils.is_source_path(where)
    kept = utils.tempdir(str(tmp_path / "kept"))
    kept.remove()
    assert (tmp_path / "kept").is_dir()

    def double(a, out):
        out.copyfrom(a.numpy() * 2)

    out = torch.zeros(3)
    to_pytorch_func(double)(torch.ones(3), out)
    assert out.tolist() == [2, 2, 2]
    convert_func(double, torch.Tensor, lambda t: t.__dlpack__())(torch.ones(3), out)
    assert out.tolist() == [2, 2, 2]
