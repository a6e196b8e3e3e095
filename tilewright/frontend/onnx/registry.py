"""The importer's table: which function converts an operator, by operator set.

    @onnx_op("Gemm", since=7)
    def gemm(n, a, b, c=None):
        '''alpha * A' * B' + beta * C'''

A row takes the node context (node.py) and the operands in order (None for one left out), and gives the result or a list of
results. `symbolic=(1,)` names operands that the row takes as they are, formulas too; all others arrive as tensors.
`ignore` names attributes without influence on inference. An attribute of a node that its row does not look at is an error:
nothing is dropped in silence.

Operators whose class says `onnx="Exp@13"` need no row: the class's fields are filled from the attributes of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from typing import Any

from tilewright.relax.op import ONNX_OPS

__all__ = ["Row", "accepted_opsets", "find_row", "onnx_op", "supported_operators"]


@dataclass(frozen=True)
class Row:
    """How one operator is converted from operator set `since` on."""

    name: str
    since: int
    function: Callable[..., Any]
    symbolic: tuple[int, ...] | None = ()
    ignore: tuple[str, ...] = ()

    def __call__(self, n: Any, operands: Sequence[Any]) -> Any:
        """The results for these operands."""
        args: list[Any] = []
        for i, v in enumerate(operands):
            raw = v is None or self.symbolic is None or i in self.symbolic
            args.append(v if raw else n.importer.tensor(v))
        n.check_operands(self.function, args)
        made = self.function(n, *args)
        n.check_attributes(self.ignore)
        return made


_ROWS: dict[tuple[str, str], list[Row]] = {}
_TABLES = ("math", "shape", "nn", "resize", "indexing", "control", "recurrent")


def onnx_op(
    *names: str, since: int = 1, domain: str = "", symbolic: tuple[int, ...] | None = (), ignore: tuple[str, ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function as the row of one or more operators, from operator set `since` on."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            rows = _ROWS.setdefault((domain, name), [])
            rows.append(Row(name, since, function, symbolic, ignore))
            rows.sort(key=lambda r: r.since)
        return function

    return enter


@cache
def _tables() -> None:
    """Import all rows, and the operator classes."""
    import_module("tilewright.ops")
    for table in _TABLES:
        import_module(f"tilewright.frontend.onnx.table.{table}")


def find_row(domain: str, op_type: str, opset: int) -> Row | None:
    """The row for an operator of a model with this operator set, or None."""
    _tables()
    rows = [r for r in _ROWS.get((domain, op_type), ()) if r.since <= opset]
    if rows:
        return rows[-1]
    return _one_to_one(op_type, opset) if domain == "" else None


def _one_to_one(op_type: str, opset: int) -> Row | None:
    """The row that an operator class stands for by its `onnx=`; the oldest entry serves older sets too."""
    entries = sorted(ONNX_OPS.get(op_type, ()), key=lambda entry: entry[0])
    if not entries:
        return None
    chosen = [entry for entry in entries if entry[0] <= opset] or entries[:1]
    since, cls = chosen[-1]

    def convert(n: Any, *operands: Any) -> Any:
        n.check_operands(cls.infer, operands)
        given = {f.name: n.schema_attr(f.name) for f in fields(cls)}
        return n.emit(cls(**{k: v for k, v in given.items() if v is not None})(*operands))

    return Row(op_type, since, convert)


def accepted_opsets(op_type: str) -> str:
    """For messages: from which operator set on an operator is supported, if from any."""
    rows = _ROWS.get(("", op_type), ())
    return f" (supported from operator set {rows[0].since} on)" if rows else ""


def supported_operators() -> dict[str, int]:
    """Every operator of the default domain that can be imported, with the operator set from which on."""
    _tables()
    found = {name: rows[0].since for (domain, name), rows in _ROWS.items() if domain == ""}
    for name in ONNX_OPS:
        found.setdefault(name, 1)
    return dict(sorted(found.items()))
