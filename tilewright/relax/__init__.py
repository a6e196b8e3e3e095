"""Relax, the graph IR: nodes, struct info, building, operators, passes, under the field's names."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from tilewright.support.lazy import resolve as _resolve

if TYPE_CHECKING:
    from tilewright.relax import block_builder, op, transform
    from tilewright.relax.block_builder import BlockBuilder
    from tilewright.relax.ir import Expr, Function, Var

_NAMES = {
    **dict.fromkeys(
        ("Binding", "BindingBlock", "Call", "Constant", "DataTypeImm", "DataflowBlock", "DataflowVar", "Expr", "ExternFunc", "Function",
         "GlobalVar", "If", "MatchCast", "PrimValue", "SeqExpr", "ShapeExpr", "StringImm", "Tuple", "TupleGetItem", "Var", "VarBinding"),
        "ir",
    ),
    **dict.fromkeys(
        ("FuncStructInfo", "ObjectStructInfo", "PrimStructInfo", "ShapeStructInfo", "StructInfo", "TensorStructInfo", "TupleStructInfo"),
        "struct_info",
    ),
    **dict.fromkeys(("call_dps_packed", "call_packed", "call_pure_packed", "call_tir", "call_tir_inplace"), "calls"),
    **dict.fromkeys(("const", "convert"), "values"),
    "BlockBuilder": "block_builder",
}  # fmt: skip
_LAZY = {"build": "relax.build", "VirtualMachine": "relax.vm", "VMExecutable": "relax.vm_executable"}
_MODULES = ("analysis", "block_builder", "calls", "evaluate", "frontend", "ir", "op", "struct_info", "transform", "verify")  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = _resolve(_LAZY[name])
    elif name in _NAMES:
        value = getattr(_import_module(f"tilewright.relax.{_NAMES[name]}"), name)
    elif name in _MODULES:
        value = _import_module(f"tilewright.relax.{name}")
    else:
        raise AttributeError(f"module 'tilewright.relax' has no attribute {name!r}")
    globals()[name] = value
    return value
