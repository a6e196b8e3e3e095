"""Helpers for tests of schedules, under the names of the field."""

from __future__ import annotations

from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.structure import assert_structural_equal
from tilewright.support.lazy import resolve
from tilewright.tir.ir import PrimFunc
from tilewright.tir.schedule.schedule import Schedule
from tilewright.tir.schedule.trace import Trace

__all__ = ["assert_structural_equal_ignore_global_symbol", "verify_trace_roundtrip"]


def assert_structural_equal_ignore_global_symbol(s1: Any, s2: Any, *args: Any, **kwargs: Any) -> None:
    """Raise ValueError unless two functions (or modules) are structurally equal, whatever their symbols are."""
    assert_structural_equal(_bare(s1), _bare(s2), *args, **kwargs)


def _bare(x: Any) -> Any:
    if isinstance(x, PrimFunc):
        return x.without_attr("global_symbol")
    return x.with_({v: _bare(f) for v, f in x.functions.items()}) if isinstance(x, IRModule) else x


def verify_trace_roundtrip(
    sch: Schedule,
    mod: PrimFunc | IRModule,
    *,
    debug_mask: str | int = "all",
    text_format: str | list[str] = ("python", "json"),  # pyright: ignore
) -> Schedule:
    """Replay the trace of `sch` on `mod` from its JSON and from its Python text; both must give the same program and trace.

    Returns the replayed schedule. Raises ValueError where a program differs, AssertionError where a trace does.
    """
    formats = [text_format] if isinstance(text_format, str) else list(text_format)
    new: Schedule | None = None
    for form in formats:
        new = Schedule(mod, debug_mask=debug_mask)
        if form == "json":
            Trace.apply_json_to_schedule(sch.trace.as_json(), new)
        elif form == "python":
            for line in sch.trace.as_python():
                exec(line, _names(new))
        else:
            raise ValueError(f"{form!r} is no form of traces; choose among: json, python")
        assert_structural_equal(new.mod, sch.mod)
        assert str(new.trace) == str(sch.trace), f"{new.trace}\n\n{sch.trace}"
    assert new is not None
    return new


def _names(sch: Schedule) -> dict[str, Any]:
    """The names that the lines of one trace share."""
    found = getattr(sch, "_trace_names", None)
    if found is None:
        from tilewright import tir

        found = {"sch": sch, "tir": tir, "T": resolve("script.T")}
        sch._trace_names = found  # pyright: ignore[reportAttributeAccessIssue]
    return found
