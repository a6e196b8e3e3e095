"""Metal source: looked at, as nothing here compiles it."""

import pytest

import tilewright as tvm
from tilewright import nd
from tilewright.backends.metal.dialect import MetalDialect
from tilewright.script import tir as T
from tilewright.support.diagnostics import CompileError


@T.prim_func
def scale(A: T.Buffer((1024,), "float16"), B: T.Buffer((1024,), "float16")):
    for i in range(1024):
        with T.block("B"):
            vi = T.axis.spatial(1024, i)
            B[vi] = A[vi] * T.float16(2)


def test_source():
    rt = tvm.build(scale, target="metal")
    source = rt.imported_modules[0].get_source()
    for piece in ("#include <metal_stdlib>", "kernel void", "device const half* A [[buffer(0)]]", "device half* B [[buffer(1)]]",
                  "uint3 blockIdx [[threadgroup_position_in_grid]]", "(half)2.0f"):  # fmt: skip
        assert piece in source
    assert not tvm.runtime.enabled("metal")
    assert not tvm.metal(0).exist
    launcher = rt.imported_modules[0][rt.imported_modules[0].function_names[0]]
    with pytest.raises(CompileError, match="TW0672.*no run time for Metal"):
        launcher(*[0] * (len(launcher.dtypes) + len(launcher.params)))
    with pytest.raises(CompileError, match=r"TW0670.*metal\(0\)"):
        nd.empty((4,), "float16", tvm.metal(0))


def test_vectors_shared_memory_and_shuffles():
    @T.prim_func
    def f(A: T.handle("float32"), B: T.handle("float32")):
        T.func_attr({"global_symbol": "f", "calling_conv": 2})
        tx = T.launch_thread("threadIdx.x", 32)
        a = T.Buffer((128,), "float32", data=A)
        b = T.Buffer((128,), "float32", data=B)
        shared = T.allocate([128], "float32", "shared")
        s = T.Buffer((128,), "float32", data=shared, scope="shared")
        s[T.Ramp(tx * 4, 1, 4)] = a[T.Ramp(tx * 4, 1, 4)] + T.Broadcast(T.float32(1), 4)
        T.evaluate(T.tvm_storage_sync("shared"))
        b[tx] = T.tvm_warp_shuffle_down(T.uint32(0xFFFFFFFF), s[tx], 1, 32, 32)

    source = MetalDialect().emit([f])
    for piece in ("threadgroup float shared[128];", "float4 a_v = *(device float4*)(A + tx * 4);", "*(threadgroup float4*)(shared + tx * 4)",
                  "threadgroup_barrier(mem_flags::mem_threadgroup);", "simd_shuffle_down(shared[tx], 1)"):  # fmt: skip
        assert piece in source


def test_what_metal_lacks_is_named():
    @T.prim_func
    def f(A: T.handle("float64")):
        T.func_attr({"global_symbol": "f", "calling_conv": 2})
        tx = T.launch_thread("threadIdx.x", 32)
        a = T.Buffer((128,), "float64", data=A)
        a[tx] = T.float64(1)

    with pytest.raises(CompileError, match="TW0662.*Metal has no type for dtype float64"):
        MetalDialect().emit([f])
