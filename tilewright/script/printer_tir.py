"""Printing of loop IR: statements, blocks, buffers, functions.

A statement whose scope is the rest of its suite (`x: T.int32 = v`, `T.attr(...)`, `p = T.allocate(...)`) is written in one
line when it stands last, and as `with ...:` when something follows its scope.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as E
from tilewright.ir.node import Node
from tilewright.ir.op import PointerType
from tilewright.script.printer import (
    DEDENT,
    INDENT,
    INLINE_ELEMENTS,
    LINE,
    Item,
    Printer,
    _quote,
    handler,
    names_in,
)
from tilewright.script.printer_buffer import (
    REGION,
    bounds,
    buffer_args,
    define_buffer,
    indices,
    is_true,
    is_usual_pointer,
    is_zero,
    regions,
    same,
    settle,
    slices,
)
from tilewright.script.printer_expr import declare_var, explicit, type_text
from tilewright.script.printer_marks import close_mark, open_mark
from tilewright.tir import ir as tir

__all__ = ["block_rest"]

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
    items: list[Item] = [(s, 0)]
    if any(True for _ in names_in([s.condition], E.Let)) or _is_deep(p, s.condition):
        return [LINE, "else:", *p.suite(items)]
    head: list[Item] = [LINE, "elif ", (s.condition, 0), ":", *p.suite(s.then_case)]
    if s.else_case is None:
        return head
    if isinstance(s.else_case, tir.IfThenElse):
        return [*head, lambda: _elif(p, s.else_case)]
    return [*head, LINE, "else:", *p.suite(s.else_case)]


def _is_deep(p: Printer, condition: Any) -> bool:
    """Would parts of the condition need lines of their own?"""
    return (
        isinstance(condition, (E.And, E.Or, E.CmpOp, E.Call)) and sum(1 for _ in names_in([condition], E.PrimExpr)) > 60
    )


@handler(tir.While)
def print_while(p: Printer, s: Any, prec: int) -> list[Item]:
    return [LINE, "while ", (s.condition, 0), ":", *p.suite(s.body)]


# ---- statements with a scope


def scoped(p: Printer, prec: int, head: list[Item], binds: Any, body: Any, *, in_scope: Any = None) -> list[Item]:
    """`name = head` and the body in the same suite when last, else `with head as name:`; `binds` gives the name (or None)."""

    def last() -> list[Item]:
        text = p.text_of(head)
        name = binds() if binds else None
        return [f"{name} = {text}" if name else text, *settle(p), (body, 0)]

    def nested() -> list[Item]:
        text = p.text_of(head)
        return [f"with {text}", p.names.open, rest, DEDENT, p.names.close]

    def rest() -> list[Item]:
        name = binds() if binds else None
        return [f" as {name}:" if name else ":", INDENT, lambda: settle(p), (body, 0)]

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
            return [f"{p.names.define(v, v.name)}: {kind} = {value}", *settle(p), (s.body, 0)]

        return [LINE, line]

    def open_scope() -> list[Item]:
        value = p.text_of(explicit(p, s.value))
        head = f"with {p.T}.LetStmt({value}, var={declare_var(p, v)}):"
        return [head, *p.suite([lambda: settle(p), (s.body, 0)])]

    if usual and v.type_annotation is None and v.dtype == s.value.dtype:
        return scoped(p, prec, [f"{p.T}.LetStmt(", (s.value, 0), ")"], lambda: p.names.define(v, v.name), s.body)
    return [LINE, open_scope]


def _let_value(p: Printer, v: Any, value: Any) -> list[Item]:
    return [(value, 0)] if v.dtype == value.dtype else explicit(p, value)


@handler(tir.AttrStmt)
def print_attr(p: Printer, s: Any, prec: int) -> list[Item]:
    n = s.node
    if (
        s.attr_key == "realize_scope"
        and type(s.body) is tir.BufferRealize
        and s.body.buffer is n
        and type(s.value) is E.StringImm
        and s.value.value
    ):
        return _realize(p, s.body, s.value.value, prec)
    if (
        isinstance(n, tir.IterVar)
        and s.attr_key in ("thread_extent", "virtual_thread")
        and (n.var not in p.names.of or n.var in p.env_threads)
        and n.iter_type == 1
        and n.dom is not None
        and is_zero(n.dom.min, n.var.dtype)
        and same(n.dom.extent, s.value)
        and (s.attr_key == "virtual_thread") == n.thread_tag.startswith("vthread")
    ):
        if n.var in p.env_threads:
            head: list[Item] = [f"{p.T}.launch_thread({p.names.of[n.var]}, ", (s.value, 0), ")"]
            return scoped(p, prec, head, None, s.body)
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


def _annotations(p: Printer, annotations: dict[str, Any]) -> list[Item]:
    return [", annotations=", *p.value(annotations)] if annotations else []


@handler(tir.Allocate)
def print_allocate(p: Printer, s: Any, prec: int) -> list[Item]:
    def items() -> list[Item]:
        var, binds = _pointer(p, s.buffer_var, s.dtype)
        scope = getattr(s.buffer_var.type_annotation, "storage_scope", "global")
        head: list[Item] = [f"{p.T}.allocate(", *p.list_of(s.extents), f', "{s.dtype}", {_quote(scope)}']
        if not is_true(s.condition):
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
        head = [f"{p.T}.decl_buffer(", *buffer_args(p, b, always_dtype=b.dtype != p.buffer_dtype), ")"]
        return scoped(p, prec, head, lambda: define_buffer(p, b), s.body)[1:]

    return [LINE, items]


@handler(tir.BufferRealize)
def print_buffer_realize(p: Printer, s: Any, prec: int) -> list[Item]:
    return _realize(p, s, "", prec)


def _realize(p: Printer, s: Any, scope: str, prec: int) -> list[Item]:
    def items() -> list[Item]:
        b = s.buffer
        if b not in p.names.of:
            args = p.text_of(buffer_args(p, b, always_dtype=True))
            p.before(f"{define_buffer(p, b)} = {p.T}.Buffer({args})")
        region = slices(p, s.bounds)
        if region is None:
            region = [(tir.BufferRegion(b, s.bounds), 0)]
        else:
            region = [(b, 0), "[", *region, "]"]
        head = [f"{p.T}.realize(", *region, f", {_quote(scope)}, ", (s.condition, 0), ")"]
        return scoped(p, prec, head, None, s.body)[1:]

    return [LINE, items]


# ---- loops


@handler(tir.For)
def print_for(p: Printer, s: Any, prec: int) -> list[Item]:
    group = [s]
    if p.sugar and _is_plain(s):
        seen = {s.loop_var}
        while (
            _is_plain(group[-1].body)
            and id(group[-1].body) not in p.marks
            and not any(v in seen for v in names_in([group[-1].body.extent], E.Var))
        ):
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
        return [
            f"for {', '.join(names)} in {text}:",
            INDENT,
            lambda: settle(p),
            (group[-1].body, 0),
            DEDENT,
            p.names.close,
        ]

    return [LINE, rest]


def _is_plain(s: Any) -> bool:
    return (
        type(s) is tir.For
        and s.kind == 0
        and is_zero(s.min, s.extent.dtype)
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
    if is_zero(s.min, s.extent.dtype):
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
    number = p.marks.get(id(s.block)) if p.marks else None
    items = _block(p, s.block, s)
    return items if number is None else [open_mark(number), *items, close_mark(number)]


@handler(tir.Block)
def print_block(p: Printer, s: Any, prec: int) -> list[Item]:
    return _block(p, s, None)


def _block(p: Printer, b: Any, realize: Any) -> list[Item]:
    options = "" if realize is not None else ", no_realize=True"
    body: list[Item] = [INDENT, lambda: _axes(p, b, realize)]
    if realize is not None and not is_true(realize.predicate):
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
        return [*out, lambda: settle(p)]

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
        while p.sugar and j < len(pairs) and _is_remap(p, *pairs[j]):
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
    if is_zero(dom.min, dom.extent.dtype):
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
