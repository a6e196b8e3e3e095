"""Targets: what machine code is made for.

    Target("llvm")                                     this machine's CPU
    Target("llvm -mcpu=znver3 -num-cores=2")           options as of the field: -mcpu -mattr -mtriple -num-cores -keys ...
    Target({"kind": "llvm", "mcpu": "cortex-a72"})     the same from a table

A kind is known once its backend has registered a description in `KINDS` (backends do it in their manifest).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from functools import cached_property
from types import TracebackType
from typing import Any, ClassVar, NamedTuple

from tilewright.support.diagnostics import CompileError

__all__ = ["KINDS", "HostInfo", "Target", "TargetKind", "host_info"]


class TargetKind(NamedTuple):
    """A kind of target: its name, the device it runs on, whether it has the host's memory, and its options' defaults."""

    name: str
    device_type: str = "cpu"
    default_keys: tuple[str, ...] = ("cpu",)


KINDS: dict[str, TargetKind] = {
    "llvm": TargetKind("llvm"),
    "c": TargetKind("c"),
    "cuda": TargetKind("cuda", "cuda", ("cuda", "gpu")),
    "opencl": TargetKind("opencl", "opencl", ("opencl", "gpu")),
    "metal": TargetKind("metal", "metal", ("metal", "gpu")),
    "webgpu": TargetKind("webgpu", "webgpu", ("webgpu", "gpu")),
    "vulkan": TargetKind("vulkan", "vulkan", ("vulkan", "gpu")),
}
"""The kinds of targets that can be named. Which of them have a backend, `tilewright targets` says."""

_LISTS = ("mattr", "keys", "libs")
_INTS = ("num-cores", "opt-level", "max_num_threads", "thread_warp_size", "max_threads_per_block", "max_shared_memory_per_block",
         "l1_bytes", "l2_bytes", "vector-width")  # fmt: skip


class HostInfo(NamedTuple):
    """What a host CPU offers: LLVM's name for it, its triple, its features, its caches in bytes, its physical cores."""

    cpu: str
    triple: str
    features: frozenset[str]
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024
    num_cores: int = 1


def host_info() -> HostInfo:
    """This machine's CPU, as LLVM sees it. Asked once."""
    from tilewright.support.lazy import resolve

    return resolve("host.info")()


class Target:
    """What machine code is made for; see the head of the module. Immutable, hashable, printed as its command line.

    Raises CompileError (TW0901) for an unknown kind or a malformed option.
    """

    _stack: ClassVar[list[Target]] = []

    def __init__(
        self, target: str | Mapping[str, Any] | Target = "llvm", host: str | Mapping[str, Any] | Target | None = None
    ) -> None:
        given_host: Any = host
        if isinstance(target, Target):
            name, options = target.kind.name, dict(target.attrs)
            given_host = host if host is not None else target.host
        elif isinstance(target, str):
            name, options = _parse(target)
        else:
            table = dict(target)
            name, options = (
                str(table.pop("kind", "")),
                {k.replace("_", "-") if k == "num_cores" else k: v for k, v in table.items()},
            )
        if name not in KINDS:
            known = ", ".join(sorted(KINDS))
            raise CompileError.at("TW0901", f"unknown target kind {name!r}", hint=f"known kinds: {known}")
        self.kind = KINDS[name]
        self.attrs: dict[str, Any] = options
        self.host: Target | None = Target(given_host) if given_host is not None else None

    @cached_property
    def is_host(self) -> bool:
        """Does it mean this machine's own CPU?"""
        return self.kind.name == "llvm" and not {"mcpu", "mtriple", "mattr"} & set(self.attrs)

    @cached_property
    def mcpu(self) -> str:
        """LLVM's name of the processor."""
        return str(self.attrs.get("mcpu") or (host_info().cpu if not self.attrs.get("mtriple") else ""))

    @cached_property
    def mtriple(self) -> str:
        """LLVM's target triple."""
        return str(self.attrs.get("mtriple") or host_info().triple)

    @cached_property
    def mattr(self) -> list[str]:
        """LLVM features switched on (+) or off (-) beyond those of `mcpu`."""
        return list(self.attrs.get("mattr") or [])

    @cached_property
    def features(self) -> frozenset[str]:
        """The names of the CPU features that code may use (`avx2`, `fma`, `neon`, ...)."""
        given = {f.lstrip("+") for f in self.mattr if f.startswith("+")}
        removed = {f.lstrip("-") for f in self.mattr if f.startswith("-")}
        if "mtriple" in self.attrs and self.attrs["mtriple"] != host_info().triple:
            base: frozenset[str] = frozenset(_ARCH_FEATURES.get(str(self.attrs["mtriple"]).split("-")[0], ()))
        elif self.attrs.get("mcpu", host_info().cpu) == host_info().cpu:
            base = host_info().features
        else:
            base = frozenset(_cpu_features(self.mcpu))
        return frozenset((base | given) - removed)

    @cached_property
    def vector_bytes(self) -> int:
        """The width of a vector register in bytes."""
        if "vector-width" in self.attrs:
            return int(self.attrs["vector-width"]) // 8
        if "avx512f" in self.features:
            return 64
        return 32 if "avx" in self.features or "avx2" in self.features else 16

    @cached_property
    def num_cores(self) -> int:
        """How many cores the code will run on."""
        return int(self.attrs.get("num-cores") or host_info().num_cores)

    @property
    def l1_bytes(self) -> int:
        """The first-level data cache of a core."""
        return int(self.attrs.get("l1_bytes") or host_info().l1_bytes)

    @property
    def l2_bytes(self) -> int:
        """The second-level cache of a core."""
        return int(self.attrs.get("l2_bytes") or host_info().l2_bytes)

    @property
    def keys(self) -> list[str]:
        """Tags of the target, most special first."""
        return [*self.attrs.get("keys", ()), *self.kind.default_keys]

    def with_host(self, host: str | Mapping[str, Any] | Target | None) -> Target:
        """The same target whose host part is compiled for `host`."""
        return Target(self, host)

    def cache_key(self) -> str:
        """Text that two targets share only if they give the same machine code."""
        if self.kind.name != "llvm":
            return str(self)
        features = ",".join(sorted(self.features))
        return f"{self.kind.name} {self.mtriple} {self.mcpu} {features} {self.vector_bytes} {self.l1_bytes} {self.l2_bytes}"

    def __str__(self) -> str:
        parts = [self.kind.name]
        for key, value in sorted(self.attrs.items()):
            text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            parts.append(f"-{key}={text}")
        return " ".join(parts)

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and str(self) == str(other) and str(self.host) == str(other.host)

    def __hash__(self) -> int:
        return hash(str(self))

    def __enter__(self) -> Target:
        Target._stack.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        Target._stack.pop()

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The innermost target of a `with`. Raises ValueError when there is none and `allow_none` is False."""
        if Target._stack:
            return Target._stack[-1]
        if allow_none:
            return None
        raise ValueError("no target in scope: use `with Target(...):`")


def _parse(text: str) -> tuple[str, dict[str, Any]]:
    words = shlex.split(text)
    if not words:
        raise CompileError.at("TW0901", "the target is empty", hint='for this machine\'s CPU use "llvm"')
    options: dict[str, Any] = {}
    items = iter(words[1:])
    for word in items:
        if not word.startswith("-"):
            raise CompileError.at(
                "TW0901", f"target option {word!r} does not begin with -", hint="-mcpu=NAME, -num-cores=N, ..."
            )
        key, eq, value = word.lstrip("-").partition("=")
        if not eq:
            value = next(items, "1")
        if key in _LISTS:
            options[key] = [v for v in value.split(",") if v]
        elif key in _INTS:
            if not value.isdigit():
                raise CompileError.at("TW0901", f"target option -{key} takes a number, not {value!r}")
            options[key] = int(value)
        else:
            options[key] = value
    return words[0], options


_ARCH_FEATURES: dict[str, tuple[str, ...]] = {
    "aarch64": ("neon",),
    "arm64": ("neon",),
    "x86_64": ("sse2",),
}


def _cpu_features(cpu: str) -> tuple[str, ...]:
    """The vector features of well-known x86 processor names; others get the base of their architecture."""
    if cpu in ("x86-64-v4", "skylake-avx512", "cascadelake", "icelake-server", "sapphirerapids", "znver4", "znver5"):
        return ("sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl")
    if cpu in ("x86-64-v3", "haswell", "broadwell", "skylake", "znver1", "znver2", "znver3", "alderlake"):
        return ("sse4.2", "avx", "avx2", "fma", "f16c")
    return ("sse4.2",) if cpu == "x86-64-v2" else ()


def default_num_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
