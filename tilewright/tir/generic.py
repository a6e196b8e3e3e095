"""Generic arithmetic, under the field's module name."""

from tilewright.arith.expr import add, cast, floordiv
from tilewright.arith.expr import mul as multiply
from tilewright.arith.expr import sub as subtract
