"""The dot product of four bytes of AMD's GPUs. Their matrix cores (mfma) are not here."""

from __future__ import annotations

from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.tir import build as b
from tilewright.tir.ir import Buffer
from tilewright.tir.tensor_intrin.build import lanes_of, llvm
from tilewright.tir.tensor_intrin.dot_product_common import dot_of_four
from tilewright.tir.tensor_intrin.registry import register_lazily

__all__ = ["AMDGPU_SDOT4_INTRIN"]


def _sdot4(a: Buffer, x: Buffer, dtype: str) -> PrimExpr:
    words = [b.reinterpret("int32", lanes_of(v)) for v in (a, x)]
    return llvm(dtype, "llvm.amdgcn.sdot4", *words, IntImm("int32", 0), IntImm("bool", 1))


AMDGPU_SDOT4_INTRIN = register_lazily("sdot4", lambda: dot_of_four(("int8", "int8", "int32"), _sdot4))
