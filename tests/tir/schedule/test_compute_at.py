"""compute_at and reverse_compute_at: which part is computed in a loop, where it stands, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tir.schedule.alike import expect, program, refused, same_meaning
from tilewright.script import tir as T
from tilewright.tir.ir import For
from tilewright.tir.schedule import Schedule


@T.prim_func
def steps(A: T.Buffer((16, 12), "float32"), C: T.Buffer((16, 12), "float32")):
    B = T.alloc_buffer((16, 12))
    for i, j in T.grid(16, 12):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(16, 12):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + 1.0


@T.prim_func
def window(A: T.Buffer((20,), "float32"), C: T.Buffer((18,), "float32")):
    B = T.alloc_buffer((20,))
    for i in range(20):
        with T.block("B"):
            v = T.axis.spatial(20, i)
            B[v] = A[v] * 2.0
    for i in range(18):
        with T.block("C"):
            v = T.axis.spatial(18, i)
            C[v] = B[v] + B[v + 1] + B[v + 2]


@T.prim_func
def matmul_relu(A: T.Buffer((8, 6), "float32"), B: T.Buffer((6, 10), "float32"), D: T.Buffer((8, 10), "float32")):
    C = T.alloc_buffer((8, 10))
    for i, j, k in T.grid(8, 10, 6):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(8, 10):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], 0.0)


@T.prim_func
def conv(
    X: T.Buffer((1, 2, 11, 11), "float32"), W: T.Buffer((3, 2, 3, 3), "float32"), Y: T.Buffer((1, 3, 5, 5), "float32")
):
    P = T.alloc_buffer((1, 2, 11, 11))
    C = T.alloc_buffer((1, 3, 5, 5))
    for n, c, h, w in T.grid(1, 2, 11, 11):
        with T.block("P"):
            vn, vc, vh, vw = T.axis.remap("SSSS", [n, c, h, w])
            P[vn, vc, vh, vw] = X[vn, vc, vh, vw] + 1.0
    for n, f, h, w, c, kh, kw in T.grid(1, 3, 5, 5, 2, 3, 3):
        with T.block("C"):
            vn, vf, vh, vw, vc, vkh, vkw = T.axis.remap("SSSSRRR", [n, f, h, w, c, kh, kw])
            with T.init():
                C[vn, vf, vh, vw] = 0.0
            C[vn, vf, vh, vw] = C[vn, vf, vh, vw] + P[vn, vc, vh * 2 + vkh, vw * 2 + vkw] * W[vf, vc, vkh, vkw]
    for n, f, h, w in T.grid(1, 3, 5, 5):
        with T.block("Y"):
            vn, vf, vh, vw = T.axis.remap("SSSS", [n, f, h, w])
            Y[vn, vf, vh, vw] = T.max(C[vn, vf, vh, vw], 0.0)


def _extents(sch: Schedule, block: str) -> list[Any]:
    out: list[Any] = []
    for rv in sch.get_loops(sch.get_block(block)):
        loop = sch.get(rv)
        assert isinstance(loop, For)
        out.append(loop.extent.value)  # pyright: ignore
    return out


def test_a_row_at_a_time() -> None:
    sch = Schedule(steps)
    i, _ = sch.get_loops(sch.get_block("C"))
    sch.compute_at(sch.get_block("B"), i, preserve_unit_loops=True)

    @T.prim_func
    def after(A: T.Buffer((16, 12), "float32"), C: T.Buffer((16, 12), "float32")):
        B = T.alloc_buffer((16, 12))
        for i in range(16):
            for ax0, ax1 in T.grid(1, 12):
                with T.block("B"):
                    vi = T.axis.spatial(16, i + ax0)
                    vj = T.axis.spatial(12, ax1)
                    B[vi, vj] = A[vi, vj] * 2.0
            for j in range(12):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, vj] + 1.0

    expect(sch, after)
    same_meaning(steps, program(sch))


@pytest.mark.parametrize("tile", [1, 4, 5, 7, 18])
def test_a_window_with_tiles_that_do_not_divide(tile: int) -> None:
    sch = Schedule(window)
    (i,) = sch.get_loops(sch.get_block("C"))
    i0, _ = sch.split(i, [None, tile])
    sch.compute_at(sch.get_block("B"), i0)
    assert _extents(sch, "B")[-1] == tile + 2
    same_meaning(window, program(sch))


def test_a_window_the_other_way_round() -> None:
    """Its parts would be made in different iterations, each of which may have memory of its own."""
    sch = Schedule(window)
    (i,) = sch.get_loops(sch.get_block("B"))
    i0, _ = sch.split(i, [None, 4])
    c = sch.get_block("C")
    assert "reads more of B than one iteration of 'i_0' makes" in refused(
        "TW0434", lambda: sch.reverse_compute_at(c, i0)
    )
    whole = sch.add_unit_loop(i0)
    sch.reverse_compute_at(c, whole)
    same_meaning(window, program(sch))


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("factors", [(0, 3), (1, 5), (0, 4), (2, 2)])
def test_an_epilogue_in_each_loop_of_a_matmul(at: int, factors: tuple[int, int]) -> None:
    sch = Schedule(matmul_relu)
    loops = sch.get_loops(sch.get_block("C"))
    sch.split(loops[factors[0]], [None, factors[1]])
    sch.reverse_compute_at(sch.get_block("D"), sch.get_loops(sch.get_block("C"))[at])
    same_meaning(matmul_relu, program(sch))


def test_write_cache_close_to_the_computation() -> None:
    sch = Schedule(matmul_relu)
    c = sch.get_block("C")
    copy = sch.cache_write(c, 0, "local")
    i, j, k = sch.get_loops(c)
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 4])
    sch.reorder(i0, j0, k, i1, j1)
    sch.reverse_compute_at(copy, j0)
    assert _extents(sch, "C_local") == [2, 3, 4, 4]
    sch.decompose_reduction(c, k)
    sch.vectorize(j1)
    sch.parallel(i0)
    same_meaning(matmul_relu, program(sch))


@pytest.mark.parametrize("tile", [(2, 2), (3, 2), (5, 5), (1, 4)])
def test_a_convolution_with_stride_reads_a_halo(tile: tuple[int, int]) -> None:
    sch = Schedule(conv)
    n, f, h, w, c, kh, kw = sch.get_loops(sch.get_block("C"))
    h0, h1 = sch.split(h, [None, tile[0]])
    w0, w1 = sch.split(w, [None, tile[1]])
    sch.reorder(n, h0, w0, f, h1, w1, c, kh, kw)
    sch.compute_at(sch.get_block("P"), w0)
    sch.reverse_compute_at(sch.get_block("Y"), w0)
    same_meaning(conv, program(sch))
    assert _extents(sch, "P")[-2:] == [2 * tile[0] + 1, 2 * tile[1] + 1]


def test_a_padded_window_stays_in_the_buffer() -> None:
    @T.prim_func
    def pool(X: T.Buffer((16,), "float32"), Y: T.Buffer((16,), "float32")):
        B = T.alloc_buffer((16,))
        for i in range(16):
            with T.block("B"):
                v = T.axis.spatial(16, i)
                B[v] = X[v] + 1.0
        for i0, i1, k in T.grid(4, 4, 3):
            with T.block("Y"):
                v = T.axis.spatial(16, i0 * 4 + i1)
                r = T.axis.reduce(3, k)
                with T.init():
                    Y[v] = 0.0
                Y[v] = T.max(Y[v], T.if_then_else(v + r >= 1 and v + r < 17, B[v + r - 1], 0.0))

    sch = Schedule(pool)
    sch.compute_at(sch.get_block("B"), sch.get_loops(sch.get_block("Y"))[0])
    assert "T.where(1 <= i0 * 4 + ax0 and i0 * 4 + ax0 < 17)" in program(sch).script()
    same_meaning(pool, program(sch))


def test_indices_are_inverted() -> None:
    @T.prim_func
    def reshape(X: T.Buffer((4, 6), "float32"), Y: T.Buffer((24,), "float32"), Z: T.Buffer((4, 6), "float32")):
        B = T.alloc_buffer((4, 6))
        for i, j in T.grid(4, 6):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[3 - vi, vj] = X[vi, vj] + 1.0
        for i in range(24):
            with T.block("Y"):
                v = T.axis.spatial(24, i)
                Y[v] = B[v // 6, v % 6]
        for i, j in T.grid(4, 6):
            with T.block("Z"):
                vi, vj = T.axis.remap("SS", [i, j])
                Z[vi, vj] = Y[vi * 6 + vj] * 2.0

    sch = Schedule(reshape)
    i, _ = sch.get_loops(sch.get_block("B"))
    sch.reverse_compute_at(sch.get_block("Y"), i)
    assert _extents(sch, "Y") == [4, 6]
    same_meaning(reshape, program(sch))
    sch = Schedule(reshape)
    i, _ = sch.get_loops(sch.get_block("Z"))
    (y,) = sch.get_loops(sch.get_block("Y"))
    sch.compute_at(sch.get_block("B"), y)
    assert _extents(sch, "B") == [24]
    same_meaning(reshape, program(sch))


def test_a_reduction_taken_apart_over_the_loops_of_its_maker() -> None:
    @T.prim_func
    def factored(A: T.Buffer((4, 12), "float32"), B: T.Buffer((4,), "float32")):
        R = T.alloc_buffer((12, 4))
        for j, o, i in T.grid(4, 3, 4):
            with T.block("R"):
                vi = T.axis.spatial(12, o * 4 + i)
                vj = T.axis.spatial(4, j)
                R[vi, vj] = A[vj, vi] * 2.0
        for i, k in T.grid(4, 12):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = 0.0
                B[vi] = B[vi] + R[vk, vi]

    sch = Schedule(factored)
    _, o, _ = sch.get_loops(sch.get_block("R"))
    sch.reverse_compute_at(sch.get_block("B"), o)
    assert _extents(sch, "B") == [4, 3, 4]
    same_meaning(factored, program(sch))

    @T.prim_func
    def twice(A: T.Buffer((12,), "float32"), B: T.Buffer((1,), "float32")):
        R = T.alloc_buffer((12,))
        for i, _again in T.grid(12, 2):
            with T.block("R"):
                v = T.axis.spatial(12, i)
                R[v] = A[v] * 2.0
        for k in range(12):
            with T.block("B"):
                vk = T.axis.reduce(12, k)
                with T.init():
                    B[0] = 0.0
                B[0] = B[0] + R[vk]

    sch = Schedule(twice)
    _, again = sch.get_loops(sch.get_block("R"))
    assert "take each element once" in refused("TW0434", lambda: sch.reverse_compute_at(sch.get_block("B"), again))


def test_symbolic_sizes() -> None:
    @T.prim_func
    def grow(a: T.handle, d: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (n, m))
        D = T.match_buffer(d, (n, m))
        C = T.alloc_buffer((n, m))
        for i, j in T.grid(n, m):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] + 1.0
        for i, j in T.grid(n, m):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = C[vi, vj] * 2.0

    for up in (True, False):
        sch = Schedule(grow)
        if up:
            sch.compute_at(sch.get_block("C"), sch.get_loops(sch.get_block("D"))[0])
        else:
            sch.reverse_compute_at(sch.get_block("D"), sch.get_loops(sch.get_block("C"))[0])
        assert "T.where" not in program(sch).script()
        same_meaning(grow, program(sch), sizes={"n": 3, "m": 5})


def test_threads_that_share_a_memory_need_all_their_parts() -> None:
    @T.prim_func
    def shared(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        S = T.alloc_buffer((64,), scope="shared")
        R = T.alloc_buffer((64,), scope="local")
        for i in range(64):
            with T.block("S"):
                v = T.axis.spatial(64, i)
                S[v] = A[v]
        for i in range(64):
            with T.block("R"):
                v = T.axis.spatial(64, i)
                R[v] = S[v]
        for b in T.thread_binding(4, "blockIdx.x"):
            for t in T.thread_binding(8, "threadIdx.x"):
                for j in range(2):
                    with T.block("C"):
                        v = T.axis.spatial(64, b * 16 + t * 2 + j)
                        C[v] = R[v] + 1.0

    sch = Schedule(shared)
    t = sch.get_loops(sch.get_block("C"))[1]
    sch.compute_at(sch.get_block("R"), t)
    sch.compute_at(sch.get_block("S"), t)
    assert _extents(sch, "R") == [4, 8, 2]
    assert _extents(sch, "S") == [4, 8, 16]
    same_meaning(shared, program(sch), native=False)


def test_the_place_in_the_loop() -> None:
    @T.prim_func
    def three(A: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32"), E: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        C = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] + 1.0
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                C[v] = A[v] * 2.0
            with T.block("E"):
                v = T.axis.spatial(8, i)
                E[v] = A[v] - 1.0
            with T.block("D"):
                v = T.axis.spatial(8, i)
                D[v] = B[v] + C[v]

    for index, order in [(-1, "CEBD"), (-2, "BCED"), (1, "CBED")]:
        sch = Schedule(three)
        (i,) = sch.get_loops(sch.get_block("D"))
        sch.compute_at(sch.get_block("B"), i, index=index)
        assert "".join(sch.get(b).name_hint for b in sch.get_child_blocks(i)) == order
        same_meaning(three, program(sch))
    sch = Schedule(three)
    (i,) = sch.get_loops(sch.get_block("D"))
    assert "got 3" in refused("TW0433", lambda: sch.compute_at(sch.get_block("B"), i, index=3))


def test_conditions_move_with_the_block() -> None:
    @T.prim_func
    def some(A: T.Buffer((8,), "float32"), M: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] + 1.0
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                T.where(M[i] > 0.0)
                C[v] = B[v] * 2.0

    sch = Schedule(some)
    (i,) = sch.get_loops(sch.get_block("B"))
    i0, _ = sch.split(i, [None, 4])
    sch.reverse_compute_at(sch.get_block("C"), i0)
    assert "T.where(M[i_0 * 4 + ax0] > T.float32(0" in program(sch).script()
    same_meaning(some, program(sch))


def test_what_is_refused_and_where_it_would_be_legal() -> None:
    sch = Schedule(matmul_relu)
    c, d = sch.get_block("C"), sch.get_block("D")
    i, j, k = sch.get_loops(c)
    di, dj = sch.get_loops(d)
    assert "choose among: i, j" in refused("TW0431", lambda: sch.compute_at(c, i))
    assert "ancestor of block" in refused("TW0431", lambda: sch.reverse_compute_at(d, di))
    assert "output block" in refused("TW0433", lambda: sch.compute_at(d, i))
    assert "did you mean compute_at" in refused("TW0432", lambda: sch.reverse_compute_at(c, di))

    @T.prim_func
    def apart(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v]
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                C[v] = B[v]
        for i in range(8):
            with T.block("D"):
                v = T.axis.spatial(8, i)
                D[v] = B[v] + C[v]

    sch = Schedule(apart)
    (ci,) = sch.get_loops(sch.get_block("C"))
    assert "requires all the consumer" in refused("TW0433", lambda: sch.compute_at(sch.get_block("B"), ci))
    assert "requires all the producer" in refused("TW0434", lambda: sch.reverse_compute_at(sch.get_block("D"), ci))

    @T.prim_func
    def nested(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v]
        for o in range(2):
            with T.block("C_o"):
                vo = T.axis.spatial(2, o)
                for i in range(4):
                    with T.block("C"):
                        v = T.axis.spatial(8, vo * 4 + i)
                        C[v] = B[v]

    sch = Schedule(nested)
    (inner,) = sch.get_loops(sch.get_block("C"))
    assert "same block scope" in refused("TW0431", lambda: sch.compute_at(sch.get_block("B"), inner))


def test_nobody_may_change_what_the_block_reads_on_the_way() -> None:
    @T.prim_func
    def overwritten(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] + 1.0
        for i in range(8):
            with T.block("A"):
                v = T.axis.spatial(8, i)
                A[v] = 0.0
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                C[v] = B[v]

    sch = Schedule(overwritten)
    (i,) = sch.get_loops(sch.get_block("C"))
    assert "past 'A', which writes A" in refused("TW0433", lambda: sch.compute_at(sch.get_block("B"), i))


def test_elements_that_read_nothing_of_the_producer_are_not_lost() -> None:
    @T.prim_func
    def padded(A: T.Buffer((8,), "float32"), C: T.Buffer((16,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * 2.0
        for i in range(16):
            with T.block("C"):
                v = T.axis.spatial(16, i)
                C[v] = T.if_then_else(v >= 8, B[v - 8], 0.0)

    sch = Schedule(padded)
    (i,) = sch.get_loops(sch.get_block("B"))
    assert "would be left out" in refused("TW0434", lambda: sch.reverse_compute_at(sch.get_block("C"), i))
    (i,) = sch.get_loops(sch.get_block("C"))
    sch.compute_at(sch.get_block("B"), i)
    same_meaning(padded, program(sch))
