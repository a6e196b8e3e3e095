"""Make a function callable through the FFI's C ABI: check every argument, then call the kernel.

    i32 __tvm_ffi_<name>(self, args, num_args, ret)

`args` points to `num_args` values of 16 bytes: an int32 type index, 4 bytes of padding, and 8 bytes of payload. A tensor comes
as an object (index 70: a header of 24 bytes, then a DLTensor) or as a bare DLTensor (index 7):

    DLTensor:   data 0 | device type 8, id 12 | ndim 16 | dtype 20: code, bits, lanes (1, 1, 2 bytes) | shape 24 |
                strides 32 (may be null: row-major) | byte_offset 40

The result is plain loop IR over raw memory, so every code generator can emit it; what is the same for every tensor (type,
rank, dtype, device, compact strides, memory, alignment) is one call of the runtime support, `tw_check_tensor`. Nothing is read
before it is known to be there, and what does not fit ends in a ValueError or TypeError that names the function, the
parameter, what it got and what it needs. Symbolic dimensions are bound where they first stand alone in a shape and compared from then on.

Outputs (`attrs["num_outputs"]` = k, the last k params): a caller passes memory for all of them, or for none; then they are
allocated with their shapes and returned, as one tensor or, with `attrs["returns_tuple"]`, as an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from tilewright.arith.expr import (
    EQ,
    LE,
    NE,
    Call,
    IntImm,
    PrimExpr,
    StringImm,
    Var,
    any_of,
    call_intrin,
    cast,
    cmp,
    const,
    if_then_else,
    logical_and,
    logical_not,
    select,
)
from tilewright.ir import dtype as dt
from tilewright.ir.module import attrs_of
from tilewright.ir.op import GlobalVar
from tilewright.ir.rewrite import free_vars
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import (  # fmt: skip
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.lower.kernel_abi import kernel_params

__all__ = ["PACKED_PREFIX", "dtype_word", "make_packed_api"]

PACKED_PREFIX = "__tvm_ffi_"

Item = Union[Stmt, "tuple[Var, PrimExpr]"]
"""A step of the function: a statement, or a variable bound for all that follows."""

_NONE, _INT, _BOOL, _FLOAT, _POINTER, _DLTENSOR = 0, 1, 2, 3, 4, 7  # type indices
_HEADER = 24
_CPU = 1
_CODES = {
    "int": 0, "uint": 1, "float": 2, "handle": 3, "bfloat": 4, "bool": 6, "float8_e3m4": 7, "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9, "float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14, "float4_e2m1fn": 17,
}  # fmt: skip


def dtype_word(dtype: str) -> int:
    """A DLDataType as the int32 that lies in memory: code, bits << 8, lanes << 16."""
    d = dt.parse(dtype)
    bits = 8 if d.code == "bool" else d.bits
    return _CODES[d.code] | bits << 8 | d.lanes << 16


def make_packed_api(f: PrimFunc, callee: GlobalVar | None = None) -> PrimFunc:
    """The packed function of `f`, whose params are scalars and handles that its buffer_map binds.

    `callee`: the kernel-ABI function (`kernel_params`) to call; without it the body of `f`, in flat form, stands in the
    result. Raises CompileError TW0530 where a symbol of a shape follows from no argument.
    """
    return _Builder(f, callee).build()


def _i64(value: int) -> PrimExpr:
    return const(value, "int64")


def _pointer(address: PrimExpr) -> PrimExpr:
    return call_intrin("handle", "tir.reinterpret", address)


def _address(pointer: PrimExpr) -> PrimExpr:
    return call_intrin("int64", "tir.reinterpret", pointer)


class _View:
    """Memory behind a pointer variable, read as int32 and as int64."""

    def __init__(self, pointer: Var) -> None:
        self.pointer = pointer
        self._i32 = decl_buffer([1], "int32", pointer.name + "_i32", data=pointer)
        self._i64 = decl_buffer([1], "int64", pointer.name + "_i64", data=pointer)

    def i32(self, index: int) -> PrimExpr:
        return BufferLoad(self._i32, (_i64(index),))

    def i64(self, index: int) -> PrimExpr:
        return BufferLoad(self._i64, (_i64(index),))

    def set32(self, index: int, value: PrimExpr) -> Stmt:
        return BufferStore(self._i32, value, (_i64(index),))

    def set64(self, index: int, value: PrimExpr) -> Stmt:
        return BufferStore(self._i64, value, (_i64(index),))

    def at(self, index: int) -> PrimExpr:
        """A pointer to the int64 `index`."""
        return call_intrin("handle", "tir.address_of", self.i64(index))


class _Builder:
    def __init__(self, f: PrimFunc, callee: GlobalVar | None) -> None:
        self.f, self.callee = f, callee
        attrs = attrs_of(f)
        self.name = str(attrs.get("global_symbol") or "main")
        self.n_out = int(attrs.get("num_outputs", 0))
        self.n_in = len(f.params) - self.n_out
        self.ret_dtype: str | None = attrs.get("ret_dtype")
        self.returns_tuple = bool(attrs.get("returns_tuple", False))
        self.device = int(attrs.get("device_type", _CPU))  # where the memory of tensors must be
        self.self_, self.ret = Var("self", "handle"), Var("ret", "handle")
        self.args = _View(Var("args", "handle"))
        self.num_args = Var("num_args", "int32")
        self.outs = _View(Var("outs", "handle"))
        self.bound: set[Var] = set()
        self.later: list[tuple[int, str, PrimExpr, PrimExpr]] = []  # (param, what, got, expression needed)

    def label(self, i: int) -> str:
        p = self.f.params[i]
        return self.f.buffer_map[p].name if p in self.f.buffer_map else p.name

    def raise_(self, kind: str, message: str, *args: PrimExpr) -> Stmt:
        values = [_address(a) if a.dtype == "handle" else cast(a, "int64") for a in args]
        where = f"{self.name}(): ".replace("%", "%%")
        return Evaluate(call_intrin("int32", "tir.tw_raise", StringImm(kind), StringImm(where + message), *values))

    def need(self, condition: PrimExpr, kind: str, message: str, *args: PrimExpr) -> list[Item]:
        """What raises unless `condition` holds; nothing where it is known to hold."""
        if isinstance(condition, IntImm):
            return [] if condition.value else [self.raise_(kind, message, *args)]
        return [IfThenElse(logical_not(condition), self.raise_(kind, message, *args))]

    # the whole

    def build(self) -> PrimFunc:
        items: list[Item] = list(self.count())
        for i in range(len(self.f.params)):
            if i == self.n_in:
                items += self.allocate_outputs()
            items += self.parameter(i)
        items += self.check_later()
        body = self.finish()
        for item in reversed(items):
            body = LetStmt(item[0], item[1], body) if isinstance(item, tuple) else seq(item, body)
        if self.n_out:
            body = Allocate(self.outs.pointer, "int64", (_i64(self.n_out),), IntImm("bool", 1), body)
        params = (self.self_, self.args.pointer, self.num_args, self.ret)
        attrs = {"global_symbol": PACKED_PREFIX + self.name, "calling_conv": "packed"}
        return PrimFunc(params, body, None, {}, attrs)

    def count(self) -> list[Item]:
        names = ", ".join(self.label(i) for i in range(self.n_in)).replace("%", "%%")
        takes = f"takes {self.n_in} argument{'' if self.n_in == 1 else 's'}" + (f" ({names})" if names else "")
        fits = self.n_args_are(self.n_in)
        if self.n_out:
            outs = ", ".join(self.label(i) for i in range(self.n_in, len(self.f.params))).replace("%", "%%")
            takes += f", or {len(self.f.params)} with memory for the results ({outs})"
            fits = any_of(fits, self.n_args_are(len(self.f.params)))
        return self.need(fits, "TypeError", takes + ", got %lld", self.num_args)

    def n_args_are(self, n: int) -> PrimExpr:
        return cmp(EQ, self.num_args, const(n, "int32"))

    # parameters: what is to be done and bound, in order

    def parameter(self, i: int) -> list[Item]:
        p = self.f.params[i]
        if p in self.f.buffer_map:
            return self.tensor(i, self.f.buffer_map[p])
        return self.handle(i, p) if p.dtype == "handle" else self.scalar(i, p)

    def code(self, i: int) -> PrimExpr:
        return self.args.i32(4 * i)

    def payload(self, i: int) -> PrimExpr:
        return self.args.i64(2 * i + 1)

    def is_code(self, i: int, *codes: int) -> PrimExpr:
        return any_of(*(cmp(EQ, self.code(i), const(n, "int32")) for n in codes))

    def scalar(self, i: int, p: Var) -> list[Item]:
        payload = self.payload(i)
        codes = (_INT, _BOOL, _FLOAT) if dt.is_float(p.dtype) else (_INT, _BOOL)
        message = f"parameter {_quote(p.name)} must be a number ({p.dtype}), got %s"
        items = self.need(self.is_code(i, *codes), "TypeError", message, _type_name(self.code(i)))
        if dt.is_float(p.dtype):
            real = call_intrin("float64", "tir.reinterpret", payload)
            value = cast(select(self.is_code(i, _FLOAT), real, cast(payload, "float64")), p.dtype)
        elif dt.is_bool(p.dtype):
            value = cmp(NE, payload, _i64(0))
        else:
            value = cast(payload, p.dtype)
            if dt.bits(p.dtype) < 64:
                low, high = dt.min_value(p.dtype), dt.max_value(p.dtype)
                fits = logical_and(cmp(LE, _i64(low), payload), cmp(LE, payload, _i64(high)))
                message = f"parameter {_quote(p.name)} is %lld, which {p.dtype} cannot hold"
                items += self.need(fits, "ValueError", message, payload)
        if p not in self.bound:
            self.bound.add(p)
            return [*items, (p, value)]
        message = f"parameter {_quote(p.name)} is %lld, but the shapes say %lld"
        return items + self.need(cmp(EQ, p, value), "ValueError", message, value, p)

    def handle(self, i: int, p: Var) -> list[Item]:
        message = f"parameter {_quote(p.name)} must be a pointer or None, got %s"
        fits = self.is_code(i, _NONE, _POINTER, _DLTENSOR)
        self.bound.add(p)
        return [*self.need(fits, "TypeError", message, _type_name(self.code(i))), (p, _pointer(self.payload(i)))]

    def tensor(self, i: int, b: Buffer) -> list[Item]:
        """The checks of the runtime support, then sizes, explicit strides, the memory."""
        dl, sizes = _View(Var(f"{b.name}_dl", "handle")), _View(Var(f"{b.name}_shape", "handle"))
        leave = Evaluate(call_intrin("int32", "tir.ret", const(-1, "int32")))
        items: list[Item] = [
            (dl.pointer, self.checked(i, b)),
            IfThenElse(cmp(EQ, _address(dl.pointer), _i64(0)), leave),
        ]
        if b.shape:
            items.append((sizes.pointer, _pointer(dl.i64(3))))
        for d, want in enumerate(b.shape):
            items += self.match(i, f"dimension {d}", sizes.i64(d), want)
        if b.strides:
            steps = _View(Var(f"{b.name}_strides", "handle"))
            items.append((steps.pointer, _pointer(dl.i64(4))))
            absent = cmp(EQ, dl.i64(4), _i64(0))
            for d, want in enumerate(b.strides):
                compact = _product([sizes.i64(j) for j in range(d + 1, len(b.shape))])
                items += self.match(i, f"stride {d}", if_then_else(absent, compact, steps.i64(d)), want)
        data = dl.i64(0) + dl.i64(5)
        if b.elem_offset is not None and not (isinstance(b.elem_offset, IntImm) and b.elem_offset.value == 0):
            data = dl.i64(0)
            items += self.match(i, "the element offset", dl.i64(5) // _i64(dt.storage_bytes(b.dtype)), b.elem_offset)
        if b.data not in self.bound:
            self.bound.add(b.data)
            items.append((b.data, _pointer(data)))
        return items

    def checked(self, i: int, b: Buffer) -> PrimExpr:
        """A pointer to the DLTensor of parameter `i`, once the runtime support has looked at it; null: an error was raised."""
        bytes_ = dt.storage_bytes(b.dtype)
        check = call_intrin(
            "handle",
            "tir.call_extern",
            StringImm("tw_check_tensor"),
            StringImm(self.name),
            StringImm(b.name),
            StringImm(f"{b.dtype} [{', '.join(map(_plain, b.shape))}]"),
            self.args.at(2 * i),
            const(dtype_word(b.dtype), "int32"),
            const(len(b.shape), "int32"),
            const(min(bytes_ & -bytes_, 16) if self.device == _CPU else 1, "int32"),
            const(int(bool(b.strides)) | (0 if self.device == _CPU else self.device << 8), "int32"),
        )
        if i < self.n_in:
            return check
        made = _pointer(self.outs.i64(i - self.n_in) + _i64(_HEADER))
        return if_then_else(self.n_args_are(len(self.f.params)), check, made)

    def match(self, i: int, what: str, got: PrimExpr, want: PrimExpr) -> list[Item]:
        """`got` must be `want`: binds a new symbol, checks a known expression, puts off what is not known yet."""
        if isinstance(want, Var) and want not in self.bound:
            self.bound.add(want)
            items: list[Item] = []
            if dt.bits(want.dtype) < 64:
                fits = cmp(LE, got, _i64(dt.max_value(want.dtype)))
                message = f"{what} of parameter {_quote(self.label(i))} is %lld, which {want.dtype} cannot hold"
                items = self.need(fits, "ValueError", message, got)
            return [*items, (want, cast(got, want.dtype))]
        if all(v in self.bound for v in free_vars(want)):
            return self.equal(i, what, got, want)
        var = Var(f"{self.label(i)}_{what.replace(' ', '_')}", "int64")
        self.later.append((i, what, var, want))
        return [(var, got)]

    def equal(self, i: int, what: str, got: PrimExpr, want: PrimExpr) -> list[Item]:
        text = "" if isinstance(want, IntImm) else f" (= {_text(want)})"
        if isinstance(want, Var):
            text = f" ({_text(want)}, from an argument before)"
        message = f"{what} of parameter {_quote(self.label(i))} is %lld, it must be %lld{text}"
        return self.need(cmp(EQ, got, cast(want, "int64")), "ValueError", message, got, want)

    def check_later(self) -> list[Item]:
        items: list[Item] = []
        for i, what, got, want in self.later:
            for v in free_vars(want):
                if v not in self.bound:
                    raise CompileError.at(
                        "TW0530",
                        f"{self.name}: {what} of parameter {self.label(i)!r} is {_plain(want)}, but no argument tells {v.name}",
                        hint=f"let {v.name} stand alone as a dimension of some parameter, or make it a parameter",
                    )
            items += self.equal(i, what, got, want)
        return items

    # outputs and the end

    def allocate_outputs(self) -> list[Item]:
        """Where the caller gave no memory for the results: make tensors. Else the cells hold null."""
        outs = [self.f.buffer_map[p] for p in self.f.params[self.n_in :]]
        rank = max([len(b.shape) for b in outs] + [1])
        proto, shape = _View(Var("prototype", "handle")), _View(Var("prototype_shape", "handle"))
        clear: list[Stmt] = [self.outs.set64(j, _i64(0)) for j in range(self.n_out)]
        make: list[Stmt] = []
        for j, b in enumerate(outs):
            for d, dim in enumerate(b.shape):
                self.require_known(b, dim)
                make.append(shape.set64(d, cast(dim, "int64")))
            make += [
                proto.set64(0, _i64(0)),
                proto.set64(1, _i64(_CPU)),
                proto.set64(2, _i64(len(b.shape) | dtype_word(b.dtype) << 32)),
                proto.set64(3, _address(shape.at(0))),
                proto.set64(4, _i64(0)),
                proto.set64(5, _i64(0)),
            ]
            status = Var("status", "int32")
            call = call_intrin("int32", "tir.call_extern", StringImm("tw_tensor_alloc"), proto.at(0), self.outs.at(j))
            make.append(LetStmt(status, call, IfThenElse(cmp(NE, status, const(0, "int32")), self.give_up())))
        body: Stmt = seq(*make)
        body = Allocate(shape.pointer, "int64", (_i64(rank),), IntImm("bool", 1), body)
        body = Allocate(proto.pointer, "int64", (_i64(6),), IntImm("bool", 1), body)
        return [*clear, IfThenElse(self.n_args_are(self.n_in), body)]

    def require_known(self, b: Buffer, dim: PrimExpr) -> None:
        for v in free_vars(dim):
            if v not in self.input_symbols:
                raise CompileError.at(
                    "TW0530",
                    f"{self.name}: the result {b.name!r} has a dimension {_plain(dim)}, but no argument tells {v.name}",
                    hint=f"let {v.name} stand alone as a dimension of some parameter, or make it a parameter",
                )

    @property
    def input_symbols(self) -> set[Var]:
        """Symbols known once the inputs are: scalars, and dimensions and strides that are variables."""
        found: set[Var] = set()
        for p in self.f.params[: self.n_in]:
            b = self.f.buffer_map.get(p)
            if b is None:
                found.add(p)
            else:
                found.update(d for d in (*b.shape, *b.strides, b.elem_offset) if isinstance(d, Var))
        return found

    def call_for_value(self, callee: GlobalVar, flat: list[Var], symbols: list[Var], dtype: str) -> Stmt:
        """Call a function that leaves a scalar behind its last parameter (return_slot.py), and return that."""
        slot = decl_buffer([1], dtype, "result")
        value: PrimExpr = BufferLoad(slot, (_i64(0),))
        if dt.is_float(dtype):
            index, payload = _FLOAT, call_intrin("int64", "tir.reinterpret", cast(value, "float64"))
        elif dtype == "handle":
            index, payload = _POINTER, _address(value)
        else:
            index, payload = _BOOL if dt.is_bool(dtype) else _INT, cast(value, "int64")
        ret = _View(self.ret)
        hand = seq(ret.set32(0, const(index, "int32")), ret.set32(1, const(0, "int32")), ret.set64(1, payload))
        call = Evaluate(Call("int32", callee, (*flat, slot.data, *symbols)))
        return Allocate(slot.data, dtype, (_i64(1),), IntImm("bool", 1), seq(call, hand))

    def give_up(self) -> Stmt:
        """Drop the results made so far and leave: the error has been raised."""
        drop = call_intrin(
            "int32", "tir.call_extern", StringImm("tw_release_tensors"), self.outs.at(0), const(self.n_out)
        )
        return seq(Evaluate(drop), Evaluate(call_intrin("int32", "tir.ret", const(-1, "int32"))))

    def finish(self) -> Stmt:
        """The call (or the body), and the results to the caller."""
        if self.callee is None:
            work: Stmt = self.f.body
        else:
            flat, symbols = kernel_params(self.f)
            if self.n_out:  # a failure must not leak the results: look at the status here
                status = Var("status", "int32")
                name = StringImm(self.callee.name_hint)
                call = call_intrin("int32", "tir.call_extern", name, *flat, *symbols)
                work = LetStmt(status, call, IfThenElse(cmp(NE, status, const(0, "int32")), self.give_up()))
            elif self.ret_dtype:
                work = self.call_for_value(self.callee, flat, symbols, self.ret_dtype)
            else:
                work = Evaluate(Call("int32", self.callee, (*flat, *symbols)))
        if not self.n_out:
            return work
        status = Var("status", "int32")
        hand = call_intrin(
            "int32",
            "tir.call_extern",
            StringImm("tw_return_tensors"),
            self.outs.at(0),
            const(self.n_out, "int32"),
            const(int(self.returns_tuple), "int32"),
            self.ret,
        )
        leave = Evaluate(call_intrin("int32", "tir.ret", const(-1, "int32")))
        handed = LetStmt(status, hand, IfThenElse(cmp(NE, status, const(0, "int32")), leave))
        return seq(work, IfThenElse(self.n_args_are(self.n_in), handed))


def _product(factors: Sequence[PrimExpr]) -> PrimExpr:
    out: PrimExpr = _i64(1)
    for x in factors:
        out = out * x
    return out


def _quote(name: str) -> str:
    return "'" + name.replace("%", "%%") + "'"


def _plain(e: PrimExpr) -> str:
    """An expression as text."""
    if isinstance(e, IntImm):
        return str(e.value)
    return e.name if isinstance(e, Var) else repr(e)


def _text(e: PrimExpr) -> str:
    """An expression as text in a printf format."""
    return _plain(e).replace("%", "%%")


def _type_name(code: PrimExpr) -> PrimExpr:
    """What a type index means, as text for a message (a function of the runtime support)."""
    return call_intrin("handle", "tir.call_extern", StringImm("tw_type_name"), code)
