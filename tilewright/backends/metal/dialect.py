"""Metal's shading language (C++14 with address spaces); as text, since nothing here can compile it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tilewright.arith import expr as E
from tilewright.backends.source.device import DeviceDialect
from tilewright.backends.source.dialect import Dialect
from tilewright.backends.source.expr import cast_text
from tilewright.backends.source.intrinsics import COMMON
from tilewright.backends.source.writer import ATOM, POSTFIX, UNARY, SourceModule, Text, Writer
from tilewright.ir import dtype as dt
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as T

__all__ = ["MetalDialect"]

_WORDS = [
    "kernel",
    "device",
    "constant",
    "threadgroup",
    "thread",
    "half",
    "half4",
    "float4",
    "metal",
    "using",
    "namespace",
    "uint3",
    "bfloat",
    "vec",
    "simdgroup",
    "vertex",
    "fragment",
]
_SPACES = {"global": "device ", "shared": "threadgroup ", "local": "thread ", "constant": "constant "}


class MetalDialect(DeviceDialect):
    """Metal."""

    title: ClassVar[str] = "Metal"
    target: ClassVar[str] = "metal"
    reserved: ClassVar[tuple[str, ...]] = (*Dialect.reserved, *_WORDS)
    types: ClassVar[dict[str, str]] = {
        "int8": "char", "int16": "short", "int32": "int", "int64": "long", "uint8": "uchar", "uint16": "ushort", "uint32": "uint",
        "uint64": "ulong", "float32": "float", "float16": "half", "bfloat16": "bfloat", "bool": "bool", "void": "void",
    }  # fmt: skip
    native_floats: ClassVar[frozenset[str]] = frozenset({"float32", "float16", "bfloat16"})
    long_suffix: ClassVar[str] = "L"
    static: ClassVar[str] = "static inline"
    f32_suffix: ClassVar[str] = ""
    aligned_vectors: ClassVar[bool] = True
    math_names: ClassVar[dict[str, str]] = {"nearbyint": "rint", "rsqrt": "rsqrt", "exp10": "exp10"}
    vector_lanes: ClassVar[dict[str, tuple[int, ...]]] = dict.fromkeys(
        ("int8", "int16", "int32", "uint8", "uint16", "uint32", "float32", "float16"), (2, 4)
    )
    intrinsics: ClassVar[dict[str, Callable[[Writer, Any], Text]]] = {
        k: v for k, v in COMMON.items() if k not in ("erf", "log1p", "expm1", "hypot", "nextafter")
    }
    axis_names: ClassVar[dict[str, str]] = {f"{k}.{a}": f"{k}.{a}" for k in ("blockIdx", "threadIdx") for a in "xyz"}
    scopes: ClassVar[dict[str, str]] = {"local": "", "global": "", "shared": "threadgroup"}

    def vector_type(self, dtype: str) -> str:
        """`float4`."""
        if not self.supports(dtype):
            raise CompileError.at("TW0662", f"Metal has no type for dtype {dtype}", hint="vectors have 2 or 4 lanes")
        return f"{self.type(dt.element(dtype))}{dt.lanes(dtype)}"

    def vector(self, w: Writer, dtype: str, lanes: Sequence[str]) -> Text:
        """`float4(a, b, c, d)`."""
        return f"{self.vector_type(dtype)}({', '.join(lanes)})", POSTFIX

    def splat(self, w: Writer, dtype: str, value: str) -> Text:
        """`float4(x)`."""
        return f"{self.vector_type(dtype)}({value})", POSTFIX

    def float_literal(self, w: Writer, value: float, dtype: str) -> Text:
        """A constant; small floats by a cast."""
        if dtype in ("float16", "bfloat16"):
            return cast_text(self.type(dtype), super().float_literal(w, value, "float32"))
        return super().float_literal(w, value, dtype)

    def bits_cast(self, source: str, target: str) -> str:
        """`as_type<float>(x)`."""
        return f"return as_type<{self.type(target)}>(x);"

    def pointer_type(self, dtype: str, scope: str) -> str:
        """`device float*`."""
        return f"{_SPACES.get(scope, 'device ')}{self.memory_type(dtype)}*"

    def constant_type(self, dtype: str) -> str:
        """`constant float`."""
        return f"constant {self.memory_type(dtype)}"

    def load_vector(self, w: Writer, b: T.Buffer, base: E.PrimExpr, lanes: int) -> Text:
        """`*(device float4*)(A + i)`"""
        return f"*({self._vector_pointer(w, b, lanes)})({self._address(w, b, base)})", UNARY

    def store_vector(self, w: Writer, b: T.Buffer, base: E.PrimExpr, value: E.PrimExpr) -> None:
        """`*(device float4*)(A + i) = v;`"""
        pointer = self._vector_pointer(w, b, dt.lanes(value.dtype))
        w.line(f"*({pointer})({self._address(w, b, base)}) = {w.text(value)};")

    def _vector_pointer(self, w: Writer, b: T.Buffer, lanes: int) -> str:
        scope = w.pointers.get(b.data, ("", "global"))[1]
        return f"{_SPACES.get(scope, 'device ')}{self.vector_type(dt.with_lanes(b.dtype, lanes))}*"

    def _address(self, w: Writer, b: T.Buffer, base: E.PrimExpr) -> str:
        pointer = self.pointer(w, b)[0]
        return pointer if isinstance(base, E.IntImm) and base.value == 0 else f"{pointer} + {w.index(base, 12)}"

    def pointer_param(self, element: str, name: str, apart: bool, written: bool) -> str:
        """`device const float* A`; the position is added by the head."""
        return f"device {'' if written or not element else 'const '}{self.memory_type(element) if element else 'void'}* {name}"

    def scalar_param(self, w: Writer, p: E.Var, name: str) -> str:
        """`constant int& n`"""
        return f"constant {self.memory_type(p.dtype)}& {name}"

    def kernel_head(self, f: T.PrimFunc, name: str, params: Sequence[str]) -> str:
        """`kernel void name(... [[buffer(i)]], uint3 blockIdx [[threadgroup_position_in_grid]], ...)`"""
        placed = [f"{p} [[buffer({i})]]" for i, p in enumerate(params)]
        placed += [
            "uint3 blockIdx [[threadgroup_position_in_grid]]",
            "uint3 threadIdx [[thread_position_in_threadgroup]]",
        ]
        return f"kernel void {name}({', '.join(placed)})"

    def prelude(self, mod: SourceModule) -> list[str]:
        """The library of the language."""
        return ["#include <metal_stdlib>\nusing namespace metal;"]


def _row(*names: str) -> Callable[[Callable[[Writer, Any], Text]], Callable[[Writer, Any], Text]]:
    def enter(f: Callable[[Writer, Any], Text]) -> Callable[[Writer, Any], Text]:
        for name in names:
            MetalDialect.intrinsics[name] = f
        return f

    return enter


@_row("tvm_storage_sync")
def _sync(w: Writer, e: E.Call) -> Text:
    scope = e.args[0].value
    if scope == "warp":
        return "simdgroup_barrier(mem_flags::mem_threadgroup)", POSTFIX
    if scope == "shared":
        return "threadgroup_barrier(mem_flags::mem_threadgroup)", POSTFIX
    if scope == "global":
        return "threadgroup_barrier(mem_flags::mem_device)", POSTFIX
    raise w.unsupported(f"a barrier of {scope!r}", "shared, global and warp have one")


@_row("tvm_warp_shuffle", "tvm_warp_shuffle_up", "tvm_warp_shuffle_down")
def _shuffle(w: Writer, e: E.Call) -> Text:
    name = e.op.name.removeprefix("tir.tvm_warp_shuffle")  # pyright: ignore[reportAttributeAccessIssue]
    return f"simd_shuffle{name}({w.text(e.args[1])}, {w.text(e.args[2])})", POSTFIX


@_row("tvm_warp_activemask")
def _active(w: Writer, e: E.Call) -> Text:
    return "0", ATOM


@_row("popcount", "clz")
def _count(w: Writer, e: E.Call) -> Text:
    name = e.op.name.removeprefix("tir.")  # pyright: ignore[reportAttributeAccessIssue]
    return f"({w.dialect.type(e.dtype)}){name}({w.text(e.args[0])})", UNARY
