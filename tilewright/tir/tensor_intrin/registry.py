"""Tensor intrinsics: what a machine does to small tensors at once, as a pair of functions.

`desc` says what is computed, in loops; `impl` how: by an instruction, or by a function of somebody else. Their parameters
are the same buffers in the same order; a body is one block that declares what it reads and writes. `Schedule.tensorize`
finds the computation of `desc` in a program and puts `impl` in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from tilewright.support.diagnostics import CompileError, Diagnostic
from tilewright.tir.ir import Block, BlockRealize, PrimFunc

__all__ = ["IntrinError", "TensorIntrin", "register_lazily"]


class IntrinError(CompileError, ValueError):
    """A tensor intrinsic is not known (TW0490), or is not well made (TW0491)."""


_REGISTERED: dict[str, TensorIntrin | Callable[[], TensorIntrin]] = {}
_LIBRARY = ("x86", "arm_cpu", "cuda", "dot_product_common", "rocm", "hexagon", "metal")


class TensorIntrin:
    """A pair of functions, `desc` (what) and `impl` (how); `name` once it is registered."""

    def __init__(self, desc: PrimFunc, impl: PrimFunc, name: str | None = None) -> None:
        self.desc, self.impl, self.name = desc, impl, name
        _check(self)

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name!r})"

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> TensorIntrin:
        """Make a pair known under a name. Raises ValueError TW0490 where there is one of that name, unless `override`."""
        if name in _REGISTERED and not override:
            raise IntrinError(
                Diagnostic("TW0490", f"there is a tensor intrinsic {name!r} already", hint="override=True replaces it")
            )
        made = TensorIntrin(desc, impl, name)
        _REGISTERED[name] = made
        return made

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> TensorIntrin | None:
        """The pair of a name. Raises ValueError TW0490 where there is none, unless `allow_missing`: then it is None."""
        if name not in _REGISTERED:
            for module in _LIBRARY:
                import_module(f"tilewright.tir.tensor_intrin.{module}")
        found = _REGISTERED.get(name)
        if found is None:
            if allow_missing:
                return None
            raise IntrinError(Diagnostic("TW0490", f"there is no tensor intrinsic {name!r}", hint=_near(name)))
        if not isinstance(found, TensorIntrin):
            found = found()
            found.name = name
            _REGISTERED[name] = found
        return found


def register_lazily(name: str, make: Callable[[], TensorIntrin]) -> str:
    """Make a pair known that is made when it is asked for. Gives the name."""
    _REGISTERED.setdefault(name, make)
    return name


def _near(name: str) -> str | None:
    import difflib

    close = difflib.get_close_matches(name, list(_REGISTERED), 3)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else None


def root_block(f: PrimFunc) -> Block:
    """The block that is the body of `desc` or `impl`. Raises ValueError TW0491 where it is none."""
    body: Any = f.body
    if isinstance(body, BlockRealize) and not body.block.reads and not body.block.writes:
        inner = body.block.body  # the root block that every function has, around the one that declares its regions
        if isinstance(inner, BlockRealize) and not body.block.alloc_buffers and not inner.block.iter_vars:
            body = inner
    if not isinstance(body, BlockRealize):
        raise IntrinError(Diagnostic("TW0491", "the body of a tensor intrinsic's function is one block"))
    return body.block


def _check(intrin: TensorIntrin) -> None:
    desc, impl = intrin.desc, intrin.impl
    if not isinstance(desc, PrimFunc) or not isinstance(impl, PrimFunc):
        raise IntrinError(Diagnostic("TW0491", "desc and impl of a tensor intrinsic are functions of the loop IR"))
    if len(desc.params) != len(impl.params):
        raise IntrinError(
            Diagnostic(
                "TW0491", f"desc has {len(desc.params)} parameters, impl has {len(impl.params)}: they are the same"
            )
        )
    for f, kind in ((desc, "desc"), (impl, "impl")):
        for p in f.params:
            if p not in f.buffer_map:
                raise IntrinError(Diagnostic("TW0491", f"the parameter {p.name!r} of {kind} is no buffer"))
        root_block(f)
    for a, b in zip(desc.param_buffers, impl.param_buffers, strict=True):
        if a.dtype != b.dtype:
            raise IntrinError(
                Diagnostic("TW0491", f"the parameter {a.name} is of {a.dtype} in desc and of {b.dtype} in impl")
            )
