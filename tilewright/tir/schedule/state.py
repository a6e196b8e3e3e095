"""The program under a schedule, and how primitives find and replace parts of it.

A block is known by its name (unique in a function; where a program comes with several of one name, the name object tells
them apart), a loop by its variable: both stay what they are while the statements around them are rebuilt. The statements are
never changed in place, so that a state is saved and restored by keeping the module. Where things are is written down in an
index, made anew when the body of a function has changed and somebody asks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Union

from tilewright.arith.expr import Add, And, IntImm, Mul, PrimExpr, Sub, Var, add, cast, const, logical_and, mul
from tilewright.arith.iter_map import iter_map_simplify
from tilewright.ir.module import IRModule
from tilewright.ir.node import children, replace
from tilewright.tir.analysis.regions import accesses
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.lower.index import IndexSpace, expr_key
from tilewright.tir.schedule.errors import UnknownFunctionError, UnknownHandleError, fail

__all__ = [
    "BlockRV",
    "ExprRV",
    "LoopRV",
    "Place",
    "State",
    "iter_kinds",
    "linear_form",
    "nearest_blocks",
    "simplify_bindings",
    "with_regions",
]

TRUE = IntImm("bool", 1)


class BlockRV:
    """A handle of a block, valid for as long as the block exists."""

    __slots__ = ("func", "name")

    def __init__(self, name: str = "", func: str = "main") -> None:
        self.name, self.func = name, func

    def __repr__(self) -> str:
        return f"BlockRV({self.name!r})"


class LoopRV:
    """A handle of a loop, valid until the loop is split, fused or removed."""

    __slots__ = ("func", "var")

    def __init__(self, var: Var | None = None, func: str = "main") -> None:
        self.var, self.func = Var("unbound", "int32") if var is None else var, func

    def __repr__(self) -> str:
        return f"LoopRV({self.var.name!r})"


ExprRV = PrimExpr
"""A handle of a number: a sampled variable, or an expression of such."""
Place = Union[BlockRV, LoopRV]
"""A block or a loop."""
Path = list[Stmt]
"""A statement with all that it stands in: from the function's body down to the statement itself."""


class BlockName(str):
    """The name of a block that shares it with others: the object tells which."""

    __slots__ = ()


class _Index:
    """Where the blocks and loops of a body are."""

    __slots__ = ("blocks", "body", "loops", "parents")

    def __init__(self, body: Stmt) -> None:
        self.body = body
        self.blocks: dict[str, list[BlockRealize]] = {}
        self.loops: dict[Var, For] = {}
        self.parents: dict[int, Stmt | None] = {id(body): None}
        self.visit(body)

    def visit(self, s: Stmt) -> None:
        kind = type(s)
        while kind is For:
            self.loops[s.loop_var] = s  # pyright: ignore
            body: Stmt = s.body  # pyright: ignore
            self.parents[id(body)] = s
            s, kind = body, type(body)
        if kind is BlockRealize:
            block: Block = s.block  # pyright: ignore
            self.blocks.setdefault(block.name_hint, []).append(s)  # pyright: ignore
            parents = self.parents
            parents[id(block)] = s
            if block.init is not None:
                parents[id(block.init)] = block
                self.visit(block.init)
            parents[id(block.body)] = block
            self.visit(block.body)
        elif kind is not BufferStore and kind is not Evaluate:
            for c in children(s):
                if isinstance(c, Stmt):
                    self.parents[id(c)] = s
                    self.visit(c)

    def path(self, s: Stmt) -> Path:
        out: Path = [s]
        at = self.parents[id(s)]
        while at is not None:
            out.append(at)
            at = self.parents[id(at)]
        out.reverse()
        return out


class State:
    """The module, the function that `get_block` looks in, sampled values, and the new names of renamed blocks."""

    def __init__(
        self,
        mod: IRModule,
        func_name: str,
        aliases: dict[str, str] | None = None,
        values: dict[Var, int] | None = None,
    ) -> None:
        self.mod, self.func_name = mod, func_name
        self.aliases: dict[str, str] = {} if aliases is None else aliases
        self.values: dict[Var, int] = {} if values is None else values
        self.decision: Any = None
        """What the last sampling step chose."""
        self.places: tuple[Any, Any, Any] | None = None
        """Where a block may be computed: (the function's body, the block, the places)."""
        self._indices: dict[str, _Index] = {}

    def copy(self) -> State:
        """An independent state."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.mod, new.aliases, new.values = self.mod.clone(), dict(self.aliases), dict(self.values)
        new._indices = dict(self._indices)
        return new

    def save(self) -> tuple[Any, ...]:
        """What `restore` takes to come back to here; from now on changes go to copies."""
        saved = self.mod, self.func_name, self.aliases, self.values
        self.mod, self.aliases, self.values = self.mod.clone(), dict(self.aliases), dict(self.values)
        return saved

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Come back to where `save` was called."""
        self.mod, self.func_name, self.aliases, self.values = saved

    # ---- the function --------------------------------------------------------------------------------------------------

    def func(self, name: str | None = None) -> PrimFunc:
        """A function of the module. Raises ScheduleError TW0401 where it is none of the loop IR, or is not said which."""
        name = name or self.func_name
        if not name:
            raise fail(
                "TW0401",
                "the schedule does not know which function to be working on",
                choices=[v.name_hint for v in self.mod.functions],
                hint="call work_on, or give func_name",
                kind=UnknownFunctionError,
            )
        f = self.mod[name]
        if not isinstance(f, PrimFunc):
            raise fail("TW0401", f"{name} is no function of the loop IR")
        return f

    def set_body(self, func: str, body: Stmt) -> None:
        """Replace the body of a function."""
        old = self.func(func)
        if old.body is not body:
            self.mod.update_func(self.mod.get_global_var(func), replace(old, body=body))

    # ---- finding -------------------------------------------------------------------------------------------------------

    def index(self, func: str) -> _Index:
        """Where the blocks and loops of a function are."""
        body = self.func(func).body
        found = self._indices.get(func)
        if found is None or found.body is not body:
            found = self._indices[func] = _Index(body)
        return found

    def block_names(self, func: str) -> list[str]:
        """The names of a function's blocks, in order."""
        return [name for name, found in self.index(func).blocks.items() for _ in found]

    def block_path(self, rv: BlockRV) -> Path:
        """The way to the BlockRealize that `rv` stands for. Raises ScheduleError TW0402 where there is none."""
        return self.index(rv.func).path(self.block(rv))

    def loop_path(self, rv: LoopRV) -> Path:
        """The way to the loop that `rv` stands for. Raises ScheduleError TW0403 where it is gone."""
        return self.index(rv.func).path(self.loop(rv))

    def path(self, rv: Place) -> Path:
        """The way to a block or loop."""
        return self.block_path(rv) if isinstance(rv, BlockRV) else self.loop_path(rv)

    def path_to(self, func: str, s: Stmt) -> Path:
        """The way to a statement that is in the function as it is now."""
        return self.index(func).path(s)

    def block(self, rv: BlockRV) -> BlockRealize:
        """The realization of a block. Raises ScheduleError TW0402 where there is none of its name, or several."""
        name = rv.name
        blocks = self.index(rv.func).blocks
        while name in self.aliases:
            name = self.aliases[name]
        found = blocks.get(name, [])
        if len(found) > 1:
            found = [b for b in found if b.block.name_hint is name] or found
        if not found:
            raise fail(
                "TW0402",
                f"the function {rv.func} has no block {name!r}",
                choices=self.block_names(rv.func),
                kind=UnknownHandleError,
            )
        if len(found) > 1:
            raise fail(
                "TW0402", f"{len(found)} blocks of {rv.func} are named {name!r}", hint="give them different names"
            )
        return found[0]

    def loop(self, rv: LoopRV) -> For:
        """The loop of a handle. Raises ScheduleError TW0403 where it is gone."""
        found = self.index(rv.func).loops.get(rv.var)
        if found is None:
            raise fail(
                "TW0403",
                f"the loop {rv.var.name!r} does not exist (any more) in {rv.func}",
                hint="split and fuse replace loops: use the loops that they return, or ask get_loops again",
                kind=UnknownHandleError,
            )
        return found

    def unique(self, func: str, name: str) -> str:
        """A block name that is free."""
        taken = self.index(func).blocks
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

    def simplify(self, func: str, *, predicates: bool = True) -> None:
        """Simplify what blocks are bound to; with `predicates`, drop those parts of predicates that always hold."""
        body = simplify_bindings(self.func(func).body, [])
        self.set_body(func, _drop_conditions(body, IndexSpace()) if predicates else body)


# ---- trees -----------------------------------------------------------------------------------------------------------


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


def simplify_bindings(s: Stmt, above: Path, preserve_unit_iters: bool = True) -> Stmt:
    """The statement with what its blocks are bound to written as maps of the loops; `above`: what it stands in."""
    ranges: dict[Var, Range] = {}
    for p in above:
        if isinstance(p, For):
            ranges[p.loop_var] = Range(p.min, p.extent)
        elif isinstance(p, BlockRealize):
            ranges.clear()
    return _simplify_below(s, ranges, preserve_unit_iters)


def _simplify_below(s: Any, ranges: dict[Var, Range], preserve: bool) -> Any:
    if isinstance(s, For):
        ranges[s.loop_var] = Range(s.min, s.extent)
        body = _simplify_below(s.body, ranges, preserve)
        del ranges[s.loop_var]
        return s if body is s.body else replace(s, body=body)
    if isinstance(s, BlockRealize):
        if s.block.iter_vars:
            values = _bindings(s, ranges, preserve)
            return s if values is None else replace(s, iter_values=values)
        body = _simplify_below(s.block.body, ranges, preserve)
        return s if body is s.block.body else replace(s, block=replace(s.block, body=body))
    changes: dict[str, Any] = {}
    for name in s.child_fields:
        old = getattr(s, name)
        if isinstance(old, Stmt):
            new: Any = _simplify_below(old, ranges, preserve)
        elif isinstance(old, tuple) and old and isinstance(old[0], Stmt):
            new = tuple(_simplify_below(x, ranges, preserve) for x in old)  # pyright: ignore[reportUnknownVariableType]
            if all(a is b for a, b in zip(new, old, strict=True)):  # pyright: ignore
                continue
        else:
            continue
        if new is not old:
            changes[name] = new
    return replace(s, **changes) if changes else s


def _bindings(s: BlockRealize, ranges: dict[Var, Range], preserve: bool) -> tuple[PrimExpr, ...] | None:
    """What the block is bound to, simplified; None where nothing changes."""
    if all(isinstance(v, (Var, IntImm)) for v in s.iter_values) and (
        preserve or not any(v in ranges and _is_one(ranges[v].extent) for v in s.iter_values if isinstance(v, Var))
    ):
        return None
    digits = _digits(s.iter_values, ranges, preserve)
    new = digits or iter_map_simplify(
        list(s.iter_values), ranges, s.predicate, "surjective", simplify_trivial_iterators=not preserve
    )
    values = tuple(v if v.dtype == old.dtype else cast(v, old.dtype) for v, old in zip(new, s.iter_values, strict=True))
    return None if all(a is b for a, b in zip(values, s.iter_values, strict=True)) else values


def linear_form(e: PrimExpr) -> tuple[dict[Var, int], int] | None:
    """The coefficients of variables, and the constant, of a sum with constant factors; None for any other expression."""
    terms: dict[Var, int] = {}

    def visit(x: Any, factor: int) -> int | None:
        kind = type(x)
        if kind is IntImm:
            return x.value * factor
        if kind is Add or kind is Sub:
            a, b = visit(x.a, factor), visit(x.b, factor if kind is Add else -factor)
            return None if a is None or b is None else a + b
        if kind is Mul:
            if type(x.b) is IntImm:
                return visit(x.a, factor * x.b.value)
            return visit(x.b, factor * x.a.value) if type(x.a) is IntImm else None
        if isinstance(x, Var):
            terms[x] = terms.get(x, 0) + factor
            return 0
        return None

    constant = visit(e, 1)
    return None if constant is None else ({v: c for v, c in terms.items() if c}, constant)


def _digits(values: Sequence[PrimExpr], ranges: dict[Var, Range], preserve: bool) -> list[PrimExpr] | None:
    """The values where each is a number written in digits that are loops: what the map of iterators gives, but faster."""
    used: set[Var] = set()
    out: list[PrimExpr] = []
    for e in values:
        if isinstance(e, IntImm):
            out.append(e)
            continue
        form = linear_form(e)
        if form is None:
            return None
        parts: list[tuple[int, Var, int]] = []
        for v, c in form[0].items():
            r = ranges.get(v)
            if r is None or v in used or c < 0 or not isinstance(r.extent, IntImm) or v.dtype != e.dtype:
                return None
            if not (isinstance(r.min, IntImm) and r.min.value == 0):
                return None
            used.add(v)
            if preserve or r.extent.value != 1:
                parts.append((c, v, r.extent.value))
        parts.sort(key=lambda p: -p[0])
        for (c, _, _), (d, _, n) in itertools.pairwise(parts):
            if c != d * n:
                return None
        new: PrimExpr = const(0, e.dtype)
        for c, v, _ in parts:
            new = add(new, mul(v, const(c, e.dtype)))
        new = add(new, const(form[1], e.dtype))
        out.append(e if expr_key(new) == expr_key(e) else new)
    return out


def _is_one(e: PrimExpr) -> bool:
    return isinstance(e, IntImm) and e.value == 1


def _drop_conditions(s: Any, space: IndexSpace) -> Any:
    """The statement without those parts of predicates that always hold."""
    if isinstance(s, For):
        space.set_range(s.loop_var, s.min, s.extent)
    elif isinstance(s, BlockRealize):
        predicate = s.predicate if isinstance(s.predicate, IntImm) else _simplify_predicate(s.predicate, space)
        for iv in s.block.iter_vars:
            if iv.dom is not None:
                space.set_range(iv.var, iv.dom.min, iv.dom.extent)
        block = _drop_conditions(s.block, space)
        return s if block is s.block and predicate is s.predicate else replace(s, predicate=predicate, block=block)
    changes: dict[str, Any] = {}
    for name in s.child_fields:
        old = getattr(s, name)
        if isinstance(old, Stmt):
            new: Any = _drop_conditions(old, space)
        elif isinstance(old, tuple) and old and isinstance(old[0], Stmt):
            new = tuple(_drop_conditions(x, space) for x in old)  # pyright: ignore[reportUnknownVariableType]
            if all(a is b for a, b in zip(new, old, strict=True)):  # pyright: ignore
                continue
        else:
            continue
        if new is not old:
            changes[name] = new
    return replace(s, **changes) if changes else s


def conjuncts(e: PrimExpr) -> list[PrimExpr]:
    """The parts of a conjunction."""
    if isinstance(e, And):
        return [*conjuncts(e.a), *conjuncts(e.b)]
    return [] if isinstance(e, IntImm) and e.value else [e]


def _simplify_predicate(e: PrimExpr, space: IndexSpace) -> PrimExpr:
    from tilewright.tir.lower.settle_loops import decide

    parts = conjuncts(e)
    kept: list[PrimExpr] = []
    seen: set[Any] = set()
    for part in parts:
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
        kept.append(part)
    if len(kept) == len(parts):
        return e
    out: PrimExpr = TRUE
    for part in kept:
        out = logical_and(out, part)
    return out
