"""Runtime modules: compiled functions by name, in this process.

mod = tvm.build(...);  mod["f"](a, b, c);  mod.time_evaluator("f", tvm.cpu(), number=10)(a, b, c).mean
mod.export_library("m.so");  tvm.runtime.load_module("m.so")["f"]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from tilewright.runtime.artifact import Artifact
from tilewright.runtime.signature import Signature
from tilewright.runtime.timing import BenchmarkResult, evaluator
from tilewright.support.diagnostics import CompileError
from tilewright.support.lazy import resolve

__all__ = ["BenchmarkResult", "LazyFunctions", "Module", "enabled", "load_module"]


class LazyFunctions(Mapping[str, Any]):
    """Functions that come to be when the first one is taken: `names`, and what makes them all."""

    def __init__(self, names: Sequence[str], make: Callable[[], Mapping[str, Any]]) -> None:
        self._names, self._make = tuple(names), make
        self._made: Mapping[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        if self._made is None:
            self._made = self._make()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names


class Module:
    """Compiled functions by name. `artifact`: what they were made from (needed for exporting); `keep`: what must stay alive."""

    entry_name = "main"
    _type_key = "llvm"

    def __init__(
        self, functions: Mapping[str, Any], artifact: Artifact, keep: Any = None, path: str | None = None
    ) -> None:
        self._functions: Mapping[str, Any] = functions if isinstance(functions, LazyFunctions) else dict(functions)
        self.artifact = artifact
        self._keep = keep
        self._imports: list[Module] = []
        self._aliases: dict[str, str] = {}
        self.path = path

    @staticmethod
    def from_artifact(artifact: Artifact) -> Module:
        """Link an artifact into this process. Raises CompileError where it does not fit this machine."""
        return resolve("artifact.link")(artifact)

    # functions

    def get_function(self, name: str, query_imports: bool = False) -> Any:
        """The function `name`: a native function that takes arrays, tensors with DLPack, and numbers.

        Raises AttributeError that lists the names there are.
        """
        found = self._functions.get(self._aliases.get(name, name))
        if found is None and query_imports:
            found = next((m._functions[name] for m in self._imports if name in m._functions), None)
        if found is None:
            names = ", ".join(self._functions) or "none"
            raise AttributeError(f"the module has no function {name!r}; it has: {names}")
        return found

    def add_alias(self, alias: str, name: str) -> None:
        """Let the function `name` be found as `alias` too: a function has a name in its module and a symbol."""
        if name in self._functions and alias not in self._functions:
            self._aliases[alias] = name

    def __getitem__(self, name: str) -> Any:
        return self.get_function(name, query_imports=True)

    def __getattr__(self, name: str) -> Any:
        """A function as an attribute: `rt.main(a, b)`."""
        functions = self.__dict__.get("_functions", {})
        name = self.__dict__.get("_aliases", {}).get(name, name)
        if name not in functions:
            raise AttributeError(f"the module has no attribute and no function {name!r}")
        return functions[name]

    def __contains__(self, name: object) -> bool:
        return name in self._functions or name in self._aliases

    @property
    def entry_func(self) -> Any:
        """The function `main`, or the only one there is."""
        if self.entry_name not in self._functions and len(self._functions) == 1:
            return next(iter(self._functions.values()))
        return self.get_function(self.entry_name)

    def __call__(self, *args: Any) -> Any:
        return self.entry_func(*args)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Is there a function `name`?"""
        return name in self._functions or (query_imports and any(name in m._functions for m in self._imports))

    def signature(self, name: str | None = None) -> Signature:
        """What the function takes and gives."""
        if name is None:
            name = self.entry_name if self.entry_name in self._functions else next(iter(self._functions))
        self.get_function(name)
        return Signature.from_json(name, self.artifact.entries[name])

    @property
    def stats(self) -> dict[str, Any]:
        """What compilation measured."""
        return self.artifact.stats

    @property
    def signatures(self) -> dict[str, dict[str, Any]]:
        """What every function takes and gives, as tables."""
        return self.artifact.entries

    @property
    def function_names(self) -> list[str]:
        """The names of the functions."""
        return list(self._functions)

    # the known names around modules

    @property
    def mod(self) -> Module:
        """The module itself: executables of this field carry their module as `.mod`."""
        return self

    @property
    def imported_modules(self) -> list[Module]:
        """Modules whose functions this one finds too."""
        return list(self._imports)

    imports = imported_modules

    def import_module(self, module: Module) -> None:
        """Let this module find the functions of another."""
        self._imports.append(module)

    @property
    def type_key(self) -> str:
        """The kind of module."""
        return "library" if self.path else self._type_key

    kind = type_key

    def time_evaluator(
        self,
        func_name: str,
        dev: Any = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that measures `func_name` on the arguments it is given: `.mean`, `.median`, `.results`, ... in seconds.

        One run warms up; then `repeat` times the mean of `number` runs, more of them where a repeat is shorter than
        `min_repeat_ms`. Calls cost about 0.2 us themselves.
        """
        del limit_zero_time_iterations
        if f_preproc:
            raise ValueError("f_preproc is not supported; use cache_flush_bytes to flush caches between repeats")
        timed = evaluator(
            self[func_name],
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
            cache_flush_bytes=cache_flush_bytes,
            sync=getattr(dev, "sync", None) if getattr(dev, "device_type", 1) != 1 else None,
        )

        def run(*args: Any) -> BenchmarkResult:
            from tilewright.runtime.ffi import tensor_from

            return timed(*(tensor_from(a) if hasattr(a, "__dlpack__") else a for a in args))

        return run

    def get_source(self, fmt: str = "") -> str:
        """The program as text: LLVM IR ("ll", the default), or what else its compiler kept ("asm").

        Raises CompileError TW0714 for a module that was loaded from a file: it holds machine code only.
        """
        if self.artifact.source is None:
            raise CompileError.at(
                "TW0714",
                f"the module {self.path or ''} holds machine code only, no source".replace("  ", " "),
                hint="compile the model in this process, or look at the file with a disassembler",
            )
        return self.artifact.source(fmt or "ll")

    inspect_source = get_source

    def export_library(self, file_name: str | PathLike[str], **options: Any) -> None:
        """Write the module to a file, whose ending says how: `.so`, `.o`, `.ll`, or `.tw` (needs no linker, nor to be loaded).

        Raises CompileError: TW0710 where no linker is found, TW0713 for another ending, TW0712 where the file cannot be
        written. Nothing half-written is left behind.
        """
        if options.get("fcompile") is not None:
            raise ValueError(
                "fcompile is not supported: the linkers ld, cc and ziglang's ld.lld are tried in this order"
            )
        resolve("artifact.write")(self.artifact, Path(file_name))

    save = export_library

    def __repr__(self) -> str:
        return f"Module({self.type_key}, functions: {', '.join(self._functions)})"


def load_module(path: str | PathLike[str], fmt: str = "") -> Module:
    """The module in a file that `export_library` wrote (`.so` or `.tw`). Raises CompileError TW07xx for any other file."""
    del fmt
    found: Module = resolve("artifact.load")(Path(path))
    return found


def enabled(target: str) -> bool:
    """Can modules of this kind of target ("llvm", "c", "cuda", "opencl", "webgpu", ...) be built and run here? `tilewright targets` says
    why not."""
    words = target.split()
    if not words:
        return False
    if words[0] in ("cpu", "stackvm"):
        return words[0] == "cpu"
    found = resolve("backends.find")(words[0])
    return found is not None and found.runs() is None
