"""C99 sources for the host."""

from tilewright.ir.backend import Backend

BACKEND = Backend(
    "c", ("c",), "C99", "tilewright.backends.c.build:build", available="tilewright.backends.c.build:available"
)
