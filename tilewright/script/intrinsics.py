"""How intrinsics are called in script: `T.exp(x)`, `T.call_extern("int32", "f", x)`, or by their full name.

`T.<name>` is the builder of that name in `tir/build.py`, which converts numbers and chooses the dtype. A call that its
builder would not make exactly so is written `T.call_intrin("float32", "tir.name", ...)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.tir import build, intrin

__all__ = ["BUILDERS", "DTYPE_FIRST"]

DTYPE_FIRST = frozenset(
    name.removeprefix("tir.") for name, row in intrin.INTRINSICS.items() if row.rule == "call" and name != "tir.ret"
)
"""Intrinsics whose dtype the caller chooses: it is their first argument in script."""

BUILDERS: dict[str, Callable[..., Any]] = {
    name: getattr(build, name)
    for name in build.__all__
    if f"tir.{name}" in intrin.INTRINSICS and name not in DTYPE_FIRST
}
"""The builders by the name of the intrinsic, without its prefix."""
