"""Primitives for caches of other things than what is read or written: a buffer that is changed in place, indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import Call, FloatImm, IntImm, PrimExpr, StringImm, Var, const
from tilewright.arith.linear import expr_key
from tilewright.ir.node import children, map_children, replace
from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    ForKind,
    IterVar,
    Range,
    Stmt,
    decl_buffer,
)
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.caching import (
    Copy,
    Place,
    allocate,
    body_of,
    cache_buffer,
    edit_blocks,
    insert_at,
    items_of,
    redirect,
)
from tilewright.tir.schedule.primitives.flow import buffer_at, check_scope, find_block, region_of, scope_path
from tilewright.tir.schedule.primitives.relax import block_ends, proves, ranges_of
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, Path, State

__all__ = ["cache_index", "cache_inplace"]


@primitive
def cache_inplace(s: State, block: BlockRV, read_buffer_index: int | str | Buffer, storage_scope: str) -> list[BlockRV]:
    """Let a block that changes a buffer in place do so in a new buffer in `storage_scope`: copied in before the block, and out
    after it. Returns the two blocks that copy.

    Raises ScheduleError TW0451 (no such buffer), TW0452 (no such scope), TW0470 (the block does not both read and write it,
    or writes parts that it does not read).
    """
    check_scope(s, block, storage_scope)
    path, realize = find_block(s, block)
    _, old = buffer_at(s, block, read_buffer_index, "reads")
    taken, given = region_of(realize.block.reads, old), region_of(realize.block.writes, old)
    root = s.func(block.func)
    if taken is None or given is None:
        raise fail("TW0470", f"{block.name!r} does not both read and write {old.name}", root, realize)
    scope = scope_path(path)
    holder = max(i for i, p in enumerate(path[:-1]) if isinstance(p, (For, BlockRealize)))
    container = path[holder]
    ana = _around(path)
    regions = [ranges_of(block_ends(realize, r, (), ana), old.shape, ana) for r in (taken, given)]
    for a, b in zip(*regions, strict=True):
        if not (proves(ana, a.min <= b.min) and proves(ana, b.min + b.extent <= a.min + a.extent)):
            raise fail("TW0470", f"{block.name!r} writes more of {old.name} than it reads", root, realize)
    new = cache_buffer(old, storage_scope, old.shape)
    name_in = s.unique(block.func, new.name)
    items = items_of(body_of(container))
    n = next(i for i, x in enumerate(items) if any(x is p for p in path))
    top = scope[-1]
    assert isinstance(top, BlockRealize)
    names = [
        name_in,
        s.unique(block.func, name_in) if name_in in s.block_names(block.func) else _next(s, block, name_in),
    ]
    copy_in = Copy(old, new, regions[0], False, True).nest(names[0], ana)
    copy_out = Copy(new, old, regions[1], False, False).nest(names[1], ana)
    changed = replace(realize, block=redirect(realize.block, old, new, None, ana))

    def both(x: Any) -> Any:
        grown = insert_at(x, Place(path[: holder + 1], n + 1), copy_out)
        where = _find(grown, container, path)
        return insert_at(grown, Place([where], n), copy_in)

    grown = allocate(both(top), new)
    body = edit_blocks(grown.block.body, [realize], lambda _: changed)
    s.put(block.func, scope, replace(grown, block=replace(grown.block, body=body)))
    return [BlockRV(n, block.func) for n in names]


def _next(s: State, block: BlockRV, name: str) -> str:
    """A second name beside one that is about to be taken."""
    n = 1
    while f"{name}_{n}" in s.block_names(block.func):
        n += 1
    return f"{name}_{n}"


def _find(n: Stmt, old: Stmt, path: Path) -> Stmt:
    """What became of a loop or of a realized block on the way to a block, after its body was rebuilt."""
    target = path[-1]

    def visit(x: Stmt) -> Stmt | None:
        same = isinstance(x, For) and isinstance(old, For) and x.loop_var is old.loop_var
        same = same or (
            isinstance(x, BlockRealize) and isinstance(old, BlockRealize) and x.block.name_hint == old.block.name_hint
        )
        if same:
            return x
        if x is target:
            return None
        for c in children(x):
            if isinstance(c, Stmt):
                found = visit(c)
                if found is not None:
                    return found
        return None

    found = visit(n)
    assert found is not None
    return found


def _around(path: Path) -> Analyzer:
    ana = Analyzer()
    for p in path[:-1]:
        if isinstance(p, For):
            ana.bind(p.loop_var, Range(p.min, p.extent))
        elif isinstance(p, BlockRealize):
            for iv in p.block.iter_vars:
                if iv.dom is not None:
                    ana.bind(iv.var, iv.dom)
    return ana


# ---- indices ---------------------------------------------------------------------------------------------------------


class _Uses:
    """The expressions of a block that depend on its axes alone, with how often and in which order they occur."""

    def __init__(self, axes: set[Var]) -> None:
        self.axes = axes
        self.found: dict[Any, tuple[PrimExpr, int, int]] = {}
        """By structure: the expression, how often it occurs, how many nodes it has."""

    def visit(self, n: Any) -> int | None:
        """The number of nodes of an expression of axes alone (0 for one without axes); None for others."""
        if isinstance(n, Var):
            return 1 if n in self.axes else None
        if isinstance(n, (IntImm, FloatImm, StringImm)):
            return 0
        if isinstance(n, Buffer):
            return None
        if isinstance(n, BufferStore):  # in the order of reading: what is stored, then where
            self.visit(n.value)
            for i in n.indices:
                self.visit(i)
            return None
        sizes = [self.visit(c) for c in children(n)]
        if not isinstance(n, PrimExpr) or isinstance(n, BufferLoad):
            return None
        if isinstance(n, Call):
            sizes = [x for x, c in zip(sizes, children(n), strict=True) if isinstance(c, PrimExpr)]
        if any(x is None for x in sizes) or not any(sizes):
            return None if any(x is None for x in sizes) else 0
        size = 1 + sum(max(x or 0, 1) for x in sizes)
        key = expr_key(n)
        old = self.found.get(key)
        self.found[key] = (n, 1, size) if old is None else (old[0], old[1] + 1, size)
        return size


@primitive
def cache_index(s: State, block: BlockRV, storage_scope: str, cse_thresh: int = 0) -> list[BlockRV]:
    """Compute what a block computes of its axes alone (indices, weights) once before it, into tables that it reads.

    Expressions go by size, largest first; one is cached if it occurs at least `cse_thresh` times in what is left. Returns
    the blocks that fill the tables. Raises ScheduleError TW0452 (no such scope).
    """
    check_scope(s, block, storage_scope)
    path, realize = find_block(s, block)
    scope = scope_path(path)
    top = scope[-1]
    assert isinstance(top, BlockRealize)
    axes = {iv.var for iv in realize.block.iter_vars}
    body, init = realize.block.body, realize.block.init
    made: list[tuple[Buffer, Stmt, str]] = []
    reads: list[BufferRegion] = list(realize.block.reads)
    skipped: set[Any] = set()
    while True:
        uses = _Uses(axes)
        if init is not None:
            uses.visit(init)
        uses.visit(body)
        best: tuple[PrimExpr, int, int] | None = None
        for key, use in uses.found.items():
            if key not in skipped and use[1] >= max(cse_thresh, 1) and (best is None or use[2] > best[2]):
                best = use
        if best is None:
            break
        e = best[0]
        used = [iv for iv in realize.block.iter_vars if _mentions(e, iv.var)]
        buffer, nest, name = _table(s, block, e, used, storage_scope, len(made))
        made.append((buffer, nest, name))
        key = expr_key(e)
        load = BufferLoad(buffer, tuple(iv.var for iv in used))
        reads.append(BufferRegion(buffer, tuple(Range(i, const(1, i.dtype)) for i in load.indices)))
        body, init = (None if x is None else _swap(x, key, load) for x in (body, init))
        assert body is not None
    items = items_of(body_of(top))
    n = next((i for i, x in enumerate(items) if any(x is p for p in path)), 0)
    changed = replace(realize, block=replace(realize.block, body=body, init=init, reads=tuple(reads)))
    grown = replace(top, block=replace(top.block, body=edit_blocks(top.block.body, [realize], lambda _: changed)))
    for i, (buffer, nest, _) in enumerate(made):
        grown = allocate(insert_at(grown, Place([grown], n + i), nest), buffer)
    s.put(block.func, scope, grown)
    return [BlockRV(name, block.func) for _, _, name in made]


def _mentions(e: Any, v: Var) -> bool:
    return e is v or (not e.identity and any(_mentions(c, v) for c in children(e)))


def _swap(n: Any, key: Any, load: BufferLoad) -> Any:
    def visit(x: Any) -> Any:
        if isinstance(x, PrimExpr) and not x.identity and x.dtype == load.dtype and expr_key(x) == key:
            return load
        return x if x.identity else map_children(x, visit)

    return visit(n)


def _table(
    s: State, block: BlockRV, e: PrimExpr, used: Sequence[IterVar], scope: str, n: int
) -> tuple[Buffer, Stmt, str]:
    """(the table, the loops that fill it, the name of their block)."""
    shape = [iv.dom.extent for iv in used if iv.dom is not None]
    strides = [const(1, "int32")] if len(shape) == 1 else []
    buffer = decl_buffer(shape, e.dtype, f"index_var_{n}", scope=scope, strides=strides)
    name = s.unique(block.func, f"index_{n}")
    loops = [Var(f"ax{i}", iv.var.dtype) for i, iv in enumerate(used)]
    axes = [Var(f"v{i}", iv.var.dtype) for i, iv in enumerate(used)]
    iters = tuple(replace(iv, var=v, iter_type=IterVar.DataPar) for iv, v in zip(used, axes, strict=True))
    value = substitute(e, {iv.var: v for iv, v in zip(used, axes, strict=True)})
    point = tuple(Range(v, const(1, v.dtype)) for v in axes)
    made = Block(iters, (), (BufferRegion(buffer, point),), name, BufferStore(buffer, value, tuple(axes)))
    out: Stmt = BlockRealize(tuple(loops), IntImm("bool", 1), made)
    for v, iv in zip(reversed(loops), reversed(used), strict=True):
        assert iv.dom is not None
        out = For(v, iv.dom.min, iv.dom.extent, ForKind.SERIAL, out)
    return buffer, out, name
