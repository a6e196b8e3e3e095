"""Programs built by Python as it runs: `with IRBuilder() as ib: with T.prim_func(): ...`, then `ib.get()`."""

from tilewright.script.ir_builder import ir, tir
from tilewright.script.ir_builder.base import IRBuilder
