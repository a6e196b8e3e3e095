"""CUDA C: half and bfloat16 with arithmetic, vectors of up to 16 bytes, shared memory, launch bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tilewright.arith import expr as E
from tilewright.backends.source.device import DeviceDialect, thread_extents
from tilewright.backends.source.dialect import Dialect, storage_scope
from tilewright.backends.source.expr import cast_text
from tilewright.backends.source.intrinsics import COMMON
from tilewright.backends.source.writer import ATOM, POSTFIX, UNARY, SourceModule, Text, Writer
from tilewright.ir import dtype as dt
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as T

__all__ = ["CudaDialect"]

_WORDS = [
    "__global__",
    "__device__",
    "__shared__",
    "blockIdx",
    "threadIdx",
    "blockDim",
    "gridDim",
    "warpSize",
    "dim3",
    "float2",
    "float3",
    "float4",
    "int2",
    "int4",
    "uint2",
    "uint4",
    "uint",
    "uchar",
    "ushort",
    "char4",
    "half2",
    "nv_bfloat16",
    "asm",
    "class",
    "template",
    "typename",
    "this",
    "new",
    "delete",
    "operator",
    "namespace",
    "using",
    "private",
    "public",
    "protected",
    "virtual",
    "friend",
    "try",
    "catch",
    "throw",
    "and",
    "or",
    "not",
    "xor",
    "clock",
    "assert",
]
_NATIVE_VECTORS = {
    "int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort", "int32": "int", "uint32": "uint", "int64": "longlong",
    "uint64": "ulonglong", "float32": "float", "float64": "double",
}  # fmt: skip
_BITS = {
    ("float32", "int32"): "__float_as_int", ("float32", "uint32"): "__float_as_uint", ("int32", "float32"): "__int_as_float",
    ("uint32", "float32"): "__uint_as_float", ("float64", "int64"): "__double_as_longlong", ("int64", "float64"): "__longlong_as_double",
    ("float16", "uint16"): "__half_as_ushort", ("float16", "int16"): "__half_as_short", ("uint16", "float16"): "__ushort_as_half",
    ("int16", "float16"): "__short_as_half", ("bfloat16", "uint16"): "__bfloat16_as_ushort", ("uint16", "bfloat16"): "__ushort_as_bfloat16",
}  # fmt: skip
_HEADERS = {"float16": "cuda_fp16.h", "bfloat16": "cuda_bf16.h"}


class CudaDialect(DeviceDialect):
    """CUDA C."""

    title: ClassVar[str] = "CUDA C"
    target: ClassVar[str] = "cuda"
    reserved: ClassVar[tuple[str, ...]] = (*Dialect.reserved, *_WORDS)
    types: ClassVar[dict[str, str]] = {
        "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long", "uint8": "unsigned char",
        "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long", "float32": "float",
        "float64": "double", "bool": "bool", "float16": "half", "bfloat16": "nv_bfloat16", "handle": "void*", "void": "void",
    }  # fmt: skip
    native_floats: ClassVar[frozenset[str]] = frozenset({"float16", "bfloat16", "float32", "float64"})
    static: ClassVar[str] = "static __device__ __forceinline__"
    math_names: ClassVar[dict[str, str]] = {"rsqrt": "rsqrt", "exp10": "exp10"}
    aligned_vectors: ClassVar[bool] = True
    vector_lanes: ClassVar[dict[str, tuple[int, ...]]] = {
        **{
            t: tuple(n for n in (2, 4, 8, 16) if n * dt.bits(t) <= 128)
            for t in (*_NATIVE_VECTORS, "float16", "bfloat16")
        },
    }
    intrinsics: ClassVar[dict[str, Callable[[Writer, Any], Text]]] = dict(COMMON)
    axis_names: ClassVar[dict[str, str]] = {f"{k}.{a}": f"{k}.{a}" for k in ("blockIdx", "threadIdx") for a in "xyz"}
    scopes: ClassVar[dict[str, str]] = {
        "local": "", "global": "", "shared": "__shared__", "shared.dyn": "__shared__", "wmma.matrix_a": "", "wmma.matrix_b": "",
        "wmma.accumulator": "",
    }  # fmt: skip

    # ---- types and values

    def vector_type(self, dtype: str) -> str:
        """`float4`, `half2`, or a structure of our own: `tw_half8`."""
        if not self.supports(dtype):
            raise CompileError.at("TW0662", f"CUDA C has no type for dtype {dtype}", hint="vectors have up to 16 bytes")
        element, n = dt.element(dtype), dt.lanes(dtype)
        if self._is_own(dtype):
            return f"tw_{element}x{n}"
        if element in _HEADERS:
            return "half2" if element == "float16" else "nv_bfloat162"
        return f"{_NATIVE_VECTORS[element]}{n}"

    def _is_own(self, dtype: str) -> bool:
        element, n = dt.element(dtype), dt.lanes(dtype)
        return n > 4 or (n > 2 and element in _HEADERS)

    def _need(self, w: Writer, dtype: str) -> None:
        """Let the file hold the structure of a vector."""
        if self._is_own(dtype):
            w.mod.helper(self.vector_type(dtype))

    def helper(self, mod: SourceModule, name: str) -> str:
        """Helpers of all dialects, and structures of vectors."""
        if name == "tw_shared_address":
            return (
                "static __device__ __forceinline__ unsigned int tw_shared_address(const void* p) {\n"
                "  return (unsigned int)__cvta_generic_to_shared(p);\n}"
            )
        element, x, n = name.removeprefix("tw_").rpartition("x")
        if x and n.isdigit() and element in self.vector_lanes:
            bytes_ = int(n) * dt.bits(element) // 8
            return f"struct __align__({bytes_}) {name} {{\n  {self.type(element)} v[{n}];\n}};"
        return super().helper(mod, name)

    def lane(self, w: Writer, vector: str, dtype: str, index: int) -> Text:
        """`v.x`."""
        return (f"{vector}.v[{index}]" if self._is_own(dtype) else f"{vector}.{'xyzw'[index]}"), POSTFIX

    def vector(self, w: Writer, dtype: str, lanes: Sequence[str]) -> Text:
        """`make_float4(a, b, c, d)`."""
        self._need(w, dtype)
        name = self.vector_type(dtype)
        if self._is_own(dtype):
            ty = self.type(dt.element(dtype))
            return f"{name}{{{{{', '.join(f'({ty})({x})' for x in lanes)}}}}}", POSTFIX
        if dt.element(dtype) in _HEADERS:
            return f"{name}({', '.join(lanes)})", POSTFIX
        return f"make_{name}({', '.join(lanes)})", POSTFIX

    def float_literal(self, w: Writer, value: float, dtype: str) -> Text:
        """A constant; small floats are converted from float32 when compiled."""
        if dtype in ("float16", "bfloat16"):
            return cast_text(self.type(dtype), super().float_literal(w, value, "float32"))
        return super().float_literal(w, value, dtype)

    def special_float(self, w: Writer, value: float, dtype: str) -> Text:
        """An infinity or NaN, by its bits."""
        nan = value != value
        if dtype == "float64":
            bits = "7FF8000000000000" if nan else "7FF0000000000000" if value > 0 else "FFF0000000000000"
            return f"__longlong_as_double(0x{bits}LL)", POSTFIX
        bits = "7FC00000" if nan else "7F800000" if value > 0 else "FF800000"
        return f"__int_as_float(0x{bits})", POSTFIX

    def cast(self, w: Writer, value: Text, source: str, target: str) -> Text:
        """Conversions; those of small floats go through float32."""
        for dtype in (source, target):
            if dtype in ("float16", "bfloat16"):
                if source != "float32" and target != "float32":
                    return self.cast(w, self.cast(w, value, source, "float32"), "float32", target)
                return cast_text(self.type(target), value)
        return super().cast(w, value, source, target)

    def bits_cast(self, source: str, target: str) -> str:
        """The bits of a variable."""
        known = _BITS.get((source, target))
        return f"return {known}(x);" if known else f"return *({self.type(target)}*)&x;"

    def constant_type(self, dtype: str) -> str:
        """`__constant__ float`."""
        return f"__constant__ {self.memory_type(dtype)}"

    # ---- memory

    def load_vector(self, w: Writer, b: T.Buffer, base: E.PrimExpr, lanes: int) -> Text:
        """`*(float4*)(A + i)`"""
        dtype = dt.with_lanes(b.dtype, lanes)
        self._need(w, dtype)
        return f"*({self.vector_type(dtype)}*)({self._address(w, b, base)})", UNARY

    def store_vector(self, w: Writer, b: T.Buffer, base: E.PrimExpr, value: E.PrimExpr) -> None:
        """`*(float4*)(A + i) = v;`"""
        self._need(w, value.dtype)
        w.line(f"*({self.vector_type(value.dtype)}*)({self._address(w, b, base)}) = {w.text(value)};")

    def _address(self, w: Writer, b: T.Buffer, base: E.PrimExpr) -> str:
        pointer = self.pointer(w, b)[0]
        return pointer if isinstance(base, E.IntImm) and base.value == 0 else f"{pointer} + {w.index(base, 12)}"

    def declare_array(self, w: Writer, scope: str, dtype: str, name: str, size: int) -> None:
        """An array; what may be accessed by vectors is aligned to them, shared memory to what tensor cores need."""
        words = self.scopes.get(scope)
        if words is not None and (scope.startswith("shared") or w.vectored):
            align = 32 if scope.startswith("shared") else 16
            w.line(f"{words + ' ' if words else ''}__align__({align}) {self.memory_type(dtype)} {name}[{size}];")
            return
        super().declare_array(w, scope, dtype, name, size)

    def declare_dynamic(self, w: Writer, dtype: str, name: str) -> None:
        """Memory whose size the launch gives."""
        w.line("extern __shared__ __align__(128) unsigned char dynamic_shared_memory[];")
        w.line(f"{self.memory_type(dtype)}* {name} = ({self.memory_type(dtype)}*)dynamic_shared_memory;")

    def attribute(self, w: Writer, s: T.AttrStmt) -> Any:
        """Thread axes; shape and layout of matrix fragments."""
        if s.attr_key in ("fragment_shape", "fragment_layout"):
            text = getattr(s.value, "value", s.value)
            w.fragments.setdefault(s.node, {})[s.attr_key.removeprefix("fragment_")] = str(text)
        return super().attribute(w, s)

    def allocate(self, w: Writer, s: T.Allocate) -> Any:
        """Arrays, and fragments of matrices for the tensor cores."""
        scope = storage_scope(s.buffer_var)
        if not scope.startswith("wmma."):
            return super().allocate(w, s)
        from tilewright.backends.cuda.intrinsics import fragment_type

        w.mod.include("mma.h")
        size = 1
        for x in s.extents:
            size *= int(x)  # pyright: ignore[reportArgumentType]
        ty, elements = fragment_type(w, s.buffer_var, scope, s.dtype)
        name = w.bind(s.buffer_var)
        w.pointers[s.buffer_var] = (s.dtype, scope)
        w.line(f"{ty} {name}[{max(1, size // elements)}];")
        return s.body

    def loop_head(self, w: Writer, s: T.For) -> None:
        """Loops that are to be unrolled say so."""
        if s.kind == T.ForKind.UNROLLED or "pragma_unroll_explicit" in s.annotations:
            w.line("#pragma unroll")

    # ---- kernels

    def pointer_param(self, element: str, name: str, apart: bool, written: bool) -> str:
        """`const float* __restrict__ A`"""
        ty = self.memory_type(element) if element else "void"
        return f"{'' if written or not element else 'const '}{ty}* {'__restrict__ ' if apart else ''}{name}"

    def kernel_head(self, f: T.PrimFunc, name: str, params: Sequence[str]) -> str:
        """`extern "C" __global__ void __launch_bounds__(256) name(...)`"""
        extents = [v for k, v in thread_extents(f).items() if k.startswith("threadIdx.")]
        threads = 1
        for v in extents:
            threads *= int(v) if isinstance(v, E.IntImm) else 0
        bounds = f" __launch_bounds__({threads})" if threads else ""
        return f'extern "C" __global__ void{bounds} {name}({", ".join(params)})'

    def prelude(self, mod: SourceModule) -> list[str]:
        """Headers that the source uses."""
        text = "\n".join([*mod.helpers.values(), *mod.globals, *mod.functions])
        headers = [h for h in mod.includes if h not in ("math.h", "stdint.h")]
        if "half" in text:
            headers.append("cuda_fp16.h")
        if "bfloat16" in text:
            headers.append("cuda_bf16.h")
        return ["\n".join(f"#include <{h}>" for h in sorted(set(headers)))]

    def address(self, w: Writer, b: T.Buffer, index: E.PrimExpr) -> Text:
        """`A + i`"""
        if isinstance(index, E.Ramp):
            index = index.base
        text = self._address(w, b, index)
        return text, 12 if " " in text else ATOM
