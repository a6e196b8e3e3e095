"""Tensor expressions: `te.placeholder`, `te.compute`, `te.create_prim_func`, and the scalar functions of `tir`."""

from tilewright.arith.expr import cast, const
from tilewright.te.create_primfunc import create_prim_func
from tilewright.te.legacy import create_schedule, hybrid, scan
from tilewright.te.tag import tag_scope
from tilewright.te.tensor import (
    ComputeOp,
    ExternOp,
    PlaceholderOp,
    Tensor,
    TensorSlice,
    compute,
    extern,
    extern_primfunc,
    placeholder,
    reduce_axis,
    size_var,
    thread_axis,
    var,
)  # fmt: skip
from tilewright.tir.build import *
from tilewright.tir.build import abs, all, any, comm_reducer, max, min, pow, prod, round, sum
from tilewright.tir.generic import add, multiply, subtract
from tilewright.tir.index_map import IndexMap as _IndexMap

AXIS_SEPARATOR = _IndexMap.AXIS_SEPARATOR
