"""decompose_padding and pad_einsum: structure, meaning, and what they refuse."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tests.tir.schedule.meaning import equal, only, refused, same
from tilewright.script import tir as T
from tilewright.tir.schedule import Schedule


@T.prim_func
def shifted(X: T.Buffer((16,), "int32"), Y: T.Buffer((22,), "int32")):
    for i in range(22):
        with T.block("Y"):
            vi = T.axis.spatial(22, i)
            Y[vi] = T.if_then_else(vi >= 4 and vi < 20, X[vi - 4], 7)


@T.prim_func
def shifted_apart(X: T.Buffer((16,), "int32"), Y: T.Buffer((22,), "int32")):
    for i in range(22):
        with T.block("Y_pad_const"):
            vi = T.axis.spatial(22, i)
            Y[vi] = 7
    for i in range(16):
        with T.block("Y"):
            vi = T.axis.spatial(16, i)
            Y[vi + 4] = X[vi]


def test_one_dimension():
    sch = Schedule(shifted)
    block = sch.get_block("Y")
    (loop,) = sch.get_loops(block)
    assert sch.can_decompose_padding(block, loop)
    fill = sch.decompose_padding(block, loop)
    equal(sch, shifted_apart)
    same(shifted, sch, native=True)
    assert sch.get(fill).name_hint == "Y_pad_const"
    assert not sch.can_decompose_padding(block, sch.get_loops(block)[0])


@T.prim_func
def pooled(X: T.Buffer((2, 9, 9), "int32"), Y: T.Buffer((2, 9, 9), "int32")):
    P = T.alloc_buffer((2, 11, 11), "int32")
    for c, i, j in T.grid(2, 11, 11):
        with T.block("P"):
            vc, vi, vj = T.axis.remap("SSS", [c, i, j])
            P[vc, vi, vj] = T.if_then_else(1 <= vi and vi < 10 and 1 <= vj and vj < 10, X[vc, vi - 1, vj - 1], 0)  # noqa: SIM300
    for c, i, j, a, b in T.grid(2, 9, 9, 3, 3):
        with T.block("Y"):
            vc, vi, vj, va, vb = T.axis.remap("SSSRR", [c, i, j, a, b])
            with T.init():
                Y[vc, vi, vj] = 0
            Y[vc, vi, vj] = Y[vc, vi, vj] + P[vc, vi + va, vj + vb]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_at_each_loop(at):
    sch = Schedule(pooled)
    block = sch.get_block("P")
    sch.decompose_padding(block, sch.get_loops(block)[at])
    same(pooled, sch)


@pytest.mark.parametrize("factor", [3, 4])
@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
def test_in_tiles(factor, at):
    sch = Schedule(pooled)
    block, pad = sch.get_block("Y"), sch.get_block("P")
    c, i, j, a, b = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, factor])
    j0, j1 = sch.split(j, [None, factor])
    sch.reorder(i0, j0, c, i1, j1, a, b)
    sch.compute_at(pad, j0)
    sch.decompose_padding(pad, sch.get_loops(pad)[at])
    assert "T.where" in only(sch).script()
    same(pooled, sch)


def test_fused_and_vectorized_loops():
    sch = Schedule(shifted)
    block = sch.get_block("Y")
    (i,) = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 8])
    sch.vectorize(i1)
    sch.decompose_padding(block, i0)
    same(shifted, sch, native=True)


def changed(f, old, new):
    text = f.script()
    assert old in text
    return tvm.script.from_source(text.replace(old, new))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("X[vi - 4], 7", "X[vi - 4], X[0]", "is no constant"),
        ("vi >= 4 and vi < 20", "vi % 2 == 0", "in a range of its own"),
        ("vi >= 4 and vi < 20", "vi >= 0 and vi < 22", "always holds"),
        ("T.if_then_else(vi >= 4 and vi < 20, X[vi - 4], 7)", "X[vi - vi]", "does not store if_then_else"),
    ],
)
def test_decompose_padding_refuses(old, new, message):
    sch = Schedule(changed(shifted, old, new))
    block = sch.get_block("Y")
    (loop,) = sch.get_loops(block)
    refused("TW0489", message, lambda: sch.decompose_padding(block, loop))
    assert not sch.can_decompose_padding(block, loop)


def test_decompose_padding_refuses_loops_elsewhere():
    sch = Schedule(pooled)
    loop = sch.get_loops(sch.get_block("Y"))[0]
    refused("TW0489", "is not around", lambda: sch.decompose_padding(sch.get_block("P"), loop))
    refused("TW0489", "is not one store", lambda: sch.decompose_padding(sch.get_block("Y"), loop))


# ---- pad_einsum ----


@T.prim_func
def product(A: T.Buffer((8, 10), "float32"), B: T.Buffer((10, 6), "float32"), C: T.Buffer((8, 6), "float32")):
    for i, j, k in T.grid(8, 6, 10):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def product_padded(A: T.Buffer((8, 10), "float32"), B: T.Buffer((10, 6), "float32"), C: T.Buffer((8, 6), "float32")):
    A_pad = T.alloc_buffer((8, 12))
    B_pad = T.alloc_buffer((12, 8))
    C_pad = T.alloc_buffer((8, 8))
    for i0, i1 in T.grid(8, 12):
        with T.block("A_pad"):
            v0, v1 = T.axis.remap("SS", [i0, i1])
            A_pad[v0, v1] = T.if_then_else(v1 < 10, A[v0, v1], T.float32(0))
    for i0, i1 in T.grid(12, 8):
        with T.block("B_pad"):
            v0, v1 = T.axis.remap("SS", [i0, i1])
            B_pad[v0, v1] = T.if_then_else(v0 < 10 and v1 < 6, B[v0, v1], T.float32(0))
    for i, j, k in T.grid(8, 8, 12):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C_pad[vi, vj] = T.float32(0)
            C_pad[vi, vj] = C_pad[vi, vj] + A_pad[vi, vk] * B_pad[vk, vj]
    for i0, i1 in T.grid(8, 6):
        with T.block("C_pad"):
            v0, v1 = T.axis.remap("SS", [i0, i1])
            C[v0, v1] = C_pad[v0, v1]


def test_of_a_product():
    sch = Schedule(product)
    sch.pad_einsum(sch.get_block("C"), [4, 4, 4])
    equal(sch, product_padded)
    same(product, sch, native=True)


@pytest.mark.parametrize("padding", [[None, 4, 1], [1, 1, 16], [16, 16, 16], [2, 2, 2], [1, None, 3]])
def test_of_some_iterators(padding):
    sch = Schedule(product)
    sch.pad_einsum("C", padding)
    same(product, sch)


def test_of_symbolic_rows():
    @T.prim_func
    def f(a: T.handle, r: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (1, n, 6))
        R = T.match_buffer(r, (1, n))
        S = T.alloc_buffer((1, n))
        for b, i, k in T.grid(1, n, 6):
            with T.block("S"):
                vb, vi, vk = T.axis.remap("SSR", [b, i, k])
                with T.init():
                    S[vb, vi] = T.float32(0)
                S[vb, vi] = S[vb, vi] + A[vb, vi, vk] * A[vb, vi, vk]
        for b, i in T.grid(1, n):
            with T.block("R"):
                vb, vi = T.axis.remap("SS", [b, i])
                R[vb, vi] = S[vb, vi] + T.float32(1)

    for padding in ([1, 32, 1], [1, 32, 4]):
        sch = Schedule(f)
        sch.pad_einsum("S", padding)
        assert "(n + 31) // 32 * 32" in only(sch).script()
        same(f, sch, {"n": 5})


def test_pad_einsum_refuses():
    def attempt(f, padding, message, block="C"):
        sch = Schedule(f)
        refused("TW0494", message, lambda: sch.pad_einsum(block, padding))

    attempt(product, [4, 4], "has 3 iterators, 2 paddings")
    attempt(product, [0, 4, 4], "at least 1, not 0")
    attempt(
        changed(product, "A[vi, vk] * B[vk, vj]", "T.exp(B[vk, vj])"), [1, 1, 4], "is not zero where the iterator 'vk'"
    )
    largest = changed(product, "T.float32(0.0)", 'T.min_value("float32")')
    largest = changed(largest, "C[vi, vj] + A[vi, vk] * B[vk, vj]", "T.max(C[vi, vj], A[vi, vk] * B[vk, vj])")
    attempt(largest, [1, 1, 4], "its reduction is max")
    attempt(changed(product, "B[vk, vj]", "B[vk, 5 - vj]"), [1, 4, 1], "which is no iterator")
    sch = Schedule(product)
    sch.split(sch.get_loops(sch.get_block("C"))[0], [2, 4])
    refused("TW0494", "is not a loop of its own", lambda: sch.pad_einsum("C", [4, 4, 4]))
    sch = Schedule(product)
    sch.decompose_reduction(sch.get_block("C"), sch.get_loops(sch.get_block("C"))[0])
    refused("TW0494", "pad before decompose_reduction", lambda: sch.pad_einsum("C_update", [4, 4, 4]))
    refused("TW0494", "which it writes", lambda: sch.pad_einsum("C_update", [16, 1, 1]))
