"""Underlines, comments, line numbers and excerpts of printed text: what `script(obj_to_underline=..., ...)` asks for.

While a marked node is printed, marker characters are written around its text; here they become carets under the line, or a
comment, and go away. Of a statement with a suite (a loop, a branch, a block) only the head is underlined, of a function and a
module every line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.ir.node import Node

__all__ = ["START", "STOP", "close_mark", "finish_marks", "has_suite", "node_at", "open_mark"]

START, END, STOP = "\ue000", "\ue001", "\ue002"
_MARK = re.compile(f"[{START}{END}](\\d+){STOP}")


def open_mark(n: int) -> str:
    """What stands before the text of the marked node `n`."""
    return f"{START}{n}{STOP}"


def close_mark(n: int) -> str:
    """What stands behind it."""
    return f"{END}{n}{STOP}"


def node_at(root: Any, path: Any) -> Any:
    """The object at a path: the text of one (`<root>.body.seq[1]`), or an AccessPath of tvm_ffi. Raises ValueError."""
    if isinstance(path, str):
        steps = [a or int(i) for a, i in re.findall(r"\.(\w+)|\[(\d+)\]", path)]
    else:
        steps = [s.key for s in path.to_steps()]
    for step in steps:
        try:
            root = getattr(root, step) if isinstance(step, str) and not isinstance(root, Mapping) else root[step]
        except (AttributeError, KeyError, IndexError, TypeError):
            raise ValueError(f"there is nothing at {path}: no {step!r} in a {type(root).__name__}") from None
    return root


class _Line:
    """One line of the text, with what is drawn under, before and behind it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.carets: list[tuple[int, int]] = []
        self.above: list[str] = []
        self.behind: list[str] = []

    def underline(self) -> str:
        """The carets under the line."""
        row = [" "] * max((b for _, b in self.carets), default=0)
        for a, b in self.carets:
            row[a:b] = "^" * (b - a)
        return "".join(row)


def _spans(text: str) -> tuple[str, list[tuple[int, int, int]]]:
    """The text without markers, and `(number, start, end)` of each marked part."""
    out: list[str] = []
    spans: list[tuple[int, int, int]] = []
    stack: list[tuple[int, int]] = []
    at = last = 0
    for m in _MARK.finditer(text):
        out.append(text[last : m.start()])
        at += m.start() - last
        last = m.end()
        n = int(m.group(1))
        if m.group(0)[0] == START:
            stack.append((n, at))
            continue
        for i in range(len(stack) - 1, -1, -1):
            if stack[i][0] == n:
                spans.append((n, stack.pop(i)[1], at))
                break
    out.append(text[last:])
    return "".join(out), spans


def finish_marks(
    text: str,
    *,
    underline: Iterable[int] = (),
    head_only: Iterable[int] = (),
    comments: Mapping[int, str] | None = None,
    line_numbers: bool = False,
    context: int | None = None,
) -> str:
    """The text with underlines and comments instead of markers.

    `underline`, `comments`: by the numbers of marks; `head_only`: marks whose first line alone is meant; `context`: so many
    lines around what is underlined, None or a negative number for all.
    """
    text, spans = _spans(text)
    lines = [_Line(s) for s in text.split("\n")]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.text) + 1)
    under, heads = set(underline), set(head_only)
    for n, start, end in spans:
        while start < end and text[start] in "\n ":
            start += 1
        row = next(i for i in range(len(lines)) if starts[i + 1] > start)
        if comments and n in comments:
            line = lines[row]
            if line.text.rstrip().endswith(":"):
                indent = len(line.text) - len(line.text.lstrip())
                line.above.append(" " * indent + "# " + comments[n])
            else:
                line.behind.append("  # " + comments[n])
        while n in under and row < len(lines) and starts[row] < end:
            body = lines[row].text
            first = max(start - starts[row], len(body) - len(body.lstrip()))
            last = min(end - starts[row], len(body))
            if first < last:
                lines[row].carets.append((first, last))
            if n in heads:
                break
            row += 1
    return _join(lines, line_numbers, context)


def _join(lines: list[_Line], numbers: bool, context: int | None) -> str:
    shown = _shown(lines, context)
    width = len(str(len(lines))) if numbers else 0
    out: list[str] = []
    i = 0
    while i < len(lines):
        if i not in shown:
            j = i
            while j < len(lines) and j not in shown:
                j += 1
            out.append(f"(... {j - i} lines skipped ...)")
            i = j
            continue
        line = lines[i]
        margin = f"{i + 1:>{width}} " if numbers else ""
        out += [" " * len(margin) + a for a in line.above]
        out.append(margin + line.text + "".join(line.behind))
        if line.carets:
            out.append(" " * len(margin) + line.underline())
        i += 1
    return "\n".join(out)


def _shown(lines: list[_Line], context: int | None) -> set[int]:
    """The lines that are printed; a gap of one line is closed, because its note would be as long."""
    marked = [i for i, line in enumerate(lines) if line.carets]
    if context is None or context < 0 or not marked:
        return set(range(len(lines)))
    shown = {j for i in marked for j in range(i - context, i + context + 1) if 0 <= j < len(lines)}
    for j in range(len(lines)):
        if j not in shown and (j == 0 or j - 1 in shown) and (j == len(lines) - 1 or j + 1 in shown):
            shown.add(j)
    return shown


def has_suite(node: Any) -> bool:
    """Does the statement have a suite, so that its head alone is underlined?"""
    from tilewright.tir import ir as tir

    return (
        isinstance(node, Node)
        and isinstance(node, tir.Stmt)
        and any(f.name in ("body", "then_case", "block") for f in node.node_fields)
    )
