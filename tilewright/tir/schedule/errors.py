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

__all__ = ["LEVELS", "ScheduleError", "UnknownFunctionError", "UnknownHandleError", "fail"]

LEVELS = ("detail", "fast", "none")
"""How much an error says: everything; the reason without the program; nothing but its code."""


class ScheduleError(CompileError):
    """A primitive cannot be applied here. Code TW04xx; the message shows where, why, and what could be done instead.

    The program is printed when somebody reads the message, not when the error is raised: a search that tries thousands of
    steps pays nothing for those that fail. `level` is one of `LEVELS`.
    """

    level = "detail"

    def __init__(self, diagnostic: Diagnostic, root: Any = None, node: Any = None) -> None:
        Exception.__init__(self)
        self._bare, self._root, self._node = diagnostic, root, node
        self._shown: tuple[Diagnostic, ...] | None = None

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What is wrong, with the place in the printed program."""
        if self._shown is None:
            d = self._bare
            place = _place(self._root, self._node) if self._root is not None and self._node is not None else None
            self._shown = (Diagnostic(d.code, d.message, place, hint=d.hint),)
        return self._shown

    @property
    def args(self) -> tuple[Any, ...]:
        """The message, as one text."""
        return (str(self),)

    @args.setter
    def args(self, value: Any) -> None:
        """Python sets the arguments of an exception when it is made; the message says it all."""

    def __str__(self) -> str:
        if self.level == "none":
            return f"error[{self._bare.code}]: (not rendered)"
        if self.level == "fast":
            return self._bare.render()
        return "\n".join(d.render() for d in self.diagnostics)

    def __reduce__(self) -> Any:
        return type(self), (self.diagnostics[0],)


class UnknownHandleError(ScheduleError, IndexError, ValueError):
    """A handle stands for nothing (any more) in this schedule."""


class UnknownFunctionError(ScheduleError, ValueError):
    """It is not known which function of the module is meant."""


def _place(root: Any, node: Any) -> Span | None:
    """Where the node stands in the printed program; a loop or block only by its head line."""
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
    code: str,
    message: str,
    root: Any = None,
    node: Any = None,
    *,
    choices: Iterable[str] = (),
    hint: str | None = None,
    kind: type[ScheduleError] = ScheduleError,
) -> ScheduleError:
    """The error to raise: `node` of the function `root` is underlined; `choices` are the legal alternatives."""
    options = list(choices)
    if options:
        listed = f"choose among: {', '.join(options)}"
        hint = f"{hint}; {listed}" if hint else listed
    return kind(Diagnostic(code, message, hint=hint), root, node)
