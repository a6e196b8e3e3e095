"""A matrix product from naive loops to near OpenBLAS, one schedule step at a time, each measured on this machine.

    python examples/matmul.py             prints a table
    python examples/matmul.py --write     puts the table into docs/kernels.md

One thread; n = 960, whose divisors suit the tiles of 256- and 512-bit vectors. numpy's OpenBLAS is the yardstick; both are run
in turn, best of several.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("TILEWRIGHT_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tilewright as tvm
from tilewright.script import tir as T

N = 960
WIDE = tvm.target.Target("llvm").vector_bytes // 4  # floats in a vector register
ROWS, COLS = (12, 2 * WIDE) if WIDE == 16 else (6, 2 * WIDE)  # the tile of C that registers hold


@T.prim_func
def matmul(A: T.Buffer((960, 960), "float32"), B: T.Buffer((960, 960), "float32"), C: T.Buffer((960, 960), "float32")):
    T.func_attr({"tir.noalias": True})
    for i, j, k in T.grid(960, 960, 960):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def naive() -> tvm.tir.Schedule:
    """The loops as they are written."""
    return tvm.tir.Schedule(matmul)


def reordered() -> tvm.tir.Schedule:
    """k outside j: rows of B and C are walked along memory, a vector at a time."""
    sch = naive()
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, [None, WIDE])
    sch.reorder(i, k, j0, j1)
    sch.vectorize(j1)
    sch.decompose_reduction(block, k)
    return sch


def tiled(sch: tvm.tir.Schedule) -> tvm.tir.Schedule:
    """A tile of C in registers: every element of A and B that is loaded is used several times."""
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, ROWS])
    j0, j1, j2 = sch.split(j, [None, COLS // WIDE, WIDE])
    sch.reorder(j0, i0, k, i1, j1, j2)
    tile = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(tile, i0)
    _, inner = sch.split(sch.get_loops(tile)[-1], [None, WIDE])
    sch.vectorize(inner)
    sch.unroll(i1)
    sch.unroll(j1)
    sch.vectorize(j2)
    sch.decompose_reduction(block, k)
    return sch


def packed() -> tvm.tir.Schedule:
    """The columns of B that a tile needs side by side in memory: no page of B is touched for one row only."""
    sch = naive()
    block = sch.get_block("C")
    panel = sch.cache_read(block, 1, "global")
    sch.transform_layout(block, ("read", 1), lambda k, j: (j // COLS, k, j % COLS))
    _, inner = sch.split(sch.get_loops(panel)[-1], [None, WIDE])
    sch.vectorize(inner)
    return tiled(sch)


STEPS: list[tuple[str, Callable[[], tvm.tir.Schedule]]] = [
    ("naive loops", naive),
    ("`k` outside `j`, `j` in vectors", reordered),
    ("a tile of C in registers", lambda: tiled(naive())),
    ("B packed in panels", packed),
]


def best(f: Callable[[], object], runs: int) -> float:
    """The least seconds of several runs."""
    out = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        f()
        out = min(out, time.perf_counter() - start)
    return out


def measure() -> list[tuple[str, float, float]]:
    """(step, GFLOP/s, share of OpenBLAS's) of every step; each result is compared with numpy's."""
    rng = np.random.default_rng(0)
    a, b = rng.random((N, N), dtype=np.float32), rng.random((N, N), dtype=np.float32)
    ours = [tvm.nd.array(a), tvm.nd.array(b), tvm.nd.empty((N, N), "float32")]
    rows: list[tuple[str, float, float]] = []
    flop = 2 * N**3 / 1e9
    peer = flop / best(lambda: a @ b, 5)
    for name, schedule in STEPS:
        run = tvm.build(schedule().mod, target="llvm")["matmul"]
        run(*ours)
        np.testing.assert_allclose(ours[2].numpy(), a @ b, rtol=1e-4)
        rounds = 1 if not rows else 6
        mine = 0.0
        for _ in range(rounds):  # in turn, so that both meet the same machine
            mine = max(mine, flop / best(lambda run=run: run(*ours), 3 if rounds > 1 else 1))
            peer = max(peer, flop / best(lambda: a @ b, 3))
        rows.append((name, mine, 0.0))
    return [(name, mine, mine / peer) for name, mine, _ in rows] + [("OpenBLAS (numpy)", peer, 1.0)]


def table(rows: list[tuple[str, float, float]]) -> str:
    """The rows as Markdown."""
    lines = ["| step | GFLOP/s | of OpenBLAS |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {speed:.1f} | {share:.0%} |" for name, speed, share in rows)])


def write(text: str) -> None:
    """Put the table into the page."""
    page = Path(__file__).resolve().parents[1] / "docs" / "kernels.md"
    before, _, rest = page.read_text(encoding="utf-8").partition("<!-- figures -->\n")
    _, _, after = rest.partition("<!-- end -->\n")
    page.write_text(f"{before}<!-- figures -->\n{text}\n<!-- end -->\n{after}", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/kernels.md")
    found = table(measure())
    print(found)
    if parser.parse_args().write:
        write(found)
