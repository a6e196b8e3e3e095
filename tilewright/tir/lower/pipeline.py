"""From block form, scheduled or not, to the flat form that code generators take: the whole way as one list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.node import replace
from tilewright.ir.passes import PassContext
from tilewright.tir.ir import PrimFunc
from tilewright.tir.lower.flatten_buffers import flatten_buffers
from tilewright.tir.lower.import_llvm import imported_llvm
from tilewright.tir.lower.kernel_abi import kernel_params
from tilewright.tir.lower.lower_blocks import lower_blocks
from tilewright.tir.lower.pack_subbyte import pack_subbyte
from tilewright.tir.lower.place_buffers import place_buffers, unroll_pragmas
from tilewright.tir.lower.settle_loops import settle_loops
from tilewright.tir.lower.vectorize_loops import vectorize_loops

__all__ = ["KERNEL_PIPELINE", "lower_kernel"]

KERNEL_PIPELINE: Sequence[Callable[[PrimFunc], PrimFunc]] = (
    place_buffers,  # buffers where they are used, as small as what is used of them
    unroll_pragmas,  # loops that pragmas ask for ▸ copies
    lower_blocks,  # blocks ▸ loops over multi-dimensional buffers
    flatten_buffers,  # accesses ▸ offsets into one dimension
    pack_subbyte,  # int4 ▸ halves of bytes
    vectorize_loops,  # VECTORIZED loops ▸ ramps and vector operations
    settle_loops,  # UNROLLED loops expanded; simplified; addresses hoisted; common loads shared
)
"""The passes, in order."""


def checked(f: PrimFunc) -> PrimFunc:
    """The function with a check before each access (option `tir.instrument_bound_checkers`)."""
    from tilewright.tir.transform.instrument_bounds import instrument_bounds

    return instrument_bounds(f)


def lower_kernel(f: PrimFunc, target: Any = None) -> PrimFunc:
    """The kernel `f` in flat form with the kernel calling convention (`kernel_abi`).

    `f` is in block form; loops may carry a schedule already. Raises CompileError TW05xx on what cannot be lowered.
    """
    del target
    imports = imported_llvm(f)
    if imports:
        f = f.with_attr("import_llvm", imports)
    flat, symbols = kernel_params(f)
    if PassContext.current().config.get("tir.instrument_bound_checkers"):
        f = checked(f)
    for run in KERNEL_PIPELINE:
        f = run(f)
    return replace(f, params=tuple(flat) + tuple(symbols), buffer_map={})
