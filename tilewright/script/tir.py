"""The `T` namespace of script: `from tilewright.script import tir as T`.

Expressions come from `tir/build.py` and `arith/expr.py`; this module adds the dtypes (`T.int32`, `T.float32x4`, `T.handle`), the
bare constructors that neither fold nor convert (`T.Add`, `T.Cast`, ...), buffers, loops, blocks and scopes.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith import expr as E
from tilewright.arith.build import match_dtypes
from tilewright.arith.scalable import lane_count
from tilewright.ir import dtype as dt
from tilewright.ir.node import Node, replace
from tilewright.ir.op import Op, PointerType, PrimType, Type
from tilewright.script.commands import (
    AllocBuffer,
    BlockAttr,
    BlockFrame,
    BranchFrame,
    Frame,
    FuncAttr,
    IfFrame,
    InitFrame,
    MatchBuffer,
    MetaVar,
    Predicate,
    Reads,
    SeqFrame,
    Writes,
    between,
    regions,
)
from tilewright.script.evaluate import as_operand
from tilewright.script.immediate import done
from tilewright.script.intrinsics import find as find_intrinsic
from tilewright.script.loops import axis, grid, parallel, serial, thread_binding, unroll, vectorized
from tilewright.script.more_names import NAMES as OTHER_NAMES
from tilewright.script.more_names import find as find_other
from tilewright.script.namespace import Buffer, BufferFactory, DtypeFactory, HandleFactory, make_buffer
from tilewright.tir import build, intrin
from tilewright.tir import ir as _tir
from tilewright.tir.build_calls import CALLS, call_dtype, call_tir, trace

__all__ = [
    "Assert", "AssertStmt", "Buffer", "BufferRegion", "Call", "Cast", "CommReducer", "FloatImm", "IntImm", "Let", "LetStmt",
    "Op", "PointerType", "PrimType", "Ramp", "Range", "Reduce", "Select", "Shuffle", "SizeVar", "StringImm", "Var",
    "alloc_buffer", "allocate", "allocate_const", "attr", "axis", "block", "block_attr", "bool", "buffer_store", "call_intrin",
    "Else", "If", "Then", "While", "broadcast", "call_tir", "cast", "env_thread", "ramp", "trace",
    "comm_reducer", "decl_buffer", "evaluate", "func_attr", "grid", "handle", "init", "iter_var", "launch_thread", "macro",
    "match_buffer", "meta_var", "parallel", "prim_func", "reads", "realize", "seq", "serial", "target", "thread_binding",
    "unroll",
    "var", "vectorized", "where", "writes",
]  # fmt: skip

bool = DtypeFactory("bool")
handle = HandleFactory()
Op = Op.get
StringImm = E.StringImm
Broadcast_ = E.Broadcast

_NAMES: dict[str, Any] = {}


def __getattr__(name: str) -> Any:
    """dtypes by their name, then the builders of `tir/build.py`."""
    if name in _NAMES:
        return _NAMES[name]
    found: Any = None
    if name in _BARE:
        found = _bare(_BARE[name])
    elif (built := find_intrinsic(name)) is not None:
        found = built
    elif f"tir.{name}" in intrin.INTRINSICS:
        found = _by_table(name)
    elif (other := find_other(name)) is not None:
        found = other
    elif not name.startswith("_") and _is_dtype(name):
        found = DtypeFactory(dt.canonical(name))
    if found is None:
        raise AttributeError(f"module 'tilewright.script.tir' has no attribute {name!r}")
    _NAMES[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(
        {
            *__all__,
            *build.__all__,
            *CALLS,
            *OTHER_NAMES,
            *_BARE,
            "int32",
            "int64",
            "int8",
            "uint8",
            "float16",
            "float32",
            "float64",
            "bfloat16",
        }
    )


def _is_dtype(name: str) -> Any:
    try:
        return dt.parse(dt.canonical(name))
    except ValueError:
        return None


# ---- expressions


_BARE: dict[str, type[Any]] = {
    c.__name__: c
    for c in (E.Add, E.Sub, E.Mul, E.Div, E.Mod, E.FloorDiv, E.FloorMod, E.Min, E.Max)
    + (E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE, E.And, E.Or)
}


def _bare(kind: type[Any]) -> Callable[[Any, Any], Any]:
    def make(a: Any, b: Any) -> Any:
        a, b = as_operand(a), as_operand(b)
        if not isinstance(a, E.PrimExpr) or not isinstance(b, E.PrimExpr):
            a, b = match_dtypes(a, b)
        return kind(a, b)

    make.__name__ = make.__qualname__ = kind.__name__
    make.__doc__ = f"{kind.__doc__}; neither folded nor converted"
    return make


def _argument(a: Any) -> Any:
    """An argument of an intrinsic: an axis is its variable; a region stays one."""
    return a.var if isinstance(a, _tir.IterVar) else a


def _by_table(name: str) -> Callable[..., Any]:
    def call(*args: Any, dtype: str = "") -> Any:
        del dtype  # the table says it
        values = [a if isinstance(a, Node) else E.convert(a) for a in map(_argument, args)]
        return E.Call(intrin.result_dtype(f"tir.{name}", values) or "int32", Op(f"tir.{name}"), tuple(values))

    call.__name__ = call.__qualname__ = name
    return call


def call_intrin(*args: Any, dtype: Any = None) -> Any:
    """`T.call_intrin(dtype, name, *args)`: a call of an intrinsic by its full name."""
    if dtype is None:
        dtype, *args = args  # pyright: ignore[reportAssignmentType]
    name, *rest = args
    return E.call_intrin(call_dtype(dtype), name.name if hasattr(name, "name") else name, *map(_argument, rest))


def Call(dtype: str, op: Any, args: Sequence[Any]) -> Any:
    """A call as it is."""
    return E.Call(dtype, op, tuple(a if isinstance(a, Node) else E.convert(a) for a in args))


def Not(a: Any) -> Any:
    """The opposite of a bool; not folded."""
    return E.Not(E.convert(a))


def Cast(dtype: str, value: Any) -> Any:
    """`value` converted to `dtype`; not folded."""
    return E.Cast(dt.canonical(str(dtype)), E.convert(as_operand(value)))


def Select(condition: Any, true_value: Any, false_value: Any) -> Any:
    """Both values are evaluated; not folded."""
    a, b = as_operand(true_value), as_operand(false_value)
    if not isinstance(a, E.PrimExpr) or not isinstance(b, E.PrimExpr):
        a, b = match_dtypes(a, b)
    return E.Select(E.convert(condition), a, b)


def Let(body: Any, where: dict[E.Var, Any]) -> Any:
    """`T.Let(body, where={v: value})`"""
    out = E.convert(body)
    for v, value in reversed(where.items()):
        out = E.Let(v, E.convert(value), out)
    return out


def Ramp(base: Any, stride: Any, lanes: Any) -> Any:
    """The vector base, base + stride, ..."""
    base = E.convert(base)
    return E.Ramp(base, stride if isinstance(stride, E.PrimExpr) else E.const(stride, base.dtype), lane_count(lanes))


def broadcast(value: Any, lanes: Any) -> Any:
    """`value` in every lane"""
    return Broadcast(value, lanes)


def ramp(base: Any, stride: Any, lanes: Any) -> Any:
    """The vector base, base + stride, ..."""
    return Ramp(base, stride, lanes)


def Broadcast(value: Any, lanes: Any) -> Any:
    """`value` in every lane"""
    return E.Broadcast(E.convert(as_operand(value)), lane_count(lanes))


def Shuffle(vectors: Sequence[Any], indices: Sequence[Any]) -> Any:
    """Lanes picked from the vectors"""
    return E.Shuffle(tuple(map(E.convert, vectors)), tuple(map(E.convert, indices)))


def IntImm(dtype: str, value: int) -> Any:
    """A constant as it is."""
    return E.IntImm(dtype, value)


def FloatImm(dtype: str, value: Any) -> Any:
    """A constant as it is."""
    return E.FloatImm(dtype, float(value))


def Var(name: str, dtype: Any) -> Any:
    """A variable by its name and its dtype or type."""
    if isinstance(dtype, Type):
        return E.Var(name, dtype.dtype if isinstance(dtype, PrimType) else "handle", dtype)
    return E.Var(name, str(dtype))


def var(dtype: str, name: str = "") -> Any:
    """A variable, as `T.int32()` makes one."""
    return E.Var(name=name, dtype=str(dtype))


def cast(value: Any, dtype: Any) -> Any:
    """`value` converted to `dtype`; constants at once."""
    return E.cast(as_operand(value), dt.canonical(str(dtype)))


def SizeVar(name: str, dtype: str = "int32") -> Any:
    """A variable that is not negative."""
    return E.SizeVar(name, dtype)


class _RangeFactory:
    """`T.Range(begin, end)`, `T.Range.from_min_extent(min, extent)`"""

    def __call__(self, begin: Any, end: Any = None) -> _tir.Range:
        if end is None:
            begin, end = E.const(0, E.convert(begin).dtype), begin
        begin, end = match_dtypes(begin, end) if not isinstance(begin, E.PrimExpr) else (begin, E.convert(end))
        return _tir.Range(begin, between(begin, end))

    @staticmethod
    def from_min_extent(min_value: Any, extent: Any) -> _tir.Range:
        """A range from its start and length."""
        return _tir.Range(E.convert(min_value), E.convert(extent))


Range = _RangeFactory()


def BufferRegion(buffer: _tir.Buffer, region: Sequence[_tir.Range]) -> Any:
    """A region by its ranges."""
    return _tir.BufferRegion(buffer, tuple(region))


_ITER_TYPES = {
    name: i
    for i, name in enumerate(
        [
            "DataPar",
            "ThreadIndex",
            "CommReduce",
            "Ordered",
            "Opaque",
            "Unrolled",
            "Vectorized",
            "Parallelized",
            "Tensorized",
        ]
    )
}


def iter_var(var: Any, dom: Any, iter_type: str, thread_tag: str = "") -> Any:
    """An axis by its parts."""
    v: Any = Var(var, "int32") if isinstance(var, str) else var
    domain = dom if dom is None or isinstance(dom, _tir.Range) else Range(*dom)
    return _tir.IterVar(domain, v, _ITER_TYPES[iter_type], thread_tag)


def comm_reducer(combiner: Callable[..., Any], identity: Sequence[Any]) -> Any:
    """A reducer: `T.comm_reducer(lambda x, y: x + y, [T.float32(0)])`"""
    values = [E.convert(v) for v in identity]
    names = getattr(combiner, "names", None) or [f"x{i}" for i in range(2 * len(values))]
    made = [E.Var(n, values[i % len(values)].dtype) for i, n in enumerate(names)]
    result = combiner(*made)
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    n = len(values)
    return _tir.CommReducer(tuple(made[:n]), tuple(made[n:]), tuple(map(E.convert, results)), tuple(values))


CommReducer = comm_reducer


def Reduce(
    combiner: Any,
    source: Sequence[Any],
    axis: Sequence[Any],
    condition: Any,
    value_index: int,
    init: Sequence[Any] = (),
) -> Any:
    """A reduction over axes."""
    return _tir.Reduce(
        combiner,
        tuple(map(E.convert, source)),
        tuple(axis),
        E.convert(condition),
        value_index,
        tuple(map(E.convert, init)),
    )


# ---- buffers


def match_buffer(
    param: Any,
    shape: Any = None,
    dtype: str = "float32",
    data: Any = None,
    strides: Sequence[Any] = (),
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 64,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] = (),
) -> MatchBuffer:
    """Binds a handle parameter to a buffer, or makes a view of a region of another buffer."""
    del buffer_type
    if shape is None:
        if isinstance(param, (_tir.BufferRegion, _tir.BufferLoad)):
            (region,) = regions([param])
            shape = [r.extent for r in region.region]
            dtype = region.buffer.dtype
        else:
            raise ValueError("match_buffer of a parameter needs a shape")
    view = isinstance(param, (_tir.BufferRegion, _tir.BufferLoad))
    made = make_buffer(
        shape, dtype, data, strides, elem_offset, scope, align, offset_factor, axis_separators, is_view=view
    )
    return done(MatchBuffer(param, made))


def alloc_buffer(
    shape: Any,
    dtype: str = "float32",
    data: Any = None,
    strides: Sequence[Any] = (),
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 64,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] = (),
) -> AllocBuffer:
    """A buffer that lives as long as one run of the block (or function) it stands in."""
    del buffer_type
    b = make_buffer(shape, dtype, data, strides, elem_offset, scope, align, offset_factor, axis_separators)
    return done(AllocBuffer(b))


def decl_buffer(
    shape: Any,
    dtype: str = "float32",
    data: Any = None,
    strides: Sequence[Any] = (),
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 64,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] = (),
) -> Frame:
    """A view of memory that exists already; without `data`, memory is allocated for it."""
    del buffer_type
    b = make_buffer(shape, dtype, data, strides, elem_offset, scope, align, offset_factor, axis_separators)
    if data is not None:
        return Frame(lambda body: _tir.DeclBuffer(b, body), b, "T.decl_buffer")
    true = E.IntImm("bool", 1)
    return Frame(
        lambda body: _tir.Allocate(b.data, b.dtype, b.shape, true, _tir.DeclBuffer(b, body)), b, "T.decl_buffer"
    )


def _extents(extents: Any) -> tuple[Any, ...]:
    return tuple(E.convert(x) for x in (extents if isinstance(extents, (tuple, list)) else (extents,)))


def allocate(
    extents: Any,
    dtype: str,
    scope: str = "global",
    condition: Any = None,
    annotations: dict[str, Any] | None = None,
    *,
    var: Any = None,
) -> Frame:
    """Raw memory; the value is its pointer."""
    dtype = dt.canonical(str(dtype))
    v = var if var is not None else E.pointer_var("", dtype, scope)
    test = E.IntImm("bool", 1) if condition is None else E.convert(condition)
    return Frame(
        lambda body: _tir.Allocate(v, dtype, _extents(extents), test, body, dict(annotations or {})), v, "T.allocate"
    )


def allocate_const(
    data: Any,
    dtype: str,
    extents: Any,
    annotations: dict[str, Any] | None = None,
    *,
    scope: str = "global",
    var: Any = None,
) -> Frame:
    """Constant memory: a list of numbers, or an array."""
    import numpy as np

    dtype = dt.canonical(str(dtype))
    v = var if var is not None else E.pointer_var("", dtype, scope)
    sizes = _extents(extents)
    array = data
    if isinstance(data, (list, tuple)):
        array = np.array(data, dtype=dt.to_numpy(dtype))
    return Frame(
        lambda body: _tir.AllocateConst(v, dtype, sizes, array, body, dict(annotations or {})), v, "T.allocate_const"
    )


def realize(region: Any, storage_scope: str = "", condition: Any = True) -> Frame:
    """Memory for a region of a buffer; with a scope, inside of the attribute `realize_scope`."""
    if isinstance(region, _tir.Buffer):
        raise TypeError(f"T.realize needs a region, such as {region.name}[0:16], not a buffer")
    (r,) = regions([region])
    test = E.convert(condition)
    if dt.is_int(test.dtype):
        test = E.cast(test, "bool")

    def wrap(body: _tir.Stmt) -> _tir.Stmt:
        made = _tir.BufferRealize(r.buffer, r.region, test, body)
        return _tir.AttrStmt(r.buffer, "realize_scope", E.StringImm(storage_scope), made) if storage_scope else made

    return Frame(wrap, None, "T.realize")


def buffer_store(buffer: _tir.Buffer, value: Any, indices: Sequence[Any]) -> _tir.Stmt:
    """`buffer[indices] = value`, not converted."""
    return done(_tir.BufferStore(buffer, E.convert(value), tuple(map(E.convert, indices))))


# ---- scopes and statements


def LetStmt(value: Any, type_annotation: Any = None, *, var: Any = None) -> Frame:
    """`with T.LetStmt(value) as x:`"""
    e = E.convert(value)
    v = var
    if v is None:
        v = type_annotation() if isinstance(type_annotation, (DtypeFactory, HandleFactory)) else E.Var("", e.dtype)
    return Frame(lambda body: _tir.LetStmt(v, e, body), v, "T.LetStmt")


def attr(node: Any, attr_key: str, value: Any) -> Frame:
    """An attribute of the code in its scope."""
    e: Any = value if isinstance(value, Node) else E.convert(value)
    return Frame(lambda body: _tir.AttrStmt(node, attr_key, e, body), None, "T.attr")


def launch_thread(thread: Any, extent: Any) -> Frame:
    """A thread axis of a GPU kernel, by its tag or one of `T.env_thread`; the value is its index."""
    e = E.convert(extent)
    if isinstance(thread, _tir.IterVar):
        dom = _tir.Range(E.const(0, e.dtype), e)
        key = "virtual_thread" if thread.thread_tag.startswith("vthread") else "thread_extent"
        known = replace(thread, dom=dom)
        return Frame(lambda body: _tir.AttrStmt(known, key, e, body), thread.var, "T.launch_thread")
    axis_ = _tir.IterVar(_tir.Range(E.const(0, e.dtype), e), E.Var("", e.dtype), _tir.IterVar.ThreadIndex, thread)
    key = "virtual_thread" if thread.startswith("vthread") else "thread_extent"
    return Frame(lambda body: _tir.AttrStmt(axis_, key, e, body), axis_.var, "T.launch_thread")


def env_thread(thread_tag: str, dtype: str = "int32") -> Any:
    """A thread index without its extent, to be launched by `T.launch_thread`."""
    return _tir.IterVar(None, E.Var("", dtype), _tir.IterVar.ThreadIndex, thread_tag)


def Assert(condition: Any, message: Any) -> Frame:
    """`with T.Assert(condition, "message"):`"""
    test, text = E.convert(condition), E.convert(message)
    return Frame(lambda body: _tir.AssertStmt(test, text, body), None, "T.Assert")


AssertStmt = Assert


def If(condition: Any) -> IfFrame:
    """`with T.If(condition):` holds `with T.Then():` and perhaps `with T.Else():`."""
    return IfFrame(E.convert(condition))


def Then() -> BranchFrame:
    """The branch of a `T.If` that runs where its condition holds."""
    return BranchFrame(True)


def Else() -> BranchFrame:
    """The other branch of a `T.If`."""
    return BranchFrame(False, what="T.Else")


def While(condition: Any) -> Frame:
    """`with T.While(condition):`"""
    test = E.convert(condition)
    return Frame(lambda body: _tir.While(test, body), None, "T.While")


def evaluate(value: Any) -> _tir.Stmt:
    """Evaluate for the effect."""
    return done(_tir.Evaluate(E.convert(value)))


def seq() -> SeqFrame:
    """`with T.seq():` a sequence inside a sequence."""
    return SeqFrame()


def block(name: str = "", no_realize: builtins.bool = False) -> BlockFrame:
    """`with T.block("C"):`"""
    return BlockFrame(name, no_realize)


def init() -> InitFrame:
    """`with T.init():` runs where every reduction is at its start."""
    return InitFrame()


def reads(*buffers: Any) -> Reads:
    """The regions that the block reads."""
    return done(Reads(regions(buffers)))


def writes(*buffers: Any) -> Writes:
    """The regions that the block writes."""
    return done(Writes(regions(buffers)))


def where(predicate: Any) -> Predicate:
    """The block runs where this holds."""
    if isinstance(predicate, builtins.bool):
        predicate = E.IntImm("bool", int(predicate))
    return done(Predicate(predicate))


def block_attr(attrs: dict[str, Any]) -> BlockAttr:
    """Annotations of the block."""
    return done(BlockAttr(attrs))


def func_attr(attrs: dict[str, Any]) -> FuncAttr:
    """Attributes of the function."""
    return done(FuncAttr(attrs))


def meta_var(value: Any) -> MetaVar:
    """`x = T.meta_var(e)`: `x` stands for the expression itself; no variable is made."""
    return MetaVar(value)


def target(text: Any, host: Any = None) -> Any:
    """A target by its text."""
    from tilewright.ir.target import Target

    return Target(text, host) if host is not None else Target(text)


# ---- functions


def prim_func(
    func: Any = None,
    *,
    private: builtins.bool = False,
    check_well_formed: builtins.bool = True,
    name: str = "",
    root: builtins.bool = True,
) -> Any:
    """Decorator: the Python function is script of the loop IR, and becomes a PrimFunc.

    `private` leaves out the attribute `global_symbol`; `name` is the function's name where it is no identifier of Python;
    `root=False` leaves out the outermost block that a function with blocks otherwise gets.
    """
    from tilewright.script.parser import decorate

    options = {"private": private, "check_well_formed": check_well_formed, "name": name, "root": root}
    return decorate("tir", func, options)


def macro(func: Any = None, *, hygienic: builtins.bool = True) -> Any:
    """Decorator: the Python function is script that is parsed anew in place of each call of it."""
    from tilewright.script.parser import decorate

    return decorate("macro", func, {"hygienic": hygienic})


__all__ += ["BufferFactory"]
