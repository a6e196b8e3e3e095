"""Printing of loop IR: statements, blocks, buffers, functions.

A statement whose scope is the rest of its suite (`x: T.int32 = v`, `T.attr(...)`, `p = T.allocate(...)`) is written in one
line when it stands last, and as `with ...:` when something follows its scope.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith import expr as E
from tilewright.ir.module import attrs_of
from tilewright.ir.node import INFO, Node
from tilewright.ir.op import GlobalVar, PointerType, PrimType
from tilewright.script.printer import (
    DEDENT,
    FUNCTIONS,
    INDENT,
    INLINE_ELEMENTS,
    LINE,
    ROOT,
    Item,
    Printer,
    _quote,
    handler,
    names_in,
)
from tilewright.script.printer_expr import declare_var, explicit, type_text, var_declaration
from tilewright.tir import ir as tir

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


# ---- ranges and buffers


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
    stop = E.add(r.min, r.extent)
    got = extent_between(r.min, stop)
    return (r.min, stop) if got is not None and same(got, r.extent) else None


def _is_zero(e: Any, dtype: str) -> bool:
    return type(e) is E.IntImm and e.value == 0 and e.dtype == dtype


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
    for v in names_in((*b.shape, *b.strides, b.elem_offset), E.Var):
        declare_var(p, v)
    out: list[Item] = [*p.tuple_of(b.shape)]
    if always_dtype or b.dtype != "float32":
        out.append(f', "{b.dtype}"')
    data_text = data_var_text(p, b) if data else None
    if data_text is not None:
        out.append(f", data={data_text}")
    if b.strides:
        out += [", strides=", *p.tuple_of(b.strides)]
    if b.elem_offset is not None:
        out += [", elem_offset=", (b.elem_offset, 0)]
    if data_text is None and b.scope() != "global":
        out.append(f", scope={_quote(b.scope())}")
    if b.data_alignment != 64:
        out.append(f", align={b.data_alignment}")
    if b.offset_factor:
        out.append(f", offset_factor={b.offset_factor}")
    if b.axis_separators:
        out.append(f", axis_separators={list(b.axis_separators)}")
    return out


def define_buffer(p: Printer, b: Any) -> str:
    """Give the buffer (and its data pointer, unless known) a name in the current scope."""
    name = p.names.define(b, b.name)
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


# ---- simple statements


@handler(tir.BufferStore)
def print_store(p: Printer, s: Any, prec: int) -> list[Item]:
    if s.value.dtype != tir.load_dtype(s.buffer.dtype, s.indices):
        rest = [", ", *explicit(p, s.value), ", ", *p.list_of(s.indices), ")"]
        return [LINE, f"{p.T}.buffer_store(", (s.buffer, 0), *rest]
    return [LINE, (s.buffer, 0), "[", *indices(p, s.indices), "] = ", (s.value, 0)]


@handler(tir.Evaluate)
def print_evaluate(p: Printer, s: Any, prec: int) -> list[Item]:
    if isinstance(s.value, E.Call) and prec >= 0:
        return [LINE, (s.value, 0)]
    return [LINE, f"{p.T}.evaluate(", *([(s.value, 0)] if isinstance(s.value, Node) else p.value(s.value)), ")"]


ROOT[tir.Evaluate] = lambda p, s: print_evaluate(p, s, -1)


@handler(tir.SeqStmt)
def print_seq(p: Printer, s: Any, prec: int) -> list[Item]:
    if prec == WITH or len(s.seq) < 2 or type(s.seq[-1]) is tir.SeqStmt:
        body: list[Item] = [(c, WITH) for c in s.seq] or [LINE, "pass"]
        return [LINE, f"with {p.T}.seq():", *p.suite(body)]
    return [*((c, WITH) for c in s.seq[:-1]), (s.seq[-1], 0)]


@handler(tir.IfThenElse)
def print_if(p: Printer, s: Any, prec: int) -> list[Item]:
    items: list[Item] = [LINE, "if ", (s.condition, 0), ":", *p.suite(s.then_case)]
    if s.else_case is not None:
        if isinstance(s.else_case, tir.IfThenElse):
            return [*items, lambda: _elif(p, s.else_case)]
        items += [LINE, "else:", *p.suite(s.else_case)]
    return items


def _elif(p: Printer, s: Any) -> list[Item]:
    """`elif`: declarations that its condition needs would have to stand above the whole `if`; then it is an `else: if`."""
    slot = p.slot
    items: list[Item] = [(s, 0)]
    del slot
    if any(True for _ in names_in([s.condition], E.Let)):
        return [LINE, "else:", *p.suite(items)]
    head: list[Item] = [LINE, "elif ", (s.condition, 0), ":", *p.suite(s.then_case)]
    if s.else_case is None:
        return head
    if isinstance(s.else_case, tir.IfThenElse):
        return [*head, lambda: _elif(p, s.else_case)]
    return [*head, LINE, "else:", *p.suite(s.else_case)]


@handler(tir.While)
def print_while(p: Printer, s: Any, prec: int) -> list[Item]:
    return [LINE, "while ", (s.condition, 0), ":", *p.suite(s.body)]


# ---- statements with a scope


def scoped(p: Printer, prec: int, head: list[Item], binds: Any, body: Any, *, in_scope: Any = None) -> list[Item]:
    """`name = head` and the body in the same suite when last, else `with head as name:`; `binds` gives the name (or None)."""

    def last() -> list[Item]:
        text = p.text_of(head)
        name = binds() if binds else None
        return [f"{name} = {text}" if name else text, (body, 0)]

    def nested() -> list[Item]:
        text = p.text_of(head)
        return [f"with {text}", p.names.open, rest, DEDENT, p.names.close]

    def rest() -> list[Item]:
        name = binds() if binds else None
        return [f" as {name}:" if name else ":", INDENT, (body, 0)]

    return [LINE, nested if prec == WITH else last]


def _pointer(p: Printer, v: Any, dtype: str) -> tuple[str, Any]:
    """The `var=` argument of an allocation of `v` (empty for the usual pointer), and what binds its name."""
    if v in p.names.of or not is_usual_pointer(v, dtype):
        return f", var={declare_var(p, v)}", None
    return "", lambda: p.names.define(v, v.name)


@handler(tir.LetStmt)
def print_let_stmt(p: Printer, s: Any, prec: int) -> list[Item]:
    v = s.var
    usual = v not in p.names.of and type(v) is E.Var
    if usual and prec != WITH and (v.type_annotation is None or isinstance(v.type_annotation, PointerType)):
        kind = type_text(p, v.type_annotation, v.dtype)

        def line() -> list[Item]:
            value = p.text_of(_let_value(p, v, s.value))
            return [f"{p.names.define(v, v.name)}: {kind} = {value}", (s.body, 0)]

        return [LINE, line]

    def open_scope() -> list[Item]:
        value = p.text_of(explicit(p, s.value))
        return [f"with {p.T}.LetStmt({value}, var={declare_var(p, v)}):", *p.suite(s.body)]

    if usual and v.type_annotation is None and v.dtype == s.value.dtype:
        return scoped(p, prec, [f"{p.T}.LetStmt(", (s.value, 0), ")"], lambda: p.names.define(v, v.name), s.body)
    return [LINE, open_scope]


def _let_value(p: Printer, v: Any, value: Any) -> list[Item]:
    return [(value, 0)] if v.dtype == value.dtype else explicit(p, value)


@handler(tir.AttrStmt)
def print_attr(p: Printer, s: Any, prec: int) -> list[Item]:
    n = s.node
    if (
        isinstance(n, tir.IterVar)
        and s.attr_key in ("thread_extent", "virtual_thread")
        and n.var not in p.names.of
        and n.iter_type == 1
        and n.dom is not None
        and _is_zero(n.dom.min, n.var.dtype)
        and same(n.dom.extent, s.value)
        and (s.attr_key == "virtual_thread") == n.thread_tag.startswith("vthread")
    ):
        head = [f"{p.T}.launch_thread({_quote(n.thread_tag)}, ", (s.value, 0), ")"]
        return scoped(p, prec, head, lambda: p.names.define(n.var, n.var.name), s.body)
    node_items = p.value(n)
    return scoped(
        p, prec, [f"{p.T}.attr(", *node_items, f", {_quote(s.attr_key)}, ", *p.value(s.value), ")"], None, s.body
    )


@handler(tir.AssertStmt)
def print_assert(p: Printer, s: Any, prec: int) -> list[Item]:
    if prec != WITH:
        return [LINE, "assert ", (s.condition, 0), ", ", (s.message, 0), (s.body, 0)]
    return scoped(p, prec, [f"{p.T}.Assert(", (s.condition, 0), ", ", (s.message, 0), ")"], None, s.body)


def _is_true(e: Any) -> bool:
    return type(e) is E.IntImm and e.dtype == "bool" and e.value == 1


def _annotations(p: Printer, annotations: dict[str, Any]) -> list[Item]:
    return [", annotations=", *p.value(annotations)] if annotations else []


@handler(tir.Allocate)
def print_allocate(p: Printer, s: Any, prec: int) -> list[Item]:
    def items() -> list[Item]:
        var, binds = _pointer(p, s.buffer_var, s.dtype)
        scope = getattr(s.buffer_var.type_annotation, "storage_scope", "global")
        head: list[Item] = [f"{p.T}.allocate(", *p.list_of(s.extents), f', "{s.dtype}", {_quote(scope)}']
        if not _is_true(s.condition):
            head += [", condition=", (s.condition, 0)]
        return scoped(p, prec, [*head, *_annotations(p, s.annotations), f"{var})"], binds, s.body)[1:]

    return [LINE, *items()] if is_usual_pointer(s.buffer_var, s.dtype) else [LINE, items]


@handler(tir.AllocateConst)
def print_allocate_const(p: Printer, s: Any, prec: int) -> list[Item]:
    def items() -> list[Item]:
        var, binds = _pointer(p, s.buffer_var, s.dtype)
        data = array_text(s.data) or [p.meta("runtime.NDArray", s.data)]
        head: list[Item] = [f"{p.T}.allocate_const(", *data, f', "{s.dtype}", ', *p.list_of(s.extents)]
        if getattr(s.buffer_var.type_annotation, "storage_scope", "global") != "global":
            head.append(f", scope={_quote(s.buffer_var.type_annotation.storage_scope)}")
        return scoped(p, prec, [*head, *_annotations(p, s.annotations), f"{var})"], binds, s.body)[1:]

    return [LINE, items]


def array_text(data: Any) -> list[Item] | None:
    """A small array of plain numbers as nested lists; None for others."""
    import numpy as np

    if data is None:
        return ["None"]
    if not isinstance(data, np.ndarray) or not 0 < data.size <= INLINE_ELEMENTS or data.ndim == 0:
        return None
    if data.dtype.kind not in "iufb" or (data.dtype.kind == "f" and not np.isfinite(data).all()):
        return None
    return [repr(data.tolist())]


@handler(tir.DeclBuffer)
def print_decl_buffer(p: Printer, s: Any, prec: int) -> list[Item]:
    def items() -> list[Item]:
        b = s.buffer
        if b.data not in p.names.of:
            declare_var(p, b.data)
        head = [f"{p.T}.decl_buffer(", *buffer_args(p, b, always_dtype=b.dtype != "float32"), ")"]
        return scoped(p, prec, head, lambda: define_buffer(p, b), s.body)[1:]

    return [LINE, items]


@handler(tir.BufferRealize)
def print_buffer_realize(p: Printer, s: Any, prec: int) -> list[Item]:
    def items() -> list[Item]:
        b = s.buffer
        args = p.text_of(buffer_args(p, b, always_dtype=True))
        p.before(f"{define_buffer(p, b)} = {p.T}.Buffer({args})")
        region = slices(p, s.bounds)
        text = ["[", *region, "]"] if region is not None else [f", bounds={''}", *p.list_of(s.bounds)]
        head = [f"{p.T}.realize(", (b, 0), *text, f", {_quote(b.scope())}, ", (s.condition, 0), ")"]
        return scoped(p, prec, head, None, s.body)[1:]

    return [LINE, items]


# ---- loops


@handler(tir.For)
def print_for(p: Printer, s: Any, prec: int) -> list[Item]:
    group = [s]
    if _is_plain(s):
        seen = {s.loop_var}
        while _is_plain(group[-1].body) and not any(v in seen for v in names_in([group[-1].body.extent], E.Var)):
            group.append(group[-1].body)
            seen.add(group[-1].loop_var)
    if len(group) > 1:
        head: list[Item] = [f"{p.T}.grid(", *p.comma([f.extent for f in group]), ")"]
    else:
        head = _loop_range(p, s)

    def rest() -> list[Item]:
        text = p.text_of(head)
        p.names.open()
        names = [p.names.define(f.loop_var, f.loop_var.name) for f in group]
        for f in group:
            p.loops[f.loop_var] = (f.min, f.extent)
        return [f"for {', '.join(names)} in {text}:", INDENT, (group[-1].body, 0), DEDENT, p.names.close]

    return [LINE, rest]


def _is_plain(s: Any) -> bool:
    return (
        type(s) is tir.For
        and s.kind == 0
        and _is_zero(s.min, s.extent.dtype)
        and not s.annotations
        and s.thread_binding is None
        and s.loop_var.dtype == s.extent.dtype
    )


def _loop_range(p: Printer, s: Any) -> list[Item]:
    extra: list[Item] = _annotations(p, s.annotations)
    if s.loop_var.dtype != s.extent.dtype:
        extra.append(f', dtype="{s.loop_var.dtype}"')
    if s.thread_binding is not None:
        extra = [f", thread={_quote(s.thread_binding.thread_tag)}", *extra]
        if s.kind != 4:
            extra.append(f', kind="{_KINDS.get(int(s.kind), "serial")}"')
    if _is_zero(s.min, s.extent.dtype):
        ends: list[Item] = [(s.extent, 0)]
    else:
        both = bounds(s)
        ends = [(s.min, 0), ", ", (both[1], 0)] if both else [(s.min, 0), ", extent=", *explicit(p, s.extent)]
        if not both:
            extra = [*extra, ""]
    if s.kind == 0 and not extra:
        return ["range(", *ends, ")"]
    kind = "thread_binding" if s.thread_binding is not None else _KINDS.get(int(s.kind), "serial")
    return [f"{p.T}.{kind}(", *ends, *extra, ")"]


# ---- blocks


@handler(tir.BlockRealize)
def print_block_realize(p: Printer, s: Any, prec: int) -> list[Item]:
    return _block(p, s.block, s)


@handler(tir.Block)
def print_block(p: Printer, s: Any, prec: int) -> list[Item]:
    return _block(p, s, None)


def _block(p: Printer, b: Any, realize: Any) -> list[Item]:
    options = "" if realize is not None else ", no_realize=True"
    body: list[Item] = [INDENT, lambda: _axes(p, b, realize)]
    if realize is not None and not _is_true(realize.predicate):
        body += [LINE, f"{p.T}.where(", (realize.predicate, 0), ")"]
    return [
        LINE,
        f"with {p.T}.block({_quote(b.name_hint)}{options}):",
        p.names.open,
        *body,
        *block_rest(p, b),
        DEDENT,
        p.names.close,
    ]


def block_rest(p: Printer, b: Any, *, implicit_root: bool = False) -> list[Item]:
    """What follows the axes of a block."""
    items: list[Item] = []

    def declare() -> list[Item]:
        out: list[Item] = []
        for buffer in b.alloc_buffers:
            out += [LINE, lambda buffer=buffer: _alloc_buffer(p, buffer)]
        for m in b.match_buffers:
            out += [(m, 0)]
        return out

    def touches() -> list[Item]:
        return [
            *[LINE, f"{p.T}.reads(", *regions(p, b.reads), ")"],
            *[LINE, f"{p.T}.writes(", *regions(p, b.writes), ")"],
        ]

    if not implicit_root:
        items.append(touches)
        if b.annotations:
            items += [LINE, f"{p.T}.block_attr(", *p.value(b.annotations), ")"]
    items.append(declare)
    if b.init is not None:
        items += [LINE, f"with {p.T}.init():", *p.suite(b.init)]
    return [*items, (b.body, 0)]


def _alloc_buffer(p: Printer, b: Any) -> list[Item]:
    args = p.text_of(buffer_args(p, b))
    return [f"{define_buffer(p, b)} = {p.T}.alloc_buffer({args})"]


@handler(tir.MatchBufferRegion)
def print_match_region(p: Printer, m: Any, prec: int) -> list[Item]:
    def rest() -> list[Item]:
        args = p.text_of([(m.source, REGION), ", ", *buffer_args(p, m.buffer)])
        return [f"{define_buffer(p, m.buffer)} = {p.T}.match_buffer({args})"]

    return [LINE, rest]


def _axes(p: Printer, b: Any, realize: Any) -> list[Item]:
    values = realize.iter_values if realize is not None else [None] * len(b.iter_vars)
    pairs = list(zip(b.iter_vars, values, strict=True))
    items: list[Item] = []
    i = 0
    while i < len(pairs):
        j = i
        while j < len(pairs) and _is_remap(p, *pairs[j]):
            j += 1
        if j - i >= 2:
            kinds = "".join("S" if v.iter_type == 0 else "R" for v, _ in pairs[i:j])
            values_text: list[Item] = p.list_of([x for _, x in pairs[i:j]])
            names = [v.var for v, _ in pairs[i:j]]
            items += [LINE, _names_then(p, names, [f" = {p.T}.axis.remap({_quote(kinds)}, ", *values_text, ")"])]
            i = j
            continue
        v, value = pairs[i]
        items += [
            LINE,
            _names_then(p, [v.var], [f" = {p.T}.axis.{_AXES[v.iter_type]}(", *_domain(v.dom), *_bound(value), ")"]),
        ]
        i += 1
    return items


def _bound(value: Any) -> list[Item]:
    return [] if value is None else [", ", (value, 0)]


def _names_then(p: Printer, variables: list[Any], rest: list[Item]) -> Any:
    """Print `rest`, then define the variables, with their names in front."""

    def run() -> list[Item]:
        text = p.text_of(rest)
        return [", ".join(p.names.define(v, v.name) for v in variables) + text]

    return run


def _domain(dom: Any) -> list[Item]:
    if _is_zero(dom.min, dom.extent.dtype):
        return [(dom.extent, 0)]
    ends = bounds(dom)
    return ["(", (ends[0], 0), ", ", (ends[1], 0), ")"] if ends else [(dom, 0)]


def _is_remap(p: Printer, v: Any, value: Any) -> bool:
    loop = p.loops.get(value) if type(value) is E.Var else None
    return (
        loop is not None
        and value in p.names.of
        and v.iter_type in (0, 2)
        and v.var.dtype == value.dtype
        and same(loop[0], v.dom.min)
        and same(loop[1], v.dom.extent)
    )


# ---- functions


class Uses:
    """What a function's body refers to: variables used as values, functions of the module, whether it has blocks."""

    def __init__(self, body: Any) -> None:
        self.vars: set[Any] = set()
        self.global_vars = False
        self.has_block = False
        seen: set[int] = set()
        stack: list[Any] = [body]
        while stack:
            n = stack.pop()
            if isinstance(n, (tuple, list)):
                stack.extend(n)  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(n, dict):
                stack.extend(n.values())  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(n, E.Var):
                self.vars.add(n)
            elif isinstance(n, Node) and id(n) not in seen:
                seen.add(id(n))
                self.global_vars |= isinstance(n, GlobalVar)
                self.has_block |= isinstance(n, tir.BlockRealize)
                stack.extend(getattr(n, f.name) for f in n.node_fields if f.role != INFO)


def is_implicit_root(body: Any, has_block: bool) -> bool:
    """Is the outermost block one that the parser makes by itself?"""
    if type(body) is not tir.BlockRealize or body.iter_values or not _is_true(body.predicate):
        return False
    b = body.block
    if (
        b.name_hint != "root"
        or b.iter_vars
        or b.reads
        or b.writes
        or b.init is not None
        or b.match_buffers
        or b.annotations
    ):
        return False
    if type(b.body) is tir.BlockRealize:
        return bool(b.alloc_buffers or b.body.block.iter_vars)
    return bool(b.alloc_buffers or Uses(b.body).has_block if has_block else b.alloc_buffers)


def _gets_root(body: Any, has_block: bool) -> bool:
    """Would the parser put an outermost block around this body?"""
    return bool(body.block.iter_vars) if type(body) is tir.BlockRealize else has_block


def print_prim_func(p: Printer, f: Any, name: str) -> list[Item]:
    attrs = dict(attrs_of(f))
    private = "global_symbol" not in attrs
    if attrs.get("global_symbol") == name:
        attrs.pop("global_symbol")
    uses = Uses(f.body)
    items: list[Item] = [p.names.open]
    late: list[Item] = []

    def signature() -> list[Item]:
        params: list[str] = []
        for v in f.params:
            params.append(_param(p, f, v, uses, late))
        ret = "" if f.ret_type is None else f" -> {type_text(p, f.ret_type, getattr(f.ret_type, 'dtype', 'void'))}"
        options = [] if name.isidentifier() else [f"name={_quote(name)}"]
        options += ["private=True"] * private
        if not is_implicit_root(f.body, uses.has_block) and _gets_root(f.body, uses.has_block):
            options.append("root=False")
        decorator = f"@{p.T}.prim_func" + (f"({', '.join(options)})" if options else "")
        safe = p.names.define(f, name) if not name.isidentifier() else name
        return [LINE, decorator, LINE, f"def {safe}({', '.join(params)}){ret}:"]

    def body() -> list[Item]:
        out: list[Item] = []
        p.in_module_func = p.module is not None and uses.global_vars
        if p.in_module_func:
            out += [LINE, f"{p.cls} = Module"]
        if attrs:
            out += [LINE, f"{p.T}.func_attr(", *p.value(attrs), ")"]
        out += late
        if is_implicit_root(f.body, uses.has_block):
            return [*out, *block_rest(p, f.body.block, implicit_root=True)]
        return [*out, (f.body, 0)]

    def end() -> None:
        p.in_module_func = False

    return [*items, signature, INDENT, body, DEDENT, p.names.close, end]


FUNCTIONS[tir.PrimFunc] = print_prim_func


def _param(p: Printer, f: Any, v: Any, uses: Uses, late: list[Item]) -> str:
    """One parameter; a buffer that needs more than an annotation is matched in `late`."""
    b = f.buffer_map.get(v)
    if b is None:
        name = p.names.define(v, v.name)
        kind = (
            f"{p.T}.{v.dtype}(is_size_var=True)" if type(v) is E.SizeVar else type_text(p, v.type_annotation, v.dtype)
        )
        return f"{name}: {kind}"
    known = all(x in p.names.of for x in names_in((*b.shape, *b.strides, b.elem_offset), E.Var))
    plain = v.dtype == "handle" and v.type_annotation is None and type(v) is E.Var
    if known and plain and v not in uses.vars and b.data not in p.names.of and is_usual_pointer(b.data, b.dtype):
        args = p.text_of(buffer_args(p, b, always_dtype=True))
        return f"{define_buffer(p, b)}: {p.T}.Buffer({args})"
    name = p.names.define(v, v.name)

    def match() -> list[Item]:
        args = p.text_of(buffer_args(p, b))
        return [f"{define_buffer(p, b)} = {p.T}.match_buffer({name}, {args})"]

    late += [LINE, match]
    return f"{name}: {type_text(p, v.type_annotation, v.dtype)}"


__all__ += ["var_declaration"]
