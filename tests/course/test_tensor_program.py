"""The course's chapter on tensor programs: write loops, build them, rearrange them, and ask what that gained.

Both published generations of names: `build`/`nd.array` and `compile`/`runtime.tensor`.
"""

import numpy as np
import pytest

import tilewright as tvm
from tilewright.ir.module import IRModule
from tilewright.script import ir as I
from tilewright.script import tir as T


@I.ir_module
class MatmulRelu:
    @T.prim_func
    def mm_relu(
        A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")
    ):
        T.func_attr({"global_symbol": "mm_relu", "tir.noalias": True})
        Y = T.alloc_buffer((128, 128), dtype="float32")
        for i, j, k in T.grid(128, 128, 128):
            with T.block("Y"):
                vi = T.axis.spatial(128, i)
                vj = T.axis.spatial(128, j)
                vk = T.axis.reduce(128, k)
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(128, 128):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.max(Y[vi, vj], T.float32(0))


@pytest.fixture
def data(rng):
    a = rng.random((128, 128)).astype("float32")
    b = rng.random((128, 128)).astype("float32") - 0.5
    return a, b, np.maximum(a @ b, 0)


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def optimise(mod, jfactor):
    sch = tvm.tir.Schedule(mod)
    block_y = sch.get_block("Y", func_name="mm_relu")
    i, j, k = sch.get_loops(block_y)
    j0, j1 = sch.split(j, factors=[None, jfactor])
    sch.reorder(j0, k, j1)
    block_c = sch.get_block("C", "mm_relu")
    sch.reverse_compute_at(block_c, j0)
    sch.decompose_reduction(block_y, k)
    return sch


def test_the_module_is_a_mapping_of_functions():
    assert isinstance(MatmulRelu, IRModule)
    assert isinstance(MatmulRelu["mm_relu"], tvm.tir.PrimFunc)
    assert [v.name_hint for v in MatmulRelu.functions] == ["mm_relu"]
    with pytest.raises(Exception, match="nothing"):
        MatmulRelu["nothing"]


def test_build_and_run_by_the_older_names(data):
    a, b, want = data
    rt_lib = tvm.build(MatmulRelu, target="llvm")
    a_nd, b_nd = tvm.nd.array(a), tvm.nd.array(b)
    c_nd = tvm.nd.empty((128, 128), dtype="float32")
    func = rt_lib["mm_relu"]
    func(a_nd, b_nd, c_nd)
    np.testing.assert_allclose(c_nd.numpy(), want, rtol=1e-5)
    assert type(c_nd) is tvm.nd.NDArray


def test_build_and_run_by_the_newer_names(data):
    a, b, want = data
    rt_lib = tvm.compile(MatmulRelu, target="llvm")
    a_nd, b_nd = tvm.runtime.tensor(a), tvm.runtime.tensor(b)
    c_nd = tvm.runtime.empty((128, 128), dtype="float32")
    rt_lib["mm_relu"](a_nd, b_nd, c_nd)
    np.testing.assert_allclose(c_nd.numpy(), want, rtol=1e-5)


@pytest.mark.parametrize("jfactor", [4, 8, 32])
def test_the_transformed_program_computes_the_same(data, jfactor):
    a, b, want = data
    sch = optimise(MatmulRelu, jfactor)
    rt = tvm.build(sch.mod, target="llvm")
    c = tvm.nd.empty((128, 128), dtype="float32")
    rt["mm_relu"](tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), want, rtol=1e-5)
    timer = rt.time_evaluator("mm_relu", tvm.cpu(), number=10)
    assert 0 < timer(tvm.nd.array(a), tvm.nd.array(b), c).mean < 1


def test_the_steps_give_the_expected_loops():
    @T.prim_func
    def expected(
        A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")
    ):
        T.func_attr({"global_symbol": "mm_relu", "tir.noalias": True})
        Y = T.alloc_buffer((128, 128))
        for i, j_0 in T.grid(128, 32):
            for j_1_init in range(4):
                with T.block("Y_init"):
                    vi = T.axis.spatial(128, i)
                    vj = T.axis.spatial(128, j_0 * 4 + j_1_init)
                    T.reads()
                    T.writes(Y[vi, vj])
                    Y[vi, vj] = T.float32(0)
            for k, j_1 in T.grid(128, 4):
                with T.block("Y_update"):
                    vi = T.axis.spatial(128, i)
                    vj = T.axis.spatial(128, j_0 * 4 + j_1)
                    vk = T.axis.reduce(128, k)
                    T.reads(Y[vi, vj], A[vi, vk], B[vk, vj])
                    T.writes(Y[vi, vj])
                    Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
            for ax0 in range(4):
                with T.block("C"):
                    vi = T.axis.spatial(128, i)
                    vj = T.axis.spatial(128, j_0 * 4 + ax0)
                    T.reads(Y[vi, vj])
                    T.writes(C[vi, vj])
                    C[vi, vj] = T.max(Y[vi, vj], T.float32(0))

    tvm.ir.assert_structural_equal(optimise(MatmulRelu, 4).mod["mm_relu"], expected)


def test_the_same_program_from_tensor_expressions(data):
    a, b, want = data
    te = tvm.te
    A = te.placeholder((128, 128), "float32", name="A")
    B = te.placeholder((128, 128), "float32", name="B")
    k = te.reduce_axis((0, 128), "k")
    Y = te.compute((128, 128), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="Y")
    C = te.compute((128, 128), lambda i, j: te.max(Y[i, j], 0), name="C")
    te_func = te.create_prim_func([A, B, C]).with_attr({"global_symbol": "mm_relu"})
    mod = tvm.IRModule({"mm_relu": te_func})
    assert "mm_relu" in mod.script()
    for program in (mod, optimise(mod, 8).mod):
        c = tvm.nd.empty((128, 128))
        tvm.build(program, target="llvm")["mm_relu"](tvm.nd.array(a), tvm.nd.array(b), c)
        np.testing.assert_allclose(c.numpy(), want, rtol=1e-5)


def test_a_program_of_python_builds_variants():
    """Shapes and names captured from Python: one text, many programs."""

    def program(n, dtype):
        @T.prim_func
        def add(A: T.Buffer((n,), dtype), B: T.Buffer((n,), dtype), C: T.Buffer((n,), dtype)):
            for i in range(n):
                with T.block("C"):
                    vi = T.axis.spatial(n, i)
                    C[vi] = A[vi] + B[vi]

        return add

    for n, dtype in ((8, "float32"), (17, "int64"), (5, "float64")):
        x = np.arange(n).astype(dtype)
        out = tvm.nd.empty((n,), dtype)
        tvm.build(program(n, dtype), target="llvm")["add"](tvm.nd.array(x), tvm.nd.array(x), out)
        np.testing.assert_array_equal(out.numpy(), x + x)
