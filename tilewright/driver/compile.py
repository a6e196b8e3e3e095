"""The whole pipeline on one page: a model comes in, a callable comes out.

load          ONNX (a path, bytes, a ModelProto), an IRModule, a function        -> IRModule of graph functions
graph         relax passes: fold, layout, legalise, fuse                          -> main of call_tir + PrimFuncs
host          lower main to calls of kernels on planned memory                    -> host PrimFunc + packed entry
kernels       schedule, lower, emit, machine code; each kernel from the cache     -> objects
link          LLVM's JIT linker, in this process                                  -> Executable
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Union

import numpy as np

from tilewright.ir.module import IRModule
from tilewright.ir.target import Target
from tilewright.relax import ir as rx
from tilewright.tir.ir import PrimFunc

__all__ = ["Compiled", "Progress", "compile_module", "load_model"]

Progress = Callable[[str, int, int], None]
"""Told what is being done: the stage's name, how many pieces are done, how many there are."""

Model = Union[str, "PathLike[str]", bytes, IRModule, rx.Function, PrimFunc, Any]


@dataclass
class Compiled:
    """Everything that compilation made, before it is linked: objects by symbol, constants, signature, statistics."""

    target: Target
    module: IRModule
    """The module after the graph passes: what `Executable.script()` shows."""
    objects: dict[str, bytes]
    constants: list[tuple[str, np.ndarray[Any, Any]]]
    entries: dict[str, dict[str, Any]]
    """Public functions by name, each with its signature."""
    stats: dict[str, Any] = field(default_factory=dict[str, Any])
    functions: list[PrimFunc] = field(default_factory=list[PrimFunc])
    """The flat functions the objects were made from, for textual output."""


def load_model(
    model: Model, shapes: Mapping[str, Sequence[int]] | None = None, dtypes: Mapping[str, str] | None = None
) -> IRModule:
    """`model` as an IRModule; `shapes` fixes dynamic inputs of an imported model by name."""
    if isinstance(model, IRModule):
        return model
    if isinstance(model, (rx.Function, PrimFunc)):
        return IRModule.from_expr(model)
    from tilewright.frontend.onnx import from_onnx

    return from_onnx(model, shape_dict=shapes, dtype_dict=dtypes)
