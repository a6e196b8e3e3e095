"""The `T` of IRBuilder: that of script, whose functions act at once, with what a function's definition says otherwise."""

from __future__ import annotations

from typing import Any

from tilewright.ir.op import PrimType
from tilewright.script import tir as _script
from tilewright.script.ir_builder.base import FuncFrame, add_argument, function_state
from tilewright.script.namespace import DtypeFactory, HandleFactory

__all__ = ["arg", "func_name", "func_ret", "prim_func"]


def prim_func(func: Any = None, *, is_private: bool = False, private: bool = False, **options: Any) -> Any:
    """`with T.prim_func():` a function; given one of Python, the decorator of script."""
    if func is not None or options:
        return _script.prim_func(func, private=private or is_private, **options)
    return FuncFrame(is_private or private)


def arg(name: str, obj: Any) -> Any:
    """A parameter: `T.arg("A", T.Buffer((8,), "float32"))`, `T.arg("n", T.int32())`; it is given back."""
    return add_argument(name, obj)


def func_name(name: str) -> None:
    """The name of the function."""
    function_state("T.func_name").name = name


def func_ret(ret_type: Any) -> Any:
    """The type that the function returns."""
    made = PrimType(ret_type.dtype) if isinstance(ret_type, (DtypeFactory, HandleFactory)) else ret_type
    function_state("T.func_ret").ret_type = made
    return made


def __getattr__(name: str) -> Any:
    return getattr(_script, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(_script)})
