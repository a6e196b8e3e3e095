"""Copies from global to shared memory that are marked asynchronous become `cp.async` of PTX.

    with T.attr(0, "async_scope", 1):           ▶     T.ptx_cp_async("float16", S, offset, A, offset, 16)
        S[i*8 : i*8 + 8] = A[i*8 : i*8 + 8]

4, 8 or 16 bytes at a time; a condition with 0 on its other side becomes the predicate of the copy. What has no such form stays a
plain copy.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Add, Broadcast, Call, FloatImm, IntImm, PrimExpr, Ramp, add, const, mul
from tilewright.ir import dtype as dt
from tilewright.ir.node import replace
from tilewright.ir.op import Op, PointerType, PrimType
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError, func_pass
from tilewright.tir.transform.gpu.split_host_device import bytes_of

__all__ = ["InjectPTXAsyncCopy", "inject_ptx_async_copy"]


def inject_ptx_async_copy(f: t.PrimFunc) -> t.PrimFunc:
    """The function with its asynchronous copies as `ptx_cp_async`; the marks are gone."""
    body = _Inject().visit(f.body)
    return f if body is f.body else replace(f, body=body)


def InjectPTXAsyncCopy() -> Pass:
    """Asynchronous copies become `cp.async`; see `inject_ptx_async_copy`."""
    return func_pass("InjectPTXAsyncCopy", inject_ptx_async_copy)


class _Inject(Mutator):
    def __init__(self) -> None:
        self.inside = False

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        if s.attr_key != "async_scope":
            return self.generic(s)
        if self.inside:
            raise DeviceError.at("TW0569", "an asynchronous scope inside another", hint="mark each copy once")
        self.inside = True
        body = self.visit(s.body)
        self.inside = False
        return body

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        if not self.inside or not s.buffer.scope().startswith("shared"):
            return s
        value, condition = s.value, None
        if isinstance(value, Call) and getattr(value.op, "name", "") == "tir.if_then_else":
            condition, value, other = value.args
            if not _is_zero(other):
                return s
        if not isinstance(value, t.BufferLoad) or value.buffer.scope() != "global":
            return s
        return _copy(s, value, condition) or s


def _is_zero(e: Any) -> bool:
    if isinstance(e, Broadcast):
        e = e.value
    return isinstance(e, (FloatImm, IntImm)) and e.value == 0


def _start(index: PrimExpr) -> PrimExpr | None:
    """Where the contiguous lanes of an index begin."""
    if isinstance(index, Ramp):
        return index.base if isinstance(index.stride, IntImm) and index.stride.value == 1 else None
    if isinstance(index, Add) and isinstance(index.a, Ramp) and isinstance(index.b, Broadcast):
        return add(index.a.base, index.b.value)
    return index if dt.lanes(index.dtype) == 1 else None


def _element(b: t.Buffer) -> str:
    kind = b.data.type_annotation
    if isinstance(kind, PointerType) and isinstance(kind.element_type, PrimType):
        return kind.element_type.dtype
    return b.dtype


def _copy(s: t.BufferStore, load: t.BufferLoad, condition: PrimExpr | None) -> t.Stmt | None:
    """The copy as one instruction, if it has that form."""
    if len(s.indices) != 1 or len(load.indices) != 1:
        return None
    to, source = _start(s.indices[0]), _start(load.indices[0])
    lanes = dt.lanes(s.indices[0].dtype)
    size = lanes * bytes_of(load.buffer.dtype)
    if to is None or source is None or size not in (4, 8, 16) or lanes != dt.lanes(load.indices[0].dtype):
        return None
    if condition is not None:
        if isinstance(condition, Broadcast):
            condition = condition.value
        if dt.lanes(condition.dtype) > 1:
            return None
    factor = 1  # memory that was merged is one of bytes
    if _element(s.buffer) != _element(load.buffer):
        if _element(s.buffer) != "uint8":
            return None
        factor = bytes_of(_element(load.buffer))
    args: list[PrimExpr] = [
        s.buffer.data,
        mul(to, const(factor, to.dtype)),
        load.buffer.data,
        source,
        IntImm("int32", size),
    ]
    if condition is not None:
        args.append(condition)
    return t.Evaluate(Call(s.buffer.dtype, Op.get("tir.ptx_cp_async"), tuple(args)))
