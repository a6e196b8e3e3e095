"""Relax: the graph IR, and what it means.

    f    ::= Function(params, body, ret_struct_info, is_pure, attrs)
    e    ::= Var | DataflowVar | Constant(data) | Tuple(fields) | TupleGetItem(tuple_value, index)
           | Call(op, args)        op: an operator object (ops/), a GlobalVar, an ExternFunc, or a Var holding a closure
           | If(cond, true_branch, false_branch) | SeqExpr(blocks, body) | Function
           | ShapeExpr(values) | PrimValue(value) | StringImm | DataTypeImm | ExternFunc
    b    ::= VarBinding(var, value) | MatchCast(var, value, struct_info)
    blk  ::= BindingBlock(bindings) | DataflowBlock(bindings)         a DataflowVar is visible in its block only

Every expression carries `struct_info`: what is known of its value at compile time (relax/struct_info.py). The BlockBuilder
fills it in; it is not compared. In *normal form* (what passes take and give) the operands of calls, tuples and branches are
variables, constants or shapes, and every function body is a SeqExpr.

A dataflow block is pure and straight-line: bindings may be dropped, moved and shared. Dimensions are PrimExprs of dtype
int64; a `tir.Var` in the struct info of a parameter, or of a MatchCast, is bound there to the value met at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from tilewright.arith.expr import IntImm, PrimExpr, convert
from tilewright.ir.dtype import to_numpy
from tilewright.ir.module import BaseFunc
from tilewright.ir.node import DEF, INFO, Node, info, node
from tilewright.ir.op import BaseExpr, GlobalVar
from tilewright.relax.struct_info import PrimStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo, dims
from tilewright.support.lazy import resolve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.support.span import Span

__all__ = [
    "Binding", "BindingBlock", "Call", "Constant", "DataTypeImm", "DataflowBlock", "DataflowVar", "Expr", "ExternFunc",
    "Function", "GlobalVar", "If", "MatchCast", "PrimValue", "SeqExpr", "ShapeExpr", "StringImm", "Tuple", "TupleGetItem",
    "Var", "VarBinding",
]  # fmt: skip


@node
class Expr(BaseExpr):
    """The root of graph expressions; `struct_info` is filled in by the BlockBuilder.

    Python's operators build calls (`x + y` is `relax.add`); a number beside an expression takes its dtype. `t[i]` is a field
    of a tuple. `==` compares identity: use `relax.op.equal` for elements.
    """

    struct_info: StructInfo | None = info(default=None)

    def __add__(self, other: Any) -> Call:
        return _operator("add", self, other)

    def __radd__(self, other: Any) -> Call:
        return _operator("add", other, self)

    def __sub__(self, other: Any) -> Call:
        return _operator("subtract", self, other)

    def __rsub__(self, other: Any) -> Call:
        return _operator("subtract", other, self)

    def __mul__(self, other: Any) -> Call:
        return _operator("multiply", self, other)

    def __rmul__(self, other: Any) -> Call:
        return _operator("multiply", other, self)

    def __truediv__(self, other: Any) -> Call:
        return _operator("divide", self, other)

    def __rtruediv__(self, other: Any) -> Call:
        return _operator("divide", other, self)

    def __floordiv__(self, other: Any) -> Call:
        return _operator("floor_divide", self, other)

    def __mod__(self, other: Any) -> Call:
        return _operator("floor_mod", self, other)

    def __pow__(self, other: Any) -> Call:
        return _operator("power", self, other)

    def __neg__(self) -> Call:
        return _operator("negative", self)

    def __lt__(self, other: Any) -> Call:
        return _operator("less", self, other)

    def __le__(self, other: Any) -> Call:
        return _operator("less_equal", self, other)

    def __gt__(self, other: Any) -> Call:
        return _operator("greater", self, other)

    def __ge__(self, other: Any) -> Call:
        return _operator("greater_equal", self, other)

    def __getitem__(self, index: int) -> Any:
        fields = getattr(self.struct_info, "fields", None)
        if fields is None:
            raise TypeError(
                "only a tuple can be indexed; take elements of a tensor with relax.op.strided_slice or take"
            )
        if not -len(fields) <= index < len(fields):
            raise IndexError(f"index {index} of a tuple of {len(fields)}")
        return TupleGetItem(self, index % len(fields), struct_info=fields[index])

    def astype(self, dtype: str) -> Call:
        """The elements converted to `dtype`."""
        return resolve("ops.root").astype(self, dtype)

    def __call__(self, *args: Any) -> Call:
        """A call of the function that this expression holds."""
        from tilewright.relax.values import convert as convert_operand

        return Call(self, tuple(convert_operand(a) for a in args))


def _operator(name: str, *operands: Any) -> Call:
    """A call of an operator; Python numbers become constants of the dtype of the expression beside them."""
    import numpy as np

    dtype = next((d for o in operands if (d := getattr(getattr(o, "struct_info", None), "dtype", ""))), "float32")
    args = [Constant(np.asarray(o, to_numpy(dtype))) if isinstance(o, (bool, int, float)) else o for o in operands]
    return getattr(resolve("ops.root"), name)(*args)


@node
class Var(Expr):
    """A variable. Its identity is the object; `name_hint` is for people."""

    identity: ClassVar[bool] = True
    variable: ClassVar[bool] = True
    name_hint: Annotated[str, INFO]
    struct_info: StructInfo | None = None


@node
class DataflowVar(Var):
    """A variable that only its dataflow block sees."""


@node
class Constant(Expr):
    """A tensor known at compile time. `data` is a numpy array that nobody writes to (bfloat16 etc. from ml_dtypes)."""

    data: NDArray[Any]

    def __init__(self, data: Any, *, struct_info: StructInfo | None = None, span: Span | None = None) -> None:
        made: Any = self
        made.data = data = np.asarray(data)
        made.struct_info = struct_info or TensorStructInfo(data.shape, str(data.dtype))
        made.span = span


@node
class ShapeExpr(Expr):
    """A shape as a value. Numbers become int64 constants; what is known of it is known from the start."""

    values: tuple[PrimExpr, ...]

    def __init__(self, values: Any, *, struct_info: StructInfo | None = None, span: Span | None = None) -> None:
        made: Any = self
        made.values = dims(values)
        made.struct_info = struct_info or ShapeStructInfo(made.values)
        made.span = span

    def __getitem__(self, i: int) -> PrimExpr:
        return self.values[i]

    def __len__(self) -> int:
        return len(self.values)


@node
class PrimValue(Expr):
    """A scalar as a value. A Python number becomes a constant (int64, float32, bool)."""

    value: PrimExpr

    def __init__(self, value: Any, *, struct_info: StructInfo | None = None, span: Span | None = None) -> None:
        made: Any = self
        if isinstance(value, int) and not isinstance(value, bool):
            value = IntImm("int64", value)
        made.value = convert(value)
        made.struct_info = struct_info or PrimStructInfo(made.value.dtype, made.value)
        made.span = span


@node
class StringImm(Expr):
    """A string as a value."""

    value: str


@node
class DataTypeImm(Expr):
    """A dtype as a value."""

    value: str


@node
class Tuple(Expr):
    """Several values as one."""

    fields: tuple[Expr, ...]

    def __getitem__(self, i: int) -> Expr:
        return self.fields[i]

    def __len__(self) -> int:
        return len(self.fields)


@node
class TupleGetItem(Expr):
    """One of the values of a tuple."""

    tuple_value: Expr
    index: int


@node
class ExternFunc(Expr):
    """A function of the global registry (or of a linked library), by name."""

    global_symbol: str


@node
class Call(Expr):
    """`op` applied to `args`. `sinfo_args` say what comes out where the operator cannot know (call_tir, call_packed)."""

    op: Any  # relax.op.Op | GlobalVar | ExternFunc | Var
    args: tuple[Expr, ...]
    sinfo_args: tuple[StructInfo, ...] = ()

    @property
    def attrs(self) -> Any:
        """The operator's attributes: the operator object itself carries them."""
        return self.op


@node
class If(Expr):
    """`true_branch` if the scalar bool `cond`, else `false_branch`."""

    cond: Expr
    true_branch: Expr
    false_branch: Expr


@node
class Binding(Node):
    """The root of bindings."""

    var: Annotated[Var, DEF]


@node
class VarBinding(Binding):
    """var = value"""

    value: Expr


@node
class MatchCast(Binding):
    """var = value, checked at run time to have `struct_info`, whose unknown dimensions are bound."""

    value: Expr
    struct_info: StructInfo


@node
class BindingBlock(Node):
    """Bindings, one after the other."""

    bindings: tuple[Binding, ...]


@node
class DataflowBlock(BindingBlock):
    """Bindings without effects."""


@node
class SeqExpr(Expr):
    """Blocks of bindings, then the value of `body`."""

    blocks: tuple[BindingBlock, ...]
    body: Expr


@node
class Function(BaseFunc):
    """A graph function. `struct_info` (a FuncStructInfo) is filled in by the BlockBuilder."""

    params: Annotated[tuple[Var, ...], DEF]
    body: Expr
    ret_struct_info: StructInfo | None = None
    is_pure: bool = True
    attrs: dict[str, Any] = {}
    struct_info: StructInfo | None = info(default=None)


def const_array(c: Constant) -> np.ndarray[Any, Any]:
    """The numpy array of a constant."""
    return c.data
