"""Intrinsics that C-like languages share: a table from the name (without `tir.`) to what writes a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as E
from tilewright.backends.source import writer as W
from tilewright.backends.source.expr import cast_text, choose, combine, convert, in_float32
from tilewright.backends.source.writer import ATOM, POSTFIX, UNARY, Text, Writer
from tilewright.ir import dtype as dt

__all__ = ["COMMON", "Handler", "short_name"]

Handler = Callable[[Writer, Any], Text]

COMMON: dict[str, Handler] = {}
"""The shared table."""


def _row(*names: str) -> Callable[[Handler], Handler]:
    def enter(f: Handler) -> Handler:
        for name in names:
            COMMON[name] = f
        return f

    return enter


def short_name(e: E.Call) -> str:
    """The intrinsic's name without `tir.`."""
    return e.op.name.removeprefix("tir.")  # pyright: ignore[reportAttributeAccessIssue]


# ---- choosing --------------------------------------------------------------------------------------------------------


@_row("if_then_else")
def _if_then_else(w: Writer, e: E.Call) -> Text:
    return choose(w, *e.args)


@_row("likely")
def _likely(w: Writer, e: E.Call) -> Text:
    return w.expr(e.args[0])


@_row("assume", "prefetch")
def _nothing(w: Writer, e: E.Call) -> Text:
    return "", ATOM


@_row("undef")
def _undef(w: Writer, e: E.Call) -> Text:
    return w.expr(E.FloatImm(e.dtype, 0.0) if dt.is_float(e.dtype) else E.IntImm(e.dtype, 0))


# ---- bits ------------------------------------------------------------------------------------------------------------

_BITS = {"bitwise_and": ("&", W.BIT_AND), "bitwise_or": ("|", W.BIT_OR), "bitwise_xor": ("^", W.BIT_XOR)}


@_row("bitwise_and", "bitwise_or", "bitwise_xor")
def _bits(w: Writer, e: E.Call) -> Text:
    symbol, precedence = _BITS[short_name(e)]
    a, b = (_atomic(w, x) for x in e.args)
    return combine(a, symbol, b, precedence)


def _atomic(w: Writer, e: Any) -> Text:
    """An operand of a bit operation: parenthesised unless simple, as their precedence surprises."""
    text, own = w.expr(e)
    return (text, own) if own >= UNARY else (f"({text})", ATOM)


@_row("shift_left")
def _shift_left(w: Writer, e: E.Call) -> Text:
    ty, bits = w.dialect.type(e.dtype), dt.bits(e.dtype)
    if dt.is_uint(e.dtype) and bits >= 32:
        return combine(_atomic(w, e.args[0]), "<<", _atomic(w, e.args[1]), W.SHIFT)
    wide = w.dialect.type("uint64" if bits == 64 else "uint32")
    shifted = combine(cast_text(wide, w.expr(e.args[0])), "<<", _atomic(w, e.args[1]), W.SHIFT)
    return cast_text(ty, shifted)


@_row("shift_right")
def _shift_right(w: Writer, e: E.Call) -> Text:
    return combine(_atomic(w, e.args[0]), ">>", _atomic(w, e.args[1]), W.SHIFT)


@_row("bitwise_not")
def _bitwise_not(w: Writer, e: E.Call) -> Text:
    text: Text = f"~{w.at(e.args[0], UNARY)}", UNARY
    return cast_text(w.dialect.type(e.dtype), text) if dt.bits(e.dtype) < 32 else text


@_row("popcount", "clz")
def _count(w: Writer, e: E.Call) -> Text:
    dtype = e.args[0].dtype
    value = w.expr(e.args[0])
    if not dt.is_uint(dtype):
        value = cast_text(w.dialect.type("u" + dtype), value)
    return convert(w, w.dialect.call(w, short_name(e), dtype, [value]), "int32", e.dtype)


@_row("reinterpret")
def _reinterpret(w: Writer, e: E.Call) -> Text:
    if e.dtype == "handle":  # an address: it does not wrap
        w.exact = True
    return w.dialect.reinterpret(w, w.expr(e.args[0]), e.args[0].dtype, e.dtype)


# ---- mathematics -----------------------------------------------------------------------------------------------------

_MATH = [
    "exp",
    "exp2",
    "log",
    "log2",
    "log10",
    "log1p",
    "expm1",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sqrt",
    "erf",
    "pow",
    "atan2",
    "hypot",
    "copysign",
    "fma",
    "fmod",
    "nextafter",
    "floor",
    "ceil",
    "trunc",
    "round",
    "fabs",
]
_ROUNDING = ("floor", "ceil", "trunc", "round", "nearbyint")


@_row(*_MATH, "nearbyint", "exp10", "rsqrt", "sigmoid")
def _math(w: Writer, e: E.Call) -> Text:
    name = short_name(e)
    if not dt.is_float(e.dtype):
        return _integer(w, e, name)
    args = [w.expr(a) for a in e.args]
    return math_call(w, name, e.dtype, args)


def math_call(w: Writer, name: str, dtype: str, args: list[Text]) -> Text:
    """A math function on floats of any dtype: small ones go through float32."""
    if not w.dialect.is_native(dtype) or (dt.bits(dtype) < 32 and name not in w.dialect.small_math):
        d = w.dialect
        if d.is_native(dtype):
            wide = [convert(w, a, dtype, "float32") for a in args]
            return convert(w, _known(w, name, "float32", wide), "float32", dtype)
        return in_float32(w, dtype, args, lambda v: _known(w, name, "float32", v))
    return _known(w, name, dtype, args)


def _known(w: Writer, name: str, dtype: str, args: list[Text]) -> Text:
    d = w.dialect
    one = d.float_literal(w, 1.0, dtype)
    if name == "rsqrt" and "rsqrt" not in d.math_names:
        return combine(one, "/", d.math(w, "sqrt", dtype, args), W.MUL)
    if name == "exp10" and "exp10" not in d.math_names:
        return d.math(w, "pow", dtype, [d.float_literal(w, 10.0, dtype), *args])
    if name == "sigmoid":
        a = args[0] if args[0][1] >= UNARY and not args[0][0].startswith("-") else (f"({args[0][0]})", ATOM)
        negative: Text = f"-{a[0]}", UNARY
        below = combine(one, "+", d.math(w, "exp", dtype, [negative]), W.ADD)
        return combine(one, "/", below, W.MUL)
    return d.math(w, name, dtype, args)


def _integer(w: Writer, e: E.Call, name: str) -> Text:
    if name in _ROUNDING:
        return w.expr(e.args[0])
    if name == "fabs":
        x = e.args[0]
        if dt.is_uint(e.dtype):
            return w.expr(x)
        return w.dialect.call(w, "max", e.dtype, [w.expr(x), w.expr(E.Sub(E.IntImm(e.dtype, 0), x))])
    raise w.unsupported(f"tir.{name} of {e.dtype}", "it takes floats")


@_row("ldexp")
def _ldexp(w: Writer, e: E.Call) -> Text:
    x, n = w.expr(e.args[0]), convert(w, w.expr(e.args[1]), e.args[1].dtype, "int32")
    if w.dialect.is_native(e.dtype) and dt.bits(e.dtype) >= 32:
        return w.dialect.math(w, "ldexp", e.dtype, [x, n])
    wide = convert(w, x, e.dtype, "float32")
    return convert(w, w.dialect.math(w, "ldexp", "float32", [wide, n]), "float32", e.dtype)


@_row("isnan")
def _isnan(w: Writer, e: E.Call) -> Text:
    dtype = e.args[0].dtype
    if not dt.is_float(dtype):
        return w.expr(E.IntImm("bool", 0))
    value = w.expr(e.args[0])
    if dt.bits(dtype) < 32:
        value = convert(w, value, dtype, "float32")
    w.mod.include("math.h")
    return f"isnan({value[0]})", POSTFIX


@_row("isinf")
def _isinf(w: Writer, e: E.Call) -> Text:
    dtype = e.args[0].dtype
    if not dt.is_float(dtype):
        return w.expr(E.IntImm("bool", 0))
    value = w.expr(e.args[0])
    if dt.bits(dtype) < 32:
        value = convert(w, value, dtype, "float32")
    w.mod.include("math.h")
    return f"isinf({value[0]})", POSTFIX


# ---- memory ----------------------------------------------------------------------------------------------------------


@_row("address_of")
def _address_of(w: Writer, e: E.Call) -> Text:
    load = e.args[0]
    return w.dialect.address(w, load.buffer, load.indices[0])


@_row("tvm_access_ptr")
def _access_ptr(w: Writer, e: E.Call) -> Text:
    """data + offset elements of the type of the first argument."""
    dtype = dt.element(e.args[0].dtype)
    v = e.args[1]
    text = w.text(v)
    declared, scope = w.pointers.get(v, ("", "global"))
    pointer: Text = (text, ATOM) if declared == dtype else (f"({w.dialect.pointer_type(dtype, scope)}){text}", UNARY)
    offset = e.args[2]
    if isinstance(offset, E.IntImm) and offset.value == 0:
        return pointer
    return combine(pointer, "+", (w.index(offset, W.ADD + 1), W.ADD + 1), W.ADD)


@_row("call_extern", "call_pure_extern")
def _call_extern(w: Writer, e: E.Call) -> Text:
    name = e.args[0].value
    return f"{name}({', '.join(w.text(a) for a in e.args[1:])})", POSTFIX
