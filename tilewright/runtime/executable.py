"""A compiled model that people call: `exe(x, y)`, `exe(name=x)`.

Takes numpy arrays, torch tensors, NDArrays and anything with DLPack, without a copy where their layout allows, and returns
the caller's kind. The native function checks every argument itself; only when it (or the exchange of memory) refuses does
`arguments.py` look closer, repair what may be repaired (a layout) and say what is wrong by name.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.runtime import arguments
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.module import Module
from tilewright.runtime.signature import Signature
from tilewright.support.diagnostics import CompileError
from tilewright.support.lazy import resolve

__all__ = ["Executable", "load"]


class Executable:
    """A compiled program, ready to run.

    `signature`: inputs and outputs with names, dtypes, shapes. `stats`: what compilation measured. `function`: the native
    function behind the call, which takes positional arguments only and returns NDArrays (torch tensors for torch's), and
    may be given memory for the results as further arguments. `mod`: the runtime module with all functions.
    """

    def __init__(self, module: Module, entry: str | None = None) -> None:
        self.mod = module
        self.signature: Signature = module.signature(entry)
        self.function: Any = module[self.signature.name]
        self.stats: dict[str, Any] = module.artifact.stats
        self._names = [p.name for p in self.signature.inputs]
        self._single = len(self.signature.outputs) == 1 and not self.signature.returns_tuple
        self._plain = all(arguments.numpy_knows(p.dtype) for p in self.signature.outputs)

    @staticmethod
    def from_artifact(artifact: Artifact, entry: str | None = None) -> Executable:
        """Link an artifact into this process and make its function `entry` (`main`, or the only one) callable."""
        return Executable(Module.from_artifact(artifact), entry)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run it on inputs given by position, by name, or as one dictionary. Further arrays by position are memory for the
        results; then nothing is returned.

        Raises TypeError and ValueError that name the input, what it got and what it needs.
        """
        if named or (len(args) == 1 and type(args[0]) is dict):
            args = self._by_name(args, named)
        all_numpy, odd = True, False
        for a in args:
            if type(a) is np.ndarray:
                flags = a.flags
                odd = odd or not (flags.c_contiguous and flags.writeable)
            else:
                all_numpy = False
                ask = getattr(a, "is_contiguous", None)
                odd = odd or (ask is not None and not ask())
        given = args
        if odd:  # not an error: repaired before the call, since raising and catching costs a hundred times more
            args = arguments.repair(self.signature, args) or args
        try:
            result = self.function(*args)
        except (TypeError, ValueError, BufferError, RuntimeError) as error:
            repaired = None if odd else arguments.repair(self.signature, args, error)
            if repaired is None:
                raise
            result = self.function(*repaired)
        if result is None:  # no results, or memory was given for them
            return None
        if all_numpy and self._plain:
            return np.from_dlpack(result) if self._single else tuple([np.from_dlpack(r) for r in result])
        return self._deliver(result, given)

    def _by_name(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        if not args and len(named) == len(self._names):
            try:
                return tuple([named[n] for n in self._names])
            except KeyError:
                pass  # says which, below
        return arguments.by_name(self.signature, args, named)

    def _deliver(self, result: Any, args: tuple[Any, ...]) -> Any:
        """The results as the caller's kind of array."""
        convert = arguments.converter(args)
        if convert is None:
            return result if self._single else tuple(result)
        return convert(result) if self._single else tuple([convert(r) for r in result])

    def __getitem__(self, name: str) -> Any:
        """The native function `name` of the module."""
        return self.mod[name]

    def script(self) -> str:
        """The graph after the graph passes, as script. Raises CompileError TW0714 for one loaded from a file."""
        script = self.mod.artifact.script
        if script is None:
            raise CompileError.at(
                "TW0714",
                "a loaded artifact holds machine code only: it has no script",
                hint="compile the model in this process to look at its script",
            )
        return script()

    def export_library(self, path: str | PathLike[str], **options: Any) -> None:
        """Write the program to a file by its ending: `.so`, `.o`, `.ll`, `.tw` (Module.export_library says more)."""
        self.mod.export_library(path, **options)

    save = export_library

    def time(self, *args: Any, number: int = 10, repeat: int = 5, **named: Any) -> Any:
        """Measure the program on these inputs: a BenchmarkResult."""
        given = arguments.by_name(self.signature, args, named) if named else args
        return self.mod.time_evaluator(self.signature.name, number=number, repeat=repeat)(*given)

    def __repr__(self) -> str:
        return f"Executable({self.signature})"


def load(path: str | PathLike[str]) -> Executable:
    """The program in a file that `export_library` wrote (`.tw` or `.so`); the contents tell which.

    Raises CompileError: TW0701 for a file of another kind, TW0702 for a damaged one, TW0703 for one of another version,
    TW0704 and TW0705 for another machine; FileNotFoundError where there is none.
    """
    return Executable(resolve("artifact.load")(Path(path)))
