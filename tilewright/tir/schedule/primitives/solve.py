"""Which values of a block's axes touch a region of a buffer: the indices inverted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import FloorDiv, FloorMod, IntImm, Mul, PrimExpr, Sub, Var, cast, const, floordiv, floormod
from tilewright.arith.int_set import eval_range
from tilewright.arith.iter_divide import inverse_affine_iter_map
from tilewright.arith.iter_expr import IterMark, IterSumExpr
from tilewright.arith.iter_map import detect_iter_map
from tilewright.arith.linear import linear_form
from tilewright.ir.node import walk
from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import Block, Buffer, BufferRegion, Range
from tilewright.tir.schedule.primitives.relax import Ends, proves, value_of

__all__ = ["Domain", "axis_domains", "invert", "raw_inverse"]


class Domain(NamedTuple):
    """The part of an axis that is needed, from `low` to `high`; `whole`: all of it."""

    low: PrimExpr
    high: PrimExpr
    whole: bool


def axis_domains(
    block: Block, regions: Sequence[BufferRegion], required: Mapping[Buffer, list[Ends]], ana: Analyzer
) -> list[Domain]:
    """For each axis of the block the values that touch what is required of the buffers: never fewer. `regions` says what
    one instance of the block touches."""
    inner = Analyzer()
    for iv in block.iter_vars:
        if iv.dom is not None and value_of(iv.dom.extent) != 1:  # an axis of one value must not become that value
            inner.bind(iv.var, iv.dom)
    found: dict[Var, tuple[PrimExpr, PrimExpr] | None] = {}

    def add(v: Var, ends: Ends) -> None:
        """Unite what another buffer or dimension needs; None: all."""
        if v not in found:
            found[v] = ends
            return
        old = found[v]
        found[v] = None if old is None or ends is None else _hull(old, ends, ana)

    axes = {iv.var for iv in block.iter_vars}
    for r in regions:
        needs = required[r.buffer]
        point = [inner.simplify(x.min) for x in r.region]
        single = all(value_of(x.extent) == 1 for x in r.region)
        solved = _plain(point, single, needs, axes) or (_affine(block, point, needs, ana) if single else None)
        if solved is None:
            solved = _by_dimension(r, point, needs, axes, ana)
        for v, ends in solved.items():
            add(v, ends)
    out: list[Domain] = []
    for iv in block.iter_vars:
        assert iv.dom is not None
        last = iv.dom.min + iv.dom.extent - 1
        ends = found.get(iv.var)
        if ends is None:
            out.append(Domain(iv.dom.min, ana.simplify(last), True))
            continue
        low, high = (ana.simplify(cast(e, iv.var.dtype)) for e in ends)
        low, high = _clipped(low, high, iv.dom.min, last)
        whole = ana.can_prove_equal(low, iv.dom.min) and ana.can_prove_equal(high, last)
        out.append(Domain(low, high, whole))
    return out


def _clipped(low: PrimExpr, high: PrimExpr, first: PrimExpr, last: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Ends that are numbers are kept within the domain."""
    a, b, c, d = value_of(low), value_of(high), value_of(first), value_of(last)
    if a is not None and c is not None and a < c:
        low = IntImm(low.dtype, c)
    if b is not None and d is not None and b > d:
        high = IntImm(high.dtype, d)
    return low, high


def _hull(a: tuple[PrimExpr, PrimExpr], b: tuple[PrimExpr, PrimExpr], ana: Analyzer) -> Ends:
    low = a[0] if proves(ana, a[0] <= b[0]) else b[0] if proves(ana, b[0] <= a[0]) else None
    high = a[1] if proves(ana, a[1] >= b[1]) else b[1] if proves(ana, b[1] >= a[1]) else None
    return None if low is None or high is None else (low, high)


def _plain(point: Sequence[PrimExpr], single: bool, needs: Sequence[Ends], axes: set[Var]) -> dict[Var, Ends] | None:
    """Indices that are axes (each once) or free of axes."""
    out: dict[Var, Ends] = {}
    if not single:
        return None
    for e, n in zip(point, needs, strict=True):
        if isinstance(e, Var) and e in axes:
            if e in out:
                return None
            out[e] = n
        elif any(x in axes for x in walk(e)):
            return None
    return out


def _affine(block: Block, point: Sequence[PrimExpr], needs: Sequence[Ends], ana: Analyzer) -> dict[Var, Ends] | None:
    """Indices that rearrange the axes without loss: inverted as a whole."""
    if any(n is None for n in needs):
        return None
    used = {x for e in point for x in walk(e)}
    ranges = {iv.var: iv.dom for iv in block.iter_vars if iv.dom is not None and iv.var in used}
    result = detect_iter_map(list(point), ranges, require_bijective=True)
    if not result.indices:
        return None
    outputs = [Var(f"o{i}", e.dtype) for i, e in enumerate(point)]
    try:
        inverse = inverse_affine_iter_map(result.indices, outputs)
    except (ValueError, KeyError, StopIteration):
        return None
    domains = {
        o: (cast(n[0], o.dtype), cast(n[1], o.dtype)) for o, n in zip(outputs, needs, strict=True) if n is not None
    }
    out: dict[Var, Ends] = {}
    for v, e in inverse.items():
        out[v] = eval_range(e, domains, ana)
    for iv in block.iter_vars:
        if iv.dom is not None and iv.var in used and iv.var not in out:
            out[iv.var] = (iv.dom.min, iv.dom.min + iv.dom.extent - 1)  # a single value
    return out


def _by_dimension(
    r: BufferRegion, point: Sequence[PrimExpr], needs: Sequence[Ends], axes: set[Var], ana: Analyzer
) -> dict[Var, Ends]:
    """Each dimension by itself: what its index says of the one axis in it. Dimensions that say nothing are passed by; an axis
    is bounded by those that do, and free where none does."""
    out: dict[Var, Ends] = {}
    for e, n, x in zip(point, needs, r.region, strict=True):
        inside = {v for v in walk(e) if v in axes}
        if len(inside) != 1 or n is None:
            continue
        (v,) = inside
        assert isinstance(v, Var)
        size = value_of(x.extent)
        ends = None if size is None else _one(e, v, n, size)
        if ends is None:
            continue
        old = out.get(v)
        if old is None:
            out[v] = ends
        else:  # both hold: the smaller part
            low = ends[0] if proves(ana, ends[0] >= old[0]) else old[0]
            high = ends[1] if proves(ana, ends[1] <= old[1]) else old[1]
            out[v] = (low, high)
    return out


def _one(e: PrimExpr, v: Var, n: tuple[PrimExpr, PrimExpr], size: int) -> Ends:
    """The values of `v` for which [e, e + size) meets the range n."""
    low, high = (cast(x, e.dtype) for x in n)
    low = low - (size - 1)  # e <= high and e + size - 1 >= low
    if isinstance(e, FloorDiv) and isinstance(e.b, IntImm) and e.b.value > 0:
        c = e.b.value
        inner = (low * c, high * c + (c - 1))
        return _one(e.a, v, inner, 1)
    if isinstance(e, FloorMod):
        return None
    if isinstance(e, Mul) and e.a is v and not isinstance(e.b, IntImm):
        return (floordiv(low, e.b), floordiv(high, e.b))
    form = linear_form(e, [v])
    if form is None:
        return None
    (k,), rest = form
    if k == 0:
        return None
    if k < 0:
        low, high, k, rest = const(0, e.dtype) - high, const(0, e.dtype) - low, -k, const(0, e.dtype) - rest
    low, high = low - rest, high - rest
    if k == 1:
        return low, high
    return floordiv(low + (k - 1), IntImm(e.dtype, k)), floordiv(high, IntImm(e.dtype, k))


def raw_inverse(iter_map: Sequence[IterSumExpr], outputs: Sequence[PrimExpr]) -> dict[Var, PrimExpr]:
    """Each input of a map of iterators in terms of its outputs, as the map takes it apart: nothing is simplified, so that
    what is fused stays together (`(o1 + o0*128) // 64 % 32`)."""
    order: list[IterMark] = []
    values: dict[IterMark, PrimExpr] = {}

    def visit(mark: IterMark) -> None:
        if mark not in order:
            if isinstance(mark.source, IterSumExpr):
                for a in mark.source.args:
                    visit(a.source)
            order.append(mark)

    def take_apart(x: IterSumExpr, value: PrimExpr) -> None:
        for i, a in enumerate(x.args):
            part = floordiv(value, a.scale)
            term = (floormod(part, a.extent) if i else part) * a.lower_factor
            values[a.source] = values[a.source] + term if a.source in values else term

    for x in iter_map:
        for a in x.args:
            visit(a.source)
    for x, out in zip(iter_map, outputs, strict=True):
        take_apart(x, out - x.base)
    for mark in reversed(order):
        if isinstance(mark.source, IterSumExpr) and mark in values:
            take_apart(mark.source, values[mark] - mark.source.base)
    found: dict[Var, PrimExpr] = {}
    for mark in order:
        if isinstance(mark.source, Var):
            found[mark.source] = values[mark]
        elif isinstance(mark.source, Sub) and isinstance(mark.source.a, Var):
            found[mark.source.a] = values[mark] + mark.source.b
    return found


def invert(
    indices: Sequence[PrimExpr], axes: dict[Var, Range], outputs: Sequence[PrimExpr]
) -> dict[Var, PrimExpr] | None:
    """Indices that rearrange the axes, inverted; checked by putting them in."""
    used = {x for e in indices for x in walk(e)}
    domains = {v: r for v, r in axes.items() if v in used}
    ana = Analyzer()
    for v, r in domains.items():
        ana.bind(v, r)
    names = [Var(f"o{i}", e.dtype) for i, e in enumerate(indices)]
    for simple, level in ((False, "bijective"), (True, "bijective"), (True, "nocheck")):
        points = [ana.simplify(e) if simple else e for e in indices]
        result = detect_iter_map(points, domains, check_level=level)
        if not result.indices:
            continue
        inverse = raw_inverse(result.indices, names)
        back: dict[Any, Any] = dict(zip(names, indices, strict=True))
        if all(
            v in inverse and ana.can_prove_equal(substitute(inverse[v], back), v)
            for v, r in domains.items()
            if value_of(r.extent) != 1
        ):
            values: dict[Any, Any] = {n: cast(o, n.dtype) for n, o in zip(names, outputs, strict=True)}
            return {v: substitute(e, values) for v, e in inverse.items()}
    return None
