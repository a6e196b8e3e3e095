"""The process's runtime support, loaded: its addresses, and calls of it from Python.

Loaded once, at first use, and never unloaded: workers run in its code, and every engine is linked to its addresses.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from importlib import import_module
from typing import Any

from tilewright.backends.llvm.runtime_ir import BOUND_SYMBOLS, EXPORTS, runtime_text
from tilewright.runtime.threads import cpu_order, default_num_threads
from tilewright.support.lazy import resolve
from tilewright.version import __version__

__all__ = ["Pool", "atfork_symbol", "pool", "runtime_object"]


class Pool:
    """The loaded support. `addresses`: by symbol, what to bind external references of compiled code to."""

    def __init__(self, addresses: dict[str, int], keep: Any) -> None:
        self.addresses = addresses
        self._keep = keep
        i32 = ctypes.c_int32
        self._set: Any = ctypes.CFUNCTYPE(None, i32)(addresses["tw_set_num_threads"])
        self._get: Any = ctypes.CFUNCTYPE(i32)(addresses["tw_get_num_threads"])
        self._trim: Any = ctypes.CFUNCTYPE(None)(addresses["tw_trim"])
        cpus = cpu_order()
        if cpus:
            table = (i32 * len(cpus))(*cpus)
            set_cpus: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p, i32)(addresses["tw_set_cpus"])
            set_cpus(ctypes.addressof(table), len(cpus))
        self._set(default_num_threads())
        self._table = (ctypes.c_void_p * len(BOUND_SYMBOLS))(*(addresses[s] for s in BOUND_SYMBOLS))

    def set_num_threads(self, n: int) -> None:
        """Threads a parallel region uses from now on, the caller included."""
        self._set(n)

    def get_num_threads(self) -> int:
        """Threads a parallel region uses."""
        return int(self._get())

    def trim(self) -> None:
        """Give the memory of cached blocks back to the system."""
        self._trim()

    def bind(self, bind_address: int) -> None:
        """Make a shared library that carries its own pool use this one: `bind_address` is its `__tw_bind`."""
        call: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(bind_address)
        call(ctypes.addressof(self._table))


def atfork_symbol() -> str:
    """The name by which this system's C library exports pthread_atfork."""
    if sys.platform.startswith("linux"):
        return "__register_atfork" if hasattr(ctypes.CDLL(None), "__register_atfork") else "pthread_atfork"
    return "pthread_atfork"


def runtime_object(triple: str, *, library: bool = False) -> bytes:
    """The runtime support for `triple` as an object file, from the disk cache if it is there."""
    ll: Any = import_module("llvmlite.binding")
    atfork = atfork_symbol() if "linux" in triple else "pthread_atfork"
    if "musl" in triple:
        atfork = "pthread_atfork"
    text = runtime_text(triple, library=library, atfork=atfork)
    cache = resolve("driver.cache")()
    key = cache.key("runtime 3", text, triple, str(ll.llvm_version_info), __version__)
    found = cache.get(key)
    if found is not None:
        return found.data
    module = ll.parse_assembly(text)
    module.verify()
    ll.initialize_all_targets()
    ll.initialize_all_asmprinters()
    machine = ll.Target.from_triple(triple).create_target_machine(
        features=_FEATURES.get(triple.split("-")[0], ""), opt=2, reloc="pic", codemodel="default"
    )
    builder = ll.create_pass_builder(machine, ll.create_pipeline_tuning_options(speed_level=1))
    builder.getModulePassManager().run(module, builder)
    data: bytes = machine.emit_object(module)
    cache.put(key, data, {"symbol": "tw_parallel_for", "kind": "runtime"})
    return data


_FEATURES = {"riscv64": "+m,+a,+f,+d,+c"}
"""What every Linux machine of a processor has, where LLVM's default is less (and another calling convention with it)."""

_LOCK = threading.Lock()
_POOL: list[Pool] = []


def pool() -> Pool:
    """The process's pool; loads it at the first call."""
    if _POOL:
        return _POOL[0]
    with _LOCK:
        if not _POOL:
            _POOL.append(_load())
    return _POOL[0]


def _load() -> Pool:
    import_module(
        "tilewright.runtime.ffi"
    )  # its library is loaded for everybody: the text refers to its error functions
    ll: Any = import_module("llvmlite.binding")
    triple: str = ll.get_process_triple()
    data = runtime_object(triple)
    ll.initialize_native_target()
    ll.initialize_native_asmprinter()
    jit = ll.create_lljit_compiler()
    builder = ll.JITLibraryBuilder().add_object_img(data).add_current_process()
    for name, address in _system_symbols().items():
        builder.import_symbol(name, address)
    for name in EXPORTS:
        builder.export_symbol(name)
    tracker = builder.link(jit, "tilewright-runtime")
    # Workers may still run when the interpreter goes down and drops its modules: the code must outlive everything.
    for kept in (jit, tracker):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    return Pool({name: tracker[name] for name in EXPORTS}, (jit, tracker))


def _system_symbols() -> dict[str, int]:
    """Addresses of what the process's own symbols may not give: Windows' waiting functions live in a system library."""
    if sys.platform != "win32":
        return {}
    base: Any = ctypes.WinDLL("kernelbase")  # pyright: ignore
    names = ("WaitOnAddress", "WakeByAddressAll", "GetActiveProcessorCount", "CreateThread", "CloseHandle")
    found = {n: ctypes.cast(getattr(base, n), ctypes.c_void_p).value or 0 for n in names}
    crt: Any = ctypes.CDLL("ucrtbase")
    for n in ("_aligned_malloc", "_aligned_free", "getenv", "atoi"):
        found[n] = ctypes.cast(getattr(crt, n), ctypes.c_void_p).value or 0
    return found
