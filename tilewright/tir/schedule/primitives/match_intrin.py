"""Does a piece of a program compute what a tensor intrinsic describes? And where in its buffers?

The statements are compared one by one, up to the names of variables and the types of indices. Operands of commutative
operators may be exchanged. A buffer of the description may be a part of one of the program, with fewer dimensions: an access
`A[b, i*16 + x, k*16 + y]` matches `A[x, y]` at the base `(b, i*16, k*16)`, the same base for every access of the buffer.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.ir.node import Node, walk
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    Range,
)

__all__ = ["Matching", "Mismatch"]

_COMMUTATIVE = (ex.Add, ex.Mul, ex.Min, ex.Max, ex.And, ex.Or, ex.EQ, ex.NE)
_INTS = ("int32", "int64")


class Mismatch(Exception):
    """The program and the description differ; the message says where."""


class Matching:
    """The comparison, and what it found: `buffers` (description -> program) and `bases` (program's buffer -> indices)."""

    def __init__(self) -> None:
        self.vars: dict[Any, Any] = {}
        self.buffers: dict[Buffer, Buffer] = {}
        self.bases: dict[Buffer, list[PrimExpr]] = {}
        self.inner: set[Any] = set()
        self.ana = Analyzer()

    def root(self, mine: Block, desc: Block) -> None:
        """Match the block of a program with the one that is the description's body. Raises Mismatch."""
        for iv in (*mine.iter_vars, *desc.iter_vars):
            self.bind(iv.var, iv.dom)
        self.stmt(mine.body, desc.body)

    # ---- statements ----

    def stmt(self, a: Any, b: Any) -> None:
        if type(a) is not type(b):
            raise Mismatch(f"a {type(a).__name__} stands where the description has a {type(b).__name__}")
        method = getattr(self, f"match_{type(a).__name__}", None)
        if method is not None:
            method(a, b)
        else:
            self.fields(a, b)

    def match_For(self, a: For, b: For) -> None:
        if a.kind != b.kind:
            raise Mismatch(f"the loop {a.loop_var.name!r} is {a.kind.name.lower()}, not {b.kind.name.lower()}")
        self.equal(a.min, b.min, f"where the loop {a.loop_var.name!r} begins")
        self.equal(a.extent, b.extent, f"the extent of the loop {a.loop_var.name!r}")
        if a.annotations.keys() != b.annotations.keys():
            raise Mismatch(f"the loop {a.loop_var.name!r} has other annotations")
        self.define(a.loop_var, b.loop_var, Range(a.min, a.extent))
        self.stmt(a.body, b.body)

    def match_BlockRealize(self, a: BlockRealize, b: BlockRealize) -> None:
        name = a.block.name_hint
        if len(a.iter_values) != len(b.iter_values):
            raise Mismatch(f"the block {name!r} has {len(a.iter_values)} iterators, not {len(b.iter_values)}")
        for iv, x, y in zip(a.block.iter_vars, a.iter_values, b.iter_values, strict=True):
            self.equal(x, y, f"the value of the iterator {iv.var.name!r}")
        self.equal(a.predicate, b.predicate, f"the predicate of the block {name!r}")
        self.stmt(a.block, b.block)

    def match_Block(self, a: Block, b: Block) -> None:
        for x, y in zip(a.iter_vars, b.iter_vars, strict=True):
            if x.iter_type != y.iter_type:
                kinds = {IterVar.DataPar: "spatial", IterVar.CommReduce: "reduce"}
                raise Mismatch(f"the iterator {x.var.name!r} is not {kinds.get(y.iter_type, 'of the same kind')}")
            if x.dom is not None and y.dom is not None:
                self.equal(x.dom.extent, y.dom.extent, f"the extent of the iterator {x.var.name!r}")
            self.define(x.var, y.var, x.dom)
        if (a.init is None) != (b.init is None):
            raise Mismatch(
                f"the block {a.name_hint!r} {'has an init' if a.init is not None else 'has no init'}, unlike the description"
            )
        if a.annotations.keys() != b.annotations.keys():
            raise Mismatch(f"the block {a.name_hint!r} has other annotations than the description")
        for key, value in b.annotations.items():
            self.value(a.annotations[key], value)
        if len(a.alloc_buffers) != len(b.alloc_buffers):
            raise Mismatch(f"the block {a.name_hint!r} allocates other buffers")
        for x, y in zip(a.alloc_buffers, b.alloc_buffers, strict=True):
            self.buffer(x, y)
        if a.init is not None:
            self.stmt(a.init, b.init)
        self.stmt(a.body, b.body)

    def match_BufferStore(self, a: BufferStore, b: BufferStore) -> None:
        self.access(a, b)
        self.expr(a.value, b.value)

    def match_LetStmt(self, a: Any, b: Any) -> None:
        self.expr(a.value, b.value)
        self.define(a.var, b.var, None)
        self.stmt(a.body, b.body)

    # ---- variables and buffers ----

    def bind(self, v: Var, r: Range | None) -> None:
        if r is not None and not (isinstance(r.extent, IntImm) and r.extent.value == 1):
            self.ana.bind(v, r)

    def define(self, a: Var, b: Var, r: Range | None) -> None:
        self.vars[b] = a
        self.inner.add(a)
        self.bind(a, r)

    def buffer(self, a: Buffer, b: Buffer) -> None:
        known = self.buffers.get(b)
        if known is a:
            return
        if known is not None or a in self.buffers.values():
            raise Mismatch(f"the buffer {a.name} is read or written where the description has {b.name}")
        if a.dtype != b.dtype:
            raise Mismatch(f"the buffer {a.name} is of {a.dtype}, the description's {b.name} of {b.dtype}")
        self.buffers[b] = a

    def access(self, a: BufferLoad | BufferStore, b: BufferLoad | BufferStore) -> None:
        """An access of the program is one of the description at the buffer's base."""
        self.buffer(a.buffer, b.buffer)
        skip = len(a.indices) - len(b.indices)
        if skip < 0:
            raise Mismatch(f"the buffer {a.buffer.name} has fewer dimensions than the description's {b.buffer.name}")
        theirs = [self.mine(i) for i in b.indices]
        base = self.bases.get(a.buffer)
        if base is None:
            base = list(a.indices[:skip])
            for i, t in zip(a.indices[skip:], theirs, strict=True):
                base.append(self.ana.simplify(i - ex.cast(t, i.dtype)))
            loose = [v for e in base for v in free_vars(e) if v in self.inner]
            if loose:
                raise Mismatch(f"where {a.buffer.name} is accessed depends on {loose[0].name!r} in another way")
            self.bases[a.buffer] = base
            return
        for n, i in enumerate(a.indices):
            want = base[n] if n < skip else base[n] + ex.cast(theirs[n - skip], base[n].dtype)
            if not self.ana.can_prove_equal(i, want):
                raise Mismatch(f"{a.buffer.name} is accessed at {i} where the description is at {want}")

    # ---- expressions ----

    def mine(self, e: PrimExpr) -> PrimExpr:
        """An index of the description in the program's variables."""
        used = [v for v in free_vars(e) if v in self.vars]
        table: dict[Any, PrimExpr] = {v: ex.cast(self.vars[v], v.dtype) for v in used}
        wide = [self.vars[v].dtype for v in used if self.vars[v].dtype != v.dtype]
        if wide:
            from tilewright.tir.index_map import IndexMap

            return IndexMap(used, [e]).with_dtype(wide[0]).apply([ex.cast(self.vars[v], wide[0]) for v in used])[0]
        return substitute(e, table)

    def equal(self, a: PrimExpr, b: PrimExpr, what: str) -> None:
        """Two expressions without accesses are equal."""
        theirs = self.mine(b)
        if a.dtype in _INTS and theirs.dtype in _INTS:
            if self.ana.can_prove_equal(a, ex.cast(theirs, a.dtype)):
                return
        elif not (_plain(a) and _plain(b)):
            self.expr(a, b)
            return
        elif ex.same_value(a, theirs) if hasattr(ex, "same_value") else False:
            return
        else:
            self.expr(a, b)
            return
        raise Mismatch(f"{what} is {a}, not {theirs}")

    def expr(self, a: Any, b: Any) -> None:
        if isinstance(b, Var) and b in self.vars:
            if self.vars[b] is a or (a.dtype in _INTS and self.ana.can_prove_equal(a, ex.cast(self.vars[b], a.dtype))):
                return
            raise Mismatch(f"{a} stands where the description has {self.vars[b].name!r}")
        if isinstance(a, BufferLoad) and isinstance(b, BufferLoad):
            self.access(a, b)
            return
        if _plain(a) and _plain(b) and a.dtype in _INTS and b.dtype in _INTS:
            if self.ana.can_prove_equal(a, ex.cast(self.mine(b), a.dtype)):
                return
            raise Mismatch(f"{a} stands where the description has {self.mine(b)}")
        if type(a) is not type(b):
            raise Mismatch(f"{a} stands where the description has {b}")
        if a.dtype != b.dtype:
            raise Mismatch(f"{a} is of {a.dtype}, the description's {b} of {b.dtype}")
        if isinstance(a, _COMMUTATIVE) and isinstance(b, _COMMUTATIVE):
            saved = dict(self.buffers), dict(self.bases)
            try:
                self.expr(a.a, b.a)
                self.expr(a.b, b.b)
                return
            except Mismatch as first:
                self.buffers, self.bases = saved
                try:
                    self.expr(a.a, b.b)
                    self.expr(a.b, b.a)
                    return
                except Mismatch:
                    raise first from None
        self.fields(a, b)

    def fields(self, a: Any, b: Any) -> None:
        for f in a.node_fields:
            if f.role == "INFO":
                continue
            self.value(getattr(a, f.name), getattr(b, f.name))

    def value(self, x: Any, y: Any) -> None:
        if isinstance(x, PrimExpr) and isinstance(y, PrimExpr):
            self.expr(x, y)
        elif isinstance(x, Buffer) and isinstance(y, Buffer):
            self.buffer(x, y)
        elif isinstance(x, Node) and isinstance(y, Node) and not x.identity:
            self.stmt(x, y)
        elif isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
            if len(x) != len(y):
                raise Mismatch(f"{len(x)} parts stand where the description has {len(y)}")
            for p, q in zip(x, y, strict=True):
                self.value(p, q)
        elif x is not y and x != y:
            raise Mismatch(f"{x!r} stands where the description has {y!r}")


def _plain(e: Any) -> bool:
    return not any(isinstance(x, (BufferLoad, ex.Call)) for x in walk(e))
