"""LLVM IR of somebody else in a module of ours: carried behind the emitted text, linked when that is parsed.

What an import defines becomes internal to the module, so that two kernels may import the same. It is optimised for our target:
attributes that name the machine it was made for, or forbid optimisation, are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tilewright.support.diagnostics import CompileError

__all__ = ["link_import", "with_imports", "without_imports"]

_MARK = "\n; ---- imported LLVM IR ----\n"
_MACHINE = re.compile(r'\s"(?:target-cpu|target-features|tune-cpu|frame-pointer|probe-stack)"="[^"]*"')
_FORBIDS = re.compile(r"\s(?:optnone|noinline)\b")
_TRIPLE = re.compile(r'^target triple = "([^"]*)"$', re.MULTILINE)
_LAYOUT = re.compile(r'^target datalayout = "[^"]*"$', re.MULTILINE)


def with_imports(text: str, imports: Sequence[str]) -> str:
    """The text of a module followed by the modules to link into it."""
    return _MARK.join([text, *imports]) if imports else text


def without_imports(text: str) -> tuple[str, list[str]]:
    """(the module's own text, the modules to link into it)"""
    first, *rest = text.split(_MARK)
    return first, rest


def link_import(ll: Any, module: Any, text: str, context: Any) -> None:
    """Link one more module into `module`. Raises CompileError TW0493 where LLVM does not take it."""
    triple = _TRIPLE.search(text)
    mine, theirs = module.triple.partition("-")[0], triple[1].partition("-")[0] if triple else ""
    if theirs and theirs != mine:
        raise CompileError.at(
            "TW0493", f"the imported LLVM IR is for {triple and triple[1]}, the target is {module.triple}",
            hint=f'create_llvm(..., options=["--target={module.triple}"])',
        )  # fmt: skip
    lines = [
        _FORBIDS.sub("", _MACHINE.sub("", line)) if line.startswith("attributes #") else line
        for line in text.splitlines()
    ]
    try:
        other = ll.parse_assembly(_LAYOUT.sub("", "\n".join(lines)), context)
        other.triple, other.data_layout = module.triple, module.data_layout
        defined = [f.name for f in other.functions if not f.is_declaration]
        module.link_in(other)
    except RuntimeError as error:
        raise CompileError.at("TW0493", f"the imported LLVM IR cannot be linked: {error}") from error
    for name in defined:
        module.get_function(name).linkage = "internal"
