"""BlockBuilder: graph functions made binding by binding, in normal form, with struct info inferred.

    bb = BlockBuilder()
    with bb.function("main", [x, w]):
        with bb.dataflow():
            lv = bb.emit(matmul(x, w))
            out = bb.emit_output(relu(lv))
        bb.emit_func_output(out)
    mod = bb.get()

What inference has to assume of symbolic dimensions (see relax/dims.py) is emitted as a check in front of the binding:
`_ = match_cast(shape([a]), Shape([b]))`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

from tilewright.ir.module import BaseFunc, IRModule
from tilewright.ir.node import replace
from tilewright.relax.dims import Assumptions, collect_assumptions
from tilewright.relax.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from tilewright.relax.op import Op
from tilewright.relax.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    ShapeStructInfo,
    StructInfo,
    TupleStructInfo,
    deduce_symbols,
    erase,
    free_symbols,
    substitute_symbols,
    unify,
)
from tilewright.relax.values import convert, make_tuple, make_var
from tilewright.support.diagnostics import CompileError

__all__ = ["BlockBuilder", "function_struct_info", "is_leaf"]

_LEAVES = (Var, Constant, ShapeExpr, PrimValue, StringImm, DataTypeImm, ExternFunc, GlobalVar)


def is_leaf(e: Any) -> bool:
    """May it stand as an operand in normal form (tuples of leaves too)?"""
    if isinstance(e, Tuple):
        return all(map(is_leaf, e.fields))
    return isinstance(e, (*_LEAVES, BaseFunc))


def function_struct_info(f: Function) -> FuncStructInfo:
    """The struct info of a function, from its parameters and its result."""
    if isinstance(f.struct_info, FuncStructInfo):
        return f.struct_info
    params = tuple(p.struct_info or ObjectStructInfo() for p in f.params)
    ret = f.ret_struct_info or getattr(f.body, "struct_info", None) or ObjectStructInfo()
    return FuncStructInfo(params, erase(ret, set(free_symbols(*params))), f.is_pure)


class _Scope:
    """A sequence of blocks under construction: a function's body, or a branch's."""

    def __init__(self, assumptions: Assumptions) -> None:
        self.blocks: list[BindingBlock] = []
        self.bindings: list[Binding] = []
        self.dataflow = False
        self.assumptions = assumptions

    def close_block(self) -> None:
        if self.bindings:
            self.blocks.append((DataflowBlock if self.dataflow else BindingBlock)(tuple(self.bindings)))
        self.bindings = []


class _FunctionFrame:
    def __init__(self, name: str, params: Sequence[Var] | None, attrs: Mapping[str, Any], private: bool) -> None:
        self.name, self.params, self.private = name, None if params is None else tuple(params), private
        self.attrs = dict(attrs)
        self.output: Expr | None = None
        self.names: dict[str, int] = {}
        self.is_pure = True
        self.ret_struct_info: StructInfo | None = None


class BlockBuilder:
    """See the head of the module."""

    _stack: ClassVar[list[BlockBuilder]] = []

    def __init__(self, mod: IRModule | None = None) -> None:
        self._mod = mod.clone() if mod is not None else IRModule({}, {})
        self._function: list[_FunctionFrame] = []
        self._scopes: list[_Scope] = []
        self._bound: dict[Var, Expr] = {}
        self._ended: set[Var] = set()
        self._digests: dict[str, GlobalVar] | None = None
        self._global_names: set[str] = {v.name_hint for v in self._mod.functions}
        self.kernel_memo: dict[Any, Any] = {}

    # ---- the module ----------------------------------------------------------------------------------------------------

    @staticmethod
    def current() -> BlockBuilder | None:
        """The builder whose `function` is open, if any."""
        return BlockBuilder._stack[-1] if BlockBuilder._stack else None

    def get(self) -> IRModule:
        """The module so far."""
        return self._mod

    def finalize(self) -> IRModule:
        """The finished module."""
        return self._mod

    def get_unique_name(self, prefix: str) -> str:
        """A name that no binding of this function has: `prefix`, `prefix1`, ..."""
        if not self._function:
            return prefix
        names = self._function[-1].names
        base = prefix.rstrip("0123456789") or prefix
        count = names.get(prefix)
        if count is None:
            names[prefix] = 0
            return prefix
        n = names.get(base, 0) + 1
        while f"{base}{n}" in names:
            n += 1
        names[base] = n
        names[f"{base}{n}"] = 0
        return f"{base}{n}"

    def unique_global(self, prefix: str) -> str:
        """A name that no function of the module has."""
        name, n = prefix, 0
        while name in self._global_names:
            n += 1
            name = f"{prefix}{n}"
        self._global_names.add(name)
        return name

    def add_func(self, func: BaseFunc, func_name: str, share: bool = True) -> GlobalVar:
        """Add a function under a free name, made of `func_name`; with `share`, a kernel that is there already (up to renaming)
        is used again."""
        from tilewright.ir.structure import structural_digest
        from tilewright.tir.ir import PrimFunc

        if share and isinstance(func, PrimFunc):
            if self._digests is None:
                self._digests = {
                    structural_digest(_anonymous(f)): v
                    for v, f in self._mod.functions.items()
                    if isinstance(f, PrimFunc)
                }
            digest = structural_digest(_anonymous(func))
            found = self._digests.get(digest)
            if found is not None:
                return found
            var = GlobalVar(self.unique_global(func_name))
            self._digests[digest] = var
        else:
            var = GlobalVar(self.unique_global(func_name))
        self._mod.functions[var] = func
        return var

    def update_func(self, gv: GlobalVar, updated_function: BaseFunc) -> None:
        """Put another function in the place of one."""
        self._mod.functions[gv] = updated_function
        self._digests = None

    # ---- functions, blocks, branches -----------------------------------------------------------------------------------

    @contextmanager
    def function(
        self,
        name: str = "",
        params: Var | Sequence[Var] | None = None,
        attrs: Mapping[str, Any] | None = None,
        private: bool = False,
        *,
        is_pure: bool = True,
    ) -> Generator[None]:
        """Within, bindings build the function `name`; `emit_func_output` ends it. A private one has no global symbol."""
        frame = _FunctionFrame(name, [params] if isinstance(params, Var) else params, attrs or {}, private)
        frame.is_pure = is_pure
        for p in frame.params or ():
            frame.names[p.name_hint] = 0
        with self._open(frame):
            yield
            self._finish_function(frame)

    @contextmanager
    def _open(self, frame: _FunctionFrame) -> Generator[None]:
        self._function.append(frame)
        self._scopes.append(_Scope(Assumptions()))
        BlockBuilder._stack.append(self)
        try:
            yield
        finally:
            BlockBuilder._stack.pop()
            self._scopes.pop()
            self._function.pop()

    @contextmanager
    def rewriting(self, f: Function) -> Generator[None]:
        """Within, the body of `f` is built anew: its names are taken. `close_scope` gives the new body."""
        frame = _FunctionFrame("", f.params, f.attrs, True)
        for name in _names_in(f):
            frame.names[name] = 0
        with self._open(frame):
            yield

    def _finish_function(self, frame: _FunctionFrame) -> None:
        if frame.output is None:
            raise CompileError.at(
                "TW0210", f"function {frame.name!r} has no result", hint="call emit_func_output at its end"
            )
        func = self._make_function(frame, self.close_scope(frame.output))
        if not frame.private:
            func = func.with_attr("global_symbol", frame.name)
        found = self._mod.find_global_var(frame.name)
        var = found if found is not None else GlobalVar(self.unique_global(frame.name))
        self._mod.functions[var] = func

    def _make_function(self, frame: _FunctionFrame, body: SeqExpr) -> Function:
        params = frame.params or ()
        infos = tuple(p.struct_info or ObjectStructInfo() for p in params)
        ret = frame.ret_struct_info or erase(body.struct_info or ObjectStructInfo(), set(free_symbols(*infos)))
        si = FuncStructInfo(infos, ret, frame.is_pure)
        return Function(params, body, ret, frame.is_pure, frame.attrs, struct_info=si)

    def close_scope(self, body: Expr) -> SeqExpr:
        """The blocks of the scope that is open (a function's body, a branch), with their value."""
        scope = self._scopes[-1]
        scope.close_block()
        return SeqExpr(tuple(scope.blocks), body, struct_info=body.struct_info)

    def dataflow(self) -> AbstractContextManager[None]:
        """Within, bindings go to one dataflow block; `emit_output` makes those that are seen behind it."""
        return self.block(True)

    @contextmanager
    def block(self, dataflow: bool) -> Generator[None]:
        """Within, bindings go to one block."""
        scope = self._scopes[-1]
        scope.close_block()
        outer, scope.dataflow = scope.dataflow, dataflow
        try:
            yield
            if dataflow:  # what its results were made of is not visible behind it
                for b in scope.bindings:
                    self._ended.add(b.var)
            scope.close_block()
        finally:
            scope.dataflow = outer

    @contextmanager
    def scope(self) -> Generator[None]:
        """Within, bindings go to a sequence of its own (a branch), which `close_scope` gives."""
        inner = Assumptions()
        inner.known = set(self._scopes[-1].assumptions.known)
        self._scopes.append(_Scope(inner))
        try:
            yield
        finally:
            self._scopes.pop()

    def seq_expr(self, build: Callable[[], Any]) -> SeqExpr:
        """What `build` emits and returns, as a SeqExpr of its own: a branch of an If."""
        with self.scope():
            return self.close_scope(self.normalize(convert(build())))

    def emit_if(
        self, cond: Any, true_branch: Callable[[], Any], false_branch: Callable[[], Any], name_hint: str = ""
    ) -> Var:
        """Bind `If(cond, ...)`; the branches are built by functions that emit and return their value. Closes a dataflow block's
        run: a branch is no dataflow."""
        test = self.normalize(convert(cond))
        made = If(test, self.seq_expr(true_branch), self.seq_expr(false_branch))
        return self.emit(made, name_hint)

    # ---- bindings ------------------------------------------------------------------------------------------------------

    def emit(self, expr: Any, name_hint: str = "") -> Var:
        """Bind `expr` (normalised) to a new variable, which is returned."""
        return self._bind(convert(expr), name_hint, self._scopes[-1].dataflow)

    def emit_output(self, output: Any, name_hint: str = "") -> Var:
        """Bind a result of the dataflow block, which may be used behind it."""
        expr = convert(output)
        if isinstance(expr, Tuple):
            expr = Tuple(tuple(self.normalize(f) for f in expr.fields))
        return self._bind(expr, name_hint, False)

    def _bind(self, expr: Expr, name_hint: str, local: bool) -> Var:
        value = self.normal(expr)
        name = self.get_unique_name(name_hint or ("lv" if local else "gv"))
        var = make_var(name, value.struct_info, local, expr.span)
        self._bound[var] = value
        self._scopes[-1].bindings.append(VarBinding(var, value))
        return var

    def match_cast(self, value: Any, struct_info: StructInfo, name_hint: str = "") -> Var:
        """Bind `value`, checked at run time to have `struct_info`; its unknown symbols are bound by it."""
        local = self._scopes[-1].dataflow
        expr = self.normalize(convert(value))
        var = make_var(self.get_unique_name(name_hint or ("lv" if local else "gv")), struct_info, local)
        self.emit_normalized(MatchCast(var, expr, struct_info))
        return var

    def emit_normalized(self, binding: Binding) -> Var:
        """Append a binding that is in normal form, as it is."""
        if isinstance(binding, VarBinding):
            self._bound[binding.var] = binding.value
        elif isinstance(binding, MatchCast):
            self._bound[binding.var] = binding.value
            self._note_check(binding)
        self._scopes[-1].bindings.append(binding)
        return binding.var

    def _note_check(self, binding: MatchCast) -> None:
        """A check of dimensions that stands here lets later inference rely on it."""
        have, want = getattr(binding.value, "struct_info", None), binding.struct_info
        if not (isinstance(have, ShapeStructInfo) and isinstance(want, ShapeStructInfo)):
            return
        known = self._scopes[-1].assumptions
        for a, b in zip(have.values or (), want.values or ()):
            known.known.add(Assumptions._difference(a, b))

    def emit_func_output(self, output: Any, params: Var | Sequence[Var] | None = None) -> None:
        """End the function with its result (an expression, or a sequence of them for a tuple)."""
        frame = self._function[-1]
        if params is not None:
            frame.params = (params,) if isinstance(params, Var) else tuple(params)
        expr = convert(output)
        if isinstance(expr, ShapeExpr) and isinstance(output, (tuple, list)) and not output:
            expr = make_tuple(())
        frame.output = self.normalize(expr)

    def lookup_binding(self, var: Var) -> Expr | None:
        """What a variable was bound to by this builder, or None."""
        return self._bound.get(var)

    def visible_binding(self, var: Var) -> Expr | None:
        """What a variable was bound to, if what that is made of may be used here: not behind its dataflow block."""
        return None if var in self._ended else self._bound.get(var)

    def bindings(self) -> list[Binding]:
        """The bindings of the block that is open, so far."""
        return list(self._scopes[-1].bindings)

    def current_block_is_dataflow(self) -> bool:
        """Is a dataflow block open?"""
        return bool(self._scopes) and self._scopes[-1].dataflow

    # ---- normal form ---------------------------------------------------------------------------------------------------

    def normalize(self, expr: Any) -> Any:
        """`expr` as an operand: nested calls are bound to variables first; a leaf is itself."""
        if isinstance(expr, Tuple):
            fields = tuple(self.normalize(f) for f in expr.fields)
            if expr.struct_info is not None and all(a is b for a, b in zip(fields, expr.fields)):
                return expr
            return make_tuple(fields)
        if is_leaf(expr):
            return expr
        value = self.normal(expr)
        return value if is_leaf(value) else self.emit(value)

    def normal(self, expr: Any) -> Any:
        """`expr` as a binding's value: its operands are leaves and its struct info is known."""
        if isinstance(expr, Call):
            args = tuple(self.normalize(a) for a in expr.args)
            if any(a is not b for a, b in zip(args, expr.args)):
                expr = replace(expr, args=args, struct_info=None)
            return expr if expr.struct_info is not None else _know(expr, self.infer(expr))
        if isinstance(expr, Tuple):
            return self.normalize(expr)
        if isinstance(expr, TupleGetItem):
            value = self.normalize(expr.tuple_value)
            if isinstance(value, Tuple):
                return value.fields[expr.index]
            made = expr if value is expr.tuple_value else replace(expr, tuple_value=value, struct_info=None)
            return made if made.struct_info is not None else _know(made, self._field_info(made))
        if isinstance(expr, If):
            cond = self.normalize(expr.cond)
            branches = [
                b if isinstance(b, SeqExpr) else self.seq_expr(lambda b=b: b)
                for b in (expr.true_branch, expr.false_branch)
            ]
            infos = [b.struct_info or ObjectStructInfo() for b in branches]
            made = replace(expr, cond=cond, true_branch=branches[0], false_branch=branches[1])
            return _know(made, unify(infos[0], infos[1]))
        if isinstance(expr, SeqExpr):
            for block in expr.blocks:
                for binding in block.bindings:
                    self.emit_normalized(binding)
            return self.normal(expr.body)
        return expr

    @staticmethod
    def _field_info(e: TupleGetItem) -> StructInfo:
        si = e.tuple_value.struct_info
        if isinstance(si, TupleStructInfo):
            if not -len(si.fields) <= e.index < len(si.fields):
                raise CompileError.at("TW0214", f"index {e.index} of a tuple of {len(si.fields)}", e.span)
            return si.fields[e.index]
        return ObjectStructInfo()

    def infer(self, call: Call) -> StructInfo:
        """The struct info of a call whose operands have theirs; what it assumes is emitted as checks."""
        if call.sinfo_args:
            infos = call.sinfo_args
            return infos[0] if len(infos) == 1 else TupleStructInfo(infos)
        if isinstance(call.op, Op):
            scope = self._scopes[-1] if self._scopes else None
            try:
                with collect_assumptions(scope.assumptions if scope else None):
                    found = call.op.infer(*call.args)
            except CompileError as e:
                raise _located(e, call) from None
            if scope is not None and scope.assumptions.pending:
                self._emit_checks(scope)
            return found
        return self._infer_function_call(call)

    def _infer_function_call(self, call: Call) -> StructInfo:
        target = call.op
        if isinstance(target, GlobalVar):
            target = self._mod.functions.get(target)
        si = function_struct_info(target) if isinstance(target, Function) else getattr(target, "struct_info", None)
        if not isinstance(si, FuncStructInfo):
            return ObjectStructInfo()
        found: dict[Any, Any] = {}
        for formal, actual in zip(si.params or (), call.args):
            deduce_symbols(formal, actual.struct_info, found)
        known = set(found)
        return substitute_symbols(erase(si.ret, known), found) if free_symbols(si.ret) else si.ret

    def _emit_checks(self, scope: _Scope) -> None:
        pending, scope.assumptions.pending = scope.assumptions.pending, []
        for a, b in pending:
            want = ShapeStructInfo((b,))
            var = make_var(self.get_unique_name("check"), want, scope.dataflow)
            scope.bindings.append(MatchCast(var, ShapeExpr((a,)), want))

    # ---- kernels from tensor expressions -------------------------------------------------------------------------------

    def call_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
        """The call of a kernel made of `func`, a function of tensor expressions, applied to graph operands.

        A tensor operand comes to `func` as te.Tensor, a ShapeExpr as a tuple of scalars, a PrimValue as a scalar, a Tuple as
        a list; other values as they are. Keywords `primfunc_name_hint` and `primfunc_attrs` name and mark the kernel.
        """
        from tilewright.relax.kernels import call_te

        return call_te(self, func, args, kwargs)

    def emit_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
        """Bind `call_te(func, ...)`; keyword `name_hint` names the variable."""
        name_hint = kwargs.pop("name_hint", "")
        return self.emit(self.call_te(func, *args, **kwargs), name_hint)


def _names_in(f: Function) -> set[str]:
    """The names of all variables that a function binds."""
    found = {p.name_hint for p in f.params}

    def visit(s: Any) -> None:
        if not isinstance(s, SeqExpr):
            return
        for block in s.blocks:
            for b in block.bindings:
                found.add(b.var.name_hint)
                if isinstance(b, VarBinding) and isinstance(b.value, If):
                    visit(b.value.true_branch)
                    visit(b.value.false_branch)

    visit(f.body)
    return found


def _know(e: Any, struct_info: StructInfo) -> Any:
    """The expression, with its struct info filled in (a cached fact, so in place)."""
    e.struct_info = struct_info
    return e


def _anonymous(f: Any) -> Any:
    """A kernel without its own name, for comparison."""
    return f.without_attr("global_symbol") if f.attrs and "global_symbol" in f.attrs else f


def _located(e: CompileError, call: Call) -> CompileError:
    """The error with the operator's name, and the call's place where it has none."""
    name = call.op.name
    done = [
        replace_diagnostic(d, d.message if name in d.message else f"{name}: {d.message}", d.span or call.span)
        for d in e.diagnostics
    ]
    return CompileError(*done)


def replace_diagnostic(d: Any, message: str, span: Any) -> Any:
    """A diagnostic with another message and place."""
    from dataclasses import replace as replace_dataclass

    return replace_dataclass(d, message=message, span=span)
