"""Operators of neural networks."""

from tilewright.ops.nn import activation, conv, norm, pad, pool, rnn, softmax
