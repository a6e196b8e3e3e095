"""What a kernel computes, read off its block form: a list of stages, each a buffer defined by an expression.

    map       out[index(axes)] = value(axes)
    reduce    out[index(axes)] = combine over reduce of value(axes, reduce), started from `init`
    opaque    a statement that is neither (a scan, a scatter, a block the user scheduled): kept as it is

Axis variables are the block's own iterators, shifted to start at zero; so stages share no variables.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.arith.expr import (
    Add,
    And,
    BinaryOp,
    Cast,
    CmpOp,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Or,
    PrimExpr,
    Var,
    add,
    cast,
    const,
    max_value,
    min_value,
)
from tilewright.ir import dtype as dt
from tilewright.ir.node import map_children, walk
from tilewright.ir.rewrite import substitute
from tilewright.ir.structure import structural_equal
from tilewright.tir.ir import (
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
)
from tilewright.tir.lower.index import IndexSpace

__all__ = ["Axis", "Opaque", "Program", "Stage", "identity_of", "read_program"]

_COMBINE: dict[type, str] = {Add: "add", Mul: "mul", Max: "max", Min: "min", And: "and", Or: "or"}
_BUILD: dict[str, Any] = {name: kind for kind, name in _COMBINE.items()}


@dataclass
class Axis:
    """A dimension of a stage: the variable runs over [0, extent)."""

    var: Var
    extent: PrimExpr

    @property
    def size(self) -> int | None:
        """The extent where it is a number."""
        return self.extent.value if isinstance(self.extent, IntImm) else None


@dataclass
class Stage:
    """One buffer and how it is computed; see the head of the module."""

    name: str
    axes: list[Axis]
    reduce: list[Axis]
    out: Buffer
    index: tuple[PrimExpr, ...]
    value: PrimExpr
    combine: str | None = None
    init: PrimExpr | None = None
    result: Var | None = None
    """In `epilogue`: stands for the finished value of a reduction."""
    epilogue: PrimExpr | None = None
    """What is stored at the end of a reduction; the reduced value itself if None."""

    def join(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """`a` and `b` combined."""
        assert self.combine is not None
        return _BUILD[self.combine](a, b)

    def finished(self, value: PrimExpr) -> PrimExpr:
        """What is stored once the reduction came to `value`."""
        if self.epilogue is None:
            return value
        assert self.result is not None
        return Let(self.result, value, self.epilogue)

    @property
    def acc_dtype(self) -> str:
        """The dtype that the reduction is computed in."""
        return self.value.dtype

    def reads(self) -> list[BufferLoad]:
        """Every load of the stage."""
        roots = [
            self.value,
            *(() if self.epilogue is None else (self.epilogue,)),
            *(() if self.init is None else (self.init,)),
        ]
        return [x for e in roots for x in walk(e) if isinstance(x, BufferLoad)]


@dataclass
class Opaque:
    """A statement that the schedules leave as it is."""

    stmt: Stmt
    buffers: set[Buffer] = field(default_factory=lambda: set[Buffer]())

    def reads(self) -> list[BufferLoad]:
        """Every load of the statement."""
        return [x for x in walk(self.stmt) if isinstance(x, BufferLoad)]


@dataclass
class Program:
    """The stages of a kernel in order, and the buffers that live only between them."""

    stages: list[Stage | Opaque]
    temps: list[Buffer]


def identity_of(combine: str, dtype: str) -> PrimExpr | None:
    """The value that changes nothing when combined."""
    if combine == "add":
        return const(0, dtype)
    if combine == "mul":
        return const(1, dtype)
    if combine == "max":
        return min_value(dtype)
    if combine == "min":
        return max_value(dtype)
    return const(combine == "and", "bool")


def read_program(f: PrimFunc) -> Program | None:
    """The stages of `f`; None where the function is not in the shape that `create_prim_func` gives."""
    if not isinstance(f.body, BlockRealize) or f.body.iter_values or f.body.block.init is not None:
        return None
    root = f.body.block
    if root.match_buffers:
        return None
    stages: list[Stage | Opaque] = []
    for s in root.body.seq if isinstance(root.body, SeqStmt) else (root.body,):
        stage = _read_stage(s)
        if stage is None:
            if any(isinstance(x, For) and x.kind != ForKind.SERIAL for x in walk(s)):
                return None  # scheduled by hand: leave it alone
            stage = Opaque(s, _buffers(s))
        stages.append(stage)
    return Program(stages, list(root.alloc_buffers))


def _buffers(s: Stmt) -> set[Buffer]:
    return {x.buffer for x in walk(s) if isinstance(x, (BufferLoad, BufferStore))}


def _read_stage(s: Stmt) -> Stage | None:
    loops: dict[Var, PrimExpr] = {}
    while isinstance(s, For):
        if s.kind != ForKind.SERIAL or not (isinstance(s.min, IntImm) and s.min.value == 0) or s.annotations:
            return None
        loops[s.loop_var] = s.extent
        s = s.body
    if not isinstance(s, BlockRealize) or not (isinstance(s.predicate, IntImm) and s.predicate.value):
        return None
    block = s.block
    if block.alloc_buffers or block.match_buffers:
        return None
    axes: list[Axis] = []
    reduce: list[Axis] = []
    shift: dict[Any, PrimExpr] = {}
    for iv, value in zip(block.iter_vars, s.iter_values, strict=True):
        axis = _axis(iv, value, loops, shift)
        if axis is None:
            return None
        (axes if iv.iter_type == IterVar.DataPar else reduce).append(axis)
    if loops:
        return None
    body, init = block.body, block.init
    lets: list[tuple[Var, PrimExpr]] = []
    while isinstance(body, LetStmt):
        lets.append((body.var, body.value))
        body = body.body
    if not isinstance(body, BufferStore) or (lets and reduce):
        return None
    value = body.value
    for var, bound in reversed(lets):
        value = Let(var, bound, value)
    stage = Stage(block.name_hint, axes, reduce, body.buffer, body.indices, value)
    if reduce or init is not None:
        if not isinstance(init, BufferStore) or not _split_reduction(stage, init):
            return None
    elif any(isinstance(x, BufferLoad) and x.buffer is body.buffer for x in walk(value)):
        return None
    if shift:
        stage.value = substitute(stage.value, shift)
        stage.index = tuple(substitute(i, shift) for i in stage.index)
        stage.init = None if stage.init is None else substitute(stage.init, shift)
    _widen_axes(stage)
    for axis in [*stage.axes, *stage.reduce]:
        if axis.size is None:
            axis.extent = IndexSpace().simplify(axis.extent)
    return stage


def _widen_axes(stage: Stage) -> None:
    """Make all axes int64 where some are: blocks over sizes of both dtypes would not match each other."""
    axes = [*stage.axes, *stage.reduce]
    dtypes = {a.var.dtype for a in axes} | {n.dtype for n in stage.out.shape}
    if len(dtypes) < 2:
        return
    mapping: dict[Var, Var] = {a.var: Var(a.var.name, "int64") for a in axes if a.var.dtype != "int64"}

    def wide(axis: Axis) -> Axis:
        return Axis(mapping.get(axis.var, axis.var), cast(axis.extent, "int64"))

    stage.axes, stage.reduce = [wide(a) for a in stage.axes], [wide(a) for a in stage.reduce]
    stage.value = _widen(stage.value, mapping)
    stage.index = tuple(_widen(i, mapping) for i in stage.index)
    stage.init = None if stage.init is None else _widen(stage.init, mapping)


def _widen(e: Any, mapping: dict[Var, Var]) -> Any:
    """The expression with variables replaced by wider ones; arithmetic on them becomes wider too, other uses are cast back."""
    if isinstance(e, Var):
        return mapping.get(e, e)
    if not isinstance(e, PrimExpr) or e.identity:
        return e
    if isinstance(e, (BinaryOp, CmpOp)):
        a, b = _widen(e.a, mapping), _widen(e.b, mapping)
        if a is e.a and b is e.b:
            return e
        if a.dtype != b.dtype:
            a, b = cast(a, "int64"), cast(b, "int64")
        return type(e)(a, b)
    if isinstance(e, Cast):
        value = _widen(e.value, mapping)
        return e if value is e.value else cast(value, e.dtype)
    if isinstance(e, BufferLoad):
        return BufferLoad(e.buffer, tuple(_widen(i, mapping) for i in e.indices))

    def narrow(x: Any) -> Any:
        new = _widen(x, mapping)
        return cast(new, x.dtype) if isinstance(x, PrimExpr) and new.dtype != x.dtype else new

    return map_children(e, narrow)


def _axis(iv: IterVar, value: PrimExpr, loops: dict[Var, PrimExpr], shift: dict[Any, PrimExpr]) -> Axis | None:
    """The axis that a block iterator is, taking its loop out of `loops`."""
    if iv.dom is None or iv.iter_type not in (IterVar.DataPar, IterVar.CommReduce):
        return None
    low, extent = iv.dom.min, iv.dom.extent
    zero = isinstance(low, IntImm) and low.value == 0
    if isinstance(value, Var):
        if not zero or value not in loops or not structural_equal(loops.pop(value), extent):
            return None
        return Axis(iv.var, extent)
    if isinstance(extent, IntImm) and extent.value == 1 and isinstance(value, IntImm):
        shift[iv.var] = value
        return Axis(Var(iv.var.name, iv.var.dtype), extent)
    if isinstance(value, Add) and isinstance(value.b, Var) and value.b in loops and structural_equal(value.a, low):
        if not structural_equal(loops.pop(value.b), extent):
            return None
        var = Var(iv.var.name, iv.var.dtype)
        shift[iv.var] = add(low, var)
        return Axis(var, extent)
    return None


def _split_reduction(stage: Stage, init: BufferStore) -> bool:
    """Take `out[i] = out[i] combine rest` apart. False where it is no such thing."""
    update = stage.value
    name = _COMBINE.get(type(update))
    if name is None or init.buffer is not stage.out:
        return False
    if name in ("and", "or") and update.dtype != "bool":
        return False

    def is_self(e: PrimExpr) -> bool:
        return isinstance(e, BufferLoad) and e.buffer is stage.out and structural_equal(e.indices, stage.index)

    a: PrimExpr = update.a  # pyright: ignore
    b: PrimExpr = update.b  # pyright: ignore
    if is_self(b):
        a, b = b, a
    if not is_self(a) or any(isinstance(x, BufferLoad) and x.buffer is stage.out for x in walk(b)):
        return False
    stage.value, stage.combine, stage.init = b, name, init.value
    return structural_equal(init.indices, stage.index) and dt.lanes(b.dtype) == 1
