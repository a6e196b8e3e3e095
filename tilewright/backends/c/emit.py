"""Flat-form functions to a C file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tilewright.backends.c.dialect import CDialect
from tilewright.backends.source.dialect import element_of, storage_scope
from tilewright.backends.source.stmt import write
from tilewright.backends.source.vectors import take_vectors_apart
from tilewright.backends.source.writer import SourceModule, Writer
from tilewright.ir.module import attrs_of
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as T
from tilewright.tir.lower.make_packed_api import PACKED_PREFIX

__all__ = ["emit_c", "function_text"]

_PLAIN = re.compile(r"[A-Za-z_]\w*$")


def symbol_of(f: T.PrimFunc) -> str:
    """The function's name in the file. Raises CompileError TW0664 where it is no C name."""
    attrs = attrs_of(f)
    name = str(attrs.get("global_symbol") or "")
    if attrs.get("calling_conv") == "packed" and not name.startswith(PACKED_PREFIX):
        name = PACKED_PREFIX + name
    if not _PLAIN.match(name):
        raise CompileError.at(
            "TW0664", f"{name!r} is no name of a function in C", hint='f.with_attr("global_symbol", "name") renames it'
        )
    return name + "_" if name in CDialect.reserved else name


def emit_c(funcs: Sequence[T.PrimFunc], title: str = "", symbols: Mapping[str, str] | None = None) -> str:
    """A C99 file with these functions, in order; those with `calling_conv` "packed" are entry points of the FFI.

    `symbols`: what functions are called in the file, by the names that calls know them by.

    Raises CompileError TW066x for what C cannot express.
    """
    own = {str(attrs_of(f).get("global_symbol")): symbol_of(f) for f in funcs}
    mod = SourceModule(CDialect(), {**own, **{k: own.get(v, v) for k, v in (symbols or {}).items()}})
    for f in funcs:
        mod.functions.append(function_text(mod, f, symbol_of(f)))
    return file_text(mod, title)


def function_text(mod: SourceModule, f: T.PrimFunc, symbol: str) -> str:
    """One function."""
    if f.buffer_map:
        raise CompileError.at("TW0661", f"function {symbol!r} still has a buffer map", hint="lower it first")
    f = take_vectors_apart(f, mod.dialect.supports)
    packed = symbol.startswith(PACKED_PREFIX)
    w = Writer(mod, symbol.removeprefix(PACKED_PREFIX))
    w.used.update(mod.signatures.values(), (symbol,))
    params: list[str] = []
    for p in f.params:
        name = w.bind(p)
        if p.dtype == "handle":
            element = element_of(p)
            w.pointers[p] = (element, storage_scope(p))
            ty = mod.dialect.pointer_type(element, "global") if element else "void*"
            apart = " restrict" if element and attrs_of(f).get("tir.noalias") else ""
            params.append(f"{ty}{apart} {name}")
        else:
            params.append(f"{mod.dialect.type(p.dtype)} {name}")
    write(w, f.body)
    w.line("return 0;")
    what = f"/* {w.name}: its entry point, called through the FFI */" if packed else f"/* {w.name} */"
    head = f"int32_t {symbol}({', '.join(params) or 'void'}) {{"
    return "\n".join([what, _EXPORT + head if packed else head, *w.lines, "}"])


_EXPORT = "TW_EXPORT "
_EXPORT_MACRO = """#ifdef _WIN32
#define TW_EXPORT __declspec(dllexport)
#else
#define TW_EXPORT
#endif"""


def file_text(mod: SourceModule, title: str) -> str:
    """The whole file."""
    for header in ("stdint.h", "stdbool.h", "stddef.h"):
        mod.include(header)
    parts = [f"/* {title or 'compiled by tilewright'}; C99 */"]
    parts.append("\n".join(f"#include <{h}>" for h in sorted(mod.includes)))
    if any(f.partition("\n")[2].startswith(_EXPORT) for f in mod.functions):
        parts.append(_EXPORT_MACRO)
    heads = [
        next(line for line in f.split("\n") if line.endswith(") {")).removesuffix(" {") + ";" for f in mod.functions
    ]
    if mod.declarations or len(heads) > 1:
        parts.append("\n".join([*mod.declarations.values(), *(heads if len(heads) > 1 else ())]))
    parts += mod.helpers.values()
    parts += mod.globals
    parts += mod.functions
    return "\n\n".join(parts) + "\n"
