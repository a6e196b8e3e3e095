"""`tvm_thread_allreduce` becomes shuffles within warps, or a tree of steps in shared memory.

Where a target's warps can exchange registers (CUDA, ROCm, Metal) and the threads to reduce are neighbours, each warp reduces by
`tvm_warp_shuffle_down`; several warps meet in shared memory and one of them reduces what they left. Elsewhere all values
go to shared memory, and half of the threads add the other half's until one is left. The result, which every thread then
reads, takes the place of the buffer that the call names.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import Call, IntImm, PrimExpr, Select, Var, add, const, floordiv, floormod, mul
from tilewright.ir import dtype as dt
from tilewright.ir.node import replace
from tilewright.ir.op import Op
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator, substitute
from tilewright.ir.target import Target
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import (
    TRUE,
    Bind,
    DeviceError,
    allocate,
    func_pass,
    launch,
    limits_of,
    local_buffer,
    target_of,
)
from tilewright.tir.transform.gpu.thread_sync import barrier, scope_of

__all__ = ["LowerThreadAllreduce", "lower_thread_allreduce"]

ZERO = IntImm("int32", 0)


def lower_thread_allreduce(f: t.PrimFunc) -> t.PrimFunc:
    """The function with its reductions over threads as shuffles or steps in shared memory. Raises TW0566, TW0561."""
    target = target_of(f)
    run = _Lower(target, str(f.attrs.get("global_symbol", "")))
    body = run.visit(f.body)
    return f if body is f.body else replace(f, body=body)


def LowerThreadAllreduce() -> Pass:
    """Lower `tvm_thread_allreduce` for the function's target; see `lower_thread_allreduce`."""
    return func_pass("LowerThreadAllreduce", lower_thread_allreduce)


class _Group(NamedTuple):
    """The threads of one reduction: index and number among those that reduce together, and among such groups."""

    reduce_index: PrimExpr
    reduce_extent: int
    group_index: PrimExpr
    group_extent: int
    contiguous: int


def _load(b: t.Buffer, index: PrimExpr = ZERO) -> t.BufferLoad:
    return t.BufferLoad(b, (index,))


def _store(b: t.Buffer, value: PrimExpr, index: PrimExpr = ZERO) -> t.Stmt:
    return t.BufferStore(b, value, (index,))


class _Lower(Mutator):
    def __init__(self, target: Target | None, name: str) -> None:
        self.target, self.name = target, name
        limits = limits_of(target)
        self.warp, self.max_threads = limits.warp, limits.threads
        self.ana = Analyzer()
        self.threads: list[Bind] = []
        self.reducers: list[t.CommReducer] = []
        self.loads: dict[Var, t.BufferLoad] = {}
        """What to read instead of the memory that a call named."""
        self.results: dict[Var, t.Buffer] = {}
        self.declared: dict[t.Buffer, t.Buffer] = {}

    # ---- the walk

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        axis = launch(s)
        if axis is not None and s.attr_key == "thread_extent":
            self.threads.append(axis)
            new = self.generic(s)
            self.threads.pop()
            return new
        if s.attr_key == "reduce_scope" and isinstance(s.node, t.CommReducer):
            self.reducers.append(s.node)
            body = self.visit(s.body)
            self.reducers.pop()
            return s if body is s.body else replace(s, body=body)
        return self.generic(s)

    def visit_Evaluate(self, s: t.Evaluate) -> t.Stmt:
        e = s.value
        if isinstance(e, Call) and isinstance(e.op, Op) and e.op.name == "tir.tvm_thread_allreduce":
            return self.reduce(e)
        return self.generic(s)

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        body = self.visit(s.body)
        result = self.results.get(s.buffer_var)
        if result is None:
            return s if body is s.body else replace(s, body=body)
        if scope_of(result.data).startswith("shared"):
            body = t.AttrStmt(result.data, "volatile_scope", IntImm("int32", 1), body)
        return t.Allocate(result.data, result.dtype, result.shape, TRUE, body, s.annotations)

    def visit_DeclBuffer(self, s: t.DeclBuffer) -> t.Stmt:
        body = self.visit(s.body)
        result = self.results.get(s.buffer.data)
        if result is not None:
            return t.DeclBuffer(result, body)
        return s if body is s.body else replace(s, body=body)

    def visit_BufferLoad(self, e: t.BufferLoad) -> PrimExpr:
        found = self.loads.get(e.buffer.data)
        return found if found is not None else self.generic(e)

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        new = self.generic(s)
        found = self.loads.get(s.buffer.data)
        return new if found is None else t.BufferStore(found.buffer, new.value, found.indices)

    # ---- one reduction

    def reduce(self, e: Call) -> t.Stmt:
        combiner = self.reducers[-1]
        head = e.args[0]
        size = head.value if isinstance(head, IntImm) else 0
        values: list[Any] = [self.visit(x) for x in e.args[1 : 1 + size]]
        condition = self.visit(e.args[1 + size])
        if not (isinstance(condition, IntImm) and condition.value):
            values = [Select(condition, v, i) for v, i in zip(values, combiner.identity_element, strict=True)]
        outs: list[t.Buffer] = [x.buffer for x in e.args[2 + size : 2 + 2 * size] if isinstance(x, t.BufferLoad)]
        group = self.group(set(e.args[2 + 2 * size :]))
        if group.reduce_extent == 1:
            stores = [_store(b, v) for b, v in zip(outs, values, strict=True)]
            return t.seq(*stores)
        dtypes = [v.dtype for v in values]
        run = _Steps(self, combiner, dtypes, group)
        if self.by_warp(dtypes, group):
            results = run.warp(values) if group.reduce_extent <= self.warp else run.warps(values)
        else:
            results = run.tree(values)
        for b, r in zip(outs, results, strict=True):
            self.loads[b.data], self.results[b.data] = r, r.buffer
        body = t.seq(*run.stmts)
        for b in run.allocated:
            body = allocate(b, body)
        return body

    def group(self, over: set[Any]) -> _Group:
        """The thread axes of a reduction over the variables `over`."""
        axes = sorted({a.tag: a for a in self.threads if a.tag.startswith("threadIdx.")}.values(), key=lambda a: a.tag)
        seen: dict[str, list[Bind]] = {"in": [], "out": []}
        used = 0
        for a in axes:
            if not isinstance(a.extent, IntImm):
                raise DeviceError.at(
                    "TW0566",
                    f"a reduction over threads needs constant numbers of threads, but {a.tag} has {a.extent}",
                    hint="split the loop with a constant factor and bind the inner loop",
                )
            inside = any(v is a.var for v in over)
            used += inside
            seen["in" if inside else "out"].append(a)
        if used != len(over):
            raise DeviceError.at("TW0566", f"function {self.name!r} reduces over a variable that is no thread index")
        contiguous = 1
        for a in axes:
            if a not in seen["in"]:
                break
            contiguous *= a.extent.value  # pyright: ignore[reportAttributeAccessIssue]
        (ri, rn), (gi, gn) = _flat(seen["in"]), _flat(seen["out"])
        return _Group(ri, rn, gi, gn, contiguous)

    def by_warp(self, dtypes: list[str], g: _Group) -> bool:
        """Can the threads exchange the values in registers?"""
        kind = self.target.kind.name if self.target is not None else ""
        if kind not in ("cuda", "rocm", "metal") or self.warp <= 1:
            return False
        for d in dtypes:
            size = dt.bits(d) // 8
            if dt.lanes(d) > 1 or (d != "float16" and not 4 <= size <= 8):
                return False
            if kind == "rocm" and size != 4:
                return False
        if g.contiguous != g.reduce_extent:
            return False
        if kind == "rocm":
            return g.reduce_extent == self.warp
        within = self.warp % g.reduce_extent == 0
        several = self.max_threads <= self.warp * self.warp and g.reduce_extent % self.warp == 0
        return within or several or (g.group_extent == 1 and g.reduce_extent <= self.warp)


def _flat(axes: list[Bind]) -> tuple[PrimExpr, int]:
    """(one index over the axes, the number of threads)"""
    index: PrimExpr = ZERO
    total = 1
    for a in axes:
        assert isinstance(a.extent, IntImm)
        index = a.var if total == 1 and index is ZERO else add(index, mul(a.var, const(total, a.var.dtype)))
        total *= a.extent.value
    return index, total


class _Steps:
    """Builds the statements of one reduction."""

    def __init__(self, owner: _Lower, combiner: t.CommReducer, dtypes: list[str], g: _Group) -> None:
        self.owner, self.combiner, self.dtypes, self.g = owner, combiner, dtypes, g
        self.stmts: list[t.Stmt] = []
        self.allocated: list[t.Buffer] = []
        """Innermost first."""

    def combine(self, a: list[Any], b: list[Any]) -> list[PrimExpr]:
        values: dict[Any, Any] = {**dict(zip(self.combiner.lhs, a)), **dict(zip(self.combiner.rhs, b))}
        return [substitute(r, values) for r in self.combiner.result]

    # ---- warps

    def shuffle(self, name: str, mask: t.Buffer | None, value: PrimExpr, lane: PrimExpr | int) -> PrimExpr:
        w = IntImm("int32", self.owner.warp)
        first: PrimExpr = ZERO if mask is None else _load(mask)
        which = IntImm("int32", lane) if isinstance(lane, int) else lane
        return Call(value.dtype, Op.get(f"tir.{name}"), (first, value, which, w, w))

    def within(self, values: list[Any], extent: int, guard: PrimExpr | None) -> tuple[list[t.Buffer], list[t.Buffer]]:
        """(the buffers with the results, in the first thread of each group; the other buffers used) of one warp's steps."""
        out = [local_buffer(f"red_buf{i}", d) for i, d in enumerate(self.dtypes)]
        other = [local_buffer(f"t{i}", d) for i, d in enumerate(self.dtypes)]
        loads = t.seq(*(_store(b, v) for b, v in zip(out, values, strict=True)))
        self.stmts.append(loads if guard is None else t.IfThenElse(guard, loads))
        used = list(other)
        mask = None
        if self.owner.target is None or self.owner.target.kind.name != "metal":
            mask = local_buffer("mask", "uint32")
            self.stmts.append(_store(mask, Call("uint32", Op.get("tir.tvm_warp_activemask"), ())))
            used.append(mask)
        offset = 1
        while offset * 2 < extent:
            offset *= 2
        while offset > 0:
            for b, o in zip(out, other, strict=True):
                self.stmts.append(_store(o, self.shuffle("tvm_warp_shuffle_down", mask, _load(b), offset)))
            results = self.combine([_load(b) for b in out], [_load(o) for o in other])
            stores = self.update(out, results, ZERO)
            if offset * 2 > extent:
                index = self.g.reduce_index
                stores = t.IfThenElse(ex.LT(add(index, offset), const(extent, index.dtype)), stores)
            self.stmts.append(stores)
            offset //= 2
        return out, used

    def update(self, out: list[t.Buffer], results: list[PrimExpr], index: PrimExpr) -> t.Stmt:
        """Store all the results, none before all are computed."""
        if len(out) == 1:
            return _store(out[0], results[0], index)
        names = [Var(f"r{i}", r.dtype) for i, r in enumerate(results)]
        body = t.seq(*(_store(b, v, index) for b, v in zip(out, names, strict=True)))
        for v, r in zip(reversed(names), reversed(results), strict=True):
            body = t.LetStmt(v, r, body)
        return body

    def warp(self, values: list[Any]) -> list[t.BufferLoad]:
        """A reduction within one warp."""
        g = self.g
        out, used = self.within(values, g.reduce_extent, None)
        self.allocated += used
        mask = used[-1] if len(used) > len(out) else None
        lane = mul(const(g.reduce_extent, g.group_index.dtype), g.group_index)
        for b in out:
            self.stmts.append(_store(b, self.shuffle("tvm_warp_shuffle", mask, _load(b), lane)))
        return [_load(b) for b in out]

    def warps(self, values: list[Any]) -> list[t.BufferLoad]:
        """A reduction of several warps: each its own, then the first of them what they left in shared memory."""
        g, w = self.g, self.owner.warp
        n = g.reduce_extent // w
        staging = [local_buffer("red_buf_staging", d, (n * g.group_extent,), "shared") for d in self.dtypes]
        self.allocated += staging
        out, used = self.within(values, w, None)
        self.allocated += [*used, *out]
        index = g.reduce_index
        start = mul(g.group_index, const(n, g.group_index.dtype))
        stores = [
            _store(s, _load(b), add(start, floordiv(index, const(w, index.dtype)))) for s, b in zip(staging, out, strict=True)
        ]  # fmt: skip
        first = ex.EQ(floormod(index, const(w, index.dtype)), const(0, index.dtype))
        self.stmts += [t.IfThenElse(first, t.seq(*stores)), barrier("shared")]
        loads = [_load(s, add(start, index)) for s in staging]
        out, used = self.within(loads, n, ex.LT(index, const(n, index.dtype)))
        self.allocated += [*used, *out]
        shared = [local_buffer("red_result", d, (g.group_extent,), "shared") for d in self.dtypes]
        stores = [_store(s, _load(b), g.group_index) for s, b in zip(shared, out, strict=True)]
        self.stmts += [t.IfThenElse(ex.EQ(index, const(0, index.dtype)), t.seq(*stores)), barrier("shared")]
        return [_load(s, g.group_index) for s in shared]

    # ---- shared memory

    def at(self, index: PrimExpr) -> PrimExpr:
        g = self.g
        if isinstance(g.group_index, IntImm):
            return index
        return self.owner.ana.simplify(add(mul(g.group_index, const(g.reduce_extent, g.group_index.dtype)), index))

    def tree(self, values: list[Any]) -> list[t.BufferLoad]:
        """A reduction in shared memory."""
        g = self.g
        self.shared = [
            local_buffer(f"red_buf{i}", d, (g.group_extent * g.reduce_extent,), "shared") for i, d in enumerate(self.dtypes)
        ]  # fmt: skip
        here = self.at(g.reduce_index)
        self.stmts.append(barrier("shared"))
        self.stmts += [_store(b, v, here) for b, v in zip(self.shared, values, strict=True)]
        self.stmts.append(barrier("shared"))
        n = 1
        while n < g.reduce_extent:
            n *= 2
        if n > g.reduce_extent:
            n //= 2
            self.step(n, g.reduce_extent - n)
        while n > 1:
            n //= 2
            self.step(n, n)
        return [_load(b, self.at(const(0, g.reduce_index.dtype))) for b in self.shared]

    def halves(self, offset: int) -> list[PrimExpr]:
        index = self.g.reduce_index
        here, there = self.at(index), self.at(add(index, const(offset, index.dtype)))
        return self.combine([_load(b, here) for b in self.shared], [_load(b, there) for b in self.shared])

    def step(self, offset: int, active: int) -> None:
        """The first `active` threads add what lies `offset` further on."""
        index = self.g.reduce_index
        stores = self.update(self.shared, self.halves(offset), self.at(index))
        self.stmts += [t.IfThenElse(ex.LT(index, const(active, index.dtype)), stores), barrier("shared")]
