"""WGSL on a device of this machine (Mesa's lavapipe runs it on the CPU), small; sources for what cannot run."""

import importlib.util

import numpy as np
import pytest

import tilewright as tvm
from tilewright import nd
from tilewright.backends.webgpu.dialect import WgslDialect
from tilewright.backends.webgpu.runtime import API
from tilewright.script import tir as T
from tilewright.support.diagnostics import CompileError

needs_device = pytest.mark.skipif(
    importlib.util.find_spec("wgpu") is None or API.reason() is not None, reason="needs wgpu and a Vulkan driver"
)


@T.prim_func
def matmul(A: T.Buffer((32, 24), "float32"), B: T.Buffer((24, 16), "float32"), C: T.Buffer((32, 16), "float32")):
    for i, j, k in T.grid(32, 16, 24):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] += A[vi, vk] * B[vk, vj]


def staged():
    """Tiles of 8 x 8, with the operands in the memory of the work group."""
    sch = tvm.tir.Schedule(matmul)
    block = sch.get_block("C")
    (by, ty), (bx, tx), (ko, ki) = (sch.split(x, [None, 8]) for x in sch.get_loops(block))
    sch.reorder(by, bx, ty, tx, ko, ki)
    for loop, axis in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        sch.bind(loop, axis)
    for n in range(2):
        stage = sch.cache_read(block, n, "shared")
        sch.compute_at(stage, ko)
        outer, inner = sch.split(sch.fuse(*sch.get_loops(stage)[-2:]), [8, 8])
        sch.bind(outer, "threadIdx.y")
        sch.bind(inner, "threadIdx.x")
    sch.decompose_reduction(block, ko)
    return sch.mod


@needs_device
@pytest.mark.parametrize("mod", [lambda: matmul, staged], ids=["unscheduled", "staged"])
def test_programs_run(mod):
    rt = tvm.build(mod(), target="webgpu")
    rng = np.random.default_rng(0)
    a, b = rng.random((32, 24), np.float32), rng.random((24, 16), np.float32)
    dev = tvm.webgpu(0)
    given = [nd.array(x, dev) for x in (a, b, np.zeros((32, 16), np.float32))]
    rt[rt.function_names[0]](*given)
    dev.sync()
    np.testing.assert_allclose(given[2].numpy(), a @ b, rtol=1e-5)
    assert "@compute @workgroup_size(" in rt.imported_modules[0].get_source("wgsl")


@needs_device
def test_scalars_special_values_and_integers():
    @T.prim_func
    def f(a: T.handle, b: T.handle, c: T.handle, k: T.int32, s: T.float32):
        n = T.int32()
        A = T.match_buffer(a, (n,), "int32")
        B = T.match_buffer(b, (4, n), "int32")
        C = T.match_buffer(c, (3, n), "float32")
        for i in range(n):
            with T.block("x"):
                vi = T.axis.spatial(n, i)
                B[0, vi] = T.floordiv(A[vi], k)
                B[1, vi] = T.floormod(A[vi], k)
                B[2, vi] = T.shift_left(A[vi], 3) + T.bitwise_and(A[vi], 5)
                B[3, vi] = A[vi] * 1103515245 + 12345
                C[0, vi] = T.if_then_else(A[vi] > 0, T.exp(s), T.float32(float("-inf")))
                C[1, vi] = T.max(T.Cast("float32", A[vi]), s)
                C[2, vi] = T.round(T.Cast("float32", A[vi]) / T.float32(2))

    a = np.arange(-10, 10, dtype=np.int32)
    dev = tvm.webgpu(0)
    x, y, z = nd.array(a, dev), nd.empty((4, 20), "int32", dev), nd.empty((3, 20), "float32", dev)
    tvm.build(f, target="webgpu")["f"](x, y, z, 3, 1.5)
    with np.errstate(over="ignore"):
        want = [a // 3, a % 3, (a << 3) + (a & 5), a * np.int32(1103515245) + np.int32(12345)]
    np.testing.assert_array_equal(y.numpy(), want)
    np.testing.assert_allclose(z.numpy()[0], np.where(a > 0, np.exp(1.5), -np.inf), rtol=1e-6)
    np.testing.assert_array_equal(z.numpy()[1], np.maximum(a, 1.5))
    np.testing.assert_array_equal(z.numpy()[2], np.trunc(a / 2 + np.copysign(0.5, a)) + 0)


@needs_device
def test_device_arrays():
    dev = tvm.webgpu(0)
    assert dev.exist
    assert dev.max_threads_per_block >= 64
    assert tvm.runtime.enabled("webgpu")
    for x in (np.arange(7, dtype=np.int8), np.arange(6, dtype=np.float32).reshape(2, 3)):
        a = nd.array(x, dev)
        b = nd.empty(x.shape, str(x.dtype), dev)
        a.copyto(b)
        np.testing.assert_array_equal(b.numpy(), x)
    with pytest.raises(ValueError, match="no memory of a WebGPU device"):
        API.memory(1 << 40, "this")
    with pytest.raises(CompileError, match="TW0671"):
        API.pipeline("fn f( {", "f")


def test_what_wgsl_lacks_is_named():
    def kernel(dtype, op=None):
        @T.prim_func
        def f(A: T.handle(dtype)):
            T.func_attr({"global_symbol": "f", "calling_conv": 2})
            tx = T.launch_thread("threadIdx.x", 8)
            a = T.Buffer((8,), dtype, data=A)
            a[tx] = T.erf(a[tx])

        return f

    with pytest.raises(CompileError, match="TW0662.*WGSL has no type for dtype float64"):
        WgslDialect().emit([kernel("float64")])
    with pytest.raises(CompileError, match="TW0663.*'webgpu' has no intrinsic tir.erf"):
        WgslDialect().emit([kernel("float32")])
