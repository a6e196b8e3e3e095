"""What a compiled function takes and gives: names, dtypes, shapes with symbolic dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

__all__ = ["Dim", "Param", "Signature"]

Dim = Union[int, str]
"""A dimension: a number, or text (a symbol, or an expression of symbols)."""


@dataclass(frozen=True)
class Param:
    """An input or an output. `shape` is None for a scalar that is passed by value."""

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name}: {self.dtype}"
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a function. `returns_tuple`: results come as a tuple even if there is only one."""

    name: str
    inputs: tuple[Param, ...]
    outputs: tuple[Param, ...]
    returns_tuple: bool = False

    def __str__(self) -> str:
        outs = ", ".join(map(str, self.outputs))
        if self.returns_tuple or len(self.outputs) != 1:
            outs = f"({outs})"
        return f"{self.name}({', '.join(map(str, self.inputs))}) -> {outs}"

    @staticmethod
    def from_json(name: str, table: Mapping[str, Any]) -> Signature:
        """From the table that `to_json` gives."""

        def params(rows: Sequence[Mapping[str, Any]]) -> tuple[Param, ...]:
            return tuple(
                Param(str(r["name"]), str(r["dtype"]), None if r["shape"] is None else tuple(r["shape"])) for r in rows
            )

        return Signature(
            name, params(table["inputs"]), params(table["outputs"]), bool(table.get("returns_tuple", False))
        )

    def to_json(self) -> dict[str, Any]:
        """As a dictionary for machines."""

        def rows(params: Sequence[Param]) -> list[dict[str, Any]]:
            return [
                {"name": p.name, "dtype": p.dtype, "shape": None if p.shape is None else list(p.shape)} for p in params
            ]

        return {
            "inputs": rows(self.inputs),
            "outputs": rows(self.outputs),
            "returns_tuple": self.returns_tuple,
        }
