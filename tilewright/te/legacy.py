"""Names of the schedules of tensor expressions, which tensor programs have replaced: they say what to use instead."""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.support.diagnostics import CompileError

__all__ = ["create_schedule", "hybrid", "scan"]


def _gone(what: str, instead: str) -> CompileError:
    return CompileError.at("TW0590", f"{what} is not supported", hint=instead)


def create_schedule(ops: Any) -> NoReturn:
    """Not supported: schedules work on tensor programs. Raises CompileError TW0590."""
    del ops
    raise _gone(
        "te.create_schedule", "make a tensor program and schedule that: tir.Schedule(te.create_prim_func([A, B, C]))"
    )


def scan(*args: Any, **options: Any) -> NoReturn:
    """Not supported: write the recurrence as a tensor program. Raises CompileError TW0590."""
    del args, options
    raise _gone("te.scan", "write the recurrence in script with a T.axis.scan axis, or use topi's cumulative sums")


def hybrid(*args: Any, **options: Any) -> NoReturn:
    """Not supported: TVMScript does what hybrid script did. Raises CompileError TW0590."""
    del args, options
    raise _gone("te.hybrid", "write the function with @T.prim_func and use te.extern_primfunc to call it")
