"""The record of what was done to a program: prints as Python, goes to JSON and back, and can be replayed on a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.arith.expr import FloatImm, IntImm, StringImm, Var
from tilewright.tir.schedule.state import BlockRV, LoopRV

__all__ = ["Instruction", "Trace"]


@dataclass
class Instruction:
    """One step: a primitive's name, its arguments by name, and the handles it returned, flattened."""

    name: str
    arguments: dict[str, Any]
    outputs: list[Any] = field(default_factory=lambda: list[Any]())
    decision: Any = None
    """What a sampling step chose."""


def handles(value: Any) -> list[Any]:
    """The handles in a primitive's result."""
    if isinstance(value, (BlockRV, LoopRV, Var)):
        return [value]
    if isinstance(value, (list, tuple)):
        return [h for v in value for h in handles(v)]  # pyright: ignore[reportUnknownVariableType]
    return []


class Trace:
    """Steps in order. `str(trace)` is a Python function that does them; `apply_to_schedule(sch)` does them."""

    def __init__(self, insts: Sequence[Instruction] = ()) -> None:
        self.insts = list(insts)

    def _names(self) -> dict[int, str]:
        names: dict[int, str] = {}
        for inst in self.insts:
            for h in inst.outputs:
                letter = "b" if isinstance(h, BlockRV) else "l" if isinstance(h, LoopRV) else "v"
                names.setdefault(id(h), f"{letter}{len(names)}")
        return names

    def as_python(self) -> list[str]:
        """The steps as lines of Python."""
        names = self._names()

        def text(v: Any) -> str:
            if id(v) in names:
                return names[id(v)]
            if isinstance(v, (list, tuple)):
                return "[" + ", ".join(text(x) for x in v) + "]"  # pyright: ignore[reportUnknownVariableType]
            if isinstance(v, (IntImm, FloatImm, StringImm)):
                return repr(v.value)
            return repr(v)

        lines: list[str] = []
        for inst in self.insts:
            variadic = inst.arguments.get("*")
            args = [text(v) for v in variadic] if variadic is not None else []
            args += [f"{k}={text(v)}" for k, v in inst.arguments.items() if k != "*"]
            if inst.decision is not None:
                args.append(f"decision={text(inst.decision)}")
            left = ", ".join(names[id(h)] for h in inst.outputs)
            call = f"sch.{inst.name}({', '.join(args)})"
            lines.append(f"{left} = {call}" if left else call)
        return lines

    def __str__(self) -> str:
        body = [f"  {line}" for line in self.as_python()] or ["  pass"]
        return "\n".join(["def apply_trace(sch: tir.Schedule) -> None:", *body])

    __repr__ = __str__

    def show(self, style: str | None = None) -> None:
        """Print the trace."""
        del style
        print(self)

    def as_json(self) -> list[Any]:
        """The steps as lists, numbers and strings; handles by name."""
        names = self._names()

        def data(v: Any) -> Any:
            if id(v) in names:
                return {"rv": names[id(v)]}
            if isinstance(v, (list, tuple)):
                return [data(x) for x in v]  # pyright: ignore[reportUnknownVariableType]
            if isinstance(v, (IntImm, FloatImm, StringImm)):
                return v.value
            return v

        return [
            [i.name, {k: data(v) for k, v in i.arguments.items()}, [names[id(h)] for h in i.outputs], data(i.decision)]
            for i in self.insts
        ]

    @staticmethod
    def apply_json_to_schedule(json: Sequence[Any], sch: Any) -> None:
        """Do the steps of `as_json` on a schedule."""
        known: dict[str, Any] = {}

        def value(v: Any) -> Any:
            if isinstance(v, dict):
                return known[v["rv"]]  # pyright: ignore[reportUnknownArgumentType]
            return [value(x) for x in v] if isinstance(v, list) else v  # pyright: ignore[reportUnknownVariableType]

        for name, arguments, outputs, decision in json:
            table = {k: value(v) for k, v in arguments.items()}
            positional = table.pop("*", [])
            if decision is not None:
                table["decision"] = decision
            result = getattr(sch, name)(*positional, **table)
            known.update(zip(outputs, handles(result), strict=True))

    def apply_to_schedule(self, sch: Any, remove_postproc: bool = False) -> None:
        """Do the steps on another schedule of the same program."""
        del remove_postproc
        Trace.apply_json_to_schedule(self.as_json(), sch)

    def simplified(self, remove_postproc: bool = False) -> Trace:
        """The trace without look-ups whose result no later step uses."""
        del remove_postproc
        used: set[int] = set()
        kept: list[Instruction] = []
        for inst in reversed(self.insts):
            looks = inst.name.startswith("get_") or inst.name.startswith("sample_")
            if looks and not any(id(h) in used for h in inst.outputs):
                continue
            used.update(id(h) for h in handles(list(inst.arguments.values())))
            kept.append(inst)
        return Trace(kept[::-1])
