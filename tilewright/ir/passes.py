"""Passes: functions IR -> IR that say which form they need and give; contexts and instruments around them.

    @pass_(needs="blocks", gives="flat", ends="blocks")
    def flatten_buffers(f: PrimFunc, ctx: PassContext) -> PrimFunc: ...

The annotation of the first parameter decides what the pass sees: `PrimFunc` or `Function` (each such function of the module)
or `IRModule`. Returning the same object means nothing changed.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from tilewright.ir.config import check_config, list_configs
from tilewright.ir.forms import FORMS, verify_form
from tilewright.ir.module import IRModule
from tilewright.support.diagnostics import CompileError

__all__ = [
    "DumpIR", "Pass", "PassContext", "PassInfo", "PassInstrument", "PassTimingInstrument", "PrintAfter", "Sequential", "check_pipeline",
    "function_pass", "module_pass", "pass_", "prim_func_pass",
]  # fmt: skip


class PassInfo:
    """What is known of a pass: its name, the level from which it runs, the passes it requires."""

    def __init__(self, name: str, opt_level: int = 0, required: Sequence[str] = ()) -> None:
        self.name, self.opt_level, self.required = name, opt_level, list(required)


class PassInstrument:
    """Sees every pass. Subclasses override what they need; TVM's method names."""

    def enter_pass_ctx(self) -> None:
        """The context is entered."""

    def exit_pass_ctx(self) -> None:
        """The context is left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Return False to skip the pass."""
        del mod, info
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Before a pass."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """After a pass, with its result."""


class PassTimingInstrument(PassInstrument):
    """Measures each pass; `render()` gives the table, nested passes indented."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, float]] = []
        self._open: list[tuple[int, float]] = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._open.append((len(self.rows), time.perf_counter()))
        self.rows.append((len(self._open) - 1, info.name, 0.0))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        row, start = self._open.pop()
        depth, name, _ = self.rows[row]
        self.rows[row] = (depth, name, time.perf_counter() - start)

    def render(self) -> str:
        """One line a pass: milliseconds and name."""
        return "\n".join(f"{seconds * 1e3:9.2f} ms  {'  ' * depth}{name}" for depth, name, seconds in self.rows)


class PrintAfter(PassInstrument):
    """Prints the module after each pass that changed it."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self._before: list[IRModule] = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._before.append(mod)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if self._before.pop() is not mod and (not self.names or info.name in self.names):
            print(f"# after {info.name}\n{mod.script()}")


class DumpIR(PassInstrument):
    """Writes `NNN-pass-name.py` into a folder after each pass that changed the module."""

    def __init__(self, dump_dir: str | os.PathLike[str]) -> None:
        self.dir = Path(dump_dir)
        self.dir.mkdir(parents=True, exist_ok=True)
        self.count = 0
        self._before: list[IRModule] = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._before.append(mod)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if self._before.pop() is not mod:
            self.write(info.name, mod)

    def write(self, name: str, mod: Any) -> None:
        """Write one numbered file."""
        path = self.dir / f"{self.count:03d}-{name.replace('_', '-')}.py"
        path.write_text(mod.script() + "\n", encoding="utf-8")
        self.count += 1


class PassContext:
    """Options of a compilation: `config` (checked against `ir/config.py`), instruments, passes required or disabled by name. Used as
    a `with`. Raises ConfigError (TW0535) for an option that does not exist."""

    _stack: ClassVar[list[PassContext]] = []

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[PassInstrument] | None = None,
        config: dict[str, Any] | None = None,
        target: Any = None,
    ) -> None:
        self.opt_level = opt_level
        self.required_pass = list(required_pass or ())
        self.disabled_pass = list(disabled_pass or ())
        self.instruments = list(instruments or ())
        self.config = dict(config or {})
        check_config(self.config)
        self.target = target

    @property
    def debug(self) -> bool:
        """Do verifiers run after each pass?"""
        return bool(self.config.get("ir.debug") or os.environ.get("TILEWRIGHT_DEBUG") == "1")

    def __enter__(self) -> PassContext:
        PassContext._stack.append(self)
        for instrument in self.instruments:
            instrument.enter_pass_ctx()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        PassContext._stack.pop()
        for instrument in self.instruments:
            instrument.exit_pass_ctx()

    @staticmethod
    def list_configs() -> dict[str, dict[str, str]]:
        """The options that `config` takes, with their types."""
        return list_configs()

    @staticmethod
    def current() -> PassContext:
        """The innermost context, or a default one."""
        return PassContext._stack[-1] if PassContext._stack else PassContext()


class Pass:
    """A pass: call it with a module. `needs`, `gives`, `ends` are names of forms (ir/forms.py)."""

    def __init__(
        self,
        run: Callable[[IRModule, PassContext], IRModule],
        name: str,
        opt_level: int = 0,
        needs: str | None = None,
        gives: str | None = None,
        ends: str | None = None,
        doc: str | None = None,
    ) -> None:
        self.run, self.info = run, PassInfo(name, opt_level)
        self.needs, self.gives, self.ends = needs, gives, ends
        self.__doc__ = doc

    @property
    def name(self) -> str:
        """The name of the pass."""
        return self.info.name

    def __repr__(self) -> str:
        return f"Pass({self.name})"

    def enabled(self, ctx: PassContext) -> bool:
        """Does the pass run in this context?"""
        if self.name in ctx.disabled_pass:
            return False
        return self.name in ctx.required_pass or ctx.opt_level >= self.info.opt_level

    def __call__(self, mod: IRModule) -> IRModule:
        ctx = PassContext.current()
        if not self.enabled(ctx) or not all(i.should_run(mod, self.info) for i in ctx.instruments):
            return mod
        for instrument in ctx.instruments:
            instrument.run_before_pass(mod, self.info)
        new = self._guarded(mod, ctx)
        for instrument in ctx.instruments:
            instrument.run_after_pass(new, self.info)
        if ctx.debug and new is not mod and self.gives in FORMS:
            verify_form(str(self.gives), new)
        return new

    def _guarded(self, mod: IRModule, ctx: PassContext) -> IRModule:
        try:
            return self.run(mod, ctx)
        except (CompileError, KeyboardInterrupt, MemoryError):
            raise
        except Exception as error:
            from tilewright.ir.reproduce import note_reproducer

            note_reproducer(error, self.name, mod)
            raise


class Sequential(Pass):
    """Passes one after the other. The order is checked once, at construction, by the forms they name."""

    def __init__(
        self,
        passes: Sequence[Pass],
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] | None = None,
    ) -> None:
        del required
        self.passes = list(passes)
        super().__init__(self._run_all, name, opt_level)

    def _run_all(self, mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        for p in self.passes:
            mod = p(mod)
        return mod


def check_pipeline(passes: Sequence[Pass], start: str | None = None) -> None:
    """Raise ValueError if a pass needs a form that no earlier pass gives (or a later one ended)."""
    forms = {start} if start else set[str]()
    for i, p in enumerate(passes):
        if p.needs is not None and p.needs not in forms:
            raise ValueError(f"pass {i} ({p.name}) needs the form {p.needs!r}; here there is {sorted(forms) or 'none'}")
        if p.ends is not None:
            forms.discard(p.ends)
        if p.gives is not None:
            forms.add(p.gives)


def _first_annotation(f: Callable[..., Any]) -> str:
    parameters = list(inspect.signature(f).parameters.values())
    first = parameters[0].annotation if parameters else ""
    return first if isinstance(first, str) else getattr(first, "__name__", str(first))


def _per_function(
    f: Callable[..., Any], class_name: str, wants_mod: bool
) -> Callable[[IRModule, PassContext], IRModule]:
    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        changed: dict[Any, Any] = {}
        for var, func in mod.functions.items():
            if type(func).__name__ == class_name:
                new = f(func, mod, ctx) if wants_mod else f(func, ctx)
                if new is not func:
                    changed[var] = new
        return mod.with_(changed) if changed else mod

    return run


def pass_(
    *,
    needs: str | None = None,
    gives: str | None = None,
    ends: str | None = None,
    name: str | None = None,
    opt_level: int = 0,
) -> Callable[[Callable[..., Any]], Pass]:
    """Decorator: make a pass of a function `(f, ctx)`; see the head of the module."""

    def wrap(f: Callable[..., Any]) -> Pass:
        kind = _first_annotation(f).rpartition(".")[2]
        run = f if kind == "IRModule" else _per_function(f, kind, wants_mod=False)
        return Pass(run, name or f.__name__, opt_level, needs, gives, ends, f.__doc__)

    return wrap


def _decorator(class_name: str | None) -> Callable[..., Any]:
    def decorate(
        func: Any = None, opt_level: int = 0, name: str | None = None, required: Any = None, traceable: bool = False
    ) -> Any:
        del required, traceable

        def wrap(f: Any) -> Any:
            if inspect.isclass(f):
                return _class_pass(f, class_name, opt_level, name)
            run = f if class_name is None else _per_function(f, class_name, wants_mod=True)
            return Pass(run, name or f.__name__, opt_level, doc=f.__doc__)

        return wrap if func is None else wrap(func)

    return decorate


def _class_pass(cls: type[Any], class_name: str | None, opt_level: int, name: str | None) -> Callable[..., Pass]:
    method = "transform_module" if class_name is None else "transform_function"

    def make(*args: Any, **kw: Any) -> Pass:
        f = getattr(cls(*args, **kw), method)
        run = f if class_name is None else _per_function(f, class_name, wants_mod=True)
        return Pass(run, name or cls.__name__, opt_level, doc=cls.__doc__)

    return make


module_pass = _decorator(None)
"""Decorator of the field: a function `(mod, ctx) -> mod`, or a class with `transform_module`, becomes a pass."""
function_pass = _decorator("Function")
"""Decorator of the field: a function `(func, mod, ctx) -> func` on graph functions becomes a pass."""
prim_func_pass = _decorator("PrimFunc")
"""Decorator of the field: a function `(func, mod, ctx) -> func` on PrimFuncs becomes a pass."""
