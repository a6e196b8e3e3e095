"""Passes over the loop IR that people call by name, and the decorator for their own."""

from tilewright.ir.passes import prim_func_pass
from tilewright.tir.transform.compact_buffers import CompactBufferAllocation
from tilewright.tir.transform.convert_blocks import ConvertBlocksToOpaque
from tilewright.tir.transform.flatten_buffer import FlattenBuffer
from tilewright.tir.transform.gpu import *
from tilewright.tir.transform.lower_init_block import LowerInitBlock
from tilewright.tir.transform.lower_match_buffer import LowerMatchBuffer
from tilewright.tir.transform.lower_opaque_block import LowerOpaqueBlock
from tilewright.tir.transform.plan_buffers import PlanAndUpdateBufferAllocationLocation
from tilewright.tir.transform.simplify import Simplify, simplify
