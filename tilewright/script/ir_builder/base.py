"""IRBuilder: the functions of `T` and `I` act on it as they are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tilewright.arith import expr as E
from tilewright.ir.module import IRModule
from tilewright.ir.op import GlobalVar
from tilewright.script import commands as C
from tilewright.script.immediate import ACTIVE, Scoped, active
from tilewright.script.state import DETECT, BuildState, detect_regions
from tilewright.script.suite import BlockState, FunctionState, complete_root
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as tir

__all__ = ["FuncFrame", "IRBuilder", "ModuleFrame", "function_state"]

V = TypeVar("V")


@dataclass
class FuncFrame(Scoped):
    """`with T.prim_func():`"""

    private: bool = False
    value: Any = None
    what: str = "T.prim_func"


@dataclass
class ModuleFrame(Scoped):
    """`with I.ir_module():`"""

    value: Any = None
    what: str = "I.ir_module"
    functions: dict[GlobalVar, Any] = field(default_factory=dict[GlobalVar, Any])
    attrs: dict[str, Any] = field(default_factory=dict[str, Any])


class IRBuilder(BuildState):
    """`with IRBuilder() as ib:` collects what is built; `ib.get()` gives it.

    Blocks built outside of a function keep the annotation `tir.script_parsing_detect_access` where their regions were left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.detects = False
        self.module: ModuleFrame | None = None
        self.result: Any = None
        self.entered = False

    def __enter__(self) -> IRBuilder:
        ACTIVE.append(self)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        ACTIVE.pop()

    def get(self) -> Any:
        """What was built: a statement, a function, or a module. Raises TW0117 if there is nothing."""
        if self.result is not None:
            return self.result
        if not self.suite.stmts and not self.suite.open:
            raise CompileError.at("TW0117", "nothing was built", hint="build in `with IRBuilder() as ib:`")
        return self.suite.close()

    @staticmethod
    def current() -> IRBuilder:
        """The builder at work. Raises TW0117 outside of any."""
        state = active()
        if not isinstance(state, IRBuilder):
            raise CompileError.at("TW0117", "no IRBuilder is at work", hint="use it in `with IRBuilder() as ib:`")
        return state

    @staticmethod
    def is_in_scope() -> bool:
        """Is a builder at work?"""
        return isinstance(active(), IRBuilder)

    @staticmethod
    def name(s: str, v: V) -> V:
        """Name a variable, a buffer, an axis or a frame's value; it is given back."""
        if isinstance(v, tir.Buffer):
            made: Any = v
            made.name = s
            if not v.data.name or v.data.name == "buffer":
                v.data.name = s  # pyright: ignore[reportAttributeAccessIssue]
        elif isinstance(v, (E.Var, tir.IterVar)):
            var: Any = v.var if isinstance(v, tir.IterVar) else v
            var.name = s
        return v

    @staticmethod
    def name_many(s: Sequence[str], vs: Sequence[Any]) -> list[Any]:
        """Name several values."""
        return [IRBuilder.name(n, v) for n, v in zip(s, vs, strict=True)]

    # ---- frames of its own

    def open(self, frame: Any) -> Callable[[], None]:
        """Begin a frame; what is given back ends it."""
        if isinstance(frame, FuncFrame):
            return self._open_function(frame)
        if isinstance(frame, ModuleFrame):
            self.push()
            outer, self.module = self.module, frame

            def close() -> None:
                self.pop()
                self.module = outer
                self.result = IRModule(frame.functions, frame.attrs)

            return close
        return super().open(frame)

    def _open_function(self, frame: FuncFrame) -> Callable[[], None]:
        self.push()
        outer, self.function = self.function, FunctionState("", private=frame.private)
        state = self.function

        def close() -> None:
            body = complete_root(_detect_all(self.pop()), state)
            attrs = dict(state.attrs)
            if state.name and not state.private and "global_symbol" not in attrs:
                attrs = {"global_symbol": state.name, **attrs}
            made = tir.PrimFunc(tuple(state.params), body, state.ret_type, state.buffer_map, attrs)
            self.function = outer
            if self.module is None:
                self.result = made
                return
            known = next((v for v in self.module.functions if v.name_hint == state.name), None)
            self.module.functions[known or GlobalVar(state.name or "main")] = made

        return close


def _detect_all(body: tir.Stmt) -> tir.Stmt:
    """The statement with the regions that blocks left out."""
    from tilewright.ir.node import replace
    from tilewright.ir.rewrite import transform

    def detect(b: Any) -> Any:
        mask = b.annotations.get(DETECT)
        if mask is None:
            return b
        said = BlockState(b.name_hint)
        said.reads = None if int(mask) & 1 else b.reads
        said.writes = None if int(mask) & 2 else b.writes
        plain = replace(b, annotations={k: v for k, v in b.annotations.items() if k != DETECT})
        return detect_regions(plain, said)

    return transform(body, lambda n: detect(n) if type(n) is tir.Block else None)


def function_state(what: str) -> FunctionState:
    """The function being built. Raises TW0117 outside of any."""
    state = active()
    if state is None or state.function is None:
        raise CompileError.at("TW0117", f"{what} belongs in `with T.prim_func():`")
    return state.function


def add_argument(name: str, obj: Any) -> Any:
    """One more parameter: a variable, or a buffer."""
    f = function_state("T.arg")
    if isinstance(obj, tir.Buffer):
        C.name_buffer(obj, name)
        handle = E.Var(f"{name}_handle", "handle")
        f.params.append(handle)
        f.buffer_map[handle] = obj
        return obj
    if not isinstance(obj, E.Var):
        raise TypeError(f"a parameter is a variable or a buffer, not {obj!r}")
    C.fresh_name(obj, name)
    f.params.append(obj)
    return obj
