"""The loop IR: `tir.ir` has the grammar and its meaning at the head. Analyses and passes are imported when asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright.arith.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    CmpOp,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    SizeVar,
    StringImm,
    Sub,
    Var,
    add,
    cast,
    const,
    convert,
    logical_and,
    logical_not,
    logical_or,
    neg,
    sub,
)  # fmt: skip
from tilewright.tir import intrin, stmt_functor
from tilewright.tir.build import *
from tilewright.tir.build import abs, all, any, max, min, pow, round, sum
from tilewright.tir.build_calls import CALLS, call_tir, trace
from tilewright.tir.ir import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRealize,
    BufferRegion,
    BufferStore,
    CommReducer,
    DataProducer,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    ProducerLoad,
    Reduce,
    SeqStmt,
    Stmt,
    While,
    decl_buffer,
    stmt_list,
    stmt_seq,
)  # fmt: skip
from tilewright.tir.range import Range

if TYPE_CHECKING:
    from tilewright.tir import analysis, transform
    from tilewright.tir.index_map import IndexMap
    from tilewright.tir.schedule import BlockRV, LoopRV, Schedule, ScheduleError
    from tilewright.tir.tensor_intrin import TensorIntrin


_MODULES = (
    "analysis",
    "buffer",
    "data_layout",
    "expr",
    "function",
    "functor",
    "generic",
    "index_map",
    "ir_builder",
    "op",
    "schedule",
    "stmt",
    "tensor_intrin",
    "transform",
)
_NAMES = {
    "BijectiveLayout": "data_layout", "Layout": "data_layout", "bijective_layout": "data_layout", "layout": "data_layout",
    "PyStmtExprMutator": "functor", "PyStmtExprVisitor": "functor",
    "BlockRV": "schedule", "BlockScope": "schedule", "ExprRV": "schedule", "LoopRV": "schedule", "Schedule": "schedule",
    "ScheduleDebugMask": "schedule", "ScheduleError": "schedule",
    "ScheduleState": "schedule", "StmtSRef": "schedule", "DepKind": "schedule", "Dependency": "schedule", "Trace": "schedule",
    "IndexMap": "index_map", "TensorIntrin": "tensor_intrin",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"tilewright.tir.{name}")
    if name in CALLS:
        return CALLS[name]
    if name in _NAMES:
        return getattr(import_module(f"tilewright.tir.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'tilewright.tir' has no attribute {name!r}")
