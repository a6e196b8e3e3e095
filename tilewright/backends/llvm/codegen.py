"""From LLVM IR text to object code, through llvmlite.

Pipelines (`opt`):
    "kernel"   inline helpers, SROA, instcombine, simplifycfg: for code that is vectorised and unrolled already
    "scalar"   O2 with LLVM's vectorisers: for plain loops
    "O3"       everything
    "auto"     "scalar" if the text has a loop that LLVM may transform, else "kernel"
Code is position independent; data outside the module is reached through the GOT, wherever the linker puts it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from typing import Any

from tilewright.backends.llvm.emit_core import PLAIN_LOOPS
from tilewright.backends.llvm.imports import link_import, without_imports
from tilewright.ir.target import Target, host_info
from tilewright.support.diagnostics import CompileError

__all__ = ["compile_assembly", "compile_object", "optimise_text", "target_machine"]


@cache
def _llvm() -> Any:
    ll: Any = import_module("llvmlite.binding")
    ll.initialize_all_targets()
    ll.initialize_all_asmprinters()
    ll.initialize_native_asmparser()
    return ll


def target_machine(target: Target) -> Any:
    """LLVM's TargetMachine for `target`. Raises CompileError TW0610 for a triple that this LLVM has no backend for."""
    return _machine(target.mtriple, target.mcpu, _feature_text(target))


def _feature_text(target: Target) -> str:
    if target.is_host:
        return ",".join(f"+{name}" for name in sorted(host_info().features))
    given = [f if f[0] in "+-" else f"+{f}" for f in target.mattr]
    return ",".join(given)


@cache
def _machine(triple: str, cpu: str, features: str) -> Any:
    ll = _llvm()
    try:
        found = ll.Target.from_triple(triple)
    except RuntimeError as error:
        raise CompileError.at(
            "TW0610", f"LLVM has no code generator for the triple {triple!r}: {error}", hint="see `tilewright targets`"
        ) from error
    return found.create_target_machine(cpu=cpu, features=features, opt=2, reloc="pic", codemodel="default")


def _parse(text: str, target: Target) -> Any:
    ll = _llvm()
    context = ll.create_context()
    text, imports = without_imports(text)
    try:
        module = ll.parse_assembly(text, context)
        module.verify()
    except RuntimeError as error:
        raise _invalid(text, str(error)) from error
    module.triple = target.mtriple
    module.data_layout = str(target_machine(target).target_data)
    for other in imports:
        link_import(ll, module, other, context)
    return module


def _invalid(text: str, message: str) -> CompileError:
    """LLVM's complaint about the text, with the line it is about."""
    match = re.search(r"<string>:(\d+):\d+: (.*)", message)
    notes: list[str] = []
    if match is not None:
        line = int(match[1])
        lines = text.splitlines()
        notes = [f"line {n + 1}: {lines[n]}" for n in range(max(0, line - 2), min(len(lines), line + 1))]
        message = match[2]
    return CompileError.at(
        "TW0611",
        f"LLVM rejects the emitted text: {message.strip()}",
        notes=tuple(notes),
        hint="this is a fault of tilewright's emitter, or of an intrinsic called with wrong types; please report it",
    )


def _optimise(module: Any, target: Target, opt: str, text: str) -> None:
    ll = _llvm()
    if opt == "auto":
        opt = "scalar" if PLAIN_LOOPS in text[:400] or without_imports(text)[1] else "kernel"
    if opt not in ("kernel", "scalar", "O3"):
        raise CompileError.at("TW0612", f"unknown optimisation pipeline {opt!r}", hint="kernel, scalar, O3 or auto")
    options = ll.create_pipeline_tuning_options(speed_level=3 if opt == "O3" else 2)
    options.loop_vectorization = options.slp_vectorization = opt != "kernel"
    options.loop_unrolling = options.loop_interleaving = opt != "kernel"
    builder = ll.create_pass_builder(target_machine(target), options)
    if opt == "kernel":
        passes = ll.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
    else:
        passes = builder.getModulePassManager()
    passes.run(module, builder)


def _optimised(text: str, target: Target, opt: str) -> Any:
    module = _parse(text, target)
    _optimise(module, target, opt, text)
    return module


def compile_object(text: str, target: Target, opt: str = "auto") -> bytes:
    """An object file of LLVM IR text. Raises CompileError TW061x."""
    if _is_foreign(target):
        return _in_subprocess("object", text, target, opt)
    module = _optimised(text, target, opt)
    data: bytes = target_machine(target).emit_object(module)
    return data


def compile_assembly(text: str, target: Target, opt: str = "auto") -> str:
    """The machine's assembly text, for people to read."""
    if _is_foreign(target):
        return _in_subprocess("assembly", text, target, opt).decode()
    module = _optimised(text, target, opt)
    out: str = target_machine(target).emit_assembly(module)
    return out


def optimise_text(text: str, target: Target, opt: str = "auto") -> str:
    """The LLVM IR after the passes, as text."""
    return str(_optimised(text, target, opt))


def _is_foreign(target: Target) -> bool:
    return target.mtriple.partition("-")[0] != host_info().triple.partition("-")[0]


def _in_subprocess(kind: str, text: str, target: Target, opt: str) -> bytes:
    """Code for another architecture, made in a process of its own: a fatal error of LLVM's code generator aborts it."""
    _optimised(text, target, opt)  # faults of the text are reported from here
    job = json.dumps({"kind": kind, "target": str(target), "opt": opt, "text": text}).encode()
    command = [sys.executable, "-c", "from tilewright.backends.llvm.codegen import serve; serve()"]
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(command, input=job, capture_output=True, check=False, env={**os.environ, "PYTHONPATH": path})
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-3:]
        raise CompileError.at(
            "TW0615",
            f"LLVM's code generator for {target.mtriple} failed: {' / '.join(last) or f'exit code {done.returncode}'}",
            hint="another -mcpu, or -mattr without the feature it stumbles over, may help",
        )
    return done.stdout


def serve() -> None:
    """The other side of `_in_subprocess`: a job as JSON from standard input, code to standard output."""
    job = json.loads(sys.stdin.buffer.read())
    target = Target(job["target"])
    module = _optimised(job["text"], target, job["opt"])
    machine = target_machine(target)
    out: Any = machine.emit_object(module) if job["kind"] == "object" else machine.emit_assembly(module).encode()
    sys.stdout.buffer.write(out)
