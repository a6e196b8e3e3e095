"""What one C-like language is: its types, its memory, its intrinsics. The emitter asks; the defaults are those of C99.

A dialect is a subclass; its tables (`expressions`, `statements`, `intrinsics`) are data that start from the shared ones.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.arith import expr as E
from tilewright.backends.source import helpers
from tilewright.backends.source import writer as W
from tilewright.backends.source.expr import EXPRESSIONS, cast_text, combine
from tilewright.backends.source.writer import ATOM, COND, POSTFIX, UNARY, SourceModule, Text, Writer
from tilewright.ir import dtype as dt
from tilewright.ir.op import GlobalVar
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as T

__all__ = ["MATH", "Dialect", "element_of", "storage_scope"]

MATH = tuple(
    f + s
    for f in [
        "exp",
        "exp2",
        "exp10",
        "log",
        "log2",
        "log10",
        "log1p",
        "expm1",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "sqrt",
        "rsqrt",
        "erf",
        "erfc",
        "pow",
        "atan2",
        "hypot",
        "copysign",
        "fma",
        "fmod",
        "nextafter",
        "ldexp",
        "floor",
        "ceil",
        "trunc",
        "round",
        "fabs",
        "nearbyint",
        "rint",
        "cbrt",
        "lgamma",
        "tgamma",
        "fmin",
        "fmax",
    ]
    for s in ("", "f")
)
"""Functions of C's math library: no variable may hide one."""
_C_WORDS = [
    "auto",
    "break",
    "case",
    "char",
    "const",
    "continue",
    "default",
    "do",
    "double",
    "else",
    "enum",
    "extern",
    "float",
    "for",
    "goto",
    "if",
    "inline",
    "int",
    "long",
    "register",
    "restrict",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "struct",
    "switch",
    "typedef",
    "union",
    "unsigned",
    "void",
    "volatile",
    "while",
    "bool",
    "true",
    "false",
    "NULL",
    "INFINITY",
    "NAN",
    "main",
    "int8_t",
    "int16_t",
    "int32_t",
    "int64_t",
    "uint8_t",
    "uint16_t",
    "uint32_t",
    "uint64_t",
    "size_t",
    "half",
    "bfloat16",
    "abs",
    "min",
    "max",
    "div",
    "y0",
    "y1",
    "yn",
    "j0",
    "j1",
    "jn",
    "gamma",
    "isnan",
    "isinf",
    "signbit",
    "index",
    "free",
    "malloc",
    "printf",
    "time",
    "remove",
    "rename",
    "exit",
    "abort",
    "signal",
    "select",
] + list(MATH)


class Dialect:
    """C99, and what other languages change of it."""

    title: ClassVar[str] = "C"
    target: ClassVar[str] = "c"
    reserved: ClassVar[tuple[str, ...]] = tuple(_C_WORDS)
    types: ClassVar[dict[str, str]] = {
        "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t", "uint16": "uint16_t",
        "uint32": "uint32_t", "uint64": "uint64_t", "float32": "float", "float64": "double", "bool": "bool", "handle": "void*",
        "void": "void", "float16": "uint16_t", "bfloat16": "uint16_t",
    }  # fmt: skip
    """The types of values; small floats that the language only stores are unsigned integers."""
    native_floats: ClassVar[frozenset[str]] = frozenset({"float32", "float64"})
    """Floats with arithmetic."""
    wide_indices: ClassVar[bool] = True
    """Are indices computed in 64 bits where 32 may not do?"""
    promotes: ClassVar[bool] = True
    """Are narrow integers widened by themselves beside wide ones, and pointers compared with null?"""
    aligned_vectors: ClassVar[bool] = False
    static: ClassVar[str] = "static inline"
    """What stands before a helper function."""
    long_suffix: ClassVar[str] = "LL"
    expressions: ClassVar[dict[type, Callable[[Writer, Any], Text]]] = EXPRESSIONS
    intrinsics: ClassVar[dict[str, Callable[[Writer, Any], Text]]] = {}
    vector_lanes: ClassVar[dict[str, tuple[int, ...]]] = {}
    """The vector types there are: element dtype to lane counts."""
    forever: ClassVar[str] = "while (1)"
    """The head of an endless loop."""
    f32_suffix: ClassVar[str] = "f"
    """What the names of math functions on float32 end with."""
    small_math: ClassVar[frozenset[str]] = frozenset()
    """Math functions that the language has for its own small floats; others go through float32."""
    math_names: ClassVar[dict[str, str]] = {}
    """Math functions with another name than C's."""

    # ---- types

    def is_native(self, dtype: str) -> bool:
        """Has the language arithmetic on this dtype?"""
        return not dt.is_float(dtype) or dt.element(dtype) in self.native_floats

    def supports(self, dtype: str) -> bool:
        """Is there such a vector type?"""
        return dt.lanes(dtype) in self.vector_lanes.get(dt.element(dtype), ())

    def type(self, dtype: str) -> str:
        """The type of a value. Raises CompileError TW0662 for a dtype without one."""
        if dt.lanes(dtype) > 1:
            return self.vector_type(dtype)
        found = self.types.get(dtype)
        if found is None and dtype.startswith("float8"):
            found = self.types["uint8"]
        if found is None:
            raise CompileError.at(
                "TW0662", f"{self.title} has no type for dtype {dtype}", hint="convert it to one that the target has"
            )
        return found

    def vector_type(self, dtype: str) -> str:
        """The name of a vector type."""
        raise CompileError.at("TW0662", f"{self.title} has no type for dtype {dtype}")

    def memory_type(self, dtype: str) -> str:
        """The type of an element in memory: bool is a byte."""
        return self.type("uint8") if dt.is_bool(dtype) else self.type(dtype)

    # ---- literals

    def int_literal(self, value: int, dtype: str) -> Text:
        """An integer constant."""
        if dt.is_bool(dtype):
            return ("true" if value else "false"), ATOM
        if dtype == "handle":
            return ("NULL", ATOM) if value == 0 else (f"(void*){value}", UNARY)
        suffix = "u" if dtype in ("uint32", "uint64") else ""
        if not -(1 << 31) <= value < 1 << 31 and dtype not in ("uint32",):
            suffix += self.long_suffix
        if value == -(1 << 63):
            return f"(-{(1 << 63) - 1}{self.long_suffix} - 1)", ATOM
        if value == -(1 << 31):
            return f"(-{(1 << 31) - 1} - 1)", ATOM
        return f"{value}{suffix}", ATOM if value >= 0 else UNARY

    def float_literal(self, w: Writer, value: float, dtype: str) -> Text:
        """A floating-point constant, rounded to its dtype."""
        if not self.is_native(dtype):
            raw: Any = np.array(value, np.float64).astype(dt.to_numpy(dtype))
            return f"0x{int(raw.view(np.uint16 if dt.bits(dtype) == 16 else np.uint8)):X}", ATOM
        if math.isinf(value) or math.isnan(value):
            return self.special_float(w, value, dtype)
        if dtype == "float64":
            return repr(value), ATOM if not repr(value).startswith("-") else UNARY
        with np.errstate(over="ignore"):
            rounded = np.float32(value)
        if np.isinf(rounded):
            return self.special_float(w, float(rounded), dtype)
        text = str(rounded)
        return text + ("" if "." in text or "e" in text else ".0") + "f", ATOM if text[0] != "-" else UNARY

    def special_float(self, w: Writer, value: float, dtype: str) -> Text:
        """An infinity or NaN."""
        w.mod.include("math.h")
        if math.isnan(value):
            return "NAN", ATOM
        return ("INFINITY", ATOM) if value > 0 else ("-INFINITY", UNARY)

    # ---- operators

    def wrapping(self, w: Writer, symbol: str, precedence: int, a: Text, b: Text, dtype: str) -> Text:
        """`a symbol b` on integers that may leave the range of the dtype: they wrap."""
        ty = self.type(dtype)
        bits = dt.bits(dtype)
        if dt.is_uint(dtype):
            if bits >= 32:
                return combine(a, symbol, b, precedence)
            if symbol == "*" and bits == 16:
                a = cast_text(self.type("uint32"), a)
            return cast_text(ty, combine(a, symbol, b, precedence))
        if bits < 32:
            return cast_text(ty, combine(a, symbol, b, precedence))
        unsigned = self.type("u" + dtype)
        return cast_text(ty, combine(cast_text(unsigned, a), symbol, cast_text(unsigned, b), precedence))

    def conditional(self, w: Writer, condition: str, a: Text, b: Text) -> Text:
        """`condition ? a : b`."""
        yes = a[0] if a[1] > COND else f"({a[0]})"
        no = b[0] if b[1] >= COND else f"({b[0]})"
        return f"{condition} ? {yes} : {no}", COND

    def call(self, w: Writer, name: str, dtype: str, args: Sequence[Text]) -> Text:
        """A helper function of one dtype: `min`, `max`, `floordiv`, `floormod`, ..."""
        function = w.mod.helper(f"tw_{name}_{helpers.short(dtype)}")
        return f"{function}({', '.join(a for a, _ in args)})", POSTFIX

    def math(self, w: Writer, name: str, dtype: str, args: Sequence[Text]) -> Text:
        """A function of the language's math library, on a float that it knows."""
        w.mod.include("math.h")
        base = self.math_names.get(name, name)
        suffix = self.f32_suffix if dtype == "float32" else ""
        return f"{base}{suffix}({', '.join(a for a, _ in args)})", POSTFIX

    def cast(self, w: Writer, value: Text, source: str, target: str) -> Text:
        """A conversion between scalars that the language knows."""
        if dt.is_bool(target):
            return combine(value, "!=", ("0", ATOM), W.EQUALITY)
        if dt.is_float(source) and not dt.is_float(target):
            # through a wider signed integer: negative numbers then wrap, where C leaves it open
            if dt.bits(target) < 32:
                value = cast_text(self.type("int32"), value)
            elif target == "uint32":
                value = cast_text(self.type("int64"), value)
        return cast_text(self.type(target), value)

    def to_float32(self, w: Writer, value: Text, dtype: str) -> Text:
        """A small float as float32."""
        return f"{w.mod.helper(f'tw_from_{helpers.short(dtype)}')}({value[0]})", POSTFIX

    def from_float32(self, w: Writer, value: Text, dtype: str) -> Text:
        """A float32 rounded to a small float."""
        return f"{w.mod.helper(f'tw_to_{helpers.short(dtype)}')}({value[0]})", POSTFIX

    def pointer_cast(self, w: Writer, value: Text, source: str, target: str) -> Text:
        """Between pointers and integers."""
        w.mod.include("stdint.h")
        if target == "handle":
            return cast_text("void*", cast_text("intptr_t", value))
        return cast_text(self.type(target), cast_text("intptr_t", value))

    def reinterpret(self, w: Writer, value: Text, source: str, target: str) -> Text:
        """The same bits as another dtype of that size."""
        if "handle" in (source, target):
            return value if source == target else self.pointer_cast(w, value, source, target)
        a, b = self._bits_type(source), self._bits_type(target)
        if a == b:
            return value
        if not (dt.is_float(a) or dt.is_float(b)):
            return cast_text(self.type(target), value)
        return f"{w.mod.helper(f'tw_bits_{helpers.short(a)}_{helpers.short(b)}')}({value[0]})", POSTFIX

    def _bits_type(self, dtype: str) -> str:
        if dt.is_float(dtype) and not self.is_native(dtype):
            return f"uint{dt.bits(dtype)}"
        return dtype

    # ---- vectors (for languages that have some)

    def lane(self, w: Writer, vector: str, dtype: str, index: int) -> Text:
        """One lane of a vector variable."""
        return f"{vector}.{'xyzw'[index]}", POSTFIX

    def vector(self, w: Writer, dtype: str, lanes: Sequence[str]) -> Text:
        """A vector of these lanes."""
        raise w.unsupported(f"a vector of {dtype}")

    def splat(self, w: Writer, dtype: str, value: str) -> Text:
        """A vector with `value` in each lane."""
        return self.vector(w, dtype, [value] * dt.lanes(dtype))

    # ---- memory

    def pointer(self, w: Writer, b: T.Buffer) -> Text:
        """The pointer to a buffer's memory, of the type of its elements."""
        text = w.text(b.data)
        declared, scope = w.pointers.get(b.data, ("", "global"))
        if declared != b.dtype:
            return f"({self.pointer_type(b.dtype, scope)}){text}", UNARY
        return text, ATOM

    def pointer_type(self, dtype: str, scope: str) -> str:
        """The type of a pointer to elements of `dtype` in the memory `scope`."""
        return f"{self.memory_type(dtype)}*"

    def element(self, w: Writer, b: T.Buffer, index: E.PrimExpr) -> Text:
        """`pointer[index]`."""
        base, own = self.pointer(w, b)
        if own < POSTFIX:
            base = f"({base})"
        return f"{base}[{w.index(index)}]", POSTFIX

    def load(self, w: Writer, e: T.BufferLoad) -> Text:
        """An element, or whole vector."""
        index = e.indices[0]
        if isinstance(index, E.Ramp):
            return self.load_vector(w, e.buffer, index.base, index.lanes)
        return self.element(w, e.buffer, index)

    def load_vector(self, w: Writer, b: T.Buffer, base: E.PrimExpr, lanes: int) -> Text:
        """The vector that begins at `base`."""
        raise w.unsupported("a load of a vector")

    def store(self, w: Writer, s: T.BufferStore) -> None:
        """Write `buffer[index] = value`."""
        index = s.indices[0]
        if isinstance(index, E.Ramp):
            self.store_vector(w, s.buffer, index.base, s.value)
            return
        target = self.element(w, s.buffer, index)[0]
        w.line(f"{target} = {w.text(s.value)};")

    def store_vector(self, w: Writer, b: T.Buffer, base: E.PrimExpr, value: E.PrimExpr) -> None:
        """Write a whole vector."""
        raise w.unsupported("a store of a vector")

    def address(self, w: Writer, b: T.Buffer, index: E.PrimExpr) -> Text:
        """`&buffer[index]` (or the pointer alone)."""
        if isinstance(index, E.Ramp):
            index = index.base
        if isinstance(index, E.IntImm) and index.value == 0:
            return self.pointer(w, b)
        return f"&{self.element(w, b, index)[0]}", UNARY

    # ---- statements that languages write differently

    def let(self, w: Writer, v: E.Var, value: E.PrimExpr) -> None:
        """Declare a variable."""
        known = w.range(value) if dt.is_int(v.dtype) and dt.lanes(v.dtype) == 1 else None
        text = w.index(value) if dt.lanes(v.dtype) == 1 and w.plain_integer(value) else w.text(value)
        ty = self.type(v.dtype)
        if v.dtype == "handle":
            element = element_of(v)
            w.pointers[v] = (element, "global")
            ty = self.pointer_type(element, "global") if element else "void*"
            if element:
                text = f"({ty}){text.removeprefix('(void*)') if text.startswith('(void*)') else f'({text})'}"
        if known is not None and (known[0] < dt.min_value(v.dtype) or known[1] > dt.max_value(v.dtype)):
            known = None
        w.line(f"{ty} {w.bind(v, known)} = {text};")

    def loop_head(self, w: Writer, s: T.For) -> None:
        """What stands before a loop."""

    def for_head(self, dtype: str, name: str, start: str, end: str) -> str:
        """The head of a loop."""
        return f"for ({self.type(dtype)} {name} = {start}; {name} < {end}; ++{name})"

    def attribute(self, w: Writer, s: T.AttrStmt) -> Any:
        """Enter the region of an attribute; gives the statement that is left to write."""
        return s.body

    def assertion(self, w: Writer, s: T.AssertStmt) -> None:
        """Stop unless a condition holds. On a device nobody would hear it: left out."""

    def evaluate(self, w: Writer, e: E.PrimExpr) -> None:
        """A call as a statement."""
        text = w.text(e)
        if text:
            w.line(f"{text};")

    def allocate(self, w: Writer, s: T.Allocate) -> Any:
        """Memory for a buffer; gives the statement that is left to write."""
        size = 1
        for x in s.extents:
            if not isinstance(x, E.IntImm):
                raise w.unsupported(f"memory of a size that is not constant ({s.buffer_var.name!r})")
            size *= x.value
        scope = storage_scope(s.buffer_var)
        name = w.bind(s.buffer_var)
        w.pointers[s.buffer_var] = (s.dtype, scope)
        self.declare_array(w, scope, s.dtype, name, max(size, 1))
        return s.body

    def declare_array(self, w: Writer, scope: str, dtype: str, name: str, size: int) -> None:
        """Declare an array that lives in the function."""
        w.line(f"{self.memory_type(dtype)} {name}[{size}];")

    def constant(self, w: Writer, s: T.AllocateConst) -> Any:
        """Constant memory: an array in the file."""
        values: Any = np.ascontiguousarray(s.data).reshape(-1)
        name = w.bind(s.buffer_var)
        symbol = f"{w.name}_{name}"
        w.names[s.buffer_var] = symbol
        w.pointers[s.buffer_var] = (s.dtype, "constant")
        kind = "bool" if dt.is_bool(s.dtype) else s.dtype
        texts: list[str] = []
        for v in values:
            literal = self.float_literal(w, float(v), kind) if dt.is_float(kind) else self.int_literal(int(v), kind)
            texts.append(str(int(v)) if kind == "bool" else literal[0])
        rows = [", ".join(texts[i : i + 12]) for i in range(0, len(texts), 12)] or ["0"]
        body = ",\n  ".join(rows)
        w.mod.globals.append(f"{self.constant_type(s.dtype)} {symbol}[{max(len(texts), 1)}] = {{\n  {body}\n}};")
        return s.body

    def constant_type(self, dtype: str) -> str:
        """The type of the elements of constant memory."""
        return f"static const {self.memory_type(dtype)}"

    def call_function(self, w: Writer, e: E.Call) -> Text:
        """A direct call of a function of the module: its status."""
        raise w.unsupported(f"a call of {e.op.name_hint if isinstance(e.op, GlobalVar) else e.op}")

    def no_intrinsic(self, w: Writer, name: str) -> CompileError:
        """The error of an intrinsic that the language lacks."""
        return CompileError.at(
            "TW0663",
            f"target {self.target!r} has no intrinsic {name} (used in function {w.name!r})",
            hint="use an intrinsic that the target has, or compute it by others",
        )

    # ---- the file

    def helper(self, mod: SourceModule, name: str) -> str:
        """The text of a helper function by its name."""
        return helpers.helper_text(self, mod, name)

    def bits_cast(self, source: str, target: str) -> str:
        """The body of a function from the variable `x` to its bits as another type."""
        a, b = self.type(source), self.type(target)
        return f"union {{ {a} a; {b} b; }} u;\n  u.a = x;\n  return u.b;"


def storage_scope(v: E.Var) -> str:
    """The memory that a pointer variable points to."""
    return str(getattr(v.type_annotation, "storage_scope", "global") or "global")


def element_of(v: E.Var) -> str:
    """The element dtype that a pointer variable is declared with; "" for a bare handle."""
    element = getattr(getattr(v.type_annotation, "element_type", None), "dtype", "")
    return "" if element == "void" else dt.element(element) if element else ""


def f32_bits(value: float) -> int:
    """The bits of a float32."""
    return struct.unpack("<I", struct.pack("<f", value))[0]
