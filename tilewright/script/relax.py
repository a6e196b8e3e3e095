"""The `R` namespace of script: `from tilewright.script import relax as R`.

Struct infos (`R.Tensor`, `R.Shape`, `R.Prim`, `R.Tuple`, `R.Object`, `R.Callable`), values (`R.const`, `R.shape`, `R.prim_value`, ...),
calls of kernels and registered functions, and every operator of `relax.op.OPS` by its name: `R.add(x, y)`, `R.nn.softmax(x,
axis=-1)`. Operands come first, then attributes, all of them by keyword too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable as Function
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from tilewright.arith import expr as E
from tilewright.ir.op import GlobalVar
from tilewright.relax import calls, struct_info
from tilewright.relax import ir as rx
from tilewright.relax import op as relax_op
from tilewright.relax.calls import call_dps_packed, call_packed, call_pure_packed
from tilewright.relax.values import const, convert, make_tuple, make_var
from tilewright.script.commands import FuncAttr
from tilewright.script.source import did_you_mean

__all__ = [
    "Call", "Callable_", "DataflowVar", "ExternFunc", "GlobalVar", "Object", "Op", "Prim", "Shape", "Tensor", "Tuple",
    "TupleGetItem", "Var", "bindings", "call_dps_packed", "call_packed", "call_pure_packed", "call_tir", "call_tir_inplace",
    "const", "dataflow", "dtype", "emit_te", "func_attr", "function", "match_cast", "output", "prim_value", "shape", "str_",
    "to_info", "tuple_",
]  # fmt: skip


# ---- struct infos


@dataclass(frozen=True)
class InfoProxy:
    """A struct info with quoted dimensions, which the parser resolves: `build(symbol)`."""

    build: Function[[Function[[str], E.PrimExpr]], struct_info.StructInfo]


def _quoted(values: Any) -> bool:
    return any(isinstance(v, str) for v in values)


def _resolve(values: Any, symbol: Function[[str], E.PrimExpr]) -> tuple[Any, ...]:
    return tuple(symbol(v) if isinstance(v, str) else v for v in values)


class InfoFactory:
    """`R.Tensor`, `R.Shape`, ...: called with arguments, or bare as an annotation."""

    def __init__(self, name: str, make: Function[..., Any]) -> None:
        self.name, self.make = name, make
        self.__doc__ = make.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.make(*args, **kwargs)

    def __repr__(self) -> str:
        return f"R.{self.name}"


def _tensor(shape: Any = None, dtype: str | None = None, vdevice: Any = None, ndim: int = -1) -> Any:
    """A tensor; what is left out is not known."""
    del vdevice
    if isinstance(shape, str) and dtype is None:
        shape, dtype = None, shape
    kind = "" if dtype is None else str(dtype)
    if shape is None:
        return struct_info.TensorStructInfo(None, kind, ndim)
    values = shape.values if isinstance(shape, rx.ShapeExpr) else tuple(shape)
    if ndim not in (-1, len(values)):
        raise ValueError(f"ndim={ndim} contradicts a shape of {len(values)} dimensions")
    if _quoted(values):
        return InfoProxy(lambda symbol: struct_info.TensorStructInfo(_resolve(values, symbol), kind))
    return struct_info.TensorStructInfo(values, kind)


def _shape(values: Any = None, ndim: int = -1) -> Any:
    """A shape."""
    if values is None:
        return struct_info.ShapeStructInfo(None, ndim)
    items = tuple(values)
    if _quoted(items):
        return InfoProxy(lambda symbol: struct_info.ShapeStructInfo(_resolve(items, symbol)))
    return struct_info.ShapeStructInfo(items)


def _prim(dtype: str | None = None, value: Any = None) -> Any:
    """A scalar of a dtype, perhaps of a known value."""
    if value is None:
        if dtype is None:
            raise ValueError("R.Prim needs a dtype or a value")
        return struct_info.PrimStructInfo(str(dtype))
    if isinstance(value, str):
        return InfoProxy(lambda symbol: _prim(dtype, symbol(value)))
    e = E.convert(value, "int64") if isinstance(value, int) and not isinstance(value, bool) else E.convert(value)
    return struct_info.PrimStructInfo(str(dtype or e.dtype), e)


def _tuple(*items: Any) -> Any:
    """A tuple of values."""
    if len(items) == 1 and isinstance(items[0], (tuple, list)):
        items = tuple(items[0])
    return _together(items, lambda infos: struct_info.TupleStructInfo(infos))


def _callable(params: Any = None, ret: Any = None, purity: bool = True) -> Any:
    """A function."""
    result = ret if ret is not None else struct_info.ObjectStructInfo()
    if params is None:
        return _together((result,), lambda infos: struct_info.FuncStructInfo(None, infos[0], purity))
    items = tuple(params) if isinstance(params, (tuple, list)) else (params,)
    return _together((*items, result), lambda infos: struct_info.FuncStructInfo(tuple(infos[:-1]), infos[-1], purity))


def _together(items: Sequence[Any], make: Function[[Any], Any]) -> Any:
    known = [to_info(i) for i in items]
    if any(isinstance(i, InfoProxy) for i in known):
        return InfoProxy(lambda symbol: make(tuple(i.build(symbol) if isinstance(i, InfoProxy) else i for i in known)))
    return make(tuple(known))


def to_info(value: Any) -> Any:
    """An annotation as a struct info or a proxy of one. Raises TypeError on anything else."""
    if isinstance(value, InfoFactory):
        return value.make()
    if isinstance(value, (struct_info.StructInfo, InfoProxy)):
        return value
    if isinstance(value, rx.ShapeExpr):
        return struct_info.ShapeStructInfo(value.values)
    raise TypeError(f"{value!r} is no struct info; use R.Tensor((n, 4), dtype=...), R.Shape, R.Prim, R.Tuple, R.Object")


Tensor = InfoFactory("Tensor", _tensor)
Shape = InfoFactory("Shape", _shape)
Prim = InfoFactory("Prim", _prim)
Tuple = InfoFactory("Tuple", _tuple)
Object = InfoFactory("Object", lambda: struct_info.ObjectStructInfo())
Callable_ = InfoFactory("Callable", _callable)


# ---- values


def shape(values: Sequence[Any]) -> rx.ShapeExpr:
    """A shape as a value."""
    return rx.ShapeExpr(tuple(values))


def prim_value(value: Any) -> rx.PrimValue:
    """A scalar as a value; a Python int is int64."""
    return rx.PrimValue(value)


def str_(value: str) -> rx.StringImm:
    """A string as a value."""
    return rx.StringImm(value)


def dtype(value: str) -> rx.DataTypeImm:
    """A dtype as a value."""
    return rx.DataTypeImm(str(value))


def tuple_(*items: Any) -> rx.Tuple:
    """A tuple of values."""
    return make_tuple(items)


def TupleGetItem(value: Any, index: int) -> rx.TupleGetItem:
    """One of the values of a tuple."""
    return rx.TupleGetItem(convert(value), index)


def ExternFunc(name: str) -> rx.ExternFunc:
    """A function of the global registry."""
    return rx.ExternFunc(name)


def Var(name: str, info: Any = None) -> rx.Var:
    """A variable."""
    return make_var(name, None if info is None else to_info(info))


def DataflowVar(name: str, info: Any = None) -> rx.Var:
    """A variable of a dataflow block."""
    return make_var(name, None if info is None else to_info(info), dataflow=True)


# ---- calls


def _infos(out_sinfo: Any) -> Any:
    if isinstance(out_sinfo, (list, tuple)):
        return [_info(i) for i in out_sinfo]  # pyright: ignore[reportUnknownVariableType]
    return _info(out_sinfo)


def _info(value: Any) -> Any:
    found = to_info(value)
    if isinstance(found, InfoProxy):
        raise TypeError("a quoted dimension belongs in a signature; inside a function declare it: n = T.int64()")
    return found


def call_tir(gvar: Any, args: Any, out_sinfo: Any = None, tir_vars: Any = None, *, dtype: str | None = None) -> rx.Call:
    """A call of a kernel of this module; the caller allocates the outputs, which `out_sinfo` describes.

    A plain shape with `dtype` may stand for `out_sinfo`.
    """
    if dtype is not None:
        out_sinfo = _tensor(out_sinfo, dtype)
    if not isinstance(gvar, GlobalVar):
        raise TypeError(f"call_tir calls a function of the module, such as cls.f, not {gvar!r}")
    if out_sinfo is None:
        raise TypeError("call_tir needs out_sinfo=R.Tensor(...), which says what comes out")
    return calls.call_tir(gvar, args, _infos(out_sinfo), tir_vars)


def call_tir_inplace(
    gvar: Any, args: Any, inplace_indices: Any = (), out_sinfo: Any = None, tir_vars: Any = None
) -> rx.Call:
    """A call of a kernel that writes outputs over inputs."""
    return calls.call_tir_inplace(gvar, args, inplace_indices, _infos(out_sinfo), tir_vars)


def Call(op: Any, args: Sequence[Any], sinfo_args: Sequence[Any] = ()) -> rx.Call:
    """A call as it is."""
    return rx.Call(op, tuple(convert(a) for a in args), tuple(_info(s) for s in sinfo_args))


def call_value(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> rx.Call:
    """A call of a function of the module, of a closure, of a registered function."""
    if not isinstance(func, (rx.Var, GlobalVar, rx.ExternFunc, relax_op.Op)):
        raise TypeError(f"{func!r} cannot be called")
    infos = tuple(_info(i) for i in kwargs.pop("sinfo_args", ()))
    if kwargs:
        raise TypeError(f"a call of a function of the module takes no keyword {next(iter(kwargs))!r}")
    return rx.Call(func, tuple(convert(a) for a in args), infos)


def Op(name: str, **attrs: Any) -> Any:
    """An operator object by its name."""
    return _ops()[name](**{k: _frozen(v) for k, v in attrs.items()})


def _frozen(value: Any) -> Any:
    """An attribute value that can be hashed: lists become tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(v) for v in value)  # pyright: ignore[reportUnknownVariableType]
    return str(value) if type(value).__name__ == "DtypeFactory" else value


def _ops() -> dict[str, type[relax_op.Op]]:
    from importlib import import_module

    import_module("tilewright.ops")
    return relax_op.OPS


@cache
def _operands(cls: type[relax_op.Op]) -> tuple[list[str], bool]:
    """The names of an operator's operands, and whether it takes any number of them."""
    params = list(inspect.signature(cls.infer).parameters.values())[1:]
    many = any(p.kind is p.VAR_POSITIONAL for p in params)
    return [p.name for p in params if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)], many


def _is_graph(value: Any) -> bool:
    """Is it, or does it hold, a value of the graph or a symbolic number?"""
    if isinstance(value, (tuple, list)):
        return any(map(_is_graph, value))  # pyright: ignore[reportUnknownArgumentType]
    return isinstance(value, (rx.Expr, E.PrimExpr))


class OpFunction:
    """`R.<operator>`: builds a call of it."""

    def __init__(self, cls: type[relax_op.Op]) -> None:
        self.cls = cls
        self.__doc__ = cls.__doc__
        self.__name__ = cls.name

    def __call__(self, *args: Any, sinfo_args: Sequence[Any] = (), **kwargs: Any) -> rx.Call:
        names, many = _operands(self.cls)
        if many:
            operands, attrs = list(args), kwargs
        else:
            operands, attrs = self._split(names, args, kwargs)
        known = [f.name for f in fields(self.cls)]
        for k in attrs:
            if k not in known:
                hint = did_you_mean(k, [*known, *names])
                has = ", ".join([*names, *(n for n in known if n not in names)]) or "none"
                raise TypeError(
                    f"{self.cls.name} has no argument {k!r}; it has: {has}" + (f" ({hint})" if hint else "")
                )
        op = self.cls(**{k: _frozen(v) for k, v in attrs.items()})
        return rx.Call(op, tuple(convert(a) for a in operands), tuple(_info(s) for s in sinfo_args))

    def _split(self, names: list[str], args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Operands and attributes. Where a name is both (a size that may be symbolic), plain Python data is the attribute."""
        attributes = [f.name for f in fields(self.cls)]
        order = [*names, *(a for a in attributes if a not in names)]
        if len(args) > len(order):
            raise TypeError(
                f"{self.cls.name} takes at most {len(order)} arguments ({', '.join(order)}), got {len(args)}"
            )
        given = dict(zip(order, args))
        twice = next((k for k in kwargs if k in given), None)
        if twice:
            raise TypeError(f"{self.cls.name} got {twice!r} twice")
        given.update(kwargs)
        operands: list[Any] = []
        attrs: dict[str, Any] = {}
        for k in sorted(given, key=lambda k: names.index(k) if k in names else len(names)):
            v = given[k]
            if k in names and not (k in attributes and not _is_graph(v)):
                if v is not None:
                    operands.append(v)
            else:
                attrs[k] = v
        return operands, attrs

    def __repr__(self) -> str:
        return f"R.{self.cls.name}"


class OpNamespace:
    """`R.nn`, `R.image`: the operators whose names begin so."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        found = None if name.startswith("__") else operator(self._prefix + name)
        if found is None:
            raise AttributeError(f"there is no operator {self._prefix + name!r}")
        return found

    def __dir__(self) -> list[str]:
        n = len(self._prefix)
        return sorted({k[n:].partition(".")[0] for k in _ops() if k.startswith(self._prefix)})


@cache
def operator(name: str) -> Any:
    """The function of an operator, or the namespace that begins so; None if there is neither."""
    ops = _ops()
    if name in ops:
        return OpFunction(ops[name])
    if any(k.startswith(name + ".") for k in ops):
        return OpNamespace(name + ".")
    return None


_ALIASES = {"str": str_, "tuple": tuple_, "Callable": Callable_}


def __getattr__(name: str) -> Any:
    """Operators by their name."""
    found = _ALIASES.get(name)
    if found is None and not name.startswith("__"):
        found = operator(name)
    if found is None:
        raise AttributeError(f"module 'tilewright.script.relax' has no attribute {name!r}")
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_ALIASES, *(k.partition(".")[0] for k in _ops())})


# ---- statements


@dataclass
class MatchCastCommand:
    """`R.match_cast(value, struct_info)`"""

    value: Any
    info: Any


@dataclass
class DataflowFrame:
    """`with R.dataflow():`"""


@dataclass
class BindingsFrame:
    """`with R.bindings():` a block of bindings that stands alone."""


@dataclass
class OutputCommand:
    """`R.output(...)`"""

    variables: tuple[Any, ...]


@dataclass
class EmitTE:
    """`R.emit_te(func, ...)`"""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def match_cast(value: Any, info: Any) -> MatchCastCommand:
    """`value`, checked at run time to be what `info` says, whose new symbols it binds."""
    return MatchCastCommand(convert(value), to_info(info))


def dataflow() -> DataflowFrame:
    """A block of bindings without effects."""
    return DataflowFrame()


def bindings() -> BindingsFrame:
    """A block of bindings that stands alone (a printed fragment)."""
    return BindingsFrame()


def output(*variables: Any) -> OutputCommand:
    """The variables of a dataflow block that are seen behind it."""
    return OutputCommand(variables)


def func_attr(attrs: dict[str, Any]) -> FuncAttr:
    """Attributes of the function."""
    return FuncAttr(attrs)


def emit_te(func: Function[..., Any], *args: Any, **kwargs: Any) -> EmitTE:
    """A call of a kernel made of the tensor expression that `func` gives."""
    return EmitTE(func, args, kwargs)


def function(
    func: Any = None, *, pure: bool = True, private: bool = False, check_well_formed: bool = True, name: str = ""
) -> Any:
    """Decorator: the Python function is script of the graph IR, and becomes a relax Function."""
    from tilewright.script.parser import decorate

    options = {"pure": pure, "private": private, "check_well_formed": check_well_formed, "name": name}
    return decorate("relax", func, options)


def macro(func: Any = None, *, hygienic: bool = True) -> Any:
    """Decorator: script that is parsed anew in place of each call of it."""
    from tilewright.script.parser import decorate

    return decorate("macro", func, {"hygienic": hygienic})
