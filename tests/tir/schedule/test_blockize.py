"""blockize: of a loop, of several blocks; structure, meaning, and what it refuses."""

from __future__ import annotations

import pytest

from tests.tir.schedule.meaning import equal, only, refused, same
from tilewright.script import tir as T
from tilewright.tir.schedule import Schedule


@T.prim_func
def twice(A: T.Buffer((32, 24), "float32"), B: T.Buffer((32, 24), "float32")):
    for i, j in T.grid(32, 24):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)


def start(f=twice, name: str = "B"):
    sch = Schedule(f)
    block = sch.get_block(name)
    return sch, block, sch.get_loops(block)


def test_the_whole_nest():
    @T.prim_func
    def expected(A: T.Buffer((32, 24), "float32"), B: T.Buffer((32, 24), "float32")):
        with T.block("B_o"):
            vio = T.axis.spatial(1, 0)
            vjo = T.axis.spatial(1, 0)
            for i, j in T.grid(32, 24):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2)

    sch, _, loops = start()
    outer = sch.blockize(loops[0])
    equal(sch, expected)
    same(twice, sch)
    assert sch.get(outer).name_hint == "B_o"


def test_an_inner_loop():
    @T.prim_func
    def expected(A: T.Buffer((32, 24), "float32"), B: T.Buffer((32, 24), "float32")):
        for i in range(32):
            with T.block("B_o"):
                vi = T.axis.spatial(32, i)
                vjo = T.axis.spatial(1, 0)
                T.reads(A[vi, 0:24])
                T.writes(B[vi, 0:24])
                for j in range(24):
                    with T.block("B"):
                        vj = T.axis.spatial(24, j)
                        B[vi, vj] = A[vi, vj] * T.float32(2)

    sch, _, loops = start()
    sch.blockize(loops[1])
    equal(sch, expected)
    same(twice, sch)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("factors", [(8, 6), (32, 8), (1, 24), (5, 6)])
def test_tiles(keep, factors):
    sch, block, (i, j) = start()
    i0, i1 = sch.split(i, [None, factors[0]])
    j0, j1 = sch.split(j, [None, factors[1]])
    sch.reorder(i0, j0, i1, j1)
    if factors[0] == 5:
        sch.blockize(j1, preserve_unit_iters=keep)
    else:
        outer = sch.blockize(i1, preserve_unit_iters=keep)
        assert len(sch.get_loops(outer)) == 2
        assert len(sch.get_loops(block)) == 2
    same(twice, sch, native=True)


def test_rows_of_a_fused_loop():
    sch, _, loops = start()
    fused = sch.fuse(*loops)
    _, inner = sch.split(fused, [None, 24])
    sch.blockize(inner)
    assert "B[vi_o, vj_i]" in only(sch).script()
    same(twice, sch)


@T.prim_func
def columns(A: T.Buffer((32, 24), "float32"), B: T.Buffer((24,), "float32")):
    for k, i in T.grid(32, 24):
        with T.block("B"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vk, vi]


def test_a_reduction_has_its_init_in_the_new_block():
    @T.prim_func
    def expected(A: T.Buffer((32, 24), "float32"), B: T.Buffer((24,), "float32")):
        for i0, k0 in T.grid(6, 8):
            with T.block("B_o"):
                vko, vio = T.axis.remap("RS", [k0, i0])
                T.reads(A[vko * 4 : vko * 4 + 4, vio * 4 : vio * 4 + 4])
                T.writes(B[vio * 4 : vio * 4 + 4])
                with T.init():
                    for i1 in T.vectorized(4):
                        with T.block("B_init"):
                            vi = T.axis.spatial(4, i1)
                            B[vio * 4 + vi] = T.float32(0)
                for k1 in range(4):
                    for i1 in T.vectorized(4):
                        with T.block("B"):
                            vk, vi = T.axis.remap("RS", [k1, i1])
                            T.reads(B[vio * 4 + vi], A[vko * 4 + vk, vio * 4 + vi])
                            T.writes(B[vio * 4 + vi])
                            B[vio * 4 + vi] = B[vio * 4 + vi] + A[vko * 4 + vk, vio * 4 + vi]

    sch, _, (k, i) = start(columns)
    k0, k1 = sch.split(k, [None, 4])
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i0, k0, k1, i1)
    sch.vectorize(i1)
    outer = sch.blockize(k1)
    equal(sch, expected)
    same(columns, sch)
    sch.decompose_reduction(outer, sch.get_loops(outer)[1])
    same(columns, sch)


@T.prim_func
def halves(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for _m in range(2):
        for i, j in T.grid(3, 1):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj + 8] = A[vi, vj + 8] * T.float32(3)


def test_several_blocks():
    @T.prim_func
    def expected(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
        for _m in range(2):
            with T.block("outer_B_C_"):
                vio = T.axis.spatial(1, 0)
                vjo = T.axis.spatial(1, 0)
                T.reads(A[0:16, 0:16])
                T.writes(B[0:16, 0:16])
                for i, _j in T.grid(3, 1):
                    with T.block("B"):
                        vi = T.axis.spatial(3, i)
                        B[vi, 0] = A[vi, 0] * T.float32(2)
                for i, j in T.grid(16, 8):
                    with T.block("C"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        B[vi, vj + 8] = A[vi, vj + 8] * T.float32(3)

    sch = Schedule(halves)
    made = sch.blockize([sch.get_block("B"), sch.get_block("C")], preserve_unit_iters=False)
    equal(sch, expected)
    same(halves, sch)
    assert [b.name for b in sch.get_child_blocks(made)] == ["B", "C"]
    for names in (["B"], ["C"]):
        sch = Schedule(halves)
        sch.blockize([sch.get_block(n) for n in names])
        same(halves, sch)


def test_symbolic_rows():
    @T.prim_func
    def f(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n * 4, 8))
        B = T.match_buffer(b, (n * 4, 8))
        for i, i1, j in T.grid(n, 4, 8):
            with T.block("B"):
                vi = T.axis.spatial(n * 4, i * 4 + i1)
                vj = T.axis.spatial(8, j)
                B[vi, vj] = A[vi, vj] + T.float32(1)

    sch, _, loops = start(f)
    sch.blockize(loops[1])
    same(f, sch, {"n": 3})


def test_blockize_refuses():
    sch, _, loops = start()
    _, inner = sch.split(sch.fuse(*loops), [None, 10])
    message = refused("TW0487", "cannot be divided", lambda: sch.blockize(inner))
    assert "without a remainder" in message
    sch = Schedule(halves)
    loop = sch.get_loops(sch.get_block("B"))[0]
    message = refused("TW0487", "holds 2 blocks: B, C", lambda: sch.blockize(loop))
    assert "give the list" in message
    refused("TW0487", "in this order", lambda: sch.blockize([sch.get_block("C"), sch.get_block("B")]))
    refused("TW0487", "no block is given", lambda: sch.blockize([]))


@pytest.mark.parametrize("keep", [True, False])
def test_predicates_that_no_iterator_accounts_for(keep):
    @T.prim_func
    def edge(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
        for i, j in T.grid(8, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(j == 3)
                B[vi, vj] = A[vi, vj] * T.float32(2)

    sch, _, loops = start(edge)
    sch.blockize(loops[0], preserve_unit_iters=keep)
    same(edge, sch)
    sch, _, (k, i) = start(columns)
    sch.split(k, [None, 40])  # one block of 40, of which 32 are there
    loops = sch.get_loops(sch.get_block("B"))
    sch.reorder(i, *loops[:2])
    sch.blockize(sch.get_loops(sch.get_block("B"))[1], preserve_unit_iters=keep)
    same(columns, sch)
