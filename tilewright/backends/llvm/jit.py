"""Objects linked into this process by LLVM's JIT linker."""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from tilewright.support.diagnostics import CompileError
from tilewright.support.lazy import resolve

__all__ = ["Engine"]

_LOCK = threading.Lock()
_SESSION: list[Any] = []
_COUNTER = itertools.count()


def _session() -> Any:
    """The process's LLJIT: one for all engines, each of which is a library in it."""
    if not _SESSION:
        ll: Any = import_module("llvmlite.binding")
        ll.initialize_native_target()
        ll.initialize_native_asmprinter()
        _SESSION.append(ll.create_lljit_compiler(use_jit_link=True, suppress_errors=True))
    return _SESSION[0]


class Engine:
    """Objects in memory, ready to call. `symbols`: addresses of what the objects refer to besides the process's own
    functions (constants, the runtime's `tw_*`, which are bound by themselves where they are not given).

    The code lives as long as the engine does: hold on to it. Raises CompileError TW0613 when linking fails.
    """

    def __init__(self, objects: Sequence[bytes], symbols: Mapping[str, int] | None = None) -> None:
        ll: Any = import_module("llvmlite.binding")
        builder = ll.JITLibraryBuilder().add_current_process()
        for data in objects:
            builder.add_object_img(data)
        bound = {**runtime_symbols(), **(symbols or {})}
        for name, address in bound.items():
            builder.import_symbol(name, address)
        self._objects, self._bound = list(objects), frozenset(bound)
        self._name = f"tilewright{next(_COUNTER)}"
        self._found: dict[str, Any] = {}
        with _LOCK:
            self._session = _session()
            try:
                self._tracker: Any = builder.link(self._session, self._name)
            except RuntimeError as error:
                raise CompileError.at("TW0613", f"the JIT linker failed: {str(error).strip()}") from error

    def address(self, symbol: str) -> int:
        """Where `symbol` lies. Raises CompileError TW0614 if the objects do not define it, or refer to what is not there."""
        found = self._found.get(symbol)
        if found is None:
            with _LOCK:
                try:
                    found = self._found[symbol] = self._session.lookup(self._name, symbol)
                except RuntimeError as error:
                    raise self._missing(symbol, error) from error
        return int(found[symbol])

    def _missing(self, symbol: str, error: Exception) -> CompileError:
        """Why `symbol` could not be linked, with the names that nothing binds."""
        ll: Any = import_module("llvmlite.binding")
        defined = {n for data in self._objects for n, here in elf_symbols(data) if here}
        wanted = {n for data in self._objects for n, here in elf_symbols(data) if not here}
        loose = sorted(n for n in wanted - defined - self._bound if not ll.address_of_symbol(n))
        if loose:
            return CompileError.at(
                "TW0614",
                f"{symbol!r} cannot be linked: nothing defines {', '.join(map(repr, loose))}",
                hint="load the library that has it (ctypes.CDLL(path, ctypes.RTLD_GLOBAL)), or correct the name in call_extern",
            )
        known = ", ".join(sorted(defined)[:20])
        return CompileError.at(
            "TW0614",
            f"{symbol!r} cannot be linked: {str(error).strip()}",
            hint=f"the objects define: {known}" if known else None,
        )


def elf_symbols(data: bytes) -> Iterator[tuple[str, bool]]:
    """Global symbols of a 64-bit little-endian ELF object, and whether it defines them; none for other formats."""
    if data[:6] != b"\x7fELF\x02\x01":
        return
    offset, size, count = *struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    for header in headers:
        if header[1] != 2:  # SHT_SYMTAB
            continue
        strings = headers[header[6]][4]
        for at in range(header[4], header[4] + header[5], 24):
            name, info, _, section = struct.unpack_from("<IBBH", data, at)
            if info >> 4 and name:
                end = data.index(b"\0", strings + name)
                yield data[strings + name : end].decode(), section != 0


def runtime_symbols() -> Mapping[str, int]:
    """Addresses of the process's thread pool and allocator."""
    pool: Any = resolve("runtime.pool")()
    addresses: Mapping[str, int] = pool.addresses
    return addresses
