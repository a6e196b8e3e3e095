"""What device languages of the C family share: thread axes, kernels of one `void` function each, memory by scope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tilewright.arith import expr as E
from tilewright.backends.source.dialect import Dialect, element_of, storage_scope
from tilewright.backends.source.stmt import write
from tilewright.backends.source.vectors import take_vectors_apart
from tilewright.backends.source.writer import ATOM, SourceModule, Writer
from tilewright.ir import dtype as dt
from tilewright.ir.module import attrs_of
from tilewright.ir.rewrite import collect
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as T

__all__ = ["AXES", "DeviceDialect", "launch_params", "thread_extents"]

AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
"""The thread axes there are."""


class DeviceDialect(Dialect):
    """A language for kernels on a device."""

    wide_indices: ClassVar[bool] = False
    axis_names: ClassVar[dict[str, str]] = {}
    """How the language writes the index of each thread axis."""
    scopes: ClassVar[dict[str, str]] = {"local": "", "global": ""}
    """The memory scopes there are, with the words that declare an array in them."""
    dynamic_scopes: ClassVar[tuple[str, ...]] = ()
    """Scopes whose size the launch gives."""

    def attribute(self, w: Writer, s: T.AttrStmt) -> Any:
        """A thread axis gets its name in the language; other attributes are hints."""
        tag = getattr(s.node, "thread_tag", "")
        if s.attr_key == "thread_extent" and tag:
            text = self.axis_names.get(tag)
            if text is None:
                raise w.unsupported(f"the thread axis {tag!r}", f"known: {', '.join(self.axis_names)}")
            high = int(s.value) - 1 if isinstance(s.value, E.IntImm) else dt.max_value("int32")
            v = s.node.var
            known = w.axes.get((tag, v.dtype))
            if known is None:
                known = w.axes[tag, v.dtype] = w.bind(v)
                w.shared.append(f"  {self.axis_text(text, v.dtype, known)}")
            w.names[v] = known
            w.ranges[v] = (0, high)
        elif s.attr_key == "virtual_thread":
            raise w.unsupported(f"the virtual thread {tag!r}", "InjectVirtualThread must run before")
        return s.body

    def axis_text(self, text: str, dtype: str, name: str) -> str:
        """The declaration of the variable that holds the index of a thread axis."""
        return f"const {self.type(dtype)} {name} = {text};"

    def allocate(self, w: Writer, s: T.Allocate) -> Any:
        """An array in a memory of the device; dynamic shared memory is one piece, of a size that the launch gives."""
        if storage_scope(s.buffer_var) != "shared.dyn" or not w.dynamic:
            w.vectored = s.buffer_var in w.wholes
            return super().allocate(w, s)
        if w.dynamic_used:
            raise w.unsupported("two pieces of dynamic shared memory", "MergeSharedMemory must run before")
        w.dynamic_used = True
        name = w.bind(s.buffer_var)
        w.pointers[s.buffer_var] = (s.dtype, "shared.dyn")
        self.declare_dynamic(w, s.dtype, name)
        return s.body

    def declare_dynamic(self, w: Writer, dtype: str, name: str) -> None:
        """Declare the dynamic shared memory of the launch."""
        raise w.unsupported("dynamic shared memory")

    def declare_array(self, w: Writer, scope: str, dtype: str, name: str, size: int) -> None:
        """An array in a memory of the device. Raises CompileError TW0668 for a memory that the device has not."""
        words = self.scopes.get(scope)
        if words is None:
            raise CompileError.at(
                "TW0668",
                f"target {self.target!r} has no memory {scope!r} (buffer {name!r} of function {w.name!r})",
                hint=f"memories: {', '.join(sorted(self.scopes))}",
            )
        line = f"{words + ' ' if words else ''}{self.memory_type(dtype)} {name}[{size}];"
        self.place_array(w, scope, line)

    def place_array(self, w: Writer, scope: str, line: str) -> None:
        """Write the declaration where it belongs."""
        w.line(line)

    # ---- kernels

    def kernel(self, mod: SourceModule, f: T.PrimFunc) -> str:
        """The text of one kernel."""
        name = str(attrs_of(f).get("global_symbol") or "kernel")
        if f.buffer_map:
            raise CompileError.at("TW0661", f"kernel {name!r} still has a buffer map", hint="lower it first")
        f = take_vectors_apart(f, self.supports, self.aligned_vectors)
        w = Writer(mod, name)
        w.dynamic = "tir.use_dyn_shared_memory" in launch_params(f)
        w.used.add(name)
        w.wholes = _whole_accesses(f)
        written = _written(f)
        guessed = pointer_dtypes(f)
        params: list[str] = []
        for p in f.params:
            param = w.bind(p)
            if p.dtype == "handle":
                element, scope = element_of(p) or guessed.get(p, ""), storage_scope(p)
                w.pointers[p] = (element, scope)
                apart = bool(attrs_of(f).get("tir.noalias"))
                params.append(self.pointer_param(element, param, apart, p in written))
            else:
                params.append(self.scalar_param(w, p, param))
        write(w, f.body)
        head = self.kernel_head(f, name, params)
        return "\n".join([f"// {name}", head + " {", *w.shared, *w.lines, "}"])

    def pointer_param(self, element: str, name: str, apart: bool, written: bool) -> str:
        """A parameter that points to memory of the device."""
        raise NotImplementedError

    def scalar_param(self, w: Writer, p: E.Var, name: str) -> str:
        """A parameter that is passed by value."""
        return f"{self.type(p.dtype)} {name}"

    def kernel_head(self, f: T.PrimFunc, name: str, params: Sequence[str]) -> str:
        """The head of a kernel, without the brace."""
        raise NotImplementedError

    def file(self, mod: SourceModule) -> str:
        """The whole source."""
        parts = [*self.prelude(mod), *mod.helpers.values(), *mod.globals, *mod.functions]
        return "\n\n".join(p for p in parts if p) + "\n"

    def prelude(self, mod: SourceModule) -> list[str]:
        """What stands at the head of a source."""
        return []

    def emit(self, kernels: Sequence[T.PrimFunc]) -> str:
        """A source with these kernels. Raises CompileError TW066x for what the language cannot express."""
        mod = SourceModule(self)
        for f in kernels:
            mod.functions.append(self.kernel(mod, f))
        return self.file(mod)

    def special_float(self, w: Writer, value: float, dtype: str) -> tuple[str, int]:
        """An infinity or NaN."""
        if value != value:
            return "NAN", ATOM
        return ("INFINITY", ATOM) if value > 0 else ("(-INFINITY)", ATOM)


def pointer_dtypes(f: T.PrimFunc) -> dict[Any, str]:
    """The dtype of the elements behind pointer variables without a type: that of the first buffer over each."""
    found: dict[Any, str] = {}
    for n in collect(f.body, (T.BufferLoad, T.BufferStore)):
        found.setdefault(n.buffer.data, dt.element(n.buffer.dtype))
    return found


def _whole_accesses(f: T.PrimFunc) -> set[Any]:
    """The pointer variables that whole vectors are loaded from or stored to."""
    accesses = collect(f.body, (T.BufferLoad, T.BufferStore))
    return {n.buffer.data for n in accesses if isinstance(n.indices[0], E.Ramp)}


def _written(f: T.PrimFunc) -> set[Any]:
    """The pointer variables whose memory may be written: by stores, or by what gets their address."""
    found = {n.buffer.data for n in collect(f.body, T.BufferStore)}
    for call in collect(f.body, E.Call):
        name = getattr(call.op, "name", "")
        if name == "tir.tvm_access_ptr":
            _, pointer, *rest = call.args
            if not (isinstance(rest[-1], E.IntImm) and rest[-1].value == 1):  # the last is the mode: 1 reads
                found.add(pointer)
            continue
        for a in call.args:
            if name == "tir.address_of" and isinstance(a, T.BufferLoad):
                found.add(a.buffer.data)
            elif isinstance(a, E.Var) and a.dtype == "handle":
                found.add(a)
    return found


def thread_extents(f: T.PrimFunc) -> dict[str, Any]:
    """The extent of each thread axis of a kernel."""
    found: dict[str, Any] = {}
    for s in collect(f.body, T.AttrStmt):
        tag = getattr(s.node, "thread_tag", "")
        if s.attr_key == "thread_extent" and tag:
            found.setdefault(tag, s.value)
    return found


def launch_params(f: T.PrimFunc) -> list[str]:
    """The order in which the host passes the extents of a launch."""
    given = attrs_of(f).get("tir.kernel_launch_params")
    if given is None:
        return [a for a in AXES if a in thread_extents(f)]
    return [str(getattr(p, "value", p)) for p in given]
