"""Printing of script in colour: `cprint(mod)`, `cprint(text, style="light")`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

__all__ = ["cprint"]

_STYLES = {"light": "default", "dark": "monokai", "ansi": "ansi_dark", None: "ansi_dark"}


def cprint(printable: Any, style: str | None = None, black_format: bool | None = None) -> None:
    """Print a text, or a node as script; in colour on a terminal or in a notebook.

    `style` is light, dark, ansi, or a colour scheme of pygments. `black_format` runs the text through the formatter black
    (default: if the environment variable TVM_BLACK_FORMAT is a number other than 0).
    """
    text = printable if isinstance(printable, str) else printable.script()
    wanted = os.environ.get("TVM_BLACK_FORMAT") or "0"
    if black_format or (black_format is None and wanted.isdigit() and int(wanted)):
        try:
            black: Any = import_module("black")
        except ImportError:
            raise ImportError("black_format=True needs the package black: pip install black") from None
        text = black.format_str(text, mode=black.FileMode())
    if sys.stdout.isatty() or (style is not None and "ipykernel" in sys.modules):
        console: Any = import_module("rich.console").Console()
        syntax: Any = import_module("rich.syntax")
        console.print(syntax.Syntax(text, "python", theme=_STYLES.get(style, style), background_color="default"))
    else:
        print(text)
