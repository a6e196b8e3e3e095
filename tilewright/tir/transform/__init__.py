"""Passes over the loop IR that people call by name, and the decorator for their own."""

from tilewright.ir.passes import Pass as PrimFuncPass
from tilewright.ir.passes import prim_func_pass
from tilewright.tir.transform.branches import ReduceBranchingThroughOvercompute, RemoveWeightLayoutRewriteBlock
from tilewright.tir.transform.cleanup import (
    CombineContextCall,
    ConvertForLoopsToSerial,
    DecorateDeviceScope,
    RemoveAssume,
    RemoveStoreUndef,
    RewriteUnsafeSelect,
    SkipAssert,
)
from tilewright.tir.transform.compact_buffers import CompactBufferAllocation
from tilewright.tir.transform.convert_blocks import ConvertBlocksToOpaque
from tilewright.tir.transform.convert_ssa import ConvertSSA
from tilewright.tir.transform.cse import CommonSubexprElim, CommonSubexprElimTIR
from tilewright.tir.transform.flatten_buffer import FlattenBuffer
from tilewright.tir.transform.gpu import *
from tilewright.tir.transform.hoist import HoistedConditionals, HoistedLetBindings, HoistExpression, HoistIfThenElse
from tilewright.tir.transform.inject_double_buffer import InjectDoubleBuffer
from tilewright.tir.transform.inline_functions import InlinePrivateFunctions
from tilewright.tir.transform.instrument_bounds import InstrumentBoundCheckers
from tilewright.tir.transform.legalize_floats import (
    BF16ComputeLegalize,
    BF16StorageLegalize,
    FP8ComputeLegalize,
    FP8StorageLegalize,
)
from tilewright.tir.transform.loop_partition import LoopPartition
from tilewright.tir.transform.lower_calls import (
    InstrumentProfileIntrinsics,
    LowerCustomDatatypes,
    LowerIntrin,
    LowerTVMBuiltin,
    MakePackedAPI,
    MakeUnpackedAPI,
    RenormalizeSplitPattern,
    TextureFlatten,
    VerifyMemory,
)
from tilewright.tir.transform.lower_init_block import LowerInitBlock
from tilewright.tir.transform.lower_match_buffer import LowerMatchBuffer
from tilewright.tir.transform.lower_opaque_block import LowerOpaqueBlock
from tilewright.tir.transform.module_passes import (
    AnnotateEntryFunc,
    Apply,
    BindTarget,
    ExtractPrimFuncConstants,
    Filter,
)
from tilewright.tir.transform.narrow_types import ForceNarrowIndexToInt32, NarrowDataType
from tilewright.tir.transform.plan_buffers import PlanAndUpdateBufferAllocationLocation
from tilewright.tir.transform.remove_no_op import RemoveNoOp
from tilewright.tir.transform.simplify import Simplify, simplify
from tilewright.tir.transform.storage_rewrite import StorageRewrite
from tilewright.tir.transform.unroll_loop import UnrollLoop
from tilewright.tir.transform.vectorize_loop import VectorizeLoop
