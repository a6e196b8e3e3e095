"""One kernel of every group of fuse_ops: the members' blocks in a row, what passes between them in buffers of the root block.

The default schedules (and the user's) then inline those buffers or compute them in place, so they never reach memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith import expr as E
from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.ir.module import IRModule
from tilewright.ir.node import Node, replace, walk
from tilewright.ir.passes import PassContext, pass_
from tilewright.ir.rewrite import substitute, transform
from tilewright.relax.calls import call_tir
from tilewright.relax.dims import dim_key
from tilewright.relax.ir import Call, Expr, Function, GlobalVar, SeqExpr, Var, VarBinding
from tilewright.relax.kernels import mentioned
from tilewright.relax.rewrite import GraphMutator
from tilewright.relax.struct_info import (
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    deduce_symbols,
    free_symbols,
    substitute_symbols,
)
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import Block, BlockRealize, Buffer, For, IterVar, PrimFunc, SeqStmt, Stmt, decl_buffer, seq

__all__ = ["fuse_tir", "merge_kernels"]


class Merged:
    """A kernel made of a group: the PrimFunc, the group's symbols that it takes as scalars, and which params are tensors."""

    def __init__(self, func: PrimFunc, scalars: tuple[E.Var, ...], tensors: list[int], out: StructInfo) -> None:
        self.func, self.scalars, self.tensors, self.out = func, scalars, tensors, out


class _Merger:
    def __init__(self, mod: IRModule, group: Function) -> None:
        self.mod, self.group = mod, group
        self.symbols: dict[E.Var, PrimExpr] = {}
        self.buffers: dict[Var, Buffer] = {}
        self.allocated: list[Buffer] = []
        self.seen: set[GlobalVar] = set()
        self.body: list[Stmt] = []
        self.names: dict[str, int] = {}

    def dim(self, d: PrimExpr) -> PrimExpr:
        for v in free_symbols(d):
            if v not in self.symbols:
                self.symbols[v] = type(v)(v.name, v.dtype)
        return d if isinstance(d, IntImm) else substitute_symbols(d, self.symbols)

    def buffer(self, si: StructInfo | None, name: str) -> Buffer:
        assert isinstance(si, TensorStructInfo)
        assert si.shape is not None
        return decl_buffer([self.dim(d) for d in si.shape], si.dtype, name)

    def run(self) -> Merged:
        body = self.group.body
        assert isinstance(body, SeqExpr)
        tensors = [i for i, p in enumerate(self.group.params) if isinstance(p.struct_info, TensorStructInfo)]
        inputs = [self.group.params[i] for i in tensors]
        for p in inputs:
            self.buffers[p] = self.buffer(p.struct_info, p.name_hint)
        bindings = [b for block in body.blocks for b in block.bindings]
        for b in bindings:
            assert isinstance(b, VarBinding)
            made = self.buffer(b.var.struct_info, b.var.name_hint if b.var is not body.body else "out")
            self.buffers[b.var] = made
            if b.var is not body.body:
                self.allocated.append(made)
            self.append(b.value, made)
        assert isinstance(body.body, Var)
        return self.finish([self.buffers[p] for p in inputs], self.buffers[body.body], tensors, body.body.struct_info)

    def append(self, call: Any, out: Buffer) -> None:
        """The blocks of one member, over the group's buffers."""
        gv: GlobalVar = call.args[0]
        f = self.mod[gv]
        actual = [*(self.buffers[a] for a in call.args[1].fields), out]
        scalars = [self.dim(v) for v in call.args[2].values] if len(call.args) > 2 else []
        mapping: dict[Any, Any] = {}
        rest = iter(scalars)
        it = iter(actual)
        for p in f.params:
            formal = f.buffer_map.get(p)
            if formal is None:
                mapping[p] = E.cast(next(rest), p.dtype)
                continue
            have = next(it)
            mapping[formal] = have
            mapping[formal.data] = have.data
            for want, got in zip(formal.shape, have.shape):
                if isinstance(want, E.Var):
                    mapping.setdefault(want, E.cast(got, want.dtype))
        root = f.body
        if not isinstance(root, BlockRealize):
            raise CompileError.at("TW0291", f"{gv.name_hint} is not in block form, so it cannot be fused")
        if gv in self.seen:
            mapping.update(_fresh_binders(root, mapping))
        self.seen.add(gv)
        block: Block = substitute(root, mapping).block
        self.allocated += block.alloc_buffers
        self.body.append(self.rename(block.body))

    def rename(self, s: Stmt) -> Stmt:
        """Blocks get names that no block has yet."""
        own: list[str] = []
        _block_names(s, own)
        if len(set(own)) == len(own) and not any(n in self.names for n in own):
            self.names.update((n, 1) for n in own)
            return s

        def visit(n: Node) -> Node | None:
            if not isinstance(n, Block):
                return None
            count = self.names.get(n.name_hint)
            self.names[n.name_hint] = (count or 0) + 1
            if count is None:
                return None
            name = f"{n.name_hint}_{count}"
            while name in self.names:
                count += 1
                name = f"{n.name_hint}_{count}"
            self.names[name] = 1
            return replace(n, name_hint=name)

        return transform(s, visit)

    def finish(self, inputs: Sequence[Buffer], out: Buffer, tensors: list[int], si: StructInfo | None) -> Merged:
        root = Block((), (), (), "root", seq(*self.body), None, tuple(self.allocated))
        told = {d for b in (*inputs, out) for d in b.shape if isinstance(d, E.Var)}
        scalars = [(old, new) for old, new in self.symbols.items() if new not in told]
        if scalars:
            used = mentioned((*inputs, out, *self.allocated, root), [new for _, new in scalars])  # pyright: ignore
            scalars = [(old, new) for old, new in scalars if new in used]
        handles = [E.Var(f"p_{b.name}", "handle") for b in (*inputs, out)]
        func = PrimFunc(
            (*handles, *(new for _, new in scalars)),  # pyright: ignore
            BlockRealize((), IntImm("bool", 1), root),
            buffer_map=dict(zip(handles, (*inputs, out))),
            attrs={"tir.noalias": True},
        )
        assert si is not None
        return Merged(func, tuple(old for old, _ in scalars), tensors, si)


def _block_names(s: Any, out: list[str]) -> None:
    """The names of the blocks in a statement of loops and blocks."""
    if isinstance(s, SeqStmt):
        for part in s.seq:
            _block_names(part, out)
    elif isinstance(s, BlockRealize):
        out.append(s.block.name_hint)
        _block_names(s.block.body, out)
    else:
        for inner in (getattr(s, "body", None), getattr(s, "then_case", None), getattr(s, "else_case", None)):
            if inner is not None:
                _block_names(inner, out)


def _fresh_binders(root: BlockRealize, mapping: dict[Any, Any]) -> dict[Any, Any]:
    """New variables and buffers for what a kernel binds, so that its blocks may stand in one function twice."""
    fresh: dict[Any, Any] = {}

    def visit(n: Node) -> None:
        if isinstance(n, For):
            fresh[n.loop_var] = replace(n.loop_var)
        elif isinstance(n, IterVar):
            fresh[n.var] = replace(n.var)
        elif isinstance(n, Block):
            for b in n.alloc_buffers:
                data = replace(b.data)
                fresh[b.data] = data
                shape = tuple(substitute(d, mapping) for d in b.shape)
                fresh[b] = replace(b, data=data, shape=shape)

    for n in walk(root):
        visit(n)
    return fresh


def _group_key(f: Function) -> Any:
    """Something hashable that groups which make the same kernel share."""
    body = f.body
    assert isinstance(body, SeqExpr)
    number: dict[Any, int] = {}
    key: list[Any] = []

    def info(si: Any) -> Any:
        if isinstance(si, TensorStructInfo):
            return (si.dtype, *(dim_key(d) for d in si.shape or ()))
        return ("shape", *(si.values or ())) if isinstance(si, ShapeStructInfo) else None

    for p in f.params:
        number[p] = len(number)
        key.append(info(p.struct_info))
    for b in (b for block in body.blocks for b in block.bindings):
        call: Any = b.value  # pyright: ignore
        number[b.var] = len(number)
        scalars = tuple(dim_key(v) for a in call.args[2:] for v in a.values)
        key.append((call.args[0], *(number[a] for a in call.args[1].fields), info(b.var.struct_info), scalars))
    return (*key, number[body.body])  # pyright: ignore


def merge_kernels(mod: IRModule, group: Function) -> Merged:
    """The kernel of a group: a graph function whose bindings are call_tir only."""
    return _Merger(mod, group).run()


class _FuseTIR(GraphMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.merged: dict[GlobalVar, tuple[GlobalVar, Merged]] = {}
        self.alike: dict[Any, tuple[GlobalVar, Merged]] = {}

    def call(self, call: Call, var: Var) -> Expr:
        target = self.mod.functions.get(call.op) if isinstance(call.op, GlobalVar) else None
        if not isinstance(target, Function) or not target.attrs.get("Primitive"):
            return call
        made = self.merged.get(call.op)
        if made is None:
            key = _group_key(target)
            made = self.alike.get(key)
            if made is None:
                merged = merge_kernels(self.mod, target)
                made = self.alike[key] = (self.bb.add_func(merged.func, call.op.name_hint, share=False), merged)
            self.merged[call.op] = made
        gv, merged = made
        table: dict[E.Var, PrimExpr] = {}
        for p, a in zip(target.params, call.args):
            deduce_symbols(p.struct_info, a.struct_info, table)
        table = {k: v for k, v in table.items() if k is not v}
        scalars = tuple(substitute_symbols(v, table) for v in merged.scalars)
        return call_tir(gv, [call.args[i] for i in merged.tensors], substitute_symbols(merged.out, table), scalars)

    def function(self, f: Function) -> Function:
        return f if f.attrs.get("Primitive") else super().function(f)


@pass_(needs="legal", name="FuseTIR")
def fuse_tir(mod: IRModule, ctx: PassContext) -> IRModule:
    """Calls of `Primitive` functions become calls of one kernel each; the functions are gone."""
    del ctx
    groups = [gv for gv, f in mod.functions.items() if isinstance(f, Function) and f.attrs.get("Primitive")]
    if not groups:
        return mod
    fused = _FuseTIR(mod)
    # names of groups are free for the kernels made of them
    fused.bb._global_names.difference_update(g.name_hint for g in groups)
    return fused.run().without(*groups)
