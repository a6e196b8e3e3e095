"""Tests for several targets: which can be run here, a test for each of them, marks of what a test needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

__all__ = [
    "DEFAULT_TEST_TARGETS", "device_enabled", "enabled_targets", "exclude_targets", "known_failing_targets", "parametrize_targets",
    "requires_cuda", "requires_gpu", "requires_llvm", "requires_metal", "requires_opencl", "requires_vulkan", "requires_webgpu",
]  # fmt: skip

DEFAULT_TEST_TARGETS = ["llvm", "c", "cuda", "opencl", "metal", "webgpu"]
"""What tests run on where nothing else is said; TILEWRIGHT_TEST_TARGETS (separated by `;`) chooses others."""


def _pytest() -> Any:
    return import_module("pytest")


def _kind(target: Any) -> str:
    return str(target).split()[0]


def device_enabled(target: Any) -> bool:
    """Can code for `target` be built and run here?"""
    from tilewright.runtime.module import enabled
    from tilewright.runtime.ndarray import device

    kind = _kind(target)
    if kind == "llvm":
        return True
    return bool(enabled(kind)) and bool(device(kind, 0).exist)


def enabled_targets() -> list[tuple[str, Any]]:
    """The targets that can be run here, each with its device."""
    from tilewright.runtime.ndarray import device

    wanted = [t for t in os.environ.get("TILEWRIGHT_TEST_TARGETS", "").split(";") if t] or DEFAULT_TEST_TARGETS
    return [(t, device(_kind(t), 0)) for t in wanted if device_enabled(t)]


def parametrize_targets(*args: Any) -> Any:
    """Run a test with the arguments `target` and `dev` for each of the targets given (those that can be run here), or bare,
    for all that can."""
    from tilewright.runtime.ndarray import device

    def apply(func: Callable[..., Any], names: Sequence[str]) -> Any:
        refused: tuple[str, ...] = getattr(func, "excluded_targets", ())
        wanted = [n for n in names if device_enabled(n) and _kind(n) not in refused]
        return _pytest().mark.parametrize("target,dev", [(n, device(_kind(n), 0)) for n in wanted], ids=wanted)(func)

    if len(args) == 1 and callable(args[0]):
        return apply(args[0], [n for n, _ in enabled_targets()])
    return lambda func: apply(func, args)  # pyright: ignore


def exclude_targets(*args: str) -> Any:
    """Do not run a test on these kinds of targets. Below `parametrize_targets`."""

    def mark(func: Any) -> Any:
        func.excluded_targets = (*getattr(func, "excluded_targets", ()), *args)
        return func

    return mark


known_failing_targets = exclude_targets
"""Targets that a test is known to fail on: it is not run there."""


def _requires(kind: str) -> Callable[[Any], Any]:
    def mark(*marked: Any) -> Any:
        """Skip the test where such a device is missing."""
        skip = _pytest().mark.skipif(not device_enabled(kind), reason=f"no {kind} device here")
        return skip(marked[0]) if marked else [skip]

    mark.__name__ = f"requires_{kind}"
    return mark


requires_llvm = _requires("llvm")
requires_cuda = _requires("cuda")
requires_opencl = _requires("opencl")
requires_metal = _requires("metal")
requires_vulkan = _requires("vulkan")
requires_webgpu = _requires("webgpu")


def requires_gpu(*marked: Any) -> Any:
    """Skip the test where no GPU can be used; OpenCL on a processor counts."""
    there = any(device_enabled(k) for k in ("cuda", "opencl", "metal", "vulkan", "webgpu"))
    skip = _pytest().mark.skipif(not there, reason="no GPU here")
    return skip(marked[0]) if marked else [skip]
