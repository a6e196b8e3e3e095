"""Change how a buffer lies in memory, or how the iterations of a block are counted.

`transform_layout` rewrites every access of a buffer; where the new shape has elements that the old one had not (padding),
they get a value, in one of three ways:
  - the loops that make the buffer run over the new shape, and store the value where there is padding, if they do nothing
    but fill the buffer in order;
  - else a block after them stores the value into the padding;
  - and of a buffer that is only read, a block before them assumes that the padding holds it.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import EQ, IntImm, Or, PrimExpr, Var, cast, cmp, if_then_else, logical_not
from tilewright.arith.iter_map import iter_map_simplify
from tilewright.ir.node import children, map_children, replace
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.ir.structure import structural_equal
from tilewright.tir import build
from tilewright.tir.analysis.regions import accesses
from tilewright.tir.index_map import IndexMap, NoInverse
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IterVar,
    Range,
    Stmt,
    seq,
)
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.arguments import (
    as_block,
    as_buffer,
    as_index_map,
    as_padding,
    buffer_of,
    index_dtype,
)
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, State, with_regions

__all__ = ["transform_layout"]

TRUE = IntImm("bool", 1)


def _prepare(s: State, arguments: dict[str, Any]) -> None:
    block = arguments["block"] = as_block(s, arguments["block"])
    where = arguments["buffer"] = as_buffer(s, block, arguments["buffer"])
    buffer, dtype = buffer_of(s, block, where), index_dtype(s, block)
    m = arguments["index_map"] = as_index_map(arguments["index_map"], buffer.ndim, dtype)
    value = arguments.get("pad_value")
    if value is not None:
        arguments["pad_value"] = as_padding(s, block, value, buffer, len(m.final_indices), dtype)


@primitive(prepare=_prepare)
def transform_layout(
    s: State,
    block: BlockRV | str,
    buffer: tuple[str, int] | str | Buffer,
    index_map: Any,
    pad_value: Any = None,
    *,
    assume_injective_transform: bool = False,
) -> None:
    """Let the element of a buffer at `indices` lie at `index_map(*indices)` of a buffer of the mapped shape.

    `buffer`: ("read" | "write", index) of the block, a name, or the buffer. `index_map`: a function of the indices (with
    `IndexMap.AXIS_SEPARATOR` between axes that stay apart in memory) or an IndexMap; it must map no two elements to one
    place, unless `assume_injective_transform` says that it is so. Where it leaves padding, `pad_value` is what that holds: a
    number, an expression, a function of the new indices. Raises ScheduleError TW0482 (no such buffer), TW0483 (the padding
    does not fit), TW0484 (the map has no inverse, or needs a `pad_value`), TW0485 (a buffer that cannot be laid out anew).
    """
    assert isinstance(block, BlockRV)
    assert isinstance(buffer, tuple)
    old = buffer_of(s, block, buffer)
    site = _defining_site(s, block, old)
    work = _Layout(s, block, old, index_map, pad_value, assume_injective_transform)
    body: Stmt = site.block.body if site is not None else s.func(block.func).body
    new_body = work.rewrite(site or body)
    if site is not None:
        path = s.block_path(BlockRV(site.block.name_hint, block.func))
        s.put(block.func, path, new_body)
        return
    s.set_body(block.func, new_body)
    f = s.func(block.func)
    table = {p: work.new if b is old else b for p, b in f.buffer_map.items()}
    s.mod.update_func(s.mod.get_global_var(block.func), replace(f, buffer_map=table))


def _defining_site(s: State, block: BlockRV, b: Buffer) -> BlockRealize | None:
    """The block that allocates the buffer; None for a parameter. Raises ScheduleError TW0485 for a view."""
    path = s.block_path(block)
    for p in path:
        if isinstance(p, BlockRealize) and b in p.block.alloc_buffers:
            return p
    if b not in s.func(block.func).buffer_map.values():
        raise fail(
            "TW0485", f"{b.name} is a view of another buffer: its layout follows from that one", s.func(block.func), path[-1],
            hint="transform the buffer that it is a view of, before tensorize",
        )  # fmt: skip
    if b.strides:
        raise fail("TW0485", f"{b.name} has strides of its own", s.func(block.func), path[-1])
    return None


class _Write:
    """A store to the buffer, with the loops around it that its indices depend on."""

    def __init__(
        self, store: BufferStore, indices: list[PrimExpr], loops: list[For], realize: BlockRealize | None
    ) -> None:
        self.store, self.realize = store, realize
        used = {v for i in indices for v in free_vars(i)}
        positions = [n for n, p in enumerate(loops) if p.loop_var in used]
        self.nest = loops[positions[0] : positions[-1] + 1] if positions else []
        shape = store.buffer.shape
        self.in_order = len(self.nest) == len(indices) and all(
            i is p.loop_var and p.kind == ForKind.SERIAL and _is(p.min, 0) and structural_equal(p.extent, n)
            for i, p, n in zip(indices, self.nest, shape, strict=True)
        )


class _Layout:
    """One use of transform_layout: the new buffer, its padding, and the rewriting of statements."""

    def __init__(
        self, s: State, block: BlockRV, old: Buffer, index_map: IndexMap, pad_value: IndexMap | None, trust: bool
    ) -> None:
        self.s, self.func, self.old = s, block.func, old
        dtype = old.shape[0].dtype if old.shape else "int32"
        if any(n.dtype == "int64" for n in old.shape):
            dtype = "int64"
        self.map = index_map.with_dtype(dtype)
        self.inverse: IndexMap | None = None
        self.padding: PrimExpr = IntImm("bool", 0)
        realize = s.block(block)
        try:
            if not trust:
                self.inverse, self.padding = self.map.non_surjective_inverse(old.shape)
            shape = self.map.map_shape(old.shape)
            whole = [Range(IntImm(n.dtype, 0), n) for n in old.shape]
            if any(isinstance(r.min, IntImm) and r.min.value < 0 for r in self.map.map_ranges(whole)):
                raise NoInverse("some indices would be less than 0")
        except NoInverse as why:
            raise fail(
                "TW0484", f"{old.name} cannot be laid out by {index_map.to_python()}: {why.reason}", s.func(block.func),
                realize, hint="assume_injective_transform=True says that no two elements meet",
            ) from None  # fmt: skip
        self.padded = not (isinstance(self.padding, IntImm) and not self.padding.value)
        if self.padded and pad_value is None:
            raise fail(
                "TW0484",
                f"{index_map.to_python()} leaves padding in {old.name} of shape {list(old.shape)}: where {self.padding}",
                s.func(block.func),
                realize,
                hint="give pad_value, or assume_injective_transform=True to leave the padding unset",
            )
        self.pad = pad_value
        self.new = replace(old, shape=tuple(shape), axis_separators=index_map.separators or ())
        self.ana = Analyzer()
        self.ranges: dict[Var, Range] = {}

    # ---- the whole ----

    def rewrite(self, site: Stmt) -> Stmt:
        """The statement with the buffer laid out anew; `site` is the block that allocates it, or the function's body."""
        holder = (
            site if isinstance(site, BlockRealize) else next(x for x in _below(site) if isinstance(x, BlockRealize))
        )
        if not self.padded:
            return self.visit(site)
        writes = self.writes(holder.block.body, [], {}, None)
        if not writes:
            body = seq(self.assumption(), self.visit_in(holder, holder.block.body))
        else:
            table = self.replacements(writes)
            if table is None:
                last = writes[-1]
                after = last.nest[0] if last.nest else last.realize or last.store
                body = self.visit_in(holder, holder.block.body, {after: lambda x: seq(x, self.epilogue())})
            else:
                body = self.visit_in(holder, holder.block.body, table)
        block = self.declare(holder.block, replace(holder.block, body=body))
        return _swapped(site, holder, replace(holder, block=block))

    def visit_in(self, holder: BlockRealize, body: Stmt, special: dict[Any, Any] | None = None) -> Stmt:
        del holder
        return self.visit(body, special or {})

    # ---- accesses ----

    def visit(self, x: Any, special: dict[Any, Any] | None = None) -> Any:
        """The statement or expression with its accesses rewritten; `special` says what replaces (or wraps) statements."""
        special = special or {}
        found = special.get(x) if isinstance(x, Stmt) else None
        if isinstance(found, Stmt):
            return found
        new = self.inside(x, special)
        return found(new) if found is not None else new

    def inside(self, x: Any, special: dict[Any, Any]) -> Any:
        if isinstance(x, For):
            self.enter(x.loop_var, Range(x.min, x.extent))
            return map_children(x, lambda c: self.visit(c, special))
        if isinstance(x, Block):
            for iv in x.iter_vars:
                if iv.dom is not None:
                    self.enter(iv.var, iv.dom)
            new = map_children(x, lambda c: c if isinstance(c, BufferRegion) else self.visit(c, special))
            return self.declare(x, new)
        if isinstance(x, BufferLoad) and x.buffer is self.old:
            return BufferLoad(self.new, self.at(tuple(self.visit(i) for i in x.indices)))
        if isinstance(x, BufferStore) and x.buffer is self.old:
            return BufferStore(self.new, self.visit(x.value), self.at(tuple(self.visit(i) for i in x.indices)))
        if isinstance(x, DeclBuffer) and x.buffer.data is self.old.data:
            raise self.refuse(f"{x.buffer.name} is declared on the memory of {self.old.name}", x)
        return x if x.identity else map_children(x, lambda c: self.visit(c, special))

    def enter(self, v: Var, r: Range) -> None:
        self.ranges[v] = r
        if not (isinstance(r.extent, IntImm) and r.extent.value == 1):
            self.ana.bind(v, r)

    def at(self, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        """Where an element lies now."""
        found = self.map.map_indices(list(indices), self.ana)
        used = {v: self.ranges[v] for e in found for v in free_vars(e) if v in self.ranges}
        return tuple(iter_map_simplify(found, used, check_level="nocheck", simplify_trivial_iterators=False))

    def declare(self, before: Block, new: Block) -> Block:
        """The block with its declarations of the buffer brought up to date."""
        for m in before.match_buffers:
            if m.source.buffer is self.old:
                raise self.refuse(f"{m.buffer.name} is a view of {self.old.name}", before)
        if self.old in new.alloc_buffers:
            new = replace(new, alloc_buffers=tuple(self.new if b is self.old else b for b in new.alloc_buffers))
        if not any(r.buffer is self.old for r in (*new.reads, *new.writes)):
            return new
        reads, writes, _ = accesses(replace(new, reads=(), writes=()))

        def updated(r: BufferRegion, table: Any) -> BufferRegion:
            if r.buffer is not self.old:
                return r
            if self.new in table:
                return table[self.new].region()
            ranges = self.map.map_ranges(list(r.region))
            return BufferRegion(self.new, tuple(ranges))

        return replace(
            new, reads=tuple(updated(r, reads) for r in new.reads), writes=tuple(updated(r, writes) for r in new.writes)
        )

    def refuse(self, why: str, node: Any) -> Exception:
        return fail("TW0485", f"{self.old.name} cannot be laid out anew: {why}", self.s.func(self.func), node)

    # ---- padding ----

    def writes(self, x: Any, loops: list[For], bound: dict[Any, Any], realize: BlockRealize | None) -> list[_Write]:
        """The stores to the buffer in a statement, in order."""
        if isinstance(x, BufferStore) and x.buffer is self.old:
            return [_Write(x, [substitute(i, bound) for i in x.indices], loops, realize)]
        if isinstance(x, For):
            return self.writes(x.body, [*loops, x], bound, realize)
        if isinstance(x, BlockRealize):
            values = {
                iv.var: substitute(v, bound) for iv, v in zip(x.block.iter_vars, x.iter_values, strict=True)
            }  # fmt: skip
            return [w for c in (x.block.init, x.block.body) if c is not None
                    for w in self.writes(c, loops, {**bound, **values}, x)]  # fmt: skip
        return [w for c in children(x) if isinstance(c, Stmt) for w in self.writes(c, loops, bound, realize)]

    def replacements(self, writes: list[_Write]) -> dict[Any, Stmt] | None:
        """For each outermost loop that fills the buffer in order, the loop over the new shape; None where one does more."""
        if not all(w.in_order and w.nest for w in writes):
            return None
        out: dict[Any, Stmt] = {}
        for w in writes:
            if w.nest[0] in out:
                continue
            made = _Filled(self, w).loops()
            if made is None:
                return None
            out[w.nest[0]] = made
        return out

    def axes(self, prefix: str = "") -> list[Var]:
        assert self.inverse is not None
        return [Var(f"{prefix}{v.name}", n.dtype) for v, n in zip(self.inverse.initial_indices, self.new.shape)]

    def is_padding(self, at: list[Var]) -> PrimExpr:
        assert self.inverse is not None
        return substitute(self.padding, dict(zip(self.inverse.initial_indices, at)))

    def value(self, at: list[Var]) -> PrimExpr:
        assert self.pad is not None
        (e,) = self.pad.final_indices
        if not free_vars(e):
            return e
        return cast(self.pad.apply(at)[0], self.old.dtype)

    def nest(self, name: str, body: Any, where: bool) -> Stmt:
        """Loops over the new shape around a block with the body `body(axes)`."""
        loops, axes = self.axes(), self.axes("v_")
        iters = tuple(
            IterVar(Range(IntImm(v.dtype, 0), n), v) for v, n in zip(axes, self.new.shape, strict=True)
        )  # fmt: skip
        name = self.s.unique(self.func, name)
        block = with_regions(Block(iters, (), (), name, body(axes)))
        realize: Stmt = BlockRealize(tuple(loops), self.is_padding(loops) if where else TRUE, block)
        return _wrapped(realize, loops, self.new.shape)

    def assumption(self) -> Stmt:
        """A block that says what the padding of an input holds."""

        def body(axes: list[Var]) -> Stmt:
            known = cmp(EQ, BufferLoad(self.new, tuple(axes)), self.value(axes))
            return Evaluate(build.assume(Or(logical_not(self.is_padding(axes)), known)))

        return self.nest(f"buffer_{self.old.name}_assumption", body, where=False)

    def epilogue(self) -> Stmt:
        """A block that sets the padding."""
        return self.nest(
            f"buffer_{self.old.name}_padding",
            lambda axes: BufferStore(self.new, self.value(axes), tuple(axes)),
            where=True,
        )


class _Filled:
    """Loops that only fill the buffer in order, made over to the new shape."""

    def __init__(self, layout: _Layout, write: _Write) -> None:
        self.layout, self.write = layout, write
        self.complete = True
        self.at: list[Var] = layout.axes()
        self.ana = Analyzer()
        for v, n in zip(self.at, layout.new.shape):
            self.ana.bind(v, Range(IntImm(v.dtype, 0), n))

    def loops(self) -> Stmt | None:
        """The new loops; None where the old ones do something else too."""
        assert self.layout.inverse is not None
        back = self.layout.inverse.apply(self.at)
        loop_vars = [p.loop_var for p in self.write.nest]
        body = self.visit(self.write.nest[-1].body, dict(zip(loop_vars, back)), loop_vars, self.at)
        if not self.complete:
            return None
        return _wrapped(body, self.at, self.layout.new.shape)

    def visit(self, x: Any, table: dict[Any, Any], olds: list[Any], at: list[Var]) -> Any:
        """`x` with the old indices `olds` (all of them the buffer's, in order) replaced by what they are at `at`."""
        if isinstance(x, BlockRealize):
            return self.realize(x, table, olds)
        if isinstance(x, BufferStore):
            if x.buffer is not self.layout.old or not _same(x.indices, olds):
                self.complete = False
                return x
            value = self.visit(x.value, table, olds, at)
            padded = if_then_else(self.layout.is_padding(at), self.layout.value(at), value)
            return BufferStore(self.layout.new, padded, tuple(at))
        if isinstance(x, BufferLoad) and x.buffer is self.layout.old:
            if _same(x.indices, olds):
                return BufferLoad(self.layout.new, tuple(at))
            indices = [self.visit(i, table, olds, at) for i in x.indices]
            return BufferLoad(self.layout.new, tuple(self.layout.map.map_indices(indices, self.ana)))
        if isinstance(x, PrimExpr) and not isinstance(x, BufferLoad):
            if any(isinstance(c, BufferLoad) for c in _below(x)):
                return x if x.identity else map_children(x, lambda c: self.visit(c, table, olds, at))
            return self.ana.simplify(substitute(x, table)) if any(v in table for v in free_vars(x)) else x
        if isinstance(x, Evaluate) and not isinstance(x.value, IntImm):
            self.complete = False
        return x if x.identity else map_children(x, lambda c: self.visit(c, table, olds, at))

    def realize(self, x: BlockRealize, table: dict[Any, Any], olds: list[Any]) -> BlockRealize:
        """A block with its iterators over the old indices replaced by iterators over the new ones."""
        layout = self.layout
        assert layout.inverse is not None
        by_value = {v: iv for iv, v in zip(x.block.iter_vars, x.iter_values, strict=True) if v in olds}
        if not all(v in by_value for v in olds):
            if by_value:
                self.complete = False
            b = x.block
            init = None if b.init is None else self.visit(b.init, table, olds, self.at)
            inner = replace(b, body=self.visit(b.body, table, olds, self.at), init=init, reads=_renamed(b.reads, layout),
                            writes=_renamed(b.writes, layout))  # fmt: skip
            bound = tuple(substitute(v, table) for v in x.iter_values)
            return BlockRealize(bound, substitute(x.predicate, table), with_regions(inner))
        axes = layout.axes("v_")
        for v, n in zip(axes, layout.new.shape):
            self.ana.bind(v, Range(IntImm(v.dtype, 0), n))
        own = {by_value[v].var: e for v, e in zip(olds, layout.inverse.apply(axes), strict=True)}
        inner_olds = [by_value[v].var for v in olds]
        iters: list[IterVar] = []
        values: list[PrimExpr] = []
        seen: list[IterVar] = []
        for iv, v in zip(x.block.iter_vars, x.iter_values, strict=True):
            if v not in olds:
                iters.append(iv)
                values.append(substitute(v, table))
            elif not own.keys() & {o.var for o in seen}:
                iters += [IterVar(Range(IntImm(a.dtype, 0), n), a) for a, n in zip(axes, layout.new.shape)]
                values += self.at
            seen.append(iv)
        kinds = {by_value[v].iter_type for v in olds}
        if kinds != {IterVar.DataPar}:
            self.complete = False
        b = x.block
        init = None if b.init is None else self.visit(b.init, own, inner_olds, axes)
        body = self.visit(b.body, own, inner_olds, axes)
        block = replace(b, iter_vars=tuple(iters), init=init, body=body, reads=_renamed(b.reads, layout),
                        writes=_renamed(b.writes, layout))  # fmt: skip
        return BlockRealize(tuple(values), substitute(x.predicate, table), with_regions(block))


def _renamed(regions: tuple[BufferRegion, ...], layout: _Layout) -> tuple[BufferRegion, ...]:
    """The regions' buffers in order, the old one replaced; their ranges are computed anew."""
    return tuple(replace(r, buffer=layout.new) if r.buffer is layout.old else r for r in regions)


def _is(e: PrimExpr, n: int) -> bool:
    return isinstance(e, IntImm) and e.value == n


def _same(indices: tuple[PrimExpr, ...], olds: list[Any]) -> bool:
    return len(indices) == len(olds) and all(a is b for a, b in zip(indices, olds))


def _wrapped(body: Stmt, loops: list[Var], shape: tuple[PrimExpr, ...]) -> Stmt:
    for v, n in zip(reversed(loops), reversed(shape), strict=True):
        body = For(v, IntImm(v.dtype, 0), n, ForKind.SERIAL, body)
    return body


def _below(x: Any) -> Any:
    from tilewright.ir.node import walk

    return walk(x)


def _swapped(x: Any, old: Any, new: Any) -> Any:
    if x is old:
        return new
    return map_children(x, lambda c: _swapped(c, old, new) if isinstance(c, Stmt) else c)
