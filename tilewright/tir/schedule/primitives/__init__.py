"""The schedule primitives, by what they change. Importing this registers them."""

from tilewright.tir.schedule.primitives import (
    annotate,
    blocks,
    caching,
    layout,
    layout_blocks,
    loops,
    reduce,
    rfactor,
    sampling,
    storage,
)

__all__ = ["annotate", "blocks", "caching", "layout", "layout_blocks", "loops", "reduce", "rfactor", "sampling", "storage"]
