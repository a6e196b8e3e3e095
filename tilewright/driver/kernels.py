"""Kernels to machine code: each one from the cache, or scheduled, lowered, emitted and compiled, on several processes.

The unit is one PrimFunc in block form. Its key is its structure, the target, and the versions of this package and of LLVM, so a
kernel is never compiled twice, whatever model it occurs in and whatever it is called there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.driver import cache as disk
from tilewright.ir.structure import structural_digest
from tilewright.ir.target import Target
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import PrimFunc
from tilewright.tir.lower.import_llvm import imported_llvm
from tilewright.version import __version__

if TYPE_CHECKING:
    from tilewright.driver.compile import Progress

__all__ = ["Kernel", "compile_kernel", "compile_kernels", "lower_one"]

_NAME = re.compile(r"[^A-Za-z0-9_]+")


@dataclass
class Kernel:
    """A compiled kernel: its symbol, its object code, and whether it came from the cache."""

    symbol: str
    code: bytes
    cached: bool


@cache
def fingerprint() -> str:
    """Text that changes whenever the compiler does: versions, and the state of the package's own source files."""
    root = Path(__file__).resolve().parents[1]
    state = hashlib.blake2b(digest_size=12)
    for folder in ("arith", "backends", "ir", "te", "tir"):
        for path in sorted((root / folder).rglob("*.py")):
            info = path.stat()
            state.update(f"{path.name} {info.st_size} {info.st_mtime_ns}".encode())
    return f"{__version__} {version('llvmlite')} {state.hexdigest()}"


def kernel_key(func: PrimFunc, target: Target) -> str:
    """What the cache knows the kernel by: everything but its name (the text of files that it imports too)."""
    imports = "".join(hashlib.blake2b(t.encode()).hexdigest()[:20] for t in imported_llvm(func))
    return (
        f"kernel {imports} {structural_digest(func.without_attr('global_symbol'))} {target.cache_key()} {fingerprint()}"
    )


def symbol_of(name: str, key: str) -> str:
    """A symbol that says what the kernel is and that no two different kernels share."""
    return f"{_NAME.sub('_', name)[:80]}_{hashlib.blake2b(key.encode(), digest_size=5).hexdigest()}"


def lower_one(func: PrimFunc, symbol: str, target: Target) -> PrimFunc:
    """Schedule a kernel by the backend's analytic schedule, and lower it to flat form."""
    from tilewright.backends.llvm.schedules import schedule_kernel
    from tilewright.tir.lower import lower_kernel

    return lower_kernel(schedule_kernel(func, target), target).with_attr("global_symbol", symbol)


def compile_kernel(func: PrimFunc, symbol: str, target: Target) -> bytes:
    """Object code of one kernel."""
    from tilewright.backends.llvm.codegen import compile_object
    from tilewright.backends.llvm.emit import emit_module

    emitted = emit_module([lower_one(func, symbol, target)], target, symbol)
    if emitted.constants:
        raise CompileError.at(
            "TW0650", f"kernel {symbol} holds a constant array", hint="make it an argument of the kernel"
        )
    return compile_object(emitted.text, target)


def compile_kernels(
    kernels: Sequence[tuple[str, PrimFunc]], target: Target, progress: Progress | None = None, use_cache: bool = True
) -> list[Kernel]:
    """The compiled form of each `(name, function)`; equal functions are compiled once."""
    store = disk.default() if use_cache else None
    keys = [kernel_key(func, target) for _, func in kernels]
    done: dict[str, Kernel] = {}
    missing: dict[str, tuple[str, PrimFunc]] = {}
    for key, (name, func) in zip(keys, kernels, strict=True):
        if key in done or key in missing:
            continue
        entry = store.get(key) if store else None
        if entry is not None:
            done[key] = Kernel(str(entry.meta["symbol"]), entry.data, True)
        else:
            missing[key] = (symbol_of(name, key), func)
    total = len(done) + len(missing)

    def finished(key: str, code: bytes) -> None:
        symbol = missing[key][0]
        done[key] = Kernel(symbol, code, False)
        if store:
            store.put(key, code, {"symbol": symbol})
        if progress:
            progress("kernels", len(done), total)

    if progress:
        progress("kernels", len(done), total)
    if missing:
        from tilewright.driver.workers import run_all

        run_all([(key, func, symbol) for key, (symbol, func) in missing.items()], target, finished)
    return [done[key] for key in keys]


def describe(kernel: Kernel) -> dict[str, Any]:
    """A row for statistics."""
    return {"symbol": kernel.symbol, "bytes": len(kernel.code), "cached": kernel.cached}
