"""The state of a schedule as its users see it: handles of statements that stay good while the program changes, the
dependences of a scope, and the properties of blocks.

    state = ScheduleState(func)                     # or sch.state
    sref = state.get_sref(block_or_loop)            # sref.stmt is the statement as it is now
    state.get_block_scope(root).get_deps_by_src(sref)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from tilewright.ir.module import IRModule
from tilewright.ir.node import Node, replace
from tilewright.tir.ir import Block, BlockRealize, For, PrimFunc, Stmt
from tilewright.tir.schedule.errors import UnknownHandleError, fail
from tilewright.tir.schedule.scope import (
    DepKind,
    Scope,
    blocks_of,
    has_region_cover,
    is_affine,
    loops_in_scope,
    scope_path,
    why_not_stage_pipeline,
)
from tilewright.tir.schedule.state import BlockName, BlockRV, LoopRV, Place, State

__all__ = ["BlockScope", "CachedFlags", "Dependency", "ScheduleDebugMask", "ScheduleState", "StmtSRef", "module_of"]


class ScheduleDebugMask(IntEnum):
    """What is verified after each step."""

    VERIFY_SREF_TREE = 1
    VERIFY_CACHED_FLAGS = 2


class CachedFlags(NamedTuple):
    """Properties of a block; see `scope.py`."""

    affine_binding: bool
    region_cover: bool
    stage_pipeline: bool


class StmtSRef:
    """A block or loop of a program under a schedule, whatever it looks like now."""

    def __init__(self, state: ScheduleState, rv: Place | None, mark: str = "") -> None:
        self._state, self._rv, self._mark = state, rv, mark

    @property
    def stmt(self) -> Block | For | None:
        """The statement as it is now; None where it is gone."""
        if self._rv is None:
            return None
        try:
            found = self._state.block(self._rv).block if isinstance(self._rv, BlockRV) else self._state.loop(self._rv)
        except UnknownHandleError:
            return None
        return found

    @property
    def parent(self) -> StmtSRef | None:
        """The loop or block around it; None for the root block."""
        if self._rv is None or self.stmt is None:
            return None
        for s in reversed(self._state.path(self._rv)[:-1]):
            if isinstance(s, For):
                return self._state.sref(LoopRV(s.loop_var, self._rv.func))
            if isinstance(s, BlockRealize):
                return self._state.sref(BlockRV(s.block.name_hint, self._rv.func))
        return None

    @property
    def seq_index(self) -> int:
        """Its place among the statements that run one after the other around it; -1 where it stands alone."""
        if self._rv is None or self.stmt is None:
            return -1
        path = self._state.path(self._rv)
        above: Any = path[-2] if len(path) > 1 else None
        items: tuple[Stmt, ...] = getattr(above, "seq", ())
        return next((i for i, s in enumerate(items) if s is path[-1]), -1)

    @staticmethod
    def inline_mark() -> StmtSRef:
        """Stands for "compute it where it is used"."""
        return _INLINE

    @staticmethod
    def root_mark() -> StmtSRef:
        """Stands for "compute it outside of all loops"."""
        return _ROOT

    def same_as(self, other: object) -> bool:
        """Is it the same handle?"""
        return self is other

    def __repr__(self) -> str:
        return f"StmtSRef({self._mark or self._rv!r})"


class Dependency(NamedTuple):
    """The block `dst` depends on `src`."""

    src: StmtSRef
    dst: StmtSRef
    kind: DepKind


class BlockScope:
    """The dependences between the blocks of a scope."""

    def __init__(self, state: ScheduleState, func: str, scope: Scope) -> None:
        def sref(b: BlockRealize) -> StmtSRef:
            return state.sref(BlockRV(b.block.name_hint, func))

        self._edges = [Dependency(sref(e.src), sref(e.dst), e.kind) for e in scope.edges]

    def get_deps_by_src(self, block: StmtSRef) -> list[Dependency]:
        """What depends on a block."""
        return [e for e in self._edges if e.src is block]

    def get_deps_by_dst(self, block: StmtSRef) -> list[Dependency]:
        """What a block depends on."""
        return [e for e in self._edges if e.dst is block]


def module_of(mod: Any) -> IRModule:
    """The module that a schedule works on: a copy of an IRModule, a PrimFunc as `main`, or a mapping of names.

    Raises ScheduleError TW0401 where there is no function of the loop IR.
    """
    if isinstance(mod, PrimFunc):
        module = IRModule({"main": mod})
    elif isinstance(mod, IRModule):
        module = mod.clone()
    elif isinstance(mod, Mapping):
        module = IRModule(dict(mod))  # pyright: ignore[reportUnknownArgumentType]
    else:
        raise fail("TW0401", f"a schedule is made of an IRModule or a PrimFunc, not of {type(mod).__name__}")
    if not any(isinstance(f, PrimFunc) for f in module.functions.values()):
        raise fail("TW0401", "the module has no function of the loop IR to schedule")
    for v, f in module.functions.items():
        if isinstance(f, PrimFunc):
            told = _told_apart(f)
            if told is not f:
                module.update_func(v, told)
    return module


def _entry(module: IRModule) -> str:
    """The function that is meant where none is said; empty where several could be."""
    names = [v.name_hint for v, f in module.functions.items() if isinstance(f, PrimFunc)]
    return "main" if "main" in names else names[0] if len(names) == 1 else ""


def _told_apart(f: PrimFunc) -> PrimFunc:
    """The function with name objects of their own for blocks that share a name."""
    count: dict[str, int] = {}

    def tally(s: Any) -> None:
        if isinstance(s, Block):
            count[s.name_hint] = count.get(s.name_hint, 0) + 1
        for field in s.child_fields:
            for c in _statements(getattr(s, field)):
                tally(c)

    tally(f.body)
    if all(n == 1 for n in count.values()):
        return f

    def visit(s: Any) -> Any:
        changes: dict[str, Any] = {}
        for field in s.child_fields:
            old = getattr(s, field)
            if isinstance(old, Stmt):
                changes[field] = visit(old)
            elif isinstance(old, tuple) and any(isinstance(x, Stmt) for x in old):  # pyright: ignore
                changes[field] = tuple(visit(x) for x in old)  # pyright: ignore[reportUnknownVariableType]
        if isinstance(s, Block) and count[s.name_hint] > 1:
            changes["name_hint"] = BlockName(s.name_hint)
        return replace(s, **changes) if changes else s

    return replace(f, body=visit(f.body))


def _statements(value: Any) -> list[Stmt]:
    if isinstance(value, Stmt):
        return [value]
    return [x for x in value if isinstance(x, Stmt)] if isinstance(value, tuple) else []  # pyright: ignore


class ScheduleState(State):
    """The program under a schedule, with handles of its statements."""

    def __init__(self, mod: Any, *, debug_mask: str | int = "none", enable_check: bool = True) -> None:
        module = module_of(mod)
        super().__init__(module, _entry(module))
        self.debug_mask = mask_of(debug_mask)
        self.enable_check = enable_check
        self._srefs: dict[Any, StmtSRef] = {}

    def copy(self) -> ScheduleState:
        """An independent state, with handles of its own."""
        new = super().copy()
        assert isinstance(new, ScheduleState)
        new._srefs = {}
        return new

    def sref(self, rv: Place) -> StmtSRef:
        """The handle of a block or loop, the same object each time."""
        if isinstance(rv, BlockRV):
            name = rv.name
            while name in self.aliases:
                name = self.aliases[name]
            key: Any = (rv.func, id(name) if isinstance(name, BlockName) else name)
            rv = BlockRV(name, rv.func)
        else:
            key = (rv.func, rv.var)
        found = self._srefs.get(key)
        if found is None:
            found = self._srefs[key] = StmtSRef(self, rv)
        return found

    def get_sref(self, stmt: Any) -> StmtSRef | None:
        """The handle of a block or loop of the program as it is now; None for anything else."""
        for v, f in self.mod.functions.items():
            if not isinstance(f, PrimFunc):
                continue
            if isinstance(stmt, For) and self.index(v.name_hint).loops.get(stmt.loop_var) is stmt:
                return self.sref(LoopRV(stmt.loop_var, v.name_hint))
            if isinstance(stmt, Block):
                for b in self.index(v.name_hint).blocks.get(stmt.name_hint, ()):
                    if b.block is stmt:
                        return self.sref(BlockRV(b.block.name_hint, v.name_hint))
        return None

    def _realize(self, sref: StmtSRef) -> tuple[str, BlockRealize]:
        rv = sref._rv  # pyright: ignore[reportPrivateUsage]
        if not isinstance(rv, BlockRV):
            raise fail("TW0402", f"{sref!r} is no block")
        return rv.func, self.block(rv)

    def get_block_scope(self, block_sref: StmtSRef) -> BlockScope:
        """The dependences between the blocks that stand in a block."""
        func, realize = self._realize(block_sref)
        return BlockScope(self, func, Scope(blocks_of(realize)))

    def _get_cached_flags(self, block_sref: StmtSRef) -> CachedFlags:
        """The properties of a block (the name is the field's; nothing is cached)."""
        func, realize = self._realize(block_sref)
        path = self.path_to(func, realize)
        above = scope_path(path)
        cover = True
        if above:
            scope = above[-1]
            assert isinstance(scope, BlockRealize)
            cover = has_region_cover(self, func, scope, realize)
        pipeline = why_not_stage_pipeline(self, func, realize) is None
        return CachedFlags(is_affine(realize, loops_in_scope(path)), cover, pipeline)

    def replace(self, src_sref: StmtSRef, tgt_stmt: Any, block_sref_reuse: Mapping[Any, Any] | None = None) -> None:
        """Put another statement in the place of a block or loop.

        `block_sref_reuse` says which new block goes on under the handle of which old one. Raises ScheduleError TW0404
        where a block is to be replaced by a loop.
        """
        rv = src_sref._rv  # pyright: ignore[reportPrivateUsage]
        if rv is None or src_sref.stmt is None:
            raise fail("TW0403", f"{src_sref!r} is gone", kind=UnknownHandleError)
        path = self.path(rv)
        if isinstance(tgt_stmt, Block):
            if not isinstance(path[-1], BlockRealize):
                raise fail("TW0404", "a block cannot stand where a loop was: give its realization")
            tgt_stmt = replace(path[-1], block=tgt_stmt)
        elif not isinstance(tgt_stmt, Node):
            raise fail("TW0404", f"a statement is expected, not {type(tgt_stmt).__name__}")
        before = [(old.name_hint, new.name_hint) for old, new in (block_sref_reuse or {}).items()]
        self.put(rv.func, path, tgt_stmt)  # pyright: ignore[reportArgumentType]
        for old, new in before:
            if old != new:
                self.aliases[old] = new
                sref = self._srefs.pop((rv.func, old), None)
                if sref is not None:
                    sref._rv = BlockRV(new, rv.func)  # pyright: ignore[reportPrivateUsage]
                    self._srefs[rv.func, new] = sref

    def __hash__(self) -> int:
        return id(self)


def mask_of(mask: Any) -> int:
    """`debug_mask` as a number. Raises ScheduleError TW0424 where it is none of those known."""
    known = {"none": 0, "all": 3, "verify-srefs": 1, "verify-cached-flags": 2}
    if isinstance(mask, str):
        if mask not in known:
            raise fail("TW0424", f"{mask!r} is no debug mask", choices=known, kind=UnknownHandleError)
        return known[mask]
    if not isinstance(mask, int):
        raise TypeError(f"a debug mask is a name or a number, not {type(mask).__name__}")
    return 3 if mask == -1 else mask


_NOWHERE: Any = None
_INLINE = StmtSRef(_NOWHERE, None, "inline_mark")
_ROOT = StmtSRef(_NOWHERE, None, "root_mark")
