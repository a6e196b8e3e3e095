"""The `I` namespace of script: `from tilewright.script import ir as I`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.node import Node
from tilewright.ir.op import GlobalVar
from tilewright.script.printer import decode_metadata

__all__ = ["GlobalVar", "ir_module", "load_metadata", "module_attrs"]


def ir_module(cls: Any = None, *, check_well_formed: bool = True) -> Any:
    """Decorator: the class is a module; its functions are script, checked unless `check_well_formed=False`."""
    from tilewright.script.parser import parse_class

    if cls is None:
        return lambda c: parse_class(c, check_well_formed=check_well_formed)
    return parse_class(cls, check_well_formed=check_well_formed)


class ModuleAttrs:
    """`I.module_attrs({...})` in a module's class."""

    def __init__(self, attrs: dict[str, Any]) -> None:
        self.attrs = attrs


def module_attrs(attrs: dict[str, Any]) -> ModuleAttrs:
    """Attributes of the module."""
    return ModuleAttrs(attrs)


def load_metadata(text: str) -> dict[str, list[Any]]:
    """The constants that a printed text carries (`to_script(..., show_meta=True)`)."""
    return as_metadata(decode_metadata(text))


def as_metadata(metadata: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Metadata as a text refers to it: graph constants are Constant nodes."""
    from tilewright.relax.ir import Constant

    kind = "relax.expr.Constant"
    return {
        k: [v if isinstance(v, Node) or k != kind else Constant(v) for v in values] for k, values in metadata.items()
    }
