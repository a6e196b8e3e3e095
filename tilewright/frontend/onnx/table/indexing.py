"""Operators whose indices are data: gather, scatter, top-k, one-hot."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arith.expr import IntImm
from tilewright.frontend.onnx.node import NodeContext
from tilewright.frontend.onnx.registry import onnx_op


@onnx_op("Gather")
def gather(n: NodeContext, x: Any, indices: Any) -> Any:
    """Slices along an axis, by a tensor of indices"""
    axis = n.axis(n.attr("axis", 0), n.rank(x))
    return n.op("take", x, _counted(n, indices, n.shape(x)[axis]), axis=axis)


def _counted(n: NodeContext, indices: Any, size: Any) -> Any:
    """Indices counted from the front: negative ones, which ONNX allows, are wrapped."""
    if isinstance(indices, n.Constant):
        if not np.any(indices.data < 0):
            return indices
        if isinstance(size, IntImm):
            return n.const(np.where(indices.data < 0, indices.data + size.value, indices.data))
    if n.dtype(indices).startswith("u"):
        return indices
    total = n.const(size.value, n.dtype(indices)) if isinstance(size, IntImm) else n.size_tensor(size, n.dtype(indices))
    negative = n.op("less", indices, n.scalar(0, indices))
    return n.op("where", negative, n.op("add", indices, total), indices)


@onnx_op("GatherElements", since=11)
def gather_elements(n: NodeContext, x: Any, indices: Any) -> Any:
    """out[i][j] = x[index[i][j]][j] for axis 0, and so on"""
    axis = n.axis(n.attr("axis", 0), n.rank(x))
    return n.op("gather_elements", x, _counted(n, indices, n.shape(x)[axis]), axis=axis)


@onnx_op("GatherND", since=11)
def gather_nd(n: NodeContext, x: Any, indices: Any) -> Any:
    """Slices by tuples of indices in the last dimension"""
    return n.op("gather_nd", x, indices, batch_dims=n.attr("batch_dims", 0))


@onnx_op("Scatter", "ScatterElements", since=9)
def scatter_elements(n: NodeContext, x: Any, indices: Any, updates: Any) -> Any:
    """x with elements replaced (or combined) along an axis"""
    axis = n.axis(n.attr("axis", 0), n.rank(x))
    return n.op("scatter_elements", x, indices, updates, axis=axis, reduction=_reduction(n))


@onnx_op("ScatterND", since=11)
def scatter_nd(n: NodeContext, x: Any, indices: Any, updates: Any) -> Any:
    """x with slices replaced (or combined), by tuples of indices"""
    return n.op("scatter_nd", x, indices, updates, reduction=_reduction(n))


def _reduction(n: NodeContext) -> str:
    return {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}[n.attr("reduction", "none")]


@onnx_op("OneHot", since=9)
def one_hot(n: NodeContext, indices: Any, depth: Any, values: Any) -> Any:
    """A new axis that holds the `on` value at the index, `off` elsewhere"""
    count = n.numbers(depth, "the depth")[0]
    rank = n.rank(indices)
    axis = n.axis(n.attr("axis", -1), rank + 1)
    place = n.const(np.arange(count).reshape([count if i == axis else 1 for i in range(rank + 1)]), "int64")
    wrapped = _counted(n, n.astype(indices, "int64"), IntImm("int64", count))
    hit = n.op("equal", n.op("expand_dims", wrapped, axis=[axis]), place)
    off, on = (n.op("take", values, n.const(i, "int64"), axis=0) for i in (0, 1))
    return n.op("where", hit, on, off)


@onnx_op("TopK", since=10)
def topk(n: NodeContext, x: Any, k: Any) -> Any:
    """The k greatest (or least) elements along an axis, and their indices"""
    count, axis = n.numbers(k, "k")[0], n.axis(n.attr("axis", -1), n.rank(x))
    n.attr("sorted", 1)
    made = n.op("topk", x, k=count, axis=axis, ret_type="both", largest=bool(n.attr("largest", 1)), dtype="int64")
    return [n.item(made, 0), n.item(made, 1)]
