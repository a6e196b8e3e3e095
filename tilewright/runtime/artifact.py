"""A compiled program as data: machine code, constants, and what is known of its functions.

What the compiler hands to the runtime, and what the files hold: `.tw` and `.so` are written and read by the backend
(backends/llvm/artifact.py, link.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Artifact"]


@dataclass
class Artifact:
    """`objects`: relocatable machine code by name. `constants`: (symbol, array); arrays are not written to and are kept
    alive while the code is. `entries`: the public functions, each with its signature as a table (Signature.to_json)."""

    objects: dict[str, bytes]
    constants: list[tuple[str, NDArray[np.generic]]]
    entries: dict[str, dict[str, Any]]
    triple: str
    target: str = "llvm"
    features: tuple[str, ...] = ()
    """CPU features that the code uses."""
    stats: dict[str, Any] = field(default_factory=dict[str, Any])
    source: Callable[[str], str] | None = None
    """The program as text: called with "ll" (LLVM IR), "asm" or "tir"."""
    script: Callable[[], str] | None = None
    """The module after the graph passes, as script."""
    keep: Any = None
    """What must stay alive with the arrays (a mapped file)."""
