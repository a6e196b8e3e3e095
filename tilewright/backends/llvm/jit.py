"""Objects linked into this process by LLVM's JIT linker."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
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
        _SESSION.append(ll.create_lljit_compiler())
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
        for name, address in {**runtime_symbols(), **(symbols or {})}.items():
            builder.import_symbol(name, address)
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
                    raise CompileError.at(
                        "TW0614",
                        f"symbol {symbol!r} cannot be linked: {str(error).strip()}",
                        hint="either no object defines it, or a function or constant that it needs is not bound",
                    ) from error
        return int(found[symbol])


def runtime_symbols() -> Mapping[str, int]:
    """Addresses of the process's thread pool and allocator."""
    pool: Any = resolve("runtime.pool")()
    addresses: Mapping[str, int] = pool.addresses
    return addresses
