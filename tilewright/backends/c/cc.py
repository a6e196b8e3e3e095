"""The system's C compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

__all__ = ["create_executable", "create_object", "create_shared", "get_cc"]


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
    libraries = [o for o in options if o.startswith("-l")]  # after what needs them
    flags = [o for o in options if not o.startswith("-l")]
    done = subprocess.run(
        [compiler, *flags, "-o", str(output), *map(str, given), *libraries], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{compiler} failed on {output}:\n{done.stdout}{done.stderr}")


def create_shared(
    output: str, objects: str | Sequence[str], options: Sequence[str] | None = None, cc: str | None = None
) -> None:
    """Make a shared library of objects or C sources. Raises RuntimeError with the compiler's words."""
    _run(output, objects, ["-shared", "-fPIC", *(options or ())], cc)


def create_object(
    output: str, objects: str | Sequence[str], options: Sequence[str] | None = None, cc: str | None = None
) -> None:
    """Make an object file of a C source. Raises RuntimeError with the compiler's words."""
    _run(output, objects, ["-c", "-fPIC", *(options or ())], cc)


def create_executable(
    output: str, objects: str | Sequence[str], options: Sequence[str] | None = None, cc: str | None = None
) -> None:
    """Make a program of objects or C sources. Raises RuntimeError with the compiler's words."""
    _run(output, objects, list(options or ()), cc)
