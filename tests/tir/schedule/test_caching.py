"""cache_read and cache_write: where the copy goes, what it covers, who uses it, and that the result is the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tir.schedule.alike import expect, program, refused, same_meaning
from tilewright.script import tir as T
from tilewright.tir.schedule import Schedule


@T.prim_func
def two_steps(A: T.Buffer((8, 12), "float32"), C: T.Buffer((8, 12), "float32")):
    B = T.alloc_buffer((8, 12))
    for i, j in T.grid(8, 12):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(8, 12):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + 1.0


@T.prim_func
def fan_out(B: T.Buffer((24,), "float32"), C: T.Buffer((24,), "float32")):
    A = T.alloc_buffer((24,))
    for i in range(4):
        for j in range(6):
            with T.block("A"):
                v = T.axis.spatial(24, i * 6 + j)
                A[v] = T.cast(v, "float32")
        for j in range(6):
            with T.block("B"):
                v = T.axis.spatial(24, i * 6 + j)
                B[v] = A[v] + 1.0
    for i in range(24):
        with T.block("C"):
            v = T.axis.spatial(24, i)
            C[v] = A[v] * 3.0


@T.prim_func
def tiles(B: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    A = T.alloc_buffer((8, 8))
    for i0, j0 in T.grid(2, 2):
        with T.block("tile"):
            i, j = T.axis.remap("SS", [i0, j0])
            for x, y in T.grid(4, 4):
                with T.block("A"):
                    vi = T.axis.spatial(8, i * 4 + x)
                    vj = T.axis.spatial(8, j * 4 + y)
                    A[vi, vj] = T.cast(vi + vj, "float32")
            for x, y in T.grid(4, 4):
                with T.block("B"):
                    vi = T.axis.spatial(8, i * 4 + x)
                    vj = T.axis.spatial(8, j * 4 + y)
                    B[vi, vj] = A[vi, vj] + 1.0
    for i, j in T.grid(8, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * 2.0


@T.prim_func
def in_place(data: T.Buffer((16,), "int32")):
    temp = T.alloc_buffer((16,), "int32")
    for i in range(16):
        with T.block("take"):
            v = T.axis.spatial(16, i)
            temp[v] = data[v] + 1
    for i in range(16):
        with T.block("give"):
            v = T.axis.spatial(16, i)
            data[v] = temp[v] * 2


def test_a_copy_of_what_is_read_and_one_of_what_is_written() -> None:
    sch = Schedule(two_steps)
    b, c = sch.get_block("B"), sch.get_block("C")
    read = sch.cache_read(c, 0, "global")
    write = sch.cache_write(c, 0, "local")
    assert sch.get(read).name_hint == "B_global"
    assert sch.get(write).name_hint == "C_local"
    assert sch.get(b).name_hint == "B"

    @T.prim_func
    def after(A: T.Buffer((8, 12), "float32"), C: T.Buffer((8, 12), "float32")):
        B = T.alloc_buffer((8, 12))
        B_global = T.alloc_buffer((8, 12))
        C_local = T.alloc_buffer((8, 12), scope="local")
        for i, j in T.grid(8, 12):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2.0
        for ax0, ax1 in T.grid(8, 12):
            with T.block("B_global"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B_global[v0, v1] = B[v0, v1]
        for i, j in T.grid(8, 12):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C_local[vi, vj] = B_global[vi, vj] + 1.0
        for ax0, ax1 in T.grid(8, 12):
            with T.block("C_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                C[v0, v1] = C_local[v0, v1]

    expect(sch, after)
    same_meaning(two_steps, program(sch))


def test_the_copy_stands_in_the_loop_that_makes_and_uses() -> None:
    sch = Schedule(fan_out)
    sch.cache_read(sch.get_block("B"), 0, "global")

    @T.prim_func
    def after(B: T.Buffer((24,), "float32"), C: T.Buffer((24,), "float32")):
        A = T.alloc_buffer((24,))
        A_global = T.alloc_buffer((24,))
        for i in range(4):
            for j in range(6):
                with T.block("A"):
                    v = T.axis.spatial(24, i * 6 + j)
                    A[v] = T.cast(v, "float32")
            for ax0 in range(6):
                with T.block("A_global"):
                    v0 = T.axis.spatial(24, i * 6 + ax0)
                    A_global[v0] = A[v0]
            for j in range(6):
                with T.block("B"):
                    v = T.axis.spatial(24, i * 6 + j)
                    B[v] = A_global[v] + 1.0
        for i in range(24):
            with T.block("C"):
                v = T.axis.spatial(24, i)
                C[v] = A_global[v] * 3.0

    expect(sch, after)
    same_meaning(fan_out, program(sch))


@pytest.mark.parametrize("who", [["B"], ["C"], ["B", "C"]])
@pytest.mark.parametrize("write", [False, True])
def test_chosen_consumers(who: list[str], write: bool) -> None:
    sch = Schedule(fan_out)
    chosen = [sch.get_block(n) for n in who]
    if write:
        sch.cache_write(sch.get_block("A"), 0, "global", consumer_blocks=chosen)
    else:
        sch.cache_read(sch.get_block("B"), 0, "global", consumer_blocks=chosen)
    for n in ("B", "C"):
        assert sch.get(sch.get_block(n)).reads[0].buffer.name == ("A_global" if n in who else "A")
    same_meaning(fan_out, program(sch))


def test_inside_a_block_the_cache_has_the_size_of_the_part() -> None:
    sch = Schedule(tiles)
    sch.cache_read(sch.get_block("B"), 0, "local")
    sch.cache_write(sch.get_block("B"), 0, "global")

    @T.prim_func
    def after(B: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        A = T.alloc_buffer((8, 8))
        for i0, j0 in T.grid(2, 2):
            with T.block("tile"):
                i, j = T.axis.remap("SS", [i0, j0])
                T.reads(A[i * 4 : i * 4 + 4, j * 4 : j * 4 + 4])
                T.writes(A[i * 4 : i * 4 + 4, j * 4 : j * 4 + 4], B[i * 4 : i * 4 + 4, j * 4 : j * 4 + 4])
                A_local = T.alloc_buffer((4, 4), scope="local")
                B_global = T.alloc_buffer((4, 4))
                for x, y in T.grid(4, 4):
                    with T.block("A"):
                        vi = T.axis.spatial(8, i * 4 + x)
                        vj = T.axis.spatial(8, j * 4 + y)
                        A[vi, vj] = T.cast(vi + vj, "float32")
                for ax0, ax1 in T.grid(4, 4):
                    with T.block("A_local"):
                        v0, v1 = T.axis.remap("SS", [ax0, ax1])
                        A_local[v0, v1] = A[i * 4 + v0, j * 4 + v1]
                for x, y in T.grid(4, 4):
                    with T.block("B"):
                        vi = T.axis.spatial(8, i * 4 + x)
                        vj = T.axis.spatial(8, j * 4 + y)
                        B_global[vi - i * 4, vj - j * 4] = A_local[vi - i * 4, vj - j * 4] + 1.0
                for ax0, ax1 in T.grid(4, 4):
                    with T.block("B_global"):
                        v0, v1 = T.axis.remap("SS", [ax0, ax1])
                        B[i * 4 + v0, j * 4 + v1] = B_global[v0, v1]
        for i, j in T.grid(8, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * 2.0

    expect(sch, after)
    same_meaning(tiles, program(sch))


def test_a_part_that_is_written_makes_a_smaller_cache_unless_more_is_read() -> None:
    @T.prim_func
    def part(A: T.Buffer((32,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((32,))
        for i in range(16):
            with T.block("B"):
                v = T.axis.spatial(16, i)
                B[v + 4] = A[v * 2]
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                C[v] = B[v + 6] + B[v + 8]

    sch = Schedule(part)
    read = sch.cache_read(sch.get_block("C"), 0, "local")
    assert [int(n) for n in sch.get(read).writes[0].buffer.shape] == [16]
    same_meaning(part, program(sch))
    sch = Schedule(part)
    sch.cache_write(sch.get_block("B"), 0, "local")
    same_meaning(part, program(sch))


def test_what_is_written_later_is_copied_before() -> None:
    sch = Schedule(in_place)
    sch.cache_read(sch.get_block("take"), 0, "local")
    same_meaning(in_place, program(sch))
    assert sch.get(sch.get_block("take")).reads[0].buffer.name == "data_local"


def test_a_condition_on_the_block_bounds_the_copy() -> None:
    @T.prim_func
    def ragged(A: T.Buffer((30,), "float32"), B: T.Buffer((30,), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("B"):
                v = T.axis.spatial(30, i * 8 + j)
                T.where(i * 8 + j < 30)
                B[v] = A[v] + 1.0

    sch = Schedule(ragged)
    w = sch.cache_write(sch.get_block("B"), 0, "global")
    assert [int(sch.get(x).extent) for x in sch.get_loops(w)] == [30]
    same_meaning(ragged, program(sch))


def test_sizes_of_64_bits_and_symbolic_ones() -> None:
    @T.prim_func
    def wide(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(4)))
        C = T.match_buffer(c, (n, T.int64(4)))
        for i, j in T.grid(n, T.int64(4)):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] + 1.0

    sch = Schedule(wide)
    read = sch.cache_read(sch.get_block("C"), 0, "global")
    sch.cache_write(sch.get_block("C"), 0, "global")
    assert {sch.get(x).loop_var.dtype for x in sch.get_loops(read)} == {"int64"}
    same_meaning(wide, program(sch), sizes={"n": 5})


@pytest.mark.parametrize("what", [0, "A", "buffer"])
def test_a_buffer_by_place_by_name_or_itself(what: Any) -> None:
    sch = Schedule(two_steps)
    b = sch.get_block("B")
    sch.cache_read(b, sch.get(b).reads[0].buffer if what == "buffer" else what, "global")
    same_meaning(two_steps, program(sch))


def test_what_is_refused() -> None:
    @T.prim_func
    def twice(B: T.Buffer((8,), "float32")):
        A = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("A0"):
                v = T.axis.spatial(8, i)
                A[v] = 1.0
        for i in range(8):
            with T.block("A1"):
                v = T.axis.spatial(8, i)
                A[v] = 2.0
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v]

    sch = Schedule(twice)
    assert "2 blocks write it ('A0', 'A1')" in refused("TW0453", lambda: sch.cache_read(sch.get_block("B"), 0, "local"))
    refused("TW0453", lambda: sch.cache_write(sch.get_block("A0"), 0, "local"))
    sch = Schedule(two_steps)
    b = sch.get_block("B")
    assert "choose among: 0 (A)" in refused("TW0451", lambda: sch.cache_read(b, 1, "local"))
    refused("TW0451", lambda: sch.cache_write(b, 1, "local"))
    assert "no storage scope" in refused("TW0452", lambda: sch.cache_read(b, 0, "nowhere"))
    refused("TW0452", lambda: sch.cache_write(b, 0, "nowhere"))
    sch = Schedule(tiles)
    refused("TW0464", lambda: sch.cache_read(sch.get_block("B"), 0, "local", [sch.get_block("C")]))
    sch = Schedule(in_place)
    give, take = sch.get_block("give"), sch.get_block("take")
    assert "comes before" in refused("TW0464", lambda: sch.cache_write(give, 0, "local", [take]))


def test_a_copy_back_may_not_overwrite_what_the_block_left() -> None:
    @T.prim_func
    def even(A: T.Buffer((8,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v * 2] = A[v]

    @T.prim_func
    def some(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                if A[v] > 0.0:
                    B[v] = A[v]

    for f in (even, some):
        sch = Schedule(f)
        assert "are not its own" in refused("TW0453", lambda: sch.cache_write(sch.get_block("B"), 0, "local"))


def test_a_loop_that_reads_what_an_earlier_iteration_wrote() -> None:
    @T.prim_func
    def carried(C: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
        A = T.alloc_buffer((9,))
        with T.block("start"):
            A[0] = 1.0
        for i in range(8):
            with T.block("C"):
                v = T.axis.opaque(8, i)
                C[v] = A[v]
            with T.block("A"):
                v = T.axis.opaque(8, i)
                A[v + 1] = C[v] * 2.0
        for i in range(8):
            with T.block("D"):
                v = T.axis.spatial(8, i)
                D[v] = A[v]

    sch = Schedule(carried)
    refused("TW0453", lambda: sch.cache_write(sch.get_block("A"), 0, "local"))

    @T.prim_func
    def running(C: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32"), A: T.Buffer((9,), "float32")):
        for i in range(8):
            with T.block("C"):
                v = T.axis.opaque(8, i)
                C[v] = A[v]
            with T.block("A"):
                v = T.axis.opaque(8, i)
                A[v + 1] = C[v] * 2.0
        for i in range(8):
            with T.block("D"):
                v = T.axis.spatial(8, i)
                D[v] = A[v]

    sch = Schedule(running)
    copy = sch.cache_write(sch.get_block("A"), 0, "local")
    assert len(sch.get_loops(copy)) == 2
    same_meaning(running, program(sch))
    sch = Schedule(running)
    sch.cache_read(sch.get_block("C"), 0, "local")
    same_meaning(running, program(sch))


def test_ragged_tiles_are_copied_up_to_the_end() -> None:
    @T.prim_func
    def ragged(A: T.Buffer((4, 3), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4, 3))
        for o in range(2):
            for i, j in T.grid(3, 3):
                with T.block("B"):
                    vi = T.axis.spatial(4, o * 3 + i)
                    vj = T.axis.spatial(3, j)
                    T.where(o * 3 + i < 4)
                    B[vi, vj] = A[vi, vj] * 2.0
            for i, j in T.grid(3, 3):
                with T.block("C"):
                    vi = T.axis.spatial(4, o * 3 + i)
                    vj = T.axis.reduce(3, j)
                    T.where(o * 3 + i < 4)
                    with T.init():
                        C[vi] = 0.0
                    C[vi] = C[vi] + B[vi, vj]

    for step, name in (("cache_write", "B"), ("cache_read", "C")):
        sch = Schedule(ragged)
        getattr(sch, step)(sch.get_block(name), 0, "local")
        assert program(sch).script().count("T.where") == 3
        same_meaning(ragged, program(sch))
