"""OpenCL C on a device of this machine (pocl runs it on the CPU): sources, arrays on devices, launches, errors."""

import gc

import numpy as np
import pytest

import tilewright as tvm
from tilewright import nd
from tilewright.backends.opencl.dialect import OpenCLDialect
from tilewright.backends.opencl.runtime import API
from tilewright.ir.dtype import to_numpy
from tilewright.script import tir as T
from tilewright.support.diagnostics import CompileError

needs_device = pytest.mark.skipif(API.reason() is not None, reason=f"OpenCL: {API.reason()}")
KERNEL = {"calling_conv": 2, "tir.is_global_func": True, "tir.noalias": True}


@tvm.script.ir_module
class Stage:
    """C = A through shared memory + exp(B); the last work group is not full."""

    @T.prim_func
    def stage_kernel(A: T.handle("float32"), B: T.handle("float32"), C: T.handle("float32"), n: T.int32):
        T.func_attr(
            {"calling_conv": 2, "tir.is_global_func": True, "tir.kernel_launch_params": ["blockIdx.x", "threadIdx.x"]}
        )
        bx = T.launch_thread("blockIdx.x", (n + 63) // 64)
        tx = T.launch_thread("threadIdx.x", 64)
        shared = T.allocate([64], "float32", "shared")
        S = T.Buffer((64,), "float32", data=shared, scope="shared")
        a = T.Buffer((n,), data=A)
        b = T.Buffer((n,), data=B)
        c = T.Buffer((n,), data=C)
        if bx * 64 + tx < n:
            S[63 - tx] = a[bx * 64 + tx]
        T.evaluate(T.tvm_storage_sync("shared"))
        if bx * 64 + tx < n:
            c[bx * 64 + tx] = S[63 - tx] + T.exp(b[bx * 64 + tx])

    @T.prim_func
    def main(a: T.handle, b: T.handle, c: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n,))
        B = T.match_buffer(b, (n,))
        C = T.match_buffer(c, (n,))
        T.evaluate(T.call_packed("stage_kernel", A.data, B.data, C.data, n, (n + 63) // 64, 64))


def arrays(device, n=100):
    rng = np.random.default_rng(0)
    a, b = rng.random(n, np.float32), rng.random(n, np.float32)
    return [nd.array(x, device) for x in (a, b, np.zeros(n, np.float32))], a + np.exp(b)


@needs_device
def test_a_program_runs_on_the_device():
    rt = tvm.build(Stage, target="opencl")
    dev = tvm.opencl(0)
    (a, b, c), want = arrays(dev)
    rt["main"](a, b, c)
    np.testing.assert_allclose(c.numpy(), want, rtol=1e-6)
    assert rt.time_evaluator("main", dev, number=3)(a, b, c).mean > 0
    source = rt.imported_modules[0].get_source()
    for piece in ("__kernel", "barrier(CLK_LOCAL_MEM_FENCE);", "const int tx = get_local_id(0);", "C[bx * 64 + tx]"):
        assert piece in source
    assert rt.imported_modules[0].type_key == "opencl"
    assert "define" in rt.get_source()


@needs_device
def test_device_arrays():
    dev = tvm.opencl(0)
    assert dev.exist
    assert not tvm.opencl(99).exist
    assert dev.max_threads_per_block >= 64
    assert dev.max_shared_memory_per_block > 0
    assert tvm.runtime.enabled("opencl")
    x = np.arange(12, dtype=np.int64).reshape(3, 4)
    a = nd.array(x, dev)
    assert (a.device, a.shape, str(a.dtype)) == (dev, (3, 4), "int64")
    b = nd.empty((3, 4), "int64", dev)
    a.copyto(b)
    np.testing.assert_array_equal(b.numpy(), x)
    np.testing.assert_array_equal(a.copyto(tvm.cpu()).numpy(), x)
    np.testing.assert_array_equal(nd.array(x).copyto(dev).numpy(), x)
    np.testing.assert_array_equal(b.copyfrom(x + 1)[1], x[1] + 1)
    assert nd.empty((0, 3), "float32", dev).numpy().shape == (0, 3)
    dev.sync()
    with pytest.raises(TypeError, match="cannot be set"):
        a[0, 0] = 1
    held = len(API._memory)
    del a, b
    gc.collect()
    assert len(API._memory) == held - 2


@needs_device
def test_wrong_places_are_named():
    rt = tvm.build(Stage, target="opencl")
    dev = tvm.opencl(0)
    (a, b, c), _ = arrays(dev)
    with pytest.raises(ValueError, match=r"parameter 'C' must be on a device of type 4 \(OpenCL\), got device type 1"):
        rt["main"](a, b, nd.array(np.zeros(100, np.float32)))
    with pytest.raises(CompileError, match=r"TW0670.*opencl\(99\)"):
        nd.array(np.zeros(2), tvm.opencl(99))
    with pytest.raises(CompileError, match=r"TW0670.*metal\(0\)"):
        nd.array(np.zeros(2), tvm.metal(0))
    with pytest.raises(CompileError, match="TW0669"):
        rt.export_library("x.so")
    with pytest.raises(CompileError, match="TW0666"):
        rt.imported_modules[0].get_source("ptx")
    cpu = tvm.build(_one_line(), "llvm")
    with pytest.raises(ValueError, match="in the memory of the CPU"):
        cpu["f"](a)


def _one_line():
    @T.prim_func
    def f(A: T.Buffer((100,), "float32")):
        T.func_attr({"global_symbol": "f"})
        for i in range(100):
            A[i] = T.float32(1)

    return f


def run(kernel, *arrays, grid=1, block=1):
    """A kernel with axes blockIdx.x, threadIdx.x started on device arrays; what they hold afterwards."""
    source = OpenCLDialect().emit([kernel])
    program = API.program(0, source)
    dev = tvm.opencl(0)
    given = [nd.array(a, dev) for a in arrays]
    name = kernel.attrs["global_symbol"]
    (found,) = [k for k in program.all_kernels() if k.function_name == name]
    API.launch(0, found, ["handle"] * len(given), [int(a.data_ptr()) for a in given], [grid, 1, 1], [block, 1, 1], 0)
    return source, [a.numpy() for a in given]


@needs_device
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint16", "int64", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("lanes", [2, 4, 8, 5])
def test_vectors(dtype, lanes):
    @T.prim_func
    def f(A: T.handle(dtype), B: T.handle(dtype)):
        T.func_attr({"global_symbol": "f", **KERNEL})
        tx = T.launch_thread("threadIdx.x", 4)
        a = T.Buffer((64,), dtype, data=A)
        b = T.Buffer((64,), dtype, data=B)
        b[T.Ramp(tx * lanes, 1, lanes)] = a[T.Ramp(tx * lanes, 1, lanes)] + T.Broadcast(T.Cast(dtype, 3), lanes)

    kind = to_numpy(dtype)
    a = np.arange(64).astype(kind)
    source, (_, b) = run(f, a, np.zeros(64, kind), block=4)
    np.testing.assert_array_equal(b[: 4 * lanes], (a + np.array(3, kind))[: 4 * lanes])
    assert (f"vload{lanes}" in source) == (lanes != 5)


@needs_device
def test_atomic_addition_and_local_arrays():
    @T.prim_func
    def f(A: T.handle("int32"), B: T.handle("float32")):
        T.func_attr({"global_symbol": "f", **KERNEL})
        bx = T.launch_thread("blockIdx.x", 3)
        tx = T.launch_thread("threadIdx.x", 16)
        local = T.allocate([4], "int32", "local")
        L = T.Buffer((4,), "int32", data=local, scope="local")
        a = T.Buffer((1,), "int32", data=A)
        b = T.Buffer((1,), "float32", data=B)
        for i in range(4):
            L[i] = bx * 100 + tx * i
        T.evaluate(T.call_intrin("int32", "tir.atomic_add", T.address_of(a[0]), L[1] + L[3]))
        T.evaluate(T.call_intrin("float32", "tir.atomic_add", T.address_of(b[0]), T.float32(0.5)))

    _, (a, b) = run(f, np.zeros(1, np.int32), np.zeros(1, np.float32), grid=3, block=16)
    assert a[0] == sum(2 * bx * 100 + 4 * tx for bx in range(3) for tx in range(16))
    assert b[0] == 24


def test_what_the_device_lacks_is_named():
    @T.prim_func
    def f(A: T.handle("float32")):
        T.func_attr({"global_symbol": "f", **KERNEL})
        tx = T.launch_thread("threadIdx.x", 16)
        fragment = T.allocate([4], "float32", "wmma.matrix_a")
        W = T.Buffer((4,), "float32", data=fragment, scope="wmma.matrix_a")
        W[tx] = T.float32(1)

    with pytest.raises(CompileError, match="TW0668.*'opencl' has no memory 'wmma.matrix_a'"):
        OpenCLDialect().emit([f])

    @T.prim_func
    def g(A: T.handle("float32")):
        T.func_attr({"global_symbol": "g", **KERNEL})
        tx = T.launch_thread("threadIdx.x", 16)
        T.evaluate(T.call_intrin("float32", "tir.call_llvm_intrin", T.float32(1)))

    with pytest.raises(CompileError, match="TW0663.*'opencl' has no intrinsic tir.call_llvm_intrin"):
        OpenCLDialect().emit([g])


def test_programs_that_cannot_be_built_are_refused():
    bb = tvm.relax.BlockBuilder()
    x = tvm.relax.Var("x", tvm.relax.TensorStructInfo((2,), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(x)
    graph = bb.get()
    for target in ("opencl", "c"):
        with pytest.raises(CompileError, match="TW0665.*'main' is a graph function"):
            tvm.build(graph, target)
    with pytest.raises(CompileError, match="TW0673"):
        tvm.build(Stage, tvm.target.Target("opencl", host="c"))["main"]
    with pytest.raises(CompileError, match="TW0651"):
        tvm.build(Stage, "vulkan")
    with pytest.raises(CompileError, match="TW0662.*OpenCL C has no type for dtype int4"):
        OpenCLDialect().type("int4")


@needs_device
def test_what_the_driver_refuses_is_shown():
    with pytest.raises(CompileError, match="TW0671"):
        API.program(0, "__kernel void f( { }")


@T.prim_func
def matmul(A: T.Buffer((64, 48), "float32"), B: T.Buffer((48, 32), "float32"), C: T.Buffer((64, 32), "float32")):
    for i, j, k in T.grid(64, 32, 48):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] += A[vi, vk] * B[vk, vj]


def blocked(scope="shared"):
    """The product in tiles of 16 x 16, staged through shared memory by all threads of a group."""
    sch = tvm.tir.Schedule(matmul)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    (by, ty), (bx, tx), (ko, ki) = (sch.split(x, [None, 16]) for x in (i, j, k))
    sch.reorder(by, bx, ty, tx, ko, ki)
    for loop, axis in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        sch.bind(loop, axis)
    sch.reverse_compute_at(sch.cache_write(block, 0, "local"), tx)
    for n in range(2):
        stage = sch.cache_read(block, n, scope)
        sch.compute_at(stage, ko)
        outer, inner, _ = sch.split(sch.fuse(*sch.get_loops(stage)[-2:]), [16, 16, None])
        sch.bind(outer, "threadIdx.y")
        sch.bind(inner, "threadIdx.x")
    sch.decompose_reduction(block, ko)
    return sch.mod


@needs_device
@pytest.mark.parametrize(
    "mod", [lambda: matmul, blocked, lambda: blocked("shared.dyn")], ids=["unscheduled", "blocked", "dynamic memory"]
)
def test_scheduled_programs(mod):
    rt = tvm.build(mod(), target="opencl")
    rng = np.random.default_rng(0)
    a, b = rng.random((64, 48), np.float32), rng.random((48, 32), np.float32)
    dev = tvm.opencl(0)
    given = [nd.array(x, dev) for x in (a, b, np.zeros((64, 32), np.float32))]
    rt[rt.function_names[0]](*given)
    np.testing.assert_allclose(given[2].numpy(), a @ b, rtol=1e-5)


@T.prim_func
def ones(A: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("A"):
            vi = T.axis.spatial(4, i)
            A[vi] = T.float32(1)


@needs_device
def test_modules_of_several_targets():
    def named(name, **attrs):
        return {tvm.ir.GlobalVar(name): ones.with_attr({"global_symbol": name, **attrs})}

    dev = tvm.opencl(0)
    split = {"llvm": tvm.IRModule(named("here")), "opencl": tvm.IRModule(named("there"))}
    marked = tvm.IRModule({**named("here", target=tvm.target.Target("llvm")), **named("there")})
    for rt in (
        tvm.build(split),
        tvm.build(marked, target=tvm.target.Target("opencl", host="llvm")),
        tvm.compile(marked, "opencl"),
    ):
        a, b = nd.empty((4,)), nd.empty((4,), "float32", dev)
        rt["here"](a)
        rt["there"](b)
        np.testing.assert_array_equal(a.numpy(), b.numpy())
        assert rt.mod["here"] is not None


@needs_device
def test_names_of_the_later_generation():
    rt = tvm.compile(ones, target="opencl")
    dev = tvm.runtime.device("opencl", 0)
    a = tvm.runtime.tensor(np.zeros(4, np.float32), device=dev)
    rt(a)
    np.testing.assert_array_equal(a.numpy(), np.ones(4))
    assert "__kernel" in rt.imports[0].inspect_source()
    assert tvm.runtime.empty((4,), "float32", device=dev).device == dev
