"""Simplify a function: index arithmetic, conditions, sides of branches that cannot be taken.

    for i in range(16): A[(i*4 + 3) // 4]            ->   A[i]
    if i < 16: body                                  ->   body
    if_then_else(i + 1 >= 1, A[i], 0.0)              ->   A[i]

Index arithmetic (what contains no load and no call) is taken not to overflow, and simplified by the analyzer, which knows
loop ranges, block domains and the conditions around. Arithmetic on data may wrap and is left as it is, except for the
indices and conditions inside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.linear import expr_key
from tilewright.ir.node import children, map_children, replace, walk
from tilewright.ir.passes import pass_
from tilewright.ir.rewrite import substitute
from tilewright.tir import ir as t

__all__ = ["Simplify", "simplify", "simplify_func"]

_TRUE = IntImm("bool", 1)
_NOTHING = t.Evaluate(IntImm("int32", 0))


def simplify_func(f: t.PrimFunc, analyzer: Analyzer | None = None) -> t.PrimFunc:
    """The function, simplified; the same object when nothing changes."""
    run = _Simplify(analyzer or Analyzer())
    for b in f.buffer_map.values():
        for n in b.shape:
            if isinstance(n, Var):
                run.ana.mark_global_non_neg_value(n)
    body = run.stmt(f.body)
    return f if body is f.body else replace(f, body=body)


@pass_(name="Simplify")
def simplify(f: t.PrimFunc, ctx: Any) -> t.PrimFunc:
    """Simplify index arithmetic, conditions and branches (`simplify_func`)."""
    del ctx
    return simplify_func(f)


def Simplify() -> Any:
    """The pass `simplify`."""
    return simplify


def _is_index(e: Any) -> bool:
    """Is the expression free of loads and calls, so that its integers are index arithmetic?"""
    if isinstance(e, (t.BufferLoad, t.ProducerLoad)):
        return False
    if isinstance(e, ex.Call) and getattr(e.op, "name", "") not in ("tir.likely", "tir.if_then_else"):
        return False
    return all(_is_index(c) for c in children(e) if isinstance(c, PrimExpr) and not isinstance(c, (Var, IntImm)))


_FOLDED: dict[str, Callable[[float], float]] = {
    "tir.ceil": math.ceil, "tir.floor": math.floor, "tir.log2": math.log2, "tir.sqrt": math.sqrt, "tir.exp2": lambda x: 2.0**x,
}  # fmt: skip


def _folded(e: Any) -> PrimExpr:
    """Some functions of constants, and what they are cast to; sums with 0 and products with 1 of integers."""
    if isinstance(e, ex.BinaryOp):
        neutral = 1 if isinstance(e, ex.Mul) else 0
        if isinstance(e.b, IntImm) and e.b.value == neutral:
            return e.a
        if isinstance(e.a, IntImm) and e.a.value == neutral and not isinstance(e, ex.Sub):
            return e.b
        return e
    if isinstance(e, ex.Cast):
        if isinstance(e.value, ex.FloatImm) and e.dtype in ("int32", "int64") and abs(e.value.value) < 1 << 31:
            return IntImm(e.dtype, int(e.value.value))
        return e
    f = _FOLDED.get(getattr(e.op, "name", ""))
    if f is None or not isinstance(e.args[0], ex.FloatImm) or e.dtype != "float64":
        return e
    x = e.args[0].value
    return ex.FloatImm(e.dtype, float(f(x))) if math.isfinite(x) and x > 0 else e


class _Simplify:
    def __init__(self, ana: Analyzer) -> None:
        self.ana = ana
        self.lets: dict[Any, PrimExpr] = {}
        """What truth values are bound to."""
        self.known: dict[Any, bool] = {}
        """Conditions that hold or do not hold here, by their keys."""

    # ---- expressions ----

    def expr(self, e: Any) -> Any:
        """A value: index arithmetic goes to the analyzer, the rest is searched for it."""
        if self.known and e.dtype == "bool":
            truth = self.known.get(expr_key(e))
            if truth is not None:
                return IntImm("bool", int(truth))
        if isinstance(e, (Var, IntImm, ex.FloatImm, ex.StringImm)):
            return self.ana.rewrite_simplify(e) if isinstance(e, Var) else e
        if _is_index(e):
            return self.ana.simplify(e)
        if isinstance(e, ex.Select) or (isinstance(e, ex.Call) and getattr(e.op, "name", "") == "tir.if_then_else"):
            return self.choice(e)
        if isinstance(e, (ex.And, ex.Or, ex.Not)):
            return self.logic(e)
        new = map_children(e, self.child)
        return _folded(new) if isinstance(new, (ex.Call, ex.Cast, ex.Add, ex.Sub, ex.Mul)) else new

    def child(self, c: Any) -> Any:
        if isinstance(c, PrimExpr):
            return self.expr(c)
        return c if c.identity else map_children(c, self.child)

    def choice(self, e: Any) -> PrimExpr:
        """A Select or if_then_else: the sides simplified under the condition."""
        call = isinstance(e, ex.Call)
        c, yes, no = e.args if call else (e.condition, e.true_value, e.false_value)
        new = self.expr(c)
        if isinstance(new, IntImm):
            return self.expr(yes if new.value else no)
        if new.dtype != "bool" or not _is_index(new):
            a, b = self.expr(yes), self.expr(no)
        else:
            a = self.ana.under(new, lambda: self.expr(yes))
            b = self.ana.under(ex.Not(new), lambda: self.expr(no))
        if new is c and a is yes and b is no:
            return e
        return ex.Call(e.dtype, e.op, (new, a, b)) if call else ex.Select(new, a, b)

    def logic(self, e: Any) -> PrimExpr:
        """And, Or, Not with loads somewhere inside."""
        if isinstance(e, ex.Not):
            a = self.expr(e.a)
            return e if a is e.a else ex.logical_not(a) if "x" not in a.dtype else ex.Not(a)
        a, b = self.expr(e.a), self.expr(e.b)
        if a is e.a and b is e.b:
            return e
        if "x" in e.dtype:
            return type(e)(a, b)
        return ex.logical_and(a, b) if isinstance(e, ex.And) else ex.logical_or(a, b)

    def range(self, r: t.Range) -> t.Range:
        low, extent = self.expr(r.min), self.expr(r.extent)
        return r if low is r.min and extent is r.extent else t.Range(low, extent)

    def region(self, r: t.BufferRegion) -> t.BufferRegion:
        new = tuple(self.range(x) for x in r.region)
        return r if all(a is b for a, b in zip(new, r.region, strict=True)) else t.BufferRegion(r.buffer, new)

    # ---- statements ----

    def stmt(self, s: t.Stmt) -> t.Stmt:
        method: Callable[[Any], t.Stmt] | None = getattr(self, "s_" + type(s).__name__, None)
        return method(s) if method is not None else map_children(s, self.any)

    def any(self, n: Any) -> Any:
        if isinstance(n, t.Stmt):
            return self.stmt(n)
        return self.expr(n) if isinstance(n, PrimExpr) else n

    def where(self, c: PrimExpr, truth: bool, work: Callable[[], Any]) -> Any:
        """What `work` gives where the condition is known to hold, or not to."""
        saved = dict(self.known)
        todo = [(c, truth)]
        while todo:
            e, holds = todo.pop()
            self.known[expr_key(e)] = holds
            if isinstance(e, ex.Not):
                todo.append((e.a, not holds))
            elif isinstance(e, ex.And if holds else ex.Or):
                todo += [(e.a, holds), (e.b, holds)]
        try:
            return work()
        finally:
            self.known = saved

    def within(self, ranges: list[tuple[Var, t.Range]], work: Callable[[], Any]) -> Any:
        """What `work` gives while variables have these ranges."""
        saved = self.ana.enter(_TRUE)
        try:
            for v, r in ranges:
                self.ana.bind(v, r, allow_override=True)
            return work()
        finally:
            self.ana.leave(saved)

    def s_SeqStmt(self, s: t.SeqStmt) -> t.Stmt:
        new = [self.stmt(x) for x in s.seq]
        if all(a is b for a, b in zip(new, s.seq, strict=True)):
            return s
        kept = [x for x in new if x is not _NOTHING]
        return t.seq(*kept) if kept else _NOTHING

    def s_For(self, s: t.For) -> t.Stmt:
        low, extent = self.expr(s.min), self.expr(s.extent)
        if isinstance(extent, IntImm) and extent.value <= 0:
            return _NOTHING
        body = self.within([(s.loop_var, t.Range(low, extent))], lambda: self.stmt(s.body))
        if body is _NOTHING:
            return _NOTHING
        if low is s.min and extent is s.extent and body is s.body:
            return s
        return replace(s, min=low, extent=extent, body=body)

    def s_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        value = self.expr(s.value)
        ranges: list[tuple[Var, t.Range]] = []
        if isinstance(s.node, t.IterVar) and s.attr_key in ("thread_extent", "virtual_thread"):
            v = s.node.var
            ranges = [(v, t.Range(ex.const(0, v.dtype), ex.cast(value, v.dtype)))]
        body = self.within(ranges, lambda: self.stmt(s.body)) if ranges else self.stmt(s.body)
        return s if value is s.value and body is s.body else replace(s, value=value, body=body)

    def s_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        """A store; one of what was just read from there does nothing."""
        new = map_children(s, self.any)
        v = new.value
        if isinstance(v, t.BufferLoad) and v.buffer is new.buffer and expr_key(v.indices) == expr_key(new.indices):
            if not any(isinstance(x, (t.BufferLoad, ex.Call)) for i in v.indices for x in walk(i)):
                return _NOTHING
        return new

    def decided(self, c: PrimExpr) -> PrimExpr:
        """A condition; where its truth follows from what the variables in it are bound to, that."""
        if not self.lets or isinstance(c, IntImm) or not any(x in self.lets for x in walk(c)):
            return c
        proof = self.expr(substitute(c, self.lets))
        return proof if isinstance(proof, IntImm) else c

    def s_IfThenElse(self, s: t.IfThenElse) -> t.Stmt:
        c = self.decided(self.expr(s.condition))
        other = s.else_case
        if isinstance(c, IntImm):
            return self.stmt(s.then_case) if c.value else _NOTHING if other is None else self.stmt(other)
        if _is_index(c):
            yes = self.where(c, True, lambda: self.ana.under(c, lambda: self.stmt(s.then_case)))
            no = (
                None
                if other is None
                else self.where(c, False, lambda: self.ana.under(ex.Not(c), lambda: self.stmt(other)))
            )
        else:
            yes, no = self.stmt(s.then_case), None if other is None else self.stmt(other)
        no = None if no is _NOTHING else no
        if yes is _NOTHING and no is None:
            return _NOTHING
        return s if c is s.condition and yes is s.then_case and no is other else t.IfThenElse(c, yes, no)

    def s_AssertStmt(self, s: t.AssertStmt) -> t.Stmt:
        c = self.expr(s.condition)
        if isinstance(c, IntImm) and c.value:
            return self.stmt(s.body)
        body = self.ana.under(c, lambda: self.stmt(s.body)) if _is_index(c) else self.stmt(s.body)
        return s if c is s.condition and body is s.body else replace(s, condition=c, body=body)

    def s_LetStmt(self, s: t.LetStmt) -> t.Stmt:
        value = self.expr(s.value)
        if isinstance(value, (IntImm, ex.FloatImm)):
            saved = self.ana.enter(_TRUE)
            try:
                self.ana.set_value(s.var, value)
                return self.stmt(s.body)
            finally:
                self.ana.leave(saved)
        if s.var.dtype == "bool" and _is_index(value):
            self.lets[s.var] = substitute(value, self.lets)
        body = self.stmt(s.body)
        self.lets.pop(s.var, None)
        return s if value is s.value and body is s.body else replace(s, value=value, body=body)

    def s_While(self, s: t.While) -> t.Stmt:
        c = self.expr(s.condition)
        if isinstance(c, IntImm) and not c.value:
            return _NOTHING
        body = self.stmt(s.body)
        return s if c is s.condition and body is s.body else t.While(c, body)

    def s_BlockRealize(self, s: t.BlockRealize) -> t.Stmt:
        predicate = self.expr(s.predicate)
        if isinstance(predicate, IntImm) and not predicate.value:
            return _NOTHING
        values = tuple(self.expr(v) for v in s.iter_values)
        block = self.block(s.block)
        same = all(a is b for a, b in zip(values, s.iter_values, strict=True))
        if same and predicate is s.predicate and block is s.block:
            return s
        return t.BlockRealize(values, predicate, block)

    def block(self, b: t.Block) -> t.Block:
        """A block: its iterators have their domains. A unit iterator stays a variable, so that accesses keep their shape."""
        domains = [
            (iv.var, iv.dom)
            for iv in b.iter_vars
            if iv.dom is not None and not (isinstance(iv.dom.extent, IntImm) and iv.dom.extent.value == 1)
        ]

        def inside() -> t.Block:
            reads = tuple(self.region(r) for r in b.reads)
            writes = tuple(self.region(r) for r in b.writes)
            body = self.stmt(b.body)
            init = None if b.init is None else self.stmt(b.init)
            same = all(x is y for x, y in zip((*reads, *writes), (*b.reads, *b.writes), strict=True))
            return b if same and body is b.body and init is b.init else replace(
                b, reads=reads, writes=writes, body=body, init=init
            )  # fmt: skip

        return self.within(domains, inside)
