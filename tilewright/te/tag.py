"""Tags of tensors: labels that computes made in a `with tag_scope(...)` carry."""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar

__all__ = ["TagScope", "tag_scope"]


class TagScope:
    """Computes made inside have the tag, unless they are given one themselves. Raises ValueError for scopes in each other."""

    _current: ClassVar[TagScope | None] = None

    def __init__(self, tag: str) -> None:
        self.tag = tag

    @classmethod
    def get_current(cls) -> TagScope | None:
        """The scope that is entered, if any."""
        return cls._current

    def __enter__(self) -> TagScope:
        if TagScope._current is not None:
            raise ValueError("tag scopes cannot be nested")
        TagScope._current = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        TagScope._current = None


def tag_scope(tag: str) -> TagScope:
    """A scope in which computes carry `tag`."""
    return TagScope(tag)
