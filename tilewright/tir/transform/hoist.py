"""Conditions and lets that do not depend on a loop move out of it.

    for j in range(4):                     if i < 3:
        if i < 3: A[i, j] = 0       ▶          for j in range(4): A[i, j] = 0

Each goes out of as many loops as it can; the loop is then there twice, once under the condition and once under its opposite,
and what the condition decides inside is simplified away.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import PrimExpr, Var
from tilewright.arith.linear import expr_key
from tilewright.ir.node import children, walk
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.support.diagnostics import CompileError
from tilewright.tir import intrin
from tilewright.tir import ir as t
from tilewright.tir.transform.base import call_name, func_pass, option
from tilewright.tir.transform.convert_ssa import convert_ssa
from tilewright.tir.transform.remove_no_op import remove_no_op
from tilewright.tir.transform.simplify import simplify_func

__all__ = ["HoistExpression", "HoistIfThenElse", "HoistedConditionals", "HoistedLetBindings", "hoist"]


class HoistedConditionals(IntFlag):
    """Which conditions `HoistExpression` moves out of loops."""

    Never = 0
    IfElseStmt = 1
    """of branches"""
    IfElseExpr = 2
    """of `if_then_else` and `Select`"""
    BooleanExpression = 4
    """the parts of `and` and `or`"""
    UsingBlockVar = 8
    """those that depend on a thread index, and across its launch"""
    All = 15


class HoistedLetBindings(IntFlag):
    """Which lets `HoistExpression` moves out of loops."""

    Never = 0
    RequiredByConditional = 1
    """those that a condition needs"""
    LetStmt = 2
    LetExpr = 4
    All = 7


def hoist(f: t.PrimFunc, conditionals: int, lets: int) -> t.PrimFunc:
    """The function with conditions and lets moved out of loops; see the head of the module."""
    find = _Find(HoistedConditionals(conditionals), HoistedLetBindings(lets))
    find.stmt(f.body)
    if not find.places:
        return f
    body = _Place(find).visit(f.body)
    return remove_no_op(simplify_func(convert_ssa(f.with_body(body))))


def _movable(e: Any) -> bool:
    """Does the value depend on nothing but variables?"""
    for x in walk(e):
        if isinstance(x, (t.BufferLoad, t.ProducerLoad)) or (
            isinstance(x, ex.Call) and intrin.effect_of(x.op) != "pure"
        ):
            return False
    return True


class _Find:
    """Where each condition and let can go: to a loop, which it is put around."""

    def __init__(self, conditionals: HoistedConditionals, lets: HoistedLetBindings) -> None:
        self.conditionals, self.lets = conditionals, lets
        self.loops: list[t.Stmt] = []
        self.depth: dict[Var, int] = {}
        self.barrier = 0
        """Nothing moves out of the loops before this one."""
        self.block_vars: set[Var] = set()
        self.places: dict[int, list[Any]] = {}
        self.moved: set[int] = set()

    def stmt(self, s: t.Stmt) -> None:
        if isinstance(s, t.For):
            self.expr(s.min)
            self.expr(s.extent)
            self.inside(s, s.loop_var, s.body)
        elif isinstance(s, t.AttrStmt) and isinstance(s.node, t.IterVar) and s.attr_key == "thread_extent":
            self.block_vars.add(s.node.var)
            outer = self.barrier
            if not self.conditionals & HoistedConditionals.UsingBlockVar:
                self.barrier = len(self.loops) + 1
            self.inside(s, s.node.var, s.body)
            self.barrier = outer
        elif isinstance(s, t.LetStmt):
            self.expr(s.value)
            self.let(s)
            self.stmt(s.body)
        elif isinstance(s, t.IfThenElse):
            if self.conditionals & HoistedConditionals.IfElseStmt:
                self.condition(s.condition)
            self.expr(s.condition)
            self.stmt(s.then_case)
            if s.else_case is not None:
                self.stmt(s.else_case)
        else:
            if isinstance(s, t.BlockRealize):
                self.depth.update({iv.var: len(self.loops) for iv in s.block.iter_vars})
            for c in children(s):
                if isinstance(c, t.Stmt):
                    self.stmt(c)
                elif isinstance(c, PrimExpr):
                    self.expr(c)

    def inside(self, s: t.Stmt, var: Var, body: t.Stmt) -> None:
        self.loops.append(s)
        self.depth[var] = len(self.loops)
        self.stmt(body)
        self.loops.pop()

    def expr(self, e: Any) -> None:
        if isinstance(e, ex.Let):
            self.depth[e.var] = len(self.loops)
        if self.conditionals & HoistedConditionals.IfElseExpr:
            if isinstance(e, ex.Select):
                self.condition(e.condition)
            elif isinstance(e, ex.Call) and call_name(e) == "tir.if_then_else":
                self.condition(e.args[0])
        if isinstance(e, PrimExpr) and not e.identity:
            for c in children(e):
                self.expr(c)

    def target(self, e: PrimExpr) -> int | None:
        """The number of the loop that the value is put around; None where it stays."""
        if not _movable(e):
            return None
        names = [x for x in walk(e) if isinstance(x, Var)]
        if not self.conditionals & HoistedConditionals.UsingBlockVar and any(v in self.block_vars for v in names):
            return None
        n = max([self.depth.get(v, 0) for v in names] + [self.barrier])
        return n if n < len(self.loops) else None

    def condition(self, c: PrimExpr) -> None:
        if call_name(c) == "tir.likely":
            self.condition(c.args[0])  # type: ignore[attr-defined]
            return
        if isinstance(c, (ex.And, ex.Or)) and self.conditionals & HoistedConditionals.BooleanExpression:
            whole = self.target(c)
            parts = [self.target(x) for x in (c.a, c.b)]
            if any(p is not None and (whole is None or p < whole) for p in parts):
                self.condition(c.a)
                self.condition(c.b)
                return
        n = self.target(c)
        if n is None or c.dtype != "bool" or isinstance(c, ex.IntImm):
            return
        here = self.places.setdefault(id(self.loops[n]), [])
        if not any(not isinstance(x, tuple) and expr_key(x) == expr_key(c) for x in here):
            here.append(c)

    def let(self, s: t.LetStmt) -> None:
        wanted = bool(self.lets & HoistedLetBindings.LetStmt)
        if not wanted and self.lets & HoistedLetBindings.RequiredByConditional:
            wanted = any(isinstance(x, t.IfThenElse) and _mentions(x.condition, s.var) for x in walk(s.body))
        n = self.target(s.value) if wanted else None
        if n is None:
            self.depth[s.var] = len(self.loops)
            return
        self.depth[s.var] = n
        self.places.setdefault(id(self.loops[n]), []).append((s.var, s.value))
        self.moved.add(id(s))


def _mentions(e: PrimExpr, v: Var) -> bool:
    return any(x is v for x in walk(e))


class _Place(Mutator):
    def __init__(self, find: _Find) -> None:
        self.places, self.moved = find.places, find.moved

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_LetStmt(self, s: t.LetStmt) -> t.Stmt:
        return self.visit(s.body) if id(s) in self.moved else self.generic(s)

    def around(self, s: t.Stmt) -> t.Stmt:
        out: t.Stmt = self.generic(s)
        for x in reversed(self.places.get(id(s), [])):
            out = t.LetStmt(x[0], x[1], out) if isinstance(x, tuple) else t.IfThenElse(x, out, out)
        return out

    def visit_For(self, s: t.For) -> t.Stmt:
        return self.around(s)

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        return self.around(s)


def HoistExpression() -> Pass:
    """Conditions and lets move out of loops, as the options `tir.HoistExpression` say (all of them by default)."""

    def run(f: t.PrimFunc) -> t.PrimFunc:
        conditionals = int(option("tir.HoistExpression", "hoisted_conditionals", HoistedConditionals.All))
        lets = int(option("tir.HoistExpression", "hoisted_let_bindings", HoistedLetBindings.All))
        return hoist(f, conditionals, lets)

    return func_pass("HoistExpression", run, HoistExpression.__doc__)


def HoistIfThenElse(variant: str | None = None) -> Pass:
    """The conditions of branches move out of loops; `variant="basic"`: never across the launch of threads, whatever the options
    `tir.HoistIfThenElse` say."""
    if variant not in (None, "basic"):
        raise CompileError.at("TW0533", f"HoistIfThenElse has the variants None and 'basic', not {variant!r}")

    def run(f: t.PrimFunc) -> t.PrimFunc:
        across = variant is None and bool(option("tir.HoistIfThenElse", "support_block_scope_hoisting", False))
        flags = HoistedConditionals.IfElseStmt | (HoistedConditionals.UsingBlockVar if across else 0)
        return hoist(f, flags, HoistedLetBindings.Never)

    return func_pass("HoistIfThenElse", run, HoistIfThenElse.__doc__)
