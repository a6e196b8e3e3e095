"""Operators: one class each, one file a family. Importing this package fills `relax.op.OPS`."""

from tilewright.ops import binary, create, image, index, linalg, manipulate, nn, quantize, reduce, search, unary
from tilewright.ops.api import names, resolve
