"""Lowering of the loop IR, one pass a file; `pipeline.py` is the list."""

from tilewright.tir.lower.flatten_buffers import flatten_buffers
from tilewright.tir.lower.kernel_abi import kernel_params
from tilewright.tir.lower.lower_blocks import lower_blocks
from tilewright.tir.lower.pipeline import KERNEL_PIPELINE, lower_kernel
from tilewright.tir.lower.settle_loops import settle_loops
from tilewright.tir.lower.vectorize_loops import vectorize_loops

__all__ = [
    "KERNEL_PIPELINE",
    "flatten_buffers",
    "kernel_params",
    "lower_blocks",
    "lower_kernel",
    "settle_loops",
    "vectorize_loops",
]
