"""Steps on what a buffer is, and on what a block declares to read and write."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tir.schedule.alike import program, refused, same_meaning
from tilewright.script import tir as T
from tilewright.tir.interp import interpret
from tilewright.tir.schedule import Schedule


@T.prim_func
def steps(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
    B = T.alloc_buffer((4, 8))
    for i, j in T.grid(4, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(4, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + 1.0


@T.prim_func
def views(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
    B = T.alloc_buffer((4, 8))
    for i, j in T.grid(4, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            one = T.match_buffer(B[vi, vj], (), offset_factor=1)
            one[()] = A[vi, vj] * 2.0
    for i, j in T.grid(4, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            one = T.match_buffer(B[vi, vj], (), offset_factor=1)
            C[vi, vj] = one[()] + 1.0


def test_alignment_is_noted() -> None:
    sch = Schedule(steps)
    b = sch.get_block("B")
    sch.storage_align(b, 0, axis=0, factor=16, offset=0)
    sch.storage_align(b, 0, axis=-2, factor=16, offset=8)
    sch.storage_align(b, 0, axis=-1, factor=4, offset=1)
    noted = sch.get(b).annotations["buffer_dim_align"]
    assert [list(x) for x in noted] == [[0, 0, 16, 8], [0, 1, 4, 1]]
    same_meaning(steps, program(sch))
    refused("TW0451", lambda: sch.storage_align(b, 1, 0, 16, 8))
    assert "there is no axis 2" in refused("TW0465", lambda: sch.storage_align(b, 0, 2, 16, 8))
    assert "must be positive" in refused("TW0465", lambda: sch.storage_align(b, 0, 0, 0, 8))
    assert "not allocated" in refused("TW0465", lambda: sch.storage_align(sch.get_block("C"), 0, 0, 16, 8))
    sch.annotate(b, "buffer_dim_align", [1])
    assert "is no list of" in refused("TW0465", lambda: sch.storage_align(b, 0, 0, 16, 8))


@pytest.mark.parametrize("f", [steps, views])
def test_another_memory(f) -> None:
    sch = Schedule(f)
    b = sch.get_block("B")
    sch.set_scope(b, "B", "local")
    assert 'scope="local"' in program(sch).script()
    assert sch.get(b).writes[0].buffer.name == "B_local"
    for m in sch.get(b).match_buffers:
        assert m.buffer.scope() == "local"
    same_meaning(f, program(sch))
    for index in (1, -1):
        refused("TW0451", lambda index=index: sch.set_scope(b, index, "shared"))
    refused("TW0452", lambda: sch.set_scope(b, 0, "nowhere"))
    assert "belongs to the caller" in refused("TW0452", lambda: sch.set_scope(sch.get_block("C"), 0, "shared"))


@pytest.mark.parametrize("f", [steps, views])
def test_another_type(f) -> None:
    sch = Schedule(f)
    sch.unsafe_set_dtype(sch.get_block("B"), 0, "float16")
    a = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    c = np.zeros_like(a)
    interpret(program(sch), a, c)
    np.testing.assert_array_equal(c, (a * 2).astype("float16").astype("float32") + 1)
    same_meaning(f, program(sch))
    refused("TW0451", lambda: sch.unsafe_set_dtype(sch.get_block("B"), 1, "float16"))
    refused("TW0466", lambda: sch.unsafe_set_dtype(sch.get_block("C"), 0, "float16"))
    refused("TW0466", lambda: sch.unsafe_set_dtype(sch.get_block("B"), 0, "real"))


@pytest.mark.parametrize("f", [steps, views])
def test_separators(f) -> None:
    sch = Schedule(f)
    b = sch.get_block("B")
    sch.set_axis_separator(b, ("write", 0), [1])
    sch.set_axis_separator(b, "A", [1])
    assert [int(x) for x in sch.get(b).writes[0].buffer.axis_separators] == [1]
    assert [int(x) for x in sch.get(b).reads[0].buffer.axis_separators] == [1]
    for m in sch.get(b).match_buffers:
        assert [int(x) for x in m.buffer.axis_separators] == [0]
    assert program(sch).param_buffers[0] is sch.get(b).reads[0].buffer
    refused("TW0482", lambda: sch.set_axis_separator(b, ("write", 1), [1]))
    refused("TW0465", lambda: sch.set_axis_separator(b, ("write", 0), [3]))
    same_meaning(f, program(sch), native=False)


def test_what_a_block_declares_by_hand() -> None:
    sch = Schedule(steps)
    b = sch.get_block("B")
    sch.annotate_buffer_access(b, 0, "read", lambda vi, vj: ((vi - 1, vi + 2), vj))
    sch.annotate_buffer_access(b, 0, "write", lambda vi, vj: (vi, (vj, vj + 2)))
    text = program(sch).script()
    assert "T.reads(A[vi - 1:vi - 1 + 3, vj])" in text
    assert "T.writes(B[vi, vj:vj + 2])" in text
    assert [int(x) for x in sch.get(b).annotations["explicit_read_region"]] == [0]
    same_meaning(steps, program(sch))
    again = Schedule(steps)
    sch.trace.apply_to_schedule(again)
    assert program(again).script() == text
    refused("TW0467", lambda: sch.annotate_buffer_access(b, 1, "read", lambda vi, vj: (vi, vj)))
    refused("TW0467", lambda: sch.annotate_buffer_access(b, 0, "read", lambda vi: (vi, vi)))
    refused("TW0467", lambda: sch.annotate_buffer_access(b, 0, "read", lambda vi, vj: (vi,)))
    refused("TW0467", lambda: sch.annotate_buffer_access(b, 0, "both", lambda vi, vj: (vi, vj)))


def test_a_region_by_hand_tells_compute_at_what_is_needed() -> None:
    @T.prim_func
    def resize(X: T.Buffer((32,), "float32"), Y: T.Buffer((16,), "float32")):
        B = T.alloc_buffer((32,))
        for i in range(32):
            with T.block("B"):
                v = T.axis.spatial(32, i)
                B[v] = X[v] + 1.0
        for i in range(16):
            with T.block("Y"):
                v = T.axis.spatial(16, i)
                Y[v] = B[T.cast(T.floor(T.cast(v * 2, "float32") + T.float32(0.5)), "int32")]

    sizes: list[int] = []
    for by_hand in (True, False):
        sch = Schedule(resize)
        y = sch.get_block("Y")
        if by_hand:
            sch.annotate_buffer_access(y, 0, "read", lambda v: ((v * 2 - 1, v * 2 + 2),))
        (i,) = sch.get_loops(y)
        i0, _ = sch.split(i, [None, 4])
        sch.compute_at(sch.get_block("B"), i0)
        sizes.append(int(sch.get(sch.get_loops(sch.get_block("B"))[1]).extent))
        same_meaning(resize, program(sch))
    assert sizes == [9, 32]


def test_accesses_are_hidden() -> None:
    sch = Schedule(steps)
    b = sch.get_block("B")
    sch.unsafe_hide_buffer_access(b, "read", [0])
    assert not sch.get(b).reads
    same_meaning(steps, program(sch))
    refused("TW0467", lambda: sch.unsafe_hide_buffer_access(b, "read", [0]))
    refused("TW0467", lambda: sch.unsafe_hide_buffer_access(b, "opaque", [0]))
