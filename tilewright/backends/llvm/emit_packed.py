"""Calls through the FFI's packed convention: `tvm_call_packed(name, args...)` of a registered function, `tvm_call_cpacked`
of a symbol with that convention.

Arguments are 16-byte values on the stack (type index, padding, payload): integers, bools, floats, strings as C strings,
handles as opaque pointers, buffers as tensors that view them and must not be kept by the callee. A registered function is looked up at each call,
so that one that was registered anew is found; a Python callee costs a hundred times more than the look-up.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as E
from tilewright.backends.llvm import emit_cast
from tilewright.backends.llvm.emit_core import symbol, unsupported
from tilewright.backends.llvm.emit_stmt import StmtWriter
from tilewright.backends.llvm.intrinsics import intrinsic
from tilewright.ir import dtype as dt
from tilewright.tir.ir import Buffer, BufferLoad
from tilewright.tir.lower.make_packed_api import dtype_word

__all__: list[str] = []

_INT, _BOOL, _FLOAT, _POINTER, _STRING, _TENSOR = 1, 2, 3, 4, 8, 70
_FIRST_OBJECT = 64


@intrinsic("tvm_call_packed", "tvm_call_cpacked")
def _call_packed(w: StmtWriter, e: E.Call) -> str:
    name = e.args[0].value
    args, objects = _arguments(w, e.args[1:])
    count = len(e.args) - 1
    result = w.alloca("[16 x i8], align 16")
    w.do(f"store i64 0, ptr {result}")
    w.do(f"store i64 0, ptr {_at(w, result, 8)}")
    if e.op.name == "tir.tvm_call_cpacked":  # pyright: ignore[reportAttributeAccessIssue]
        callee = symbol(name) if name in w.signatures else w.mod.declare(name, "i32 (ptr, ptr, i32, ptr)")
        status = w.inst(f"call i32 {callee}(ptr null, ptr {args}, i32 {count}, ptr {result})")
    else:
        status = _call_registered(w, name, args, count, result)
    release = w.mod.declare("TVMFFIObjectDecRef", "i32 (ptr)")
    for tensor in objects:
        w.do(f"call i32 {release}(ptr {tensor})")
    w.clobber(None)
    w.check_status(status)
    return _result(w, result, e.dtype)


def _at(w: StmtWriter, pointer: str, offset: int) -> str:
    return w.op(f"getelementptr i8, ptr {pointer}, i64 {offset}") if offset else pointer


def _call_registered(w: StmtWriter, name: str, args: str, count: int, result: str) -> str:
    """Look the function up and call it; gives the status."""
    text = w.alloca("[16 x i8], align 16")
    slot = w.alloca("ptr, align 8")
    w.do(f"store ptr {w.mod.string(name)}, ptr {text}")
    w.do(f"store i64 {len(name.encode())}, ptr {_at(w, text, 8)}")
    w.do(f"store ptr null, ptr {slot}")
    get = w.mod.declare("TVMFFIFunctionGetGlobal", "i32 (ptr, ptr)")
    w.check_status(w.inst(f"call i32 {get}(ptr {text}, ptr {slot})"))
    function = w.inst(f"load ptr, ptr {slot}")
    found, missing = w.label("found"), w.label("missing")
    w.branch_if(w.op(f"icmp ne ptr {function}, null"), found, missing, ", !prof !2")
    w.start(missing)
    w.raise_text(
        "ValueError",
        f"no function is registered as {name!r}: register it with tilewright.register_func before the call",
    )
    w.start(found)
    call = w.mod.declare("TVMFFIFunctionCall", "i32 (ptr, ptr, i32, ptr)")
    status = w.inst(f"call i32 {call}(ptr {function}, ptr {args}, i32 {count}, ptr {result})")
    release = w.mod.declare("TVMFFIObjectDecRef", "i32 (ptr)")
    w.do(f"call i32 {release}(ptr {function})")
    return status


def _result(w: StmtWriter, result: str, dtype: str) -> str:
    """The value that came back, as `dtype`; an object is released, its value being of no use here."""
    index = w.inst(f"load i32, ptr {result}")
    payload = w.inst(f"load i64, ptr {_at(w, result, 8)}")
    drop, done = w.label("drop"), w.label("ok")
    w.branch_if(w.op(f"icmp sge i32 {index}, {_FIRST_OBJECT}"), drop, done)
    w.start(drop)
    release = w.mod.declare("TVMFFIObjectDecRef", "i32 (ptr)")
    dropped = w.inst(f"inttoptr i64 {payload} to ptr")  # not `op`: what is shared must not come from a branch
    w.do(f"call i32 {release}(ptr {dropped})")
    w.branch(done)
    w.start(done)
    if dtype in ("void", "int32", "int64") or dt.is_int(dtype) or dt.is_bool(dtype):
        return emit_cast.convert(w, payload, "int64", dtype) if dtype != "void" else ""
    if dtype == "handle":
        return w.op(f"inttoptr i64 {payload} to ptr")
    number = w.op(f"bitcast i64 {payload} to double")
    whole = w.op(f"sitofp i64 {payload} to double")
    is_float = w.op(f"icmp eq i32 {index}, {_FLOAT}")
    return emit_cast.convert(w, w.op(f"select i1 {is_float}, double {number}, double {whole}"), "float64", dtype)


def _arguments(w: StmtWriter, args: tuple[Any, ...]) -> tuple[str, list[str]]:
    """The table of arguments, and the objects among them that were made for the call."""
    if not args:
        return "null", []
    objects: list[str] = []
    table = w.alloca(f"[{16 * len(args)} x i8], align 16")
    for i, a in enumerate(args):
        index, ty, value = _argument(w, a)
        if index == _TENSOR:
            objects.append(value)
        w.do(f"store i64 {index}, ptr {_at(w, table, 16 * i)}")
        w.do(f"store {ty} {value}, ptr {_at(w, table, 16 * i + 8)}")
    return table, objects


def _argument(w: StmtWriter, a: Any) -> tuple[int, str, str]:
    """Type index, LLVM type and value of an argument's payload."""
    if isinstance(a, Buffer):
        return _TENSOR, "ptr", _tensor(w, a)
    if isinstance(a, E.StringImm):
        return _STRING, "ptr", w.mod.string(a.value)
    if isinstance(a, E.PrimExpr) and dt.lanes(a.dtype) == 1:
        value = w.expr(a)
        if a.dtype == "handle":
            return _POINTER, "ptr", value
        if dt.is_float(a.dtype):
            return _FLOAT, "double", emit_cast.convert(w, value, a.dtype, "float64")
        return _BOOL if dt.is_bool(a.dtype) else _INT, "i64", emit_cast.convert(w, value, a.dtype, "int64")
    raise unsupported(
        "TW0606", f"a packed call in {w.where} has an argument of kind {type(a).__name__}", "pass scalars or buffers"
    )


def _tensor(w: StmtWriter, b: Buffer) -> str:
    """A tensor object that views a buffer: compact unless the buffer has strides. To be released after the call.

    An object and not a bare DLTensor, which callees in Python could not hand on. Its block is a DLManagedTensorVersioned
    (version 0, context 8, deleter 16, flags 24, then the DLTensor: data 32, device 40, ndim 48, dtype 52, shape 56,
    strides 64, byte offset 72), the shape, the strides; libc's `free` is its deleter, as this code may be gone by then.
    """
    ndim = len(b.shape)
    malloc = w.mod.declare("malloc", "ptr (i64)")
    block = w.inst(f"call ptr {malloc}(i64 {80 + 16 * max(ndim, 1)})")
    got, none = w.label("got"), w.label("nomem")
    w.branch_if(w.op(f"icmp eq ptr {block}, null"), none, got, ", !prof !1")
    w.start(none)
    w.raise_text("MemoryError", f"{w.name}: no memory for an argument")
    w.start(got)
    sizes = [w.scalar64(d) for d in b.shape]
    given = [w.scalar64(s) for s in b.strides]
    step = "1"
    for i in reversed(range(ndim)):
        w.do(f"store i64 {sizes[i]}, ptr {_at(w, block, 80 + 8 * i)}")
        w.do(f"store i64 {given[i] if given else step}, ptr {_at(w, block, 80 + 8 * (ndim + i))}")
        step = w.op(f"mul i64 {step}, {sizes[i]}")
    data = w.variable(b.data)
    if b.elem_offset is not None:
        load = BufferLoad(_flat(b), (b.elem_offset,))
        data = w.expr(E.call_intrin("handle", "tir.address_of", load))
    free = w.mod.declare("free", "void (ptr)")
    w.do(f"store i64 {1 | 1 << 32}, ptr {block}")  # DLPack 1.1
    for offset, ty, value in (
        (8, "ptr", "null"), (16, "ptr", free), (24, "i64", "0"), (32, "ptr", data), (40, "i64", "1"), (48, "i32", str(ndim)),
        (52, "i32", str(dtype_word(b.dtype))), (56, "ptr", _at(w, block, 80)), (64, "ptr", _at(w, block, 80 + 8 * ndim)),
        (72, "i64", "0"),
    ):  # fmt: skip
        w.do(f"store {ty} {value}, ptr {_at(w, block, offset)}")
    slot = w.alloca("ptr, align 8")
    make = w.mod.declare("TVMFFITensorFromDLPackVersioned", "i32 (ptr, i32, i32, ptr)")
    w.check_status(w.inst(f"call i32 {make}(ptr {block}, i32 0, i32 0, ptr {slot})"))
    return w.inst(f"load ptr, ptr {slot}")


def _flat(b: Buffer) -> Buffer:
    """A one-dimensional view of the buffer's memory."""
    return Buffer(b.data, b.dtype, (E.IntImm("int64", 1),), (), None, b.name)
