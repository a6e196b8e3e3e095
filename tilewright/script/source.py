"""The source of what is parsed: where a function or class is written, its syntax tree, spans, and errors that underline it.

The place is found from the object itself: a function's code object knows its file and first line, and a class is found
through its functions. So a class that is defined twice in one file, or in a notebook cell, is found as the one it is.
The tree of a whole file is parsed once and kept as long as the file's text stays the same.
"""

from __future__ import annotations

import ast
import difflib
import linecache
from collections.abc import Iterable
from types import FunctionType
from typing import Any, NoReturn

from tilewright.support.diagnostics import CompileError
from tilewright.support.span import Span

__all__ = ["Source", "Tree", "did_you_mean", "find_class", "find_function", "parse_text"]

Definition = ast.FunctionDef | ast.ClassDef


class Source:
    """One text with a name. `text` goes into spans only when it cannot be read from the file again."""

    def __init__(self, name: str, text: str, *, is_file: bool) -> None:
        self.name, self.text = name, text
        self.kept = None if is_file else text
        self.ascii = text.isascii()
        self.lines = text.splitlines() if not self.ascii else []

    def span(self, n: Any) -> Span | None:
        """The place of a syntax node."""
        line = getattr(n, "lineno", None)
        if line is None:
            return None
        start, end, end_line = n.col_offset, n.end_col_offset or 0, n.end_lineno or line
        if not self.ascii:
            start, end = self._column(line, start), self._column(end_line, end)
        return Span(self.name, line, start + 1, end_line, end + 1, self.kept)

    def _column(self, line: int, offset: int) -> int:
        """The column in characters of an offset in bytes."""
        return (
            len(self.lines[line - 1].encode()[:offset].decode(errors="ignore")) if line <= len(self.lines) else offset
        )

    def fail(self, code: str, message: str, n: Any, *, hint: str | None = None, notes: Iterable[str] = ()) -> NoReturn:
        """Raise a CompileError that underlines the syntax node."""
        raise CompileError.at(code, message, self.span(n), hint=hint, notes=tuple(notes))


class Tree:
    """The syntax tree of a source, with its definitions by first line and each one's enclosing class."""

    def __init__(self, source: Source, module: ast.Module) -> None:
        self.source, self.module = source, module
        self.by_line: dict[int, Definition] = {}
        self.owner: dict[ast.AST, ast.ClassDef] = {}
        self.classes: list[ast.ClassDef] = []
        stack: list[tuple[ast.AST, ast.ClassDef | None]] = [(module, None)]
        while stack:
            n, owner = stack.pop()
            for child in ast.iter_child_nodes(n):
                if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                    self.by_line[first_line(child)] = child
                    if owner is not None:
                        self.owner[child] = owner
                    if isinstance(child, ast.ClassDef):
                        self.classes.append(child)
                    stack.append((child, child if isinstance(child, ast.ClassDef) else None))
                elif not isinstance(child, ast.expr):
                    stack.append((child, owner))


def first_line(n: Definition) -> int:
    """The line of the first decorator, or of the definition."""
    return min([n.lineno, *(d.lineno for d in n.decorator_list)])


_TREES: dict[str, Tree] = {}


def _tree_of_file(filename: str, module_globals: Any, what: str) -> Tree:
    linecache.checkcache(filename)
    lines = linecache.getlines(filename, module_globals)
    if not lines:
        raise CompileError.at(
            "TW0101",
            f"the source of {what} cannot be read: there is no text for {filename!r}",
            hint="define it in a file or a notebook cell, or hand its text to tilewright.script.from_source",
        )
    text = "".join(lines)
    known = _TREES.get(filename)
    if known is None or known.source.text != text:
        known = _TREES[filename] = Tree(Source(filename, text, is_file=True), ast.parse(text, filename))
    return known


def find_function(func: FunctionType) -> tuple[Tree, ast.FunctionDef]:
    """The tree that a function is written in, and its definition there. Raises TW0101 if the source is not to be had."""
    code = func.__code__
    tree = _tree_of_file(code.co_filename, func.__globals__, f"function {func.__name__!r}")
    found = tree.by_line.get(code.co_firstlineno)
    if not isinstance(found, ast.FunctionDef) or found.name != func.__name__:
        raise CompileError.at(
            "TW0101",
            f"function {func.__name__!r} is not on line {code.co_firstlineno} of {code.co_filename!r}: the file has changed",
            hint="run the program again",
        )
    return tree, found


def find_class(cls: type, functions: Iterable[FunctionType]) -> tuple[Tree, ast.ClassDef]:
    """The same for a class, found through one of its functions (or, without any, by its name)."""
    for f in functions:
        tree, definition = find_function(f)
        owner = tree.owner.get(definition)
        if owner is not None and owner.name == cls.__name__:
            return tree, owner
    import sys

    module = sys.modules.get(cls.__module__)
    filename = getattr(module, "__file__", None) or ""
    tree = _tree_of_file(filename, getattr(module, "__dict__", None), f"class {cls.__name__!r}")
    line = getattr(cls, "__firstlineno__", None)
    named = [c for c in tree.classes if c.name == cls.__name__ and line in (None, first_line(c), c.lineno)]
    if not named:
        raise CompileError.at("TW0101", f"class {cls.__name__!r} is not in {filename!r}")
    return tree, named[-1]


def parse_text(text: str, name: str = "<script>") -> Tree:
    """The tree of a text. Raises TW0100 that underlines what Python cannot read."""
    source = Source(name, text, is_file=False)
    try:
        return Tree(source, ast.parse(text, name))
    except SyntaxError as e:
        line, column = e.lineno or 1, e.offset or 1
        span = Span(name, line, column, e.end_lineno or line, e.end_offset or column + 1, text)
        raise CompileError.at("TW0100", f"this is not Python: {e.msg}", span) from None
    except (RecursionError, MemoryError):
        raise CompileError.at("TW0100", f"{name} nests too deeply for Python's parser") from None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint with the nearest known names, if any is near."""
    near = difflib.get_close_matches(name, sorted(set(known)), n=3)
    return f"did you mean {' or '.join(repr(n) for n in near)}?" if near else None
