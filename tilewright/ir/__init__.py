"""What both intermediate representations share: nodes, structure, rewriting, modules, passes, targets."""

from typing import Any

from tilewright.ir.attrs import Attrs, DictAttrs, make_node
from tilewright.ir.container import Array, Map
from tilewright.ir.function import CallingConv
from tilewright.ir.module import BaseFunc, IRModule
from tilewright.ir.node import Node
from tilewright.ir.op import (
    BaseExpr,
    GlobalVar,
    Op,
    PointerType,
    PrimType,
    Type,
    register_intrin_lowering,
    register_op_attr,
)
from tilewright.ir.serialize import load_json, save_json
from tilewright.ir.structure import assert_structural_equal, first_difference, structural_equal, structural_hash
from tilewright.support.lazy import resolve as _resolve
from tilewright.support.span import Span

from tilewright.ir import container, module, op, passes as transform, passes as instrument  # isort: skip


def __getattr__(name: str) -> Any:
    """`Range` and `PrimExpr`, which upper layers define."""
    if name in ("Range", "PrimExpr"):
        return _resolve(f"tir.{name}")
    raise AttributeError(f"module 'tilewright.ir' has no attribute {name!r}")
