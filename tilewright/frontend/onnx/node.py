"""What a row of the table works with: a node's attributes, its operands' facts, and how to emit operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray

from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.arith.expr import convert as to_expr
from tilewright.frontend.onnx.reader import element_type, tensor_array
from tilewright.frontend.onnx.symbolic import LIMIT, Symbolic
from tilewright.ir import dtype as dt
from tilewright.relax import ir as rx
from tilewright.relax.dims import prove_equal, shape_product
from tilewright.relax.op import OPS, Op
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from tilewright.relax.values import convert, make_tuple

if TYPE_CHECKING:
    from tilewright.frontend.onnx.convert import Importer

__all__ = ["NodeContext", "Poison", "Unsupported", "Value", "make_shape_tensor"]


class Poison:
    """The value of a tensor whose node has a fault: what depends on it is skipped."""


Value = Union[rx.Expr, Symbolic, Poison]

_MISSING: Any = object()


class Unsupported(Exception):
    """What a row raises; the importer adds the node."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.hint = code, hint


@cache
def _takes(function: Callable[..., Any]) -> tuple[int, tuple[str, ...]]:
    """How many operands a row takes at most, and the names of those it needs."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 1 << 30, ("the first",)
    return len(parameters), tuple(p.name for p in parameters if p.default is p.empty)


class NodeContext:
    """One node while it is converted."""

    Constant = rx.Constant

    def __init__(self, importer: Importer, proto: Any) -> None:
        self.importer, self.proto = importer, proto
        self.op_type = str(proto.op_type)
        self.domain = "" if proto.domain == "ai.onnx" else str(proto.domain)
        self.opset = importer.source.opsets.get(self.domain, 1)
        self.attributes = {a.name: a for a in proto.attribute}
        self.seen: set[str] = set()
        self.result_dtype = "int64"

    # ---- attributes -----------------------------------------------------------------------------------------------

    def attr(self, name: str, default: Any = _MISSING) -> Any:
        """An attribute: int, float, str, list, numpy array (tensors) or GraphProto.

        Raises Unsupported (TW0311) if it is missing and no default is given.
        """
        self.seen.add(name)
        found = self.attributes.get(name)
        if found is None:
            if default is _MISSING:
                raise Unsupported("TW0311", f"the attribute {name!r} is missing")
            return default
        kind = found.type
        readers: dict[int, Callable[[], Any]] = {
            1: lambda: float(found.f),
            2: lambda: int(found.i),
            3: lambda: found.s.decode("utf-8", "replace"),
            4: lambda: tensor_array(self.importer.source, found.t),
            5: lambda: found.g,
            6: lambda: [float(v) for v in found.floats],
            7: lambda: [int(v) for v in found.ints],
            8: lambda: [v.decode("utf-8", "replace") for v in found.strings],
        }
        if kind not in readers:
            raise Unsupported("TW0309", f"the attribute {name!r} is of a kind that is not supported")
        value = readers[kind]()
        if default is not _MISSING and default is not None:
            self._check_kind(name, value, default)
        return value

    @staticmethod
    def _check_kind(name: str, value: Any, default: Any) -> None:
        wanted = (int, float) if isinstance(default, float) else type(default)
        if not isinstance(value, wanted):
            raise Unsupported(
                "TW0311", f"the attribute {name!r} is a {type(value).__name__}, not a {type(default).__name__}"
            )

    def schema_attr(self, name: str) -> Any:
        """An attribute, or the default that the ONNX standard gives it; None if there is neither."""
        if name in self.attributes:
            return self.attr(name)
        onnx: Any = import_module("onnx")
        try:
            known = onnx.defs.get_schema(self.op_type, self.opset, self.domain).attributes.get(name)
        except Exception:
            return None
        if known is None or not known.default_value.name:
            return None
        value = onnx.helper.get_attribute_value(known.default_value)
        return value.decode() if isinstance(value, bytes) else value

    def dtype_attr(self, name: str, default: str | None = None) -> str:
        """An attribute that holds an ONNX element type, as a dtype."""
        code = self.attr(name) if default is None else self.attr(name, 0)
        if not code and default is not None:
            return default
        return element_type(self.importer.source, int(code), f"the attribute {name!r}")

    def check_attributes(self, ignore: tuple[str, ...]) -> None:
        """Raise TW0309 for an attribute that the row did not look at."""
        for name in self.attributes:
            if name not in self.seen and name not in ignore:
                raise Unsupported("TW0309", f"the attribute {name!r} is not supported")

    def check_operands(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        """Raise TW0311 if a row cannot take this number of operands, or one is left out that it needs."""
        most, needed = _takes(function)
        if len(args) > most:
            raise Unsupported("TW0311", f"it has {len(args)} operands and takes {most} at most")
        for i, name in enumerate(needed):
            if i >= len(args) or args[i] is None:
                raise Unsupported("TW0311", f"operand {i} ({name}) is missing")

    def unsupported(self, message: str, hint: str | None = None) -> Unsupported:
        """The error to raise for a form of the operator that is not supported."""
        return Unsupported("TW0309", message, hint)

    def malformed(self, message: str) -> Unsupported:
        """The error to raise for a node that breaks the rules of ONNX."""
        return Unsupported("TW0311", message)

    def unknown(self, what: str) -> Unsupported:
        """The error to raise where something must be a number at compile time and is a formula."""
        return Unsupported(
            "TW0312", f"{what} must be known at compile time", "fix the inputs' shapes: --shape, shape_dict="
        )

    def wants(self, output: int) -> bool:
        """Is the output used by the model?"""
        return output < len(self.proto.output) and bool(self.proto.output[output])

    def only_output(self, *names: str) -> None:
        """Raise TW0309 if one of the outputs after the first is used."""
        for i, name in enumerate(names, 1):
            if self.wants(i):
                raise self.unsupported(f"its output {name} is not supported")

    # ---- facts of operands ----------------------------------------------------------------------------------------

    def sinfo(self, x: Any) -> TensorStructInfo:
        """The struct info of a tensor."""
        if isinstance(x, rx.Constant) and x.struct_info is None:
            x = self.importer.constant(x.data)
        si = x.struct_info
        if not isinstance(si, TensorStructInfo):
            raise Unsupported("TW0311", "an operand is no tensor")
        return si

    def shape(self, x: Any) -> tuple[PrimExpr, ...]:
        """The dimensions of a tensor. Raises TW0312 where the shape is not known at compile time."""
        if isinstance(x, Symbolic):
            return tuple(IntImm("int64", d) for d in x.values.shape)
        shape = self.sinfo(x).shape
        if shape is None:
            raise Unsupported(
                "TW0312", "the shape of an operand depends on data, and has to be known here",
                "fix the inputs' shapes (--shape NAME=..., shape_dict=)",
            )  # fmt: skip
        return shape

    def static_shape(self, x: Any, what: str) -> list[int]:
        """The dimensions as numbers. Raises TW0312 where one is symbolic."""
        out: list[int] = []
        for d in self.shape(x):
            if not isinstance(d, IntImm):
                raise Unsupported(
                    "TW0312", f"{what} must have a fixed shape here", "fix it with --shape or shape_dict="
                )
            out.append(d.value)
        return out

    def static_shape_of(self, x: Any, axis: int, what: str) -> int:
        """One dimension as a number. Raises TW0312 where it is symbolic."""
        d = self.shape(x)[axis]
        if not isinstance(d, IntImm):
            raise self.unknown(what)
        return d.value

    def rank(self, x: Any) -> int:
        """The number of dimensions. Raises TW0312 where it is not known."""
        if isinstance(x, Symbolic):
            return x.values.ndim
        si = self.sinfo(x)
        rank = len(si.shape) if si.shape is not None else si.ndim
        if rank < 0:
            raise Unsupported("TW0312", "the rank of an operand depends on data, and has to be known here")
        return rank

    def dtype(self, x: Any) -> str:
        """The dtype of a tensor."""
        return x.dtype if isinstance(x, Symbolic) else self.sinfo(x).dtype

    def axis(self, value: int, rank: int, name: str = "axis") -> int:
        """An axis counted from the front. Raises TW0311 where it is out of range."""
        if not -rank <= value < max(rank, 1):
            raise Unsupported("TW0311", f"{name} {value} is out of range for {rank} dimensions")
        return value % rank if rank else 0

    def array(self, x: Any, what: str) -> NDArray[Any]:
        """The numpy array of an operand that has to be constant. Raises TW0312."""
        if isinstance(x, Symbolic) and x.known is not None:
            return x.known
        if not isinstance(x, rx.Constant):
            raise Unsupported(
                "TW0312", f"{what} must be a constant", "fix the inputs' shapes if it is computed from them"
            )
        return x.data

    def numbers(self, x: Any, what: str) -> list[int]:
        """The integers of a constant operand (axes, pads). Raises TW0312."""
        return [int(v) for v in self.array(x, what).reshape(-1)]

    def formulas(self, x: Any, what: str) -> list[Any]:
        """The elements of an operand as ints or formulas of dimensions (a shape). Raises TW0312 if they depend on data."""
        if isinstance(x, Symbolic):
            return list(x.values.reshape(-1))
        if not isinstance(x, rx.Constant):
            raise Unsupported("TW0312", f"{what} depends on data; it has to be a constant or computed from dimensions")
        return [v.item() for v in x.data.reshape(-1)]

    def int_list(self, name: str, operand: Any = None) -> list[int] | None:
        """A list of integers that is an operand in newer operator sets and an attribute in older ones."""
        if operand is not None:
            return self.numbers(operand, name)
        return self.attr(name, None)

    def shape_value(self, operands: Sequence[Any]) -> Value | None:
        """What Shape and Size give: formulas, where the operand's shape is known."""
        if (
            len(operands) != 1
            or operands[0] is None
            or (not isinstance(operands[0], Symbolic) and self.sinfo(operands[0]).shape is None)
        ):
            return None
        dims = [d.value if isinstance(d, IntImm) else d for d in self.shape(operands[0])]
        if self.op_type == "Size":
            total: Any = 1
            for d in dims:
                total = total * d
            values = np.empty((), dtype=object)
            values[()] = total
        else:
            start, end = self.attr("start", 0), self.attr("end", len(dims))
            dims = dims[start:end]
            values = np.empty(len(dims), dtype=object)
            values[:] = dims
        made = Symbolic(values)
        known = made.known
        return made if known is None else self.importer.constant(known)

    def size(self, x: Any) -> int:
        """The number of elements of a constant or of a tensor of formulas; -1 where it is not known."""
        if isinstance(x, Symbolic):
            return int(x.values.size)
        return int(x.data.size) if isinstance(x, rx.Constant) else -1

    @staticmethod
    def product(dims: Sequence[Any]) -> PrimExpr:
        """The product of dimensions."""
        return shape_product([_dim(d) for d in dims])

    @staticmethod
    def same(a: Any, b: Any) -> bool:
        """Are two dimensions provably equal?"""
        return prove_equal(_dim(a), _dim(b))

    # ---- emitting -------------------------------------------------------------------------------------------------

    def const(self, value: Any, dtype: str | None = None) -> rx.Constant:
        """A constant tensor."""
        return self.importer.constant(np.asarray(value, dtype=None if dtype is None else dt.to_numpy(dtype)))

    def scalar(self, value: float, like: Any) -> rx.Constant:
        """A constant of rank 0 of the dtype of `like`."""
        return self.const(value, self.dtype(like))

    @staticmethod
    def prim(value: Any, dtype: str | None = None) -> rx.PrimValue:
        """A scalar operand: a number or a formula."""
        return rx.PrimValue(_scalar(value, dtype))

    @staticmethod
    def tuple(fields: Sequence[Any]) -> rx.Tuple:
        """Several tensors as one operand."""
        return make_tuple(fields)

    @staticmethod
    def shape_expr(dims: Sequence[Any]) -> rx.ShapeExpr:
        """Integers and formulas as an operand."""
        return rx.ShapeExpr(tuple(_dim(d) for d in dims))

    def size_tensor(self, size: Any, dtype: str) -> rx.Expr:
        """A dimension as a tensor of rank 0."""
        values = np.empty((), dtype=object)
        values[()] = size
        return self.importer.tensor(Symbolic(values, dtype))

    @staticmethod
    def operator(name: str, **attributes: Any) -> Op:
        """The operator object of a public name."""
        return operator(name, attributes)

    def op(self, name: str, *operands: Any, **attributes: Any) -> Any:
        """The operator of that name applied to operands: folded if all are constant, else bound to a variable."""
        return self.emit(operator(name, attributes)(*operands))

    def emit(self, call: rx.Call) -> Any:
        """A call, evaluated at once where its operands are constant."""
        folded = fold(self.importer, call)
        if folded is not None:
            return folded
        return self.importer.builder.emit(self.importer.spanned(call, self.proto))

    def item(self, tuple_value: Any, index: int) -> Any:
        """One value of a tuple."""
        if isinstance(tuple_value, (list, tuple)):
            return tuple_value[index]
        if isinstance(tuple_value, rx.Tuple):
            return tuple_value.fields[index]
        return self.importer.builder.emit(rx.TupleGetItem(tuple_value, index))

    def broadcast(self, name: str, operands: Sequence[Any]) -> Any:
        """A binary operator over two or more operands, from the left."""
        total = operands[0]
        for other in operands[1:]:
            total = self.op(name, total, other)
        return total

    def astype(self, x: Any, dtype: str) -> Any:
        """The tensor converted to a dtype."""
        return x if self.dtype(x) == dtype else self.op("astype", x, dtype=dtype)

    def reshape(self, x: Any, shape: Sequence[Any]) -> Any:
        """The tensor with another shape (ints and formulas, all known)."""
        return self.op("reshape", x, rx.ShapeExpr(tuple(_dim(d) for d in shape)))


def _dim(d: Any) -> PrimExpr:
    return d if isinstance(d, PrimExpr) else IntImm("int64", int(d))


def _scalar(value: Any, dtype: str | None) -> PrimExpr:
    if isinstance(value, PrimExpr):
        return value if dtype is None else value.astype(dtype)
    return to_expr(value, dtype or ("float32" if isinstance(value, float) else "int64"))


def operator(name: str, attributes: dict[str, Any]) -> Op:
    """The operator object of a public name. Raises Unsupported where tilewright has none, or not this attribute."""
    cls = OPS.get(name)
    if cls is None:
        raise Unsupported("TW0308", f"it needs the operator {name!r}, which tilewright does not have yet")
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()})


def fold(importer: Importer, call: rx.Call) -> Any:
    """The value of a call whose operands are all constants: a Constant (a tuple of them); else None."""
    arrays: list[Any] = []
    for a in call.args:
        plain = _plain(a)
        if plain is None:
            return None
        arrays.append(plain[0])
    if not isinstance(call.op, Op) or not any(isinstance(a, (rx.Constant, rx.Tuple)) for a in call.args):
        return None
    info = infer(importer, call)
    with np.errstate(all="ignore"):
        result = call.op.reference(*arrays)
    return _constants(importer, result, info)


def infer(importer: Importer, call: rx.Call) -> StructInfo:
    """The struct info of a call that is not emitted."""
    return importer.builder.infer(call)


def _plain(e: rx.Expr) -> tuple[Any] | None:
    if isinstance(e, rx.Constant):
        return (e.data,)
    if isinstance(e, rx.ShapeExpr):
        values = tuple(v.value if isinstance(v, IntImm) else None for v in e.values)
        return None if None in values else (values,)
    if isinstance(e, rx.PrimValue):
        value = getattr(e.value, "value", None)
        return None if value is None or isinstance(value, PrimExpr) else (value,)
    if isinstance(e, rx.Tuple):
        items = [_plain(f) for f in e.fields]
        return None if any(i is None for i in items) else (tuple(i[0] for i in items if i is not None),)
    return None


def _constants(importer: Importer, result: Any, info: StructInfo) -> Any:
    if isinstance(info, TupleStructInfo):
        fields = [_constants(importer, r, si) for r, si in zip(result, info.fields)]
        return rx.Tuple(tuple(fields), struct_info=info)
    assert isinstance(info, TensorStructInfo)
    array = np.asarray(result)
    wanted = dt.to_numpy(info.dtype)
    return importer.constant(array if array.dtype == wanted else array.astype(wanted))


def make_shape_tensor(importer: Importer, value: Symbolic) -> rx.Expr:
    """A tensor of formulas as an expression: made by the host out of dimensions."""
    if value.values.size > LIMIT:
        raise Unsupported("TW0312", "a computed shape has too many elements")
    flat = [_as_int64(v) for v in value.values.reshape(-1)]
    b = importer.builder
    made = b.emit(operator("shape_to_tensor", {})(rx.ShapeExpr(tuple(flat))))
    if value.dtype != "int64":
        made = b.emit(operator("astype", {"dtype": value.dtype})(made))
    if value.values.ndim != 1:
        made = b.emit(operator("reshape", {})(made, convert(tuple(value.values.shape))))
    return made


def _as_int64(v: Any) -> PrimExpr:
    if isinstance(v, PrimExpr):
        if dt.is_float(v.dtype):
            raise Unsupported("TW0312", "a shape computed in floating point is used as a tensor")
        return v.astype("int64")
    if isinstance(v, float) and not v.is_integer():
        raise Unsupported("TW0312", "a shape computed in floating point is used as a tensor")
    return IntImm("int64", int(v))
