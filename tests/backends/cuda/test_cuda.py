"""CUDA C: every kernel here is compiled to PTX and cubin for three generations of GPUs; none is run without one."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright import nd
from tilewright.arith import expr as E
from tilewright.backends.cuda import build as _build  # noqa: F401  (fills the table of intrinsics)
from tilewright.backends.cuda import compile as cuda_compile
from tilewright.backends.cuda.dialect import CudaDialect
from tilewright.backends.cuda.runtime import API, CudaApi
from tilewright.ir.op import Op, PointerType, PrimType
from tilewright.script import tir as T
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t

needs_compiler = pytest.mark.skipif(cuda_compile.compiler() is None, reason="needs NVRTC or nvcc")
without_gpu = pytest.mark.skipif(API.reason() is None, reason="there is a GPU")
with_gpu = pytest.mark.skipif(API.reason() is not None, reason=f"{API.reason()}")
ARCHS = ("sm_75", "sm_80", "sm_90")


def compiled(*kernels, archs=ARCHS):
    """The source, once it compiled for every architecture."""
    source = CudaDialect().emit(list(kernels))
    for arch in archs:
        assert cuda_compile.compile_source(source, arch, "cubin").startswith(b"\x7fELF")
    assert b".version" in cuda_compile.compile_source(source, archs[0], "ptx")
    return source


VECTORS = [("float32", 2), ("float32", 4), ("float16", 2), ("float16", 4), ("float16", 8), ("bfloat16", 2), ("int8", 4), ("int8", 16),
           ("uint8", 8), ("float64", 2), ("int64", 2), ("float8_e4m3fn", 4), ("float8_e5m2", 2), ("float32", 3)]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("dtype, lanes", VECTORS)
def test_vectors(dtype, lanes):
    @T.prim_func
    def f(A: T.handle(dtype), B: T.handle(dtype)):
        T.func_attr({"global_symbol": "f", "calling_conv": 2, "tir.noalias": True})
        tx = T.launch_thread("threadIdx.x", 8)
        a = T.Buffer((128,), dtype, data=A)
        b = T.Buffer((128,), dtype, data=B)
        b[T.Ramp(tx * lanes, 1, lanes)] = a[T.Ramp(tx * lanes, 1, lanes)] + T.Broadcast(T.Cast(dtype, 3), lanes)
        b[tx] = T.max(a[tx], b[tx])

    source = compiled(f)
    assert "__launch_bounds__(8)" in source
    if (dtype, lanes) == ("float32", 4):
        assert "float4 a_v = *(float4*)(A + tx * 4);" in source
    if lanes == 3 or dtype.startswith("float8"):
        assert "for (int lane = 0;" in source


@needs_compiler
def test_unaligned_vectors_are_taken_apart():
    @T.prim_func
    def f(A: T.handle("float32"), B: T.handle("float32")):
        T.func_attr({"global_symbol": "f", "calling_conv": 2})
        tx = T.launch_thread("threadIdx.x", 8)
        a = T.Buffer((128,), "float32", data=A)
        b = T.Buffer((128,), "float32", data=B)
        b[T.Ramp(tx * 4, 1, 4)] = a[T.Ramp(tx * 4 + 1, 1, 4)]

    source = compiled(f)
    assert "*(float4*)(B + tx * 4) = make_float4(A[" in source
    assert "*(float4*)(A" not in source


@needs_compiler
def test_intrinsics_of_threads():
    @T.prim_func
    def g(A: T.handle("float16"), B: T.handle("float32"), C: T.handle("int32")):
        T.func_attr({"global_symbol": "g", "calling_conv": 2})
        tx = T.launch_thread("threadIdx.x", 32)
        a = T.Buffer((64,), "float16", data=A)
        b = T.Buffer((64,), "float32", data=B)
        c = T.Buffer((64,), "int32", data=C)
        b[tx] = T.Cast("float32", T.exp(a[tx]) + T.sqrt(a[tx]) * T.float16(0.5))
        b[tx] = b[tx] + T.tvm_warp_shuffle(T.uint32(0xFFFFFFFF), b[tx], 3, 32, 32)
        b[tx + 1] = T.tvm_warp_shuffle_down(T.tvm_warp_activemask(), b[tx], 16, 32, 32)
        T.evaluate(T.call_intrin("float32", "tir.atomic_add", T.address_of(b[0]), T.float32(1)))
        c[tx] = T.call_pure_extern("int32", "__dp4a", c[tx], c[tx + 1], c[tx + 2])
        c[tx + 1] = T.floordiv(c[tx], 3) + T.popcount(c[tx]) + T.clz(c[tx])
        a[tx] = T.Cast("float16", c[tx]) + T.if_then_else(tx < 3, T.float16(float("inf")), a[tx])
        T.evaluate(T.tvm_storage_sync("warp"))
        T.evaluate(T.tvm_storage_sync("shared"))

    source = compiled(g)
    for piece in (
        "__shfl_sync(",
        "__shfl_down_sync(__activemask(), ",
        "atomicAdd(B, 1.0f)",
        "__dp4a(",
        "__syncwarp();",
        "__syncthreads();",
    ):
        assert piece in source


@needs_compiler
def test_wmma():
    @T.prim_func
    def f(A: T.handle("float16"), B: T.handle("float16"), C: T.handle("float32")):
        T.func_attr({"global_symbol": "f", "calling_conv": 2})
        T.evaluate(0)

    def fragment(name, dtype, scope):
        return E.Var(name, "handle", PointerType(PrimType(dtype), "wmma." + scope))

    def call(name, *args):
        given = [
            E.IntImm("int32", a) if isinstance(a, int) else E.StringImm(a) if isinstance(a, str) else a for a in args
        ]
        return t.Evaluate(E.Call("handle", Op.get("tir." + name), tuple(given)))

    fa, fb, fc = (
        fragment("fa", "float16", "matrix_a"),
        fragment("fb", "float16", "matrix_b"),
        fragment("fc", "float32", "accumulator"),
    )
    pa, pb, pc = f.params
    body = t.seq(
        call("tvm_fill_fragment", fc, 16, 16, 16, 0, E.FloatImm("float32", 0.0)),
        call("tvm_load_matrix_sync", fa, 16, 16, 16, 0, pa, 16, "row_major"),
        call("tvm_load_matrix_sync", fb, 16, 16, 16, 0, pb, 16, "col_major"),
        call("tvm_mma_sync", fc, 0, fa, 0, fb, 0, fc, 0),
        call("tvm_store_matrix_sync", fc, 16, 16, 16, 0, pc, 16, "row_major"),
    )
    shaped = body
    for v in (fa, fb, fc):
        shaped = t.Allocate(
            v, v.type_annotation.element_type.dtype, (E.IntImm("int32", 256),), E.IntImm("bool", 1), shaped
        )
    bare = t.PrimFunc(f.params, shaped, None, {}, f.attrs)
    with pytest.raises(CompileError, match="TW0676.*'fc'.*has no shape"):
        CudaDialect().emit([bare])
    for v, layout in ((fa, "row_major"), (fb, "col_major"), (fc, "")):
        shaped = t.AttrStmt(v, "fragment_shape", E.StringImm("16, 16, 16"), shaped)
        if layout:
            shaped = t.AttrStmt(v, "fragment_layout", E.StringImm(layout), shaped)
    source = compiled(t.PrimFunc(f.params, shaped, None, {}, f.attrs))
    for piece in ("#include <mma.h>", "nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::col_major> fb[1];",
                  "nvcuda::wmma::mma_sync(fc[0], fa[0], fb[0], fc[0]);", "nvcuda::wmma::mem_row_major"):  # fmt: skip
        assert piece in source


MMA = [
    ("m16n8k16", "fp16", "fp16", "fp32", "float16", "float32", (8, 4, 4)),
    ("m16n8k8", "fp16", "fp16", "fp16", "float16", "float16", (4, 2, 4)),
    ("m16n8k32", "int8", "int8", "int32", "int8", "int32", (16, 8, 4)),
    ("m16n8k16", "bf16", "bf16", "fp32", "bfloat16", "float32", (8, 4, 4)),
    ("m8n8k4", "fp64", "fp64", "fp64", "float64", "float64", (1, 1, 2)),
]


@needs_compiler
@pytest.mark.parametrize("shape, a, b, c, kind, out, sizes", MMA)
def test_ptx_mma(shape, a, b, c, kind, out, sizes):
    na, nb, nc = sizes

    @T.prim_func
    def f(A: T.handle(kind), C: T.handle(out)):
        T.func_attr({"global_symbol": "f", "calling_conv": 2})
        tx = T.launch_thread("threadIdx.x", 32)
        x = T.Buffer((1024,), kind, data=A)
        z = T.Buffer((1024,), out, data=C)
        ra = T.allocate([na], kind, "local")
        rb = T.allocate([nb], kind, "local")
        rc = T.allocate([nc], out, "local")
        la = T.Buffer((na,), kind, data=ra, scope="local")
        lb = T.Buffer((nb,), kind, data=rb, scope="local")
        lc = T.Buffer((nc,), out, data=rc, scope="local")
        for i in range(na):
            la[i] = x[tx * na + i]
        for i in range(nb):
            lb[i] = x[512 + tx * nb + i]
        for i in range(nc):
            lc[i] = T.Cast(out, 0)
        T.evaluate(T.ptx_mma(out, shape, "row", "col", a, b, c, ra, 0, rb, 0, rc, 0, False))
        for i in range(nc):
            z[tx * nc + i] = lc[i]

    source = compiled(f, archs=("sm_80", "sm_90"))
    assert f"mma.sync.aligned.{shape}.row.col" in source


@needs_compiler
def test_ldmatrix_and_asynchronous_copies():
    @T.prim_func
    def f(A: T.handle("float16"), C: T.handle("float16")):
        T.func_attr({"global_symbol": "f", "calling_conv": 2})
        tx = T.launch_thread("threadIdx.x", 32)
        z = T.Buffer((1024,), "float16", data=C)
        s = T.allocate([256], "float16", "shared")
        r = T.allocate([8], "float16", "local")
        lr = T.Buffer((8,), "float16", data=r, scope="local")
        T.evaluate(T.ptx_cp_async("float16", s, tx * 8, A, tx * 8, 16))
        T.evaluate(T.ptx_commit_group(dtype=""))
        T.evaluate(T.ptx_wait_group(0, dtype=""))
        T.evaluate(T.tvm_storage_sync("shared"))
        T.evaluate(T.ptx_ldmatrix("float16", T.bool(False), 4, ".b16", r, 0, s, tx % 16 * 16 + tx // 16 * 8))
        for i in range(8):
            z[tx * 8 + i] = lr[i]

    source = compiled(f, archs=("sm_80", "sm_90"))
    for piece in (
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "cp.async.cg.shared.global [%0], [%1], %2;",
        "cp.async.commit_group;",
    ):
        assert piece in source


@needs_compiler
def test_a_product_on_tensor_cores_compiles():
    from tests.tir.gpu.tensor_cores import wmma_matmul

    source = tvm.build(wmma_matmul(), target="cuda").imported_modules[0].get_source()
    for arch in ARCHS:
        assert cuda_compile.compile_source(source, arch, "cubin").startswith(b"\x7fELF")
    for piece in (
        "nvcuda::wmma::mma_sync(",
        "__shared__ __align__(32) half A_shared[256];",
        "tw_float16x8 A_v = *(tw_float16x8*)",
    ):
        assert piece in source


@needs_compiler
@pytest.mark.parametrize("reduce", [True, False], ids=["across threads", "in a thread"])
def test_reductions_compile(reduce):
    @T.prim_func
    def rows(A: T.Buffer((64, 128), "float32"), B: T.Buffer((64,), "float32")):
        for i, k in T.grid(64, 128):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]

    sch = tvm.tir.Schedule(rows)
    i, k = sch.get_loops(sch.get_block("B"))
    sch.bind(i, "blockIdx.x")
    if reduce:
        sch.bind(sch.split(k, [None, 32])[1], "threadIdx.x")
    source = tvm.build(sch.mod, target="cuda").imported_modules[0].get_source()
    assert ("__shfl_down_sync(" in source) == reduce
    for arch in ARCHS:
        assert cuda_compile.compile_source(source, arch, "cubin").startswith(b"\x7fELF")


@T.prim_func
def scale(A: T.Buffer((1000,), "float32"), B: T.Buffer((1000,), "float32")):
    for i in range(1000):
        with T.block("B"):
            vi = T.axis.spatial(1000, i)
            B[vi] = A[vi] * T.float32(2)


@needs_compiler
def test_build_gives_source_and_ptx():
    rt = tvm.build(scale, target=tvm.target.Target("cuda -arch=sm_80"))
    device = rt.imported_modules[0]
    assert device.type_key == "cuda"
    assert 'extern "C" __global__ void' in device.get_source()
    assert ".target sm_80" in device.get_source("ptx")
    for arch in ARCHS:
        assert cuda_compile.compile_source(device.get_source(), arch, "cubin").startswith(b"\x7fELF")


@without_gpu
def test_without_a_gpu_it_says_so():
    rt = tvm.build(scale, target="cuda")
    with pytest.raises(CompileError, match="TW0670.*cuda.0..*no GPU is there"):
        nd.array(np.zeros(4), tvm.cuda(0))
    assert not tvm.cuda(0).exist
    assert not tvm.runtime.enabled("cuda")
    with pytest.raises(ValueError, match="must be on a device of type 2 .CUDA."):
        rt["scale"](nd.empty((1000,)), nd.empty((1000,)))
    launcher = rt.imported_modules[0]["scale_kernel"]
    with pytest.raises(CompileError, match="TW0670.*no GPU is there"):
        launcher(*[0] * (len(launcher.dtypes) + len(launcher.params)))
    with pytest.raises(TypeError, match="takes 2 arguments"):
        launcher(1)


@with_gpu
def test_with_a_gpu_it_runs():
    rt = tvm.build(scale, target="cuda")
    a, b = nd.array(np.arange(1000, dtype=np.float32), tvm.cuda(0)), nd.empty((1000,), "float32", tvm.cuda(0))
    rt["scale"](a, b)
    np.testing.assert_array_equal(b.numpy(), np.arange(1000, dtype=np.float32) * 2)


def test_what_goes_wrong_is_named(monkeypatch):
    if cuda_compile.compiler() is not None:
        with pytest.raises(CompileError, match="TW0675.*refused the source"):
            cuda_compile.compile_source("__global__ void f( {", "sm_80", "cubin")

    class Status(int):
        name = "CUDA_ERROR_ILLEGAL_ADDRESS"

    with pytest.raises(CompileError, match="TW0677.*a kernel failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
        CudaApi()._do((Status(700),), "a kernel")
    cuda_compile.compile_source.cache_clear()
    monkeypatch.setattr(cuda_compile, "compiler", lambda: None)
    with pytest.raises(CompileError, match="TW0674.*neither NVRTC nor nvcc"):
        cuda_compile.compile_source("", "sm_80", "ptx")
    with pytest.raises(CompileError, match="TW0662.*CUDA C has no type for dtype float32x8"):
        CudaDialect().type("float32x8")
