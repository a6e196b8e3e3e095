"""What `debug_mask` verifies after each step: the program is well formed, its handles are sound, its regions cover what is
accessed.

A block whose declared regions fell short in the program that the schedule was made of (regions may be hidden or given by
hand) is not held to it.
"""

from __future__ import annotations

from tilewright.arith.analyzer import Analyzer
from tilewright.ir.module import IRModule
from tilewright.ir.node import walk
from tilewright.support.diagnostics import CompileError
from tilewright.support.lazy import resolve
from tilewright.tir.analysis.regions import accesses
from tilewright.tir.ir import Block, BufferRegion, For, PrimFunc
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.state import State

__all__ = ["short_regions", "verify_cover", "verify_form", "verify_handles", "well_formed"]


def verify_handles(s: State) -> None:
    """Raise ScheduleError TW0424 where one variable belongs to two loops, so that a handle would be ambiguous."""
    for v, f in s.mod.functions.items():
        if not isinstance(f, PrimFunc):
            continue
        seen: set[int] = set()
        for x in walk(f.body):
            if isinstance(x, For):
                if id(x.loop_var) in seen:
                    raise fail("TW0424", f"two loops of {v.name_hint} run over one variable {x.loop_var.name!r}", f, x)
                seen.add(id(x.loop_var))


def well_formed(mod: IRModule) -> bool:
    """Are all functions of the loop IR well formed?"""
    return resolve("verify.wellformed")(mod, False)


def verify_form(s: State) -> None:
    """Raise ScheduleError TW0424 where a function is not well formed."""
    try:
        resolve("verify.wellformed")(s.mod)
    except CompileError as error:
        raise fail("TW0424", f"the step left a program that is not well formed: {error}") from error


def short_regions(s: State) -> set[str]:
    """The names of the blocks whose declared regions do not cover what they access."""
    out: set[str] = set()
    for f in s.mod.functions.values():
        if isinstance(f, PrimFunc):
            out |= {b.name_hint for b in walk(f.body) if isinstance(b, Block) and _shortfall(b) is not None}
    return out


def verify_cover(s: State, exempt: set[str]) -> None:
    """Raise ScheduleError TW0424 where a block accesses more than it declares."""
    for f in s.mod.functions.values():
        if not isinstance(f, PrimFunc):
            continue
        for b in walk(f.body):
            if isinstance(b, Block) and b.name_hint not in exempt:
                short = _shortfall(b)
                if short is not None:
                    raise fail("TW0424", f"the block {b.name_hint!r} {short}, which it does not declare", f, b)


def _shortfall(b: Block) -> str | None:
    if not b.reads and not b.writes and not b.iter_vars:
        return None  # the root block declares nothing
    bare = Block(
        b.iter_vars, (), (), b.name_hint, b.body, b.init, b.alloc_buffers, b.match_buffers, b.annotations
    )  # fmt: skip
    reads, writes, opaque = accesses(bare)
    if opaque:
        return None
    ana = Analyzer()
    for iv in b.iter_vars:
        if iv.dom is not None:
            ana.bind(iv.var, iv.dom)
    for word, found, declared in (("reads", reads, b.reads), ("writes", writes, b.writes)):
        for buffer, union in found.items():
            if word == "reads" and b.init is not None and any(w.buffer is buffer for w in b.writes):
                continue  # the accumulator
            table = [r for r in declared if r.buffer is buffer]
            if not any(_holds(r, union.region(), ana) for r in table):
                return f"{word} {buffer.name}"
    return None


def _holds(outer: BufferRegion, inner: BufferRegion, ana: Analyzer) -> bool:
    for a, b, n in zip(outer.region, inner.region, outer.buffer.shape, strict=True):
        whole = ana.can_prove_equal(a.extent, n)
        if not whole and not (ana.can_prove(a.min <= b.min) and ana.can_prove(b.min + b.extent <= a.min + a.extent)):
            return False
    return True
