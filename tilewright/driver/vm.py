"""`relax.build` and `relax.VirtualMachine`, under the field's names. There is no bytecode: a graph function is native code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.driver.build import build as build_module
from tilewright.ir.module import IRModule
from tilewright.ir.target import Target

__all__ = ["VMExecutable", "VirtualMachine", "build"]


class VMExecutable:
    """A compiled graph module: what `relax.build` gives and `VirtualMachine` runs."""

    def __init__(self, module: Any) -> None:
        self.mod = module

    def __getitem__(self, name: str) -> Any:
        return self.mod[name]

    def stats(self) -> str:
        """One line on what was compiled."""
        return ", ".join(f"{k} {v}" for k, v in self.mod.stats.items() if v is not None)

    def export_library(self, file_name: str, **options: Any) -> None:
        """Write it to a file: .tw, .so, .o or .ll by the suffix."""
        del options
        self.mod.export_library(file_name)


def build(
    mod: IRModule,
    target: str | Target | None = None,
    params: Mapping[str, Any] | None = None,
    exec_mode: str = "bytecode",
    **options: Any,
) -> VMExecutable:
    """Compile a graph module. `params` binds parameters of `main` by name before compilation; `exec_mode` is accepted and has no effect."""
    del exec_mode, options
    if params:
        from tilewright.relax.transform import BindParams

        mod = BindParams("main", params)(mod)
    return VMExecutable(build_module(mod, target))


class VirtualMachine:
    """Runs a `VMExecutable` (or what `export_library` wrote and `runtime.load_module` read): `vm["main"](x)`."""

    def __init__(self, rt_mod: Any, device: Any = None, memory_cfg: Any = None, profile: bool = False) -> None:
        del memory_cfg, profile
        devices = device if isinstance(device, Sequence) else [device]
        for d in devices:
            kind = str(getattr(d, "device_type", "cpu") or "cpu")
            if d is not None and kind not in ("cpu", "1"):
                raise ValueError(f"VirtualMachine: code for the CPU cannot run on {d}")
        self.module = rt_mod.mod if isinstance(rt_mod, VMExecutable) else rt_mod
        self._inputs: dict[str, tuple[Any, ...]] = {}
        self._outputs: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """The function of that name; takes and gives arrays (`tvm.nd.array`, or anything with DLPack)."""
        return self.module[name]

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep arguments for `invoke_stateful`; keywords by the parameters' names."""
        if kwargs:
            names = [p["name"] for p in self.module.signatures[func_name]["inputs"]]
            unknown = [k for k in kwargs if k not in names]
            if unknown:
                raise ValueError(f"{func_name} has no parameter {unknown[0]!r}; it has: {', '.join(names)}")
            args = (*args, *(kwargs[n] for n in names[len(args) :]))
        self._inputs[func_name] = args

    def invoke_stateful(self, func_name: str) -> None:
        """Call with the arguments that were set. Raises ValueError when none were."""
        if func_name not in self._inputs:
            raise ValueError(f"set_input({func_name!r}, ...) must come before invoke_stateful")
        self._outputs[func_name] = self.module[func_name](*self._inputs[func_name])

    def get_outputs(self, func_name: str) -> Any:
        """What the last `invoke_stateful` gave."""
        return self._outputs[func_name]

    def invoke_closure(self, closure: Any, *args: Any) -> Any:
        """Call a function object."""
        return closure(*args)

    def time_evaluator(self, func_name: str, dev: Any = None, number: int = 10, repeat: int = 1, **options: Any) -> Any:
        """Measure a function: `vm.time_evaluator("main", dev)(x).mean`, in seconds."""
        return self.module.time_evaluator(func_name, dev, number=number, repeat=repeat, **options)
