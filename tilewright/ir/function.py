"""How functions are called, as numbers of the attribute `calling_conv`."""

from enum import IntEnum

__all__ = ["CallingConv"]


class CallingConv(IntEnum):
    """The values of a function's attribute `calling_conv`."""

    DEFAULT = 0
    """The convention of the code generator."""
    C_PACKED_FUNC = 1
    """The FFI's packed convention."""
    DEVICE_KERNEL_LAUNCH = 2
    """A kernel, launched with grid and block extents."""
