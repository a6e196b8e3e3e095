"""Names that are looked up when they are used: how a lower layer calls what a higher layer provides.

The table below is the whole list. It keeps imports going down only, and keeps `import tilewright` fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["LAZY", "is_resolved", "resolve"]

LAZY: dict[str, str] = {
    "script.prim_func": "tilewright.script.tir:prim_func",
    "script.ir_module": "tilewright.script.ir:ir_module",
    "script.T": "tilewright.script:tir",
    "script.print": "tilewright.script.printer:to_script",
    "script.show": "tilewright.script.printer:show",
    "script.repr": "tilewright.script.printer:to_repr",
    "script.parse": "tilewright.script.parser:parse",
    "script.locate": "tilewright.script.printer:locate",
    "verify.relax": "tilewright.relax.verify:verify_module",
    "verify.blocks": "tilewright.tir.verify:verify_module_blocks",
    "verify.wellformed": "tilewright.tir.verify:verify_well_formed",
    "verify.flat": "tilewright.tir.verify:verify_module_flat",
    "host.info": "tilewright.backends.llvm.host:host_info",
    "runtime.pool": "tilewright.backends.llvm.pool:pool",
    "driver.cache": "tilewright.driver.cache:default",
    "artifact.link": "tilewright.backends.llvm.artifact:link_in_process",
    "artifact.write": "tilewright.backends.llvm.artifact:write",
    "artifact.load": "tilewright.backends.llvm.artifact:load",
    "backends.find": "tilewright.backends.registry:find",
    "runtime.describe": "tilewright.runtime.device_api:describe",
    "backends.device": "tilewright.backends.registry:device_api",
    "ops.root": "tilewright.ops.api:ROOT",
    "relax.call": "tilewright.relax.calls:call_function",
    "relax.prim_func_info": "tilewright.relax.prim_func_info:prim_func_struct_info",
    "relax.build": "tilewright.driver.vm:build",
    "relax.vm": "tilewright.driver.vm:VirtualMachine",
    "relax.vm_executable": "tilewright.driver.vm:VMExecutable",
    "frontend.from_onnx": "tilewright.frontend.onnx:from_onnx",
    "tir.convert": "tilewright.arith.expr:convert",
    "tir.lane_count": "tilewright.arith.scalable:lane_count",
    "tir.const": "tilewright.arith.expr:const",
    "tir.Range": "tilewright.tir.range:Range",
    "tir.PrimExpr": "tilewright.arith.expr:PrimExpr",
    "tir.transform": "tilewright.tir:transform",
    "arith.simplify": "tilewright.arith.analyzer:simplify",
    "topi": "tilewright:topi",
}
"""What a name stands for: `module:attribute`."""

_RESOLVED: dict[str, Any] = {}


def resolve(name: str) -> Any:
    """The object that `name` of the table stands for; imports its module at first use."""
    try:
        return _RESOLVED[name]
    except KeyError:
        module, _, attribute = LAZY[name].partition(":")
        found = _RESOLVED[name] = getattr(import_module(module), attribute)
        return found


def is_resolved(name: str) -> bool:
    """Has `name` been used already?"""
    return name in _RESOLVED
