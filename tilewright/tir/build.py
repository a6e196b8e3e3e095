"""Functions that build scalar expressions, under the names people know: `tir.exp(x)`, `tir.all(a, b)`, `tir.max(a, b)`.

They convert numbers, match dtypes and choose the intrinsic of `tir/intrin.py` (or the node of `arith/expr.py`). Reducers
(`sum`, `max`, ...) are here too, because one function is both: `max(a, b)` of two values, `max(expr, axis=k)` over an axis.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.build import match_dtypes
from tilewright.arith.expr import (
    Call,
    ExprLike,
    FloatImm,
    IntImm,
    PrimExpr,
    StringImm,
    Var,
    call_intrin,
    ceildiv,
    const,
    convert,
    div,
    floordiv,
    floormod,
    if_then_else,
    mul,
    select,
    truncdiv,
    truncmod,
)
from tilewright.ir import dtype as dt
from tilewright.ir.op import Op
from tilewright.support.diagnostics import CompileError
from tilewright.tir import intrin
from tilewright.tir.build_calls import without_signature_count
from tilewright.tir.ir import Buffer, BufferLoad, CommReducer, IterVar, Reduce

__all__ = [
    "abs", "acos", "acosh", "address_of", "all", "any", "asin", "asinh", "assume", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_not", "bitwise_or", "bitwise_xor", "call_extern", "call_intrin", "call_llvm_intrin", "call_llvm_pure_intrin",
    "call_cpacked", "call_packed", "call_pure_extern", "ceil", "ceildiv", "clz", "comm_reducer", "copysign", "cos", "cosh", "div", "erf",
    "exp", "exp10", "exp2", "expm1", "fabs", "floor", "floordiv", "floormod", "fma", "fmod", "hypot", "if_then_else",
    "indexdiv", "indexmod", "infinity", "isfinite", "isinf", "isnan", "isnullptr", "ldexp", "likely", "llvm_lookup_intrinsic_id", "log", "log10",
    "log1p", "log2", "max", "max_value", "min", "min_value", "multiply", "nan", "nearbyint", "nextafter", "popcount", "pow",
    "power", "prefetch", "prod", "reduce_lanes", "reinterpret", "ret", "round", "rsqrt", "select", "shift_left",
    "shift_right", "sigmoid", "sin", "sinh", "slice_lanes", "sqrt", "subtract", "sum", "tan", "tanh", "trunc", "truncdiv", "truncmod",
    "tvm_call_packed", "tvm_storage_sync", "tw_raise", "undef", "vectorcombine", "vectorhigh", "vectorlow",
]  # fmt: skip

multiply = mul
subtract = ex.sub
min_value = ex.min_value
max_value = ex.max_value


def _as_float(x: Any) -> PrimExpr:
    """`x` as a float expression; integers become float32 of as many lanes."""
    e = convert(x)
    if dt.is_float(e.dtype):
        return e
    return ex.cast(e, dt.with_lanes("float32", dt.lanes(e.dtype)))


def _unary(name: str) -> Callable[[ExprLike], PrimExpr]:
    row = intrin.INTRINSICS["tir." + name]
    op = Op.get(row.name)

    def build(x: ExprLike) -> PrimExpr:
        e = _as_float(x)
        return Call(e.dtype, op, (e,))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{row.doc}; an integer argument becomes float32"
    return build


def _binary(name: str, doc: str | None = None) -> Callable[[ExprLike, ExprLike], PrimExpr]:
    row = intrin.INTRINSICS["tir." + name]
    op = Op.get(row.name)

    def build(x1: ExprLike, x2: ExprLike) -> PrimExpr:
        a, b = match_dtypes(x1, x2)
        if not dt.is_float(a.dtype):
            a, b = _as_float(a), _as_float(b)
        return Call(a.dtype, op, (a, b))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = doc or row.doc
    return build


exp = _unary("exp")
exp2 = _unary("exp2")
exp10 = _unary("exp10")
expm1 = _unary("expm1")
log = _unary("log")
log2 = _unary("log2")
log10 = _unary("log10")
log1p = _unary("log1p")
sin = _unary("sin")
cos = _unary("cos")
tan = _unary("tan")
asin = _unary("asin")
acos = _unary("acos")
atan = _unary("atan")
sinh = _unary("sinh")
cosh = _unary("cosh")
tanh = _unary("tanh")
asinh = _unary("asinh")
acosh = _unary("acosh")
atanh = _unary("atanh")
sqrt = _unary("sqrt")
rsqrt = _unary("rsqrt")
sigmoid = _unary("sigmoid")
erf = _unary("erf")
fabs = _unary("fabs")
atan2 = _binary("atan2")
hypot = _binary("hypot")
copysign = _binary("copysign")
nextafter = _binary("nextafter")
fmod = _binary("fmod")
pow = _binary("pow", "x1 to the power x2; integers become float32")
power = pow


def _rounding(name: str) -> Callable[[ExprLike], PrimExpr]:
    row = intrin.INTRINSICS["tir." + name]
    op = Op.get(row.name)

    def build(x: ExprLike) -> PrimExpr:
        e = convert(x)
        if isinstance(e, FloatImm) and row.numpy is not None and math.isfinite(e.value):
            return FloatImm(e.dtype, float(row.numpy(e.value)))
        return Call(e.dtype, op, (e,)) if dt.is_float(e.dtype) else e

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{row.doc}; an integer stays"
    return build


floor = _rounding("floor")
ceil = _rounding("ceil")
trunc = _rounding("trunc")
round = _rounding("round")
nearbyint = _rounding("nearbyint")


def abs(x: ExprLike) -> PrimExpr:
    """The absolute value; of an integer, `select(x >= 0, x, -x)`."""
    e = convert(x)
    if dt.is_float(e.dtype):
        return fabs(e)
    if dt.is_uint(e.dtype):
        return e
    if isinstance(e, IntImm):
        return const(builtins.abs(e.value), e.dtype)
    return select(e >= const(0, e.dtype), e, const(0, e.dtype) - e)


def fma(a: ExprLike, b: ExprLike, c: ExprLike) -> PrimExpr:
    """a * b + c, rounded once."""
    x, y = match_dtypes(a, b)
    x, z = match_dtypes(x, c)
    return call_intrin(x.dtype, "tir.fma", x, ex.cast(y, x.dtype), z)


def ldexp(x: ExprLike, n: ExprLike) -> PrimExpr:
    """x * 2**n"""
    e = _as_float(x)
    return call_intrin(e.dtype, "tir.ldexp", e, ex.cast(n, dt.with_lanes("int32", dt.lanes(e.dtype))))


def isnan(x: ExprLike) -> PrimExpr:
    """Is x not a number? False for an integer."""
    e = convert(x)
    b = dt.with_lanes("bool", dt.lanes(e.dtype))
    if not dt.is_float(e.dtype):
        return const(False, b)
    return call_intrin(
        b, "tir.isnan", ex.cast(e, dt.with_lanes("float32", dt.lanes(e.dtype))) if dt.bits(e.dtype) < 32 else e
    )


def isinf(x: ExprLike) -> PrimExpr:
    """Is x infinite? False for an integer."""
    e = convert(x)
    if not dt.is_float(e.dtype):
        return const(False, dt.with_lanes("bool", dt.lanes(e.dtype)))
    return ex.cmp(ex.EQ, fabs(e), infinity(e.dtype))


def isfinite(x: ExprLike) -> PrimExpr:
    """Is x neither infinite nor not a number? True for an integer."""
    e = convert(x)
    if not dt.is_float(e.dtype):
        return const(True, dt.with_lanes("bool", dt.lanes(e.dtype)))
    return ex.cmp(ex.LT, fabs(e), infinity(e.dtype))


def infinity(dtype: str) -> PrimExpr:
    """The infinite number of a float dtype."""
    return const(float("inf"), dtype)


def nan(dtype: str) -> PrimExpr:
    """Not a number, of a float dtype."""
    return const(float("nan"), dtype)


def undef(dtype: str = "int32") -> PrimExpr:
    """Any value of the dtype."""
    return call_intrin(dtype, "tir.undef")


# ---- integers and bits ---------------------------------------------------------------------------------------------------


def bitwise_and(x: ExprLike, y: ExprLike) -> PrimExpr:
    """x & y"""
    return ex.bitwise("tir.bitwise_and", x, y)


def bitwise_or(x: ExprLike, y: ExprLike) -> PrimExpr:
    """x | y"""
    return ex.bitwise("tir.bitwise_or", x, y)


def bitwise_xor(x: ExprLike, y: ExprLike) -> PrimExpr:
    """x ^ y"""
    return ex.bitwise("tir.bitwise_xor", x, y)


def bitwise_not(x: ExprLike) -> PrimExpr:
    """~x"""
    e = convert(x)
    return IntImm(e.dtype, ex.wrap(~e.value, e.dtype)) if isinstance(e, IntImm) else ~e


def shift_left(x: ExprLike, y: ExprLike) -> PrimExpr:
    """x << y"""
    return ex.bitwise("tir.shift_left", x, y)


def shift_right(x: ExprLike, y: ExprLike) -> PrimExpr:
    """x >> y: arithmetic for signed integers, logical for unsigned"""
    return ex.bitwise("tir.shift_right", x, y)


def popcount(x: ExprLike) -> PrimExpr:
    """The number of one bits of an integer."""
    e = convert(x)
    return call_intrin(e.dtype, "tir.popcount", e)


def clz(x: ExprLike) -> PrimExpr:
    """The number of leading zero bits of an integer; for 0, the number of bits."""
    e = convert(x)
    return ex.cast(call_intrin(e.dtype, "tir.clz", e), dt.with_lanes("int32", dt.lanes(e.dtype)))


indexdiv = floordiv
indexmod = floormod


# ---- conditions ----------------------------------------------------------------------------------------------------------


def all(*args: ExprLike) -> PrimExpr:
    """All of the conditions."""
    if not args:
        raise ValueError("tir.all needs at least one condition")
    return ex.all_of(*_conditions(args))


def any(*args: ExprLike) -> PrimExpr:
    """Any of the conditions."""
    if not args:
        raise ValueError("tir.any needs at least one condition")
    return ex.any_of(*_conditions(args))


def _conditions(args: tuple[Any, ...]) -> list[PrimExpr]:
    found = [convert(a) for a in args]
    for e in found:
        if not dt.is_bool(e.dtype):
            raise CompileError.at("TW0904", f"{e} is {e.dtype}, no condition", hint="compare it: x != 0")
    return found


def likely(cond: ExprLike) -> PrimExpr:
    """The condition, said to hold nearly always."""
    e = convert(cond)
    return e if isinstance(e, IntImm) else call_intrin(e.dtype, "tir.likely", e)


def isnullptr(x: PrimExpr) -> PrimExpr:
    """Is the handle null?"""
    return ex.cmp(ex.EQ, call_intrin("int64", "tir.reinterpret", x), const(0, "int64"))


# ---- vectors, memory, calls ----------------------------------------------------------------------------------------------


def reinterpret(dtype: str, value: ExprLike) -> PrimExpr:
    """The bits of `value` as `dtype`, of the same size; "handle" makes a pointer of an int64 and back."""
    e = convert(value)
    if e.dtype == dtype:
        return e
    if dt.bits(e.dtype) * dt.lanes(e.dtype) != dt.bits(dtype) * dt.lanes(dtype):
        raise ValueError(f"reinterpret needs equal sizes, got {e.dtype} as {dtype}")
    return call_intrin(dtype, "tir.reinterpret", e)


def reduce_lanes(kind: str, vector: PrimExpr) -> PrimExpr:
    """The lanes of `vector` combined to a scalar; `kind` is add, mul, max or min."""
    if kind not in ("add", "mul", "max", "min"):
        raise ValueError(f"reduce_lanes combines by add, mul, max or min, not {kind!r}")
    return call_intrin(dt.element(vector.dtype), "tir.reduce_lanes", StringImm(kind), vector)


def slice_lanes(vector: PrimExpr, start: int, lanes: int) -> PrimExpr:
    """`lanes` lanes of `vector` from `start` on."""
    return ex.Shuffle((vector,), tuple(IntImm("int32", start + i) for i in range(lanes)))


def vectorlow(dtype: str, vec: PrimExpr) -> PrimExpr:
    """The first half of the lanes."""
    return call_intrin(dtype, "tir.vectorlow", vec)


def vectorhigh(dtype: str, vec: PrimExpr) -> PrimExpr:
    """The second half of the lanes."""
    return call_intrin(dtype, "tir.vectorhigh", vec)


def vectorcombine(dtype: str, vec1: PrimExpr, vec2: PrimExpr) -> PrimExpr:
    """The lanes of one vector, then those of the other."""
    return call_intrin(dtype, "tir.vectorcombine", vec1, vec2)


def address_of(buffer_load: BufferLoad | Buffer) -> PrimExpr:
    """A pointer to the element; for a buffer, to its first."""
    if isinstance(buffer_load, Buffer):
        buffer_load = BufferLoad(buffer_load, tuple(const(0, n.dtype) for n in buffer_load.shape))
    return call_intrin("handle", "tir.address_of", buffer_load)


def prefetch(buffer_load: BufferLoad) -> PrimExpr:
    """Bring the element into the cache; for `Evaluate`."""
    return call_intrin("void", "tir.prefetch", buffer_load)


def call_extern(dtype: str, func_name: str, *args: Any) -> PrimExpr:
    """Call a C function by its symbol."""
    return call_intrin(dtype, "tir.call_extern", func_name, *args)


def call_pure_extern(dtype: str, func_name: str, *args: Any) -> PrimExpr:
    """Call a C function without effects by its symbol."""
    return call_intrin(dtype, "tir.call_pure_extern", func_name, *args)


def call_llvm_intrin(dtype: str, name: str, *args: Any) -> PrimExpr:
    """Call an LLVM intrinsic by its name, such as `llvm.x86.sse2.pause`."""
    return call_intrin(dtype, "tir.call_llvm_intrin", name, *without_signature_count(args))


def call_llvm_pure_intrin(dtype: str, name: str, *args: Any) -> PrimExpr:
    """Call an LLVM intrinsic without effects."""
    return call_intrin(dtype, "tir.call_llvm_pure_intrin", name, *without_signature_count(args))


def tvm_call_packed(name: str, *args: Any) -> PrimExpr:
    """Call a function of the global registry with the arguments; buffers go as tensors."""
    return call_intrin("int32", "tir.tvm_call_packed", StringImm(name), *args)


call_packed = tvm_call_packed


def call_cpacked(name: str, *args: Any) -> PrimExpr:
    """Call a function with the packed calling convention by its symbol."""
    return call_intrin("int32", "tir.tvm_call_cpacked", name, *args)


def llvm_lookup_intrinsic_id(name: str) -> str:
    """What names an LLVM intrinsic in a call: its name. Raises ValueError on a name that is none."""
    if not name.startswith("llvm."):
        raise ValueError(f"{name!r} is no LLVM intrinsic: their names begin with 'llvm.'")
    return name


def ret(value: ExprLike) -> PrimExpr:
    """Return `value` from the function; for `Evaluate`."""
    e = convert(value)
    return call_intrin(e.dtype, "tir.ret", e)


def tw_raise(kind: str, message: str, *args: ExprLike) -> PrimExpr:
    """Raise `kind` with the message, a printf format of int64 arguments (%lld), and leave the function; for `Evaluate`."""
    values = [ex.cast(a, "int64") for a in args]
    return call_intrin("int32", "tir.tw_raise", StringImm(kind), StringImm(message), *values)


def assume(cond: ExprLike) -> PrimExpr:
    """`cond` holds here; for `Evaluate`."""
    return call_intrin("bool", "tir.assume", cond)


def tvm_storage_sync(scope: str) -> PrimExpr:
    """A barrier for the threads that share memory of the scope; for `Evaluate`."""
    return call_intrin("int32", "tir.tvm_storage_sync", StringImm(scope))


# ---- reductions ----------------------------------------------------------------------------------------------------------


def comm_reducer(
    fcombine: Callable[[Any, Any], Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """A commutative reducer: `reducer(expr, axis, where=None, init=None)` reduces over axes, `reducer(a, b)` combines two.

    `fcombine(x, y)` gives the combination of two values (tuples of expressions for a reduction of several values at once);
    `fidentity(dtype, ...)` the value that changes nothing, one dtype argument for each value.
    """

    def reduce_axes(expr: Any, axis: Any, where: ExprLike | None, init: Any) -> Any:
        exprs = tuple(convert(e) for e in expr) if isinstance(expr, (tuple, list)) else (convert(expr),)
        several = isinstance(expr, (tuple, list))
        n = len(exprs)
        lhs = tuple(Var(f"x{i}" if several else "x", e.dtype) for i, e in enumerate(exprs))
        rhs = tuple(Var(f"y{i}" if several else "y", e.dtype) for i, e in enumerate(exprs))
        combined: Any = fcombine(lhs, rhs) if several else fcombine(lhs[0], rhs[0])
        identity: Any = fidentity(*(e.dtype for e in exprs))
        results = tuple(combined) if several else (combined,)
        identities = tuple(identity) if several else (identity,)
        if len(results) != n or len(identities) != n:
            raise ValueError(
                f"{name} reduces {n} values, but its combiner gives {len(results)} and its identity {len(identities)}"
            )
        combiner = CommReducer(
            lhs, rhs, tuple(convert(r) for r in results), tuple(convert(v, e.dtype) for v, e in zip(identities, exprs))
        )
        axes: tuple[IterVar, ...] = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
        starts: tuple[PrimExpr, ...] = ()
        if init is not None:
            values = tuple(init) if isinstance(init, (tuple, list)) else (init,)
            starts = tuple(convert(v, e.dtype) for v, e in zip(values, exprs))
        condition = IntImm("bool", 1) if where is None else convert(where)
        out = tuple(Reduce(combiner, exprs, axes, condition, i, starts) for i in range(n))
        return out if several else out[0]

    def reducer(expr: Any, axis: Any = None, where: ExprLike | None = None, init: Any = None, *more: Any) -> Any:
        if isinstance(axis, IterVar) or (isinstance(axis, (tuple, list)) and axis and isinstance(axis[0], IterVar)):
            return reduce_axes(expr, axis, where, init)
        if axis is None:
            raise ValueError(f"{name} needs an axis to reduce, or a second value")
        out = fcombine(*_pair(expr, axis))
        for other in (where, init, *more):
            if other is not None:
                out = fcombine(*_pair(out, other))
        return out

    reducer.__name__ = reducer.__qualname__ = name
    reducer.__doc__ = f"{name}(expr, axis=k): the reduction over the axes; {name}(a, b): the two combined."
    return reducer


def _pair(a: Any, b: Any) -> tuple[Any, Any]:
    if isinstance(a, (tuple, list)) or isinstance(b, (tuple, list)):
        return a, b
    return match_dtypes(a, b)


sum: Callable[..., Any] = comm_reducer(lambda x, y: x + y, lambda t: const(0, t), name="sum")
prod: Callable[..., Any] = comm_reducer(lambda x, y: x * y, lambda t: const(1, t), name="prod")
min: Callable[..., Any] = comm_reducer(ex.minimum, ex.max_value, name="min")
max: Callable[..., Any] = comm_reducer(ex.maximum, ex.min_value, name="max")
