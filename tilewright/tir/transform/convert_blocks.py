"""Block iterators are replaced by the values they are bound to; what is left are opaque blocks."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import PrimExpr, Var, cast
from tilewright.ir.node import replace, walk
from tilewright.ir.passes import Pass
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.transform.base import BufferMutator, func_pass

__all__ = ["ConvertBlocksToOpaque", "convert_blocks"]


def convert_blocks(f: t.PrimFunc) -> t.PrimFunc:
    """The function with blocks that have no iterators. Raises TW0531 where a block still has an init or a predicate on its own
    iterators."""
    body = _Convert().visit(f.body)
    return f if body is f.body else f.with_body(body)


class _Convert(BufferMutator):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[Var, PrimExpr] = {}

    def visit_Var(self, v: Var) -> PrimExpr:
        found = self.values.get(v)
        return v if found is None else cast(found, v.dtype)

    def buffer(self, b: t.Buffer) -> t.Buffer:
        """A buffer whose shape mentions a block iterator is made anew with its value."""
        found = self.remap.get(b)
        if found is None:
            from tilewright.ir.node import map_children

            found = self.remap[b] = map_children(b, self._inside) if self.values else b
        return found

    def _inside(self, n: Any) -> Any:
        return n if isinstance(n, Var) and n.dtype == "handle" else self.visit(n)

    def visit_BlockRealize(self, s: t.BlockRealize) -> t.Stmt:
        b = s.block
        if b.init is not None:
            raise CompileError.at(
                "TW0531", f"block {b.name_hint!r} still has an init", b.span, hint="run LowerInitBlock before"
            )
        own = {iv.var for iv in b.iter_vars}
        if own and any(x in own for x in walk(s.predicate) if isinstance(x, Var)):
            raise CompileError.at(
                "TW0531",
                f"the predicate of block {b.name_hint!r} mentions an iterator of the block itself",
                s.span,
                hint="write T.where in terms of the loops around the block",
            )
        for iv, value in zip(b.iter_vars, s.iter_values, strict=True):
            self.values[iv.var] = self.visit(value)
        predicate = self.visit(s.predicate)
        block = self.generic(replace(b, iter_vars=()) if b.iter_vars else b)
        if predicate is s.predicate and block is b and not s.iter_values:
            return s
        return replace(s, iter_values=(), predicate=predicate, block=block)


def ConvertBlocksToOpaque() -> Pass:
    """Blocks lose their iterators: each is replaced by the value that it is bound to."""
    return func_pass("ConvertBlocksToOpaque", convert_blocks)
