"""transform_layout and transform_block_layout: structure, meaning, padding, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tests.tir.schedule.meaning import data, equal, only, refused, results, same
from tilewright.script import tir as T
from tilewright.tir import IndexMap
from tilewright.tir.schedule import Schedule


@T.prim_func
def two(A: T.Buffer((8, 12), "float32"), C: T.Buffer((8, 12), "float32")):
    B = T.alloc_buffer((8, 12))
    for i, j in T.grid(8, 12):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(8, 12):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)


@T.prim_func
def two_packed(A: T.Buffer((8, 12), "float32"), C: T.Buffer((8, 12), "float32")):
    B = T.alloc_buffer((2, 3, 4, 4))
    for i, j in T.grid(8, 12):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi // 4, vj // 4, vi % 4, vj % 4] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(8, 12):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi // 4, vj // 4, vi % 4, vj % 4] + T.float32(1)


def packed(m, n):
    return m // 4, n // 4, m % 4, n % 4


@pytest.mark.parametrize("buffer", [("write", 0), "B", None])
def test_of_a_buffer_in_between(buffer):
    sch = Schedule(two)
    block = sch.get_block("B")
    sch.transform_layout(block, buffer or sch.get(block).writes[0].buffer, packed)
    equal(sch, two_packed)
    same(two, sch, native=True)


def test_of_a_parameter():
    sch = Schedule(two)
    sch.transform_layout("B", ("read", 0), packed)
    sch.transform_layout(block="C", buffer="C", index_map=lambda i, j: (j, i))
    f = only(sch)
    assert [[int(n) for n in b.shape] for b in f.param_buffers] == [[2, 3, 4, 4], [12, 8]]
    a, c = data(two)
    want = results(two, [a, c])[1]
    blocked = a.reshape(2, 4, 3, 4).transpose(0, 2, 1, 3).copy()
    got = results(f, [blocked, c.T.copy()])[1]
    assert np.array_equal(got, want.T)


MAPS = [
    lambda i, j: (j, i),
    lambda i, j: i * 12 + j,
    lambda i, j: (j // 4, i, j % 4),
    lambda *i: (*i[:-1], i[-1] // 6, i[-1] % 6),
    lambda i, *, j: (j, i // 2, i % 2),
    lambda i, j: (j // 2, IndexMap.AXIS_SEPARATOR, i, j % 2),
]


@pytest.mark.parametrize("f", MAPS)
@pytest.mark.parametrize("tiled", [False, True])
def test_maps(f, tiled):
    sch = Schedule(two)
    if tiled:
        i, j = sch.get_loops(sch.get_block("B"))
        sch.split(i, [None, 3])
        sch.reverse_compute_at(sch.get_block("C"), sch.get_loops(sch.get_block("B"))[0])
    sch.transform_layout("B", "B", f)
    same(two, sch, native=True)


def test_separators():
    sch = Schedule(two)
    sch.transform_layout("B", "B", MAPS[-1])
    assert sch.get(sch.get_block("B")).writes[0].buffer.axis_separators == (1,)
    assert "AXIS_SEPARATOR" in str(sch.trace)


def rows(n: int = 14, dtype: str = "int32", index: str = "int32"):
    size = tvm.tir.const(n, index)

    @T.prim_func
    def copy(A: T.Buffer((size,), dtype), C: T.Buffer((size,), dtype)):
        B = T.alloc_buffer((size,), dtype)
        for i in range(size):
            with T.block("B"):
                vi = T.axis.spatial(size, i)
                B[vi] = A[vi]
        for i in range(size):
            with T.block("C"):
                vi = T.axis.spatial(size, i)
                C[vi] = B[vi] + T.Cast(dtype, 1)

    return copy


@T.prim_func
def rows_padded(A: T.Buffer((14,), "int32"), C: T.Buffer((14,), "int32")):
    B = T.alloc_buffer((4, 4), "int32")
    for a, b in T.grid(4, 4):
        with T.block("B"):
            va, vb = T.axis.remap("SS", [a, b])
            T.reads(A[va * 4 + vb])
            T.writes(B[va, vb])
            B[va, vb] = T.if_then_else(va == 3 and 2 <= vb, 5, A[va * 4 + vb])  # noqa: SIM300
    for i in range(14):
        with T.block("C"):
            vi = T.axis.spatial(14, i)
            C[vi] = B[vi // 4, vi % 4] + T.Cast("int32", 1)


def in_fours(i):
    return i // 4, i % 4


def test_padding_by_the_loops_that_fill_the_buffer():
    sch = Schedule(rows())
    sch.transform_layout("B", "B", in_fours, pad_value=5)
    equal(sch, rows_padded)
    same(rows(), sch, native=True)


@pytest.mark.parametrize("dtype, index", [("int8", "int32"), ("float32", "int64"), ("int32", "int64")])
@pytest.mark.parametrize("f", [in_fours, lambda i: ((i + 1) // 4, (i + 1) % 4), lambda i: (i // 8, i // 4 % 2, i % 4)])
def test_padding_of_other_types(dtype, index, f):
    before = rows(13, dtype, index)
    value = 5.0 if dtype == "float32" else 5
    for place in ("B", "C"):
        sch = Schedule(before)
        sch.transform_layout(place, place, f, pad_value=value)
        if place == "B":
            same(before, sch)
            continue
        out = only(sch).param_buffers[1]
        a = data(before)[0]
        got = results(only(sch), [a, np.zeros([int(n) for n in out.shape], dtype)])[1].reshape(-1)
        assert sorted(got) == sorted([*(a + np.ones(13, dtype)), *[value] * (got.size - 13)])


def test_padding_that_depends_on_the_index():
    sch = Schedule(rows())
    sch.transform_layout("C", "C", in_fours, pad_value=lambda i, j: i * 10 + j)
    a = data(rows())[0]
    got = results(only(sch), [a, np.zeros((4, 4), "int32")])[1].reshape(-1)
    assert list(got) == [*(a + 1), 32, 33]


def test_padding_of_a_reduction_and_of_opaque_stores():
    @T.prim_func
    def sums(A: T.Buffer((6, 14), "int32"), C: T.Buffer((14,), "int32")):
        for k, i in T.grid(6, 14):
            with T.block("C"):
                vk, vi = T.axis.remap("RS", [k, i])
                with T.init():
                    C[vi] = 0
                C[vi] = C[vi] + A[vk, vi]

    @T.prim_func
    def opaque(A: T.Buffer((6, 14), "int32"), C: T.Buffer((14,), "int32")):
        for i in range(14):
            C[i] = 0
            for k in range(6):
                with T.block("C"):
                    C[i] = C[i] + A[k, i]

    for f in (sums, opaque):
        sch = Schedule(f)
        sch.transform_layout("C", "C", in_fours, pad_value=-1)
        a = data(f)[0]
        got = results(only(sch), [a, np.zeros((4, 4), "int32")])[1].reshape(-1)
        assert list(got) == [*a.sum(0), -1, -1]
        assert only(sch).script().count("T.grid") == 1


def test_padding_set_afterwards():
    @T.prim_func
    def both(A: T.Buffer((14,), "int32"), B: T.Buffer((14,), "int32"), C: T.Buffer((14,), "int32")):
        for i in range(14):
            with T.block("both"):
                vi = T.axis.spatial(14, i)
                B[vi] = A[vi]
                C[vi] = A[vi] * 2

    @T.prim_func
    def one(A: T.Buffer((14,), "int32"), B: T.Buffer((14,), "int32"), C: T.Buffer((14,), "int32")):
        with T.block("root"):
            T.reads()
            T.writes()
            with T.block("both"):
                B[0] = A[0] + C[0]

    for f in (both, one):
        sch = Schedule(f)
        sch.transform_layout("both", "B", in_fours, pad_value=7)
        assert sch.get(sch.get_block("buffer_B_padding"))
        a, b, c = data(f)
        got = results(only(sch), [a, np.zeros((4, 4), "int32"), c.copy()])
        assert list(got[1].reshape(-1)[14:]) == [7, 7]
        assert got[1][0, 0] == results(f, [a, b, c.copy()])[1][0]


def test_padding_of_split_or_parallel_loops_is_set_afterwards():
    for change in (lambda s, i: s.split(i, [2, 7]), lambda s, i: s.parallel(i)):
        sch = Schedule(rows())
        change(sch, sch.get_loops(sch.get_block("B"))[0])
        sch.transform_layout("B", "B", in_fours, pad_value=0)
        assert sch.get(sch.get_block("buffer_B_padding"))
        same(rows(), sch)


def test_padding_of_an_input_is_assumed():
    sch = Schedule(rows())
    sch.transform_layout("B", "A", in_fours, pad_value=7)
    assert "T.assume(not (v_axis0 == 3 and 2 <= v_axis1) or A[v_axis0, v_axis1] == 7)" in only(sch).script()
    a, c = data(rows())
    full = np.full(16, 7, "int32")
    full[:14] = a
    assert np.array_equal(results(only(sch), [full.reshape(4, 4), c])[1], a + 1)


def test_padding_left_unset():
    sch = Schedule(rows())
    sch.transform_layout("B", "B", in_fours, assume_injective_transform=True)
    assert "T.grid" not in only(sch).script()
    same(rows(), sch)


@pytest.mark.parametrize("n", [3, 4, 5, 16])
def test_padding_of_symbolic_block_sizes(n):
    @T.prim_func
    def f(A: T.Buffer((16,), "int32"), n: T.int32, C: T.Buffer((16,), "int32")):
        B = T.alloc_buffer((16,), "int32")
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi]
        for i in range(16):
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                C[vi] = B[vi] * 3

    sch = Schedule(f)
    size = only(sch).params[1]
    sch.transform_layout("B", "B", lambda i: (i // size, i % size), pad_value=0)
    same(f, sch, {"n": n})


def test_symbolic_shapes():
    @T.prim_func
    def f(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (T.int64(1), T.int64(4), n))
        C = T.match_buffer(c, (T.int64(1), T.int64(4), n))
        for x, y, z in T.grid(T.int64(1), T.int64(4), n):
            with T.block("C"):
                vx, vy, vz = T.axis.remap("SSS", [x, y, z])
                C[vx, vy, vz] = A[vx, vy, vz] + T.float32(1)

    sch = Schedule(f)
    n = only(sch).param_buffers[0].shape[2]
    sch.transform_layout("C", "C", lambda x, y, z: x * 4 * n + y * n + z, assume_injective_transform=True)
    sch.transform_block_layout("C", lambda x, y, z: (x * 4 * n + y * n + z,))
    text = only(sch).script()
    assert "C[v0] = A[T.int64(0), v0 // n, v0 % n]" in text
    a = np.arange(20, dtype="float32").reshape(1, 4, 5)
    got = results(only(sch), [a, np.zeros(20, "float32")])[1]
    assert np.array_equal(got, a.reshape(-1) + 1)


def test_layout_refuses():
    sch = Schedule(rows())
    message = refused("TW0484", "leaves padding in B", lambda: sch.transform_layout("B", "B", in_fours))
    assert "give pad_value" in message
    refused("TW0484", "has no inverse", lambda: sch.transform_layout("B", "B", lambda i: (i // 2,)))
    refused(
        "TW0483",
        "is of type int8",
        lambda: sch.transform_layout("B", "B", in_fours, pad_value=tvm.tir.IntImm("int8", 0)),
    )
    refused("TW0483", "does not fit", lambda: sch.transform_layout("B", "B", in_fours, pad_value=1.5))
    other = tvm.tir.decl_buffer((1,), "int32", "other")
    refused(
        "TW0483", "what other holds", lambda: sch.transform_layout("B", "B", in_fours, pad_value=lambda i, j: other[0])
    )
    message = refused("TW0482", "no buffer 'Q'", lambda: sch.transform_layout("B", "Q", in_fours))
    assert "('write', 0) = B" in message
    refused("TW0482", "no buffer ('write', 3)", lambda: sch.transform_layout("B", ("write", 3), in_fours))
    floats = Schedule(rows(dtype="float32"))
    refused("TW0483", "write 0.0", lambda: floats.transform_layout("B", "B", in_fours, pad_value=0))


def test_layout_refuses_views():
    @T.prim_func
    def viewed(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                T.reads(A[vi, 0:8])
                T.writes(C[vi, 0:8])
                row = T.match_buffer(A[vi, 0:8], (8,))
                for j in range(8):
                    with T.block("row"):
                        vj = T.axis.spatial(8, j)
                        C[vi, vj] = row[vj]

    sch = Schedule(viewed)
    refused("TW0485", "row is a view", lambda: sch.transform_layout("C", "A", lambda i, j: (j, i)))
    refused("TW0485", "is a view of another buffer", lambda: sch.transform_layout("row", "row", lambda i: i))


# ---- blocks ----


@T.prim_func
def two_fused(A: T.Buffer((8, 12), "float32"), C: T.Buffer((8, 12), "float32")):
    B = T.alloc_buffer((8, 12))
    for x in range(96):
        with T.block("B"):
            v = T.axis.spatial(96, x)
            B[v // 12, v % 12] = A[v // 12, v % 12] * T.float32(2)
    for i, j in T.grid(8, 12):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)


def test_block_layout():
    sch = Schedule(two)
    sch.transform_block_layout("B", lambda i, j: (i * 12 + j,))
    equal(sch, two_fused)
    same(two, sch, native=True)


@pytest.mark.parametrize("f", [lambda i, j: (j, i), lambda i, j: (i // 2, j // 3, i % 2, j % 3), lambda *v: v])
def test_block_layouts(f):
    sch = Schedule(two)
    sch.transform_block_layout(sch.get_block("C"), f)
    same(two, sch)


def test_block_layout_of_a_convolution():
    @T.prim_func
    def conv(X: T.Buffer((1, 6, 6, 3), "float32"), W: T.Buffer((3, 3, 3, 4), "float32"),
             Y: T.Buffer((1, 4, 4, 4), "float32")):  # fmt: skip
        for n, h, w, co, rh, rw, rc in T.grid(1, 4, 4, 4, 3, 3, 3):
            with T.block("Y"):
                vn, vh, vw, vco, vrh, vrw, vrc = T.axis.remap("SSSSRRR", [n, h, w, co, rh, rw, rc])
                with T.init():
                    Y[vn, vh, vw, vco] = T.float32(0)
                Y[vn, vh, vw, vco] = Y[vn, vh, vw, vco] + X[vn, vh + vrh, vw + vrw, vrc] * W[vrh, vrw, vrc, vco]

    sch = Schedule(conv)
    sch.transform_block_layout("Y", lambda n, h, w, co, rh, rw, rc: (n * 16 + h * 4 + w, co, rh * 9 + rw * 3 + rc))
    same(conv, sch)
    assert "X[0, v2 // 9 + v0 // 4, v2 % 9 // 3 + v0 % 4, v2 % 3]" in only(sch).script()
    wrong = Schedule(conv)
    refused("TW0486", "mixes spatial and reduction", lambda: wrong.transform_block_layout(
        "Y", lambda n, h, w, co, rh, rw, rc: (n * 16 + h * 4 + w, co * 3 + rh, rw * 3 + rc)))  # fmt: skip


def test_block_layout_refuses():
    sch = Schedule(two)
    refused("TW0486", "has no inverse", lambda: sch.transform_block_layout("B", lambda i, j: (i + j,)))
    i, _ = sch.get_loops(sch.get_block("B"))
    sch.split(i, [2, 4])
    refused("TW0486", "is not a loop of its own", lambda: sch.transform_block_layout("B", lambda i, j: (j, i)))


def test_axes_of_one_element_keep_their_iterators():
    @T.prim_func
    def unit(A: T.Buffer((1, 8), "float32"), B: T.Buffer((1, 8), "float32")):
        for i, j in T.grid(1, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @T.prim_func
    def turned(A: T.Buffer((1, 8), "float32"), B: T.Buffer((1, 8), "float32")):
        for j, i in T.grid(8, 1):
            with T.block("B"):
                vj, vi = T.axis.remap("SS", [j, i])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    sch = Schedule(unit)
    sch.transform_layout("B", "B", lambda i, j: (i, j))
    equal(sch, unit)
    sch.transform_block_layout("B", lambda i, j: (j, i))
    equal(sch, turned)


def test_padding_of_whole_blocks_before_the_first_element():
    for f in (lambda i: ((i + 6) // 4, (i + 6) % 4), lambda i: ((i + 4) // 4, (i + 4) % 4)):
        sch = Schedule(rows())
        sch.transform_layout("C", "C", f, pad_value=9)
        a = data(rows())[0]
        out = np.zeros([int(n) for n in only(sch).param_buffers[1].shape], "int32")
        got = results(only(sch), [a, out])[1].reshape(-1)
        assert sorted(got) == sorted([*(a + 1), *[9] * (got.size - 14)])


def test_layout_refuses_negative_indices():
    sch = Schedule(rows())
    refused(
        "TW0484",
        "less than 0",
        lambda: sch.transform_layout("B", "B", lambda i: ((i - 3) // 4, (i - 3) % 4), pad_value=0),
    )
    refused(
        "TW0484",
        "less than 0",
        lambda: sch.transform_layout("B", "B", lambda i: i - 1, assume_injective_transform=True),
    )
