"""Each buffer becomes as small as what is accessed of it while it lives.

    for i in range(16):                                    for i in range(16):
        B = alloc(16, 16)                                      B = alloc(1, 16)
        for j in range(16): B[i, j] = A[i, j] + 1     ▶        for j in range(16): B[i - i, j] = A[i, j] + 1

What is accessed is the hull of all accesses, relaxed over the loops between the allocation and the access (for shared memory
over the thread indices too, whichever loop they are bound at). Branches and predicates narrow the loops. A buffer whose
pointer escapes stays as it is. `is_strict`: accesses outside of the buffer do not count, the new extents are never greater
than the old ones.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var, cast, const, maximum, minimum
from tilewright.arith.linear import linear
from tilewright.ir import dtype as dt
from tilewright.ir.node import children, map_children, replace, walk
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import substitute
from tilewright.tir import ir as t
from tilewright.tir.analysis.regions import relax_range
from tilewright.tir.lower.lower_blocks import allocation_shape
from tilewright.tir.transform.base import BufferMutator, func_pass

__all__ = ["CompactBufferAllocation", "compact_buffers"]

_ALIGN = "buffer_dim_align"
Box = "list[tuple[PrimExpr, PrimExpr] | None]"
Domain = "tuple[PrimExpr, PrimExpr]"


def compact_buffers(f: t.PrimFunc, is_strict: bool = True) -> t.PrimFunc:
    """The function with its buffers as small as what is accessed of them."""
    run = _Collector(f, is_strict)
    run.stmt(f.body)
    regions = run.result()
    if not regions:
        return f
    body = _Compactor(regions, run.aligns).visit(f.body)
    return f if body is f.body else f.with_body(body)


class _Collector:
    """Finds the region of each allocated buffer that is accessed."""

    def __init__(self, f: t.PrimFunc, strict: bool) -> None:
        self.strict = strict
        self.ana = Analyzer()
        self.loops: list[tuple[Var, str]] = []
        """The loops around, from the outermost in: variable and thread tag."""
        self.domains: dict[Var, Any] = {}
        self.lets: dict[Var, PrimExpr] = {}
        self.depth: dict[t.Buffer, int] = {}
        self.owner: dict[Var, t.Buffer] = {}
        self.views: dict[t.Buffer, t.BufferRegion] = {}
        self.boxes: dict[t.Buffer, Any] = {}
        self.escaped: set[Var] = set()
        self.aligns: dict[Var, dict[int, tuple[int, int]]] = {}
        self.given: list[dict[t.Buffer, bool]] = []
        self.blocks: list[t.Block] = []
        self.sums: list[tuple[dict[Any, tuple[PrimExpr, int]], Var]] = []
        """Sums of loop variables that a condition bounds, each with a variable that stands for it."""
        self.loop_vars: set[Var] = set()
        self.pending: dict[Var, t.Allocate] = {}
        for b in f.buffer_map.values():
            for n in b.shape:
                if isinstance(n, Var):
                    self.ana.mark_global_non_neg_value(n)

    # ---- statements --------------------------------------------------------------------------------------------------------

    def stmt(self, s: t.Stmt) -> None:
        method = getattr(self, "s_" + type(s).__name__, None)
        if method is not None:
            method(s)
            return
        for c in children(s):
            if isinstance(c, t.Stmt):
                self.stmt(c)
            elif isinstance(c, PrimExpr):
                self.expr(c)

    def loop(self, var: Var, low: PrimExpr, extent: PrimExpr, tag: str, body: t.Stmt) -> None:
        self.domains[var] = (low, extent)
        self.loop_vars.add(var)
        self.ana.bind(var, t.Range(low, extent))
        self.loops.append((var, tag))
        self.stmt(body)
        self.loops.pop()

    def s_For(self, s: t.For) -> None:
        self.expr(s.min)
        self.expr(s.extent)
        tag = s.thread_binding.thread_tag if s.thread_binding is not None else ""
        self.loop(s.loop_var, s.min, s.extent, tag, s.body)

    def s_AttrStmt(self, s: t.AttrStmt) -> None:
        self.expr(s.value)
        if isinstance(s.node, t.IterVar) and s.attr_key in ("thread_extent", "virtual_thread"):
            zero = const(0, s.node.var.dtype)
            self.loop(s.node.var, zero, cast(s.value, s.node.var.dtype), s.node.thread_tag, s.body)
        else:
            self.stmt(s.body)

    def s_LetStmt(self, s: t.LetStmt) -> None:
        self.expr(s.value)
        self.lets[s.var] = substitute(s.value, self.lets)
        self.stmt(s.body)

    def s_Allocate(self, s: t.Allocate) -> None:
        self.pending[s.buffer_var] = s
        for row in s.annotations.get(_ALIGN, ()):
            self.align(s.buffer_var, row)
        self.stmt(s.body)

    def s_DeclBuffer(self, s: t.DeclBuffer) -> None:
        b = s.buffer
        if b.data in self.pending:
            self.own(b)
        self.stmt(s.body)

    def own(self, b: t.Buffer) -> None:
        if b.data in self.owner and self.owner[b.data] is not b:
            self.escaped.add(b.data)
        self.owner[b.data] = b
        self.depth[b] = len(self.loops)

    def align(self, data: Var, row: Any) -> None:
        _, axis, factor, offset = (int(x) for x in row)
        self.aligns.setdefault(data, {})[axis] = (factor, offset)

    def s_IfThenElse(self, s: t.IfThenElse) -> None:
        self.expr(s.condition)
        with self.under(s.condition):
            self.stmt(s.then_case)
        if s.else_case is not None:
            with self.under(ex.Not(s.condition)):
                self.stmt(s.else_case)

    def s_BlockRealize(self, s: t.BlockRealize) -> None:
        b = s.block
        for e in (*s.iter_values, s.predicate):
            self.expr(e)
        for iv, value in zip(b.iter_vars, s.iter_values, strict=True):
            self.lets[iv.var] = substitute(value, self.lets)
        for buffer in b.alloc_buffers:
            self.own(buffer)
        with self.under(s.predicate):
            self.block(b)

    def block(self, b: t.Block) -> None:
        for m in b.match_buffers:
            self.views[m.buffer] = m.source
            self.touch(m.source.buffer, [(r.min, r.extent) for r in m.source.region])
        for row in b.annotations.get(_ALIGN, ()):
            self.align(b.writes[int(row[0])].buffer.data, row)
        given: dict[t.Buffer, bool] = {}
        for key, regions in (("explicit_read_region", b.reads), ("explicit_write_region", b.writes)):
            for index in b.annotations.get(key, ()):
                r = regions[int(index)]
                given[r.buffer] = True
                self.touch(r.buffer, [(x.min, x.extent) for x in r.region])
        self.given.append(given)
        self.blocks.append(b)
        if b.init is not None:
            self.stmt(b.init)
        self.stmt(b.body)
        self.blocks.pop()
        self.given.pop()

    def s_BufferStore(self, s: t.BufferStore) -> None:
        self.point(s.buffer, s.indices)
        self.expr(s.value)
        for i in s.indices:
            self.expr(i)

    # ---- expressions -------------------------------------------------------------------------------------------------------

    def expr(self, e: Any) -> None:
        if isinstance(e, Var):
            if e.dtype == "handle":
                self.pointer(e)
        elif isinstance(e, t.BufferLoad):
            self.point(e.buffer, e.indices)
            for i in e.indices:
                self.expr(i)
        elif isinstance(e, ex.Select) or (isinstance(e, ex.Call) and getattr(e.op, "name", "") == "tir.if_then_else"):
            c, yes, no = e.args if isinstance(e, ex.Call) else (e.condition, e.true_value, e.false_value)
            self.expr(c)
            with self.under(c):
                self.expr(yes)
            with self.under(ex.Not(c)):
                self.expr(no)
        elif isinstance(e, ex.Let):
            self.expr(e.value)
            self.lets[e.var] = substitute(e.value, self.lets)
            self.expr(e.body)
        elif isinstance(e, ex.Call):
            self.call(e)
        elif not isinstance(e, IntImm):
            for c in children(e):
                self.expr(c)

    def call(self, e: ex.Call) -> None:
        for a in e.args:
            if isinstance(a, t.BufferLoad) and getattr(e.op, "name", "") == "tir.address_of":
                self.pointer(a.buffer.data)
                for i in a.indices:
                    self.expr(i)
            elif isinstance(a, t.BufferRegion):
                self.touch(a.buffer, [(r.min, r.extent) for r in a.region])
            elif isinstance(a, t.Buffer):
                self.pointer(a.data)
            elif isinstance(a, PrimExpr):
                self.expr(a)

    # ---- accesses ----------------------------------------------------------------------------------------------------------

    def pointer(self, data: Var) -> None:
        """Memory handed out as a pointer: what the block around declares of it is touched, else all of it."""
        found = [(r.buffer, r.region) for b in self.blocks[-1:] for r in (*b.reads, *b.writes) if r.buffer.data is data]
        if not found:
            self.escaped.add(data)
        for buffer, region in found:
            self.touch(buffer, [(r.min, r.extent) for r in region])

    def point(self, b: t.Buffer, indices: tuple[PrimExpr, ...]) -> None:
        if any(b in g for g in self.given):
            return
        if b.data in self.owner or b in self.views:
            self.touch(b, [_lanes(i) for i in indices])

    def touch(self, b: t.Buffer, box: list[tuple[PrimExpr, PrimExpr] | None]) -> None:
        region = self.views.get(b)
        if region is not None:
            skip = len(region.region) - len(box)
            outer: list[tuple[PrimExpr, PrimExpr] | None] = [(r.min, r.extent) for r in region.region[:skip]]
            for d, r in zip(box, region.region[skip:], strict=True):
                outer.append((r.min, r.extent) if d is None else (r.min + d[0], d[1]))
            self.touch(region.buffer, outer)
            return
        if b not in self.depth:
            if b.data in self.owner:
                self.escaped.add(b.data)  # another view of the memory
            return
        domains = self.relaxed(b)
        relaxed = [None if d is None else self.relax(d, domains, b.shape[n]) for n, d in enumerate(box)]
        old = self.boxes.get(b)
        self.boxes[b] = relaxed if old is None else [self.union(x, y) for x, y in zip(old, relaxed, strict=True)]

    def relaxed(self, b: t.Buffer) -> dict[Var, Any]:
        """The loops that an access at hand is relaxed over."""
        out: dict[Var, Any] = {}
        scope = b.scope()
        for n, (var, tag) in enumerate(self.loops):
            if n >= self.depth[b] if not tag else (n >= self.depth[b] and tag == "") or _shared_by(scope, tag):
                out[var] = self.domains[var]
        return out

    def relax(self, d: tuple[PrimExpr, PrimExpr], domains: dict[Var, Any], whole: PrimExpr) -> Any:
        start, extent = (substitute(x, self.lets) for x in d) if self.lets else d
        if any(isinstance(x, (t.BufferLoad, ex.Call)) for x in walk(start)):
            return None
        inner: dict[Var, Any] = {}
        for var, (low, n) in domains.items():
            a, c = relax_range(low, IntImm(low.dtype, 1), inner), relax_range(n, IntImm(n.dtype, 1), inner)
            if a is None or c is None:
                return None
            size = c[0] + (c[1] - 1) + (a[1] - 1)
            inner[var] = (a[0], self.ana.simplify(size))
        if self.sums:
            start, inner = self.with_sums(start, inner)
        found = relax_range(start, extent, inner)
        if found is None:
            return None
        low, n = self.ana.simplify(found[0]), self.ana.simplify(found[1])
        if any(v in domains or v in inner for x in (low, n) for v in walk(x) if isinstance(v, Var)):
            return None
        low, n = self.clip(start, extent, low, n, domains)
        return low, n

    def with_sums(self, start: PrimExpr, inner: dict[Var, Any]) -> tuple[PrimExpr, dict[Var, Any]]:
        """An index in terms of the sums that conditions bound, where these are relaxed as a whole."""
        inner = dict(inner)
        for terms, var in self.sums:
            if not all(isinstance(a, Var) and a in inner for a, _ in terms.values()):
                continue
            total: PrimExpr = const(0, var.dtype)
            for a, k in terms.values():
                total = total + cast(a, var.dtype) * k
            whole = relax_range(total, IntImm(var.dtype, 1), inner)
            if whole is None or not isinstance(whole[0], IntImm) or not isinstance(whole[1], IntImm):
                continue
            first, last = self.domains[var]
            low = max(whole[0].value, first.value) if isinstance(first, IntImm) else whole[0].value
            high = whole[0].value + whole[1].value - 1
            high = min(high, last.value) if isinstance(last, IntImm) else high
            new = _with_sum(start, terms, var)
            if new is not start:
                start = new
                inner[var] = (IntImm(var.dtype, low), IntImm(var.dtype, max(high - low + 1, 0)))
        return start, inner

    def clip(self, start: Any, extent: Any, low: Any, n: Any, domains: Any) -> tuple[PrimExpr, PrimExpr]:
        """What the conditions around say about the index itself."""
        del domains
        if not self.conditions or not isinstance(low, IntImm) or not isinstance(n, IntImm):
            return low, n
        first, last = low.value, low.value + n.value - 1
        bound = self.ana.const_int_bound(start)
        wide = self.ana.const_int_bound(extent).max_value
        first = max(first, bound.min_value)
        last = min(last, bound.max_value + wide - 1)
        return IntImm(low.dtype, first), IntImm(n.dtype, max(last - first + 1, 0))

    def union(self, a: Any, b: Any) -> Any:
        """The hull of two ranges; None (all) where it cannot be told."""
        if a is None or b is None:
            return None
        for x, y in ((a, b), (b, a)):
            if isinstance(x[1], IntImm) and x[1].value == 0:
                return y
        low = self.least(a[0], b[0])
        ends = a[0] + a[1], b[0] + b[1]
        high = self.least(*ends, greatest=True)
        return low, self.ana.simplify(high - low)

    def least(self, a: PrimExpr, b: PrimExpr, greatest: bool = False) -> PrimExpr:
        if self.ana.can_prove(a <= b):
            return b if greatest else a
        if self.ana.can_prove(a >= b):
            return a if greatest else b
        return maximum(a, b) if greatest else minimum(a, b)

    # ---- conditions --------------------------------------------------------------------------------------------------------

    conditions = 0

    @contextmanager
    def under(self, condition: PrimExpr) -> Generator[None]:
        """In the body of the `with`, the condition holds: loops are narrowed."""
        parts = list(_conjuncts(substitute(condition, self.lets) if self.lets else condition))
        if not parts:
            yield
            return
        saved, sums = dict(self.domains), len(self.sums)
        self.conditions += 1
        with self.ana.constraint_scope(_all(parts)):
            for c in parts:
                self.narrow(c)
            yield
        self.conditions -= 1
        self.domains = saved
        del self.sums[sums:]

    def narrow(self, c: PrimExpr) -> None:
        """`x + rest <= 0` and the like bound x, where the bounds of the rest are known."""
        if not isinstance(c, (ex.LT, ex.LE, ex.GT, ex.GE, ex.EQ)) or not dt.is_int(c.a.dtype):
            return
        form = linear(ex.Sub(c.a, c.b))
        if len(form.terms) > 1 and not isinstance(c, ex.EQ):
            self.bound_sum(form.terms, form.constant, c)
        for key, (atom, k) in form.terms.items():
            if not isinstance(atom, Var) or atom not in self.domains or abs(k) != 1:
                continue
            rest: PrimExpr = const(form.constant, atom.dtype)
            for other, (e, n) in form.terms.items():
                if other is not key:
                    rest = rest + cast(e, atom.dtype) * n
            value = rest * -k  # x compared with value, the comparison turned around where k < 0
            self.narrow_var(atom, type(c), value, k)

    def bound_sum(self, terms: dict[Any, tuple[PrimExpr, int]], constant: int, c: PrimExpr) -> None:
        """Note that `sum(terms) + constant` compares with 0; the sum's first coefficient is made positive."""
        loops = {k: v for k, v in terms.items() if isinstance(v[0], Var) and v[0] in self.domains}
        if len(loops) != len(terms):
            return
        sign = 1 if next(iter(terms.values()))[1] > 0 else -1
        kind: Any = type(c)
        if sign < 0:
            kind = {ex.LT: ex.GT, ex.LE: ex.GE, ex.GT: ex.LT, ex.GE: ex.LE}[kind]
        limit = -constant * sign + (-1 if kind is ex.LT else 1 if kind is ex.GT else 0)
        dtype = next(iter(terms.values()))[0].dtype
        var, none = Var("sum", dtype), Var("none", dtype)
        ends = (none, IntImm(dtype, limit)) if kind in (ex.LT, ex.LE) else (IntImm(dtype, limit), none)
        self.domains[var] = ends
        self.sums.append(({k: (a, n * sign) for k, (a, n) in terms.items()}, var))

    def narrow_var(self, v: Var, kind: type, value: PrimExpr, k: int) -> None:
        low, extent = self.domains[v]
        last = low + (extent - 1)
        inner = {x: d for x, d in self.domains.items() if x is not v}
        relaxed = (
            relax_range(value, IntImm(value.dtype, 1), inner)
            if _uses(value, inner)
            else (value, IntImm(value.dtype, 1))
        )
        if relaxed is None:
            return
        least, most = relaxed[0], relaxed[0] + (relaxed[1] - 1)
        upper = kind in ((ex.LT, ex.LE) if k > 0 else (ex.GT, ex.GE)) or kind is ex.EQ
        lower = kind in ((ex.GT, ex.GE) if k > 0 else (ex.LT, ex.LE)) or kind is ex.EQ
        strict = int(kind in (ex.LT, ex.GT))
        if upper:
            last = self.least(last, self.ana.simplify(most - strict))
        if lower:
            low = self.least(low, self.ana.simplify(least + strict), greatest=True)
        size = self.ana.simplify(last - low + 1)
        if isinstance(size, IntImm) and size.value < 0:
            size = IntImm(size.dtype, 0)
        self.domains[v] = (low, size)

    # ---- the result --------------------------------------------------------------------------------------------------------

    def result(self) -> dict[t.Buffer, tuple[t.Range, ...]]:
        out: dict[t.Buffer, tuple[t.Range, ...]] = {}
        for b in self.depth:
            if (
                b.data in self.escaped
                or b not in self.boxes
                or (b.elem_offset is not None and not _zero(b.elem_offset))
            ):
                continue
            ranges = tuple(self.final(b, n, d) for n, d in enumerate(self.boxes[b]))
            out[b] = ranges
        return out

    def final(self, b: t.Buffer, n: int, d: Any) -> t.Range:
        whole = b.shape[n]
        all_of_it = t.Range(const(0, whole.dtype), whole)
        if d is None:
            return all_of_it
        low, extent = cast(d[0], whole.dtype), cast(d[1], whole.dtype)
        if self.strict:
            end = low + extent
            if not self.ana.can_prove(low >= 0):
                first = self.ana.simplify(maximum(0, low))
                if isinstance(first, IntImm):
                    low, extent = first, self.ana.simplify(end - first)
                else:
                    low = first
            if not self.within(extent, whole):
                extent = self.ana.simplify(minimum(whole, extent))
        if isinstance(extent, IntImm) and extent.value <= 0:
            extent = IntImm(extent.dtype, 1)
        if any(x in self.loop_vars for x in walk(extent) if isinstance(x, Var)):
            bound = self.ana.const_int_bound(extent).max_value
            if bound >= self.ana.const_int_bound(whole).max_value or bound >= (1 << 62):
                return all_of_it
            extent = IntImm(extent.dtype, bound)
        return t.Range(low, extent)

    def within(self, extent: PrimExpr, whole: PrimExpr) -> bool:
        """Is the extent no greater than the dimension? One that is no number is taken to be a positive multiple of its factor."""
        if self.ana.can_prove(extent <= whole):
            return True
        if isinstance(extent, IntImm) and not isinstance(whole, IntImm):
            form = linear(whole)
            return form.constant == 0 and len(form.terms) == 1 and extent.value <= next(iter(form.terms.values()))[1]
        return False


def _zero(e: PrimExpr) -> bool:
    return isinstance(e, IntImm) and e.value == 0


def _uses(e: PrimExpr, domains: dict[Var, Any]) -> bool:
    return any(x in domains for x in walk(e) if isinstance(x, Var))


def _all(parts: list[PrimExpr]) -> PrimExpr:
    out = parts[0]
    for p in parts[1:]:
        out = ex.And(out, p)
    return out


def _conjuncts(c: PrimExpr) -> list[PrimExpr]:
    """The parts that all hold where `c` does; what no reasoning takes is left out."""
    if isinstance(c, ex.And):
        return _conjuncts(c.a) + _conjuncts(c.b)
    if isinstance(c, ex.Call) and getattr(c.op, "name", "") == "tir.likely":
        return _conjuncts(c.args[0])
    if isinstance(c, ex.Not):
        return _negated(c.a)
    if isinstance(c, IntImm) or any(isinstance(x, (t.BufferLoad, ex.Call)) for x in walk(c)):
        return []
    return [c] if c.dtype == "bool" else []


_OPPOSITE: dict[type, type] = {ex.LT: ex.GE, ex.LE: ex.GT, ex.GT: ex.LE, ex.GE: ex.LT, ex.EQ: ex.NE, ex.NE: ex.EQ}


def _negated(c: PrimExpr) -> list[PrimExpr]:
    """The parts that all hold where `c` does not."""
    if isinstance(c, ex.Or):
        return _negated(c.a) + _negated(c.b)
    if isinstance(c, ex.Not):
        return _conjuncts(c.a)
    if isinstance(c, ex.Call) and getattr(c.op, "name", "") == "tir.likely":
        return _negated(c.args[0])
    turned = _OPPOSITE.get(type(c))
    return _conjuncts(turned(c.a, c.b)) if turned is not None and isinstance(c, ex.CmpOp) else []


def _with_sum(e: Any, terms: dict[Any, tuple[PrimExpr, int]], var: Var) -> Any:
    """`e` with `var` in place of the sum of `terms`, wherever a multiple of it stands."""
    if isinstance(e, (ex.Add, ex.Sub, ex.Mul)):
        form = linear(e)
        key, (_, k) = next(iter(terms.items()))
        have = form.terms.get(key)
        q = have[1] // k if have is not None and have[1] % k == 0 else 0
        if q and all(t_key in form.terms and form.terms[t_key][1] == n * q for t_key, (_, n) in terms.items()):
            out: PrimExpr = cast(var, e.dtype) * q
            for other, (a, n) in form.terms.items():
                if other not in terms:
                    out = out + _with_sum(a, terms, var) * n
            return out + form.constant
    if isinstance(e, Var) or not isinstance(e, PrimExpr) or e.identity:
        return e
    return map_children(e, lambda x: _with_sum(x, terms, var))


def _shared_by(scope: str, tag: str) -> bool:
    """Do the threads of that index share memory of this scope?"""
    rank = (
        0
        if scope == "global" or scope.startswith("global.")
        else 1
        if scope.startswith("shared")
        else 2
        if scope == "warp"
        else 3
    )
    if rank == 2:
        return tag == "threadIdx.x"
    return rank <= (0 if tag.startswith("blockIdx") else 1)


def _lanes(i: PrimExpr) -> tuple[PrimExpr, PrimExpr] | None:
    """The scalars that an index covers."""
    if isinstance(i, ex.Ramp) and isinstance(i.stride, IntImm):
        reach = i.stride.value * (i.lanes - 1)
        start = i.base if reach >= 0 else i.base + reach
        return start, IntImm(start.dtype, abs(reach) + 1)
    if isinstance(i, ex.Broadcast):
        return i.value, IntImm(i.value.dtype, 1)
    return None if dt.lanes(i.dtype) > 1 else (i, IntImm(i.dtype, 1))


class _Compactor(BufferMutator):
    """Makes the new buffers and shifts the accesses."""

    def __init__(
        self, regions: dict[t.Buffer, tuple[t.Range, ...]], aligns: dict[Var, dict[int, tuple[int, int]]]
    ) -> None:
        super().__init__()
        self.regions, self.aligns = regions, aligns
        self.ana = Analyzer()
        for b, region in regions.items():
            shape = tuple(r.extent for r in region)
            strides = self.strides(b, shape)
            same = all(x is y or _equal(x, y) for x, y in zip(shape, b.shape)) and strides == b.strides
            if not same:
                self.remap[b] = replace(b, shape=shape, strides=strides)

    def strides(self, b: t.Buffer, shape: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        rows = self.aligns.get(b.data)
        if not rows:
            return () if b.strides and b.shape else b.strides
        out: list[PrimExpr] = []
        stride: PrimExpr = const(1, shape[0].dtype)
        for d in reversed(range(len(shape))):
            if d in rows:
                factor, offset = rows[d]
                gap = ex.floormod(const(factor + offset, stride.dtype) - ex.floormod(stride, factor), factor)
                stride = self.ana.simplify(stride + gap)
            out.append(stride)
            stride = stride * shape[d]
        return tuple(reversed(out))

    def shifted(self, b: t.Buffer, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        out: list[PrimExpr] = []
        for i, r in zip(indices, self.regions[b], strict=True):
            i = self.visit(i)
            out.append(i if _zero(r.min) else _minus(i, r.min))
        return tuple(out)

    def visit_BufferLoad(self, e: t.BufferLoad) -> PrimExpr:
        if e.buffer not in self.remap:
            return self.visit_PrimExpr(e)
        return t.BufferLoad(self.remap[e.buffer], self.shifted(e.buffer, e.indices))

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        if s.buffer not in self.remap:
            return self.generic(s)
        return t.BufferStore(self.remap[s.buffer], self.visit(s.value), self.shifted(s.buffer, s.indices))

    def visit_BufferRegion(self, r: t.BufferRegion) -> t.BufferRegion:
        if r.buffer not in self.remap:
            return r
        whole = self.regions[r.buffer]
        ranges = tuple(
            x if _zero(w.min) else t.Range(x.min - w.min, x.extent) for x, w in zip(r.region, whole, strict=True)
        )
        return t.BufferRegion(self.remap[r.buffer], ranges)

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        new = self.generic(s)
        inner = new.body
        if isinstance(inner, t.DeclBuffer) and inner.buffer.data is s.buffer_var and inner is not s.body:
            old: Any = s.body
            if old.buffer is not inner.buffer:
                return replace(new, extents=allocation_shape(inner.buffer))
        return new


def _minus(i: PrimExpr, low: PrimExpr) -> PrimExpr:
    if isinstance(i, ex.Ramp):
        return ex.Ramp(_minus(i.base, low), i.stride, i.lanes)
    if isinstance(i, ex.Broadcast):
        return ex.Broadcast(_minus(i.value, low), i.lanes)
    if dt.lanes(i.dtype) > 1:
        return i - ex.Broadcast(low, dt.lanes(i.dtype))
    return i - cast(low, i.dtype)


def _equal(a: PrimExpr, b: PrimExpr) -> bool:
    return isinstance(a, IntImm) and isinstance(b, IntImm) and a.value == b.value


def CompactBufferAllocation(is_strict: bool = True) -> Pass:
    """Buffers shrink to what is accessed of them; `is_strict`: to what is accessed inside of their bounds."""
    return func_pass(
        "CompactBufferAllocation", lambda f: compact_buffers(f, is_strict), CompactBufferAllocation.__doc__
    )
