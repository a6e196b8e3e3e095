"""Expressions to Python source: the values and their ranges (see `interp_compile`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.arith import expr as ex
from tilewright.arith.expr import PrimExpr, Var
from tilewright.ir import dtype as dt
from tilewright.ir.op import GlobalVar, Op
from tilewright.tir import ir as t
from tilewright.tir.interp_llvm import MEANINGS
from tilewright.tir.interp_runtime import RUNTIME, meaning, unsupported
from tilewright.tir.intrin import INTRINSICS

__all__ = ["Expressions", "Value"]

Value = tuple[str, Any, Any]
"""A piece of source, and for integers the least and greatest value (of any lane)."""

_CMP: dict[type, str] = {ex.EQ: "==", ex.NE: "!=", ex.LT: "<", ex.LE: "<=", ex.GT: ">", ex.GE: ">="}


class Expressions:
    """Writes expressions; knows the names, the ranges of integers and what is declared."""

    def __init__(self, where: str, resolve: Callable[[GlobalVar], Any]) -> None:
        self.where = where
        self.resolve = resolve
        self.lines: list[str] = []
        self.depth = 0
        self.nesting: list[int] = [0]  # nested Python blocks in each enclosing def
        self.names_space: dict[str, Any] = dict(RUNTIME)
        self.names: dict[Any, str] = {}
        self.ranges: dict[Var, tuple[int, int]] = {}
        self.declared: set[Any] = set()
        self.mask: str | None = None
        self.counter = 0
        self.backwards = False
        self.undeclared: dict[Var, list[t.Buffer]] = {}

    # ---- lines and names -------------------------------------------------------------------------------------------------

    def emit(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def fresh(self, hint: str) -> str:
        self.counter += 1
        return f"{re.sub(r'[^0-9a-zA-Z_]', '_', hint) or 'x'}_{self.counter}"

    def name_of(self, x: Any) -> str:
        found = self.names.get(x)
        if found is None:
            found = self.names[x] = self.fresh(x.name)
        return found

    def constant(self, value: Any, hint: str = "c") -> str:
        name = self.fresh("_" + hint)
        self.names_space[name] = value
        return name

    def define(self, v: Var, code: str, low: Any = None, high: Any = None) -> None:
        """`v = code`, with what is known of an integer's range."""
        self.emit(f"{self.name_of(v)} = {code}")
        self.declared.add(v)
        if low is not None and dt.lanes(v.dtype) == 1:
            self.ranges[v] = (low, high)
        else:
            self.ranges.pop(v, None)

    # ---- expressions -----------------------------------------------------------------------------------------------------

    def code(self, e: PrimExpr) -> str:
        return self.expr(e)[0]

    def expr(self, e: PrimExpr) -> Value:
        """The source of an expression, and the range of an integer."""
        method = _EXPR.get(type(e))
        if method is None:
            raise unsupported(type(e).__name__, "it has no value in the loop IR")
        code, low, high = method(self, e)
        if low is None and not dt.is_float(e.dtype) and dt.code(e.dtype) in ("int", "uint", "bool"):
            low, high = dt.min_value(e.dtype), dt.max_value(e.dtype)
        return code, low, high

    def kind(self, dtype: str) -> str:
        """The name of the numpy scalar type."""
        base = dt.element(dtype)
        name = "_t_" + base
        if name not in self.names_space:
            self.names_space[name] = dt.to_numpy(base).type
        return name

    def wrapped(self, code: str, dtype: str) -> str:
        """An integer brought into the range of the dtype."""
        bits = dt.bits(dtype)
        mask = (1 << bits) - 1
        if dt.is_bool(dtype):
            return f"int(({code}) != 0)"
        if dt.is_uint(dtype):
            return f"(({code}) & {mask})"
        half = 1 << (bits - 1)
        return f"((({code}) + {half} & {mask}) - {half})"

    def fit(self, code: str, low: int, high: int, dtype: str) -> Value:
        """An integer result that wraps where its range leaves the dtype's."""
        least, greatest = dt.min_value(dtype), dt.max_value(dtype)
        if least <= low and high <= greatest:
            return code, low, high
        if dt.lanes(dtype) > 1:
            return code, least, greatest
        return self.wrapped(code, dtype), least, greatest

    def e_Var(self, e: Var) -> Value:
        if e not in self.declared and e not in self.names:
            raise unsupported(f"variable {e.name}", "nothing defines it")
        low, high = self.ranges.get(e, (None, None))
        return self.name_of(e), low, high

    def e_IntImm(self, e: ex.IntImm) -> Value:
        return (str(e.value) if e.value >= 0 else f"({e.value})"), e.value, e.value

    def e_FloatImm(self, e: ex.FloatImm) -> Value:
        return self.constant(dt.to_numpy(e.dtype).type(e.value)), None, None

    def e_StringImm(self, e: ex.StringImm) -> Value:
        return repr(e.value), None, None

    def e_arith(self, e: Any) -> Value:
        a, a0, a1 = self.expr(e.a)
        b, b0, b1 = self.expr(e.b)
        symbol = {ex.Add: "+", ex.Sub: "-", ex.Mul: "*"}[type(e)]
        code = f"({a} {symbol} {b})"
        if dt.is_float(e.dtype):
            return code, None, None
        if type(e) is ex.Add:
            return self.fit(code, a0 + b0, a1 + b1, e.dtype)
        if type(e) is ex.Sub:
            return self.fit(code, a0 - b1, a1 - b0, e.dtype)
        corners = [a0 * b0, a0 * b1, a1 * b0, a1 * b1]
        return self.fit(code, min(corners), max(corners), e.dtype)

    def e_FloorDiv(self, e: ex.FloorDiv) -> Value:
        a, a0, a1 = self.expr(e.a)
        b, b0, b1 = self.expr(e.b)
        if dt.is_float(e.dtype):
            return f"_np.floor_divide({a}, {b})", None, None
        if b0 <= 0 <= b1:
            return self.fit(f"({a} // {b})", dt.min_value(e.dtype), dt.max_value(e.dtype) + (b0 < 0), e.dtype)
        corners = [a0 // b0, a0 // b1, a1 // b0, a1 // b1]
        return self.fit(f"({a} // {b})", min(corners), max(corners), e.dtype)

    def e_FloorMod(self, e: ex.FloorMod) -> Value:
        a, a0, a1 = self.expr(e.a)
        b, b0, b1 = self.expr(e.b)
        if dt.is_float(e.dtype):
            return f"_np.mod({a}, {b})", None, None
        if b0 > 0:
            if a0 >= 0 and a1 < b0:
                return a, a0, a1
            return f"({a} % {b})", 0, b1 - 1
        return f"({a} % {b})", None, None

    def e_Div(self, e: ex.Div) -> Value:
        a, a0, a1 = self.expr(e.a)
        b, b0, b1 = self.expr(e.b)
        if dt.is_float(e.dtype):
            return f"({a} / {b})", None, None
        if a0 >= 0 and b0 > 0:
            return f"({a} // {b})", a0 // b1, a1 // b0
        f = "_vdiv" if dt.lanes(e.dtype) > 1 else "_tdiv"
        return self.fit(f"{f}({a}, {b})", dt.min_value(e.dtype), dt.max_value(e.dtype) + (b0 < 0), e.dtype)

    def e_Mod(self, e: ex.Mod) -> Value:
        a, a0, a1 = self.expr(e.a)
        b, b0, b1 = self.expr(e.b)
        if dt.is_float(e.dtype):
            return f"_np.fmod({a}, {b})", None, None
        if a0 >= 0 and b0 > 0:
            return f"({a} % {b})", 0, min(a1, b1 - 1)
        return f"{'_vmod' if dt.lanes(e.dtype) > 1 else '_tmod'}({a}, {b})", None, None

    def e_minmax(self, e: Any) -> Value:
        a, a0, a1 = self.expr(e.a)
        b, b0, b1 = self.expr(e.b)
        least = type(e) is ex.Min
        if dt.lanes(e.dtype) > 1:
            code = f"_np.{'minimum' if least else 'maximum'}({a}, {b})"
        elif dt.is_float(e.dtype):
            x, y = self.fresh("x"), self.fresh("y")
            # NaN on either side gives NaN, as in numpy
            code = f"(lambda {x}, {y}: {x} if {x} {'<' if least else '>'} {y} or {x} != {x} else {y})({a}, {b})"
        else:
            code = f"{'min' if least else 'max'}({a}, {b})"
        if dt.is_float(e.dtype):
            return code, None, None
        return (code, min(a0, b0), min(a1, b1)) if least else (code, max(a0, b0), max(a1, b1))

    def e_compare(self, e: Any) -> Value:
        return f"({self.code(e.a)} {_CMP[type(e)]} {self.code(e.b)})", 0, 1

    def e_logic(self, e: Any) -> Value:
        return f"({self.code(e.a)} {'&' if type(e) is ex.And else '|'} {self.code(e.b)})", 0, 1

    def e_Not(self, e: ex.Not) -> Value:
        a = self.code(e.a)
        return (f"(~{a})" if dt.lanes(e.dtype) > 1 else f"(not {a})"), 0, 1

    def e_Select(self, e: ex.Select) -> Value:
        a, a0, a1 = self.expr(e.true_value)
        b, b0, b1 = self.expr(e.false_value)
        c = self.code(e.condition)
        low, high = (None, None) if a0 is None else (min(a0, b0), max(a1, b1))
        if dt.lanes(e.dtype) > 1:
            return f"_np.where({c}, {a}, {b})", low, high
        return f"({a}, {b})[not {c}]", low, high

    def e_Let(self, e: ex.Let) -> Value:
        value, low, high = self.expr(e.value)
        name = self.name_of(e.var)
        self.declared.add(e.var)
        if low is not None and dt.lanes(e.var.dtype) == 1:
            self.ranges[e.var] = (low, high)
        body, b0, b1 = self.expr(e.body)
        return f"(lambda {name}: {body})({value})", b0, b1

    def e_Cast(self, e: ex.Cast) -> Value:
        code, low, high = self.expr(e.value)
        source, target = e.value.dtype, e.dtype
        vector = dt.lanes(target) > 1
        if "handle" in (source, target):
            return code, None, None
        if dt.is_bool(target):
            return (f"({code} != 0)" if vector else f"bool({code} != 0)"), 0, 1
        if dt.is_float(target):
            if vector:
                return f"({code}).astype({self.kind(target)})", None, None
            return f"{self.kind(target)}({code})", None, None
        least, greatest = dt.min_value(target), dt.max_value(target)
        if dt.is_float(source):
            if vector:
                return f"_vtoint({code}, {self.kind(target)}, {least}, {greatest})", None, None
            return f"_toint({code}, {least}, {greatest})", None, None
        if vector:
            fits = least <= low and high <= greatest
            return f"({code}).astype({self.kind(target)})", low if fits else None, high if fits else None
        if dt.is_bool(source):
            code = f"int({code})"
        return self.fit(code, low, high, target)

    def e_Ramp(self, e: ex.Ramp) -> Value:
        base, b0, b1 = self.expr(e.base)
        stride, s0, s1 = self.expr(e.stride)
        steps = self.constant(np.arange(e.lanes, dtype=dt.to_numpy(e.dtype)), "lanes")
        n = e.lanes - 1
        low, high = b0 + min(0, s0 * n), b1 + max(0, s1 * n)
        if dt.lanes(e.base.dtype) > 1:
            code = f"(({base})[None, :] + ({stride}) * {steps}[:, None]).ravel()"
        else:
            code = f"({base} + {stride} * {steps})"
        return self.fit(code, low, high, e.dtype)

    def e_Broadcast(self, e: ex.Broadcast) -> Value:
        code, low, high = self.expr(e.value)
        if dt.lanes(e.value.dtype) > 1:
            return f"_np.tile({code}, {e.lanes})", low, high
        return f"_np.full({e.lanes}, {code}, {self.kind(e.dtype)})", low, high

    def e_Shuffle(self, e: ex.Shuffle) -> Value:
        indices = [int(i) for i in e.indices]  # pyright: ignore[reportArgumentType]
        code = f"_shuffle([{', '.join(self.code(v) for v in e.vectors)}], {indices})"
        if dt.lanes(e.dtype) == 1 and not dt.is_float(e.dtype):
            code = f"int({code})"
        return code, None, None

    # ---- memory ----------------------------------------------------------------------------------------------------------

    def access(self, b: t.Buffer, indices: tuple[PrimExpr, ...]) -> str:
        """The element or lanes, as something to load or to assign."""
        if b not in self.declared:
            raise unsupported(f"buffer {b.name}", "it is not declared where it is used")
        if len(indices) != b.ndim:
            raise unsupported(f"an access of {b.name}", f"it has {len(indices)} indices for {b.ndim} dimensions")
        values = [self.expr(i) for i in indices]
        inside = all(
            low >= 0 and isinstance(n, ex.IntImm) and high < n.value
            for (_, low, high), n in zip(values, b.shape, strict=True)
        )
        array = self.name_of(b)
        index = "".join(v + ", " for v, _, _ in values)
        vector = any(dt.lanes(i.dtype) > 1 for i in indices)
        if vector and self.mask is not None:
            return f"{array}[_ckv({array}, {b.name!r}, ({index}), {self.mask})]"
        if inside or not indices:
            return f"{array}[{index.rstrip(', ') or '()'}]"
        return f"{array}[{'_ckv' if vector else '_ck'}({array}, {b.name!r}, ({index}))]"

    def over_rows(self, e: t.BufferLoad) -> str | None:
        """A vector longer than a row, which runs on in the rows after it; None for other loads."""
        last, b = e.indices[-1] if e.indices else None, e.buffer
        if not (isinstance(last, ex.Ramp) and b.ndim > 1 and b in self.declared and self.mask is None):
            return None
        if not (isinstance(b.shape[-1], ex.IntImm) and last.lanes > b.shape[-1].value and ex.is_const(last.stride, 1)):
            return None
        index = ", ".join(self.code(i) for i in (*e.indices[:-1], last.base))
        return f"_rows({self.name_of(b)}, {b.name!r}, ({index}), {last.lanes})"

    def e_BufferLoad(self, e: t.BufferLoad) -> Value:
        long = self.over_rows(e)
        if long is not None:
            return long, None, None
        code = self.access(e.buffer, e.indices)
        if dt.lanes(e.dtype) == 1 and not dt.is_float(e.dtype):
            return f"{'bool' if dt.is_bool(e.dtype) else 'int'}({code})", None, None
        return code, None, None

    # ---- calls -----------------------------------------------------------------------------------------------------------

    def e_Call(self, e: ex.Call) -> Value:
        if isinstance(e.op, GlobalVar):
            target = self.constant(self.resolve(e.op), "fn")
            return f"{target}({', '.join(self.argument(a) for a in e.args)})", None, None
        name: str = e.op.name  # pyright: ignore[reportAttributeAccessIssue]
        special = getattr(self, "c_" + name.removeprefix("tir."), None)
        if special is not None:
            return special(e)
        row = INTRINSICS.get(name)
        if row is None:
            raise unsupported(name, "it is not in the table of intrinsics")
        if row.numpy is None:
            raise unsupported(name, row.doc)
        args = [self.code(a) for a in e.args]
        if name == "tir.likely":
            return args[0], 0, 1
        function = "_f_" + re.sub(r"\W", "_", name) + "_" + e.dtype
        if function not in self.names_space:
            self.names_space[function] = meaning(name, e.dtype)
        return f"{function}({', '.join(args)})", None, None

    def argument(self, a: Any) -> str:
        return self.name_of(a) if isinstance(a, t.Buffer) else self.code(a)

    def c_if_then_else(self, e: ex.Call) -> Value:
        c, yes, no = e.args
        condition = self.code(c)
        if dt.lanes(c.dtype) == 1:
            a, a0, a1 = self.expr(yes)
            b, b0, b1 = self.expr(no)
            low, high = (None, None) if a0 is None else (min(a0, b0), max(a1, b1))
            return f"({a} if {condition} else {b})", low, high
        outer, mask = self.mask, self.fresh("m")
        self.mask = mask
        a, b = self.code(yes), self.code(no)
        self.mask = outer
        return f"_ifl({condition}, {outer}, lambda {mask}: {a}, lambda {mask}: {b})", None, None

    def c_bitwise(self, e: ex.Call) -> Value:
        assert isinstance(e.op, Op)
        symbol = {"tir.bitwise_and": "&", "tir.bitwise_or": "|", "tir.bitwise_xor": "^"}[e.op.name]
        a, a0, _ = self.expr(e.args[0])
        b, b0, b1 = self.expr(e.args[1])
        known = symbol == "&" and b0 >= 0 and a0 >= 0
        return f"({a} {symbol} {b})", 0 if known else None, b1 if known else None

    c_bitwise_and = c_bitwise_or = c_bitwise_xor = c_bitwise

    def c_bitwise_not(self, e: ex.Call) -> Value:
        if dt.lanes(e.dtype) > 1:
            return f"(~{self.code(e.args[0])})", None, None
        return self.fit(f"(~{self.code(e.args[0])})", -(1 << 63), 1 << 64, e.dtype)

    def c_shift_left(self, e: ex.Call) -> Value:
        code = f"({self.code(e.args[0])} << {self.code(e.args[1])})"
        return self.fit(code, -(1 << 128), 1 << 128, e.dtype)

    def c_shift_right(self, e: ex.Call) -> Value:
        a, a0, a1 = self.expr(e.args[0])
        b, b0, b1 = self.expr(e.args[1])
        code = f"({a} >> {b})"
        return (code, a0 >> b1, a1 >> b0) if a0 >= 0 and b0 >= 0 and b1 < 64 else (code, None, None)

    def c_reinterpret(self, e: ex.Call) -> Value:
        return f"_reinterpret({self.code(e.args[0])}, {e.args[0].dtype!r}, {e.dtype!r})", None, None

    def c_reduce_lanes(self, e: ex.Call) -> Value:
        function = self.constant(meaning("tir.reduce_lanes", e.dtype), "reduce")
        return f"{function}({self.code(e.args[0])}, {self.code(e.args[1])})", None, None

    def c_address_of(self, e: ex.Call) -> Value:
        load: t.BufferLoad = e.args[0]
        index = "".join(self.code(i) + ", " for i in load.indices)
        return f"_address({self.name_of(load.buffer)}, ({index}), {load.buffer.name!r})", None, None

    def c_tvm_access_ptr(self, e: ex.Call) -> Value:
        data = e.args[1]
        return f"_pointer({self.code(data)}, {self.code(e.args[2])}, {getattr(data, 'name', 'memory')!r})", None, None

    def c_undef(self, e: ex.Call) -> Value:
        return self.code(ex.const(0, e.dtype)), None, None

    def c_tw_raise(self, e: ex.Call) -> Value:
        return f"_raise({', '.join(self.code(a) for a in e.args)})", None, None

    def c_tvm_storage_sync(self, e: ex.Call) -> Value:
        raise unsupported("tir.tvm_storage_sync", "it runs threads one after the other")

    def c_external(self, e: ex.Call) -> Value:
        name = e.args[0].value
        target = self.constant(self.resolve(GlobalVar(name)), "extern")
        call = f"{target}({', '.join(self.argument(a) for a in e.args[1:])})"
        if dt.is_float(e.dtype):
            return f"{self.kind(e.dtype)}({call})", None, None
        return call, None, None

    def c_known(self, e: ex.Call) -> Value:
        """An instruction or function whose meaning is known."""
        name = e.args[0].value
        if name not in MEANINGS:
            return self.c_external(e)
        function = self.constant(MEANINGS[name], "known")
        return f"{function}({', '.join(self.code(a) for a in e.args[1:])})", None, None

    c_call_llvm_intrin = c_call_llvm_pure_intrin = c_call_pure_extern = c_known
    c_call_extern = c_tvm_call_packed = c_tvm_call_cpacked = c_external


_EXPR: dict[type, Callable[[Expressions, Any], Value]] = {
    Var: Expressions.e_Var, ex.SizeVar: Expressions.e_Var, ex.IntImm: Expressions.e_IntImm, ex.FloatImm: Expressions.e_FloatImm,
    ex.StringImm: Expressions.e_StringImm, ex.Add: Expressions.e_arith, ex.Sub: Expressions.e_arith, ex.Mul: Expressions.e_arith,
    ex.FloorDiv: Expressions.e_FloorDiv, ex.FloorMod: Expressions.e_FloorMod, ex.Div: Expressions.e_Div, ex.Mod: Expressions.e_Mod,
    ex.Min: Expressions.e_minmax, ex.Max: Expressions.e_minmax, ex.EQ: Expressions.e_compare, ex.NE: Expressions.e_compare,
    ex.LT: Expressions.e_compare, ex.LE: Expressions.e_compare, ex.GT: Expressions.e_compare, ex.GE: Expressions.e_compare,
    ex.And: Expressions.e_logic, ex.Or: Expressions.e_logic, ex.Not: Expressions.e_Not, ex.Select: Expressions.e_Select,
    ex.Let: Expressions.e_Let, ex.Cast: Expressions.e_Cast, ex.Ramp: Expressions.e_Ramp, ex.Broadcast: Expressions.e_Broadcast,
    ex.Shuffle: Expressions.e_Shuffle, ex.Call: Expressions.e_Call, t.BufferLoad: Expressions.e_BufferLoad,
}  # fmt: skip
