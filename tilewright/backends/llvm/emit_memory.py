"""Addresses, loads and stores as LLVM text.

Indices are computed in 64 bits with the constant part apart (`index`), so that the accesses of unrolled code share one
address and differ in displacements. Vector indices that are affine in the lane number are vector loads, splats, or few loads
and shuffles; others are gathers. Under a mask (the condition of a vector `if_then_else`) only its lanes touch memory.
"""

from __future__ import annotations

from typing import Any, Union

from tilewright.arith import expr as E
from tilewright.backends.llvm.emit_core import (
    ModuleWriter,
    Writer,
    element_bytes,
    like,
    llvm_type,
    memory_type,
    suffix,
    unsupported,
    vector,
)
from tilewright.ir import dtype as dt
from tilewright.tir.ir import Buffer, BufferLoad

__all__ = ["Affine", "MemoryWriter"]

Affine = tuple[str, int, Union[int, str]]
"""A vector index `name + constant + lane * stride`; the name is empty for none, the stride a number or an i64's name."""


class MemoryWriter(Writer):
    """Writes memory accesses. `env` gives the values of variables, `wide` their 64-bit forms where known; `natural` are
    integers that are not negative, `distinct` pointers to memory that no other pointer reaches."""

    def __init__(self, mod: ModuleWriter) -> None:
        super().__init__(mod)
        self.env: dict[E.Var, str] = {}
        self.wide: dict[E.Var, str] = {}
        self.natural: set[E.Var] = set()
        self.distinct: set[E.Var] = set()
        self.mask: str | None = None
        self.where = "?"
        self.vector_accesses = 0
        self.layouts: dict[Buffer, tuple[str, int, int, bool]] = {}
        self.indices: dict[int, tuple[str, int]] = {}
        self.other_indices = 0

    def expr(self, e: Any) -> str:
        """Write an expression; gives its value."""
        raise NotImplementedError

    def variable(self, v: E.Var) -> str:
        """The value of a variable. Raises CompileError TW0603 where it is not defined."""
        value = self.env.get(v)
        if value is None:
            wide = self.wide.get(v)
            if wide is None:
                raise unsupported("TW0603", f"variable {v.name!r} is used outside its definition in {self.where}")
            return self.op(f"trunc i64 {wide} to {llvm_type(v.dtype)}")
        return value

    # ---- indices

    def index(self, e: Any) -> tuple[str, int]:
        """A scalar index as (name of an i64 or "", constant)."""
        t = type(e)
        if t is E.IntImm:
            return "", e.value
        if t is E.Var or t is E.SizeVar:
            return self.wide.get(e) or self._to64(self.variable(e), e.dtype), 0
        found = self.indices.get(id(e))
        if found is None:
            others = self.other_indices
            found = self._index(t, e)
            if others == self.other_indices:  # nothing in it reads memory
                self.indices[id(e)] = found
        return found

    def _index(self, t: type, e: Any) -> tuple[str, int]:
        if t is E.Add or t is E.Sub:
            a, ca = self.index(e.a)
            b, cb = self.index(e.b)
            if t is E.Add:
                return self.add64(a, b), ca + cb
            return self.sub64(a, b), ca - cb
        if t is E.Mul:
            a, ca = self.index(e.a)
            b, cb = self.index(e.b)
            if not b:
                return self.mul64(a, cb), ca * cb
            if not a:
                return self.mul64(b, ca), ca * cb
            return self.op(f"mul nsw i64 {self.add64c(a, ca)}, {self.add64c(b, cb)}"), 0
        if t is E.Cast and e.dtype == "int64" and e.value.dtype == "int32":
            return self.index(e.value)
        self.other_indices += 1
        return self._to64(self.expr(e), e.dtype), 0

    def _to64(self, value: str, dtype: str) -> str:
        if dtype in ("int64", "uint64"):
            return value
        return self.op(f"{'zext' if dt.is_uint(dtype) else 'sext'} {llvm_type(dtype)} {value} to i64")

    def add64(self, a: str, b: str) -> str:
        """Sum of two i64 names, either of which may be absent."""
        if not a:
            return b
        return self.op(f"add nsw i64 {a}, {b}") if b else a

    def sub64(self, a: str, b: str) -> str:
        """Difference of two i64 names, either of which may be absent."""
        return self.op(f"sub nsw i64 {a or '0'}, {b}") if b else a

    def mul64(self, a: str, c: int) -> str:
        """An i64 name times a constant."""
        if not a or c == 0:
            return ""
        return a if c == 1 else self.op(f"mul nsw i64 {a}, {c}")

    def add64c(self, a: str, c: int) -> str:
        """An i64 name (or none) plus a constant, as one operand."""
        if not a:
            return str(c)
        return self.op(f"add nsw i64 {a}, {c}") if c else a

    def scalar64(self, e: Any) -> str:
        """A scalar integer expression as one i64 operand."""
        return self.add64c(*self.index(e))

    def pop(self, mark: int) -> None:
        """Leave a scope: forget what was computed in it."""
        super().pop(mark)
        self.indices.clear()

    def affine(self, e: Any) -> Affine | None:
        """A vector index as base and stride, if it is affine in the lane number."""
        t = type(e)
        if t is E.Ramp and dt.lanes(e.base.dtype) == 1:
            base, c = self.index(e.base)
            stride = e.stride
            return base, c, stride.value if type(stride) is E.IntImm else self.scalar64(stride)
        if t is E.Broadcast and dt.lanes(e.value.dtype) == 1:
            base, c = self.index(e.value)
            return base, c, 0
        if t is E.Add or t is E.Sub:
            a = self.affine(e.a)
            b = self.affine(e.b) if a is not None else None
            if a is None or b is None or isinstance(a[2], str) or isinstance(b[2], str):
                return None
            if t is E.Add:
                return self.add64(a[0], b[0]), a[1] + b[1], a[2] + b[2]
            return self.sub64(a[0], b[0]), a[1] - b[1], a[2] - b[2]
        if t is E.Mul:
            for x, y in ((e.a, e.b), (e.b, e.a)):
                if type(y) is E.Broadcast and type(y.value) is E.IntImm:
                    k = y.value.value
                    a = self.affine(x)
                    if a is not None and not isinstance(a[2], str):
                        return self.mul64(a[0], k), a[1] * k, a[2] * k
                    return None
        return None

    def address(self, pointer: str, element: str, size: int, name: str, constant: int) -> str:
        """The address of element `name + constant`."""
        if name:
            pointer = self.op(f"getelementptr {element}, ptr {pointer}, i64 {name}")
        if constant:
            pointer = self.op(f"getelementptr i8, ptr {pointer}, i64 {constant * size}")
        return pointer

    # ---- memory

    def layout(self, b: Buffer) -> tuple[str, int, int, bool]:
        """Of a buffer: its element type in memory, the element's size, its alignment, whether it holds bools."""
        if len(b.shape) > 1:
            raise unsupported(
                "TW0604",
                f"buffer {b.name!r} has {len(b.shape)} dimensions in {self.where}: the emitter takes flat ones",
                "run flatten_buffers (lower_kernel does) before emitting",
            )
        align = element_bytes(b.dtype)
        found = memory_type(b.dtype), align * dt.lanes(b.dtype), align, dt.is_bool(b.dtype)
        self.layouts[b] = found
        return found

    def load_buffer(self, e: BufferLoad) -> str:
        """The element or the vector that a BufferLoad reads."""
        buffer = e.buffer
        if len(e.indices) != 1:
            raise unsupported(
                "TW0604", f"a load of {buffer.name!r} in {self.where} has {len(e.indices)} indices, not one"
            )
        element, size, align, is_bool = self.layouts.get(buffer) or self.layout(buffer)
        data, index = buffer.data, e.indices[0]
        pointer = self.env.get(data) or self.variable(data)
        root = pointer if data in self.distinct else ""
        n = dt.lanes(index.dtype)
        if n == 1:
            name, constant = self.index(index)
            if element[0] == "<":
                self.vector_accesses += 1
            address = self.address(pointer, element, size, name, constant)
            value = (
                self.load(element, address, align, root)
                if self.mask is None
                else self._load_scalar(element, address, align, root)
            )
        else:
            self.vector_accesses += 1
            affine = self.affine(index)
            if affine is None:
                value = self._gather(pointer, element, size, index, n, root)
            else:
                value = self._load_affine(pointer, element, size, affine, n, root)
        if is_bool:
            ty = memory_type(e.dtype)
            return self.op(f"icmp ne {ty} {value}, {'zeroinitializer' if ty[0] == '<' else '0'}")
        return value

    def _load_scalar(self, element: str, address: str, align: int, root: str) -> str:
        if self.mask is not None:
            ty = self.mask[: self.mask.index(">") + 1]
            some = self.inst(
                f"call i1 {self.mod.declare(f'llvm.vector.reduce.or.{suffix(ty)}', f'i1 ({ty})')}({self.mask})"
            )
            if "@.zeros = " not in "".join(self.mod.globals[:1]):
                self.mod.globals.insert(
                    0, "@.zeros = private unnamed_addr constant [64 x i8] zeroinitializer, align 64"
                )
            address = self.op(f"select i1 {some}, ptr {address}, ptr @.zeros")
        return self.load(element, address, align, root)

    def _load_affine(self, pointer: str, element: str, size: int, index: Affine, n: int, root: str) -> str:
        base, c, stride = index
        vec = vector(n, element)
        if stride == 0:
            scalar = self._load_scalar(element, self.address(pointer, element, size, base, c), size, root)
            return self.splat_value(scalar, element, n)
        if self.mask is not None or (n < 0 and stride != 1):
            if stride == 1:
                return self._masked_load(vec, self.address(pointer, element, size, base, c), size)
            return self._masked_gather(vec, element, pointer, self._lane_indices(index, n), size)
        if stride == 1:
            return self.load(vec, self.address(pointer, element, size, base, c), size, root)
        if stride == -1:
            low = self.load(vec, self.address(pointer, element, size, base, c - n + 1), size, root)
            order = ", ".join(f"i32 {n - 1 - i}" for i in range(n))
            return self.op(f"shufflevector {vec} {low}, {vec} poison, <{n} x i32> <{order}>")
        if stride == 2:
            # Two loads that end at the last element: elements 0..n-1 and n-1..2n-2.
            low = self.load(vec, self.address(pointer, element, size, base, c), size, root)
            high = self.load(vec, self.address(pointer, element, size, base, c + n - 1), size, root)
            picks = [2 * i if 2 * i < n else n + 2 * i - (n - 1) for i in range(n)]
            order = ", ".join(f"i32 {p}" for p in picks)
            return self.op(f"shufflevector {vec} {low}, {vec} {high}, <{n} x i32> <{order}>")
        scalars = [self.load(element, a, size, root) for a in self._lane_addresses(pointer, element, size, index, n)]
        return self.pack(scalars, element)

    def _lane_addresses(self, pointer: str, element: str, size: int, index: Affine, n: int) -> list[str]:
        base, c, stride = index
        if isinstance(stride, int):
            return [self.address(pointer, element, size, base, c + i * stride) for i in range(n)]
        first = self.address(pointer, element, size, base, c)
        return [first] + [
            self.op(f"getelementptr {element}, ptr {first}, i64 {self.mul64(stride, i)}") for i in range(1, n)
        ]

    def _lane_indices(self, index: Affine, n: int) -> str:
        base, c, stride = index
        if n < 0:
            return self._scalable_indices(index, n)
        step = ", ".join(f"i64 {i if isinstance(stride, str) else c + i * stride}" for i in range(n))
        vec = f"<{n} x i64>"
        lanes = f"<{step}>"
        if isinstance(stride, str):
            lanes = self.op(f"mul {vec} {lanes}, {self.splat_value(stride, 'i64', n)}")
            base = self.add64c(base, c)
        return self.op(f"add {vec} {lanes}, {self.splat_value(base, 'i64', n)}") if base else lanes

    def _scalable_indices(self, index: Affine, n: int) -> str:
        base, c, stride = index
        vec = vector(n, "i64")
        lanes = step_vector(self, vec)
        if stride != 1:
            lanes = self.op(f"mul {vec} {lanes}, {self.splat_value(str(stride), 'i64', n)}")
        start = self.add64c(base, c)
        return self.op(f"add {vec} {lanes}, {self.splat_value(start, 'i64', n)}") if start else lanes

    def _vector_index(self, index: E.PrimExpr, n: int) -> str:
        value = self.expr(index)
        if dt.bits(index.dtype) == 64:
            return value
        return self.op(
            f"{'zext' if dt.is_uint(index.dtype) else 'sext'} {llvm_type(index.dtype)} {value} to {vector(n, 'i64')}"
        )

    def _gather(self, pointer: str, element: str, size: int, index: E.PrimExpr, n: int, root: str) -> str:
        wide = self._vector_index(index, n)
        if self.mask is not None or n < 0:
            return self._masked_gather(vector(n, element), element, pointer, wide, size)
        scalars: list[str] = []
        for i in range(n):
            lane = self.op(f"extractelement <{n} x i64> {wide}, i64 {i}")
            scalars.append(self.load(element, self.address(pointer, element, size, lane, 0), size, root))
        return self.pack(scalars, element)

    def _masked_load(self, vec: str, address: str, align: int) -> str:
        callee = self.mod.declare(f"llvm.masked.load.{suffix(vec)}.p0", f"{vec} (ptr, {like(vec, 'i1')}, {vec})")
        return self.inst(f"call {vec} {callee}(ptr align {align} {address}, {self.mask}, {vec} zeroinitializer)")

    def _masked_gather(self, vec: str, element: str, pointer: str, wide: str, align: int) -> str:
        many = like(vec, "ptr")
        pointers = self.op(f"getelementptr {element}, ptr {pointer}, {like(vec, 'i64')} {wide}")
        name = f"llvm.masked.gather.{suffix(vec)}.{suffix(many)}"
        callee = self.mod.declare(name, f"{vec} ({many}, {like(vec, 'i1')}, {vec})")
        mask = self.mask or f"{like(vec, 'i1')} splat (i1 true)"
        return self.inst(f"call {vec} {callee}({many} align {align} {pointers}, {mask}, {vec} zeroinitializer)")

    def pack(self, scalars: list[str], element: str) -> str:
        """The vector of these scalars."""
        vec = f"<{len(scalars)} x {element}>"
        value = "poison"
        for i, s in enumerate(scalars):
            value = self.op(f"insertelement {vec} {value}, {element} {s}, i64 {i}")
        return value

    def store_buffer(self, b: Buffer, index: E.PrimExpr, value: E.PrimExpr, mask: str | None = None) -> None:
        """b[index] = value; vectors lane by lane; only the lanes of `mask` where given (`<n x i1> %m`)."""
        text = self.expr(value)
        element, size, align, is_bool = self.layouts.get(b) or self.layout(b)
        pointer = self.variable(b.data)
        n = dt.lanes(index.dtype)
        if is_bool:
            text = self.op(f"zext {llvm_type(value.dtype)} {text} to {memory_type(value.dtype)}")
        if n != 1 or element[0] == "<":
            self.vector_accesses += 1
        if n == 1:
            address = self.address(pointer, element, size, *self.index(index))
            self.do(f"store {element} {text}, ptr {address}, align {align}")
        else:
            self._store_vector(pointer, element, size, index, n, text, mask)
        self.clobber(pointer if b.data in self.distinct else None)

    def _store_vector(
        self, pointer: str, element: str, size: int, index: E.PrimExpr, n: int, text: str, mask: str | None
    ) -> None:
        vec = vector(n, element)
        affine = self.affine(index)
        if n < 0 and mask is None and (affine is None or affine[2] != 1):
            mask = f"{like(vec, 'i1')} splat (i1 true)"
        if affine is not None and affine[2] == 1:
            address = self.address(pointer, element, size, affine[0], affine[1])
            if mask is None:
                self.do(f"store {vec} {text}, ptr {address}, align {size}")
                return
            callee = self.mod.declare(f"llvm.masked.store.{suffix(vec)}.p0", f"void ({vec}, ptr, {like(vec, 'i1')})")
            self.do(f"call void {callee}({vec} {text}, ptr align {size} {address}, {mask})")
            return
        if mask is not None:
            wide = self._lane_indices(affine, n) if affine is not None else self._vector_index(index, n)
            many = like(vec, "ptr")
            pointers = self.op(f"getelementptr {element}, ptr {pointer}, {like(vec, 'i64')} {wide}")
            name = f"llvm.masked.scatter.{suffix(vec)}.{suffix(many)}"
            callee = self.mod.declare(name, f"void ({vec}, {many}, {like(vec, 'i1')})")
            self.do(f"call void {callee}({vec} {text}, {many} align {size} {pointers}, {mask})")
            return
        if affine is not None:
            addresses = self._lane_addresses(pointer, element, size, affine, n)
        else:
            wide = self._vector_index(index, n)
            lanes = [self.op(f"extractelement <{n} x i64> {wide}, i64 {i}") for i in range(n)]
            addresses = [self.address(pointer, element, size, lane, 0) for lane in lanes]
        for i, address in enumerate(addresses):
            lane = self.op(f"extractelement {vec} {text}, i64 {i}")
            self.do(f"store {element} {lane}, ptr {address}, align {size}")


def step_vector(w: Writer, vec: str) -> str:
    """0, 1, 2, ... in the lanes of a scalable vector type."""
    callee = w.mod.declare(f"llvm.stepvector.{suffix(vec)}", f"{vec} ()")
    return w.op(f"call {vec} {callee}()")
