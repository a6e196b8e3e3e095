"""Passes on graph functions, under their known names; `graph_pipeline(target)` is the list that `tilewright.compile` runs."""

from tilewright.relax.transform.bind_params import bind_params as BindParams
from tilewright.relax.transform.bind_params import bind_symbolic_vars as BindSymbolicVars
from tilewright.relax.transform.lift_params import lift_transform_params as LiftTransformParams
from tilewright.relax.transform.names import (
    AnnotateTIROpPattern,
    CanonicalizeBindings,
    ConvertToDataflow,
    DeadCodeElimination,
    EliminateCommonSubexpr,
    FoldConstant,
    FuseOps,
    FuseTIR,
    LegalizeOps,
    Normalize,
)
from tilewright.relax.transform.pipeline import graph_pipeline
