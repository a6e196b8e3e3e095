"""Device programs, run thread by thread and compared with numpy."""

import numpy as np
import pytest

import tilewright as tvm
from tests.tir.gpu import programs as P
from tilewright.script import tir as T
from tilewright.tir.lower.device import lower_device
from tilewright.tir.lower.device.interpret import Memory, run_kernel, run_program
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


def test_update_that_threads_race_on():
    @T.prim_func
    def f(A: T.Buffer((8, 32), "float32"), B: T.Buffer((8,), "float32")):
        for i in T.thread_binding(8, thread="blockIdx.x"):
            with T.block("start"):
                vi = T.axis.spatial(8, i)
                B[vi] = T.float32(0)
            for k in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    B[vi] = B[vi] + A[vi, vk]

    with pytest.raises(DeviceError, match="TW0578.*threadIdx.x at once"):
        lower_device(f, "cuda")


def test_local_memory_of_another_thread():
    @T.prim_func
    def f(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        L = T.alloc_buffer((32,), scope="local")
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.block("L"):
                v = T.axis.spatial(32, tx)
                L[v] = A[v]
            with T.block("B"):
                v = T.axis.spatial(32, tx)
                B[v] = L[31 - v]

    with pytest.raises(DeviceError, match="(?s)TW0579.*has not written"):
        lower_device(f, "cuda")


def test_local_memory_of_unknown_size():
    @T.prim_func
    def f(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        L = T.alloc_buffer((n,), scope="local")
        for _tx in T.thread_binding(1, thread="threadIdx.x"):
            for i in range(n):
                with T.block("L"):
                    v = T.axis.spatial(n, i)
                    L[v] = A[v]
            for i in range(n):
                with T.block("A"):
                    v = T.axis.spatial(n, i)
                    A[v] = L[n - 1 - v]

    with pytest.raises(DeviceError, match="TW0572"):
        lower_device(f, "cuda")


def test_interpreter_reports_faults():
    @T.prim_func
    def race(A: T.Buffer((32,), "float32")):
        T.func_attr({"global_symbol": "race", "tir.kernel_launch_params": ["threadIdx.x"]})
        tx = T.launch_thread("threadIdx.x", 32)
        S_data = T.allocate([32], "float32", "shared")
        S = T.Buffer((32,), data=S_data, scope="shared")
        S[tx] = A[tx]
        A[tx] = S[31 - tx]

    @T.prim_func
    def branch(A: T.Buffer((32,), "float32")):
        T.func_attr({"global_symbol": "branch", "tir.kernel_launch_params": ["threadIdx.x"]})
        tx = T.launch_thread("threadIdx.x", 32)
        if tx < 16:
            T.tvm_storage_sync("shared")
        A[tx] = T.float32(0)

    @T.prim_func
    def outside(A: T.Buffer((32,), "float32")):
        T.func_attr({"global_symbol": "outside", "tir.kernel_launch_params": ["threadIdx.x"]})
        tx = T.launch_thread("threadIdx.x", 32)
        A[tx + 1] = T.float32(0)

    for f, code in ((race, "TW0574"), (branch, "TW0575"), (outside, "TW0573")):
        memory = Memory("A", np.zeros(32, np.float32), "global")
        kernel = type(f)((f.buffer_map[f.params[0]].data,), f.body, None, {}, f.attrs)
        with pytest.raises(DeviceError, match=code):
            run_kernel(kernel, [memory, 32])


def test_long_reductions_are_shared():
    @T.prim_func
    def f(A: T.Buffer((3, 1000), "float32"), B: T.Buffer((3,), "float32")):
        for i, k in T.grid(3, 1000):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]

    program = lower_device(f, "opencl")
    assert "shared" in program.kernels[0].script()
    a, b = rand(3, 1000), np.zeros(3, np.float32)
    run_program(program, a, b)
    np.testing.assert_allclose(b, a.sum(1), rtol=1e-5)


def test_verify_gpu_code():
    (kernel,) = lower_device(P.blocked_matmul, "cuda").kernels
    verify = tvm.tir.analysis.verify_gpu_code
    assert verify(kernel, {"max_threads_per_block": 64, "max_shared_memory_per_block": 1024, "max_kernels": 1})
    assert not verify(kernel, {"max_threads_per_block": 32})
    assert not verify(kernel, {"max_shared_memory_per_block": 1000})
    assert not verify(kernel, {"max_thread_x": 4})
    assert not verify(kernel, {"max_vector_bytes": 4})
    with pytest.raises(tvm.TVMError, match=r"TW0583.*max_fun"):
        verify(kernel, {"max_fun": 1})
