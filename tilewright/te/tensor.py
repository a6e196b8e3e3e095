"""Tensor expressions: tensors defined by what each element is.

    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    f = te.create_prim_func([A, B])

A `Tensor` is output `value_index` of an operation: a `PlaceholderOp` (an input), a `ComputeOp` (an expression over axes) or
an `ExternOp` (a statement over buffers). Nothing is computed or scheduled here; `create_prim_func` makes loops of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from tilewright.arith.expr import IntImm, PrimExpr, SizeVar, Var, convert
from tilewright.ir import dtype as dt
from tilewright.ir.node import INFO, Node, node
from tilewright.ir.rewrite import substitute
from tilewright.support.lazy import resolve
from tilewright.te.tag import TagScope
from tilewright.tir.ir import Buffer, DataProducer, Evaluate, IterVar, PrimFunc, ProducerLoad, Range, Reduce, Stmt
from tilewright.tir.ir import decl_buffer as _decl_buffer

__all__ = [
    "ComputeOp",
    "ExternOp",
    "PlaceholderOp",
    "Tensor",
    "TensorSlice",
    "compute",
    "extern",
    "extern_primfunc",
    "placeholder",
    "reduce_axis",
    "size_var",
    "thread_axis",
    "var",
]


@node
class TensorOp(Node):
    """The root of operations; `outputs` are their tensors."""

    identity: ClassVar[bool] = True
    name: str

    @property
    def num_outputs(self) -> int:
        """How many tensors it gives."""
        return 1

    def output(self, i: int) -> Tensor:
        """The i-th tensor: the same object each time."""
        return self.outputs[i]  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def input_tensors(self) -> list[Tensor]:
        """The tensors it reads, in order of first use."""
        return []


@node
class Tensor(DataProducer):
    """Output `value_index` of `op`. `T[i, j]` is its element as an expression."""

    identity: ClassVar[bool] = True
    op: TensorOp
    value_index: int
    shape: tuple[PrimExpr, ...]
    element: str

    @property
    def dtype(self) -> str:
        """The element type."""
        return self.element

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def name(self) -> str:
        """The name of its operation, with the output's number where there are several."""
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}_v{self.value_index}"

    def __getitem__(self, indices: Any) -> Any:
        return self(*indices) if isinstance(indices, tuple) else self(indices)

    def __call__(self, *indices: Any) -> Any:
        """The element at the indices; with fewer than `ndim` of them, a slice that takes the rest."""
        n = len(self.shape)
        if len(indices) == n:
            return ProducerLoad(self, tuple(i if isinstance(i, PrimExpr) else _index(i) for i in indices))
        if len(indices) > n:
            raise ValueError(f"tensor {self.name} has {n} dimensions, but is read with {len(indices)} indices")
        return TensorSlice(self, indices)

    def astype(self, dtype: str) -> Tensor:
        """The tensor converted to `dtype`."""
        return resolve("topi").cast(self, dtype)

    # arithmetic on whole tensors, with broadcasting
    def __add__(self, other: Any) -> Tensor:
        return resolve("topi").add(self, other)

    def __radd__(self, other: Any) -> Tensor:
        return resolve("topi").add(other, self)

    def __sub__(self, other: Any) -> Tensor:
        return resolve("topi").subtract(self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return resolve("topi").subtract(other, self)

    def __mul__(self, other: Any) -> Tensor:
        return resolve("topi").multiply(self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return resolve("topi").multiply(other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return resolve("topi").divide(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return resolve("topi").divide(other, self)

    def __neg__(self) -> Tensor:
        return resolve("topi").negative(self)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def _index(i: Any) -> PrimExpr:
    e = convert(i)
    if not (dt.is_int(e.dtype) or dt.is_bool(e.dtype)):
        raise TypeError(f"an index must be an integer, got {e.dtype}")
    return e


class TensorSlice:
    """A tensor with its first indices given: `T[i][j]` is `T[i, j]`."""

    def __init__(self, tensor: Tensor, indices: tuple[Any, ...]) -> None:
        self.tensor, self.indices = tensor, indices

    def __getitem__(self, indices: Any) -> Any:
        more = indices if isinstance(indices, tuple) else (indices,)
        return self.tensor(*self.indices, *more)

    @property
    def dtype(self) -> str:
        """The element type."""
        return self.tensor.dtype


@node
class PlaceholderOp(TensorOp):
    """An input."""

    shape: tuple[PrimExpr, ...]
    dtype: str
    outputs: Annotated[list[Tensor], INFO]


@node
class ComputeOp(TensorOp):
    """Each element of the outputs is `body[value_index]` at the point `axis`."""

    tag: str
    attrs: dict[str, Any]
    axis: tuple[IterVar, ...]
    body: tuple[PrimExpr, ...]
    outputs: Annotated[list[Tensor], INFO]

    @property
    def num_outputs(self) -> int:
        """How many tensors it gives."""
        return len(self.body)

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The axes it reduces over."""
        first = self.body[0]
        return first.axis if isinstance(first, Reduce) else ()

    @property
    def input_tensors(self) -> list[Tensor]:
        """The tensors it reads, in order of first use."""
        out: dict[Tensor, None] = {}
        for e in self.body:
            for x in _producers(e):
                out[x] = None
        return list(out)


@node
class ExternOp(TensorOp):
    """`body` is a statement that reads `input_buffers` and writes `output_buffers`."""

    tag: str
    attrs: dict[str, Any]
    inputs: tuple[Tensor, ...]
    input_buffers: tuple[Buffer, ...]
    output_buffers: tuple[Buffer, ...]
    body: Stmt
    outputs: Annotated[list[Tensor], INFO]

    @property
    def num_outputs(self) -> int:
        """How many tensors it gives."""
        return len(self.output_buffers)

    @property
    def input_tensors(self) -> list[Tensor]:
        """The tensors it reads."""
        return list(self.inputs)


def _producers(e: Any) -> list[Tensor]:
    """The tensors that an expression reads, in order, with repetitions."""
    out: list[Tensor] = []
    stack: list[Any] = [e]
    while stack:
        x = stack.pop()
        kind = type(x)
        if kind is Var or kind is IntImm or kind is SizeVar:
            continue
        if kind is ProducerLoad:
            out.append(x.producer)
            stack.extend(reversed(x.indices))
            continue
        for f in reversed(kind.node_fields):
            v = getattr(x, f.name)
            if isinstance(v, PrimExpr):
                stack.append(v)
            elif isinstance(v, tuple):
                stack.extend(i for i in reversed(v) if isinstance(i, PrimExpr))
    return out


def _shape(shape: Any) -> tuple[PrimExpr, ...]:
    if isinstance(shape, (PrimExpr, int)):
        shape = (shape,)
    return tuple(convert(s) for s in shape)


def placeholder(shape: Any, dtype: str = "float32", name: str = "placeholder") -> Tensor:
    """An input tensor."""
    dims = _shape(shape)
    op = PlaceholderOp(name, dims, dtype, [])
    op.outputs.append(Tensor(op, 0, dims, dtype))
    return op.outputs[0]


def var(name: str = "tindex", dtype: str = "int32") -> Var:
    """A new scalar variable."""
    return Var(name, dtype)


def size_var(name: str = "size", dtype: str = "int32") -> SizeVar:
    """A new variable for a size: never negative."""
    return SizeVar(name, dtype)


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "") -> IterVar:
    """An axis to reduce over; `dom` is `(begin, end)` or a Range."""
    return _iter_var(dom, name, IterVar.CommReduce, thread_tag)


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> IterVar:
    """A GPU thread axis, such as `threadIdx.x`."""
    if isinstance(dom, str):
        tag, dom = dom, None
    if dom is None:
        return IterVar(None, Var(name or tag, "int32"), IterVar.ThreadIndex, tag)
    if isinstance(dom, (int, PrimExpr)):
        dom = (0, dom)
    return _iter_var(dom, name or tag, IterVar.ThreadIndex, tag)


def _iter_var(dom: Any, name: str, kind: int, tag: str = "") -> IterVar:
    if not isinstance(dom, Range):
        begin, end = convert(dom[0]), convert(dom[1])
        if begin.dtype != end.dtype:
            begin = begin.astype(end.dtype) if isinstance(begin, IntImm) else begin
            end = end.astype(begin.dtype)
        dom = Range(begin, end - begin)
    return IterVar(dom, Var(name, dom.extent.dtype), kind, tag)


def _axis_names(f: Callable[..., Any], n: int) -> list[str]:
    """One name for each of `n` axes, from the parameters of `f`. Raises ValueError where `f` takes another number."""
    code = getattr(f, "__code__", None)
    if code is not None and not code.co_flags & inspect.CO_VARARGS and not inspect.ismethod(f):
        names = list(code.co_varnames[: code.co_argcount])
        required = len(names) - len(getattr(f, "__defaults__", None) or ())
        if required <= n <= len(names):
            return names[:n]
        raise ValueError(f"the function takes {len(names)} axes, but the shape has {n} dimensions")
    return [f"i{i}" for i in range(n)]


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """A tensor of `shape` whose element at (i, j, ...) is `fcompute(i, j, ...)`.

    A tuple of results gives a tuple of tensors. A reduction (`te.sum`, ...) must be the whole result. Raises ValueError when
    `fcompute` takes another number of axes, or when a reduction stands inside an expression.
    """
    dims = _shape(shape)
    names = list(varargs_names) if varargs_names else _axis_names(fcompute, len(dims))
    axis: list[IterVar] = []
    for d, axis_name in zip(dims, names, strict=True):
        axis.append(IterVar(Range(IntImm(d.dtype, 0), d), Var(axis_name, d.dtype), IterVar.DataPar))
    result = fcompute(*(a.var for a in axis))
    several = isinstance(result, (tuple, list))
    body = tuple(convert(r) for r in (result if several else (result,)))
    _check_reductions(name, body)
    scope = TagScope.get_current()
    op = ComputeOp(name, tag or (scope.tag if scope else ""), dict(attrs or {}), tuple(axis), body, [])
    op.outputs.extend(Tensor(op, i, dims, e.dtype) for i, e in enumerate(body))
    return tuple(op.outputs) if several else op.outputs[0]


def _check_reductions(name: str, body: tuple[PrimExpr, ...]) -> None:
    reductions = [isinstance(e, Reduce) for e in body]
    if any(reductions) and not all(reductions):
        raise ValueError(f"compute {name}: either all of the results are reductions or none")
    roots: list[Any] = []
    for e in body:
        roots.extend([*e.source, e.condition] if isinstance(e, Reduce) else [e])
    while roots:
        x = roots.pop()
        if type(x) is Reduce:
            raise ValueError(f"compute {name}: a reduction must be the whole result; compute it as a tensor of its own")
        for f in x.node_fields:
            v = getattr(x, f.name)
            if isinstance(v, PrimExpr) and type(v) is not Var:
                roots.append(v)
            elif isinstance(v, tuple):
                roots.extend(i for i in v if isinstance(i, PrimExpr) and type(i) is not Var)


def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fcompute: Callable[[list[Buffer], list[Buffer]], Any],
    name: str = "extern",
    dtype: str | Sequence[str] | None = None,
    in_buffers: Sequence[Buffer] | None = None,
    out_buffers: Sequence[Buffer] | None = None,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Tensors that the statement `fcompute(input buffers, output buffers)` computes.

    `shape` is one shape, or a list of them for several outputs; `dtype` one or several, by default that of the only input.
    A call expression as the result is evaluated. Raises ValueError where the dtype cannot be told.
    """
    several = bool(shape) and isinstance(shape, (list, tuple)) and isinstance(shape[0], (list, tuple))
    shapes = [_shape(s) for s in shape] if several else [_shape(shape)]
    if dtype is None:
        kinds = {t.dtype for t in inputs}
        if len(kinds) != 1:
            raise ValueError(f"extern {name}: give the dtype, the inputs have {sorted(kinds) or 'none'}")
        dtype = kinds.pop()
    dtypes = [dtype] * len(shapes) if isinstance(dtype, str) else list(dtype)
    ins = list(in_buffers) if in_buffers else [_decl_buffer(t.shape, t.dtype, t.name) for t in inputs]
    outs = (
        list(out_buffers)
        if out_buffers
        else [
            _decl_buffer(s, d, name if len(shapes) == 1 else f"{name}_v{i}")
            for i, (s, d) in enumerate(zip(shapes, dtypes))
        ]
    )
    body = fcompute(ins, outs)
    if isinstance(body, PrimExpr):
        body = Evaluate(body)
    if not isinstance(body, Stmt):
        raise TypeError(f"extern {name}: the function must give a statement or a call, got {type(body).__name__}")
    return _extern_op(name, tag, attrs, inputs, ins, outs, body)


def _extern_op(
    name: str, tag: str, attrs: Mapping[str, Any] | None, inputs: Sequence[Tensor], ins: Sequence[Buffer],
    outs: Sequence[Buffer], body: Stmt,
) -> Any:  # fmt: skip
    op = ExternOp(name, tag, dict(attrs or {}), tuple(inputs), tuple(ins), tuple(outs), body, [])
    op.outputs.extend(Tensor(op, i, b.shape, b.dtype) for i, b in enumerate(outs))
    return op.outputs[0] if len(outs) == 1 else tuple(op.outputs)


def extern_primfunc(inputs: Sequence[Tensor], primfunc: PrimFunc, name: str | None = None) -> Any:
    """The tensors that `primfunc` writes, its first `len(inputs)` buffer parameters being the inputs.

    The parameters after those are the outputs. Raises ValueError when shapes or dtypes of inputs and parameters differ in
    rank or type, or when there is no output parameter.
    """
    buffers = primfunc.param_buffers
    ins, outs = buffers[: len(inputs)], buffers[len(inputs) :]
    if not outs:
        raise ValueError("extern_primfunc: the function has no parameter left for an output")
    for t, b in zip(inputs, ins, strict=True):
        if t.ndim != b.ndim or t.dtype != b.dtype:
            raise ValueError(
                f"extern_primfunc: input {t.name} is {t.dtype} of rank {t.ndim}, parameter {b.name} is {b.dtype} of rank {b.ndim}"
            )
    dims = {d: e for t, b in zip(inputs, ins) for d, e in zip(b.shape, t.shape) if isinstance(d, Var) and d is not e}
    if dims:
        primfunc = substitute(primfunc, dims)
        buffers = primfunc.param_buffers
        ins, outs = buffers[: len(inputs)], buffers[len(inputs) :]
    label: Any = name or primfunc.attrs.get("global_symbol") or "extern_primfunc"
    return _extern_op(label, "", None, inputs, ins, outs, primfunc.body)
