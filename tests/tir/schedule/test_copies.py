"""read_at, write_at, cache_inplace, cache_index: tiles, buffers that change in place, tables of indices."""

from __future__ import annotations

import numpy as np

from tests.tir.schedule.alike import expect, program, refused, same_meaning
from tilewright.script import tir as T
from tilewright.tir.interp import interpret
from tilewright.tir.schedule import Schedule


@T.prim_func
def window(A: T.Buffer((34,), "float32"), C: T.Buffer((32,), "float32")):
    for i0, i1 in T.grid(8, 4):
        with T.block("C"):
            v = T.axis.spatial(32, i0 * 4 + i1)
            C[v] = A[v] + A[v + 1] + A[v + 2]


@T.prim_func
def matmul(A: T.Buffer((8, 6), "float32"), B: T.Buffer((6, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    for i, j, k in T.grid(8, 8, 6):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def test_a_tile_is_read_at_a_loop() -> None:
    sch = Schedule(window)
    i0, _ = sch.get_loops(sch.get_block("C"))
    sch.read_at(i0, sch.get_block("C"), 0, "local")

    @T.prim_func
    def after(A: T.Buffer((34,), "float32"), C: T.Buffer((32,), "float32")):
        A_local = T.alloc_buffer((34,), scope="local")
        for i0 in range(8):
            with T.block("A_local"):
                v0 = T.axis.spatial(8, i0)
                T.reads(A[v0 * 4 : v0 * 4 + 6])
                T.writes(A_local[v0 * 4 : v0 * 4 + 6])
                T.block_attr({"auto_copy": True})
                for ax0 in range(6):
                    A_local[v0 * 4 + ax0] = A[v0 * 4 + ax0]
            for i1 in range(4):
                with T.block("C"):
                    v = T.axis.spatial(32, i0 * 4 + i1)
                    C[v] = A_local[v] + A_local[v + 1] + A_local[v + 2]

    expect(sch, after)
    same_meaning(window, program(sch))


def test_tiles_of_a_matmul_at_each_loop() -> None:
    for n in range(3):
        sch = Schedule(matmul)
        c = sch.get_block("C")
        i, j, k = sch.get_loops(c)
        i0, i1 = sch.split(i, [None, 4])
        j0, j1 = sch.split(j, [None, 3])
        sch.reorder(i0, j0, k, i1, j1)
        at = (i0, j0, k)[n]
        sch.read_at(at, c, 0, "local")
        sch.read_at(at, c, 1, "shared")
        sch.write_at((i0, j0, j0)[n], c, 0, "local")
        same_meaning(matmul, program(sch))


def test_threads_share_the_tile() -> None:
    @T.prim_func
    def threads(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        for b in T.thread_binding(4, "blockIdx.x"):
            for t in T.thread_binding(8, "threadIdx.x"):
                for j in range(2):
                    with T.block("C"):
                        v = T.axis.spatial(64, b * 16 + t * 2 + j)
                        C[v] = A[v] + 1.0

    for scope, size in (("shared", 16), ("local", 2)):
        sch = Schedule(threads)
        t = sch.get_loops(sch.get_block("C"))[1]
        copy = sch.read_at(t, sch.get_block("C"), 0, scope)
        assert int(sch.get(copy).reads[0].region[0].extent) == size
        same_meaning(threads, program(sch), native=False)


def test_tiles_that_are_refused() -> None:
    sch = Schedule(matmul)
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    refused("TW0451", lambda: sch.read_at(i, c, 5, "local"))
    refused("TW0452", lambda: sch.write_at(i, c, 0, "nowhere"))
    sch.decompose_reduction(c, k)
    update = sch.get_block("C_update")
    refused("TW0453", lambda: sch.write_at(j, update, 0, "local"))

    @T.prim_func
    def twice(A: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("A"):
                v = T.axis.spatial(8, i)
                A[v] = A[v] * 2.0

    sch = Schedule(twice)
    (i,) = sch.get_loops(sch.get_block("A"))
    assert "written under the loop" in refused("TW0469", lambda: sch.read_at(i, sch.get_block("A"), 0, "local"))
    assert "before it is written" in refused("TW0469", lambda: sch.write_at(i, sch.get_block("A"), 0, "local"))
    sch = Schedule(window)
    _, i1 = sch.get_loops(sch.get_block("C"))
    sch.read_at(i1, sch.get_block("C"), 0, "local")
    same_meaning(window, program(sch))


def test_a_buffer_that_changes_in_place() -> None:
    @T.prim_func
    def steps(data: T.Buffer((16,), "int32"), out: T.Buffer((16,), "int32")):
        for o in range(4):
            for i in range(4):
                with T.block("double"):
                    v = T.axis.spatial(16, o * 4 + i)
                    data[v] = data[v] * 2
        for i in range(16):
            with T.block("out"):
                v = T.axis.spatial(16, i)
                out[v] = data[v] + 1

    sch = Schedule(steps)
    before, after = sch.cache_inplace(sch.get_block("double"), 0, "local")
    assert sch.get(before).writes[0].buffer is sch.get(after).reads[0].buffer
    same_meaning(steps, program(sch))
    sch.cache_read(before, 0, "global", [before])
    sch.cache_write(after, 0, "global")
    same_meaning(steps, program(sch))
    assert "does not both" in refused("TW0470", lambda: sch.cache_inplace(sch.get_block("out"), 0, "local"))

    @T.prim_func
    def spread(data: T.Buffer((16,), "int32")):
        for i in range(15):
            with T.block("spread"):
                v = T.axis.opaque(15, i)
                data[v + 1] = data[v] * 2

    sch = Schedule(spread)
    assert "writes more" in refused("TW0470", lambda: sch.cache_inplace(sch.get_block("spread"), 0, "local"))


def test_a_call_that_changes_in_place() -> None:
    @T.prim_func
    def call(data: T.Buffer((8,), "int32")):
        for _ in range(1):
            with T.block("call"):
                T.reads(data[0:8])
                T.writes(data[0:8])
                T.evaluate(T.call_extern("int32", "flip", data.data))

    sch = Schedule(call)
    blocks = sch.cache_inplace(sch.get_block("call"), 0, "local")
    sch.cache_read(blocks[0], 0, "global", [blocks[0]])
    sch.cache_write(blocks[1], 0, "global")
    assert 'call_extern("int32", "flip", data_local.data)' in program(sch).script()
    x = np.arange(8, dtype="int32")

    def flip(a: np.ndarray) -> int:
        a[:] = a[::-1].copy()
        return 0

    interpret(program(sch), x, externs={"flip": flip})
    np.testing.assert_array_equal(x, np.arange(8)[::-1])


def test_indices_go_to_tables() -> None:
    @T.prim_func
    def resize(A: T.Buffer((8, 10), "float32"), B: T.Buffer((16, 20), "float32")):
        for i, j in T.grid(16, 20):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi // 4 + vj // 5, vj // 2] + A[vi // 2, vj // 2] * T.cast(vi // 2, "float32")

    sch = Schedule(resize)
    tables = sch.cache_index(sch.get_block("B"), "global")
    assert [sch.get(b).name_hint for b in tables] == ["index_0", "index_1", "index_2", "index_3"]
    text = program(sch).script()
    assert "A[index_var_0[vi, vj], index_var_2[vj]]" in text
    assert "index_var_0[v0, v1] = v0 // 4 + v1 // 5" in text
    same_meaning(resize, program(sch))
    sch = Schedule(resize)
    tables = sch.cache_index(sch.get_block("B"), "local", 2)
    assert len(tables) == 2
    assert all("v0 // 2" in sch.get(b).script() for b in tables)
    same_meaning(resize, program(sch))
    sch = Schedule(resize)
    assert sch.cache_index(sch.get_block("B"), "local", 9) == []
    same_meaning(resize, program(sch))
    refused("TW0452", lambda: sch.cache_index(sch.get_block("B"), "nowhere"))


def test_weights_of_an_interpolation() -> None:
    @T.prim_func
    def lerp(x: T.Buffer((10,), "float32"), y: T.Buffer((20,), "float32")):
        for i in range(20):
            with T.block("y"):
                v = T.axis.spatial(20, i)
                T.reads(x[0:10])
                y[v] = x[T.max(T.min(T.cast(T.floor(T.cast(v, "float32") * 0.5 - 0.25), "int32"), 9), 0)] * (
                    T.float32(1) - (T.cast(v, "float32") * 0.5 - T.floor(T.cast(v, "float32") * 0.5))
                ) + x[T.max(T.min(T.cast(T.floor(T.cast(v, "float32") * 0.5 - 0.25), "int32") + 1, 9), 0)] * (
                    T.cast(v, "float32") * 0.5 - T.floor(T.cast(v, "float32") * 0.5)
                )

    for threshold in (0, 2, 4):
        sch = Schedule(lerp)
        tables = sch.cache_index(sch.get_block("y"), "global", threshold)
        assert tables
        same_meaning(lerp, program(sch))
