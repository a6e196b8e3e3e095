"""parse(print(x)) is x, for every node class and for whole programs."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tests.script import samples
from tilewright.ir.node import Node
from tilewright.ir.structure import first_difference
from tilewright.script import from_source, to_script

TABLES = (samples.EXPRESSIONS, samples.STATEMENTS, samples.INFOS, samples.GRAPH, samples.BINDINGS, samples.OTHERS)
CASES = [
    (kind.__name__, i, node) for table in TABLES for kind, nodes in table.items() for i, node in enumerate(nodes)
] + [
    (name, i, node)
    for name in ("FUNCTIONS", "RELAX_FUNCTIONS", "MODULES")
    for i, node in enumerate(getattr(samples, name))
]


def check(node: Any, *, show_meta: bool = False) -> str:
    """Print, parse, compare; and printing what was parsed gives the same text."""
    metadata: dict[str, list[Any]] = {}
    text = to_script(node, metadata=metadata, show_meta=show_meta)
    back = from_source(text, metadata=None if show_meta else metadata)
    difference = first_difference(node, back, map_free_vars=True)
    assert difference is None, f"{text}\n\n{difference}"
    again: dict[str, list[Any]] = {}
    assert to_script(back, metadata=again, show_meta=show_meta) == text
    return text


@pytest.mark.parametrize(("kind", "number", "node"), CASES, ids=[f"{k}-{i}" for k, i, _ in CASES])
def test_node(kind: str, number: int, node: Any) -> None:
    check(node)


def node_classes() -> set[type]:
    """Every concrete node class of both IRs: what is not the root of others."""
    found: set[type] = set()
    for name in ("arith.expr", "tir.ir", "relax.ir", "relax.struct_info", "ir.op", "ir.module"):
        module = importlib.import_module(f"tilewright.{name}")
        found |= {
            c
            for c in vars(module).values()
            if isinstance(c, type) and issubclass(c, Node) and c.__module__ == module.__name__
        }
    roots = {
        "Node",
        "BaseExpr",
        "Type",
        "PrimExpr",
        "BinaryOp",
        "CmpOp",
        "Stmt",
        "DataProducer",
        "Expr",
        "Binding",
        "StructInfo",
        "BaseFunc",
    }
    return {c for c in found if c.__name__ not in roots}


def test_every_class_has_samples() -> None:
    from tilewright.ir.module import IRModule
    from tilewright.relax.ir import Function
    from tilewright.tir.ir import PrimFunc, ProducerLoad

    covered = {kind for table in TABLES for kind in table} | {IRModule, Function, PrimFunc, ProducerLoad}
    assert {c.__name__ for c in node_classes() - covered} == set()


def test_producer_load_with_its_tensor() -> None:
    from tilewright import te

    t = te.placeholder((4, 4), name="t")
    node = t[1, 2] + 1.0
    back = from_source(to_script(node), {"t": t})
    assert first_difference(node, back) is None


@pytest.mark.parametrize("table", [samples.GRAPH, samples.STATEMENTS], ids=["graph", "statements"])
def test_metadata_in_the_text(table: dict[type, list[Any]]) -> None:
    """`show_meta=True` makes the text whole: arrays of every dtype survive."""
    for nodes in table.values():
        for node in nodes:
            check(node, show_meta=True)
