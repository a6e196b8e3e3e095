"""Convolutions work on channels-last data with packed weights, and what stands between them follows.

A value of the graph may exist in several *versions*: as it is, and transposed by a permutation of its axes. A convolution
with constant weights asks for its operand channels-last (NCHW -> NHWC) and gives its result so. Elementwise operators,
poolings, concatenations, reductions, ... that meet a value which exists transposed only are applied to it, with their axes
renamed. A transposition in the graph only renames the axes of the version. Whoever does not follow gets the value as it was;
the transposition that brings it back is inserted there, once. Transpositions that move axes of length 1 only are reshapes,
which cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace as with_fields
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.module import IRModule
from tilewright.ir.passes import Pass, PassContext
from tilewright.relax.dims import as_int, prove_equal
from tilewright.relax.ir import (
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from tilewright.relax.op import OPS, Op
from tilewright.relax.rewrite import GraphMutator
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.relax.values import make_tuple

__all__ = ["layout_pass", "pack_conv_weight", "vector_block"]

Perm = tuple[int, ...]
LAST: Perm = (0, 2, 3, 1)
"""NCHW to NHWC: axis i of the version is axis LAST[i] of the value."""

_MAX_GROUPS = 8
"""A convolution of more groups is not taken apart."""


def vector_block(target: Any) -> int:
    """Output channels in one block of packed weights: two vectors of float32."""
    return max(4, getattr(target, "vector_bytes", 32) // 2)


def pack_conv_weight(w: np.ndarray[Any, Any], block: int) -> np.ndarray[Any, Any]:
    """OIHW to OHWI<block>o: [ceil(O/block), H, W, I, block], zero padded."""
    o, i, h, k = w.shape
    padded = w
    if o % block:
        padded = np.zeros((-(-o // block) * block, i, h, k), w.dtype)
        padded[:o] = w
    return np.ascontiguousarray(padded.reshape(-1, block, i, h, k).transpose(0, 3, 4, 2, 1))


class Versions:
    """A value: its variable as it was in the graph (`plain`), and transposed ones by permutation."""

    __slots__ = ("packed", "plain")

    def __init__(self, plain: Any = None, packed: dict[Perm, Any] | None = None) -> None:
        self.plain, self.packed = plain, packed if packed is not None else {}

    def copy(self) -> Versions:
        """The same versions; more may be added without harm."""
        return Versions(self.plain, dict(self.packed))


def _make(name: str, **fields: Any) -> Op:
    return OPS[name](**fields)


def _inverse(perm: Perm) -> Perm:
    out = [0] * len(perm)
    for i, p in enumerate(perm):
        out[p] = i
    return tuple(out)


def _moves_nothing(perm: Sequence[int], shape: Sequence[Any]) -> bool:
    """Does the transposition move axes of length 1 only?"""
    real = [p for p in perm if as_int(shape[p]) != 1]
    return real == sorted(real)


class _Layout(GraphMutator):
    def __init__(self, mod: IRModule, block: int) -> None:
        super().__init__(mod)
        self.block_size = block
        self.versions: dict[Var, Versions] = {}
        self.tuples: dict[Var, tuple[Perm, Any]] = {}
        self.arrays: dict[tuple[int, Perm], Constant] = {}
        self.kept: list[Any] = []

    # ---- versions of values --------------------------------------------------------------------------------------------

    def transposed(self, x: Any, perm: Perm, name: str = "") -> Any:
        """`x` (of the new graph) with its axes in the order `perm`; a reshape where no element moves."""
        si = x.struct_info
        if perm == tuple(range(len(perm))):
            return x
        if _moves_nothing(perm, si.shape):
            return self.bb.emit(Call(_make("reshape"), (x, ShapeExpr(tuple(si.shape[p] for p in perm)))), name)
        return self.bb.emit(Call(_make("permute_dims", axes=perm), (x,)), name)

    def plain(self, v: Var) -> Any:
        """The value as it was in the graph."""
        known = self.versions.get(v)
        if known is None:
            return super().operand(v)
        if known.plain is None:
            perm, x = next(iter(known.packed.items()))
            known.plain = self.transposed(x, _inverse(perm), v.name_hint)
        return known.plain

    def version(self, e: Any, perm: Perm) -> Any:
        """An operand (of the old graph) transposed by `perm`."""
        if not isinstance(e, Var) or isinstance(self.env.get(e), Constant):
            e = super().operand(e)
            key = (id(e.data), perm)
            found = self.arrays.get(key)
            if found is None:
                found = self.arrays[key] = Constant(np.ascontiguousarray(np.transpose(e.data, perm)))
                self.kept.append(e.data)  # while it is alive no other array has its id
            return found
        known = self.versions.get(e)
        if known is None:
            known = self.versions[e] = Versions(super().operand(e))
        found = known.packed.get(perm)
        if found is None:
            if known.plain is None or known.packed:
                other, x = next(iter(known.packed.items()))
                step = tuple(other.index(p) for p in perm)
                if known.plain is not None and not _moves_nothing(step, x.struct_info.shape):
                    found = self.transposed(known.plain, perm, f"{e.name_hint}_t")
                else:
                    found = self.transposed(x, step, f"{e.name_hint}_t")
            else:
                found = self.transposed(known.plain, perm, f"{e.name_hint}_t")
            known.packed[perm] = found
        return found

    def packed(self, e: Any) -> Perm | None:
        """The permutation under which an operand exists, if it does not exist as it was."""
        known = self.versions.get(e) if isinstance(e, Var) else None
        return next(iter(known.packed)) if known is not None and known.plain is None and known.packed else None

    def operand(self, e: Any) -> Any:
        if isinstance(e, Var):
            if e in self.tuples:
                return self.plain_tuple(e)
            return self.plain(e)
        return super().operand(e)

    def plain_tuple(self, v: Var) -> Any:
        """A tuple of transposed values as it was."""
        perm, x = self.tuples[v]
        fields: list[Any] = []
        for i in range(len(x.struct_info.fields)):
            item = self.bb.emit(TupleGetItem(x, i))
            fields.append(self.transposed(item, _inverse(perm)))
        return make_tuple(fields)

    # ---- the walk ------------------------------------------------------------------------------------------------------

    def begin(self, f: Any) -> None:
        self.versions, self.tuples = {}, {}

    def inner(self, s: Any) -> SeqExpr:
        outer = {k: v.copy() for k, v in self.versions.items()}
        try:
            return super().inner(s)
        finally:
            self.versions = outer

    def block(self, block: BindingBlock) -> None:
        super().block(block)
        if isinstance(block, DataflowBlock):  # its local variables end here
            for k in list(self.versions):
                known = self.versions[k]
                known.packed = {p: x for p, x in known.packed.items() if not isinstance(x, DataflowVar)}
                if isinstance(k, DataflowVar) or isinstance(known.plain, DataflowVar):
                    del self.versions[k]

    def binding(self, b: Any) -> None:
        if isinstance(b, VarBinding):
            made = self.follow(b)
            if made is not None:
                self.changed = True
                self.keep(b.var, made)
                return
        super().binding(b)

    def keep(self, var: Var, made: Versions) -> None:
        """Remember the versions of a bound variable. One that leaves its dataflow block has to exist as it was."""
        self.versions[var] = made
        if isinstance(var, DataflowVar) or not self.bb.current_block_is_dataflow():
            return
        value = self.plain(var)
        if isinstance(value, DataflowVar):
            self.bb.emit_normalized(VarBinding(var, value))
            made.plain = var

    def follow(self, b: VarBinding) -> Versions | None:
        """What becomes of a binding that follows the layout; None: it does not."""
        e = b.value
        name = b.var.name_hint
        if isinstance(e, TupleGetItem) and isinstance(e.tuple_value, Var) and e.tuple_value in self.tuples:
            perm, x = self.tuples[e.tuple_value]
            return Versions(None, {perm: self.bb.emit(TupleGetItem(x, e.index), name)})
        if isinstance(e, Var) and self.packed(e) is not None and isinstance(b.var, DataflowVar):
            return self.versions[e]
        if not isinstance(e, Call) or not isinstance(e.op, Op):
            return None
        if e.op.name == "nn.conv2d":
            return self.conv2d(e, name)
        perms = [self.packed(a) for a in _operands(e)]
        perm = next((p for p in perms if p is not None), None)
        if perm is None:
            return None
        rule = RULES.get(e.op.name)
        if rule is None and (getattr(e.op, "elementwise", False) or e.op.name == "where"):
            rule = _elementwise
        made = rule(self, e, perm) if rule is not None else None
        if made is None:
            return None
        if isinstance(made, Versions):
            return made
        op_call, out_perm = made
        var = self.bb.emit(op_call, name)
        if not isinstance(var.struct_info, TensorStructInfo):  # a tuple, as of split
            self.tuples[b.var] = (out_perm, var)
            return Versions(None, {})
        return Versions(None, {out_perm: var}) if out_perm != tuple(range(len(out_perm))) else Versions(var, {})

    def conv2d(self, e: Call, name: str) -> Versions | None:
        op: Any = e.op
        weight = super().operand(e.args[1])
        if op.data_layout != "NCHW" or op.kernel_layout != "OIHW" or not isinstance(weight, Constant):
            return None
        if not dt.is_float(str(weight.data.dtype)) or op.out_dtype not in ("", str(weight.data.dtype)):
            return None
        o, i = weight.data.shape[:2]
        if op.groups > 1 and i > 1:
            return self.grouped(e, weight.data, name)
        if op.groups > 1:
            kernel, layout = np.ascontiguousarray(weight.data.transpose(2, 3, 1, 0)), "HWIO"
        else:
            kernel, layout = pack_conv_weight(weight.data, self.block_size), f"OHWI{self.block_size}o"
        new = with_fields(op, data_layout="NHWC", kernel_layout=layout, out_layout="", channels=o)
        data = self.version(e.args[0], LAST)
        return Versions(None, {LAST: self.bb.emit(Call(new, (data, Constant(kernel))), name)})

    def grouped(self, e: Call, weight: Any, name: str) -> Versions | None:
        """A convolution of a few large groups: one of each group's channels, and the results put together."""
        op: Any = e.op
        o, i = weight.shape[:2]
        count, per = op.groups, o // op.groups
        if count > _MAX_GROUPS or per < self.block_size // 2:
            return None
        layout = f"OHWI{self.block_size}o"
        new = with_fields(op, data_layout="NHWC", kernel_layout=layout, out_layout="", groups=1, channels=per)
        data = self.version(e.args[0], LAST)
        parts: list[Any] = []
        for g in range(count):
            bounds = ShapeExpr((g * i,)), ShapeExpr((g * i + i,))
            piece = self.bb.emit(Call(_make("strided_slice", axes=(3,)), (data, *bounds)))
            kernel = pack_conv_weight(weight[g * per : (g + 1) * per], self.block_size)
            parts.append(self.bb.emit(Call(new, (piece, Constant(kernel)))))
        return Versions(None, {LAST: self.bb.emit(Call(_make("concat", axis=3), (make_tuple(parts),)), name)})


Made = Any  # Versions, or (call, permutation of its result), or None
Rule = Callable[[_Layout, Call, Perm], Made]


def _operands(e: Call) -> list[Any]:
    out: list[Any] = []
    for a in e.args:
        out += a.fields if isinstance(a, Tuple) else [a]
    return out


def _rank(e: Any) -> int:
    si = e.struct_info
    return si.ndim if isinstance(si, TensorStructInfo) else -1


def _elementwise(s: _Layout, e: Call, perm: Perm) -> Made:
    """Operands of the result's rank are taken transposed; smaller ones get leading axes of length 1 first."""
    if _rank(e) != len(perm):
        return None
    args: list[Any] = []
    for a in e.args:
        si = a.struct_info
        if not isinstance(si, TensorStructInfo) or isinstance(a, PrimValue):
            args.append(a)
            continue
        if si.shape is None:
            return None
        if all(as_int(d) == 1 for d in si.shape) and si.ndim <= len(perm):
            args.append(s.operand(a))
        elif si.ndim == len(perm):
            args.append(s.version(a, perm))
        else:
            small = s.operand(a)
            shape = (*(1,) * (len(perm) - si.ndim), *si.shape)
            if isinstance(small, Constant):
                args.append(s.version(Constant(small.data.reshape([as_int(d) or 0 for d in shape])), perm))
            else:
                wide = s.bb.emit(Call(_make("reshape"), (small, ShapeExpr(shape))))
                args.append(s.transposed(wide, perm))
    return Call(e.op, tuple(args)), perm


def _axis(field: str = "axis") -> Rule:
    """An operator along one axis: `softmax`, `split`, ..."""

    def rule(s: _Layout, e: Call, perm: Perm) -> Made:
        axis = getattr(e.op, field)
        if not isinstance(axis, int) or _rank(e.args[0]) != len(perm):
            return None
        moved = with_fields(e.op, **{field: perm.index(axis % len(perm))})
        return Call(moved, (s.version(e.args[0], perm), *(s.operand(a) for a in e.args[1:]))), perm

    return rule


def _concat(s: _Layout, e: Call, perm: Perm) -> Made:
    parts = e.args[0]
    if not isinstance(parts, Tuple) or any(_rank(f) != len(perm) for f in parts.fields):
        return None
    moved = with_fields(e.op, axis=perm.index(e.op.axis % len(perm)))
    return Call(moved, (make_tuple([s.version(f, perm) for f in parts.fields]),)), perm


def _reduce(s: _Layout, e: Call, perm: Perm) -> Made:
    """Reduced axes are renamed. Without `keepdims` the axes that are left have to be in order again."""
    op: Any = e.op
    if _rank(e.args[0]) != len(perm) or (op.axis is None and op.name.startswith("arg")):
        return None
    axes = range(len(perm)) if op.axis is None else (op.axis,) if isinstance(op.axis, int) else op.axis
    old = {a % len(perm) for a in axes}
    new = tuple(sorted(perm.index(a) for a in old))
    moved = with_fields(op, axis=new[0] if isinstance(op.axis, int) else new)
    call = Call(moved, (s.version(e.args[0], perm),))
    if op.keepdims:
        return call, perm
    left = [p for p in perm if p not in old]
    rank = sorted(left)
    return call, tuple(rank.index(p) for p in left)


def _spatial(s: _Layout, e: Call, perm: Perm) -> Made:
    """Poolings and resizing: the attribute `layout` says where the channels are."""
    op: Any = e.op
    if op.layout != "NCHW" or perm != LAST:
        return None
    moved = with_fields(op, layout="NHWC", **({"out_layout": ""} if hasattr(op, "out_layout") else {}))
    return Call(moved, (s.version(e.args[0], LAST), *(s.operand(a) for a in e.args[1:]))), LAST


def _conv_transpose(s: _Layout, e: Call, perm: Perm) -> Made:
    op: Any = e.op
    weight = s.operand(e.args[1])
    if op.data_layout != "NCHW" or op.kernel_layout != "IOHW" or perm != LAST or not isinstance(weight, Constant):
        return None
    kernel = np.ascontiguousarray(weight.data.transpose(2, 3, 0, 1))
    moved = with_fields(op, data_layout="NHWC", kernel_layout="HWIO", out_layout="")
    return Call(moved, (s.version(e.args[0], LAST), Constant(kernel))), LAST


def _pad(s: _Layout, e: Call, perm: Perm) -> Made:
    op: Any = e.op
    if len(e.args) != 1 or len(op.pad_width) != 2 * len(perm):
        return None
    moved = with_fields(op, pad_width=tuple(v for p in perm for v in op.pad_width[2 * p : 2 * p + 2]))
    return Call(moved, (s.version(e.args[0], perm),)), perm


def _norm(s: _Layout, e: Call, perm: Perm) -> Made:
    """Normalisations with a channel axis; their parameters have one value a channel."""
    op: Any = e.op
    axes = tuple(sorted(perm.index(a % len(perm)) for a in op.axes))
    moved = with_fields(op, channel_axis=perm.index(op.channel_axis % len(perm)), axes=axes)
    return Call(moved, (s.version(e.args[0], perm), *(s.operand(a) for a in e.args[1:]))), perm


def _prelu(s: _Layout, e: Call, perm: Perm) -> Made:
    if _rank(e.args[1]) > 1:
        return None
    return _axis()(s, e, perm)


def _permute(s: _Layout, e: Call, perm: Perm) -> Made:
    """A transposition renames the axes of the versions; nothing moves."""
    axes = e.op.axes
    rank = len(perm)
    order = tuple(reversed(range(rank))) if axes is None else tuple(a % rank for a in axes)
    new = tuple(order.index(p) for p in perm)
    x = s.version(e.args[0], perm)
    return Versions(x, {}) if new == tuple(range(rank)) else Versions(None, {new: x})


def _squeeze(s: _Layout, e: Call, perm: Perm) -> Made:
    """Axes of length 1 vanish from the version, too."""
    before, after = _rank(e.args[0]), e.struct_info
    shape = getattr(e.args[0].struct_info, "shape", None)
    if not isinstance(after, TensorStructInfo) or after.shape is None or shape is None:
        return None
    axis = e.op.axis
    if axis is None:
        gone = {i for i, d in enumerate(shape) if as_int(d) == 1}
    else:
        gone = {a % before for a in ((axis,) if isinstance(axis, int) else axis)}
    left = [p for p in perm if p not in gone]
    order = sorted(left)
    new = tuple(order.index(p) for p in left)
    x = s.version(e.args[0], perm)
    made = s.bb.emit(Call(_make("reshape"), (x, ShapeExpr(tuple(after.shape[i] for i in new)))))
    return Versions(made, {}) if new == tuple(range(len(new))) else Versions(None, {new: made})


def _reshape(s: _Layout, e: Call, perm: Perm) -> Made:
    """Splitting the channels, or merging them again (a channel shuffle), and dropping axes of length 1."""
    out = e.struct_info
    old = getattr(e.args[0].struct_info, "shape", None)
    if not isinstance(out, TensorStructInfo) or out.shape is None or old is None:
        return None
    new = out.shape
    if len(old) == 4 and len(new) == 5 and perm == LAST and _same((old[0], *old[2:]), (new[0], *new[3:])):
        order: Perm = (0, 3, 4, 1, 2)
        x = s.version(e.args[0], perm)
        return Call(_make("reshape"), (x, ShapeExpr(tuple(new[i] for i in order)))), order
    if len(old) == 5 and len(new) == 4 and _same((old[0], *old[3:]), (new[0], *new[2:])):
        x = s.version(e.args[0], (0, 3, 4, 1, 2))
        return Call(_make("reshape"), (x, ShapeExpr(tuple(new[i] for i in LAST)))), LAST
    return None


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all(prove_equal(x, y) for x, y in zip(a, b))


_REDUCTIONS = ("sum", "mean", "max", "min", "prod", "variance", "std", "all", "any", "logsumexp", "argmax", "argmin")
_SPATIAL = (
    "nn.max_pool2d", "nn.avg_pool2d", "nn.lp_pool2d", "nn.adaptive_avg_pool2d", "nn.adaptive_max_pool2d", "image.resize2d",
)  # fmt: skip

RULES: dict[str, Rule] = {
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(_SPATIAL, _spatial),
    **dict.fromkeys(("nn.softmax", "nn.log_softmax", "nn.lrn", "split", "flip", "cumsum"), _axis()),
    **dict.fromkeys(("nn.instance_norm", "nn.group_norm"), _norm),
    "concat": _concat,
    "nn.prelu": _prelu,
    "nn.pad": _pad,
    "nn.conv2d_transpose": _conv_transpose,
    "permute_dims": _permute,
    "squeeze": _squeeze,
    "reshape": _reshape,
}
"""How operators follow a transposed operand; elementwise ones need no entry."""


def layout_pass(target: Any = None) -> Pass:
    """The pass that moves convolutions to channels-last data and packed weights, for `target`'s vector width."""
    block = vector_block(target)

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        return _Layout(mod, block).run()

    return Pass(run, "ConvertLayout", needs="graph", doc=__doc__)
