"""Functions of the loop IR, under the field's module name."""

from tilewright.tir.index_map import IndexMap
from tilewright.tir.ir import PrimFunc
