"""The system's C compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

__all__ = ["create_executable", "create_shared", "get_cc"]


def get_cc() -> str | None:
    """The path of the C compiler: CXX or CC of the environment, else cc, gcc, clang; None if there is none."""
    for name in (os.environ.get("CXX"), os.environ.get("CC"), "cc", "gcc", "clang"):
        found = shutil.which(name) if name else None
        if found:
            return found
    return None


def _run(output: str, objects: str | Sequence[str], options: Sequence[str], cc: str | None) -> None:
    compiler = cc or get_cc()
    if compiler is None:
        raise RuntimeError("no C compiler found: tried $CXX, $CC, cc, gcc, clang")
    given = [objects] if isinstance(objects, str) else list(objects)
    done = subprocess.run(
        [compiler, *options, "-o", str(output), *map(str, given)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{compiler} failed on {output}:\n{done.stdout}{done.stderr}")


def create_shared(
    output: str, objects: str | Sequence[str], options: Sequence[str] | None = None, cc: str | None = None
) -> None:
    """Make a shared library of objects or C sources. Raises RuntimeError with the compiler's words."""
    _run(output, objects, ["-shared", "-fPIC", *(options or ())], cc)


def create_executable(
    output: str, objects: str | Sequence[str], options: Sequence[str] | None = None, cc: str | None = None
) -> None:
    """Make a program of objects or C sources. Raises RuntimeError with the compiler's words."""
    _run(output, objects, list(options or ()), cc)
