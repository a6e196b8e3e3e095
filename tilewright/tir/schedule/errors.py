"""Errors of schedules: they show the program with the loop or block in question underlined, the reason, and what is legal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tilewright.ir.node import walk
from tilewright.support.diagnostics import CompileError, Diagnostic
from tilewright.support.lazy import resolve
from tilewright.support.span import Span
from tilewright.tir.ir import For

__all__ = ["ScheduleError", "fail"]


class ScheduleError(CompileError):
    """A primitive cannot be applied here. Code TW04xx; the message shows where, why, and what could be done instead."""


def _place(root: Any, node: Any) -> Span | None:
    """Where the node stands in the printed program; a loop or block only by its head line."""
    if node is None:
        return None
    locate = resolve("script.locate")
    span: Span | None = locate(root, node, "<the program>")
    if span is None and isinstance(node, For):  # printed in one line with the loops around it
        around = [x for x in walk(root) if isinstance(x, For) and _holds(x, node)]
        span = next((found for x in reversed(around) if (found := locate(root, x, "<the program>"))), None)
        return span and _only_name(span, node.loop_var.name)
    if span is None or span.text is None:
        return span
    lines = span.text.splitlines()
    if span.end_line != span.line and span.line <= len(lines):
        return Span(span.source, span.line, span.column, span.line, len(lines[span.line - 1]) + 1, span.text)
    return span


def _holds(outer: For, inner: For) -> bool:
    """Is `inner` reached from `outer` through loops alone?"""
    step: Any = outer
    while isinstance(step, For):
        if step is inner:
            return True
        step = step.body
    return False


def _only_name(span: Span, name: str) -> Span:
    """The part of a line `for i, j in T.grid(...)` that names one loop."""
    line = (span.text or "").splitlines()[span.line - 1]
    found = re.search(rf"\b{re.escape(name)}\b", line)
    if found is None:
        return Span(span.source, span.line, span.column, span.line, len(line) + 1, span.text)
    return Span(span.source, span.line, found.start() + 1, span.line, found.end() + 1, span.text)


def fail(
    code: str, message: str, root: Any = None, node: Any = None, *, choices: Iterable[str] = (), hint: str | None = None
) -> ScheduleError:
    """The error to raise: `node` of the function `root` is underlined; `choices` are the legal alternatives."""
    options = list(choices)
    if options:
        listed = f"choose among: {', '.join(options)}"
        hint = f"{hint}; {listed}" if hint else listed
    return ScheduleError(Diagnostic(code, message, _place(root, node) if root is not None else None, hint=hint))
