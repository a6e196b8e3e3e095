"""A small language to write mathematical functions as LLVM text, for any lane count.

    def sigmoid(b, x):
        e = b.exp(-b.abs(x))
        return b.where(x >= 0, 1 / (1 + e), e / (1 + e))

`Value`s carry their kind (`f32`, `f64`, `i32`, `i64`, `i1`) and overload Python's operators; Python numbers beside them become
constants. `Builder.helper` wraps such a function in an LLVM function that is always inlined; its text is made once for each
(function, kind, lanes, has fma).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Union

from tilewright.backends.llvm.emit_core import float_literal, splat, suffix, vector

__all__ = ["Builder", "Helper", "Num", "Value", "helper_text"]

_TYPES = {"f32": "float", "f64": "double", "i32": "i32", "i64": "i64", "i1": "i1"}
_DTYPES = {"f32": "float32", "f64": "float64"}


class Value:
    """A value in the function being written."""

    __slots__ = ("b", "kind", "text")

    def __init__(self, b: Builder, kind: str, text: str) -> None:
        self.b, self.kind, self.text = b, kind, text

    def _bin(self, name: str, other: Num, swap: bool = False) -> Value:
        o = self.b.const(other, self.kind)
        return self.b.binary(name, o, self) if swap else self.b.binary(name, self, o)

    def __add__(self, o: Num) -> Value:
        return self._bin("add", o)

    def __radd__(self, o: Num) -> Value:
        return self._bin("add", o, True)

    def __sub__(self, o: Num) -> Value:
        return self._bin("sub", o)

    def __rsub__(self, o: Num) -> Value:
        return self._bin("sub", o, True)

    def __mul__(self, o: Num) -> Value:
        return self._bin("mul", o)

    def __rmul__(self, o: Num) -> Value:
        return self._bin("mul", o, True)

    def __truediv__(self, o: Num) -> Value:
        return self._bin("div", o)

    def __rtruediv__(self, o: Num) -> Value:
        return self._bin("div", o, True)

    def __and__(self, o: Num) -> Value:
        return self._bin("and", o)

    def __or__(self, o: Num) -> Value:
        return self._bin("or", o)

    def __xor__(self, o: Num) -> Value:
        return self._bin("xor", o)

    def __lshift__(self, o: Num) -> Value:
        return self._bin("shl", o)

    def __rshift__(self, o: Num) -> Value:
        """Arithmetic."""
        return self._bin("ashr", o)

    def __neg__(self) -> Value:
        return self.b.emit(self.kind, f"fneg {self.b.ty(self.kind)} {self.text}")

    def __lt__(self, o: Num) -> Value:
        return self.b.compare("lt", self, o)

    def __le__(self, o: Num) -> Value:
        return self.b.compare("le", self, o)

    def __gt__(self, o: Num) -> Value:
        return self.b.compare("gt", self, o)

    def __ge__(self, o: Num) -> Value:
        return self.b.compare("ge", self, o)

    def equals(self, o: Num) -> Value:
        """Is it equal to `o`?"""
        return self.b.compare("eq", self, o)

    def differs(self, o: Num) -> Value:
        """Is it not equal to `o`?"""
        c = self.b.const(o, self.kind)
        return self.b.emit("i1", f"fcmp one {self.b.ty(self.kind)} {self.text}, {c.text}")

    def negated(self) -> Value:
        """The opposite of an i1."""
        return self ^ 1

    def is_nan(self) -> Value:
        """Is it not a number?"""
        return self.b.emit("i1", f"fcmp uno {self.b.ty(self.kind)} {self.text}, {self.text}")


Num = Union[Value, int, float]


class Builder:
    """Writes one function of `lanes` lanes."""

    def __init__(self, lanes: int, has_fma: bool) -> None:
        self.lanes, self.has_fma = lanes, has_fma
        self.lines: list[str] = []
        self.known: dict[str, str] = {}
        self.declared: dict[str, str] = {}

    def ty(self, kind: str) -> str:
        """The LLVM type of a kind."""
        return vector(self.lanes, _TYPES[kind])

    def emit(self, kind: str, text: str) -> Value:
        """A pure instruction."""
        name = self.known.get(text)
        if name is None:
            name = self.known[text] = f"%t{len(self.lines)}"
            self.lines.append(f"  {name} = {text}")
        return Value(self, kind, name)

    def const(self, value: Num, kind: str) -> Value:
        """A number as a constant of `kind`; values stay."""
        if isinstance(value, Value):
            return value
        if kind in _DTYPES:
            literal = float_literal(float(value), _DTYPES[kind])
        else:
            literal = ("true" if value else "false") if kind == "i1" else str(int(value))
        return Value(self, kind, splat(literal, _TYPES[kind], self.lanes))

    def binary(self, name: str, a: Value, c: Value) -> Value:
        """An arithmetic or bit operation on two values of one kind. Floats are never contracted: what is fused is written so."""
        opcode = f"f{name}" if a.kind in _DTYPES else name
        return self.emit(a.kind, f"{opcode} {self.ty(a.kind)} {a.text}, {c.text}")

    def compare(self, name: str, a: Value, o: Num) -> Value:
        """An ordered (signed) comparison."""
        c = self.const(o, a.kind)
        if a.kind in _DTYPES:
            return self.emit("i1", f"fcmp o{name} {self.ty(a.kind)} {a.text}, {c.text}")
        return self.emit("i1", f"icmp {name if name == 'eq' else 's' + name} {self.ty(a.kind)} {a.text}, {c.text}")

    def lshr(self, a: Value, n: int) -> Value:
        """Logical shift right."""
        return self.emit(a.kind, f"lshr {self.ty(a.kind)} {a.text}, {self.const(n, a.kind).text}")

    def where(self, c: Value, a: Num, o: Num) -> Value:
        """`c ? a : o`."""
        kind = a.kind if isinstance(a, Value) else o.kind if isinstance(o, Value) else "f32"
        x, y = self.const(a, kind), self.const(o, kind)
        t = self.ty(kind)
        return self.emit(kind, f"select {self.ty('i1')} {c.text}, {t} {x.text}, {t} {y.text}")

    def call(self, name: str, *args: Value) -> Value:
        """A pure LLVM intrinsic on operands of one kind."""
        t = self.ty(args[0].kind)
        full = f"llvm.{name}.{suffix(t)}"
        self.declared[full] = f"{t} ({', '.join([t] * len(args))})"
        return self.emit(args[0].kind, f"call {t} @{full}({', '.join(f'{t} {a.text}' for a in args)})")

    def fma(self, a: Num, c: Num, d: Num) -> Value:
        """a * c + d, in one rounding where the target has the instruction."""
        kind = next(v.kind for v in (a, c, d) if isinstance(v, Value))
        x, y, z = self.const(a, kind), self.const(c, kind), self.const(d, kind)
        return self.call("fma", x, y, z) if self.has_fma else x * y + z

    def poly(self, x: Value, coefficients: Sequence[float]) -> Value:
        """The polynomial with these coefficients, lowest first, by Horner's scheme."""
        out = self.const(coefficients[-1], x.kind)
        for c in reversed(coefficients[:-1]):
            out = self.fma(out, x, c)
        return out

    def abs(self, x: Value) -> Value:
        """Absolute value."""
        return self.call("fabs", x)

    def sqrt(self, x: Value) -> Value:
        """Square root."""
        return self.call("sqrt", x)

    def copysign_of(self, x: Value, sign: Value) -> Value:
        """The size of `x` with the sign of `sign`."""
        return self.call("copysign", x, sign)

    def least(self, x: Value, bound: float) -> Value:
        """min(x, bound); NaN stays (written so that it is one instruction)."""
        return self.where(self.const(bound, x.kind) < x, bound, x)

    def most(self, x: Value, bound: float) -> Value:
        """max(x, bound); NaN stays."""
        return self.where(self.const(bound, x.kind) > x, bound, x)

    def bits(self, x: Value) -> Value:
        """A float's bits as an integer, or the other way."""
        kind = {"f32": "i32", "f64": "i64", "i32": "f32", "i64": "f64"}[x.kind]
        return self.emit(kind, f"bitcast {self.ty(x.kind)} {x.text} to {self.ty(kind)}")

    def convert(self, x: Value, kind: str) -> Value:
        """Between f32 and f64, and from integers."""
        opcode = {("f32", "f64"): "fpext", ("f64", "f32"): "fptrunc", ("i32", "f32"): "sitofp", ("i64", "i32"): "trunc",
                  ("i32", "f64"): "sitofp", ("i32", "i64"): "sext"}[x.kind, kind]  # fmt: skip
        return self.emit(kind, f"{opcode} {self.ty(x.kind)} {x.text} to {self.ty(kind)}")


Helper = Callable[..., Value]


@cache
def helper_text(
    name: str, f: Helper, kinds: tuple[str, ...], lanes: int, has_fma: bool, attributes: str = "#1"
) -> tuple[str, dict[str, str]]:
    """The text of `f` on parameters of these kinds as an LLVM function (always inlined, by `#1`), and the intrinsics it
    declares."""
    b = Builder(lanes, has_fma)
    params = [Value(b, k, f"%x{i}") for i, k in enumerate(kinds)]
    result = f(b, *params)
    ty = b.ty(result.kind)
    head = ", ".join(f"{b.ty(p.kind)} {p.text}" for p in params)
    lines = [f"define internal {ty} @{name}({head}) {attributes} {{", *b.lines, f"  ret {ty} {result.text}", "}"]
    return "\n".join(lines), b.declared
