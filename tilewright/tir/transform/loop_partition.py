"""Loops are cut where a condition inside begins and ceases to hold for sure, so that the long middle part needs no check.

    for i in range((n + 3) // 4):                         for i in range(n // 4):
        for j in range(4):                                    for j in range(4): A[i*4 + j] = 0
            if likely(i*4 + j < n): A[i*4 + j] = 0    ▶   for i in range(n // 4, (n + 3) // 4):
                                                              for j in range(4):
                                                                  if likely(i*4 + j < n): A[i*4 + j] = 0

Conditions are those marked `likely`; under `pragma_loop_partition_hint` (an attribute or an annotation of the loop) all. Loops of
constant length are cut where the option `tir.LoopPartition` `partition_const_loop` is set, or the hint is given. Of an empty
part nothing is left; with `no_unroll_loop_with_extent_one` a part of one iteration stays a loop;
`unroll_loop_with_partition_hint_no_interval` unrolls a hinted loop that cannot be cut.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var, const, floordiv, maximum, minimum
from tilewright.arith.linear import linear
from tilewright.ir import dtype as dt
from tilewright.ir.node import children, replace, walk
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator, substitute
from tilewright.tir import ir as t
from tilewright.tir.analysis.regions import relax_range
from tilewright.tir.transform.base import TRUE, call_name, func_pass, option
from tilewright.tir.transform.convert_ssa import convert_ssa

__all__ = ["LoopPartition", "partition_loops"]

_HINT = "pragma_loop_partition_hint"


def partition_loops(f: t.PrimFunc) -> t.PrimFunc:
    """The function with its loops cut; see the head of the module."""
    run = _Partition()
    for b in f.buffer_map.values():
        for n in b.shape:
            if isinstance(n, Var):
                run.ana.mark_global_non_neg_value(n)
    body = run.visit(f.body)
    return f if body is f.body else convert_ssa(f.with_body(body))


class _Partition(Mutator):
    def __init__(self) -> None:
        self.ana = Analyzer()
        self.constant = bool(option("tir.LoopPartition", "partition_const_loop", False))
        self.keep_one = bool(option("tir.LoopPartition", "no_unroll_loop_with_extent_one", False))
        self.unroll = bool(option("tir.LoopPartition", "unroll_loop_with_partition_hint_no_interval", False))
        self.hinted: set[Var] = set()

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        if s.attr_key == _HINT:
            if isinstance(s.node, Var):
                self.hinted.add(s.node)
            elif isinstance(s.body, t.For):
                self.hinted.add(s.body.loop_var)
            return self.visit(s.body)
        if isinstance(s.node, t.IterVar) and s.attr_key in ("thread_extent", "virtual_thread"):
            self.ana.bind(s.node.var, t.Range(const(0, s.node.var.dtype), ex.cast(s.value, s.node.var.dtype)))
        return self.generic(s)

    def visit_For(self, s: t.For) -> t.Stmt:
        hinted = s.loop_var in self.hinted or _HINT in s.annotations
        if _HINT in s.annotations:
            s = replace(s, annotations={k: v for k, v in s.annotations.items() if k != _HINT})
        fixed = isinstance(s.extent, IntImm)
        self.ana.bind(s.loop_var, t.Range(s.min, s.extent))
        cut = None
        if s.kind not in (t.ForKind.VECTORIZED, t.ForKind.THREAD_BINDING) and (not fixed or self.constant or hinted):
            cut = self.cut(s, hinted)
        if cut is not None:
            return cut
        if hinted and self.unroll and fixed:
            s = replace(s, kind=t.ForKind.UNROLLED)
        return self.generic(s)

    def cut(self, s: t.For, hinted: bool) -> t.Stmt | None:
        """The loop in up to three parts; None where no condition inside gives a place to cut."""
        low, end = s.min, s.min + s.extent
        found = _conditions(s.body, s.loop_var, hinted)
        best = None
        for c in found:
            span = _span(self.ana, c, s)
            if span is None:
                continue
            first, after = span
            a = low if first is None else self.greater(low, first)
            b = end if after is None else self.less(end, after)
            if self.ana.can_prove(a >= b) or (a is low and b is end):
                continue
            if best is None:
                best = (a, b, [c])
            elif _same(a, best[0]) and _same(b, best[1]):
                best[2].append(c)
            else:
                best = (self.greater(a, best[0]), self.less(b, best[1]), [*best[2], c])
        if best is None or self.ana.can_prove(best[0] >= best[1]):
            return None
        a, b, known = best
        table: dict[int, PrimExpr] = {id(c): TRUE for c in known}
        parts = []
        if a is not low:
            parts.append(self.part(s, low, a, {}))
        parts.append(self.part(s, a, b, table))
        if b is not end:
            parts.append(self.part(s, b, end, {}))
        return t.seq(*(p for p in parts if p is not None))

    def part(self, s: t.For, low: PrimExpr, end: PrimExpr, table: dict[int, PrimExpr]) -> t.Stmt | None:
        """The iterations [low, end), conditions replaced."""
        n = self.ana.simplify(end - low)
        if isinstance(n, IntImm) and n.value <= 0:
            return None
        if not isinstance(n, IntImm) and not self.ana.can_prove(n >= 0):
            n = maximum(n, 0)
        body: t.Stmt = _Known(table).visit(s.body) if table else s.body
        var = Var(s.loop_var.name, s.loop_var.dtype)
        if isinstance(n, IntImm) and n.value == 1 and not self.keep_one:
            return self.visit(substitute(body, {s.loop_var: self.ana.simplify(low)}))
        base = self.ana.simplify(low)
        zero = isinstance(base, IntImm) and base.value == 0
        inner = var if zero else var + base
        self.ana.bind(var, t.Range(const(0, var.dtype), n))
        if s.loop_var in self.hinted:
            self.hinted.add(var)
        body = substitute(body, {s.loop_var: inner})
        return replace(s, loop_var=var, min=const(0, var.dtype), extent=n, body=self.visit(body))

    def greater(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        return a if self.ana.can_prove(a >= b) else b if self.ana.can_prove(b >= a) else maximum(a, b)

    def less(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        return a if self.ana.can_prove(a <= b) else b if self.ana.can_prove(b <= a) else minimum(a, b)


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    from tilewright.arith.linear import difference

    return a is b or difference(a, b) == 0


def _conditions(body: t.Stmt, var: Var, every: bool) -> list[PrimExpr]:
    """The comparisons inside that mention the loop variable: those marked likely, or all."""
    out: list[PrimExpr] = []

    def take(c: Any) -> None:
        if isinstance(c, ex.And):
            take(c.a)
            take(c.b)
        elif call_name(c) == "tir.likely":
            take(c.args[0])
        elif isinstance(c, (ex.LT, ex.LE, ex.GT, ex.GE, ex.EQ)) and any(x is var for x in walk(c)):
            out.append(c)

    def visit(n: Any) -> None:
        if call_name(n) == "tir.likely":
            take(n.args[0])
        elif every and isinstance(n, (t.IfThenElse, ex.Select)):
            take(n.condition)
        elif every and call_name(n) == "tir.if_then_else":
            take(n.args[0])
        if not n.identity:
            for c in children(n):
                visit(c)

    visit(body)
    return out


def _inner_domains(body: t.Stmt) -> dict[Var, tuple[PrimExpr, PrimExpr]]:
    out: dict[Var, tuple[PrimExpr, PrimExpr]] = {}
    for x in walk(body):
        if isinstance(x, t.For):
            out[x.loop_var] = (x.min, x.extent)
        elif isinstance(x, t.AttrStmt) and isinstance(x.node, t.IterVar):
            out[x.node.var] = (const(0, x.node.var.dtype), ex.cast(x.value, x.node.var.dtype))
    return out


def _span(ana: Analyzer, c: Any, s: t.For) -> tuple[PrimExpr | None, PrimExpr | None] | None:
    """(first, one after the last) iteration for which the condition holds whatever inner loops do; None: not known."""
    if not dt.is_int(c.a.dtype):
        return None
    form = linear(ex.Sub(c.a, ex.cast(c.b, c.a.dtype)))
    own = form.terms.get(s.loop_var)
    if own is None:
        return None
    k = own[1]
    rest: PrimExpr = const(form.constant, c.a.dtype)
    for key, (atom, n) in form.terms.items():
        if key is not s.loop_var:
            if any(x is s.loop_var for x in walk(atom)) or any(isinstance(x, t.BufferLoad) for x in walk(atom)):
                return None
            rest = rest + atom * n
    domains = _inner_domains(s.body)
    relaxed = relax_range(rest, const(1, rest.dtype), domains)
    if relaxed is None:
        return None
    least, most = relaxed[0], ana.simplify(relaxed[0] + (relaxed[1] - 1))
    if any(x in domains for e in (least, most) for x in walk(e) if isinstance(x, Var)):
        return None
    kind = type(c)
    if kind is ex.EQ:
        if abs(k) != 1 or not _same(least, most):
            return None
        at = ana.simplify(least * -k)
        return at, at + 1
    if k < 0:  # turn around: k*v + rest < 0 is -k*v - rest > 0
        k, least, most = -k, ana.simplify(most * -1), ana.simplify(least * -1)
        kind = {ex.LT: ex.GT, ex.LE: ex.GE, ex.GT: ex.LT, ex.GE: ex.LE}[kind]
    if kind in (ex.LT, ex.LE):  # k*v <= -most - strict
        top = most * -1 - (1 if kind is ex.LT else 0)
        return None, ana.simplify(floordiv(top, k) + 1)
    bottom = least * -1 + (1 if kind is ex.GT else 0)  # k*v >= bottom
    return ana.simplify(floordiv(bottom + (k - 1), k)), None


class _Known(Mutator):
    """Puts what is known for conditions, found by the object."""

    def __init__(self, table: dict[int, PrimExpr]) -> None:
        self.table = table

    def visit_CmpOp(self, e: ex.CmpOp) -> PrimExpr:
        found = self.table.get(id(e))
        if found is not None:
            return found
        new = self.generic(e)
        if isinstance(new, ex.And):
            return ex.logical_and(new.a, new.b)
        return new

    def visit_Call(self, e: ex.Call) -> PrimExpr:
        new = self.generic(e)
        if call_name(new) == "tir.likely" and isinstance(new.args[0], IntImm):
            return new.args[0]
        if call_name(new) == "tir.if_then_else" and isinstance(new.args[0], IntImm):
            return new.args[1] if new.args[0].value else new.args[2]
        return new

    def visit_Select(self, e: ex.Select) -> PrimExpr:
        new = self.generic(e)
        if isinstance(new.condition, IntImm):
            return new.true_value if new.condition.value else new.false_value
        return new

    def visit_IfThenElse(self, s: t.IfThenElse) -> t.Stmt:
        new = self.generic(s)
        if isinstance(new.condition, IntImm):
            if new.condition.value:
                return new.then_case
            return new.else_case if new.else_case is not None else t.Evaluate(IntImm("int32", 0))
        return new


def LoopPartition() -> Pass:
    """Loops are cut where a condition inside begins and ceases to hold for sure."""
    return func_pass("LoopPartition", partition_loops)
