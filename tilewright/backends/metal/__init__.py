"""Metal's shading language, as text: this package runs nothing on Apple's GPUs."""

from tilewright.ir.backend import Backend

BACKEND = Backend(
    "metal",
    ("metal",),
    "Metal source",
    "tilewright.backends.metal.build:build",
    available="tilewright.backends.metal.build:available",
)
