"""The passes under the names that users of this field know: `FuseOps()` gives the pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir.passes import Pass
from tilewright.relax.transform.canonicalise_bindings import canonicalise_bindings
from tilewright.relax.transform.cse import cse
from tilewright.relax.transform.dead_code import dead_code, dead_code_of
from tilewright.relax.transform.fold_constant import fold_constant
from tilewright.relax.transform.fuse_ops import fuse_ops
from tilewright.relax.transform.fuse_tir import fuse_tir
from tilewright.relax.transform.legalise import legalise_ops
from tilewright.relax.transform.normalise import convert_to_dataflow, normalise
from tilewright.relax.transform.op_pattern import annotate_op_pattern

__all__ = [
    "AnnotateTIROpPattern", "CanonicalizeBindings", "ConvertToDataflow", "DeadCodeElimination", "EliminateCommonSubexpr",
    "FoldConstant", "FuseOps", "FuseTIR", "LegalizeOps", "Normalize",
]  # fmt: skip


def Normalize() -> Pass:
    """Nested operands are bound to variables, bodies become SeqExprs, missing struct info is inferred."""
    return normalise


def ConvertToDataflow(min_size: int = 2) -> Pass:
    """Runs of bindings without effects become dataflow blocks."""
    del min_size
    return convert_to_dataflow


def CanonicalizeBindings() -> Pass:
    """Aliases, fields of known tuples and proved checks disappear."""
    return canonicalise_bindings


def DeadCodeElimination(entry_functions: Sequence[str] | None = None) -> Pass:
    """What nothing uses disappears; with `entry_functions`, functions that these do not reach as well."""
    return dead_code if entry_functions is None else dead_code_of(entry_functions)


def EliminateCommonSubexpr(call_only: bool = False) -> Pass:
    """Equal calls are computed once."""
    del call_only
    return cse


def FoldConstant() -> Pass:
    """Calls of constants are evaluated, shapes that are known become ShapeExprs, known branches are taken."""
    return fold_constant


def LegalizeOps(
    customize_legalize_map: Mapping[str, Callable[..., Any]] | None = None, enable_warning: bool = False
) -> Pass:
    """Operators become calls of kernels; `customize_legalize_map` maps an operator's name to `f(bb, call) -> expr`."""
    del enable_warning
    return legalise_ops(customize_legalize_map)


def AnnotateTIROpPattern() -> Pass:
    """Kernels get the attribute `op_pattern`."""
    return annotate_op_pattern


def FuseOps(fuse_opt_level: int = -1) -> Pass:
    """Kernels that should run as one are grouped into `Primitive` functions. Level 0 groups nothing."""
    if fuse_opt_level == 0:
        return Pass(lambda mod, ctx: mod, "FuseOps")
    return fuse_ops


def FuseTIR() -> Pass:
    """Every `Primitive` function becomes one kernel."""
    return fuse_tir
