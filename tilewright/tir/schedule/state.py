"""The program under a schedule, and how primitives find and replace parts of it.

A block is known by its name (unique in a function), a loop by its variable: both stay what they are while the statements
around them are rebuilt. A primitive works on a copy of the state, which replaces the old one only if it succeeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tilewright.arith.expr import And, IntImm, PrimExpr, Var, logical_and
from tilewright.ir.module import IRModule
from tilewright.ir.node import children, replace
from tilewright.tir.analysis.regions import accesses
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.lower.index import IndexSpace
from tilewright.tir.schedule.errors import fail

__all__ = ["BlockRV", "LoopRV", "State", "iter_kinds", "nearest_blocks", "with_regions"]

TRUE = IntImm("bool", 1)


class BlockRV:
    """A handle of a block, valid for as long as the block exists."""

    def __init__(self, name: str, func: str) -> None:
        self.name, self.func = name, func

    def __repr__(self) -> str:
        return f"BlockRV({self.name!r})"


class LoopRV:
    """A handle of a loop, valid until the loop is split, fused or removed."""

    def __init__(self, var: Var, func: str) -> None:
        self.var, self.func = var, func

    def __repr__(self) -> str:
        return f"LoopRV({self.var.name!r})"


Path = list[Stmt]
"""A statement with all that it stands in: from the function's body down to the statement itself."""


@dataclass
class State:
    """The module, the function that `get_block` looks in, sampled values, and the new names of renamed blocks."""

    mod: IRModule
    func_name: str
    aliases: dict[str, str] = field(default_factory=lambda: dict[str, str]())
    values: dict[Var, int] = field(default_factory=lambda: dict[Var, int]())

    def copy(self) -> State:
        """An independent state."""
        return State(self.mod.clone(), self.func_name, dict(self.aliases), dict(self.values))

    # ---- the function --------------------------------------------------------------------------------------------------

    def func(self, name: str | None = None) -> PrimFunc:
        """A function of the module."""
        f = self.mod[name or self.func_name]
        if not isinstance(f, PrimFunc):
            raise fail("TW0401", f"{name or self.func_name} is no function of the loop IR")
        return f

    def set_body(self, func: str, body: Stmt) -> None:
        """Replace the body of a function."""
        self.mod.update_func(self.mod.get_global_var(func), replace(self.func(func), body=body))

    # ---- finding -------------------------------------------------------------------------------------------------------

    def block_names(self, func: str) -> list[str]:
        """The names of a function's blocks, in order."""
        return [b.name_hint for b in _blocks(self.func(func).body)]

    def block_path(self, rv: BlockRV) -> Path:
        """The way to the BlockRealize that `rv` stands for. Raises ScheduleError TW0402 where there is none."""
        name = rv.name
        while name in self.aliases:
            name = self.aliases[name]
        found = [p for p in _paths(self.func(rv.func).body) if isinstance(p[-1], BlockRealize) and _name(p[-1]) == name]
        if not found:
            raise fail("TW0402", f"the function {rv.func} has no block {name!r}", choices=self.block_names(rv.func))
        if len(found) > 1:
            raise fail(
                "TW0402", f"{len(found)} blocks of {rv.func} are named {name!r}", hint="give them different names"
            )
        return found[0]

    def loop_path(self, rv: LoopRV) -> Path:
        """The way to the loop that `rv` stands for. Raises ScheduleError TW0403 where it is gone."""
        for p in _paths(self.func(rv.func).body):
            if isinstance(p[-1], For) and p[-1].loop_var is rv.var:
                return p
        raise fail(
            "TW0403",
            f"the loop {rv.var.name!r} does not exist (any more) in {rv.func}",
            hint="split and fuse replace loops: use the loops that they return, or ask get_loops again",
        )

    def block(self, rv: BlockRV) -> BlockRealize:
        """The realization of a block."""
        found = self.block_path(rv)[-1]
        assert isinstance(found, BlockRealize)
        return found

    def loop(self, rv: LoopRV) -> For:
        """The loop of a handle."""
        found = self.loop_path(rv)[-1]
        assert isinstance(found, For)
        return found

    def unique(self, func: str, name: str) -> str:
        """A block name that is free."""
        taken = set(self.block_names(func))
        n, candidate = 0, name
        while candidate in taken:
            n += 1
            candidate = f"{name}_{n}"
        return candidate

    # ---- changing ------------------------------------------------------------------------------------------------------

    def put(self, func: str, path: Path, new: Stmt | None) -> None:
        """Replace the statement at the end of `path`; None removes it and whatever becomes empty."""
        old: Stmt = path[-1]
        for parent in reversed(path[:-1]):
            new = _rebuild(parent, old, new)
            old = parent
        if new is None:
            raise fail("TW0404", "nothing of the function would be left")
        self.set_body(func, new)

    def simplify(self, func: str) -> None:
        """Simplify what blocks are bound to, and drop predicates that always hold."""
        self.set_body(func, _simplify(self.func(func).body, IndexSpace()))


# ---- trees -----------------------------------------------------------------------------------------------------------


def _name(s: BlockRealize) -> str:
    return s.block.name_hint


def _paths(s: Stmt, above: tuple[Stmt, ...] = ()) -> Iterator[Path]:
    here = (*above, s)
    yield list(here)
    for c in children(s):
        if isinstance(c, Stmt):
            yield from _paths(c, here)


def _blocks(s: Stmt) -> Iterator[Block]:
    if isinstance(s, Block):
        yield s
    for c in children(s):
        if isinstance(c, Stmt):
            yield from _blocks(c)


def _rebuild(parent: Stmt, old: Stmt, new: Stmt | None) -> Stmt | None:
    """`parent` with the child `old` replaced."""
    if new is old:
        return parent
    if isinstance(parent, SeqStmt):
        items = [new if s is old else s for s in parent.seq]
        kept = [s for s in items if s is not None]
        return seq(*kept) if kept else None
    for f in parent.node_fields:
        if getattr(parent, f.name) is old:
            if new is None:
                return None
            return replace(parent, **{f.name: new})
    raise AssertionError("not a child")


def nearest_blocks(s: Stmt) -> list[BlockRealize]:
    """The blocks of a statement that stand in no other block of it."""
    if isinstance(s, BlockRealize):
        return [s]
    return [b for c in children(s) if isinstance(c, Stmt) for b in nearest_blocks(c)]


def iter_kinds(block: BlockRealize, var: Var) -> set[int]:
    """The kinds of the block's iterators whose value mentions the loop variable."""
    from tilewright.tir.lower.index import mentions

    return {
        iv.iter_type for iv, v in zip(block.block.iter_vars, block.iter_values, strict=True) if mentions(v, var)
    }  # fmt: skip


def with_regions(block: Block) -> Block:
    """The block with its reads and writes computed anew; buffers keep their order where they were declared before."""
    bare = replace(block, reads=(), writes=())
    reads, writes, opaque = accesses(bare)
    if opaque:
        return block
    reduction = block.init is not None

    def ordered(found: dict[Buffer, Any], before: tuple[BufferRegion, ...]) -> tuple[BufferRegion, ...]:
        first = [r.buffer for r in before if r.buffer in found]
        order = [*dict.fromkeys(first), *(b for b in found if b not in first)]
        return tuple(found[b].region() for b in order)

    kept = {b: u for b, u in reads.items() if not (reduction and b in writes)}
    return replace(block, reads=ordered(kept, block.reads), writes=ordered(writes, block.writes))


def _simplify(s: Any, space: IndexSpace) -> Any:
    if isinstance(s, For):
        space.set_range(s.loop_var, s.min, s.extent)
        return _keep(s, body=_simplify(s.body, space))
    if isinstance(s, BlockRealize):
        values = tuple(space.expr(space.recombine(space.poly(v)), v.dtype) for v in s.iter_values)
        predicate = _simplify_predicate(s.predicate, space)
        for iv in s.block.iter_vars:
            if iv.dom is not None:
                space.set_range(iv.var, iv.dom.min, iv.dom.extent)
        return replace(s, iter_values=values, predicate=predicate, block=_simplify(s.block, space))
    if isinstance(s, Block):
        return _keep(s, body=_simplify(s.body, space))
    if isinstance(s, SeqStmt):
        new = tuple(_simplify(x, space) for x in s.seq)
        return s if all(a is b for a, b in zip(new, s.seq, strict=True)) else SeqStmt(new)
    return s


def _keep(s: Any, body: Stmt) -> Any:
    return s if s.body is body else replace(s, body=body)


def conjuncts(e: PrimExpr) -> list[PrimExpr]:
    """The parts of a conjunction."""
    if isinstance(e, And):
        return [*conjuncts(e.a), *conjuncts(e.b)]
    return [] if isinstance(e, IntImm) and e.value else [e]


def _simplify_predicate(e: PrimExpr, space: IndexSpace) -> PrimExpr:
    from tilewright.tir.lower.settle_loops import decide

    out: PrimExpr = TRUE
    seen: set[Any] = set()
    for part in conjuncts(e):
        a, b = getattr(part, "a", None), getattr(part, "b", None)
        if isinstance(a, PrimExpr) and isinstance(b, PrimExpr) and a.dtype in ("int32", "int64"):
            p, q = space.recombine(space.poly(a)), space.recombine(space.poly(b))
            known = decide(type(part), *space.bounds(space.sum(p, q, -1)))
            if known:
                continue
            key = (type(part), frozenset(p.items()), frozenset(q.items()))
            if key in seen:
                continue
            seen.add(key)
            part = replace(part, a=space.expr(p, a.dtype), b=space.expr(q, b.dtype))
        out = logical_and(out, part)
    return out
