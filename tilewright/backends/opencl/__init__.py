"""OpenCL C, run through pyopencl."""

from tilewright.ir.backend import Backend

BACKEND = Backend(
    "opencl",
    ("opencl",),
    "OpenCL C",
    "tilewright.backends.opencl.build:build",
    device="tilewright.backends.opencl.runtime:API",
    available="tilewright.backends.opencl.runtime:available",
)
