"""Which parts of which buffers a piece of IR touches.

A region is a box, one range a dimension, in terms of variables that the piece does not bind. Unions are boxes too: the
hull, exact where the bounds differ by constants, else the whole dimension. Loops inside the piece are relaxed: `A[i*4 + j]`
over `j` in [0, 4) is `A[i*4 : i*4 + 4]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.linear import difference, expr_key, linear
from tilewright.ir.node import Node, children
from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    LetStmt,
    MatchBufferRegion,
    Range,
    Stmt,
)  # fmt: skip

__all__ = [
    "Box",
    "RegionUnion",
    "accesses",
    "detect_access",
    "get_block_access_region",
    "get_block_read_write_region",
    "relax_atom",
    "relax_range",
]

Box = list[tuple[PrimExpr, PrimExpr] | None]
"""(start, extent) a dimension; None stands for the whole dimension."""


class RegionUnion:
    """The hull of what is touched of one buffer. In each dimension: a start and a constant or symbolic extent, or all."""

    __slots__ = ("buffer", "dims", "points")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.dims: Box | None = None
        self.points: set[object] = set()

    def add_point(self, indices: tuple[PrimExpr, ...]) -> None:
        """Add one element."""
        key = tuple(expr_key(i) for i in indices)
        if key in self.points:
            return
        self.points.add(key)
        self.add([(i, IntImm(i.dtype, 1)) for i in indices])

    def add(self, box: Box) -> None:
        """Add a box."""
        if self.dims is None:
            self.dims = list(box)
            return
        for d, (old, new) in enumerate(zip(self.dims, box, strict=True)):
            if old is not None and old is not new and not _same_point(old, new):
                self.dims[d] = None if new is None else self.hull(old, new)

    def hull(self, a: tuple[PrimExpr, PrimExpr], b: tuple[PrimExpr, PrimExpr]) -> tuple[PrimExpr, PrimExpr] | None:
        """The hull of two ranges; None for all of the dimension."""
        return _hull(a, b)

    def ranges(self) -> tuple[Range, ...]:
        """The hull as ranges."""
        out: list[Range] = []
        for d, n in zip(self.dims or (), self.buffer.shape, strict=False):
            out.append(Range(IntImm(n.dtype, 0), n) if d is None else Range(d[0], d[1]))
        return tuple(out)

    def region(self) -> BufferRegion:
        """The hull as a region of the buffer."""
        return BufferRegion(self.buffer, self.ranges())


def _same_point(a: tuple[PrimExpr, PrimExpr], b: tuple[PrimExpr, PrimExpr] | None) -> bool:
    """One and the same start, and extents that are equal constants?"""
    if b is None or a[0] is not b[0]:
        return False
    return a[1] is b[1] or (isinstance(a[1], IntImm) and isinstance(b[1], IntImm) and a[1].value == b[1].value)


def _hull(a: tuple[PrimExpr, PrimExpr], b: tuple[PrimExpr, PrimExpr]) -> tuple[PrimExpr, PrimExpr] | None:
    """The hull of two ranges, or None when their starts or ends do not differ by a constant."""
    gap = difference(b[0], a[0])
    ends = None if gap is None else difference(b[0] + b[1], a[0] + a[1])
    if gap is None or ends is None:
        return None
    start = a if gap >= 0 else b
    if ends > 0:  # b ends later: its extent, and the distance of the starts if a begins earlier
        return start[0], b[1] + max(gap, 0)
    return start[0], a[1] + max(-gap, 0)


# ---- relaxing an index over loops ----------------------------------------------------------------------------------------


def relax_range(
    start: PrimExpr, extent: PrimExpr, domains: Mapping[Var, tuple[PrimExpr, PrimExpr]]
) -> tuple[PrimExpr, PrimExpr] | None:
    """The hull of [start, start + extent) while variables run over `domains` (start, extent); None where it is not known.

    Exact for linear indices with coefficients over constant or symbolic extents; quotients and remainders by constants
    over linear arguments are bounded.
    """
    lin = linear(start)
    low: PrimExpr = IntImm(start.dtype, lin.constant)
    width: PrimExpr = extent
    for key, (atom, c) in lin.terms.items():
        domain = domains.get(key) if isinstance(atom, Var) else None
        if domain is not None:
            begin, n = (ex.cast(x, start.dtype) for x in domain)
            reach = (n - 1) * abs(c)
            low = low + (begin * c if c > 0 else (begin + (n - 1)) * c)
            width = width + reach
        elif isinstance(atom, Var) or not _mentions(atom, domains):
            low = low + atom * c
        else:
            inner = relax_atom(atom, domains)
            if inner is None:
                return None
            begin, n = inner
            low = low + (begin * c if c > 0 else (begin + (n - 1)) * c)
            width = width + (n - 1) * abs(c)
    return low, width


def relax_atom(atom: PrimExpr, domains: Mapping[Var, tuple[PrimExpr, PrimExpr]]) -> tuple[PrimExpr, PrimExpr] | None:
    """(start, extent) of a quotient, remainder, minimum or maximum while variables run."""
    one = IntImm(atom.dtype, 1)
    if isinstance(atom, (ex.FloorDiv, ex.FloorMod)) and isinstance(atom.b, IntImm) and atom.b.value > 0:
        c = atom.b.value
        inner = relax_range(atom.a, one, domains)
        if isinstance(atom, ex.FloorMod):
            if inner is not None and isinstance(inner[0], IntImm) and isinstance(inner[1], IntImm):
                first = inner[0].value % c
                if first + inner[1].value <= c:
                    return IntImm(atom.dtype, first), inner[1]
            if inner is not None and isinstance(inner[1], IntImm):
                step, rest = _spacing(inner[0], c)
                if rest + inner[1].value <= step:  # never over a multiple of c
                    return inner[0] % c, inner[1]
            return IntImm(atom.dtype, 0), atom.b
        if inner is None:
            return None
        begin, n = inner[0] // c, (inner[0] + (inner[1] - 1)) // c
        gap = difference(n, begin)
        if gap is not None:
            return begin, IntImm(atom.dtype, gap + 1)
        if isinstance(inner[1], IntImm):  # a window of n elements touches at most this many blocks of c
            step, rest = _spacing(inner[0], c)
            return begin, IntImm(atom.dtype, (c - step + rest + inner[1].value - 1) // c + 1)
        return None
    if isinstance(atom, (ex.Min, ex.Max)):
        a, b = relax_range(atom.a, one, domains), relax_range(atom.b, one, domains)
        if a is None or b is None:
            return None
        f = ex.minimum if isinstance(atom, ex.Min) else ex.maximum
        low = f(a[0], b[0])
        high = f(a[0] + (a[1] - 1), b[0] + (b[1] - 1))
        return low, high - low + 1
    if isinstance(atom, ex.Cast):
        inner = relax_range(atom.value, IntImm(atom.value.dtype, 1), domains)
        return None if inner is None else (ex.cast(inner[0], atom.dtype), ex.cast(inner[1], atom.dtype))
    return None


def _spacing(e: PrimExpr, c: int) -> tuple[int, int]:
    """(g, r): the values of `e` are r modulo g, g a divisor of `c`."""
    lin = linear(e)
    g = gcd(c, *(k for _, k in lin.terms.values()))
    return g, lin.constant % g


def _mentions(e: Any, domains: Mapping[Var, Any]) -> bool:
    if isinstance(e, Var):
        return e in domains
    if isinstance(e, Node):
        if isinstance(e, BufferLoad):
            return any(_mentions(i, domains) for i in e.indices)
        return any(_mentions(c, domains) for c in children(e))
    return False


# ---- finding accesses ----------------------------------------------------------------------------------------------------


class _Accesses:
    """Gathers the accesses of a statement, relaxed over the loops inside it."""

    def __init__(self, outer: Mapping[Var, tuple[PrimExpr, PrimExpr]] | None = None) -> None:
        self.reads: dict[Buffer, RegionUnion] = {}
        self.writes: dict[Buffer, RegionUnion] = {}
        self.opaque: dict[Buffer, RegionUnion] = {}
        self.domains: dict[Var, tuple[PrimExpr, PrimExpr]] = dict(outer or {})
        self.lets: dict[Var, PrimExpr] = {}
        self.matches: dict[Buffer, MatchBufferRegion] = {}
        self.own: set[Buffer] = set()

    def visit(self, n: Any) -> None:
        if isinstance(n, Stmt):
            self.stmt(n)
        elif isinstance(n, PrimExpr):
            self.expr(n)

    def stmt(self, s: Stmt) -> None:
        if isinstance(s, For):
            self.expr(s.min)
            self.expr(s.extent)
            self.domains[s.loop_var] = self.closed(s.min, s.extent)
            self.stmt(s.body)
            del self.domains[s.loop_var]
        elif isinstance(s, BufferStore):
            self.touch(self.writes, s.buffer, s.indices)
            self.expr(s.value)
            for i in s.indices:
                self.expr(i)
        elif isinstance(s, LetStmt):
            self.expr(s.value)
            self.lets[s.var] = substitute(s.value, self.lets)
            self.stmt(s.body)
        elif isinstance(s, BlockRealize):
            self.nested_block(s)
        elif isinstance(s, Block):
            self.block_body(s)
        else:
            for c in children(s):
                self.visit(c)

    def closed(self, low: PrimExpr, extent: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """A loop's domain in terms of variables that are not bound inside."""
        if not self.domains:
            return low, extent
        begin = relax_range(low, IntImm(low.dtype, 1), self.domains)
        size = relax_range(extent, IntImm(extent.dtype, 1), self.domains)
        if begin is None or size is None:
            return low, extent
        return begin[0], size[0] + size[1] - 1 + (begin[1] - 1)

    def block_body(self, b: Block) -> None:
        self.own.update(b.alloc_buffers)
        for m in b.match_buffers:
            self.matches[m.buffer] = m
        if b.init is not None:
            self.stmt(b.init)
        self.stmt(b.body)

    def nested_block(self, s: BlockRealize) -> None:
        """A block inside: its declared regions at its iterators' values."""
        b = s.block
        for v in s.iter_values:
            self.expr(v)
        self.expr(s.predicate)
        if not (b.reads or b.writes):
            for iv, value in zip(b.iter_vars, s.iter_values, strict=True):
                self.lets[iv.var] = substitute(value, self.lets)
            self.block_body(b)
            return
        values = {iv.var: substitute(v, self.lets) for iv, v in zip(b.iter_vars, s.iter_values, strict=True)}
        for table, regions in ((self.reads, b.reads), (self.writes, b.writes)):
            for r in regions:
                self.box(table, r.buffer, [(substitute(d.min, values), substitute(d.extent, values)) for d in r.region])

    def expr(self, e: Any) -> None:
        if isinstance(e, BufferLoad):
            self.touch(self.reads, e.buffer, e.indices)
            for i in e.indices:
                self.expr(i)
        elif isinstance(e, ex.Call) and getattr(e.op, "name", "") in ("tir.address_of", "tir.tvm_access_ptr"):
            self.pointer(e)
        elif isinstance(e, ex.Let):
            self.expr(e.value)
            self.lets[e.var] = substitute(e.value, self.lets)
            self.expr(e.body)
        elif not isinstance(e, (Var, IntImm)):
            for c in children(e):
                if isinstance(c, Buffer):
                    self.box(self.opaque, c, [None] * c.ndim)
                else:
                    self.expr(c)

    def pointer(self, e: ex.Call) -> None:
        """Memory handed out as a pointer: all of the buffer may be read and written."""
        for a in e.args:
            if isinstance(a, BufferLoad):
                self.box(self.opaque, a.buffer, [None] * a.buffer.ndim)

    def touch(self, table: dict[Buffer, RegionUnion], b: Buffer, indices: tuple[PrimExpr, ...]) -> None:
        box: Box = []
        for i in indices:
            if isinstance(i, ex.Ramp) and isinstance(i.stride, IntImm):
                reach = i.stride.value * (i.lanes - 1)
                start = i.base if reach >= 0 else i.base + reach
                box.append((start, IntImm(start.dtype, abs(reach) + 1)))
            elif isinstance(i, ex.Broadcast):
                box.append((i.value, IntImm(i.value.dtype, 1)))
            elif "x" in i.dtype:
                box.append(None)
            else:
                box.append((i, IntImm(i.dtype, 1)))
        self.box(table, b, box)

    def box(self, table: dict[Buffer, RegionUnion], b: Buffer, box: Box) -> None:
        match = self.matches.get(b)
        if match is not None:
            box, b = self.through(match, box), match.source.buffer
        if b in self.own:
            return
        relaxed: Box = []
        for d in box:
            if d is None:
                relaxed.append(None)
                continue
            start, extent = (substitute(x, self.lets) for x in d) if self.lets else d
            relaxed.append(relax_range(start, extent, self.domains) if self.domains else (start, extent))
        found = table.get(b)
        if found is None:
            found = table[b] = RegionUnion(b)
        found.add(relaxed)

    def through(self, m: MatchBufferRegion, box: Box) -> Box:
        """A box of a match_buffer as one of its source."""
        region = m.source.region
        skip = len(region) - len(box)
        out: Box = [(r.min, r.extent) for r in region[:skip]]
        for d, r in zip(box, region[skip:], strict=True):
            out.append((r.min, r.extent) if d is None else (r.min + d[0], d[1]))
        return out


def accesses(
    stmt: Stmt, domains: Mapping[Var, tuple[PrimExpr, PrimExpr]] | None = None
) -> tuple[dict[Buffer, RegionUnion], dict[Buffer, RegionUnion], dict[Buffer, RegionUnion]]:
    """(reads, writes, handed out as pointers) of a statement, by buffer, relaxed over the loops inside and `domains`."""
    found = _Accesses(domains)
    found.visit(stmt)
    return found.reads, found.writes, found.opaque


def get_block_access_region(
    block: Block, buffer_var_map: Mapping[Var, Buffer] | None = None
) -> list[list[BufferRegion]]:
    """[reads, writes, opaque] of a block's body, in terms of its iterators.

    The reads leave out what an update reads of the element that it writes (a reduction's own accumulator), as the
    declared regions of blocks do. `opaque` are buffers that only escape as pointers.
    """
    del buffer_var_map
    found = _Accesses()
    found.block_body(block)
    reads = [u.region() for b, u in found.reads.items() if not _same_region(u, found.writes.get(b))]
    return [reads, [u.region() for u in found.writes.values()], [u.region() for u in found.opaque.values()]]


def _same_region(a: RegionUnion, b: RegionUnion | None) -> bool:
    return b is not None and expr_key(a.ranges()) == expr_key(b.ranges())


def get_block_read_write_region(
    block: Block, buffer_var_map: Mapping[Var, Buffer] | None = None
) -> list[list[BufferRegion]]:
    """[reads, writes] of a block's body; a buffer that escapes as a pointer counts as both."""
    reads, writes, opaque = get_block_access_region(block, buffer_var_map)
    return [reads + opaque, writes + opaque]


detect_access = get_block_access_region
