"""Functions that return a scalar to their caller."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.script import tir as T


@pytest.mark.parametrize(
    "dtype, values, want",
    [
        ("int8", (127, 127), 1),
        ("int64", (2**40, 3), 3 * 2**40),
        ("float32", (1.5, 2.0), 3.0),
        ("float64", (0.1, 3.0), 0.1 * 3.0),
        ("float16", (1.5, 2.0), 3.0),
    ],
)
def test_values_come_back(dtype, values, want):
    @T.prim_func
    def product(x: getattr(T, dtype), y: getattr(T, dtype)):
        T.ret(x * y)

    assert tvm.build(product, target="llvm")(*values) == want


def test_truth_values_and_symbolic_sizes():
    @T.prim_func
    def longer(a: T.handle, n: T.int32):
        m = T.int32()
        A = T.match_buffer(a, (m,), "float32")
        T.ret(m > n)

    run = tvm.build(longer, target="llvm")["longer"]
    assert run(np.zeros(5, "float32"), 4) is True
    assert run(np.zeros(5, "float32"), 5) is False


def test_a_return_in_a_branch_ends_the_function():
    @T.prim_func
    def first(A: T.Buffer((8,), "int32"), x: T.int32):
        for i in range(8):
            if A[i] == x:
                T.ret(i)
        T.ret(-1)

    run = tvm.build(first, target="llvm")["first"]
    a = np.array([3, 1, 4, 1, 5, 9, 2, 6], "int32")
    assert [run(a, x) for x in (4, 6, 7)] == [2, 7, -1]


def test_several_dtypes_are_refused():
    x = tir.Var("x", "int32")
    body = tir.SeqStmt([tir.Evaluate(tir.ret(x)), tir.Evaluate(tir.ret(tir.const(1.0)))])
    with pytest.raises(tvm.TVMError, match="TW0532"):
        tvm.build(tir.PrimFunc([x], body).with_attr("global_symbol", "f"), target="llvm")
