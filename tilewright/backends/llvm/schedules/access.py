"""How a stage touches memory: addresses as polynomials of its axes, and what follows for the order of its loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewright.arith.expr import FloorDiv, FloorMod, IntImm, PrimExpr, Var, add, const, mul
from tilewright.backends.llvm.schedules.stages import Axis, Stage
from tilewright.ir.node import Node, map_children, walk
from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import Buffer, BufferLoad
from tilewright.tir.lower.flatten_buffers import span_of
from tilewright.tir.lower.index import IndexSpace, Poly
from tilewright.tir.lower.lower_blocks import strides_of

__all__ = ["Access", "Flattener", "flatten_stage", "merge_axes", "packed_width", "total"]


class Access:
    """The addresses of a flattened stage (one index an access) as polynomials."""

    def __init__(self, stage: Stage, extra: Sequence[Axis] = ()) -> None:
        self.stage = stage
        self.space = space = IndexSpace()
        for a in [*stage.axes, *stage.reduce, *extra]:
            space.set_range(a.var, IntImm(a.var.dtype, 0), a.extent)
        self.value_loads = _loads(stage.value)
        self.end_loads = [*_loads(stage.epilogue), *_loads(stage.init)]
        self.polys: dict[int, Poly] = {
            id(x): space.recombine(space.poly(x.indices[0])) for x in [*self.value_loads, *self.end_loads]
        }
        self.store = space.recombine(space.poly(stage.index[0]))

    def poly(self, load: BufferLoad) -> Poly:
        """The address of a load."""
        return self.polys[id(load)]

    def all(self) -> list[Poly]:
        """Every address, the store's last."""
        return [*self.polys.values(), self.store]

    def stride(self, p: Poly, var: Var) -> Poly | None:
        """What one step of `var` adds to an address; None where the steps differ."""
        space = self.space
        atom = space.atom(var)
        out: Poly = {}
        for mono, c in p.items():
            n = mono.count(atom)
            if n > 1 or any(x != atom and space.atom_mentions(x, var) for x in mono):
                return None
            if n:
                left = list(mono)
                left.remove(atom)
                out[tuple(left)] = c
        return out

    def step(self, p: Poly, var: Var) -> int | None:
        """The stride as a number; None where it is none or not constant."""
        s = self.stride(p, var)
        return None if s is None else self.space.value(s)


def _loads(e: PrimExpr | None) -> list[BufferLoad]:
    return [] if e is None else [x for x in walk(e) if isinstance(x, BufferLoad)]


def total(axes: Sequence[Axis], unknown: int = 256) -> int:
    """The product of extents, symbolic ones taken as `unknown`."""
    out = 1
    for a in axes:
        out *= unknown if a.size is None else a.size
    return out


class Flattener:
    """Replaces buffers by one-dimensional views of the same memory, the same view each time."""

    def __init__(self) -> None:
        self.views: dict[Buffer, Buffer] = {}
        self.space = IndexSpace()

    def view(self, b: Buffer) -> Buffer:
        """The one-dimensional view of a buffer."""
        found = self.views.get(b)
        if found is None:
            if len(b.shape) == 1 and not b.strides and b.elem_offset is None:
                found = b
            else:
                found = Buffer(b.data, b.dtype, (span_of(b),), (), None, b.name, b.data_alignment)
            self.views[b] = found
        return found

    def offset(self, b: Buffer, indices: Sequence[PrimExpr]) -> PrimExpr:
        """The position of an element in the view."""
        dtype = indices[0].dtype if indices else "int64"
        out: PrimExpr = const(0, dtype) if b.elem_offset is None else b.elem_offset
        for i, s in zip(indices, strides_of(b), strict=True):
            out = add(out, mul(i, s))
        return self.space.expr(self.space.recombine(self.space.poly(out)), out.dtype)

    def expr(self, e: Any) -> Any:
        """An expression with every load through the views."""
        if isinstance(e, BufferLoad):
            indices = tuple(self.expr(i) for i in e.indices)
            return BufferLoad(self.view(e.buffer), (self.offset(e.buffer, indices),))
        return e if not isinstance(e, Node) or e.identity else map_children(e, self.expr)


def flatten_stage(stage: Stage, flat: Flattener) -> Stage:
    """The stage with one-dimensional accesses, their addresses simplified."""
    space = IndexSpace()
    for a in [*stage.axes, *stage.reduce]:
        space.set_range(a.var, const(0, a.var.dtype), a.extent)
        if a.size == 1:
            space.values[a.var] = {}
    flat.space = space
    return replace(
        stage,
        out=flat.view(stage.out),
        index=(flat.offset(stage.out, stage.index),),
        value=flat.expr(stage.value),
        init=None if stage.init is None else flat.expr(stage.init),
        epilogue=None if stage.epilogue is None else flat.expr(stage.epilogue),
    )


def packed_width(stage: Stage, var: Var) -> int | None:
    """n where the stage looks `var` up as (var // n, var % n): a buffer packed in groups of n."""
    found: set[int] = set()
    for root in (stage.value, *stage.index):
        for x in walk(root):
            if isinstance(x, (FloorMod, FloorDiv)) and x.a is var and isinstance(x.b, IntImm):
                found.add(x.b.value)
    return found.pop() if len(found) == 1 else None


def _pinned(stage: Stage) -> set[Var]:
    """Variables that occur outside addresses."""
    out: set[Var] = set()

    def visit(x: Any) -> None:
        if isinstance(x, Var):
            out.add(x)
        elif isinstance(x, BufferLoad):
            return
        elif not x.identity:
            for f in x.node_fields:
                v = getattr(x, f.name)
                for c in v if isinstance(v, tuple) else (v,):  # pyright: ignore
                    if isinstance(c, Node):
                        visit(c)

    for root in (stage.value, stage.init, stage.epilogue):
        if root is not None:
            visit(root)
    return out


def merge_axes(stage: Stage) -> Stage:
    """Neighbouring axes that every access walks as one become one; axes of one point disappear."""
    stage = _drop_units(stage)
    for kind in ("axes", "reduce"):
        i = 0
        while i + 1 < len(getattr(stage, kind)):
            axes: list[Axis] = list(getattr(stage, kind))
            outer, inner = axes[i], axes[i + 1]
            if not _mergeable(stage, outer, inner):
                i += 1
                continue
            extent = mul(outer.extent, inner.extent)
            var = Var(f"{inner.var.name}", inner.var.dtype)
            mapping: dict[Any, Any] = {outer.var: IntImm(outer.var.dtype, 0), inner.var: var}
            axes[i : i + 2] = [Axis(var, extent)]
            stage = _substitute(replace(stage, **{kind: axes}), mapping)
    return stage


def _drop_units(stage: Stage) -> Stage:
    mapping: dict[Any, Any] = {a.var: IntImm(a.var.dtype, 0) for a in [*stage.axes, *stage.reduce] if a.size == 1}
    if not mapping:
        return stage
    axes = [a for a in stage.axes if a.size != 1]
    reduce = [a for a in stage.reduce if a.size != 1]
    return _substitute(replace(stage, axes=axes, reduce=reduce), mapping)


def _substitute(stage: Stage, mapping: dict[Any, Any]) -> Stage:
    return replace(
        stage,
        index=tuple(substitute(i, mapping) for i in stage.index),
        value=substitute(stage.value, mapping),
        init=None if stage.init is None else substitute(stage.init, mapping),
        epilogue=None if stage.epilogue is None else substitute(stage.epilogue, mapping),
    )


def _mergeable(stage: Stage, outer: Axis, inner: Axis) -> bool:
    pinned = _pinned(stage)
    if outer.var in pinned or inner.var in pinned or outer.var.dtype != inner.var.dtype:
        return False
    access = Access(stage)
    extent = access.space.poly(inner.extent)
    for p in access.all():
        a, b = access.stride(p, outer.var), access.stride(p, inner.var)
        if a is None or b is None or access.space.product(b, extent) != a:
            return False
    return True
