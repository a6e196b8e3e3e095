"""Simplification by rewriting: rules as data, compiled to Python functions, and the engine that applies them."""

from tilewright.arith.rewrite.engine import Rewriter
from tilewright.arith.rewrite.rules import Rule
