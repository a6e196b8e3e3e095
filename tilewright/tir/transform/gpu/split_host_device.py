"""Each region marked with a target becomes a function of its own, called from where it was.

def main(A):                                  def main(A): main_kernel(A.data)
    with T.attr(target, "target", 0): s   ▶   def main_kernel(A_data): s          # "target": the region's
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import EQ, Call, IntImm, StringImm, Var, cmp
from tilewright.ir import dtype as dt
from tilewright.ir.module import IRModule
from tilewright.ir.node import children, replace
from tilewright.ir.op import GlobalVar, Op, PrimType
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator, free_vars
from tilewright.ir.target import Target
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.annotate_device_regions import without_host
from tilewright.tir.transform.gpu.common import mod_pass

__all__ = ["SplitHostDevice", "split_host_device"]


def split_host_device(mod: IRModule) -> IRModule:
    """The module with each region that has a target of its own as a separate function.

    The function's parameters are what the region uses and does not define: pointers first, then scalars, each by name.
    One for a CPU returns 0 for success, and the host checks it.
    """
    out: dict[Any, Any] = {}
    taken = {v.name_hint for v in mod.functions}
    changed = False
    kernels: dict[Any, Any] = {}
    for var, f in mod.functions.items():
        if isinstance(f, t.PrimFunc):
            run = _Split(f, str(f.attrs.get("global_symbol") or var.name_hint), taken)
            body = run.visit(f.body)
            if body is not f.body:
                f = replace(f, body=body)
                changed = True
            kernels.update(run.kernels)
        out[var] = f
    return IRModule({**out, **kernels}, mod.attrs) if changed else mod


def SplitHostDevice() -> Pass:
    """Split the regions that run on a device from the host function; see `split_host_device`."""
    return mod_pass("SplitHostDevice", split_host_device)


def undeclared_buffers(body: t.Stmt) -> list[t.Buffer]:
    """The buffers that are accessed and not declared inside, in order of appearance."""
    known: set[t.Buffer] = set()
    out: dict[t.Buffer, None] = {}

    def visit(n: Any) -> None:
        if isinstance(n, t.Buffer):
            if n not in known:
                out[n] = None
            return
        if n.identity:
            return
        if isinstance(n, (t.DeclBuffer, t.BufferRealize)):
            known.add(n.buffer)
        if isinstance(n, t.Block):
            known.update(n.alloc_buffers)
            known.update(m.buffer for m in n.match_buffers)
        for c in children(n):
            visit(c)

    visit(body)
    return list(out)


def region_params(body: t.Stmt) -> list[Var]:
    """What a region uses and does not define: pointers first, then scalars, each by name."""
    return sorted(free_vars(body), key=lambda v: (v.dtype != "handle", v.name))


class _Split(Mutator):
    def __init__(self, f: t.PrimFunc, name: str, taken: set[str]) -> None:
        self.f, self.name, self.taken = f, name, taken
        self.kernels: dict[Any, Any] = {}

    def visit_PrimExpr(self, e: Any) -> Any:
        return e

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        if s.attr_key != "target" or not isinstance(s.node, Target):
            return self.generic(s)
        return self.split(without_host(s.node), s.body)

    def fresh(self) -> GlobalVar:
        base, n = f"{self.name}_kernel", 0
        name = base
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.taken.add(name)
        return GlobalVar(name)

    def split(self, target: Target, body: t.Stmt) -> t.Stmt:
        params = region_params(body)
        for b in reversed([b for b in undeclared_buffers(body) if not _allocated(b, body)]):
            body = t.DeclBuffer(b, body)
            extra = [v for v in region_params(body) if v not in params]
            params = sorted([*params, *extra], key=lambda v: (v.dtype != "handle", v.name))
        on_cpu = target.kind.device_type == "cpu"
        if on_cpu:
            body = t.seq(body, t.Evaluate(Call("int32", Op.get("tir.ret"), (IntImm("int32", 0),))))
        attrs = {"target": target, "tir.noalias": True, "tir.is_global_func": True}
        var = self.fresh()
        self.kernels[var] = t.PrimFunc(tuple(params), body, PrimType("int32") if on_cpu else None, {}, attrs)
        if not on_cpu:
            return t.Evaluate(Call("void", var, tuple(params)))
        error = Var("kernel_error_code", "int32")
        check = t.AssertStmt(
            cmp(EQ, error, IntImm("int32", 0)),
            StringImm("Error executing compute kernel"),
            t.Evaluate(IntImm("int32", 0)),
        )
        return t.LetStmt(error, Call("int32", var, tuple(params)), check)


def _allocated(b: t.Buffer, body: t.Stmt) -> bool:
    """Is the buffer's memory allocated in the region?"""
    from tilewright.ir.node import walk

    return any(isinstance(n, (t.Allocate, t.AllocateConst)) and n.buffer_var is b.data for n in walk(body))


def bytes_of(dtype: str) -> int:
    """The bytes of one element, lanes included."""
    return (dt.bits(dtype) * dt.lanes(dtype) + 7) // 8
