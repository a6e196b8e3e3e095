"""A computation that is made several times is made once, at the head of the scope that has it.

    B[i1] = x + y                         v = x + y
    B[i2] = x + y + z             ▶       B[i1] = v
                                          B[i2] = v + z

Only values that depend on nothing but variables are shared (no loads, no calls), and only where at least one of them is
computed in any case. Greater expressions first.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import PrimExpr, Var
from tilewright.arith.linear import expr_key
from tilewright.ir import dtype as dt
from tilewright.ir.node import children, map_children, replace, walk
from tilewright.ir.passes import Pass
from tilewright.tir import ir as t
from tilewright.tir.transform.base import func_pass

__all__ = ["CommonSubexprElim", "CommonSubexprElimTIR", "share_expressions"]

_LEAVES = (Var, ex.IntImm, ex.FloatImm, ex.StringImm)


def share_expressions(f: t.PrimFunc) -> t.PrimFunc:
    """The function with common subexpressions bound to variables `cse_v1`, `cse_v2`, ...; see the head of the module."""
    run = _Share()
    body = run.stmt(f.body)
    return f if body is f.body else f.with_body(body)


def _candidate(e: Any) -> bool:
    """May the expression be shared?"""
    if not isinstance(e, PrimExpr) or isinstance(e, (*_LEAVES, ex.Ramp, ex.Broadcast, ex.Let)) or e.dtype == "handle":
        return False
    if dt.is_bool(e.dtype):
        return False
    return not any(isinstance(x, (t.BufferLoad, t.ProducerLoad, ex.Call, ex.Let, t.Reduce)) for x in walk(e))


class _Share:
    """Walks scopes outside in: in each, the greatest candidate found twice is bound where its variables are."""

    def __init__(self) -> None:
        self.count = 0

    def stmt(self, s: t.Stmt) -> t.Stmt:
        """A statement that is a scope of its own (a function's body, a loop's, a branch, what follows a definition)."""
        s = self.scope(s)
        return map_stmts(s, self)

    def scope(self, s: t.Stmt) -> t.Stmt:
        parts: list[t.Stmt] = list(s.seq) if isinstance(s, t.SeqStmt) else [s]
        while True:
            found = self.pick(parts)
            if found is None:
                break
            key, value = found
            self.count += 1
            var = Var(f"cse_v{self.count}", value.dtype)
            s = t.LetStmt(var, value, t.seq(*(_replaced(x, key, var) for x in parts)))
            parts = [s]
        return s

    def pick(self, parts: list[t.Stmt]) -> tuple[Any, PrimExpr] | None:
        """(key, expression) of the greatest candidate that occurs twice."""
        seen: dict[Any, list[Any]] = {}
        for n, s in enumerate(parts):
            _occurrences(s, n, [], set(), seen)
        best: Any = None
        for key, (_, count, sure, e) in seen.items():
            if count < 2 or not sure:
                continue
            size = sum(1 for _ in walk(e))
            if best is None or size > best[0]:
                best = (size, key, e)
        return None if best is None else best[1:]


def _occurrences(
    n: Any, position: int, bound: list[Any], hidden: set[Var], seen: dict[Any, list[Any]], sure: bool = True
) -> None:
    """Count the candidates in a statement whose variables are all defined outside of it. `sure`: it runs in any case."""
    if isinstance(n, PrimExpr):
        if _candidate(n) and not any(x in hidden for x in walk(n) if isinstance(x, Var)):
            row = seen.setdefault(expr_key(n), [position, 0, False, n])
            row[1] += 1
            row[2] = row[2] or sure
        if n.identity or isinstance(n, _LEAVES):
            return
        inner = hidden
        if isinstance(n, ex.Let):
            inner = hidden | {n.var}
        if isinstance(n, ex.Call) and getattr(n.op, "name", "") == "tir.if_then_else":
            _occurrences(n.args[0], position, bound, hidden, seen, sure)
            for a in n.args[1:]:
                _occurrences(a, position, bound, hidden, seen, sure=False)
            return
        for c in children(n):
            if not isinstance(c, t.Buffer):
                _occurrences(c, position, bound, inner, seen, sure)
        return
    if isinstance(n, t.Buffer):
        return
    inner = hidden
    if isinstance(n, t.For):
        for c in (n.min, n.extent):
            _occurrences(c, position, bound, hidden, seen, sure)
        _occurrences(n.body, position, bound, hidden | {n.loop_var}, seen, sure)
        return
    if isinstance(n, t.LetStmt):
        _occurrences(n.value, position, bound, hidden, seen, sure)
        _occurrences(n.body, position, bound, hidden | {n.var}, seen, sure)
        return
    if isinstance(n, t.IfThenElse):
        _occurrences(n.condition, position, bound, hidden, seen, sure)
        sides = [n.then_case] if n.else_case is None else [n.then_case, n.else_case]
        _branches(sides, position, hidden, seen, sure)
        return
    if isinstance(n, t.AttrStmt) and isinstance(n.node, t.IterVar):
        inner = hidden | {n.node.var}
    elif isinstance(n, t.Block):
        inner = hidden | {iv.var for iv in n.iter_vars}
    elif isinstance(n, (t.Allocate, t.AllocateConst)):
        inner = hidden | {n.buffer_var}
    for c in children(n):
        if isinstance(c, (t.IterVar, t.BufferRegion, t.MatchBufferRegion)):
            continue
        _occurrences(c, position, bound, inner, seen, sure)


def _branches(sides: list[t.Stmt], position: int, hidden: set[Var], seen: dict[Any, list[Any]], sure: bool) -> None:
    """What both sides of a branch compute is computed in any case; what one does is not."""
    tables: list[dict[Any, list[Any]]] = []
    for s in sides:
        table: dict[Any, list[Any]] = {}
        _occurrences(s, position, [], hidden, table, sure=True)
        tables.append(table)
    for table in tables:
        for key, row in table.items():
            both = len(tables) == 2 and all(key in x and x[key][2] for x in tables)
            old = seen.setdefault(key, [position, 0, False, row[3]])
            old[1] += row[1]
            old[2] = old[2] or (sure and both)


def _replaced(n: Any, key: Any, var: Var) -> Any:
    """`n` with the variable in place of each occurrence of the expression."""
    kind = key[0]

    def visit(x: Any) -> Any:
        if isinstance(x, (t.Buffer, t.BufferRegion, t.MatchBufferRegion, t.IterVar)):
            return x
        if type(x) is kind and expr_key(x) == key:
            return var
        return x if x.identity else map_children(x, visit)

    return visit(n)


def map_stmts(s: t.Stmt, run: _Share) -> t.Stmt:
    """The scopes inside a statement done; the scope of the statement itself has been."""
    if isinstance(s, t.SeqStmt):
        new = tuple(map_stmts(x, run) for x in s.seq)
        return s if all(a is b for a, b in zip(new, s.seq)) else t.SeqStmt(new)
    if isinstance(s, t.LetStmt) and s.var.name.startswith("cse_v"):
        body = run.stmt(s.body)
        return s if body is s.body else replace(s, body=body)
    if isinstance(s, t.Block):
        body = run.stmt(s.body)
        init = None if s.init is None else run.stmt(s.init)
        return s if body is s.body and init is s.init else replace(s, body=body, init=init)

    def inside(c: Any) -> Any:
        if isinstance(c, t.Block):
            return map_stmts(c, run)
        return run.stmt(c) if isinstance(c, t.Stmt) else c

    return map_children(s, inside)


def CommonSubexprElimTIR(enable_cse_tir: bool = True, identify_equiv_terms: bool = False) -> Pass:
    """Common subexpressions are computed once. `identify_equiv_terms`: sums are put in normal form before."""

    def run(f: t.PrimFunc) -> t.PrimFunc:
        if not enable_cse_tir:
            return f
        if identify_equiv_terms:
            from tilewright.tir.transform.simplify import simplify_func

            f = simplify_func(f)
        return share_expressions(f)

    return func_pass("CommonSubexprElimTIR", run, CommonSubexprElimTIR.__doc__)


CommonSubexprElim = CommonSubexprElimTIR
