"""Device programs, run thread by thread and compared with numpy."""

import numpy as np
import pytest

from tests.tir.gpu import programs as P
from tilewright.script import tir as T
from tilewright.tir.lower.device import lower_device
from tilewright.tir.lower.device.interpret import run_program
from tilewright.tir.transform.gpu.common import DeviceError

TARGETS = ["opencl", "cuda", "metal"]
RNG = np.random.default_rng(0)


def rand(*shape):
    return RNG.random(shape, dtype=np.float32)


@pytest.mark.parametrize("target", TARGETS)
def test_blocked_matmul(target):
    program = lower_device(P.blocked_matmul, target)
    (kernel,) = program.kernels
    assert kernel.attrs["tir.kernel_launch_params"] == ["blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"]
    assert kernel.attrs["calling_conv"] == 2
    text = kernel.script()
    assert text.count("tvm_storage_sync") == 2  # before the tiles are overwritten, and before they are read
    assert 'allocate([128], "float32", "shared")' in text
    assert 'allocate([4], "float32", "local")' in text
    assert "T.Ramp" in text
    a, b, c = rand(32, 32), rand(32, 32), np.zeros((32, 32), np.float32)
    run_program(program, a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_reductions_over_threads(target):
    a, b = rand(4, 100), np.zeros(4, np.float32)
    program = lower_device(P.row_sum, target)
    assert ("tvm_warp_shuffle_down" in program.kernels[0].script()) == (target != "opencl")
    run_program(program, a, b)
    np.testing.assert_allclose(b, a.sum(1), rtol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_softmax(target):
    a, b = rand(4, 96), np.zeros((4, 96), np.float32)
    run_program(lower_device(P.softmax_rows, target), a, b)
    e = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(b, e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_argmax(target):
    v, i, m = rand(4, 64), np.zeros(4, np.int32), np.zeros(4, np.float32)
    run_program(lower_device(P.argmax_rows, target), v, i, m)
    np.testing.assert_array_equal(i, v.argmax(1))
    np.testing.assert_array_equal(m, v.max(1))


def test_window_sum():
    program = lower_device(P.window_sum, "opencl")
    assert 'allocate([66], "float32", "shared")' in program.kernels[0].script()
    a, b = rand(258), np.zeros(256, np.float32)
    run_program(program, a, b)
    np.testing.assert_allclose(b, a[:-2] + a[1:-1] + a[2:], rtol=1e-6)


def test_virtual_threads():
    program = lower_device(P.two_virtual, "opencl")
    text = program.kernels[0].script()
    assert "vthread" not in text
    assert 'allocate([8], "float32", "local")' in text
    a, b = rand(64), np.zeros(64, np.float32)
    run_program(program, a, b)
    np.testing.assert_allclose(b, a * 2 + 1, rtol=1e-6)


def test_symbolic_sizes():
    program = lower_device(P.scaled, "opencl")
    for n in (1, 31, 32, 100):
        a, b = rand(n), np.zeros(n, np.float32)
        run_program(program, a, b, n)
        np.testing.assert_array_equal(b, a * np.float32(3))


def test_two_kernels_and_memory_between():
    program = lower_device(P.two_kernels, "opencl")
    assert [k.attrs["global_symbol"] for k in program.kernels] == ["two_kernels_kernel", "two_kernels_kernel_1"]
    assert "device_memory" in program.host.script()
    a, b = rand(64), np.zeros(64, np.float32)
    run_program(program, a, b)
    np.testing.assert_array_equal(b, (a + np.float32(1))[::-1])


@pytest.mark.parametrize("target", TARGETS)
def test_default_schedule(target):
    program = lower_device(P.unbound, target)
    assert len(program.kernels) == 2
    a, w, b = rand(6, 20) - np.float32(0.5), rand(20, 5), np.zeros((6, 5), np.float32)
    run_program(program, a, w, b)
    np.testing.assert_allclose(b, np.maximum(a @ w, 0), rtol=1e-4, atol=1e-6)


def test_too_many_threads():
    @T.prim_func
    def f(A: T.Buffer((4096,), "float32")):
        for tx in T.thread_binding(4096, thread="threadIdx.x"):
            with T.block("A"):
                v = T.axis.spatial(4096, tx)
                A[v] = T.float32(0)

    with pytest.raises(DeviceError, match="TW0570.*4096 threads"):
        lower_device(f, "cuda")


def test_too_much_shared_memory():
    @T.prim_func
    def f(A: T.Buffer((32768,), "float32"), B: T.Buffer((32768,), "float32")):
        S = T.alloc_buffer((32768,), scope="shared")
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            for i in range(1024):
                with T.block("S"):
                    v = T.axis.spatial(32768, i * 32 + tx)
                    S[v] = A[v]
            for i in range(1024):
                with T.block("B"):
                    v = T.axis.spatial(32768, i * 32 + tx)
                    B[v] = S[32767 - v]

    with pytest.raises(DeviceError, match="TW0571.*131072 bytes"):
        lower_device(f, "cuda")


def test_different_extents():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32")):
        for _bx in T.thread_binding(1, thread="blockIdx.x"):
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("A"):
                    v = T.axis.spatial(64, tx)
                    A[v] = T.float32(0)
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("A1"):
                    v = T.axis.spatial(64, tx)
                    A[v] = T.float32(1)

    with pytest.raises(DeviceError, match="TW0560"):
        lower_device(f, "cuda")
    with pytest.raises(ValueError, match="TW0560"):
        lower_device(f, "cuda")
