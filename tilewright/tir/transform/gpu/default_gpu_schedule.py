"""A schedule for functions that bind no threads, so that they run on a GPU as they are.

Each block that holds no others gets its data-parallel loops fused, and split into blocks and threads:

    for i, j in T.grid(32, 32):                       for b in T.thread_binding(1, "blockIdx.x"):
        for k in range(64): C(i, j, k)        ▶           for x in T.thread_binding(1024, "threadIdx.x"):
                                                              for k in range(64): C(x // 32, x % 32, k)

A function in which that is not possible (several blocks in one loop) binds the outermost loop that all of its blocks run
over in parallel; where there is none, one thread runs the nest.
"""

from __future__ import annotations

import math
from typing import Any

from tilewright.arith.expr import IntImm, Var
from tilewright.ir.module import IRModule
from tilewright.ir.node import replace, walk
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import free_vars
from tilewright.ir.target import Target
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError, Limits, launch, limits_of, mod_pass, target_of
from tilewright.tir.transform.gpu.reducers import reduction_of

__all__ = ["DefaultGPUSchedule", "default_gpu_schedule"]

_FEW, _LONG = 2048, 256
"""So few elements, reduced over so many, are worth sharing."""
_BLOCKS = 256
"""The most blocks of threads; more work than they hold is a loop in each thread."""


def DefaultGPUSchedule() -> Pass:
    """Bind the loops of functions for a GPU that bind none; the target is the function's, or the current one. Sets the
    attribute `tir.is_scheduled`."""
    return mod_pass("DefaultGPUSchedule", _module)


def _module(mod: IRModule) -> IRModule:
    out: dict[Any, Any] = {}
    for var, f in mod.functions.items():
        if isinstance(f, t.PrimFunc) and not f.attrs.get("tir.is_scheduled"):
            target = target_of(f) or Target.current()
            if target is None:
                raise DeviceError.at(
                    "TW0561",
                    "DefaultGPUSchedule needs a target",
                    hint='use `with Target("cuda"):`, or give the function one',
                )
            if target.kind.device_type != "cpu":
                f = default_gpu_schedule(f, target, share_reductions=False)
            out[var] = f.with_attr("tir.is_scheduled", True)
    return mod.with_(out) if out else mod


def default_gpu_schedule(f: t.PrimFunc, target: Target, share_reductions: bool = True) -> t.PrimFunc:
    """The function with its loops bound to the blocks and threads of a GPU.

    `share_reductions`: a long reduction of few elements is shared by the threads of a block (what `DefaultGPUSchedule` does not).
    """
    from tilewright.tir.schedule import Schedule, ScheduleError

    limits = limits_of(target)
    if not isinstance(f.body, t.BlockRealize):
        return f.with_body(_bind_nests(f.body, limits))
    sch = Schedule(IRModule.from_expr(f, "main"))
    for name in _leaves(f.body):
        before = sch.mod
        for attempt in (_bind, _bind_one):
            try:
                attempt(sch, name, limits, share_reductions)
                break
            except ScheduleError:  # what cannot be proved is not done
                sch = Schedule(before)
    new = sch.mod["main"]
    new = replace(new, attrs=f.attrs)
    body = new.body
    assert isinstance(body, t.BlockRealize)
    inner = _bind_nests(body.block.body, limits)
    if inner is not body.block.body:
        new = new.with_body(replace(body, block=replace(body.block, body=inner)))
    return new


def _leaves(root: t.BlockRealize) -> list[str]:
    """The names of the blocks that hold no others, in order."""
    out: list[str] = []

    def visit(s: Any) -> bool:
        """Is there a block inside?"""
        found = False
        if isinstance(s, t.BlockRealize):
            inner = visit(s.block.body)
            if not inner and s is not root:
                out.append(s.block.name_hint)
            return True
        if isinstance(s, t.SeqStmt):
            for x in s.seq:
                found = visit(x) or found
        elif isinstance(s, (t.For, t.AttrStmt, t.LetStmt, t.While, t.AssertStmt)):
            found = visit(s.body)
        elif isinstance(s, t.IfThenElse):
            found = visit(s.then_case)
            if s.else_case is not None:
                found = visit(s.else_case) or found
        return found

    visit(root)
    return out


def _bind(sch: Any, name: str, limits: Limits, share: bool) -> None:
    """Bind the data-parallel loops of one block, if they are its own and nothing is bound yet."""
    block = sch.get_block(name)
    loops = sch.get_loops(block)
    nodes = [sch.get(x) for x in loops]
    if any(n.thread_binding is not None for n in nodes):
        return
    realize = _realize_of(sch, name)
    if realize is None or not _own(nodes, realize):
        return
    axes: dict[Any, int] = {}
    for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        for x in free_vars(v):
            axes[x] = max(axes.get(x, 0), 0 if iv.iter_type == t.IterVar.DataPar else 1)
    parallel = [x for x, n in zip(loops, nodes, strict=True) if axes.get(n.loop_var, 0) == 0]
    others = [x for x, n in zip(loops, nodes, strict=True) if axes.get(n.loop_var, 0) != 0]
    if not parallel:
        return  # one thread runs it (`_bind_nests`)
    order = [*parallel, *others]
    if any(a is not b for a, b in zip(order, loops, strict=True)):
        sch.reorder(*parallel, *others)
    threads = _sharers(realize, [sch.get(x) for x in parallel], [sch.get(x) for x in others], limits) if share else 0
    fused = sch.fuse(*parallel, preserve_unit_iters=False)
    if threads:
        reduced = sch.fuse(*others) if len(others) > 1 else others[0]
        _, inner = sch.split(reduced, [None, threads])
        sch.bind(fused, "blockIdx.x")
        sch.bind(inner, "threadIdx.x")
        return
    extent = sch.get(fused).extent
    size = extent.value if isinstance(extent, IntImm) else None
    if size is None or size > limits.threads * _BLOCKS:
        outer, blocks, threads = sch.split(fused, [None, _BLOCKS, limits.threads])
        sch.reorder(blocks, threads, outer)
    else:
        blocks, threads = sch.split(fused, [None, min(size, limits.threads)])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(threads, "threadIdx.x")


def _bind_one(sch: Any, name: str, limits: Limits, share: bool) -> None:
    """Bind the longest data-parallel loop of a block, where all of them together are too much to prove."""
    del share
    loops = sch.get_loops(sch.get_block(name))
    nodes = [sch.get(x) for x in loops]
    realize = _realize_of(sch, name)
    if realize is None or not _own(nodes, realize):
        return
    spatial = {
        v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True) if iv.iter_type == t.IterVar.DataPar
    }  # fmt: skip
    sizes = [
        n.extent.value if isinstance(n.extent, IntImm) and any(n.loop_var is v for v in spatial) else 0 for n in nodes
    ]
    if max(sizes, default=0) <= 1:
        return
    longest = sizes.index(max(sizes))
    if longest:
        sch.reorder(loops[longest], *loops[:longest])
    blocks, threads = sch.split(loops[longest], [None, min(sizes[longest], limits.threads)])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(threads, "threadIdx.x")


def _sharers(realize: t.BlockRealize, parallel: list[t.For], others: list[t.For], limits: Limits) -> int:
    """How many threads share the reduction of one element; 0 where each thread had better reduce its own."""
    if not others or realize.block.init is None:
        return 0
    sizes = [[n.extent.value if isinstance(n.extent, IntImm) else 0 for n in loops] for loops in (parallel, others)]
    elements, length = math.prod(sizes[0]), math.prod(sizes[1])
    if elements <= 0 or elements > _FEW or length < _LONG:
        return 0
    try:
        reduction_of(realize.block)
    except DeviceError:
        return 0
    threads = 32
    while threads * 2 <= min(limits.threads, 256) and threads * 8 <= length:
        threads *= 2
    return threads


def _realize_of(sch: Any, name: str) -> t.BlockRealize | None:
    for n in walk(sch.mod["main"].body):
        if isinstance(n, t.BlockRealize) and n.block.name_hint == name:
            return n
    return None


def _own(nodes: list[t.For], realize: t.BlockRealize) -> bool:
    """Do the loops hold only this block, one in the other, with bounds of their own?"""
    for i, n in enumerate(nodes):
        inner: Any = nodes[i + 1] if i + 1 < len(nodes) else realize
        if n.body is not inner:
            return False
    used = {v for n in nodes for e in (n.min, n.extent) for v in free_vars(e)}
    return not any(n.loop_var in used for n in nodes) and all(n.kind == t.ForKind.SERIAL for n in nodes)


# ---- nests that hold several blocks, and statements without blocks


def _bind_nests(s: t.Stmt, limits: Limits) -> t.Stmt:
    """Every top-level nest that binds nothing bound: by a loop that all its blocks run over in parallel, or to one thread."""
    if isinstance(s, t.SeqStmt):
        new = [_bind_nests(x, limits) for x in s.seq]
        return s if all(a is b for a, b in zip(new, s.seq, strict=True)) else t.SeqStmt(tuple(new))
    if isinstance(s, (t.Allocate, t.DeclBuffer, t.AllocateConst, t.LetStmt, t.AssertStmt)):
        body = _bind_nests(s.body, limits)
        return s if body is s.body else replace(s, body=body)
    if isinstance(s, t.Evaluate) and isinstance(s.value, IntImm):
        return s
    if any(launch(n) is not None for n in walk(s) if isinstance(n, t.Stmt)) or _host_call(s):
        return s
    if isinstance(s, t.For) and _parallel(s):
        return _split(s, limits)
    one = IntImm("int32", 1)
    return _thread("blockIdx.x", one, _thread("threadIdx.x", one, s)[0])[0]


def _host_call(s: t.Stmt) -> bool:
    from tilewright.tir.transform.gpu.annotate_device_regions import host_only

    return host_only(s)


def _thread(tag: str, extent: Any, body: t.Stmt) -> tuple[t.Stmt, Var]:
    var = Var(tag.replace(".", "_"), extent.dtype)
    binding = t.IterVar(None, Var("", "int32"), t.IterVar.ThreadIndex, tag)
    return t.For(var, IntImm(extent.dtype, 0), extent, t.ForKind.THREAD_BINDING, body, binding), var


def _parallel(loop: t.For) -> bool:
    """Do all blocks in the loop run over it in parallel, each writing elements of its own iteration only, and does no
    iteration read what another writes?"""
    if loop.kind == t.ForKind.PARALLEL:
        return True
    writes: dict[Any, Any] = {}
    blocks = [n for n in walk(loop.body) if isinstance(n, t.BlockRealize)]
    if not blocks:
        return False
    del writes
    for r in blocks:
        spatial = False
        for iv, v in zip(r.block.iter_vars, r.iter_values, strict=True):
            if loop.loop_var in free_vars(v):
                if iv.iter_type != t.IterVar.DataPar or v is not loop.loop_var:
                    return False
                spatial = True
        if not spatial:
            return False
    return len(blocks) == 1 or _rows(loop, blocks)


def _rows(loop: t.For, blocks: list[t.BlockRealize]) -> bool:
    """Is each buffer that is written touched, in an iteration, only in the part that carries the iteration's own index?"""
    written = {w.buffer for r in blocks for w in r.block.writes}
    places: dict[Any, set[int]] = {}
    for r in blocks:
        own = {iv.var for iv, v in zip(r.block.iter_vars, r.iter_values, strict=True) if v is loop.loop_var}
        for region in (*r.block.reads, *r.block.writes):
            if region.buffer in written:
                here = {
                    d
                    for d, x in enumerate(region.region)
                    if any(x.min is v for v in own) and isinstance(x.extent, IntImm) and x.extent.value == 1
                }
                places[region.buffer] = places.get(region.buffer, here) & here
    return all(places.values())


def _split(loop: t.For, limits: Limits) -> t.Stmt:
    """The loop over blocks and threads."""
    from tilewright.arith.expr import LT, add, ceildiv, cmp, const, mul
    from tilewright.ir.rewrite import substitute

    n = loop.extent
    threads = min(n.value, limits.threads) if isinstance(n, IntImm) else limits.threads
    width = const(threads, n.dtype)
    tx, bx = Var("threadIdx_x", n.dtype), Var("blockIdx_x", n.dtype)
    index = add(mul(bx, width), tx)
    body: t.Stmt = substitute(loop.body, {loop.loop_var: add(index, loop.min)})
    if not (isinstance(n, IntImm) and n.value % threads == 0):
        body = t.IfThenElse(cmp(LT, index, n), body)
    binding = t.IterVar(None, Var("", "int32"), t.IterVar.ThreadIndex, "threadIdx.x")
    inner = t.For(tx, const(0, n.dtype), width, t.ForKind.THREAD_BINDING, body, binding)
    binding = t.IterVar(None, Var("", "int32"), t.IterVar.ThreadIndex, "blockIdx.x")
    return t.For(bx, const(0, n.dtype), ceildiv(n, width), t.ForKind.THREAD_BINDING, inner, binding)
