"""Printing of scalar expressions.

An operator is written infix only where reading it back gives the very same node: the builders of `arith.expr` match dtypes
and fold constants, so each infix form is tried with the builder first, and where that would change something the bare
constructor is written (`T.Add(x, 0)`, which neither folds nor converts).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as E
from tilewright.ir import dtype as dt
from tilewright.ir.node import Node
from tilewright.ir.op import Op, PointerType, PrimType
from tilewright.script.intrinsics import BUILDERS, DTYPE_FIRST
from tilewright.script.printer import Item, Printer, _quote, handler
from tilewright.support.diagnostics import CompileError

__all__ = ["type_text", "var_declaration"]

_CMP_PREC = 4
_INFIX: dict[type, tuple[str, int, Callable[[Any, Any], Any]]] = {
    E.Or: (" or ", 1, E.logical_or),
    E.And: (" and ", 2, E.logical_and),
    E.EQ: (" == ", _CMP_PREC, lambda a, b: E.cmp(E.EQ, a, b)),
    E.NE: (" != ", _CMP_PREC, lambda a, b: E.cmp(E.NE, a, b)),
    E.LT: (" < ", _CMP_PREC, lambda a, b: E.cmp(E.LT, a, b)),
    E.LE: (" <= ", _CMP_PREC, lambda a, b: E.cmp(E.LE, a, b)),
    E.GT: (" > ", _CMP_PREC, lambda a, b: E.cmp(E.GT, a, b)),
    E.GE: (" >= ", _CMP_PREC, lambda a, b: E.cmp(E.GE, a, b)),
    E.Add: (" + ", 9, E.add),
    E.Sub: (" - ", 9, E.sub),
    E.Mul: (" * ", 10, E.mul),
    E.Div: (" / ", 10, E.div),
    E.FloorDiv: (" // ", 10, E.floordiv),
    E.FloorMod: (" % ", 10, E.floormod),
}
_FUNCTION: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    E.Min: ("min", E.minimum),
    E.Max: ("max", E.maximum),
    E.Mod: ("truncmod", E.mod),
    E.Div: ("truncdiv", E.div),
}


def _rebuilds(e: Any, build: Callable[[Any, Any], Any]) -> bool:
    """Does the builder, given the sides of `e`, make `e` again?"""
    if e.a.dtype != e.b.dtype:
        return False
    try:
        r = build(e.a, e.b)
    except (CompileError, ZeroDivisionError, ValueError, TypeError, OverflowError):
        return False
    return type(r) is type(e) and r.a is e.a and r.b is e.b


@handler(*_INFIX, *_FUNCTION)
def print_binary(p: Printer, e: Any, prec: int) -> list[Item]:
    kind = type(e)
    found = _INFIX.get(kind)
    if found is not None and not (kind is E.Div and not dt.is_float(e.dtype)):
        text, level, build = found
        if _rebuilds(e, build):
            left = level + 1 if level == _CMP_PREC else level
            items: list[Item] = [*_side(p, e.a, left), text, *_side(p, e.b, level + 1)]
            return ["(", *items, ")"] if level < prec else items
    elif kind in _FUNCTION:
        text, build = _FUNCTION[kind]
        if _rebuilds(e, build):
            return [f"{p.T}.{text}(", (e.a, 0), ", ", (e.b, 0), ")"]
    return [f"{p.T}.{kind.__name__}(", *explicit(p, e.a), ", ", *explicit(p, e.b), ")"]


def _side(p: Printer, e: Any, prec: int) -> list[Item]:
    if p.dims and type(e) is E.IntImm and e.dtype == "int64" and e.value >= 0:
        return [str(e.value)]
    return [(e, prec)]


def explicit(p: Printer, e: Any) -> list[Item]:
    """The expression where nothing else would tell a literal's dtype."""
    return [f"{p.T}.int32({e.value})"] if type(e) is E.IntImm and e.dtype == "int32" else [(e, 0)]


@handler(E.Not)
def print_not(p: Printer, e: Any, prec: int) -> list[Item]:
    if isinstance(e.a, E.IntImm):
        return [f"{p.T}.Not(", (e.a, 0), ")"]
    return ["(not ", (e.a, 3), ")"] if prec > 3 else ["not ", (e.a, 3)]


@handler(E.IntImm)
def print_int(p: Printer, e: Any, prec: int) -> list[Item]:
    if e.dtype == p.int_dtype and dt.min_value(e.dtype) <= e.value <= dt.max_value(e.dtype):
        return [f"({e.value})" if e.value < 0 and prec > 11 else str(e.value)]
    if e.dtype == "bool" and e.value in (0, 1):
        return [f"{p.T}.bool({bool(e.value)})"]
    if dt.is_int(e.dtype) and dt.lanes(e.dtype) == 1 and dt.min_value(e.dtype) <= e.value <= dt.max_value(e.dtype):
        return [f"{p.T}.{e.dtype}({e.value})"]
    return [f'{p.T}.IntImm("{e.dtype}", {e.value!r})']


@handler(E.FloatImm)
def print_float(p: Printer, e: Any, prec: int) -> list[Item]:
    value = repr(float(e.value)) if math.isfinite(e.value) else f'"{float(e.value)}"'
    if e.dtype == p.float_dtype and math.isfinite(e.value):
        return [value]
    if dt.is_float(e.dtype) and dt.lanes(e.dtype) == 1:
        return [f"{p.T}.{e.dtype}({value})"]
    return [f'{p.T}.FloatImm("{e.dtype}", {value})']


@handler(E.StringImm)
def print_string(p: Printer, e: Any, prec: int) -> list[Item]:
    return [_quote(e.value)]


def type_text(p: Printer, t: Any, dtype: str) -> str:
    """The annotation of a variable: `T.int32`, `T.handle("float32", "shared")`."""
    if isinstance(t, PointerType):
        inner = t.element_type
        element = f'"{inner.dtype}"' if isinstance(inner, PrimType) else type_text(p, inner, "handle")
        return f"{p.T}.handle({element}, {_quote(t.storage_scope)})"
    return f"{p.T}.{dtype}"


def var_declaration(p: Printer, v: Any) -> str:
    """The call that makes a variable of the same kind: `T.int32()`, `T.handle("float32", "global")`."""
    t = v.type_annotation
    if isinstance(t, PointerType):
        return type_text(p, t, v.dtype)
    if t is not None:
        return f"{p.T}.Var({_quote(v.name)}, {p.text_of([(t, 0)])})"
    if type(v) is E.SizeVar:
        return f"{p.T}.{v.dtype}(is_size_var=True)"
    return f"{p.T}.{v.dtype}()"


@handler(E.Var)
def print_var(p: Printer, v: Any, prec: int) -> list[Item]:
    name = p.names.of.get(v)
    if name is None:
        name = p.names.define(v, v.name, outermost=True)
        p.prelude.append(f"{name} = {var_declaration(p, v)}")
    return [name]


def declare_var(p: Printer, v: Any) -> str:
    """Define `v` in the current scope by a line above the current statement; its name."""
    name = p.names.of.get(v)
    if name is None:
        name = p.names.define(v, v.name, outermost=p.slot is None)
        p.before(f"{name} = {var_declaration(p, v)}")
    return name


@handler(E.Cast)
def print_cast(p: Printer, e: Any, prec: int) -> list[Item]:
    return [f'{p.T}.Cast("{e.dtype}", ', (e.value, 0), ")"]


@handler(E.Select)
def print_select(p: Printer, e: Any, prec: int) -> list[Item]:
    return [f"{p.T}.Select(", (e.condition, 0), ", ", (e.true_value, 0), ", ", (e.false_value, 0), ")"]


@handler(E.Let)
def print_let(p: Printer, e: Any, prec: int) -> list[Item]:
    fresh = e.var not in p.names.of
    if not fresh:
        return [f"{p.T}.Let(", (e.body, 0), ", where={", (e.var, 0), ": ", (e.value, 0), "})"]

    def rest() -> list[Item]:
        declare_var(p, e.var)
        return [f"{p.T}.Let(", (e.body, 0), ", where={", (e.var, 0), ": "]

    # the value is printed apart, before the variable is in scope
    value = p.text_of([(e.value, 0)])
    return [rest, value, "})"]


def _lanes(p: Any, lanes: int) -> str:
    return str(lanes) if lanes > 0 else f"{p.T}.vscale() * {-lanes}"


@handler(E.Ramp)
def print_ramp(p: Printer, e: Any, prec: int) -> list[Item]:
    stride = [(e.stride, 0)] if e.stride.dtype == e.base.dtype else explicit(p, e.stride)
    return [f"{p.T}.Ramp(", (e.base, 0), ", ", *stride, f", {_lanes(p, e.lanes)})"]


@handler(E.Broadcast)
def print_broadcast(p: Printer, e: Any, prec: int) -> list[Item]:
    return [f"{p.T}.Broadcast(", (e.value, 0), f", {_lanes(p, e.lanes)})"]


@handler(E.Shuffle)
def print_shuffle(p: Printer, e: Any, prec: int) -> list[Item]:
    return [f"{p.T}.Shuffle(", *p.list_of(e.vectors), ", ", *p.list_of(e.indices), ")"]


@handler(E.Call)
def print_call(p: Printer, e: Any, prec: int) -> list[Item]:
    args: list[Item] = []
    for i, a in enumerate(e.args):
        args += [", "] * (i > 0) + argument(p, a)
    if not isinstance(e.op, Op):
        if e.dtype == _called_dtype(p, e.op):
            return [(e.op, 20), "(", *args, ")"]
        return [f'{p.T}.Call("{e.dtype}", ', (e.op, 0), ", [", *args, "])"]
    full = e.op.name
    name = full[4:] if full.startswith("tir.") else ""
    if name == "tvm_struct_get" and _keeps(name, e, last=e.dtype):
        return [f"{p.T}.{name}(", *args, f', "{e.dtype}")']
    if name in DTYPE_FIRST and _keeps(name, e, e.dtype):
        return [f'{p.T}.{name}("{e.dtype}"', *([", "] if args else []), *args, ")"]
    if name and name not in DTYPE_FIRST and _keeps(name, e):
        return [f"{p.T}.{name}(", *args, ")"]
    return [f'{p.T}.call_intrin("{e.dtype}", "{full}"', *([", "] if args else []), *args, ")"]


def _called_dtype(p: Printer, op: Any) -> str:
    """The dtype that the parser gives to a call of this function."""
    f = p.module.functions.get(op) if p.in_module_func else None
    if f is None:
        return "int32"
    ret = getattr(f, "ret_type", None)
    return getattr(ret, "dtype", "handle") if ret is not None else "void"


def _keeps(name: str, e: Any, *dtype: str, last: str | None = None) -> bool:
    """Would `T.<name>` of these arguments give this very call (and neither fold nor convert)?"""
    build = BUILDERS.get(name)
    if build is None:
        return False
    try:
        r = build(
            *dtype, *(a.value if type(a) is E.StringImm else a for a in e.args), *([] if last is None else [last])
        )
    except (TypeError, ValueError, OverflowError, AttributeError, IndexError):
        return False
    if type(r) is not E.Call or r.op is not e.op or r.dtype != e.dtype or len(r.args) != len(e.args):
        return False
    return all(a is b or _same_string(a, b) for a, b in zip(r.args, e.args, strict=True))


def _same_string(a: Any, b: Any) -> bool:
    return type(a) is E.StringImm and type(b) is E.StringImm and a.value == b.value


def argument(p: Printer, a: Any) -> list[Item]:
    """An argument of a call."""
    from tilewright.tir.ir import BufferRegion

    if isinstance(a, BufferRegion):
        return [f"{p.T}.BufferRegion(", (a.buffer, 0), ", ", *p.list_of(a.region), ")"]
    return [(a, 0)] if isinstance(a, Node) else p.value(a)


@handler(Op)
def print_op(p: Printer, e: Any, prec: int) -> list[Item]:
    return [f"{p.T}.Op({_quote(e.name)})"]


@handler(PrimType)
def print_prim_type(p: Printer, t: Any, prec: int) -> list[Item]:
    return [f'{p.T}.PrimType("{t.dtype}")']


@handler(PointerType)
def print_pointer_type(p: Printer, t: Any, prec: int) -> list[Item]:
    return [f"{p.T}.PointerType(", (t.element_type, 0), f", {_quote(t.storage_scope)})"]
