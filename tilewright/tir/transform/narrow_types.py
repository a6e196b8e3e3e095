"""Index arithmetic in narrower integers, where every value is known to fit.

NarrowDataType(bits): loops, block iterators, lets and the indices made of them become integers of `bits`, each variable only where all
that is computed from it as an index fits. ForceNarrowIndexToInt32: all of them become int32, symbolic sizes too.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var, cast
from tilewright.ir import dtype as dt
from tilewright.ir.node import children, map_children, replace
from tilewright.ir.passes import Pass
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.transform.base import BufferMutator, func_pass

__all__ = ["ForceNarrowIndexToInt32", "NarrowDataType", "force_narrow_index", "narrow_data_type"]


def narrow_data_type(f: t.PrimFunc, target_bits: int) -> t.PrimFunc:
    """The function with index variables of `target_bits` where that is safe."""
    find = _Fits(f, target_bits)
    find.visit(f.body)
    chosen = {v: f"int{target_bits}" for v in find.variables if v not in find.wide and dt.bits(v.dtype) != target_bits}
    if not chosen:
        return f
    return f.with_body(_Retype(chosen, f"int{target_bits}").visit(f.body))


class _Fits:
    """Finds the variables of loops and lets, and which of them take part in something that does not fit."""

    def __init__(self, f: t.PrimFunc, bits: int) -> None:
        self.limit = 1 << (bits - 1)
        self.bits = bits
        self.ana = Analyzer()
        self.variables: list[Var] = []
        self.wide: set[Var] = set()
        for b in f.buffer_map.values():
            for n in b.shape:
                if isinstance(n, Var):
                    self.ana.mark_global_non_neg_value(n)

    def define(self, v: Var, *sources: Any) -> None:
        if not dt.is_int(v.dtype) or dt.lanes(v.dtype) != 1 or dt.is_bool(v.dtype):
            return
        self.variables.append(v)
        for e in sources:
            self.fit(e, v)

    def fit(self, e: Any, *also: Var) -> None:
        """Does every integer in the expression fit? If not, its variables (and `also`) stay wide."""
        names: list[Var] = []
        safe = True
        todo = [e]
        while todo:
            x = todo.pop()
            if isinstance(x, (t.BufferLoad, ex.Call)):
                continue
            if isinstance(x, Var):
                names.append(x)
            if isinstance(x, PrimExpr) and dt.is_int(x.dtype) and dt.lanes(x.dtype) == 1 and not dt.is_bool(x.dtype):
                safe = safe and self.fits(x)
            if not x.identity:
                todo.extend(children(x))
        if not safe:
            self.wide.update(names)
            self.wide.update(also)

    def fits(self, e: PrimExpr) -> bool:
        bound = self.ana.const_int_bound(e)
        if -self.limit <= bound.min_value and bound.max_value < self.limit:
            return True
        # What is symbolic is as wide as it is declared: nothing is lost by keeping that width.
        return dt.bits(e.dtype) <= self.bits

    def visit(self, n: Any) -> None:
        if isinstance(n, t.For):
            self.ana.bind(n.loop_var, t.Range(n.min, n.extent))
            self.define(n.loop_var, n.min, n.extent)
        elif (
            isinstance(n, t.AttrStmt)
            and isinstance(n.node, t.IterVar)
            and n.attr_key in ("thread_extent", "virtual_thread")
        ):
            v = n.node.var
            self.ana.bind(v, t.Range(IntImm(v.dtype, 0), cast(n.value, v.dtype)))
            self.define(v, n.value)
        elif isinstance(n, t.BlockRealize):
            for iv, value in zip(n.block.iter_vars, n.iter_values, strict=True):
                if iv.dom is not None:
                    self.ana.bind(iv.var, iv.dom)
                    self.define(iv.var, iv.dom.min, iv.dom.extent, value)
        elif isinstance(n, (t.BufferLoad, t.BufferStore)):
            for i in n.indices:
                self.index(i)
        elif isinstance(n, ex.CmpOp) and dt.is_int(n.a.dtype) and not dt.is_bool(n.a.dtype):
            self.fit(n.a)
            self.fit(n.b)
        if not n.identity:
            for c in children(n):
                self.visit(c)

    def index(self, i: PrimExpr) -> None:
        if isinstance(i, ex.Ramp):
            self.fit(i.base + i.stride * (i.lanes - 1))
        elif isinstance(i, ex.Broadcast):
            self.fit(i.value)
        elif dt.lanes(i.dtype) == 1:
            self.fit(i)


class _Retype(BufferMutator):
    """Puts variables of other widths; operations take the width of their variables, constants follow."""

    def __init__(self, chosen: dict[Var, str], narrow: str) -> None:
        super().__init__()
        self.chosen, self.narrow = chosen, narrow
        self.names: dict[Var, Var] = {}

    def var(self, v: Var) -> Var:
        new = self.chosen.get(v)
        if new is None:
            return v
        found = self.names.get(v)
        if found is None:
            found = self.names[v] = replace(v, dtype=new)
        return found

    def visit_Var(self, v: Var) -> PrimExpr:
        return self.var(v)

    def visit_BinaryOp(self, e: ex.BinaryOp) -> PrimExpr:
        return self.pair(e)

    def visit_CmpOp(self, e: ex.CmpOp) -> PrimExpr:
        return self.pair(e)

    def pair(self, e: Any) -> PrimExpr:
        a, b = self.visit(e.a), self.visit(e.b)
        if a is e.a and b is e.b:
            return e
        a, b = _match(a, b)
        return type(e)(a, b)

    def visit_Select(self, e: ex.Select) -> PrimExpr:
        c, a, b = self.visit(e.condition), self.visit(e.true_value), self.visit(e.false_value)
        if c is e.condition and a is e.true_value and b is e.false_value:
            return e
        return ex.Select(c, *_match(a, b))

    def visit_Call(self, e: ex.Call) -> PrimExpr:
        new = map_children(e, self.visit)
        if new is e:
            return e
        name = getattr(e.op, "name", "")
        if name == "tir.if_then_else":
            a, b = _match(new.args[1], new.args[2])
            return ex.Call(a.dtype, e.op, (new.args[0], a, b))
        if name == "tir.likely":
            return new
        back = tuple(
            cast(n, o.dtype) if isinstance(o, PrimExpr) and isinstance(n, PrimExpr) and n.dtype != o.dtype else n
            for n, o in zip(new.args, e.args, strict=True)
        )
        return replace(new, args=back)

    def visit_Cast(self, e: ex.Cast) -> PrimExpr:
        value = self.visit(e.value)
        if value is e.value:
            return e
        return value if value.dtype == e.dtype else ex.Cast(e.dtype, value)

    def visit_Ramp(self, e: ex.Ramp) -> PrimExpr:
        base, stride = self.visit(e.base), self.visit(e.stride)
        if base is e.base and stride is e.stride:
            return e
        return ex.Ramp(base, cast(stride, base.dtype), e.lanes)

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        value = self.visit(s.value)
        if value.dtype != s.value.dtype:
            value = cast(value, s.value.dtype)
        indices = tuple(self.visit(i) for i in s.indices)
        same = value is s.value and all(a is b for a, b in zip(indices, s.indices, strict=True))
        return s if same else t.BufferStore(self.buffer(s.buffer), value, indices)

    def visit_LetStmt(self, s: t.LetStmt) -> t.Stmt:
        value = self.visit(s.value)
        if s.var in self.chosen or value.dtype != s.var.dtype:
            value = cast(value, self.var(s.var).dtype)
        body = self.visit(s.body)
        return s if value is s.value and body is s.body else t.LetStmt(self.var(s.var), value, body)

    def visit_For(self, s: t.For) -> t.Stmt:
        v = self.var(s.loop_var)
        low, extent = cast(self.visit(s.min), v.dtype), cast(self.visit(s.extent), v.dtype)
        body = self.visit(s.body)
        if v is s.loop_var and low is s.min and extent is s.extent and body is s.body:
            return s
        return replace(s, loop_var=v, min=low, extent=extent, body=body)

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        node, value = s.node, self.visit(s.value)
        if isinstance(node, t.IterVar):
            node = self.axis(node)
            value = cast(value, node.var.dtype)
        elif isinstance(node, Var):
            node = self.var(node)
        body = self.visit(s.body)
        return (
            s if node is s.node and value is s.value and body is s.body else t.AttrStmt(node, s.attr_key, value, body)
        )

    def axis(self, iv: t.IterVar) -> t.IterVar:
        v = self.var(iv.var)
        if v is iv.var:
            return iv
        dom = iv.dom
        if dom is not None:
            dom = t.Range(cast(self.visit(dom.min), v.dtype), cast(self.visit(dom.extent), v.dtype))
        return t.IterVar(dom, v, iv.iter_type, iv.thread_tag)

    def visit_BlockRealize(self, s: t.BlockRealize) -> t.Stmt:
        iters = tuple(self.axis(iv) for iv in s.block.iter_vars)
        values = tuple(cast(self.visit(e), iv.var.dtype) for e, iv in zip(s.iter_values, iters, strict=True))
        block = self.generic(replace(s.block, iter_vars=()))
        return t.BlockRealize(values, self.visit(s.predicate), replace(block, iter_vars=iters))

    def visit_Range(self, r: t.Range) -> t.Range:
        low, extent = self.visit(r.min), self.visit(r.extent)
        if low is r.min and extent is r.extent:
            return r
        return t.Range(*_match(low, extent))


def _match(a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Two sides of one dtype: constants follow the other side, else the narrower is widened."""
    if a.dtype == b.dtype or dt.is_float(a.dtype) or dt.is_float(b.dtype):
        return a, b
    if isinstance(b, IntImm):
        return a, _const_as(b, a.dtype)
    if isinstance(a, IntImm):
        return _const_as(a, b.dtype), b
    return (cast(a, b.dtype), b) if dt.bits(a.dtype) < dt.bits(b.dtype) else (a, cast(b, a.dtype))


def _const_as(c: IntImm, dtype: str) -> PrimExpr:
    limit = 1 << (dt.bits(dtype) - 1)
    return IntImm(dtype, c.value) if -limit <= c.value < limit else c


def NarrowDataType(target_bits: int) -> Pass:
    """Index variables become integers of `target_bits` where all that is computed from them fits."""
    return func_pass("NarrowDataType", lambda f: narrow_data_type(f, int(target_bits)), NarrowDataType.__doc__)


# ---- by force --------------------------------------------------------------------------------------------------------------


class _Force(_Retype):
    """All int64 index variables and sizes as int32."""

    def var(self, v: Var) -> Var:
        if v.dtype != "int64":
            return v
        found = self.names.get(v)
        if found is None:
            found = self.names[v] = replace(v, dtype="int32")
        return found

    def visit_IntImm(self, e: IntImm) -> PrimExpr:
        if e.dtype != "int64":
            return e
        if not -(1 << 31) <= e.value < 1 << 31:
            raise CompileError.at("TW0533", f"the index {e.value} does not fit into int32")
        return IntImm("int32", e.value)

    def buffer(self, b: t.Buffer) -> t.Buffer:
        found = self.remap.get(b)
        if found is None:
            found = self.remap[b] = map_children(
                b, lambda n: n if isinstance(n, Var) and n.dtype == "handle" else self.visit(n)
            )
        return found

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        value = _Values(self).visit(s.value)
        return t.BufferStore(self.buffer(s.buffer), value, tuple(self.visit(i) for i in s.indices))


class _Values(BufferMutator):
    """Data keeps its dtype; only the indices inside it are narrowed."""

    def __init__(self, run: _Force) -> None:
        super().__init__()
        self.run = run

    def visit_Var(self, v: Var) -> PrimExpr:
        new = self.run.var(v)
        return v if new is v else cast(new, v.dtype)

    def visit_BufferLoad(self, e: t.BufferLoad) -> PrimExpr:
        return t.BufferLoad(self.run.buffer(e.buffer), tuple(self.run.visit(i) for i in e.indices))


def force_narrow_index(f: t.PrimFunc) -> t.PrimFunc:
    """The function with int32 indices and sizes. Raises TW0533 where a parameter's memory holds int64, or a size does not fit."""
    for b in f.buffer_map.values():
        if b.dtype == "int64":
            raise CompileError.at("TW0533", f"the buffer {b.name} holds int64: its values cannot be made int32")
    run = _Force({}, "int32")
    buffers = {p: run.buffer(b) for p, b in f.buffer_map.items()}
    params = tuple(run.var(p) for p in f.params)
    return replace(f, params=params, buffer_map={run.var(p): b for p, b in buffers.items()}, body=run.visit(f.body))


def ForceNarrowIndexToInt32() -> Pass:
    """Indices and sizes of int64 become int32."""
    return func_pass("ForceNarrowIndexToInt32", force_narrow_index, ForceNarrowIndexToInt32.__doc__)
