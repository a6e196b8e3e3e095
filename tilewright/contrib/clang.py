"""clang, where C is to become LLVM IR (micro-kernels of a tensor intrinsic)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tilewright.contrib.utils import is_source_path, tempdir

__all__ = ["create_llvm", "find_clang"]


def find_clang(required: bool = True) -> list[str]:
    """Paths of the clangs there are, best first. Raises RuntimeError where there is none and `required` is set."""
    names = ["clang", *(f"clang-{v}" for v in range(22, 13, -1))]
    found = [p for p in map(shutil.which, names) if p]
    if required and not found:
        raise RuntimeError("clang is not installed")
    return found


def create_llvm(
    inputs: str | Sequence[str],
    output: str | None = None,
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> str:
    """LLVM IR text of C or C++: source text or a path (or several, of which the first is taken).

    `output`: also keep the text there. Raises RuntimeError with clang's words.
    """
    given = inputs if isinstance(inputs, str) else inputs[0]
    compiler = cc or find_clang()[0]
    with tempdir() as folder:
        source = given
        if not is_source_path(given):
            source = folder.relpath("input.cc")
            Path(source).write_text(given)
        target = output or folder.relpath("output.ll")
        done = subprocess.run(
            [compiler, "-S", "-emit-llvm", *(options or ()), "-o", target, source],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{compiler} failed:\n{done.stderr}")
        return Path(target).read_text()
