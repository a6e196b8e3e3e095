"""Simplification: rules as data, normal forms of sums and quotients, and the simplifier that applies them."""

from tilewright.arith.simplify.core import Simplifier
from tilewright.arith.simplify.rules import RULES, Rule
