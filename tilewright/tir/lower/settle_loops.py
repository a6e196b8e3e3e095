"""The last pass on loops: unrolls, simplifies, and computes each part of an address in the loop where it varies.

Addresses are polynomials (`index.py`). Their terms are summed from the outermost loop in; each partial sum is bound to a
variable at the loop where it is complete, and shared by all addresses that begin alike; the constant comes last:

    for i in range(n):                            for i in range(n):
        for j in range(m):                            p = i*m*4
            for u in T.unroll(2):            ▶        for j in range(m):
                B[(i*m + j)*4 + u] = ...                  q = p + j*4
                                                          B[q] = ...
                                                          B[q + 1] = ...

so that the code generator sees a base register and a displacement, whatever optimisations run later. Further: loop
variables become int64; loops of one iteration and branches with a known condition disappear; a load that several of the
statements of a straight line share is made once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    And,
    Call,
    CmpOp,
    FloorMod,
    IntImm,
    Let,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Var,
    add,
    cast,
    const,
    logical_and,
    logical_not,
    logical_or,
    mul,
    sub,
)
from tilewright.ir import dtype as dt
from tilewright.ir.node import map_children, replace, walk
from tilewright.ir.op import Op
from tilewright.tir.ir import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
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
    While,
    seq,
)
from tilewright.tir.lower.index import _POLY, IndexSpace, Poly  # pyright: ignore[reportPrivateUsage]
from tilewright.tir.lower.share_loads import share_loads

__all__ = ["decide", "settle_loops"]

INDEX = "int64"
_NEVER = 1 << 30
"""The depth of what must be computed where it is used."""


def settle_loops(f: PrimFunc) -> PrimFunc:
    """The function unrolled, simplified, and with its addresses computed step by step; see the head of the module."""
    return f.with_body(_Settle(f).run(f.body))


class _Scope:
    """A place where statements and variables are put in order: a loop's body, a branch."""

    __slots__ = ("bound", "items")

    def __init__(self) -> None:
        self.items: list[Stmt | tuple[Var, PrimExpr]] = []
        self.bound: dict[Any, Var] = {}


class _Settle:
    def __init__(self, f: PrimFunc) -> None:
        self.space = IndexSpace()
        self.space.dtype = INDEX
        self.space.rewrite = self.children
        self.scopes: list[_Scope] = []
        self.depths: dict[Var, int] = {}
        self.atom_depths: dict[int, int] = {}
        self.renamed: dict[Var, Var] = {}
        """Let variables, made anew so that each is bound once however often its statement is copied."""
        self.guard = 0
        """The depth of the innermost branch: loads may not be moved above it."""
        self.inside = 0
        """How many conditional expressions surround the one at hand."""
        self.written: set[Var] = set()
        for s in walk(f.body):
            if isinstance(s, BufferStore):
                self.written.add(s.buffer.data)
            elif isinstance(s, (Call,)) and not _pure_enough(s):
                self.written.update(b.data for x in s.args if isinstance(x, BufferLoad) for b in (x.buffer,))
                self.written.update(x for x in s.args if isinstance(x, Var) and x.dtype == "handle")

    def run(self, body: Stmt) -> Stmt:
        return self.scope(lambda: self.stmt(body))

    # ---- scopes --------------------------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    def scope(self, fill: Callable[[], None], guard: bool = False) -> Stmt:
        """The statements that `fill` puts into a new scope, as one."""
        here = _Scope()
        self.scopes.append(here)
        outer = self.guard, self.inside
        if guard:
            self.guard = self.depth
        self.inside = 0
        fill()
        self.guard, self.inside = outer
        self.scopes.pop()
        return _assemble(here.items)

    def put(self, s: Stmt) -> None:
        self.scopes[-1].items.append(s)

    def bind(self, depth: int, key: Any, value: PrimExpr) -> PrimExpr:
        """A variable of the scope at `depth` that holds `value`."""
        if isinstance(value, (Var, IntImm)):
            return value
        scope = self.scopes[depth]
        found = scope.bound.get(key)
        if found is None:
            found = scope.bound[key] = Var("p", INDEX)
            self.depths[found] = depth
            scope.items.append((found, value))
        return found

    # ---- addresses -----------------------------------------------------------------------------------------------------

    def atom_depth(self, a: int) -> int:
        """The scope below which the atom may be computed."""
        e = self.space.atoms[a]
        if isinstance(e, Var):
            return self.depths.get(e, 0)
        known = self.atom_depths.get(a)
        if known is not None:
            return known
        depth, fixed = 0, True
        for x in walk(e):
            if isinstance(x, Var):
                depth = max(depth, self.depths.get(x, 0))
            elif isinstance(x, BufferLoad):
                fixed = False
                if x.buffer.data in self.written or self.inside:
                    return _NEVER
                depth = max(depth, self.guard, self.depths.get(x.buffer.data, 0))
            elif isinstance(x, Let) or (isinstance(x, Call) and not _pure_enough(x)):
                return _NEVER
        if fixed:
            self.atom_depths[a] = depth
        return depth

    def address(self, p: Poly) -> PrimExpr:
        """The value of a polynomial, its parts bound in the scopes where they vary."""
        by_depth: dict[int, list[tuple[int, ...]]] = {}
        for mono in p:
            if mono:
                by_depth.setdefault(max(self.atom_depth(a) for a in mono), []).append(mono)
        out: PrimExpr | None = None
        key: Any = None
        for depth in sorted(by_depth):
            group = sorted(by_depth[depth])
            key = (id(out) if out is not None else 0, tuple((m, p[m]) for m in group))
            if depth < _NEVER:
                found = self.scopes[depth].bound.get(key)
                if found is not None:
                    out = found
                    continue
            for mono in group:
                c = p[mono]
                term = mul(self.space.monomial(mono, INDEX), const(abs(c), INDEX))
                if out is None:
                    out = term if c > 0 else sub(const(0, INDEX), term)
                else:
                    out = add(out, term) if c > 0 else sub(out, term)
            assert out is not None
            if depth < _NEVER:
                out = self.bind(depth, key, out)
        c = p.get((), 0)
        if out is None:
            return const(c, INDEX)
        return add(out, const(c, INDEX)) if c >= 0 else sub(out, const(-c, INDEX))

    def index(self, e: PrimExpr) -> PrimExpr:
        if isinstance(e, Ramp):
            return Ramp(self.index(e.base), self.index(e.stride), e.lanes)
        if dt.lanes(e.dtype) != 1:
            return self.value(e)
        return self.address(self.space.recombine(self.space.poly(e)))

    # ---- expressions ---------------------------------------------------------------------------------------------------

    def children(self, e: PrimExpr) -> PrimExpr:
        return map_children(e, self.value) if type(e) in _POLY else self.generic(e)

    def value(self, e: Any) -> Any:
        """An expression whose value (not address) is wanted."""
        if isinstance(e, Var):
            stands = self.space.values.get(e)
            if stands is None:
                return self.renamed.get(e, e)
            found = self.address(stands)
            return cast(found, e.dtype)
        if not isinstance(e, PrimExpr) or e.identity or not e.node_fields:
            return e
        if type(e) in _POLY and e.dtype in ("int32", "int64") and not any(isinstance(x, BufferLoad) for x in walk(e)):
            return self.space.expr(self.space.poly(e), e.dtype)
        return self.generic(e)

    def generic(self, e: PrimExpr) -> PrimExpr:
        if isinstance(e, BufferLoad):
            index = self.index(e.indices[0])
            return e if index is e.indices[0] else BufferLoad(e.buffer, (index,))
        if isinstance(e, (CmpOp, Not)):
            return self.condition(e)
        if isinstance(e, Ramp):
            return Ramp(self.value(e.base), self.value(e.stride), e.lanes)
        if isinstance(e, Select):
            c = self.condition(e.condition)
            if isinstance(c, IntImm):
                return self.value(e.true_value if c.value else e.false_value)
            return Select(c, self.value(e.true_value), self.value(e.false_value))
        if isinstance(e, Call) and isinstance(e.op, Op) and e.op.name == "tir.if_then_else":
            return self.branch(e)
        if isinstance(e, Let):
            return self.let(e)
        return map_children(e, self.value)

    def let(self, e: Let) -> PrimExpr:
        value = self.value(e.value)
        if self.inside == 0:
            self.rename(e.var, value)
            return self.value(e.body)
        self.depths[e.var] = _NEVER
        return Let(e.var, value, self.value(e.body))

    def rename(self, old: Var, value: PrimExpr) -> None:
        """Bind `value` here to a new variable that stands for `old` from now on."""
        var = Var(old.name, value.dtype, old.type_annotation)
        self.depths[var] = self.depth
        self.scopes[-1].items.append((var, value))
        if dt.is_int(var.dtype) and dt.lanes(var.dtype) == 1:
            self.space.values[old] = {(self.space.atom(var),): 1}
        else:
            self.renamed[old] = var

    def branch(self, e: Call) -> PrimExpr:
        c = self.condition(e.args[0])
        if isinstance(c, IntImm):
            return self.value(e.args[1] if c.value else e.args[2])
        self.inside += 1
        a, b = self.value(e.args[1]), self.value(e.args[2])
        self.inside -= 1
        return Call(e.dtype, e.op, (c, a, b))

    def condition(self, e: PrimExpr) -> PrimExpr:
        """A truth value, folded where the ranges decide it."""
        if isinstance(e, (And, Or)):
            a, b = self.condition(e.a), self.condition(e.b)
            if dt.lanes(e.dtype) != 1:
                return type(e)(a, b)
            return logical_and(a, b) if isinstance(e, And) else logical_or(a, b)
        if isinstance(e, Not):
            a = self.condition(e.a)
            return logical_not(a) if dt.lanes(a.dtype) == 1 else Not(a)
        if not isinstance(e, CmpOp):
            return self.value(e)
        if not dt.is_int(e.a.dtype) or dt.lanes(e.a.dtype) != 1 or dt.bits(e.a.dtype) < 32 or dt.is_uint(e.a.dtype):
            return type(e)(self.value(e.a), self.value(e.b))
        p, q = self.space.poly(e.a), self.space.poly(e.b)
        known = decide(type(e), *self.space.bounds(self.space.sum(p, q, -1)))
        if known is not None:
            return IntImm("bool", int(known))
        return type(e)(self.address(p), self.address(q))

    # ---- statements ----------------------------------------------------------------------------------------------------

    def stmt(self, s: Stmt) -> None:
        _STMT[type(s)](self, s)

    def on_seq(self, s: SeqStmt) -> None:
        for x in s.seq:
            self.stmt(x)

    def on_store(self, s: BufferStore) -> None:
        value = self.value(s.value)
        self.put(BufferStore(s.buffer, value, (self.index(s.indices[0]),)))

    def on_evaluate(self, s: Evaluate) -> None:
        if not isinstance(s.value, IntImm):
            self.put(Evaluate(self.value(s.value)))

    def on_let(self, s: LetStmt) -> None:
        plain = s.var.dtype in ("int32", "int64") and not any(isinstance(x, (BufferLoad, Call)) for x in walk(s.value))
        if plain:
            self.let_index(s.var, self.space.poly(s.value), s.value)
        else:
            self.rename(s.var, self.value(s.value))
        self.stmt(s.body)

    def let_index(self, old: Var, p: Poly, value: PrimExpr) -> None:
        """Bind an index: what is simple takes part in the arithmetic, what is not becomes a variable with known bounds."""
        simple = len(p) <= 2 and all(isinstance(self.space.atoms[a], Var) for mono in p for a in mono)
        if simple:
            self.space.values[old] = p
            return
        low, high = self.space.bounds(p)
        found = self.address(p)
        if not isinstance(found, Var):
            var = Var(old.name, INDEX)
            self.depths[var] = self.depth
            self.scopes[-1].items.append((var, found))
            found = var
        self.space.ranges[found] = (low, high)
        if isinstance(value, FloorMod) and low == 0:
            self.space.extents[found] = self.space.poly(value.b)
        self.space.values[old] = {(self.space.atom(found),): 1}

    def on_for(self, s: For) -> None:
        start, extent = self.space.poly(s.min), self.space.poly(s.extent)
        n = self.space.value(extent)
        if n is not None and n <= 0:
            return
        if s.kind == ForKind.THREAD_BINDING:
            self.keep_loop(s, start, extent)
        elif n == 1:
            self.space.values[s.loop_var] = start
            self.stmt(s.body)
        elif s.kind == ForKind.UNROLLED and n is not None:
            for i in range(n):
                self.space.values[s.loop_var] = self.space.sum(start, {(): i}) if i else start
                self.stmt(s.body)
        else:
            self.keep_loop(s, start, extent)
        self.space.values.pop(s.loop_var, None)

    def keep_loop(self, s: For, start: Poly, extent: Poly) -> None:
        low, size = self.address(start), self.address(extent)
        var = Var(s.loop_var.name, INDEX)
        lo = self.space.bounds(start)[0]
        self.space.ranges[var] = (lo, self.space.bounds(self.space.sum(self.space.sum(start, extent), {(): -1}))[1])
        if not start:
            self.space.extents[var] = extent
        self.depths[var] = self.depth + 1
        self.space.values[s.loop_var] = {(self.space.atom(var),): 1}
        body = self.scope(lambda: self.stmt(s.body), guard=True)
        if isinstance(body, SeqStmt) and not body.seq:
            return
        kind = ForKind.SERIAL if s.kind in (ForKind.UNROLLED, ForKind.VECTORIZED) else s.kind
        self.put(For(var, low, size, kind, body, s.thread_binding, s.annotations))

    def on_if(self, s: IfThenElse) -> None:
        c = self.condition(s.condition)
        if isinstance(c, IntImm):
            if c.value:
                self.stmt(s.then_case)
            elif s.else_case is not None:
                self.stmt(s.else_case)
            return
        then = self.scope(lambda: self.stmt(s.then_case), guard=True)
        other = s.else_case
        self.put(IfThenElse(c, then, None if other is None else self.scope(lambda: self.stmt(other), guard=True)))

    def on_while(self, s: While) -> None:
        condition = s.condition

        def whole() -> None:
            self.inside += 1  # the condition is evaluated again and again: nothing of it may move out
            c = self.value(condition)
            self.inside -= 1
            self.put(While(c, self.scope(lambda: self.stmt(s.body), guard=True)))

        self.put(self.scope(whole, guard=True))

    def on_allocate(self, s: Allocate) -> None:
        self.depths[s.buffer_var] = self.depth + 1
        extents = tuple(self.index(n) for n in s.extents)
        body = self.scope(lambda: self.stmt(s.body))
        self.put(Allocate(s.buffer_var, s.dtype, extents, s.condition, body, s.annotations))

    def on_wrapper(self, s: Any) -> None:
        body = self.scope(lambda: self.stmt(s.body))
        changes = {"value": self.value(s.value)} if isinstance(s, AttrStmt) else {}
        self.put(replace(s, body=body, **changes))

    def on_assert(self, s: AssertStmt) -> None:
        c = self.condition(s.condition)
        self.put(AssertStmt(c, s.message, self.scope(lambda: self.stmt(s.body), guard=True)))


_STMT: dict[type, Callable[[_Settle, Any], None]] = {
    SeqStmt: _Settle.on_seq,
    BufferStore: _Settle.on_store,
    Evaluate: _Settle.on_evaluate,
    LetStmt: _Settle.on_let,
    For: _Settle.on_for,
    IfThenElse: _Settle.on_if,
    While: _Settle.on_while,
    Allocate: _Settle.on_allocate,
    AllocateConst: _Settle.on_wrapper,
    AttrStmt: _Settle.on_wrapper,
    AssertStmt: _Settle.on_assert,
}


def _assemble(items: list[Stmt | tuple[Var, PrimExpr]]) -> Stmt:
    """The items as one statement: what follows a binding is its body."""
    out: list[Stmt] = []
    run: list[Stmt] = []
    for item in reversed(items):
        if isinstance(item, tuple):
            out = [LetStmt(item[0], item[1], seq(*reversed(_flush(run, out))))]
            run = []
        else:
            run.append(item)
    return seq(*reversed(_flush(run, out)))


def _flush(run: list[Stmt], after: list[Stmt]) -> list[Stmt]:
    """Statements in reverse order: `after`, then the run before it (given in reverse), with its loads shared."""
    return [*after, *reversed(share_loads(list(reversed(run))))] if run else after


def decide(kind: type, lo: int | None, hi: int | None) -> bool | None:
    """Whether `x kind 0` for every x in [lo, hi]; None where it varies."""
    if kind is LT:
        return True if hi is not None and hi < 0 else False if lo is not None and lo >= 0 else None
    if kind is LE:
        return True if hi is not None and hi <= 0 else False if lo is not None and lo > 0 else None
    if kind is GT:
        return True if lo is not None and lo > 0 else False if hi is not None and hi <= 0 else None
    if kind is GE:
        return True if lo is not None and lo >= 0 else False if hi is not None and hi < 0 else None
    if kind in (EQ, NE):
        if lo is not None and hi is not None and lo == hi == 0:
            return kind is EQ
        if (lo is not None and lo > 0) or (hi is not None and hi < 0):
            return kind is NE
    return None


def _pure_enough(e: Call) -> bool:
    from tilewright.tir import intrin

    return intrin.effect_of(e.op) != "opaque"
