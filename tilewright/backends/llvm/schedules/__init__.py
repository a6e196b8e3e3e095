"""Analytic schedules for CPUs."""

from tilewright.backends.llvm.schedules.schedule import schedule_kernel

__all__ = ["schedule_kernel"]
