"""The list of graph passes: from operators to a `main` of kernel calls."""

from __future__ import annotations

from typing import Any

from tilewright.ir.passes import Pass
from tilewright.relax.transform.canonicalise_bindings import canonicalise_bindings
from tilewright.relax.transform.cse import cse
from tilewright.relax.transform.dead_code import dead_code
from tilewright.relax.transform.expand import expand_composites
from tilewright.relax.transform.fold_constant import fold_constant
from tilewright.relax.transform.fold_scale import decompose_batch_norm, fold_scale
from tilewright.relax.transform.fuse_ops import fuse_ops
from tilewright.relax.transform.fuse_tir import fuse_tir
from tilewright.relax.transform.inline_functions import inline_functions
from tilewright.relax.transform.layout import layout_pass
from tilewright.relax.transform.legalise import legalise
from tilewright.relax.transform.normalise import normalise
from tilewright.relax.transform.pack_weights import pack_weights_pass
from tilewright.relax.transform.raise_norms import raise_norms
from tilewright.relax.transform.simplify_views import simplify_views
from tilewright.relax.transform.split_columns import sink_into_concat, split_columns

__all__ = ["graph_pipeline"]


def graph_pipeline(target: Any = None) -> list[Pass]:
    """The passes in order for `target` (its vector width decides how weights are packed)."""
    return [
        normalise,
        inline_functions,
        expand_composites,
        decompose_batch_norm,
        fold_constant,
        simplify_views,
        canonicalise_bindings,
        cse,
        raise_norms,
        dead_code,
        fold_scale,
        dead_code,
        split_columns,
        canonicalise_bindings,
        dead_code,
        layout_pass(target),
        sink_into_concat,
        pack_weights_pass(target),
        simplify_views,
        canonicalise_bindings,
        cse,
        dead_code,
        legalise,
        fuse_ops,
        fuse_tir,
        canonicalise_bindings,
        dead_code,
    ]
