"""Steps together, as people use them: tiles in shared memory with cooperative fetching, caches close to the computation."""

from __future__ import annotations

import pytest

from tests.tir.schedule.alike import program, same_meaning
from tilewright.script import tir as T
from tilewright.tir.schedule import BlockRV, Schedule

N = 16


@T.prim_func
def matmul(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    for i, j, k in T.grid(16, 16, 16):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def fetch(sch: Schedule, block: BlockRV, at: object, threads: tuple[int, int], lanes: int) -> None:
    """All threads together copy a tile: each takes `lanes` elements at a time."""
    sch.compute_at(block, at)
    together = sch.fuse(*sch.get_loops(block)[-2:])
    _, ty, tx, vec = sch.split(together, [None, threads[0], threads[1], lanes])
    sch.vectorize(vec)
    sch.bind(ty, "threadIdx.y")
    sch.bind(tx, "threadIdx.x")


@pytest.mark.parametrize("tile_k", [4, 8])
@pytest.mark.parametrize("lanes", [1, 2])
def test_shared_memory_matmul_with_cooperative_fetching(tile_k: int, lanes: int) -> None:
    sch = Schedule(matmul)
    c = sch.get_block("C")
    local = sch.cache_write(c, 0, "local")
    i, j, k = sch.get_loops(c)
    by, ty, yi = sch.split(i, [2, 4, 2])
    bx, tx, xi = sch.split(j, [2, 4, 2])
    k0, k1 = sch.split(k, [None, tile_k])
    sch.reorder(by, bx, ty, tx, k0, k1, yi, xi)
    sch.reverse_compute_at(local, tx)
    sch.bind(by, "blockIdx.y")
    sch.bind(bx, "blockIdx.x")
    sch.bind(ty, "threadIdx.y")
    sch.bind(tx, "threadIdx.x")
    for n in (0, 1):
        copy = sch.cache_read(c, n, "shared")
        fetch(sch, copy, k0, (4, 4), lanes)
    sch.decompose_reduction(c, k0)
    f = program(sch)
    assert f.script().count("T.vectorized") == 2
    same_meaning(matmul, f, native=False)
    again = Schedule(matmul)
    sch.trace.apply_to_schedule(again)
    assert program(again).script() == f.script()


def test_registers_and_shared_memory_in_a_chain() -> None:
    """global ▸ shared ▸ local, each at its own loop."""
    sch = Schedule(matmul)
    c = sch.get_block("C")
    shared = [sch.cache_read(c, n, "shared") for n in (0, 1)]
    local = [sch.cache_read(c, n, "local") for n in (0, 1)]
    result = sch.cache_write(c, 0, "local")
    i, j, k = sch.get_loops(c)
    by, ty, yi = sch.split(i, [2, 2, 4])
    bx, tx, xi = sch.split(j, [2, 2, 4])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(by, bx, ty, tx, k0, k1, yi, xi)
    for loop, axis in zip((by, bx, ty, tx), ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")):
        sch.bind(loop, axis)
    sch.reverse_compute_at(result, tx)
    for b in local:
        sch.compute_at(b, k1)
    for b in shared:
        sch.compute_at(b, k0)
        assert [int(sch.get(x).extent) for x in sch.get_loops(b)[-2:]] in ([8, 4], [4, 8])
    sch.unroll(k1)
    same_meaning(matmul, program(sch), native=False)


def test_a_tiled_convolution_with_an_epilogue() -> None:
    @T.prim_func
    def conv(
        X: T.Buffer((2, 10, 10), "float32"), W: T.Buffer((4, 2, 3, 3), "float32"), b: T.Buffer((4,), "float32"),
        Y: T.Buffer((4, 10, 10), "float32"),
    ):  # fmt: skip
        P = T.alloc_buffer((2, 12, 12))
        C = T.alloc_buffer((4, 10, 10))
        D = T.alloc_buffer((4, 10, 10))
        for c, h, w in T.grid(2, 12, 12):
            with T.block("P"):
                vc, vh, vw = T.axis.remap("SSS", [c, h, w])
                P[vc, vh, vw] = T.if_then_else(vh >= 1 and vh < 11 and vw >= 1 and vw < 11, X[vc, vh - 1, vw - 1], 0.0)
        for f, h, w, c, kh, kw in T.grid(4, 10, 10, 2, 3, 3):
            with T.block("C"):
                vf, vh, vw, vc, rh, rw = T.axis.remap("SSSRRR", [f, h, w, c, kh, kw])
                with T.init():
                    C[vf, vh, vw] = 0.0
                C[vf, vh, vw] = C[vf, vh, vw] + P[vc, vh + rh, vw + rw] * W[vf, vc, rh, rw]
        for f, h, w in T.grid(4, 10, 10):
            with T.block("D"):
                vf, vh, vw = T.axis.remap("SSS", [f, h, w])
                D[vf, vh, vw] = C[vf, vh, vw] + b[vf]
        for f, h, w in T.grid(4, 10, 10):
            with T.block("Y"):
                vf, vh, vw = T.axis.remap("SSS", [f, h, w])
                Y[vf, vh, vw] = T.max(D[vf, vh, vw], 0.0)

    sch = Schedule(conv)
    sch.compute_inline(sch.get_block("D"))
    y, c = sch.get_block("Y"), sch.get_block("C")
    f, h, w = sch.get_loops(y)
    h0, h1 = sch.split(h, [None, 4])
    w0, w1 = sch.split(w, [None, 4])
    sch.reorder(h0, w0, f, h1, w1)
    sch.compute_at(c, w0)
    sch.compute_at(sch.get_block("P"), w0)
    same_meaning(conv, program(sch))
    inner = sch.get_loops(c)
    sch.decompose_reduction(c, inner[-3])
    sch.vectorize(w1)
    same_meaning(conv, program(sch))
