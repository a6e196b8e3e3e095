"""Is what was parsed well formed? Checked unless `check_well_formed=False`; faults underline the user's statement.

    TW0120   a view of a region has another shape or dtype
    TW0121   a variable, or the memory of a buffer, is used where nothing defines it, or is defined again inside of its scope
    TW0122   a block with axes uses a loop around it; what it may use are its axes

More is checked before a program is lowered (`tir/verify.py`); this is what a reader of the text can see.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from tilewright.arith import expr as E
from tilewright.arith.expr import Var
from tilewright.ir.node import Node
from tilewright.ir.rewrite import free_vars
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t

__all__ = ["check_function", "is_well_formed"]


def check_function(f: t.PrimFunc) -> None:
    """Raise CompileError (TW0120, TW0121, TW0122) unless the function is well formed."""
    _Checker(f).run()


def is_well_formed(f: t.PrimFunc) -> bool:
    """Would `check_function` pass?"""
    try:
        check_function(f)
    except CompileError:
        return False
    return True


class _Checker:
    def __init__(self, f: t.PrimFunc) -> None:
        self.f = f
        self.defined: set[Var] = set()
        self.loops: dict[Var, int] = {}  # loop variables, by how many blocks with axes are around the loop
        self.depth = 0
        self.place: Any = None  # the innermost span

    def fail(self, code: str, message: str, hint: str) -> NoReturn:
        raise CompileError.at(code, message, self.place, hint=hint)

    # ---- scopes

    def define(self, variables: Iterable[Var]) -> list[Var]:
        """The variables are defined from here on; those of them that were not."""
        new: list[Var] = []
        for v in variables:
            if v in self.defined:
                self.fail(
                    "TW0121", f"variable {v.name!r} is defined again inside of its own scope", "use another variable"
                )
            self.defined.add(v)
            new.append(v)
        return new

    def use(self, v: Var, what: str = "variable") -> None:
        if v not in self.defined:
            self.fail(
                "TW0121",
                f"{what} {v.name!r} is used, but nothing defines it here",
                "a parameter, a loop, an axis, an assignment or an allocation defines it; "
                "check_well_formed=False leaves this check out",
            )
        if self.depth and self.loops.get(v, self.depth) < self.depth:
            self.fail(
                "TW0122",
                f"loop variable {v.name!r} is used inside of a block with axes; only its axes may be",
                f"bind an axis to it, such as v{v.name} = T.axis.spatial(extent, {v.name})",
            )

    # ---- functions

    def run(self) -> None:
        f = self.f
        self.place = f.span
        self.define(f.params)
        for b in f.buffer_map.values():
            self.defined.add(b.data)
            self.defined.update(v for e in _sizes(b) for v in free_vars(e))
        self.stmt(f.body)

    def stmt(self, s: Any) -> None:
        """Check a statement."""
        outer = self.place
        if s.span is not None:
            self.place = s.span
        method = _STATEMENTS.get(type(s))
        if method is not None:
            method(self, s)
        else:
            self.children(s)
        self.place = outer

    def children(self, n: Any) -> None:
        """Check what a statement without a scope holds."""
        for f in n.node_fields:
            self.value(getattr(n, f.name))

    def value(self, v: Any) -> None:
        """Check any value of a field."""
        if isinstance(v, E.PrimExpr):
            self.expr(v)
        elif isinstance(v, t.Stmt):
            self.stmt(v)
        elif isinstance(v, tuple):
            for x in v:  # pyright: ignore[reportUnknownVariableType]
                self.value(x)
        elif isinstance(v, t.Buffer):
            self.use(v.data, "buffer")
        elif isinstance(v, t.Range):
            self.expr(v.min)
            self.expr(v.extent)

    def scoped(self, variables: Iterable[Var], body: Any) -> None:
        """The body, with the variables defined in it."""
        new = self.define(variables)
        self.stmt(body)
        self.defined.difference_update(new)

    # ---- statements with a scope

    def _for(self, s: t.For) -> None:
        self.expr(s.min)
        self.expr(s.extent)
        v = s.loop_var
        self.loops[v] = self.depth
        thread = s.thread_binding.var if s.thread_binding is not None else v
        self.scoped({v, thread} if thread not in self.defined else (v,), s.body)
        del self.loops[v]

    def _let(self, s: t.LetStmt) -> None:
        self.expr(s.value)
        self.scoped((s.var,), s.body)

    def _attr(self, s: t.AttrStmt) -> None:
        self.expr(s.value)
        n = s.node
        if isinstance(n, t.IterVar) and n.var not in self.defined:
            self.scoped((n.var,), s.body)
        else:
            if isinstance(n, (E.PrimExpr, t.Buffer)):
                self.value(n)
            self.stmt(s.body)

    def _allocate(self, s: Any) -> None:
        for e in s.extents:
            self.expr(e)
        self.scoped((s.buffer_var,), s.body)

    def _decl(self, s: t.DeclBuffer) -> None:
        self.use(s.buffer.data, "the memory of")
        for e in _sizes(s.buffer):
            self.expr(e)
        self.stmt(s.body)

    def _realize(self, s: t.BufferRealize) -> None:
        for r in s.bounds:
            self.value(r)
        self.scoped(() if s.buffer.data in self.defined else (s.buffer.data,), s.body)

    def _block_realize(self, s: t.BlockRealize) -> None:
        for e in s.iter_values:
            self.expr(e)
        self.expr(s.predicate)
        self.stmt(s.block)

    def _block(self, b: t.Block) -> None:
        axes = bool(b.iter_vars)
        for iv in b.iter_vars:
            self.value(iv.dom)
        new = self.define(iv.var for iv in b.iter_vars)
        self.depth += axes
        for buffer in b.alloc_buffers:
            new += self.define((buffer.data,))
            for e in _sizes(buffer):
                self.expr(e)
        for m in b.match_buffers:
            self.value(m.source.region)
            self.value(m.source.buffer)
            self.fits(m)
            sizes = {v for e in _sizes(m.buffer) for v in free_vars(e)}
            new += self.define({m.buffer.data, *(v for v in sizes if v not in self.defined)})
        for r in (*b.reads, *b.writes):
            self.value(r.buffer)
            self.value(r.region)
        if b.init is not None:
            self.stmt(b.init)
        self.stmt(b.body)
        self.depth -= axes
        self.defined.difference_update(new)

    def fits(self, m: t.MatchBufferRegion) -> None:
        """The view has the extents of the region, of which it may leave out leading ones."""
        view, whole = m.buffer, m.source.buffer
        extents = [r.extent for r in m.source.region]
        skip = len(extents) - len(view.shape)
        outer, self.place = self.place, m.span or self.place
        hint = "a view has the dtype and the extents of its region; leading extents of 1 may be left out"
        if skip < 0 or view.dtype != whole.dtype:
            kinds = f"{view.dtype} of {len(view.shape)} dimensions", f"{whole.dtype} of {len(extents)}"
            self.fail("TW0120", f"the view {view.name!r} is {kinds[0]}, its region {kinds[1]}", hint)
        for d, (n, e) in enumerate(zip([E.IntImm("int32", 1)] * skip + [*view.shape], extents, strict=True)):
            if isinstance(n, E.IntImm) and isinstance(e, E.IntImm) and n.value != e.value:
                what = "is left out" if d < skip else f"of the view is {n.value}"
                self.fail("TW0120", f"dimension {d} of the region is {e.value}, but that {what}", hint)
        self.place = outer

    # ---- expressions

    def expr(self, root: Any) -> None:
        """Check an expression."""
        stack = [root]
        while stack:
            e = stack.pop()
            kind = type(e)
            if kind is E.IntImm or kind is E.FloatImm or kind is E.StringImm:
                continue
            if isinstance(e, Var):
                self.use(e)
            elif kind is t.BufferLoad:
                if e.buffer.data not in self.defined:
                    self.place = e.span or self.place
                    self.use(e.buffer.data, "the memory of buffer")
                stack.extend(e.indices)
            elif kind is E.Let:
                self.expr(e.value)
                new = self.define((e.var,))
                self.expr(e.body)
                self.defined.difference_update(new)
            else:
                for f in e.node_fields:
                    v = getattr(e, f.name)
                    if isinstance(v, tuple):
                        stack.extend(x for x in v if isinstance(x, Node))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                    elif isinstance(v, E.PrimExpr):
                        stack.append(v)
                    elif isinstance(v, t.Buffer):
                        self.use(v.data, "buffer")


def _sizes(b: t.Buffer) -> tuple[Any, ...]:
    """Everything that the shape of a buffer depends on."""
    return (*b.shape, *b.strides, *(() if b.elem_offset is None else (b.elem_offset,)))


_STATEMENTS: dict[type, Any] = {
    t.For: _Checker._for,
    t.LetStmt: _Checker._let,
    t.AttrStmt: _Checker._attr,
    t.Allocate: _Checker._allocate,
    t.AllocateConst: _Checker._allocate,
    t.DeclBuffer: _Checker._decl,
    t.BufferRealize: _Checker._realize,
    t.BlockRealize: _Checker._block_realize,
    t.Block: _Checker._block,
}
