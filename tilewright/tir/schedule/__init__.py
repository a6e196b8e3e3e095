"""Schedules: rearranging loops and blocks step by step, checked at each step."""

from tilewright.tir.schedule.errors import ScheduleError
from tilewright.tir.schedule.schedule import Schedule
from tilewright.tir.schedule.state import BlockRV, LoopRV
from tilewright.tir.schedule.trace import Instruction, Trace

__all__ = ["BlockRV", "Instruction", "LoopRV", "Schedule", "ScheduleError", "Trace"]
