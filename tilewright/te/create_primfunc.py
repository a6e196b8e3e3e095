"""Tensor expressions to loops: one nest of loops with one block for each compute, intermediates in the root block.

for i, k: with block("B"): vi = spatial(n, i); vk = reduce(m, k)
                           reads(A[vi, vk]); writes(B[vi])
                           init: B[vi] = 0
                           B[vi] = B[vi] + A[vi, vk]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import (
    Add,
    And,
    BinaryOp,
    Call,
    Cast,
    CmpOp,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    Select,
    SizeVar,
    StringImm,
    Sub,
    Var,
    cast,
    if_then_else,
)  # fmt: skip
from tilewright.ir import dtype as dt
from tilewright.ir.node import map_children
from tilewright.ir.rewrite import substitute
from tilewright.te.tensor import ComputeOp, ExternOp, PlaceholderOp, Tensor
from tilewright.tir.analysis.regions import RegionUnion
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    ForKind,
    IterVar,
    LetStmt,
    PrimFunc,
    ProducerLoad,
    Range,
    Reduce,
    SeqStmt,
    Stmt,
    decl_buffer,
)  # fmt: skip

__all__ = ["create_prim_func"]

_TRUE = IntImm("bool", 1)
_LEAVES = (Var, SizeVar, IntImm, FloatImm, StringImm)
_BUILDERS: dict[type, Any] = {
    Add: ex.add, Sub: ex.sub, Mul: ex.mul, ex.Div: ex.div, ex.Mod: ex.mod, FloorDiv: ex.floordiv, FloorMod: ex.floormod,
    Min: ex.minimum, Max: ex.maximum,
}  # fmt: skip


def create_prim_func(
    ops: Sequence[Tensor | Var] | Tensor,
    index_dtype_override: str | None = None,
    name: str = "main",
) -> PrimFunc:
    """The function, in block form, that computes the tensors of `ops` that are no placeholders from those that are.

    `ops` are the parameters in order: placeholders, scalar variables, results. Tensors between them become buffers of the
    root block. `index_dtype_override` makes all loop variables of that dtype. Attributes: `global_symbol` = `name`,
    `tir.noalias`. Raises ValueError when a tensor is read that is neither computed nor a parameter.
    """
    args: list[Tensor | Var] = [ops] if isinstance(ops, Tensor) else list(ops)
    return _Creator(args, index_dtype_override).run(name)


def _post_order(args: Sequence[Tensor | Var]) -> list[Any]:
    """The operations that the tensors need, producers first."""
    done: dict[Any, None] = {}
    stack: list[tuple[Any, bool]] = [(t.op, False) for t in reversed(args) if isinstance(t, Tensor)]
    while stack:
        op, ready = stack.pop()
        if op in done:
            continue
        if ready:
            done[op] = None
            continue
        stack.append((op, True))
        stack.extend((t.op, False) for t in reversed(op.input_tensors) if t.op not in done)
    return list(done)


class _Creator:
    def __init__(self, args: list[Tensor | Var], index_dtype: str | None) -> None:
        self.args = args
        self.index_dtype = index_dtype
        self.buffers: dict[Tensor, Buffer] = {}
        self.env: dict[Any, PrimExpr] = {}
        self.names: dict[str, int] = {}
        self.reads: dict[Buffer, RegionUnion] = {}
        self.allocs: list[Buffer] = []

    # ---- the function ----

    def run(self, name: str) -> PrimFunc:
        params: list[Var] = []
        buffer_map: dict[Var, Buffer] = {}
        layout_free: list[int] = []
        order = _post_order(self.args)
        free_tensors = {t for op in order for t in getattr(op, "attrs", {}).get("layout_free_placeholders", ())}
        for a in self.args:
            if isinstance(a, Tensor):
                handle = Var(f"var_{a.name}", "handle")
                self.buffers[a] = buffer_map[handle] = self.buffer_of(a)
                if a in free_tensors:
                    layout_free.append(len(params))
                params.append(handle)
            else:
                params.append(a)
        body: list[Stmt] = []
        for op in order:
            body.extend(self.stage(op))
        block = Block((), (), (), "root", body[0] if len(body) == 1 else SeqStmt(tuple(body)), None, tuple(self.allocs))
        attrs: dict[str, Any] = {"global_symbol": name, "tir.noalias": True}
        if layout_free:
            attrs["layout_free_buffers"] = tuple(layout_free)
        return PrimFunc(tuple(params), BlockRealize((), _TRUE, block), None, buffer_map, attrs)

    def buffer_of(self, t: Tensor) -> Buffer:
        shape = t.shape if self.index_dtype is None else tuple(self.index(s) for s in t.shape)
        return decl_buffer(shape, t.dtype, t.name)

    def index(self, e: PrimExpr) -> PrimExpr:
        """`e` in the overriding index dtype."""
        return cast(e, self.index_dtype) if self.index_dtype and dt.is_int(e.dtype) else e

    def unique(self, name: str) -> str:
        n = self.names.get(name)
        self.names[name] = (n or 0) + 1
        return name if n is None else self.unique(f"{name}_{n}")

    def stage(self, op: Any) -> list[Stmt]:
        if isinstance(op, PlaceholderOp):
            if op.output(0) not in self.buffers:
                raise ValueError(f"create_prim_func: the input {op.name} is read but is not among the parameters")
            return []
        for t in op.outputs:
            if t not in self.buffers:
                self.buffers[t] = b = self.buffer_of(t)
                self.allocs.append(b)
        if isinstance(op, ExternOp):
            return [self.extern(op)]
        reduction = isinstance(op.body[0], Reduce)
        return [self.nest(op, (0,))] if len(op.body) == 1 else (
            [self.nest(op, tuple(range(len(op.body))))] if reduction else [self.nest(op, (i,)) for i in range(len(op.body))]
        )  # fmt: skip

    # ---- one compute ----

    def nest(self, op: ComputeOp, outputs: Sequence[int]) -> Stmt:
        """The loops and the block that compute these outputs."""
        first = op.body[outputs[0]]
        axes = [*op.axis, *(first.axis if isinstance(first, Reduce) else ())]
        iters: list[IterVar] = []
        loops: list[tuple[Var, PrimExpr, PrimExpr]] = []
        values: list[PrimExpr] = []
        for a in axes:
            assert a.dom is not None
            low, extent = self.value(a.dom.min), self.value(a.dom.extent)
            low, extent = self.index(low), self.index(extent)
            v = Var(f"v_{a.var.name}", extent.dtype)
            loop = Var(a.var.name, extent.dtype)
            zero = IntImm(extent.dtype, 0)
            if isinstance(low, IntImm) and low.value == 0:
                values.append(loop)
            else:
                values.append(low + loop)
            iters.append(IterVar(Range(low, extent), v, a.iter_type))
            loops.append((loop, zero, extent))
            self.env[a.var] = v
        if not iters:
            iters.append(IterVar(Range(IntImm("int32", 0), IntImm("int32", 1)), Var("vi", "int32")))
            values.append(IntImm("int32", 0))
        n = len(op.axis)
        point = tuple(i.var for i in iters[:n])
        self.reads = {}
        targets = [self.buffers[op.outputs[i]] for i in outputs]
        bodies: Any = [op.body[i] for i in outputs]
        if isinstance(first, Reduce):
            init, body = self.reduction(bodies, targets, point)
        else:
            init, body = None, BufferStore(targets[0], self.stored(bodies[0], targets[0]), point)
        reads = tuple(BufferRegion(b, u.ranges()) for b, u in self.reads.items() if b not in targets)
        writes = tuple(BufferRegion(b, tuple(_unit(p) for p in point)) for b in targets)
        annotations = {k: v for k, v in op.attrs.items() if k != "layout_free_placeholders"}
        label = op.name if len(op.body) == 1 or len(outputs) > 1 else f"{op.name}_v{outputs[0]}"
        block = Block(tuple(iters), reads, writes, self.unique(label), body, init, (), (), annotations)
        stmt: Stmt = BlockRealize(tuple(values), _TRUE, block)
        for loop, zero, extent in reversed(loops):
            stmt = For(loop, zero, extent, ForKind.SERIAL, stmt)
        return stmt

    def stored(self, e: PrimExpr, target: Buffer) -> PrimExpr:
        return cast(self.value(e), target.dtype)

    def reduction(self, bodies: list[Reduce], targets: list[Buffer], point: tuple[PrimExpr, ...]) -> tuple[Stmt, Stmt]:
        """(init, update) of a reduction of one or several values at once."""
        r = bodies[0]
        identity = r.init or r.combiner.identity_element
        starts = [self.value(identity[x.value_index]) for x in bodies]
        init = [BufferStore(b, s, point) for b, s in zip(targets, starts, strict=True)]
        condition = self.value(r.condition)
        for i, old in enumerate(r.combiner.lhs):
            target = targets[i] if i < len(targets) else None
            if target is None:
                raise ValueError("create_prim_func: a reduction of several values must give all of them")
            self.env[old] = BufferLoad(target, point)
        always = isinstance(condition, IntImm) and condition.value
        for new, source, neutral in zip(r.combiner.rhs, r.source, r.combiner.identity_element, strict=True):
            value = cast(self.value(source), new.dtype)
            self.env[new] = value if always else if_then_else(condition, value, neutral)
        results = [self.value(r.combiner.result[x.value_index]) for x in bodies]
        if len(results) == 1:
            return init[0], BufferStore(targets[0], results[0], point)
        names = [Var(f"v_{b.name}", e.dtype) for b, e in zip(targets, results, strict=True)]
        body: Stmt = SeqStmt(tuple(BufferStore(b, v, point) for b, v in zip(targets, names, strict=True)))
        for v, e in zip(reversed(names), reversed(results)):
            body = LetStmt(v, e, body)
        return SeqStmt(tuple(init)), body

    # ---- expressions ----

    def value(self, e: Any) -> Any:
        """`e` with axes replaced by the block's variables and tensors by buffers; loads are noted as reads."""
        kind: Any = type(e)
        if kind in _LEAVES:
            return self.env.get(e, e) if isinstance(e, Var) else e
        if isinstance(e, ProducerLoad):
            buffer = self.buffers.get(e.producer)  # pyright: ignore[reportArgumentType]
            if buffer is None:
                raise ValueError(f"create_prim_func: {e.producer.name} is read before it is computed")  # pyright: ignore
            indices = tuple([self.index(self.value(i)) for i in e.indices])
            self.note(buffer, indices)
            return BufferLoad(buffer, indices)
        if isinstance(e, (BinaryOp, CmpOp)):
            a, b = self.value(e.a), self.value(e.b)
            if a is e.a and b is e.b:
                return e
            if a.dtype != b.dtype or self.index_dtype:
                return self.rematch(kind, a, b)
            return kind(a, b)
        if kind is Call:
            call: Any = e
            args = tuple([self.value(a) if isinstance(a, PrimExpr) else a for a in call.args])
            if self.index_dtype and call.op.name == "tir.if_then_else":
                return if_then_else(*args)
            return Call(call.dtype, call.op, args)
        if kind is Select and self.index_dtype:
            s: Any = e
            return ex.select(self.value(s.condition), self.value(s.true_value), self.value(s.false_value))
        if kind is Cast:
            c: Any = e
            return cast(self.value(c.value), c.dtype)
        if isinstance(e, BufferLoad):
            self.note(e.buffer, e.indices)
            return e
        return map_children(e, self.value)

    def rematch(self, kind: Any, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """The operation on sides whose dtypes may differ because one is an index."""
        if kind in _BUILDERS:
            return _BUILDERS[kind](a, b)
        if kind is And:
            return ex.logical_and(a, b)
        return ex.logical_or(a, b) if kind is ex.Or else ex.cmp(kind, a, b)

    def note(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> None:
        known = self.reads.get(buffer)
        if known is None:
            known = self.reads[buffer] = RegionUnion(buffer)
        known.add_point(indices)

    # ---- statements given as such ----

    def extern(self, op: ExternOp) -> Stmt:
        """The statement of an ExternOp in a block, on our buffers."""
        mapping: dict[Any, Any] = {}
        for b, t in [*zip(op.input_buffers, op.inputs, strict=True), *zip(op.output_buffers, op.outputs, strict=True)]:
            ours = self.buffers[t]
            mapping[b] = ours
            mapping[b.data] = ours.data
        body = substitute(op.body, mapping)
        if isinstance(body, BlockRealize) and not body.block.iter_vars:
            block = body.block
            self.allocs.extend(block.alloc_buffers)
            if not block.match_buffers and block.init is None:
                body = block.body
        if any(isinstance(s, (BlockRealize,)) for s in _statements(body)):
            return body
        full = {
            b: BufferRegion(b, tuple(Range(IntImm(n.dtype, 0), n) for n in b.shape))
            for b in mapping.values()
            if isinstance(b, Buffer)
        }
        reads = tuple(full[self.buffers[t]] for t in op.inputs)
        writes = tuple(full[self.buffers[t]] for t in op.outputs)
        return BlockRealize((), _TRUE, Block((), reads, writes, self.unique(op.name), body))


def _statements(s: Any) -> Any:
    from tilewright.ir.node import walk

    return (x for x in walk(s) if isinstance(x, Stmt))


def _unit(i: PrimExpr) -> Range:
    return Range(i, IntImm(i.dtype, 1))
