"""Control flow: If. A condition that is known at compile time leaves one branch; else the graph gets an If."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.onnx.node import NodeContext, Poison
from tilewright.frontend.onnx.registry import onnx_op
from tilewright.frontend.onnx.symbolic import Symbolic
from tilewright.relax import ir as rx
from tilewright.relax.struct_info import TensorStructInfo


@onnx_op("If", symbolic=(0,))
def if_op(n: NodeContext, cond: Any) -> Any:
    """One of two subgraphs, by a scalar bool"""
    then_branch, else_branch = n.attr("then_branch"), n.attr("else_branch")
    if isinstance(cond, rx.Constant):
        chosen = then_branch if bool(cond.data.reshape(-1)[0]) else else_branch
        return n.importer.inline(chosen)
    return _both(n, cond, then_branch, else_branch)


def _both(n: NodeContext, cond: Any, then_branch: Any, else_branch: Any) -> Any:
    importer = n.importer
    test = importer.tensor(cond)
    if n.rank(test):
        test = n.reshape(test, [])

    def branch(graph: Any) -> Any:
        outside = dict(importer.materialised)
        results = importer.inline(graph)
        if any(isinstance(r, Poison) for r in results):
            raise _Failed()
        made = n.tuple([importer.tensor(r) for r in results])
        importer.materialised = outside  # what a branch made cannot be used behind it
        return made

    try:
        made = importer.builder.emit_if(test, lambda: branch(then_branch), lambda: branch(else_branch))
    except _Failed:
        return [Poison()] * len(n.proto.output)
    _check_ranks(n, cond, made)
    return [n.item(made, i) for i in range(len(n.proto.output))]


class _Failed(Exception):
    """A node of a branch has a fault, which is reported already."""


def _check_ranks(n: NodeContext, cond: Any, made: Any) -> None:
    """Branches that give tensors of different ranks cannot be compiled; often a fixed shape decides the condition."""
    for si in made.struct_info.fields:
        if not isinstance(si, TensorStructInfo) or (si.shape is None and si.ndim < 0):
            why = "depends on the inputs' shapes" if isinstance(cond, Symbolic) else "depends on data"
            raise n.unsupported(
                f"its branches give tensors of different ranks or element types, and its condition {why}",
                "fix the inputs' shapes (--shape NAME=..., shape_dict=) so that the condition is known",
            )
