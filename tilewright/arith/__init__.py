"""Integer reasoning, and the scalar expressions it reasons about."""

from tilewright.arith import expr
