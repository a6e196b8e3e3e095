"""What is known of a graph value at compile time.

si ::= TensorStructInfo(shape, dtype, ndim)    shape: the dimensions, or None when only the rank (or nothing: -1) is known;
                                               dtype "" when unknown
     | ShapeStructInfo(values, ndim) | PrimStructInfo(dtype, value) | TupleStructInfo(fields) | ObjectStructInfo
     | FuncStructInfo(params, ret)

Below the nodes: what operators' `infer` is made of (`shape_of`, `dtype_of`, `broadcast_shapes`, ...). Reasoning about
dimensions stands in relax/dims.py and is re-exported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arith.expr import ExprLike, IntImm, PrimExpr, Var, convert
from tilewright.ir.node import Node, map_children, node, walk
from tilewright.relax.dims import (
    as_int,
    as_ints,
    is_static,
    prove_equal,
    require_equal,
    same_shape,
    shape_product,
    show_dim,
    show_shape,
    simplify_dim,
)
from tilewright.support.diagnostics import CompileError

if TYPE_CHECKING:
    from tilewright.support.span import Span

__all__ = [
    "FuncStructInfo", "ObjectStructInfo", "PrimStructInfo", "ShapeStructInfo", "StructInfo", "TensorStructInfo",
    "TupleStructInfo", "as_int", "as_ints", "broadcast_dim", "broadcast_shapes", "deduce_symbols", "describe", "dims", "dtype_of", "erase",
    "free_symbols", "is_static", "prove_equal", "rank_of", "require_equal", "same_shape", "shape_of", "shape_product",
    "show_dim", "show_shape", "simplify_dim", "sinfo_equal", "subsumes", "substitute_symbols", "tensor", "tensor_info",
    "unify",
]  # fmt: skip


@node
class StructInfo(Node):
    """The root of struct infos."""


@node
class ObjectStructInfo(StructInfo):
    """Any value."""


@node
class PrimStructInfo(StructInfo):
    """A scalar of `dtype`, perhaps with a known (symbolic) value."""

    dtype: str
    value: PrimExpr | None = None


@node
class ShapeStructInfo(StructInfo):
    """A shape: its values if known (numbers become int64), else its length (-1: not even that)."""

    values: tuple[PrimExpr, ...] | None = None
    ndim: int = -1

    def __init__(self, values: Any = None, ndim: int = -1, *, span: Span | None = None) -> None:
        made: Any = self
        made.values = None if values is None else dims(values)
        made.ndim = ndim if made.values is None else len(made.values)
        made.span = span


@node
class TensorStructInfo(StructInfo):
    """A tensor. `shape` holds the dimensions (int64 expressions; numbers and a ShapeExpr are converted), or is None where
    only `ndim` is known (-1: nothing)."""

    shape: tuple[PrimExpr, ...] | None = None
    dtype: str = "float32"
    ndim: int = -1

    def __init__(self, shape: Any = None, dtype: str = "float32", ndim: int = -1, *, span: Span | None = None) -> None:
        made: Any = self
        made.shape = None if shape is None else dims(shape)
        made.dtype = dtype or ""
        made.ndim = ndim if made.shape is None else len(made.shape)
        made.span = span


@node
class TupleStructInfo(StructInfo):
    """Several values as one."""

    fields: tuple[StructInfo, ...]


@node
class FuncStructInfo(StructInfo):
    """A function: of these params (None: any), to `ret`."""

    params: tuple[StructInfo, ...] | None
    ret: StructInfo
    purity: bool = True


def tensor(shape: Sequence[ExprLike] | None, dtype: str = "float32", ndim: int = -1) -> TensorStructInfo:
    """A tensor's struct info from numbers and expressions; dimensions become int64."""
    return TensorStructInfo(shape, dtype, ndim)


def dims(shape: Any) -> tuple[PrimExpr, ...]:
    """Dimensions as int64 expressions (numbers and int32 constants converted; a ShapeExpr gives its values)."""
    if type(shape) is tuple and all(isinstance(d, PrimExpr) and d.dtype == "int64" for d in shape):
        return shape
    shape = getattr(shape, "values", shape)
    out: list[PrimExpr] = []
    for d in shape:
        e = convert(d, "int64") if isinstance(d, int) else convert(d)
        out.append(IntImm("int64", e.value) if isinstance(e, IntImm) else e)
    return tuple(out)


# ---- questions that inference asks of operands -------------------------------------------------------------------------


def describe(si: StructInfo | None) -> str:
    """A struct info as short text for messages."""
    if isinstance(si, TensorStructInfo):
        shape = show_shape(si.shape) if si.shape is not None else f"rank {si.ndim}" if si.ndim >= 0 else "unknown shape"
        return f"tensor {shape} {si.dtype or 'of unknown dtype'}"
    if isinstance(si, ShapeStructInfo):
        return f"shape {show_shape(si.values)}"
    if isinstance(si, PrimStructInfo):
        return f"scalar {si.dtype}"
    if isinstance(si, TupleStructInfo):
        return f"tuple of ({', '.join(describe(f) for f in si.fields)})"
    return "nothing known" if si is None else type(si).__name__.removesuffix("StructInfo").lower()


def tensor_info(x: Any, what: str = "the operand") -> TensorStructInfo:
    """The struct info of a tensor operand (an expression, or a struct info). Raises CompileError TW0201 that says what it is."""
    si = x if isinstance(x, StructInfo) else getattr(x, "struct_info", None)
    if isinstance(si, TensorStructInfo):
        return si
    raise CompileError.at("TW0201", f"{what} has to be a tensor, got {describe(si)}", getattr(x, "span", None))


def shape_of(x: Any, what: str = "the operand") -> tuple[PrimExpr, ...]:
    """The dimensions of a tensor operand, or the values of a shape operand. Raises CompileError TW0202 if not known."""
    si = x if isinstance(x, StructInfo) else getattr(x, "struct_info", None)
    if isinstance(si, ShapeStructInfo) and si.values is not None:
        return si.values
    if isinstance(si, TensorStructInfo) and si.shape is not None:
        return si.shape
    if isinstance(si, (TensorStructInfo, ShapeStructInfo)):
        raise CompileError.at(
            "TW0202",
            f"{what} has no known shape: {describe(si)}",
            hint="match_cast it to a shape, perhaps a symbolic one",
        )
    return tensor_info(x, what).shape or ()


def dtype_of(x: Any, what: str = "the operand") -> str:
    """The element type of a tensor (or scalar) operand."""
    si = x if isinstance(x, StructInfo) else getattr(x, "struct_info", None)
    return si.dtype if isinstance(si, PrimStructInfo) else tensor_info(x, what).dtype


def rank_of(x: Any, what: str = "the operand") -> int:
    """The rank of a tensor operand; -1 if not known."""
    return tensor_info(x, what).ndim


def broadcast_dim(a: PrimExpr, b: PrimExpr, what: str = "operands") -> PrimExpr:
    """The dimension that `a` and `b` broadcast to.

    A constant 1 gives way to the other side. Any other pair has to be equal: what cannot be proved is checked at run time
    (so a symbolic dimension that happens to be 1 is not stretched). A kernel may index both sides with one variable,
    except where a side's dimension is the constant 1.
    """
    x, y = as_int(a), as_int(b)
    if x == 1:
        return b
    if y == 1:
        return a
    if x is not None and x == y:
        return a
    return require_equal(a, b, f"{what} do not broadcast")


def broadcast_shapes(
    a: Sequence[PrimExpr], b: Sequence[PrimExpr], *more: Sequence[PrimExpr], what: str = "operands"
) -> tuple[PrimExpr, ...]:
    """The shape that shapes broadcast to (numpy's rule; see `broadcast_dim`). Raises CompileError TW0203 that names both."""
    n = max(len(a), len(b))
    pa, pb = (IntImm("int64", 1),) * (n - len(a)) + tuple(a), (IntImm("int64", 1),) * (n - len(b)) + tuple(b)
    try:
        out = tuple(broadcast_dim(x, y, what) for x, y in zip(pa, pb))
    except CompileError as e:
        d = e.diagnostics[0]
        text = f"{what} of shapes {show_shape(a)} and {show_shape(b)}{d.message.removeprefix(what)}"
        raise CompileError.at(d.code, text, hint="broadcasting needs equal dimensions, or a 1") from None
    return broadcast_shapes(out, more[0], *more[1:], what=what) if more else out


# ---- relations between struct infos ------------------------------------------------------------------------------------


def sinfo_equal(a: StructInfo | None, b: StructInfo | None) -> bool:
    """Do both say the same, dimensions compared by proof?"""
    if a is b:
        return True
    if a is None or b is None or type(a) is not type(b):
        return False
    if isinstance(a, TensorStructInfo) and isinstance(b, TensorStructInfo):
        if a.dtype != b.dtype or a.ndim != b.ndim or (a.shape is None) != (b.shape is None):
            return False
        return a.shape is None or same_shape(a.shape, b.shape)
    if isinstance(a, ShapeStructInfo) and isinstance(b, ShapeStructInfo):
        if a.ndim != b.ndim or (a.values is None) != (b.values is None):
            return False
        return a.values is None or same_shape(a.values, b.values)
    if isinstance(a, PrimStructInfo) and isinstance(b, PrimStructInfo):
        if a.dtype != b.dtype or (a.value is None) != (b.value is None):
            return False
        return a.value is None or a.value is b.value or prove_equal(a.value, b.value)
    if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo):
        return len(a.fields) == len(b.fields) and all(sinfo_equal(x, y) for x, y in zip(a.fields, b.fields))
    if isinstance(a, FuncStructInfo) and isinstance(b, FuncStructInfo):
        if (a.params is None) != (b.params is None) or not sinfo_equal(a.ret, b.ret):
            return False
        pa, pb = a.params or (), b.params or ()
        return len(pa) == len(pb) and all(sinfo_equal(x, y) for x, y in zip(pa, pb))
    return isinstance(a, ObjectStructInfo)


def unify(a: StructInfo, b: StructInfo) -> StructInfo:
    """The most that holds of both (of a branch's two values): unequal dimensions lose the shape, not the rank."""
    if sinfo_equal(a, b):
        return a
    if isinstance(a, TensorStructInfo) and isinstance(b, TensorStructInfo):
        dtype = a.dtype if a.dtype == b.dtype else ""
        return TensorStructInfo(
            a.shape if same_shape(a.shape, b.shape) else None, dtype, a.ndim if a.ndim == b.ndim else -1
        )
    if isinstance(a, ShapeStructInfo) and isinstance(b, ShapeStructInfo):
        return ShapeStructInfo(None, a.ndim if a.ndim == b.ndim else -1)
    if isinstance(a, PrimStructInfo) and isinstance(b, PrimStructInfo) and a.dtype == b.dtype:
        return PrimStructInfo(a.dtype)
    if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo) and len(a.fields) == len(b.fields):
        return TupleStructInfo(tuple(unify(x, y) for x, y in zip(a.fields, b.fields)))
    return ObjectStructInfo()


def subsumes(general: StructInfo | None, special: StructInfo | None) -> bool:
    """Is every value that `special` describes one that `general` describes, as far as can be proved?"""
    if general is None or isinstance(general, ObjectStructInfo):
        return True
    if isinstance(general, TensorStructInfo) and isinstance(special, TensorStructInfo):
        if general.dtype and general.dtype != special.dtype:
            return False
        if general.shape is not None:
            return same_shape(general.shape, special.shape)
        return general.ndim in (-1, special.ndim)
    if isinstance(general, ShapeStructInfo) and isinstance(special, ShapeStructInfo):
        if general.values is not None:
            return same_shape(general.values, special.values)
        return general.ndim in (-1, special.ndim)
    if isinstance(general, PrimStructInfo) and isinstance(special, PrimStructInfo):
        return general.dtype == special.dtype and (general.value is None or sinfo_equal(general, special))
    if isinstance(general, TupleStructInfo) and isinstance(special, TupleStructInfo):
        return len(general.fields) == len(special.fields) and all(map(subsumes, general.fields, special.fields))
    return sinfo_equal(general, special)


def free_symbols(*infos: StructInfo | PrimExpr | None) -> list[Var]:
    """The symbolic variables that occur, in order of first appearance."""
    found: dict[Var, None] = {}
    for si in infos:
        if isinstance(si, TensorStructInfo):  # the common case, without the walk
            for d in si.shape or ():
                if isinstance(d, Var):
                    found[d] = None
                elif not isinstance(d, IntImm):
                    found.update((n, None) for n in walk(d) if isinstance(n, Var))
        elif si is not None:
            found.update((n, None) for n in walk(si) if isinstance(n, Var))
    return list(found)


def erase(si: StructInfo, keep: set[Var]) -> StructInfo:
    """`si` without formulas that use other symbols than those of `keep` (they left their scope): ranks and dtypes stay."""
    if all(v in keep for v in free_symbols(si)):
        return si
    if isinstance(si, TensorStructInfo):
        return TensorStructInfo(None, si.dtype, si.ndim)
    if isinstance(si, ShapeStructInfo):
        return ShapeStructInfo(None, si.ndim)
    if isinstance(si, PrimStructInfo):
        return PrimStructInfo(si.dtype)
    if isinstance(si, TupleStructInfo):
        return TupleStructInfo(tuple(erase(f, keep) for f in si.fields))
    return si


def substitute_symbols(x: Any, values: Mapping[Var, PrimExpr]) -> Any:
    """A struct info or a scalar expression with symbols replaced; formulas are simplified again."""
    if not values:
        return x

    def visit(n: Any) -> Any:
        if isinstance(n, Var):
            return values.get(n, n)
        return map_children(n, visit)

    if isinstance(x, PrimExpr):
        new = visit(x)
        return new if new is x else simplify_dim(new) if new.dtype in ("int64", "int32") else new
    if isinstance(x, TensorStructInfo):
        if x.shape is None:
            return x
        shape = tuple(substitute_symbols(d, values) for d in x.shape)
        return x if all(p is q for p, q in zip(shape, x.shape)) else TensorStructInfo(shape, x.dtype)
    if isinstance(x, ShapeStructInfo):
        if x.values is None:
            return x
        return ShapeStructInfo(tuple(substitute_symbols(d, values) for d in x.values))
    if isinstance(x, TupleStructInfo):
        return TupleStructInfo(tuple(substitute_symbols(f, values) for f in x.fields))
    if isinstance(x, FuncStructInfo):
        return x
    return visit(x)


def deduce_symbols(formal: StructInfo | None, actual: StructInfo | None, found: dict[Var, PrimExpr]) -> None:
    """Bind the lone symbols of `formal` to what stands in their place in `actual`; what is bound already stays."""
    if isinstance(formal, TensorStructInfo) and isinstance(actual, TensorStructInfo):
        pairs = zip(formal.shape or (), actual.shape or ())
    elif isinstance(formal, ShapeStructInfo) and isinstance(actual, ShapeStructInfo):
        pairs = zip(formal.values or (), actual.values or ())
    elif isinstance(formal, TupleStructInfo) and isinstance(actual, TupleStructInfo):
        for f, a in zip(formal.fields, actual.fields):
            deduce_symbols(f, a, found)
        return
    elif isinstance(formal, PrimStructInfo) and isinstance(actual, PrimStructInfo):
        pairs = [(formal.value, actual.value)] if formal.value is not None and actual.value is not None else []
    else:
        return
    for f, a in pairs:
        if isinstance(f, Var):
            found.setdefault(f, a)
