"""`tvm.target`: targets under the field's name."""

from tilewright.ir.target import KINDS, Target, TargetKind

__all__ = ["KINDS", "Target", "TargetKind"]
