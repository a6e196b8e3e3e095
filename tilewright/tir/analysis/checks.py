"""Questions about whole functions: memory that they need, whether they are pure, in bounds, touch device memory."""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.ir import dtype as dt
from tilewright.ir.module import IRModule, attrs_of
from tilewright.ir.node import children, walk
from tilewright.ir.passes import Pass, PassContext
from tilewright.support.diagnostics import CompileError, Diagnostic
from tilewright.tir import intrin
from tilewright.tir import ir as t

__all__ = [
    "OOBChecker", "PurityError", "assert_pure_function", "calculate_allocated_bytes", "calculate_constant_bytes", "calculate_workspace_bytes",
    "find_anchor_block", "get_vtcm_compaction_passes", "is_pure_function", "verify_memory",
]  # fmt: skip


def _size(extents: tuple[PrimExpr, ...]) -> int | None:
    total = 1
    for n in extents:
        if not isinstance(n, IntImm):
            return None
        total *= n.value
    return total


# ---- memory --------------------------------------------------------------------------------------------------------------


def calculate_allocated_bytes(func_or_mod: t.PrimFunc | IRModule) -> dict[str, Any]:
    """The greatest number of bytes that is allocated at one time, by memory scope; of a module, by function and scope."""
    if isinstance(func_or_mod, IRModule):
        funcs = {v.name_hint: f for v, f in func_or_mod.functions.items() if isinstance(f, t.PrimFunc)}
        return {name: _peaks(f) for name, f in funcs.items()}
    return {"main": _peaks(func_or_mod)}


def _peaks(f: t.PrimFunc) -> dict[str, int]:
    peak: dict[str, int] = {}
    now: dict[str, int] = {}

    def visit(n: Any) -> None:
        sizes: list[tuple[str, int]] = []
        if isinstance(n, (t.Allocate, t.AllocateConst)):
            scope = getattr(n.buffer_var.type_annotation, "storage_scope", "global")
            sizes.append((scope, (_size(n.extents) or 0) * dt.storage_bytes(n.dtype)))
        elif isinstance(n, t.Block):
            sizes += [(b.scope(), (_size(b.shape) or 0) * dt.storage_bytes(b.dtype)) for b in n.alloc_buffers]
        for scope, size in sizes:
            now[scope] = now.get(scope, 0) + size
            peak[scope] = max(peak.get(scope, 0), now[scope])
        if not n.identity:
            for c in children(n):
                if not isinstance(c, PrimExpr):
                    visit(c)
        for scope, size in sizes:
            now[scope] -= size

    visit(f.body)
    return peak


def calculate_workspace_bytes(func: t.PrimFunc, workspace_byte_alignment: int) -> int:
    """The bytes of workspace that a function needs at one time, each allocation rounded up to the alignment."""

    def visit(n: Any) -> int:
        own = 0
        if isinstance(n, t.Allocate):
            own = _aligned((_size(n.extents) or 0) * dt.storage_bytes(n.dtype), workspace_byte_alignment)
        elif isinstance(n, t.Block):
            for b in n.alloc_buffers:
                own += _aligned((_size(b.shape) or 0) * dt.storage_bytes(b.dtype), workspace_byte_alignment)
        inner = [visit(c) for c in children(n) if isinstance(c, t.Stmt)] if not n.identity else []
        return own + max(inner, default=0)

    return visit(func.body)


def calculate_constant_bytes(func: t.PrimFunc, constant_byte_alignment: int) -> int:
    """The bytes of constants that a function holds, each rounded up to the alignment."""
    sizes = [
        (_size(n.extents) or 0) * dt.storage_bytes(n.dtype) for n in walk(func.body) if isinstance(n, t.AllocateConst)
    ]
    return sum(_aligned(n, constant_byte_alignment) for n in sizes)


def _aligned(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment


# ---- purity --------------------------------------------------------------------------------------------------------------


def _impurity(f: t.PrimFunc) -> str | None:
    """What a function does beyond computing values from its arguments and the memory that it allocates."""
    own: set[Var] = set()
    for n in walk(f.body):
        if isinstance(n, (t.Allocate, t.AllocateConst)):
            own.add(n.buffer_var)
        elif isinstance(n, t.Block):
            own.update(b.data for b in n.alloc_buffers)
    for n in walk(f.body):
        if isinstance(n, t.BufferStore) and n.buffer.data not in own:
            return f"it writes to the buffer {n.buffer.name}"
        if isinstance(n, ex.Call) and getattr(n.op, "name", "") != "tir.ret" and intrin.effect_of(n.op) == "opaque":
            return f"it calls {getattr(n.op, 'name', getattr(n.op, 'name_hint', n.op))}"
    return None


class PurityError(CompileError, AssertionError):
    """A function is not pure; an AssertionError, as programs of this field expect."""


def is_pure_function(func: t.PrimFunc) -> bool:
    """Does the function depend on its arguments (and the memory they point to) alone, and do nothing but return a value?"""
    return _impurity(func) is None


def assert_pure_function(func: t.PrimFunc) -> bool:
    """True where the function is pure; else TW0536 says why it is not."""
    why = _impurity(func)
    if why is not None:
        name = attrs_of(func).get("global_symbol", "the function")
        raise PurityError(Diagnostic("TW0536", f"{name} is not pure: {why}"))
    return True


# ---- bounds --------------------------------------------------------------------------------------------------------------


class _Bounds:
    def __init__(self, f: t.PrimFunc) -> None:
        self.ana = Analyzer()
        self.faults: list[str] = []
        for b in f.buffer_map.values():
            for n in b.shape:
                if isinstance(n, Var):
                    self.ana.mark_global_non_neg_value(n)
        self.visit(f.body)

    def visit(self, n: Any) -> None:
        if isinstance(n, t.For):
            self.ana.bind(n.loop_var, t.Range(n.min, n.extent))
        elif isinstance(n, t.BlockRealize):
            for iv in n.block.iter_vars:
                if iv.dom is not None:
                    self.ana.bind(iv.var, iv.dom)
        elif isinstance(n, (t.BufferLoad, t.BufferStore)):
            self.access(n.buffer, n.indices)
        if isinstance(n, t.IfThenElse) and n.condition.dtype == "bool":
            with self.ana.constraint_scope(n.condition):
                self.visit(n.then_case)
            if n.else_case is not None:
                self.visit(n.else_case)
            return
        if isinstance(n, ex.Call) and getattr(n.op, "name", "") == "tir.if_then_else":
            with self.ana.constraint_scope(n.args[0]):
                self.visit(n.args[1])
            self.visit(n.args[2])
            return
        if not n.identity:
            for c in children(n):
                if not isinstance(c, t.BufferRegion):
                    self.visit(c)

    def access(self, b: t.Buffer, indices: tuple[PrimExpr, ...]) -> None:
        for d, (i, n) in enumerate(zip(indices, b.shape, strict=True)):
            low: Any = i.base if isinstance(i, ex.Ramp) else i.value if isinstance(i, ex.Broadcast) else i
            if dt.lanes(low.dtype) != 1:
                continue
            high = low + i.stride * (i.lanes - 1) if isinstance(i, ex.Ramp) else low
            bound = self.ana.const_int_bound(low), self.ana.const_int_bound(high)
            top = self.ana.const_int_bound(n)
            if self.ana.can_prove(low < 0) or bound[0].max_value < 0 or -(1 << 62) < bound[0].min_value < 0:
                self.faults.append(f"dimension {d} of {b.name}: the index {low!r} may be less than 0")
            elif self.ana.can_prove(high >= ex.cast(n, high.dtype)) or (
                top.max_value < (1 << 62) and top.max_value <= bound[1].max_value < (1 << 62)
            ):
                self.faults.append(f"dimension {d} of {b.name}: the index {high!r} may reach {n!r}")


def OOBChecker() -> Pass:
    """A pass that raises TW0536 where an access is known to leave its buffer."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        for v, f in mod.functions.items():
            if isinstance(f, t.PrimFunc):
                faults = _Bounds(f).faults
                if faults:
                    raise CompileError.at(
                        "TW0536", f"{v.name_hint} accesses memory out of bounds: " + "; ".join(faults[:5])
                    )
        return mod

    return Pass(run, "tir.OOBChecker", doc=OOBChecker.__doc__)


# ---- devices -------------------------------------------------------------------------------------------------------------


def verify_memory(func: t.PrimFunc) -> bool:
    """Is memory that a device owns touched in its kernels only? Always true of a function for a CPU."""
    target = attrs_of(func).get("target")
    kind = getattr(getattr(target, "kind", None), "device_type", "cpu") if target is not None else "cpu"
    if kind == "cpu" or attrs_of(func).get("calling_conv") not in (None, 0):
        return True
    buffers = {b.data for b in func.buffer_map.values()}

    def fine(n: Any) -> bool:
        if isinstance(n, t.AttrStmt) and n.attr_key in ("thread_extent", "pipeline_exec_scope", "device_scope"):
            return True
        if isinstance(n, t.For) and n.thread_binding is not None:
            return True
        if isinstance(n, (t.BufferLoad, t.BufferStore)) and n.buffer.data in buffers:
            return False
        return n.identity or all(fine(c) for c in children(n))

    return fine(func.body)


# ---- anchors -------------------------------------------------------------------------------------------------------------


def find_anchor_block(mod: IRModule) -> t.Block | None:
    """The block of a module that does most of the work: a reduction with an init, the one with most iterations."""
    best: tuple[int, t.Block] | None = None
    for f in mod.functions.values():
        if not isinstance(f, t.PrimFunc):
            continue
        for n in walk(f.body):
            if isinstance(n, t.Block) and n.init is not None:
                size = _size(tuple(iv.dom.extent for iv in n.iter_vars if iv.dom is not None)) or 0
                if best is None or size > best[0]:
                    best = (size, n)
    return None if best is None else best[1]


def get_vtcm_compaction_passes() -> list[Pass]:
    """The passes from blocks to flat memory after which the size of allocations can be told."""
    from tilewright.support.lazy import resolve

    names = (
        "LowerInitBlock", "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque", "CompactBufferAllocation",
        "LowerMatchBuffer", "LowerOpaqueBlock", "FlattenBuffer", "Simplify",
    )  # fmt: skip
    passes = resolve("tir.transform")
    return [getattr(passes, name)() for name in names]
