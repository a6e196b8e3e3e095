"""Floating-point operations of an imported graph, from the shapes of its calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arith.expr import IntImm
from tilewright.ir.module import IRModule
from tilewright.ir.node import walk
from tilewright.relax import ir as rx
from tilewright.relax.op import Op
from tilewright.relax.struct_info import TensorStructInfo, TupleStructInfo

__all__ = ["count_flops"]

_MOVES = {
    "reshape", "permute_dims", "concat", "split", "expand_dims", "squeeze", "broadcast_to", "take", "strided_slice",
    "tile", "nn.pad", "full", "astype", "shape_to_tensor", "arange", "flip", "image.resize2d", "where",
}  # fmt: skip


def count_flops(module: IRModule) -> tuple[int, bool]:
    """Operations of `main` (a multiply and an add are two), and whether every dimension was known (else it counts as 1)."""
    exact = True
    total = 0
    for e in walk(module["main"]):
        if isinstance(e, rx.Call) and isinstance(e.op, Op):
            cost, known = _cost(e)
            total, exact = total + cost, exact and known
    return total, exact


def _size(e: Any) -> tuple[list[int], bool]:
    """The dimensions of a tensor (of the first of several), unknown ones as 1, and whether all are known."""
    si = getattr(e, "struct_info", None)
    if isinstance(si, TupleStructInfo) and si.fields:
        si = si.fields[0]
    if not isinstance(si, TensorStructInfo) or si.shape is None:
        return [], False
    return [d.value if isinstance(d, IntImm) else 1 for d in si.shape], all(isinstance(d, IntImm) for d in si.shape)


def _cost(call: rx.Call) -> tuple[int, bool]:
    name = call.op.name
    if name in _MOVES:
        return 0, True
    out, known = _size(call)
    elements = int(np.prod(out, dtype=np.int64))
    first, first_known = _size(call.args[0]) if call.args else ([], True)
    if name == "matmul":
        return 2 * elements * (first[-1] if first else 1), known and first_known
    if name.startswith("nn.conv"):
        weight, _ = _size(call.args[1])
        if name.endswith("_transpose"):
            per_input = int(np.prod(weight[1:], dtype=np.int64))
            return 2 * int(np.prod(first, dtype=np.int64)) * per_input, known and first_known
        return 2 * elements * int(np.prod(weight[1:], dtype=np.int64)), known
    if name in ("nn.lstm", "nn.gru", "nn.rnn"):
        steps, directions, batch, _ = out
        per_step = sum(int(np.prod(_size(w)[0][1:], dtype=np.int64)) for w in call.args[1:3])
        return 2 * steps * directions * batch * per_step, known
    if "pool" in name:
        return elements * int(np.prod(getattr(call.op, "pool_size", (1,)), dtype=np.int64)), known
    if name in ("sum", "mean", "max", "min", "prod"):
        return int(np.prod(first, dtype=np.int64)), first_known
    if name in ("nn.softmax", "nn.log_softmax", "nn.layer_norm"):
        return 5 * elements, known
    return elements, known
