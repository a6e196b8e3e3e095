"""Small rewrites: assertions, assumptions, stores of undefined values, unsafe selects, parallel loops, device scopes."""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.ir import dtype as dt
from tilewright.ir.node import children, replace, walk
from tilewright.ir.passes import Pass, Sequential
from tilewright.ir.rewrite import Mutator
from tilewright.support.diagnostics import CompileError
from tilewright.tir import intrin
from tilewright.tir import ir as t
from tilewright.tir.transform.base import NOTHING, call_name, func_pass
from tilewright.tir.transform.remove_no_op import RemoveNoOp

__all__ = [
    "CombineContextCall", "ConvertForLoopsToSerial", "DecorateDeviceScope", "RemoveAssume", "RemoveStoreUndef", "RewriteUnsafeSelect",
    "SkipAssert",
]  # fmt: skip


def _rewritten(f: t.PrimFunc, run: Mutator) -> t.PrimFunc:
    body = run.visit(f.body)
    return f if body is f.body else f.with_body(body)


class _Statements(Mutator):
    """Rewrites statements only."""

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e


class _SkipAssert(_Statements):
    def visit_AssertStmt(self, s: t.AssertStmt) -> t.Stmt:
        return self.visit(s.body)


def SkipAssert() -> Pass:
    """Assertions are dropped; what they guard stays."""
    return func_pass("SkipAssert", lambda f: _rewritten(f, _SkipAssert()), SkipAssert.__doc__)


class _RemoveAssume(_Statements):
    def visit_Evaluate(self, s: t.Evaluate) -> t.Stmt:
        return NOTHING if call_name(s.value) == "tir.assume" else s


def RemoveAssume() -> Pass:
    """Assumptions are dropped, and what is empty without them."""
    drop = func_pass("RemoveAssumeInternal", lambda f: _rewritten(f, _RemoveAssume()), RemoveAssume.__doc__)
    return Sequential([drop, RemoveNoOp()], name="tir.RemoveAssume")


class _Serial(_Statements):
    def visit_For(self, s: t.For) -> t.Stmt:
        body = self.visit(s.body)
        if s.kind == t.ForKind.PARALLEL:
            return replace(s, kind=t.ForKind.SERIAL, body=body)
        return s if body is s.body else replace(s, body=body)


def ConvertForLoopsToSerial() -> Pass:
    """Parallel loops run serially."""
    return func_pass("ConvertForLoopsToSerial", lambda f: _rewritten(f, _Serial()), ConvertForLoopsToSerial.__doc__)


def DecorateDeviceScope() -> Pass:
    """The whole body is marked as running on a device."""

    def decorate(f: t.PrimFunc) -> t.PrimFunc:
        zero = IntImm("int32", 0)
        return f.with_body(t.AttrStmt(zero, "device_scope", zero, f.body))

    return func_pass("DecorateDeviceScope", decorate, DecorateDeviceScope.__doc__)


# ---- undefined values ----------------------------------------------------------------------------------------------------


class _StoreUndef(_Statements):
    def __init__(self) -> None:
        self.undefined: set[Var] = set()

    def has_undef(self, e: Any) -> bool:
        return any(call_name(x) == "tir.undef" or (isinstance(x, Var) and x in self.undefined) for x in walk(e))

    def visit_LetStmt(self, s: t.LetStmt) -> t.Stmt:
        if not self.has_undef(s.value):
            return self.generic(s)
        self.undefined.add(s.var)
        return self.visit(s.body)

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        if any(self.has_undef(i) for i in s.indices):
            raise CompileError.at("TW0534", f"an index of {s.buffer.name} is undefined", s.span)
        if not self.has_undef(s.value):
            return s
        if any(isinstance(x, ex.Call) and intrin.effect_of(x.op) == "opaque" for x in walk(s.value)):
            raise CompileError.at(
                "TW0534", f"an undefined value that calls something is stored to {s.buffer.name}", s.span
            )
        return NOTHING


def _remove_undef(f: t.PrimFunc) -> t.PrimFunc:
    run = _StoreUndef()
    out = _rewritten(f, run)
    left = next((x for x in walk(out.body) if call_name(x) == "tir.undef" or x in run.undefined), None)
    if left is not None:
        raise CompileError.at("TW0534", "an undefined value is used other than in a store", getattr(left, "span", None))
    return out


def RemoveStoreUndef() -> Pass:
    """Stores of `T.undef()` are dropped. Raises TW0534 where an undefined value is used in any other way."""
    drop = func_pass("RemoveStoreUndefInternal", _remove_undef, RemoveStoreUndef.__doc__)
    return Sequential([drop, RemoveNoOp()], name="tir.RemoveStoreUndef")


# ---- selects -------------------------------------------------------------------------------------------------------------


def _unsafe(e: Any) -> bool:
    """May evaluating `e` go wrong where its condition does not hold?"""
    if isinstance(e, ex.Select):
        return _unsafe(e.condition)
    if isinstance(e, t.BufferLoad):
        return True
    if isinstance(e, ex.Call):
        name = call_name(e)
        if name == "tir.if_then_else":
            return _unsafe(e.args[0])
        if name == "tir.address_of":
            return any(_unsafe(i) for i in e.args[0].indices) if isinstance(e.args[0], t.BufferLoad) else False
        if intrin.effect_of(e.op) != "pure":
            return True
        return any(_unsafe(a) for a in e.args if isinstance(a, PrimExpr))
    if isinstance(e, (ex.Div, ex.Mod, ex.FloorDiv, ex.FloorMod)) and not dt.is_float(e.dtype):
        return not isinstance(e.b, IntImm) or _unsafe(e.a)
    if not isinstance(e, PrimExpr) or e.identity:
        return False

    return any(_unsafe(c) for c in children(e))


class _UnsafeSelect(Mutator):
    def visit_Select(self, e: ex.Select) -> PrimExpr:
        new = self.generic(e)
        if dt.lanes(e.condition.dtype) == 1 and (_unsafe(e.true_value) or _unsafe(e.false_value)):
            return ex.call_intrin(new.dtype, "tir.if_then_else", new.condition, new.true_value, new.false_value)
        return new


def RewriteUnsafeSelect() -> Pass:
    """A select whose sides may fault (a load, a division) evaluates only the side that it chooses."""
    return func_pass("RewriteUnsafeSelect", lambda f: _rewritten(f, _UnsafeSelect()), RewriteUnsafeSelect.__doc__)


# ---- thread contexts -----------------------------------------------------------------------------------------------------


class _CombineContext(Mutator):
    """One variable for each context that calls ask for, bound at the head of each region that runs in threads of its own."""

    def __init__(self) -> None:
        self.found: list[tuple[Any, Var]] = []

    def visit_Call(self, e: ex.Call) -> PrimExpr:
        if call_name(e) != "tir.tvm_thread_context":
            return self.generic(e)
        from tilewright.arith.linear import expr_key

        key = expr_key(e.args[0])
        for value, var in self.found:
            if expr_key(value) == key:
                return var
        var = Var(f"ctx_cache_{len(self.found)}", e.dtype)
        self.found.append((e.args[0], var))
        return var

    def bound(self, body: t.Stmt) -> t.Stmt:
        """`body` with the contexts that it uses bound around it."""
        outer, self.found = self.found, []
        out = self.visit(body)
        for value, var in reversed(self.found):
            out = t.LetStmt(var, value, out)
        self.found = outer
        return out

    def visit_For(self, s: t.For) -> t.Stmt:
        if s.kind != t.ForKind.PARALLEL:
            return self.generic(s)
        body = self.bound(s.body)
        return s if body is s.body else replace(s, body=body)

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        if s.attr_key not in ("thread_extent", "coproc_uop_scope"):
            return self.generic(s)
        body = self.bound(s.body)
        return s if body is s.body else replace(s, body=body)


def CombineContextCall() -> Pass:
    """Calls that ask for one thread context ask once."""

    def combine(f: t.PrimFunc) -> t.PrimFunc:
        body = _CombineContext().bound(f.body)
        return f if body is f.body else f.with_body(body)

    return func_pass("CombineContextCall", combine, CombineContextCall.__doc__)
