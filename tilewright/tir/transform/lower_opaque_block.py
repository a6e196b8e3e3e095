"""Opaque blocks disappear: predicates become branches, buffers allocations, pragmas attributes; unit loops go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arith.expr import FloatImm, IntImm, PrimExpr, StringImm, Var, cast
from tilewright.ir.node import replace
from tilewright.ir.passes import Pass
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.lower.lower_blocks import allocation_shape
from tilewright.tir.transform.base import TRUE, BufferMutator, func_pass, is_one

__all__ = ["LowerOpaqueBlock", "launch_thread", "lower_opaque_block"]

_ALIGN = "buffer_dim_align"


def lower_opaque_block(f: t.PrimFunc) -> t.PrimFunc:
    """The function without blocks; they must be opaque. Raises TW0531 where one still has iterators."""
    run = _LowerOpaque()
    body = run.visit(f.body)
    return f if body is f.body else f.with_body(body)


def launch_thread(low: PrimExpr, extent: PrimExpr, var: Var, tag: str, body: t.Stmt) -> t.Stmt:
    """`body` for one thread index: the attribute that says how many threads there are."""
    axis = t.IterVar(t.Range(low, extent), var, t.IterVar.ThreadIndex, tag)
    key = "virtual_thread" if tag.startswith("vthread") else "thread_extent"
    return t.AttrStmt(axis, key, extent, body)


class _LowerOpaque(BufferMutator):
    def __init__(self) -> None:
        super().__init__()
        self.units: dict[Var, PrimExpr] = {}
        self.aligns: dict[Var, list[Any]] = {}

    def visit_Var(self, v: Var) -> PrimExpr:
        found = self.units.get(v)
        return v if found is None else cast(found, v.dtype)

    def visit_BlockRealize(self, s: t.BlockRealize) -> t.Stmt:
        b = s.block
        if b.iter_vars or b.init is not None:
            what = "iterators" if b.iter_vars else "an init"
            hint = "run LowerInitBlock and ConvertBlocksToOpaque before"
            raise CompileError.at("TW0531", f"block {b.name_hint!r} still has {what}", b.span, hint=hint)
        self._note_aligns(b)
        body = self.visit(b.body)
        predicate = self.visit(s.predicate)
        if not is_one(predicate):
            body = t.IfThenElse(predicate, body)
        pragmas, _ = _annotations(b.annotations)
        for buffer in reversed(b.alloc_buffers):
            new = self.buffer(buffer)
            notes: dict[str, Any] = {_ALIGN: self.aligns[new.data]} if new.data in self.aligns else {}
            body = t.DeclBuffer(new, body)
            body = t.Allocate(new.data, new.dtype, allocation_shape(new), TRUE, body, notes)
        for key, value in reversed(pragmas):
            body = t.AttrStmt(IntImm("int32", 0), key, value, body)
        return body

    def _note_aligns(self, b: t.Block) -> None:
        for row in b.annotations.get(_ALIGN, ()):
            index, axis, factor, offset = (int(x) for x in row)
            if 0 <= index < len(b.writes):
                self.aligns.setdefault(b.writes[index].buffer.data, []).append([-1, axis, factor, offset])

    def visit_SeqStmt(self, s: t.SeqStmt) -> t.Stmt:
        new = [self.visit(x) for x in s.seq]
        return s if all(a is b for a, b in zip(new, s.seq)) else t.seq(*new)

    def visit_Block(self, b: t.Block) -> t.Stmt:
        raise CompileError.at("TW0531", f"block {b.name_hint!r} is not inside a BlockRealize", b.span)

    def visit_For(self, s: t.For) -> t.Stmt:
        low, extent = self.visit(s.min), self.visit(s.extent)
        unit = is_one(extent) and not s.annotations
        if unit:
            self.units[s.loop_var] = low
        body = self.visit(s.body)
        pragmas, kept = _annotations(s.annotations)
        if s.kind == t.ForKind.THREAD_BINDING:
            assert s.thread_binding is not None
            body = launch_thread(low, extent, s.loop_var, s.thread_binding.thread_tag, body)
        elif unit:
            return body
        elif low is not s.min or extent is not s.extent or body is not s.body or pragmas:
            body = replace(s, min=low, extent=extent, body=body, annotations=kept)
        else:
            body = s
        for key, value in reversed(pragmas):
            body = t.AttrStmt(s.loop_var, key, value, body)
        return body


def _annotations(notes: Mapping[str, Any]) -> tuple[list[tuple[str, PrimExpr]], dict[str, Any]]:
    """(pragmas in the order of their names, the other annotations)."""
    pragmas = [(k, _value(k, notes[k])) for k in sorted(notes) if k.startswith("pragma_")]
    return pragmas, {k: v for k, v in notes.items() if not k.startswith("pragma_")}


def _value(key: str, v: Any) -> PrimExpr:
    if isinstance(v, PrimExpr):
        return v
    if v is None:
        return StringImm("")
    if isinstance(v, str):
        return StringImm(v)
    if isinstance(v, (bool, int)):
        return IntImm("int32", int(v))
    if isinstance(v, float):
        return FloatImm("float32", v)
    raise CompileError.at("TW0531", f"the annotation {key!r} is no string or number, but {type(v).__name__}")


def LowerOpaqueBlock() -> Pass:
    """Opaque blocks become plain statements."""
    return func_pass("LowerOpaqueBlock", lower_opaque_block)
