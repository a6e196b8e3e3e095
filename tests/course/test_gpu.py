"""The course's first chapter on GPUs: threads, shared memory, local and shared blocking. Run on OpenCL."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright.script import tir as T

pytest.importorskip("pyopencl", reason="the package pyopencl is not installed")
if not tvm.opencl(0).exist:
    pytest.skip("no OpenCL device (install pocl-opencl-icd)", allow_module_level=True)

DEV = tvm.opencl(0)


def on_device(mod, name, *arrays, out):
    rt = tvm.build(mod, target="opencl")
    result = tvm.nd.empty(out, "float32", DEV)
    rt[name](*[tvm.nd.array(a, DEV) for a in arrays], result)
    return rt, result.numpy()


@tvm.script.ir_module
class VectorAdd:
    @T.prim_func
    def main(A: T.Buffer((1024,), "float32"), B: T.Buffer((1024,), "float32"), C: T.Buffer((1024,), "float32")):
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        for i in T.grid(1024):
            with T.block("C"):
                vi = T.axis.remap("S", [i])
                C[vi] = A[vi] + B[vi]


def test_vector_add():
    sch = tvm.tir.Schedule(VectorAdd)
    (i,) = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, [None, 128])
    sch.bind(i0, "blockIdx.x")
    sch.bind(i1, "threadIdx.x")
    a = np.random.default_rng(0).random(1024).astype("float32")
    rt, got = on_device(sch.mod, "main", a, a + 1, out=(1024,))
    np.testing.assert_allclose(got, 2 * a + 1, rtol=1e-6)
    source = rt.imported_modules[0].get_source()
    assert "__kernel" in source
    assert "get_local_id(0)" in source


@tvm.script.ir_module
class WindowSum:
    @T.prim_func
    def main(A: T.Buffer((1026,), "float32"), B: T.Buffer((1024,), "float32")):
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        for i in T.grid(1024):
            with T.block("C"):
                vi = T.axis.remap("S", [i])
                B[vi] = A[vi] + A[vi + 1] + A[vi + 2]


def test_window_sum_through_shared_memory():
    sch = tvm.tir.Schedule(WindowSum)
    nthread = 128
    block = sch.get_block("C")
    (i,) = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, nthread])
    sch.bind(i0, "blockIdx.x")
    sch.bind(i1, "threadIdx.x")
    a_shared = sch.cache_read(block, read_buffer_index=0, storage_scope="shared")
    sch.compute_at(a_shared, i1)
    ax = sch.get_loops(a_shared)[-1]
    ax0, ax1 = sch.split(ax, [None, nthread])
    sch.bind(ax1, "threadIdx.x")
    a = np.random.default_rng(1).random(1026).astype("float32")
    rt, got = on_device(sch.mod, "main", a, out=(1024,))
    np.testing.assert_allclose(got, a[:-2] + a[1:-1] + a[2:], rtol=1e-5)
    source = rt.imported_modules[0].get_source()
    assert "__local" in source
    assert "barrier(CLK_LOCAL_MEM_FENCE)" in source


N = 256


@tvm.script.ir_module
class Matmul:
    @T.prim_func
    def main(
        A: T.Buffer((256, 256), "float32"), B: T.Buffer((256, 256), "float32"), C: T.Buffer((256, 256), "float32")
    ):
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        for i, j, k in T.grid(256, 256, 256):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = 0.0
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@pytest.fixture(scope="module")
def operands():
    rng = np.random.default_rng(2)
    a, b = rng.random((N, N)).astype("float32"), rng.random((N, N)).astype("float32")
    return a, b, a @ b


def blocking(sch, tile_local_y, tile_local_x, tile_block_y, tile_block_x, tile_k):
    block_c = sch.get_block("C")
    c_local = sch.cache_write(block_c, 0, "local")
    i, j, k = sch.get_loops(block=block_c)
    i0, i1, i2 = sch.split(loop=i, factors=[None, tile_block_y, tile_local_y])
    j0, j1, j2 = sch.split(loop=j, factors=[None, tile_block_x, tile_local_x])
    k0, k1 = sch.split(loop=k, factors=[None, tile_k])
    sch.unroll(k1)
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    sch.reverse_compute_at(c_local, j1)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    sch.bind(i1, "threadIdx.y")
    sch.bind(j1, "threadIdx.x")
    sch.decompose_reduction(block_c, k0)
    return sch


def test_local_blocking(operands):
    a, b, want = operands
    sch = blocking(tvm.tir.Schedule(Matmul), 8, 8, 8, 8, 4)
    _, got = on_device(sch.mod, "main", a, b, out=(N, N))
    np.testing.assert_allclose(got, want, rtol=1e-4)


def cache_read_and_coop_fetch(sch, block, nthread, read_idx, read_loc):
    read_cache = sch.cache_read(block=block, read_buffer_index=read_idx, storage_scope="shared")
    sch.compute_at(block=read_cache, loop=read_loc)
    inner0, inner1 = sch.get_loops(block=read_cache)[-2:]
    inner = sch.fuse(inner0, inner1)
    _, tx, vec = sch.split(loop=inner, factors=[None, nthread, 4])
    sch.vectorize(vec)
    sch.bind(tx, "threadIdx.x")


def blocking_with_shared(sch, tile_local_y, tile_local_x, tile_block_y, tile_block_x, tile_k):
    block_c = sch.get_block("C")
    c_local = sch.cache_write(block_c, 0, "local")
    i, j, k = sch.get_loops(block=block_c)
    i0, i1, i2 = sch.split(loop=i, factors=[None, tile_block_y, tile_local_y])
    j0, j1, j2 = sch.split(loop=j, factors=[None, tile_block_x, tile_local_x])
    k0, k1 = sch.split(loop=k, factors=[None, tile_k])
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    sch.reverse_compute_at(c_local, j1)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    tx = sch.fuse(i1, j1)
    sch.bind(tx, "threadIdx.x")
    nthread = tile_block_y * tile_block_x
    cache_read_and_coop_fetch(sch, block_c, nthread, 0, k0)
    cache_read_and_coop_fetch(sch, block_c, nthread, 1, k0)
    sch.decompose_reduction(block_c, k0)
    return sch


def test_shared_blocking_with_cooperative_fetching(operands):
    a, b, want = operands
    sch = blocking_with_shared(tvm.tir.Schedule(Matmul), 8, 8, 8, 8, 8)
    rt, got = on_device(sch.mod, "main", a, b, out=(N, N))
    np.testing.assert_allclose(got, want, rtol=1e-4)
    source = rt.imported_modules[0].get_source()
    assert source.count("__local") >= 2
    assert "vload4" in source or "float4" in source


def test_a_program_without_threads_gets_a_schedule(operands):
    a, b, want = operands
    _, got = on_device(Matmul, "main", a, b, out=(N, N))
    np.testing.assert_allclose(got, want, rtol=1e-4)


def test_the_same_program_as_cuda_source():
    rt = tvm.build(blocking_with_shared(tvm.tir.Schedule(Matmul), 8, 8, 8, 8, 8).mod, target="cuda -arch=sm_80")
    source = rt.imported_modules[0].get_source()
    for word in ("__global__", "__shared__", "__syncthreads()", "threadIdx.x"):
        assert word in source
