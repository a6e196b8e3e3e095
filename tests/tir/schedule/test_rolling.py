"""rolling_buffer: what consecutive iterations share is computed once and kept in a ring."""

from __future__ import annotations

import pytest

from tests.tir.schedule.alike import program, refused, same_meaning
from tilewright.script import tir as T
from tilewright.tir.schedule import Schedule


@T.prim_func
def pools(A: T.Buffer((1, 24, 24, 4), "int32"), C: T.Buffer((1, 8, 8, 4), "int32")):
    B0 = T.alloc_buffer((1, 22, 22, 4), "int32")
    B1 = T.alloc_buffer((1, 10, 10, 4), "int32")
    for n, h, w, c, kh, kw in T.grid(1, 22, 22, 4, 3, 3):
        with T.block("B0"):
            vn, vh, vw, vc, rh, rw = T.axis.remap("SSSSRR", [n, h, w, c, kh, kw])
            with T.init():
                B0[vn, vh, vw, vc] = -100
            B0[vn, vh, vw, vc] = T.max(B0[vn, vh, vw, vc], A[vn, vh + rh, vw + rw, vc])
    for n, h, w, c, kh, kw in T.grid(1, 10, 10, 4, 3, 3):
        with T.block("B1"):
            vn, vh, vw, vc, rh, rw = T.axis.remap("SSSSRR", [n, h, w, c, kh, kw])
            with T.init():
                B1[vn, vh, vw, vc] = -100
            B1[vn, vh, vw, vc] = T.max(B1[vn, vh, vw, vc], B0[vn, vh * 2 + rh, vw * 2 + rw, vc])
    for n, h, w, c, kh, kw in T.grid(1, 8, 8, 4, 3, 3):
        with T.block("C"):
            vn, vh, vw, vc, rh, rw = T.axis.remap("SSSSRR", [n, h, w, c, kh, kw])
            with T.init():
                C[vn, vh, vw, vc] = -100
            C[vn, vh, vw, vc] = T.max(C[vn, vh, vw, vc], B1[vn, vh + rh, vw + rw, vc])


def tiled(tile: tuple[int, ...]) -> Schedule:
    """Both stages inside tiles of the last one."""
    sch = Schedule(pools)
    c = sch.get_block("C")
    outer, inner = [], []
    for loop, n in zip(sch.get_loops(c), tile):
        a, b = sch.split(loop, [None, n])
        outer.append(a)
        inner.append(b)
    sch.reorder(*outer, *inner)
    sch.compute_at(sch.get_block("B1"), outer[-1])
    sch.compute_at(sch.get_block("B0"), outer[-1])
    return sch


@pytest.mark.parametrize("tile", [(1, 4, 4, 4), (1, 8, 4, 4), (1, 4, 8, 2), (1, 3, 3, 4), (1, 1, 8, 4)])
def test_a_cascade_of_pools(tile: tuple[int, ...]) -> None:
    sch = tiled(tile)
    sch.rolling_buffer(sch.get_block("B0"), 0)
    sch.rolling_buffer(sch.get_block("B1"), 0)
    dim = 1 if tile[1] < 8 else 2
    shape = [int(n) for n in sch.get(sch.get_block("B1")).writes[0].buffer.shape]
    assert shape[dim] == tile[dim] + 2
    assert {iv.iter_type for iv in sch.get(sch.get_block("C")).iter_vars} >= {4}  # opaque
    same_meaning(pools, program(sch))


def test_the_condition_and_the_ring() -> None:
    @T.prim_func
    def sums(A: T.Buffer((12,), "int32"), C: T.Buffer((8,), "int32")):
        B = T.alloc_buffer((10,), "int32")
        for i, k in T.grid(10, 3):
            with T.block("B"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    B[v] = 0
                B[v] = B[v] + A[v + r]
        for i, k in T.grid(8, 3):
            with T.block("C"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    C[v] = 0
                C[v] = C[v] + B[v + r]

    sch = Schedule(sums)
    i, _ = sch.get_loops(sch.get_block("C"))
    i0, _ = sch.split(i, [2, 4])
    sch.compute_at(sch.get_block("B"), i0)
    sch.rolling_buffer(sch.get_block("B"), "B")
    text = program(sch).script()
    assert "T.where(i_0 < 1 or 2 <= ax0)" in text
    assert "B[(v + r) % 6]" in text
    same_meaning(sums, program(sch))


def test_strides_that_vary() -> None:
    @T.prim_func
    def upscale(A: T.Buffer((14,), "int32"), C: T.Buffer((24,), "int32")):
        B = T.alloc_buffer((14,), "int32")
        for o in range(5):
            for i in range(5):
                with T.block("B"):
                    T.where(o * 5 // 2 + i < 14)
                    v = T.axis.spatial(14, o * 5 // 2 + i)
                    B[v] = A[v] * 2
            for i, k in T.grid(5, 3):
                with T.block("C"):
                    T.where(o * 5 + i < 24)
                    v = T.axis.spatial(24, o * 5 + i)
                    r = T.axis.reduce(3, k)
                    with T.init():
                        C[v] = 0
                    C[v] = C[v] + B[v // 2 + r]

    sch = Schedule(upscale)
    sch.rolling_buffer(sch.get_block("B"), 0)
    assert "(o < 1 or 2 <= i)" in program(sch).script()
    same_meaning(upscale, program(sch))


def test_what_is_refused() -> None:
    sch = Schedule(pools)
    assert "no common loop" in refused("TW0471", lambda: sch.rolling_buffer(sch.get_block("B0"), 0))
    assert "output block" in refused("TW0471", lambda: sch.rolling_buffer(sch.get_block("C"), 0))
    refused("TW0451", lambda: sch.rolling_buffer(sch.get_block("B0"), 1))
    sch = tiled((1, 8, 8, 4))
    assert "do not overlap" in refused("TW0471", lambda: sch.rolling_buffer(sch.get_block("B1"), 0))
    sch = tiled((1, 4, 8, 4))
    sch.parallel(sch.get_loops(sch.get_block("C"))[1])
    assert "is not serial" in refused("TW0471", lambda: sch.rolling_buffer(sch.get_block("B1"), 0))
