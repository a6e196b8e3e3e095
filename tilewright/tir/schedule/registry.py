"""`@primitive`: a schedule primitive is one function, and everything else about it follows from its signature.

    @primitive
    def split(s: State, loop: LoopRV, factors: ...) -> list[LoopRV]: ...

gives `Schedule.split` with the same arguments and documentation, its step in the trace, and how that step prints and is
replayed. A primitive gets a copy of the state: if it raises, the schedule is as it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["PRIMITIVES", "Primitive", "primitive"]


class Primitive(NamedTuple):
    """A registered primitive: its function, its parameters after the state, whether it changes the program, and what
    brings its arguments into the form that the trace records (`prepare(state, arguments)` changes the table)."""

    name: str
    function: Callable[..., Any]
    signature: inspect.Signature
    changes: bool
    prepare: Callable[[Any, dict[str, Any]], None] | None = None


PRIMITIVES: dict[str, Primitive] = {}
"""All primitives by name."""


def primitive(
    function: Callable[..., Any] | None = None,
    *,
    changes: bool = True,
    prepare: Callable[[Any, dict[str, Any]], None] | None = None,
) -> Any:
    """Register a schedule primitive. `changes=False`: it only looks at the program. `prepare` sees the state and the
    arguments by name before the step is run and recorded: it turns functions into data."""

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(f)
        parameters = [q for q in list(signature.parameters.values())[1:] if q.name != "rng"]
        PRIMITIVES[f.__name__] = Primitive(f.__name__, f, signature.replace(parameters=parameters), changes, prepare)
        return f

    return register if function is None else register(function)
