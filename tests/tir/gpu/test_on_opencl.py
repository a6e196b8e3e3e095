"""The programs of `programs.py` on OpenCL, where there is a device of it."""

import numpy as np
import pytest

import tilewright as tvm
from tests.tir.gpu import programs as P

dev = tvm.opencl(0)
pytestmark = pytest.mark.skipif(not dev.exist, reason="no OpenCL here")
RNG = np.random.default_rng(0)


def rand(*shape):
    return RNG.random(shape, dtype=np.float32)


def on_device(f, *args):
    """The arrays after a run."""
    built = tvm.build(f, target="opencl")
    given = [tvm.nd.array(a, dev) if isinstance(a, np.ndarray) else a for a in args]
    built[f.attrs["global_symbol"]](*given)
    return [a if isinstance(a, int) else a.numpy() for a in given]


def test_blocked_matmul():
    a, b = rand(32, 32), rand(32, 32)
    np.testing.assert_allclose(on_device(P.blocked_matmul, a, b, np.zeros_like(a))[2], a @ b, rtol=1e-5)


def test_reductions():
    a = rand(4, 100)
    np.testing.assert_allclose(on_device(P.row_sum, a, np.zeros(4, np.float32))[1], a.sum(1), rtol=1e-5)
    a = rand(4, 96)
    e = np.exp(a - a.max(1, keepdims=True))
    want = e / e.sum(1, keepdims=True)
    np.testing.assert_allclose(on_device(P.softmax_rows, a, np.zeros_like(a))[1], want, rtol=1e-5)
    v = rand(4, 64)
    index = on_device(P.argmax_rows, v, np.zeros(4, np.int32), np.zeros(4, np.float32))[1]
    np.testing.assert_array_equal(index, v.argmax(1))


def test_shared_window_and_virtual_threads():
    a = rand(258)
    got = on_device(P.window_sum, a, np.zeros(256, np.float32))[1]
    np.testing.assert_allclose(got, a[:-2] + a[1:-1] + a[2:], rtol=1e-6)
    a = rand(64)
    np.testing.assert_allclose(on_device(P.two_virtual, a, np.zeros_like(a))[1], a * 2 + 1, rtol=1e-6)


def test_symbolic_sizes():
    for n in (1, 32, 100):
        a = rand(n)
        np.testing.assert_array_equal(on_device(P.scaled, a, np.zeros_like(a), n)[1], a * np.float32(3))


def test_memory_between_kernels_is_the_devices():
    a = rand(64)
    got = on_device(P.two_kernels, a, np.zeros_like(a))[1]
    np.testing.assert_array_equal(got, (a + np.float32(1))[::-1])


def test_default_schedule():
    a, w = rand(6, 20) - np.float32(0.5), rand(20, 5)
    got = on_device(P.unbound, a, w, np.zeros((6, 5), np.float32))[2]
    np.testing.assert_allclose(got, np.maximum(a @ w, 0), rtol=1e-4, atol=1e-6)
