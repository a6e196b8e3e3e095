"""Mathematical intrinsics: which function computes which, and how a call of it is written.

float32 and float64 have expansions for any lane count (math_f32.py, math_f64.py), which become always-inlined functions of the
module; LLVM's loop vectoriser can see through them in scalar code. Small floats are computed in float32. What float64 has no
expansion for (sin, cos, tan, asin, acos, atan, atan2, pow, exp10, ldexp) is LLVM's intrinsic of that name: a call of the C
library for each lane. Powers with the small constant exponents that models use are products.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as E
from tilewright.backends.llvm.emit_core import float_literal, llvm_type, splat, suffix, unsupported
from tilewright.backends.llvm.emit_expr import INTRINSICS
from tilewright.backends.llvm.emit_stmt import StmtWriter
from tilewright.backends.llvm.intrinsics import in_float
from tilewright.backends.llvm.math_core import Helper, helper_text
from tilewright.backends.llvm.math_f32 import FLOAT32
from tilewright.backends.llvm.math_f64 import FLOAT32_THROUGH_FLOAT64, FLOAT64, LARGE
from tilewright.ir import dtype as dt

__all__ = ["MATH"]

_F32 = {**FLOAT32, **FLOAT32_THROUGH_FLOAT64}
_LIBM_F64 = ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "pow", "exp10")
MATH: tuple[str, ...] = tuple(sorted({*_F32, *FLOAT64, *_LIBM_F64}))
"""The intrinsics written here, without the `tir.`."""


def call_math(w: StmtWriter, name: str, dtype: str, args: list[str]) -> str:
    """The function `name` of values of `dtype`."""
    return in_float(w, dtype, args, lambda wide, values: _call(w, name, wide, values))


def _call(w: StmtWriter, name: str, dtype: str, args: list[str]) -> str:
    kind = "f32" if dt.bits(dtype) == 32 else "f64"
    f = (_F32 if kind == "f32" else FLOAT64).get(name)
    ty = llvm_type(dtype)
    if f is None:
        return w.intrinsic(name, ty, *args)
    symbol = f"tw.{name}.{suffix(ty)}"
    if symbol not in w.mod.helpers:
        if kind == "f32" and name in LARGE:
            _define_in_two(w, name, symbol, f, dtype)
        else:
            _define(w, symbol, f, (kind,) * len(args), dtype)
    return w.op(f"call {ty} @{symbol}({', '.join(f'{ty} {a}' for a in args)})")


def _define(w: StmtWriter, symbol: str, f: Helper, kinds: tuple[str, ...], dtype: str, attributes: str = "#1") -> None:
    text, declared = helper_text(symbol, f, kinds, dt.lanes(dtype), w.mod.has_fma, attributes)
    w.mod.helpers[symbol] = text
    for intrinsic, signature in declared.items():
        w.mod.declare(intrinsic, signature)


def _define_in_two(w: StmtWriter, name: str, symbol: str, f: Helper, dtype: str) -> None:
    """A function that calls another one for the lanes whose argument is large; seldom, and so not inlined."""
    bound, large = LARGE[name]
    ty, bt, n = llvm_type(dtype), w.bool_type(dtype), dt.lanes(dtype)
    _define(w, symbol + ".small", f, ("f32",), dtype)
    _define(w, symbol + ".large", large, ("f32",), dtype, "#2")
    fabs = w.mod.declare(f"llvm.fabs.{suffix(ty)}", f"{ty} ({ty})")
    lines = [
        f"define internal {ty} @{symbol}({ty} %x) #1 {{",
        f"  %small = call {ty} @{symbol}.small({ty} %x)",
        f"  %size = call {ty} {fabs}({ty} %x)",
        f"  %big = fcmp oge {ty} %size, {splat(float_literal(bound, 'float32'), 'float', n)}",
    ]
    some = "%big"
    if n != 1:
        some = "%some"
        any_of = w.mod.declare(f"llvm.vector.reduce.or.{suffix(bt)}", f"i1 ({bt})")
        lines.append(f"  %some = call i1 {any_of}({bt} %big)")
    lines += [
        f"  br i1 {some}, label %far, label %near, !prof !1",
        "near:",
        f"  ret {ty} %small",
        "far:",
        f"  %large = call {ty} @{symbol}.large({ty} %x)",
        f"  %both = select {bt} %big, {ty} %large, {ty} %small",
        f"  ret {ty} %both",
        "}",
    ]
    w.mod.helpers[symbol] = "\n".join(lines)


def _math(w: StmtWriter, e: E.Call) -> str:
    name = e.op.name.removeprefix("tir.")  # pyright: ignore[reportAttributeAccessIssue]
    if not dt.is_float(e.dtype):
        raise unsupported(
            "TW0605", f"tir.{name} of {e.dtype} in {w.where}: it takes floats", "cast the argument to a float first"
        )
    args = [w.expr(a) for a in e.args]
    if name == "pow":
        power = _small_power(w, e, args[0])
        if power is not None:
            return power
    return call_math(w, name, e.dtype, args)


def _small_power(w: StmtWriter, e: E.Call, x: str) -> str | None:
    y: Any = e.args[1]
    y = y.value if isinstance(y, E.Broadcast) else y
    if not isinstance(y, E.FloatImm) or y.value not in (1.0, 2.0, 3.0, 4.0, -1.0):
        return None
    if y.value == 1.0:
        return x
    if y.value == -1.0:
        one = w.expr(E.const(1.0, e.dtype))
        return w.binary(E.Div, one, x, e.dtype)
    square = w.binary(E.Mul, x, x, e.dtype)
    if y.value == 2.0:
        return square
    return w.binary(E.Mul, square, x if y.value == 3.0 else square, e.dtype)


def _ldexp(w: StmtWriter, e: E.Call) -> str:
    """x * 2**n, by two scalings through float64's exponents: exact, and overflow and underflow as in C."""
    x, n = w.expr(e.args[0]), w.expr(e.args[1])
    ty, it = llvm_type(e.dtype), llvm_type(e.args[1].dtype)
    lanes = dt.lanes(e.dtype)
    if dt.bits(e.dtype) not in (32, 64) or dt.bits(e.args[1].dtype) != 32:
        raise unsupported(
            "TW0605", f"tir.ldexp of {e.dtype} and {e.args[1].dtype} in {w.where}", "use float32/float64 and int32"
        )
    callee = w.mod.declare(f"llvm.ldexp.{suffix(ty)}.{suffix(it)}", f"{ty} ({ty}, {it})")
    del lanes
    return w.op(f"call {ty} {callee}({ty} {x}, {it} {n})")


def _nextafter(w: StmtWriter, e: E.Call) -> str:
    """The neighbour of x towards y, by a step of its bits."""
    a, c = w.expr(e.args[0]), w.expr(e.args[1])
    ty, bits, n = llvm_type(e.dtype), dt.bits(e.dtype), dt.lanes(e.dtype)
    if bits not in (32, 64):
        raise unsupported("TW0605", f"tir.nextafter of {e.dtype} in {w.where}", "use float32 or float64")
    it, bt = llvm_type(dt.with_lanes(f"int{bits}", n)), w.bool_type(e.dtype)
    zero = "zeroinitializer" if n != 1 else "0.0"
    k = lambda v: splat(str(v), f"i{bits}", n)  # noqa: E731
    i = w.op(f"bitcast {ty} {a} to {it}")
    up = w.op(f"fcmp ogt {ty} {c}, {a}")
    positive = w.op(f"fcmp ogt {ty} {a}, {zero}")
    away = w.op(f"icmp eq {bt} {up}, {positive}")
    stepped = w.op(f"add {it} {i}, {w.select(away, bt, k(1), k(-1), it)}")
    sign = k(-(1 << (bits - 1)))
    least = w.select(up, bt, k(1), w.op(f"or {it} {k(1)}, {sign}"), it)
    stepped = w.select(w.op(f"fcmp oeq {ty} {a}, {zero}"), bt, least, stepped, it)
    value = w.op(f"bitcast {it} {stepped} to {ty}")
    value = w.select(w.op(f"fcmp oeq {ty} {a}, {c}"), bt, c, value, ty)
    return w.select(w.op(f"fcmp uno {ty} {a}, {c}"), bt, w.op(f"fadd {ty} {a}, {c}"), value, ty)


INTRINSICS.update({f"tir.{name}": _math for name in MATH})
INTRINSICS["tir.ldexp"] = _ldexp
INTRINSICS["tir.nextafter"] = _nextafter
