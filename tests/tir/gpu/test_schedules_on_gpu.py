"""Schedules for GPUs, from the naive program to the last step, judged by the thread interpreter and by OpenCL where it is."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright.script import ir as I
from tilewright.script import tir as T
from tilewright.tir.lower.device import lower_device
from tilewright.tir.lower.device.interpret import run_program

dev = tvm.opencl(0)
RNG = np.random.default_rng(0)


def rand(*shape):
    return RNG.random(shape, dtype=np.float32)


def check(mod, name, args, want, rtol=1e-4):
    """The last array must become `want`, thread by thread (barriers, races, bounds) and on OpenCL."""
    f = mod[name].with_attr("global_symbol", name)
    for target in ("cuda", "opencl"):
        arrays = [np.copy(a) for a in args]
        run_program(lower_device(f, target), *arrays)
        np.testing.assert_allclose(arrays[-1], want, rtol=rtol)
    if dev.exist:
        given = [tvm.nd.array(a, dev) for a in args]
        tvm.build(mod, target="opencl")[name](*given)
        np.testing.assert_allclose(given[-1].numpy(), want, rtol=rtol)


@I.ir_module
class Windows:
    @T.prim_func
    def main(A: T.Buffer((130,), "float32"), B: T.Buffer((128,), "float32")):
        for i in T.grid(128):
            with T.block("C"):
                vi = T.axis.remap("S", [i])
                B[vi] = A[vi] + A[vi + 1] + A[vi + 2]


def test_window_sum_in_shared_memory():
    sch = tvm.tir.Schedule(Windows)
    block = sch.get_block("C")
    (i,) = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 32])
    sch.bind(i0, "blockIdx.x")
    sch.bind(i1, "threadIdx.x")
    cached = sch.cache_read(block, read_buffer_index=0, storage_scope="shared")
    sch.compute_at(cached, i0)
    ax = sch.get_loops(cached)[-1]
    _, ax1 = sch.split(ax, [None, 32])
    sch.bind(ax1, "threadIdx.x")
    a = rand(130)
    check(sch.mod, "main", [a, np.zeros(128, np.float32)], a[:-2] + a[1:-1] + a[2:])


@I.ir_module
class Matmul:
    @T.prim_func
    def main(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32")):
        for i, j, k in T.grid(64, 64, 64):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def blocked(sch, tile_y, tile_x, tile_k, virtual=1):
    block = sch.get_block("C")
    local = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block)
    i0, iv, i1, i2 = sch.split(i, [None, virtual, 4, tile_y // (4 * virtual)])
    j0, jv, j1, j2 = sch.split(j, [None, virtual, 4, tile_x // (4 * virtual)])
    k0, k1 = sch.split(k, [None, tile_k])
    sch.reorder(i0, j0, iv, jv, i1, j1, k0, k1, i2, j2)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    if virtual > 1:
        sch.bind(iv, "vthread.y")
        sch.bind(jv, "vthread.x")
    sch.bind(i1, "threadIdx.y")
    sch.bind(j1, "threadIdx.x")
    sch.reverse_compute_at(local, j1)
    return block, j1, k0


@pytest.mark.parametrize("virtual", [1, 2])
def test_matmul_in_registers(virtual):
    sch = tvm.tir.Schedule(Matmul)
    block, _, k0 = blocked(sch, 16, 16, 4, virtual)
    sch.unroll(sch.get_loops(block)[-3])
    sch.decompose_reduction(block, k0)
    a, b = rand(64, 64), rand(64, 64)
    check(sch.mod, "main", [a, b, np.zeros((64, 64), np.float32)], a @ b)


@pytest.mark.parametrize("virtual", [1, 2])
def test_matmul_with_cooperative_fetching(virtual):
    sch = tvm.tir.Schedule(Matmul)
    block, _, k0 = blocked(sch, 32, 32, 8, virtual)
    for index in (0, 1):
        cached = sch.cache_read(block, index, "shared")
        sch.compute_at(cached, k0, preserve_unit_loops=True)
        fused = sch.fuse(*sch.get_loops(cached)[-2:])
        _, ty, tx, v = sch.split(fused, [None, 4, 4, 4])
        sch.vectorize(v)
        sch.bind(ty, "threadIdx.y")
        sch.bind(tx, "threadIdx.x")
    sch.decompose_reduction(block, k0)
    (kernel,) = lower_device(sch.mod["main"], "opencl").kernels
    text = kernel.script()
    assert text.count('allocate([256], "float32", "shared")') == 2
    assert text.count("tvm_storage_sync") == 2
    assert "T.Ramp" in text
    a, b = rand(64, 64), rand(64, 64)
    check(sch.mod, "main", [a, b, np.zeros((64, 64), np.float32)], a @ b)


@I.ir_module
class Rows:
    @T.prim_func
    def main(A: T.Buffer((8, 256), "float32"), B: T.Buffer((8,), "float32")):
        for i, k in T.grid(8, 256):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]


@pytest.mark.parametrize("threads", [16, 32, 48, 64])
def test_reduction_across_threads(threads):
    sch = tvm.tir.Schedule(Rows)
    block = sch.get_block("B")
    i, k = sch.get_loops(block)
    _, ki = sch.split(k, [None, threads])
    sch.bind(i, "blockIdx.x")
    sch.bind(ki, "threadIdx.x")
    a = rand(8, 256)
    check(sch.mod, "main", [a, np.zeros(8, np.float32)], a.sum(1))


def test_reduction_by_rfactor():
    sch = tvm.tir.Schedule(Rows)
    block = sch.get_block("B")
    _, k = sch.get_loops(block)
    _, ki = sch.split(k, [None, 32])
    rf = sch.rfactor(ki, 0)
    i, kk = sch.get_loops(block)
    sch.bind(i, "blockIdx.x")
    sch.bind(kk, "threadIdx.x")
    sch.compute_at(rf, kk)
    sch.set_scope(rf, 0, "local")
    a = rand(8, 256)
    check(sch.mod, "main", [a, np.zeros(8, np.float32)], a.sum(1))


@I.ir_module
class Softmax:
    @T.prim_func
    def main(A: T.Buffer((4, 128), "float32"), B: T.Buffer((4, 128), "float32")):
        M = T.alloc_buffer((4,))
        S = T.alloc_buffer((4,))
        for i, k in T.grid(4, 128):
            with T.block("M"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    M[vi] = T.min_value("float32")
                M[vi] = T.max(M[vi], A[vi, vk])
        for i, k in T.grid(4, 128):
            with T.block("S"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    S[vi] = T.float32(0)
                S[vi] = S[vi] + T.exp(A[vi, vk] - M[vi])
        for i, j in T.grid(4, 128):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.exp(A[vi, vj] - M[vi]) / S[vi]


def softmax(a):
    e = np.exp(a - a.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_softmax_in_one_kernel():
    sch = tvm.tir.Schedule(Softmax)
    i, j = sch.get_loops(sch.get_block("B"))
    sch.bind(i, "blockIdx.x")
    _, ji = sch.split(j, [None, 32])
    sch.bind(ji, "threadIdx.x")
    for name in ("S", "M"):
        block = sch.get_block(name)
        sch.compute_at(block, i)
        sch.set_scope(block, 0, "shared")
        _, ki = sch.split(sch.get_loops(block)[-1], [None, 32])
        sch.bind(ki, "threadIdx.x")
    assert len(lower_device(sch.mod["main"], "cuda").kernels) == 1
    a = rand(4, 128)
    check(sch.mod, "main", [a, np.zeros_like(a)], softmax(a))


def test_unscheduled_softmax():
    a = rand(4, 128)
    check(Softmax, "main", [a, np.zeros_like(a)], softmax(a))


def test_software_pipeline():
    sch = tvm.tir.Schedule(Matmul)
    block, _, k0 = blocked(sch, 32, 32, 8)
    for index in (0, 1):
        cached = sch.cache_read(block, index, "shared")
        sch.compute_at(cached, k0, preserve_unit_loops=True)
        fused = sch.fuse(*sch.get_loops(cached)[-2:])
        _, ty, tx, v = sch.split(fused, [None, 4, 4, 4])
        sch.vectorize(v)
        sch.bind(ty, "threadIdx.y")
        sch.bind(tx, "threadIdx.x")
    sch.decompose_reduction(block, k0)
    sch.annotate(k0, "software_pipeline_stage", [0, 0, 1])
    sch.annotate(k0, "software_pipeline_order", [0, 1, 2])
    (kernel,) = lower_device(sch.mod["main"], "opencl").kernels
    assert kernel.script().count('allocate([512], "float32", "shared")') == 2
    a, b = rand(64, 64), rand(64, 64)
    check(sch.mod, "main", [a, b, np.zeros((64, 64), np.float32)], a @ b)


def dynamic_pipeline():
    sch = tvm.tir.Schedule(Matmul)
    block, _, k0 = blocked(sch, 32, 32, 8)
    for index in (0, 1):
        cached = sch.cache_read(block, index, "shared.dyn")
        sch.compute_at(cached, k0, preserve_unit_loops=True)
        fused = sch.fuse(*sch.get_loops(cached)[-2:])
        _, ty, tx, v = sch.split(fused, [None, 4, 4, 4])
        sch.vectorize(v)
        sch.bind(ty, "threadIdx.y")
        sch.bind(tx, "threadIdx.x")
    sch.decompose_reduction(block, k0)
    sch.annotate(k0, "software_pipeline_stage", [0, 0, 2])
    sch.annotate(k0, "software_pipeline_order", [0, 1, 2])
    sch.annotate(k0, "software_pipeline_async_stages", [0])
    return sch.mod["main"]


def test_dynamic_shared_memory():
    f = dynamic_pipeline()
    program = lower_device(f, "cuda")
    (kernel,) = program.kernels
    assert kernel.attrs["tir.kernel_launch_params"][-1] == "tir.use_dyn_shared_memory"
    assert 'buf_dyn_shmem = T.allocate([6144], "uint8", "shared.dyn")' in kernel.script()
    a, b, c = rand(64, 64), rand(64, 64), np.zeros((64, 64), np.float32)
    run_program(program, a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)


def test_asynchronous_pipeline():
    with tvm.transform.PassContext(config={"tir.use_async_copy": True}):
        (kernel,) = lower_device(dynamic_pipeline(), "cuda").kernels
    text = kernel.script()
    for name in ("ptx_cp_async", "ptx_commit_group", "ptx_wait_group"):
        assert name in text
    assert "async_" not in text.replace("ptx_cp_async", "")


def test_tensor_cores():
    from tests.tir.gpu.tensor_cores import wmma_matmul

    mod = wmma_matmul()
    (kernel,) = lower_device(next(iter(mod.functions.values())), "cuda").kernels
    text = kernel.script()
    for name in ("tvm_fill_fragment", "tvm_load_matrix_sync", "tvm_mma_sync", "tvm_store_matrix_sync"):
        assert name in text
    assert text.count("tvm_storage_sync") == 2
    lines = text.splitlines()
    shape = next(n for n, x in enumerate(lines) if "A_shared" in x and "fragment_layout" in x)
    place = next(n for n, x in enumerate(lines) if "T.allocate([256]" in x and "wmma.matrix_a" in x)
    loop = next(n for n, x in enumerate(lines) if "for k_0" in x)
    assert shape < loop
    assert place < loop
