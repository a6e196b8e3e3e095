"""What programs of script mean: run by the interpreter and natively, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright.script import from_source
from tilewright.script import tir as T
from tilewright.tir.interp import interpret as run


@T.prim_func
def rounding(A: T.Buffer((16,), "int32"), B: T.Buffer((4, 16), "int32")):
    for i in range(16):
        B[0, i] = T.ceildiv(A[i], 4)
        B[1, i] = T.truncdiv(A[i], 3)
        B[2, i] = T.truncmod(A[i], 3)
        B[3, i] = -A[i] if A[i] % 2 == 0 else A[i] << 1


@T.prim_func
def whole_matrix(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
    total = T.alloc_buffer((4,), "float32")
    for i, k in T.grid(4, 8):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
            total[vi] += A[vi, vk]
    for i in range(4):
        B[i, 0:8] = A[i, 0:8] / T.broadcast(total[i], 8)


@T.prim_func
def bounded(A: T.Buffer((10,), "int32"), n: T.int32):
    i = T.alloc_buffer((1,), "int32")
    i[0] = 0
    while i[0] < n and A[i[0]] > 0:
        with T.If(A[i[0]] > 4):
            with T.Then():
                A[i[0]] = 4
            with T.Else():
                A[i[0]] = A[i[0]] * 10
        i[0] += 1


def expected_rounding(a, b):
    b[0] = -(-a // 4)
    b[1] = np.trunc(a / 3)
    b[2] = np.fmod(a, 3)
    b[3] = np.where(a % 2 == 0, -a, a << 1)


def both(f, *args):
    """The arguments after a run by the interpreter and after a native one."""
    slow = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    run(f, *slow)
    built = tvm.build(tvm.IRModule({"f": f.with_attr("global_symbol", "f")}), target="llvm")
    fast = [tvm.nd.array(a) if isinstance(a, np.ndarray) else a for a in args]
    built["f"](*fast)
    return slow, [a.numpy() if not isinstance(a, int) else a for a in fast]


def test_integers_round_as_they_say() -> None:
    a, b = np.arange(-8, 8, dtype="int32"), np.zeros((4, 16), "int32")
    want = b.copy()
    expected_rounding(a, want)
    for got in both(rounding, a, b):
        np.testing.assert_array_equal(got[1], want)


def test_blocks_and_vectors() -> None:
    a = np.random.default_rng(0).uniform(1, 2, (4, 8)).astype("float32")
    for got in both(whole_matrix, a, np.zeros_like(a)):
        np.testing.assert_allclose(got[1], a / a.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("n", [0, 3, 10])
def test_while_and_frames(n: int) -> None:
    a = np.array([1, 5, 2, 9, 0, 7, 7, 7, 7, 7], "int32")
    want = a.copy()
    want[: min(n, 4)] = np.where(a > 4, 4, a * 10)[: min(n, 4)]
    for got in both(bounded, a, n):
        np.testing.assert_array_equal(got[0], want)


def test_the_text_means_the_same() -> None:
    """Parsed back, also without sugar, the program computes the same."""
    a = np.random.default_rng(0).uniform(1, 2, (4, 8)).astype("float32")
    for options in ({}, {"syntax_sugar": False}, {"show_object_address": True, "indent_spaces": 2}):
        b = np.zeros_like(a)
        run(from_source(whole_matrix.script(**options)), a.copy(), b)
        np.testing.assert_allclose(b, a / a.sum(1, keepdims=True), rtol=1e-5)
