"""What this machine's CPU offers, as LLVM and the operating system tell it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tilewright.ir.target import HostInfo

__all__ = ["cache_bytes", "host_info", "physical_cores"]


@cache
def host_info() -> HostInfo:
    """LLVM's name of this CPU, its features, its caches, its physical cores. Asked once a process."""
    ll: Any = import_module("llvmlite.binding")
    features = ll.get_host_cpu_features()
    found = frozenset(str(name) for name, on in features.items() if on)
    l1, l2 = cache_bytes()
    return HostInfo(str(ll.get_host_cpu_name()), str(ll.get_process_triple()), found, l1, l2, physical_cores())


def cache_bytes() -> tuple[int, int]:
    """Sizes of the first-level data cache and of the second level of a core; usual ones where the system does not say."""
    if sys.platform == "darwin":
        l1 = _sysctl("hw.perflevel0.l1dcachesize") or _sysctl("hw.l1dcachesize")
        return l1 or 65536, _sysctl("hw.perflevel0.l2cachesize") or _sysctl("hw.l2cachesize") or 1 << 20
    sizes = {1: 0, 2: 0}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level = int((index / "level").read_text())
            kind = (index / "type").read_text().strip()
            text = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if level in sizes and kind != "Instruction":
            scale = {"K": 1024, "M": 1 << 20}.get(text[-1:], 1)
            sizes[level] = int(text.rstrip("KM")) * scale
    return sizes[1] or 32 * 1024, sizes[2] or 512 * 1024


def physical_cores() -> int:
    """The physical cores that this process may run on: hardware threads of one core count once."""
    if hasattr(os, "sched_getaffinity"):
        cores: set[tuple[str, str]] = set()
        for cpu in os.sched_getaffinity(0):
            base = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
            try:
                cores.add(((base / "physical_package_id").read_text(), (base / "core_id").read_text()))
            except OSError:
                return len(os.sched_getaffinity(0))
        return len(cores) or 1
    if sys.platform == "darwin":
        return _sysctl("hw.physicalcpu") or os.cpu_count() or 1
    count = os.cpu_count() or 1
    return max(1, count // 2) if platform.machine().lower() in ("amd64", "x86_64") else count


def _sysctl(name: str) -> int:
    try:
        out = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False).stdout
        return int(out)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0
