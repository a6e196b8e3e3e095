"""Schedules: rearranging loops and blocks step by step, checked at each step."""

from tilewright.tir.schedule import analysis
from tilewright.tir.schedule.analysis import has_block
from tilewright.tir.schedule.errors import ScheduleError
from tilewright.tir.schedule.instruction import Instruction, InstructionKind
from tilewright.tir.schedule.schedule import Schedule
from tilewright.tir.schedule.scope import DepKind
from tilewright.tir.schedule.sref import BlockScope, Dependency, ScheduleDebugMask, ScheduleState, StmtSRef
from tilewright.tir.schedule.state import BlockRV, ExprRV, LoopRV
from tilewright.tir.schedule.trace import Trace

__all__ = [
    "BlockRV", "BlockScope", "DepKind", "Dependency", "ExprRV", "Instruction", "InstructionKind", "LoopRV", "Schedule",
    "ScheduleDebugMask", "ScheduleError", "ScheduleState", "StmtSRef", "Trace", "has_block",
]  # fmt: skip
