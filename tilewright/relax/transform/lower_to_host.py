"""Lower a graph function to a host function of the loop IR: kernel calls on planned memory.

The function must be in legal form: its bindings are `call_tir`, `call_dps_packed`, views (reshape and its like), tuples, and
`If` on a scalar bool. The result is a PrimFunc in flat form whose params are the graph function's inputs and then its outputs
(`attrs["num_outputs"]`), whose intermediates lie in one arena, and whose constants are `AllocateConst`s: memory that is shared by
all calls and never copied. Three steps: collect what is to be done (`_Collector`), plan the memory, emit statements (`_Emitter`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np

from tilewright.arith.expr import Call, IntImm, PrimExpr, StringImm, Var, call_intrin, cast, const, pointer_var
from tilewright.ir import dtype as dt
from tilewright.ir.module import IRModule
from tilewright.ir.op import GlobalVar, Op
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.ir.structure import structural_equal
from tilewright.relax import ir as rx
from tilewright.relax.dims import difference, show_dim
from tilewright.relax.struct_info import PrimStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from tilewright.relax.transform.plan_memory import MemoryPlan, Request, plan
from tilewright.support.diagnostics import CompileError
from tilewright.tir.build import tw_raise
from tilewright.tir.ir import (
    Allocate,
    AllocateConst,
    Buffer,
    BufferLoad,
    Evaluate,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    decl_buffer,
)  # fmt: skip

__all__ = ["HostFunction", "lower_to_host"]

VIEWS = ("reshape", "expand_dims", "squeeze", "flatten")
"""Operators that a row-major tensor undergoes without a copy."""


@dataclass(eq=False)
class Storage:
    """Memory of one tensor: in the arena, or behind a pointer (a parameter, a constant). `first`/`last`: steps alive."""

    size: PrimExpr
    pointer: Var | None = None
    first: int = 1 << 60
    last: int = -1
    moved_to: Storage | None = None
    request: Request | None = None

    def final(self) -> Storage:
        """The storage that stands for this one."""
        return self if self.moved_to is None else self.moved_to.final()


@dataclass(eq=False)
class Tensor:
    """A tensor value of the host: where it lies, and its type."""

    storage: Storage
    shape: tuple[PrimExpr, ...]
    dtype: str


Value = Union[Tensor, "list[Value]", rx.ShapeExpr, PrimExpr, GlobalVar]


@dataclass
class KernelCall:
    """Call `kernel` with pointers to `tensors`, then `scalars`."""

    kernel: GlobalVar
    tensors: list[Tensor]
    scalars: list[PrimExpr]


@dataclass
class PackedCall:
    """Call the registered function `name`; it writes its results into the last tensors."""

    name: str
    args: list[Any]


@dataclass
class Copy:
    """Copy all bytes of `source` to `target`."""

    source: Tensor
    target: Tensor


@dataclass
class Check:
    """Stop unless two dimensions that inference took for equal are."""

    have: PrimExpr
    want: PrimExpr


@dataclass
class Branch:
    """Run one of two lists of work."""

    cond: Tensor
    then: list[Any]
    other: list[Any]


@dataclass
class HostFunction:
    """What a graph function became: the PrimFunc, the kernels it calls, and the memory it planned."""

    func: PrimFunc
    plan: MemoryPlan
    kernels: list[GlobalVar] = field(default_factory=list[GlobalVar])


def byte_size(shape: Sequence[PrimExpr], dtype: str) -> PrimExpr:
    """Bytes of a compact tensor, as an int64 expression."""
    size: PrimExpr = const(dt.storage_bytes(dtype), "int64")
    for dim in shape:
        size = size * cast(dim, "int64")
    return size


class _Collector:
    """Walks the bindings and lists the work, each piece with a step number."""

    def __init__(self, mod: IRModule, name: str) -> None:
        self.mod, self.name = mod, name
        self.env: dict[Any, Value] = {}
        self.symbols: dict[Var, PrimExpr] = {}
        self.bound: set[Var] = set()
        self.storages: list[Storage] = []
        self.constants: dict[int, tuple[Tensor, np.ndarray[Any, Any]]] = {}
        self.kernels: dict[GlobalVar, None] = {}
        self.work: list[Any] = []
        self.step = 0

    # values

    def fail(self, what: str, hint: str | None = None) -> CompileError:
        return CompileError.at("TW0550", f"cannot lower {self.name}: {what}", hint=hint)

    def new_tensor(self, info: StructInfo | None, pointer: Var | None = None) -> Value:
        if isinstance(info, TupleStructInfo):
            return [self.new_tensor(f) for f in info.fields]
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            raise self.fail(
                f"a value of {info!r} has no shape known from the inputs", "data-dependent shapes are not lowered yet"
            )
        shape = tuple(self.dim(d) for d in info.shape)
        storage = Storage(byte_size(shape, info.dtype), pointer)
        if pointer is None:
            self.storages.append(storage)
        return Tensor(storage, shape, info.dtype)

    def dim(self, d: PrimExpr) -> PrimExpr:
        d = substitute(d, self.symbols)
        unknown = [v for v in free_vars(d) if v not in self.bound]
        if unknown:
            names = ", ".join(v.name for v in unknown)
            raise self.fail(f"the dimension {names} does not follow from the shapes of the inputs")
        return d

    def value(self, e: Any) -> Value:
        if isinstance(e, rx.Var):
            if e not in self.env:
                raise self.fail(f"{e.name_hint} is used before it is bound")
            return self.env[e]
        if isinstance(e, rx.Constant):
            return self.constant(e.data)
        if isinstance(e, rx.Tuple):
            return [self.value(f) for f in e.fields]
        if isinstance(e, rx.TupleGetItem):
            whole = self.value(e.tuple_value)
            assert isinstance(whole, list)
            return whole[e.index]
        if isinstance(e, rx.ShapeExpr):
            return rx.ShapeExpr(tuple(self.dim(d) for d in e.values))
        if isinstance(e, rx.PrimValue):
            return substitute(e.value, self.symbols)
        if isinstance(e, (GlobalVar, rx.ExternFunc)):
            return e  # pyright: ignore[reportReturnType]
        raise self.fail(f"a {type(e).__name__} cannot stand as an operand here")

    def constant(self, data: np.ndarray[Any, Any]) -> Tensor:
        found = self.constants.get(id(data))
        if found is None:
            dtype = "bool" if data.dtype == np.bool_ else str(data.dtype)
            pointer = pointer_var(f"const_{len(self.constants)}", dtype)
            shape = tuple(const(d, "int64") for d in data.shape)
            found = (Tensor(Storage(byte_size(shape, dtype), pointer), shape, dtype), data)
            self.constants[id(data)] = found
        return found[0]

    def touch(self, v: Value) -> None:
        if isinstance(v, list):
            for item in v:
                self.touch(item)
        elif isinstance(v, Tensor):
            storage = v.storage.final()
            storage.first, storage.last = min(storage.first, self.step), max(storage.last, self.step)

    def flat(self, v: Value) -> list[Tensor]:
        if isinstance(v, list):
            return [t for item in v for t in self.flat(item)]
        if not isinstance(v, Tensor):
            raise self.fail(f"a {type(v).__name__} is no tensor")
        return [v]

    def add(self, piece: Any, values: Sequence[Value]) -> None:
        for v in values:
            self.touch(v)
        self.work.append(piece)
        self.step += 1

    # bindings

    def sequence(self, e: Any) -> Value:
        if isinstance(e, rx.SeqExpr):
            for block in e.blocks:
                for b in block.bindings:
                    self.binding(b)
            return self.sequence(e.body)
        return self.compute(e, None)

    def binding(self, b: rx.Binding) -> None:
        if isinstance(b, rx.MatchCast):
            self.env[b.var] = self.match_cast(b)
        elif isinstance(b, rx.VarBinding):
            self.env[b.var] = self.compute(b.value, b.var.struct_info)

    def match_cast(self, b: rx.MatchCast) -> Value:
        value, info = self.value(b.value), b.struct_info
        have: Sequence[PrimExpr] = ()
        want: Sequence[PrimExpr] = ()
        if isinstance(value, Tensor) and isinstance(info, TensorStructInfo):
            have, want = value.shape, info.shape or ()
        elif isinstance(value, rx.ShapeExpr) and isinstance(info, ShapeStructInfo):
            have, want = value.values, info.values or ()
        for x, y in zip(have, want):
            if isinstance(y, Var) and y not in self.bound and y not in self.symbols:
                self.symbols[y] = x
                continue
            gap = difference(x, self.dim(y))
            if gap is None:
                self.add(Check(x, self.dim(y)), [])
            elif gap:
                raise self.fail(f"match_cast of a dimension {show_dim(x)} to {show_dim(y)}, which differs")
        return value

    def compute(self, e: Any, info: StructInfo | None) -> Value:
        if isinstance(e, rx.If):
            return self.branch(e, info)
        if not isinstance(e, rx.Call):
            return self.value(e)
        info = info or e.struct_info
        name = getattr(e.op, "name", "")
        if name in VIEWS:
            source = self.value(e.args[0])
            assert isinstance(source, Tensor)
            assert isinstance(info, TensorStructInfo)
            if info.shape is None:
                raise self.fail(f"{name} to a shape that the inputs do not tell")
            return Tensor(source.storage, tuple(self.dim(d) for d in info.shape), info.dtype)
        if name == "call_tir":
            return self.call_tir(e)
        if name == "call_dps_packed":
            return self.call_packed(e)
        raise self.fail(f"operator {name or type(e.op).__name__} is not legalised", "run LegalizeOps before")

    def operands(self, e: Any) -> list[Value]:
        value = self.value(e)
        return value if isinstance(value, list) else [value]

    def result(self, e: rx.Call) -> Value:
        return self.new_tensor(e.sinfo_args[0] if len(e.sinfo_args) == 1 else TupleStructInfo(e.sinfo_args))

    def call_tir(self, e: rx.Call) -> Value:
        kernel = e.args[0]
        assert isinstance(kernel, GlobalVar)
        args = self.operands(e.args[1])
        out = self.result(e)
        extra = self.value(e.args[2]) if len(e.args) > 2 else None
        scalars = list(extra.values) if isinstance(extra, rx.ShapeExpr) else []
        tensors = [t for a in args if not isinstance(a, PrimExpr) for t in self.flat(a)]
        scalars = [a for a in args if isinstance(a, PrimExpr)] + scalars
        self.kernels[kernel] = None
        self.add(KernelCall(kernel, tensors + self.flat(out), scalars), [*tensors, out])
        return out

    def call_packed(self, e: rx.Call) -> Value:
        func = e.args[0]
        assert isinstance(func, (rx.ExternFunc, GlobalVar))
        name = func.global_symbol if isinstance(func, rx.ExternFunc) else func.name_hint
        args = [x for a in self.operands(e.args[1]) for x in ([a] if isinstance(a, PrimExpr) else self.flat(a))]
        out = self.result(e)
        self.add(PackedCall(name, args + self.flat(out)), [*args, out])
        return out

    def branch(self, e: rx.If, info: StructInfo | None) -> Value:
        cond = self.value(e.cond)
        assert isinstance(cond, Tensor)
        out = self.new_tensor(info or e.struct_info)
        outer = self.work
        self.touch(cond)
        self.step += 1
        lists: list[list[Any]] = []
        for body in (e.true_branch, e.false_branch):
            self.work = []
            start = self.step
            self.touch(out)
            result = self.sequence(body)
            for source, target in zip(self.flat(result), self.flat(out), strict=True):
                self.deliver(source, target, start)
            lists.append(self.work)
        self.work = outer
        self.add(Branch(cond, lists[0], lists[1]), [cond, out])
        return out

    def deliver(self, source: Tensor, target: Tensor, start: int) -> None:
        """Bring `source` into the memory of `target`: by computing it there, if it was made since `start`; else by a copy."""
        from_, to = source.storage.final(), target.storage.final()
        fresh = from_.pointer is None and from_.first >= start and from_ in self.storages
        if fresh and from_ is not to and structural_equal(from_.size, to.size):
            from_.moved_to = to
            to.first, to.last = min(to.first, from_.first), max(to.last, from_.last)
            self.storages.remove(from_)
        elif from_ is not to:
            self.add(Copy(source, target), [source, target])


class _Emitter:
    """Statements of the collected work."""

    def __init__(self, mod: IRModule, arena: Buffer) -> None:
        self.mod, self.arena = mod, arena

    def pointer(self, t: Tensor) -> PrimExpr:
        storage = t.storage.final()
        if storage.pointer is not None:
            return storage.pointer
        assert storage.request is not None
        assert storage.request.offset is not None
        return call_intrin("handle", "tir.address_of", BufferLoad(self.arena, (storage.request.offset,)))

    def statements(self, work: list[Any]) -> Stmt:
        done = [self.statement(w) for w in work]
        return done[0] if len(done) == 1 else SeqStmt(tuple(done))

    def statement(self, w: Any) -> Stmt:
        if isinstance(w, KernelCall):
            return self.kernel(w)
        if isinstance(w, Copy):
            size = byte_size(w.source.shape, w.source.dtype)
            target, source = self.pointer(w.target), self.pointer(w.source)
            return Evaluate(call_intrin("handle", "tir.call_extern", StringImm("memcpy"), target, source, size))
        if isinstance(w, PackedCall):
            return self.packed(w)
        if isinstance(w, Check):
            text = f"dimensions that have to be equal are not: {show_dim(w.have)} is %lld, {show_dim(w.want)} is %lld"
            text = text.replace("%", "%%").replace("%%lld", "%lld")
            return IfThenElse(w.have != w.want, Evaluate(tw_raise("ValueError", text, w.have, w.want)))
        assert isinstance(w, Branch)
        flag = pointer_var("cond", "bool")
        load = BufferLoad(decl_buffer([1], "bool", "cond", data=flag), (const(0, "int64"),))
        nothing = Evaluate(const(0))
        then = self.statements(w.then) if w.then else nothing
        body = IfThenElse(load, then, self.statements(w.other) if w.other else None)
        return LetStmt(flag, self.pointer(w.cond), body)

    def kernel(self, w: KernelCall) -> Stmt:
        from tilewright.tir.lower.kernel_abi import kernel_params

        func = self.mod[w.kernel]
        assert isinstance(func, PrimFunc)
        _, symbols = kernel_params(func)
        buffers = func.param_buffers
        if len(buffers) != len(w.tensors):
            raise CompileError.at(
                "TW0550", f"{w.kernel.name_hint} takes {len(buffers)} tensors, the call gives {len(w.tensors)}"
            )
        values = self.match(buffers, w.tensors)
        tensors, scalars = iter(w.tensors), iter(w.scalars)
        args: list[PrimExpr] = []
        for p in func.params:
            if p in func.buffer_map:
                args.append(self.pointer(next(tensors)))
            else:
                scalar = next(scalars)
                args.append(cast(scalar, p.dtype))
                values[p] = scalar
        args += [cast(values.get(s, s), s.dtype) for s in symbols]
        return Evaluate(Call("int32", w.kernel, tuple(args)))

    @staticmethod
    def match(buffers: Sequence[Buffer], tensors: Sequence[Tensor]) -> dict[Var, PrimExpr]:
        """The values of the kernel's symbolic dimensions, read off the shapes it is called with."""
        values: dict[Var, PrimExpr] = {}
        for buffer, tensor in zip(buffers, tensors, strict=True):
            for want, have in zip(buffer.shape, tensor.shape, strict=True):
                if isinstance(want, Var) and want not in values:
                    values[want] = have
        return values

    def packed(self, w: PackedCall) -> Stmt:
        lets: list[tuple[Var, PrimExpr]] = []
        args: list[Any] = [StringImm(w.name)]
        for a in w.args:
            if isinstance(a, PrimExpr):
                args.append(a)
                continue
            data = pointer_var("arg", a.dtype)
            lets.append((data, self.pointer(a)))
            args.append(decl_buffer(a.shape, a.dtype, "arg", data=data))
        body: Stmt = Evaluate(Call("int32", Op.get("tir.tvm_call_packed"), tuple(args)))
        for var, value in reversed(lets):
            body = LetStmt(var, value, body)
        return body


def _params(func: rx.Function, c: _Collector) -> tuple[list[Var], dict[Var, Buffer]]:
    """Parameters for the inputs; binds their symbolic dimensions."""
    params: list[Var] = []
    buffers: dict[Var, Buffer] = {}
    infos = [p.struct_info for p in func.params]
    for info in infos:
        if isinstance(info, TensorStructInfo) and info.shape is not None:
            c.bound.update(v for d in info.shape for v in free_vars(d))
    for p, info in zip(func.params, infos, strict=True):
        if isinstance(info, PrimStructInfo):
            scalar = info.value if isinstance(info.value, Var) else Var(p.name_hint, info.dtype)
            params.append(scalar)
            c.bound.add(scalar)
            c.env[p] = scalar
            continue
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            raise c.fail(f"parameter {p.name_hint} must be a tensor of known rank", "give its shape")
        handle = Var(p.name_hint, "handle")
        buffer = decl_buffer(info.shape, info.dtype, p.name_hint)
        params.append(handle)
        buffers[handle] = buffer
        c.env[p] = c.new_tensor(info, buffer.data)
    return params, buffers


def _outputs(c: _Collector, result: Value, names: Sequence[str]) -> list[tuple[Var, Buffer]]:
    out: list[tuple[Var, Buffer]] = []
    for i, t in enumerate(c.flat(result)):
        name = names[i] if i < len(names) else f"output_{i}"
        buffer = decl_buffer(t.shape, t.dtype, name)
        target = Tensor(Storage(byte_size(t.shape, t.dtype), buffer.data), t.shape, t.dtype)
        c.deliver(t, target, 0)
        out.append((Var(name, "handle"), buffer))
    return out


def lower_to_host(mod: IRModule, name: str = "main", output_names: Sequence[str] = ()) -> HostFunction:
    """The graph function `name` of `mod` as a host PrimFunc (see the head of the module).

    Raises CompileError (TW0550) where a shape does not follow from the inputs' shapes or an operator is not legalised.
    """
    func = mod[name]
    assert isinstance(func, rx.Function)
    c = _Collector(mod, name)
    params, buffers = _params(func, c)
    result = c.sequence(func.body)
    outputs = _outputs(c, result, output_names)
    params += [p for p, _ in outputs]
    buffers.update(outputs)
    for s in c.storages:
        if s.last >= 0:
            s.request = Request(s.size, s.first, s.last)
    memory = plan([s.request for s in c.storages if s.request is not None])
    arena = pointer_var("arena", "uint8")
    emitter = _Emitter(mod, decl_buffer([memory.size], "uint8", "arena", data=arena))
    body = emitter.statements(c.work) if c.work else Evaluate(const(0))
    if not (isinstance(memory.size, IntImm) and memory.size.value == 0):
        body = Allocate(arena, "uint8", (memory.size,), IntImm("bool", 1), body)
    for tensor, data in reversed(list(c.constants.values())):
        pointer = tensor.storage.pointer
        assert pointer is not None
        body = AllocateConst(pointer, tensor.dtype, tensor.shape, data, body)
    attrs = {"global_symbol": name, "num_outputs": len(outputs), "returns_tuple": isinstance(result, list)}
    host = PrimFunc(tuple(params), body, None, buffers, attrs)
    return HostFunction(host, memory, list(c.kernels))
