"""compute_inline and reverse_compute_inline: expressions where they are used, results where their input is made."""

from __future__ import annotations

import pytest

from tests.tir.schedule.alike import expect, program, refused, same_meaning
from tilewright.script import tir as T
from tilewright.tir.schedule import Schedule


@T.prim_func
def steps(A: T.Buffer((6, 8), "float32"), C: T.Buffer((6, 8), "float32"), D: T.Buffer((6, 8), "float32")):
    B = T.alloc_buffer((6, 8))
    for i, j in T.grid(6, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(6, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + 1.0
    for i, j in T.grid(6, 8):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = B[vi, vj] * B[vi, vj] + C[vi, vj]


@T.prim_func
def softmax(A: T.Buffer((4, 10), "float32"), N: T.Buffer((4, 10), "float32")):
    M = T.alloc_buffer((4,))
    E = T.alloc_buffer((4, 10))
    S = T.alloc_buffer((4,))
    for i, k in T.grid(4, 10):
        with T.block("M"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                M[vi] = T.float32(-1000.0)
            M[vi] = T.max(M[vi], A[vi, vk])
    for i, j in T.grid(4, 10):
        with T.block("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = T.exp(A[vi, vj] - M[vi])
    for i, k in T.grid(4, 10):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = 0.0
            S[vi] = S[vi] + E[vi, vk]
    for i, j in T.grid(4, 10):
        with T.block("N"):
            vi, vj = T.axis.remap("SS", [i, j])
            N[vi, vj] = E[vi, vj] / S[vi]


def test_an_expression_goes_to_all_who_read_it() -> None:
    sch = Schedule(steps)
    sch.compute_inline(sch.get_block("B"))

    @T.prim_func
    def after(A: T.Buffer((6, 8), "float32"), C: T.Buffer((6, 8), "float32"), D: T.Buffer((6, 8), "float32")):
        for i, j in T.grid(6, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * 2.0 + 1.0
        for i, j in T.grid(6, 8):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj], C[vi, vj])
                T.writes(D[vi, vj])
                D[vi, vj] = A[vi, vj] * 2.0 * (A[vi, vj] * 2.0) + C[vi, vj]

    expect(sch, after)
    same_meaning(steps, program(sch))


def test_into_reductions_and_their_declared_regions() -> None:
    sch = Schedule(softmax)
    sch.compute_inline(sch.get_block("E"))
    s = sch.get(sch.get_block("S"))
    assert [r.buffer.name for r in s.reads] == ["A", "M"]
    n = sch.get(sch.get_block("N"))
    assert [r.buffer.name for r in n.reads] == ["A", "M", "S"]
    assert "E" not in [b.name for b in sch.get(sch.get_block("root")).alloc_buffers]
    same_meaning(softmax, program(sch))


def test_a_result_goes_where_its_input_is_made() -> None:
    @T.prim_func
    def chain(A: T.Buffer((32, 4), "float32"), D: T.Buffer((1, 8, 4, 4), "float32")):
        B = T.alloc_buffer((32, 4))
        C = T.alloc_buffer((8, 4, 4))
        for i, j in T.grid(32, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2.0
        for i, j, k in T.grid(8, 4, 4):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                C[vi, vj, vk] = B[vi * 4 + vj, vk] + 1.0
        for i, j, k, l in T.grid(1, 8, 4, 4):
            with T.block("D"):
                vi, vj, vk, vl = T.axis.remap("SSSS", [i, j, k, l])
                D[vi, vj, vk, vl] = C[vj, vk, vl]

    @T.prim_func
    def after(A: T.Buffer((32, 4), "float32"), D: T.Buffer((1, 8, 4, 4), "float32")):
        for i, j in T.grid(32, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[0, vi // 4, vi % 4, vj] = A[vi, vj] * 2.0 + 1.0

    for order in ("DC", "CD"):
        sch = Schedule(chain)
        for name in order:
            sch.reverse_compute_inline(sch.get_block(name))
        expect(sch, after)
        same_meaning(chain, program(sch))


def test_fused_indices_stay_fused() -> None:
    @T.prim_func
    def reshaped(A: T.Buffer((16, 16), "float32"), C: T.Buffer((4, 8, 8), "float32")):
        B = T.alloc_buffer((16, 16))
        for i, j in T.grid(16, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2.0
        for i, j, k in T.grid(4, 8, 8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                C[vi, vj, vk] = B[((vi * 8 + vj) * 8 + vk) // 16, ((vi * 8 + vj) * 8 + vk) % 16]

    sch = Schedule(reshaped)
    sch.reverse_compute_inline(sch.get_block("C"))

    @T.prim_func
    def after(A: T.Buffer((16, 16), "float32"), C: T.Buffer((4, 8, 8), "float32")):
        for i, j in T.grid(16, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[(vj + vi * 16) // 64, (vj + vi * 16) // 8 % 8, (vj + vi * 16) % 8] = A[vi, vj] * 2.0

    expect(sch, after)
    same_meaning(reshaped, program(sch))
    sch = Schedule(reshaped)
    sch.compute_inline(sch.get_block("B"))
    same_meaning(reshaped, program(sch))


def test_what_is_made_beyond_need_is_left_out() -> None:
    @T.prim_func
    def crop(A: T.Buffer((16, 16), "float32"), C: T.Buffer((15, 13), "float32")):
        B = T.alloc_buffer((4, 4, 4, 4))
        for i0, j0, i1, j1 in T.grid(4, 4, 4, 4):
            with T.block("B"):
                vi, vj, vm, vn = T.axis.remap("SSSS", [i0, j0, i1, j1])
                B[vi, vj, vm, vn] = A[vi * 4 + vm, vj * 4 + vn] * 2.0
        for i, j in T.grid(15, 13):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi // 4, vj // 4, vi % 4, vj % 4] + 1.0

    sch = Schedule(crop)
    sch.reverse_compute_inline(sch.get_block("C"))
    assert "T.where(i0 * 4 + i1 < 15 and j0 * 4 + j1 < 13)" in program(sch).script()
    same_meaning(crop, program(sch))


def test_conditions_of_the_consumer() -> None:
    @T.prim_func
    def ragged(A: T.Buffer((14,), "float32"), M: T.Buffer((14,), "float32"), C: T.Buffer((14,), "float32")):
        B = T.alloc_buffer((14,))
        for i in range(14):
            with T.block("B"):
                v = T.axis.spatial(14, i)
                B[v] = A[v] * 2.0
        for i, j in T.grid(4, 4):
            with T.block("C"):
                v = T.axis.spatial(14, i * 4 + j)
                T.where(i * 4 + j < 14)
                C[v] = B[v] + 1.0

    @T.prim_func
    def data(A: T.Buffer((14,), "float32"), M: T.Buffer((14,), "float32"), C: T.Buffer((14,), "float32")):
        B = T.alloc_buffer((14,))
        for i in range(14):
            with T.block("B"):
                v = T.axis.spatial(14, i)
                B[v] = A[v] * 2.0
        for i in range(14):
            with T.block("C"):
                v = T.axis.spatial(14, i)
                T.where(B[i] < 1.0 and M[i] > 0.0)
                C[v] = B[v] + 1.0

    for f in (ragged, data):
        for name in ("B", "C"):
            sch = Schedule(f)
            if name == "B":
                sch.compute_inline(sch.get_block("B"))
            else:
                sch.reverse_compute_inline(sch.get_block("C"))
            same_meaning(f, program(sch))


def test_a_producer_may_leave_out_what_nobody_reads() -> None:
    @T.prim_func
    def tail(A: T.Buffer((16,), "float32"), C: T.Buffer((15,), "float32")):
        B = T.alloc_buffer((15,))
        for i in range(16):
            with T.block("B"):
                v = T.axis.spatial(16, i)
                T.where(i < 15)
                B[v] = A[v] * 2.0
        for i in range(15):
            with T.block("C"):
                v = T.axis.spatial(15, i)
                C[v] = B[v] + 1.0

    sch = Schedule(tail)
    sch.reverse_compute_inline(sch.get_block("C"))
    assert program(sch).script().count("< 15") == 1
    same_meaning(tail, program(sch))

    @T.prim_func
    def half(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        B = T.alloc_buffer((16,))
        for i in range(16):
            with T.block("B"):
                v = T.axis.spatial(16, i)
                T.where(i < 8)
                B[v] = A[v] * 2.0
        for i in range(16):
            with T.block("C"):
                v = T.axis.spatial(16, i)
                C[v] = T.if_then_else(v < 8, B[v], 0.0)

    sch = Schedule(half)
    assert "leaves out what is read" in refused("TW0421", lambda: sch.reverse_compute_inline(sch.get_block("C")))


def test_nested_blocks_declare_what_they_read_now() -> None:
    @T.prim_func
    def nested(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        B = T.alloc_buffer((16,))
        for i in range(16):
            with T.block("B"):
                v = T.axis.spatial(16, i)
                B[v] = A[v] * 2.0
        for o in range(4):
            with T.block("C_o"):
                vo = T.axis.spatial(4, o)
                for i in range(4):
                    with T.block("C"):
                        v = T.axis.spatial(16, vo * 4 + i)
                        C[v] = B[v] + 1.0

    sch = Schedule(nested)
    sch.compute_inline(sch.get_block("B"))
    outer = sch.get(sch.get_block("C_o"))
    assert [r.buffer.name for r in outer.reads] == ["A"]
    same_meaning(nested, program(sch))


@pytest.mark.parametrize("step", ["compute_inline", "reverse_compute_inline"])
def test_results_and_reductions_stay(step: str) -> None:
    sch = Schedule(softmax)
    for name in ("M", "S"):
        refused("TW0421", lambda name=name: getattr(sch, step)(sch.get_block(name)))
    if step == "compute_inline":
        assert "output block" in refused("TW0421", lambda: sch.compute_inline(sch.get_block("N")))


def test_what_is_refused() -> None:
    @T.prim_func
    def views(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * 2.0
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                Bv = T.match_buffer(B[v : v + 1], (1,))
                C[v] = Bv[0] + 1.0

    @T.prim_func
    def windows(A: T.Buffer((8,), "float32"), C: T.Buffer((6,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * 2.0
        for i in range(6):
            with T.block("C"):
                v = T.axis.spatial(6, i)
                C[v] = B[v] + B[v + 2]

    @T.prim_func
    def diagonal(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8, 8))
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2.0
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                C[v] = B[v, v]

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

    sch = Schedule(views)
    assert "as a pointer or a view" in refused("TW0421", lambda: sch.compute_inline(sch.get_block("B")))
    sch = Schedule(windows)
    assert "at different places" in refused("TW0421", lambda: sch.reverse_compute_inline(sch.get_block("C")))
    sch.compute_inline(sch.get_block("B"))
    same_meaning(windows, program(sch))
    sch = Schedule(diagonal)
    refused("TW0421", lambda: sch.reverse_compute_inline(sch.get_block("C")))
    sch.compute_inline(sch.get_block("B"))
    same_meaning(diagonal, program(sch))
    sch = Schedule(padded)
    assert "does not make all of B" in refused("TW0421", lambda: sch.reverse_compute_inline(sch.get_block("C")))
    sch = Schedule(steps)
    assert "2 producers" in refused("TW0421", lambda: sch.reverse_compute_inline(sch.get_block("D")))
    assert "needed elsewhere" in refused("TW0421", lambda: sch.reverse_compute_inline(sch.get_block("C")))


def test_an_input_that_changes_in_between() -> None:
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
    assert "'A', in between" in refused("TW0421", lambda: sch.compute_inline(sch.get_block("B")))
    sch.reverse_compute_inline(sch.get_block("C"))
    same_meaning(overwritten, program(sch))


def test_symbolic_sizes() -> None:
    @T.prim_func
    def grow(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (T.int64(1), n))
        C = T.match_buffer(c, (T.int64(1), n), "float16")
        B = T.alloc_buffer((T.int64(1), n))
        for i in range(n):
            with T.block("B"):
                v0 = T.axis.spatial(T.int64(1), T.int64(0))
                v = T.axis.spatial(n, i)
                B[v0, v] = A[v0, v] * 2.0
        for i, j in T.grid(T.int64(1), n):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.cast(B[vi, vj], "float16")

    for step, name in (("compute_inline", "B"), ("reverse_compute_inline", "C")):
        sch = Schedule(grow)
        getattr(sch, step)(sch.get_block(name))
        assert "T.where" not in program(sch).script()
        same_meaning(grow, program(sch), sizes={"n": 7})
