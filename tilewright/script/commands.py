"""What the functions of the `T` namespace give to the parser when they are no expressions.

A *frame* (`T.allocate`, `T.attr`, `T.LetStmt`, `T.block`, ...) opens a scope: with `with` for its suite, without for the
rest of the suite it stands in. A *command* (`T.reads`, `T.axis.spatial`, `T.alloc_buffer`, ...) says something about the block
or function being parsed. A *loop* is what `for` goes over. All are plain records: nothing global is touched by making one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith import expr as E
from tilewright.ir.structure import structural_equal
from tilewright.script.immediate import Scoped
from tilewright.tir import ir as tir

__all__ = [
    "AllocBuffer", "AxisCommand", "BlockAttr", "BlockFrame", "Frame", "BranchFrame", "FuncAttr", "IfFrame", "InitFrame", "Loop", "MatchBuffer",
    "MetaVar", "Predicate", "Reads", "Writes", "between", "fresh_name", "name_buffer", "range_of", "regions",
]  # fmt: skip


def between(start: Any, stop: Any) -> E.PrimExpr:
    """The extent of `start:stop`; `a : a + e` has extent `e`, whatever `a` is."""
    start, stop = E.convert(start), E.convert(stop)
    if start.dtype != stop.dtype:
        if isinstance(start, E.IntImm):
            start = E.cast(start, stop.dtype)
        elif isinstance(stop, E.IntImm):
            stop = E.cast(stop, start.dtype)
    if isinstance(stop, E.Add) and (stop.a is start or structural_equal(stop.a, start)):
        return stop.b
    if start is stop or structural_equal(start, stop):
        return E.const(0, start.dtype)
    return E.sub(stop, start)


def range_of(domain: Any) -> tir.Range:
    """A domain (extent, pair of ends, or Range) as a Range."""
    if isinstance(domain, tir.Range):
        return domain
    if isinstance(domain, (tuple, list)):
        if len(domain) != 2:  # pyright: ignore[reportUnknownArgumentType]
            raise ValueError("a domain is an extent, a pair (begin, end), or a Range")
        start, stop = E.convert(domain[0]), E.convert(domain[1])
        if start.dtype != stop.dtype and isinstance(start, E.IntImm):
            start = E.cast(start, stop.dtype)
        return tir.Range(start, between(start, stop))
    extent = E.convert(domain)
    return tir.Range(E.const(0, extent.dtype), extent)


def fresh_name(v: Any, name: str) -> None:
    """Name a variable that has no name yet, in place: names are for people."""
    if not v.name:
        v.name = name


def name_buffer(b: tir.Buffer, name: str) -> tir.Buffer:
    """Name a buffer (and its pointer) that has no name yet."""
    made: Any = b
    if not b.name:
        made.name = name
    fresh_name(b.data, name)
    return b


def regions(buffers: Sequence[Any]) -> tuple[tir.BufferRegion, ...]:
    """Arguments of `T.reads`/`T.writes` as regions: an element is a region of extent one, a buffer all of it."""
    out: list[tir.BufferRegion] = []
    for b in buffers:
        if isinstance(b, (list, tuple)):
            out.extend(regions(b))  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(b, tir.BufferRegion):
            out.append(b)
        elif isinstance(b, tir.BufferLoad):
            out.append(tir.BufferRegion(b.buffer, tuple(_point(i) for i in b.indices)))
        elif isinstance(b, tir.Buffer):
            out.append(tir.BufferRegion(b, tuple(tir.Range(E.const(0, n.dtype), n) for n in b.shape)))
        else:
            raise TypeError(f"a region of a buffer is needed, such as A[i, 0:4], not {b!r}")
    return tuple(out)


def _point(i: E.PrimExpr) -> tir.Range:
    if isinstance(i, E.Ramp):
        if not (isinstance(i.stride, E.IntImm) and i.stride.value == 1):
            raise ValueError("a region has no steps: give the whole range")
        return tir.Range(i.base, E.const(i.lanes, i.base.dtype) * i.stride)
    return tir.Range(i, E.IntImm(i.dtype, 1))


# ---- frames


@dataclass
class Frame(Scoped):
    """Opens a scope. `wrap(body)` makes the statement; `value` is what the scope's name stands for (None: no name)."""

    wrap: Callable[[tir.Stmt], tir.Stmt]
    value: Any = None
    what: str = "a scope"


@dataclass
class BlockFrame(Scoped):
    """`with T.block(name):`"""

    name: str
    no_realize: bool = False
    value: Any = None
    what: str = "T.block"


@dataclass
class InitFrame(Scoped):
    """`with T.init():`"""

    value: Any = None
    what: str = "T.init"


@dataclass
class SeqFrame(Scoped):
    """`with T.seq():` a sequence of its own, of however many statements."""

    value: Any = None
    what: str = "T.seq"


@dataclass
class IfFrame(Scoped):
    """`with T.If(condition):` holds `with T.Then():` and perhaps `with T.Else():`."""

    condition: E.PrimExpr
    then_case: tir.Stmt | None = None
    else_case: tir.Stmt | None = None
    value: Any = None
    what: str = "T.If"


@dataclass
class BranchFrame(Scoped):
    """`with T.Then():`, `with T.Else():`"""

    is_then: bool
    value: Any = None
    what: str = "T.Then"


# ---- commands


@dataclass
class AxisCommand:
    """One axis of a block: its kind, its domain (None: that of the loop variable bound), its binding."""

    iter_type: int
    domain: Any
    binding: Any = None


@dataclass
class Reads:
    """`T.reads(...)`"""

    regions: tuple[tir.BufferRegion, ...]


@dataclass
class Writes:
    """`T.writes(...)`"""

    regions: tuple[tir.BufferRegion, ...]


@dataclass
class Predicate:
    """`T.where(...)`"""

    condition: E.PrimExpr


@dataclass
class BlockAttr:
    """`T.block_attr({...})`"""

    annotations: dict[str, Any]


@dataclass
class FuncAttr:
    """`T.func_attr({...})`, `R.func_attr({...})`"""

    attrs: dict[str, Any]


@dataclass
class AllocBuffer:
    """`T.alloc_buffer(...)`"""

    buffer: tir.Buffer


@dataclass
class MatchBuffer:
    """`T.match_buffer(source, ...)`: a parameter, or a region."""

    source: Any
    buffer: tir.Buffer


@dataclass
class MetaVar:
    """`T.meta_var(value)`: a name for the expression itself, not a variable of the program."""

    value: Any

    def __iter__(self) -> Any:
        return (MetaVar(v) for v in self.value)


@dataclass
class Loop(Scoped):
    """What `for` goes over. `make(variables, body)` builds the loops; `dtypes` those of the variables.

    As a frame (`with T.serial(8) as i:`) its value is the variable, or the list of them.
    """

    dtypes: tuple[str, ...]
    ranges: tuple[tuple[E.PrimExpr, E.PrimExpr], ...]
    make: Callable[[Sequence[E.Var], tir.Stmt], tir.Stmt]
    what: str = "T.serial"
    value: Any = None
