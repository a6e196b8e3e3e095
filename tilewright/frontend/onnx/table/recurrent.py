"""Recurrent layers: LSTM, GRU, RNN, by the operators `nn.lstm`, `nn.gru`, `nn.rnn`, whose weights are laid out as ONNX's."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arith.expr import IntImm
from tilewright.frontend.onnx.node import NodeContext
from tilewright.frontend.onnx.registry import onnx_op


@onnx_op("LSTM", since=7)
def lstm(n: NodeContext, x: Any, w: Any, r: Any, b: Any = None, lens: Any = None, h: Any = None, c: Any = None,
         p: Any = None) -> Any:  # fmt: skip
    """Long short-term memory; gates in the order i, o, f, c"""
    return _layer(n, "nn.lstm", 4, (x, w, r, b), lens, [h, c], p, input_forget=bool(n.attr("input_forget", 0)))


@onnx_op("GRU", since=7)
def gru(n: NodeContext, x: Any, w: Any, r: Any, b: Any = None, lens: Any = None, h: Any = None) -> Any:
    """Gated recurrent unit; gates in the order z, r, h"""
    after = bool(n.attr("linear_before_reset", 0))
    return _layer(n, "nn.gru", 3, (x, w, r, b), lens, [h], linear_before_reset=after)


@onnx_op("RNN", since=7)
def rnn(n: NodeContext, x: Any, w: Any, r: Any, b: Any = None, lens: Any = None, h: Any = None) -> Any:
    """f(x * W' + h * R' + bias)"""
    return _layer(n, "nn.rnn", 1, (x, w, r, b), lens, [h])


def _layer(
    n: NodeContext, name: str, gates: int, main: Any, lens: Any, states: list[Any], peephole: Any = None, **more: Any
) -> list[Any]:
    """Operands that are left out become zeros if one behind them is there; layout 1 has the batch first."""
    x, w, r, b = main
    directions, hidden = n.static_shape(r, "the recurrence weight")[::2]
    batch_first = bool(n.attr("layout", 0))
    if batch_first:
        x = n.op("permute_dims", x, axes=[1, 0, 2])
        states = [None if s is None else n.op("permute_dims", s, axes=[1, 0, 2]) for s in states]
    _check_lengths(n, lens, n.shape(x)[0])
    operands = [x, w, r, b, *states, *([peephole] if peephole is not None else [])]
    while operands[-1] is None:
        operands.pop()
    filled = [_zeros(n, x, i, directions, gates, hidden) if v is None else v for i, v in enumerate(operands)]
    for unused in ("activation_alpha", "activation_beta"):
        if n.attr(unused, None):
            raise n.unsupported(f"the attribute {unused!r} is not supported")
    made = n.op(
        name, *filled, hidden_size=n.attr("hidden_size", hidden), direction=n.attr("direction", "forward"),
        activations=n.attr("activations", []), clip=n.attr("clip", 0.0), **more,
    )  # fmt: skip
    results = [n.item(made, i) for i in range(1 + len(states))]
    if not batch_first:
        return results
    return [n.op("permute_dims", results[0], axes=[2, 0, 1, 3]), *(_batch_first(n, s) for s in results[1:])]


def _batch_first(n: NodeContext, state: Any) -> Any:
    return n.op("permute_dims", state, axes=[1, 0, 2])


def _zeros(n: NodeContext, x: Any, operand: int, directions: int, gates: int, hidden: int) -> Any:
    """The bias or a state that is left out."""
    if operand == 3:
        return n.const(np.zeros((directions, 2 * gates * hidden)), n.dtype(x))
    return n.op("full", n.shape_expr([directions, n.shape(x)[1], hidden]), n.scalar(0.0, x), dtype=n.dtype(x))


def _check_lengths(n: NodeContext, lengths: Any, steps: Any) -> None:
    if lengths is None:
        return
    if not isinstance(steps, IntImm) or not np.all(n.array(lengths, "sequence_lens") == steps.value):
        raise n.unsupported("sequences of different lengths are not supported")
