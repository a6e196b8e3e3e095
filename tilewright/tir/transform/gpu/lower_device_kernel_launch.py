"""Calls of device functions become launches: `kernel(a)` ▶ `call_packed("kernel", a, 16, 32)` with its numbers of threads.

Which numbers they are, and in which order, the kernel says in its attribute `tir.kernel_launch_params`.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Call, IntImm, PrimExpr, StringImm, Var, cast, mul
from tilewright.ir.module import IRModule
from tilewright.ir.node import replace, walk
from tilewright.ir.op import GlobalVar, Op, PointerType
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator, substitute
from tilewright.ir.target import Target
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError, launch, mod_pass, target_of
from tilewright.tir.transform.gpu.split_host_device import bytes_of

__all__ = ["LowerDeviceKernelLaunch", "launch_params", "lower_device_kernel_launch"]

DYN_SHARED = "tir.use_dyn_shared_memory"


def launch_params(kernel: t.PrimFunc) -> dict[str, PrimExpr]:
    """The launch parameters of a kernel by name, in order, as expressions of its params. Raises TW0562 where two differ."""
    out: dict[str, PrimExpr] = {}
    dyn: PrimExpr | None = None
    for n in walk(kernel.body):
        if isinstance(n, t.AttrStmt) and n.attr_key == "thread_extent":
            axis = launch(n)
            if axis is not None:
                out.setdefault(axis.tag, axis.extent)
        elif isinstance(n, t.Allocate) and _scope(n.buffer_var) == "shared.dyn":
            if dyn is not None:
                raise DeviceError.at(
                    "TW0562",
                    "a kernel has one allocation of dynamic shared memory; this one has several",
                    hint="run MergeSharedMemoryAllocations() before",
                )
            dyn = IntImm("int32", bytes_of(n.dtype))
            for x in n.extents:
                dyn = mul(cast(x, "int32") if not isinstance(x, IntImm) else IntImm("int32", x.value), dyn)
    if dyn is not None:
        out[DYN_SHARED] = dyn
    return out


def _scope(v: Var) -> str:
    kind = v.type_annotation
    return kind.storage_scope if isinstance(kind, PointerType) else "global"


class _Callee:
    def __init__(self, var: GlobalVar, f: t.PrimFunc) -> None:
        self.f = f
        self.target = target_of(f)
        self.symbol = str(f.attrs.get("global_symbol") or var.name_hint)
        self.params = launch_params(f)


def lower_device_kernel_launch(mod: IRModule) -> IRModule:
    """The module with calls from one target to another as launches (other device) or external calls (same device)."""
    callees = {v: _Callee(v, f) for v, f in mod.functions.items() if isinstance(f, t.PrimFunc)}
    run = _Lower(callees)
    out: dict[Any, Any] = {}
    for var, f in mod.functions.items():
        if isinstance(f, t.PrimFunc):
            run.target = target_of(f)
            body = run.visit(f.body)
            if body is not f.body:
                f = replace(f, body=body)
        out[var] = f
    for var in run.launched | run.extern:
        info = callees[var]
        attrs: dict[str, Any] = {"global_symbol": info.symbol, "tir.is_global_func": True}
        if var in run.launched:
            attrs = {"calling_conv": 2, "tir.kernel_launch_params": list(info.params), **attrs}
        out[var] = out[var].with_attr(attrs)
    same = all(out[v] is f for v, f in mod.functions.items())
    return mod if same else IRModule(out, mod.attrs)


def LowerDeviceKernelLaunch() -> Pass:
    """Calls of kernels become launches; see `lower_device_kernel_launch`."""
    return mod_pass("LowerDeviceKernelLaunch", lower_device_kernel_launch)


class _Lower(Mutator):
    def __init__(self, callees: dict[Any, _Callee]) -> None:
        self.callees = callees
        self.target: Target | None = None
        self.launched: set[Any] = set()
        self.extern: set[Any] = set()

    def visit_Call(self, e: Call) -> PrimExpr:
        args = tuple(self.visit(a) if isinstance(a, PrimExpr) else a for a in e.args)
        new = e if all(a is b for a, b in zip(args, e.args)) else Call(e.dtype, e.op, args)
        callee = self.callees.get(e.op) if isinstance(e.op, GlobalVar) else None
        if callee is None or callee.target is None or self.target is None:
            return new
        caller, target = Target(self.target), Target(callee.target)
        caller.host = target.host = None
        if caller == target:
            return new
        if caller.kind.device_type == target.kind.device_type:
            self.extern.add(e.op)
            return Call(e.dtype, Op.get("tir.call_extern"), (StringImm(callee.symbol), *args))
        self.launched.add(e.op)
        values: dict[Any, Any] = dict(zip(callee.f.params, args, strict=True))
        sizes = [substitute(x, values) for x in callee.params.values()]
        return Call("int32", Op.get("tir.tvm_call_packed"), (StringImm(callee.symbol), *args, *sizes))
