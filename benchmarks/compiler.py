"""How fast the compiler's own steps are: schedule primitives, replaying a trace, compiling a scheduled matmul.

    python -m benchmarks.compiler [--repeat N] [--write]

Prints one line a figure with its limit. Times are milliseconds of wall time; cold caches of the kernel store are not used.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.page import provenance, write
from tilewright.ir.target import Target
from tilewright.script import tir as T
from tilewright.tir.ir import PrimFunc
from tilewright.tir.lower import lower_kernel
from tilewright.tir.schedule import Schedule


@T.prim_func
def conv(
    X: T.Buffer((4, 56, 56, 64), "float32"),
    W: T.Buffer((3, 3, 64, 64), "float32"),
    Y: T.Buffer((4, 56, 56, 64), "float32"),
):
    P = T.alloc_buffer((4, 58, 58, 64), "float32")
    C = T.alloc_buffer((4, 56, 56, 64), "float32")
    for n, h, w, c in T.grid(4, 58, 58, 64):
        with T.block("pad"):
            vn, vh, vw, vc = T.axis.remap("SSSS", [n, h, w, c])
            P[vn, vh, vw, vc] = T.if_then_else(
                vh >= 1 and vh < 57 and vw >= 1 and vw < 57, X[vn, vh - 1, vw - 1, vc], T.float32(0.0)
            )
    for n, h, w, c, r, s, k in T.grid(4, 56, 56, 64, 3, 3, 64):
        with T.block("conv"):
            vn, vh, vw, vc, vr, vs, vk = T.axis.remap("SSSSRRR", [n, h, w, c, r, s, k])
            with T.init():
                C[vn, vh, vw, vc] = T.float32(0.0)
            C[vn, vh, vw, vc] = C[vn, vh, vw, vc] + P[vn, vh + vr, vw + vs, vk] * W[vr, vs, vk, vc]
    for n, h, w, c in T.grid(4, 56, 56, 64):
        with T.block("relu"):
            vn, vh, vw, vc = T.axis.remap("SSSS", [n, h, w, c])
            Y[vn, vh, vw, vc] = T.max(C[vn, vh, vw, vc], T.float32(0.0))


@T.prim_func
def matmul(
    A: T.Buffer((1024, 1024), "float32"), B: T.Buffer((1024, 1024), "float32"), C: T.Buffer((1024, 1024), "float32")
):
    T.func_attr({"tir.noalias": True})
    for i, j, k in T.grid(1024, 1024, 1024):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0.0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def schedule_conv(sch: Schedule, step: Callable[..., Any]) -> None:
    """Tile the convolution to 12 loops, move its neighbours in, say how loops run; every step goes through `step`."""
    c, r = step("get_block", "conv"), step("get_block", "relu")
    n, h, w, co, kh, kw, ci = step("get_loops", c)
    h0, h1 = step("split", h, [None, 7])
    w0, w1 = step("split", w, [None, 14])
    w1, w2 = step("split", w1, [None, 7])
    co0, co1 = step("split", co, [None, 16])
    ci0, ci1 = step("split", ci, [None, 8])
    step("reorder", n, h0, w0, co0, kh, kw, ci0, h1, w1, ci1, w2, co1)
    step("reverse_compute_at", r, co0)
    step("compute_at", step("get_block", "pad"), w0)
    step("annotate", n, "pragma_auto_unroll_max_step", 16)
    step("parallel", h0)
    step("vectorize", co1)
    step("unroll", w2)
    loops = step("get_loops", r)
    r0, r1 = step("split", loops[-1], [None, 8])
    step("vectorize", r1)
    step("unroll", r0)
    pad = step("get_loops", "pad")
    step("fuse", pad[-2], pad[-1])
    step("decompose_reduction", c, kh)
    for x in step("get_loops", "conv_init")[-2:]:
        step("unroll", x)
    for name in ("pad", "conv_init", "conv_update", "relu"):
        step("annotate", name, "note", [1, 2])
        step("get_producers", name)
        step("get_consumers", name)
        step("unannotate", name, "note")
    for _ in range(2):
        x = step("get_loops", "relu")[-3]
        x0, x1 = step("split", x, [None, 7])
        step("fuse", x0, x1)


def time_primitives(repeat: int) -> tuple[float, float, float, int]:
    """(median, 95th percentile, median of replaying the whole trace, steps of it), ms."""
    times: list[float] = []
    replays: list[float] = []
    steps = 0
    for _ in range(repeat):
        sch = Schedule(conv)

        def step(name: str, *args: Any, sch: Schedule = sch) -> Any:
            start = time.perf_counter()
            out = getattr(sch, name)(*args)
            times.append((time.perf_counter() - start) * 1e3)
            return out

        schedule_conv(sch, step)
        steps = len(sch.trace.insts)
        again = Schedule(conv)
        start = time.perf_counter()
        sch.trace.apply_to_schedule(again, remove_postproc=False)
        replays.append((time.perf_counter() - start) * 1e3)
    times.sort()
    return statistics.median(times), times[int(len(times) * 0.95)], statistics.median(replays), steps


def scheduled_matmul() -> PrimFunc:
    """The matmul of 1024³ in tiles of 6 by 16 accumulators, both matrices packed."""
    sch = Schedule(matmul)
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 16])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(i0, j0, k0, k1, i1, j1)
    sch.decompose_reduction(c, k0)
    sch.unroll(i1)
    sch.unroll(k1)
    sch.vectorize(j1)
    init = sch.get_loops("C_init")
    sch.vectorize(init[-1])
    sch.unroll(init[-2])
    return sch.mod["main"]


def time_matmul(repeat: int) -> tuple[float, float, float]:
    """(lowering, emission of text, machine code) of the scheduled matmul, medians, ms."""
    from tilewright.backends.llvm import codegen
    from tilewright.backends.llvm.emit import emit_module

    target = Target("llvm")
    parts: list[tuple[float, float, float]] = []
    for _ in range(repeat):
        f = scheduled_matmul()
        t0 = time.perf_counter()
        flat = lower_kernel(f, target)
        t1 = time.perf_counter()
        text = emit_module([flat], target).text
        t2 = time.perf_counter()
        codegen.compile_object(text, target)
        t3 = time.perf_counter()
        parts.append(((t1 - t0) * 1e3, (t2 - t1) * 1e3, (t3 - t2) * 1e3))
    return tuple(statistics.median(p[i] for p in parts) for i in range(3))  # pyright: ignore


def measure(repeat: int) -> list[tuple[str, float, float]]:
    """(what, milliseconds, limit) of every figure."""
    median, high, replay, steps = time_primitives(repeat)
    lower, emit, code = time_matmul(repeat)
    return [
        ("one primitive on a convolution of 12 loops and three stages, median", median, 1.5),
        ("the same, 95th percentile", high, 10),
        (f"replaying a trace of {steps} steps", replay, 60),
        (
            f"scheduled matmul 1024: lower {lower:.1f} + emit {emit:.1f} + machine code {code:.1f}",
            lower + emit + code,
            60,
        ),
    ]


def main() -> None:
    """Print the figures, and put them into docs/benchmarks.md where that is asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeat", type=int, default=7)
    options.add_argument("--write", action="store_true", help="put the figures into docs/benchmarks.md")
    given = options.parse_args()
    rows = measure(given.repeat)
    for what, took, limit in rows:
        print(f"{what:<78} {took:8.2f} ms   limit {limit:g}")
    if given.write:
        lines = ["| what | measured | limit |", "|---|---|---|"]
        lines += [f"| {what} | {took:.2f} ms | {limit:g} ms |" for what, took, limit in rows]
        write(
            "compiler",
            "The compiler's own steps",
            f"{provenance('python -m benchmarks.compiler')}.\n\n" + "\n".join(lines),
        )


if __name__ == "__main__":
    main()
