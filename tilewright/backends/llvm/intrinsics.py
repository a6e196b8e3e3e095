"""Intrinsics of tir/intrin.py as LLVM text: one function each, entered in the emitter's table by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as E
from tilewright.backends.llvm import emit_cast
from tilewright.backends.llvm.emit_core import (
    element_bytes,
    float_literal,
    llvm_type,
    memory_type,
    splat,
    suffix,
    unsupported,
)
from tilewright.backends.llvm.emit_expr import INTRINSICS, minmax
from tilewright.backends.llvm.emit_stmt import StmtWriter
from tilewright.ir import dtype as dt
from tilewright.ir.node import walk
from tilewright.tir.ir import BufferLoad

__all__ = ["in_float", "intrinsic"]

Handler = Callable[[StmtWriter, Any], str]


def intrinsic(*names: str) -> Callable[[Handler], Handler]:
    """Enter a function in the table under these names, without the `tir.`."""

    def enter(f: Handler) -> Handler:
        for name in names:
            INTRINSICS["tir." + name] = f
        return f

    return enter


def _short(e: E.Call) -> str:
    return e.op.name.removeprefix("tir.")  # pyright: ignore[reportAttributeAccessIssue]


# ---- choosing --------------------------------------------------------------------------------------------------------


def _harmless(e: Any) -> bool:
    """May it be evaluated where its value is not wanted: no memory is read, nothing divided, nothing called?"""
    return not any(isinstance(n, (BufferLoad, E.Call, E.Div, E.Mod, E.FloorDiv, E.FloorMod)) for n in walk(e))


@intrinsic("if_then_else")
def _if_then_else(w: StmtWriter, e: E.Call) -> str:
    c, a, b = e.args
    condition, ct, ty = w.expr(c), llvm_type(c.dtype), llvm_type(e.dtype)
    if condition in ("true", "false"):
        return w.expr(a if condition == "true" else b)
    if _harmless(a) and _harmless(b):
        return w.select(condition, ct, w.expr(a), w.expr(b), ty)
    if dt.lanes(c.dtype) != 1:
        outer = w.mask
        x = _under_mask(w, a, ct, condition, outer)
        opposite = w.op(f"xor {ct} {condition}, {splat('true', 'i1', dt.lanes(c.dtype))}")
        y = _under_mask(w, b, ct, opposite, outer)
        w.mask = outer
        return w.select(condition, ct, x, y, ty)
    then, other, done = w.label("then"), w.label("else"), w.label("end")
    w.branch_if(condition, then, other)
    values: list[tuple[str, str]] = []
    for block, arm in ((then, a), (other, b)):
        w.start(block)
        mark = w.push()
        value = w.expr(arm)
        w.pop(mark)
        values.append((value, w.block))
        w.branch(done)
    w.start(done)
    return w.inst(f"phi {ty} " + ", ".join(f"[ {v}, %{block} ]" for v, block in values))


def _under_mask(w: StmtWriter, e: E.PrimExpr, ct: str, condition: str, outer: str | None) -> str:
    if _harmless(e):
        return w.expr(e)
    w.mask = f"{ct} {condition}" if outer is None else f"{ct} {w.op(f'and {outer}, {condition}')}"
    value = w.expr(e)
    w.mask = outer
    return value


@intrinsic("likely")
def _likely(w: StmtWriter, e: E.Call) -> str:
    return w.expr(e.args[0])


# ---- bits ------------------------------------------------------------------------------------------------------------


@intrinsic("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right")
def _bits(w: StmtWriter, e: E.Call) -> str:
    name = _short(e)
    opcode = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "shift_left": "shl"}.get(name)
    if opcode is None:
        opcode = "lshr" if dt.is_uint(e.dtype) else "ashr"
    return w.op(f"{opcode} {llvm_type(e.dtype)} {w.expr(e.args[0])}, {w.expr(e.args[1])}")


@intrinsic("bitwise_not")
def _bitwise_not(w: StmtWriter, e: E.Call) -> str:
    base = llvm_type(dt.element(e.dtype))
    return w.op(f"xor {llvm_type(e.dtype)} {w.expr(e.args[0])}, {splat('-1', base, dt.lanes(e.dtype))}")


@intrinsic("popcount")
def _popcount(w: StmtWriter, e: E.Call) -> str:
    return w.intrinsic("ctpop", llvm_type(e.dtype), w.expr(e.args[0]))


@intrinsic("clz")
def _clz(w: StmtWriter, e: E.Call) -> str:
    ty = llvm_type(e.args[0].dtype)
    callee = w.mod.declare(f"llvm.ctlz.{suffix(ty)}", f"{ty} ({ty}, i1)")
    value = w.op(f"call {ty} {callee}({ty} {w.expr(e.args[0])}, i1 false)")
    return emit_cast.convert(w, value, e.args[0].dtype, e.dtype)


@intrinsic("reinterpret")
def _reinterpret(w: StmtWriter, e: E.Call) -> str:
    value = w.expr(e.args[0])
    source, target = llvm_type(e.args[0].dtype), llvm_type(e.dtype)
    if source == target:
        return value
    opcode = "inttoptr" if target == "ptr" else "ptrtoint" if source == "ptr" else "bitcast"
    return w.op(f"{opcode} {source} {value} to {target}")


@intrinsic("undef")
def _undef(w: StmtWriter, e: E.Call) -> str:
    return "zeroinitializer" if dt.lanes(e.dtype) != 1 else E_ZERO.get(llvm_type(e.dtype), "0")


E_ZERO = {"float": "0.0", "double": "0.0", "half": "0xH0000", "ptr": "null", "i1": "false"}

# ---- lanes -----------------------------------------------------------------------------------------------------------


@intrinsic("reduce_lanes")
def _reduce_lanes(w: StmtWriter, e: E.Call) -> str:
    kind = e.args[0].value
    v = e.args[1]
    value, n = w.expr(v), dt.lanes(v.dtype)
    if n == 1:
        return value
    if dt.is_float(v.dtype):
        if kind in ("min", "max") or emit_cast.is_small_float(v.dtype):
            return _tree(w, kind, value, v.dtype, n)
        ty, base = llvm_type(v.dtype), llvm_type(e.dtype)
        callee = w.mod.declare(f"llvm.vector.reduce.f{kind}.{suffix(ty)}", f"{base} ({base}, {ty})")
        start = float_literal(-0.0 if kind == "add" else 1.0, e.dtype)
        return w.op(f"call reassoc {base} {callee}({base} {start}, {ty} {value})")
    ty, base = llvm_type(v.dtype), llvm_type(e.dtype)
    if kind in ("min", "max"):
        kind = ("u" if dt.is_uint(v.dtype) else "s") + kind
    callee = w.mod.declare(f"llvm.vector.reduce.{kind}.{suffix(ty)}", f"{base} ({ty})")
    return w.op(f"call {base} {callee}({ty} {value})")


def _tree(w: StmtWriter, kind: str, value: str, dtype: str, n: int) -> str:
    """Halves combined until one lane is left; an odd lane is kept aside."""
    base = llvm_type(dt.element(dtype))
    rest: list[str] = []
    while n > 1:
        if n % 2:
            rest.append(w.op(f"extractelement <{n} x {base}> {value}, i64 {n - 1}"))
        half = n // 2
        low, high = _half(w, value, base, n, 0, half), _half(w, value, base, n, half, half)
        value = _combine(w, kind, low, high, dt.with_lanes(dtype, half))
        n = half
    for x in rest:
        value = _combine(w, kind, value, x, dt.element(dtype))
    return value


def _half(w: StmtWriter, value: str, base: str, n: int, start: int, count: int) -> str:
    if count == 1:
        return w.op(f"extractelement <{n} x {base}> {value}, i64 {start}")
    order = ", ".join(f"i32 {start + i}" for i in range(count))
    return w.op(f"shufflevector <{n} x {base}> {value}, <{n} x {base}> poison, <{count} x i32> <{order}>")


def _combine(w: StmtWriter, kind: str, a: str, b: str, dtype: str) -> str:
    if kind in ("min", "max"):
        return minmax(w, kind == "max", a, b, dtype)
    return w.binary(E.Add if kind == "add" else E.Mul, a, b, dtype)


@intrinsic("vectorlow", "vectorhigh")
def _vector_half(w: StmtWriter, e: E.Call) -> str:
    n = dt.lanes(e.args[0].dtype)
    base = llvm_type(dt.element(e.dtype))
    return _half(w, w.expr(e.args[0]), base, n, n // 2 if _short(e) == "vectorhigh" else 0, n // 2)


@intrinsic("vectorcombine")
def _vectorcombine(w: StmtWriter, e: E.Call) -> str:
    n = dt.lanes(e.args[0].dtype)
    return w.expr(E.Shuffle((e.args[0], e.args[1]), tuple(E.IntImm("int32", i) for i in range(2 * n))))


# ---- memory and calls ------------------------------------------------------------------------------------------------


@intrinsic("address_of")
def _address_of(w: StmtWriter, e: E.Call) -> str:
    load = e.args[0]
    element, size, _, _ = w.layout(load.buffer)
    pointer = w.variable(load.buffer.data)
    index = load.indices[0]
    if isinstance(index, E.Ramp):
        index = index.base
    return w.address(pointer, element, size, *w.index(index))


@intrinsic("tvm_access_ptr")
def _access_ptr(w: StmtWriter, e: E.Call) -> str:
    element = e.args[0].dtype
    return w.address(w.expr(e.args[1]), memory_type(element), element_bytes(element), *w.index(e.args[2]))


@intrinsic("prefetch")
def _prefetch(w: StmtWriter, e: E.Call) -> str:
    callee = w.mod.declare("llvm.prefetch.p0", "void (ptr, i32, i32, i32)")
    w.do(f"call void {callee}(ptr {_address_of(w, e)}, i32 0, i32 3, i32 1)")
    return ""


@intrinsic("atomic_add")
def _atomic_add(w: StmtWriter, e: E.Call) -> str:
    pointer, value = e.args
    base = llvm_type(value.dtype)
    if dt.lanes(value.dtype) != 1 or base in ("i1", "ptr") or emit_cast.is_small_float(value.dtype):
        raise unsupported(
            "TW0604", f"atomic_add of {value.dtype} is not supported", "add one int, float32 or float64 at a time"
        )
    at, x = w.expr(pointer), w.expr(value)
    w.clobber(None)
    return w.inst(f"atomicrmw {'fadd' if dt.is_float(value.dtype) else 'add'} ptr {at}, {base} {x} monotonic")


@intrinsic("vscale")
def _vscale(w: StmtWriter, e: E.Call) -> str:
    if w.mod.arch not in ("aarch64", "arm64", "riscv64"):
        raise unsupported(
            "TW0602",
            f"{w.where} uses T.vscale(), and {w.mod.arch} has no vectors whose length the machine decides",
            "vectorise by a constant number of lanes, or compile for aarch64 with SVE or riscv64 with V",
        )
    return w.op(f"call i32 {w.mod.declare('llvm.vscale.i32', 'i32 ()')}()")


@intrinsic("assume")
def _assume(w: StmtWriter, e: E.Call) -> str:
    condition = w.expr(e.args[0])
    w.do(f"call void {w.mod.declare('llvm.assume', 'void (i1)')}(i1 {condition})")
    return condition


@intrinsic("call_extern", "call_pure_extern", "call_llvm_intrin", "call_llvm_pure_intrin")
def _call_extern(w: StmtWriter, e: E.Call) -> str:
    name = e.args[0].value
    types = [llvm_type(a.dtype) for a in e.args[1:]]
    args = [w.expr(a) for a in e.args[1:]]
    result = llvm_type(e.dtype)
    known = w.signatures.get(name)
    if known is None:
        callee = w.mod.declare(name, f"{result} ({', '.join(types)})")
    else:
        callee = w.mod.declare(name, "")
    call = f"call {result} {callee}({', '.join(f'{t} {a}' for t, a in zip(types, args, strict=True))})"
    pure = "pure" in _short(e)
    if not pure:
        w.clobber(None)
    if result == "void":
        w.do(call)
        return ""
    return w.op(call) if pure and "llvm" in _short(e) else w.inst(call)


@intrinsic("ret")
def _ret(w: StmtWriter, e: E.Call) -> str:
    value = w.expr(e.args[0])
    if e.args[0].dtype != "int32":
        raise unsupported(
            "TW0609", f"{w.where} returns a {e.args[0].dtype}: a native function returns its int32 status"
        )
    w.leave(value)
    return "0"


@intrinsic("tw_raise")
def _raise(w: StmtWriter, e: E.Call) -> str:
    kind, text, *values = e.args
    buffer = w.buffer_for_messages()
    types: list[str] = []
    for v in values:
        if v.dtype == "handle":
            types.append(f"ptr {w.expr(v)}")
        elif dt.is_float(v.dtype):
            types.append(f"double {emit_cast.convert(w, w.expr(v), v.dtype, 'float64')}")
        else:
            types.append(f"i64 {emit_cast.convert(w, w.expr(v), v.dtype, 'int64')}")
    w.mod.declarations.setdefault("snprintf", "declare i32 @snprintf(ptr, i64, ptr, ...)")
    args = "".join(f", {t}" for t in types)
    w.do(f"call i32 (ptr, i64, ptr, ...) @snprintf(ptr {buffer}, i64 1024, ptr {w.mod.string(text.value)}{args})")
    f = w.mod.declare("TVMFFIErrorSetRaisedFromCStr", "void (ptr, ptr)")
    w.do(f"call void {f}(ptr {w.expr(kind)}, ptr {buffer})")
    w.branch(w.fail_target())
    w.start(w.label("dead"))
    return "-1"


# ---- floats: what LLVM maps to instructions --------------------------------------------------------------------------

_PLAIN = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "round", "nearbyint": "nearbyint", "fabs": "fabs",
          "sqrt": "sqrt", "copysign": "copysign", "fma": "fma"}  # fmt: skip


@intrinsic(*_PLAIN)
def _plain(w: StmtWriter, e: E.Call) -> str:
    args = [w.expr(a) for a in e.args]
    name = _PLAIN[_short(e)]
    if not dt.is_float(e.dtype):
        return _plain_integer(w, e, name, args)
    return in_float(w, e.dtype, args, lambda wide, values: w.intrinsic(name, llvm_type(wide), *values))


def _plain_integer(w: StmtWriter, e: E.Call, name: str, args: list[str]) -> str:
    if name in ("floor", "ceil", "trunc", "round", "nearbyint"):
        return args[0]
    ty = llvm_type(e.dtype)
    if name == "fabs":
        if dt.is_uint(e.dtype):
            return args[0]
        callee = w.mod.declare(f"llvm.abs.{suffix(ty)}", f"{ty} ({ty}, i1)")
        return w.op(f"call {ty} {callee}({ty} {args[0]}, i1 false)")
    raise unsupported("TW0605", f"{e.op.name} of {e.dtype} in {w.where}: it takes floats")  # pyright: ignore[reportAttributeAccessIssue]


def in_float(w: StmtWriter, dtype: str, args: list[str], f: Callable[[str, list[str]], str]) -> str:
    """`f` on values of `dtype`; a small float goes through float32."""
    if not emit_cast.is_small_float(dtype):
        return f(dtype, args)
    wide = dt.with_lanes("float32", dt.lanes(dtype))
    return emit_cast.from_float32(w, f(wide, [emit_cast.to_float32(w, a, dtype) for a in args]), dtype)


@intrinsic("isnan")
def _isnan(w: StmtWriter, e: E.Call) -> str:
    v = e.args[0]
    if not dt.is_float(v.dtype):
        return "zeroinitializer" if dt.lanes(v.dtype) != 1 else "false"
    value, dtype = w.expr(v), v.dtype
    if emit_cast.is_small_float(dtype):
        value, dtype = emit_cast.to_float32(w, value, dtype), dt.with_lanes("float32", dt.lanes(dtype))
    return w.op(f"fcmp uno {llvm_type(dtype)} {value}, {value}")


@intrinsic("fmod")
def _fmod(w: StmtWriter, e: E.Call) -> str:
    return w.binary(E.Mod, w.expr(e.args[0]), w.expr(e.args[1]), e.dtype)
