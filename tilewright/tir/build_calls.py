"""Builders of the intrinsics of `tir/intrin_calls.py`, one function for each line of that table.

`CALLS["ptx_ldmatrix"]("float16", True, 4, ".b16", ...)`; `tilewright.tir` and the `T` namespace give them by their names.
Numbers, bools and strings among the arguments become constants; a buffer stays one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.expr import Call, IntImm, PrimExpr, call_intrin
from tilewright.ir.node import Node
from tilewright.tir.intrin_calls import SIGNATURES, Signature

__all__ = ["CALLS", "DTYPE_FIRST_CALLS", "call_dtype", "call_tir", "trace", "without_signature_count"]

_DEFAULTS: dict[str, Any] = {"None": None, "False": False, "True": True}


def call_dtype(dtype: Any) -> str:
    """A dtype of a call; an empty one is `void`."""
    return str(dtype) or "void"


def _bind(sig: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The named arguments of a call, and those behind them."""
    names = [p for p, _ in sig.params if not p.startswith("*")]
    starred = len(names) < len(sig.params)
    if len(args) > len(names) and not starred:
        raise TypeError(f"{sig.name}() takes {len(names)} arguments, got {len(args)}")
    given = dict(zip(names, args))
    for name, value in kwargs.items():
        if name not in names or name in given:
            what = "got two values for" if name in given else "has no"
            raise TypeError(f"{sig.name}() {what} argument {name!r}")
        given[name] = value
    for name, default in sig.params:
        if name in names and name not in given:
            if default is None:
                raise TypeError(f"{sig.name}() needs an argument {name!r}: {sig.name}({', '.join(names)})")
            given[name] = _DEFAULTS[default] if default in _DEFAULTS else int(default)
    return {n: given[n] for n in names}, args[len(names) :]


def _builder(sig: Signature) -> Callable[..., Call]:
    takes_dtype = sig.result in ("dtype", "=dtype")
    follows = sig.result[1:] if sig.result.startswith("=") and not takes_dtype else ""

    def build(*args: Any, **kwargs: Any) -> Call:
        named, rest = _bind(sig, args, kwargs)
        dtype = sig.result
        if takes_dtype:
            dtype = call_dtype(named.pop("dtype"))
        if follows:
            value = named[follows]
            dtype = value.dtype if isinstance(value, PrimExpr) else call_intrin("int32", "tir.ret", value).args[0].dtype
        if sig.name == "tvm_access_ptr" and isinstance(named["ptype"], str):
            named["ptype"] = call_intrin(named["ptype"], "tir.type_annotation")
        values = [v for v in named.values() if v is not None]
        return call_intrin(dtype, f"tir.{sig.name}", *values, *rest)

    build.__name__ = build.__qualname__ = sig.name
    build.__doc__ = sig.doc
    return build


CALLS: dict[str, Callable[..., Call]] = {name: _builder(sig) for name, sig in SIGNATURES.items()}
"""The builders by name."""

DTYPE_FIRST_CALLS = frozenset(name for name, sig in SIGNATURES.items() if sig.result == "dtype")
"""Those whose first parameter is the dtype of the call."""


def without_signature_count(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of an LLVM intrinsic without the uint32 that says how many of them choose the overload.

    TVM 0.18 wants that number as the first argument; here the types of the arguments say it.
    """
    first = args[0] if args else None
    counts = isinstance(first, IntImm) and first.dtype == "uint32" and first.value <= len(args) - 1
    return args[1:] if counts else args


def call_tir(global_var: Any, *args: Any) -> Call:
    """A direct call of another function of the module."""
    from tilewright.arith.expr import convert

    return Call("void", global_var, tuple(a if isinstance(a, Node) else convert(a) for a in args))


def trace(args: list[Any], trace_action: str = "tvm.default_trace_action") -> Call:
    """Hand the values to a packed function while the program runs; the last of them is the result."""
    values = [call_intrin("int32", "tir.ret", a).args[0] for a in args]
    return call_intrin(values[-1].dtype, "tir.tvm_call_trace_packed", trace_action, *values)
