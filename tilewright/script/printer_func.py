"""Printing of functions of the loop IR: parameters, attributes, the outermost block."""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as E
from tilewright.ir.module import attrs_of
from tilewright.ir.node import INFO, Node
from tilewright.ir.op import GlobalVar
from tilewright.script.printer import (
    DEDENT,
    FUNCTIONS,
    INDENT,
    LINE,
    ROOT,
    Item,
    Printer,
    _quote,
    names_in,
)
from tilewright.script.printer_buffer import (
    await_buffers,
    buffer_args,
    define_buffer,
    is_true,
    is_usual_pointer,
    settle,
)
from tilewright.script.printer_expr import type_text
from tilewright.script.printer_tir import block_rest, print_evaluate
from tilewright.script.well_formed import is_well_formed
from tilewright.tir import ir as tir

__all__ = ["is_implicit_root"]

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


class Uses:
    """What a function's body refers to: variables used as values, functions of the module, whether it has blocks."""

    def __init__(self, body: Any) -> None:
        self.vars: set[Any] = set()
        self.global_vars = False
        self.has_block = False
        self.launches: dict[Any, list[Any]] = {}  # thread variables and the axes that launch them
        self.buffers: dict[Any, None] = {}
        self.declared: set[Any] = set()
        self.bound: set[Any] = set()
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
                kind = type(n)
                if kind is tir.Buffer:
                    self.buffers[n] = None
                elif kind in _BINDERS:
                    self.bound.add(getattr(n, _BINDERS[kind]))
                elif kind in _DECLARES:
                    self._declares(n)
                else:
                    self.global_vars |= kind is GlobalVar
                    self.has_block |= kind is tir.BlockRealize
                    if isinstance(n, tir.AttrStmt) and type(n.node) is tir.IterVar:
                        self.launches.setdefault(n.node.var, []).append(n.node)
                stack.extend(getattr(n, f.name) for f in n.node_fields if f.role != INFO)

    def _declares(self, n: Any) -> None:
        for b in n.alloc_buffers if type(n) is tir.Block else (n.buffer,):
            self.declared.add(b)
            self.bound.add(b.data)

    def env_threads(self) -> list[Any]:
        """The axes whose variable several launches share."""
        return [axes[0] for axes in self.launches.values() if len(axes) > 1]

    def undeclared(self) -> list[Any]:
        """The buffers that are used and that nothing declares."""
        return [b for b in self.buffers if b not in self.declared]


_BINDERS: dict[type, str] = {
    tir.For: "loop_var",
    tir.LetStmt: "var",
    tir.Allocate: "buffer_var",
    tir.AllocateConst: "buffer_var",
    tir.IterVar: "var",
}
_DECLARES = (tir.Block, tir.DeclBuffer, tir.MatchBufferRegion, tir.BufferRealize)


def is_implicit_root(body: Any, has_block: bool) -> bool:
    """Is the outermost block one that the parser makes by itself?"""
    if type(body) is not tir.BlockRealize or body.iter_values or not is_true(body.predicate):
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
    p.names.waiting, p.names.woken = {}, []
    own = set(f.buffer_map.values())
    bound = {*uses.bound, *f.params, *(b.data for b in own)}
    await_buffers(p, (b for b in uses.undeclared() if b not in own), bound)

    def signature() -> list[Item]:
        params: list[str] = []
        for v in f.params:
            params.append(_param(p, f, v, uses, late))
        ret = "" if f.ret_type is None else f" -> {type_text(p, f.ret_type, getattr(f.ret_type, 'dtype', 'void'))}"
        options = [] if name.isidentifier() else [f"name={_quote(name)}"]
        options += ["private=True"] * private
        if not is_implicit_root(f.body, uses.has_block) and _gets_root(f.body, uses.has_block):
            options.append("root=False")
        if not is_well_formed(f):
            options.append("check_well_formed=False")
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
        out += [*late, lambda: settle(p)]
        for axis in uses.env_threads():
            out += [LINE, lambda axis=axis: [_env_thread(p, axis)], lambda: settle(p)]
        implicit = p.sugar and is_implicit_root(f.body, uses.has_block)
        if implicit and id(f.body) not in p.marks and id(f.body.block) not in p.marks:
            return [*out, *block_rest(p, f.body.block, implicit_root=True)]
        return [*out, (f.body, 0)]

    def end() -> None:
        p.in_module_func = False

    return [*items, signature, INDENT, body, DEDENT, p.names.close, end]


FUNCTIONS[tir.PrimFunc] = print_prim_func


def _env_thread(p: Printer, axis: Any) -> str:
    dtype = "" if axis.var.dtype == "int32" else f', "{axis.var.dtype}"'
    p.env_threads.add(axis.var)
    return f"{p.names.define(axis.var, axis.var.name)} = {p.T}.env_thread({_quote(axis.thread_tag)}{dtype})"


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
    if (
        p.sugar
        and known
        and plain
        and v not in uses.vars
        and b.data not in p.names.of
        and is_usual_pointer(b.data, b.dtype)
    ):
        args = p.text_of(buffer_args(p, b, always_dtype=True))
        return f"{define_buffer(p, b)}: {p.T}.Buffer({args})"
    name = p.names.define(v, v.name)

    def match() -> list[Item]:
        args = p.text_of(buffer_args(p, b))
        return [f"{define_buffer(p, b)} = {p.T}.match_buffer({name}, {args})"]

    late += [LINE, match]
    return f"{name}: {type_text(p, v.type_annotation, v.dtype)}"


def _root_statement(p: Printer, s: Any) -> list[Item]:
    """A statement that is the whole text."""
    uses = Uses(s)
    await_buffers(p, uses.undeclared(), uses.bound)
    return print_evaluate(p, s, -1) if type(s) is tir.Evaluate else [(s, 0)]


for _kind in vars(tir).values():
    if isinstance(_kind, type) and issubclass(_kind, tir.Stmt):
        ROOT[_kind] = _root_statement
