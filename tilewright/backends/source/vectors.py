"""Vectors taken apart, for languages that have none or only some.

A language says which vector types it has (`supports(dtype)`). What it has becomes

    v = A[ramp(i, 1, 4)]                     one load of a whole vector, bound to a variable
    C[ramp(i, 1, 4)] = (v.0 + 1, ..., v.3 + 1)   lanes computed one by one, stored together

and everything else a loop over the lanes. Both keep the meaning of a vector statement: all lanes are read before the first
is written. After this the only vectors are: a LetStmt of a contiguous load or of a Shuffle of scalars, a Shuffle that takes
one lane of such a variable, and a store of a variable, a Broadcast or a Shuffle of scalars to contiguous elements.
Buffers have scalar elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Union

from tilewright.arith import expr as E
from tilewright.arith.expr import IntImm, PrimExpr, Ramp, Var
from tilewright.ir import dtype as dt
from tilewright.ir.node import map_children, replace, walk
from tilewright.ir.op import Op, PointerType, PrimType
from tilewright.ir.structure import structural_equal
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as T

__all__ = ["take_vectors_apart"]

Lane = Union[int, Var]


class _Unroll(Exception):
    """A lane cannot be named by a variable: it must be a constant."""


def take_vectors_apart(f: T.PrimFunc, supports: Callable[[str], bool], aligned: bool = False) -> T.PrimFunc:
    """The function with vectors only where `supports(dtype)`; see the head of the module.

    `aligned`: whole vectors are loaded and stored only where their index is known to be a multiple of their lanes.
    """
    if not any(_has_vector(n) for n in walk(f.body)):
        return f
    return replace(f, body=_Apart(supports, aligned).stmt(f.body))


def _has_vector(n: Any) -> bool:
    if isinstance(n, T.Buffer):
        return dt.lanes(n.dtype) > 1
    return isinstance(n, PrimExpr) and "x" in n.dtype and dt.lanes(n.dtype) > 1


def _always(e: PrimExpr) -> bool:
    """Is every part of `e` evaluated whenever `e` is?"""
    return not (isinstance(e, E.Call) and isinstance(e.op, Op) and e.op.name == "tir.if_then_else")


class _Apart:
    def __init__(self, supports: Callable[[str], bool], aligned: bool) -> None:
        self.supports, self.aligned = supports, aligned
        self.arrays: dict[Var, T.Buffer] = {}
        """Vector variables that live in an array of their lanes."""
        self.loads: dict[int, Var] = {}
        """Whole loads that were bound to variables, by the id of the load."""
        self.views: dict[T.Buffer, T.Buffer] = {}
        self.values: dict[Var, PrimExpr] = {}
        self._kept: list[Any] = []  # loads whose ids are keys stay alive

    # ---- statements

    def stmt(self, s: Any) -> Any:
        method = _STMT.get(type(s))
        if method is not None:
            return method(self, s)
        return map_children(s, lambda c: self.stmt(c) if isinstance(c, T.Stmt) else self.part(c))

    def part(self, n: Any) -> Any:
        """A part of a statement that is no statement."""
        return self.scalar(n) if isinstance(n, PrimExpr) and not n.identity else n

    def store(self, s: T.BufferStore) -> T.Stmt:
        buffer, index = self.place(s.buffer, s.indices[0])
        n = dt.lanes(index.dtype)
        if n == 1:
            return T.BufferStore(buffer, self.scalar(s.value), (self.scalar(index),))
        if self.supports(dt.with_lanes(s.value.dtype, n)):
            return self.whole_store(buffer, index, s.value, n)
        hazard = self.reads(s.value, buffer, index)
        return self.each_lane(n, lambda lane: self.lane_store(buffer, index, s.value, lane), hazard, s.value, buffer, index)  # fmt: skip

    def lane_store(self, buffer: T.Buffer, index: PrimExpr, value: PrimExpr, lane: Lane) -> T.Stmt:
        return T.BufferStore(buffer, self.lane(value, lane), (self.lane(index, lane),))

    def each_lane(
        self, n: int, make: Callable[[Lane], T.Stmt], hazard: bool, value: PrimExpr, buffer: T.Buffer, index: PrimExpr
    ) -> T.Stmt:
        """`make(lane)` for every lane; with a hazard, all lanes of `value` first."""
        if not hazard:
            return self.loop(n, make, index.dtype)
        array = _array(buffer.name + "_lanes", value.dtype)
        first = self.loop(n, lambda lane: T.BufferStore(array, self.lane(value, lane), (_at(lane),)))
        then = self.loop(
            n, lambda lane: T.BufferStore(buffer, T.BufferLoad(array, (_at(lane),)), (self.lane(index, lane),))
        )
        return _allocate(array, n, T.seq(first, then))

    def loop(self, n: int, make: Callable[[Lane], T.Stmt], dtype: str = "int32") -> T.Stmt:
        var = Var("lane", dt.element(dtype))
        try:
            return T.For(var, IntImm(var.dtype, 0), IntImm(var.dtype, n), T.ForKind.SERIAL, make(var))
        except _Unroll:
            return T.seq(*[make(i) for i in range(n)])

    def whole_store(self, buffer: T.Buffer, index: PrimExpr, value: PrimExpr, n: int) -> T.Stmt:
        bound = self.bind_loads(value)
        whole = self.whole(value)
        if self.contiguous(buffer, index, n):
            store: T.Stmt = T.BufferStore(buffer, whole, (self.ramp(index),))
        elif self.reads(value, buffer, index) and not isinstance(whole, Var):
            v = Var(buffer.name + "_v", value.dtype)
            scattered = [T.BufferStore(buffer, _pick(v, i), (self.lane(index, i),)) for i in range(n)]
            store = T.LetStmt(v, whole, T.seq(*scattered))
        else:
            store = T.seq(*[self.lane_store(buffer, index, value, i) for i in range(n)])
        return self.with_loads(bound, store)

    def with_loads(self, bound: Sequence[tuple[Var, PrimExpr]], body: T.Stmt) -> T.Stmt:
        for v, load in reversed(bound):
            body = T.LetStmt(v, load, body)
        return body

    def let(self, s: T.LetStmt) -> T.Stmt:
        n = dt.lanes(s.var.dtype)
        if n == 1:
            value = self.scalar(s.value)
            self.values[s.var] = value
            return T.LetStmt(s.var, value, self.stmt(s.body))
        if self.supports(s.var.dtype):
            bound = self.bind_loads(s.value)
            whole = self.whole(s.value)
            return self.with_loads(bound, T.LetStmt(s.var, whole, self.stmt(s.body)))
        array = self.arrays[s.var] = _array(s.var.name, s.var.dtype)
        fill = self.loop(n, lambda lane: T.BufferStore(array, self.lane(s.value, lane), (_at(lane),)))
        return _allocate(array, n, T.seq(fill, self.stmt(s.body)))

    def branch(self, s: T.IfThenElse) -> T.Stmt:
        n = dt.lanes(s.condition.dtype)
        if n == 1:
            other = None if s.else_case is None else self.stmt(s.else_case)
            return T.IfThenElse(self.scalar(s.condition), self.stmt(s.then_case), other)
        cases = [s.then_case] if s.else_case is None else [s.then_case, s.else_case]
        stores: list[Any] = [c for case in cases for c in (case.seq if isinstance(case, T.SeqStmt) else (case,))]
        if not all(isinstance(c, T.BufferStore) and dt.lanes(c.indices[0].dtype) == n for c in stores):
            raise CompileError.at("TW0660", "a branch on a vector condition may only hold stores of vectors")

        def masked(lane: Lane, case: T.Stmt) -> T.Stmt:
            given: Any = case.seq if isinstance(case, T.SeqStmt) else (case,)
            return T.seq(*[self.lane_store(*self.place(c.buffer, c.indices[0]), c.value, lane) for c in given])

        def one(lane: Lane) -> T.Stmt:
            other = None if s.else_case is None else masked(lane, s.else_case)
            return T.IfThenElse(self.lane(s.condition, lane), masked(lane, s.then_case), other)

        return self.loop(n, one, stores[0].indices[0].dtype)

    def allocate(self, s: T.Allocate) -> T.Stmt:
        n = dt.lanes(s.dtype)
        body = self.stmt(s.body)
        extents = tuple(self.scalar(x) for x in s.extents)
        if n > 1:
            extents = (*extents[:-1], extents[-1] * IntImm(extents[-1].dtype, n)) if extents else (IntImm("int32", n),)
        return T.Allocate(s.buffer_var, dt.element(s.dtype), extents, s.condition, body, s.annotations)

    def declare(self, s: T.DeclBuffer) -> T.Stmt:
        return T.DeclBuffer(self.view(s.buffer), self.stmt(s.body))

    # ---- whole vectors

    def contiguous(self, buffer: T.Buffer, index: PrimExpr, n: int) -> bool:
        """May the `n` elements at `index` be touched as one vector?"""
        if not (isinstance(index, Ramp) and isinstance(index.stride, IntImm) and index.stride.value == 1):
            return False
        if dt.lanes(index.base.dtype) != 1 or not self.supports(dt.with_lanes(buffer.dtype, n)):
            return False
        return not self.aligned or self.divisible(index.base, n)

    def divisible(self, e: PrimExpr, n: int) -> bool:
        """Is `e` certainly a multiple of `n`?"""
        if isinstance(e, IntImm):
            return e.value % n == 0
        if isinstance(e, Var):
            return e in self.values and self.divisible(self.values[e], n)
        if isinstance(e, (E.Add, E.Sub)):
            return self.divisible(e.a, n) and self.divisible(e.b, n)
        if isinstance(e, E.Mul):
            return self.divisible(e.a, n) or self.divisible(e.b, n)
        if isinstance(e, E.FloorMod):
            return self.divisible(e.a, n) and self.divisible(e.b, n)
        return isinstance(e, E.Cast) and self.divisible(e.value, n)

    def bind_loads(self, e: PrimExpr) -> list[tuple[Var, PrimExpr]]:
        """The whole loads that `e` makes for certain, each bound to a new variable."""
        out: list[tuple[Var, PrimExpr]] = []

        def visit(x: Any) -> None:
            if isinstance(x, T.BufferLoad):
                buffer, index = self.place(x.buffer, x.indices[0])
                n = dt.lanes(index.dtype)
                if n > 1 and id(x) not in self.loads and self.contiguous(buffer, index, n):
                    v = Var(buffer.name + "_v", dt.with_lanes(buffer.dtype, n))
                    self.loads[id(x)] = v
                    self._kept.append(x)
                    out.append((v, T.BufferLoad(buffer, (self.ramp(index),))))
                return
            if isinstance(x, PrimExpr) and _always(x):
                for child in _parts(x):
                    visit(child)

        visit(e)
        return out

    def ramp(self, index: PrimExpr) -> PrimExpr:
        assert isinstance(index, Ramp)
        return Ramp(self.scalar(index.base), index.stride, index.lanes)

    def whole(self, e: PrimExpr) -> PrimExpr:
        """A vector as something that can be stored: a variable, a Broadcast, or all its lanes."""
        if isinstance(e, T.BufferLoad) and id(e) in self.loads:
            return self.loads[id(e)]
        if isinstance(e, Var) and e not in self.arrays:
            return e
        if isinstance(e, E.Broadcast) and dt.lanes(e.value.dtype) == 1:
            return E.Broadcast(self.scalar(e.value), e.lanes)
        n = dt.lanes(e.dtype)
        lanes = tuple(self.lane(e, i) for i in range(n))
        return E.Shuffle(lanes, tuple(IntImm("int32", i) for i in range(n)))

    # ---- buffers

    def view(self, b: T.Buffer) -> T.Buffer:
        """The buffer with scalar elements."""
        n = dt.lanes(b.dtype)
        if n == 1:
            return b
        found = self.views.get(b)
        if found is None:
            shape = (*b.shape[:-1], b.shape[-1] * IntImm(b.shape[-1].dtype, n)) if b.shape else ()
            found = self.views[b] = replace(b, dtype=dt.element(b.dtype), shape=shape)
        return found

    def place(self, b: T.Buffer, index: PrimExpr) -> tuple[T.Buffer, PrimExpr]:
        """Buffer and index of an access in scalar elements."""
        n = dt.lanes(b.dtype)
        if n == 1:
            return b, index
        one = IntImm(dt.element(index.dtype), 1)
        if dt.lanes(index.dtype) == 1:
            return self.view(b), Ramp(index * IntImm(index.dtype, n), one, n)
        if isinstance(index, Ramp) and isinstance(index.stride, IntImm) and index.stride.value == 1:
            return self.view(b), Ramp(index.base * IntImm(index.base.dtype, n), one, n * index.lanes)
        raise CompileError.at("TW0660", f"a gather of vectors from buffer {b.name!r} has no form in this language")

    def reads(self, value: PrimExpr, buffer: T.Buffer, index: PrimExpr) -> bool:
        """May a lane of `value` read what the store of another lane writes?"""
        for n in walk(value):
            if isinstance(n, T.BufferLoad) and n.buffer.data is buffer.data:
                same = self.place(n.buffer, n.indices[0])[1]
                if not structural_equal(same, index):
                    return True
        return False

    # ---- lanes

    def scalar(self, e: Any) -> Any:
        """A scalar expression without vectors in it."""
        if isinstance(e, E.Shuffle):
            if len(e.indices) == 1:
                return self.shuffled(e.vectors, int(e.indices[0]))  # pyright: ignore[reportArgumentType]
        elif isinstance(e, E.Call) and isinstance(e.op, Op) and e.op.name == "tir.reduce_lanes":
            return self.reduce(e)
        elif isinstance(e, T.BufferLoad):
            buffer, index = self.place(e.buffer, e.indices[0])
            return T.BufferLoad(buffer, (self.scalar(index),))
        return map_children(e, lambda c: self.scalar(c) if isinstance(c, PrimExpr) and not c.identity else c)

    def reduce(self, e: E.Call) -> PrimExpr:
        kind, v = e.args[0].value, e.args[1]
        lanes = [self.lane(v, i) for i in range(dt.lanes(v.dtype))]
        combine: Any = {"add": E.Add, "mul": E.Mul, "max": E.Max, "min": E.Min}[kind]
        while len(lanes) > 1:
            half = len(lanes) // 2
            rest = lanes[2 * half :]
            lanes = [combine(lanes[i], lanes[half + i]) for i in range(half)] + rest
        return lanes[0]

    def lane(self, e: Any, lane: Lane) -> Any:
        """One lane of a vector expression, as a scalar."""
        if not isinstance(e, PrimExpr) or dt.lanes(e.dtype) == 1:
            return self.scalar(e) if isinstance(e, PrimExpr) else e
        method = _LANE.get(type(e))
        if method is not None:
            return method(self, e, lane)
        if isinstance(e, E.Cast):
            return E.Cast(dt.element(e.dtype), self.lane(e.value, lane))
        return map_children(e, lambda c: self.lane(c, lane) if isinstance(c, PrimExpr) else c)

    def lane_ramp(self, e: Ramp, lane: Lane) -> PrimExpr:
        inner = dt.lanes(e.base.dtype)
        outer: Any = lane
        base: PrimExpr = e.base
        if inner > 1:
            if not isinstance(lane, int):
                raise _Unroll
            outer = lane // inner
            base = self.lane(e.base, lane % inner)
        else:
            base = self.scalar(base)
        stride = self.scalar(e.stride)
        step = stride * (IntImm(stride.dtype, outer) if isinstance(outer, int) else outer.astype(stride.dtype))
        return base + step

    def lane_broadcast(self, e: E.Broadcast, lane: Lane) -> PrimExpr:
        inner = dt.lanes(e.value.dtype)
        if inner == 1:
            return self.scalar(e.value)
        if not isinstance(lane, int):
            raise _Unroll
        return self.lane(e.value, lane % inner)

    def lane_var(self, e: Var, lane: Lane) -> PrimExpr:
        array = self.arrays.get(e)
        return _pick(e, lane) if array is None else T.BufferLoad(array, (_at(lane),))

    def lane_load(self, e: T.BufferLoad, lane: Lane) -> PrimExpr:
        bound = self.loads.get(id(e))
        if bound is not None:
            return _pick(bound, lane)
        buffer, index = self.place(e.buffer, e.indices[0])
        return T.BufferLoad(buffer, (self.lane(index, lane),))

    def lane_shuffle(self, e: E.Shuffle, lane: Lane) -> PrimExpr:
        if isinstance(lane, int):
            return self.shuffled(e.vectors, int(e.indices[lane]))  # pyright: ignore[reportArgumentType]
        raise _Unroll

    def shuffled(self, vectors: Sequence[PrimExpr], index: int) -> PrimExpr:
        """Element `index` of all vectors in a row."""
        for v in vectors:
            n = dt.lanes(v.dtype)
            if index < n:
                return self.lane(v, index)
            index -= n
        raise CompileError.at("TW0660", "a Shuffle picks a lane that its vectors do not have")

    def lane_call(self, e: E.Call, lane: Lane) -> PrimExpr:
        name = e.op.name if isinstance(e.op, Op) else ""
        if name in ("tir.vectorlow", "tir.vectorhigh", "tir.vectorcombine"):
            if not isinstance(lane, int):
                raise _Unroll
            skip = dt.lanes(e.args[0].dtype) // 2 if name == "tir.vectorhigh" else 0
            return self.shuffled(e.args, lane + skip)
        if name in ("tir.call_extern", "tir.call_llvm_intrin", "tir.tvm_call_packed"):
            raise CompileError.at("TW0660", f"a call of {name} that gives a vector has no form in this language")
        if name == "tir.reinterpret" and dt.lanes(e.args[0].dtype) != dt.lanes(e.dtype):
            raise CompileError.at("TW0660", f"reinterpret of {e.args[0].dtype} as {e.dtype} has no form lane by lane")
        args = tuple(self.lane(a, lane) for a in e.args)
        return E.Call(dt.element(e.dtype), e.op, args)

    def lane_let(self, e: E.Let, lane: Lane) -> PrimExpr:
        if dt.lanes(e.var.dtype) == 1:
            return E.Let(e.var, self.scalar(e.value), self.lane(e.body, lane))
        one = Var(e.var.name, dt.element(e.var.dtype))
        array, self.arrays = self.arrays, dict(self.arrays)
        body = self.lane(_with_lane_variable(e.body, e.var, one), lane)
        self.arrays = array
        return E.Let(one, self.lane(e.value, lane), body)


def _with_lane_variable(body: PrimExpr, var: Var, one: Var) -> PrimExpr:
    """`body`, in which the vector variable stands for the lane being computed."""
    stand_in = E.Broadcast(one, dt.lanes(var.dtype))

    def visit(x: Any) -> Any:
        if x is var:
            return stand_in
        return map_children(x, lambda c: visit(c) if isinstance(c, PrimExpr) else c) if not x.identity else x

    return visit(body)


def _parts(e: PrimExpr) -> list[Any]:
    from tilewright.ir.node import children

    return [] if e.identity else [c for c in children(e) if isinstance(c, PrimExpr)]


def _at(lane: Lane) -> PrimExpr:
    return IntImm("int32", lane) if isinstance(lane, int) else lane


def _pick(v: Var, lane: Lane) -> PrimExpr:
    if not isinstance(lane, int):
        raise _Unroll
    return E.Shuffle((v,), (IntImm("int32", lane),))


def _array(name: str, dtype: str) -> T.Buffer:
    data = Var(name, "handle", PointerType(PrimType(dt.element(dtype)), "local"))
    return T.Buffer(data, dt.element(dtype), (IntImm("int32", dt.lanes(dtype)),), name=name)


def _allocate(b: T.Buffer, n: int, body: T.Stmt) -> T.Stmt:
    return T.Allocate(b.data, b.dtype, (IntImm("int32", n),), IntImm("bool", 1), body)


_STMT: dict[type, Callable[[_Apart, Any], T.Stmt]] = {
    T.BufferStore: _Apart.store, T.LetStmt: _Apart.let, T.IfThenElse: _Apart.branch, T.Allocate: _Apart.allocate,
    T.DeclBuffer: _Apart.declare,
}  # fmt: skip
_LANE: dict[type, Callable[[_Apart, Any, Lane], PrimExpr]] = {
    Ramp: _Apart.lane_ramp, E.Broadcast: _Apart.lane_broadcast, Var: _Apart.lane_var, T.BufferLoad: _Apart.lane_load,
    E.Shuffle: _Apart.lane_shuffle, E.Call: _Apart.lane_call, E.Let: _Apart.lane_let,
}  # fmt: skip
