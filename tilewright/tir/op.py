"""Operators and intrinsics as functions, under the field's module name."""

from typing import Any

from tilewright.tir.build import *
from tilewright.tir.build import abs, all, any, comm_reducer, max, min, pow, prod, round, sum
from tilewright.tir.build_calls import CALLS, call_tir, trace


def __getattr__(name: str) -> Any:
    """The intrinsics that stay calls."""
    if name in CALLS:
        return CALLS[name]
    raise AttributeError(f"module 'tilewright.tir.op' has no attribute {name!r}")
