"""Operators and intrinsics as functions, under the field's module name."""

from tilewright.tir.build import *
from tilewright.tir.build import abs, all, any, comm_reducer, max, min, pow, prod, round, sum
