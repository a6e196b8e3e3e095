"""Towards code generators: functions as others call them, divisions and intrinsics as machines have them."""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, call_intrin, const
from tilewright.ir import dtype as dt
from tilewright.ir.module import IRModule, attrs_of
from tilewright.ir.node import replace, walk
from tilewright.ir.op import PrimType
from tilewright.ir.passes import Pass, PassContext
from tilewright.ir.rewrite import Mutator
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.lower.kernel_abi import kernel_params
from tilewright.tir.lower.make_packed_api import make_packed_api
from tilewright.tir.transform.base import func_pass

__all__ = [
    "InstrumentProfileIntrinsics", "LowerCustomDatatypes", "LowerIntrin", "LowerTVMBuiltin",
    "MakePackedAPI", "MakeUnpackedAPI", "RenormalizeSplitPattern", "TextureFlatten", "VerifyMemory",
]  # fmt: skip


# ---- entries -----------------------------------------------------------------------------------------------------------


def _exposed(f: t.PrimFunc) -> bool:
    """Is the function called from outside in the default way?"""
    attrs = attrs_of(f)
    return "global_symbol" in attrs and attrs.get("calling_conv", 0) == 0


def _needs_target(f: t.PrimFunc, name: str) -> None:
    if "target" not in attrs_of(f):
        symbol = attrs_of(f).get("global_symbol")
        raise CompileError.at("TW0538", f"{name}: the function {symbol} has no target", hint="run BindTarget before")


def MakePackedAPI() -> Pass:
    """Functions that are called from outside take packed arguments: each is checked, then bound to what the function names.

    The result follows the calling convention of this runtime's FFI (`tir/lower/make_packed_api.py`) and is named `__tvm_ffi_<name>`.
    """

    def run(f: t.PrimFunc) -> t.PrimFunc:
        if not _exposed(f):
            return f
        _needs_target(f, "MakePackedAPI")
        packed = make_packed_api(f)
        return packed.with_attr({**{k: v for k, v in attrs_of(f).items() if k != "global_symbol"}, **attrs_of(packed)})

    return func_pass("MakePackedAPI", run, MakePackedAPI.__doc__)


def MakeUnpackedAPI() -> Pass:
    """Functions that are called from outside take the pointers of their buffers and their scalars, and return 0."""

    def run(f: t.PrimFunc) -> t.PrimFunc:
        if not _exposed(f):
            return f
        _needs_target(f, "MakeUnpackedAPI")
        flat, symbols = kernel_params(f)
        done = t.Evaluate(call_intrin("int32", "tir.ret", const(0, "int32")))
        body: t.Stmt = t.seq(f.body, done)
        for b in reversed(f.param_buffers):
            body = t.DeclBuffer(b, body)
        return replace(f, params=(*flat, *symbols), buffer_map={}, body=body, ret_type=PrimType("int32"))

    return func_pass("MakeUnpackedAPI", run, MakeUnpackedAPI.__doc__)


# ---- divisions ---------------------------------------------------------------------------------------------------------


class _Divisions(Mutator):
    """Floor divisions by shifts, masks and truncating divisions."""

    def __init__(self, f: t.PrimFunc) -> None:
        self.ana = Analyzer()
        for b in f.buffer_map.values():
            for n in b.shape:
                if isinstance(n, ex.Var):
                    self.ana.mark_global_non_neg_value(n)

    def visit_For(self, s: t.For) -> t.Stmt:
        self.ana.bind(s.loop_var, t.Range(s.min, s.extent))
        return self.generic(s)

    def sign(self, e: PrimExpr) -> bool:
        """Is the value known not to be negative?"""
        if any(isinstance(x, (t.BufferLoad, ex.Call)) for x in walk(e)):
            return dt.is_uint(e.dtype)
        return dt.is_uint(e.dtype) or self.ana.can_prove(e >= 0)

    def visit_FloorDiv(self, e: ex.FloorDiv) -> PrimExpr:
        a, b = self.visit(e.a), self.visit(e.b)
        if dt.is_float(e.dtype):
            return call_intrin(e.dtype, "tir.floor", ex.Div(a, b))
        if dt.lanes(e.dtype) != 1:
            return e if a is e.a and b is e.b else ex.FloorDiv(a, b)
        shift = _power(b)
        if shift is not None:
            return call_intrin(e.dtype, "tir.shift_right", a, const(shift, e.dtype))
        if self.sign(e.a) and self.sign(e.b):
            return ex.Div(a, b)
        return self.floored(e, a, b, ex.Div(a, b), ex.Div(a, b) - 1)

    def visit_FloorMod(self, e: ex.FloorMod) -> PrimExpr:
        a, b = self.visit(e.a), self.visit(e.b)
        if dt.is_float(e.dtype):
            return ex.Sub(a, ex.Mul(call_intrin(e.dtype, "tir.floor", ex.Div(a, b)), b))
        if dt.lanes(e.dtype) != 1:
            return e if a is e.a and b is e.b else ex.FloorMod(a, b)
        if _power(b) is not None:
            return call_intrin(e.dtype, "tir.bitwise_and", a, const(b.value - 1, e.dtype))  # type: ignore[attr-defined]
        if self.sign(e.a) and self.sign(e.b):
            return ex.Mod(a, b)
        return self.floored(e, a, b, ex.Mod(a, b), ex.Mod(a, b) + b)

    def floored(self, e: Any, a: PrimExpr, b: PrimExpr, exact: PrimExpr, less: PrimExpr) -> PrimExpr:
        """`exact` where the truncated remainder has the sign of the divisor (or is 0), else `less`."""
        rest = ex.Mod(a, b)
        zero = const(0, e.dtype)
        if self.sign(e.b):
            return ex.Select(ex.GE(rest, zero), exact, less)
        same = ex.Or(ex.And(ex.GE(b, zero), ex.GE(rest, zero)), ex.And(ex.LT(b, zero), ex.LE(rest, zero)))
        return ex.Select(same, exact, less)


def _power(e: PrimExpr) -> int | None:
    """n where the expression is the constant 2**n."""
    if isinstance(e, IntImm) and e.value > 0 and e.value & (e.value - 1) == 0:
        return e.value.bit_length() - 1
    return None


def LowerIntrin() -> Pass:
    """Floor divisions become shifts, masks and truncating divisions. Other intrinsics every code generator here takes as they
    are."""

    def run(f: t.PrimFunc) -> t.PrimFunc:
        body = _Divisions(f).visit(f.body)
        return f if body is f.body else f.with_body(body)

    return func_pass("LowerIntrin", run, LowerIntrin.__doc__)


class _Split(Mutator):
    """`x % (a*b) // a` is `x // a % b`."""

    def visit_FloorDiv(self, e: ex.FloorDiv) -> PrimExpr:
        a, b = self.visit(e.a), self.visit(e.b)
        if isinstance(b, IntImm) and b.value > 0:
            if isinstance(a, ex.FloorMod) and isinstance(a.b, IntImm) and a.b.value > 0 and a.b.value % b.value == 0:
                return ex.floormod(self.visit_FloorDiv(ex.FloorDiv(a.a, b)), IntImm(e.dtype, a.b.value // b.value))
            if isinstance(a, ex.FloorDiv) and isinstance(a.b, IntImm) and a.b.value > 0:
                return ex.FloorDiv(a.a, IntImm(e.dtype, a.b.value * b.value))
        return e if a is e.a and b is e.b else ex.FloorDiv(a, b)


def RenormalizeSplitPattern() -> Pass:
    """Remainders that are divided again become quotients with a remainder: `x % 32 // 4` ▸ `x // 4 % 8`."""

    def run(f: t.PrimFunc) -> t.PrimFunc:
        body = _Split().visit(f.body)
        return f if body is f.body else f.with_body(body)

    return func_pass("RenormalizeSplitPattern", run, RenormalizeSplitPattern.__doc__)


# ---- what there is nothing of here -------------------------------------------------------------------------------------


def LowerTVMBuiltin() -> Pass:
    """Nothing to do: packed calls, stack memory and structures are emitted by the code generators as they are."""
    return func_pass("LowerTVMBuiltin", lambda f: f, LowerTVMBuiltin.__doc__)


def _refuse(name: str, found: Any, what: str) -> Pass:
    def run(f: t.PrimFunc) -> t.PrimFunc:
        for n in walk(f.body):
            if found(n):
                raise CompileError.at("TW0538", f"{name}: {what} is not supported", getattr(n, "span", None))
        return f

    return func_pass(name, run)


def _scope(n: Any) -> str:
    return getattr(n.buffer_var.type_annotation, "storage_scope", "global") if isinstance(n, t.Allocate) else ""


def LowerCustomDatatypes() -> Pass:
    """There are no custom dtypes here: a function that names one is refused (TW0538)."""
    return _refuse("LowerCustomDatatypes", lambda n: "custom[" in str(getattr(n, "dtype", "")), "a custom dtype")


def TextureFlatten() -> Pass:
    """There is no texture memory here: a function that allocates some is refused (TW0538)."""
    return _refuse("TextureFlatten", lambda n: _scope(n).startswith("global.texture"), "texture memory")


def InstrumentProfileIntrinsics() -> Pass:
    """Profiling by intrinsics needs a device that has them; none is supported: TW0538."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        raise CompileError.at(
            "TW0538", "InstrumentProfileIntrinsics: no backend here has profiling intrinsics", hint="use time_evaluator of a built module"
        )  # fmt: skip

    return Pass(run, "tir.InstrumentProfileIntrinsics", doc=InstrumentProfileIntrinsics.__doc__)


def VerifyMemory() -> Pass:
    """Raises TW0538 where a function for a device touches the device's memory outside of its kernels."""

    def run(f: t.PrimFunc) -> t.PrimFunc:
        from tilewright.tir.analysis import verify_memory

        if not verify_memory(f):
            name = attrs_of(f).get("global_symbol", "the function")
            hint = "bind loops to threads, or give the function to DefaultGPUSchedule"
            raise CompileError.at("TW0538", f"{name} touches device memory on the host", hint=hint)
        return f

    return func_pass("VerifyMemory", run, VerifyMemory.__doc__)
