"""Passes over the loop IR that people call by name, and the decorator for their own."""

from tilewright.ir.passes import prim_func_pass
from tilewright.tir.transform.simplify import Simplify, simplify
