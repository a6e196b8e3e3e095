"""Dot products of Arm's CPUs: four bytes at a time into four sums. (The matrix extension SME is not here.)"""

from __future__ import annotations

from tilewright.arith.expr import Broadcast, PrimExpr
from tilewright.tir import build as b
from tilewright.tir.ir import Buffer, Stmt
from tilewright.tir.tensor_intrin.build import dot_product, lanes_of, llvm, store_lanes
from tilewright.tir.tensor_intrin.dot_product_common import (
    DP4A_S8S8S32_INTRIN,
    DP4A_S8U8S32_INTRIN,
    DP4A_U8S8S32_INTRIN,
    DP4A_U8U8U32_INTRIN,
)
from tilewright.tir.tensor_intrin.registry import TensorIntrin, register_lazily

__all__ = [
    "ARM_DOT_4x4_i8_NEON_INTRIN", "ARM_DOT_4x4_i8_SDOT_INTRIN", "ARM_DOT_4x4_u8_HDOT_INTRIN", "ARM_DOT_4x4_u8_UDOT_INTRIN",
    "DP4A_S8S8S32_INTRIN", "DP4A_S8U8S32_INTRIN", "DP4A_U8S8S32_INTRIN", "DP4A_U8U8U32_INTRIN",
]  # fmt: skip


def _neon(a: Buffer, x: Buffer, c: Buffer) -> Stmt:
    """Without the dot product instructions: products in 16 bits, added in pairs, twice."""
    twice = b.reinterpret("int8x8", Broadcast(b.reinterpret("int32", lanes_of(a)), 2))
    rows = lanes_of(x)

    def pairs(half: PrimExpr) -> PrimExpr:
        products = llvm("int16x8", "llvm.aarch64.neon.smull.v8i16", twice, half)
        return llvm("int32x4", "llvm.aarch64.neon.saddlp.v4i32.v8i16", products)

    low, high = b.vectorlow("int8x8", rows), b.vectorhigh("int8x8", rows)
    sums = llvm("int32x4", "llvm.aarch64.neon.addp.v4i32", pairs(low), pairs(high))
    return store_lanes(c, lanes_of(c) + sums, 4)


def _by_dot(dtype: str, out: str) -> TensorIntrin:
    """By sdot or udot."""

    def implement(a: Buffer, x: Buffer, c: Buffer) -> Stmt:
        kind = "u" if dtype == "uint8" else "s"
        four = b.reinterpret(f"{dtype}x16", Broadcast(b.reinterpret(out, lanes_of(a)), 4))
        total = llvm(f"{out}x4", f"llvm.aarch64.neon.{kind}dot.v4i32.v16i8", lanes_of(c), four, lanes_of(x))
        return store_lanes(c, total, 4)

    return dot_product(4, 4, (dtype, dtype, out), implement)


ARM_DOT_4x4_i8_NEON_INTRIN = register_lazily(
    "dot_4x4_i8i8s32_neon", lambda: dot_product(4, 4, ("int8", "int8", "int32"), _neon)
)
ARM_DOT_4x4_i8_SDOT_INTRIN = register_lazily("dot_4x4_i8i8s32_sdot", lambda: _by_dot("int8", "int32"))
ARM_DOT_4x4_u8_UDOT_INTRIN = register_lazily("dot_4x4_u8u8u32_udot", lambda: _by_dot("uint8", "uint32"))
ARM_DOT_4x4_u8_HDOT_INTRIN = register_lazily("dot_4x4_u8u8i32_hdot", lambda: _by_dot("uint8", "int32"))
