"""Runs a device program thread by thread: the judge of the GPU passes.

The threads of a block run in turn, each up to its next barrier or exchange with its warp; then all go on together. Between two
barriers, an element that one thread writes and another touches is a race, and is reported; so is a barrier that not all threads
reach, and an access out of bounds. Kernels are turned into Python generators; it is meant for small programs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from tilewright.arith import expr as ex
from tilewright.ir import dtype as dt
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.intrin import INTRINSICS
from tilewright.tir.lower.device.lower import DeviceProgram
from tilewright.tir.transform.gpu.common import DeviceError, launch
from tilewright.tir.transform.gpu.thread_sync import scope_of

__all__ = ["Memory", "run_kernel", "run_program"]

_INFIX: dict[type, str] = {
    ex.Add: "+", ex.Sub: "-", ex.Mul: "*", ex.FloorDiv: "//", ex.FloorMod: "%", ex.EQ: "==", ex.NE: "!=", ex.LT: "<", ex.LE: "<=",
    ex.GT: ">", ex.GE: ">=",
}  # fmt: skip


class Memory:
    """One piece of memory; notes who touches what between barriers."""

    def __init__(self, name: str, data: np.ndarray[Any, Any], scope: str) -> None:
        self.name, self.data, self.scope = name, data, scope
        self.writers: dict[int, Any] = {}
        self.readers: dict[int, Any] = {}
        self.views: dict[str, Memory] = {}

    def view(self, dtype: str) -> Memory:
        """The same memory as elements of another dtype; races are told within a view."""
        found = self.views.get(dtype)
        if found is None:
            kind = dt.to_numpy(dtype)
            whole = self.data[: self.data.nbytes // kind.itemsize * kind.itemsize // self.data.itemsize]
            found = self.views[dtype] = Memory(self.name, whole.view(kind), self.scope)
        return found

    def clear(self) -> None:
        """A barrier: all that came before is over."""
        self.writers.clear()
        self.readers.clear()
        for v in self.views.values():
            v.clear()

    def places(self, i: Any) -> list[int]:
        places = [int(i)] if np.ndim(i) == 0 else [int(x) for x in i]
        for p in places:
            if not 0 <= p < len(self.data):
                raise DeviceError.at("TW0573", f"{self.name}[{p}] is out of bounds: it has {len(self.data)} elements")
        return places

    def load(self, thread: Any, i: Any) -> Any:
        """The element (or elements) at `i`, read by `thread`."""
        places = self.places(i)
        if self.scope != "local":
            for p in places:
                writer = self.writers.get(p, thread)
                if writer != thread:
                    raise _race(self, p, f"thread {thread} reads what thread {writer} writes")
                old = self.readers.setdefault(p, thread)
                if old != thread:
                    self.readers[p] = "several"
        return self.data[places[0]] if np.ndim(i) == 0 else self.data[places]

    def store(self, thread: Any, i: Any, value: Any) -> None:
        """Write the element (or elements) at `i`."""
        places = self.places(i)
        if self.scope != "local":
            for k, p in enumerate(places):
                reader = self.readers.get(p, thread)
                if reader != thread:
                    raise _race(self, p, f"thread {thread} writes what thread {reader} reads")
                writer = self.writers.setdefault(p, thread)
                new = value if np.ndim(value) == 0 else value[k]
                if writer != thread and not (self.data[p] == new or (new != new and self.data[p] != self.data[p])):
                    raise _race(self, p, f"threads {writer} and {thread} write different values")
        if np.ndim(i) == 0:
            self.data[places[0]] = value
        else:
            self.data[places] = value


def _race(m: Memory, place: int, what: str) -> CompileError:
    return DeviceError.at("TW0574", f"a race on {m.scope} memory {m.name}[{place}]: {what}, with no barrier between")


class _Emit:
    """A flat function as the text of a Python generator."""

    def __init__(self, f: t.PrimFunc) -> None:
        self.f = f
        self.lines: list[str] = []
        self.names: dict[Any, str] = {}
        self.scope: dict[str, Any] = {
            "np": np,
            "Memory": Memory,
            "_select": _select,
            "_intrin": _intrin,
            "_cast": _cast,
        }
        self.dtypes: dict[Any, str] = {}
        """What memory was allocated as."""

    def name(self, v: Any) -> str:
        found = self.names.get(v)
        if found is None:
            base = "".join(c if c.isalnum() else "_" for c in v.name) or "v"
            found = self.names[v] = f"{base}_{len(self.names)}"
        return found

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    # ---- statements

    def stmt(self, s: t.Stmt, d: int) -> None:
        method: Callable[[Any, int], None] | None = getattr(self, "s_" + type(s).__name__, None)
        if method is None:
            raise NotImplementedError(f"the interpreter of device programs does not run {type(s).__name__}")
        method(s, d)

    def s_SeqStmt(self, s: t.SeqStmt, d: int) -> None:
        for x in s.seq:
            self.stmt(x, d)

    def s_For(self, s: t.For, d: int) -> None:
        low = self.expr(s.min)
        self.line(d, f"for {self.name(s.loop_var)} in range(int({low}), int({low}) + int({self.expr(s.extent)})):")
        self.stmt(s.body, d + 1)

    def s_While(self, s: t.While, d: int) -> None:
        self.line(d, f"while {self.expr(s.condition)}:")
        self.stmt(s.body, d + 1)

    def s_IfThenElse(self, s: t.IfThenElse, d: int) -> None:
        self.line(d, f"if {self.expr(s.condition)}:")
        self.stmt(s.then_case, d + 1)
        if s.else_case is not None:
            self.line(d, "else:")
            self.stmt(s.else_case, d + 1)

    def s_LetStmt(self, s: t.LetStmt, d: int) -> None:
        self.line(d, f"{self.name(s.var)} = {self.expr(s.value)}")
        self.stmt(s.body, d)

    def s_AttrStmt(self, s: t.AttrStmt, d: int) -> None:
        axis = launch(s)
        if axis is not None:
            self.line(d, f"{self.name(axis.var)} = _axes[{axis.tag!r}]")
        self.stmt(s.body, d)

    def s_AssertStmt(self, s: t.AssertStmt, d: int) -> None:
        self.line(d, f"assert {self.expr(s.condition)}")
        self.stmt(s.body, d)

    def s_DeclBuffer(self, s: t.DeclBuffer, d: int) -> None:
        self.stmt(s.body, d)

    def s_Allocate(self, s: t.Allocate, d: int) -> None:
        size = "*".join(f"int({self.expr(x)})" for x in s.extents) or "1"
        size = f"({size})*{dt.lanes(s.dtype)}"
        scope, name = scope_of(s.buffer_var), self.name(s.buffer_var)
        self.dtypes[s.buffer_var] = dt.element(s.dtype)
        kind = f"np.dtype({dt.to_numpy(dt.element(s.dtype)).name!r})"
        made = f"Memory({s.buffer_var.name!r}, np.zeros({size}, {kind}), {scope!r})"
        if scope.startswith("shared"):
            made = f"_shared.setdefault({name!r}, None) or _shared.__setitem__({name!r}, {made}) or _shared[{name!r}]"
        self.line(d, f"{name} = {made}")
        self.stmt(s.body, d)

    def s_BufferStore(self, s: t.BufferStore, d: int) -> None:
        i = self.expr(s.indices[0])
        self.line(d, f"{self.memory(s.buffer)}.store(_t, {i}, {self.expr(s.value)})")

    def s_Evaluate(self, s: t.Evaluate, d: int) -> None:
        e = s.value
        if isinstance(e, ex.Call):
            name = getattr(e.op, "name", "")
            if name == "tir.tvm_storage_sync":
                scope: Any = e.args[0]
                self.line(d, f"yield ('barrier', {scope.value!r})")
                return
            if name == "tir.tvm_call_packed":
                symbol: Any = e.args[0]
                args = ", ".join(self.expr(x) for x in e.args[1:])
                self.line(d, f"_launch({symbol.value!r}, [{args}])")
                return
        self.line(d, self.expr(e))

    def memory(self, b: t.Buffer) -> str:
        """The memory of a buffer, as elements of its dtype."""
        name, dtype = self.name(b.data), dt.element(b.dtype)
        return name if self.dtypes.get(b.data, dtype) == dtype else f"{name}.view({dtype!r})"

    # ---- expressions

    def expr(self, e: Any) -> str:
        if isinstance(e, ex.Var):
            return self.name(e)
        if isinstance(e, ex.IntImm):
            return repr(bool(e.value)) if e.dtype == "bool" else repr(e.value)
        if isinstance(e, ex.FloatImm):
            return f"np.{dt.to_numpy(e.dtype).name}({e.value!r})" if np.isfinite(e.value) else self.constant(e)
        if isinstance(e, ex.StringImm):
            return repr(e.value)
        if isinstance(e, ex.Cast):
            return f"_cast({self.expr(e.value)}, {dt.element(e.dtype)!r})"
        if type(e) in _INFIX:
            return f"({self.expr(e.a)} {_INFIX[type(e)]} {self.expr(e.b)})"
        if isinstance(e, (ex.Min, ex.Max)):
            return f"np.{'minimum' if isinstance(e, ex.Min) else 'maximum'}({self.expr(e.a)}, {self.expr(e.b)})"
        if isinstance(e, ex.Div):
            return (
                f"({self.expr(e.a)} / {self.expr(e.b)})" if dt.is_float(e.dtype) else self.call("_trunc_div", e.a, e.b)
            )
        if isinstance(e, ex.And):
            return f"({self.expr(e.a)} and {self.expr(e.b)})"
        if isinstance(e, ex.Or):
            return f"({self.expr(e.a)} or {self.expr(e.b)})"
        if isinstance(e, ex.Not):
            return f"np.logical_not({self.expr(e.a)})"
        if isinstance(e, ex.Select):
            return self.call("_select", e.condition, e.true_value, e.false_value)
        if isinstance(e, t.BufferLoad):
            return f"{self.memory(e.buffer)}.load(_t, {self.expr(e.indices[0])})"
        if isinstance(e, ex.Ramp):
            return f"({self.expr(e.base)} + np.arange({e.lanes}) * {self.expr(e.stride)})"
        if isinstance(e, ex.Broadcast):
            return f"np.repeat({self.expr(e.value)}, {e.lanes})"
        if isinstance(e, ex.Shuffle) and len(e.vectors) == 1:
            picks = ", ".join(self.expr(i) for i in e.indices)
            return f"np.atleast_1d({self.expr(e.vectors[0])})[[{picks}]]"
        if isinstance(e, ex.Let):
            return f"[{self.expr(e.body)} for {self.name(e.var)} in [{self.expr(e.value)}]][0]"
        if isinstance(e, ex.Call):
            return self.intrinsic(e)
        raise NotImplementedError(f"the interpreter of device programs does not evaluate {type(e).__name__}")

    def constant(self, e: ex.FloatImm) -> str:
        return f"np.dtype({dt.to_numpy(e.dtype).name!r}).type({str(e.value)!r})"

    def call(self, name: str, *args: Any) -> str:
        self.scope["_trunc_div"] = _trunc_div
        return f"{name}({', '.join(self.expr(a) for a in args)})"

    def intrinsic(self, e: ex.Call) -> str:
        name = getattr(e.op, "name", "")
        if name == "tir.if_then_else":
            c, a, b = e.args
            return f"({self.expr(a)} if {self.expr(c)} else {self.expr(b)})"
        if name == "tir.likely":
            return self.expr(e.args[0])
        if name == "tir.tvm_warp_activemask":
            return "0xffffffff"
        if name in ("tir.tvm_warp_shuffle", "tir.tvm_warp_shuffle_down", "tir.tvm_warp_shuffle_up"):
            _, value, lane, width, _ = e.args
            return f"(yield ({name!r}, {self.expr(value)}, {self.expr(lane)}, {self.expr(width)}))"
        if name in INTRINSICS and INTRINSICS[name].numpy is not None:
            args = ", ".join(self.expr(a) for a in e.args)
            return f"_intrin({name!r}, {dt.element(e.dtype)!r}, {args})"
        raise NotImplementedError(f"the interpreter of device programs does not know {name}")

    def function(self, params: Sequence[str]) -> Callable[..., Any]:
        self.line(0, f"def run({', '.join(params)}):")
        head = [self.name(p) for p in self.f.params]
        if head:
            self.line(1, f"{', '.join(head)}, = _args")
        self.line(1, "if 0: yield")
        self.stmt(self.f.body, 1)
        exec("\n".join(self.lines), self.scope)
        return self.scope["run"]


def _select(c: Any, a: Any, b: Any) -> Any:
    return np.where(c, a, b) if np.ndim(c) else (a if c else b)


def _trunc_div(a: Any, b: Any) -> Any:
    return np.asarray(np.trunc(np.asarray(a) / np.asarray(b))).astype(np.int64)


def _cast(x: Any, dtype: str) -> Any:
    kind = dt.to_numpy(dtype)
    return np.asarray(x).astype(kind) if np.ndim(x) else kind.type(x)


def _intrin(name: str, dtype: str, *args: Any) -> Any:
    f = INTRINSICS[name].numpy
    assert f is not None
    out = f(*args)
    return _cast(out, dtype)


def run_program(program: DeviceProgram, *arrays: Any) -> None:
    """Run the host function on numpy arrays (in place) and scalars, in the order of its parameters."""
    host = program.host
    kernels = {str(k.attrs["global_symbol"]): k for k in program.kernels}
    values: list[Any] = []
    sizes: dict[Any, Any] = {}
    for p, a in zip(host.params, arrays, strict=True):
        b = host.buffer_map.get(p)
        if b is None:
            sizes[p] = a
            continue
        for n, actual in zip(b.shape, np.shape(a), strict=True):
            if isinstance(n, ex.Var):
                sizes[n] = actual
        sizes[b.data] = Memory(b.name, np.asarray(a).reshape(-1), "global")
        values.append(a)
    emit = _Emit(t.PrimFunc(tuple(sizes), host.body))

    def start(symbol: str, args: list[Any]) -> None:
        run_kernel(kernels[symbol], args)

    emit.scope["_launch"] = start
    run = emit.function(["_args", "_t", "_axes", "_shared"])
    for _ in run(list(sizes.values()), None, {}, {}):
        raise DeviceError.at("TW0575", "the host function holds a barrier")


def run_kernel(kernel: t.PrimFunc, args: list[Any]) -> None:
    """Run a kernel on its parameters (Memory, numbers), followed by its launch parameters."""
    names: list[str] = list(kernel.attrs["tir.kernel_launch_params"])
    params, sizes = args[: len(kernel.params)], args[len(kernel.params) :]
    extents = dict(zip(names, map(int, sizes), strict=True))
    emit = _Emit(kernel)
    run = emit.function(["_args", "_t", "_axes", "_shared"])
    blocks = [n for n in names if n.startswith("blockIdx")]
    threads = sorted(n for n in names if n.startswith("threadIdx"))
    memories = [a for a in params if isinstance(a, Memory)]
    for block in np.ndindex(*(extents[b] for b in blocks)):
        axes = dict(zip(blocks, map(int, block), strict=True))
        shared: dict[str, Memory] = {}
        counts = [extents[x] for x in reversed(threads)]
        lanes: list[Generator[Any, Any, None]] = []
        for number, place in enumerate(np.ndindex(*counts)):
            own = {**axes, **dict(zip(reversed(threads), map(int, place), strict=True))}
            lanes.append(run(params, (tuple(map(int, block)), number), own, shared))
        _together(lanes, shared, memories, str(kernel.attrs.get("global_symbol")))
    for m in memories:
        m.clear()


def _together(lanes: list[Any], shared: dict[str, Memory], memories: list[Memory], name: str) -> None:
    """Run the threads of one block from one meeting to the next."""
    live: dict[int, Any] = dict(enumerate(lanes))
    answers: dict[int, Any] = dict.fromkeys(live)
    while live:
        asked: dict[int, Any] = {}
        for i, g in list(live.items()):
            try:
                asked[i] = g.send(answers[i])
            except StopIteration:
                del live[i]
        if not asked:
            return
        barriers = {i for i, q in asked.items() if q[0] == "barrier"}
        if barriers:
            scopes = {asked[i][1] for i in barriers}
            if scopes != {"warp"} and len(barriers) != len(lanes):
                raise DeviceError.at(
                    "TW0575", f"a barrier in kernel {name!r} that {len(lanes) - len(barriers)} of {len(lanes)} threads do not reach"
                )  # fmt: skip
            for m in shared.values():
                m.clear()
            if "warp" not in scopes:
                for m in memories:
                    m.clear()
        answers = {i: None if i in barriers else _exchange(i, asked) for i in asked}


def _exchange(i: int, asked: dict[int, Any]) -> Any:
    """What a thread gets from another of its warp."""
    kind, value, lane, width = asked[i]
    start = i - i % width
    where = {"tir.tvm_warp_shuffle": start + int(lane), "tir.tvm_warp_shuffle_down": i + int(lane)}.get(
        kind, i - int(lane)
    )
    if kind == "tir.tvm_warp_shuffle":
        where = start + int(lane) % width
    if where // width != i // width or where not in asked:
        return value
    return asked[where][1]
