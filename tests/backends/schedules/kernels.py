"""Kernels as tensor expressions, and the check that a scheduled, lowered and compiled kernel gives the interpreter's result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.arith.expr import IntImm, SizeVar, const, if_then_else, logical_and, maximum
from tilewright.backends.llvm.schedules import schedule_kernel
from tilewright.backends.llvm.testing import load_kernel
from tilewright.ir.target import Target
from tilewright.tir import build as T
from tilewright.tir.interp import interpret
from tilewright.tir.ir import PrimFunc
from tilewright.tir.lower import lower_kernel

Dim = Any


def dims(*shape: Dim) -> tuple[Any, ...]:
    """Sizes as int64 constants, symbols as they are."""
    return tuple(IntImm("int64", n) if isinstance(n, int) else n for n in shape)


def sym(name: str) -> SizeVar:
    """A symbolic size."""
    return SizeVar(name, "int64")


def ph(name: str, *shape: Dim, dtype: str = "float32") -> Any:
    """An input."""
    return te.placeholder(dims(*shape), dtype, name=name)


def axis(n: Dim, name: str) -> Any:
    """A reduction axis."""
    return te.reduce_axis((IntImm("int64", 0), dims(n)[0]), name=name)


def compute(shape: Sequence[Dim], f: Callable[..., Any], name: str = "out") -> Any:
    """A compute over int64 sizes."""
    return te.compute(dims(*shape), f, name=name)


def random(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> Any:
    """Test data."""
    if dtype.startswith("int"):
        return rng.integers(-5, 6, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def check(f: PrimFunc, sizes: dict[str, int] | None = None, tol: float = 2e-5, seed: int = 0) -> None:
    """Run `f` through schedule, lowering and LLVM, and through the interpreter as it stands: the results must agree."""
    sizes = sizes or {}
    rng = np.random.default_rng(seed)

    def value(n: Any) -> int:
        return int(evaluate(n, sizes))

    buffers = f.param_buffers
    args = [random(rng, [value(n) for n in b.shape], b.dtype) for b in buffers]
    outputs = written(f)
    want = [a.copy() for a in args]
    got = [a.copy() for a in args]
    for i, b in enumerate(buffers):
        if b in outputs:
            got[i][...] = 0
    interpret(f, *want)
    target = Target("llvm")
    scheduled = schedule_kernel(f, target)
    flat = lower_kernel(scheduled, target)
    kernel = load_kernel(flat, target)
    kernel(*got, *(sizes[p.name] for p in flat.params[len(buffers) :]))
    for b, g, w in zip(buffers, got, want, strict=True):
        if b.dtype.startswith("float"):
            scale = 1e-6 + np.max(np.abs(np.where(np.isfinite(w), w, 0)), initial=0)
            np.testing.assert_allclose(g / scale, w / scale, rtol=0, atol=tol, err_msg=b.name)
        else:
            np.testing.assert_array_equal(g, w, err_msg=b.name)


def evaluate(e: Any, sizes: dict[str, int]) -> int:
    """The value of a shape expression."""
    from tilewright.arith import expr as E

    if isinstance(e, E.IntImm):
        return e.value
    if isinstance(e, E.Var):
        return sizes[e.name]
    a, b = evaluate(e.a, sizes), evaluate(e.b, sizes)
    ops: dict[type, Callable[[int, int], int]] = {
        E.Add: lambda x, y: x + y, E.Sub: lambda x, y: x - y, E.Mul: lambda x, y: x * y, E.FloorDiv: lambda x, y: x // y,
    }  # fmt: skip
    return ops[type(e)](a, b)


def written(f: PrimFunc) -> set[Any]:
    """The buffers that a function stores to."""
    from tilewright.ir.node import walk
    from tilewright.tir.ir import BufferStore

    return {s.buffer for s in walk(f.body) if isinstance(s, BufferStore)}


def pad(x: Any, p: int) -> Any:
    """Zeros around height and width (NHWC)."""
    n, h, w, c = x.shape
    return compute(
        (n, h + 2 * p, w + 2 * p, c),
        lambda b, i, j, f: if_then_else(
            logical_and(logical_and(i >= p, i < h + p), logical_and(j >= p, j < w + p)), x[b, i - p, j - p, f], 0.0
        ),
        "pad",
    )


def conv(
    n: Dim, h: Dim, w: Dim, ic: int, oc: int, k: int, s: int = 1, d: int = 1, b: int = 16, p: int | None = None
) -> PrimFunc:
    """Convolution, NHWC, packed weights, bias, ReLU."""
    p = k // 2 if p is None else p
    x, wt, bias = ph("x", n, h, w, ic), ph("w", -(-oc // b), k, k, ic, b), ph("bias", oc)
    src = pad(x, p) if p else x
    oh, ow = ((m + 2 * p - d * (k - 1) - 1) // s + 1 for m in (h, w))
    kh, kw, c = axis(k, "kh"), axis(k, "kw"), axis(ic, "ic")
    y = compute(
        (n, oh, ow, oc),
        lambda a, i, j, f: te.sum(
            src[a, i * s + kh * d, j * s + kw * d, c] * wt[f // b, kh, kw, c, f % b], axis=[kh, kw, c]
        ),
        "conv",
    )
    z = compute((n, oh, ow, oc), lambda a, i, j, f: maximum(y[a, i, j, f] + bias[f], const(0.0, "float32")), "relu")
    return te.create_prim_func([x, wt, bias, z])


def depthwise(h: Dim, w: Dim, c: int, k: int, s: int = 1) -> PrimFunc:
    """Depthwise convolution, NHWC."""
    x, wt = ph("x", 1, h, w, c), ph("w", k, k, 1, c)
    p = k // 2
    oh, ow = ((m + 2 * p - k) // s + 1 for m in (h, w))
    src, kh, kw = pad(x, p), axis(k, "kh"), axis(k, "kw")
    y = compute(
        (1, oh, ow, c),
        lambda a, i, j, f: te.sum(src[a, i * s + kh, j * s + kw, f] * wt[kh, kw, 0, f], axis=[kh, kw]),
        "dw",
    )
    return te.create_prim_func([x, wt, y])


def matmul(
    batch: Sequence[Dim], m: Dim, n: Dim, k: Dim, kind: str = "kn", b: int = 16, dtype: str = "float32"
) -> PrimFunc:
    """Matrix products; `kind` of the right side: "kn", "nk" (transposed), "packed"."""
    right = {"kn": (k, n), "nk": (n, k), "packed": (-(-n // b) if isinstance(n, int) else n, k, b)}[kind]
    a, w, r = ph("a", *batch, m, k, dtype=dtype), ph("w", *batch, *right, dtype=dtype), axis(k, "k")

    def at(*i: Any) -> Any:
        *o, x, y = i
        index = {"kn": (r, y), "nk": (y, r), "packed": (y // b, r, y % b)}[kind]
        return te.sum(a(*o, x, r) * w(*o, *index), axis=r)

    return te.create_prim_func([a, w, compute((*batch, m, n), at, "matmul")])


def softmax(rows: Sequence[Dim], n: Dim) -> PrimFunc:
    """Softmax along the last axis."""
    x, k, j = ph("x", *rows, n), axis(n, "k"), axis(n, "j")
    m = compute(rows, lambda *i: te.max(x(*i, k), axis=k), "max")
    e = compute((*rows, n), lambda *i: T.exp(x(*i) - m(*i[:-1])), "exp")
    s = compute(rows, lambda *i: te.sum(e(*i, j), axis=j), "sum")
    return te.create_prim_func([x, compute((*rows, n), lambda *i: e(*i) / s(*i[:-1]), "softmax")])


def layer_norm(rows: Dim, n: Dim) -> PrimFunc:
    """Normalisation of rows."""
    x, g, k, j = ph("x", rows, n), ph("g", n), axis(n, "k"), axis(n, "j")
    size = n.astype("float32") if not isinstance(n, int) else float(n)
    s = compute((rows,), lambda i: te.sum(x[i, k], axis=k), "s")
    m = compute((rows,), lambda i: s[i] / size, "mean")
    v = compute((rows,), lambda i: te.sum((x[i, j] - m[i]) * (x[i, j] - m[i]), axis=j), "v")
    y = compute((rows, n), lambda i, c: (x[i, c] - m[i]) * T.rsqrt(v[i] / size + 1e-5) * g[c], "norm")
    return te.create_prim_func([x, g, y])


def reduction(shape: Sequence[Dim], axes: Sequence[int], f: Any = None, dtype: str = "float32") -> PrimFunc:
    """A reduction over some axes."""
    x = ph("x", *shape, dtype=dtype)
    reduced = {a: axis(shape[a], f"r{a}") for a in axes}
    rest = [a for a in range(len(shape)) if a not in axes]

    def at(*i: Any) -> Any:
        index = {**dict(zip(rest, i)), **{a: r.var for a, r in reduced.items()}}
        return (f or te.sum)(x(*(index[a] for a in range(len(shape)))), axis=list(reduced.values()))

    return te.create_prim_func([x, compute([shape[a] for a in rest], at)])


def pool(h: Dim, w: Dim, c: int, k: int, s: int, f: Any = te.max) -> PrimFunc:
    """Pooling, NHWC."""
    x, kh, kw = ph("x", 1, h, w, c), axis(k, "kh"), axis(k, "kw")
    oh, ow = ((m - k) // s + 1 for m in (h, w))
    y = compute((1, oh, ow, c), lambda n, i, j, q: f(x[n, i * s + kh, j * s + kw, q], axis=[kh, kw]))
    return te.create_prim_func([x, y])
