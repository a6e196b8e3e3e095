"""reindex, reindex_cache_read, reindex_cache_write: copies that lie as a block walks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tir.schedule.alike import expect, program, refused, same_meaning
from tilewright.script import tir as T
from tilewright.tir.schedule import Schedule


@T.prim_func
def conv(
    X: T.Buffer((1, 9, 9, 3), "float32"), W: T.Buffer((3, 3, 3, 4), "float32"), Y: T.Buffer((1, 4, 4, 4), "float32")
):
    P = T.alloc_buffer((1, 9, 9, 3))
    for n, h, w, c in T.grid(1, 9, 9, 3):
        with T.block("P"):
            vn, vh, vw, vc = T.axis.remap("SSSS", [n, h, w, c])
            P[vn, vh, vw, vc] = X[vn, vh, vw, vc] + 1.0
    for n, h, w, f, kh, kw, c in T.grid(1, 4, 4, 4, 3, 3, 3):
        with T.block("Y"):
            vn, vh, vw, vf, vkh, vkw, vc = T.axis.remap("SSSSRRR", [n, h, w, f, kh, kw, c])
            with T.init():
                Y[vn, vh, vw, vf] = 0.0
            Y[vn, vh, vw, vf] = (
                Y[vn, vh, vw, vf] + P[vn, vh * 2 + vkh, vw * 2 + vkw, vf // 4 * 3 + vc] * W[vkh, vkw, vc, vf]
            )


@T.prim_func
def steps(A: T.Buffer((8, 6), "float32"), C: T.Buffer((8, 6), "float32")):
    B = T.alloc_buffer((8, 6))
    for i, j in T.grid(8, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(8, 6):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + 1.0


def test_what_a_convolution_reads_by_its_own_axes() -> None:
    sch = Schedule(conv)
    y = sch.get_block("Y")
    data = sch.reindex(y, ("read", 0))
    weight = sch.reindex(y, "W")
    result = sch.reindex(y, ("write", 0))
    shapes = {name: [int(n) for n in sch.get(b).writes[0].buffer.shape] for name, b in [("d", data), ("w", weight)]}
    assert shapes == {"d": [1, 4, 4, 3, 3, 3], "w": [4, 3, 3, 3]}
    assert [sch.get(b).name_hint for b in (data, weight, result)] == [
        "P_reindex_reindex", "W_reindex_reindex", "Y_reindex",
    ]  # fmt: skip
    assert "P_reindex[vn, vh, vw, vkh, vkw, vc] * W_reindex[vf, vkh, vkw, vc]" in program(sch).script()
    same_meaning(conv, program(sch))
    again = Schedule(conv)
    sch.trace.apply_to_schedule(again)
    assert program(again).script() == program(sch).script()


def test_a_transposed_read() -> None:
    @T.prim_func
    def turned(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi] * 2.0

    @T.prim_func
    def after(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        A_reindex = T.alloc_buffer((8, 8))
        for i, j in T.grid(8, 8):
            with T.block("A_reindex"):
                vi, vj = T.axis.remap("SS", [i, j])
                A_reindex[vi, vj] = A[vj, vi]
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A_reindex[vi, vj] * 2.0

    for buffer in (("read", 0), "A", turned.param_buffers[0]):
        sch = Schedule(turned)
        sch.reindex(sch.get_block("B"), buffer)
        expect(sch, after)
    same_meaning(turned, program(sch))


MAPS: list[Any] = [
    lambda i, j: (j, i // 2, i % 2),
    lambda i, j: (i * 6 + j,),
    lambda i, j: (j * 2, i),
    lambda i, j: (i + 1, j),
]


@pytest.mark.parametrize("index_map", MAPS)
def test_a_cache_by_a_map(index_map: Any) -> None:
    sch = Schedule(steps)
    sch.reindex_cache_read(sch.get_block("C"), 0, "local", index_map)
    same_meaning(steps, program(sch))
    sch = Schedule(steps)
    sch.reindex_cache_write(sch.get_block("B"), 0, "local", index_map)
    sch.reindex_cache_write(sch.get_block("C"), 0, "global", index_map)
    same_meaning(steps, program(sch))
    again = Schedule(steps)
    sch.trace.apply_to_schedule(again)
    assert program(again).script() == program(sch).script()


def test_the_copy_runs_where_the_block_runs() -> None:
    @T.prim_func
    def ragged(A: T.Buffer((30,), "float32"), B: T.Buffer((30,), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("B"):
                v = T.axis.spatial(30, i * 8 + j)
                T.where(i * 8 + j < 30)
                B[v] = A[v] + 1.0

    sch = Schedule(ragged)
    b = sch.get_block("B")
    copy = sch.reindex_cache_read(b, 0, "local", lambda v: (v // 8, v % 8))
    sch.reindex_cache_write(b, 0, "local", lambda v: (v % 8, v // 8))
    assert len(sch.get_loops(copy)) == 2
    assert program(sch).script().count("T.where(i * 8 + j < 30)") == 3
    same_meaning(ragged, program(sch))


def test_a_reduction_beside_its_users() -> None:
    @T.prim_func
    def nest(A: T.Buffer((4, 3, 5), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4, 3))
        for i, j in T.grid(4, 3):
            for k in range(5):
                with T.block("B"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        B[vi, vj] = 0.0
                    B[vi, vj] = B[vi, vj] + A[vi, vj, vk]
            with T.block("C"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    C[vi] = 0.0
                C[vi] = C[vi] + B[vi, vj]

    sch = Schedule(nest)
    copy = sch.reindex_cache_write(sch.get_block("B"), 0, "local", lambda i, j, k: (j, i))
    assert [sch.get(x).loop_var.name for x in sch.get_loops(copy)] == ["i", "j"]
    same_meaning(nest, program(sch))


def test_what_is_refused() -> None:
    @T.prim_func
    def two_places(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + A[vj, vi]

    sch = Schedule(two_places)
    b = sch.get_block("B")
    assert "single point" in refused("TW0468", lambda: sch.reindex(b, ("read", 0)))
    refused("TW0468", lambda: sch.reindex_cache_read(b, 0, "local", lambda i, j: (i, j)))
    refused("TW0482", lambda: sch.reindex(b, ("read", 1)))
    sch = Schedule(steps)
    b, c = sch.get_block("B"), sch.get_block("C")
    for step, block in ((sch.reindex_cache_read, c), (sch.reindex_cache_write, b)):
        message = refused("TW0468", lambda step=step, block=block: step(block, 0, "local", lambda i, j: (j,)))
        assert "'vi' occurs in the access, but not in the map" in message
        message = refused("TW0468", lambda step=step, block=block: step(block, 0, "local", lambda i, j: (i + j,)))
        assert "different elements into one place" in message
        refused("TW0452", lambda step=step, block=block: step(block, 0, "nowhere", lambda i, j: (i, j)))
    refused("TW0468", lambda: sch.reindex_cache_read(c, 0, "local", lambda i, j: (i - 1, j)))

    @T.prim_func
    def together(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * 2.0
            with T.block("C"):
                v = T.axis.spatial(8, i)
                C[v] = B[v] + 1.0

    sch = Schedule(together)
    assert "stands in the same loops" in refused("TW0468", lambda: sch.reindex(sch.get_block("C"), ("read", 0)))
    sch.reindex_cache_read(sch.get_block("C"), 0, "local", lambda i: (i,))
    same_meaning(together, program(sch))


def test_a_block_that_walks_only_a_part() -> None:
    @T.prim_func
    def tiles(B: T.Buffer((8,), "float32")):
        for o in range(2):
            with T.block("tile"):
                vo = T.axis.spatial(2, o)
                for i in range(4):
                    with T.block("B"):
                        v = T.axis.spatial(8, vo * 4 + i)
                        B[v] = T.cast(v, "float32")

    sch = Schedule(tiles)
    message = refused("TW0468", lambda: sch.reindex(sch.get_block("B"), ("write", 0)))
    assert "does not run over all of its axes" in message

    @T.prim_func
    def in_place(data: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block("twice"):
                v = T.axis.spatial(8, i)
                data[v] = data[v] * 2

    again = Schedule(in_place)
    twice = again.get_block("twice")
    assert "goes on from what data holds" in refused("TW0468", lambda: again.reindex(twice, ("write", 0)))
    refused("TW0468", lambda: again.reindex_cache_write(twice, 0, "local", lambda v: (v,)))
    sch.reindex_cache_write(sch.get_block("B"), 0, "local", lambda v: (v,))
    same_meaning(tiles, program(sch))


def test_what_an_inner_block_touches_is_no_single_point() -> None:
    @T.prim_func
    def tiles(A: T.Buffer((8,), "float32"), B: T.Buffer((2,), "float32")):
        for o in range(2):
            with T.block("tile"):
                vo = T.axis.spatial(2, o)
                T.reads(A[vo])
                T.writes(B[vo])
                with T.block("inner"):
                    v = T.axis.spatial(2, vo)
                    B[v] = A[v]

    sch = Schedule(tiles)
    assert "blocks of its own" in refused("TW0468", lambda: sch.reindex(sch.get_block("tile"), ("read", 0)))
