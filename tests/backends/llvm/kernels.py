"""Flat functions written by hand that tests and measurements share."""

from __future__ import annotations

from tilewright.arith.expr import Broadcast, IntImm, Ramp, Var, const
from tilewright.tir import ir as T


def i64(x):
    return IntImm("int64", x)


def sgemm(m, n, k, rows=6, cols=16, vec=8, unroll=1, dtype="int64", parallel=False):
    """C[m, n] = A[m, k] @ B, B packed as [n / cols, k, cols]; a tile of rows x cols accumulates in registers."""

    def c(x):
        return IntImm(dtype, x)

    A, B, C = (T.decl_buffer([s], "float32", x) for x, s in (("A", m * k), ("B", n * k), ("C", m * n)))
    acc = T.decl_buffer([rows * cols], "float32", "acc", scope="local")
    jo, io, ko = (Var(x, dtype) for x in ("jo", "io", "ko"))
    one, zero = c(1), const(0.0, f"float32x{vec}")
    tiles = [(r, v) for r in range(rows) for v in range(cols // vec)]

    def slot(r, v):
        return Ramp(i64(r * cols + v * vec), i64(1), vec)

    start = [T.BufferStore(acc, zero, (slot(r, v),)) for r, v in tiles]
    body = []
    for u in range(unroll):
        kk = ko * unroll + u
        for r, v in tiles:
            a = Broadcast(T.BufferLoad(A, ((io * rows + r) * k + kk,)), vec)
            b = T.BufferLoad(B, (Ramp((jo * k + kk) * cols + v * vec, one, vec),))
            body.append(T.BufferStore(acc, T.BufferLoad(acc, (slot(r, v),)) + a * b, (slot(r, v),)))
    end = [
        T.BufferStore(C, T.BufferLoad(acc, (slot(r, v),)), (Ramp((io * rows + r) * n + jo * cols + v * vec, one, vec),))
        for r, v in tiles
    ]
    inner = T.seq(start, T.For(ko, c(0), c(k // unroll), T.ForKind.SERIAL, T.seq(body)), end)
    tile = T.Allocate(acc.data, "float32", (i64(rows * cols),), const(True), inner)
    kind = T.ForKind.PARALLEL if parallel else T.ForKind.SERIAL
    loops = T.For(jo, c(0), c(n // cols), kind, T.For(io, c(0), c(m // rows), T.ForKind.SERIAL, tile))
    return T.PrimFunc((A.data, B.data, C.data), loops, attrs={"global_symbol": "sgemm", "tir.noalias": True})
