"""A pool of small programs on which every pass is checked by meaning."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import tir
from tilewright.ir.module import IRModule
from tilewright.script import tir as T
from tilewright.tir.interp import interpret


@T.prim_func
def chain(A: T.Buffer((12, 16), "float32"), C: T.Buffer((12, 16), "float32")):
    B = T.alloc_buffer((12, 16))
    for i, j in T.grid(12, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + 1.0
    for i, j in T.grid(12, 16):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] * 2.0


@T.prim_func
def matmul(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 16), "float32"), C: T.Buffer((8, 16), "float32")):
    for i, j, k in T.grid(8, 16, 12):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def padded(A: T.Buffer((10, 10), "float32"), C: T.Buffer((10, 10), "float32")):
    P = T.alloc_buffer((12, 12))
    for i, j in T.grid(12, 12):
        with T.block("P"):
            vi, vj = T.axis.remap("SS", [i, j])
            P[vi, vj] = T.if_then_else(vi >= 1 and vi < 11 and vj >= 1 and vj < 11, A[vi - 1, vj - 1], 0.0)
    for i, j, p, q in T.grid(10, 10, 3, 3):
        with T.block("C"):
            vi, vj, vp, vq = T.axis.remap("SSRR", [i, j, p, q])
            with T.init():
                C[vi, vj] = T.float32(-1e30)
            C[vi, vj] = T.max(C[vi, vj], P[vi + vp, vj + vq])


@T.prim_func
def views(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(4, 4):
        with T.block("tile"):
            vi, vj = T.axis.remap("SS", [i, j])
            a = T.match_buffer(A[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4], (4, 4), offset_factor=1)
            c = T.match_buffer(C[vj * 4 : vj * 4 + 4, vi * 4 : vi * 4 + 4], (4, 4), offset_factor=1)
            for p, q in T.grid(4, 4):
                c[q, p] = a[p, q] + 1.0


@T.prim_func
def views_of_views(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(4, 4):
        with T.block("outer"):
            vi, vj = T.axis.remap("SS", [i, j])
            a = T.match_buffer(A[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4], (4, 4), offset_factor=1)
            c = T.match_buffer(C[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4], (4, 4), offset_factor=1)
            for p in range(4):
                with T.block("inner"):
                    vp = T.axis.spatial(4, p)
                    row = T.match_buffer(a[vp, 0:4], (4,), offset_factor=1)
                    out = T.match_buffer(c[vp, 0:4], (4,), offset_factor=1)
                    for q in T.vectorized(4):
                        out[q] = row[q] * 2.0


@T.prim_func
def statements(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32"), n: T.int32):
    for i in range(4):
        D = T.decl_buffer((2, 4), "float32", axis_separators=[1])
        count = T.decl_buffer((1,), "int32")
        count[0] = 0
        while count[0] < 8:
            D[count[0] // 4, count[0] % 4] = A[i, count[0]] * 2.0
            count[0] = count[0] + 1
        with T.attr(T.int32(0), "pragma_scope", 1):
            for j in T.vectorized(8):
                x: T.float32 = D[j // 4, j % 4]
                if j < n:
                    C[i, j] = x + 1.0
                else:
                    C[i, j] = x
        assert n < 100, "n is too great"


@T.prim_func
def symbolic(a: T.handle, c: T.handle, n: T.int32):
    A = T.match_buffer(a, (n * 4,), "float32")
    C = T.match_buffer(c, (n * 4,), "float32")
    for i in range(n):
        with T.block(""):
            B = T.alloc_buffer((n * 4,))
            for j in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(n * 4, i * 4 + j)
                    B[vi] = A[vi] * 2.0
            for j in range(4):
                with T.block("C"):
                    vi = T.axis.spatial(n * 4, i * 4 + j)
                    C[vi] = B[vi] + 1.0


@T.prim_func
def tails(A: T.Buffer((37,), "float32"), C: T.Buffer((37,), "float32")):
    for i in range(5):
        for j in T.vectorized(8):
            with T.block("C"):
                T.where(i * 8 + j < 37)
                v = T.axis.spatial(37, i * 8 + j)
                C[v] = T.sqrt(T.abs(A[v])) + T.Cast("float32", v)


@T.prim_func
def control(A: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32"), S: T.Buffer((1,), "int32")):
    S[0] = 0
    while S[0] < 10:
        S[0] = S[0] + 3
    for i in range(16):
        x: T.int32 = A[i] * 2
        if i % 3 == 0:
            C[i] = x + S[0]
        else:
            if x > 10:
                C[i] = x
            else:
                C[i] = -x
    for i in range(2, 9):
        for j in T.unroll(3):
            C[i + j] = C[i + j] + j


@T.prim_func
def strided(a: T.handle, c: T.handle):
    A = T.match_buffer(a, (6, 8), "float32")
    C = T.match_buffer(c, (6, 8), "float32")
    for i in range(6):
        B = T.decl_buffer((8,), "float32")
        D = T.decl_buffer((2, 4), "float32")
        for j in range(8):
            B[j] = A[i, j] * A[i, 7 - j]
        for j in range(8):
            D[j // 4, j % 4] = B[j]
        for j in range(8):
            C[i, j] = D[j // 4, j % 4] + B[7 - j]


@T.prim_func
def gather(A: T.Buffer((16, 4), "float32"), I: T.Buffer((8,), "int32"), C: T.Buffer((8, 4), "float32")):
    for i, j in T.grid(8, 4):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[I[vi] % 16, vj]


@T.prim_func
def bools(A: T.Buffer((16,), "float32"), M: T.Buffer((16,), "bool"), C: T.Buffer((16,), "float32")):
    for i in range(16):
        M[i] = A[i] > 0.5
    for i in range(16):
        C[i] = T.Select(M[i], A[i], 0.0)


POOL = {f: g for f, g in list(globals().items()) if isinstance(g, tir.PrimFunc)}


def arguments(f: tir.PrimFunc, n: int = 3, seed: int = 0) -> list[Any]:
    """Random arguments for a function; scalars are `n`."""
    rng = np.random.default_rng(seed)
    scalars = {p: n for p in f.params if p not in f.buffer_map}
    out: list[Any] = []
    for p in f.params:
        b = f.buffer_map.get(p)
        if b is None:
            out.append(n)
            continue
        shape = [value_of(d, scalars) for d in b.shape]
        if b.dtype.startswith("float"):
            out.append(rng.standard_normal(shape).astype(b.dtype))
        else:
            out.append(rng.integers(0, 2 if b.dtype == "bool" else 20, shape).astype(b.dtype))
    return out


def value_of(d: Any, scalars: dict[Any, int]) -> int:
    """What a dimension is for these scalars."""
    from tilewright.arith.analyzer import simplify
    from tilewright.arith.expr import const

    return int(simplify(tir.stmt_functor.substitute(d, {v: const(x, v.dtype) for v, x in scalars.items()})))


def run(f: tir.PrimFunc | IRModule, args: list[Any]) -> list[Any]:
    """The arrays after a run of the interpreter."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    interpret(f, *copies)
    return [a for a in copies if isinstance(a, np.ndarray)]


def same_meaning(before: tir.PrimFunc, after: tir.PrimFunc | IRModule, n: int = 3) -> None:
    """Both compute the same from the same arguments, whichever way parallel loops run."""
    args = arguments(before, n)
    for want, got in zip(run(before, args), run(after, args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
