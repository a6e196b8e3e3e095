"""LLVM IR of somebody else that a program wants linked in: the annotation (or attribute) `pragma_import_llvm`.

Its value is the text, or the path of a `.ll` file. A loop or a block carries it as an annotation, any statement as an AttrStmt.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.arith.expr import StringImm
from tilewright.ir.node import children
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import AttrStmt, Block, For, PrimFunc, Stmt

__all__ = ["imported_llvm"]

KEY = "pragma_import_llvm"


def imported_llvm(f: PrimFunc) -> tuple[str, ...]:
    """The texts that a function wants linked in, each once. Raises CompileError TW0492 for a file that is not there."""
    found: dict[str, None] = {}

    def visit(s: Any) -> None:
        value = s.value if isinstance(s, AttrStmt) and s.attr_key == KEY else None
        if isinstance(s, (For, Block)):
            value = s.annotations.get(KEY)
        if value is not None:
            found[_text(value)] = None
        for c in children(s):
            if isinstance(c, Stmt):
                visit(c)

    visit(f.body)
    return tuple(found)


def _text(value: Any) -> str:
    text = value.value if isinstance(value, StringImm) else value
    if not isinstance(text, str):
        raise CompileError.at("TW0492", f"{KEY} takes the text of a module or a path, not {type(text).__name__}")
    if "\n" in text or not text.endswith((".ll", ".bc")):
        return text
    if text.endswith(".bc") or not Path(text).exists():
        raise CompileError.at(
            "TW0492",
            f"{KEY}: {text} is no file of LLVM IR text",
            hint="tvm.contrib.clang.create_llvm makes the text of C",
        )
    return Path(text).read_text(encoding="utf-8")
