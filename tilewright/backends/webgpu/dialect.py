"""WGSL: 32-bit numbers (and float16 where the device has it), one shader a kernel, scalars in a uniform structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tilewright.arith import expr as E
from tilewright.backends.source import writer as W
from tilewright.backends.source.device import DeviceDialect, pointer_dtypes, thread_extents
from tilewright.backends.source.dialect import MATH, element_of, storage_scope
from tilewright.backends.source.expr import combine
from tilewright.backends.source.intrinsics import COMMON
from tilewright.backends.source.stmt import write
from tilewright.backends.source.vectors import take_vectors_apart
from tilewright.backends.source.writer import ATOM, POSTFIX, UNARY, SourceModule, Text, Writer
from tilewright.ir import dtype as dt
from tilewright.ir.module import attrs_of
from tilewright.tir import ir as T

__all__ = ["SEPARATOR", "WgslDialect", "pointer_params"]

_WORDS = [
    "alias",
    "break",
    "case",
    "const",
    "const_assert",
    "continue",
    "continuing",
    "default",
    "diagnostic",
    "discard",
    "else",
    "enable",
    "false",
    "fn",
    "for",
    "if",
    "let",
    "loop",
    "override",
    "requires",
    "return",
    "struct",
    "switch",
    "true",
    "var",
    "while",
    "array",
    "atomic",
    "bool",
    "f16",
    "f32",
    "i32",
    "u32",
    "vec2",
    "vec3",
    "vec4",
    "mat2x2",
    "mat4x4",
    "ptr",
    "sampler",
    "texture_2d",
    "function",
    "private",
    "workgroup",
    "uniform",
    "storage",
    "read",
    "write",
    "read_write",
    "main",
    "abs",
    "all",
    "any",
    "select",
    "min",
    "max",
    "dot",
    "cross",
    "step",
    "mix",
    "fma",
    "sign",
    "as",
    "async",
    "await",
    "auto",
    "class",
    "do",
    "enum",
    "export",
    "extern",
    "final",
    "goto",
    "import",
    "in",
    "inline",
    "interface",
    "mod",
    "module",
    "move",
    "mut",
    "namespace",
    "new",
    "nil",
    "null",
    "of",
    "operator",
    "out",
    "package",
    "pixel",
    "pragma",
    "precise",
    "precision",
    "public",
    "ref",
    "resource",
    "self",
    "set",
    "shared",
    "sizeof",
    "static",
    "super",
    "target",
    "template",
    "this",
    "trait",
    "try",
    "type",
    "typedef",
    "typeof",
    "union",
    "unsafe",
    "use",
    "using",
    "varying",
    "virtual",
    "void",
    "where",
    "with",
    "yield",
    "blockIdx",
    "threadIdx",
    "pod",
    "active",
    "get",
    "handle",
    "smooth",
]
SEPARATOR = "//----------------------------------------\n// Function: "
"""What stands before each kernel: one shader each, as names of buffers are global in WGSL."""


class WgslDialect(DeviceDialect):
    """WGSL."""

    title: ClassVar[str] = "WGSL"
    target: ClassVar[str] = "webgpu"
    reserved: ClassVar[tuple[str, ...]] = (*_WORDS, *MATH)
    types: ClassVar[dict[str, str]] = {
        "int32": "i32",
        "uint32": "u32",
        "float32": "f32",
        "float16": "f16",
        "bool": "bool",
    }
    native_floats: ClassVar[frozenset[str]] = frozenset({"float32", "float16"})
    promotes: ClassVar[bool] = False
    f32_suffix: ClassVar[str] = ""
    forever: ClassVar[str] = "while (true)"
    math_names: ClassVar[dict[str, str]] = {"rsqrt": "inverseSqrt", "fabs": "abs", "nearbyint": "round"}
    intrinsics: ClassVar[dict[str, Callable[[Writer, Any], Text]]] = {
        k: v
        for k, v in COMMON.items()
        if k not in ("erf", "log1p", "expm1", "hypot", "nextafter", "ldexp", "address_of", "tvm_access_ptr", "call_extern", "call_pure_extern",
                     "isnan", "isinf", "round", "log10", "exp10", "copysign", "fmod", "prefetch", "shift_left", "shift_right", "popcount", "clz")
    }  # fmt: skip
    axis_names: ClassVar[dict[str, str]] = {f"{k}.{a}": f"{k}.{a}" for k in ("blockIdx", "threadIdx") for a in "xyz"}
    scopes: ClassVar[dict[str, str]] = {"local": "", "global": "", "shared": "workgroup"}

    # ---- values

    def int_literal(self, value: int, dtype: str) -> Text:
        """An integer constant."""
        if dt.is_bool(dtype):
            return ("true" if value else "false"), ATOM
        if dtype == "uint32":
            return f"{value}u", ATOM
        self.type(dtype)
        if value == -(1 << 31):
            return "i32(-2147483647 - 1)", ATOM
        return str(value), ATOM if value >= 0 else UNARY

    def float_literal(self, w: Writer, value: float, dtype: str) -> Text:
        """A floating-point constant."""
        if dtype == "float16":
            text, own = super().float_literal(w, value, "float32")
            return (f"{text.removesuffix('f')}h", own) if text.endswith("f") else (f"f16({text})", POSTFIX)
        return super().float_literal(w, value, dtype)

    def special_float(self, w: Writer, value: float, dtype: str) -> Text:
        """An infinity or NaN: WGSL refuses constants of them, so their bits come from a variable."""
        name, bits = (
            ("tw_nan", "7FC00000")
            if value != value
            else ("tw_inf", "7F800000")
            if value > 0
            else ("tw_minus_inf", "FF800000")
        )
        line = f"var<private> {name}_bits : u32 = 0x{bits}u;"
        if line not in w.mod.globals:
            w.mod.globals.append(line)
        return f"bitcast<f32>({name}_bits)", POSTFIX

    def wrapping(self, w: Writer, symbol: str, precedence: int, a: Text, b: Text, dtype: str) -> Text:
        """Integers wrap by themselves."""
        return combine(a, symbol, b, precedence)

    def conditional(self, w: Writer, condition: str, a: Text, b: Text) -> Text:
        """`select(no, yes, condition)`: both are evaluated, which no access of WGSL minds."""
        return f"select({b[0]}, {a[0]}, {condition})", POSTFIX

    def cast(self, w: Writer, value: Text, source: str, target: str) -> Text:
        """`f32(x)`."""
        return f"{self.type(target)}({value[0]})", POSTFIX

    def reinterpret(self, w: Writer, value: Text, source: str, target: str) -> Text:
        """`bitcast<u32>(x)`."""
        return f"bitcast<{self.type(target)}>({value[0]})", POSTFIX

    def call(self, w: Writer, name: str, dtype: str, args: Sequence[Text]) -> Text:
        """Helpers; integers have `min` and `max`."""
        if name in ("min", "max") and not dt.is_float(dtype):
            return f"{name}({', '.join(a for a, _ in args)})", POSTFIX
        return super().call(w, name, dtype, args)

    def helper(self, mod: SourceModule, name: str) -> str:
        """A helper in WGSL."""
        what, _, rest = name.removeprefix("tw_").partition("_")
        ty = {"i32": "i32", "u32": "u32", "f32": "f32", "f16": "f16"}.get(rest, "")
        bodies = {
            "min": "return select(b, a, a < b || a != a);",
            "max": "return select(b, a, a > b || a != a);",
            "floordiv": "let q = a / b;\n  let r = a % b;\n  return select(q, q - 1, r != 0 && (r < 0) != (b < 0));",
            "floormod": "let r = a % b;\n  return select(r, r + b, r != 0 && (r < 0) != (b < 0));",
        }
        if what not in bodies or not ty:
            return super().helper(mod, name)
        return f"fn {name}(a : {ty}, b : {ty}) -> {ty} {{\n  {bodies[what]}\n}}"

    # ---- statements

    def let(self, w: Writer, v: E.Var, value: E.PrimExpr) -> None:
        """`let x : i32 = ...;`"""
        known = w.range(value) if dt.is_int(v.dtype) else None
        text = w.index(value) if w.plain_integer(value) else w.text(value)
        w.line(f"let {w.bind(v, known)} : {self.type(v.dtype)} = {text};")

    def for_head(self, dtype: str, name: str, start: str, end: str) -> str:
        """The head of a loop."""
        return f"for (var {name} : {self.type(dtype)} = {start}; {name} < {end}; {name}++)"

    def axis_text(self, text: str, dtype: str, name: str) -> str:
        """The variable of a thread axis."""
        return f"let {name} : {self.type(dtype)} = {self.type(dtype)}({text});"

    def declare_array(self, w: Writer, scope: str, dtype: str, name: str, size: int) -> None:
        """An array: of the function, or of the work group, at module scope."""
        if scope == "shared":
            self.type(dtype)
            w.mod.globals.append(f"var<workgroup> {name} : array<{self.memory_type(dtype)}, {size}>;")
            return
        if scope not in self.scopes:
            super().declare_array(w, scope, dtype, name, size)
        w.line(f"var {name} : array<{self.memory_type(dtype)}, {size}>;")

    def memory_type(self, dtype: str) -> str:
        """The type of an element in memory: bool is a whole number."""
        return "u32" if dt.is_bool(dtype) else self.type(dtype)

    def pointer(self, w: Writer, b: T.Buffer) -> Text:
        """Memory is an array of one type."""
        declared, _ = w.pointers.get(b.data, ("", ""))
        if declared and declared != b.dtype:
            raise w.unsupported(f"buffer {b.name!r} of {b.dtype} over memory of {declared}")
        return w.text(b.data), ATOM

    # ---- kernels

    def emit(self, kernels: Sequence[T.PrimFunc]) -> str:
        """The shaders of all kernels, one after the other."""
        parts: list[str] = []
        for f in kernels:
            mod = SourceModule(self)
            mod.functions.append(self.kernel(mod, f))
            parts.append(f"{SEPARATOR}{attrs_of(f).get('global_symbol')}\n{self.file(mod)}")
        return "\n".join(parts)

    def prelude(self, mod: SourceModule) -> list[str]:
        """Extensions in use."""
        text = "\n".join([*mod.helpers.values(), *mod.globals, *mod.functions])
        return ["enable f16;"] if "f16" in text else []

    def kernel(self, mod: SourceModule, f: T.PrimFunc) -> str:
        """One shader: bindings, the structure of the scalars, the entry point."""
        name = str(attrs_of(f).get("global_symbol") or "kernel")
        f = take_vectors_apart(f, self.supports)
        w = Writer(mod, name)
        w.used.add(name)
        guessed = pointer_dtypes(f)
        bindings: list[str] = []
        fields: list[str] = []
        for p in f.params:
            param = w.bind(p)
            if p.dtype == "handle":
                element = element_of(p) or guessed.get(p, "float32")
                w.pointers[p] = (element, storage_scope(p))
                bindings.append(
                    f"@group(0) @binding({len(bindings)}) var<storage, read_write> {param} : array<{self.memory_type(element)}>;"
                )
            else:
                fields.append(f"  {param} : {self.memory_type(p.dtype)},")
                w.names[p] = f"pod.{param}" if not dt.is_bool(p.dtype) else f"(pod.{param} != 0u)"
        if fields:
            bindings.append("struct Pod {\n" + "\n".join(fields) + "\n}")
            bindings.append(f"@group(0) @binding({len(bindings) - 1}) var<uniform> pod : Pod;")
        write(w, f.body)
        sizes = [thread_extents(f).get(f"threadIdx.{a}", E.IntImm("int32", 1)) for a in "xyz"]
        if not all(isinstance(s, E.IntImm) for s in sizes):
            raise w.unsupported("a work group whose size is not constant")
        size = ", ".join(str(int(s)) for s in sizes)
        head = (
            f"@compute @workgroup_size({size})\nfn {name}(@builtin(workgroup_id) blockIdx : vec3<u32>, "
            "@builtin(local_invocation_id) threadIdx : vec3<u32>) {"
        )
        return "\n".join([*bindings, "", f"// {name}", head, *w.shared, *w.lines, "}"])


def pointer_params(f: T.PrimFunc) -> list[int]:
    """The positions of the params that are buffers."""
    return [i for i, p in enumerate(f.params) if p.dtype == "handle"]


def _row(*names: str) -> Callable[[Callable[[Writer, Any], Text]], Callable[[Writer, Any], Text]]:
    def enter(f: Callable[[Writer, Any], Text]) -> Callable[[Writer, Any], Text]:
        for name in names:
            WgslDialect.intrinsics[name] = f
        return f

    return enter


@_row("tvm_storage_sync")
def _sync(w: Writer, e: E.Call) -> Text:
    scope = e.args[0].value
    if scope == "warp":
        return "", ATOM
    return ("workgroupBarrier()" if scope.startswith("shared") else "storageBarrier()"), POSTFIX


@_row("shift_left", "shift_right")
def _shift(w: Writer, e: E.Call) -> Text:
    symbol = "<<" if e.op.name.endswith("left") else ">>"  # pyright: ignore[reportAttributeAccessIssue]
    return f"({w.at(e.args[0], UNARY)} {symbol} u32({w.text(e.args[1])}))", ATOM


@_row("popcount", "clz")
def _count(w: Writer, e: E.Call) -> Text:
    name = "countOneBits" if e.op.name.endswith("popcount") else "countLeadingZeros"  # pyright: ignore[reportAttributeAccessIssue]
    return f"{w.dialect.type(e.dtype)}({name}({w.text(e.args[0])}))", POSTFIX


@_row("isnan")
def _isnan(w: Writer, e: E.Call) -> Text:
    return f"((bitcast<u32>(f32({w.text(e.args[0])})) & 0x7FFFFFFFu) > 0x7F800000u)", ATOM


@_row("round")
def _round(w: Writer, e: E.Call) -> Text:
    """Halves away from zero; WGSL's own goes to even."""
    x = w.text(e.args[0])
    return f"(sign({x}) * floor(abs({x}) + 0.5))", ATOM


@_row("log10")
def _log10(w: Writer, e: E.Call) -> Text:
    return f"(log2({w.text(e.args[0])}) * {0.30102999566398120:.9}f)", ATOM


@_row("exp10")
def _exp10(w: Writer, e: E.Call) -> Text:
    return f"pow(10.0f, {w.text(e.args[0])})", POSTFIX


@_row("fmod")
def _fmod(w: Writer, e: E.Call) -> Text:
    return combine(w.expr(e.args[0]), "%", w.expr(e.args[1]), W.MUL)


@_row("copysign")
def _copysign(w: Writer, e: E.Call) -> Text:
    a, b = (w.text(x) for x in e.args)
    return f"bitcast<f32>((bitcast<u32>({a}) & 0x7FFFFFFFu) | (bitcast<u32>({b}) & 0x80000000u))", POSTFIX
