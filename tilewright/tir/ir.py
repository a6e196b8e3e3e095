"""TensorIR: the loop IR, and what it means.

    f    ::= PrimFunc(params, body, ret_type, buffer_map, attrs)       a param is a scalar Var, or a handle that buffer_map
                                                                       binds to a Buffer
    e    ::= (scalar expressions of arith/expr.py) | BufferLoad(buffer, indices) | ProducerLoad | Reduce
    s    ::= BufferStore(buffer, value, indices)                       indices: one per dimension; the last may be a vector
           | For(loop_var, min, extent, kind, body, thread_binding, annotations)
           | While(condition, body) | IfThenElse(condition, then_case, else_case) | SeqStmt(seq) | Evaluate(value)
           | LetStmt(var, value, body) | AssertStmt(condition, message, body) | AttrStmt(node, attr_key, value, body)
           | Allocate(buffer_var, dtype, extents, condition, body, annotations) | AllocateConst | DeclBuffer(buffer, body)
           | BufferRealize(buffer, bounds, condition, body)
           | BlockRealize(iter_values, predicate, block)
           | Block(iter_vars, reads, writes, name_hint, body, init, alloc_buffers, match_buffers, annotations)

A Buffer is a typed, shaped view of the memory behind `data`: element (i, j) lies at `elem_offset + i*strides[0] +
j*strides[1]`, in elements; no strides means row-major and compact. `scope` is the memory (`global`, `local`, `shared`, ...).

A block is a computation at one point of its iteration domain. Its iter_vars are `spatial` (data parallel), `reduce`
(commutative), `scan` (ordered) or `opaque`; BlockRealize binds them to values and runs the block where `predicate` holds.
`init` runs before `body` at each point where every reduce iter is at the start of its domain. `alloc_buffers` live as long
as one run of the block; `match_buffers` are views of regions of other buffers. `reads`/`writes` declare the regions touched.

Loop kinds: SERIAL; PARALLEL (any order, many threads); VECTORIZED (all iterations in lanes of one instruction); UNROLLED
(expanded at compile time); THREAD_BINDING (one GPU thread index each, see `thread_binding`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Annotated, Any, ClassVar

from tilewright.arith.expr import ExprLike, IntImm, PrimExpr, Ramp, Var, convert, pointer_var
from tilewright.ir import dtype as dt
from tilewright.ir.module import BaseFunc
from tilewright.ir.node import DEF, INFO, Node, derived, node, replace
from tilewright.ir.op import Type
from tilewright.support.lazy import resolve

__all__ = [
    "Allocate", "AllocateConst", "AssertStmt", "AttrStmt", "Block", "BlockRealize", "Buffer", "BufferLoad", "BufferRealize",
    "BufferRegion", "BufferStore", "CommReducer", "DeclBuffer", "DataProducer", "Evaluate", "For", "ForKind", "IfThenElse",
    "IterVar", "LetStmt", "MatchBufferRegion", "PrimFunc", "ProducerLoad", "Range", "Reduce", "SeqStmt", "Stmt", "While",
    "decl_buffer", "seq", "stmt_list", "stmt_seq",
]  # fmt: skip


class ForKind(IntEnum):
    """How the iterations of a loop run."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4


@node
class Range(Node):
    """The integers min, min + 1, ..., min + extent - 1."""

    min: PrimExpr
    extent: PrimExpr

    @staticmethod
    def from_min_extent(min_value: ExprLike, extent: ExprLike) -> Range:
        """A range from its start and its length; numbers become constants."""
        return Range(convert(min_value), convert(extent))


@node
class IterVar(Node):
    """An axis: a variable with its domain and its kind (the classmethod constants)."""

    dom: Range | None
    var: Annotated[Var, DEF]
    iter_type: int = 0
    thread_tag: str = ""

    # iter_type
    DataPar = 0  # spatial
    ThreadIndex = 1
    CommReduce = 2  # reduce
    Ordered = 3  # scan
    Opaque = 4
    Unrolled = 5
    Vectorized = 6
    Parallelized = 7
    Tensorized = 8

    @property
    def dtype(self) -> str:
        """The dtype of the variable."""
        return self.var.dtype

    def asobject(self) -> PrimExpr:
        """The variable, where an expression is wanted."""
        return self.var

    def __add__(self, other: Any) -> PrimExpr:
        return self.var + convert(other)

    def __radd__(self, other: Any) -> PrimExpr:
        return convert(other) + self.var

    def __sub__(self, other: Any) -> PrimExpr:
        return self.var - convert(other)

    def __rsub__(self, other: Any) -> PrimExpr:
        return convert(other) - self.var

    def __mul__(self, other: Any) -> PrimExpr:
        return self.var * convert(other)

    def __rmul__(self, other: Any) -> PrimExpr:
        return convert(other) * self.var

    def __floordiv__(self, other: Any) -> PrimExpr:
        return self.var // convert(other)

    def __mod__(self, other: Any) -> PrimExpr:
        return self.var % convert(other)

    def __rfloordiv__(self, other: Any) -> PrimExpr:
        return convert(other) // self.var

    def __rmod__(self, other: Any) -> PrimExpr:
        return convert(other) % self.var

    def __neg__(self) -> PrimExpr:
        return -self.var

    def __lt__(self, other: Any) -> PrimExpr:
        return self.var < convert(other)

    def __le__(self, other: Any) -> PrimExpr:
        return self.var <= convert(other)

    def __gt__(self, other: Any) -> PrimExpr:
        return self.var > convert(other)

    def __ge__(self, other: Any) -> PrimExpr:
        return self.var >= convert(other)

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, (PrimExpr, int, IterVar)):
            return self.var == convert(other)
        return NotImplemented

    def __ne__(self, other: Any) -> Any:
        if isinstance(other, (PrimExpr, int, IterVar)):
            return self.var != convert(other)
        return NotImplemented

    __hash__ = object.__hash__

    def astype(self, dtype: str) -> PrimExpr:
        """The variable's value converted to `dtype`."""
        return self.var.astype(dtype)


@node
class Buffer(Node):
    """A typed, shaped view of memory; identity is the object. See the head of the module."""

    identity: ClassVar[bool] = True
    READ: ClassVar[int] = 1  # access masks of access_ptr
    WRITE: ClassVar[int] = 2
    data: Annotated[Var, DEF]
    dtype: str
    shape: tuple[PrimExpr, ...]
    strides: tuple[PrimExpr, ...] = ()
    elem_offset: PrimExpr | None = None
    name: Annotated[str, INFO] = "buffer"
    data_alignment: int = 64
    offset_factor: int = 0
    axis_separators: tuple[int, ...] = ()

    def scope(self) -> str:
        """The memory it lives in: `global`, `local`, `shared`, ..."""
        return getattr(self.data.type_annotation, "storage_scope", "global")

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def access_ptr(
        self,
        access_mask: int | str,
        ptr_type: str = "handle",
        content_lanes: int = 1,
        offset: ExprLike = 0,
        extent: ExprLike | None = None,
    ) -> PrimExpr:
        """A pointer into the buffer for reading (1, "r"), writing (2, "w") or both, as a call of `tvm_access_ptr`."""
        from tilewright.tir.buffer_views import access_ptr

        return access_ptr(self, access_mask, ptr_type, content_lanes, offset, extent)

    def offset_of(self, indices: Sequence[ExprLike]) -> list[PrimExpr]:
        """How many elements behind `data` the element at `indices` lies."""
        from tilewright.tir.buffer_views import offset_of

        return offset_of(self, indices)

    def get_flattened_buffer(self) -> Buffer:
        """The same memory as a buffer of one dimension (one more for each axis separator)."""
        from tilewright.tir.buffer_views import flattened

        return flattened(self)

    def __getitem__(self, indices: Any) -> Any:
        """`A[i, j]` is the element as an expression; with a slice in it, the region (BufferRegion)."""
        items: tuple[Any, ...] = indices if isinstance(indices, tuple) else (indices,)
        if any(isinstance(i, slice) and i.step is None for i in items):
            return BufferRegion(self, tuple(_range_of(i, n) for i, n in zip(items, self.shape, strict=True)))
        return BufferLoad(self, tuple(_index_of(i) for i in items))

    def vload(self, begin: Sequence[ExprLike], dtype: str | None = None) -> PrimExpr:
        """The vector of `dtype` that starts at `begin`, along the last dimension."""
        idx = [convert(i) for i in begin]
        n = dt.lanes(dtype) if dtype else 1
        if n > 1:
            idx[-1] = Ramp(idx[-1], IntImm(idx[-1].dtype, 1), n)
        return BufferLoad(self, tuple(idx))

    def vstore(self, begin: Sequence[ExprLike], value: PrimExpr) -> Stmt:
        """Store the lanes of `value` from `begin` on, along the last dimension."""
        idx = [convert(i) for i in begin]
        n = dt.lanes(value.dtype)
        if n > 1:
            idx[-1] = Ramp(idx[-1], IntImm(idx[-1].dtype, 1), n)
        return BufferStore(self, value, tuple(idx))


def _index_of(i: Any) -> PrimExpr:
    if isinstance(i, slice):
        start, stop, step = convert(i.start), convert(i.stop), convert(i.step)
        if not isinstance(step, IntImm) or step.value < 1:
            raise ValueError(f"the step of a slice is a positive constant, not {step}")
        extent = resolve("arith.simplify")((stop - start + step - 1) // step)  # as Python counts: 1:16:8 are two
        if not isinstance(extent, IntImm):
            raise ValueError(f"a strided slice needs a constant length, got {extent}")
        return start if extent.value == 1 else Ramp(start, IntImm(start.dtype, step.value), extent.value)
    return convert(i)


def _range_of(i: Any, n: PrimExpr) -> Range:
    if isinstance(i, slice):
        start = convert(0, n.dtype) if i.start is None else convert(i.start)
        stop = n if i.stop is None else convert(i.stop)
        return Range(start, stop - start)
    index = convert(i)
    return Range(index, IntImm(index.dtype, 1))


@node
class BufferRegion(Node):
    """A box of a buffer: one range a dimension."""

    buffer: Buffer
    region: tuple[Range, ...]


@node
class MatchBufferRegion(Node):
    """`buffer` is a view of the region `source`."""

    buffer: Annotated[Buffer, DEF]
    source: BufferRegion


@node
class BufferLoad(PrimExpr):
    """The element at `indices`; vector indices load a vector."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    dtype: str = derived("load_dtype(buffer.dtype, indices)")


def load_dtype(dtype: str, indices: Sequence[PrimExpr]) -> str:
    n = dt.lanes(indices[-1].dtype) if indices else 1
    return dtype if n == 1 else dt.with_lanes(dtype, n * dt.lanes(dtype))


@node
class DataProducer(Node):
    """The root of what a ProducerLoad reads: a te.Tensor."""

    @property
    def dtype(self) -> str:
        """The element type."""
        raise TypeError(f"{type(self).__name__} has no dtype")


@node
class ProducerLoad(PrimExpr):
    """The element of a tensor expression at `indices`; gone once a PrimFunc is made."""

    producer: DataProducer
    indices: tuple[PrimExpr, ...]
    dtype: str = derived("producer.dtype")


@node
class CommReducer(Node):
    """How a reduction combines: `result[i]` is an expression of `lhs` (so far) and `rhs` (new); `identity_element` starts it."""

    lhs: Annotated[tuple[Var, ...], DEF]
    rhs: Annotated[tuple[Var, ...], DEF]
    result: tuple[PrimExpr, ...]
    identity_element: tuple[PrimExpr, ...]


@node
class Reduce(PrimExpr):
    """A reduction of `source[value_index]` over the axes `axis`; only as the body of a te.compute."""

    combiner: CommReducer
    source: tuple[PrimExpr, ...]
    axis: tuple[IterVar, ...]
    condition: PrimExpr
    value_index: int
    init: tuple[PrimExpr, ...] = ()
    dtype: str = derived("source[value_index].dtype")


@node
class Stmt(Node):
    """The root of statements."""


@node
class BufferStore(Stmt):
    """buffer[indices] = value"""

    buffer: Buffer
    value: PrimExpr
    indices: tuple[PrimExpr, ...]


@node
class LetStmt(Stmt):
    """`body` with `var` standing for `value`, which is evaluated once."""

    var: Annotated[Var, DEF]
    value: PrimExpr
    body: Stmt


@node
class AttrStmt(Stmt):
    """An attribute of a region of code: `node` has `attr_key` = `value` in `body`."""

    node: Any
    attr_key: str
    value: PrimExpr
    body: Stmt


@node
class AssertStmt(Stmt):
    """Stops with `message` unless `condition` holds, then runs `body`."""

    condition: PrimExpr
    message: PrimExpr
    body: Stmt


@node
class Allocate(Stmt):
    """Raw memory for `extents` elements of `dtype`, behind `buffer_var`, alive in `body`."""

    buffer_var: Annotated[Var, DEF]
    dtype: str
    extents: tuple[PrimExpr, ...]
    condition: PrimExpr
    body: Stmt
    annotations: dict[str, Any] = {}


@node
class AllocateConst(Stmt):
    """Constant memory: `data` (a numpy array) behind `buffer_var` in `body`."""

    buffer_var: Annotated[Var, DEF]
    dtype: str
    extents: tuple[PrimExpr, ...]
    data: Any
    body: Stmt
    annotations: dict[str, Any] = {}


@node
class DeclBuffer(Stmt):
    """`buffer`, a view of memory that exists already, may be used in `body`."""

    buffer: Annotated[Buffer, DEF]
    body: Stmt


@node
class BufferRealize(Stmt):
    """`buffer` has memory for `bounds` in `body`."""

    buffer: Annotated[Buffer, DEF]
    bounds: tuple[Range, ...]
    condition: PrimExpr
    body: Stmt


@node
class SeqStmt(Stmt):
    """One after the other."""

    seq: tuple[Stmt, ...]

    def __getitem__(self, i: int) -> Stmt:
        return self.seq[i]

    def __len__(self) -> int:
        return len(self.seq)


@node
class IfThenElse(Stmt):
    """`then_case` if `condition`, else `else_case`."""

    condition: PrimExpr
    then_case: Stmt
    else_case: Stmt | None = None


@node
class Evaluate(Stmt):
    """Evaluate a call for its effect; `Evaluate(0)` does nothing."""

    value: PrimExpr


@node
class For(Stmt):
    """`for loop_var in range(min, min + extent): body`; `kind` says how the iterations run."""

    loop_var: Annotated[Var, DEF]
    min: PrimExpr
    extent: PrimExpr
    kind: ForKind
    body: Stmt
    thread_binding: IterVar | None = None
    annotations: dict[str, Any] = {}


@node
class While(Stmt):
    """`while condition: body`"""

    condition: PrimExpr
    body: Stmt


@node
class Block(Stmt):
    """A computation at one point of its iteration domain; see the head of the module."""

    iter_vars: Annotated[tuple[IterVar, ...], DEF]
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    name_hint: Annotated[str, INFO]
    body: Stmt
    init: Stmt | None = None
    alloc_buffers: Annotated[tuple[Buffer, ...], DEF] = ()
    match_buffers: tuple[MatchBufferRegion, ...] = ()
    annotations: dict[str, Any] = {}


@node
class BlockRealize(Stmt):
    """Run `block` with its iter_vars bound to `iter_values`, where `predicate` holds."""

    iter_values: tuple[PrimExpr, ...]
    predicate: PrimExpr
    block: Block


@node
class PrimFunc(BaseFunc):
    """A function of the loop IR; see the head of the module."""

    params: Annotated[tuple[Var, ...], DEF]
    body: Stmt
    ret_type: Type | None = None
    buffer_map: Annotated[dict[Var, Buffer], DEF] = {}
    attrs: dict[str, Any] = {}

    def __init__(
        self,
        params: Sequence[Var | Buffer],
        body: Stmt,
        ret_type: Type | None = None,
        buffer_map: Mapping[Var, Buffer] | None = None,
        attrs: Mapping[str, Any] | None = None,
        *,
        span: Any = None,
    ) -> None:
        """A Buffer among `params` stands for a handle that is bound to it."""
        if any(p.__class__ is Buffer for p in params):
            handles = {id(p): Var(p.name, "handle") for p in params if isinstance(p, Buffer)}
            buffer_map = {**(buffer_map or {}), **{handles[id(p)]: p for p in params if isinstance(p, Buffer)}}
            params = [handles[id(p)] if isinstance(p, Buffer) else p for p in params]
        self.params, self.body, self.ret_type = tuple(params), body, ret_type  # pyright: ignore
        self.buffer_map, self.attrs, self.span = buffer_map or {}, attrs or {}, span  # pyright: ignore

    @property
    def param_buffers(self) -> list[Buffer]:
        """The buffers of the params that are buffers, in order."""
        return [self.buffer_map[p] for p in self.params if p in self.buffer_map]

    @property
    def __name__(self) -> str:
        """The function's name: its `global_symbol`, or `main`."""
        return str(self.attrs.get("global_symbol") or "main")

    @property
    def struct_info(self) -> Any:
        """What a graph sees of it: a relax.FuncStructInfo."""
        return resolve("relax.prim_func_info")(self)

    def with_body(self, new_body: Stmt, span: Any = None) -> PrimFunc:
        """The same function with another body."""
        del span
        return replace(self, body=new_body)

    def specialize(self, param_map: Mapping[Var, Any]) -> PrimFunc:
        """The function with parameters fixed: scalars by values, buffers (and so their symbolic sizes) by buffers.

        Raises CompileError TW0541 where a value contradicts the function.
        """
        from tilewright.tir.specialize import specialize

        return specialize(self, param_map)


def seq(*stmts: Stmt | Sequence[Stmt] | None) -> Stmt:
    """The statements one after the other, nested sequences flattened; a lone one is itself."""
    flat: list[Stmt] = []
    for s in stmts:
        if s is None:
            continue
        if isinstance(s, SeqStmt):
            flat.extend(s.seq)
        elif isinstance(s, Stmt):
            flat.append(s)
        else:
            flat.extend(s)
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


def stmt_seq(*args: Any) -> Stmt:
    """The statements (expressions are evaluated) one after the other."""
    return seq(*(a if isinstance(a, Stmt) else Evaluate(convert(a)) for a in args))


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """The statements of a sequence, nested ones in a row; a lone one by itself."""
    return [s for x in stmt.seq for s in stmt_list(x)] if isinstance(stmt, SeqStmt) else [stmt]


def decl_buffer(
    shape: Sequence[ExprLike] | ExprLike,
    dtype: str = "float32",
    name: str = "buffer",
    data: Var | None = None,
    strides: Sequence[ExprLike] = (),
    elem_offset: ExprLike | None = None,
    scope: str = "",
    data_alignment: int = 64,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] = (),
) -> Buffer:
    """A new buffer; without `data`, a new pointer variable of the same name. `offset_factor` without `elem_offset` means
    that it begins anywhere: the offset is a new variable."""
    del buffer_type
    dims = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
    dtype = dt.canonical(str(dtype))
    cuts = [int(a) for a in axis_separators]
    if cuts != sorted(set(cuts)) or any(not 0 <= a <= len(dims) for a in cuts):  # pyright: ignore[reportUnknownArgumentType]
        raise ValueError(
            f"axis separators of {len(dims)} dimensions lie in order between 0 and {len(dims)}, got {cuts}"
        )  # pyright: ignore
    if elem_offset is None and offset_factor:
        kind = convert(dims[0]).dtype if dims else "int32"  # pyright: ignore[reportUnknownArgumentType]
        elem_offset = Var(f"{name}_elem_offset", kind)
    elif isinstance(elem_offset, (int, IntImm)) and int(elem_offset) == 0:
        elem_offset = None
    return Buffer(
        data if data is not None else pointer_var(name, dtype, scope or "global"),
        dtype,
        tuple(convert(d) for d in dims),  # pyright: ignore[reportUnknownArgumentType]
        tuple(convert(s) for s in strides),
        None if elem_offset is None else convert(elem_offset),
        name,
        data_alignment if data_alignment > 0 else 64,
        offset_factor if offset_factor != 1 else 0,
        tuple(axis_separators),
    )


StmtFunctor = Callable[[Stmt], Stmt]
BufferMap = Mapping[Var, Buffer]
