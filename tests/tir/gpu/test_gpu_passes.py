"""The GPU passes one by one: what each makes of a small program."""

import numpy as np
import pytest

import tilewright as tvm
from tests.tir.gpu import programs as P
from tilewright.ir.node import walk
from tilewright.ir.structure import assert_structural_equal
from tilewright.script import ir as I
from tilewright.script import tir as T
from tilewright.tir.interp import interpret
from tilewright.tir.transform.gpu.common import DeviceError

tr = tvm.tir.transform


def after(f, *passes):
    mod = tvm.IRModule({"main": f.with_attr("global_symbol", "main")})
    for p in passes:
        mod = p(mod)
    return mod["main"]


def check(f, expected, *passes):
    assert_structural_equal(after(f, *passes), expected.with_attr("global_symbol", "main"))


def calls(f, name):
    return [n for n in walk(f.body) if isinstance(n, tvm.tir.Call) and getattr(n.op, "name", "") == f"tir.{name}"]


def test_unify_thread_binding():
    @T.prim_func
    def before(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
        for i in T.thread_binding(8, "blockIdx.x"):
            for j in T.thread_binding(4, "threadIdx.x"):
                A[i, j] = T.float32(1)
            for k in T.thread_binding(T.int64(4), "threadIdx.x", annotations={"mark": 1}):
                B[i, k] = T.float32(2)

    @T.prim_func
    def expected(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
        for bx in T.thread_binding(8, "blockIdx.x"):
            for tx in T.thread_binding(4, "threadIdx.x"):
                A[bx, tx] = T.float32(1)
                for _ in T.serial(T.int64(1), annotations={"mark": 1}):
                    B[bx, T.Cast("int64", tx)] = T.float32(2)

    check(before, expected, tr.UnifyThreadBinding())


def test_lift_thread_binding():
    @T.prim_func
    def before(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
        for i in T.thread_binding(8, "blockIdx.x"):
            for j in T.thread_binding(4, "threadIdx.x"):
                A[i, j] = T.float32(1)
            for _u in range(1):
                for k in T.thread_binding(4, "threadIdx.x"):
                    B[i, k] = A[i, k]

    @T.prim_func
    def expected(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
        for bx in T.thread_binding(8, "blockIdx.x"):
            for tx in T.thread_binding(4, "threadIdx.x"):
                A[bx, tx] = T.float32(1)
                for _u in range(1):
                    B[bx, tx] = A[bx, tx]

    check(before, expected, tr.LiftThreadBinding())


def test_cross_thread_reduction():
    @T.prim_func
    def expected(A: T.Buffer((4, 100), "float32"), B: T.Buffer((4,), "float32")):
        whole = T.alloc_buffer((1,), strides=(1,), scope="local")
        part = T.alloc_buffer((1,), strides=(1,), scope="local")
        for i in T.thread_binding(4, thread="blockIdx.x"):
            for ki in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("B_in_thread_init"):
                    T.reads()
                    T.writes(part[0])
                    part[0] = T.float32(0)
                for ko in range(4):
                    with T.block("B_in_thread"):
                        vi = T.axis.spatial(4, i)
                        vk = T.axis.reduce(100, ko * 32 + ki)
                        T.where(ko * 32 + ki < 100)
                        T.reads(A[vi, vk])
                        T.writes(part[0])
                        part[0] = part[0] + A[vi, vk]
                with T.block("B_cross_thread"):
                    T.reads(part[0])
                    T.writes(whole[0])
                    T.attr(
                        T.comm_reducer(lambda x, y: x + y, [T.float32(0)]),
                        "reduce_scope",
                        T.reinterpret("handle", T.uint64(0)),
                    )
                    T.tvm_thread_allreduce(T.uint32(1), part[0], T.bool(True), whole[0], ki)
                with T.block("B_write_back"):
                    vi = T.axis.spatial(4, i)
                    T.where(ki == 0)
                    T.reads(whole[0])
                    T.writes(B[vi])
                    B[vi] = whole[0]

    check(P.row_sum, expected, tr.LowerCrossThreadReduction())


@pytest.mark.parametrize("what", ["not deepest", "bound to blocks", "no reducer", "several stores"])
def test_reductions_that_cannot_be_split(what):
    @T.prim_func
    def deep(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32")):
        for k in T.thread_binding(8, "threadIdx.x"):
            for i in range(8):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vk]

    @T.prim_func
    def blocks(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            for k in T.thread_binding(8, "blockIdx.x"):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vk]

    @T.prim_func
    def minus(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            for k in T.thread_binding(8, "threadIdx.x"):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] - A[vi, vk]

    @T.prim_func
    def several(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32")):
        C = T.alloc_buffer((1,))
        for i in range(8):
            for k in T.thread_binding(8, "threadIdx.x"):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = T.float32(0)
                    C[0] = A[vi, vk]
                    B[vi] = B[vi] + C[0]

    f = {"not deepest": deep, "bound to blocks": blocks, "no reducer": minus, "several stores": several}[what]
    code = "TW0564" if what in ("not deepest", "bound to blocks") else "TW0563"
    with pytest.raises(ValueError, match=code):
        after(f, tr.LowerCrossThreadReduction())


def test_thread_sync():
    @T.prim_func
    def before(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        tx = T.launch_thread("threadIdx.x", 32)
        S_data = T.allocate([32], "float32", "shared")
        S = T.Buffer((32,), data=S_data, scope="shared")
        S[tx] = A[tx]
        B[tx] = S[tx]
        B[tx] = S[31 - tx]
        S[tx] = T.float32(0)

    text = after(before, tr.ThreadSync("shared")).script()
    lines = [x.strip() for x in text.splitlines() if "S[" in x or "sync" in x]
    sync = 'T.tvm_storage_sync("shared")'
    own = next(i for i, x in enumerate(lines) if x.startswith("B[tx] = S"))
    assert lines[own + 1] == sync  # reading one's own element needs no barrier, another's does
    assert lines[own + 3] == sync  # and so does writing again what others have read
    assert text.count(sync) == 2


def test_thread_sync_knows_ranges_and_loops():
    @T.prim_func
    def apart(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 32)
        S_data = T.allocate([64], "float32", "shared")
        S = T.Buffer((64,), data=S_data, scope="shared")
        S[tx] = T.float32(0)
        A[tx] = S[tx + 32]

    @T.prim_func
    def window(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 32)
        S_data = T.allocate([64], "float32", "shared")
        S = T.Buffer((64,), data=S_data, scope="shared")
        for i in range(4):
            S[tx + i] = A[tx]
            A[tx] = S[tx + i]

    assert "sync" not in after(apart, tr.ThreadSync("shared")).script()
    assert after(window, tr.ThreadSync("shared")).script().count("sync") == 1  # for the next iteration's neighbour


def test_barrier_in_a_branch():
    @T.prim_func
    def f(A: T.Buffer((32,), "float32")):
        tx = T.launch_thread("threadIdx.x", 32)
        S_data = T.allocate([32], "float32", "shared")
        S = T.Buffer((32,), data=S_data, scope="shared")
        if tx < 16:
            S[tx] = A[tx]
            A[tx] = S[15 - tx]

    with pytest.raises(DeviceError, match="TW0565"):
        after(f, tr.ThreadSync("shared"))


def allreduce(threads, groups):
    @T.prim_func
    def f(A: T.Buffer((groups * threads,), "float32"), B: T.Buffer((groups,), "float32")):
        ty = T.launch_thread("threadIdx.y", groups)
        tx = T.launch_thread("threadIdx.x", threads)
        part_data = T.allocate([1], "float32", "local")
        part = T.Buffer((1,), data=part_data, scope="local")
        with T.attr(
            T.comm_reducer(lambda x, y: x + y, [T.float32(0)]), "reduce_scope", T.reinterpret("handle", T.uint64(0))
        ):
            T.tvm_thread_allreduce(T.uint32(1), A[ty * threads + tx], T.bool(True), part[0], tx)
        if tx == 0:
            B[ty] = part[0]

    return f


@pytest.mark.parametrize(
    "target, threads, groups, shuffles, barriers",
    [
        ("cuda", 32, 2, 6, 0),
        ("cuda", 8, 4, 4, 0),
        ("cuda", 128, 2, 7, 2),
        ("opencl", 32, 2, 0, 7),
        ("metal", 64, 1, 6, 2),
    ],
)
def test_thread_allreduce(target, threads, groups, shuffles, barriers):
    f = allreduce(threads, groups).with_attr("target", tvm.target.Target(target))
    new = after(f, tr.LowerThreadAllreduce())
    assert len(calls(new, "tvm_warp_shuffle_down")) + len(calls(new, "tvm_warp_shuffle")) == shuffles
    assert len(calls(new, "tvm_storage_sync")) == barriers
    assert not calls(new, "tvm_thread_allreduce")
    assert bool(calls(new, "tvm_warp_activemask")) == (target == "cuda")


def test_allreduce_over_an_unknown_number_of_threads():
    @T.prim_func
    def f(A: T.Buffer((32,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", n)
        part_data = T.allocate([1], "float32", "local")
        part = T.Buffer((1,), data=part_data, scope="local")
        with T.attr(
            T.comm_reducer(lambda x, y: x + y, [T.float32(0)]), "reduce_scope", T.reinterpret("handle", T.uint64(0))
        ):
            T.tvm_thread_allreduce(T.uint32(1), A[tx], T.bool(True), part[0], tx)
        A[tx] = part[0]

    with pytest.raises(DeviceError, match="TW0566"):
        after(f, tr.LowerThreadAllreduce())


def test_host_and_device():
    @I.ir_module
    class Before:
        @T.prim_func
        def main(n: T.int32, A: T.Buffer((16,), "float32")):
            T.func_attr({"target": T.target("cuda", host="llvm")})
            tx = T.launch_thread("threadIdx.x", n)
            A[tx] = T.float32(0)

    marked = tr.AnnotateDeviceRegions()(Before)
    assert marked["main"].body.attr_key == "target"
    split = tr.SplitHostDevice()(marked)
    kernel = split["main_kernel"]
    assert [p.name for p in kernel.params] == ["A", "n"]
    assert kernel.attrs["tir.is_global_func"]
    split.update_func(split.get_global_var("main"), split["main"].with_attr("target", tvm.target.Target("llvm")))
    done = tr.LowerDeviceKernelLaunch()(split)
    assert done["main_kernel"].attrs["tir.kernel_launch_params"] == ["threadIdx.x"]
    call = done["main"].body.value
    assert call.op.name == "tir.tvm_call_packed"
    assert [type(a).__name__ for a in call.args] == ["StringImm", "Var", "Var", "Var"]
    assert call.args[2].same_as(call.args[3])  # n, as an argument and as the number of threads


def test_regions_keep_host_calls_on_the_host():
    @T.prim_func
    def f(A: T.Buffer((2,), "float32")):
        T.func_attr({"target": T.target("cuda", host="llvm")})
        T.call_packed("before", 1)
        A[0] = T.float32(0)
        A[1] = T.float32(1)
        T.call_packed("after", 2)

    body = after(f, tr.AnnotateDeviceRegions()).body
    assert [type(s).__name__ for s in body.seq] == ["Evaluate", "AttrStmt", "Evaluate"]
    assert len(body.seq[1].body.seq) == 2


def test_device_regions_need_a_target():
    with pytest.raises(DeviceError, match="TW0561"):
        after(P.window_sum, tr.AnnotateDeviceRegions())


def test_two_dynamic_allocations_need_merging():
    @I.ir_module
    class Mod:
        @T.prim_func
        def main(A: T.Buffer((16,), "float32")):
            T.func_attr({"target": T.target("llvm")})
            Mod.kernel(A.data)

        @T.prim_func
        def kernel(A_data: T.handle("float32")):
            T.func_attr({"target": T.target("cuda")})
            A = T.decl_buffer((16,), data=A_data)
            tx = T.launch_thread("threadIdx.x", 16)
            S = T.decl_buffer((16,), scope="shared.dyn")
            R = T.decl_buffer((16,), scope="shared.dyn")
            S[tx] = A[tx]
            R[tx] = S[tx]
            A[tx] = R[tx]

    with pytest.raises(DeviceError, match="TW0562"):
        tr.LowerDeviceKernelLaunch()(Mod)
    merged = tr.LowerDeviceKernelLaunch()(tr.MergeSharedMemoryAllocations()(Mod))
    assert merged["kernel"].attrs["tir.kernel_launch_params"] == ["threadIdx.x", "tir.use_dyn_shared_memory"]


def test_merge_shared_memory():
    @T.prim_func
    def f(A: T.Buffer((64,), "float16"), B: T.Buffer((64,), "float16"), C: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        A_data = T.allocate([64], "float16", "shared.dyn")
        As = T.Buffer((64,), "float16", data=A_data, scope="shared.dyn")
        B_data = T.allocate([64], "float16", "shared.dyn")
        Bs = T.Buffer((64,), "float16", data=B_data, scope="shared.dyn")
        C_data = T.allocate([64], "float32", "shared.dyn")
        Cs = T.Buffer((64,), "float32", data=C_data, scope="shared.dyn")
        L_data = T.allocate([1], "float32", "local")
        L = T.Buffer((1,), data=L_data, scope="local")
        for _i in range(2):
            As[tx] = A[tx]
            Bs[tx] = B[tx]
            L[0] = T.Cast("float32", As[tx] * Bs[tx])
        Cs[tx] = L[0]
        C[tx] = Cs[tx]

    new = after(f, tr.MergeSharedMemoryAllocations())
    shared = [
        n for n in walk(new.body) if isinstance(n, tvm.tir.Allocate) and "shared" in str(n.buffer_var.type_annotation)
    ]
    (one,) = shared
    assert one.dtype == "uint8"
    assert one.extents[0].value == 256  # what A and B take; C comes when they are done
    assert "As[tx + 64] = A[tx]" in new.script()
    assert "Cs[tx] = L[0]" in new.script()
    older = after(f, tr.MergeDynamicSharedMemoryAllocations())
    assert_structural_equal(older, new)


def test_merge_static_shared_memory_on_request():
    @T.prim_func
    def f(A: T.Buffer((64,), "int8"), C: T.Buffer((64,), "int32")):
        tx = T.launch_thread("threadIdx.x", 64)
        A_data = T.allocate([64], "int8", "shared")
        As = T.Buffer((64,), "int8", data=A_data, scope="shared")
        C_data = T.allocate([64], "int32", "shared")
        Cs = T.Buffer((64,), "int32", data=C_data, scope="shared")
        As[tx] = A[tx]
        Cs[tx] = T.Cast("int32", As[tx])
        C[tx] = Cs[tx]

    assert_structural_equal(after(f, tr.MergeSharedMemoryAllocations()), f.with_attr("global_symbol", "main"))
    with tvm.transform.PassContext(config={"tir.merge_static_smem": True}):
        new = after(f, tr.MergeSharedMemoryAllocations())
    sizes = [n.extents[0].value for n in walk(new.body) if isinstance(n, tvm.tir.Allocate)]
    assert sizes == [64 + 256]


def test_virtual_threads():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32")):
        vt = T.launch_thread("vthread", 2)
        B_data = T.allocate([4], "int32", "shared")
        B = T.Buffer((4,), "int32", data=B_data, scope="shared")
        B[0:4] = T.broadcast(vt, 4)
        A[vt] = B[0]

    @T.prim_func
    def expected(A: T.Buffer((8,), "int32")):
        B_data = T.allocate([8], "int32", "shared")
        B = T.Buffer((8,), "int32", data=B_data, scope="shared")
        B[T.Mul(0, 4) : T.Mul(0, 4) + 4] = T.broadcast(0, 4)
        B[T.Mul(1, 4) : T.Mul(1, 4) + 4] = T.broadcast(1, 4)
        A[0] = B[T.Mul(0, 4)]
        A[1] = B[T.Mul(1, 4)]

    check(before, expected, tr.InjectVirtualThread())


def test_virtual_threads_need_a_constant():
    @T.prim_func
    def f(A: T.Buffer((8,), "int32"), n: T.int32):
        vt = T.launch_thread("vthread", n)
        A[vt] = 0

    with pytest.raises(DeviceError, match="TW0567"):
        after(f, tr.InjectVirtualThread())


def pipeline(stage, order, wait=None, n=16):
    notes = {"software_pipeline_stage": stage, "software_pipeline_order": order}
    if wait is not None:
        notes["software_pipeline_async_stages"] = wait

    @T.prim_func
    def f(A: T.Buffer((4, n), "float32"), D: T.Buffer((4, n), "float32")):
        for tx in T.serial(4):
            for i in T.serial(n, annotations=notes):
                with T.block("compute"):
                    T.reads(A[tx, i])
                    T.writes(D[tx, i])
                    B = T.alloc_buffer((4, 1), scope="shared")
                    C = T.alloc_buffer((4, 1), scope="shared")
                    with T.block():
                        T.reads(A[tx, i])
                        T.writes(B[tx, 0])
                        B[tx, 0] = A[tx, i] * T.float32(2)
                    with T.block():
                        T.reads(B[tx, 0])
                        T.writes(C[tx, 0])
                        C[tx, 0] = B[tx, 0] + T.float32(2)
                    with T.block():
                        T.reads(C[tx, 0])
                        T.writes(D[tx, i])
                        D[tx, i] = C[tx, 0] + T.float32(1)

    return f


@pytest.mark.parametrize("stage", [[0, 0, 0], [0, 0, 1], [0, 1, 1], [0, 1, 2], [0, 2, 3], [0, 0, 3]])
@pytest.mark.parametrize("n", [1, 2, 5, 16])
@pytest.mark.parametrize("wait", [None, [0]])
def test_pipelines_keep_the_meaning(stage, n, wait):
    new = after(pipeline(stage, [0, 1, 2], wait, n), tr.InjectSoftwarePipeline(), tr.Simplify())
    a, d = np.random.default_rng(0).random((4, n), dtype=np.float32), np.zeros((4, n), np.float32)
    interpret(new, a, d)
    np.testing.assert_allclose(d, a * 2 + 3, rtol=1e-6)
    assert len(new.body.block.body.body.block.body.seq) == 3


def test_pipeline_of_two_stages():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for i in T.serial(16, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
            with T.block():
                T.reads(A[i])
                T.writes(C[i])
                B = T.alloc_buffer((1,), scope="shared")
                with T.block():
                    T.reads(A[i])
                    T.writes(B[0])
                    B[0] = A[i]
                with T.block():
                    T.reads(B[0])
                    T.writes(C[i])
                    C[i] = B[0]

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        with T.block("root"):
            T.reads()
            T.writes()
            with T.block():
                T.reads(A[0:16])
                T.writes(C[0:16])
                B = T.alloc_buffer((2, 1), scope="shared")
                with T.block():
                    T.reads(A[0])
                    T.writes(B[0, 0])
                    B[0, 0] = A[0]
                with T.block():
                    T.reads(A[1:16], B[0:2, 0])
                    T.writes(B[0:2, 0], C[0:15])
                    for i in range(15):
                        with T.block():
                            T.reads(A[i + 1])
                            T.writes(B[(i + 1) % 2, 0])
                            B[(i + 1) % 2, 0] = A[i + 1]
                        with T.block():
                            T.reads(B[i % 2, 0])
                            T.writes(C[i])
                            C[i] = B[i % 2, 0]
                with T.block():
                    T.reads(B[1, 0])
                    T.writes(C[15])
                    C[15] = B[1, 0]

    check(before, expected, tr.InjectSoftwarePipeline(), tr.Simplify())


def test_asynchronous_stages_wait():
    new = after(pipeline([0, 3, 3], [0, 1, 2], [0]), tr.InjectSoftwarePipeline(), tr.Simplify())
    attrs = [(n.attr_key, str(n.value)) for n in walk(new.body) if isinstance(n, tvm.tir.AttrStmt)]
    assert ("async_wait_inflight_count", "3") in attrs
    assert ("async_wait_inflight_count", "2 - i") in attrs
    assert [k for k, _ in attrs].count("async_commit_queue_scope") == 2


@pytest.mark.parametrize(
    "stage, order, why",
    [
        ([0, 1, 1], [0, 2, 1], "before the statement"),
        ([0, 1, 1], [0, 1, 1], "same order"),
        ([1, 0, 1], [0, 1, 2], "before stage 1"),
        ([0, 1], [0, 1], "3 statements"),
        ([0, 1, 1], [0, 1, 4], "not 0..2"),
    ],
)
def test_pipelines_that_cannot_be(stage, order, why):
    with pytest.raises(DeviceError, match=f"(?s)TW0569.*{why}"):
        after(pipeline(stage, order), tr.InjectSoftwarePipeline())


def test_local_stage():
    @T.prim_func
    def before(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
        with T.block("root"):
            T.reads()
            T.writes()
            with T.block():
                T.reads(A[0:8, 0:4])
                T.writes(B[0:8, 0:4])
                S = T.alloc_buffer((8, 4), scope="shared")
                for i in range(8):
                    for j in T.vectorized(4):
                        with T.block("S"):
                            T.reads(A[i, j])
                            T.writes(S[i, j])
                            T.block_attr({"tir.manifest_shared_memory_local_stage": 1})
                            S[i, j] = A[i, j]
                for i, j in T.grid(8, 4):
                    with T.block("B"):
                        T.reads(S[i, j])
                        T.writes(B[i, j])
                        B[i, j] = S[i, j]

    new = after(before, tr.ManifestSharedMemoryLocalStage())
    a, b = np.random.default_rng(0).random((8, 4), dtype=np.float32), np.zeros((8, 4), np.float32)
    interpret(new, a, b)
    np.testing.assert_array_equal(a, b)
    text = new.script()
    assert 'S_local = T.alloc_buffer((8, 4), scope="local")' in text
    assert "S_local[i, j] = A[i, j]" in text
    assert "S[i, j] = S_local[i, j]" in text


def test_local_stage_needs_a_copy():
    @T.prim_func
    def f(A: T.Buffer((8,), "float32")):
        with T.block("root"):
            T.reads()
            T.writes()
            with T.block("S"):
                T.reads()
                T.writes(A[0:8])
                T.block_attr({"tir.manifest_shared_memory_local_stage": 1})
                for i in range(8):
                    A[i] = T.float32(0)

    with pytest.raises(DeviceError, match="TW0568"):
        after(f, tr.ManifestSharedMemoryLocalStage())


def test_async_copy():
    @T.prim_func
    def f(A: T.Buffer((128,), "float16"), B: T.Buffer((128,), "float16")):
        tx = T.launch_thread("threadIdx.x", 16)
        S_data = T.allocate([128], "float16", "shared")
        S = T.Buffer((128,), "float16", data=S_data, scope="shared")
        with T.attr(0, "async_scope", 1):
            S[tx * 8 : tx * 8 + 8] = A[tx * 8 : tx * 8 + 8]
        B[tx] = S[tx]

    new = after(f, tr.InjectPTXAsyncCopy())
    (call,) = calls(new, "ptx_cp_async")
    assert call.args[4].value == 16
    assert "async_scope" not in new.script()


def test_ldg32():
    @T.prim_func
    def f(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        for i in range(4):
            C[i] = T.if_then_else(A[i] > T.float32(0), A[i], T.float32(0))

    new = after(f.with_attr("target", tvm.target.Target("cuda")), tr.InjectPTXLDG32())
    assert len(calls(new, "ptx_ldg32")) == 1
    cpu = f.with_attr("target", tvm.target.Target("llvm"))
    assert not calls(after(cpu, tr.InjectPTXLDG32()), "ptx_ldg32")


def test_fragments():
    @T.prim_func
    def f(A: T.Buffer((256,), "float16")):
        a = T.allocate([256], "float16", "wmma.matrix_a")
        T.tvm_load_matrix_sync(a, 16, 16, 16, 0, A.data, 16, "row_major")

    body = after(f, tr.InferFragment()).body
    assert (body.attr_key, body.value.value) == ("fragment_layout", "row_major")
    assert (body.body.attr_key, body.body.value.value) == ("fragment_shape", "16, 16, 16")

    @T.prim_func
    def g(A: T.Buffer((256,), "float16")):
        a = T.allocate([256], "float16", "wmma.matrix_a")
        T.tvm_load_matrix_sync(a, 16, 16, 16, 0, A.data, 16, "row_major")
        T.tvm_load_matrix_sync(a, 16, 16, 16, 0, A.data, 16, "col_major")

    with pytest.raises(DeviceError, match="TW0576"):
        after(g, tr.InferFragment())


def test_warp_memory():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        T.func_attr({"target": T.target("cuda")})
        tx = T.launch_thread("threadIdx.x", 32)
        W_data = T.allocate([64], "float32", "warp")
        W = T.Buffer((64,), data=W_data, scope="warp")
        for i in range(2):
            W[tx * 2 + i] = A[tx * 2 + i]
        for i in range(2):
            B[tx * 2 + i] = W[(31 - tx) * 2 + i]

    new = after(f, tr.LowerWarpMemory())
    (call,) = calls(new, "tvm_warp_shuffle")
    assert str(call.args[2]) in ("31 - tx", "tx * -1 + 31")
    (alloc,) = [n for n in walk(new.body) if isinstance(n, tvm.tir.Allocate)]
    assert alloc.extents[0].value == 2
    with pytest.raises(DeviceError, match="TW0577"):
        after(f.with_attr("target", tvm.target.Target("opencl")), tr.LowerWarpMemory())


def test_described_memory():
    class Info:
        head_address = None

    tvm.register_func("tvm.info.mem.global.test_hidden", lambda: Info(), override=True)

    @T.prim_func
    def f():
        p = T.allocate([16], "float32", "global.test_hidden")
        T.evaluate(0)

    assert isinstance(after(f, tr.LowerDeviceStorageAccessInfo()).body, tvm.tir.Evaluate)


def test_default_schedule():
    @I.ir_module
    class Before:
        @T.prim_func
        def add(A: T.Buffer((4, 3), "float32"), B: T.Buffer((4, 3), "float32")):
            for i, j in T.grid(4, 3):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] + T.float32(1)

        @T.prim_func
        def total(A: T.Buffer((2, 2), "float32"), B: T.Buffer((), "float32")):
            for i, j in T.grid(2, 2):
                with T.block("B"):
                    vi, vj = T.axis.remap("RR", [i, j])
                    with T.init():
                        B[()] = T.float32(0)
                    B[()] = B[()] + A[vi, vj]

    @I.ir_module
    class Expected:
        @T.prim_func
        def total(A: T.Buffer((2, 2), "float32"), B: T.Buffer((), "float32")):
            T.func_attr({"tir.is_scheduled": True})
            for _bx in T.thread_binding(1, thread="blockIdx.x"):
                for _tx in T.thread_binding(1, thread="threadIdx.x"):
                    for i, j in T.grid(2, 2):
                        with T.block("B"):
                            vi, vj = T.axis.remap("RR", [i, j])
                            with T.init():
                                B[()] = T.float32(0)
                            B[()] = B[()] + A[vi, vj]

    with tvm.target.Target("cuda"):
        new = tr.DefaultGPUSchedule()(Before)
    assert_structural_equal(new["total"], Expected["total"])
    bx = new["add"].body.block.body
    assert (bx.extent.value, bx.thread_binding.thread_tag) == (1, "blockIdx.x")
    assert (bx.body.extent.value, bx.body.thread_binding.thread_tag) == (12, "threadIdx.x")
    a, b = np.ones((4, 3), np.float32), np.zeros((4, 3), np.float32)
    interpret(new["add"], a, b)
    np.testing.assert_array_equal(b, a + 1)
    with pytest.raises(DeviceError, match="TW0561"):
        tr.DefaultGPUSchedule()(Before)


def test_permuted_layout():
    def program(rows, columns, note):
        @T.prim_func
        def f(X: T.Buffer((rows, columns), "float16"), Y: T.Buffer((rows, columns), "float16")):
            with T.block("root"):
                T.reads()
                T.writes()
                S = T.alloc_buffer((rows, columns), "float16", scope="shared")
                for i, j in T.grid(rows, columns):
                    with T.block("S"):
                        T.reads(X[i, j])
                        T.writes(S[i, j])
                        T.block_attr({"permuted_layout": note})
                        S[i, j] = X[i, j]
                for i, j in T.grid(rows, columns):
                    with T.block("Y"):
                        T.reads(S[i, j])
                        T.writes(Y[i, j])
                        T.block_attr({"permuted_layout": note})
                        Y[i, j] = S[i, j]

        return f

    for columns, note in ((32, 1), (64, "g2s_A")):
        new = after(program(16, columns, note), tr.InjectPermutedLayout())
        assert new.script().count("T.bitwise_xor") == 2
        assert "permuted_layout" not in new.script()
        x, y = np.random.default_rng(0).random((16, columns)).astype("float16"), np.zeros((16, columns), "float16")
        interpret(new, x, y)
        np.testing.assert_array_equal(x, y)
    plain = program(16, 32, 0).with_attr("global_symbol", "main")
    assert "bitwise_xor" not in after(plain, tr.InjectPermutedLayout()).script()
    with pytest.raises(DeviceError, match="TW0580"):
        after(program(16, 24, 1), tr.InjectPermutedLayout())


def test_mma_registers():
    @T.prim_func
    def f(X: T.Buffer((64, 64), "float32")):
        with T.block("root"):
            T.reads()
            T.writes()
            C = T.alloc_buffer((64, 64), scope="m16n8k8.matrixC")
            A = T.alloc_buffer((64, 32), "float16", scope="m16n8k8.matrixA")
            for i, j in T.grid(64, 64):
                with T.block("b"):
                    T.reads()
                    T.writes(C[i, j], X[i, j])
                    C[i, j] = T.float32(0)
                    X[i, j] = C[i, j]

    text = after(f, tr.TransformMmaBufferLayout()).script()
    assert 'C = T.alloc_buffer((4, 8, 2, 2), scope="local")' in text
    assert 'A = T.alloc_buffer((2, 4, 4, 2), "float16", scope="local")' in text
    assert "C[i // 16, j // 8, i % 16 // 8, j % 2] = T.float32(0.0)" in text

    @T.prim_func
    def odd(X: T.Buffer((8, 8), "float32")):
        with T.block("root"):
            T.reads()
            T.writes()
            C = T.alloc_buffer((8, 8), scope="m16n8k8.matrixC")
            X[0, 0] = C[0, 0]

    with pytest.raises(DeviceError, match="TW0581"):
        after(odd, tr.TransformMmaBufferLayout())


def auto_copy(notes, scope="shared"):
    @T.prim_func
    def f(A: T.Buffer((32, 32), "float32"), B: T.Buffer((32, 32), "float32")):
        with T.block("root"):
            T.reads()
            T.writes()
            T.block_attr({"warp_execution": True})
            for _ty in T.thread_binding(4, thread="threadIdx.y"):
                with T.block():
                    T.reads(A[0:32, 0:32])
                    T.writes(B[0:32, 0:32])
                    S = T.alloc_buffer((32, 32), scope=scope)
                    with T.block("S"):
                        T.reads(A[0:32, 0:32])
                        T.writes(S[0:32, 0:32])
                        T.block_attr(notes)
                        for i, j in T.grid(32, 32):
                            S[j, i] = A[i, j]
                    with T.block("B"):
                        T.reads(S[0:32, 0:32])
                        T.writes(B[0:32, 0:32])
                        T.block_attr({"auto_copy": True, "vector_bytes": 16})
                        for i, j in T.grid(32, 32):
                            B[i, j] = S[i, j]

    return f


@pytest.mark.parametrize("notes", [{"auto_copy": True}, {"auto_copy": True, "local_stage": True}])
def test_auto_copy(notes):
    from tilewright.tir.lower.device import lower_device
    from tilewright.tir.lower.device.interpret import run_program

    program = lower_device(auto_copy(notes), "cuda")
    a, b = np.random.default_rng(0).random((32, 32), dtype=np.float32), np.zeros((32, 32), np.float32)
    run_program(program, a, b)
    np.testing.assert_array_equal(b, a.T)
    text = program.kernels[0].script()
    assert "T.Ramp" in text
    assert ('"float32", "local"' in text) == ("local_stage" in notes)


def test_auto_copies_that_cannot_be():
    with pytest.raises(DeviceError, match="TW0582.*wmma.matrix_a"):
        after(auto_copy({"auto_copy": True}, "wmma.matrix_a"), tr.LowerAutoCopy())
    with pytest.raises(DeviceError, match="TW0582.*no multiple"):
        after(auto_copy({"auto_copy": True, "vector_bytes": 256}), tr.LowerAutoCopy())
