"""A checked ONNX graph to an IRModule: one row of the table (`table/`) a node, by the BlockBuilder.

A tensor name stands for one of three kinds of value: a `Constant` (initialisers, and whatever depends on constants only:
it is computed at once by the operators' numpy references), a `Symbolic` (shape arithmetic, symbolic.py), or an expression
of the function being built. Faults are collected node by node, so that all of them are reported at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.arith.expr import IntImm, PrimExpr, SizeVar
from tilewright.frontend.onnx.errors import failure, node_error, node_span
from tilewright.frontend.onnx.expand import expand, unsupported_operators
from tilewright.frontend.onnx.node import NodeContext, Poison, Unsupported, Value, make_shape_tensor
from tilewright.frontend.onnx.reader import ModelSource, element_type, load, ordered, tensor_array
from tilewright.frontend.onnx.registry import accepted_opsets, find_row
from tilewright.frontend.onnx.symbolic import LIMIT, SYMBOLIC, Symbolic, evaluate
from tilewright.ir.module import IRModule
from tilewright.ir.node import replace
from tilewright.relax import ir as rx
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.relax.values import var
from tilewright.support.diagnostics import CompileError, Diagnostic

__all__ = ["Importer", "from_onnx"]


def from_onnx(
    model: Any,
    shape_dict: Mapping[str, Sequence[Any]] | None = None,
    dtype_dict: Mapping[str, str] | str | None = None,
    keep_params_in_input: bool = False,
) -> IRModule:
    """The relax module of an ONNX model; its function is `main`.

    model: a path, the bytes of a file, or an onnx.ModelProto (operator sets 7 and newer).
    shape_dict: fixes dimensions of inputs by name; a dimension may be a number, a tir.Var, or None (as the model says).
    dtype_dict: dtypes of inputs by name (or one for all).
    keep_params_in_input: make the weights parameters after the inputs, instead of constants; their values are the
    function's attribute `params`.

    Dimensions that the model names (`dim_param`) become variables of that name; unknown ones get a variable each. The
    module's attributes `input_names` and `output_names` are the model's names; the function's `num_input` counts the inputs.

    Raises CompileError with everything that is wrong (TW03nn, see errors.py).
    """
    source = expand(load(model))
    return Importer(source, dict(shape_dict or {}), dtype_dict, keep_params_in_input).run()


class Importer:
    """Builds the module of one model; one object a run."""

    def __init__(
        self, source: ModelSource, shapes: Mapping[str, Sequence[Any]], dtypes: Any, keep_params: bool = False
    ) -> None:
        self.source, self.shapes, self.dtypes, self.keep_params = source, dict(shapes), dtypes, keep_params
        self.builder = BlockBuilder()
        self.values: dict[str, Value] = {}
        self.symbols: dict[str, SizeVar] = {}
        self.errors: list[Diagnostic] = []
        self.params: list[tuple[rx.Var, rx.Constant]] = []
        self.materialised: dict[int, rx.Expr] = {}
        self.cause: BaseException | None = None

    # ---- the main graph -------------------------------------------------------------------------------------------

    def run(self) -> IRModule:
        """The module. Raises CompileError with all faults."""
        graph = self.source.graph
        self.check_operators()
        initialised = {t.name for t in graph.initializer}
        names = [i.name for i in graph.input if i.name not in initialised]
        self.check_given_names(names)
        inputs = [self.input_var(i) for i in graph.input if i.name not in initialised]
        self.values.update(zip(names, inputs))
        self.add_initialisers(graph)
        b = self.builder
        with b.function("main", [*inputs, *(v for v, _ in self.params)]):
            with b.dataflow():
                self.add_nodes(graph, set(self.values))
                self.report()
                results = [b.emit_output(self.result(o.name)) for o in graph.output]
            self.report()
            b.emit_func_output(results[0] if len(results) == 1 else rx.Tuple(tuple(results)))
        return self.finish(b.finalize(), names)

    def finish(self, module: IRModule, names: list[str]) -> IRModule:
        """The module with what people need to know of `main`."""
        attrs: dict[str, Any] = {"num_input": len(names)}
        if self.keep_params:
            attrs["params"] = tuple(c.data for _, c in self.params)
        main = module.get_global_var("main")
        module = module.with_({main: module[main].with_attr(attrs)})
        module = module.with_attr("input_names", tuple(names))
        module = module.with_attr("output_names", tuple(o.name for o in self.source.graph.output))
        return module.with_attr("model_name", self.source.name)

    def report(self) -> None:
        """Raise what was collected so far."""
        if self.errors:
            raise CompileError(*self.errors) from self.cause

    def check_operators(self) -> None:
        """All operators without a row, with the names and number of their nodes, in one error (TW0308)."""
        missing = unsupported_operators(self.source)
        if missing:
            notes = tuple(
                f"{op}: {len(nodes)} node{'s' * (len(nodes) > 1)}: {', '.join(nodes[:5])}{', ...' * (len(nodes) > 5)}"
                f"{accepted_opsets(op)}"
                for op, nodes in missing.items()
            )
            count = sum(map(len, missing.values()))
            raise failure(
                "TW0308",
                f"{len(missing)} operator{'s are' if len(missing) > 1 else ' is'} not supported ({count} nodes): "
                + ", ".join(missing),
                self.source.name,
                notes=notes,
                hint="`tilewright inspect MODEL` lists every operator; docs/onnx.md lists those that are supported",
            )

    # ---- inputs ---------------------------------------------------------------------------------------------------

    def check_given_names(self, names: list[str]) -> None:
        """`shape_dict` and `dtype_dict` name inputs of the model (TW0310)."""
        given = [*self.shapes, *(self.dtypes if isinstance(self.dtypes, Mapping) else ())]
        for name in given:
            if name not in names:
                raise failure(
                    "TW0310",
                    f"the model has no input {name!r}",
                    self.source.name,
                    hint=f"its inputs: {', '.join(names)}",
                )

    def input_var(self, value: Any) -> rx.Var:
        """The parameter of a graph input, with its struct info. Raises TW0310, TW0314, TW0316."""
        name = value.name
        if not value.type.HasField("tensor_type"):
            raise failure("TW0316", f"input {name!r} is no tensor (a sequence, map or optional)", self.source.name)
        t = value.type.tensor_type
        dtype = element_type(self.source, t.elem_type, f"input {name!r}")
        given = self.dtypes.get(name) if isinstance(self.dtypes, Mapping) else self.dtypes
        if given and given != dtype:
            if not isinstance(self.dtypes, Mapping):
                given = given if dtype.startswith("float") else dtype
            dtype = given
        if not t.HasField("shape") and name not in self.shapes:
            raise failure(
                "TW0316", f"input {name!r} has no shape, not even a rank", self.source.name,
                hint=f"give it: shape_dict={{{name!r}: (...)}}, or --shape {name}=...",
            )  # fmt: skip
        declared = [self.declared_dim(name, i, d) for i, d in enumerate(t.shape.dim)] if t.HasField("shape") else None
        shape = self.fixed(name, declared)
        return var(name, struct_info=TensorStructInfo(tuple(shape), dtype, len(shape)))

    def declared_dim(self, name: str, axis: int, dim: Any) -> int | str:
        """A dimension as the model says it: a number, or the name of a variable."""
        if dim.dim_value > 0:
            return int(dim.dim_value)
        if dim.HasField("dim_value") and dim.dim_value == 0 and not dim.dim_param:
            return f"{name}_{axis}"  # exporters write 0 for unknown
        return dim.dim_param if dim.dim_param not in ("", "?", "-1", "None") else f"{name}_{axis}"

    def fixed(self, name: str, declared: list[int | str] | None) -> list[PrimExpr]:
        """The dimensions of an input, as the user fixes them where he does. Raises TW0310 where they contradict."""
        given = self.shapes.get(name)
        if given is None:
            return [self.dim(d) for d in declared or ()]
        if declared is None:
            return [self.dim(f"{name}_{i}" if d is None else d) for i, d in enumerate(given)]
        shown = "(" + ", ".join(map(str, declared)) + ")"
        if len(given) != len(declared):
            raise failure(
                "TW0310", f"input {name!r} has {len(declared)} dimensions {shown}, the given shape "
                f"{tuple(given)} has {len(given)}", self.source.name,
            )  # fmt: skip
        out: list[PrimExpr] = []
        for axis, (d, g) in enumerate(zip(declared, given)):
            wanted = d if g is None else g
            if isinstance(d, int) and isinstance(wanted, int) and d != wanted:
                raise failure(
                    "TW0310", f"dimension {axis} of input {name!r} is {d} in the model {shown}, "
                    f"the given shape {tuple(given)} has {wanted}", self.source.name,
                )  # fmt: skip
            if isinstance(wanted, int) and wanted <= 0:
                raise failure(
                    "TW0310", f"dimension {axis} of input {name!r} must be positive, not {wanted}", self.source.name,
                    hint="leave a dimension dynamic by None",
                )  # fmt: skip
            if isinstance(d, str) and isinstance(wanted, int):
                self.fix_symbol(name, axis, d, wanted)
            out.append(self.dim(wanted))
        return out

    def fix_symbol(self, name: str, axis: int, symbol: str, value: int) -> None:
        """A named dimension is one number wherever it occurs; an input that is given no shape takes it over."""
        known = self.numbers.setdefault(symbol, value)
        if known != value:
            raise failure(
                "TW0310", f"dimension {axis} of input {name!r} is {symbol!r} in the model, which the given shapes make "
                f"{known} and {value}", self.source.name,
            )  # fmt: skip

    @property
    def numbers(self) -> dict[str, int]:
        """Named dimensions that the given shapes fix (worked out at first use, before any input is made)."""
        if not hasattr(self, "_numbers"):
            self._numbers: dict[str, int] = {}
            for i in self.source.graph.input:
                given = self.shapes.get(i.name)
                dims = i.type.tensor_type.shape.dim
                if given is not None and len(given) == len(dims):
                    for axis, (d, g) in enumerate(zip(dims, given)):
                        declared = self.declared_dim(i.name, axis, d)
                        if isinstance(declared, str) and isinstance(g, int):
                            self._numbers.setdefault(declared, g)
        return self._numbers

    def dim(self, d: Any) -> PrimExpr:
        """A dimension as an expression; one variable a name."""
        if isinstance(d, str):
            if d in self.numbers:
                return IntImm("int64", self.numbers[d])
            if d not in self.symbols:
                self.symbols[d] = SizeVar(d, "int64")
            return self.symbols[d]
        return d if isinstance(d, PrimExpr) else IntImm("int64", int(d))

    # ---- values ---------------------------------------------------------------------------------------------------

    def add_initialisers(self, graph: Any) -> None:
        """Initialisers as constants, or as parameters where the user asks for it."""
        for t in graph.initializer:
            constant = self.constant(tensor_array(self.source, t))
            if self.keep_params and constant.data.size > 1 and constant.data.dtype.kind == "f":
                param = var(t.name, struct_info=constant.struct_info)
                self.params.append((param, constant))
                self.values[t.name] = param
            else:
                self.values[t.name] = constant
        if len(graph.sparse_initializer):
            raise failure("TW0309", "sparse initialisers are not supported", self.source.name)

    @staticmethod
    def constant(array: Any) -> rx.Constant:
        """A constant with its struct info."""
        a = np.asarray(array)
        shape = tuple(IntImm("int64", d) for d in a.shape)
        return rx.Constant(a, struct_info=TensorStructInfo(shape, str(a.dtype), a.ndim))

    def tensor(self, value: Value) -> rx.Expr:
        """A value as an expression that a kernel can read; formulas become a tensor here."""
        if not isinstance(value, Symbolic):
            assert isinstance(value, rx.Expr)
            return value
        known = value.known
        if known is not None:
            return self.constant(known)
        found = self.materialised.get(id(value))
        if found is None:
            found = self.materialised[id(value)] = make_shape_tensor(self, value)
            self.keep_alive(value)
        return found

    def keep_alive(self, value: Any) -> None:
        """`materialised` is keyed by identity: its keys must outlive it."""
        self.__dict__.setdefault("_alive", []).append(value)

    def result(self, name: str) -> rx.Expr:
        """The value of a graph output."""
        return self.tensor(self.values[name])

    # ---- nodes ----------------------------------------------------------------------------------------------------

    def add_nodes(self, graph: Any, available: set[str]) -> None:
        """Convert the nodes of a graph in order; faults are collected, what depends on a faulty node is skipped."""
        for proto in ordered(self.source, graph, available):
            operands = [self.values.get(i) if i else None for i in proto.input]
            if any(isinstance(v, Poison) for v in operands):
                outputs: Sequence[Value] = [Poison()] * len(proto.output)
            else:
                outputs = self.convert(proto, operands)
            for name, value in zip(proto.output, outputs):
                if name:
                    self.values[name] = value

    def inline(self, graph: Any) -> list[Value]:
        """The results of a subgraph built here; its names are its own, and it sees those around it."""
        outer = self.values
        self.values = dict(outer)
        try:
            for t in graph.initializer:
                self.values[t.name] = self.constant(tensor_array(self.source, t))
            self.add_nodes(graph, set(self.values))
            return [self.values[o.name] for o in graph.output]
        finally:
            self.values = outer

    def convert(self, proto: Any, operands: list[Value | None]) -> Sequence[Value]:
        """The outputs of one node; on a fault the error is kept and the outputs are Poison."""
        n = NodeContext(self, proto)
        while operands and operands[-1] is None:
            operands.pop()
        try:
            return self.apply(n, operands)
        except Unsupported as error:
            self.keep(node_error(error.code, str(error), self.source.name, proto, hint=error.hint))
        except CompileError as error:
            self.keep(self.located(error, proto))
        except (ValueError, TypeError, LookupError, ArithmeticError, AssertionError) as error:
            self.cause = self.cause or error
            what = f"it cannot be converted ({type(error).__name__}: {error})"
            hint = "its operands and attributes may not fit together; `onnx.checker.check_model(model, full_check=True)` tells"
            self.keep(node_error("TW0311", what, self.source.name, proto, hint=hint))
        return [Poison()] * len(proto.output)

    def keep(self, error: CompileError) -> None:
        """Remember the diagnostics of an error."""
        self.errors.extend(error.diagnostics)

    def located(self, error: CompileError, proto: Any) -> CompileError:
        """The error with the node as its place, if it has none of its own in the model."""
        out: list[Diagnostic] = []
        for d in error.diagnostics:
            if d.code.startswith("TW03"):
                out.append(d)
                continue
            wrapped = node_error("TW0313", d.message, self.source.name, proto, hint=d.hint, notes=d.notes)
            out.extend(wrapped.diagnostics)
        return CompileError(*out)

    def apply(self, n: NodeContext, operands: list[Value | None]) -> Sequence[Value]:
        """Formulas if the operands are, else what the row of the operator makes of them."""
        if n.op_type == "Shape" or n.op_type == "Size":
            found = n.shape_value(operands)
            if found is not None:
                return [found]
        if n.domain == "" and n.op_type in SYMBOLIC and any(isinstance(v, Symbolic) for v in operands):
            lifted = [lift(v) for v in operands]
            if all(s is not None or v is None for s, v in zip(lifted, operands)):
                formula = evaluate(n, n.op_type, lifted)
                if formula is not None:
                    known = formula.known
                    return [formula if known is None else self.constant(known)]
        row = find_row(n.domain, n.op_type, n.opset)
        if row is None:
            raise Unsupported("TW0308", f"the operator is not supported in operator set {n.opset}")
        made = row(n, operands)
        return made if isinstance(made, (list, tuple)) else [made]

    def spanned(self, call: rx.Expr, proto: Any) -> rx.Expr:
        """The expression with the node as its place."""
        return replace(call, span=node_span(self.source.name, proto)) if call.span is None else call


def lift(value: Value | None) -> Symbolic | None:
    """A small constant as an array of formulas, beside real ones; None for other values."""
    if isinstance(value, Symbolic):
        return value
    if isinstance(value, rx.Constant) and value.data.size <= LIMIT and value.data.dtype.kind in "iubf":
        return Symbolic(value.data.astype(object), str(value.data.dtype))
    return None
