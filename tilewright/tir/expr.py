"""Scalar expressions, under the field's module name."""

from tilewright.arith.expr import *
from tilewright.tir.ir import BufferLoad, CommReducer, IterVar, ProducerLoad, Reduce
