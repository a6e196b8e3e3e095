"""The table of intrinsics: every name that `Call(dtype, Op.get(name), args)` may use, and what it means.

A row says how the result's dtype follows from the arguments, what effect a call has, and its meaning in numpy. Emitters,
the verifier, the interpreter and the passes all read this one table; a row is all that a new intrinsic needs here.

    rule      the result's dtype
    "first"   that of the first argument
    "last"    that of the last argument (`if_then_else`, `likely`)
    "bool"    bool, with the lanes of the first argument
    "lane"    the element type of the last argument
    "call"    the caller chooses (`reinterpret`, `call_extern`)
    other     that dtype itself

    effect    what a call may do
    "pure"    depends on its arguments only: may be moved, copied, dropped
    "read"    reads memory as well: may not move over a store
    "opaque"  anything: stays where it is, as often as it is

The numpy meaning takes the arguments as numpy values (scalars, or arrays of lanes) and may compute in float64; the
interpreter rounds the result to the call's dtype. None means that the interpreter knows the intrinsic itself, or cannot
run it (`call_extern`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.op import Op
from tilewright.tir.intrin_calls import SIGNATURES

__all__ = ["INTRINSICS", "Intrinsic", "effect_of", "get", "is_pure", "result_dtype"]


class Intrinsic(NamedTuple):
    """One row: `arity` is None where the number of arguments varies."""

    name: str
    arity: int | None
    rule: str
    effect: str
    numpy: Callable[..., Any] | None
    doc: str


INTRINSICS: dict[str, Intrinsic] = {}
"""All intrinsics by name."""


def _row(name: str, arity: int | None, rule: str, effect: str, numpy: Callable[..., Any] | None, doc: str) -> None:
    INTRINSICS["tir." + name] = Intrinsic("tir." + name, arity, rule, effect, numpy, doc)


def get(op: Any) -> Intrinsic | None:
    """The row of an operator (or of its name); None for what is no intrinsic (a GlobalVar, a name unknown here)."""
    name = op if isinstance(op, str) else op.name if isinstance(op, Op) else None
    return INTRINSICS.get(name) if name is not None else None


def effect_of(op: Any) -> str:
    """`pure`, `read` or `opaque`; what the table does not know is opaque."""
    row = get(op)
    return row.effect if row is not None else "opaque"


def is_pure(op: Any) -> bool:
    """May a call of `op` be moved, copied or dropped?"""
    return effect_of(op) == "pure"


def result_dtype(name: str, args: Sequence[Any]) -> str | None:
    """The dtype of a call by the row's rule; None where the caller chooses."""
    rule = INTRINSICS[name].rule
    if rule == "first":
        return args[0].dtype
    if rule == "last":
        return args[-1].dtype
    if rule == "bool":
        return dt.with_lanes("bool", dt.lanes(args[0].dtype))
    if rule == "lane":
        return dt.element(args[-1].dtype)
    return None if rule == "call" else rule


def _f64(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` computed in float64."""
    return lambda *args: f(*(np.asarray(a, dtype=np.float64) for a in args))


def _each(f: Callable[..., float]) -> Callable[..., Any]:
    return _f64(np.vectorize(f, otypes=[np.float64]))


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _unsigned(x: Any) -> tuple[np.ndarray[Any, Any], int]:
    a = np.asarray(x)
    return a.view(f"u{a.dtype.itemsize}").astype(np.uint64), a.dtype.itemsize * 8


def _popcount(x: Any) -> Any:
    bits, _ = _unsigned(x)
    return np.vectorize(lambda v: int(v).bit_count(), otypes=[np.int64])(bits)


def _clz(x: Any) -> Any:
    bits, width = _unsigned(x)
    return np.vectorize(lambda v: width - int(v).bit_length(), otypes=[np.int64])(bits)


def _shift_left(a: Any, b: Any) -> Any:
    return np.left_shift(a, b)


def _fma(a: Any, b: Any, c: Any) -> Any:
    return np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)


def _reduce_lanes(kind: str, x: Any) -> Any:
    f: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    return f[kind].reduce(np.asarray(x), dtype=np.asarray(x).dtype) if kind in ("add", "mul") else f[kind].reduce(x)


for _name, _np, _doc in [
    ("exp", np.exp, "e to the power x"),
    ("exp2", np.exp2, "2 to the power x"),
    ("exp10", lambda x: np.power(10.0, x), "10 to the power x"),  # pyright: ignore[reportUnknownLambdaType]
    ("log", np.log, "natural logarithm"),
    ("log2", np.log2, "logarithm to base 2"),
    ("log10", np.log10, "logarithm to base 10"),
    ("log1p", np.log1p, "log(1 + x), exact near 0"),
    ("expm1", np.expm1, "exp(x) - 1, exact near 0"),
    ("sin", np.sin, "sine"),
    ("cos", np.cos, "cosine"),
    ("tan", np.tan, "tangent"),
    ("asin", np.arcsin, "arc sine"),
    ("acos", np.arccos, "arc cosine"),
    ("atan", np.arctan, "arc tangent"),
    ("sinh", np.sinh, "hyperbolic sine"),
    ("cosh", np.cosh, "hyperbolic cosine"),
    ("tanh", np.tanh, "hyperbolic tangent"),
    ("asinh", np.arcsinh, "inverse hyperbolic sine"),
    ("acosh", np.arccosh, "inverse hyperbolic cosine"),
    ("atanh", np.arctanh, "inverse hyperbolic tangent"),
    ("sqrt", np.sqrt, "square root"),
    ("rsqrt", lambda x: 1 / np.sqrt(x), "1 / sqrt(x)"),
    ("sigmoid", _sigmoid, "1 / (1 + exp(-x))"),
    ("floor", np.floor, "the greatest integer not above x"),
    ("ceil", np.ceil, "the least integer not below x"),
    ("trunc", np.trunc, "x without its fraction"),
    (
        "round",
        lambda x: np.trunc(x + np.copysign(np.nextafter(0.5, 0), x)),
        "the nearest integer, halves away from 0 (C round)",
    ),
    ("nearbyint", np.rint, "the nearest integer, halves to even (C nearbyint)"),
    ("fabs", np.abs, "absolute value of a float"),
]:
    _row(_name, 1, "first", "pure", _f64(_np), _doc)

_row("erf", 1, "first", "pure", _each(math.erf), "the error function")
_row("pow", 2, "first", "pure", _f64(np.power), "x to the power y (floats)")
_row("atan2", 2, "first", "pure", _f64(np.arctan2), "the angle of the point (x=second, y=first)")
_row("hypot", 2, "first", "pure", _f64(np.hypot), "sqrt(x*x + y*y)")
_row("copysign", 2, "first", "pure", _f64(np.copysign), "the size of x with the sign of y")
_row("nextafter", 2, "first", "pure", np.nextafter, "the number after x on the way to y")
_row("ldexp", 2, "first", "pure", lambda x, n: np.ldexp(np.asarray(x, np.float64), n), "x * 2**n, n an integer")
_row("fmod", 2, "first", "pure", _f64(np.fmod), "the remainder with the sign of x (floats, C fmod)")
_row("fma", 3, "first", "pure", _fma, "a * b + c, rounded once")
_row("isnan", 1, "bool", "pure", lambda x: np.isnan(np.asarray(x, np.float64)), "is x not a number?")

_row("bitwise_and", 2, "first", "pure", np.bitwise_and, "a & b")
_row("bitwise_or", 2, "first", "pure", np.bitwise_or, "a | b")
_row("bitwise_xor", 2, "first", "pure", np.bitwise_xor, "a ^ b")
_row("bitwise_not", 1, "first", "pure", np.invert, "~a")
_row("shift_left", 2, "first", "pure", _shift_left, "a << b; b in [0, bits)")
_row(
    "shift_right",
    2,
    "first",
    "pure",
    np.right_shift,
    "a >> b: arithmetic for signed, logical for unsigned; b in [0, bits)",
)
_row("popcount", 1, "first", "pure", _popcount, "the number of one bits")
_row("clz", 1, "first", "pure", _clz, "the number of leading zero bits; all of them for 0")

_row("if_then_else", 3, "last", "pure", None, "if_then_else(cond, a, b): only the side chosen is evaluated")
_row("likely", 1, "last", "pure", lambda x: x, "a condition that nearly always holds")
_row("reinterpret", 1, "call", "pure", None, "the same bits as another dtype of that size; integer <-> handle")
_row(
    "reduce_lanes",
    2,
    "lane",
    "pure",
    _reduce_lanes,
    "reduce_lanes(kind, v): the lanes of v combined by add, mul, max or min",
)
_row("vectorlow", 1, "call", "pure", lambda x: x[: len(x) // 2], "the first half of the lanes")
_row("vectorhigh", 1, "call", "pure", lambda x: x[len(x) // 2 :], "the second half of the lanes")
_row("vectorcombine", 2, "call", "pure", lambda a, b: np.concatenate([a, b]), "the lanes of a, then those of b")

_row("address_of", 1, "handle", "pure", None, "a pointer to the element that a BufferLoad names")
_row("call_extern", None, "call", "opaque", None, "call_extern(symbol, args...): a C function")
_row("call_pure_extern", None, "call", "pure", None, "a C function without effects")
_row("call_llvm_intrin", None, "call", "opaque", None, "call_llvm_intrin(name, args...): an LLVM intrinsic")
_row("call_llvm_pure_intrin", None, "call", "pure", None, "an LLVM intrinsic without effects")
_row("tvm_call_packed", None, "call", "opaque", None, "call_packed(name, args...): a function of the global registry")
_row("ret", 1, "call", "opaque", None, "return the value from the function")
_row(
    "tw_raise",
    None,
    "int32",
    "opaque",
    None,
    "tw_raise(kind, printf format, int64 args...): raise an error and leave the function",
)
_row("assume", 1, "bool", "opaque", None, "the condition holds: may be used by optimisation")
_row("prefetch", 1, "void", "opaque", None, "bring the element that a BufferLoad names into the cache")
_row(
    "tvm_storage_sync",
    None,
    "int32",
    "opaque",
    None,
    "tvm_storage_sync(scope): a barrier for threads that share the scope",
)
_row("undef", 0, "call", "pure", None, "any value")

# Threads of a block and of a warp. The interpreter of device programs (tir/lower/device/interpret.py) knows what they mean.
_row("tvm_context_id", 0, "int32", "opaque", None, "which virtual thread this is")
_row(
    "atomic_add", 2, "last", "opaque", None, "atomic_add(pointer, x): add x to the element, in one step; its old value"
)

for _signature in SIGNATURES.values():
    _rule = "call" if _signature.result == "dtype" or _signature.result.startswith("=") else _signature.result
    _row(_signature.name, _signature.arity, _rule, _signature.effect, None, _signature.doc)
