"""How many threads compiled code uses, and on which cores.

The pool itself is compiled code (backends/llvm/runtime_ir.py), one per process and shared by every artifact; it starts when
a parallel region first runs. Until then a chosen number is only remembered here.
"""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.support.diagnostics import CompileError
from tilewright.support.lazy import is_resolved, resolve

__all__ = ["cpu_order", "default_num_threads", "get_num_threads", "physical_cores", "set_num_threads"]

_MAX = 1024
_chosen: list[int] = []


def set_num_threads(n: int) -> None:
    """Use `n` threads in parallel regions, the calling one included; 0 chooses anew (`default_num_threads`).

    Raises ValueError for anything that is not a whole number from 0 to 1024.
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise ValueError(f"the number of threads must be an int, got {n!r} ({type(n).__name__})")
    if not 0 <= n <= _MAX:
        raise ValueError(f"the number of threads must lie in 0..{_MAX}, got {n}")
    _chosen[:] = [n] if n else []
    if is_resolved("runtime.pool"):
        resolve("runtime.pool")().set_num_threads(n or default_num_threads())


def get_num_threads() -> int:
    """How many threads a parallel region uses, the calling one included."""
    if is_resolved("runtime.pool"):
        return int(resolve("runtime.pool")().get_num_threads())
    return default_num_threads()


def default_num_threads() -> int:
    """What `set_num_threads` chose; else TILEWRIGHT_NUM_THREADS; else the physical cores this process may use.

    Raises CompileError TW0720 if the variable holds no number from 1 to 1024.
    """
    if _chosen:
        return _chosen[0]
    text = os.environ.get("TILEWRIGHT_NUM_THREADS", "").strip()
    if text:
        if not text.isdecimal() or not 1 <= int(text) <= _MAX:
            raise CompileError.at(
                "TW0720",
                f"TILEWRIGHT_NUM_THREADS is {text!r}, which is no number of threads",
                hint=f"set it to a number from 1 to {_MAX}, or unset it",
            )
        return int(text)
    return physical_cores()


@cache
def physical_cores() -> int:
    """Physical cores this process may use: its affinity mask without second threads of a core, cut by a container's quota."""
    cores = {_core_of(c) for c in _allowed()}
    n = len(cores) or int(resolve("host.info")().num_cores)
    quota = _cgroup_quota()
    return max(1, min(n, math.ceil(quota)) if quota else n)


@cache
def cpu_order() -> tuple[int, ...]:
    """The ids of the usable logical cores, one of each physical core first; empty where the system does not tell."""
    first: list[int] = []
    rest: list[int] = []
    seen: set[Any] = set()
    for cpu in _allowed():
        core = _core_of(cpu)
        (rest if core in seen else first).append(cpu)
        seen.add(core)
    return tuple(first + rest)


def _allowed() -> list[int]:
    affinity = getattr(os, "sched_getaffinity", None)
    return sorted(affinity(0)) if affinity is not None else []


def _core_of(cpu: int) -> tuple[str, ...]:
    base = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        return tuple((base / f).read_text().strip() for f in ("physical_package_id", "core_id"))
    except OSError:
        return (str(cpu),)


def _cgroup_quota() -> float | None:
    """Cores' worth of time that a Linux control group grants (version 2, then 1); None: no limit known."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        quota1 = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text())
        period1 = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text())
        return quota1 / period1 if quota1 > 0 and period1 > 0 else None
    except (OSError, ValueError):
        return None
