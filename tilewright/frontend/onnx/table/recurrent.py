"""Recurrent layers: LSTM, GRU, RNN, one or two directions, by the operators `nn.lstm`, `nn.gru`, `nn.rnn`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx.node import NodeContext
from tilewright.frontend.onnx.registry import onnx_op
