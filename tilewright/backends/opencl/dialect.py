"""OpenCL C 1.2: vectors of 2, 3, 4, 8 and 16, local memory declared at the head of a kernel, small floats stored as integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tilewright.arith import expr as E
from tilewright.backends.source.device import DeviceDialect, launch_params, thread_extents
from tilewright.backends.source.dialect import Dialect
from tilewright.backends.source.intrinsics import COMMON
from tilewright.backends.source.writer import ATOM, POSTFIX, SourceModule, Text, Writer
from tilewright.ir import dtype as dt
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as T

__all__ = ["OpenCLDialect"]

_WORDS = [
    "kernel",
    "global",
    "local",
    "constant",
    "private",
    "image2d_t",
    "image3d_t",
    "sampler_t",
    "event_t",
    "uchar",
    "ushort",
    "uint",
    "ulong",
    "half",
    "read_only",
    "write_only",
    "vload4",
    "barrier",
    "mad",
    "clamp",
    "mix",
    "step",
    "dot",
    "cross",
    "length",
    "distance",
    "normalize",
    "select",
    "as_float",
    "as_uint",
    "get_global_id",
    "get_local_id",
    "get_group_id",
    "float2",
    "float3",
    "float4",
    "float8",
    "float16",
    "int2",
    "int3",
    "int4",
    "int8",
    "int16",
    "M_PI",
]
_SPACES = {
    "global": "__global ",
    "shared": "__local ",
    "shared.dyn": "__local ",
    "local": "",
    "warp": "",
    "constant": "__constant ",
}

_ATOMIC_ADD = """static inline float tw_atomic_add_f32(volatile __global float* p, float x) {
  union { uint u; float f; } seen, next;
  do {
    seen.f = *p;
    next.f = seen.f + x;
  } while (atomic_cmpxchg((volatile __global uint*)p, seen.u, next.u) != seen.u);
  return seen.f;
}"""


class OpenCLDialect(DeviceDialect):
    """OpenCL C."""

    title: ClassVar[str] = "OpenCL C"
    target: ClassVar[str] = "opencl"
    reserved: ClassVar[tuple[str, ...]] = (*Dialect.reserved, *_WORDS)
    types: ClassVar[dict[str, str]] = {
        "int8": "char", "int16": "short", "int32": "int", "int64": "long", "uint8": "uchar", "uint16": "ushort", "uint32": "uint",
        "uint64": "ulong", "float32": "float", "float64": "double", "bool": "bool", "float16": "ushort", "bfloat16": "ushort",
        "void": "void",
    }  # fmt: skip
    long_suffix: ClassVar[str] = "L"
    static: ClassVar[str] = "static inline"
    f32_suffix: ClassVar[str] = ""
    math_names: ClassVar[dict[str, str]] = {"nearbyint": "rint", "rsqrt": "rsqrt", "exp10": "exp10"}
    vector_lanes: ClassVar[dict[str, tuple[int, ...]]] = dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "float16", "bfloat16"), (2, 3, 4, 8, 16))  # fmt: skip
    intrinsics: ClassVar[dict[str, Callable[[Writer, Any], Text]]] = dict(COMMON)
    axis_names: ClassVar[dict[str, str]] = {
        **{f"blockIdx.{a}": f"get_group_id({i})" for i, a in enumerate("xyz")},
        **{f"threadIdx.{a}": f"get_local_id({i})" for i, a in enumerate("xyz")},
    }
    scopes: ClassVar[dict[str, str]] = {"local": "", "global": "", "shared": "__local", "shared.dyn": "__local"}

    def helper(self, mod: SourceModule, name: str) -> str:
        """Helpers of all dialects, and the atomic addition of floats, which OpenCL has not."""
        return _ATOMIC_ADD if name == "tw_atomic_add_f32" else super().helper(mod, name)

    # ---- types and values

    def vector_type(self, dtype: str) -> str:
        """`float4`."""
        if not self.supports(dtype):
            raise CompileError.at(
                "TW0662", f"OpenCL C has no type for dtype {dtype}", hint="vectors have 2, 3, 4, 8 or 16 lanes"
            )
        return f"{self.type(dt.element(dtype))}{dt.lanes(dtype)}"

    def lane(self, w: Writer, vector: str, dtype: str, index: int) -> Text:
        """`v.s0`."""
        return f"{vector}.s{index:X}", POSTFIX

    def vector(self, w: Writer, dtype: str, lanes: Sequence[str]) -> Text:
        """`(float4)(a, b, c, d)`."""
        return f"({self.vector_type(dtype)})({', '.join(lanes)})", ATOM

    def splat(self, w: Writer, dtype: str, value: str) -> Text:
        """`(float4)(x)`."""
        return f"({self.vector_type(dtype)})({value})", ATOM

    def bits_cast(self, source: str, target: str) -> str:
        """`as_float(x)`."""
        return f"return as_{self.type(target)}(x);"

    def pointer_type(self, dtype: str, scope: str) -> str:
        """`__global float*`."""
        return f"{_SPACES.get(scope, '')}{self.memory_type(dtype)}*"

    def constant_type(self, dtype: str) -> str:
        """`__constant float`."""
        return f"__constant {self.memory_type(dtype)}"

    # ---- memory

    def load_vector(self, w: Writer, b: T.Buffer, base: E.PrimExpr, lanes: int) -> Text:
        """`vload4(0, A + i)`."""
        return f"vload{lanes}(0, {self._address(w, b, base)})", POSTFIX

    def store_vector(self, w: Writer, b: T.Buffer, base: E.PrimExpr, value: E.PrimExpr) -> None:
        """`vstore4(v, 0, A + i);`"""
        w.line(f"vstore{dt.lanes(value.dtype)}({w.text(value)}, 0, {self._address(w, b, base)});")

    def _address(self, w: Writer, b: T.Buffer, base: E.PrimExpr) -> str:
        pointer = self.pointer(w, b)[0]
        return pointer if isinstance(base, E.IntImm) and base.value == 0 else f"{pointer} + {w.index(base, 12)}"

    def place_array(self, w: Writer, scope: str, line: str) -> None:
        """Local memory may only be declared at the head of a kernel."""
        if scope.startswith("shared"):
            w.shared.append("  " + line)
        else:
            w.line(line)

    def declare_dynamic(self, w: Writer, dtype: str, name: str) -> None:
        """It is the last parameter."""
        ty = f"__local {self.memory_type(dtype)}*"
        w.line(f"{ty} {name} = ({ty})dynamic_shared_memory;")

    # ---- kernels

    def pointer_param(self, element: str, name: str, apart: bool, written: bool) -> str:
        """`__global const float* restrict A`"""
        ty = self.memory_type(element) if element else "void"
        return f"__global {'' if written or not element else 'const '}{ty}* {'restrict ' if apart else ''}{name}"

    def scalar_param(self, w: Writer, p: E.Var, name: str) -> str:
        """By value; a bool comes as a byte."""
        return f"{self.memory_type(p.dtype)} {name}"

    def kernel_head(self, f: T.PrimFunc, name: str, params: Sequence[str]) -> str:
        """`__kernel void name(...)` with the work group's size where it is constant."""
        extents = thread_extents(f)
        sizes = [extents.get(f"threadIdx.{a}", E.IntImm("int32", 1)) for a in "xyz"]
        fixed = ""
        if all(isinstance(s, E.IntImm) for s in sizes):
            fixed = f"__attribute__((reqd_work_group_size({', '.join(str(int(s)) for s in sizes)}))) "
        if "tir.use_dyn_shared_memory" in launch_params(f):
            params = [*params, "__local uchar* dynamic_shared_memory"]
        return f"__kernel {fixed}void {name}({', '.join(params)})"

    def prelude(self, mod: SourceModule) -> list[str]:
        """Extensions that the source uses."""
        text = "\n".join([*mod.helpers.values(), *mod.globals, *mod.functions])
        lines: list[str] = []
        if "double" in text:
            lines.append("#pragma OPENCL EXTENSION cl_khr_fp64 : enable")
        if "atom_" in text:
            lines.append("#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable")
        return ["\n".join(lines)]

    def address(self, w: Writer, b: T.Buffer, index: E.PrimExpr) -> Text:
        """`A + i`."""
        if isinstance(index, E.Ramp):
            index = index.base
        return self._address(w, b, index), 12


def _row(*names: str) -> Callable[[Callable[[Writer, Any], Text]], Callable[[Writer, Any], Text]]:
    def enter(f: Callable[[Writer, Any], Text]) -> Callable[[Writer, Any], Text]:
        for name in names:
            OpenCLDialect.intrinsics[name] = f
        return f

    return enter


@_row("tvm_storage_sync")
def _sync(w: Writer, e: E.Call) -> Text:
    scope = e.args[0].value
    if scope == "warp":
        return "", ATOM
    if scope in ("shared", "shared.dyn"):
        return "barrier(CLK_LOCAL_MEM_FENCE)", POSTFIX
    if scope == "global":
        return "barrier(CLK_GLOBAL_MEM_FENCE)", POSTFIX
    raise w.unsupported(f"a barrier of {scope!r}", "shared, global and warp have one")


@_row("popcount")
def _popcount(w: Writer, e: E.Call) -> Text:
    return f"popcount({w.text(e.args[0])})", POSTFIX


@_row("clz")
def _clz(w: Writer, e: E.Call) -> Text:
    text = f"clz({w.text(e.args[0])})"
    return (text, POSTFIX) if e.dtype == e.args[0].dtype else (f"(int){text}", 14)


@_row("atomic_add", "tvm_atomic_add")
def _atomic_add(w: Writer, e: E.Call) -> Text:
    pointer, value = (w.text(a) for a in e.args[:2])
    dtype = e.args[1].dtype
    if dtype in ("int32", "uint32"):
        return f"atomic_add({pointer}, {value})", POSTFIX
    if dtype in ("int64", "uint64"):
        return f"atom_add({pointer}, {value})", POSTFIX
    if dtype == "float32":
        return f"{w.mod.helper('tw_atomic_add_f32')}((volatile __global float*)({pointer}), {value})", POSTFIX
    raise w.unsupported(f"an atomic addition of {dtype}")
