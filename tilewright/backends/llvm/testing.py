"""Run flat-form functions directly on numpy arrays: for tests, and for whoever measures a kernel.

run_kernel(f, a, b, c)                       arrays are passed by pointer, numbers by value; arrays are written in place
k = load_kernel(f); k(a, b, c); k.seconds(a, b, c)
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from tilewright.backends.llvm.codegen import compile_assembly, compile_object
from tilewright.backends.llvm.emit import emit_module, function_symbol
from tilewright.backends.llvm.jit import Engine
from tilewright.ir import dtype as dt
from tilewright.ir.target import Target
from tilewright.tir.ir import PrimFunc

__all__ = ["Kernel", "load_kernel", "run_kernel"]

_CTYPES: dict[str, Any] = {
    "int8": ctypes.c_int8, "int16": ctypes.c_int16, "int32": ctypes.c_int32, "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8, "uint16": ctypes.c_uint16, "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64,
    "bool": ctypes.c_bool, "float32": ctypes.c_float, "float64": ctypes.c_double, "handle": ctypes.c_void_p,
}  # fmt: skip


class Kernel:
    """A loaded function of the kernel calling convention. `text`: its LLVM IR; `assembly()`: its machine code as text."""

    def __init__(self, funcs: Sequence[PrimFunc], target: Target, opt: str, entry: str | None = None) -> None:
        _ = import_module("tilewright.runtime.ffi").ffi  # loads the FFI's library
        self.target, self.opt = target, opt
        result = emit_module(funcs, target)
        self.text, self._constants = result.text, result.constants
        started = time.perf_counter()
        data = compile_object(self.text, target, opt)
        self.compile_seconds = time.perf_counter() - started
        self._keep = [np.require(c, requirements=["C"]) for _, c in result.constants]
        symbols = {name: c.ctypes.data for (name, _), c in zip(result.constants, self._keep, strict=True)}
        self.engine = Engine([data], symbols)
        chosen = funcs[0] if entry is None else next(f for f in funcs if function_symbol(f) == entry)
        self.params = chosen.params
        types = [_CTYPES[p.dtype] for p in chosen.params]
        self._call: Any = ctypes.PYFUNCTYPE(ctypes.c_int32, *types)(self.engine.address(function_symbol(chosen)))

    def assembly(self) -> str:
        """The machine code as text."""
        return compile_assembly(self.text, self.target, self.opt)

    def _convert(self, args: Sequence[Any]) -> list[Any]:
        if len(args) != len(self.params):
            names = ", ".join(p.name for p in self.params)
            raise TypeError(f"the kernel takes {len(self.params)} arguments ({names}), got {len(args)}")
        out: list[Any] = []
        for p, a in zip(self.params, args, strict=True):
            if isinstance(a, np.ndarray):
                if not a.flags.c_contiguous:
                    raise TypeError(f"argument {p.name!r} is not contiguous")
                out.append(a.ctypes.data)
            else:
                out.append(a)
        return out

    def __call__(self, *args: Any) -> None:
        """Run it. Raises what the function raised."""
        status = self._call(*self._convert(args))
        if status != 0:
            raise_pending(status)

    def seconds(self, *args: Any, repeat: int = 20, number: int = 0) -> float:
        """The least time of a call over `repeat` runs of `number` calls (chosen to last about 2 ms)."""
        values = self._convert(args)
        call = self._call
        call(*values)
        start = time.perf_counter()
        call(*values)
        once = max(time.perf_counter() - start, 1e-7)
        number = number or max(1, int(2e-3 / once))
        best = float("inf")
        for _ in range(repeat):
            start = time.perf_counter()
            for _ in range(number):
                call(*values)
            best = min(best, (time.perf_counter() - start) / number)
        return best


def raise_pending(status: int) -> None:
    """Raise the error that the native code left in the FFI's slot."""
    ffi: Any = import_module("tilewright.runtime.ffi").ffi
    if status != -1:
        raise RuntimeError(f"the kernel returned status {status}")
    raiser = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)(
        lambda *_: -1
    )
    address = ctypes.cast(raiser, ctypes.c_void_p).value
    ffi.Function.__from_extern_c__(address, keep_alive_object=raiser)()


def load_kernel(
    funcs: PrimFunc | Sequence[PrimFunc], target: Target | str = "llvm", opt: str = "auto", entry: str | None = None
) -> Kernel:
    """Emit, compile and link flat-form functions; the first one (or `entry`) is what calls run."""
    given = [funcs] if isinstance(funcs, PrimFunc) else list(funcs)
    return Kernel(given, Target(target), opt, entry)


def run_kernel(
    funcs: PrimFunc | Sequence[PrimFunc], *args: Any, target: Target | str = "llvm", opt: str = "auto"
) -> None:
    """Compile and run once: numpy arrays by pointer (written in place), numbers by value."""
    load_kernel(funcs, target, opt)(*args)


def contiguous(dtype: str, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """A 64-byte aligned array of zeros."""
    element = dt.to_numpy(dtype)
    size = int(np.prod(shape)) * element.itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(element).reshape(shape)
