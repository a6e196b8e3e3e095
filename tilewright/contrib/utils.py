"""Temporary folders and other small helpers."""

from __future__ import annotations

import os
import shutil
import tempfile
from types import TracebackType
from typing import Any

__all__ = ["TempDirectory", "is_source_path", "tempdir"]


class TempDirectory:
    """A folder that is removed when the object goes, or at the end of a `with`. `temp_dir` is its path."""

    def __init__(self, custom_path: str | None = None, keep_for_debug: bool = False) -> None:
        if custom_path is not None:
            os.makedirs(custom_path, exist_ok=True)
            self.temp_dir = custom_path
        else:
            self.temp_dir = tempfile.mkdtemp(prefix="tilewright-")
        self._owned = custom_path is None and not keep_for_debug

    @property
    def path(self) -> str:
        """The folder's path."""
        return self.temp_dir

    def relpath(self, name: str) -> str:
        """The path of `name` in the folder."""
        return os.path.join(self.temp_dir, name)

    def listdir(self) -> list[str]:
        """The names in the folder."""
        return os.listdir(self.temp_dir)

    def remove(self) -> None:
        """Remove the folder with all its contents, unless it was given by the user."""
        if self._owned:
            self._owned = False
            shutil.rmtree(self.temp_dir, ignore_errors=True)

    def __truediv__(self, name: str) -> str:
        return self.relpath(name)

    def __enter__(self) -> TempDirectory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.remove()

    def __del__(self) -> None:
        remove: Any = getattr(self, "remove", None)
        if remove is not None and shutil is not None:  # pyright: ignore[reportUnnecessaryComparison]
            remove()


def tempdir(custom_path: str | None = None, keep_for_debug: bool = False) -> TempDirectory:
    """A new temporary folder; `custom_path` uses that one (and keeps it)."""
    return TempDirectory(custom_path, keep_for_debug)


def is_source_path(path: Any) -> bool:
    """Is `path` the path of a file that exists, rather than source text?"""
    return os.path.exists(path) if isinstance(path, str) and "\n" not in path else False
