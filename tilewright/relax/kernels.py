"""Kernels from tensor expressions: how `call_te` makes a PrimFunc of graph operands, and the call of it.

The kernel has symbols of its own: each dimension symbol of the operands is a new variable in it, and what no buffer's shape
tells by a dimension that is just the symbol becomes a scalar parameter (`tir_vars` of the call). A constant of one element
is no parameter: its value is written into the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.arith import expr as E
from tilewright.arith.expr import PrimExpr
from tilewright.ir.node import Node, children, replace
from tilewright.relax import ir as R
from tilewright.relax.calls import call_tir
from tilewright.relax.dims import dim_key
from tilewright.relax.op import Op
from tilewright.relax.struct_info import (
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    free_symbols,
    shape_of,
    simplify_dim,
    substitute_symbols,
)

if TYPE_CHECKING:
    from tilewright.relax.block_builder import BlockBuilder

__all__ = ["call_te", "inline_scalar", "kernel_name", "mentioned"]


def kernel_name(func: Callable[..., Any]) -> str:
    """A kernel's name: of the operator whose `compute` it is, or of the function."""
    owner = getattr(func, "__self__", None)
    name = owner.name.rpartition(".")[2] if isinstance(owner, Op) else getattr(func, "__name__", "kernel")
    name = name.strip("<>")
    return "".join(c if c.isalnum() else "_" for c in name)


class _Operands:
    """Graph operands as tensor expressions: placeholders, renamed symbols, and what the kernel is called with."""

    def __init__(self) -> None:
        self.inputs: list[R.Expr] = []
        self.placeholders: list[Any] = []
        self.immediates: list[tuple[Any, PrimExpr]] = []
        self.fresh: dict[E.Var, PrimExpr] = {}
        self.key: list[Any] = []
        self._seen: dict[int, Any] = {}

    def symbol(self, v: E.Var) -> PrimExpr:
        found = self.fresh.get(v)
        if found is None:
            found = self.fresh[v] = type(v)(v.name, v.dtype)
        return found

    def scalar(self, e: PrimExpr) -> PrimExpr:
        if isinstance(e, (E.IntImm, E.FloatImm)):
            return e
        for v in free_symbols(e):
            self.symbol(v)
        return substitute_symbols(e, self.fresh)

    def tensor(self, x: R.Expr, si: TensorStructInfo) -> Any:
        from tilewright.te import placeholder

        found = self._seen.get(id(x))
        if found is not None:
            return found
        shape = tuple(self.scalar(d) for d in shape_of(x, f"operand {getattr(x, 'name_hint', 'constant')!r}"))
        name = _identifier(getattr(x, "name_hint", "const"), len(self.placeholders))
        made = placeholder(shape, si.dtype, name=name)
        if isinstance(x, R.Constant) and x.data.size == 1:
            self.immediates.append((made, E.const(x.data.reshape(()).item(), si.dtype)))
        else:
            self.inputs.append(x)
            self.placeholders.append(made)
        self._seen[id(x)] = made
        return made

    def convert(self, x: Any) -> Any:
        """An operand as the tensor function takes it."""
        if isinstance(x, R.ShapeExpr):
            return tuple(self.scalar(d) for d in x.values)
        if isinstance(x, R.PrimValue):
            return self.scalar(x.value)
        if isinstance(x, R.Tuple):
            return [self.convert(f) for f in x.fields]
        if isinstance(x, (R.StringImm, R.DataTypeImm)):
            return x.value
        if isinstance(x, R.Expr):
            return self._known(x)
        if isinstance(x, PrimExpr):
            return self.scalar(x)
        if isinstance(x, (list, tuple)):
            made = [self.convert(v) for v in x]
            return made if isinstance(x, list) else tuple(made)
        if isinstance(x, dict):
            return {k: self.convert(v) for k, v in x.items()}
        return x

    def _known(self, x: R.Expr) -> Any:
        si = x.struct_info
        if isinstance(si, TensorStructInfo):
            return self.tensor(x, si)
        if isinstance(si, ShapeStructInfo) and si.values is not None:
            return tuple(self.scalar(d) for d in si.values)
        if isinstance(si, TupleStructInfo):
            return [self._known(R.TupleGetItem(x, i, struct_info=f)) for i, f in enumerate(si.fields)]
        value = getattr(si, "value", None)
        if isinstance(value, PrimExpr):
            return self.scalar(value)
        raise TypeError(f"a kernel cannot take {type(x).__name__} of which only {si} is known")


def _identifier(name: str, i: int) -> str:
    text = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return text if text and not text[0].isdigit() else f"p{i}"


def call_te(bb: BlockBuilder, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> R.Call:
    """See BlockBuilder.call_te."""
    from tilewright.te import create_prim_func

    key, tensors_given = _signature(func, args, kwargs)
    memo = bb.kernel_memo.get(key) if key is not None else None
    if memo is not None and memo.gv in bb.get().functions:
        inputs = [bb.normalize(tensors_given[i]) for i in memo.inputs]
        return call_tir(memo.gv, inputs, memo.out, memo.symbols)

    options = dict(kwargs)
    name = options.pop("primfunc_name_hint", None) or kernel_name(func)
    attrs = options.pop("primfunc_attrs", None)
    operands = _Operands()
    outs = func(*(operands.convert(a) for a in args), **{k: operands.convert(v) for k, v in options.items()})
    results = list(outs) if isinstance(outs, (list, tuple)) else [outs]
    back: dict[E.Var, PrimExpr] = {new: old for old, new in operands.fresh.items() if isinstance(new, E.Var)}

    tensors = [*operands.placeholders, *results]
    told = {d for t in tensors for d in t.shape if isinstance(d, E.Var)}
    scalars = [v for v in back if v not in told]
    immediates = [t for t, _ in operands.immediates]
    made = create_prim_func([*immediates, *tensors, *scalars])
    for (_, value), param in zip(operands.immediates, list(made.params)):
        made = inline_scalar(made, param, value)
    made = _drop_unused(made, scalars)
    if attrs:
        made = made.with_attr(attrs)
    gv = bb.add_func(made.without_attr("global_symbol"), name, share=key is None)

    infos: list[StructInfo] = [
        TensorStructInfo(tuple(simplify_dim(substitute_symbols(d, back)) for d in t.shape), t.dtype) for t in results
    ]
    out: StructInfo = (
        infos[0] if len(infos) == 1 and not isinstance(outs, (list, tuple)) else TupleStructInfo(tuple(infos))
    )
    used = [v for v in scalars if v in made.params]
    symbols = tuple(back[v] for v in used)
    if key is not None:
        where = {id(x): i for i, x in reversed(list(enumerate(tensors_given)))}
        places = [where.get(id(x)) for x in operands.inputs]
        if None not in places:
            bb.kernel_memo[key] = _Memo(gv, [i for i in places if i is not None], out, symbols, func)
    return call_tir(gv, [bb.normalize(x) for x in operands.inputs], out, symbols)


class _Memo(NamedTuple):
    """A kernel made before: what it is called with (places among the operands' tensors), what it gives."""

    gv: R.GlobalVar
    inputs: list[int]
    out: StructInfo
    symbols: tuple[PrimExpr, ...]
    func: Any


def _signature(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, list[R.Expr]]:
    """What the kernel of an operator depends on, hashable (None: do not share), and the tensors among the operands."""
    op = getattr(func, "__self__", None)
    tensors: list[R.Expr] = []
    if not isinstance(op, Op):
        return None, tensors
    try:
        key = (
            type(op),
            op,
            func.__name__,
            *(_sign(a, tensors) for a in args),
            *sorted((k, str(v)) for k, v in kwargs.items()),
        )
        hash(key)
    except TypeError:
        return None, tensors
    return key, tensors


def _sign(x: Any, tensors: list[R.Expr]) -> Any:
    if isinstance(x, R.ShapeExpr):
        return ("shape", *(dim_key(d) for d in x.values))
    if isinstance(x, R.PrimValue):
        value = getattr(x.value, "value", None)
        return ("prim", x.value.dtype, dim_key(x.value) if value is None else repr(value))
    if isinstance(x, R.Tuple):
        return ("tuple", *(_sign(f, tensors) for f in x.fields))
    if isinstance(x, R.StringImm):
        return x.value
    si = getattr(x, "struct_info", None)
    if not isinstance(x, (R.Var, R.Constant)) or not isinstance(si, TensorStructInfo) or si.shape is None:
        raise TypeError
    same = next((i for i, t in enumerate(tensors) if t is x), len(tensors))
    tensors.append(x)
    value = x.data.tobytes() if isinstance(x, R.Constant) and x.data.size == 1 else None
    return ("tensor", si.dtype, same, value, *(dim_key(d) for d in si.shape))


def mentioned(roots: Iterable[Node], wanted: Iterable[E.Var]) -> set[E.Var]:
    """Which of the variables occur below the nodes (in buffers' shapes too). Stops when all are found."""
    missing = set(wanted)
    found: set[E.Var] = set()
    seen: set[int] = set()
    todo = list(roots)
    while todo and missing:
        n = todo.pop()
        if n.identity:
            if id(n) in seen:
                continue
            seen.add(id(n))
            if n in missing:
                missing.discard(n)  # pyright: ignore[reportArgumentType]
                found.add(n)  # pyright: ignore[reportArgumentType]
                continue
        todo.extend(children(n))
    return found


def _drop_unused(f: Any, scalars: Sequence[E.Var]) -> Any:
    """The kernel without scalar parameters that nothing in it uses."""
    if not scalars:
        return f
    used = mentioned((*f.buffer_map.values(), f.body), scalars)
    drop = {v for v in scalars if v not in used}
    return replace(f, params=tuple(p for p in f.params if p not in drop)) if drop else f


def inline_scalar(f: Any, param: E.Var, value: PrimExpr) -> Any:
    """The kernel with every read of the one-element buffer `param` replaced by `value`; the parameter is gone."""
    from tilewright.ir.node import map_children
    from tilewright.tir.ir import Block, BufferLoad

    buffer = f.buffer_map[param]

    def visit(n: Node) -> Any:
        if isinstance(n, BufferLoad) and n.buffer is buffer:
            return value
        new = map_children(n, visit)
        if isinstance(new, Block) and any(r.buffer is buffer for r in new.reads):
            new = replace(new, reads=tuple(r for r in new.reads if r.buffer is not buffer))
        return new

    params = tuple(p for p in f.params if p is not param)
    buffers = {p: b for p, b in f.buffer_map.items() if p is not param}
    return replace(f, params=params, body=visit(f.body), buffer_map=buffers)
