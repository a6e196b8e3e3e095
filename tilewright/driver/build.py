"""The public ways in: `compile` a model, `build` a module of loop programs; both link in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from typing import TYPE_CHECKING, Any

from tilewright.backends.registry import backends
from tilewright.driver.compile import Compiled, Model, Progress, compile_module, load_model
from tilewright.ir.module import IRModule, attrs_of
from tilewright.ir.passes import DumpIR, PassContext
from tilewright.ir.target import Target
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import PrimFunc

if TYPE_CHECKING:
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.module import Module

__all__ = ["build", "build_llvm", "compile", "link"]


def compile(
    model: Model,
    target: str | Target = "llvm",
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dtypes: Mapping[str, str] | None = None,
    threads: int | None = None,
    cache: bool = True,
    dump_ir: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Any:
    """Compile a model to native code in this process; the result is called like a function.

    model: an ONNX file's path, its bytes, an `onnx.ModelProto`, or an IRModule with a graph function `main`. A module of loop programs
        (PrimFuncs) only gives what `build` gives.
    shapes: fixes dynamic inputs by name, `{"x": (1, 3, 224, 224)}`; others stay dynamic.
    threads: how many threads to run on (process-wide); default: TILEWRIGHT_NUM_THREADS, else the physical cores.
    cache: take compiled kernels from the disk cache and put new ones there.
    dump_ir: a folder that gets the program after each pass, as numbered script files.
    progress: called with (stage, done, total).

    Raises CompileError, whose text says what is wrong and what to do.
    """
    if threads is not None:
        from tilewright.runtime.threads import set_num_threads

        set_num_threads(threads)
    target = Target(target)
    dump = DumpIR(dump_ir) if dump_ir is not None else None
    with ExitStack() as stack:
        if dump is not None:
            current = PassContext.current()
            stack.enter_context(
                PassContext(
                    current.opt_level,
                    current.required_pass,
                    current.disabled_pass,
                    [*current.instruments, dump],
                    current.config,
                )
            )
        if progress:
            progress("reading", 0, 0)
        mod = load_model(model, shapes, dtypes)
        if dump is not None:
            dump.write("imported", mod)
        if all(isinstance(f, PrimFunc) for f in mod.functions.values()):
            return build(mod, target)
        names = mod.attrs.get("output_names", ())
        compiled = compile_module(mod, target, output_names=names, progress=progress, use_cache=cache)
    return link(compiled)


def link(compiled: Compiled) -> Executable:
    """Put the objects into this process."""
    from tilewright.backends.llvm.artifact import executable

    return executable(compiled)


def build(
    mod: IRModule | PrimFunc | Mapping[Any, Any] | Any,
    target: str | Target | None = None,
    target_host: str | Target | None = None,
    name: str = "main",
    **options: Any,
) -> Module:
    """Compile a module of loop programs as they are scheduled; `rt["name"](a, b, c)` calls one with arrays.

    mod: an IRModule, a PrimFunc, a Schedule, or `{target: module}`: each part for its own target, called through one module.
    target: for functions without a `target` attribute of their own; default: the innermost `with Target(...)`, else "llvm".
    target_host: what the CPU's part of a program for another device is compiled for; default: the target's `host`, else "llvm".

    Raises CompileError where a program cannot be lowered, TypeError for what is no program.
    """
    del options
    if isinstance(mod, Mapping):
        return _build_parts({Target(t): _module_of(m, name) for t, m in mod.items()}, target_host)
    given = _module_of(mod, name)
    chosen = Target(target) if target is not None else Target.current() or Target("llvm")
    parts: dict[Target, IRModule] = {}
    for v, f in given.functions.items():
        own = attrs_of(f).get("target")
        where = Target(own) if own is not None and isinstance(f, PrimFunc) else chosen
        part = parts.setdefault(where, IRModule({}, dict(given.attrs)))
        part.functions[v] = f
    built = _build_parts(parts or {chosen: given}, target_host)
    for v, f in given.functions.items():
        built.add_alias(str(attrs_of(f).get("global_symbol") or v.name_hint), v.name_hint)
    return built


def _build_parts(parts: Mapping[Target, IRModule], target_host: str | Target | None) -> Module:
    """One module a target, the host's in front: it finds the functions of the others."""
    built: list[Module] = []
    for where, part in parts.items():
        backend = backends().get(where.kind.name)
        if backend is None:
            raise CompileError.at(
                "TW0651",
                f"target {where} has no code generator yet",
                hint="`tilewright targets` lists what there is",
            )
        if target_host is not None:
            where = where.with_host(target_host)
        built.append(backend.load(backend.build)(part, where))
    built.sort(key=lambda m: m.type_key not in ("llvm", "c"))
    for other in built[1:]:
        built[0].import_module(other)
    return built[0]


def build_llvm(mod: IRModule, target: Target) -> Module:
    """Machine code for a CPU."""
    from tilewright.backends.llvm.artifact import module

    return module(compile_module(mod, target))


def _module_of(mod: Any, name: str) -> IRModule:
    """What is given to `build` as a module."""
    if isinstance(mod, PrimFunc):
        mod = IRModule.from_expr(mod, None if name == "main" else name)
    scheduled = getattr(mod, "mod", None)
    if isinstance(scheduled, IRModule):  # mod is a Schedule
        mod = scheduled
    if not isinstance(mod, IRModule):
        raise TypeError(f"build takes an IRModule or a PrimFunc, not {type(mod).__name__}")
    return mod
