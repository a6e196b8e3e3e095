"""Script without its parser: the functions of `T` build at once, on whatever is being built.

In a function being parsed the evaluator calls `T.reads(...)` and hands the record that it gives to the parser, which knows
names and places. A helper function of the user's program, a macro's method or a program that uses `IRBuilder` calls the same
functions from Python. `ACTIVE` says for whom: its last entry is the state that they act on (None: the parser takes records).
Frames (`T.block`, `T.serial`, `T.If`, ...) are context managers there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilewright.support.diagnostics import CompileError

if TYPE_CHECKING:
    from tilewright.script.state import BuildState

__all__ = ["ACTIVE", "Scoped", "acting_on", "active", "current", "done"]

ACTIVE: list[BuildState | None] = []
"""The states that functions of `T` act on, innermost last."""


def active() -> BuildState | None:
    """What functions of `T` act on at once; None where the parser takes what they give."""
    return ACTIVE[-1] if ACTIVE else None


def current(what: str) -> BuildState:
    """The same, which must be there. Raises TW0117."""
    state = active()
    if state is None:
        raise CompileError.at(
            "TW0117",
            f"{what} has nothing to build on here",
            hint="use it in a @T.prim_func, or in `with IRBuilder() as ib:`",
        )
    return state


@contextmanager
def acting_on(state: BuildState | None) -> Generator[None]:
    """Functions of `T` act on `state` inside."""
    ACTIVE.append(state)
    try:
        yield
    finally:
        ACTIVE.pop()


def done(record: Any) -> Any:
    """What a function of `T` gives: the record, or, where there is a state to act on, what it stands for."""
    state = active()
    return record if state is None else state.act(record)


class Scoped:
    """A frame: `with frame as value:` builds on the active state."""

    value: Any
    what: str

    def __enter__(self) -> Any:
        state = current(f"`with {getattr(self, 'what', type(self).__name__)}`")
        self._close: Callable[[], None] = state.open(self)
        self._state = state
        return self.value

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self._close()
        else:
            self._state.abandon()
