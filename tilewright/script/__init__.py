"""TVMScript: IR as Python text, printed and parsed. `from tilewright.script import ir as I, tir as T, relax as R`."""

from typing import Any

from tilewright.script import ir, relax, tir
from tilewright.script.ir import ir_module
from tilewright.script.parser import from_source, parse
from tilewright.script.printer import locate, show, to_script


def __getattr__(name: str) -> Any:
    """`ir_builder` is imported when it is asked for."""
    if name == "ir_builder":
        from importlib import import_module

        return import_module("tilewright.script.ir_builder")
    raise AttributeError(f"module 'tilewright.script' has no attribute {name!r}")
