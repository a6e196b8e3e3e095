"""Dot products of Hexagon's vector unit (HVX, 128 bytes). (Its asynchronous copies, DMA, are not here.)"""

from __future__ import annotations

from tilewright.arith.expr import Broadcast
from tilewright.tir import build as b
from tilewright.tir.ir import Buffer, Stmt
from tilewright.tir.tensor_intrin.build import dot_product, lanes_of, llvm, store_lanes
from tilewright.tir.tensor_intrin.registry import TensorIntrin, register_lazily

__all__ = [
    "VDMPY_i16i16i32_INTRIN", "VRMPY_u8i8i32_INTRIN", "VRMPY_u8i8i32_VTCM_INTRIN", "VRMPY_u8u8i32_INTRIN",
    "VRMPY_u8u8i32_VTCM_INTRIN",
]  # fmt: skip


def _hvx(k: int, dtypes: tuple[str, str, str], name: str, scope: str = "global") -> TensorIntrin:
    """32 sums of k products; the instruction takes words, so that a row is one word."""

    def implement(a: Buffer, x: Buffer, c: Buffer) -> Stmt:
        row = Broadcast(b.reinterpret("int32", lanes_of(a)), 32)
        rows = b.reinterpret("int32x32", lanes_of(x))
        return store_lanes(c, llvm("int32x32", name, lanes_of(c), rows, row), 32)

    return dot_product(32, k, dtypes, implement, (scope, scope, scope))


_U8U8, _U8I8 = ("uint8", "uint8", "int32"), ("uint8", "int8", "int32")
VRMPY_u8u8i32_INTRIN = register_lazily(
    "dot_32x4_u8u8i32_vrmpy", lambda: _hvx(4, _U8U8, "llvm.hexagon.V6.vrmpyubv.acc.128B")
)
VRMPY_u8i8i32_INTRIN = register_lazily("dot_32x4_u8i8i32_vrmpy", lambda: _mixed("global"))
VDMPY_i16i16i32_INTRIN = register_lazily(
    "dot_product_32x2_i16i16i32_vdmpy",
    lambda: _hvx(2, ("int16", "int16", "int32"), "llvm.hexagon.V6.vdmpyhvsat.acc.128B"),
)
VRMPY_u8u8i32_VTCM_INTRIN = register_lazily(
    "dot_32x4_u8u8i32_vtcm_vrmpy", lambda: _hvx(4, _U8U8, "llvm.hexagon.V6.vrmpyubv.acc.128B", "global.vtcm")
)
VRMPY_u8i8i32_VTCM_INTRIN = register_lazily("dot_32x4_u8i8i32_vtcm_vrmpy", lambda: _mixed("global.vtcm"))


def _mixed(scope: str) -> TensorIntrin:
    """vrmpybusv takes the unsigned bytes first."""

    def implement(a: Buffer, x: Buffer, c: Buffer) -> Stmt:
        row = Broadcast(b.reinterpret("int32", lanes_of(a)), 32)
        rows = b.reinterpret("int32x32", lanes_of(x))
        name = "llvm.hexagon.V6.vrmpybusv.acc.128B"
        return store_lanes(c, llvm("int32x32", name, lanes_of(c), row, rows), 32)

    return dot_product(32, 4, _U8I8, implement, (scope, scope, scope))
