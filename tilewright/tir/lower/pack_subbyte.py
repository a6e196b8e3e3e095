"""int4 and uint4: two elements a byte in memory, the first in the low half; 8-bit integers in registers.

    B[i] = A[i] + int4(1)   ▶   t = int8(sign of (A8[i // 2] >> 4 * (i % 2)) & 15) + 1, wrapped to 4 bits
                                B8[i // 2] = B8[i // 2] & ~(15 << 4 * (i % 2)) | (t & 15) << 4 * (i % 2)

This is DLPack's layout of sub-byte elements. Elements that share a byte must not be written at once: a vectorised loop that
stores them runs as a serial one, and so does a parallel one unless its iterations write different bytes for certain.
"""

from __future__ import annotations

from tilewright.arith.expr import (
    Broadcast,
    Call,
    Cast,
    IntImm,
    PrimExpr,
    Ramp,
    Select,
    Var,
    cast,
    const,
    floordiv,
    floormod,
    mul,
)
from tilewright.ir import dtype as dt
from tilewright.ir.node import replace, walk
from tilewright.ir.op import Op, PointerType, PrimType
from tilewright.ir.rewrite import Mutator
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import (
    Allocate,
    AllocateConst,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    LetStmt,
    PrimFunc,
    Stmt,
)
from tilewright.tir.lower.index import IndexSpace

__all__ = ["pack_subbyte"]

_WIDE = {"int4": "int8", "uint4": "uint8"}


def is_packed(dtype: str) -> bool:
    """Is it a dtype whose elements share bytes?"""
    return dt.element(dtype) in _WIDE


def pack_subbyte(f: PrimFunc) -> PrimFunc:
    """The flat function without int4 and uint4. Raises CompileError TW0531 for a store of several elements at once.

    Works on scalar code: it belongs before `vectorize_loops`.
    """
    if not any(is_packed(getattr(n, "dtype", "void") or "void") for n in walk(f.body)):
        return f
    return f.with_body(_Pack().visit(f.body))


class _Pack(Mutator):
    def __init__(self) -> None:
        self.bytes: dict[Buffer, Buffer] = {}
        self.data: dict[Var, Var] = {}
        self.lets: dict[Var, Var] = {}
        self.space = IndexSpace()

    def view(self, b: Buffer) -> Buffer:
        """The bytes of a buffer."""
        found = self.bytes.get(b)
        if found is None:
            size = floordiv(b.shape[0] + 1, 2)
            found = self.bytes[b] = Buffer(
                self.pointer(b.data), "uint8", (size,), (), None, b.name, b.data_alignment, 0, ()
            )
        return found

    def pointer(self, v: Var) -> Var:
        return self.data.get(v, v)

    # statements

    def visit_For(self, s: For) -> Stmt:
        self.space.set_range(s.loop_var, s.min, s.extent)
        new = self.generic(s)  # the ranges of the inner loops are known after this
        stores = [n for n in walk(s.body) if isinstance(n, BufferStore) and is_packed(n.buffer.dtype)]
        if not stores or s.kind not in (ForKind.PARALLEL, ForKind.VECTORIZED):
            return new
        apart = s.kind == ForKind.PARALLEL and all(self._bytes_differ(n, s.loop_var) for n in stores)
        return new if apart else replace(new, kind=ForKind.SERIAL)

    def _bytes_differ(self, s: BufferStore, var: Var) -> bool:
        """Do different values of `var` write different bytes? So if the index is var * even + something from 0 to below that.

        Loops further out add the same to all of them; with a multiple of `step`, which keeps the bytes apart."""
        p = self.space.poly(s.indices[0])
        own = (self.space.atom(var),)
        step = p.get(own, 0)
        rest = {m: c for m, c in p.items() if m != own and not (step and c % step == 0)}
        if step <= 0 or step % 2 or self.space.depends(rest, var):
            return False
        low, high = self.space.bounds(rest)
        return low is not None and high is not None and low >= 0 and high < step

    def visit_Allocate(self, s: Allocate) -> Stmt:
        if not is_packed(s.dtype):
            return self.generic(s)
        scope = getattr(s.buffer_var.type_annotation, "storage_scope", "global")
        fresh = Var(s.buffer_var.name, "handle", PointerType(PrimType("uint8"), scope))
        self.data[s.buffer_var] = fresh
        size = floordiv(s.extents[0] + 1, 2)
        return Allocate(fresh, "uint8", (size,), s.condition, self.visit(s.body), s.annotations)

    def visit_AllocateConst(self, s: AllocateConst) -> Stmt:
        if is_packed(s.dtype):
            raise CompileError.at(
                "TW0531", f"a constant array of {s.dtype} is not supported", hint="pass it as an argument"
            )
        return self.generic(s)

    def visit_LetStmt(self, s: LetStmt) -> Stmt:
        value = self.visit(s.value)
        if not is_packed(s.var.dtype):
            return replace(s, value=value, body=self.visit(s.body))
        self.lets[s.var] = Var(s.var.name, _wide(s.var.dtype))
        return LetStmt(self.lets[s.var], value, self.visit(s.body))

    def visit_BufferStore(self, s: BufferStore) -> Stmt:
        value, index = self.visit(s.value), self.visit(s.indices[0])
        if not is_packed(s.buffer.dtype):
            return replace(s, value=value, indices=(index,))
        if dt.lanes(index.dtype) > 1:
            raise CompileError.at(
                "TW0531",
                f"a store of {dt.lanes(index.dtype)} elements of {s.buffer.dtype} at once is not supported",
                hint=f"store the elements of {s.buffer.name} one by one",
            )
        view = self.view(s.buffer)
        shift, at = _shift(index, "uint8"), floordiv(index, 2)
        mask = _call("shift_left", const(15, "uint8"), shift)
        kept = _call("bitwise_and", BufferLoad(view, (at,)), _call("bitwise_not", mask))
        low = _call("bitwise_and", cast(value, "uint8"), const(15, "uint8"))
        return BufferStore(view, _call("bitwise_or", kept, _call("shift_left", low, shift)), (at,))

    # expressions

    def visit_BufferLoad(self, e: BufferLoad) -> PrimExpr:
        index = self.visit(e.indices[0])
        if not is_packed(e.buffer.dtype):
            return replace(e, indices=(index,))
        lanes = dt.lanes(index.dtype)
        byte = BufferLoad(self.view(e.buffer), (_halved(index),))
        bits = _call("shift_right", byte, _shift(index, dt.with_lanes("uint8", lanes)))
        return _wrapped(bits, dt.with_lanes(e.buffer.dtype, lanes))

    def visit_Var(self, e: Var) -> PrimExpr:
        return self.lets.get(e, self.data.get(e, e))

    def visit_IntImm(self, e: IntImm) -> PrimExpr:
        return IntImm(_wide(e.dtype), e.value) if is_packed(e.dtype) else e

    def visit_Cast(self, e: Cast) -> PrimExpr:
        value = self.visit(e.value)
        if not is_packed(e.dtype):
            return replace(e, value=value)
        return _wrapped(cast(value, _wide(e.dtype)), e.dtype)

    def visit_Call(self, e: Call) -> PrimExpr:
        args = tuple(self.visit(a) for a in e.args)
        if not is_packed(e.dtype):
            return replace(e, args=args)
        return _wrapped(Call(_wide(e.dtype), e.op, args), e.dtype)

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        new = self.generic(e)
        if not is_packed(e.dtype) or isinstance(e, (Select, Broadcast, Ramp)):
            return new
        return _wrapped(new, e.dtype)


def _wide(dtype: str) -> str:
    return dt.with_lanes(_WIDE[dt.element(dtype)], dt.lanes(dtype))


def _call(name: str, *args: PrimExpr) -> PrimExpr:
    n = max(dt.lanes(a.dtype) for a in args)
    same = tuple(Broadcast(a, n) if n > 1 and dt.lanes(a.dtype) == 1 else a for a in args)
    return Call(same[0].dtype, Op.get(f"tir.{name}"), same)


def _halved(index: PrimExpr) -> PrimExpr:
    lanes = dt.lanes(index.dtype)
    two = const(2, dt.element(index.dtype))
    return floordiv(index, two if lanes == 1 else Broadcast(two, lanes))


def _shift(index: PrimExpr, dtype: str) -> PrimExpr:
    """How far right the element lies in its byte: 0 or 4."""
    lanes = dt.lanes(index.dtype)
    two, four = const(2, dt.element(index.dtype)), const(4, dt.element(dtype))
    if lanes == 1:
        return mul(cast(floormod(index, two), dtype), four)
    return mul(cast(floormod(index, Broadcast(two, lanes)), dtype), Broadcast(four, lanes))


def _wrapped(e: PrimExpr, dtype: str) -> PrimExpr:
    """The low 4 bits of an 8-bit value as a value of `dtype`, in 8 bits."""
    if isinstance(e, IntImm):
        bits = e.value & 15
        return IntImm(
            _wide(dtype), bits - 16 if dt.is_int(dtype) and dt.element(dtype) == "int4" and bits > 7 else bits
        )
    if dt.element(dtype) == "uint4":
        return _call("bitwise_and", e, const(15, "uint8"))
    signed = cast(e, _wide(dtype))
    four = const(4, "int8")
    return _call("shift_right", _call("shift_left", signed, four), four)
