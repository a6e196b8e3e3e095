"""Lowering for GPUs: a loop program becomes a host function and the kernels it launches."""

from tilewright.tir.lower.device.check import check_kernel
from tilewright.tir.lower.device.lower import DEVICE_PIPELINE, DeviceProgram, lower_device

__all__ = ["DEVICE_PIPELINE", "DeviceProgram", "check_kernel", "lower_device"]
