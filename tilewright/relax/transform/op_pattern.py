"""What a kernel does to its operands, read off its loops: may it be fused, and which way?

    ELEMWISE      out[i] of in[i]                          BROADCAST     out[i, j] of in[j]
    INJECTIVE     out[i, j] of in[j, i], in[i*2], in[idx[i]]
    REDUCE        one commutative reduction, elementwise work before and behind it
    OUT_FUSABLE   one contraction (a sum of products: conv, matmul), elementwise work behind it
    OPAQUE        everything else: several reductions, several results, loops in blocks, ordered axes, concatenations

`KernelPattern.access[i]` says how the i-th buffer parameter is read, seen from the output. OPAQUE there means that nothing may
be fused into this operand (a contraction's or a window's: it would be computed again and again).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.arith import expr as E
from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.ir.module import IRModule
from tilewright.ir.node import Node, children
from tilewright.ir.passes import PassContext, pass_
from tilewright.relax.op import OpPatternKind
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    IterVar,
    PrimFunc,
    SeqStmt,
    Stmt,
)

__all__ = ["KernelPattern", "analyse", "annotate_op_pattern"]

K = OpPatternKind

_CHEAP_CALLS = frozenset(
    ["tir.if_then_else", "tir.likely", "tir.bitwise_and", "tir.bitwise_or", "tir.bitwise_xor", "tir.bitwise_not", "tir.shift_left",
     "tir.shift_right", "tir.fabs", "tir.abs", "tir.reinterpret", "tir.fma"]
)  # fmt: skip
_PURE_PREFIX = "tir."
_IMPURE = frozenset(
    ["tir.call_extern", "tir.call_packed", "tir.tvm_call_packed", "tir.call_llvm_intrin", "tir.tw_raise"]
)


@dataclass
class KernelPattern:
    """The result of the analysis; see the head of the module."""

    kind: OpPatternKind
    access: list[OpPatternKind] = field(default_factory=list[OpPatternKind])
    expensive: bool = False
    """Does computing one element take a division or a function such as exp?"""


@dataclass
class _Stage:
    """One block: what it writes, how it reads, and whether it reduces."""

    out: Buffer
    reads: dict[Buffer, OpPatternKind]
    reduces: bool
    contraction: bool = False
    windowed: set[Buffer] = field(default_factory=set[Buffer])


class _Opaque(Exception):
    """The kernel has something that is not analysed."""


def analyse(f: PrimFunc) -> KernelPattern:
    """The pattern of a kernel in block form. Its last buffer parameter is the output."""
    cached = _CACHE.get(id(f.body))
    if cached is not None and cached[0] is f.body:
        return cached[1]
    found = _analyse(f)
    if len(_CACHE) >= _CACHE_SIZE:
        _CACHE.clear()
    _CACHE[id(f.body)] = (f.body, found)
    return found


_CACHE: dict[int, tuple[Stmt, KernelPattern]] = {}
_CACHE_SIZE = 512


def _analyse(f: PrimFunc) -> KernelPattern:
    buffers = f.param_buffers
    try:
        if len(buffers) < 1:
            raise _Opaque
        stages, expensive = _stages(f)
        kind, access = _combine(stages, buffers)
    except _Opaque:
        return KernelPattern(K.OPAQUE, [K.OPAQUE] * len(buffers), True)
    return KernelPattern(kind, access, expensive)


# ---- blocks ------------------------------------------------------------------------------------------------------------


def _stages(f: PrimFunc) -> tuple[list[_Stage], bool]:
    body = f.body
    if not isinstance(body, BlockRealize) or body.block.iter_vars:
        raise _Opaque
    found: list[_Stage] = []
    _walk(body.block.body, found)
    return found, _expensive(body.block.body)


def _walk(s: Stmt, found: list[_Stage]) -> None:
    if isinstance(s, SeqStmt):
        for part in s.seq:
            _walk(part, found)
    elif isinstance(s, For):
        if s.kind not in (ForKind.SERIAL, ForKind.PARALLEL):
            raise _Opaque
        _walk(s.body, found)
    elif isinstance(s, BlockRealize):
        found.append(_stage(s.block))
    else:
        raise _Opaque


def _stage(block: Block) -> _Stage:
    store = block.body
    if not isinstance(store, BufferStore) or block.match_buffers or block.alloc_buffers:
        raise _Opaque
    spatial = {iv.var: iv for iv in block.iter_vars if iv.iter_type == IterVar.DataPar}
    reduce_ = {iv.var: iv for iv in block.iter_vars if iv.iter_type == IterVar.CommReduce}
    if len(spatial) + len(reduce_) != len(block.iter_vars):
        raise _Opaque
    written = _plain(store.indices, spatial)
    if written is None or len(set(written)) != len(written):
        raise _Opaque
    reads: dict[Buffer, OpPatternKind] = {}
    windowed: set[Buffer] = set()
    branches = 0
    for load, conditional in _loads(store.value, False):
        if load.buffer is store.buffer:
            if not reduce_:
                raise _Opaque
            continue
        branches += conditional
        kind = _access(load, store, written, spatial, reduce_)
        if kind == K.REDUCE and any(not isinstance(i, (E.Var, IntImm)) for i in load.indices):
            windowed.add(load.buffer)
        reads[load.buffer] = max(reads.get(load.buffer, K.ELEMWISE), kind)
    for load, _ in _loads_in(block.init):
        if load.buffer is not store.buffer:
            raise _Opaque
    if not reduce_ and branches > 1 and len(reads) > 1:
        raise _Opaque  # a concatenation: copying the parts is better than choosing for each element
    return _Stage(store.buffer, reads, bool(reduce_), bool(reduce_) and _is_contraction(store.value, reduce_), windowed)


def _plain(indices: Any, spatial: dict[E.Var, IterVar]) -> list[E.Var] | None:
    """The axes of a write in order, without those of length 1; None if it is written elsewhere than at the axes."""
    out: list[E.Var] = []
    for i in indices:
        if isinstance(i, IntImm) and i.value == 0:
            continue
        if not isinstance(i, E.Var) or i not in spatial:
            return None
        if not _is_one(spatial[i]):
            out.append(i)
    return out


def _is_one(iv: IterVar) -> bool:
    return iv.dom is not None and isinstance(iv.dom.extent, IntImm) and iv.dom.extent.value == 1


def _access(
    load: BufferLoad,
    store: BufferStore,
    written: list[E.Var],
    spatial: dict[E.Var, IterVar],
    reduce_: dict[E.Var, IterVar],
) -> OpPatternKind:
    order: list[E.Var] = []
    plain = True
    for i in load.indices:
        if isinstance(i, IntImm):
            plain = plain and i.value == 0
            continue
        if isinstance(i, E.Var) and i in spatial:
            if not _is_one(spatial[i]):
                order.append(i)
            continue
        plain = False
        if any(v in reduce_ for v in _vars(i)):
            return K.REDUCE
    if not plain:
        return K.INJECTIVE
    if len(load.indices) == len(store.indices) and order == written:
        return K.ELEMWISE
    rest = iter(written)
    in_order = all(any(v is w for w in rest) for v in order)
    if reduce_ and not in_order:
        return K.REDUCE
    return K.BROADCAST if in_order else K.INJECTIVE


def _vars(e: Node) -> list[E.Var]:
    if isinstance(e, E.Var):
        return [e]
    return [v for c in children(e) for v in _vars(c)] if not e.identity else []


def _loads(e: Node, conditional: bool) -> list[tuple[BufferLoad, bool]]:
    """Every load in an expression, and whether it stands under a condition. Loads inside indices count too."""
    out: list[tuple[BufferLoad, bool]] = []
    if isinstance(e, BufferLoad):
        out.append((e, conditional))
        for i in e.indices:
            out += _loads(i, conditional)
        return out
    if isinstance(e, E.Call):
        name = getattr(e.op, "name", "")
        if not name.startswith(_PURE_PREFIX) or name in _IMPURE:
            raise _Opaque
        if name == "tir.if_then_else":
            out += _loads(e.args[0], conditional)
            for a in e.args[1:]:
                out += _loads(a, True)
            return out
    if isinstance(e, Buffer):
        raise _Opaque
    if e.identity:
        return out
    for c in children(e):
        out += _loads(c, conditional)
    return out


def _loads_in(s: Stmt | None) -> list[tuple[BufferLoad, bool]]:
    if s is None:
        return []
    if not isinstance(s, BufferStore):
        raise _Opaque
    return _loads(s.value, False)


def _is_contraction(value: PrimExpr, reduce_: dict[E.Var, IterVar]) -> bool:
    """Is there a product of two different loads that both move with a reduced axis?"""
    if isinstance(value, E.Mul):
        sides = [_moving(value.a, reduce_), _moving(value.b, reduce_)]
        if all(sides) and not sides[0] & sides[1]:
            return True
    if isinstance(value, E.Call) and getattr(value.op, "name", "") == "tir.fma":
        sides = [_moving(value.args[0], reduce_), _moving(value.args[1], reduce_)]
        return all(sides) and not sides[0] & sides[1]
    return not value.identity and any(isinstance(c, PrimExpr) and _is_contraction(c, reduce_) for c in children(value))


def _moving(e: PrimExpr, reduce_: dict[E.Var, IterVar]) -> set[tuple[int, ...]]:
    return {
        (id(load.buffer), *(id(i) if isinstance(i, E.Var) else hash(repr_index(i)) for i in load.indices))
        for load, _ in _loads(e, False)
        if any(v in reduce_ for i in load.indices for v in _vars(i))
    }


def repr_index(i: PrimExpr) -> Any:
    """Something hashable that equal index expressions share."""
    from tilewright.relax.dims import dim_key

    return dim_key(i)


def _expensive(s: Node) -> bool:
    if isinstance(s, (E.Div, E.Mod)) and not isinstance(s.b, (IntImm, E.FloatImm)):
        return True
    if isinstance(s, E.Call) and getattr(s.op, "name", "") not in _CHEAP_CALLS:
        return True
    return not s.identity and any(_expensive(c) for c in children(s))


# ---- stages together ---------------------------------------------------------------------------------------------------


def _combine(stages: list[_Stage], buffers: list[Buffer]) -> tuple[OpPatternKind, list[OpPatternKind]]:
    out = buffers[-1]
    by_output: dict[Buffer, _Stage] = {}
    for s in stages:
        if s.out in by_output:
            raise _Opaque
        by_output[s.out] = s
    if out not in by_output or any(b in by_output for b in buffers[:-1]):
        raise _Opaque
    anchors = [s for s in stages if s.reduces]
    if len(anchors) > 1:
        raise _Opaque
    # how each buffer is seen from the output: the worst on any path to it
    seen: dict[Buffer, OpPatternKind] = {out: K.ELEMWISE}
    for s in reversed(stages):
        here = seen.get(s.out)
        if here is None:
            continue
        if s.reduces and here != K.ELEMWISE:
            raise _Opaque  # its result is used at several places of the output
        blocked = s.contraction
        for b, kind in s.reads.items():
            total = max(here, kind)
            if s.reduces:
                total = K.OPAQUE if blocked or b in s.windowed or kind == K.INJECTIVE else K.REDUCE
            elif here == K.REDUCE and kind > K.BROADCAST:
                total = K.OPAQUE
            seen[b] = max(seen.get(b, K.ELEMWISE), total)
    access = [seen.get(b, K.ELEMWISE) for b in buffers]
    if anchors:
        for b in buffers[:-1]:
            if b in seen and _mixed(stages, b, anchors[0]):
                raise _Opaque
        return (K.OUT_FUSABLE if anchors[0].contraction else K.REDUCE), access
    return max((a for a in access), default=K.ELEMWISE), access


def _mixed(stages: list[_Stage], b: Buffer, anchor: _Stage) -> bool:
    """Is an operand of the reduction also read behind it, at other places than the output's own?"""
    return b in anchor.reads and any(
        s is not anchor and not s.reduces and s.reads.get(b, K.ELEMWISE) > K.BROADCAST and _behind(stages, s, anchor)
        for s in stages
    )


def _behind(stages: list[_Stage], s: _Stage, anchor: _Stage) -> bool:
    reached = {anchor.out}
    for t in stages:
        if any(b in reached for b in t.reads):
            reached.add(t.out)
    return s.out in reached


@pass_(name="AnnotateTIROpPattern")
def annotate_op_pattern(mod: IRModule, ctx: PassContext) -> IRModule:
    """Every kernel gets the attribute `op_pattern`: the number of its OpPatternKind."""
    del ctx
    changed: dict[Any, Any] = {}
    for gv, f in mod.functions.items():
        if isinstance(f, PrimFunc) and "op_pattern" not in f.attrs:
            changed[gv] = f.with_attr("op_pattern", int(analyse(f).kind))
    return mod.with_(changed) if changed else mod
