"""Reproducers: when a pass fails with an internal error, the module it was given is written down with the pass's name.

The file is Python text to read (the module as script, in a comment) and JSON to run: `tilewright replay FILE` calls the pass
on the module again.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.serialize import load_json, save_json
from tilewright.support.diagnostics import CompileError

__all__ = ["note_reproducer", "read", "replay"]

_MARK = "# --- module as JSON ---"


def note_reproducer(error: BaseException, pass_name: str, mod: IRModule) -> Path | None:
    """Write a reproducer for `error` and say so in the error's notes. The first pass to see the error writes it."""
    if getattr(error, "tilewright_reproducer", None) is not None:
        return None
    path: Path | None = None
    with suppress(Exception):
        path = _write(pass_name, mod, error)
        error.tilewright_reproducer = path  # pyright: ignore[reportAttributeAccessIssue]
        note = f"internal error in pass {pass_name}; reproducer: {path} (tilewright replay {path})"
        if hasattr(error, "add_note"):
            error.add_note(note)  # pyright: ignore[reportAttributeAccessIssue]
        else:
            error.args = (*error.args, note)
    return path


def _write(pass_name: str, mod: IRModule, error: BaseException) -> Path:
    folder = Path(os.environ.get("TILEWRIGHT_REPRODUCER_DIR") or tempfile.gettempdir())
    handle, name = tempfile.mkstemp(prefix=f"tilewright-{pass_name}-", suffix=".py", dir=folder)
    try:
        script = mod.script()
    except Exception as broken:
        script = f"(the module does not print: {broken})"
    text = [f"# pass: {pass_name}", f"# error: {type(error).__name__}: {error}".replace("\n", "\n# "), "#"]
    text += ["# " + line for line in script.splitlines()]
    text += [_MARK, save_json(mod), ""]
    with os.fdopen(handle, "w", encoding="utf-8") as f:
        f.write("\n".join(text))
    return Path(name)


def replay(path: str | os.PathLike[str]) -> Any:
    """Run the pass of a reproducer on its module again; returns the module it gives, or raises what it raised.

    Raises CompileError (TW0903) for a file that is no reproducer.
    """
    run, mod = read(path)
    return run(mod)


def read(path: str | os.PathLike[str]) -> tuple[Any, Any]:
    """The pass and the module of a reproducer. Raises CompileError (TW0903) for a file that is none."""
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    head, mark, data = text.partition(_MARK)
    if not mark or not head.startswith("# pass: "):
        raise CompileError.at("TW0903", f"{path} is not a reproducer", hint="reproducers are written when a pass fails")
    name = head.splitlines()[0].removeprefix("# pass: ")
    return find_pass(name), load_json(data.strip())


def find_pass(name: str) -> Any:
    """The pass of that name, among those of the graph and the loop passes."""
    from tilewright.ir.passes import Pass

    for package in ("tilewright.relax.transform", "tilewright.tir.transform", "tilewright.driver.compile"):
        with suppress(ImportError):
            for member in vars(import_module(package)).values():
                if isinstance(member, Pass) and member.name == name:
                    return member
    raise CompileError.at("TW0903", f"no pass is named {name!r}")
