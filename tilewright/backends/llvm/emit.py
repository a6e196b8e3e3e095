"""From flat-form PrimFuncs to LLVM IR as text.

    expressions   emit_expr.py      casts, small floats   emit_cast.py     intrinsics   intrinsics.py, math.py
    statements    emit_stmt.py      parallel loops        emit_parallel.py names, text  emit_core.py

The text is what a reader would write by hand: vectors and unrolled code stand there as the schedule made them, and LLVM is
left with registers, addressing and instruction order. Functions return an i32 status: 0, or -1 with the error raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import tilewright.backends.llvm.emit_packed
import tilewright.backends.llvm.math  # noqa: F401  these two fill the table of intrinsics
from tilewright.arith.expr import Var
from tilewright.backends.llvm.emit_core import ModuleWriter, llvm_type, symbol, unsupported
from tilewright.backends.llvm.emit_stmt import StmtWriter
from tilewright.backends.llvm.imports import with_imports
from tilewright.ir.module import attrs_of
from tilewright.ir.target import Target
from tilewright.tir.ir import PrimFunc

__all__ = ["EmitResult", "emit_module", "function_symbol"]


class EmitResult(NamedTuple):
    """LLVM IR text, and the constants that it refers to as external symbols: (symbol, array)."""

    text: str
    constants: list[tuple[str, np.ndarray[Any, Any]]]


def emit_module(funcs: Sequence[PrimFunc], target: Target, name: str = "tilewright") -> EmitResult:
    """LLVM IR of flat-form functions, which may call each other by their symbols.

    Raises CompileError TW06xx for what is not in flat form or what the target cannot do.
    """
    arch = target.mtriple.partition("-")[0]
    mod = ModuleWriter(target.features, arch, target.vector_bytes)
    symbols = [function_symbol(f) for f in funcs]
    signatures = {s: [llvm_type(p.dtype) for p in f.params] for s, f in zip(symbols, funcs, strict=True)}
    mod.defined.update(symbols)
    if len(signatures) != len(funcs):
        twice = next(s for s in symbols if symbols.count(s) > 1)
        raise unsupported("TW0606", f"two functions of one module have the symbol {twice!r}")
    for f, s in zip(funcs, symbols, strict=True):
        _emit_function(mod, f, s, signatures)
    imports = dict.fromkeys(t for f in funcs for t in attrs_of(f).get("import_llvm", ()))
    return EmitResult(with_imports(mod.text(name), list(imports)), mod.constants)


def function_symbol(f: PrimFunc) -> str:
    """The symbol of a function: its `global_symbol`, with the FFI's prefix where its calling convention is `packed`."""
    attrs = attrs_of(f)
    name = attrs.get("global_symbol")
    if not name:
        raise unsupported("TW0608", "a function has no global_symbol", 'f.with_attr("global_symbol", "name")')
    if attrs.get("calling_conv") == "packed" and not str(name).startswith("__tvm_ffi_"):
        return f"__tvm_ffi_{name}"
    return str(name)


def _emit_function(mod: ModuleWriter, f: PrimFunc, name: str, signatures: dict[str, list[str]]) -> None:
    if f.buffer_map:
        raise unsupported("TW0608", f"function {name!r} still has a buffer map", "run lower_kernel before emitting")
    w = StmtWriter(mod, name, signatures)
    noalias = bool(attrs_of(f).get("tir.noalias"))
    params: list[str] = []
    for i, p in enumerate(f.params):
        params.append(_parameter(w, p, f"%p{i}", noalias))
    w.stmt(f.body)
    mod.functions.append(w.finish(f"define i32 {symbol(name)}({', '.join(params)}) #0"))


def _parameter(w: StmtWriter, p: Var, text: str, noalias: bool) -> str:
    w.env[p] = text
    if p.dtype == "handle":
        if noalias:
            w.distinct.add(p)
            return f"ptr noalias {text}"
        return f"ptr {text}"
    return f"{llvm_type(p.dtype)} {text}"
