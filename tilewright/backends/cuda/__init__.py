"""CUDA C for NVIDIA GPUs, compiled by NVRTC or nvcc, run through the driver."""

from tilewright.ir.backend import Backend

BACKEND = Backend(
    "cuda",
    ("cuda",),
    "CUDA C",
    "tilewright.backends.cuda.build:build",
    device="tilewright.backends.cuda.runtime:API",
    available="tilewright.backends.cuda.runtime:available",
)
