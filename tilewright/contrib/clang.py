"""clang, where C is to become LLVM IR (micro-kernels of a tensor intrinsic)."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tilewright.contrib.utils import is_source_path, tempdir

__all__ = ["create_llvm", "find_clang"]


def find_clang(required: bool = True) -> list[str]:
    """Paths of the clangs there are, best first. Raises RuntimeError where there is none and `required` is set."""
    names = ["clang", *(f"clang-{v}" for v in range(22, 14, -1))]
    found = [p for p in map(shutil.which, names) if p]
    if required and not found:
        raise RuntimeError("clang is not installed; `pip install ziglang` brings one that create_llvm finds by itself")
    return found


def _compiler(cc: str | None) -> list[str]:
    if cc is not None:
        return [cc]
    found = find_clang(required=False)
    if found:
        return [found[0]]
    if importlib.util.find_spec("ziglang") is not None:
        quiet = ["-g0", "-fno-sanitize=undefined", "-fno-stack-protector"]  # zig's own defaults are for debugging
        return [sys.executable, "-m", "ziglang", "c++", *quiet]
    return [find_clang()[0]]


def create_llvm(
    inputs: str | Sequence[str],
    output: str | None = None,
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> str:
    """LLVM IR text of C or C++: source text or a path, or several of them that become one module.

    `output`: also keep the text there. `cc`: the compiler; by default a clang on the PATH, else the one of the package
    `ziglang`. Raises RuntimeError with clang's words.
    """
    given = [inputs] if isinstance(inputs, str) else list(inputs)
    command = _compiler(cc)
    with tempdir() as folder:
        sources: list[str] = []
        for i, text in enumerate(given):
            path = text
            if not is_source_path(text):
                path = folder.relpath(f"input{i}.cc")
                Path(path).write_text(text, encoding="utf-8")
            sources.append(path)
        if len(sources) > 1:  # one translation unit: a module of LLVM IR comes of each
            whole = folder.relpath("inputs.cc")
            Path(whole).write_text("".join(f'#include "{Path(s).resolve()}"\n' for s in sources), encoding="utf-8")
            sources = [whole]
        target = output or folder.relpath("output.ll")
        done = subprocess.run(
            [*command, "-S", "-emit-llvm", *(options or ()), "-o", target, *sources],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        made = Path(target).read_text(encoding="utf-8")
    return made.replace(f"{folder.path}/", "")  # the same source gives the same text
