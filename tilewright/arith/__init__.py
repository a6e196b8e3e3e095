"""Integer reasoning, and the scalar expressions it reasons about. The reasoning is imported when it is first asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright.arith import expr

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer, ConstIntBound, Extension, ModularSet, ProofStrength
    from tilewright.arith.bound import deduce_bound, detect_clip_bound
    from tilewright.arith.constraint_system import IntConstraints, IntConstraintsTransform, IntGroupBounds
    from tilewright.arith.int_set import (
        IntervalSet,
        IntSet,
        PresburgerSet,
        estimate_region_lower_bound,
        estimate_region_strict_bound,
        estimate_region_upper_bound,
        eval_set,
    )
    from tilewright.arith.iter_divide import inverse_affine_iter_map, subspace_divide
    from tilewright.arith.iter_expr import (
        IterMapExpr,
        IterMark,
        IterSplitExpr,
        IterSumExpr,
        normalize_iter_map_to_expr,
    )
    from tilewright.arith.iter_map import (
        IterMapLevel,
        IterMapResult,
        detect_iter_map,
        iter_map_simplify,
        normalize_to_iter_sum,
    )
    from tilewright.arith.linear import detect_linear_equation, linear_form
    from tilewright.arith.solve_equations import solve_linear_equations
    from tilewright.arith.solve_inequalities import solve_linear_inequalities

_LAZY = {
    "analyzer": ("Analyzer", "ConstIntBound", "Extension", "ModularSet", "ProofStrength"),
    "int_set": (
        "IntSet", "IntervalSet", "PresburgerSet", "estimate_region_lower_bound", "estimate_region_strict_bound",
        "estimate_region_upper_bound", "eval_set",
    ),
    "bound": ("deduce_bound", "detect_clip_bound"),
    "constraint_system": ("IntConstraints", "IntConstraintsTransform", "IntGroupBounds"),
    "solve_equations": ("solve_linear_equations",),
    "solve_inequalities": ("solve_linear_inequalities",),
    "iter_expr": ("IterMapExpr", "IterMark", "IterSplitExpr", "IterSumExpr", "normalize_iter_map_to_expr"),
    "iter_map": ("IterMapLevel", "IterMapResult", "detect_iter_map", "iter_map_simplify", "normalize_to_iter_sum"),
    "iter_divide": ("inverse_affine_iter_map", "subspace_divide"),
    "linear": ("detect_linear_equation", "linear_form"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ("int_set", "analyzer", "iter_map", "bound"):
        return import_module(f"tilewright.arith.{name}")
    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(f"tilewright.arith.{module}"), name)
    raise AttributeError(f"module 'tilewright.arith' has no attribute {name!r}")
