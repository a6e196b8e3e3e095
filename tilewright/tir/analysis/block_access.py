"""The regions that a block reads and writes, from the accesses in its body.

Each access is relaxed over the loops inside the block: an index that is linear in their variables gives an exact range, any
other that mentions one gives the whole dimension. A block inside counts by its declared regions, with its axes replaced by
the values they are bound to. What a reduction block with an init writes is not counted among its reads.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tilewright.arith import expr as E
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.linear import linear
from tilewright.ir.node import INFO, Node
from tilewright.tir import ir as tir
from tilewright.tir.analysis.regions import RegionUnion, relax_atom

__all__ = ["block_access_regions"]

Box = tuple[E.PrimExpr, E.PrimExpr]


class _Hull(RegionUnion):
    """A union that is a minimum and a maximum where bounds do not differ by constants."""

    __slots__ = ("owner",)

    def __init__(self, buffer: tir.Buffer, owner: _Accesses) -> None:
        super().__init__(buffer)
        self.owner = owner

    def hull(self, a: Box, b: Box) -> Box | None:
        """The hull of two ranges."""
        found = super().hull(a, b)
        if found is not None:
            return found
        ana = self.owner.ana
        low = ana.simplify(E.minimum(a[0], b[0]))
        last = E.maximum(a[0] + (a[1] - 1), b[0] + (b[1] - 1))
        return low, ana.simplify(last + 1 - low)


class _Accesses:
    """What is touched, by buffer, in order of first access."""

    def __init__(self, local: set[tir.Buffer]) -> None:
        self.local = local  # buffers that live inside the block
        self.reads: dict[tir.Buffer, RegionUnion] = {}
        self.writes: dict[tir.Buffer, RegionUnion] = {}
        self.domains: dict[E.Var, Box] = {}  # loop variable inside the block -> (min, extent), of outer variables only
        self.lets: dict[E.Var, E.PrimExpr] = {}
        self.views: dict[tir.Buffer, tir.BufferRegion] = {}
        self.values: list[dict[E.Var, E.PrimExpr]] = []

    @cached_property
    def ana(self) -> Analyzer:
        """Made when a bound needs it: most blocks touch one point, or a box with plain bounds."""
        return Analyzer()

    def add(self, table: dict[tir.Buffer, RegionUnion], b: tir.Buffer, box: list[Box]) -> None:
        view = self.views.get(b)
        if view is not None:
            ranges = [(r.min, r.extent) for r in view.region]
            self.add(table, view.buffer, [self.relax(low, extent) or (low, extent) for low, extent in ranges])
            return
        if b in self.local:
            return
        union = table.get(b)
        if union is None:
            union = table[b] = _Hull(b, self)
        union.add([self.relax(low, extent) for low, extent in box])

    def point(self, table: dict[tir.Buffer, RegionUnion], b: tir.Buffer, indices: tuple[E.PrimExpr, ...]) -> None:
        self.add(table, b, [_lanes(i) for i in indices])

    def relax(self, low: E.PrimExpr, extent: E.PrimExpr) -> Box | None:
        """The range over all iterations of the inner loops; None where it is not known."""
        for _ in range(16):  # lets may refer to lets
            names = _variables(low)
            lets = {v: self.lets[v] for v in names if v in self.lets}
            if not lets:
                break
            low = _replace(low, lets)
        inner = [v for v in _variables(low) if v in self.domains]
        if any(v in self.domains or v in self.lets for v in _variables(extent)):
            return None
        if not inner:
            return low, extent
        form = linear(low)
        start, span = form.constant, 0
        symbolic: list[E.PrimExpr] = []
        wide: E.PrimExpr = extent
        for key, (atom, c) in form.terms.items():
            if isinstance(key, E.Var) and key in self.domains:
                first, size = self.domains[key]
                last = size - 1
                least = first if c > 0 else first + last
                if isinstance(least, E.IntImm):
                    start += least.value * c
                else:
                    symbolic.append(E.cast(least, low.dtype) * c)
                if isinstance(last, E.IntImm):
                    span += abs(c) * last.value
                else:
                    wide = wide + E.cast(last, extent.dtype) * abs(c)
            elif any(v in self.domains for v in _variables(atom)):
                inner_box = relax_atom(atom, self.domains)
                if inner_box is None:
                    return None
                begin, size = (self.ana.simplify(x) for x in inner_box)
                if any(v in self.domains for x in (begin, size) for v in _variables(x)):
                    return None
                least = begin if c > 0 else begin + (size - 1)
                if isinstance(least, E.IntImm):
                    start += least.value * c
                else:
                    symbolic.append(E.cast(least, low.dtype) * c)
                reach = size - 1
                if isinstance(reach, E.IntImm):
                    span += abs(c) * reach.value
                else:
                    wide = wide + E.cast(reach, extent.dtype) * abs(c)
            else:
                symbolic.append(atom * c)
        total: E.PrimExpr = E.IntImm(low.dtype, 0)
        for x in symbolic:
            total = total + x
        size = wide + span
        return total + start, size if isinstance(size, E.IntImm) else self.ana.simplify(size)

    # ---- the walk

    def visit(self, root: Any) -> None:
        """Walk statements and expressions; a loop or let is in scope for what is under it (names are unique objects)."""
        stack: list[Any] = [root]
        while stack:
            n = stack.pop()
            if isinstance(n, (tuple, list)):
                stack.extend(reversed(n))  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(n, tir.BlockRealize):
                self.block(n)
            elif isinstance(n, Node) and not n.identity:
                self.enter(n)
                below = [getattr(n, f.name) for f in n.node_fields if f.role != INFO and f.role != "DEF"]
                if isinstance(n, tir.BufferStore):
                    below = [n.value, n.indices]  # the reads of an update come first, as they happen
                stack.extend(reversed([x for x in below if isinstance(x, (Node, tuple))]))

    def enter(self, n: Any) -> None:
        if isinstance(n, tir.BufferLoad):
            self.point(self.reads, n.buffer, n.indices)
        elif isinstance(n, tir.BufferStore):
            self.point(self.writes, n.buffer, n.indices)
        elif isinstance(n, tir.For):
            box = self.relax(n.min, E.IntImm(n.min.dtype, 1))
            size = self.relax(n.extent, E.IntImm(n.extent.dtype, 1))
            if box is not None and size is not None and box[0] is n.min and size[0] is n.extent:
                self.domains[n.loop_var] = (n.min, n.extent)
            else:
                self.domains[n.loop_var] = self._bounds(n)
        elif isinstance(n, (tir.LetStmt, E.Let)):
            self.lets[n.var] = n.value
        elif isinstance(n, tir.Allocate):
            self._local_pointer(n.buffer_var)
        elif isinstance(n, (tir.DeclBuffer, tir.BufferRealize)):
            self.local.add(n.buffer)

    def _bounds(self, loop: tir.For) -> Box:
        """A loop whose bounds depend on inner loops: from the least start to the greatest end."""
        first = self.relax(loop.min, E.IntImm(loop.min.dtype, 1))
        last = self.relax(loop.min + loop.extent, E.IntImm(loop.min.dtype, 1))
        if first is None or last is None:
            raise ValueError(
                f"the bounds of the loop over {loop.loop_var.name} are not linear; write T.reads and T.writes"
            )
        return first[0], last[0] + last[1] - 1 - first[0]

    def _local_pointer(self, v: E.Var) -> None:
        self.lets.pop(v, None)

    def block(self, realize: tir.BlockRealize) -> None:
        """A block inside: its declared regions, in terms of what is outside it."""
        b = realize.block
        axes = {v.var: value for v, value in zip(b.iter_vars, realize.iter_values, strict=True)}
        self.visit([*realize.iter_values, realize.predicate])
        for table, regions in ((self.reads, b.reads), (self.writes, b.writes)):
            for r in regions:
                box = [(_replace(x.min, axes), _replace(x.extent, axes)) for x in r.region]
                self.add(table, r.buffer, box)


def _lanes(i: E.PrimExpr) -> Box:
    """The scalars that a vector index covers."""
    if isinstance(i, E.Ramp):
        stride = i.stride
        if isinstance(stride, E.IntImm) and stride.value >= 0:
            return i.base, E.IntImm(i.base.dtype, stride.value * (i.lanes - 1) + 1)
        raise ValueError("a vector index with a stride that is not a constant; write T.reads and T.writes")
    if isinstance(i, E.Broadcast):
        return i.value, E.IntImm(i.value.dtype, 1)
    return i, E.IntImm(i.dtype, 1)


def _variables(e: Any) -> list[E.Var]:
    out: list[E.Var] = []
    stack: list[Any] = [e]
    while stack:
        n = stack.pop()
        if isinstance(n, E.Var):
            out.append(n)
        elif isinstance(n, (tuple, list)):
            stack.extend(n)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(n, Node) and not isinstance(n, tir.Buffer):
            stack.extend(getattr(n, f.name) for f in n.node_fields if f.role != INFO)
    return out


def _replace(e: E.PrimExpr, values: dict[E.Var, E.PrimExpr]) -> E.PrimExpr:
    from tilewright.ir.rewrite import substitute

    if isinstance(e, E.IntImm):
        return e
    if isinstance(e, E.Var):
        return values.get(e, e)
    return substitute(e, values) if any(v in values for v in _variables(e)) else e


def block_access_regions(block: tir.Block) -> tuple[tuple[tir.BufferRegion, ...], tuple[tir.BufferRegion, ...]]:
    """The regions read and written by the body and init of a block, in terms of its axes and what is outside it.

    Raises ValueError where they cannot be told.
    """
    found = _Accesses(set(block.alloc_buffers))
    for m in block.match_buffers:
        found.views[m.buffer] = m.source
    if block.init is not None:
        found.visit(block.init)
    found.visit(block.body)
    writes = tuple(tir.BufferRegion(b, u.ranges()) for b, u in found.writes.items())
    hidden = set(found.writes) if block.init is not None else set[tir.Buffer]()
    reads = tuple(tir.BufferRegion(b, u.ranges()) for b, u in found.reads.items() if b not in hidden)
    return reads, writes
