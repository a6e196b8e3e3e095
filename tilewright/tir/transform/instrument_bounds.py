"""A build that checks bounds: before each statement, every index of its accesses is compared with the buffer's shape.

    C[i] = A[i + 1]     ▶     if not (0 <= i + 1 and i + 1 < n): raise IndexError("A[i + 1] ...: index 16, dimension of 16")
                              C[i] = A[i + 1]

A load under a condition is checked under that condition. Checks that always hold are left out.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, StringImm, Var, call_intrin, cast, const
from tilewright.ir import dtype as dt
from tilewright.ir.module import attrs_of
from tilewright.ir.node import children, replace, walk
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.tir import ir as t
from tilewright.tir.transform.base import call_name, func_pass

__all__ = ["InstrumentBoundCheckers", "instrument_bounds"]


def instrument_bounds(f: t.PrimFunc) -> t.PrimFunc:
    """The function with a check before each statement that accesses memory; see the head of the module."""
    run = _Instrument(str(attrs_of(f).get("global_symbol") or "main"))
    for b in f.buffer_map.values():
        for n in b.shape:
            if isinstance(n, Var):
                run.ana.mark_global_non_neg_value(n)
    return f.with_body(run.visit(f.body))


class _Instrument(Mutator):
    def __init__(self, name: str) -> None:
        self.name = name
        self.ana = Analyzer()

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    # ---- checks ----------------------------------------------------------------------------------------------------------

    def checks(self, e: Any, under: list[PrimExpr], out: list[t.Stmt]) -> None:
        """The checks of the accesses in an expression, in the order in which they happen."""
        if isinstance(e, t.BufferLoad):
            for i in e.indices:
                self.checks(i, under, out)
            self.access(e.buffer, e.indices, under, out)
        elif call_name(e) == "tir.if_then_else":
            c, yes, no = e.args
            self.checks(c, under, out)
            self.checks(yes, [*under, c], out)
            self.checks(no, [*under, ex.Not(c)], out)
        elif isinstance(e, ex.Let):
            self.checks(e.value, under, out)
            inner: list[t.Stmt] = []
            self.checks(e.body, under, inner)
            if inner:
                out.append(t.LetStmt(e.var, e.value, t.seq(*inner)))
        elif call_name(e) == "tir.address_of":
            return
        elif isinstance(e, PrimExpr) and not e.identity:
            for c in children(e):
                self.checks(c, under, out)

    def access(self, b: t.Buffer, indices: tuple[PrimExpr, ...], under: list[PrimExpr], out: list[t.Stmt]) -> None:
        for d, (i, n) in enumerate(zip(indices, b.shape, strict=True)):
            for at in _ends(i):
                wide = cast(at, "int64")
                size = cast(n, "int64")
                inside = ex.And(ex.GE(wide, const(0, "int64")), ex.LT(wide, size))
                if self.holds(at, n):
                    continue
                text = f"{self.name}(): index %lld of dimension {d} of buffer '{b.name}' is out of bounds: the dimension is %lld"
                fault = call_intrin("int32", "tir.tw_raise", StringImm("IndexError"), StringImm(text), wide, size)
                s: t.Stmt = t.IfThenElse(ex.Not(inside), t.Evaluate(fault))
                for c in reversed(under):
                    s = t.IfThenElse(c, s)
                out.append(s)

    def holds(self, i: PrimExpr, n: PrimExpr) -> bool:
        if any(isinstance(x, (t.BufferLoad, ex.Call)) for x in walk(i)):
            return False
        return self.ana.can_prove(i >= 0) and self.ana.can_prove(i < cast(n, i.dtype))

    def before(self, s: t.Stmt, *parts: Any) -> t.Stmt:
        """`s` with the checks of expressions before it."""
        out: list[t.Stmt] = []
        for e in parts:
            self.checks(e, [], out)
        return t.seq(*out, s) if out else s

    # ---- statements ------------------------------------------------------------------------------------------------------

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        out: list[t.Stmt] = []
        for e in (*s.indices, s.value):
            self.checks(e, [], out)
        self.access(s.buffer, s.indices, [], out)
        return t.seq(*out, s) if out else s

    def visit_Evaluate(self, s: t.Evaluate) -> t.Stmt:
        return self.before(s, s.value)

    def visit_LetStmt(self, s: t.LetStmt) -> t.Stmt:
        return self.before(replace(s, body=self.visit(s.body)), s.value)

    def visit_IfThenElse(self, s: t.IfThenElse) -> t.Stmt:
        with self.ana.constraint_scope(_known(s.condition)):
            then = self.visit(s.then_case)
        other = None if s.else_case is None else self.visit(s.else_case)
        return self.before(t.IfThenElse(s.condition, then, other), s.condition)

    def visit_For(self, s: t.For) -> t.Stmt:
        self.ana.bind(s.loop_var, t.Range(s.min, s.extent))
        kind = t.ForKind.SERIAL if s.kind == t.ForKind.VECTORIZED else s.kind
        return self.before(replace(s, kind=kind, body=self.visit(s.body)), s.min, s.extent)

    def visit_While(self, s: t.While) -> t.Stmt:
        checks: list[t.Stmt] = []
        self.checks(s.condition, [], checks)
        body = self.visit(s.body)
        return t.seq(*checks, t.While(s.condition, t.seq(body, *checks))) if checks else t.While(s.condition, body)

    def visit_AssertStmt(self, s: t.AssertStmt) -> t.Stmt:
        return self.before(replace(s, body=self.visit(s.body)), s.condition)

    def visit_BlockRealize(self, s: t.BlockRealize) -> t.Stmt:
        for iv, value in zip(s.block.iter_vars, s.iter_values, strict=True):
            self.ana.bind(iv.var, value)
        b = s.block
        init = None if b.init is None else self.visit(b.init)
        block = replace(b, body=self.visit(b.body), init=init)
        return self.before(replace(s, block=block), s.predicate, *s.iter_values)


def _known(c: PrimExpr) -> PrimExpr:
    """The condition, where it can be reasoned with."""
    if c.dtype != "bool" or any(isinstance(x, (t.BufferLoad, ex.Call)) for x in walk(c)):
        return IntImm("bool", 1)
    return c


def _ends(i: PrimExpr) -> list[PrimExpr]:
    """The scalars whose bounds are those of an index."""
    if isinstance(i, ex.Ramp):
        return [i.base, i.base + i.stride * (i.lanes - 1)]
    if isinstance(i, ex.Broadcast):
        return [i.value]
    return [i] if dt.lanes(i.dtype) == 1 else []


def InstrumentBoundCheckers() -> Pass:
    """Every access is checked against the shape of its buffer when the program runs; a fault is an IndexError."""
    return func_pass("InstrumentBoundCheckers", instrument_bounds)
