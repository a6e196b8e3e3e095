"""Static memory planning: where in one arena each intermediate tensor lies.

Each request has a size in bytes and the steps between which it is alive. With constant sizes, offsets are chosen greedily,
largest first, at the lowest offset that no overlapping request holds (Pisarchyk & Lee, "Efficient Memory Management for Deep
Neural Net Inference", 2020: greedy by size). Requests whose size depends on dimensions known only at run time share *slots*:
a slot is as large as the largest of its requests, and its offset is the sum of the slots before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.arith.expr import IntImm, PrimExpr, const, maximum
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.ir.structure import structural_equal

__all__ = ["ALIGN", "MemoryPlan", "Request", "plan"]

ALIGN = 64
"""Every offset is a multiple of a cache line, so that vector accesses are aligned."""

_HINT = 64
"""The value assumed of an unknown dimension when slots are chosen: only quality depends on it."""


@dataclass(eq=False)
class Request:
    """Memory for one tensor: `size` bytes (int64 expression), alive from step `first` to step `last`, both included."""

    size: PrimExpr
    first: int
    last: int
    offset: PrimExpr | None = None


@dataclass
class MemoryPlan:
    """The arena: its size in bytes, and for constant sizes what liveness alone would need and what no reuse would take."""

    size: PrimExpr
    lower_bound: int | None = None
    without_reuse: int | None = None
    requests: list[Request] = field(default_factory=list[Request])


def round_up(size: PrimExpr) -> PrimExpr:
    """`size` rounded up to a multiple of `ALIGN`."""
    return (size + (ALIGN - 1)) // ALIGN * ALIGN


def plan(requests: list[Request]) -> MemoryPlan:
    """Choose an offset for every request; they are written into the requests."""
    constant = [r for r in requests if isinstance(r.size, IntImm)]
    symbolic = [r for r in requests if not isinstance(r.size, IntImm)]
    base = _plan_constant(constant)
    size: PrimExpr = const(base, "int64")
    if symbolic:
        size = _plan_slots(symbolic, size)
    out = MemoryPlan(size, requests=requests)
    if not symbolic:
        out.lower_bound, out.without_reuse = _bounds(constant)
    return out


def _bytes(r: Request) -> int:
    assert isinstance(r.size, IntImm)
    return (r.size.value + ALIGN - 1) // ALIGN * ALIGN


def _plan_constant(requests: list[Request]) -> int:
    placed: list[tuple[int, int, Request]] = []
    end = 0
    for r in sorted(requests, key=lambda r: (-_bytes(r), r.first)):
        offset, need = 0, _bytes(r)
        for start, stop, other in placed:
            if other.first <= r.last and r.first <= other.last:
                if offset + need <= start:
                    break
                offset = max(offset, stop)
        r.offset = const(offset, "int64")
        placed.append((offset, offset + need, r))
        placed.sort(key=lambda p: p[0])
        end = max(end, offset + need)
    return end


def _bounds(requests: list[Request]) -> tuple[int, int]:
    events: dict[int, int] = {}
    for r in requests:
        events[r.first] = events.get(r.first, 0) + _bytes(r)
        events[r.last + 1] = events.get(r.last + 1, 0) - _bytes(r)
    live = peak = 0
    for step in sorted(events):
        live += events[step]
        peak = max(peak, live)
    return peak, sum(_bytes(r) for r in requests)


def _estimate(size: PrimExpr) -> int:
    from tilewright.support.lazy import resolve

    guess = substitute(size, {v: const(_HINT, v.dtype) for v in free_vars(size)})
    guess = resolve("arith.simplify")(guess)
    return int(guess) if isinstance(guess, IntImm) else _HINT * _HINT


@dataclass(eq=False)
class _Slot:
    sizes: list[PrimExpr]
    estimate: int
    busy_until: int
    users: list[Request]


def _plan_slots(requests: list[Request], base: PrimExpr) -> PrimExpr:
    slots: list[_Slot] = []
    for r in sorted(requests, key=lambda r: r.first):
        need = _estimate(r.size)
        free = [s for s in slots if s.busy_until < r.first]
        if free:
            # the closest fit: an exact one first, then the least growth or waste
            slot = min(
                free, key=lambda s: (not any(structural_equal(x, r.size) for x in s.sizes), abs(s.estimate - need))
            )
        else:
            slot = _Slot([], 0, -1, [])
            slots.append(slot)
        if not any(structural_equal(x, r.size) for x in slot.sizes):
            slot.sizes.append(r.size)
        slot.estimate, slot.busy_until = max(slot.estimate, need), r.last
        slot.users.append(r)
    offset = base
    for slot in slots:
        for r in slot.users:
            r.offset = offset
        size: Any = slot.sizes[0]
        for other in slot.sizes[1:]:
            size = maximum(size, other)
        offset = offset + round_up(size)
    return offset
