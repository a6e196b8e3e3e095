"""Small floats on devices that cannot compute with them (bfloat16), or only store them (float8).

Compute: values are widened where they are loaded and narrowed where they are stored; memory of the function itself holds wide
values. bfloat16 is converted by its bits, as the upper half of a float32 (narrowing rounds to even).
Storage: what memory still holds of the small type becomes an unsigned integer of its size.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.arith import expr as ex
from tilewright.arith.expr import Call, PrimExpr, Var, call_intrin, cast, const
from tilewright.ir import dtype as dt
from tilewright.ir.module import attrs_of
from tilewright.ir.node import map_children, replace, walk
from tilewright.ir.op import PointerType, PrimType
from tilewright.ir.passes import Pass
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.transform.base import BufferMutator, call_name, func_pass

__all__ = ["BF16ComputeLegalize", "BF16StorageLegalize", "FP8ComputeLegalize", "FP8StorageLegalize"]

Test = Callable[[str], bool]


def _is_bf16(d: str) -> bool:
    return dt.element(d) == "bfloat16"


def _is_fp8(d: str) -> bool:
    return d.startswith(("float8", "e4m3", "e5m2"))


def _like(name: str, d: str) -> str:
    return dt.with_lanes(name, dt.lanes(d))


# ---- conversions of bits ---------------------------------------------------------------------------------------------------


def _u16_to_f32(v: PrimExpr) -> PrimExpr:
    wide = ex.Cast(_like("uint32", v.dtype), v)
    sixteen = _filled(16, "uint32", v.dtype)
    return call_intrin(
        _like("float32", v.dtype), "tir.reinterpret", call_intrin(wide.dtype, "tir.shift_left", wide, sixteen)
    )


def _f32_to_u16(v: PrimExpr) -> PrimExpr:
    u32 = _like("uint32", v.dtype)
    bits = call_intrin(u32, "tir.reinterpret", v)
    sixteen, one = _filled(16, "uint32", v.dtype), _filled(1, "uint32", v.dtype)
    odd = call_intrin(u32, "tir.bitwise_and", call_intrin(u32, "tir.shift_right", bits, sixteen), one)
    bias = ex.Add(odd, _filled(0x7FFF, "uint32", v.dtype))
    return ex.Cast(_like("uint16", v.dtype), call_intrin(u32, "tir.shift_right", ex.Add(bits, bias), sixteen))


def _filled(value: int, name: str, like: str) -> PrimExpr:
    c = const(value, name)
    return c if dt.lanes(like) == 1 else ex.Broadcast(c, dt.lanes(like))


def _widen(v: PrimExpr, to: str) -> PrimExpr:
    if _is_bf16(v.dtype) and to == "float32":
        return _u16_to_f32(call_intrin(_like("uint16", v.dtype), "tir.reinterpret", v))
    return ex.Cast(_like(to, v.dtype), v)


def _narrow(v: PrimExpr, to: str) -> PrimExpr:
    if _is_bf16(to) and dt.element(v.dtype) == "float32":
        return call_intrin(_like("bfloat16", v.dtype), "tir.reinterpret", _f32_to_u16(v))
    return ex.Cast(_like(dt.element(to), v.dtype), v)


# ---- computing ---------------------------------------------------------------------------------------------------------


class _Compute(BufferMutator):
    """Values of the small type are wide; `memory` are the pointers whose memory becomes wide too."""

    def __init__(self, small: Test, to: str, memory: set[Var]) -> None:
        super().__init__()
        self.small, self.to, self.memory = small, to, memory
        self.names: dict[Var, Var] = {}

    def wide(self, e: PrimExpr) -> PrimExpr:
        return _widen(e, self.to) if self.small(e.dtype) else e

    def visit_Var(self, v: Var) -> PrimExpr:
        found = self.names.get(v)
        if found is not None:
            return found
        return _widen(v, self.to) if self.small(v.dtype) else v

    def buffer(self, b: t.Buffer) -> t.Buffer:
        if b.data not in self.memory or not self.small(b.dtype):
            return b
        found = self.remap.get(b)
        if found is None:
            found = self.remap[b] = replace(b, data=self.pointer(b.data), dtype=_like(self.to, b.dtype))
        return found

    def pointer(self, v: Var) -> Var:
        found = self.names.get(v)
        if found is None:
            scope = getattr(v.type_annotation, "storage_scope", "global")
            found = self.names[v] = Var(v.name, "handle", PointerType(PrimType(self.to), scope))
        return found

    def visit_FloatImm(self, e: ex.FloatImm) -> PrimExpr:
        return ex.FloatImm(self.to, e.value) if self.small(e.dtype) else e

    def visit_BufferLoad(self, e: t.BufferLoad) -> PrimExpr:
        return self.wide(t.BufferLoad(self.buffer(e.buffer), tuple(self.visit(i) for i in e.indices)))

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        value = self.visit(s.value)
        buffer = self.buffer(s.buffer)
        if self.small(buffer.dtype):
            value = _narrow(value, buffer.dtype)
        return t.BufferStore(buffer, value, tuple(self.visit(i) for i in s.indices))

    def visit_Cast(self, e: ex.Cast) -> PrimExpr:
        value = self.visit(e.value)
        if self.small(e.dtype):
            return cast(value, _like(self.to, e.dtype))
        return value if value.dtype == e.dtype else ex.Cast(e.dtype, value)

    def visit_Call(self, e: Call) -> PrimExpr:
        name = call_name(e)
        if name == "tir.reinterpret":
            a = e.args[0]
            if self.small(e.dtype):
                return _widen(Call(e.dtype, e.op, (self.visit(a),)), self.to)
            if self.small(a.dtype):
                return Call(e.dtype, e.op, (_narrow(self.visit(a), a.dtype),))
        if name == "tir.address_of" and isinstance(e.args[0], t.BufferLoad):
            load = e.args[0]
            return Call(e.dtype, e.op, (t.BufferLoad(self.buffer(load.buffer), tuple(map(self.visit, load.indices))),))
        new = map_children(e, self.visit)
        return replace(new, dtype=_like(self.to, e.dtype)) if self.small(e.dtype) else new

    def visit_LetStmt(self, s: t.LetStmt) -> t.Stmt:
        value = self.visit(s.value)
        if value.dtype != s.var.dtype:
            self.names[s.var] = Var(s.var.name, value.dtype)
        return t.LetStmt(self.names.get(s.var, s.var), value, self.visit(s.body))

    def visit_Let(self, e: ex.Let) -> PrimExpr:
        value = self.visit(e.value)
        if value.dtype != e.var.dtype:
            self.names[e.var] = Var(e.var.name, value.dtype)
        return ex.Let(self.names.get(e.var, e.var), value, self.visit(e.body))

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        if s.buffer_var not in self.memory:
            return self.generic(s)
        return replace(s, buffer_var=self.pointer(s.buffer_var), dtype=_like(self.to, s.dtype), body=self.visit(s.body))

    def visit_CommReducer(self, r: t.CommReducer) -> t.CommReducer:
        for v in (*r.lhs, *r.rhs):
            if self.small(v.dtype):
                self.names[v] = Var(v.name, _like(self.to, v.dtype))
        lhs, rhs = (tuple(self.names.get(v, v) for v in side) for side in (r.lhs, r.rhs))
        return t.CommReducer(lhs, rhs, tuple(map(self.visit, r.result)), tuple(map(self.visit, r.identity_element)))


def _own_memory(f: t.PrimFunc, small: Test) -> set[Var]:
    """The pointers of what the function allocates of the small type."""
    out: set[Var] = set()
    for n in walk(f.body):
        if isinstance(n, t.Allocate) and small(n.dtype):
            out.add(n.buffer_var)
        elif isinstance(n, t.Block):
            out.update(b.data for b in n.alloc_buffers if small(b.dtype))
    return out


def _computes_natively(f: t.PrimFunc, bits: str) -> bool:
    """Can the function's target compute with the type? (NVIDIA: bfloat16 from 8.0, float8 from 8.9 on)"""
    target = attrs_of(f).get("target")
    if target is None or getattr(getattr(target, "kind", None), "name", "") != "cuda":
        return False
    arch = str(getattr(target, "attrs", {}).get("arch", ""))
    digits = "".join(c for c in arch.partition("_")[2] if c.isdigit())
    return bool(digits) and int(digits) >= (80 if bits == "bf16" else 89)


def _compute(f: t.PrimFunc, small: Test, to: str, bits: str) -> t.PrimFunc:
    if _computes_natively(f, bits):
        return f
    body = _Compute(small, to, _own_memory(f, small)).visit(f.body)
    return f if body is f.body else f.with_body(body)


def BF16ComputeLegalize() -> Pass:
    """bfloat16 is computed in float32, where the target has no arithmetic of its own."""
    return func_pass(
        "BF16ComputeLegalize", lambda f: _compute(f, _is_bf16, "float32", "bf16"), BF16ComputeLegalize.__doc__
    )


def FP8ComputeLegalize(promote_dtype_str: str = "float16") -> Pass:
    """float8 is computed in `promote_dtype_str` (float16 or float32)."""
    if promote_dtype_str not in ("float16", "float32"):
        raise CompileError.at("TW0533", f"FP8ComputeLegalize computes in float16 or float32, not {promote_dtype_str}")
    return func_pass(
        "FP8ComputeLegalize", lambda f: _compute(f, _is_fp8, promote_dtype_str, "fp8"), FP8ComputeLegalize.__doc__
    )


# ---- storing -----------------------------------------------------------------------------------------------------------


class _Storage(BufferMutator):
    """Memory of the small type holds unsigned integers."""

    def __init__(self, small: Test, to: str) -> None:
        super().__init__()
        self.small, self.to = small, to
        self.names: dict[Var, Var] = {}

    def pointer(self, v: Var) -> Var:
        found = self.names.get(v)
        if found is None:
            kind = v.type_annotation
            element = getattr(getattr(kind, "element_type", None), "dtype", "")
            scope = getattr(kind, "storage_scope", "global")
            fits = isinstance(kind, PointerType) and self.small(element)
            found = self.names[v] = Var(v.name, "handle", PointerType(PrimType(self.to), scope)) if fits else v
        return found

    def visit_Var(self, v: Var) -> PrimExpr:
        return self.pointer(v) if v.dtype == "handle" else v

    def buffer(self, b: t.Buffer) -> t.Buffer:
        if not self.small(b.dtype):
            return b
        found = self.remap.get(b)
        if found is None:
            found = self.remap[b] = replace(b, data=self.pointer(b.data), dtype=_like(self.to, b.dtype))
        return found

    def visit_BufferLoad(self, e: t.BufferLoad) -> PrimExpr:
        new = t.BufferLoad(self.buffer(e.buffer), tuple(self.visit(i) for i in e.indices))
        return call_intrin(e.dtype, "tir.reinterpret", new) if self.small(e.dtype) else new

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        value = self.visit(s.value)
        if self.small(s.buffer.dtype):
            value = _reinterpreted(value, _like(self.to, value.dtype))
        return t.BufferStore(self.buffer(s.buffer), value, tuple(self.visit(i) for i in s.indices))

    def visit_Call(self, e: Call) -> PrimExpr:
        if call_name(e) == "tir.reinterpret":
            return _reinterpreted(self.visit(e.args[0]), e.dtype)
        return self.visit_PrimExpr(e)

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        if not self.small(s.dtype):
            return self.generic(s)
        return replace(s, buffer_var=self.pointer(s.buffer_var), dtype=_like(self.to, s.dtype), body=self.visit(s.body))


def _reinterpreted(v: PrimExpr, d: str) -> PrimExpr:
    """The bits as another type; two steps that cancel are none."""
    if isinstance(v, Call) and call_name(v) == "tir.reinterpret" and v.args[0].dtype == d:
        return v.args[0]
    return v if v.dtype == d else call_intrin(d, "tir.reinterpret", v)


def _storage(f: t.PrimFunc, small: Test, to: str, bits: str) -> t.PrimFunc:
    if _computes_natively(f, bits):
        return f
    run = _Storage(small, to)
    params = tuple(run.pointer(p) if p.dtype == "handle" and p not in f.buffer_map else p for p in f.params)
    buffers = {p: run.buffer(b) for p, b in f.buffer_map.items()}
    body = run.visit(f.body)
    same = all(a is b for a, b in zip(params, f.params)) and all(buffers[p] is b for p, b in f.buffer_map.items())
    return f if same and body is f.body else replace(f, params=params, buffer_map=buffers, body=body)


def BF16StorageLegalize() -> Pass:
    """Memory of bfloat16 holds uint16."""
    return func_pass(
        "BF16StorageLegalize", lambda f: _storage(f, _is_bf16, "uint16", "bf16"), BF16StorageLegalize.__doc__
    )


def FP8StorageLegalize() -> Pass:
    """Memory of float8 holds uint8."""
    return func_pass("FP8StorageLegalize", lambda f: _storage(f, _is_fp8, "uint8", "fp8"), FP8StorageLegalize.__doc__)
