"""Make a function callable through the FFI's C ABI: check every argument, then call the kernel.

    i32 __tvm_ffi_<name>(self, args, num_args, ret)

`args` points to `num_args` values of 16 bytes: an int32 type index, 4 bytes of padding, and 8 bytes of payload. A tensor comes
as an object (index 70: a header of 24 bytes, then a DLTensor) or as a bare DLTensor (index 7):

    DLTensor:   data 0 | device type 8, id 12 | ndim 16 | dtype 20: code, bits, lanes (1, 1, 2 bytes) | shape 24 |
                strides 32 (may be null: row-major) | byte_offset 40

The result is plain loop IR over raw memory, so every code generator can emit it. Nothing is read before it is known to be
there, and what does not fit ends in a ValueError or TypeError that names the function, the parameter, what it got and what
it needs. Symbolic dimensions are bound where they first stand alone in a shape and compared from then on.

Outputs (`attrs["num_outputs"]` = k, the last k params): a caller passes memory for all of them, or for none; then they are
allocated with their shapes and returned, as one tensor or, with `attrs["returns_tuple"]`, as an array.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith.expr import (
    EQ,
    LE,
    NE,
    Call,
    IntImm,
    PrimExpr,
    StringImm,
    Var,
    all_of,
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

_TENSOR, _DLTENSOR = 70, 7
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
        self.returns_tuple = bool(attrs.get("returns_tuple", False))
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

    def need(self, condition: PrimExpr, kind: str, message: str, *args: PrimExpr) -> Stmt | None:
        if isinstance(condition, IntImm):
            return None if condition.value else self.raise_(kind, message, *args)
        return IfThenElse(logical_not(condition), self.raise_(kind, message, *args))

    # the whole

    def build(self) -> PrimFunc:
        outputs = list(range(self.n_in, len(self.f.params)))
        body = self.finish()
        steps: list[tuple[int, bool]] = [(i, False) for i in range(self.n_in)] + [(i, True) for i in outputs]
        # Symbols are bound front to back, statements are nested back to front: first the plan, then the nest.
        pieces = [self.parameter(i, is_output) for i, is_output in steps]
        last_checks = self.check_later()
        for k in range(len(pieces) - 1, -1, -1):
            checks, lets = pieces[k]
            if k == len(pieces) - 1:
                body = seq(*last_checks, body)
            for var, value in reversed(lets):
                body = LetStmt(var, value, body)
            body = seq(*checks, body)
            if k == self.n_in and self.n_out:
                body = seq(*self.allocate_outputs(), body)
        if not pieces:
            body = seq(*last_checks, body)
        body = seq(*self.count(), body)
        if self.n_out:
            body = Allocate(self.outs.pointer, "int64", (_i64(self.n_out),), IntImm("bool", 1), body)
        params = (self.self_, self.args.pointer, self.num_args, self.ret)
        attrs = {"global_symbol": PACKED_PREFIX + self.name, "calling_conv": "packed"}
        return PrimFunc(params, body, None, {}, attrs)

    def count(self) -> list[Stmt]:
        names = ", ".join(self.label(i) for i in range(self.n_in)).replace("%", "%%")
        takes = f"takes {self.n_in} argument{'' if self.n_in == 1 else 's'}" + (f" ({names})" if names else "")
        fits = self.n_args_are(self.n_in)
        if self.n_out:
            outs = ", ".join(self.label(i) for i in range(self.n_in, len(self.f.params))).replace("%", "%%")
            takes += f", or {len(self.f.params)} with memory for the results ({outs})"
            fits = any_of(fits, self.n_args_are(len(self.f.params)))
        check = self.need(fits, "TypeError", takes + ", got %lld", self.num_args)
        return [check] if check is not None else []

    def n_args_are(self, n: int) -> PrimExpr:
        return cmp(EQ, self.num_args, const(n, "int32"))

    # parameters

    def parameter(self, i: int, is_output: bool) -> tuple[list[Stmt], list[tuple[Var, PrimExpr]]]:
        """Checks of parameter `i`, and what it binds for all that follows."""
        p = self.f.params[i]
        if p in self.f.buffer_map:
            return self.tensor(i, self.f.buffer_map[p], is_output)
        if p.dtype == "handle":
            return self.handle(i, p)
        return self.scalar(i, p)

    def code(self, i: int) -> PrimExpr:
        return self.args.i32(4 * i)

    def payload(self, i: int) -> PrimExpr:
        return self.args.i64(2 * i + 1)

    def scalar(self, i: int, p: Var) -> tuple[list[Stmt], list[tuple[Var, PrimExpr]]]:
        code, payload = self.code(i), self.payload(i)
        numbers = [1, 2, 3] if dt.is_float(p.dtype) else [1, 2]
        checks: list[Stmt | None] = [
            self.need(
                any_of(*(cmp(EQ, code, const(n, "int32")) for n in numbers)),
                "TypeError",
                f"parameter {_quote(p.name)} must be a number ({p.dtype}), got %s",
                _type_name(code),
            )
        ]
        if dt.is_float(p.dtype):
            real = call_intrin("float64", "tir.reinterpret", payload)
            value = cast(select(cmp(EQ, code, const(3, "int32")), real, cast(payload, "float64")), p.dtype)
        elif dt.is_bool(p.dtype):
            value = cmp(NE, payload, _i64(0))
        else:
            value = cast(payload, p.dtype)
            if dt.bits(p.dtype) < 64:
                low, high = dt.min_value(p.dtype), dt.max_value(p.dtype)
                fits = logical_and(cmp(LE, _i64(low), payload), cmp(LE, payload, _i64(high)))
                message = f"parameter {_quote(p.name)} is %lld, which {p.dtype} cannot hold"
                checks.append(self.need(fits, "ValueError", message, payload))
        if p in self.bound:
            message = f"parameter {_quote(p.name)} is %lld, but the shapes say %lld"
            checks.append(self.need(cmp(EQ, p, value), "ValueError", message, value, p))
            return [c for c in checks if c is not None], []
        self.bound.add(p)
        return [c for c in checks if c is not None], [(p, value)]

    def handle(self, i: int, p: Var) -> tuple[list[Stmt], list[tuple[Var, PrimExpr]]]:
        code = self.code(i)
        fits = any_of(*(cmp(EQ, code, const(n, "int32")) for n in (0, 4, _DLTENSOR)))
        check = self.need(
            fits, "TypeError", f"parameter {_quote(p.name)} must be a pointer or None, got %s", _type_name(code)
        )
        self.bound.add(p)
        return [check] if check is not None else [], [(p, _pointer(self.payload(i)))]

    def dl_address(self, i: int, is_output: bool) -> PrimExpr:
        """The address of the DLTensor of parameter `i`."""
        skip = select(cmp(EQ, self.code(i), const(_TENSOR, "int32")), _i64(_HEADER), _i64(0))
        given = self.payload(i) + skip
        if not is_output:
            return given
        made = self.outs.i64(i - self.n_in) + _i64(_HEADER)
        return if_then_else(self.n_args_are(len(self.f.params)), given, made)

    def tensor(self, i: int, b: Buffer, is_output: bool) -> tuple[list[Stmt], list[tuple[Var, PrimExpr]]]:
        name = _quote(b.name)
        code = self.code(i)
        is_tensor = any_of(*(cmp(EQ, code, const(n, "int32")) for n in (_TENSOR, _DLTENSOR)))
        wants = f"parameter {name} must be a tensor ({_describe(b)}), got "
        typed = [
            self.need(is_tensor, "TypeError", wants + "%s", _type_name(code)),
            self.need(cmp(NE, self.payload(i), _i64(0)), "TypeError", wants + "a null pointer"),
        ]
        found = [c for c in typed if c is not None]
        if is_output:  # present only if the caller gave them
            found = [IfThenElse(self.n_args_are(len(self.f.params)), seq(*found))]
        dl = _View(Var(f"{b.name}_dl", "handle"))
        shape, strides = _View(Var(f"{b.name}_shape", "handle")), _View(Var(f"{b.name}_strides", "handle"))
        address = self.dl_address(i, is_output)
        again = _View(Var(f"{b.name}_view", "handle"))
        lets: list[tuple[Var, PrimExpr]] = [(again.pointer, _pointer(address))]
        checks: list[Stmt | None] = [*self.head_checks(b, dl)]
        inner: list[Stmt | None] = []
        self.shape_checks(i, b, shape, inner, lets, again)
        self.stride_checks(i, b, dl, shape, strides, inner, lets, again)
        self.data_checks(b, dl, shape, inner, lets, again)
        body = seq(*[c for c in inner if c is not None])
        body = LetStmt(strides.pointer, _pointer(dl.i64(4)), body)
        body = LetStmt(shape.pointer, _pointer(dl.i64(3)), body)
        body = LetStmt(dl.pointer, _pointer(address), seq(*[c for c in checks if c is not None], body))
        return [*found, body], lets

    def head_checks(self, b: Buffer, dl: _View) -> list[Stmt | None]:
        """Rank, dtype, device."""
        name, n = _quote(b.name), len(b.shape)
        word = dl.i32(5)
        got = _dtype_name(word)
        return [
            self.need(
                cmp(EQ, dl.i32(4), const(n, "int32")),
                "ValueError",
                f"parameter {name} must have {n} dimension{'' if n == 1 else 's'} ({_describe(b)}), got %lld",
                dl.i32(4),
            ),
            self.need(
                cmp(EQ, word, const(dtype_word(b.dtype), "int32")),
                "TypeError",
                f"parameter {name} must be of dtype {b.dtype}, got %s",
                got,
            ),
            self.need(
                cmp(EQ, dl.i32(2), const(_CPU, "int32")),
                "ValueError",
                f"parameter {name} must be in the memory of the CPU (device type 1), got device type %lld",
                dl.i32(2),
            ),
        ]

    def equal(self, i: int, what: str, got: PrimExpr, want: PrimExpr) -> Stmt | None:
        text = "" if isinstance(want, (IntImm, Var)) else f" (= {_text(want)})"
        if isinstance(want, Var):
            text = f" ({_text(want)}, from an argument before)"
        return self.need(
            cmp(EQ, got, cast(want, "int64")),
            "ValueError",
            f"{what} of parameter {_quote(self.label(i))} is %lld, it must be %lld{text}",
            got,
            want,
        )

    def match(
        self,
        i: int,
        what: str,
        got: PrimExpr,
        again: PrimExpr,
        want: PrimExpr,
        checks: list[Stmt | None],
        lets: list[tuple[Var, PrimExpr]],
    ) -> None:
        """`got` must be `want`: binds a new symbol, checks a known expression, puts off what is not known yet. `again` is
        the same value where the lets stand."""
        if isinstance(want, Var) and want not in self.bound:
            self.bound.add(want)
            lets.append((want, cast(again, want.dtype)))
            if dt.bits(want.dtype) < 64:
                fits = cmp(LE, got, _i64(dt.max_value(want.dtype)))
                message = f"{what} of parameter {_quote(self.label(i))} is %lld, which {want.dtype} cannot hold"
                checks.append(self.need(fits, "ValueError", message, got))
            return
        unknown = [v for v in free_vars(want) if v not in self.bound]
        new_here = {v for v, _ in lets}
        if unknown or any(v in new_here for v in free_vars(want)):
            var = Var(f"{self.label(i)}_{what.split()[0]}_{len(lets)}", "int64")
            lets.append((var, again))
            self.later.append((i, what, var, want))
            return
        checks.append(self.equal(i, what, got, want))

    def check_later(self) -> list[Stmt]:
        out: list[Stmt] = []
        for i, what, got, want in self.later:
            for v in free_vars(want):
                if v not in self.bound:
                    raise CompileError.at(
                        "TW0530",
                        f"{self.name}: {what} of parameter {self.label(i)!r} is {_text(want)}, but no argument tells {v.name}",
                        hint=f"let {v.name} stand alone as a dimension of some parameter, or make it a parameter",
                    )
            check = self.equal(i, what, got, want)
            if check is not None:
                out.append(check)
        return out

    def shape_checks(
        self,
        i: int,
        b: Buffer,
        shape: _View,
        checks: list[Stmt | None],
        lets: list[tuple[Var, PrimExpr]],
        again: _View,
    ) -> None:
        if not b.shape:
            return
        outer = _View(Var(f"{b.name}_dims", "handle"))
        if any(free_vars(d) for d in b.shape):
            lets.append((outer.pointer, _pointer(again.i64(3))))
        for d, want in enumerate(b.shape):
            self.match(i, f"dimension {d}", shape.i64(d), outer.i64(d), want, checks, lets)

    def stride_checks(
        self,
        i: int,
        b: Buffer,
        dl: _View,
        shape: _View,
        strides: _View,
        checks: list[Stmt | None],
        lets: list[tuple[Var, PrimExpr]],
        again: _View,
    ) -> None:
        n = len(b.shape)
        if not n:
            return
        absent = cmp(EQ, dl.i64(4), _i64(0))
        if b.strides:
            outer, dims = _View(Var(f"{b.name}_steps", "handle")), _View(Var(f"{b.name}_extents", "handle"))
            lets += [(outer.pointer, _pointer(again.i64(4))), (dims.pointer, _pointer(again.i64(3)))]
            none = cmp(EQ, again.i64(4), _i64(0))
            for d, want in enumerate(b.strides):
                got = if_then_else(absent, _product([shape.i64(j) for j in range(d + 1, n)]), strides.i64(d))
                later = if_then_else(none, _product([dims.i64(j) for j in range(d + 1, n)]), outer.i64(d))
                self.match(i, f"stride {d}", got, later, want, checks, lets)
            return
        expected = [_product([shape.i64(j) for j in range(d + 1, n)]) for d in range(n)]
        empty = any_of(*(cmp(EQ, shape.i64(d), _i64(0)) for d in range(n)))
        fits = all_of(
            *(
                any_of(cmp(EQ, strides.i64(d), expected[d]), cmp(EQ, shape.i64(d), _i64(1)))
                for d in range(n - 1, -1, -1)
            )
        )
        ask = ", ".join(["%lld"] * n)
        bad = self.need(
            any_of(fits, empty),
            "ValueError",
            f"parameter {_quote(b.name)} must be row-major and compact: its strides are ({ask}), they must be ({ask})",
            *(strides.i64(d) for d in range(n)),
            *expected,
        )
        if bad is not None:
            checks.append(IfThenElse(logical_not(absent), bad))

    def data_checks(
        self,
        b: Buffer,
        dl: _View,
        shape: _View,
        checks: list[Stmt | None],
        lets: list[tuple[Var, PrimExpr]],
        again: _View,
    ) -> None:
        """Memory is there, aligned to its elements; bind the pointer, and the offset if it is a symbol."""
        bytes_ = dt.storage_bytes(b.dtype)
        alignment = min(bytes_ & -bytes_, 16)
        address = dl.i64(0) + dl.i64(5)
        filled = all_of(*(cmp(NE, shape.i64(d), _i64(0)) for d in range(len(b.shape))))
        null = logical_and(cmp(EQ, dl.i64(0), _i64(0)), filled)
        name = _quote(b.name)
        checks.append(self.need(logical_not(null), "ValueError", f"parameter {name} has a null data pointer"))
        if alignment > 1:
            off = address & _i64(alignment - 1)
            message = f"parameter {name} must be aligned to {alignment} bytes, its address is %lld past that"
            checks.append(self.need(cmp(EQ, off, _i64(0)), "ValueError", message, off))
        data: PrimExpr = again.i64(0) + again.i64(5)
        if b.elem_offset is not None and not (isinstance(b.elem_offset, IntImm) and b.elem_offset.value == 0):
            data = again.i64(0)
            index = next(k for k, p in enumerate(self.f.params) if self.f.buffer_map.get(p) is b)
            got, later = dl.i64(5) // _i64(bytes_), again.i64(5) // _i64(bytes_)
            self.match(index, "the element offset", got, later, b.elem_offset, checks, lets)
        if b.data in self.bound:
            return
        self.bound.add(b.data)
        lets.append((b.data, _pointer(data)))

    # outputs and the end

    def allocate_outputs(self) -> list[Stmt]:
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
                    f"{self.name}: the result {b.name!r} has a dimension {_text(dim)}, but no argument tells {v.name}",
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


def _text(e: PrimExpr) -> str:
    """An expression as text for a printf format."""
    if isinstance(e, IntImm):
        return str(e.value)
    if isinstance(e, Var):
        return e.name.replace("%", "%%")
    return repr(e).replace("%", "%%")


def _describe(b: Buffer) -> str:
    return f"{b.dtype} [{', '.join(_text(d) for d in b.shape)}]"


def _type_name(code: PrimExpr) -> PrimExpr:
    """What a type index means, as text for a message (a function of the runtime support)."""
    return call_intrin("handle", "tir.call_extern", StringImm("tw_type_name"), code)


def _dtype_name(word: PrimExpr) -> PrimExpr:
    """The name of a dtype in memory, as text for a message (a function of the runtime support)."""
    return call_intrin("handle", "tir.call_extern", StringImm("tw_dtype_name"), word)
