"""Primitives on loops: what programs they make, and that the programs mean the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tir.schedule.test_schedule import check, mm_relu
from tilewright.script import tir as T
from tilewright.tir.schedule import Schedule, ScheduleError
from tilewright.tir.schedule.testing import assert_structural_equal_ignore_global_symbol, verify_trace_roundtrip


@T.prim_func
def scale(A: T.Buffer((12, 10, 8), "float32"), B: T.Buffer((12, 10, 8), "float32")):
    for i, j, k in T.grid(12, 10, 8):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            B[vi, vj, vk] = A[vi, vj, vk] * 2.0


@T.prim_func
def scale_symbolic(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, 16), "float32")
    B = T.match_buffer(b, (n, 16), "float32")
    for i, j in T.grid(n, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0


def code_of(step: Any) -> str:
    with pytest.raises(ScheduleError) as caught:
        step()
    return caught.value.diagnostics[0].code


def test_tails_are_guarded_as_they_were_written() -> None:
    @T.prim_func
    def expected(A: T.Buffer((12, 10, 8), "float32"), B: T.Buffer((12, 10, 8), "float32")):
        for i_0, i_1, i_2, j_0, j_1, k in T.grid(2, 3, 3, 1, 11, 8):
            with T.block("B"):
                vi = T.axis.spatial(12, i_0 * 9 + i_1 * 3 + i_2)
                vj = T.axis.spatial(10, j_0 * 11 + j_1)
                vk = T.axis.spatial(8, k)
                T.where((i_0 * 3 + i_1) * 3 + i_2 < 12 and j_0 * 11 + j_1 < 10)
                B[vi, vj, vk] = A[vi, vj, vk] * 2.0

    sch = Schedule(scale, debug_mask="all")
    i, j, _ = sch.get_loops("B")
    sch.split(i, [None, 3, 3])
    sch.split(j, [1, 11])
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], expected)
    check(sch, scale)
    verify_trace_roundtrip(sch, scale)


def test_unit_loops_may_leave_the_bindings() -> None:
    sch = Schedule(scale)
    i, *_ = sch.get_loops("B")
    sch.split(i, [1, 12], preserve_unit_iters=False)
    assert "T.axis.spatial(12, i_1)" in sch.mod.script() or "[i_1, j, k]" in sch.mod.script()
    sch = Schedule(scale)
    i, *_ = sch.get_loops("B")
    sch.split(i, [1, 12])
    assert "i_0 * 12 + i_1" in sch.mod.script()


def test_predicates_may_be_left_out() -> None:
    sch = Schedule(scale)
    i, *_ = sch.get_loops("B")
    sch.split(i, [None, 5], disable_predication=True)
    assert "T.where" not in sch.mod.script()


def test_fused_loops_are_digits() -> None:
    @T.prim_func
    def expected(A: T.Buffer((12, 10, 8), "float32"), B: T.Buffer((12, 10, 8), "float32")):
        for f in range(960):
            with T.block("B"):
                vi = T.axis.spatial(12, f // 80)
                vj = T.axis.spatial(10, f % 80 // 8)
                vk = T.axis.spatial(8, f % 8)
                B[vi, vj, vk] = A[vi, vj, vk] * 2.0

    sch = Schedule(scale, debug_mask="all")
    sch.fuse(*sch.get_loops("B"))
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], expected)
    check(sch, scale)
    (f,) = sch.get_loops("B")
    sch.split(f, [None, 7])
    check(sch, scale)
    verify_trace_roundtrip(sch, scale)


def test_symbolic_loops() -> None:
    sch = Schedule(scale_symbolic, debug_mask="all")
    i, j = sch.get_loops("B")
    i0, i1 = sch.split(i, [None, 4])
    assert "T.where(i_0 * 4 + i_1 < n)" in sch.mod.script()
    sch.fuse(i1, j)
    verify_trace_roundtrip(sch, scale_symbolic)
    sch = Schedule(scale_symbolic)
    i, j = sch.get_loops("B")
    n = scale_symbolic.buffer_map[scale_symbolic.params[0]].shape[0]
    sch.split(j, [n, None])
    assert len(sch.get_loops("B")) == 3
    assert code_of(lambda: sch.split(i, [3, 5])) == "TW0412"
    f = sch.fuse(*sch.get_loops("B"))
    sch.split(f, [None, 32])


def test_iterators_of_a_block_in_another_order() -> None:
    sch = Schedule(scale, debug_mask="all")
    sch.reorder_block_iter_var("B", [2, 0, 1])
    assert [iv.var.name for iv in sch.get(sch.get_block("B")).iter_vars] == ["vk", "vi", "vj"]
    check(sch, scale)
    verify_trace_roundtrip(sch, scale)
    for bad in ([0, 1], [0, 0, 1], [1, 2, 3]):
        assert code_of(lambda bad=bad: sch.reorder_block_iter_var("B", bad)) == "TW0422"


def test_loops_of_one_iteration() -> None:
    sch = Schedule(scale, debug_mask="all")
    b = sch.get_block("B")
    u = sch.add_unit_loop(b)
    assert sch.get(u).loop_var.name == "u"
    sch.add_unit_loop(sch.get_loops(b)[0])
    assert len(sch.get_loops(b)) == 5
    check(sch, scale)
    verify_trace_roundtrip(sch, scale)


def test_iterations_at_the_same_time_after_decomposition() -> None:
    f = mm_relu()
    sch = Schedule(f)
    y = sch.get_block("Y")
    i, j, k = sch.get_loops(y)
    sch.reorder(i, k, j)
    sch.decompose_reduction(y, k)
    sch.vectorize(j)
    sch.vectorize(sch.get_loops("Y_init")[1])
    sch.parallel(i)
    check(sch, f)
    assert code_of(lambda: sch.parallel(k)) == "TW0416"
    sch = Schedule(f)
    (i, j, k), c = sch.get_loops("Y"), sch.get_loops("C")
    with pytest.raises(ScheduleError, match="threadIdx"):
        sch.bind(k, "blockIdx.x")
    sch.bind(k, "threadIdx.x")
    assert code_of(lambda: sch.unroll(k)) == "TW0411"
    sch.bind(c[0], "vthread.x")


def test_iterations_that_depend_on_each_other_stay_in_order() -> None:
    @T.prim_func
    def repeated(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for _r, i, k in T.grid(4, 8, 2):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = 0.0
                B[vi] = B[vi] + A[vi]

    @T.prim_func
    def shifted(A: T.Buffer((9,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((9,), "float32")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(9, i + 1)
                B[vi] = A[vi]
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[vi]

    @T.prim_func
    def in_place(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                A[vi] = B[vi] + 1.0
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = 0.0

    for f, name, text in (
        (repeated, "B", "same elements"),
        (shifted, "C", "may read what another"),
        (in_place, "C", "overwrites"),
    ):
        sch = Schedule(f)
        loop = sch.get_loops(name)[0]
        with pytest.raises(ScheduleError, match=text) as caught:
            sch.parallel(loop)
        assert caught.value.diagnostics[0].code == "TW0416"


def test_annotated_loops_are_not_fused() -> None:
    sch = Schedule(scale)
    i, j, _ = sch.get_loops("B")
    sch.annotate(i, "k", 1)
    assert code_of(lambda: sch.fuse(i, j)) == "TW0411"
    i0, _ = sch.split(i, [3, 4])
    assert sch.get(i0).annotations == {"k": 1}


def test_a_loop_in_parts() -> None:
    @T.prim_func
    def expected(A: T.Buffer((12, 10, 8), "float32"), B: T.Buffer((12, 10, 8), "float32")):
        with T.block("root"):
            T.reads()
            T.writes()
            with T.block("B_i_common"):
                T.reads(A[0:12, 0:10, 0:8])
                T.writes(B[0:12, 0:10, 0:8])
                with T.block("B_i0_partition"):
                    T.reads(A[0:3, 0:10, 0:8])
                    T.writes(B[0:3, 0:10, 0:8])
                    for i0, j, k in T.grid(3, 10, 8):
                        with T.block("B_i0"):
                            vi, vj, vk = T.axis.remap("SSS", [i0, j, k])
                            T.reads(A[vi, vj, vk])
                            T.writes(B[vi, vj, vk])
                            B[vi, vj, vk] = A[vi, vj, vk] * 2.0
                with T.block("B_i1_partition"):
                    T.reads(A[3:12, 0:10, 0:8])
                    T.writes(B[3:12, 0:10, 0:8])
                    for i1 in range(3, 12):
                        for j, k in T.grid(10, 8):
                            with T.block("B_i1"):
                                vi, vj, vk = T.axis.remap("SSS", [i1, j, k])
                                T.reads(A[vi, vj, vk])
                                T.writes(B[vi, vj, vk])
                                B[vi, vj, vk] = A[vi, vj, vk] * 2.0

    for factors in ([3], [3, None], [None, 9]):
        sch = Schedule(scale, debug_mask="all")
        sch.loop_partition(sch.get_loops("B")[0], factors)
        assert_structural_equal_ignore_global_symbol(sch.mod["main"], expected)
        check(sch, scale)
        verify_trace_roundtrip(sch, scale)
    sch.parallel(sch.loop_partition(sch.get_loops("B_i1")[1], [2, 3])[2])
    check(sch, scale)
    sch = Schedule(mm_relu())
    k = sch.get_loops("Y")[2]
    sch.loop_partition(k, [2, 3])
    check(sch, mm_relu())
    assert code_of(lambda: sch.parallel(sch.get_loops("Y_k1")[0])) == "TW0416"
    assert sch.get(sch.get_block("Y_k0")).init is not None
    assert sch.get(sch.get_block("Y_k1")).init is None
    assert code_of(lambda: sch.loop_partition(sch.get_loops("C")[0], [8, 8])) == "TW0423"
    sch = Schedule(scale_symbolic)
    assert code_of(lambda: sch.loop_partition(sch.get_loops("B")[0], [8, None])) == "TW0423"


def test_several_loops_as_one() -> None:
    @T.prim_func
    def f(A: T.Buffer((8, 6), "float32"), C: T.Buffer((8, 6), "float32"), D: T.Buffer((8, 6), "float32")):
        B = T.alloc_buffer((8, 6), "float32")
        for i, j in T.grid(8, 6):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2.0
        for i, j in T.grid(8, 6):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + 1.0
        for i, j in T.grid(8, 6):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = B[7 - vi, vj] + C[vi, vj]

    sch = Schedule(f, debug_mask="all")
    b, c, d = (sch.get_loops(x) for x in "BCD")
    m = sch.merge(b[0], c[0])
    assert sch.get(m).loop_var.name == "i_m"
    check(sch, f)
    verify_trace_roundtrip(sch, f)
    assert code_of(lambda: sch.merge(m, d[0])) == "TW0427"
    sch = Schedule(f)
    b, c, d = (sch.get_loops(x) for x in "BCD")
    sch.merge(b[1], c[1])
    check(sch, f)
    assert [x.var.name for x in sch.get_loops("C")] == ["i_m", "j_m"]
    for bad in ((d[0],), (b[0], c[0])):
        with pytest.raises(ScheduleError):
            sch.merge(*bad)
    sch = Schedule(f)
    b, c, d = (sch.get_loops(x) for x in "BCD")
    for bad in ((b[0],), (b[0], c[1]), (b[0], b[1]), (c[0], b[0]), (b[0], d[0])):
        assert code_of(lambda bad=bad: sch.merge(*bad)) in ("TW0426", "TW0427")
