"""Scalar expressions, and what they mean.

    e ::= Var | IntImm | FloatImm | StringImm | Cast(e)
        | Add | Sub | Mul | Div | Mod | FloorDiv | FloorMod | Min | Max      both sides of one dtype
        | EQ | NE | LT | LE | GT | GE                                       -> bool (with the lanes of the sides)
        | And | Or | Not                                                    on bool
        | Select(c, a, b)      both sides may be evaluated; use `if_then_else` (a call) where only one may
        | Let(v, e, e) | Call(dtype, op, args) | Ramp(base, stride, lanes) | Broadcast(value, lanes) | Shuffle
    (tir adds BufferLoad, ProducerLoad, Reduce, IterVar.)

Integers wrap in their dtype; `Div`/`Mod` on integers truncate (C), `FloorDiv`/`FloorMod` round down (Python); dividing by
zero is undefined. Floats follow IEEE 754. A vector operation acts lane by lane.

Python operators on expressions match dtypes and fold constants: `x + 0` is `x`. `==` builds an `EQ`; use
`structural_equal` to compare, `same_as` or `is` for identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Union

from tilewright.ir import dtype as dt
from tilewright.ir.node import DEF, INFO, Node, derived, node
from tilewright.ir.op import BaseExpr, Op, PointerType, PrimType, Type
from tilewright.support.diagnostics import CompileError

__all__ = [
    "Add",
    "And",
    "BinaryOp",
    "Broadcast",
    "Call",
    "Cast",
    "CmpOp",
    "Div",
    "EQ",
    "ExprLike",
    "FloatImm",
    "FloorDiv",
    "FloorMod",
    "GE",
    "GT",
    "IntImm",
    "LE",
    "LT",
    "Let",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "NE",
    "Not",
    "Or",
    "PrimExpr",
    "Ramp",
    "Select",
    "Shuffle",
    "SizeVar",
    "StringImm",
    "Sub",
    "Var",
    "add",
    "all_of",
    "any_of",
    "bitwise",
    "call_intrin",
    "cast",
    "ceildiv",
    "cmp",
    "const",
    "convert",
    "div",
    "floordiv",
    "floormod",
    "if_then_else",
    "is_const",
    "logical_and",
    "logical_not",
    "logical_or",
    "max_value",
    "maximum",
    "min_value",
    "minimum",
    "mod",
    "mul",
    "neg",
    "pointer_var",
    "same_value",
    "select",
    "sub",
    "true_div",
    "truncdiv",
    "truncmod",
    "wrap",
]


@node
class PrimExpr(BaseExpr):
    """The root of scalar and vector expressions. `dtype` is known from construction."""

    dtype: str = derived("'void'")

    def __add__(self, other: ExprLike) -> PrimExpr:
        return add(self, other)

    def __radd__(self, other: ExprLike) -> PrimExpr:
        return add(other, self)

    def __sub__(self, other: ExprLike) -> PrimExpr:
        return sub(self, other)

    def __rsub__(self, other: ExprLike) -> PrimExpr:
        return sub(other, self)

    def __mul__(self, other: ExprLike) -> PrimExpr:
        return mul(self, other)

    def __rmul__(self, other: ExprLike) -> PrimExpr:
        return mul(other, self)

    def __truediv__(self, other: ExprLike) -> PrimExpr:
        return true_div(self, other)

    def __rtruediv__(self, other: ExprLike) -> PrimExpr:
        return true_div(other, self)

    def __floordiv__(self, other: ExprLike) -> PrimExpr:
        return floordiv(self, other)

    def __rfloordiv__(self, other: ExprLike) -> PrimExpr:
        return floordiv(other, self)

    def __mod__(self, other: ExprLike) -> PrimExpr:
        return floormod(self, other)

    def __rmod__(self, other: ExprLike) -> PrimExpr:
        return floormod(other, self)

    def __neg__(self) -> PrimExpr:
        return neg(self)

    def __lshift__(self, other: ExprLike) -> PrimExpr:
        return bitwise("tir.shift_left", self, other)

    def __rlshift__(self, other: ExprLike) -> PrimExpr:
        return bitwise("tir.shift_left", other, self)

    def __rshift__(self, other: ExprLike) -> PrimExpr:
        return bitwise("tir.shift_right", self, other)

    def __rrshift__(self, other: ExprLike) -> PrimExpr:
        return bitwise("tir.shift_right", other, self)

    def __and__(self, other: ExprLike) -> PrimExpr:
        return bitwise("tir.bitwise_and", self, other)

    def __rand__(self, other: ExprLike) -> PrimExpr:
        return bitwise("tir.bitwise_and", other, self)

    def __or__(self, other: ExprLike) -> PrimExpr:
        return bitwise("tir.bitwise_or", self, other)

    def __ror__(self, other: ExprLike) -> PrimExpr:
        return bitwise("tir.bitwise_or", other, self)

    def __xor__(self, other: ExprLike) -> PrimExpr:
        return bitwise("tir.bitwise_xor", self, other)

    def __rxor__(self, other: ExprLike) -> PrimExpr:
        return bitwise("tir.bitwise_xor", other, self)

    def __invert__(self) -> PrimExpr:
        if dt.is_bool(self.dtype):
            return logical_not(self)
        return bitwise_not(self)

    def __lt__(self, other: ExprLike) -> PrimExpr:
        return cmp(LT, self, other)

    def __le__(self, other: ExprLike) -> PrimExpr:
        return cmp(LE, self, other)

    def __gt__(self, other: ExprLike) -> PrimExpr:
        return cmp(GT, self, other)

    def __ge__(self, other: ExprLike) -> PrimExpr:
        return cmp(GE, self, other)

    def __eq__(self, other: Any) -> Any:
        if not isinstance(other, (PrimExpr, int, float, bool)):
            return NotImplemented
        return cmp(EQ, self, other)

    def __ne__(self, other: Any) -> Any:
        if not isinstance(other, (PrimExpr, int, float, bool)):
            return NotImplemented
        return cmp(NE, self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise ValueError(
            "a symbolic expression has no truth value at compile time; "
            "use tir.all / tir.any / if_then_else, or structural_equal to compare"
        )

    def astype(self, dtype: str) -> PrimExpr:
        """This value converted to `dtype`."""
        return cast(self, dtype)


ExprLike = Union[PrimExpr, int, float, bool]


@node
class Var(PrimExpr):
    """A variable. Its identity is the object; `name` is only for people."""

    identity: ClassVar[bool] = True
    variable: ClassVar[bool] = True
    name: Annotated[str, INFO]
    dtype: str = "int32"
    type_annotation: Type | None = None

    def __init__(
        self, name: str, dtype: str | Type = "int32", type_annotation: Type | None = None, *, span: Any = None
    ) -> None:
        """`dtype` may be a type: a PointerType makes a handle."""
        if not isinstance(name, str):
            raise TypeError(f"the name of a variable is a string, not {name!r}")
        if dtype.__class__ is not str:
            dtype, type_annotation = _dtype_of(dtype, type_annotation)
        self.name, self.dtype, self.type_annotation, self.span = name, dtype, type_annotation, span  # pyright: ignore


def _dtype_of(given: Any, annotation: Type | None) -> tuple[str, Type | None]:
    if isinstance(given, PointerType):
        return "handle", given
    return (given.dtype, annotation) if isinstance(given, PrimType) else (str(given), annotation)


@node
class SizeVar(Var):
    """A variable known not to be negative, such as a dimension."""


@node
class IntImm(PrimExpr):
    """An integer (or bool) constant; `value` lies in the range of `dtype`."""

    dtype: str
    value: int

    def __bool__(self) -> bool:
        return self.value != 0

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value


@node
class FloatImm(PrimExpr):
    """A floating-point constant; `value` may be inf or nan."""

    dtype: str
    value: float

    def __init__(self, dtype: str, value: float, *, span: Any = None) -> None:
        """Raises CompileError TW0904 where `dtype` is no floating-point dtype."""
        if "float" not in dtype:
            raise CompileError.at("TW0904", f"a FloatImm of {dtype}", hint="integers are IntImm")
        self.dtype, self.value, self.span = dtype, value, span  # pyright: ignore

    def __float__(self) -> float:
        return self.value


@node
class StringImm(PrimExpr):
    """A string constant, an argument of calls."""

    value: str
    dtype: str = derived("'handle'")

    def __eq__(self, other: Any) -> Any:
        """Is it the same string?"""
        return self.value == (other.value if isinstance(other, StringImm) else other)

    def __ne__(self, other: Any) -> Any:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.value)


@node
class Cast(PrimExpr):
    """`value` converted to `dtype` (float to integer truncates)."""

    dtype: str
    value: PrimExpr


@node
class BinaryOp(PrimExpr):
    """The root of operations on two sides of one dtype."""

    a: PrimExpr
    b: PrimExpr
    dtype: str = derived("a.dtype")


@node
class Add(BinaryOp):
    """a + b"""


@node
class Sub(BinaryOp):
    """a - b"""


@node
class Mul(BinaryOp):
    """a * b"""


@node
class Div(BinaryOp):
    """a / b; integers truncate towards zero"""


@node
class Mod(BinaryOp):
    """The remainder of `Div`: the sign of `a` (C)"""


@node
class FloorDiv(BinaryOp):
    """The quotient rounded down"""


@node
class FloorMod(BinaryOp):
    """The remainder of `FloorDiv`: the sign of `b`"""


@node
class Min(BinaryOp):
    """The smaller"""


@node
class Max(BinaryOp):
    """The greater"""


@node
class CmpOp(PrimExpr):
    """The root of comparisons and of `And`, `Or`: bool results."""

    a: PrimExpr
    b: PrimExpr
    dtype: str = derived("'bool' if a.dtype.find('x') < 0 else dt.with_lanes('bool', dt.lanes(a.dtype))")


@node
class EQ(CmpOp):
    """a == b. Used as a Python truth value it says whether both sides are the same object or equal constants."""

    def __bool__(self) -> bool:
        return same_value(self.a, self.b)


@node
class NE(CmpOp):
    """a != b. Used as a Python truth value: the opposite of `EQ`'s."""

    def __bool__(self) -> bool:
        return not same_value(self.a, self.b)


@node
class LT(CmpOp):
    """a < b"""


@node
class LE(CmpOp):
    """a <= b"""


@node
class GT(CmpOp):
    """a > b"""


@node
class GE(CmpOp):
    """a >= b"""


@node
class And(CmpOp):
    """Both; the right side may be evaluated whatever the left is."""


@node
class Or(CmpOp):
    """Either"""


@node
class Not(PrimExpr):
    """The opposite of a bool"""

    a: PrimExpr
    dtype: str = derived("a.dtype")


@node
class Select(PrimExpr):
    """`true_value` where `condition`, else `false_value`; both sides may be evaluated."""

    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr
    dtype: str = derived("true_value.dtype")


@node
class Let(PrimExpr):
    """`body` with `var` standing for `value`."""

    var: Annotated[Var, DEF]
    value: PrimExpr
    body: PrimExpr
    dtype: str = derived("body.dtype")


@node
class Call(PrimExpr):
    """A call of an intrinsic (`Op`) or of a function of the module (`GlobalVar`)."""

    dtype: str
    op: BaseExpr
    args: tuple[Any, ...]  # PrimExpr; a BufferRegion or Buffer-like node in a few intrinsics

    def __init__(self, dtype: str, op: BaseExpr | str, args: Sequence[Any], *, span: Any = None) -> None:
        """`op` may be the name of an intrinsic, with its `tir.`."""
        if args.__class__ is not tuple:
            args = tuple(convert(a) if not isinstance(a, Node) else a for a in args)
        self.dtype, self.args, self.span = dtype, args, span  # pyright: ignore
        self.op = op if op.__class__ is not str else Op.get(op)  # pyright: ignore


Lanes = int
"""A number of lanes; `k * T.vscale()` in a constructor becomes -k."""


@node
class Ramp(PrimExpr):
    """The vector base, base + stride, ... of `lanes` elements."""

    base: PrimExpr
    stride: PrimExpr
    lanes: Lanes
    dtype: str = derived("dt.with_lanes(base.dtype, lanes * dt.lanes(base.dtype))")


@node
class Broadcast(PrimExpr):
    """`value` in each of `lanes` lanes."""

    value: PrimExpr
    lanes: Lanes
    dtype: str = derived("dt.with_lanes(value.dtype, lanes * dt.lanes(value.dtype))")


@node
class Shuffle(PrimExpr):
    """The lanes of all `vectors` in a row, picked by constant `indices`."""

    vectors: tuple[PrimExpr, ...]
    indices: tuple[PrimExpr, ...]
    dtype: str = derived("dt.with_lanes(vectors[0].dtype, len(indices))")


# The operators above build through these; they need the classes, so they come last. Also exported from here.
from tilewright.arith.build import (  # noqa: E402
    add,
    all_of,
    any_of,
    bitwise,
    bitwise_not,
    call_intrin,
    cast,
    ceildiv,
    cmp,
    const,
    convert,
    div,
    floordiv,
    floormod,
    if_then_else,
    is_const,
    logical_and,
    logical_not,
    logical_or,
    max_value,
    maximum,
    min_value,
    minimum,
    mod,
    mul,
    neg,
    pointer_var,
    same_value,
    select,
    sub,
    true_div,
    truncdiv,
    truncmod,
    wrap,
)
