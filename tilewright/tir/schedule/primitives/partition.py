"""Primitives that cut a loop into several one after the other, or make one loop of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import Add, Cast, IntImm, Mul, PrimExpr, Sub, Var, add, cast, const, sub
from tilewright.ir.node import map_children, replace, walk
from tilewright.ir.rewrite import substitute
from tilewright.tir.analysis.regions import accesses
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    For,
    ForKind,
    IterVar,
    Range,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.lower.index import mentions
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.loops import factors_of, plain_loop
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.scope import DepKind, Scope, has_region_cover, scope_path
from tilewright.tir.schedule.state import TRUE, LoopRV, Path, State, iter_kinds, nearest_blocks

__all__ = ["loop_partition", "merge"]


# ---- one loop becomes several ----------------------------------------------------------------------------------------


@primitive
def loop_partition(
    s: State, loop: LoopRV, factors: Sequence[int | PrimExpr | None], preserve_unit_iters: bool = True
) -> list[LoopRV]:
    """One loop becomes several, one after the other, of `factors` iterations each; what is left makes one more.

    One factor may be None: it takes what is left. The blocks inside are copied: `B` in the part `n` of the loop `i` is
    called `B_i<n>`, the part's own block `B_i<n>_partition`, the one around them all `B_i_common`. Raises ScheduleError
    TW0423 where the factors are more than the loop has.
    """
    del preserve_unit_iters  # a part keeps its loop whatever its length
    node = plain_loop(s, loop, "partition")
    func = s.func(loop.func)
    if node.annotations:
        raise fail("TW0411", f"cannot partition the loop {loop.var.name!r}: it is annotated", func, node)
    sizes = factors_of(s, loop, node, factors, "loop_partition")
    dtype = loop.var.dtype
    known: PrimExpr = const(0, dtype)
    for e in sizes:
        known = known if e is None else add(known, e)
    ana = Analyzer()
    rest = ana.simplify(sub(node.extent, known))
    if isinstance(rest, IntImm) and (rest.value < 0 or (rest.value == 0 and None in sizes)):
        raise fail(
            "TW0423",
            f"the parts {list(factors)} are {known} iterations, but the loop {loop.var.name!r} has {node.extent}",
            func,
            node,
        )
    if not isinstance(rest, IntImm) and not ana.can_prove(rest >= 1):
        raise fail("TW0423", f"it is not known that the loop {loop.var.name!r} has {known} iterations", func, node)
    if None in sizes:
        sizes[sizes.index(None)] = rest
    elif not (isinstance(rest, IntImm) and rest.value == 0):
        sizes.append(rest)
    blocks = nearest_blocks(node.body)
    prefix = f"{blocks[0].block.name_hint if blocks else 'loop'}_{loop.var.name}"
    taken = set(s.block_names(loop.func))
    parts: list[Stmt] = []
    variables: list[Var] = []
    start = node.min
    for n, size in enumerate(sizes):
        assert size is not None
        v = Var(f"{loop.var.name}{n}", dtype)
        variables.append(v)
        body = _Copy(f"_{loop.var.name}{n}", taken, {loop.var: v}, Range(start, size), n > 0).stmt(node.body)
        part = For(v, start, size, ForKind.SERIAL, body)
        parts.append(_opaque(_free(f"{prefix}{n}_partition", taken), part))
        start = ana.simplify(add(start, size))
    s.put(loop.func, s.loop_path(loop), _opaque(_free(f"{prefix}_common", taken), seq(*parts)))
    return [LoopRV(v, loop.func) for v in variables]


def _free(name: str, taken: set[str]) -> str:
    n, candidate = 0, name
    while candidate in taken:
        n += 1
        candidate = f"{name}_{n}"
    taken.add(candidate)
    return candidate


def _opaque(name: str, body: Stmt) -> BlockRealize:
    """A block around statements, with what they touch."""
    reads, writes, opaque = accesses(body)
    block = Block(
        (),
        tuple(u.region() for b, u in (*reads.items(), *opaque.items()) if b not in writes or b in opaque),
        tuple(u.region() for u in (*writes.values(), *opaque.values())),
        name,
        body,
    )
    return BlockRealize((), TRUE, block)


def _linear(e: PrimExpr) -> bool:
    """Is the expression a sum of products, without quotients and remainders?"""
    return all(isinstance(x, (Add, Sub, Mul, Var, IntImm, Cast)) for x in walk(e))


class _Copy:
    """Copies a loop's body for one part of it: new variables and buffers, blocks renamed, domains cut to the part."""

    def __init__(self, suffix: str, taken: set[str], table: dict[Any, Any], part: Range, late: bool) -> None:
        self.suffix, self.taken, self.table, self.part, self.late = suffix, taken, table, part, late
        (self.old_loop,) = table

    def stmt(self, s: Any) -> Any:
        """The statement with everything that it binds bound anew."""
        if isinstance(s, For):
            v = self.table[s.loop_var] = Var(s.loop_var.name, s.loop_var.dtype)
            low, extent = substitute(s.min, self.table), substitute(s.extent, self.table)
            return replace(s, loop_var=v, min=low, extent=extent, body=self.stmt(s.body))
        if isinstance(s, BlockRealize):
            return self.realize(s)
        if isinstance(s, Stmt):
            return map_children(s, lambda c: self.stmt(c) if isinstance(c, Stmt) else substitute(c, self.table))
        return s

    def realize(self, s: BlockRealize) -> BlockRealize:
        values = tuple(substitute(v, self.table) for v in s.iter_values)
        iters: list[IterVar] = []
        for iv, old in zip(s.block.iter_vars, s.iter_values, strict=True):
            v = self.table[iv.var] = Var(iv.var.name, iv.var.dtype)
            dom = iv.dom
            if old is self.old_loop and iv.iter_type == IterVar.DataPar:
                dom = self.part
            iters.append(replace(iv, var=v, dom=dom))
        b = s.block
        for x in b.alloc_buffers:
            self.table[x] = self.buffer(x)
        for m in b.match_buffers:
            self.table[m.buffer] = self.buffer(m.buffer)
        # a part that does not begin where the loop begins never reaches the start of the reduction: no init, only updates
        reduces = any(
            iv.iter_type == IterVar.CommReduce and mentions(old, self.old_loop) and _linear(old)
            for iv, old in zip(b.iter_vars, s.iter_values, strict=True)
        )
        late = self.late and reduces and b.init is not None
        reads = b.reads
        if late:
            read = {r.buffer for r in reads}
            reads = (*(w for w in b.writes if w.buffer not in read), *reads)
        new = replace(
            b,
            iter_vars=tuple(iters),
            reads=tuple(substitute(r, self.table) for r in reads),
            writes=tuple(substitute(r, self.table) for r in b.writes),
            name_hint=_free(f"{b.name_hint}{self.suffix}", self.taken),
            alloc_buffers=tuple(self.table[x] for x in b.alloc_buffers),
            match_buffers=tuple(substitute(m, self.table) for m in b.match_buffers),
            init=None if b.init is None or late else self.stmt(b.init),
            body=self.stmt(b.body),
        )
        return BlockRealize(values, substitute(s.predicate, self.table), new)

    def buffer(self, b: Buffer) -> Buffer:
        data = Var(b.data.name, b.data.dtype, b.data.type_annotation)
        return replace(substitute(b, self.table), data=data)


# ---- several loops become one ----------------------------------------------------------------------------------------


@primitive
def merge(s: State, *loops: LoopRV) -> LoopRV:
    """Loops of one depth in nests beside each other become one that runs the iterations of each in turn; so do the loops
    around them, up to where the nests part.

    All must start at 0, with the same extent as their counterparts, and be the only child of the loop around. Raises
    ScheduleError TW0426 where they are not so, TW0427 where a nest needs what a later iteration of another makes.
    """
    if len(loops) < 2:
        raise fail("TW0426", "merge needs at least two loops")
    func = loops[0].func
    nests = _nests(s, loops)
    paths = [s.loop_path(rv) for rv in loops]
    top = [n[0] for n in nests]
    base = s.path_to(func, top[0])[:-1]
    container = base[-1]
    assert isinstance(container, SeqStmt)
    _check_levels(s, func, loops, nests)
    variables = [Var(f"{p.loop_var.name}_m", p.loop_var.dtype) for p in nests[0]]
    bodies: list[Stmt] = []
    for nest, path in zip(nests, paths, strict=True):
        inner = path[-1]
        assert isinstance(inner, For)
        table = {p.loop_var: cast(v, p.loop_var.dtype) for p, v in zip(nest, variables, strict=True)}
        bodies.append(substitute(inner.body, table))
    merged: Stmt = seq(*bodies)
    for v, p in zip(reversed(variables), reversed(nests[0]), strict=True):
        merged = For(v, p.min, p.extent, ForKind.SERIAL, merged)
    _check_order(s, func, base, container, nests)
    items: list[Stmt] = []
    for item in container.seq:
        if item is top[0]:
            items.append(merged)
        elif not any(item is t for t in top):
            items.append(item)
    s.put(func, base, seq(*items))
    _check_flow(s, LoopRV(variables[-1], func), variables, loops)
    return LoopRV(variables[-1], func)


def _nests(s: State, loops: Sequence[LoopRV]) -> list[list[For]]:
    """For each loop, the loops from where the nests part down to it."""
    func = loops[0].func
    paths = [s.loop_path(rv) for rv in loops]
    for rv in loops[1:]:
        if rv.func != func or scope_path(s.loop_path(rv))[-1:] != scope_path(paths[0])[-1:]:
            raise fail("TW0426", f"the loop {rv.var.name!r} is in another scope", s.func(rv.func), s.loop(rv))
    common = 0
    while all(len(p) > common for p in paths) and all(p[common] is paths[0][common] for p in paths):
        common += 1
    if common == 0 or not isinstance(paths[0][common - 1], SeqStmt):
        raise fail("TW0426", "the loops are one inside the other: they do not run one after the other")
    out: list[list[For]] = []
    for rv, p in zip(loops, paths, strict=True):
        nest = p[common:]
        for outer in nest[:-1]:
            if not isinstance(outer, For):
                raise fail(
                    "TW0426", f"the loop {rv.var.name!r} is not the only child of the loops around it", s.func(func), s.loop(rv)
                )  # fmt: skip
        out.append([x for x in nest if isinstance(x, For)])
    return out


def _check_levels(s: State, func: str, loops: Sequence[LoopRV], nests: Sequence[list[For]]) -> None:
    ana = Analyzer()
    for rv, nest in zip(loops, nests, strict=True):
        if len(nest) != len(nests[0]):
            raise fail("TW0426", f"the loop {rv.var.name!r} is at another depth", s.func(func), nest[-1])
        for p, q in zip(nest, nests[0], strict=True):
            plain_loop(s, LoopRV(p.loop_var, func), "merge")
            if p.annotations:
                raise fail("TW0411", f"cannot merge the loop {p.loop_var.name!r}: it is annotated", s.func(func), p)
            if not (isinstance(p.min, IntImm) and p.min.value == 0):
                raise fail("TW0426", f"the loop {p.loop_var.name!r} does not start at 0", s.func(func), p)
            if any(mentions(p.extent, o.loop_var) for o in nest) or not ana.can_prove_equal(p.extent, q.extent):
                raise fail(
                    "TW0426",
                    f"the loops {q.loop_var.name!r} and {p.loop_var.name!r} have {q.extent} and {p.extent} iterations",
                    s.func(func),
                    p,
                )


def _check_order(s: State, func: str, base: Path, container: SeqStmt, nests: Sequence[list[For]]) -> None:
    """No nest may pass a statement that it depends on, for all go to where the first one is."""
    tops = [n[0] for n in nests]
    first = next(i for i, x in enumerate(container.seq) if x is tops[0])
    for t in tops[1:]:
        place = next(i for i, x in enumerate(container.seq) if x is t)
        if place < first:
            raise fail(
                "TW0426", f"the loop {t.loop_var.name!r} comes first: name the loops in their order", s.func(func), t
            )
        between = [x for x in container.seq[first + 1 : place] if not any(x is y for y in tops)]
        moving = {id(b) for b in nearest_blocks(t)}
        table = Scope([b for x in between for b in nearest_blocks(x)] + nearest_blocks(t))
        for e in table.edges:
            if id(e.dst) in moving and id(e.src) not in moving:
                raise fail(
                    "TW0427",
                    f"the block {e.dst.block.name_hint!r} depends on {e.src.block.name_hint!r}, which stands between the loops",
                    s.func(func),
                    e.src,
                )


def _check_flow(s: State, loop: LoopRV, variables: Sequence[Var], loops: Sequence[LoopRV]) -> None:
    """In the merged loop, what one nest takes from another must have been made in the same iteration."""
    node = s.loop(loop)
    items = node.body.seq if isinstance(node.body, SeqStmt) else (node.body,)
    groups = {id(b): n for n, x in enumerate(items) for b in nearest_blocks(x)}
    above = scope_path(s.loop_path(loop))[-1]
    assert isinstance(above, BlockRealize)
    for e in Scope(nearest_blocks(node.body)).edges:
        if groups[id(e.src)] == groups[id(e.dst)]:
            continue
        finished = not any(IterVar.CommReduce in iter_kinds(e.src, v) for v in variables)
        if e.kind != DepKind.RAW or not finished or not has_region_cover(s, loop.func, above, e.dst):
            raise fail(
                "TW0427",
                f"cannot merge {', '.join(rv.var.name for rv in loops)}: the block {e.dst.block.name_hint!r} depends on what other "
                f"iterations make in {e.src.block.name_hint!r}",
                s.func(loop.func),
                e.dst,
            )
