"""The operator idiom: an operator is one class in one place.

    @operator
    class Softmax(Op, name="nn.softmax", onnx="Softmax@13", torch=("aten._softmax.default",)):
        '''exp(x - max(x)) / sum(exp(x - max(x))) along `axis`.'''
        axis: int = -1
        def infer(self, x): ...        # struct info of the result, from the operands (relax expressions with struct_info)
        def compute(self, x): ...      # tensor expression of tensor expressions (or override `lower`)
        def reference(self, x): ...    # numpy: the meaning
        @classmethod
        def samples(cls): ...          # cases that one conformance test runs for every operator

The annotated fields are the static attributes (`@operator` makes a dataclass of the class). Whatever may be symbolic (a new shape, a bound of a slice) is an operand: a
ShapeExpr or a PrimValue. `Call.op` is the operator object, so a call carries its attributes with it.

Importing `tilewright.ops` fills `OPS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import FrozenInstanceError, dataclass, field, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tilewright.relax.ir import Call, Expr
from tilewright.relax.struct_info import StructInfo
from tilewright.support.lazy import resolve

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    from tilewright.relax.block_builder import BlockBuilder
else:
    from tilewright.ir.node import dataclass_transform

__all__ = ["OPS", "Op", "OpPatternKind", "Sample", "operator"]

T = TypeVar("T")


class OpPatternKind(IntEnum):
    """How an operator's kernel may be fused with its neighbours."""

    ELEMWISE = 0  # out[i] depends on in[i]
    BROADCAST = 1  # out[i] depends on in[a subset of i, in order]
    INJECTIVE = 2  # out[i] depends on one in[f(i)]
    REDUCE = 3  # a commutative reduction
    OUT_FUSABLE = 4  # conv, matmul: elementwise consumers join its epilogue
    TUPLE = 7
    OPAQUE = 8  # nothing joins


OPS: dict[str, type[Op]] = {}
"""Every operator class by its name without the `relax.` prefix."""

ONNX_OPS: dict[str, list[tuple[int, type[Op]]]] = {}
"""One-to-one ONNX operators: op_type to (since_version, class), from the classes' `onnx=`."""


@dataclass(frozen=True)
class Sample:
    """One case of an operator: the operator object and its operands.

    An operand is a numpy array (a tensor), a tuple of ints (a ShapeExpr), or an int/float (a PrimValue).
    """

    op: Op
    args: tuple[Any, ...]
    rtol: float = 1e-5
    atol: float = 1e-6


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def operator(cls: type[T], /) -> type[T]:
    """Class decorator: a dataclass whose comparison, hash, text and immutability are those that `Op` has once for all.

    Only the constructor is generated: a frozen dataclass costs about two milliseconds to define, and there are over a hundred.
    """
    return dataclass(eq=False, repr=False)(cls)


@operator
class Op:
    """The root of operators; see the head of the module."""

    name: ClassVar[str] = ""
    onnx: ClassVar[tuple[str, ...]] = ()
    torch: ClassVar[tuple[str, ...]] = ()
    _attribute_names: ClassVar[tuple[str, ...]]
    elementwise: ClassVar[bool] = False
    """Does it work element by element, operands broadcast, whatever the order of axes?"""
    composite: ClassVar[bool] = False
    """Is it made of other operators (`lower` builds them), and expanded before the graph is optimised?"""

    if TYPE_CHECKING:

        def __init__(self, *args: Any, **attributes: Any) -> None: ...

        def __getattr__(self, attribute: str) -> Any: ...

    @classmethod
    def attribute_names(cls) -> tuple[str, ...]:
        """The names of the attributes, in order."""
        found = cls.__dict__.get("_attribute_names")
        if found is None:
            found = tuple(f.name for f in fields(cls))
            cls._attribute_names = found
        return found

    def attribute_values(self) -> tuple[Any, ...]:
        """The attributes, in order."""
        return tuple([getattr(self, name) for name in self.attribute_names()])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.attribute_values() == other.attribute_values()  # pyright: ignore

    def __hash__(self) -> int:
        return hash((type(self), self.attribute_values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.attribute_names())
        return f"{type(self).__qualname__}({shown})"

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        self.__dict__[name] = value

    def __init_subclass__(
        cls, *, name: str | None = None, onnx: str | Iterable[str] = (), torch: str | Iterable[str] = (), **kw: Any
    ) -> None:
        super().__init_subclass__(**kw)
        if name is None:
            return
        cls.name = name
        cls.onnx = (onnx,) if isinstance(onnx, str) else tuple(onnx)
        cls.torch = (torch,) if isinstance(torch, str) else tuple(torch)
        if name in OPS and OPS[name].__qualname__ != cls.__qualname__:
            raise ValueError(f"two operators are named {name!r}")
        OPS[name] = cls
        for entry in cls.onnx:
            op_type, _, since = entry.partition("@")
            ONNX_OPS.setdefault(op_type, []).append((int(since or 1), cls))

    def __call__(self, *args: Any) -> Call:
        """A call of this operator; numpy arrays, ints and tuples among the operands become constants and shapes."""
        from tilewright.relax.values import convert

        return Call(self, tuple(convert(a) for a in args))

    def infer(self, *args: Expr) -> StructInfo:
        """The struct info of the result. Raises CompileError that names the operand and what it may be."""
        raise TypeError(f"{type(self).__name__} does not say what it gives (infer)")

    def compute(self, *args: Any) -> Any:
        """The result as a te.Tensor (or a list of them for a tuple).

        A tensor operand comes as te.Tensor, a ShapeExpr as a tuple of PrimExprs, a PrimValue as a PrimExpr, a tuple of
        tensors as a list.
        """
        raise TypeError(f"{type(self).__name__} has no tensor expression (compute)")

    def lower(self, b: BlockBuilder, *args: Expr) -> Expr:
        """What the call becomes: by default one call of the kernel of `compute`; an operator made of others builds them."""
        return b.call_te(self.compute, *args)

    def reference(self, *args: Any) -> Any:
        """The result in numpy (a tuple of arrays for a tuple). Operands as in `Sample`."""
        raise TypeError(f"{type(self).__name__} has no numpy reference")

    @classmethod
    def samples(cls) -> list[Sample]:
        """Cases for the conformance test; every operator has some."""
        return []


def __getattr__(name: str) -> Any:
    """Operators as functions: `relax.op.add`, `relax.op.nn.conv2d` (see ops/api.py)."""
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(resolve("ops.root"), name)
