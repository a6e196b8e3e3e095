"""Targets: what machine code is made for.

    Target("llvm")                                     this machine's CPU
    Target("llvm -mcpu=znver3 -num-cores=2")           options as of the field: -mcpu -mattr -mtriple -num-cores -keys ...
    Target({"kind": "llvm", "mcpu": "cortex-a72"})     the same from a table

    Target("nvidia/nvidia-a100", host="llvm")          a machine by its name (target_tags.py); the CPU's part by `host`

Kinds and options stand in target_kinds.py.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from functools import cached_property
from types import TracebackType
from typing import Any, ClassVar, NamedTuple

from tilewright.ir.target_kinds import KINDS, TargetKind, option_value, parse_command_line, refuse
from tilewright.ir.target_tags import TAGS

__all__ = ["KINDS", "TAGS", "Features", "HostInfo", "Target", "TargetKind", "host_info", "list_tags"]


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
        self,
        target: str | Mapping[str, Any] | Target = "llvm",
        host: str | Mapping[str, Any] | Target | None = None,
    ) -> None:
        self.tag = ""
        if isinstance(target, Target):
            name, options = target.kind.name, dict(target.given)
            options.setdefault("host", target.host)
            self.tag = target.tag
        elif isinstance(target, str):
            name, options = parse_command_line(str(target))
        elif isinstance(target, Mapping):
            table: dict[str, Any] = {str(k): v for k, v in target.items()}
            tag = table.pop("tag", "")
            name = str(table.pop("kind", "") or tag)
            options = {"num-cores" if k == "num_cores" else k: v for k, v in table.items()}
        else:
            raise TypeError(f"a target is a str, a dict or a Target, not {type(target).__name__}")
        if name in TAGS:
            self.tag = name
            base = dict(TAGS[name])
            name, options = str(base.pop("kind")), {**base, **options}
        if name not in KINDS:
            known = ", ".join(sorted(KINDS))
            what = "tag" if "/" in name else "kind"
            raise refuse(f"unknown target {what} {name!r}", f"known kinds: {known}; tags: tvm.target.list_tags()")
        self.kind: TargetKind = KINDS[name]
        own_host = options.pop("host", None)
        self.given: dict[str, Any] = {k: option_value(k, v) for k, v in options.items() if v is not None}
        if "devices" in self.given:
            self.given["devices"] = [Target(d) for d in self.given["devices"]]
        self.attrs: dict[str, Any] = {
            **dict(self.kind.defaults),
            **{k: v for k, v in self.given.items() if k != "keys"},
        }
        self._set_host(host if host is not None else own_host)

    def _set_host(self, host: Any) -> None:
        if host is not None and not isinstance(host, (str, Mapping, Target)):
            raise ValueError(f"target host has to be a string or dictionary, not {type(host).__name__}")
        self.host: Target | None = Target(host) if host is not None else None

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
    def features(self) -> Features:
        """The names of the CPU features that code may use (`avx2`, `fma`, `neon`, ...); also as `features.has_dotprod`."""
        given = {f.lstrip("+") for f in self.mattr if f.startswith("+")}
        removed = {f.lstrip("-") for f in self.mattr if f.startswith("-")}
        if "mtriple" in self.attrs and self.attrs["mtriple"] != host_info().triple:
            base: frozenset[str] = frozenset(_ARCH_FEATURES.get(str(self.attrs["mtriple"]).split("-")[0], ()))
        elif self.attrs.get("mcpu", host_info().cpu) == host_info().cpu:
            base = host_info().features
        else:
            base = frozenset(_cpu_features(self.mcpu))
        return Features((base | given) - removed)

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
        device = self.attrs.get("device")
        found = [*self.given.get("keys", ()), *((device,) if device else ()), *self.kind.default_keys]
        return list(dict.fromkeys(found))

    # ---- options by their names

    @property
    def arch(self) -> str:
        """The architecture of a GPU (`sm_80`)."""
        return str(self.attrs.get("arch", ""))

    @property
    def libs(self) -> list[str]:
        """Vendor libraries that may be used."""
        return list(self.attrs.get("libs", ()))

    @property
    def model(self) -> str:
        """The name of the machine, for tuning records."""
        return str(self.attrs.get("model", "unknown"))

    @property
    def device_name(self) -> str:
        """The option -device."""
        return str(self.attrs.get("device", ""))

    @property
    def mfloat_abi(self) -> str:
        """The option -mfloat-abi."""
        return str(self.attrs.get("mfloat-abi", ""))

    @property
    def max_num_threads(self) -> int:
        """How many threads a block may have; ValueError for a target that has none."""
        return self._number("max_num_threads")

    @property
    def max_block_size_x(self) -> int:
        """How many threads a block may have along x."""
        return int(self.attrs.get("max_block_size_x", self.max_num_threads))

    @property
    def max_block_size_y(self) -> int:
        """How many threads a block may have along y."""
        return int(self.attrs.get("max_block_size_y", self.max_num_threads))

    @property
    def thread_warp_size(self) -> int:
        """Threads that run in step; ValueError for a target that has none."""
        return self._number("thread_warp_size")

    @property
    def max_shared_memory_per_block(self) -> int:
        """Bytes of shared memory of a block; ValueError where it is not known."""
        return self._number("max_shared_memory_per_block")

    @property
    def max_function_args(self) -> int:
        """How many arguments a kernel may have; 0 where it is not known."""
        return int(self.attrs.get("max_function_args", 0))

    @property
    def vtcm_capacity(self) -> int:
        """Bytes of the vector memory of Hexagon."""
        return int(self.attrs.get("vtcm-capacity", 0))

    @property
    def supports_integer_dot_product(self) -> bool:
        """Has the device dot products of 8-bit integers?"""
        given = self.attrs.get("supports_integer_dot_product")
        if given is not None:
            return bool(given)
        return self.kind.name == "cuda" and int(self.arch.removeprefix("sm_").rstrip("af") or 0) >= 61

    def _number(self, name: str) -> int:
        found = self.attrs.get(name)
        if found is None:
            raise ValueError(f"target {self} says nothing of {name}")
        return int(found)

    def get_kind_attr(self, name: str) -> Any:
        """What is known of the kind; None for what is not."""
        return {"is_external_codegen": False}.get(name)

    def get_target_device_type(self) -> int:
        """DLPack's number of the device that code of this target runs on."""
        given = self.attrs.get("target_device_type")
        return int(given) if given is not None else _DEVICE_TYPES[self.kind.device_type]

    def export(self) -> dict[str, Any]:
        """The target as a table, from which `Target` makes it again."""
        table: dict[str, Any] = {"kind": self.kind.name, "tag": self.tag, "keys": self.keys, **self.attrs}
        if "devices" in table:
            table["devices"] = [d.export() for d in table["devices"]]
        if self.host is not None:
            table["host"] = self.host.export()
        return table

    @staticmethod
    def list_kinds() -> list[str]:
        """The kinds there are."""
        return list(KINDS)

    @staticmethod
    def from_device(device: Any) -> Target:
        """The target of a device that is here ("cuda", or a device object): its limits and its architecture.

        Raises CompileError TW0670 where there is no such device.
        """
        from tilewright.support.lazy import resolve

        return Target(resolve("runtime.describe")(device))

    @staticmethod
    def canon_target(target: Any) -> Target | None:
        """The target, made of what stands for it; None stays."""
        return target if target is None or isinstance(target, Target) else Target(target)

    @staticmethod
    def canon_target_and_host(target: Any, target_host: Any = None) -> tuple[Target | None, Target | None]:
        """Target and host, each made of what stands for it; the target carries the host."""
        if target is None:
            if target_host is not None:
                raise ValueError("a host without a target")
            return None, None
        made = Target(target, target_host) if target_host is not None else Target(target)
        return made, made.host

    @staticmethod
    def canon_multi_target_and_host(target: Any, target_host: Any = None) -> list[Target]:
        """A list of targets, each with the host, of one or several."""
        given = list(target) if isinstance(target, (list, tuple)) else [target]
        return [made for made in (Target.canon_target_and_host(t, target_host)[0] for t in given) if made is not None]

    @staticmethod
    def canon_target_map_and_host(
        target_map: Mapping[Any, Any], target_host: Any = None
    ) -> tuple[dict[Target, Any], Target | None]:
        """A map of targets, each with the host."""
        host = Target(target_host) if target_host is not None else None
        made: dict[Target, Any] = {}
        for t, mod in target_map.items():
            one = Target(t, host) if host is not None else Target(t)
            host = host or one.host
            made[one] = mod
        return made, host

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
        for key, value in sorted(self.given.items()):
            text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            parts.append(f"-{key}={shlex.quote(text) if ' ' in text else text}")
        return " ".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return Target, ({"kind": self.kind.name, **self.given}, self.host)

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    @cached_property
    def _key(self) -> str:
        """Text that equal targets share: what they mean, not how it was written."""
        options = sorted((k, [d._key for d in v] if k == "devices" else str(v)) for k, v in self.attrs.items())
        return f"{self.kind.name} {self.keys} {options}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._key == other._key and self.host == other.host

    def __hash__(self) -> int:
        return hash(self._key)

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


_DEVICE_TYPES = {
    "cpu": 1,
    "cuda": 2,
    "opencl": 4,
    "vulkan": 7,
    "metal": 8,
    "rocm": 10,
    "ext_dev": 12,
    "webgpu": 15,
    "hexagon": 16,
}
"""DLPack's numbers."""


class Features(frozenset[str]):
    """CPU features by name; as attributes in the field's words: `has_dotprod`, `has_sve`, `is_aarch64`. None for words unknown."""

    def __getattr__(self, name: str) -> bool | None:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _FEATURE_WORDS:
            return bool(self & set(_FEATURE_WORDS[name]))
        return name.removeprefix("has_") in self if name.startswith("has_") else None


_FEATURE_WORDS = {
    "has_asimd": ("neon", "asimd"), "has_sve": ("sve", "sve2"), "has_sme": ("sme", "sme2"), "has_dotprod": ("dotprod",),
    "has_matmul_i8": ("i8mm",), "has_fp16_simd": ("fullfp16",), "is_aarch64": ("neon", "asimd"), "has_dsp": ("dsp",),
}  # fmt: skip


def list_tags() -> dict[str, Target]:
    """All names of machines, with the targets they stand for."""
    return {name: Target(name) for name in TAGS}


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
