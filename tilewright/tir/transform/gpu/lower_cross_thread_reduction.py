"""Reductions over loops bound to threads: each thread reduces its part, then all combine by `tvm_thread_allreduce`.

    for ko in range(4):                                  for ki in T.thread_binding(32, "threadIdx.x"):
        for ki in T.thread_binding(32, "threadIdx.x"):       part[0] = 0
            B[i] = B[i] + A[i, ko*32 + ki]           ▶       for ko in range(4): part[0] = part[0] + A[i, ko*32 + ki]
                                                             whole[0] = allreduce(part[0], over ki)
                                                             if ki == 0: B[i] = whole[0]

A block that reads such a result from local memory and writes to memory that others see is run by one thread only.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import Call, IntImm, PrimExpr, Var, call_intrin, const, logical_and, pointer_var
from tilewright.ir.node import map_children, replace
from tilewright.ir.op import Op
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator, free_vars, substitute
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import TRUE, DeviceError, func_pass
from tilewright.tir.transform.gpu.reducers import Reduction, reduction_of

__all__ = ["LowerCrossThreadReduction", "lower_cross_thread_reduction"]

ZERO = IntImm("int32", 0)


def lower_cross_thread_reduction(f: t.PrimFunc) -> t.PrimFunc:
    """The function with its reductions over threads made explicit. Raises TW0563, TW0564 where one cannot be."""
    body = _Lower().visit(f.body)
    return f if body is f.body else replace(f, body=body)


def LowerCrossThreadReduction() -> Pass:
    """Make reductions over threads explicit; see `lower_cross_thread_reduction`."""
    return func_pass("LowerCrossThreadReduction", lower_cross_thread_reduction)


def conjuncts(e: PrimExpr) -> list[PrimExpr]:
    """The conditions that all have to hold."""
    if isinstance(e, ex.And):
        return [*conjuncts(e.a), *conjuncts(e.b)]
    return [] if isinstance(e, IntImm) and e.value else [e]


def _first(b: t.Buffer) -> t.BufferRegion:
    return t.BufferRegion(b, (t.Range(ZERO, IntImm("int32", 1)),))


def _load(b: t.Buffer) -> t.BufferLoad:
    return t.BufferLoad(b, (ZERO,))


def _temporary(prefix: str, b: t.Buffer) -> t.Buffer:
    one = IntImm("int32", 1)
    name = f"{prefix}_{b.name}"
    return t.Buffer(pointer_var(name, b.dtype, "local"), b.dtype, (one,), (one,), None, name)


class _Scope:
    """A block being visited: the loops inside it down to where we are, and the buffers it gets."""

    def __init__(self, block: t.Block | None) -> None:
        self.block = block
        self.loops: list[t.For] = []
        self.buffers: list[t.Buffer] = []


class _Lower(Mutator):
    def __init__(self) -> None:
        self.scopes: list[_Scope] = []
        self.replaced: dict[int, t.Stmt] = {}
        self.threads: dict[t.Buffer, dict[str, t.For]] = {}
        """Local results of reductions over threads: the loops they were reduced over, by thread index."""

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_For(self, s: t.For) -> t.Stmt:
        if self.scopes:
            self.scopes[-1].loops.append(s)
        new = self.generic(s)
        if self.scopes:
            self.scopes[-1].loops.pop()
        return self.replaced.pop(id(s), new)

    def visit_BlockRealize(self, s: t.BlockRealize) -> t.Stmt:
        if self.scopes:
            loops = self.reduction_loops(s)
            if loops:
                self.reduce(s, loops)
                return s
            wrapped = self.broadcast(s)
            if wrapped is not s:
                return wrapped
        self.scopes.append(_Scope(s.block))
        body = self.visit(s.block.body)
        init = None if s.block.init is None else self.visit(s.block.init)
        scope = self.scopes.pop()
        if body is s.block.body and init is s.block.init and not scope.buffers:
            return s
        allocated = (*s.block.alloc_buffers, *scope.buffers)
        return replace(s, block=replace(s.block, body=body, init=init, alloc_buffers=allocated))

    # ---- which blocks

    def reduction_loops(self, s: t.BlockRealize) -> list[t.For]:
        """The loops of the reduction, if one of them is bound to threads."""
        if s.block.init is None:
            return []
        used: set[Any] = set()
        for iv, v in zip(s.block.iter_vars, s.iter_values, strict=True):
            if iv.iter_type == t.IterVar.CommReduce:
                used.update(free_vars(v))
            elif iv.iter_type != t.IterVar.DataPar:
                return []
        loops = [p for p in self.scopes[-1].loops if p.loop_var in used]
        return loops if any(p.thread_binding is not None for p in loops) else []

    def check(self, s: t.BlockRealize, loops: list[t.For]) -> None:
        name = s.block.name_hint
        stack = self.scopes[-1].loops
        if stack[len(stack) - len(loops)] is not loops[0]:
            inner = next(p for p in stack[stack.index(loops[0]) :] if p not in loops)
            raise DeviceError.at(
                "TW0564",
                f"the reduction block {name!r} cannot run across threads: the loop {inner.loop_var.name!r}, which is no "
                f"reduction, is inside the reduction loop {loops[0].loop_var.name!r}",
                hint=f"reorder {inner.loop_var.name!r} outside",
            )
        tags: set[str] = set()
        for p in loops:
            if p.thread_binding is None:
                continue
            tag = p.thread_binding.thread_tag
            if not tag.startswith("threadIdx.") or tag in tags:
                why = "twice" if tag in tags else "and blocks cannot wait for each other"
                raise DeviceError.at(
                    "TW0564",
                    f"the reduction loop {p.loop_var.name!r} of block {name!r} is bound to {tag}, {why}",
                    hint="bind reduction loops to threadIdx.x, .y or .z, or use rfactor and a second kernel",
                )
            tags.add(tag)
        if not _is_last(loops[0].body, s):
            raise DeviceError.at(
                "TW0564",
                f"the reduction block {name!r} cannot run across threads: it is not the last one in the loop "
                f"{loops[0].loop_var.name!r}",
            )

    # ---- the rewrite

    def reduce(self, s: t.BlockRealize, loops: list[t.For]) -> None:
        self.check(s, loops)
        r = reduction_of(s.block)
        local = [b.scope() == "local" for b in r.buffers]
        if any(local) != all(local):
            raise DeviceError.at(
                "TW0563",
                f"the reduction block {s.block.name_hint!r} cannot run across threads: some of its results are in local "
                "memory and some are not",
            )
        whole = [_temporary("cross_thread", b) for b in r.buffers]
        in_thread = any(p.thread_binding is None for p in loops) or bool(conjuncts(s.predicate))
        part = [_temporary("in_thread", b) for b in r.buffers] if in_thread else []
        self.scopes[-1].buffers += [*whole, *part]
        if all(local):
            for b in r.buffers:
                for p in loops:
                    if p.thread_binding is not None:
                        self.threads.setdefault(b, {})[p.thread_binding.thread_tag] = p
        stmts: list[t.Stmt] = []
        if part:
            stmts.append(_start(s, r, part))
        stmts += _in_thread(s, loops[0], _partial(s, r, part) if part else None)
        stmts += [_combine(s, loops, r, part, whole), _write_back(s, loops, r, whole)]
        out = t.seq(*stmts)
        for p in reversed(loops):
            if p.thread_binding is not None:
                out = replace(p, body=out)
        self.replaced[id(loops[0])] = out

    def broadcast(self, s: t.BlockRealize) -> t.Stmt:
        """One thread runs a block that hands a local result of a reduction on to memory that others see."""
        if any(w.buffer.scope() == "local" for w in s.block.writes):
            return s
        needed: dict[str, t.For] = {}
        for r in s.block.reads:
            needed.update(self.threads.get(r.buffer, {}))
        for scope in self.scopes:
            for p in scope.loops:
                if p.thread_binding is not None:
                    needed.pop(p.thread_binding.thread_tag, None)
        if not needed:
            return s
        predicate = s.predicate
        axes: list[tuple[Var, str, t.For]] = []
        for tag in sorted(needed):
            p = needed[tag]
            var = Var("t" + tag[-1], p.loop_var.dtype)
            predicate = logical_and(ex.EQ(var, const(0, var.dtype)), predicate)
            axes.append((var, tag, p))
        out: t.Stmt = replace(s, predicate=predicate)
        for var, tag, p in reversed(axes):
            binding = t.IterVar(None, Var("", "int32"), t.IterVar.ThreadIndex, tag)
            out = t.For(var, p.min, p.extent, t.ForKind.THREAD_BINDING, out, binding)
        return out


def _is_last(s: t.Stmt, block: t.BlockRealize) -> bool:
    """Is the block the last one in the statement?"""
    while True:
        if s is block:
            return True
        if isinstance(s, t.SeqStmt):
            s = s.seq[-1]
        elif isinstance(s, t.For):
            s = s.body
        else:
            return False


def _body(stores: list[t.Stmt]) -> t.Stmt:
    return stores[0] if len(stores) == 1 else t.SeqStmt(tuple(stores))


def _realize(block: t.Block, values: tuple[PrimExpr, ...] = (), predicate: PrimExpr = TRUE) -> t.Stmt:
    return t.BlockRealize(values, predicate, block)


def _start(s: t.BlockRealize, r: Reduction, part: list[t.Buffer]) -> t.Stmt:
    stores: list[t.Stmt] = [
        t.BufferStore(b, v, (ZERO,)) for b, v in zip(part, r.reducer.identity_element, strict=True)
    ]  # fmt: skip
    name = f"{s.block.name_hint}_in_thread_init"
    return _realize(t.Block((), (), tuple(map(_first, part)), name, _body(stores)))


def _partial(s: t.BlockRealize, r: Reduction, part: list[t.Buffer]) -> t.Stmt:
    """The block itself, reducing into the thread's own memory."""
    own = dict(zip(r.buffers, part, strict=True))

    def move(n: Any) -> Any:
        if isinstance(n, t.BufferLoad) and n.buffer in own:
            return _load(own[n.buffer])
        if n.identity:
            return n
        n = map_children(n, move)
        if isinstance(n, t.BufferStore) and n.buffer in own:
            return t.BufferStore(own[n.buffer], n.value, (ZERO,))
        return n

    block = s.block
    reads = tuple(x for x in block.reads if x.buffer not in own)
    new = replace(
        block, reads=reads, writes=tuple(map(_first, part)), name_hint=f"{block.name_hint}_in_thread", body=move(block.body), init=None
    )  # fmt: skip
    return replace(s, block=new)


def _in_thread(s: t.BlockRealize, top: t.For, new: t.Stmt | None) -> list[t.Stmt]:
    """The loops of the reduction around its new block (or what else is in them), without those over threads."""

    def rebuild(x: t.Stmt) -> t.Stmt | None:
        if x is s:
            return new
        if isinstance(x, t.SeqStmt):
            kept = [y for y in map(rebuild, x.seq) if y is not None]
            return t.seq(*kept) if kept else None
        if isinstance(x, t.For):
            body = rebuild(x.body)
            if body is None or (x.thread_binding is not None and body is not x.body):
                return body
            return x if body is x.body else replace(x, body=body)
        return x

    found = rebuild(top)
    return [] if found is None else [found]


def _combine(
    s: t.BlockRealize, loops: list[t.For], r: Reduction, part: list[t.Buffer], whole: list[t.Buffer]
) -> t.Stmt:
    sources: list[PrimExpr] = [_load(b) for b in part] if part else r.rhs
    threads = [p.loop_var for p in loops if p.thread_binding is not None]
    args = (IntImm("uint32", len(whole)), *sources, TRUE, *(_load(b) for b in whole), *threads)
    call = t.Evaluate(Call("handle", Op.get("tir.tvm_thread_allreduce"), args))
    null = call_intrin("handle", "tir.reinterpret", IntImm("uint64", 0))
    body = t.AttrStmt(r.reducer, "reduce_scope", null, call)
    name = f"{s.block.name_hint}_cross_thread"
    writes = tuple(map(_first, whole))
    if part:
        return _realize(t.Block((), tuple(map(_first, part)), writes, name, body))
    copies: dict[Any, Any] = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in s.block.iter_vars}
    block = t.Block(s.block.iter_vars, s.block.reads, writes, name, body)
    return _realize(_renamed(block, copies), s.iter_values)


def _renamed(block: t.Block, copies: dict[Any, Any]) -> t.Block:
    return substitute(block, copies)


def _write_back(s: t.BlockRealize, loops: list[t.For], r: Reduction, whole: list[t.Buffer]) -> t.Stmt:
    pairs = [
        (iv, v) for iv, v in zip(s.block.iter_vars, s.iter_values, strict=True) if iv.iter_type != t.IterVar.CommReduce
    ]
    copies: dict[Any, Any] = {iv.var: Var(iv.var.name, iv.var.dtype) for iv, _ in pairs}
    indices = tuple(substitute(i, copies) for i in r.indices)
    stores: list[t.Stmt] = [
        t.BufferStore(b, _load(w), indices) for b, w in zip(r.buffers, whole, strict=True)
    ]  # fmt: skip
    ranges = tuple(t.Range(i, IntImm(i.dtype, 1)) for i in indices)
    varying = {p.loop_var for p in loops}
    predicate: PrimExpr = TRUE
    for c in conjuncts(s.predicate):
        if not any(v in varying for v in free_vars(c)):
            predicate = logical_and(predicate, c)
    if r.buffers[0].scope() != "local":
        for p in loops:
            if p.thread_binding is not None:
                predicate = logical_and(predicate, ex.EQ(p.loop_var, p.min))
    block = t.Block(
        tuple(replace(iv, var=copies[iv.var]) for iv, _ in pairs),
        tuple(map(_first, whole)),
        tuple(t.BufferRegion(b, ranges) for b in r.buffers),
        f"{s.block.name_hint}_write_back",
        _body(stores),
    )
    return _realize(block, tuple(v for _, v in pairs), predicate)
