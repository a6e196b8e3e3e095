"""Pieces that the tensor intrinsics of all machines are made of: operands, descriptions in loops, implementations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith.expr import IntImm, PrimExpr, Ramp, Var, cast, pointer_var
from tilewright.tir import build as b
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IterVar,
    PrimFunc,
    Range,
    Stmt,
    seq,
)
from tilewright.tir.tensor_intrin.registry import TensorIntrin

__all__ = [
    "beginning", "call", "dot_product", "loop_nest", "lanes_of", "llvm", "operand", "over_threads", "program", "region", "store_lanes",
]  # fmt: skip

TRUE = IntImm("bool", 1)


def operand(
    name: str,
    shape: Sequence[int],
    dtype: str,
    scope: str = "global",
    *,
    strided: bool = False,
    align: int = 64,
    factor: int = 1,
) -> Buffer:
    """A parameter that begins anywhere (at a multiple of `factor` elements); `strided`: of any strides too."""
    strides = tuple(Var(f"{name}_s{i}", "int32") for i in range(len(shape))) if strided else ()
    return Buffer(
        pointer_var(name, dtype, scope),
        dtype,
        tuple(IntImm("int32", n) for n in shape),
        strides,
        Var(f"{name}_elem_offset", "int32"),
        name,
        align,
        0 if factor == 1 else factor,
    )


def beginning(x: Buffer) -> PrimExpr:
    """Where an operand begins in its memory, in elements."""
    assert x.elem_offset is not None
    return x.elem_offset


def region(x: Buffer) -> BufferRegion:
    """All of a buffer."""
    return BufferRegion(x, tuple(Range(IntImm("int32", 0), n) for n in x.shape))


def program(operands: Sequence[Buffer], reads: Sequence[Buffer], writes: Sequence[Buffer], body: Stmt) -> PrimFunc:
    """A function of the operands whose body is one block that declares what it reads and writes."""
    params = tuple(Var(f"{x.name}_handle", "handle") for x in operands)
    root = Block((), tuple(map(region, reads)), tuple(map(region, writes)), "root", body)
    return PrimFunc(params, BlockRealize((), TRUE, root), None, dict(zip(params, operands)))


def loop_nest(
    extents: Sequence[int],
    kinds: str,
    store: Callable[..., BufferStore],
    reads: Callable[..., Sequence[BufferLoad]],
    name: str = "update",
) -> Stmt:
    """Loops around a block with iterators of the kinds (`"SSR"`) whose body is `store(*iterators)`."""
    loops = [Var(f"i{n}", "int32") for n in range(len(extents))]
    iters = [Var(f"v{n}", "int32") for n in range(len(extents))]
    axes = tuple(
        IterVar(Range(IntImm("int32", 0), IntImm("int32", n)), v, IterVar.CommReduce if k == "R" else IterVar.DataPar)
        for v, n, k in zip(iters, extents, kinds, strict=True)
    )
    body = store(*iters)
    block = Block(axes, tuple(_point(x) for x in reads(*iters)), (_point(body),), name, body)
    out: Stmt = BlockRealize(tuple(loops), TRUE, block)
    for v, n in zip(reversed(loops), reversed(extents)):
        out = For(v, IntImm("int32", 0), IntImm("int32", n), ForKind.SERIAL, out)
    return out


def _point(x: BufferLoad | BufferStore) -> BufferRegion:
    return BufferRegion(x.buffer, tuple(Range(i, IntImm(i.dtype, 1)) for i in x.indices))


def lanes_of(x: Buffer, lanes: int | None = None) -> PrimExpr:
    """A buffer's elements from its start on, as one vector."""
    size = 1
    for n in x.shape:
        size *= n.value  # pyright: ignore[reportAttributeAccessIssue]
    start: list[PrimExpr] = [IntImm("int32", 0)] * len(x.shape)
    start[-1] = Ramp(start[-1], IntImm("int32", 1), lanes or size)
    return BufferLoad(x, tuple(start))


def store_lanes(x: Buffer, value: PrimExpr, lanes: int) -> Stmt:
    """Store a vector over a buffer of one dimension."""
    return BufferStore(x, value, (Ramp(IntImm("int32", 0), IntImm("int32", 1), lanes),))


def llvm(dtype: str, name: str, *args: PrimExpr) -> PrimExpr:
    """An intrinsic of LLVM without effects."""
    return b.call_llvm_pure_intrin(dtype, name, *args)


def call(name: str, *args: Any, dtype: str | None = None) -> Stmt:
    """Evaluate an intrinsic that stays a call."""
    from tilewright.tir.build_calls import CALLS

    return Evaluate(CALLS[name](*([dtype] if dtype is not None else []), *args))


def over_threads(n: int, body: Callable[[Var], Stmt | Sequence[Stmt]]) -> Stmt:
    """The statement on each of n threads `threadIdx.x`."""
    tx = Var("tx", "int32")
    thread = IterVar(None, Var("threadIdx.x", "int32"), IterVar.ThreadIndex, "threadIdx.x")
    inside = body(tx)
    stmt = inside if isinstance(inside, Stmt) else seq(*inside)
    return For(tx, IntImm("int32", 0), IntImm("int32", n), ForKind.THREAD_BINDING, stmt, thread)


def dot_product(
    n: int,
    k: int,
    dtypes: tuple[str, str, str],
    implement: Callable[[Buffer, Buffer, Buffer], Stmt],
    scopes: tuple[str, str, str] = ("global", "global", "global"),
    align: int = 64,
) -> TensorIntrin:
    """`C[i] += sum over k of A[k] * B[i, k]` for n rows: the pair with the implementation `implement(A, B, C)`."""

    def operands() -> tuple[Buffer, Buffer, Buffer]:
        a, x, c = dtypes
        shapes = ((k,), (n, k), (n,))
        made = [
            operand(name, shape, dtype, scope, align=align)
            for name, shape, dtype, scope in zip("ABC", shapes, (a, x, c), scopes, strict=True)
        ]
        return made[0], made[1], made[2]

    def desc() -> PrimFunc:
        a, x, c = operands()

        def store(vi: Var, vk: Var) -> BufferStore:
            at = BufferLoad(c, (vi,))
            product = cast(BufferLoad(a, (vk,)), c.dtype) * cast(BufferLoad(x, (vi, vk)), c.dtype)
            return BufferStore(c, at + product, (vi,))

        nest = loop_nest(
            (n, k), "SR", store, lambda vi, vk: (BufferLoad(c, (vi,)), BufferLoad(a, (vk,)), BufferLoad(x, (vi, vk)))
        )
        return program((a, x, c), (c, a, x), (c,), nest)

    a, x, c = operands()
    return TensorIntrin(desc(), program((a, x, c), (c, a, x), (c,), implement(a, x, c)))
