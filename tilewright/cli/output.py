"""What commands print: tables and messages for people (coloured on a terminal, plain otherwise), JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.support.diagnostics import CompileError

__all__ = ["Output", "format_bytes", "format_time"]


def format_bytes(n: float) -> str:
    """`n` bytes for people."""
    for unit in ("B", "kB", "MB"):
        if abs(n) < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.2f} GB"


def format_time(seconds: float) -> str:
    """A time for people."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


class Output:
    """Where a command writes. With `as_json`, only what is given to `result` is printed, as one JSON object."""

    def __init__(self, as_json: bool = False) -> None:
        from rich.console import Console

        self.as_json = as_json
        self.console = Console(highlight=False, soft_wrap=True)
        self.errors = Console(stderr=True, highlight=False, soft_wrap=True)
        self.fancy = self.console.is_terminal and not as_json

    def say(self, text: str = "", style: str | None = None) -> None:
        """A line for people."""
        if not self.as_json:
            self.console.print(text, style=style, markup=False)

    def note(self, text: str) -> None:
        """A remark on standard error: it never mixes with results."""
        if not self.as_json:
            self.errors.print(text, style="dim", markup=False)

    def error(self, error: BaseException | str) -> None:
        """An error for people, or as JSON."""
        if self.as_json:
            diagnostics = error.diagnostics if isinstance(error, CompileError) else ()
            rows = [{"code": d.code, "message": d.message, "hint": d.hint, "notes": list(d.notes)} for d in diagnostics]
            print(json.dumps({"error": str(error), "diagnostics": rows}))
            return
        text = str(error)
        head, _, rest = text.partition("\n")
        self.errors.print(head if head.startswith("error") else f"error: {head}", style="bold red", markup=False)
        if rest:
            self.errors.print(rest, markup=False)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
        """A table: numbers to the right, framed on a terminal, plain columns otherwise."""
        if self.as_json:
            return
        cells = [[str(c) for c in row] for row in rows]
        if self.fancy:
            self._rich_table(headers, cells, title)
            return
        if title:
            print(title)
        widths = [max(len(r[i]) for r in [list(headers), *cells]) for i in range(len(headers))]
        for row in [list(headers), *cells]:
            line = "  ".join(
                c.rjust(w) if _numeric(cells, i) else c.ljust(w)
                for i, (c, w) in enumerate(zip(row, widths, strict=True))
            )
            print(line.rstrip())

    def _rich_table(self, headers: Sequence[str], cells: list[list[str]], title: str | None) -> None:
        from rich.table import Table

        table = Table(title=title, title_justify="left", header_style="bold")
        for i, header in enumerate(headers):
            table.add_column(header, justify="right" if _numeric(cells, i) else "left")
        for row in cells:
            table.add_row(*row)
        self.console.print(table)

    def result(self, value: Any) -> None:
        """The command's result for machines."""
        if self.as_json:
            print(json.dumps(value, default=str))

    @contextmanager
    def progress(self, title: str) -> Generator[Any, None, None]:
        """A progress bar on a terminal; gives the callback `(stage, done, total)`. Silent otherwise."""
        if not self.fancy:
            yield None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task(title, total=None)

            def update(stage: str, done: int, total: int) -> None:
                bar.update(task, description=f"{title}: {stage}", completed=done, total=total or None)

            yield update


def _numeric(cells: list[list[str]], column: int) -> bool:
    values = [row[column].strip("~<>= ") for row in cells]
    return bool(values) and all(not v or v == "-" or v[0].isdigit() or v[0] in "-+." for v in values)


def fail(text: str) -> None:
    """Print an error and leave with status 2: wrong usage."""
    print(f"tilewright: {text}", file=sys.stderr)
    raise SystemExit(2)
