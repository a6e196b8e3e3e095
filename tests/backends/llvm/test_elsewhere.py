"""Kernels for other processors, run for real: AArch64 (NEON, SVE), RISC-V (scalar, V), WebAssembly."""

import ml_dtypes
import numpy as np
import pytest

import tilewright as tvm
from tests.backends.llvm.elsewhere import ARCHES, missing, run_elsewhere
from tilewright.backends.llvm.schedules import schedule_kernel
from tilewright.backends.llvm.testing import run_kernel
from tilewright.ir import dtype as dt
from tilewright.ir.node import walk
from tilewright.script import tir as T
from tilewright.tir.lower import lower_kernel

RNG = np.random.default_rng(7)


def floats(*shape, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape).astype("float32")


@T.prim_func
def matmul(A: T.Buffer((24, 40), "float32"), B: T.Buffer((40, 32), "float32"), C: T.Buffer((24, 32), "float32")):
    T.func_attr({"global_symbol": "matmul", "tir.noalias": True})
    for i, j, k in T.grid(24, 32, 40):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def softmax(A: T.Buffer((9, 77), "float32"), B: T.Buffer((9, 77), "float32")):
    T.func_attr({"global_symbol": "softmax", "tir.noalias": True})
    m = T.alloc_buffer((9,))
    e = T.alloc_buffer((9, 77))
    s = T.alloc_buffer((9,))
    for i, k in T.grid(9, 77):
        with T.block("m"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                m[vi] = T.min_value("float32")
            m[vi] = T.max(m[vi], A[vi, vk])
    for i, j in T.grid(9, 77):
        with T.block("e"):
            vi, vj = T.axis.remap("SS", [i, j])
            e[vi, vj] = T.exp(A[vi, vj] - m[vi])
    for i, k in T.grid(9, 77):
        with T.block("s"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                s[vi] = T.float32(0)
            s[vi] = s[vi] + e[vi, vk]
    for i, j in T.grid(9, 77):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = e[vi, vj] / s[vi]


@T.prim_func
def convolution(
    X: T.Buffer((1, 9, 9, 8), "float32"), W: T.Buffer((3, 3, 8, 16), "float32"), Y: T.Buffer((1, 7, 7, 16), "float32")
):
    T.func_attr({"global_symbol": "convolution", "tir.noalias": True})
    for n, y, x, o, dy, dx, i in T.grid(1, 7, 7, 16, 3, 3, 8):
        with T.block("Y"):
            vn, vy, vx, vo = T.axis.remap("SSSS", [n, y, x, o])
            vdy, vdx, vi = T.axis.remap("RRR", [dy, dx, i])
            with T.init():
                Y[vn, vy, vx, vo] = T.float32(0)
            Y[vn, vy, vx, vo] = Y[vn, vy, vx, vo] + X[vn, vy + vdy, vx + vdx, vi] * W[vdy, vdx, vi, vo]


def elementwise(n, source, target, f):
    @T.prim_func
    def kernel(A: T.Buffer((n,), source), B: T.Buffer((n,), target)):
        T.func_attr({"global_symbol": "kernel", "tir.noalias": True})
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = f(A[vi])

    return kernel


def bits(dtype, n=301):
    raw = RNG.integers(0, 1 << 8 * np.dtype(dtype).itemsize, n)
    return raw.astype(f"uint{8 * np.dtype(dtype).itemsize}").view(dtype)


CASES = {
    "matmul": (matmul, [floats(24, 40), floats(40, 32), np.zeros((24, 32), "float32")]),
    "softmax": (softmax, [floats(9, 77, low=-9, high=9), np.zeros((9, 77), "float32")]),
    "convolution": (
        convolution,
        [floats(1, 9, 9, 8), floats(3, 3, 8, 16), np.zeros((1, 7, 7, 16), "float32")],
    ),
    "tanh": (elementwise(203, "float32", "float32", T.tanh), [floats(203), np.zeros(203, "float32")]),
    "erf": (elementwise(131, "float32", "float32", T.erf), [floats(131), np.zeros(131, "float32")]),
    "sin64": (elementwise(37, "float64", "float64", T.sqrt), [floats(37, low=0).astype("float64"), np.zeros(37)]),
    "floordiv": (
        elementwise(99, "int32", "int32", lambda x: T.floordiv(x, 7) + T.floormod(x, 5)),
        [RNG.integers(-1000, 1000, 99).astype("int32"), np.zeros(99, "int32")],
    ),
    "widen": (
        elementwise(99, "int8", "int32", lambda x: T.Cast("int32", x) * 3),
        [RNG.integers(-128, 128, 99).astype("int8"), np.zeros(99, "int32")],
    ),
    "popcount": (
        elementwise(65, "uint32", "uint32", lambda x: T.popcount(x)),
        [RNG.integers(0, 1 << 32, 65).astype("uint32"), np.zeros(65, "uint32")],
    ),
    "from half": (
        elementwise(301, "float16", "float32", lambda x: T.Cast("float32", x)),
        [bits("float16"), np.zeros(301, "float32")],
    ),
    "to half": (
        elementwise(301, "float32", "float16", lambda x: T.Cast("float16", x)),
        [floats(301, low=-1e5, high=1e5), np.zeros(301, "float16")],
    ),
    "to bfloat16": (
        elementwise(301, "float32", "bfloat16", lambda x: T.Cast("bfloat16", x)),
        [floats(301, low=-1e5, high=1e5), np.zeros(301, ml_dtypes.bfloat16)],
    ),
    "to float8": (
        elementwise(301, "float32", "float8_e4m3fn", lambda x: T.Cast("float8_e4m3fn", x)),
        [floats(301, low=-500, high=500), np.zeros(301, ml_dtypes.float8_e4m3fn)],
    ),
}


@pytest.mark.parametrize("arch", list(ARCHES))
@pytest.mark.parametrize("name", list(CASES))
def test_same_result_as_here(arch, name):
    if reason := missing(arch):
        pytest.skip(reason)
    func, arrays = CASES[name]
    target = ARCHES[arch].target
    flat = lower_kernel(schedule_kernel(func, target), target).with_attr("global_symbol", "kernel")
    got = run_elsewhere(flat, arch, *arrays)
    want = [a.copy() for a in arrays]
    run_kernel(lower_kernel(func).with_attr("global_symbol", "kernel"), *[w.view(f"u{w.itemsize}") for w in want])
    for g, w in zip(got, want, strict=True):
        exact = np.array_equal(g.view(f"u{g.itemsize}"), w.view(f"u{w.itemsize}"))
        if not exact and g.dtype.kind == "f":
            np.testing.assert_allclose(g.astype("float64"), w.astype("float64"), rtol=2e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(g.astype("float64"), w.astype("float64"))


@pytest.mark.parametrize("arch", list(ARCHES))
def test_parallel_loops_and_workspaces(arch):
    if reason := missing(arch):
        pytest.skip(reason)

    @T.prim_func
    def twice(A: T.Buffer((8, 4096), "float32"), B: T.Buffer((8, 4096), "float32")):
        T.func_attr({"global_symbol": "twice"})
        for i in T.parallel(8):
            with T.block("rows"):
                vi = T.axis.spatial(8, i)
                T.reads(A[vi, 0:4096])
                T.writes(B[vi, 0:4096])
                t = T.alloc_buffer((4096,))
                for j in range(4096):
                    with T.block("t"):
                        vj = T.axis.spatial(4096, j)
                        t[vj] = A[vi, vj] * 2.0
                for j in T.vectorized(4096):
                    with T.block("B"):
                        vj = T.axis.spatial(4096, j)
                        B[vi, vj] = t[vj] + 1.0

    a = floats(8, 4096)
    flat = lower_kernel(twice).with_attr("global_symbol", "twice")
    np.testing.assert_array_equal(run_elsewhere(flat, arch, a, np.zeros_like(a))[1], a * 2 + 1)


@pytest.mark.parametrize(
    "target", [a.target for a in ARCHES.values()] + ["llvm -mtriple=hexagon-unknown-elf -mcpu=hexagonv68"], ids=str
)
def test_modules_of_other_machines_can_be_looked_at_and_exported(target, tmp_path):
    built = tvm.build(CASES["tanh"][0], target=target)
    assert "kernel" in built.get_source("asm")
    built.export_library(tmp_path / "kernel.s")
    built.export_library(tmp_path / "kernel.o")
    assert (tmp_path / "kernel.o").stat().st_size > 500
    with pytest.raises(tvm.TVMError, match="TW0704"):
        built["kernel"](np.zeros(203, "float32"), np.zeros(203, "float32"))


def test_shared_library_for_another_processor(tmp_path):
    if reason := missing("aarch64"):
        pytest.skip(reason)
    tvm.build(CASES["tanh"][0], target=ARCHES["aarch64"].target).export_library(tmp_path / "kernel.so")
    assert (tmp_path / "kernel.so").read_bytes()[:4] == b"\x7fELF"
    with pytest.raises(tvm.TVMError, match="TW0704"):
        tvm.runtime.load_module(tmp_path / "kernel.so")


VSCALE = tvm.tir.Call("int32", tvm.ir.Op.get("tir.vscale"), ())


def scalable(n, k):
    """A fused chain over vectors whose length the machine decides, with a tail under a mask."""

    @T.prim_func
    def main(A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "float32"), C: T.Buffer((n,), "float32")):
        T.func_attr({"tir.noalias": True})
        for i in range((n + k * VSCALE - 1) // (k * VSCALE)):
            for j in T.vectorized(k * VSCALE):
                if i * (k * VSCALE) + j < n:
                    C[i * (k * VSCALE) + j] = T.exp(A[i * (k * VSCALE) + j]) * B[
                        n - 1 - (i * (k * VSCALE) + j)
                    ] + T.Cast("float32", j - j)

    return main


@pytest.mark.parametrize("arch", ["sve", "rvv"])
@pytest.mark.parametrize("n, k", [(256, 4), (203, 4), (77, 2), (5, 8)])
def test_vectors_whose_length_the_machine_decides(arch, n, k):
    if reason := missing(arch):
        pytest.skip(reason)
    flat = lower_kernel(scalable(n, k)).with_attr("global_symbol", "kernel")
    assert any(dt.lanes(n.dtype) < 0 for n in walk(flat.body) if isinstance(n, tvm.tir.PrimExpr))
    a, b = floats(n), floats(n)
    got = run_elsewhere(flat, arch, a, b, np.zeros_like(a))[2]
    np.testing.assert_allclose(got, np.exp(a) * b[::-1], rtol=1e-5)


def test_no_such_vectors_here():
    with pytest.raises(tvm.TVMError, match=r"TW0602.*vscale"):
        tvm.build(scalable(64, 4), target="llvm -mtriple=x86_64-linux-gnu")
