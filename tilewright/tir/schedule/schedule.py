"""`Schedule`: a program and the steps that rearrange it, under the names of the field.

    sch = tvm.tir.Schedule(mod)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, factors=[None, 16])
    sch.reorder(i, j0, k, j1); sch.vectorize(j1)
    sch.mod.show()

Every step keeps the meaning of the program or raises ScheduleError and changes nothing. The primitives are functions in
`primitives/`; they become methods of this class by `@primitive`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tilewright.arith.expr import IntImm, Var
from tilewright.ir.module import IRModule
from tilewright.tir.ir import PrimFunc
from tilewright.tir.schedule import primitives as _primitives  # fills the registry
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.registry import PRIMITIVES, Primitive
from tilewright.tir.schedule.state import BlockRV, LoopRV, State
from tilewright.tir.schedule.trace import Instruction, Trace, handles

__all__ = ["Schedule"]

assert _primitives


class Schedule:
    """A module under transformation; see the head of the file.

    `mod` is an IRModule or a PrimFunc; `seed` seeds the sampling primitives. `sch.mod` is the program as it is now,
    `sch.trace` what was done.
    """

    def __init__(
        self,
        mod: IRModule | PrimFunc | Mapping[Any, Any],
        *,
        seed: int | None = None,
        debug_mask: Any = "none",
        error_render_level: str = "detail",
        enable_check: bool = True,
    ) -> None:
        del debug_mask, error_render_level, enable_check
        module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod) if isinstance(mod, PrimFunc) else None
        if module is None:
            raise fail("TW0401", f"a schedule is made of an IRModule or a PrimFunc, not of {type(mod).__name__}")
        names = [v.name_hint for v, f in module.functions.items() if isinstance(f, PrimFunc)]
        if not names:
            raise fail("TW0401", "the module has no function of the loop IR to schedule")
        self.state = State(module.clone(), "main" if "main" in names else names[0])
        self.trace = Trace()
        self._random = random.Random(seed)

    # ---- looking -------------------------------------------------------------------------------------------------------

    @property
    def mod(self) -> IRModule:
        """The program as it is now."""
        return self.state.mod

    @property
    def func_working_on(self) -> str:
        """The function that `get_block` looks in."""
        return self.state.func_name

    def work_on(self, func_name: str) -> None:
        """Let `get_block` look in another function."""
        self.state.func(func_name)
        self.state.func_name = func_name

    def get(self, rv: Any) -> Any:
        """The block or loop that a handle stands for now, or the value of a sampled variable."""
        if isinstance(rv, BlockRV):
            return self.state.block(rv).block
        if isinstance(rv, LoopRV):
            return self.state.loop(rv)
        if isinstance(rv, Var) and rv in self.state.values:
            return IntImm("int32", self.state.values[rv])
        return rv

    def show(self, *args: Any, **options: Any) -> None:
        """Print the program and the trace."""
        self.mod.show(*args, **options)
        self.trace.show()

    def copy(self) -> Schedule:
        """An independent schedule in the same state; handles are good for both."""
        new = object.__new__(Schedule)
        new.state, new.trace = self.state.copy(), Trace(self.trace.insts)
        new._random = random.Random()
        new._random.setstate(self._random.getstate())
        return new

    def fork_seed(self) -> int:
        """A seed for another schedule."""
        return self._random.randrange(1, 2**31 - 1)

    def seed(self, seed: int) -> None:
        """Seed the sampling primitives."""
        self._random = random.Random(seed)

    # ---- doing ---------------------------------------------------------------------------------------------------------

    def _run(self, p: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive on a copy of the state; keep the copy and record the step if it succeeds."""
        try:
            bound = p.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{p.name}: {error}; it is {p.name}{p.signature}") from None
        state = self.state.copy()
        if p.prepare is not None:
            p.prepare(state, bound.arguments)
        extra = {"rng": self._random} if p.name.startswith("sample_") else {}
        result = p.function(state, *bound.args, **bound.kwargs, **extra)
        self.state = state
        arguments: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            variadic = p.signature.parameters[name].kind.name == "VAR_POSITIONAL"
            arguments["*" if variadic else name] = list(value) if variadic else value
        arguments.pop("decision", None)
        if p.name == "get_block":
            arguments["func_name"] = result.func
        outputs = handles(result)
        decision = [state.values[v] for v in outputs] if p.name.startswith("sample_") else None
        self.trace.insts.append(Instruction(p.name, arguments, outputs, decision))
        return result


def _attach(p: Primitive) -> None:
    def method(self: Schedule, *args: Any, **kwargs: Any) -> Any:
        return self._run(p, args, kwargs)

    method.__name__ = p.name
    method.__doc__ = p.function.__doc__
    parameters = [q for q in p.signature.parameters.values() if q.name != "rng"]
    method.__signature__ = p.signature.replace(parameters=parameters)  # pyright: ignore[reportFunctionMemberAccess]
    setattr(Schedule, p.name, method)


for _p in PRIMITIVES.values():
    _attach(_p)
