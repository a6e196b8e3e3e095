"""The schedule primitives, by what they change. Importing this registers them."""

from tilewright.tir.schedule.primitives import (
    annotate,
    blockize,
    caching,
    compute_at,
    inline,
    layout,
    layout_blocks,
    loops,
    reduce,
    regions,
    reindex,
    rfactor,
    sampling,
    storage,
    tensorize,
)

__all__ = [
    "annotate",
    "blockize",
    "caching",
    "compute_at",
    "inline",
    "layout",
    "layout_blocks",
    "loops",
    "reduce",
    "regions",
    "reindex",
    "rfactor",
    "sampling",
    "storage",
    "tensorize",
]
