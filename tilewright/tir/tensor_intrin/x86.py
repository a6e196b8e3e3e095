"""Dot products of AVX-512 machines: four bytes at a time into sixteen sums."""

from __future__ import annotations

from tilewright.arith.expr import Broadcast, IntImm
from tilewright.tir import build as b
from tilewright.tir.ir import Buffer, Stmt
from tilewright.tir.tensor_intrin.build import dot_product, lanes_of, llvm, store_lanes
from tilewright.tir.tensor_intrin.registry import register_lazily

__all__ = ["AVX512_DOT_16x4_INTRIN", "VNNI_DOT_16x4_INTRIN"]

_DTYPES = ("uint8", "int8", "int32")


def _vnni(a: Buffer, x: Buffer, c: Buffer) -> Stmt:
    """One instruction: vpdpbusd."""
    four = b.reinterpret("int32", lanes_of(a))
    rows = b.reinterpret("int32x16", lanes_of(x))
    total = llvm("int32x16", "llvm.x86.avx512.vpdpbusd.512", lanes_of(c), Broadcast(four, 16), rows)
    return store_lanes(c, total, 16)


def _avx512(a: Buffer, x: Buffer, c: Buffer) -> Stmt:
    """Products of pairs added in 16 bits (which saturate), pairs of these in 32."""
    four = b.reinterpret("uint8x64", Broadcast(b.reinterpret("int32", lanes_of(a)), 16))
    pairs = llvm("int16x32", "llvm.x86.avx512.pmaddubs.w.512", four, lanes_of(x))
    sums = llvm("int32x16", "llvm.x86.avx512.pmaddw.d.512", pairs, Broadcast(IntImm("int16", 1), 32))
    return store_lanes(c, lanes_of(c) + sums, 16)


VNNI_DOT_16x4_INTRIN = register_lazily("dot_16x4_vnni", lambda: dot_product(16, 4, _DTYPES, _vnni))
AVX512_DOT_16x4_INTRIN = register_lazily("dot_16x4_avx512", lambda: dot_product(16, 4, _DTYPES, _avx512))
