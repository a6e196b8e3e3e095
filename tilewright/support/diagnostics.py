"""Errors that name the thing, the place, the reason and a way out."""

from __future__ import annotations

import linecache
from dataclasses import dataclass, field

from tilewright.support.span import Span

__all__ = ["CompileError", "Diagnostic", "Label"]


@dataclass(frozen=True)
class Label:
    """A further place that matters, with what to say about it."""

    span: Span
    message: str


@dataclass(frozen=True)
class Diagnostic:
    """One message to the user. `code` is `TWnnnn`; every code is listed in docs/errors.md and has a test."""

    code: str
    message: str
    span: Span | None = None
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    hint: str | None = None
    severity: str = field(default="error")

    def render(self) -> str:
        """The message as text: head line, the source line underlined, labels, notes, hint."""
        lines = [f"{self.severity}[{self.code}]: {self.message}"]
        if self.span is not None:
            lines += render_span(self.span)
        for label in self.labels:
            lines += [*render_span(label.span), f"    {label.message}"]
        lines += [f"note: {note}" for note in self.notes]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


def render_span(span: Span) -> list[str]:
    """A span as ` --> file:line:column`, the line, and a line of carets under the range."""
    if not span.line:  # no place in a text: `text` describes it, such as a node of a model
        return [f" --> {span.source}", *([f"  | {span.text}"] if span.text else [])]
    if span.text is not None:
        source_lines = span.text.splitlines()
        line = source_lines[span.line - 1] if span.line <= len(source_lines) else ""
    else:
        line = linecache.getline(span.source, span.line).rstrip("\n")
    number = str(span.line)
    out = [f"{' ' * len(number)}--> {span.source}:{span.line}:{span.column}", f"{number} | {line}"]
    if span.column:
        end = span.end_column if span.end_line in (0, span.line) and span.end_column > span.column else len(line) + 1
        width = max(1, min(end, len(line) + 1) - span.column)
        out.append(" " * len(number) + " | " + " " * (span.column - 1) + "^" * width)
    return out


class CompileError(RuntimeError):
    """What the compiler raises for a fault of the input: carries one or more diagnostics."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__(*diagnostics)
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        return "\n".join(d.render() for d in self.diagnostics)

    @classmethod
    def at(
        cls, code: str, message: str, span: Span | None = None, *, hint: str | None = None, notes: tuple[str, ...] = ()
    ) -> CompileError:
        """An error of one diagnostic."""
        return cls(Diagnostic(code, message, span, notes=notes, hint=hint))
