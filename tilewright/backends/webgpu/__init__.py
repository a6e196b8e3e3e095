"""WGSL, run through the package `wgpu`."""

from tilewright.ir.backend import Backend

BACKEND = Backend(
    "webgpu",
    ("webgpu",),
    "WGSL",
    "tilewright.backends.webgpu.build:build",
    device="tilewright.backends.webgpu.runtime:API",
    available="tilewright.backends.webgpu.runtime:available",
)
