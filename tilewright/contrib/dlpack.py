"""Compiled functions on other libraries' tensors.

Functions of this package take anything with DLPack already; these wrappers exist under their known names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["convert_func", "to_pytorch_func"]


def convert_func(
    tvm_func: Callable[..., Any], tensor_type: type, to_dlpack_func: Callable[[Any], Any]
) -> Callable[..., Any]:
    """A function that takes tensors of `tensor_type`, exporting each by `to_dlpack_func` (to a DLPack capsule or to an object
    with `__dlpack__`), and passes everything else on as it is."""

    def call(*args: Any) -> Any:
        from tilewright.runtime.ndarray import from_dlpack

        def pass_on(a: Any) -> Any:
            if not isinstance(a, tensor_type):
                return a
            exported = to_dlpack_func(a)
            return from_dlpack(exported if hasattr(exported, "__dlpack__") else _Capsule(exported, a))

        return tvm_func(*(pass_on(a) for a in args))

    return call


class _Capsule:
    """A DLPack capsule as an object with DLPack's methods."""

    def __init__(self, capsule: Any, source: Any) -> None:
        self._capsule, self._source = capsule, source

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._source.__dlpack_device__() if hasattr(self._source, "__dlpack_device__") else (1, 0)


def to_pytorch_func(tvm_func: Callable[..., Any]) -> Callable[..., Any]:
    """`tvm_func` for torch tensors (memory is shared)."""
    from importlib import import_module

    torch: Any = import_module("torch")
    return convert_func(tvm_func, torch.Tensor, lambda t: t.detach())
