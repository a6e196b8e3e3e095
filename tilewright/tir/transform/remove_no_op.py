"""What has no effect goes: empty loops and branches, unused lets, a store of what was just read from there.

With the option `tir.RemoveNoOp` `use_dataflow_analysis`, a store (or a loop of stores) whose whole region the following
statements overwrite without reading it goes too.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.linear import expr_key
from tilewright.ir.node import children, replace, walk
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.tir import intrin
from tilewright.tir import ir as t
from tilewright.tir.transform.base import NOTHING, func_pass, is_nothing, option

__all__ = ["RemoveNoOp", "remove_no_op"]


def remove_no_op(f: t.PrimFunc, dataflow: bool | None = None) -> t.PrimFunc:
    """The function without what has no effect."""
    if dataflow is None:
        dataflow = bool(option("tir.RemoveNoOp", "use_dataflow_analysis", False))
    body = _RemoveNoOp(dataflow).visit(f.body)
    return f if body is f.body else f.with_body(body)


def _effect(e: Any) -> bool:
    """Does evaluating it do anything?"""
    return any(isinstance(x, ex.Call) and intrin.effect_of(x.op) == "opaque" for x in walk(e))


def _keep(*parts: PrimExpr) -> t.Stmt:
    """The statements that evaluate what has an effect of some expressions."""
    kept = [t.Evaluate(p) for p in parts if _effect(p)]
    return t.seq(*kept) if kept else NOTHING


class _RemoveNoOp(Mutator):
    def __init__(self, dataflow: bool) -> None:
        self.ana = Analyzer()
        self.dataflow = dataflow

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Evaluate(self, s: t.Evaluate) -> t.Stmt:
        return s if _effect(s.value) else s if is_nothing(s) and s.value.value == 0 else NOTHING  # type: ignore[attr-defined]

    def visit_LetStmt(self, s: t.LetStmt) -> t.Stmt:
        body = self.visit(s.body)
        if is_nothing(body):
            return _keep(s.value)
        if s.var not in _used(body):
            return t.seq(_keep(s.value), body) if _effect(s.value) else body
        return s if body is s.body else replace(s, body=body)

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        if s.attr_key == "pragma_debug_skip_region":
            return NOTHING
        body = self.visit(s.body)
        if is_nothing(body):
            return _keep(s.value)
        return s if body is s.body else replace(s, body=body)

    def visit_IfThenElse(self, s: t.IfThenElse) -> t.Stmt:
        then = self.visit(s.then_case)
        other = None if s.else_case is None else self.visit(s.else_case)
        other = None if is_nothing(other) else other
        if is_nothing(then):
            if other is None:
                return _keep(s.condition)
            return t.IfThenElse(ex.Not(s.condition), other)
        return s if then is s.then_case and other is s.else_case else t.IfThenElse(s.condition, then, other)

    def visit_For(self, s: t.For) -> t.Stmt:
        extent = self.ana.const_int_bound(s.extent)
        if extent.max_value <= 0:
            return NOTHING
        self.ana.bind(s.loop_var, t.Range(s.min, s.extent))
        body = self.visit(s.body)
        if is_nothing(body):
            return _keep(s.min, s.extent)
        return s if body is s.body else replace(s, body=body)

    def visit_While(self, s: t.While) -> t.Stmt:
        if isinstance(s.condition, IntImm) and not s.condition.value:
            return NOTHING
        return self.generic(s)

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        body = self.visit(s.body)
        if is_nothing(body):
            return _keep(*s.extents)
        if s.buffer_var not in _used(body):
            return body
        return s if body is s.body else replace(s, body=body)

    def visit_DeclBuffer(self, s: t.DeclBuffer) -> t.Stmt:
        body = self.visit(s.body)
        if is_nothing(body) or not any(x is s.buffer for x in _all(body)):
            return body
        return s if body is s.body else replace(s, body=body)

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        v = s.value
        if isinstance(v, t.BufferLoad) and v.buffer is s.buffer:
            same = all(self.ana.can_prove_equal(a, b) for a, b in zip(v.indices, s.indices, strict=True))
            if same and not any(_effect(i) for i in s.indices):
                return NOTHING
        return s

    def visit_SeqStmt(self, s: t.SeqStmt) -> t.Stmt:
        parts = [self.visit(x) for x in s.seq]
        kept: list[t.Stmt] = []
        for p in parts:
            if isinstance(p, t.SeqStmt):
                kept.extend(p.seq)
            elif not is_nothing(p):
                kept.append(p)
        if self.dataflow:
            kept = _without_overwritten(kept)
        if not kept:
            return NOTHING
        if len(kept) == len(s.seq) and all(a is b for a, b in zip(kept, s.seq)):
            return s
        return t.seq(*kept)

    def visit_BlockRealize(self, s: t.BlockRealize) -> t.Stmt:
        body = self.visit(s.block.body)
        init = None if s.block.init is None else self.visit(s.block.init)
        if body is s.block.body and init is s.block.init:
            return s
        return replace(s, block=replace(s.block, body=body, init=init))


def _all(n: Any) -> Any:
    """Everything inside, buffers of accesses included."""
    todo = [n]
    while todo:
        x = todo.pop()
        yield x
        if not x.identity:
            todo.extend(children(x))


def _used(n: Any) -> set[Any]:
    """The variables that a statement uses; those in the types of its buffers too."""
    out: set[Any] = set()
    todo = [n]
    seen: set[int] = set()
    while todo:
        x = todo.pop()
        if x.identity:
            if id(x) in seen:
                continue
            seen.add(id(x))
            if isinstance(x, Var):
                out.add(x)
        todo.extend(children(x))
    return out


# ---- stores that are overwritten -----------------------------------------------------------------------------------------


def _without_overwritten(parts: list[t.Stmt]) -> list[t.Stmt]:
    """The statements without those whose only effect is stores that a later one overwrites before anything reads them."""
    out: list[t.Stmt] = []
    for n, s in enumerate(parts):
        written = _stores_only(s)
        if written is not None and any(
            _overwrites(parts[n + 1 : m], parts[m], written) for m in range(n + 1, len(parts))
        ):
            effects = [t.Evaluate(x.value) for x in walk(s) if isinstance(x, t.BufferStore) and _effect(x.value)]
            if not effects:
                continue
            if isinstance(s, t.BufferStore):
                out.extend(effects)
                continue
        out.append(s)
    return out


def _stores_only(s: t.Stmt) -> tuple[t.Buffer, Any, Any] | None:
    """(buffer, box, condition) where the statement is one store in loops and at most one branch; None otherwise."""
    domains: dict[Var, Any] = {}
    condition: Any = None
    while True:
        if isinstance(s, t.For) and isinstance(s.extent, IntImm) and isinstance(s.min, IntImm):
            domains[s.loop_var] = (s.min, s.extent)
            s = s.body
        elif isinstance(s, t.IfThenElse) and s.else_case is None and condition is None:
            condition = s.condition
            s = s.then_case
        elif isinstance(s, t.BufferStore):
            break
        else:
            return None
    return (s.buffer, (s.indices, domains), condition)


def _overwrites(between: list[t.Stmt], last: t.Stmt, written: tuple[t.Buffer, Any, Any]) -> bool:
    buffer = written[0]
    for s in (*between, last):
        for x in _all(s):
            if isinstance(x, t.BufferLoad) and x.buffer.data is buffer.data:
                return False
            if x is buffer.data or (isinstance(x, ex.Call) and intrin.effect_of(x.op) == "opaque"):
                return False
    later = _stores_only(last)
    if later is None or later[0] is not buffer:
        return False
    points, covered = _points(written), _points(later)
    return points is not None and covered is not None and points <= covered


def _points(written: tuple[t.Buffer, Any, Any]) -> set[tuple[int, ...]] | None:
    """The elements that a loop of stores writes, where they are few enough to be listed; a symbolic part is its own key."""
    _, (indices, domains), condition = written
    total = 1
    for _, n in domains.values():
        total *= n.value
    if total > 4096:
        return None
    from itertools import product

    from tilewright.arith.analyzer import simplify
    from tilewright.ir.rewrite import substitute

    out: set[Any] = set()
    names = list(domains)
    for values in product(*(range(low.value, low.value + n.value) for low, n in domains.values())):
        table = {v: IntImm(v.dtype, x) for v, x in zip(names, values, strict=True)}
        if condition is not None:
            holds = simplify(substitute(condition, table))
            if not isinstance(holds, IntImm):
                return None
            if not holds.value:
                continue
        out.add(tuple(expr_key(simplify(substitute(i, table))) for i in indices))
    return out


def RemoveNoOp() -> Pass:
    """What has no effect goes."""
    return func_pass("RemoveNoOp", remove_no_op)
