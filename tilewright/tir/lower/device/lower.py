"""From block form, scheduled for threads or not, to a host function and its kernels, in flat form: the whole way as one list.

    @T.prim_func                                        host:    main_kernel(A.data, B.data, 4, 32)
    def main(A, B):                                     kernel:  with T.launch_thread("blockIdx.x", 4) as bx:
        for bx in T.thread_binding(4, "blockIdx.x"): ▶               with T.launch_thread("threadIdx.x", 32) as tx:
            for tx in T.thread_binding(32, ...): ...                     B[bx*32 + tx] = ...

A kernel's parameters are pointers, then scalars, each by name. Its attributes: `global_symbol`, `calling_conv` 2, `target`,
`tir.is_global_func`, `tir.noalias`, and `tir.kernel_launch_params`: the names of its numbers of blocks and threads (and of bytes
of dynamic shared memory), in the order in which the host passes them after the parameters.

The host keeps the parameters of the function, buffers as buffers. It launches a kernel by `Evaluate(call_packed("<symbol>", ...))`.
Memory that several kernels share is an `Allocate` of the host around their launches, with the annotation
`{"device_memory": True}`: it is to be had from the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.ir.module import IRModule
from tilewright.ir.node import replace, walk
from tilewright.ir.op import GlobalVar
from tilewright.ir.rewrite import Mutator, collect
from tilewright.ir.target import Target
from tilewright.tir import ir as t
from tilewright.tir.lower.device.check import check_kernel
from tilewright.tir.lower.device.races import check_local_memory, check_updates
from tilewright.tir.lower.vectorize_loops import vectorize_loops
from tilewright.tir.transform.compact_buffers import compact_buffers
from tilewright.tir.transform.convert_blocks import convert_blocks
from tilewright.tir.transform.flatten_buffer import flatten_buffer
from tilewright.tir.transform.gpu.annotate_device_regions import annotate_device_regions
from tilewright.tir.transform.gpu.async_copies import async_copies
from tilewright.tir.transform.gpu.common import launch
from tilewright.tir.transform.gpu.default_gpu_schedule import default_gpu_schedule
from tilewright.tir.transform.gpu.infer_fragment import infer_fragment
from tilewright.tir.transform.gpu.inject_permuted_layout import inject_permuted_layout
from tilewright.tir.transform.gpu.inject_software_pipeline import inject_software_pipeline
from tilewright.tir.transform.gpu.inject_virtual_thread import inject_virtual_thread
from tilewright.tir.transform.gpu.lift_thread_binding import lift_thread_binding
from tilewright.tir.transform.gpu.lower_auto_copy import lower_auto_copy
from tilewright.tir.transform.gpu.lower_cross_thread_reduction import lower_cross_thread_reduction
from tilewright.tir.transform.gpu.lower_device_kernel_launch import lower_device_kernel_launch
from tilewright.tir.transform.gpu.lower_thread_allreduce import lower_thread_allreduce
from tilewright.tir.transform.gpu.lower_warp_memory import lower_warp_memory
from tilewright.tir.transform.gpu.manifest_shared_memory_local_stage import manifest_shared_memory_local_stage
from tilewright.tir.transform.gpu.merge_shared_memory import merge_shared_memory
from tilewright.tir.transform.gpu.split_host_device import split_host_device
from tilewright.tir.transform.gpu.thread_sync import thread_sync
from tilewright.tir.transform.gpu.transform_mma_buffer_layout import transform_mma_buffer_layout
from tilewright.tir.transform.gpu.unify_thread_binding import unify_thread_binding
from tilewright.tir.transform.lower_init_block import lower_init_block
from tilewright.tir.transform.lower_match_buffer import lower_match_buffer
from tilewright.tir.transform.lower_opaque_block import lower_opaque_block
from tilewright.tir.transform.plan_buffers import plan_buffers
from tilewright.tir.transform.simplify import simplify_func

__all__ = ["DEVICE_PIPELINE", "DeviceProgram", "lower_device"]


class DeviceProgram(NamedTuple):
    """A host function and the kernels that it launches; see the head of the module."""

    host: t.PrimFunc
    kernels: tuple[t.PrimFunc, ...]


def _sync_shared(f: t.PrimFunc) -> t.PrimFunc:
    return thread_sync(f, "shared")


def _sync_shared_dyn(f: t.PrimFunc) -> t.PrimFunc:
    return thread_sync(f, "shared.dyn")


DEVICE_PIPELINE: Sequence[Callable[[t.PrimFunc], t.PrimFunc]] = (
    lower_cross_thread_reduction,  # reductions over threads ▸ a part each, and one call that combines
    check_updates,  # a reduction that threads would race on is refused
    lower_init_block,  # T.init ▸ a branch
    plan_buffers,  # buffers allocated where they are used
    convert_blocks,  # block iterators ▸ their values
    manifest_shared_memory_local_stage,  # marked copies to shared memory ▸ through registers
    lift_thread_binding,  # thread loops ▸ where those of one index can be one
    compact_buffers,  # buffers ▸ only what is used of them
    lower_auto_copy,  # annotated copies ▸ spread over threads
    unify_thread_binding,  # one variable for each thread index, launched outermost
    lower_match_buffer,  # views ▸ what they view
    simplify_func,
    inject_permuted_layout,  # annotated blocks ▸ shared memory without bank conflicts
    inject_software_pipeline,  # annotated loops ▸ prologue, body, epilogue
    transform_mma_buffer_layout,  # matrices of mma ▸ registers
    lower_opaque_block,  # blocks ▸ statements
    flatten_buffer,  # accesses ▸ offsets
    simplify_func,
    vectorize_loops,  # VECTORIZED loops ▸ ramps
    inject_virtual_thread,  # virtual threads ▸ copies
    simplify_func,
    _sync_shared,  # barriers
    _sync_shared_dyn,
    infer_fragment,  # fragments of tensor cores ▸ their shapes and layouts
    lower_thread_allreduce,  # reductions over threads ▸ shuffles, or steps in shared memory
    async_copies,  # asynchronous stages ▸ cp.async, groups and waits; elsewhere plain copies
    annotate_device_regions,
)
"""The passes on one function, in order. Then its device regions become kernels."""


def lower_device(f: t.PrimFunc, target: str | Target) -> DeviceProgram:
    """`f`, in block form, for a GPU target; where it binds no threads, by the default schedule.

    Raises DeviceError (a CompileError) TW056x, TW057x on what cannot run there.
    """
    device = Target(target)
    if not launches_threads(f.body):
        f = default_gpu_schedule(f, device)
    name = str(f.attrs.get("global_symbol") or "main")
    f = f.with_attr({"target": device, "global_symbol": name})
    for run in DEVICE_PIPELINE:
        f = run(f)
    var = GlobalVar(name)
    mod = split_host_device(_with_host(IRModule({var: f})))
    mod = mod.with_({v: _finish(k) for v, k in mod.functions.items() if v is not var and isinstance(k, t.PrimFunc)})
    mod = lower_device_kernel_launch(mod)
    host = mod.functions[var]
    kernels = tuple(k for v, k in mod.functions.items() if v is not var and isinstance(k, t.PrimFunc))
    assert isinstance(host, t.PrimFunc)
    for k in kernels:
        check_kernel(k)
        check_local_memory(k)
    return DeviceProgram(_finish_host(host), kernels)


def launches_threads(body: t.Stmt) -> bool:
    """Is a loop bound to a thread index, or a thread axis launched?"""
    return any(launch(n) is not None for n in walk(body) if isinstance(n, t.Stmt))


def _with_host(mod: IRModule) -> IRModule:
    """The functions as the host's, so that calls from them to the device are launches."""
    return mod.with_({
        v: f.with_attr("target", Target("llvm")) for v, f in mod.functions.items() if isinstance(f, t.PrimFunc)
    })  # fmt: skip


class _Strip(Mutator):
    """Takes declarations of buffers away: flat code needs none."""

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_DeclBuffer(self, s: t.DeclBuffer) -> t.Stmt:
        return self.visit(s.body)

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        if s.attr_key in ("reduce_scope", "volatile_scope"):
            return self.visit(s.body)
        return self.generic(s)

    def visit_SeqStmt(self, s: t.SeqStmt) -> t.Stmt:
        return t.seq(*(self.visit(x) for x in s.seq))


class _DeviceMemory(_Strip):
    """Marks the host's allocations as memory of the device."""

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        new = self.generic(s)
        return replace(new, annotations={**s.annotations, "device_memory": True})


class _Hoist(Mutator):
    """Takes the allocations of a kernel, and what is said of fragments, to just inside its innermost launch: memory of a block is
    declared there only."""

    def __init__(self) -> None:
        self.found: list[t.Allocate | t.AttrStmt] = []
        """Innermost first."""

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        body = self.visit(s.body)
        if s.attr_key in ("fragment_shape", "fragment_layout"):
            self.found.append(s)
            return body
        if launch(s) is not None:
            for x in self.found:
                body = replace(x, body=body)
            self.found.clear()
        return s if body is s.body else replace(s, body=body)

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        body = self.visit(s.body)
        if not all(isinstance(x, IntImm) for x in s.extents):
            return s if body is s.body else replace(s, body=body)
        self.found.append(s)
        return body


def _finish(kernel: t.PrimFunc) -> t.PrimFunc:
    kernel = kernel.with_body(_Hoist().visit(_Strip().visit(kernel.body)))
    kernel = lower_warp_memory(merge_shared_memory(kernel, "shared.dyn"))
    return simplify_func(_own_names(kernel))


def _own_names(kernel: t.PrimFunc) -> t.PrimFunc:
    """The kernel with variables of its own: none is shared with the host."""
    from tilewright.tir.stmt_functor import renew_defs

    declared: dict[Any, None] = dict.fromkeys(collect(kernel.body, t.Buffer))
    body = kernel.body
    for b in declared:
        body = t.DeclBuffer(b, body)
    renewed = renew_defs(kernel.with_body(body))
    return renewed.with_body(_Strip().visit(renewed.body))


def _finish_host(host: t.PrimFunc) -> t.PrimFunc:
    host = host.with_body(_DeviceMemory().visit(host.body))
    return simplify_func(host)
