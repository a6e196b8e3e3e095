"""What both intermediate representations share: nodes, structure, rewriting, modules, passes, targets."""

from tilewright.ir.module import BaseFunc, IRModule
from tilewright.ir.node import Node
from tilewright.ir.op import BaseExpr, GlobalVar, Op, PointerType, PrimType, Type
from tilewright.ir.serialize import load_json, save_json
from tilewright.ir.structure import assert_structural_equal, first_difference, structural_equal, structural_hash

from tilewright.ir import module, passes as transform, passes as instrument  # isort: skip
