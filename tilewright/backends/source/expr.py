"""Expressions in C-like languages: one function a node, entered in a dialect's table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as E
from tilewright.backends.source import writer as W
from tilewright.backends.source.bounds import fits
from tilewright.backends.source.writer import ATOM, COND, POSTFIX, UNARY, Text, Writer
from tilewright.ir import dtype as dt
from tilewright.ir.op import GlobalVar, Op
from tilewright.tir.ir import BufferLoad

__all__ = ["EXPRESSIONS", "combine", "convert", "convert_text", "in_float32"]

Handler = Callable[[Writer, Any], Text]

_ARITH = {E.Add: ("+", W.ADD), E.Sub: ("-", W.ADD), E.Mul: ("*", W.MUL), E.Div: ("/", W.MUL), E.Mod: ("%", W.MUL)}
_COMPARE = {
    E.EQ: ("==", W.EQUALITY), E.NE: ("!=", W.EQUALITY), E.LT: ("<", W.RELATION), E.LE: ("<=", W.RELATION),
    E.GT: (">", W.RELATION), E.GE: (">=", W.RELATION),
}  # fmt: skip


def _parenthesised(text: str, own: int, need: int) -> str:
    return text if own >= need else f"({text})"


def combine(a: Text, symbol: str, b: Text, precedence: int) -> Text:
    """`a symbol b`, left-associative."""
    left = _parenthesised(*a, precedence)
    return f"{left} {symbol} {_parenthesised(*b, precedence + 1)}", precedence


def cast_text(ty: str, value: Text) -> Text:
    """`(ty)value`."""
    return f"({ty}){_parenthesised(*value, UNARY)}", UNARY


# ---- leaves ----------------------------------------------------------------------------------------------------------


def _int(w: Writer, e: E.IntImm) -> Text:
    return w.dialect.int_literal(e.value, e.dtype)


def _float(w: Writer, e: E.FloatImm) -> Text:
    return w.dialect.float_literal(w, e.value, e.dtype)


def _string(w: Writer, e: E.StringImm) -> Text:
    return c_string(e.value), ATOM


def c_string(text: str) -> str:
    """A C string literal."""
    out: list[str] = []
    for byte in text.encode():
        c = chr(byte)
        if c in '"\\':
            out.append("\\" + c)
        elif 32 <= byte < 127:
            out.append(c)
        else:
            out.append({10: "\\n", 9: "\\t"}.get(byte, f"\\{byte:03o}"))
    return '"' + "".join(out).replace("??", "?\\?") + '"'


def _var(w: Writer, e: E.Var) -> Text:
    value = w.values.get(e)
    if value is not None:
        return w.expr(value)
    name = w.names.get(e)
    if name is None:
        raise w.unsupported(f"the variable {e.name!r}", "nothing defines it")
    if w.wide and dt.bits(e.dtype) < 64 and dt.is_int(e.dtype):
        return cast_text(w.dialect.type("int64"), (name, ATOM))
    return (name, ATOM) if name.isidentifier() else (name, POSTFIX if "(" not in name[:1] else ATOM)


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def in_float32(w: Writer, dtype: str, args: list[Text], f: Callable[[list[Text]], Text]) -> Text:
    """`f` on values of a float that the language only stores: through float32 and back."""
    d = w.dialect
    return d.from_float32(w, f([d.to_float32(w, a, dtype) for a in args]), dtype)


def _arith(w: Writer, e: Any) -> Text:
    symbol, precedence = _ARITH[type(e)]
    dtype = e.dtype
    if dt.is_float(dtype):
        a, b = w.expr(e.a), w.expr(e.b)
        return float_arith(w, type(e), a, b, dtype)
    if w.exact or fits(w.range(e), dtype):
        return combine(_operand(w, e.a, e.b), symbol, _operand(w, e.b, e.a), precedence)
    a, b = w.expr(e.a), w.expr(e.b)
    return w.dialect.wrapping(w, symbol, precedence, a, b, dtype)


def _operand(w: Writer, e: Any, other: Any) -> Text:
    """An operand of integers; one that is only widened to its neighbour's dtype is left for the language to widen."""
    if isinstance(e, E.Cast) and not isinstance(other, (E.Cast, E.IntImm)) and not w.wide and w.dialect.promotes:
        inner = e.value.dtype
        if dt.code(inner) == dt.code(e.dtype) == "int" and 32 <= dt.bits(inner) < dt.bits(e.dtype):
            with w.value_context():
                return w.expr(e.value)
    return w.expr(e)


def float_arith(w: Writer, kind: type, a: Text, b: Text, dtype: str) -> Text:
    """`a kind b` of floats, rounded to `dtype`."""
    symbol, precedence = _ARITH[kind]
    if not w.dialect.is_native(dtype):
        return in_float32(w, dtype, [a, b], lambda v: float_arith(w, kind, v[0], v[1], "float32"))
    if kind is E.Mod:
        return w.dialect.math(w, "fmod", dtype, [a, b])
    return combine(a, symbol, b, precedence)


def _divide(w: Writer, e: Any) -> Text:
    """Truncating division and remainder: those of C."""
    if dt.is_float(e.dtype):
        return _arith(w, e)
    symbol, precedence = _ARITH[type(e)]
    with w.value_context():
        a, b = w.expr(e.a), w.expr(e.b)
    if not dt.is_uint(e.dtype) and dt.bits(e.dtype) < 32 and type(e) is E.Div:
        return cast_text(w.dialect.type(e.dtype), combine(a, symbol, b, precedence))
    return combine(a, symbol, b, precedence)


def _floor(w: Writer, e: Any) -> Text:
    """Floor division and its remainder: C's where nothing is negative, else a helper."""
    dtype, quotient = e.dtype, type(e) is E.FloorDiv
    if dt.is_float(dtype):
        return _float_floor(w, e)
    with w.value_context():
        w.exact = w.natural(e.a)
        a = w.expr(e.a)
        w.exact = w.natural(e.b)
        b = w.expr(e.b)
    if dt.is_uint(dtype) or (w.natural(e.a) and w.range(e.b)[0] > 0):
        return combine(a, "/" if quotient else "%", b, W.MUL)
    return w.dialect.call(w, ("floordiv" if quotient else "floormod"), dtype, [a, b])


def _float_floor(w: Writer, e: Any) -> Text:
    dtype = e.dtype
    a, b = w.expr(e.a), w.expr(e.b)

    def compute(v: list[Text], ty: str) -> Text:
        if type(e) is E.FloorDiv:
            return w.dialect.math(w, "floor", ty, [combine(v[0], "/", v[1], W.MUL)])
        return w.dialect.call(w, "floormod", ty, v)

    if w.dialect.is_native(dtype):
        return compute([a, b], dtype)
    return in_float32(w, dtype, [a, b], lambda v: compute(v, "float32"))


def _minmax(w: Writer, e: Any) -> Text:
    a, b = w.expr(e.a), w.expr(e.b)
    name, dtype = "max" if type(e) is E.Max else "min", e.dtype
    if dt.is_float(dtype) and not w.dialect.is_native(dtype):
        return in_float32(w, dtype, [a, b], lambda v: w.dialect.call(w, name, "float32", v))
    return w.dialect.call(w, name, dtype, [a, b])


def _compare(w: Writer, e: Any) -> Text:
    symbol, precedence = _COMPARE[type(e)]
    dtype = e.a.dtype
    if _is_null(e.b) and (pointer := _pointer_bits(e.a)) is not None and w.dialect.promotes:
        return combine(w.expr(pointer), symbol, w.dialect.int_literal(0, "handle"), precedence)
    with w.value_context():
        w.exact = w.plain_integer(e.a) and w.plain_integer(e.b)
        a, b = _operand(w, e.a, e.b), _operand(w, e.b, e.a)
    if dt.is_float(dtype) and not w.dialect.is_native(dtype):
        a, b = w.dialect.to_float32(w, a, dtype), w.dialect.to_float32(w, b, dtype)
    if precedence == W.EQUALITY:  # `(a < b) != (c < d)`: C compilers warn without the parentheses
        a, b = ((f"({x[0]})", ATOM) if x[1] in (W.RELATION, W.EQUALITY) else x for x in (a, b))
    return combine(a, symbol, b, precedence)


def _is_null(e: Any) -> bool:
    return isinstance(e, E.IntImm) and e.value == 0


def _pointer_bits(e: Any) -> Any:
    """The pointer whose bits `e` is, if it is that."""
    if (
        isinstance(e, E.Call)
        and isinstance(e.op, Op)
        and e.op.name == "tir.reinterpret"
        and e.args[0].dtype == "handle"
    ):
        return e.args[0]
    return None


_OPPOSITE: dict[type, Any] = {E.EQ: E.NE, E.NE: E.EQ, E.LT: E.GE, E.GE: E.LT, E.LE: E.GT, E.GT: E.LE}


def _logic(w: Writer, e: Any) -> Text:
    symbol, precedence = ("&&", W.AND) if type(e) is E.And else ("||", W.OR)
    with w.value_context():
        a = w.expr(e.a)
        with w.maybe():
            b = w.expr(e.b)
    if type(e) is E.Or:  # `a && b || c` reads better with parentheses
        a, b = (_grouped(x) for x in (a, b))
    return combine(a, symbol, b, precedence)


def _grouped(x: Text) -> Text:
    return (f"({x[0]})", ATOM) if x[1] == W.AND else x


def _not(w: Writer, e: E.Not) -> Text:
    inner: Any = e.a
    if isinstance(inner, E.Not):
        return w.expr(inner.a)
    opposite = _OPPOSITE.get(type(inner))
    if opposite is not None and (type(inner) in (E.EQ, E.NE) or not dt.is_float(inner.a.dtype)):
        return w.expr(opposite(inner.a, inner.b))
    with w.value_context():
        return f"!{w.at(e.a, UNARY)}", UNARY


def _select(w: Writer, e: E.Select) -> Text:
    return choose(w, e.condition, e.true_value, e.false_value)


def choose(w: Writer, condition: Any, a: Any, b: Any) -> Text:
    """`condition ? a : b`: only the side chosen is evaluated."""
    with w.value_context():
        c = w.at(condition, COND + 1)
    with w.maybe():
        return w.dialect.conditional(w, c, w.expr(a), w.expr(b))


def _let(w: Writer, e: E.Let) -> Text:
    if w.lazy:  # may not be computed before: the variable stands for its value
        w.values[e.var] = e.value
        return w.expr(e.body)
    with w.value_context():
        w.dialect.let(w, e.var, e.value)
    return w.expr(e.body)


# ---- conversions -----------------------------------------------------------------------------------------------------


def _cast(w: Writer, e: E.Cast) -> Text:
    source = e.value.dtype
    if w.wide and e.dtype == "int64" and source == "int32":
        return w.expr(e.value)
    if (
        dt.is_int(source)
        and dt.is_int(e.dtype)
        and dt.bits(e.dtype) > dt.bits(source)
        and not fits(w.range(e.value), source)
    ):
        with w.value_context():
            value = w.expr(e.value)
    else:
        value = w.expr(e.value)
    return convert(w, value, source, e.dtype)


def convert(w: Writer, value: Text, source: str, target: str) -> Text:
    """`value` of `source` as `target`: C's conversions; floats to integers truncate."""
    d = w.dialect
    if source == target:
        return value
    if dt.is_float(source) and not d.is_native(source):
        value, source = d.to_float32(w, value, source), "float32"
    if dt.is_float(target) and not d.is_native(target):
        return d.from_float32(w, convert(w, value, source, "float32"), target)
    if source == target:
        return value
    if "handle" in (source, target):
        return d.pointer_cast(w, value, source, target)
    return d.cast(w, value, source, target)


def convert_text(w: Writer, e: Any, target: str) -> str:
    """An expression converted to `target`, as an operand."""
    text, own = convert(w, w.expr(e), e.dtype, target)
    return _parenthesised(text, own, UNARY)


# ---- vectors of the language -----------------------------------------------------------------------------------------


def _shuffle(w: Writer, e: E.Shuffle) -> Text:
    if len(e.indices) == 1 and len(e.vectors) == 1:
        v = e.vectors[0]
        return w.dialect.lane(w, w.text(v), v.dtype, int(e.indices[0]))  # pyright: ignore[reportArgumentType]
    if all(dt.lanes(v.dtype) == 1 for v in e.vectors):
        picked = [e.vectors[int(i)] for i in e.indices]  # pyright: ignore[reportArgumentType]
        return w.dialect.vector(w, e.dtype, [w.text(v) for v in picked])
    raise w.unsupported("a shuffle of vectors")


def _broadcast(w: Writer, e: E.Broadcast) -> Text:
    if dt.lanes(e.value.dtype) != 1:
        raise w.unsupported("a Broadcast of a vector")
    return w.dialect.splat(w, e.dtype, w.text(e.value))


# ---- memory and calls ------------------------------------------------------------------------------------------------


def _load(w: Writer, e: BufferLoad) -> Text:
    if len(e.indices) != 1:
        raise w.unsupported(f"an access of buffer {e.buffer.name!r} with {len(e.indices)} indices")
    return w.dialect.load(w, e)


def _call(w: Writer, e: E.Call) -> Text:
    if isinstance(e.op, GlobalVar):
        return w.dialect.call_function(w, e)
    assert isinstance(e.op, Op)
    handler = w.dialect.intrinsics.get(e.op.name.removeprefix("tir."))
    if handler is None:
        raise w.dialect.no_intrinsic(w, e.op.name)
    with w.value_context():
        return handler(w, e)


EXPRESSIONS: dict[type, Handler] = {
    E.IntImm: _int, E.FloatImm: _float, E.StringImm: _string, E.Var: _var, E.SizeVar: _var, E.Add: _arith, E.Sub: _arith,
    E.Mul: _arith, E.Div: _divide, E.Mod: _divide, E.FloorDiv: _floor, E.FloorMod: _floor, E.Min: _minmax, E.Max: _minmax,
    E.EQ: _compare, E.NE: _compare, E.LT: _compare, E.LE: _compare, E.GT: _compare, E.GE: _compare, E.And: _logic, E.Or: _logic,
    E.Not: _not, E.Select: _select, E.Let: _let, E.Cast: _cast, E.Shuffle: _shuffle, E.Broadcast: _broadcast, E.Call: _call,
    BufferLoad: _load,
}  # fmt: skip
"""What writes each kind of expression; a dialect may replace entries."""
