"""What the GPU passes share: their error class, how a function becomes a pass, thread axes, what a target can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import PrimExpr, Var, cast, const, pointer_var
from tilewright.ir.passes import Pass
from tilewright.ir.target import Target
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.transform.base import NOTHING, TRUE, func_pass

__all__ = [
    "Bind", "DeviceError", "Limits", "NOTHING", "TRUE", "allocate", "check_same_extent", "func_pass", "index_dtype", "is_thread_tag", "launch", "limits_of",
    "local_buffer", "mod_pass", "target_of",
]  # fmt: skip


class DeviceError(CompileError, ValueError):
    """A program that cannot run on the device as it is scheduled; a ValueError too, as users of this field expect."""


def mod_pass(name: str, run: Callable[[Any], Any]) -> Pass:
    """The pass that applies `run` to a module."""
    return Pass(lambda mod, ctx: run(mod), "tir." + name, doc=run.__doc__)


def is_thread_tag(tag: str) -> bool:
    """Is it an index of a thread in its block, real or virtual?"""
    return tag.startswith(("threadIdx", "vthread")) or tag == "cthread"


class Bind(NamedTuple):
    """A thread axis: its variable, its name (`threadIdx.x`), how many there are."""

    var: Var
    tag: str
    extent: PrimExpr


def launch(s: t.Stmt) -> Bind | None:
    """The thread axis that a statement launches (an attribute, or a loop bound to threads), or None."""
    if isinstance(s, t.AttrStmt) and s.attr_key in ("thread_extent", "virtual_thread"):
        node = s.node
        if isinstance(node, t.IterVar):
            return Bind(node.var, node.thread_tag, s.value)
    if isinstance(s, t.For) and s.kind == t.ForKind.THREAD_BINDING and s.thread_binding is not None:
        return Bind(s.loop_var, s.thread_binding.thread_tag, s.extent)
    return None


def check_same_extent(tag: str, low_a: PrimExpr, low_b: PrimExpr, a: PrimExpr, b: PrimExpr) -> None:
    """Raise TW0560 unless two loops bound to the same thread index run over the same range."""
    ana = Analyzer()
    for x, y in ((low_a, low_b), (a, b)):
        if not ana.can_prove_equal(x, cast(y, x.dtype)):
            raise DeviceError.at(
                "TW0560",
                f"loops bound to {tag} in one kernel have different extents: {a} and {b}",
                hint="give them the same extent (a loop that needs fewer threads gets a predicate), or bind them to other axes",
            )


def local_buffer(name: str, dtype: str, shape: tuple[int, ...] = (1,), scope: str = "local") -> t.Buffer:
    """A new buffer of a constant shape in a memory scope."""
    return t.Buffer(pointer_var(name, dtype, scope), dtype, tuple(const(n, "int32") for n in shape), (), None, name)


def allocate(buffer: t.Buffer, body: t.Stmt, annotations: dict[str, Any] | None = None) -> t.Stmt:
    """`body` with memory for `buffer`."""
    inner = t.DeclBuffer(buffer, body)
    return t.Allocate(buffer.data, buffer.dtype, buffer.shape, TRUE, inner, annotations or {})


def target_of(f: t.PrimFunc) -> Target | None:
    """The target that a function is marked with."""
    found = f.attrs.get("target")
    return found if isinstance(found, Target) else None


class Limits(NamedTuple):
    """What one block may use on a device: threads, bytes of shared memory, threads in a warp (1: no warps to speak of)."""

    threads: int
    shared_bytes: int
    warp: int


_LIMITS = {
    "cuda": Limits(1024, 49152, 32),
    "rocm": Limits(1024, 65536, 64),
    "opencl": Limits(256, 16384, 1),
    "metal": Limits(1024, 32768, 32),
    "webgpu": Limits(256, 16384, 1),
    "vulkan": Limits(256, 16384, 1),
}


def limits_of(target: Target | None) -> Limits:
    """The limits of a target: its options (`max_num_threads`, `max_shared_memory_per_block`, `thread_warp_size`) or its kind's."""
    base = _LIMITS.get(target.kind.name if target is not None else "", Limits(1024, 49152, 1))
    attrs: dict[str, Any] = target.attrs if target is not None else {}

    def option(*names: str, default: int) -> int:
        return next((int(attrs[n]) for n in names if n in attrs), default)

    return Limits(
        option("max_threads_per_block", "max_num_threads", default=base.threads),
        option("max_shared_memory_per_block", default=base.shared_bytes),
        option("thread_warp_size", default=base.warp),
    )


def index_dtype(extent: PrimExpr) -> str:
    """The dtype of a thread index over `extent` threads."""
    return extent.dtype
