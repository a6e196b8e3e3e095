"""Operators: one class each, one file a family. Importing this package fills `relax.op.OPS`."""

from tilewright.ops import binary, linalg, nn, reduce, unary
