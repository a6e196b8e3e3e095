"""Loop programs to C: a module that shows its source, exports it, and is compiled when a function of it is called."""

from __future__ import annotations

import hashlib
import importlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.arith.expr import IntImm, Var, const
from tilewright.backends.c import cc
from tilewright.backends.c.emit import emit_c
from tilewright.ir.module import IRModule
from tilewright.ir.node import replace
from tilewright.ir.op import GlobalVar
from tilewright.ir.target import Target, host_info
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.module import LazyFunctions, Module
from tilewright.support.diagnostics import CompileError
from tilewright.tir.analysis.calls import called_functions, is_private
from tilewright.tir.ir import Evaluate, PrimFunc
from tilewright.tir.lower import lower_kernel
from tilewright.tir.lower.make_packed_api import make_packed_api

__all__ = ["CModule", "available", "build", "signature_of"]

OPTIONS = ("-std=c99", "-O2", "-fno-strict-aliasing", "-fwrapv")
"""How the C compiler is called for code that runs in this process."""


def available() -> str | None:
    """Why C code cannot run here: without a compiler."""
    return None if cc.get_cc() else "no C compiler found: tried $CXX, $CC, cc, gcc, clang"


def build(mod: IRModule, target: Target) -> Module:
    """Every PrimFunc of the module with an entry point. Raises CompileError TW066x for what C cannot express."""
    functions: list[PrimFunc] = []
    entries: dict[str, dict[str, Any]] = {}
    symbols: dict[str, str] = {}
    called = called_functions(f for f in mod.functions.values() if isinstance(f, PrimFunc))
    for v, f in mod.functions.items():
        if not isinstance(f, PrimFunc):
            raise CompileError.at(
                "TW0665",
                f'target "c" makes code of loop programs; {v.name_hint!r} is a graph function',
                hint='compile graphs with target "llvm"',
            )
        name = v.name_hint
        private = is_private(f, name, called)
        symbol = name if private else f"{name}_kernel"
        symbols[name] = symbol
        f = f.with_attr("global_symbol", name)
        functions.append(lower_kernel(f, target).with_attr("global_symbol", symbol))
        if not private:
            functions.append(make_packed_api(replace(f, body=Evaluate(const(0))), GlobalVar(symbol)))
            entries[name] = signature_of(f)
    return CModule(emit_c(functions, symbols=symbols), entries, str(target))


def signature_of(f: PrimFunc) -> dict[str, Any]:
    """What a function takes, as a table (runtime/signature.py)."""
    rows: list[dict[str, Any]] = []
    for p in f.params:
        b = f.buffer_map.get(p)
        shape = None
        if b is not None:
            shape = [int(d) if isinstance(d, IntImm) else d.name if isinstance(d, Var) else str(d) for d in b.shape]
        rows.append(
            {"name": p.name if b is None else b.name, "dtype": p.dtype if b is None else b.dtype, "shape": shape}
        )
    return {"inputs": rows, "outputs": [], "returns_tuple": False, "graph": False}


class CModule(Module):
    """C source; compiled by the C compiler when a function is taken."""

    _type_key = "c"

    def __init__(self, text: str, entries: Mapping[str, dict[str, Any]], target: str = "c") -> None:
        artifact = Artifact({}, [], dict(entries), host_info().triple, target, source=self._source)
        super().__init__(LazyFunctions(list(entries), self._compile), artifact)
        self.text = text

    def _source(self, fmt: str) -> str:
        return self.text

    def get_source(self, fmt: str = "") -> str:
        """The C source. Raises CompileError TW0666 for another format than "c"."""
        if fmt not in ("", "c"):
            raise CompileError.at("TW0666", f"a C module has no source in format {fmt!r}", hint='use "c"')
        return self.text

    inspect_source = get_source

    def _compile(self) -> Mapping[str, Any]:
        if (reason := available()) is not None:
            raise CompileError.at(
                "TW0667",
                f"this module is C source and cannot be called here: {reason}",
                hint='install a C compiler, or use target "llvm"',
            )
        importlib.import_module("tilewright.runtime.ffi")  # loads the FFI's library, which the code refers to
        with tempfile.TemporaryDirectory(prefix="tilewright-c-") as folder:
            path = Path(folder) / f"{hashlib.blake2b(self.text.encode(), digest_size=6).hexdigest()}.so"
            self._shared(path)
            return functions_of(path, list(self.artifact.entries))

    def _shared(self, path: Path) -> None:
        source = path.with_suffix(".c")
        source.write_text(self.text)
        cc.create_shared(str(path), [str(source)], [*OPTIONS, "-lm"])

    def export_library(self, file_name: Any, **options: Any) -> None:
        """Write `.c` (the source), `.so` (a shared library, by the C compiler) or `.o` (an object).

        `fcompile(file, sources, **options)` takes the place of the C compiler. Raises CompileError TW0713 for another ending.
        """
        path = Path(file_name)
        fcompile = options.pop("fcompile", None)
        if path.suffix == ".c":
            path.write_text(self.text)
            return
        if path.suffix not in (".so", ".o", ".dylib") and fcompile is None:
            raise CompileError.at(
                "TW0713",
                f"cannot tell how to write {path.name!r} from its ending",
                hint="use .c (source), .so (shared library) or .o (object)",
            )
        with tempfile.TemporaryDirectory(prefix="tilewright-c-") as folder:
            source = Path(folder) / "lib.c"
            source.write_text(self.text)
            given = list(options.pop("options", None) or ())
            if fcompile is not None:
                fcompile(str(path), [str(source)], options=given, **options)
            elif path.suffix == ".o":
                cc.create_object(str(path), [str(source)], [*OPTIONS, *given])
            else:
                cc.create_shared(str(path), [str(source)], [*OPTIONS, *given, "-lm"])

    save = export_library


def functions_of(path: Path, names: list[str]) -> dict[str, Any]:
    """The packed functions of a shared library, which stays loaded as long as they live."""
    import ctypes

    from tilewright.runtime.ffi import function_at

    library = ctypes.CDLL(str(path))
    found: dict[str, Any] = {}
    for name in names:
        address = ctypes.cast(getattr(library, f"__tvm_ffi_{name}"), ctypes.c_void_p).value
        found[name] = function_at(int(address or 0), library)
    return found
