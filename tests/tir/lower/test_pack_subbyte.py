"""int4 and uint4: arrays of them, and programs that load, compute with and store them."""

import ml_dtypes
import numpy as np
import pytest

import tilewright as tvm
from tilewright.ir.node import walk
from tilewright.script import tir as T
from tilewright.tir.ir import For, ForKind
from tilewright.tir.lower import lower_kernel

DTYPES = {"int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4}
RNG = np.random.default_rng(4)


def sample(dtype, *shape):
    low, high = (-8, 8) if dtype == "int4" else (0, 16)
    return RNG.integers(low, high, shape).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (7,), (4, 6), (3, 5)])
def test_arrays(dtype, shape):
    a = sample(dtype, *shape)
    there = tvm.nd.array(a)
    assert str(there.dtype) == dtype
    np.testing.assert_array_equal(there.numpy().astype(int), a.astype(int))
    empty = tvm.nd.empty(shape, dtype)
    empty.copyfrom(a)
    np.testing.assert_array_equal(empty.numpy().astype(int), a.astype(int))
    empty[(0,) * len(shape)] = 3
    assert int(empty.numpy()[(0,) * len(shape)]) == 3
    assert "shape" in repr(empty)


@pytest.mark.parametrize("dtype", DTYPES)
def test_loads_widen(dtype):
    @T.prim_func
    def main(A: T.Buffer((5, 9), dtype), B: T.Buffer((5, 9), "float32")):
        for i, j in T.grid(5, 9):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.Cast("float32", A[vi, vj]) * 0.5

    sch = tvm.tir.Schedule(main)
    sch.vectorize(sch.get_loops(sch.get_block("B"))[1])
    a = sample(dtype, 5, 9)
    for mod in (main, sch.mod):
        out = tvm.nd.empty((5, 9), "float32")
        tvm.build(mod, "llvm")["main"](tvm.nd.array(a), out)
        np.testing.assert_array_equal(out.numpy(), a.astype("float32") * 0.5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [6, 7])
@pytest.mark.parametrize("kind", ["serial", "parallel", "vectorize"])
def test_arithmetic_wraps_and_stores_keep_their_neighbours(dtype, columns, kind):
    @T.prim_func
    def main(A: T.Buffer((4, columns), dtype), B: T.Buffer((4, columns), dtype), C: T.Buffer((4, columns), dtype)):
        for i, j in T.grid(4, columns):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * B[vi, vj] + A[vi, vj]

    sch = tvm.tir.Schedule(main)
    i, j = sch.get_loops(sch.get_block("C"))
    if kind == "parallel":
        sch.parallel(i)
    if kind == "vectorize":
        sch.vectorize(j)
    a, b = sample(dtype, 4, columns), sample(dtype, 4, columns)
    out = tvm.nd.empty((4, columns), dtype)
    tvm.build(sch.mod, "llvm")["main"](tvm.nd.array(a), tvm.nd.array(b), out)
    exact = a.astype(int) * b.astype(int) + a.astype(int)
    want = (exact & 15) - ((exact & 8) << 1) if dtype == "int4" else exact & 15
    np.testing.assert_array_equal(out.numpy().astype(int), want)
    # rows of an odd length share a byte: they must not be written by two threads
    kinds = {n.kind for n in walk(lower_kernel(sch.mod["main"]).body) if isinstance(n, For)}
    assert (ForKind.PARALLEL in kinds) == (kind == "parallel" and columns == 6)


def test_a_store_of_several_elements_at_once_is_refused():
    @T.prim_func
    def main(A: T.Buffer((8,), "int4")):
        A[0:8] = T.Broadcast(T.Cast("int4", 1), 8)

    with pytest.raises(tvm.TVMError, match="TW0531"):
        lower_kernel(main)
