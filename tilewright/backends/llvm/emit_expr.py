"""Expressions as LLVM text.

`ExprWriter.expr(e)` writes what computes `e` and gives the text that names the value. Memory accesses: emit_memory.py.

Where a vector `if_then_else` guards loads, its condition becomes the mask of every load in its arms: nothing out of bounds is
touched. `Min`/`Max` on floats give NaN if either side is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as E
from tilewright.backends.llvm import emit_cast
from tilewright.backends.llvm.emit_core import (
    float_literal,
    like,
    llvm_type,
    splat,
    unsupported,
    vector,
)
from tilewright.backends.llvm.emit_memory import MemoryWriter, step_vector
from tilewright.ir import dtype as dt
from tilewright.ir.op import GlobalVar, Op
from tilewright.tir.ir import BufferLoad

__all__ = ["INTRINSICS", "ExprWriter", "is_natural", "minmax"]

INTRINSICS: dict[str, Callable[[Any, Any], str]] = {}
"""What writes a call of each intrinsic, by its full name (`tir.exp`): filled by intrinsics.py, math.py, emit_packed.py."""

_ARITH: dict[tuple[type, str], str] = {}
_FLOAT_OP = {E.Add: "fadd contract", E.Sub: "fsub contract", E.Mul: "fmul contract", E.Div: "fdiv", E.Mod: "frem"}
_INT_OP = {E.Add: "add", E.Sub: "sub", E.Mul: "mul", E.Div: "sdiv", E.Mod: "srem"}
_UINT_OP = {E.Add: "add", E.Sub: "sub", E.Mul: "mul", E.Div: "udiv", E.Mod: "urem"}
_CMP = {E.EQ: "eq", E.NE: "ne", E.LT: "lt", E.LE: "le", E.GT: "gt", E.GE: "ge"}


class ExprWriter(MemoryWriter):
    """Writes expressions into a function."""

    def expr(self, e: Any) -> str:
        """Write `e`; gives its value."""
        handler = _EXPR.get(type(e))
        if handler is None:
            raise unsupported("TW0602", f"the LLVM emitter cannot write {type(e).__name__} (in {self.where})")
        return handler(self, e)

    # ---- arithmetic on values

    def binary(self, kind: type, a: str, b: str, dtype: str) -> str:
        """`a kind b` for Add, Sub, Mul, Div (truncating), Mod (truncating)."""
        text = _ARITH.get((kind, dtype)) or _arith(kind, dtype)
        if text == "small":
            wide = dt.with_lanes("float32", dt.lanes(dtype))
            a, b = emit_cast.to_float32(self, a, dtype), emit_cast.to_float32(self, b, dtype)
            return emit_cast.from_float32(self, self.binary(kind, a, b, wide), dtype)
        return self.op(f"{text} {a}, {b}")

    def compare(self, kind: type, a: str, b: str, dtype: str) -> str:
        """The comparison `kind` of two values of `dtype`."""
        if emit_cast.is_small_float(dtype):
            a, b = emit_cast.to_float32(self, a, dtype), emit_cast.to_float32(self, b, dtype)
            dtype = dt.with_lanes("float32", dt.lanes(dtype))
        name = _CMP[kind]
        if dt.is_float(dtype):
            return self.op(f"fcmp {'u' if kind is E.NE else 'o'}{name} {llvm_type(dtype)} {a}, {b}")
        if kind not in (E.EQ, E.NE):
            name = ("u" if dt.is_uint(dtype) or dtype == "handle" else "s") + name
        return self.op(f"icmp {name} {llvm_type(dtype)} {a}, {b}")

    def select(self, condition: str, condition_type: str, a: str, b: str, ty: str) -> str:
        """`condition ? a : b`."""
        return self.op(f"select {condition_type} {condition}, {ty} {a}, {ty} {b}")

    def bool_type(self, dtype: str) -> str:
        """The type of a comparison of `dtype`."""
        return vector(dt.lanes(dtype), "i1")

    def divisor(self, value: str, dtype: str) -> str:
        """An integer divisor that is one in the lanes masked out, where it might be zero."""
        if self.mask is None or not self.mask.startswith(f"{vector(dt.lanes(dtype), 'i1')} "):
            return value
        one = splat("1", llvm_type(dt.element(dtype)), dt.lanes(dtype))
        return self.op(f"select {self.mask}, {llvm_type(dtype)} {value}, {llvm_type(dtype)} {one}")


def _arith(kind: type, dtype: str) -> str:
    if emit_cast.is_small_float(dtype):
        text = "small"
    else:
        table = _FLOAT_OP if dt.is_float(dtype) else _UINT_OP if dt.is_uint(dtype) else _INT_OP
        text = f"{table[kind]} {llvm_type(dtype)}"
    _ARITH[kind, dtype] = text
    return text


# ---- one function a node ---------------------------------------------------------------------------------------------


def _int(w: ExprWriter, e: E.IntImm) -> str:
    if e.dtype == "bool":
        return "true" if e.value else "false"
    if e.dtype == "handle":
        return "null" if e.value == 0 else w.op(f"inttoptr i64 {e.value} to ptr")
    return str(e.value)


def _float(w: ExprWriter, e: E.FloatImm) -> str:
    return float_literal(e.value, e.dtype)


def _string(w: ExprWriter, e: E.StringImm) -> str:
    return w.mod.string(e.value)


def _var(w: ExprWriter, e: E.Var) -> str:
    return w.env.get(e) or w.variable(e)


def _binary(w: ExprWriter, e: Any) -> str:
    a, b, dtype = w.expr(e.a), w.expr(e.b), e.dtype
    text = _ARITH.get((type(e), dtype))
    if text is None or text == "small":
        return w.binary(type(e), a, b, dtype)
    return w.op(f"{text} {a}, {b}")


def _divide(w: ExprWriter, e: Any) -> str:
    a, b = w.expr(e.a), w.expr(e.b)
    return w.binary(type(e), a, b if dt.is_float(e.dtype) else w.divisor(b, e.dtype), e.dtype)


def is_natural(w: ExprWriter, e: Any) -> bool:
    """Is this integer expression known not to be negative?"""
    t = type(e)
    if t is E.IntImm:
        return e.value >= 0
    if t is E.Var:
        return e in w.natural or dt.is_uint(e.dtype)
    if t is E.SizeVar:
        return True
    if t in (E.Add, E.Mul, E.FloorDiv, E.Div, E.Min):
        return is_natural(w, e.a) and is_natural(w, e.b)
    if t is E.Max:
        return is_natural(w, e.a) or is_natural(w, e.b)
    if t is E.FloorMod:
        return is_natural(w, e.b)
    if t is E.Mod or t is E.Broadcast:
        return is_natural(w, e.a if t is E.Mod else e.value)
    if t is E.Cast:
        # an unsigned number may turn negative unless it gets wider
        source = e.value.dtype
        wider = dt.bits(e.dtype) > dt.bits(source) or (dt.code(source) == "int" and dt.bits(e.dtype) == dt.bits(source))
        return wider and dt.is_int(source) and is_natural(w, e.value)
    if t is E.Ramp:
        return is_natural(w, e.base) and is_natural(w, e.stride)
    return False


def _constant(e: Any) -> int | None:
    if type(e) is E.Broadcast:
        e = e.value
    return e.value if type(e) is E.IntImm else None


def _floordiv(w: ExprWriter, e: Any) -> str:
    dtype = e.dtype
    a, b = w.expr(e.a), w.expr(e.b)
    if dt.is_float(dtype):
        return _float_floor(w, w.binary(E.Div, a, b, dtype), dtype)
    ty, k = llvm_type(dtype), _constant(e.b)
    if k is not None and k > 0 and k & (k - 1) == 0:
        shift = splat(str(k.bit_length() - 1), llvm_type(dt.element(dtype)), dt.lanes(dtype))
        return w.op(f"{'lshr' if dt.is_uint(dtype) else 'ashr'} {ty} {a}, {shift}")
    b = w.divisor(b, dtype)
    if dt.is_uint(dtype) or (is_natural(w, e.a) and (k or 0) > 0):
        return w.op(f"udiv {ty} {a}, {b}")
    q = w.op(f"sdiv {ty} {a}, {b}")
    if is_natural(w, e.a) and is_natural(w, e.b):
        return q
    down = _rounds_down(w, ty, a, b, q, k)
    return w.op(f"add {ty} {q}, {w.op(f'sext {w.bool_type(dtype)} {down} to {ty}')}")


def _rounds_down(w: ExprWriter, ty: str, a: str, b: str, q: str, k: int | None) -> str:
    """Is the truncated quotient one too great: a remainder that is not zero and has not the divisor's sign?"""
    r = w.op(f"sub {ty} {a}, {w.op(f'mul {ty} {q}, {b}')}")
    zero = "zeroinitializer" if ty[0] == "<" else "0"
    if k is not None and k > 0:
        return w.op(f"icmp slt {ty} {r}, {zero}")
    c1 = w.op(f"icmp ne {ty} {r}, {zero}")
    c2 = w.op(f"icmp slt {ty} {w.op(f'xor {ty} {r}, {b}')}, {zero}")
    bt = like(ty, "i1") if ty[0] == "<" else "i1"
    return w.op(f"and {bt} {c1}, {c2}")


def _floormod(w: ExprWriter, e: Any) -> str:
    dtype = e.dtype
    a, b = w.expr(e.a), w.expr(e.b)
    ty, k = llvm_type(dtype), _constant(e.b)
    if dt.is_float(dtype):
        return _float_mod(w, a, b, dtype)
    if k is not None and k > 0 and k & (k - 1) == 0:
        return w.op(f"and {ty} {a}, {splat(str(k - 1), llvm_type(dt.element(dtype)), dt.lanes(dtype))}")
    b = w.divisor(b, dtype)
    if dt.is_uint(dtype) or (is_natural(w, e.a) and (k or 0) > 0):
        return w.op(f"urem {ty} {a}, {b}")
    if is_natural(w, e.a) and is_natural(w, e.b):
        return w.op(f"srem {ty} {a}, {b}")
    q = w.op(f"sdiv {ty} {a}, {b}")
    r = w.op(f"sub {ty} {a}, {w.op(f'mul {ty} {q}, {b}')}")
    down = _rounds_down(w, ty, a, b, q, k)
    zero = "zeroinitializer" if ty[0] == "<" else "0"
    return w.op(f"add {ty} {r}, {w.select(down, w.bool_type(dtype), b, zero, ty)}")


def _float_floor(w: ExprWriter, value: str, dtype: str) -> str:
    if emit_cast.is_small_float(dtype):
        wide = dt.with_lanes("float32", dt.lanes(dtype))
        return emit_cast.from_float32(w, _float_floor(w, emit_cast.to_float32(w, value, dtype), wide), dtype)
    return w.intrinsic("floor", llvm_type(dtype), value)


def _float_mod(w: ExprWriter, a: str, b: str, dtype: str) -> str:
    """The exact remainder, brought to the divisor's sign (LLVM expands `frem`; it is exact and slow)."""
    if emit_cast.is_small_float(dtype):
        wide = dt.with_lanes("float32", dt.lanes(dtype))
        a, b = emit_cast.to_float32(w, a, dtype), emit_cast.to_float32(w, b, dtype)
        return emit_cast.from_float32(w, _float_mod(w, a, b, wide), dtype)
    ty, bt = llvm_type(dtype), w.bool_type(dtype)
    zero = "zeroinitializer" if ty[0] == "<" else "0.0"
    r = w.op(f"frem {ty} {a}, {b}")
    c1 = w.op(f"fcmp une {ty} {r}, {zero}")
    c2 = w.op(f"fcmp olt {ty} {r}, {zero}")
    c3 = w.op(f"fcmp olt {ty} {b}, {zero}")
    down = w.op(f"and {bt} {c1}, {w.op(f'xor {bt} {c2}, {c3}')}")
    return w.select(down, bt, w.op(f"fadd {ty} {r}, {b}"), r, ty)


def _minmax(w: ExprWriter, e: Any) -> str:
    a, b, dtype = w.expr(e.a), w.expr(e.b), e.dtype
    return minmax(w, type(e) is E.Max, a, b, dtype, _not_nan(e.a), _not_nan(e.b))


def _not_nan(e: Any) -> bool:
    """Is this float expression certainly not NaN?"""
    if type(e) is E.Broadcast:
        e = e.value
    return (type(e) is E.FloatImm and e.value == e.value) or (type(e) is E.Cast and not dt.is_float(e.value.dtype))


def minmax(w: ExprWriter, greater: bool, a: str, b: str, dtype: str, sure_a: bool = False, sure_b: bool = False) -> str:
    """The greater or smaller of two; NaN if either is NaN. `sure_x`: x is not NaN, which makes it one instruction."""
    ty, bt = llvm_type(dtype), w.bool_type(dtype)
    if not dt.is_float(dtype):
        if dt.is_bool(dtype):
            return w.op(f"{'or' if greater else 'and'} {ty} {a}, {b}")
        return w.intrinsic(("u" if dt.is_uint(dtype) else "s") + ("max" if greater else "min"), ty, a, b)
    if emit_cast.is_small_float(dtype):
        wide = dt.with_lanes("float32", dt.lanes(dtype))
        a, b = emit_cast.to_float32(w, a, dtype), emit_cast.to_float32(w, b, dtype)
        return emit_cast.from_float32(w, minmax(w, greater, a, b, wide, sure_a, sure_b), dtype)
    if w.mod.arch in ("aarch64", "arm64"):
        return w.intrinsic("maximum" if greater else "minimum", ty, a, b)
    if sure_b and not sure_a:
        a, b, sure_a, sure_b = b, a, sure_b, sure_a
    # `a > b ? a : b` is x86's maxps: a NaN on either side gives b.
    best = w.select(w.op(f"fcmp {'ogt' if greater else 'olt'} {ty} {a}, {b}"), bt, a, b, ty)
    if sure_a:
        return best
    return w.select(w.op(f"fcmp uno {ty} {a}, {a}"), bt, a, best, ty)


def _compare(w: ExprWriter, e: Any) -> str:
    return w.compare(type(e), w.expr(e.a), w.expr(e.b), e.a.dtype)


def _logic(w: ExprWriter, e: Any) -> str:
    return w.op(f"{'and' if type(e) is E.And else 'or'} {llvm_type(e.dtype)} {w.expr(e.a)}, {w.expr(e.b)}")


def _not(w: ExprWriter, e: E.Not) -> str:
    return w.op(f"xor {llvm_type(e.dtype)} {w.expr(e.a)}, {splat('true', 'i1', dt.lanes(e.dtype))}")


def _select(w: ExprWriter, e: E.Select) -> str:
    c = w.expr(e.condition)
    return w.select(c, llvm_type(e.condition.dtype), w.expr(e.true_value), w.expr(e.false_value), llvm_type(e.dtype))


def _let(w: ExprWriter, e: E.Let) -> str:
    w.env[e.var] = w.expr(e.value)
    if is_natural(w, e.value):
        w.natural.add(e.var)
    return w.expr(e.body)


def _cast(w: ExprWriter, e: E.Cast) -> str:
    return emit_cast.convert(w, w.expr(e.value), e.value.dtype, e.dtype)


def _ramp(w: ExprWriter, e: E.Ramp) -> str:
    n = e.lanes
    inner = dt.lanes(e.base.dtype)
    if inner != 1:
        raise unsupported("TW0602", f"a Ramp of a vector in {w.where} cannot be emitted", "simplify the index first")
    element = llvm_type(e.base.dtype)
    vec = vector(n, element)
    stride = _constant(e.stride)
    if n < 0:
        lanes = step_vector(w, vec)
        if stride != 1:
            lanes = w.op(f"mul {vec} {lanes}, {w.splat_value(w.expr(e.stride), element, n)}")
        return w.op(f"add {vec} {w.splat_value(w.expr(e.base), element, n)}, {lanes}")
    if stride is None:
        lanes = "<" + ", ".join(f"{element} {i}" for i in range(n)) + ">"
        lanes = w.op(f"mul {vec} {lanes}, {w.splat_value(w.expr(e.stride), element, n)}")
    else:
        lanes = "<" + ", ".join(f"{element} {i * stride}" for i in range(n)) + ">"
    return w.op(f"add {vec} {w.splat_value(w.expr(e.base), element, n)}, {lanes}")


def _broadcast(w: ExprWriter, e: E.Broadcast) -> str:
    inner = dt.lanes(e.value.dtype)
    value = w.expr(e.value)
    if inner == 1:
        return w.splat_value(value, llvm_type(e.value.dtype), e.lanes)
    order = ", ".join(f"i32 {i}" for _ in range(e.lanes) for i in range(inner))
    ty = llvm_type(e.value.dtype)
    return w.op(f"shufflevector {ty} {value}, {ty} poison, <{e.lanes * inner} x i32> <{order}>")


def _shuffle(w: ExprWriter, e: E.Shuffle) -> str:
    if any(dt.lanes(v.dtype) < 0 for v in e.vectors):
        raise unsupported("TW0602", f"a Shuffle of scalable vectors in {w.where} cannot be emitted")
    values = [(w.expr(v), v.dtype) for v in e.vectors]
    base = llvm_type(dt.element(values[0][1]))
    value, count = _concatenate(w, values, base)
    picks = [_constant(i) for i in e.indices]
    if any(p is None for p in picks):
        raise unsupported("TW0602", f"a Shuffle in {w.where} has an index that is not a constant")
    if count == 1:
        return w.splat_value(value, base, len(picks)) if len(picks) > 1 else value
    ty = f"<{count} x {base}>"
    if len(picks) == 1:
        return w.op(f"extractelement {ty} {value}, i64 {picks[0]}")
    order = ", ".join(f"i32 {p}" for p in picks)
    return w.op(f"shufflevector {ty} {value}, {ty} poison, <{len(picks)} x i32> <{order}>")


def _concatenate(w: ExprWriter, values: list[tuple[str, str]], base: str) -> tuple[str, int]:
    """All vectors in a row as one."""
    if all(dt.lanes(d) == 1 for _, d in values) and len(values) > 1:
        return w.pack([v for v, _ in values], base), len(values)
    value, count = values[0][0], dt.lanes(values[0][1])
    for other, dtype in values[1:]:
        n = dt.lanes(dtype)
        # shufflevector takes two of one length: widen the shorter with lanes that are never picked.
        m = max(n, count)
        a, b = _widen(w, value, count, m, base), _widen(w, other, n, m, base)
        order = ", ".join(f"i32 {i}" for i in [*range(count), *range(m, m + n)])
        value = w.op(f"shufflevector <{m} x {base}> {a}, <{m} x {base}> {b}, <{count + n} x i32> <{order}>")
        count += n
    return value, count


def _widen(w: ExprWriter, value: str, n: int, m: int, base: str) -> str:
    if n == m:
        return value
    if n == 1:
        return w.op(f"insertelement <{m} x {base}> poison, {base} {value}, i64 0")
    order = ", ".join(f"i32 {i}" if i < n else "i32 poison" for i in range(m))
    return w.op(f"shufflevector <{n} x {base}> {value}, <{n} x {base}> poison, <{m} x i32> <{order}>")


def _call(w: ExprWriter, e: E.Call) -> str:
    if isinstance(e.op, GlobalVar):
        return w.call_function(e.op, e)  # type: ignore[attr-defined]
    assert isinstance(e.op, Op)
    handler = INTRINSICS.get(e.op.name)
    if handler is None:
        raise unsupported(
            "TW0605",
            f"the LLVM backend has no intrinsic {e.op.name!r} (dtype {e.dtype}, in {w.where})",
            "lower it before emission, or call a C function with tir.call_extern",
        )
    return handler(w, e)


_EXPR: dict[type, Callable[[Any, Any], str]] = {
    E.IntImm: _int, E.FloatImm: _float, E.StringImm: _string, E.Var: _var, E.SizeVar: _var,
    E.Add: _binary, E.Sub: _binary, E.Mul: _binary, E.Div: _divide, E.Mod: _divide,
    E.FloorDiv: _floordiv, E.FloorMod: _floormod, E.Min: _minmax, E.Max: _minmax,
    E.EQ: _compare, E.NE: _compare, E.LT: _compare, E.LE: _compare, E.GT: _compare, E.GE: _compare,
    E.And: _logic, E.Or: _logic, E.Not: _not, E.Select: _select, E.Let: _let, E.Cast: _cast,
    E.Ramp: _ramp, E.Broadcast: _broadcast, E.Shuffle: _shuffle, E.Call: _call,
    BufferLoad: lambda w, e: w.load_buffer(e),
}  # fmt: skip
