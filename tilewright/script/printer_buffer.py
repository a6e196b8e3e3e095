"""Printing of ranges, buffers and what refers to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.arith import expr as E
from tilewright.ir.op import PointerType, PrimType
from tilewright.ir.structure import structural_equal
from tilewright.script.printer import (
    LINE,
    ROOT,
    Item,
    Printer,
    _quote,
    handler,
    names_in,
)
from tilewright.script.printer_expr import declare_var, explicit
from tilewright.tir import ir as tir
from tilewright.tir.index_map import IndexMap

__all__ = ["buffer_args", "define_buffer"]

_KINDS = {1: "parallel", 2: "vectorized", 3: "unroll", 4: "thread_binding"}
_AXES = {0: "spatial", 2: "reduce", 3: "scan", 4: "opaque"}
_ITER_TYPES = (
    "DataPar",
    "ThreadIndex",
    "CommReduce",
    "Ordered",
    "Opaque",
    "Unrolled",
    "Vectorized",
    "Parallelized",
    "Tensorized",
)
WITH = 1
"""As the precedence of a statement: it is not the last of its suite."""


def same(a: Any, b: Any) -> bool:
    """The same object, or equal integer constants."""
    return a is b or (type(a) is E.IntImm and type(b) is E.IntImm and a.value == b.value and a.dtype == b.dtype)


def extent_between(start: Any, stop: Any) -> Any:
    """The extent that the parser gives to `start:stop`: `start + e` minus `start` is `e`."""
    if type(stop) is E.Add and same(stop.a, start):
        return stop.b
    if same(start, stop):
        return E.const(0, start.dtype)
    try:
        return E.sub(stop, start)
    except ValueError:
        return None


def bounds(r: Any) -> tuple[Any, Any] | None:
    """`(min, min + extent)` if reading them back gives the range again."""
    if r.min.dtype != r.extent.dtype:
        return None
    e = r.extent
    if type(e) is E.Sub and structural_equal(e.b, r.min):  # `low : high` was read so
        got = extent_between(r.min, e.a)
        if type(got) is E.Sub and got.a is e.a:
            return r.min, e.a
    stop = E.add(r.min, r.extent)
    got = extent_between(r.min, stop)
    return (r.min, stop) if got is not None and same(got, r.extent) else None


def is_zero(e: Any, dtype: str) -> bool:
    return type(e) is E.IntImm and e.value == 0 and e.dtype == dtype


def is_true(e: Any) -> bool:
    """The constant true?"""
    return type(e) is E.IntImm and e.dtype == "bool" and e.value == 1


@handler(tir.Range)
def print_range(p: Printer, r: Any, prec: int) -> list[Item]:
    ends = bounds(r)
    if ends is None:
        return [f"{p.T}.Range.from_min_extent(", *explicit(p, r.min), ", ", *explicit(p, r.extent), ")"]
    return [f"{p.T}.Range(", (ends[0], 0), ", ", (ends[1], 0), ")"]


def slices(p: Printer, region: Sequence[Any]) -> list[Item] | None:
    """The ranges of a region as indices and slices; None where that would not read back."""
    out: list[Item] = []
    for r in region:
        out += [", "] if out else []
        if type(r.extent) is E.IntImm and r.extent.value == 1 and r.extent.dtype == r.min.dtype:
            out.append((r.min, 0))
            continue
        ends = bounds(r)
        if ends is None:
            return None
        out += [(ends[0], 0), ":", (ends[1], 0)]
    return out or ["()"]


@handler(tir.BufferRegion)
def print_region(p: Printer, r: Any, prec: int) -> list[Item]:
    text = slices(p, r.region)
    if text is None or (prec != REGION and not any(i == ":" for i in text)):
        return [f"{p.T}.BufferRegion(", (r.buffer, 0), ", ", *p.list_of(r.region), ")"]
    return [(r.buffer, 0), "[", *text, "]"]


REGION = -1
"""As the precedence of a BufferRegion: where a point means a region of extent one."""


def regions(p: Printer, values: Sequence[Any]) -> list[Item]:
    out: list[Item] = []
    for r in values:
        out += [", "] if out else []
        out.append((r, REGION))
    return out


def data_var_text(p: Printer, b: Any) -> str | None:
    """The `data=` argument of a buffer; None where a fresh pointer of the usual type is meant (which this defines)."""
    v = b.data
    if v in p.names.of:
        return p.names.of[v]
    if not is_usual_pointer(v, b.dtype):
        return declare_var(p, v)
    return None


def is_usual_pointer(v: Any, dtype: str) -> bool:
    """Is it a pointer variable as allocation makes it?"""
    t = v.type_annotation
    return (
        type(v) is E.Var
        and v.dtype == "handle"
        and type(t) is PointerType
        and type(t.element_type) is PrimType
        and t.element_type.dtype == dtype
    )


def buffer_args(p: Printer, b: Any, *, always_dtype: bool = False, data: bool = True) -> list[Item]:
    """The arguments that describe a buffer: shape, dtype and what differs from a compact one."""
    anywhere = starts_anywhere(p, b)
    for v in names_in((*b.shape, *b.strides, None if anywhere else b.elem_offset), E.Var):
        declare_var(p, v)
    out: list[Item] = [*p.tuple_of(b.shape)]
    if always_dtype or b.dtype != p.buffer_dtype:
        out.append(f', "{b.dtype}"')
    data_text = data_var_text(p, b) if data else None
    if data_text is not None:
        out.append(f", data={data_text}")
    if b.strides:
        out += [", strides=", *p.tuple_of(b.strides)]
    if b.elem_offset is not None and not anywhere:
        out += [", elem_offset=", (b.elem_offset, 0)]
    elif b.elem_offset is None and b.offset_factor:
        out.append(", elem_offset=0")
    if data_text is None and b.scope() != "global":
        out.append(f", scope={_quote(b.scope())}")
    if b.data_alignment != 64:
        out.append(f", align={b.data_alignment}")
    if b.offset_factor or anywhere:
        out.append(f", offset_factor={b.offset_factor or 1}")
    if b.axis_separators:
        out.append(f", axis_separators={list(b.axis_separators)}")
    return out


def starts_anywhere(p: Printer, b: Any) -> bool:
    """Is the offset a variable that this buffer defines? It is `A.elem_offset` then."""
    v = b.elem_offset
    if type(v) is not E.Var or v in p.names.of or v.dtype != (b.shape[0].dtype if b.shape else "int32"):
        return False
    return v not in set(names_in((*b.shape, *b.strides), E.Var))


def define_buffer(p: Printer, b: Any) -> str:
    """Give the buffer (and its data pointer, unless known) a name in the current scope."""
    anywhere = starts_anywhere(p, b)
    name = p.names.define(b, b.name)
    if anywhere:
        p.names.alias(b.elem_offset, f"{name}.elem_offset")
    if b.data not in p.names.of:
        p.names.alias(b.data, f"{name}.data")
    return name


@handler(tir.Buffer)
def print_buffer(p: Printer, b: Any, prec: int) -> list[Item]:
    name = p.names.of.get(b)
    if name is None:
        slot, p.slot = p.slot, None
        text = p.text_of([f"{p.T}.Buffer(", *buffer_args(p, b, always_dtype=True), ")"])
        name = p.names.define(b, b.name, outermost=True)
        if b.data not in p.names.of:
            p.names.of[b.data] = f"{name}.data"
        p.prelude.append(f"{name} = {text}")
        p.slot = slot
    return [name]


ROOT[tir.Buffer] = lambda p, b: [f"{p.T}.Buffer(", *buffer_args(p, b, always_dtype=True), ")"]


def await_buffers(p: Printer, buffers: Iterable[Any], bound: set[Any]) -> None:
    """Buffers that nothing declares are declared where the last of the variables that they need is bound."""
    for b in buffers:
        for v in names_in((b.data, *b.shape, *b.strides, b.elem_offset), E.Var):
            if v in bound:
                p.names.waiting.setdefault(v, []).append(b)


def settle(p: Printer) -> list[Item]:
    """Declarations of the buffers that can be declared now."""
    out: list[Item] = []
    while p.names.woken:
        woken, p.names.woken = p.names.woken, []
        for b in dict.fromkeys(woken):
            needed = names_in((b.data, *b.shape, *b.strides, b.elem_offset), E.Var)
            if b not in p.names.of and all(v in p.names.of or v not in p.names.waiting for v in needed):
                args = p.text_of(buffer_args(p, b, always_dtype=True))
                out += [LINE, f"{define_buffer(p, b)} = {p.T}.Buffer({args})"]
    return out


def indices(p: Printer, values: Sequence[Any]) -> list[Item]:
    return p.comma(values) or ["()"]


@handler(tir.BufferLoad)
def print_load(p: Printer, e: Any, prec: int) -> list[Item]:
    return [(e.buffer, 0), "[", *indices(p, e.indices), "]"]


@handler(tir.ProducerLoad)
def print_producer_load(p: Printer, e: Any, prec: int) -> list[Item]:
    name = p.names.of.get(e.producer)
    if name is None:
        hint = getattr(e.producer, "name", None) or getattr(getattr(e.producer, "op", None), "name", None) or "tensor"
        name = p.names.define(e.producer, hint, outermost=True)
    return [name, "[", *indices(p, e.indices), "]"]


@handler(tir.DataProducer)
def print_producer(p: Printer, t: Any, prec: int) -> list[Item]:
    """A tensor of a tensor expression: for people; it does not parse back."""
    shape: list[Item] = [", shape=", *p.tuple_of(t.shape)] if getattr(t, "shape", None) is not None else []
    return [f"{type(t).__name__}({_quote(str(getattr(t, 'name', '')))}", *shape, f', dtype="{t.dtype}")']


@handler(tir.IterVar)
def print_iter_var(p: Printer, v: Any, prec: int) -> list[Item]:
    declare_var(p, v.var)
    dom: list[Item] = ["None"] if v.dom is None else [(v.dom, 0)]
    return [
        f"{p.T}.iter_var({p.names.of[v.var]}, ",
        *dom,
        f', "{_ITER_TYPES[v.iter_type]}", {_quote(v.thread_tag)})',
    ]


@handler(tir.CommReducer)
def print_comm_reducer(p: Printer, r: Any, prec: int) -> list[Item]:
    def head() -> list[Item]:
        names = [p.names.define(v, v.name) for v in (*r.lhs, *r.rhs)]
        body: list[Item] = [(r.result[0], 0)] if len(r.result) == 1 else p.tuple_of(r.result)
        return [f"lambda {', '.join(names)}: ", *body]

    identity: list[Item] = []
    for e in r.identity_element:
        identity += [", "] * bool(identity) + explicit(p, e)
    return [f"{p.T}.comm_reducer(", *p.scope([head]), ", [", *identity, "])"]


@handler(tir.Reduce)
def print_reduce(p: Printer, e: Any, prec: int) -> list[Item]:
    for v in e.axis:
        declare_var(p, v.var)
    items = [f"{p.T}.Reduce(", (e.combiner, 0), ", ", *p.list_of(e.source), ", ", *p.list_of(e.axis)]
    items += [", ", (e.condition, 0), f", {e.value_index}"]
    return [*items, *([", init=", *p.list_of(e.init)] if e.init else []), ")"]


@handler(IndexMap)
def print_index_map(p: Printer, m: Any, prec: int) -> list[Item]:
    """A map of indices; a given inverse, which is not compared either, does not print."""

    def head() -> list[Item]:
        names = [p.names.define(v, v.name) for v in m.initial_indices]
        return [f"lambda {', '.join(names)}: ", *p.tuple_of(m.final_indices)]

    dtype = m.initial_indices[0].dtype if m.initial_indices else "int64"
    return [f"{p.T}.index_map(", *p.scope([head]), "" if dtype == "int64" else f', index_dtype="{dtype}"', ")"]
