"""Does lowered code keep within the limits of a GPU?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arith.expr import Cast, IntImm, PrimExpr
from tilewright.ir import dtype as dt
from tilewright.ir.node import children, walk
from tilewright.ir.op import PointerType
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t

__all__ = ["verify_gpu_code"]

_KNOWN = (
    "max_local_memory_per_block", "max_shared_memory_per_block", "max_threads_per_block", "max_thread_x", "max_thread_y", "max_thread_z",
    "max_vthread", "max_vector_bytes", "max_kernels",
)  # fmt: skip


def verify_gpu_code(func: t.PrimFunc, constraints: Mapping[str, Any]) -> bool:
    """Does each kernel of `func`, in flat form with its threads launched, keep within `constraints`?

    `max_local_memory_per_block`, `max_shared_memory_per_block`, `max_vector_bytes`: bytes; `max_threads_per_block`,
    `max_thread_x` (`y`, `z`), `max_vthread`, `max_kernels`: numbers. Threads of one index with two extents do not pass either.
    Raises CompileError TW0583 for a constraint that is not known.
    """
    limits: dict[str, int] = {}
    for key, value in constraints.items():
        if key not in _KNOWN:
            raise CompileError.at(
                "TW0583", f"there is no limit {key!r} of GPU code", hint=f"there are: {', '.join(_KNOWN)}"
            )
        limits[key] = int(getattr(value, "value", value))
    kernels = _kernels(func.body)
    if len(kernels) > limits.get("max_kernels", len(kernels)):
        return False
    return all(_fits(k, limits) for k in kernels)


def _kernels(s: Any) -> list[t.AttrStmt]:
    """The outermost launches."""
    if isinstance(s, t.AttrStmt) and s.attr_key in ("thread_extent", "virtual_thread"):
        return [s]
    if isinstance(s, PrimExpr) or s.identity:
        return []
    return [k for c in children(s) for k in _kernels(c)]


def _fits(kernel: t.AttrStmt, limits: Mapping[str, int]) -> bool:
    extents: dict[str, int] = {}
    sizes = {"local": 0, "shared": 0}
    virtual = 1
    for n in walk(kernel):
        if isinstance(n, t.AttrStmt) and n.attr_key in ("thread_extent", "virtual_thread"):
            tag = n.node.thread_tag
            if not isinstance(n.value, IntImm):
                continue
            if n.attr_key == "virtual_thread":
                virtual *= n.value.value
            elif extents.setdefault(tag, n.value.value) != n.value.value:
                return False
        elif isinstance(n, t.Allocate):
            kind = n.buffer_var.type_annotation
            scope = kind.storage_scope if isinstance(kind, PointerType) else "global"
            size = dt.bits(n.dtype) * dt.lanes(n.dtype) // 8
            for x in n.extents:
                size *= x.value if isinstance(x, IntImm) else 1
            if scope in sizes:
                sizes[scope] += size
        if isinstance(n, (t.BufferLoad, Cast)) and _bytes(n.dtype) > limits.get("max_vector_bytes", 1 << 30):
            return False
        if isinstance(n, t.BufferStore) and _bytes(n.value.dtype) > limits.get("max_vector_bytes", 1 << 30):
            return False
    threads = 1
    for tag, n in extents.items():
        if tag.startswith("threadIdx."):
            threads *= n
            if n > limits.get(f"max_thread_{tag[-1]}", n):
                return False
    return (
        threads <= limits.get("max_threads_per_block", threads)
        and virtual <= limits.get("max_vthread", virtual)
        and sizes["local"] <= limits.get("max_local_memory_per_block", sizes["local"])
        and sizes["shared"] <= limits.get("max_shared_memory_per_block", sizes["shared"])
    )


def _bytes(dtype: str) -> int:
    return 0 if dtype in ("handle", "void") or dt.lanes(dtype) == 1 else dt.bits(dtype) * dt.lanes(dtype) // 8
