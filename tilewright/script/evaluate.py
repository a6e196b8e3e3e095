"""Evaluates the expressions of script: Python's own semantics, with operators on IR building IR.

Names come from the script's scopes, then from the user's closure, enclosing frames, globals and builtins. Every node that an
expression makes gets the span of that expression, and an exception underlines the innermost expression that raised it.
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.arith import expr as E
from tilewright.ir import dtype as dt
from tilewright.ir.node import Node
from tilewright.ir.op import GlobalVar
from tilewright.relax import ir as rx
from tilewright.script.commands import between
from tilewright.script.immediate import acting_on
from tilewright.script.source import Source, did_you_mean
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import Buffer, BufferLoad, BufferRegion, IterVar, Range

__all__ = ["Environment", "Evaluator", "region_to_load"]

_MISSING: Any = object()
_OWN = ("tilewright.", "builtins")

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.MatMult: operator.matmul,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_EXPR_COMPARE: dict[type, Any] = {
    ast.Eq: E.EQ,
    ast.NotEq: E.NE,
    ast.Lt: E.LT,
    ast.LtE: E.LE,
    ast.Gt: E.GT,
    ast.GtE: E.GE,
}


class Environment:
    """What names mean: scopes of the script over mappings of the user's program."""

    def __init__(self, *outer: Mapping[str, Any]) -> None:
        self.scopes: list[dict[str, Any]] = [{}]
        self.outer = (*outer, vars(builtins))
        self.global_vars: dict[str, GlobalVar] = {}
        self.returns: dict[str, str] = {}  # what functions of the module return: name -> dtype
        self.hints: dict[str, str] = {}  # of names that are out of sight: why

    @contextmanager
    def scope(self) -> Generator[None]:
        """A scope of names."""
        self.scopes.append({})
        try:
            yield
        finally:
            self.scopes.pop()

    def define(self, name: str, value: Any) -> None:
        """Give a name a meaning in the innermost scope."""
        self.scopes[-1][name] = value

    def lookup(self, name: str, default: Any = _MISSING) -> Any:
        """The meaning of a name. Raises KeyError."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        for table in self.outer:
            if name in table:
                return table[name]
        if default is not _MISSING:
            return default
        raise KeyError(name)

    def names(self) -> list[str]:
        """All names there are."""
        return [n for table in (*self.scopes, *self.outer) for n in table]


def region_to_load(r: BufferRegion) -> BufferLoad:
    """`A[i, 0:4]` where a value is wanted: a load of a vector."""
    indices: list[Any] = []
    for d in r.region:
        if isinstance(d.extent, E.IntImm):
            indices.append(d.min if d.extent.value == 1 else E.Ramp(d.min, E.IntImm(d.min.dtype, 1), d.extent.value))
        else:
            raise TypeError("a slice is read as a vector, so its length must be a constant")
    _last_only(r.buffer, indices)
    return BufferLoad(r.buffer, tuple(indices))


def _last_only(b: Buffer, indices: Sequence[Any]) -> None:
    """Only the last index may be a vector."""
    for d, i in enumerate(indices[:-1]):
        if isinstance(i, E.PrimExpr) and dt.lanes(i.dtype) > 1:
            raise TypeError(f"index {d} of {b.name} is a vector; only the last index may be one")


def _range_of(i: Any, extent: E.PrimExpr) -> Range:
    """The range of an index or slice of a dimension."""
    if not isinstance(i, slice):
        e = E.convert(i)
        return Range(e, E.IntImm(e.dtype, 1))
    start = E.const(0, extent.dtype) if i.start is None else E.convert(i.start)
    stop = extent if i.stop is None else E.convert(i.stop)
    return Range(start, between(start, stop))


def as_operand(v: Any) -> Any:
    """An operand of an operator: axes and slices become expressions."""
    if isinstance(v, BufferRegion):
        return region_to_load(v)
    if isinstance(v, IterVar):
        return v.var
    return v


def _same_lanes(a: Any, b: Any) -> tuple[Any, Any]:
    """Conditions of as many lanes each."""
    lanes = [dt.lanes(x.dtype) if isinstance(x, E.PrimExpr) else 1 for x in (a, b)]
    if lanes[0] == lanes[1]:
        return a, b
    a, b = (E.convert(x) if n == max(lanes) else E.Broadcast(E.convert(x), max(lanes)) for x, n in zip((a, b), lanes))
    return a, b


class Evaluator:
    """Evaluates expressions of one source in one environment."""

    def __init__(self, source: Source, env: Environment) -> None:
        self.source, self.env = source, env
        # calls of what Python cannot call: functions of the module
        self.call_hook: Callable[[Any, Any, Any], Any] | None = None
        self.acts_on: Any = None  # the state that functions of `T` act on in functions of the user's program

    def eval(self, n: ast.AST) -> Any:
        """The value of an expression. Raises CompileError that underlines what failed."""
        method = _METHODS.get(type(n))
        if method is None:
            self.source.fail("TW0104", f"script has no {type(n).__name__} expressions", n)
        try:
            value = method(self, n)
        except CompileError as e:
            raise self.placed(e, n) from e.__cause__
        except RecursionError:
            raise
        except Exception as e:
            message = f"{type(e).__name__}: {e}" if not isinstance(e, (ValueError, TypeError)) else str(e)
            raise CompileError.at("TW0104", message, self.source.span(n)) from e
        if isinstance(value, Node) and value.span is None and not value.identity:
            object.__setattr__(value, "span", self.source.span(n))
        return value

    def placed(self, e: CompileError, n: ast.AST) -> CompileError:
        """The error, with the place of `n` where it has none."""
        if all(d.span is not None for d in e.diagnostics):
            return e
        from dataclasses import replace

        span = self.source.span(n)
        e.diagnostics = tuple(d if d.span is not None else replace(d, span=span) for d in e.diagnostics)
        e.args = e.diagnostics
        return e

    def _constant(self, n: ast.Constant) -> Any:
        return n.value

    def _name(self, n: ast.Name) -> Any:
        try:
            return self.env.lookup(n.id)
        except KeyError:
            self.source.fail(
                "TW0102",
                f"the name {n.id!r} is not defined",
                n,
                hint=self.env.hints.get(n.id) or did_you_mean(n.id, self.env.names()),
            )

    def _attribute(self, n: ast.Attribute) -> Any:
        base = self.eval(n.value)
        if n.attr == "elem_offset" and type(base) is Buffer and base.elem_offset is None:
            return E.const(0, base.shape[0].dtype if base.shape else "int32")
        try:
            return getattr(base, n.attr)
        except AttributeError:
            hint = did_you_mean(n.attr, dir(base))
            self.source.fail("TW0103", f"{ast.unparse(n.value)} has no {n.attr!r}", n, hint=hint)

    def _call(self, n: ast.Call) -> Any:
        func = self.eval(n.func)
        args: list[Any] = []
        for a in n.args:
            if isinstance(a, ast.Starred):
                args.extend(self.eval(a.value))
            else:
                args.append(self.eval(a))
        kwargs: dict[str, Any] = {}
        for k in n.keywords:
            if k.arg is None:
                kwargs.update(self.eval(k.value))
            else:
                kwargs[k.arg] = self.eval(k.value)
        if getattr(func, "__module__", "") == "tilewright.tir.build":
            args = [region_to_load(a) if type(a) is BufferRegion else a for a in args]
        if self.call_hook is not None and (isinstance(func, Node) or not callable(func)):
            return self.call_hook(func, args, kwargs)
        if self.acts_on is not None and not getattr(func, "__module__", "").startswith(_OWN):
            with acting_on(self.acts_on):
                made = func(*args, **kwargs)
        else:
            made = func(*args, **kwargs)
        # one name is one function, also where it is written twice
        return self.env.global_vars.setdefault(made.name_hint, made) if type(made) is GlobalVar else made

    def _binary(self, n: ast.BinOp) -> Any:
        # a chain a + b + c nests to the left: walk down it in a loop
        chain: list[ast.BinOp] = []
        left: ast.AST = n
        while isinstance(left, ast.BinOp):
            chain.append(left)
            left = left.left
        value = as_operand(self.eval(left))
        for step in reversed(chain):
            right = as_operand(self.eval(step.right))
            if isinstance(value, str) and isinstance(right, Node):
                self.source.fail("TW0104", "a string and an expression do not go together", step)
            try:
                if "handle" in (getattr(value, "dtype", ""), getattr(right, "dtype", "")):
                    raise TypeError(
                        "a pointer is no number: use T.address_of, T.tvm_access_ptr, or an element of a buffer"
                    )
                value = _BINARY[type(step.op)](value, right)
            except (TypeError, ValueError, ArithmeticError) as e:
                self.source.fail("TW0104", str(e), step)
            if isinstance(value, Node) and value.span is None and not value.identity:
                object.__setattr__(value, "span", self.source.span(step))
        return value

    def _unary(self, n: ast.UnaryOp) -> Any:
        value = as_operand(self.eval(n.operand))
        if isinstance(n.op, ast.Not):
            return E.logical_not(value) if isinstance(value, E.PrimExpr) else not value
        if isinstance(n.op, ast.USub):
            return -value
        return ~value if isinstance(n.op, ast.Invert) else +value

    def _boolean(self, n: ast.BoolOp) -> Any:
        conjunction = isinstance(n.op, ast.And)
        value: Any = None
        for i, item in enumerate(n.values):
            if i and not isinstance(value, E.PrimExpr):
                if bool(value) != conjunction:
                    return value
                value = as_operand(self.eval(item))
                continue
            right = as_operand(self.eval(item))
            if not i:
                value = right
            else:
                value, right = _same_lanes(value, right)
                value = E.logical_and(value, right) if conjunction else E.logical_or(value, right)
        return value

    def _compare(self, n: ast.Compare) -> Any:
        left = as_operand(self.eval(n.left))
        result: Any = None
        for op, item in zip(n.ops, n.comparators, strict=True):
            right = as_operand(self.eval(item))
            kind = _EXPR_COMPARE.get(type(op))
            if kind is not None and (isinstance(left, E.PrimExpr) or isinstance(right, E.PrimExpr)):
                value = E.cmp(kind, left, right)
            else:
                value = _COMPARE[type(op)](left, right)
            if result is None:
                result = value
            elif isinstance(result, E.PrimExpr) or isinstance(value, E.PrimExpr):
                result = E.logical_and(result, value)
            else:
                result = result and value
            left = right
        return result

    def _conditional(self, n: ast.IfExp) -> Any:
        test = as_operand(self.eval(n.test))
        if isinstance(test, E.PrimExpr) and not isinstance(test, E.IntImm):
            return E.if_then_else(test, as_operand(self.eval(n.body)), as_operand(self.eval(n.orelse)))
        return self.eval(n.body) if test else self.eval(n.orelse)

    def _subscript(self, n: ast.Subscript) -> Any:
        base: Any = self.eval(n.value)
        index: Any = self.index(n.slice)
        container: Any = base
        if isinstance(base, Buffer):
            return self.element(base, index, n)
        if isinstance(base, rx.Expr) and not hasattr(base, "__getitem__"):
            if not isinstance(index, int):
                self.source.fail("TW0104", "a tuple of the graph is indexed by a number", n.slice)
            return rx.TupleGetItem(base, index)
        return container[index]

    def element(self, b: Buffer, index: Any, n: ast.Subscript) -> Any:
        """An element of a buffer, or a region where the index has a slice. Raises TW0109."""
        items: tuple[Any, ...] = tuple(index) if isinstance(index, (tuple, list)) else (index,)
        items = tuple(as_operand(i) for i in items)
        if len(items) != len(b.shape):
            self.source.fail(
                "TW0109",
                f"buffer {b.name!r} has {len(b.shape)} dimension{'s' * (len(b.shape) != 1)}, not {len(items)}",
                n,
            )
        for i in items:
            dtype = (
                i.dtype if isinstance(i, E.PrimExpr) else "int32" if isinstance(i, (int, slice)) else type(i).__name__
            )
            if not dtype.startswith(("int", "uint", "bool")):
                self.source.fail("TW0109", f"an index is an integer, not {dtype}", n.slice)
        if any(isinstance(i, slice) and i.step is None for i in items):
            return BufferRegion(b, tuple(_range_of(i, d) for i, d in zip(items, b.shape, strict=True)))
        made = b[items]
        _last_only(b, made.indices)
        return made

    def index(self, n: ast.AST) -> Any:
        """The value between the brackets."""
        if isinstance(n, ast.Tuple):
            out: list[Any] = []
            for x in n.elts:
                out += self.eval(x.value) if isinstance(x, ast.Starred) else [self.index(x)]
            return tuple(out)
        if isinstance(n, ast.Slice):
            parts = [None if x is None else as_operand(self.eval(x)) for x in (n.lower, n.upper, n.step)]
            return slice(*parts)
        return as_operand(self.eval(n))

    def _tuple(self, n: ast.Tuple | ast.List | ast.Set) -> Any:
        items: list[Any] = []
        for x in n.elts:
            if isinstance(x, ast.Starred):
                items.extend(self.eval(x.value))
            else:
                items.append(self.eval(x))
        return tuple(items) if isinstance(n, ast.Tuple) else items if isinstance(n, ast.List) else set(items)

    def _dict(self, n: ast.Dict) -> Any:
        out: dict[Any, Any] = {}
        for k, v in zip(n.keys, n.values, strict=True):
            if k is None:
                out.update(self.eval(v))
            else:
                out[self.eval(k)] = self.eval(v)
        return out

    def _lambda(self, n: ast.Lambda) -> Any:
        names = [a.arg for a in (*n.args.posonlyargs, *n.args.args)]
        captured = [dict(s) for s in self.env.scopes]

        def call(*args: Any) -> Any:
            if len(args) != len(names):
                raise TypeError(f"the lambda takes {len(names)} arguments, got {len(args)}")
            inner = Environment(*self.env.outer)
            inner.global_vars = self.env.global_vars
            inner.scopes = [*captured, dict(zip(names, args, strict=True))]
            return Evaluator(self.source, inner).eval(n.body)

        call.arity = len(names)  # pyright: ignore[reportFunctionMemberAccess]
        call.names = names  # pyright: ignore[reportFunctionMemberAccess]
        return call

    def _comprehension(self, n: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Any:
        items = [self.eval(n.elt) for _ in self._loops(n.generators)]
        return set(items) if isinstance(n, ast.SetComp) else items

    def _dict_comprehension(self, n: ast.DictComp) -> Any:
        return {self.eval(n.key): self.eval(n.value) for _ in self._loops(n.generators)}

    def _loops(self, generators: list[ast.comprehension]) -> Iterator[None]:
        if not generators:
            yield
            return
        g = generators[0]
        for item in self.eval(g.iter):
            with self.env.scope():
                self.assign_names(g.target, item)
                if all(self.eval(c) for c in g.ifs):
                    yield from self._loops(generators[1:])

    def assign_names(self, target: ast.AST, value: Any) -> None:
        """Bind the names of a target to a Python value, unpacking tuples."""
        if isinstance(target, ast.Name):
            self.env.define(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = list(value)
            if len(values) != len(target.elts):
                self.source.fail("TW0106", f"{len(target.elts)} names for {len(values)} values", target)
            for t, v in zip(target.elts, values, strict=True):
                self.assign_names(t, v)
        else:
            self.source.fail("TW0105", "only names can be bound here", target)

    def _joined(self, n: ast.JoinedStr) -> str:
        parts: list[str] = []
        for v in n.values:
            if isinstance(v, ast.FormattedValue):
                value = self.eval(v.value)
                value = {ord("r"): repr, ord("s"): str, ord("a"): ascii}.get(v.conversion, lambda x: x)(value)
                parts.append(
                    format(value, self._joined(v.format_spec) if isinstance(v.format_spec, ast.JoinedStr) else "")
                )
            elif isinstance(v, ast.Constant):
                parts.append(str(v.value))
        return "".join(parts)


_METHODS: dict[type, Callable[[Evaluator, Any], Any]] = {
    ast.Constant: Evaluator._constant,
    ast.Name: Evaluator._name,
    ast.Attribute: Evaluator._attribute,
    ast.Call: Evaluator._call,
    ast.BinOp: Evaluator._binary,
    ast.UnaryOp: Evaluator._unary,
    ast.BoolOp: Evaluator._boolean,
    ast.Compare: Evaluator._compare,
    ast.IfExp: Evaluator._conditional,
    ast.Subscript: Evaluator._subscript,
    ast.Tuple: Evaluator._tuple,
    ast.List: Evaluator._tuple,
    ast.Set: Evaluator._tuple,
    ast.Dict: Evaluator._dict,
    ast.Lambda: Evaluator._lambda,
    ast.ListComp: Evaluator._comprehension,
    ast.GeneratorExp: Evaluator._comprehension,
    ast.SetComp: Evaluator._comprehension,
    ast.DictComp: Evaluator._dict_comprehension,
    ast.JoinedStr: Evaluator._joined,
}
