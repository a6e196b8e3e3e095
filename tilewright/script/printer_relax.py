"""Printing of graph IR: expressions, struct infos, bindings, functions.

Dimensions are int64: in a shape, a bare number is one. In a function's signature they are quoted (`R.Tensor(("n", 4))`),
because Python evaluates annotations before the symbol exists; the body declares each symbol (`n = T.int64()`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any

from tilewright.arith import expr as E
from tilewright.ir.module import attrs_of
from tilewright.relax import ir as rx
from tilewright.relax import struct_info as si
from tilewright.relax.op import Op
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
    print_function,
)
from tilewright.script.printer_expr import declare_var, var_declaration

__all__: list[str] = []


# ---- dimensions and struct infos


def dim(p: Printer, e: Any) -> list[Item]:
    """One dimension."""
    if type(e) is E.IntImm and e.dtype == "int64":
        return [str(e.value)]
    items: list[Item] = [_dims_on(p), (e, 0), _dims_off(p)]
    if p.signature and any(True for _ in names_in([e], E.Var)):
        return [lambda: [_quote(p.text_of(items))]]
    return items


def _dims_on(p: Printer) -> Callable[[], None]:
    def on() -> None:
        p.dims = True

    return on


def _dims_off(p: Printer) -> Callable[[], None]:
    def off() -> None:
        p.dims = False

    return off


def dim_list(p: Printer, values: Iterable[Any], ends: str = "()") -> list[Item]:
    """Dimensions as a tuple or list; symbols that nobody knows yet are declared above the statement."""
    dims_ = list(values)
    out: list[Item] = [lambda: _declare(p, dims_), ends[0]]
    for i, d in enumerate(dims_):
        out += [", "] * (i > 0) + dim(p, d)
    return [*out, ",)" if ends == "()" and len(dims_) == 1 else ends[1]]


def _declare(p: Printer, values: Iterable[Any]) -> None:
    for v in names_in(values, E.Var):
        if v not in p.names.of:
            if p.signature:
                p.names.define(v, v.name)
            else:
                declare_var(p, v)


def _args(*parts: list[Item]) -> list[Item]:
    out: list[Item] = []
    for part in parts:
        if part:
            out += [", "] * bool(out) + part
    return out


@handler(si.TensorStructInfo)
def print_tensor_info(p: Printer, s: Any, prec: int) -> list[Item]:
    shape = dim_list(p, s.shape) if s.shape is not None else []
    dtype: list[Item] = [f'dtype="{s.dtype}"'] if s.dtype else []
    ndim: list[Item] = [f"ndim={s.ndim}"] if s.shape is None and s.ndim >= 0 else []
    return [f"{p.R}.Tensor(", *_args(shape, dtype, ndim), ")"]


@handler(si.ShapeStructInfo)
def print_shape_info(p: Printer, s: Any, prec: int) -> list[Item]:
    if s.values is not None:
        return [f"{p.R}.Shape(", *dim_list(p, s.values, "[]"), ")"]
    return [f"{p.R}.Shape(ndim={s.ndim})" if s.ndim >= 0 else f"{p.R}.Shape()"]


@handler(si.PrimStructInfo)
def print_prim_info(p: Printer, s: Any, prec: int) -> list[Item]:
    if s.value is None:
        return [f'{p.R}.Prim("{s.dtype}")']
    dtype = [] if s.value.dtype == s.dtype else [f'"{s.dtype}", ']
    return [lambda: _declare(p, [s.value]), f"{p.R}.Prim(", *dtype, "value=", *dim(p, s.value), ")"]


@handler(si.ObjectStructInfo)
def print_object_info(p: Printer, s: Any, prec: int) -> list[Item]:
    return [f"{p.R}.Object"]


@handler(si.TupleStructInfo)
def print_tuple_info(p: Printer, s: Any, prec: int) -> list[Item]:
    return [f"{p.R}.Tuple(", *p.comma(s.fields), ")"]


@handler(si.FuncStructInfo)
def print_func_info(p: Printer, s: Any, prec: int) -> list[Item]:
    params: list[Item] = [] if s.params is None else p.tuple_of(s.params)
    ret: list[Item] = ["ret=" * (s.params is None), (s.ret, 0)]
    return [f"{p.R}.Callable(", *_args(params, ret, [f"purity={s.purity}"]), ")"]


# ---- expressions


@handler(rx.Var)
def print_var(p: Printer, v: Any, prec: int) -> list[Item]:
    name = p.names.of.get(v)
    if name is None:
        slot, p.slot = p.slot, None
        info = p.text_of([(v.struct_info, 0)]) if v.struct_info is not None else "None"
        name = p.names.define(v, v.name_hint, outermost=True)
        p.prelude.append(f"{name} = {p.R}.{type(v).__name__}({_quote(v.name_hint)}, {info})")
        p.slot = slot
    return [name]


@handler(rx.Constant)
def print_constant(p: Printer, c: Any, prec: int) -> list[Item]:
    data = c.data
    plain = data.dtype.kind in "iufb" or data.dtype.name == "bfloat16"
    if plain and data.ndim == 0:
        value = data.item()
        text = repr(value) if not isinstance(value, float) or math.isfinite(value) else f'float("{value}")'
        if not (isinstance(value, float) and math.isnan(value)):
            return [f'{p.R}.const({text}, "{data.dtype.name}")']
    elif plain and 0 < data.size <= INLINE_ELEMENTS and _finite(data):
        return [f'{p.R}.const({data.tolist()!r}, "{data.dtype.name}")']
    return [p.meta("relax.expr.Constant", data)]


def _finite(data: Any) -> bool:
    import numpy as np

    return data.dtype.kind in "iub" or bool(np.isfinite(data).all())


@handler(rx.ShapeExpr)
def print_shape(p: Printer, e: Any, prec: int) -> list[Item]:
    return [f"{p.R}.shape(", *dim_list(p, e.values, "[]"), ")"]


@handler(rx.PrimValue)
def print_prim_value(p: Printer, e: Any, prec: int) -> list[Item]:
    if type(e.value) is E.IntImm and e.value.dtype != "int64":
        return [f"{p.R}.prim_value(", *p.value(e.value), ")"]
    return [f"{p.R}.prim_value(", *dim(p, e.value), ")"]


@handler(rx.StringImm)
def print_string(p: Printer, e: Any, prec: int) -> list[Item]:
    return [f"{p.R}.str({_quote(e.value)})"]


@handler(rx.DataTypeImm)
def print_dtype(p: Printer, e: Any, prec: int) -> list[Item]:
    return [f"{p.R}.dtype({_quote(e.value)})"]


@handler(rx.Tuple)
def print_tuple(p: Printer, e: Any, prec: int) -> list[Item]:
    return p.tuple_of(e.fields) if e.fields else [f"{p.R}.tuple()"]


@handler(rx.TupleGetItem)
def print_get_item(p: Printer, e: Any, prec: int) -> list[Item]:
    if isinstance(e.tuple_value, rx.Var):
        return [(e.tuple_value, 0), f"[{e.index}]"]
    return [f"{p.R}.TupleGetItem(", (e.tuple_value, 0), f", {e.index})"]


@handler(rx.ExternFunc)
def print_extern(p: Printer, e: Any, prec: int) -> list[Item]:
    return [f"{p.R}.ExternFunc({_quote(e.global_symbol)})"]


def attributes(p: Printer, op: Any) -> list[Item]:
    """The attributes of an operator that differ from their defaults, as keywords."""
    out: list[Item] = []
    for f in fields(op):
        value = getattr(op, f.name)
        default = (
            f.default if f.default is not MISSING else f.default_factory() if callable(f.default_factory) else MISSING
        )  # pyright: ignore
        if default is not MISSING and type(default) is type(value) and default == value:
            continue
        out += [f", {f.name}=", *p.value(value.value if isinstance(value, Enum) else value)]
    return out


def _out_infos(p: Printer, s: Any) -> list[Item]:
    if isinstance(s, si.TupleStructInfo) and s.fields:
        return p.list_of(s.fields)
    return [(s, 0)]


@handler(Op)
def print_op_object(p: Printer, op: Any, prec: int) -> list[Item]:
    return [f"{p.R}.Op({_quote(op.name)}", *attributes(p, op), ")"]


@handler(rx.Call)
def print_call(p: Printer, e: Any, prec: int) -> list[Item]:
    if not isinstance(e.op, Op):
        if not e.sinfo_args and isinstance(e.op, (rx.Var, rx.GlobalVar)):
            return [(e.op, 0), "(", *p.comma(e.args), ")"]
        return [f"{p.R}.Call(", (e.op, 0), ", ", *p.list_of(e.args), ", sinfo_args=", *p.list_of(e.sinfo_args), ")"]
    name = e.op.name
    if name in ("call_tir", "call_tir_inplace", "call_dps_packed") and _is_dps(e, name):
        head: list[Item] = (
            [_quote(e.args[0].global_symbol)] if isinstance(e.args[0], rx.ExternFunc) else [(e.args[0], 0)]
        )
        out = [f"{p.R}.{name}(", *head, ", ", *p.tuple_of(e.args[1].fields)]
        out += [*attributes(p, e.op), ", out_sinfo=", *_out_infos(p, e.sinfo_args[0])]
        if len(e.args) > 2:
            out += [f", tir_vars={p.R}.shape(", *dim_list(p, e.args[2].values, "[]"), ")"]
        return [*out, ")"]
    if name in ("call_packed", "call_pure_packed") and e.args and isinstance(e.args[0], rx.ExternFunc):
        out = [f"{p.R}.{name}({_quote(e.args[0].global_symbol)}", *[x for a in e.args[1:] for x in (", ", (a, 0))]]
        if e.sinfo_args:
            out += [", sinfo_args=", *p.tuple_of(e.sinfo_args)]
        return [*out, ")"]
    out = [f"{p.R}.{name}(", *p.comma(e.args)]
    rest = attributes(p, e.op)
    if e.sinfo_args:
        rest += [", sinfo_args=", *p.list_of(e.sinfo_args)]
    if not e.args and rest:
        rest[0] = rest[0].removeprefix(", ")
    return [*out, *rest, ")"]


def _is_dps(e: Any, name: str) -> bool:
    callee = isinstance(e.args[0], (rx.ExternFunc if name == "call_dps_packed" else rx.GlobalVar))
    shaped = len(e.args) == 2 or (
        len(e.args) == 3 and isinstance(e.args[2], rx.ShapeExpr) and name != "call_dps_packed"
    )
    return (
        callee
        and shaped
        and isinstance(e.args[1], rx.Tuple)
        and bool(e.args[1].fields or True)
        and len(e.sinfo_args) == 1
    )


# ---- bindings


def _bind(p: Printer, v: Any, name: str | None = None) -> list[Item]:
    """`name: info = `, defining the variable (under a given name in a branch)."""
    if name is not None:
        p.names.alias(v, name)
    else:
        name = p.names.define(v, v.name_hint)
    if v.struct_info is None:
        return [f"{name} = "]
    return [f"{name}: ", (v.struct_info, 0), " = "]


def binding(p: Printer, b: Any, name: str | None = None) -> list[Item]:
    """One binding."""
    if isinstance(b, rx.MatchCast):

        def cast() -> list[Item]:
            text = p.text_of([f"{p.R}.match_cast(", (b.value, 0), ", ", (b.struct_info, 0), ")"])
            return [*_bind(p, b.var, name), text]

        return [LINE, cast]
    value = b.value
    if isinstance(value, rx.Function):

        def local() -> list[Item]:
            chosen = name or p.names.define(b.var, b.var.name_hint)
            if name:
                p.names.alias(b.var, name)
            return print_function(p, value, chosen)

        return [local]
    if isinstance(value, rx.If):
        return if_binding(p, b.var, value, name)
    if isinstance(value, rx.SeqExpr):
        inner = [x for block in value.blocks for x in (_block_items(p, block))]
        return [*inner, lambda: binding(p, rx.VarBinding(b.var, value.body), name)]

    def plain() -> list[Item]:
        text = p.text_of([(value, 0)])
        return [*_bind(p, b.var, name), text]

    return [LINE, plain]


@handler(rx.VarBinding, rx.MatchCast)
def print_binding(p: Printer, b: Any, prec: int) -> list[Item]:
    return binding(p, b)


def if_binding(p: Printer, v: Any, e: Any, name: str | None) -> list[Item]:
    """`if cond: ... else: ...`, both of which end by binding the same name."""

    def run() -> list[Item]:
        condition = p.text_of([(e.cond, 0)])
        chosen = name or p.names.define(v, v.name_hint)
        if name:
            p.names.alias(v, name)
        return [
            f"if {condition}:",
            *branch(p, e.true_branch, chosen, v),
            LINE,
            "else:",
            *branch(p, e.false_branch, chosen, v),
        ]

    return [LINE, run]


def branch(p: Printer, e: Any, name: str, v: Any) -> list[Item]:
    """A branch: its bindings, the last of which gives its value to `name`."""
    blocks, body = (e.blocks, e.body) if isinstance(e, rx.SeqExpr) else ((), e)
    items: list[Item] = []
    last = blocks[-1].bindings[-1] if blocks and type(blocks[-1]) is rx.BindingBlock and blocks[-1].bindings else None
    ends = last is not None and last.var is body and not _is_leaf(getattr(last, "value", None), last)
    for i, block in enumerate(blocks):
        if ends and i == len(blocks) - 1:
            items += [x for b in block.bindings[:-1] for x in binding(p, b)]
            items += binding(p, block.bindings[-1], name)
        else:
            items += _block_items(p, block)
    if not ends:

        def final() -> list[Item]:
            info = [": ", (v.struct_info, 0)] if v.struct_info is not None else []
            return [name, *info, " = ", (body, 0)]

        items += [LINE, final]
    return p.suite(items)


def _is_leaf(value: Any, b: Any) -> bool:
    from tilewright.relax.block_builder import is_leaf

    return type(b) is rx.VarBinding and is_leaf(value) and not isinstance(value, rx.Function)


def _block_items(p: Printer, block: Any) -> list[Item]:
    items = [x for b in block.bindings for x in binding(p, b)]
    if not isinstance(block, rx.DataflowBlock):
        return items

    def outputs() -> list[Item]:
        names = [p.names.of[b.var] for b in block.bindings if not isinstance(b.var, rx.DataflowVar)]
        return [f"{p.R}.output({', '.join(names)})"]

    return [LINE, f"with {p.R}.dataflow():", INDENT, *items, LINE, outputs, DEDENT]


@handler(rx.BindingBlock, rx.DataflowBlock)
def print_block(p: Printer, block: Any, prec: int) -> list[Item]:
    return _block_items(p, block)


ROOT[rx.BindingBlock] = lambda p, b: [
    LINE,
    f"with {p.R}.bindings():",
    INDENT,
    *(_block_items(p, b) or [LINE, "pass"]),
    DEDENT,
]


@handler(rx.SeqExpr)
def print_seq(p: Printer, e: Any, prec: int) -> list[Item]:
    items = [x for block in e.blocks for x in _block_items(p, block)]
    return [*items, LINE, "return ", (e.body, 0)]


@handler(rx.If)
def print_if(p: Printer, e: Any, prec: int) -> list[Item]:
    return if_binding(p, rx.Var(name_hint="gv"), e, None)


ROOT[rx.If] = lambda p, e: if_binding(p, rx.Var(name_hint="_"), e, None)


# ---- functions


def print_relax_func(p: Printer, f: Any, name: str) -> list[Item]:
    attrs = dict(attrs_of(f))
    private = "global_symbol" not in attrs
    nested = p.function_depth > 0
    if attrs.get("global_symbol") == name:
        attrs.pop("global_symbol")
    options = [] if name.isidentifier() else [f"name={_quote(name)}"]
    options += ["private=True"] * (private and not nested) + ["pure=False"] * (not f.is_pure)
    decorator = f"@{p.R}.function" + (f"({', '.join(options)})" if options else "")
    infos = [v.struct_info for v in f.params if v.struct_info is not None]
    symbols: list[Any] = []

    def signature() -> list[Item]:
        p.function_depth += 1
        p.signature = True
        known = set(p.names.of)
        params: list[str] = []
        for v in f.params:
            info = p.text_of([": ", (v.struct_info, 0)]) if v.struct_info is not None else ""
            params.append(p.names.define(v, v.name_hint) + info)
        ret = p.text_of([" -> ", (f.ret_struct_info, 0)]) if f.ret_struct_info is not None else ""
        p.signature = False
        both = [*infos, f.ret_struct_info] if f.ret_struct_info is not None else infos
        symbols.extend(v for v in names_in(both, E.Var) if v not in known)
        safe = name if name.isidentifier() else p.names.define(f, name)
        return [decorator, LINE, f"def {safe}({', '.join(params)}){ret}:"]

    def body() -> list[Item]:
        out: list[Item] = [x for v in symbols for x in (LINE, f"{p.names.of[v]} = {var_declaration(p, v)}")]
        if p.module is not None and not nested and any(True for _ in names_in([f.body], rx.GlobalVar)):
            p.in_module_func = True
            out += [LINE, f"{p.cls} = Module"]
        if attrs:
            out += [LINE, f"{p.R}.func_attr(", *p.value(attrs), ")"]
        if isinstance(f.body, rx.SeqExpr):
            return [*out, (f.body, 0)]
        return [*out, LINE, "return ", (f.body, 0)]

    def end() -> None:
        p.function_depth -= 1
        p.in_module_func = p.in_module_func and nested

    return [LINE, p.names.open, signature, INDENT, body, DEDENT, p.names.close, end]


FUNCTIONS[rx.Function] = print_relax_func
