"""How fast single kernels are: `python benchmarks/kernels.py [part of a name ...] [--threads N]`.

Prints for each kernel its time, GFLOP/s (or GB/s for what is bound by memory), and how long scheduling, lowering and LLVM
took. Operators are written as tensor expressions here, in the layouts that the graph passes choose (NHWC, packed weights).
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright import te
from tilewright.arith.expr import const, if_then_else, logical_and, maximum
from tilewright.ir.target import Target
from tilewright.tir import build as T

Case = tuple[str, Any, float, str]
"""Name, tensors of the function, operations (or bytes) of a call, unit of the rate."""


def tensor(name: str, *shape: int) -> Any:
    """An input."""
    return te.placeholder(shape, "float32", name=name)


def conv(h: int, ic: int, oc: int, k: int, s: int = 1, b: int = 16) -> Case:
    """NHWC convolution with packed weights, bias and ReLU."""
    p = k // 2
    x, w, bias = tensor("x", 1, h, h, ic), tensor("w", -(-oc // b), k, k, ic, b), tensor("bias", oc)
    o = (h + 2 * p - k) // s + 1
    src = pad(x, p) if p else x
    kh, kw, c = (te.reduce_axis((0, n), name=m) for n, m in ((k, "kh"), (k, "kw"), (ic, "ic")))
    y = te.compute(
        (1, o, o, oc),
        lambda n, i, j, f: te.sum(src[n, i * s + kh, j * s + kw, c] * w[f // b, kh, kw, c, f % b], axis=[kh, kw, c]),
        name="conv",
    )
    z = te.compute(
        (1, o, o, oc), lambda n, i, j, f: maximum(y[n, i, j, f] + bias[f], const(0.0, "float32")), name="relu"
    )
    return f"conv {k}x{k}/{s} {h}x{h} {ic}->{oc}", [x, w, bias, z], 2.0 * o * o * oc * ic * k * k, "GFLOP/s"


def pad(x: Any, p: int) -> Any:
    """Zeros around height and width."""
    n, h, w, c = (int(d) for d in x.shape)
    return te.compute(
        (n, h + 2 * p, w + 2 * p, c),
        lambda b, i, j, f: if_then_else(
            logical_and(logical_and(i >= p, i < h + p), logical_and(j >= p, j < w + p)), x[b, i - p, j - p, f], 0.0
        ),
        name="pad",
    )


def depthwise(h: int, c: int, k: int, s: int = 1) -> Case:
    """NHWC depthwise convolution."""
    x, w = tensor("x", 1, h, h, c), tensor("w", k, k, 1, c)
    o = (h + 2 * (k // 2) - k) // s + 1
    src = pad(x, k // 2)
    kh, kw = te.reduce_axis((0, k), name="kh"), te.reduce_axis((0, k), name="kw")
    y = te.compute(
        (1, o, o, c),
        lambda n, i, j, f: te.sum(src[n, i * s + kh, j * s + kw, f] * w[kh, kw, 0, f], axis=[kh, kw]),
        name="dw",
    )
    return f"depthwise {k}x{k}/{s} {h}x{h}x{c}", [x, w, y], 2.0 * o * o * c * k * k, "GFLOP/s"


def matmul(m: int, n: int, k: int, b: int = 16) -> Case:
    """A matrix product with a packed right side (b = 0: a plain one)."""
    a = tensor("a", m, k)
    w = tensor("w", -(-n // b), k, b) if b else tensor("w", k, n)
    r = te.reduce_axis((0, k), name="k")
    y = te.compute(
        (m, n), lambda i, j: te.sum(a[i, r] * (w[j // b, r, j % b] if b else w[r, j]), axis=r), name="matmul"
    )
    return f"matmul {m}x{k}x{n}{'' if b else ' plain'}", [a, w, y], 2.0 * m * n * k, "GFLOP/s"


def attention(b: int, m: int, n: int, k: int, transposed: bool) -> Case:
    """A batch of products: queries with keys (transposed), or weights with values."""
    x, w = tensor("x", b, m, k), tensor("w", b, n, k) if transposed else tensor("w", b, k, n)
    r = te.reduce_axis((0, k), name="k")
    y = te.compute(
        (b, m, n), lambda h, i, j: te.sum(x[h, i, r] * (w[h, j, r] if transposed else w[h, r, j]), axis=r), name="bmm"
    )
    return f"bmm{'^T' if transposed else ''} {b}x{m}x{k}x{n}", [x, w, y], 2.0 * b * m * n * k, "GFLOP/s"


def softmax(rows: int, n: int) -> Case:
    """Softmax of rows."""
    x = tensor("x", rows, n)
    k, j = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="j")
    m = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="max")
    e = te.compute((rows, n), lambda i, c: T.exp(x[i, c] - m[i]), name="exp")
    s = te.compute((rows,), lambda i: te.sum(e[i, j], axis=j), name="sum")
    y = te.compute((rows, n), lambda i, c: e[i, c] / s[i], name="softmax")
    return f"softmax {rows}x{n}", [x, y], 8.0 * rows * n, "GB/s"


def layer_norm(rows: int, n: int) -> Case:
    """Layer normalisation of rows."""
    x, g = tensor("x", rows, n), tensor("g", n)
    k, j = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="j")
    s = te.compute((rows,), lambda i: te.sum(x[i, k], axis=k), name="sum")
    m = te.compute((rows,), lambda i: s[i] / float(n), name="mean")
    v = te.compute((rows,), lambda i: te.sum((x[i, j] - m[i]) * (x[i, j] - m[i]), axis=j), name="var")
    y = te.compute((rows, n), lambda i, c: (x[i, c] - m[i]) * T.rsqrt(v[i] / float(n) + 1e-5) * g[c], name="norm")
    return f"layer_norm {rows}x{n}", [x, g, y], 8.0 * rows * n, "GB/s"


def pool(h: int, c: int, k: int, s: int) -> Case:
    """NHWC maximum pooling."""
    x = tensor("x", 1, h, h, c)
    o = (h - k) // s + 1
    a, b = te.reduce_axis((0, k), name="kh"), te.reduce_axis((0, k), name="kw")
    y = te.compute((1, o, o, c), lambda n, i, j, f: te.max(x[n, i * s + a, j * s + b, f], axis=[a, b]), name="pool")
    return f"max_pool {k}x{k}/{s} {h}x{h}x{c}", [x, y], 4.0 * (h * h + o * o) * c, "GB/s"


def elementwise(name: str, f: Callable[[Any], Any], *shape: int) -> Case:
    """One operation an element."""
    x = tensor("x", *shape)
    y = te.compute(shape, lambda *i: f(x(*i)), name="y")
    return f"{name} {'x'.join(map(str, shape))}", [x, y], 8.0 * float(np.prod(shape)), "GB/s"


def transpose(a: int, b: int, c: int) -> Case:
    """The last two axes exchanged."""
    x = tensor("x", a, b, c)
    y = te.compute((a, c, b), lambda i, j, k: x[i, k, j], name="y")
    return f"transpose {a}x{b}x{c}", [x, y], 8.0 * a * b * c, "GB/s"


def cases() -> Iterator[Case]:
    """All kernels."""
    for h, c in ((56, 64), (28, 128), (14, 256), (7, 512)):
        yield conv(h, c, c, 3)
        yield conv(h, c, 4 * c, 1)
        yield conv(h, 4 * c, c, 1)
    yield conv(56, 64, 64, 1)
    yield conv(224, 3, 64, 7, 2)
    yield conv(56, 128, 128, 3, 2)
    yield conv(56, 256, 512, 1, 2)
    for h, c, s in ((112, 32, 1), (56, 144, 1), (56, 144, 2), (14, 576, 1)):
        yield depthwise(h, c, 3, s)
    yield depthwise(14, 120, 5)
    for m, n, k in (
        (128, 384, 384),
        (128, 3072, 768),
        (128, 768, 3072),
        (512, 512, 512),
        (197, 768, 768),
        (1, 1024, 1024),
    ):
        yield matmul(m, n, k)
    yield matmul(1, 1000, 2048)
    yield matmul(4, 768, 768)
    yield matmul(512, 512, 512, 0)
    yield attention(12, 128, 128, 64, True)
    yield attention(12, 128, 64, 128, False)
    yield softmax(1536, 128)
    yield softmax(1, 1000)
    yield layer_norm(128, 768)
    yield pool(112, 64, 3, 2)
    yield elementwise("relu", lambda x: maximum(x, const(0.0, "float32")), 1, 64, 56, 56)
    yield elementwise("exp", T.exp, 1, 64, 56, 56)
    yield elementwise("erf", T.erf, 128, 3072)
    yield transpose(1, 64, 3136)
    yield transpose(12, 128, 64)


def measure(tensors: list[Any], target: Target) -> tuple[float, list[float]]:
    """(seconds a call, [seconds of scheduling, lowering, LLVM])"""
    from tilewright.backends.llvm.schedules import schedule_kernel
    from tilewright.backends.llvm.testing import contiguous, load_kernel
    from tilewright.tir.lower import lower_kernel

    marks = [time.perf_counter()]
    scheduled = schedule_kernel(te.create_prim_func(tensors), target)
    marks.append(time.perf_counter())
    flat = lower_kernel(scheduled, target)
    marks.append(time.perf_counter())
    kernel = load_kernel(flat, target)
    marks.append(time.perf_counter())
    rng = np.random.default_rng(0)
    args = [contiguous("float32", [int(d) for d in t.shape]) for t in tensors]
    for a in args:
        a[...] = rng.standard_normal(a.shape)
    return kernel.seconds(*args, repeat=15), [b - a for a, b in itertools.pairwise(marks)]


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only kernels whose name contains one of these")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    os.environ["TILEWRIGHT_NUM_THREADS"] = str(args.threads)
    target = Target("llvm")
    print(f"{'kernel':34s} {'time':>10s}  {'rate':>15s}   schedule, lower, LLVM in ms")
    for name, tensors, amount, unit in cases():
        if args.names and not any(n in name for n in args.names):
            continue
        try:
            seconds, parts = measure(tensors, target)
        except Exception as error:  # one kernel that fails must not hide the others
            print(f"{name:34s} failed: {str(error).splitlines()[0]}")
            continue
        times = ", ".join(f"{1e3 * p:.1f}" for p in parts)
        print(f"{name:34s} {seconds * 1e6:8.1f} us  {amount / seconds / 1e9:7.1f} {unit:7s}   {times}")


if __name__ == "__main__":
    main()
