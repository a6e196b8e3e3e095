"""What the code generator can do: LLVM's version, its targets, the features of one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tilewright.ir.target import Target

__all__ = ["llvm_get_targets", "llvm_version_major", "target_has_features"]


def llvm_version_major(allow_none: bool = False) -> int:
    """The major version of LLVM."""
    del allow_none  # LLVM is always there
    ll: Any = import_module("llvmlite.binding")
    return int(ll.llvm_version_info[0])


def llvm_get_targets() -> list[str]:
    """The architectures that LLVM makes code for."""
    ll: Any = import_module("llvmlite.binding")
    ll.initialize_all_targets()
    names: list[str] = []
    for triple in ("x86_64", "aarch64", "arm", "riscv32", "riscv64", "wasm32", "hexagon", "nvptx64", "amdgcn"):
        try:
            ll.Target.from_triple(f"{triple}-unknown-unknown")
        except RuntimeError:
            continue
        names.append(triple)
    return names


def target_has_features(cpu_features: str | list[str], target: Any = None) -> bool:
    """Has the target (that in scope, else this machine's CPU) all of these CPU features?"""
    where = Target(target) if target is not None else Target.current() or Target("llvm")
    wanted = [cpu_features] if isinstance(cpu_features, str) else list(cpu_features)
    return all(f in where.features for f in wanted)
