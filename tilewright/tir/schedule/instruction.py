"""Steps of a trace: a kind, what it reads (handles and numbers), its attributes, and the handles that it made.

The kinds are the primitives under the names of the field (`split` is `Split`); which argument is an input and which an
attribute stands in `_LAYOUT` where it does not follow from the signature: arguments that may be handles are inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tilewright.tir.schedule.registry import PRIMITIVES
from tilewright.tir.schedule.state import BlockRV, LoopRV

__all__ = ["Instruction", "InstructionKind", "handles"]

_LAYOUT: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "get_output_blocks": (("scope_block",), ()),
    "split": (("loop", "*factors"), ("preserve_unit_iters", "disable_predication")),
    "loop_partition": (("loop", "*factors"), ("preserve_unit_iters",)),
    "reorder_block_iter_var": (("block", "new_order"), ()),
    "annotate": (("block_or_loop", "ann_val"), ("ann_key",)),
    "reindex_cache_read": (("block", "index_map"), ("read_buffer_index", "storage_scope")),
    "reindex_cache_write": (("block", "index_map"), ("write_buffer_index", "storage_scope")),
    "transform_layout": (("block", "index_map"), ("buffer", "pad_value", "assume_injective_transform")),
    "unsafe_hide_buffer_access": (("block", "buf_type", "buf_index_array"), ()),
    "annotate_buffer_access": (("block", "buffer_index", "buf_type", "gen_new_ranges"), ()),
}
"""(inputs, attributes) of a primitive; a star: the list's items stand for themselves."""
_NAMES = {
    "rfactor": "RFactor",
    "reindex": "ReIndex",
    "unsafe_set_dtype": "UnsafeSetDType",
    "pad_einsum": "PadEinsum",
}
_POSITIONAL = ("get_child_blocks",)


def handles(value: Any) -> list[Any]:
    """The handles in a primitive's result."""
    if isinstance(value, (BlockRV, LoopRV)) or getattr(value, "variable", False):
        return [value]
    if isinstance(value, (list, tuple)):
        return [h for v in value for h in handles(v)]  # pyright: ignore[reportUnknownVariableType]
    return []


class InstructionKind:
    """A kind of step; `InstructionKind.get("Split")` finds one. `is_pure`: it leaves the program as it is."""

    _by_name: ClassVar[dict[str, InstructionKind]] = {}

    def __init__(self, name: str, primitive: str) -> None:
        self.name, self.primitive = name, primitive
        p = PRIMITIVES.get(primitive)
        self.is_pure = p is not None and (not p.changes or primitive.startswith("sample_"))
        self.inputs, self.attrs = _layout(primitive)

    @staticmethod
    def get(name: str) -> InstructionKind:
        """The kind of that name. Raises ValueError where there is none."""
        _fill()
        found = InstructionKind._by_name.get(name)
        if found is None:
            raise ValueError(f"there is no instruction kind {name!r}; there are {', '.join(InstructionKind._by_name)}")
        return found

    @staticmethod
    def of(primitive: str) -> InstructionKind:
        """The kind of a primitive."""
        found = _BY_PRIMITIVE.get(primitive)
        if found is None:
            _fill()
            found = _BY_PRIMITIVE[primitive]
        return found

    @property
    def is_postproc(self) -> bool:
        """Does post-processing start here?"""
        return self.primitive == "enter_postproc"

    @property
    def samples(self) -> bool:
        """Does it choose something at random?"""
        return self.primitive.startswith("sample_")

    def same_as(self, other: object) -> bool:
        """Is it the same kind?"""
        return self is other

    def __repr__(self) -> str:
        return f"InstructionKind({self.name})"


_BY_PRIMITIVE: dict[str, InstructionKind] = {}


def _layout(primitive: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if primitive in _LAYOUT:
        return _LAYOUT[primitive]
    if primitive == "enter_postproc":
        return (), ()
    inputs: list[str] = []
    attrs: list[str] = []
    for q in PRIMITIVES[primitive].signature.parameters.values():
        if q.name in ("decision", "rng"):
            continue
        note = str(q.annotation)
        if q.kind.name == "VAR_POSITIONAL":
            inputs.append(f"*{q.name}")
        elif any(word in note for word in ("BlockRV", "LoopRV", "Place")):
            inputs.append(q.name)
        else:
            attrs.append(q.name)
    return tuple(inputs), tuple(attrs)


def _fill() -> None:
    for primitive in (*PRIMITIVES, "enter_postproc"):
        if primitive not in _BY_PRIMITIVE:
            name = _NAMES.get(primitive) or "".join(part.capitalize() for part in primitive.split("_"))
            kind = InstructionKind(name, primitive)
            _BY_PRIMITIVE[primitive] = InstructionKind._by_name[name] = kind


class Instruction:
    """One step: its kind, inputs, attributes, and the handles it returned, flattened."""

    __slots__ = ("attrs", "inputs", "kind", "outputs")

    def __init__(
        self, kind: InstructionKind, inputs: Sequence[Any], attrs: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        self.kind = kind
        self.inputs, self.attrs, self.outputs = list(inputs), list(attrs), list(outputs)

    @property
    def name(self) -> str:
        """The primitive's name."""
        return self.kind.primitive

    @staticmethod
    def of_call(primitive: str, arguments: dict[str, Any], outputs: list[Any]) -> Instruction:
        """The step of a call with all arguments by name."""
        kind = InstructionKind.of(primitive)
        inputs: list[Any] = []
        for name in kind.inputs:
            if name[0] == "*":
                inputs.extend(arguments[name[1:]])
            else:
                inputs.append(arguments[name])
        return Instruction(kind, inputs, [arguments[name] for name in kind.attrs], outputs)

    def arguments(self, change: Callable[[Any], Any] = lambda x: x) -> dict[str, Any]:
        """The arguments by name, each through `change`."""
        out: dict[str, Any] = {}
        values = [change(v) for v in self.inputs]
        for i, name in enumerate(self.kind.inputs):
            if name[0] == "*":
                out[name[1:]] = values[i:]
            else:
                out[name] = values[i]
        for name, value in zip(self.kind.attrs, self.attrs, strict=False):
            out[name] = value
        return out

    def call(self, sch: Any, arguments: dict[str, Any], decision: Any = None) -> list[Any]:
        """Do the step on a schedule; the handles it returns."""
        if self.kind.is_postproc:
            sch.enter_postproc()
            return []
        positional: list[Any] = []
        for q in PRIMITIVES[self.kind.primitive].signature.parameters.values():
            if q.kind.name == "VAR_POSITIONAL":
                positional = arguments.pop(q.name)
        if decision is not None:
            arguments["decision"] = decision
        return handles(getattr(sch, self.kind.primitive)(*positional, **arguments))

    def same_as(self, other: object) -> bool:
        """Is it the very same step?"""
        return self is other

    def as_python(self, text: Callable[[Any], str], decision: Any = None) -> str:
        """The step as a line of Python; `text` writes a value."""
        left = ", ".join(text(h) for h in self.outputs)
        if len(self.outputs) == 1 and self.kind.primitive in _LISTS:
            left += ","
        args: list[str] = []
        if not self.kind.is_postproc:
            values = self.arguments()
            for q in PRIMITIVES[self.kind.primitive].signature.parameters.values():
                if q.name not in values:
                    continue
                if q.kind.name == "VAR_POSITIONAL":
                    args += [text(v) for v in values[q.name]]
                elif self.kind.primitive in _POSITIONAL:
                    args.append(text(values[q.name]))
                elif not (q.name == "consumer_blocks" and not values[q.name]):
                    args.append(f"{q.name}={text(values[q.name])}")
        if decision is not None:
            args.append(f"decision={text(decision)}")
        call = f"sch.{self.kind.primitive}({', '.join(args)})"
        return f"{left} = {call}" if left else call

    def __repr__(self) -> str:
        names: dict[int, str] = {}
        for v in [*self.inputs, *self.outputs]:
            for h in handles(v):
                letter = "b" if isinstance(h, BlockRV) else "l" if isinstance(h, LoopRV) else "v"
                names.setdefault(id(h), f"{letter}{len(names)}")
        from tilewright.tir.schedule.trace import python_text

        return self.as_python(lambda v: python_text(v, names))


_LISTS = (
    "get_loops", "get_child_blocks", "get_producers", "get_consumers", "get_output_blocks", "split", "loop_partition",
    "sample_perfect_tile", "sample_partitioned_tile",
)  # fmt: skip
"""Primitives that return a list also where it has one item."""
