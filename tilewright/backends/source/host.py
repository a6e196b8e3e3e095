"""Programs for a device: sources of kernels, and the host's function that launches them.

A program comes as the loop passes give it (`lower_device`): a host function in flat form whose `tvm_call_packed("<kernel>", pointers
and scalars..., extents...)` start kernels, and the kernels. The host part is compiled by LLVM; each kernel becomes a function of the
FFI under a name of its own, and is compiled by the device's driver when it is first started.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.arith.expr import Call, StringImm, cast, const, mul
from tilewright.backends.llvm.codegen import compile_object
from tilewright.backends.llvm.emit import emit_module
from tilewright.backends.source.device import DeviceDialect, launch_params
from tilewright.ir import dtype as dt
from tilewright.ir.module import IRModule, attrs_of
from tilewright.ir.op import Op
from tilewright.ir.rewrite import transform
from tilewright.ir.target import Target, host_info
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.device_api import DEVICE_KINDS, required_api
from tilewright.runtime.module import LazyFunctions, Module
from tilewright.runtime.registry import register_func, remove_global_func
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import Allocate, Evaluate, LetStmt, PrimFunc, Stmt, seq
from tilewright.tir.lower.make_packed_api import make_packed_api

__all__ = ["DeviceModule", "Launcher", "build_for_device", "is_kernel", "link_device"]

_COUNTER = itertools.count()


class Launcher:
    """Starts one kernel: called with the arguments in the kernel's order, then the extents of the launch."""

    def __init__(self, name: str, f: PrimFunc, start: Callable[..., None]) -> None:
        self.name = name
        self.dtypes = [p.dtype for p in f.params]
        self.params = launch_params(f)
        self._start = start

    def __call__(self, *args: Any) -> None:
        count = len(self.dtypes)
        if len(args) != count + len(self.params):
            raise TypeError(
                f"the kernel {self.name} takes {count} arguments and {len(self.params)} extents ({', '.join(self.params)}), got {len(args)}"
            )
        grid, block, shared = [1, 1, 1], [1, 1, 1], 0
        for tag, extent in zip(self.params, args[count:]):
            kind, _, axis = tag.partition(".")
            if kind == "tir":
                shared = int(extent)
            elif kind in ("blockIdx", "threadIdx"):
                (grid if kind == "blockIdx" else block)["xyz".index(axis)] = int(extent)
        values = [_address(a) if d == "handle" else a for d, a in zip(self.dtypes, args)]
        self._start(self.name, self.dtypes, values, grid, block, shared)


def _address(a: Any) -> int:
    """The handle in a pointer argument."""
    if a is None:
        return 0
    value = getattr(a, "value", a)
    return int(value.data_ptr() if hasattr(value, "data_ptr") else value or 0)


class DeviceModule(Module):
    """Kernels of one kind of device: their source, and functions that start them."""

    def __init__(
        self, kind: str, source: str, launchers: Mapping[str, Launcher], formats: Mapping[str, Callable[[], str]]
    ) -> None:
        unknown = {n: {"inputs": [], "outputs": [], "returns_tuple": False, "graph": False} for n in launchers}
        artifact = Artifact({}, [], unknown, host_info().triple, kind, source=lambda fmt: self.get_source(fmt))
        super().__init__(LazyFunctions(list(launchers), lambda: launchers), artifact)
        self._type_key, self.text, self.formats = kind, source, dict(formats)

    def get_source(self, fmt: str = "") -> str:
        """The source of the kernels, or what it is compiled to ("ptx" for CUDA). Raises CompileError TW0666 for a format unknown."""
        if fmt in ("", self._type_key, *_SOURCE_NAMES.get(self._type_key, ())):
            return self.text
        make = self.formats.get(fmt)
        if make is None:
            known = ", ".join(map(repr, [self._type_key, *self.formats]))
            raise CompileError.at(
                "TW0666", f"a {self._type_key} module has no source in format {fmt!r}", hint=f"it has {known}"
            )
        return make()

    inspect_source = get_source

    def export_library(self, file_name: Any, **options: Any) -> None:
        """Programs for a device are not written to files yet. Raises CompileError TW0669."""
        raise CompileError.at(
            "TW0669",
            f"a module with code for {self._type_key} cannot be exported to {file_name}",
            hint="get_source() gives the source; build again where it is to run",
        )

    save = export_library


_SOURCE_NAMES = {"opencl": ("cl",), "cuda": ("cu",), "webgpu": ("wgsl",), "metal": ("metal",)}


class HostModule(Module):
    """The host's functions of a program for a device; imports the device's module."""

    def export_library(self, file_name: Any, **options: Any) -> None:
        """Raises CompileError TW0669: the kernels in it cannot be written."""
        self._imports[0].export_library(file_name)

    save = export_library


def is_kernel(f: Any) -> bool:
    """Is the function a kernel already (split from its host)?"""
    convention = attrs_of(f).get("calling_conv")
    return convention is not None and not isinstance(convention, str) and int(convention) == 2


def build_for_device(
    mod: IRModule,
    target: Target,
    dialect: DeviceDialect,
    start: Callable[[str], Callable[..., None]],
    formats: Callable[[str], Mapping[str, Callable[[], str]]] | None = None,
) -> Module:
    """A module of PrimFuncs for a device: lowered, split, emitted, the host part linked.

    `start(source)` gives what starts a kernel: `f(name, dtypes, values, grid, block, shared bytes)`; `formats(source)` what
    else the source can be turned into.
    """
    hosts: dict[str, PrimFunc] = {}
    kernels = [f for f in mod.functions.values() if isinstance(f, PrimFunc) and is_kernel(f)]
    given = {str(attrs_of(k).get("global_symbol")) for k in kernels}
    for v, f in mod.functions.items():
        if not isinstance(f, PrimFunc):
            raise CompileError.at(
                "TW0665",
                f"target {target.kind.name!r} makes code of loop programs; {v.name_hint!r} is a graph function",
                hint='compile graphs with target "llvm"',
            )
        if is_kernel(f):
            continue
        if given & _called(f):
            hosts[v.name_hint] = f
            continue
        from tilewright.tir.lower.device import lower_device

        program = lower_device(f.with_attr("global_symbol", v.name_hint), target)
        hosts[v.name_hint] = program.host
        kernels += program.kernels
    return link_device(hosts, kernels, target, dialect, start, formats)


def _called(f: PrimFunc) -> set[str]:
    """The names that a host function calls by the packed convention."""
    found: set[str] = set()

    def visit(n: Any) -> None:
        if isinstance(n, Call) and isinstance(n.op, Op) and n.op.name == "tir.tvm_call_packed":
            found.add(str(getattr(n.args[0], "value", "")))

    transform(f.body, lambda n: visit(n))
    return found


def link_device(
    hosts: Mapping[str, PrimFunc],
    kernels: Sequence[PrimFunc],
    target: Target,
    dialect: DeviceDialect,
    start: Callable[[str], Callable[..., None]],
    formats: Callable[[str], Mapping[str, Callable[[], str]]] | None = None,
) -> Module:
    """Hosts and kernels as one runtime module; see `build_for_device`."""
    kind = target.kind.name
    source = dialect.emit(kernels)
    run = start(source)
    launchers = {}
    for k in kernels:
        name = str(attrs_of(k).get("global_symbol"))
        launchers[name] = Launcher(name, k, run)
    device = DeviceModule(kind, source, launchers, formats(source) if formats is not None else {})
    names = {name: f"tilewright.kernel.{next(_COUNTER)}.{name}" for name in launchers}
    entries = {n: _signature(f) for n, f in hosts.items()}
    functions = LazyFunctions(list(hosts), lambda: _link(hosts, names, launchers, target))
    host = HostModule(functions, Artifact({}, [], entries, host_info().triple, str(target)))
    host.artifact.source = lambda fmt: _host_text(hosts, names, target)
    host.import_module(device)
    return host


def _signature(f: PrimFunc) -> dict[str, Any]:
    from tilewright.backends.c.build import signature_of

    return signature_of(f)


def _packed(hosts: Mapping[str, PrimFunc], names: Mapping[str, str], target: Target) -> list[PrimFunc]:
    """The hosts' packed functions, which call the kernels by the names they are registered under."""
    code = next((c for c, kind in DEVICE_KINDS.items() if kind == target.kind.name), 1)

    def rename(n: Any) -> Any:
        if (
            isinstance(n, Call)
            and isinstance(n.op, Op)
            and n.op.name == "tir.tvm_call_packed"
            and n.args[0].value in names
        ):
            return Call(n.dtype, n.op, (StringImm(names[n.args[0].value]), *n.args[1:]))
        if isinstance(n, Allocate) and n.annotations.get("device_memory"):
            return _device_memory(n, code)
        return None

    out: list[PrimFunc] = []
    for name, f in hosts.items():
        body = transform(f.body, rename)
        named = f.with_body(body).with_attr({"global_symbol": name, "device_type": code})
        out.append(make_packed_api(named))
    return out


def _device_memory(s: Allocate, code: int) -> Stmt:
    """Memory of the device for what several kernels share."""
    size: Any = const(dt.bits(s.dtype) * dt.lanes(s.dtype) // 8, "int64")
    for n in s.extents:
        size = mul(size, cast(n, "int64"))
    packed = Op.get("tir.tvm_call_packed")
    kind = const(code, "int32")
    get = Call("handle", packed, (StringImm("tilewright.device.allocate"), kind, const(0, "int32"), size))
    give = Call("int32", packed, (StringImm("tilewright.device.free"), kind, s.buffer_var))
    return LetStmt(s.buffer_var, get, seq(s.body, Evaluate(give)))


@register_func("tilewright.device.allocate", override=True)
def _allocate(device_type: int, index: int, size: int) -> int:
    """Memory for what several kernels of one program share."""
    return required_api(int(device_type), int(index)).allocate(int(index), max(int(size), 1))


@register_func("tilewright.device.free", override=True)
def _free(device_type: int, handle: Any) -> None:
    """Gives it back."""
    required_api(int(device_type), 0).free(_address(handle))


def _host_target(target: Target) -> Target:
    if target.host is None or target.host.kind.name == "llvm":
        return target.host or Target("llvm")
    raise CompileError.at(
        "TW0673",
        f"the host part of a program for {target.kind.name} cannot be made for {target.host}",
        hint='use host="llvm"',
    )


def _host_text(hosts: Mapping[str, PrimFunc], names: Mapping[str, str], target: Target) -> str:
    return emit_module(_packed(hosts, names, target), _host_target(target)).text


def _link(
    hosts: Mapping[str, PrimFunc], names: Mapping[str, str], launchers: Mapping[str, Launcher], target: Target
) -> dict[str, Any]:
    """Compile the hosts into this process and register the kernels for as long as they live."""
    from tilewright.backends.llvm.jit import Engine
    from tilewright.runtime.ffi import function_at

    where = _host_target(target)
    emitted = emit_module(_packed(hosts, names, target), where, "host")
    code = compile_object(emitted.text, where, "scalar")
    arrays = [(n, a) for n, a in emitted.constants]
    engine = Engine([code], {n: a.ctypes.data for n, a in arrays})
    for name, registered in names.items():
        register_func(registered, launchers[name], override=True)
        weakref.finalize(engine, _forget, registered)
    keep = (engine, arrays)
    return {n: function_at(engine.address(f"__tvm_ffi_{n}"), keep) for n in hosts}


def _forget(name: str) -> None:
    try:
        remove_global_func(name)
    except ValueError:
        return
