"""The dot product of four bytes that GPUs have: dp4a."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.arith.expr import IntImm, PrimExpr, Var, cast
from tilewright.tir import build as b
from tilewright.tir.ir import Buffer, BufferLoad, BufferStore
from tilewright.tir.tensor_intrin.build import lanes_of, loop_nest, operand, program
from tilewright.tir.tensor_intrin.registry import TensorIntrin, register_lazily

__all__ = ["DP4A_S8S8S32_INTRIN", "DP4A_S8U8S32_INTRIN", "DP4A_U8S8S32_INTRIN", "DP4A_U8U8U32_INTRIN", "dot_of_four"]


def dot_of_four(dtypes: tuple[str, str, str], product: Callable[[Buffer, Buffer, str], PrimExpr]) -> TensorIntrin:
    """`C[0] += sum of A[i] * B[i]` for four i, A and B shared by the threads of a block; `product(A, B, dtype)` is the sum."""

    def operands() -> tuple[Buffer, Buffer, Buffer]:
        a, x, c = dtypes
        return (
            operand("A", (4,), a, "shared", align=4),
            operand("B", (4,), x, "shared", align=4),
            operand("C", (1,), c, "local", align=4),
        )

    zero = IntImm("int32", 0)
    a, x, c = operands()

    def store(v: Var) -> BufferStore:
        term = cast(BufferLoad(a, (v,)), c.dtype) * cast(BufferLoad(x, (v,)), c.dtype)
        return BufferStore(c, BufferLoad(c, (zero,)) + term, (zero,))

    nest = loop_nest((4,), "R", store, lambda v: (BufferLoad(c, (zero,)), BufferLoad(a, (v,)), BufferLoad(x, (v,))))
    desc = program((a, x, c), (c, a, x), (c,), nest)
    a, x, c = operands()
    body = BufferStore(c, BufferLoad(c, (zero,)) + product(a, x, dtypes[2]), (zero,))
    return TensorIntrin(desc, program((a, x, c), (c, a, x), (c,), body))


def _dp4a(a: Buffer, x: Buffer, dtype: str) -> PrimExpr:
    return b.call_pure_extern(dtype, "__dp4a", lanes_of(a), lanes_of(x), IntImm(dtype, 0))


def _of(a: str, x: str, c: str) -> Callable[[], TensorIntrin]:
    return lambda: dot_of_four((a, x, c), _dp4a)


DP4A_S8S8S32_INTRIN = register_lazily("dp4a_s8s8s32", _of("int8", "int8", "int32"))
DP4A_S8U8S32_INTRIN = register_lazily("dp4a_s8u8s32", _of("int8", "uint8", "int32"))
DP4A_U8S8S32_INTRIN = register_lazily("dp4a_u8s8s32", _of("uint8", "int8", "int32"))
DP4A_U8U8U32_INTRIN = register_lazily("dp4a_u8u8u32", _of("uint8", "uint8", "uint32"))
