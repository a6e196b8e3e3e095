"""VECTORIZED loops become vector operations: the loop variable a ramp, loads and stores of contiguous lanes.

    for v in T.vectorized(8): B[i*8 + v] = A[i*8 + v] * s[i]
    ▶   B[T.Ramp(i*8, 1, 8)] = A[T.Ramp(i*8, 1, 8)] * T.Broadcast(s[i], 8)

A loop that has no vector form (an opaque call, a store whose address is the same in all lanes) runs as a serial loop:
vectorising is never a change of meaning. A loop longer than `MAX_LANES`, or whose length is no power of two, runs in chunks.
A condition that differs between lanes gives two forms, vectors where it holds for all lanes and a serial loop elsewhere:

    for v in T.vectorized(8):                  if i*8 + 7 < n: C[T.Ramp(i*8, 1, 8)] = ...
        if i*8 + v < n: C[i*8 + v] = ...   ▶   else: for v in range(8): if i*8 + v < n: C[i*8 + v] = ...

The named pass `VectorizeLoop` (`lockstep`) keeps loops of any length whole, and makes serial loops of single statements, as the
lanes of a vectorised loop may run in step; for code generation a loop is cut up only where it is one statement. A loop of `k * T.vscale()` iterations becomes one scalable
vector (SVE, RISC-V V); stores under a condition on its lanes are masked.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import (
    GE,
    GT,
    LE,
    LT,
    Add,
    And,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    CmpOp,
    IntImm,
    Let,
    Not,
    PrimExpr,
    Ramp,
    Select,
    Sub,
    Var,
    add,
    const,
    mul,
)
from tilewright.arith.scalable import scalable_lanes
from tilewright.ir import dtype as dt
from tilewright.ir.node import map_children, walk
from tilewright.ir.op import Op
from tilewright.ir.rewrite import Mutator, substitute
from tilewright.tir import intrin
from tilewright.tir.ir import (
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.lower.index import IndexSpace, Poly

__all__ = ["vectorize_loops"]

MAX_LANES = 64


class _NoVector(Exception):
    """The loop has no vector form; it runs as a serial loop."""


def vectorize_loops(f: PrimFunc, lockstep: bool = False) -> PrimFunc:
    """The function without VECTORIZED loops; see the head of the module."""
    return f.with_body(_Vectorize(lockstep).visit(f.body))


class _Vectorize(Mutator):
    """Finds the vectorised loops, knowing the ranges of the loops around them."""

    def __init__(self, lockstep: bool = False) -> None:
        self.space = IndexSpace()
        self.lockstep = lockstep

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_For(self, s: For) -> Stmt:
        self.space.set_range(s.loop_var, s.min, s.extent)
        if s.kind != ForKind.VECTORIZED:
            return self.generic(s)
        scalable = scalable_lanes(s.extent)
        if scalable:
            return self.vector(s, -scalable)
        if not isinstance(s.extent, IntImm):
            return self.visit(_serial(s, s.body))
        n = s.extent.value
        if not self.lockstep and (n > MAX_LANES or n & (n - 1)):
            return self.chunks(s, n)
        return self.vector(s, n)

    def vector(self, s: For, n: int) -> Stmt:
        """The loop as vectors of `n` lanes, or as it is where it has no vector form."""
        body = self.visit(s.body)
        if n == 1:
            return substitute(body, {s.loop_var: s.min})
        try:
            return _Body(self.space, s.loop_var, s.min, n, self.lockstep).visit(body)
        except _NoVector:
            return _serial(s, body)

    def chunks(self, s: For, n: int) -> Stmt:
        """The loop in pieces of 16 lanes, and the rest in powers of two."""
        width = min(16, 1 << (n.bit_length() - 1))
        dtype = s.loop_var.dtype
        out: list[Stmt] = []
        done = 0
        if n // width > 1:
            outer, inner = Var(s.loop_var.name + "_o", dtype), Var(s.loop_var.name, dtype)
            body = substitute(s.body, {s.loop_var: add(add(mul(outer, width), inner), s.min)})
            lanes = For(inner, const(0, dtype), const(width, dtype), ForKind.VECTORIZED, body)
            out.append(For(outer, const(0, dtype), const(n // width, dtype), ForKind.SERIAL, lanes))
            done = n // width * width
        while done < n:
            while width > n - done:
                width //= 2
            inner = Var(s.loop_var.name, dtype)
            body = substitute(s.body, {s.loop_var: inner})
            out.append(For(inner, add(s.min, const(done, dtype)), const(width, dtype), ForKind.VECTORIZED, body))
            done += width
        return seq(*(self.visit(x) for x in out))


def _serial(s: For, body: Stmt) -> For:
    return For(s.loop_var, s.min, s.extent, ForKind.SERIAL, body, None, s.annotations)


class _Body:
    """Rewrites the body of one vectorised loop to vectors of `lanes`."""

    def __init__(self, space: IndexSpace, var: Var, start: PrimExpr, lanes: int, lockstep: bool = False) -> None:
        self.space, self.var, self.lanes, self.lockstep = space, var, lanes, lockstep
        self.lane = Var(var.name, var.dtype)
        space.ranges[self.lane] = (0, lanes - 1 if lanes > 0 else None)
        self.atom = space.atom(self.lane)
        lane_poly: Poly = {(self.atom,): 1}
        self.saved = space.values.get(var)
        space.values[var] = space.sum(space.poly(start), lane_poly)
        self.start = start
        self.vectors: dict[Var, Var] = {}
        self.alone = True
        """Is the statement at hand the whole body?"""
        self.holds: set[int] = set()
        """Conditions known to hold in all lanes, by their objects."""

    # ---- statements ----------------------------------------------------------------------------------------------------

    def visit(self, s: Stmt) -> Stmt:
        try:
            return self.stmt(s)
        finally:
            if self.saved is None:
                self.space.values.pop(self.var, None)
            else:
                self.space.values[self.var] = self.saved

    def stmt(self, s: Stmt) -> Stmt:
        try:
            return self.vector(s)
        except _NoVector:
            if (
                not self.lockstep
                or isinstance(s, (SeqStmt, LetStmt))
                or self.vectors
                or self.lanes < 0
                or not self.may_split(s)
            ):
                raise
            return self.serial(s)

    @staticmethod
    def may_split(s: Stmt) -> bool:
        return isinstance(s, (IfThenElse, For, Evaluate, BufferStore))

    def serial(self, s: Stmt) -> Stmt:
        """The statement in a loop over the lanes."""
        var = Var(self.var.name, self.var.dtype)
        body = substitute(s, {self.var: var})
        return For(var, self.start, const(self.lanes, var.dtype), ForKind.SERIAL, body)

    def vector(self, s: Stmt) -> Stmt:
        if isinstance(s, BufferStore):
            return self.store_or_split(s)
        if isinstance(s, SeqStmt):
            self.alone = False
            return SeqStmt(tuple(self.stmt(x) for x in s.seq))
        if isinstance(s, LetStmt):
            value = self.expr(s.value)
            return LetStmt(self.bind(s.var, value), value, self.stmt(s.body))
        if isinstance(s, IfThenElse):
            condition = self.expr(s.condition)
            if dt.lanes(condition.dtype) != 1:
                return self.split_if(s) if self.lanes > 0 else self.masked(s, condition)
            return IfThenElse(
                condition, self.stmt(s.then_case), None if s.else_case is None else self.stmt(s.else_case)
            )
        if isinstance(s, For):
            if s.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
                raise _NoVector
            start, extent = self.invariant(s.min), self.invariant(s.extent)
            self.space.set_range(s.loop_var, start, extent)
            return For(s.loop_var, start, extent, s.kind, self.stmt(s.body), None, s.annotations)
        if isinstance(s, Evaluate) and isinstance(s.value, IntImm):
            return s
        raise _NoVector

    def masked(self, s: IfThenElse, condition: PrimExpr) -> Stmt:
        """Stores of the lanes in which a condition holds; for vectors whose length the machine decides."""
        stores = s.then_case.seq if isinstance(s.then_case, SeqStmt) else (s.then_case,)
        if self.lanes > 0 or s.else_case is not None or not all(isinstance(x, BufferStore) for x in stores):
            raise _NoVector
        done = [self.stmt(x) for x in stores]
        if any(dt.lanes(x.indices[0].dtype) == 1 for x in done if isinstance(x, BufferStore)):
            raise _NoVector
        return IfThenElse(condition, seq(*done))

    def bind(self, var: Var, value: PrimExpr) -> Var:
        if dt.lanes(value.dtype) == 1:
            return var
        new = self.vectors[var] = Var(var.name, value.dtype)
        return new

    # ---- conditions that differ between lanes ----------------------------------------------------------------------------

    def split_if(self, s: IfThenElse) -> Stmt:
        """Vectors where the condition holds for all lanes, a serial loop elsewhere."""
        whole = self.all_lanes(s.condition) if s.else_case is None and not self.lockstep else None
        if whole is None or self.vectors or not self.alone:
            raise _NoVector
        return IfThenElse(whole, self.stmt(s.then_case), self.serial(s))

    def store_or_split(self, s: BufferStore) -> Stmt:
        """As `split_if`, for the conditions of `if_then_else` in the value."""
        try:
            return self.store(s)
        except _NoVector:
            if self.lockstep or self.vectors or not self.alone:
                raise
            calls = [x.args[0] for x in walk(s.value) if isinstance(x, Call) and _is_branch(x)]
            found = [c for c in calls if self.lanes > 0 and dt.lanes(self.expr(c).dtype) > 1]
            wholes = [self.all_lanes(c) for c in found]
            if not wholes or any(w is None for w in wholes):
                raise
        self.holds.update(id(c) for c in found)
        inside = self.store(s)
        self.holds.clear()
        condition: Any = wholes[0]
        for w in wholes[1:]:
            condition = And(condition, w)  # type: ignore[arg-type]
        return IfThenElse(condition, inside, self.serial(s))

    def all_lanes(self, c: PrimExpr) -> PrimExpr | None:
        """A scalar condition under which `c` holds in every lane; None where there is none."""
        if isinstance(c, And):
            a, b = self.all_lanes(c.a), self.all_lanes(c.b)
            return None if a is None or b is None else And(a, b)
        if isinstance(c, Call) and isinstance(c.op, Op) and c.op.name == "tir.likely":
            return self.all_lanes(c.args[0])
        if dt.lanes(self.expr(c).dtype) == 1:
            return c if not any(x is self.var for x in walk(c)) else None
        if not isinstance(c, (LT, LE, GT, GE)) or not dt.is_int(c.a.dtype):
            return None
        p = self.space.sum(self.space.poly(c.a), self.space.poly(c.b), -1)
        step = p.get((self.atom,), 0)
        rest = {m: k for m, k in p.items() if m != (self.atom,)}
        if any(self.varies(a) for m in rest for a in m):
            return None
        far = (self.lanes - 1) * step
        worst = max(0, far) if isinstance(c, (LT, LE)) else min(0, far)
        total = self.space.sum(rest, {(): worst} if worst else {})
        return type(c)(self.space.expr(total, c.a.dtype), const(0, c.a.dtype))

    def indices(self, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        """The indices of an access; only the last may be a vector."""
        out = tuple(self.index(i) for i in indices)
        if any(dt.lanes(i.dtype) != 1 for i in out[:-1]):
            raise _NoVector
        return out

    def store(self, s: BufferStore) -> Stmt:
        if not s.indices or dt.lanes(s.indices[-1].dtype) != 1:
            raise _NoVector
        indices = self.indices(s.indices)
        index = indices[-1]
        value = self.expr(s.value)
        wide = dt.lanes(index.dtype) != 1
        if not wide:
            if dt.lanes(value.dtype) != 1 or any(
                isinstance(x, BufferLoad) and x.buffer is s.buffer for x in walk(value)
            ):
                raise _NoVector
            return BufferStore(s.buffer, value, indices)
        return BufferStore(s.buffer, self.wide(value), indices)

    # ---- expressions ---------------------------------------------------------------------------------------------------

    def wide(self, e: PrimExpr) -> PrimExpr:
        return e if dt.lanes(e.dtype) != 1 else Broadcast(e, self.lanes)

    def invariant(self, e: PrimExpr) -> PrimExpr:
        e = self.expr(e)
        if dt.lanes(e.dtype) != 1:
            raise _NoVector
        return e

    def index(self, e: PrimExpr) -> PrimExpr:
        """A scalar where the lanes agree, a ramp where they are evenly spaced, else a vector of indices."""
        p = self.space.poly(e)
        step = p.get((self.atom,), 0)
        rest = {m: c for m, c in p.items() if m != (self.atom,)} if step else p
        if any(self.varies(a) for m in rest for a in m):
            return self.generic(e)
        base = self.space.expr(rest, e.dtype)
        return Ramp(base, const(step, e.dtype), self.lanes) if step else base

    def varies(self, a: int) -> bool:
        e = self.space.atoms[a]
        if isinstance(e, Var):
            return e is self.lane or e in self.vectors
        return any(x is self.lane or x is self.var or x in self.vectors for x in walk(e) if isinstance(x, Var))

    def expr(self, e: PrimExpr) -> PrimExpr:
        if isinstance(e, Var):
            if e is self.var:
                return Ramp(self.start, const(1, e.dtype), self.lanes)
            return self.vectors.get(e, e)
        if e.identity or not e.node_fields:
            return e
        if dt.is_int(e.dtype) and dt.lanes(e.dtype) == 1 and isinstance(e, BinaryOp):
            return self.index(e)
        return self.generic(e)

    def generic(self, e: PrimExpr) -> PrimExpr:
        if dt.lanes(e.dtype) != 1:
            if any(x is self.var or x in self.vectors for x in walk(e) if isinstance(x, Var)):
                raise _NoVector
            return e
        if isinstance(e, BufferLoad):
            indices = self.indices(e.indices)
            return e if all(a is b for a, b in zip(indices, e.indices)) else BufferLoad(e.buffer, indices)
        if isinstance(e, (BinaryOp, CmpOp)):
            a, b = self.expr(e.a), self.expr(e.b)
            if dt.lanes(a.dtype) == 1 and dt.lanes(b.dtype) == 1:
                return e if a is e.a and b is e.b else type(e)(a, b)
            if isinstance(a, Ramp) and dt.lanes(b.dtype) == 1 and isinstance(e, (Add, Sub)):
                return Ramp(type(e)(a.base, b), a.stride, a.lanes)
            return type(e)(self.wide(a), self.wide(b))
        if isinstance(e, Select):
            parts = [self.expr(x) for x in (e.condition, e.true_value, e.false_value)]
            if all(dt.lanes(x.dtype) == 1 for x in parts):
                return Select(*parts)
            return Select(*(self.wide(x) for x in parts))
        if isinstance(e, Cast):
            value = self.expr(e.value)
            return Cast(dt.with_lanes(e.dtype, dt.lanes(value.dtype)), value)
        if isinstance(e, Not):
            return Not(self.expr(e.a))
        if isinstance(e, Let):
            value = self.expr(e.value)
            var = self.bind(e.var, value)
            return Let(var, value, self.expr(e.body))
        if isinstance(e, Call):
            return self.call(e)
        if any(x is self.var or x in self.vectors for x in walk(e) if isinstance(x, Var)):
            raise _NoVector
        return map_children(e, lambda x: self.expr(x) if isinstance(x, PrimExpr) else x)

    def call(self, e: Call) -> PrimExpr:
        name = e.op.name if isinstance(e.op, Op) else ""
        if name == "tir.if_then_else":
            return self.branch(e)
        args = [self.expr(a) if isinstance(a, PrimExpr) else a for a in e.args]
        if all(not isinstance(a, PrimExpr) or dt.lanes(a.dtype) == 1 for a in args):
            if not intrin.is_pure(e.op):
                raise _NoVector
            return Call(e.dtype, e.op, tuple(args))
        if name == "tir.reinterpret" and dt.bits(e.dtype) == dt.bits(args[0].dtype) and dt.lanes(e.dtype) == 1:
            return Call(dt.with_lanes(e.dtype, self.lanes), e.op, (self.wide(args[0]),))
        row = intrin.get(e.op)
        if row is None or row.effect != "pure" or row.rule not in ("first", "last", "bool") or not _LANEWISE(name):
            raise _NoVector
        return Call(dt.with_lanes(e.dtype, self.lanes), e.op, tuple(self.wide(a) for a in args))

    def branch(self, e: Call) -> PrimExpr:
        if id(e.args[0]) in self.holds:
            return self.expr(e.args[1])
        condition, a, b = (self.expr(x) for x in e.args)
        if dt.lanes(condition.dtype) != 1:
            if _may_fault(a) or _may_fault(b):
                raise _NoVector
            return Select(condition, self.wide(a), self.wide(b))
        if dt.lanes(a.dtype) != 1 or dt.lanes(b.dtype) != 1:
            a, b = self.wide(a), self.wide(b)
        return Call(a.dtype, e.op, (condition, a, b))


def _is_branch(e: Call) -> bool:
    return isinstance(e.op, Op) and e.op.name == "tir.if_then_else"


def _may_fault(e: PrimExpr) -> bool:
    """Must the expression not be evaluated where its condition does not hold? (a load out of bounds, a division)"""
    for x in walk(e):
        if isinstance(x, BufferLoad):
            return True
        if type(x).__name__ in ("Div", "Mod", "FloorDiv", "FloorMod") and not dt.is_float(x.dtype):  # pyright: ignore
            divisor: Any = x.b  # pyright: ignore
            if not isinstance(divisor, IntImm) and not isinstance(getattr(divisor, "value", None), IntImm):
                return True
    return False


_NOT_LANEWISE = {
    "tir.reduce_lanes", "tir.vectorlow", "tir.vectorhigh", "tir.vectorcombine", "tir.address_of", "tir.tvm_access_ptr",
    "tir.reinterpret", "tir.undef", "tir.nextafter",
}  # fmt: skip


def _LANEWISE(name: str) -> bool:
    return name not in _NOT_LANEWISE
