"""Where a piece of IR comes from in the user's source."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Span"]


class Span(NamedTuple):
    """A range of a source: lines count from 1, columns from 1, the end is exclusive.

    `source` is a file name, or for imported models the name of the model; `text` holds the source lines when they cannot
    be read from `source` (a notebook cell, printed IR, an ONNX node's description).
    """

    source: str
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    text: str | None = None
