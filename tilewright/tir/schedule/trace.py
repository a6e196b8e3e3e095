"""The record of what was done to a program: prints as Python, goes to JSON and back, and can be replayed on a schedule.

trace.insts                       the steps
trace.decisions                   what the sampling steps chose, by step
print(trace)                      a Python function that does the steps
trace.as_json()                   [[[kind, inputs, attributes, outputs], ...], [[step number, decision], ...]]
"""

from __future__ import annotations

import json as js
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.arith.expr import FloatImm, IntImm, PrimExpr, StringImm, Var
from tilewright.ir.node import Node
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.ir.serialize import load_json, save_json
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.instruction import Instruction, InstructionKind
from tilewright.tir.schedule.state import BlockRV, LoopRV

__all__ = ["Instruction", "Trace"]

_MAKERS = ("get_", "sample_")


def python_text(v: Any, names: Mapping[int, str]) -> str:
    """A value as Python text; handles by their names."""
    if id(v) in names:
        return names[id(v)]
    if isinstance(v, (BlockRV, LoopRV)):
        return "_"
    if isinstance(v, dict):
        return "{" + ", ".join(f"{js.dumps(str(k))}: {python_text(x, names)}" for k, x in v.items()) + "}"  # pyright: ignore
    if isinstance(v, tuple):
        items = [python_text(x, names) for x in v]  # pyright: ignore[reportUnknownVariableType]
        return "(" + ", ".join(items) + ("," if len(items) == 1 else "") + ")"
    if isinstance(v, list):
        return "[" + ", ".join(python_text(x, names) for x in v) + "]"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(v, str):
        return js.dumps(v)
    if isinstance(v, (IntImm, FloatImm)):
        return repr(v.value)
    if isinstance(v, StringImm):
        return js.dumps(v.value)
    if isinstance(v, Var):
        return v.name
    if isinstance(v, PrimExpr) and any(id(x) in names for x in free_vars(v)):
        return str(substitute(v, {x: Var(names[id(x)], x.dtype) for x in free_vars(v) if id(x) in names}))
    to_python = getattr(v, "to_python", None)
    return to_python() if to_python is not None else str(v) if isinstance(v, Node) else repr(v)


class Trace:
    """Steps in order and what they decided; see the head of the file."""

    def __init__(self, insts: Sequence[Instruction] = (), decisions: Mapping[Instruction, Any] | None = None) -> None:
        self.insts = list(insts)
        self.decisions: dict[Instruction, Any] = dict(decisions or {})

    # ---- the list --------------------------------------------------------------------------------------------------------

    def get_decision(self, inst: Instruction) -> Any:
        """What a step decided, or None."""
        return self.decisions.get(inst)

    def append(self, inst: Instruction, decision: Any = None) -> None:
        """Add a step at the end."""
        self.insts.append(inst)
        if decision is not None:
            self.decisions[inst] = decision

    def pop(self) -> Instruction | None:
        """Take the last step away; None where there is none."""
        if not self.insts:
            return None
        inst = self.insts.pop()
        self.decisions.pop(inst, None)
        return inst

    def _end(self, remove_postproc: bool) -> int:
        if remove_postproc:
            for i, inst in enumerate(self.insts):
                if inst.kind.is_postproc:
                    return i
        return len(self.insts)

    def with_decision(self, inst: Instruction, decision: Any, remove_postproc: bool = False) -> Trace:
        """The same steps with another decision for one of them; `remove_postproc` leaves out post-processing."""
        kept = self.insts[: self._end(remove_postproc)]
        decisions = {i: d for i, d in self.decisions.items() if i in kept}
        decisions[inst] = decision
        return Trace(kept, decisions)

    def simplified(self, remove_postproc: bool = False) -> Trace:
        """The trace without look-ups and samples whose results no later step uses."""
        used: set[int] = set()
        kept: list[Instruction] = []
        for inst in reversed(self.insts[: self._end(remove_postproc)]):
            if inst.kind.is_pure and not any(id(h) in used for h in inst.outputs):
                continue
            used.update(id(h) for v in inst.inputs for h in _uses(v))
            kept.append(inst)
        kept.reverse()
        return Trace(kept, {i: self.decisions[i] for i in kept if i in self.decisions})

    # ---- text ------------------------------------------------------------------------------------------------------------

    def _names(self, insts: Sequence[Instruction]) -> dict[int, str]:
        names: dict[int, str] = {}
        for inst in insts:
            for h in inst.outputs:
                letter = "b" if isinstance(h, BlockRV) else "l" if isinstance(h, LoopRV) else "v"
                names.setdefault(id(h), f"{letter}{len(names)}")
        return names

    def as_python(self, remove_postproc: bool = False) -> list[str]:
        """The steps as lines of Python that run where `sch` is a schedule."""
        insts = self.insts[: self._end(remove_postproc)]
        names = self._names(insts)
        return [i.as_python(lambda v: python_text(v, names), self.decisions.get(i)) for i in insts]

    def __str__(self) -> str:
        body = [f"  {line}" for line in self.as_python()] or ["  pass"]
        return "\n".join(["# from tvm import tir", "def apply_trace(sch: tir.Schedule) -> None:", *body])

    __repr__ = __str__

    def show(self, style: str | None = None, black_format: bool = False) -> None:
        """Print the trace."""
        del style, black_format
        print(self)

    # ---- JSON ------------------------------------------------------------------------------------------------------------

    def as_json(self, remove_postproc: bool = False) -> list[Any]:
        """The steps as lists, numbers and strings; handles by name."""
        insts = self.insts[: self._end(remove_postproc)]
        names = self._names(insts)
        steps: list[Any] = []
        decisions: list[Any] = []
        for n, inst in enumerate(insts):
            inputs = ["None" if v is None else _data(v, names, quote=True) for v in inst.inputs]
            outputs = [names[id(h)] for h in inst.outputs]
            steps.append([inst.kind.name, inputs, _attributes(inst, names), outputs])
            if inst in self.decisions:
                decisions.append([n, _data(self.decisions[inst], names, quote=False)])
        return [steps, decisions]

    @staticmethod
    def apply_json_to_schedule(json_obj: Any, sch: Any) -> None:
        """Do the steps of `as_json` on a schedule. Raises ScheduleError TW0425 where the text is no trace."""
        try:
            steps, choices = json_obj
            decisions = {int(n): d for n, d in choices}
            known: dict[str, Any] = {}
            work = [(InstructionKind.get(k), i, a, o) for k, i, a, o in steps]
        except (TypeError, ValueError) as error:
            raise fail("TW0425", f"this is no trace in JSON: {error}") from None
        for n, (kind, inputs, attrs, outputs) in enumerate(work):
            inst = Instruction(kind, [_value(v, known, True) for v in inputs], _attribute_values(kind, attrs), ())
            made = inst.call(sch, inst.arguments(), _value(decisions.get(n), {}, False))
            if len(made) != len(outputs):
                raise fail(
                    "TW0425", f"step {n} ({kind.name}) made {len(made)} handles, but {len(outputs)} are expected"
                )
            known.update(zip(outputs, made, strict=True))

    # ---- doing it --------------------------------------------------------------------------------------------------------

    def apply_to_schedule(
        self,
        sch: Any,
        remove_postproc: bool = False,
        decision_provider: Callable[[Instruction, list[Any], list[Any], Any], Any] | None = None,
    ) -> None:
        """Do the steps on another schedule of the same program.

        `decision_provider(inst, inputs, attrs, decision)` may return another decision for a step.
        """
        self.replay(sch, {}, remove_postproc, decision_provider)

    def replay(
        self,
        sch: Any,
        known: dict[Any, Any],
        remove_postproc: bool = False,
        decision_provider: Callable[[Instruction, list[Any], list[Any], Any], Any] | None = None,
    ) -> list[tuple[Any, Any]]:
        """Do the steps on a schedule where `known` gives its handles for some of the trace's; the new pairs of handles."""
        pairs: list[tuple[Any, Any]] = []

        def now(v: Any) -> Any:
            if isinstance(v, (BlockRV, LoopRV, Var)):
                return known.get(v, v)
            if isinstance(v, (list, tuple)):
                return type(v)(now(x) for x in v)  # pyright: ignore[reportUnknownVariableType]
            if isinstance(v, dict):
                return {k: now(x) for k, x in v.items()}  # pyright: ignore[reportUnknownVariableType]
            if isinstance(v, PrimExpr):
                return substitute(v, {x: y for x, y in known.items() if isinstance(x, Var)})
            return v

        for inst in self.insts[: self._end(remove_postproc)]:
            decision = self.decisions.get(inst)
            if decision_provider is not None:
                decision = decision_provider(inst, [now(v) for v in inst.inputs], inst.attrs, decision)
            made = inst.call(sch, inst.arguments(now), decision)
            if len(made) != len(inst.outputs):
                raise fail(
                    "TW0425",
                    f"{inst.name} made {len(made)} handles here, but {len(inst.outputs)} where the trace comes from",
                    hint="a trace fits the program that it was recorded on",
                )
            pairs += zip(inst.outputs, made, strict=True)
            known.update(zip(inst.outputs, made, strict=True))
        return pairs


def _uses(v: Any) -> list[Any]:
    if isinstance(v, (BlockRV, LoopRV, Var)):
        return [v]
    if isinstance(v, (list, tuple)):
        return [h for x in v for h in _uses(x)]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(v, dict):
        return [h for x in v.values() for h in _uses(x)]  # pyright: ignore[reportUnknownVariableType]
    return list(free_vars(v)) if isinstance(v, PrimExpr) else []


_TYPES = ("read", "write")


def _attributes(inst: Instruction, names: Mapping[int, str]) -> list[Any]:
    """The attributes as JSON; a buffer ("write", 0) is two of them: its place, and 0 or 1 for read or write."""
    out: list[Any] = []
    for name, v in zip(inst.kind.attrs, inst.attrs, strict=False):
        if name == "buffer" and isinstance(v, tuple):
            out += [v[1], _TYPES.index(v[0])]
        else:
            out.append(_data(v, names, quote=False))
    return out


def _attribute_values(kind: InstructionKind, attrs: Sequence[Any]) -> list[Any]:
    left = list(attrs)
    out: list[Any] = []
    for name in kind.attrs:
        if name == "buffer" and len(left) > 1 and isinstance(left[0], int):
            out.append((_TYPES[left[1]], left[0]))
            left = left[2:]
        elif left:
            out.append(_value(left.pop(0), {}, False))
    return out


def _data(v: Any, names: Mapping[int, str], *, quote: bool) -> Any:
    if id(v) in names:
        return names[id(v)]
    if isinstance(v, str):
        return js.dumps(v) if quote else str(v)
    if isinstance(v, tuple):
        return {"tuple": [_data(x, names, quote=quote) for x in v]}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(v, list):
        return [_data(x, names, quote=False) for x in v]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(v, dict):
        return {str(k): _data(x, names, quote=False) for k, x in v.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(v, (IntImm, FloatImm, StringImm)):
        return v.value
    if isinstance(v, PrimExpr) and any(id(x) in names for x in free_vars(v)):
        return {"expr": save_json(v), "names": {x.name: names[id(x)] for x in free_vars(v) if id(x) in names}}
    if isinstance(v, Node):
        return {"node": save_json(v)}
    return v


def _value(v: Any, known: Mapping[str, Any], quoted: bool) -> Any:
    if isinstance(v, str):
        if quoted and v == "None":
            return None
        if v in known:
            return known[v]
        return js.loads(v) if quoted and v[:1] == '"' else v
    if isinstance(v, list):
        return [_value(x, known, False) for x in v]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(v, dict):
        if set(v) == {"node"}:  # pyright: ignore[reportUnknownArgumentType]
            return load_json(v["node"])  # pyright: ignore[reportUnknownArgumentType]
        if set(v) == {"tuple"}:  # pyright: ignore[reportUnknownArgumentType]
            return tuple(_value(x, known, quoted) for x in v["tuple"])  # pyright: ignore[reportUnknownVariableType]
        if set(v) == {"expr", "names"}:  # pyright: ignore[reportUnknownArgumentType]
            e = load_json(v["expr"])  # pyright: ignore[reportUnknownArgumentType]
            return substitute(e, {x: known[v["names"][x.name]] for x in free_vars(e) if x.name in v["names"]})  # pyright: ignore
        return {k: _value(x, known, False) for k, x in v.items()}  # pyright: ignore[reportUnknownVariableType]
    return v
