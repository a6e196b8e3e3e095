"""Shared libraries and single objects: what a linker makes of an artifact.

Linkers are tried in this order: `ld`, the C compiler (`cc`, `gcc`), and `python -m ziglang ld.lld` of the extra `link`. A
library holds the kernels, the weights (in an object that is written here byte by byte, so that a model of gigabytes costs
no assembler), the thread pool and allocator, and the metadata. It exports `__tvm_ffi_<name>` for each function, so
`tvm_ffi.load_module` and C++ and Rust hosts can use it without tilewright, `tw_set_num_threads`, `tw_get_num_threads`, and
what `tilewright.runtime.load` looks for. It is never unloaded: its pool's threads run in it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.backends.llvm import artifact as files
from tilewright.backends.llvm.elf import DataObject, exported_names, library_problem
from tilewright.backends.llvm.pool import pool, runtime_object
from tilewright.backends.llvm.runtime_ir import system_of
from tilewright.ir.target import host_info
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.module import Module
from tilewright.support.diagnostics import CompileError

__all__ = ["find_linker", "load_shared", "write_object", "write_shared"]

_EXPORTS = ("__tvm_ffi_*", "__tw_bind", "__tilewright_*", "tw_set_num_threads", "tw_get_num_threads")
_LLD = ("-m", "ziglang", "ld.lld")


def _candidates(foreign: bool) -> list[tuple[str, list[str]]]:
    """(kind, command) of the linkers present: `ld` (GNU or LLVM command line) or `cc`. Code for another processor or system
    goes to LLVM's linker, which knows them all."""
    found: list[tuple[str, list[str]]] = []
    if not foreign:
        ld = shutil.which("ld")
        if ld and not sys.platform.startswith("win"):
            found.append(("ld", [ld]))
        for name in ("cc", "gcc"):
            path = shutil.which(name)
            if path:
                found.append(("cc", [path]))
    if importlib.util.find_spec("ziglang") is not None:
        found.append(("ld", [sys.executable, *_LLD]))
    return found


def find_linker(triple: str) -> list[tuple[str, list[str]]]:
    """The linkers to try for `triple`, best first. Raises CompileError TW0710 that names all where there is none."""
    host = host_info().triple
    foreign = host.split("-")[0] != triple.split("-")[0] or system_of(host) != system_of(triple)
    found = _candidates(foreign)
    if not found:
        raise CompileError.at(
            "TW0710",
            "no linker found: tried ld, cc (gcc), and ziglang's ld.lld" + (f" for {triple}" if foreign else ""),
            hint="pip install 'tilewright[link]' brings ziglang; or install binutils or a C compiler; or write .tw, which needs none",
        )
    return found


def _require_elf(artifact: Artifact, path: Path) -> None:
    if system_of(artifact.triple) != "linux":
        raise CompileError.at(
            "TW0715",
            f"cannot write {path.name}: shared libraries and single objects are made for Linux only so far, not for {artifact.triple}",
            hint="write .tw, which loads everywhere without a linker",
        )


def write_shared(artifact: Artifact, path: Path) -> None:
    """A shared library of an artifact.

    Raises CompileError: TW0710 without a linker, TW0711 when every linker fails, TW0712 where the file cannot be written,
    TW0715 for a system whose libraries are not made yet.
    """
    _require_elf(artifact, path)
    _link(artifact, path, shared=True)


def write_object(artifact: Artifact, path: Path) -> None:
    """One relocatable object of everything; errors as of `write_shared`.

    For a processor without an operating system that is known here (WebAssembly, Hexagon): the functions alone, for
    whoever links them with a runtime of their own.
    """
    if system_of(artifact.triple) == "none" and len(artifact.objects) == 1 and not artifact.constants:
        with files.atomic_file(path) as temporary:
            temporary.write_bytes(next(iter(artifact.objects.values())))
        return
    _require_elf(artifact, path)
    _link(artifact, path, shared=False)


def _link(artifact: Artifact, path: Path, shared: bool) -> None:
    linkers = find_linker(artifact.triple)
    try:
        with tempfile.TemporaryDirectory(prefix="tilewright-link-", dir=_roomy(path)) as folder:
            inputs = _inputs(artifact, Path(folder))
            with files.atomic_file(path) as temporary:
                _run_linkers(linkers, inputs, temporary, Path(folder), path.name, shared)
    except OSError as e:
        raise CompileError.at("TW0712", f"cannot write {path}: {e.strerror or e}", hint="is there space?") from e


def _run_linkers(
    linkers: Sequence[tuple[str, list[str]]],
    inputs: Sequence[Path],
    output: Path,
    folder: Path,
    name: str,
    shared: bool,
) -> None:
    """The first linker that succeeds. Raises CompileError TW0711 with what all of them said."""
    complaints: list[str] = []
    for kind, command in linkers:
        line = _command(kind, command, inputs, output, folder, name, shared)
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        complaints.append(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-1000:]}")
    raise CompileError.at(
        "TW0711", f"linking {name} failed", notes=tuple(complaints), hint="write .tw, which needs no linker"
    )


def _roomy(path: Path) -> Path | None:
    """Beside the result: weights may not fit where temporary files go."""
    return path.parent if path.parent.is_dir() else None


def _inputs(artifact: Artifact, folder: Path) -> list[Path]:
    """Every object as a file: the code, the data, the runtime support."""
    out: list[Path] = []
    for i, code in enumerate(artifact.objects.values()):
        file = folder / f"code{i}.o"
        file.write_bytes(code)
        out.append(file)
    data = DataObject(artifact.triple)
    text = json.dumps(files.metadata(artifact), separators=(",", ":")).encode()
    data.add(files.METADATA_SYMBOL, len(text).to_bytes(8, "little") + text, exported=True)
    for symbol, array in artifact.constants:
        data.add(symbol, array)
    file = folder / "data.o"
    with open(file, "wb") as f:
        data.write(f)
    out.append(file)
    file = folder / "runtime.o"
    file.write_bytes(runtime_object(artifact.triple, library=True))
    out.append(file)
    return out


def _command(
    kind: str, command: Sequence[str], inputs: Sequence[Path], output: Path, folder: Path, name: str, shared: bool
) -> list[str]:
    listed = folder / "inputs.rsp"
    listed.write_text("\n".join(f'"{p.as_posix()}"' for p in inputs))
    given = [f"@{listed}"]
    if not shared:
        return [*command, *(["-nostdlib"] if kind == "cc" else []), "-r", "-o", str(output), *given]
    exports = folder / "exports.map"
    exports.write_text("{ global: " + " ".join(f"{e};" for e in _EXPORTS) + " local: *; };\n")
    options = [
        "-Bsymbolic",
        "-z",
        "nodelete",
        "-z",
        "noexecstack",
        "-z",
        "relro",
        "--gc-sections",
        f"--version-script={exports}",
        "-soname",
        name,
    ]
    if kind == "cc":
        options = ["-nostdlib", *(f"-Wl,{o}" for o in _joined(options))]
    return [*command, "-shared", "-o", str(output), *options, *given]


def _joined(options: Sequence[str]) -> list[str]:
    """Options with their values as the C compiler passes them on: `-z,nodelete`."""
    out: list[str] = []
    items = iter(options)
    for o in items:
        out.append(f"{o},{next(items)}" if o in ("-z", "-soname") else o)
    return out


# ---- loading -----------------------------------------------------------------------------------------------------------


def load_shared(path: Path) -> Module:
    """The module in a shared library that `write_shared` made; its kernels use this process's thread pool."""
    from tilewright.runtime.ffi import function_at

    with open(path, "rb") as f:
        is_elf = f.read(4) == b"\x7fELF"
    problem = library_problem(path, host_info().triple.split("-")[0]) if is_elf else None
    if problem is not None and problem[0] == "damaged":
        raise files.damaged(path, problem[1])
    if problem is not None and problem[0] == "kind":
        raise CompileError.at("TW0701", f"{path} cannot be loaded: {problem[1]}", hint="load a .so or a .tw")
    if problem is not None:
        raise _other_machine(path, problem[1])
    shared = pool()  # loads tvm_ffi's library for everybody: the library refers to it
    try:
        library = ctypes.CDLL(str(path.resolve()))
    except OSError as e:
        raise _not_loadable(path, str(e)) from e
    if not _is_ours(library):
        foreign = _plain_functions(library, path)
        if foreign:
            return foreign
    table = _metadata(library, path)
    files.check_format(path, table)
    artifact = files.from_metadata(table, {}, [], library)
    files.check_machine(artifact, str(path))
    shared.bind(_address(library, "__tw_bind"))
    functions = {name: function_at(_address(library, files.PREFIX + name), library) for name in artifact.entries}
    return Module(functions, artifact, library, str(path))


def _is_ours(library: ctypes.CDLL) -> bool:
    try:
        ctypes.c_char.in_dll(library, files.METADATA_SYMBOL)
    except ValueError:
        return False
    return True


def _plain_functions(library: ctypes.CDLL, path: Path) -> Module | None:
    """A library without metadata that has functions of the FFI, such as C sources of ours that a C compiler has made one of."""
    from tilewright.runtime.ffi import function_at

    names = [n.removeprefix(files.PREFIX) for n in exported_names(path) if n.startswith(files.PREFIX)]
    if not names:
        return None
    functions = {n: function_at(_address(library, files.PREFIX + n), library) for n in names}
    unknown = {n: {"inputs": [], "outputs": [], "returns_tuple": False, "graph": False} for n in names}
    return Module(functions, Artifact({}, [], unknown, host_info().triple), library, str(path))


def _address(library: ctypes.CDLL, symbol: str) -> int:
    return int(ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0)


def _other_machine(path: Path, why: str) -> CompileError:
    return CompileError.at(
        "TW0704", f"{path} was made for another machine: {why}", hint="compile the model for this machine"
    )


def _not_loadable(path: Path, message: str) -> CompileError:
    if "wrong ELF class" in message or "e_machine" in message or "cannot open shared object file" in message:
        return _other_machine(path, message)
    return files.damaged(path, message)


def _metadata(library: ctypes.CDLL, path: Path) -> dict[str, Any]:
    try:
        address = ctypes.addressof(ctypes.c_char.in_dll(library, files.METADATA_SYMBOL))
    except ValueError:
        raise CompileError.at(
            "TW0701",
            f"{path} is a shared library, but none that tilewright made",
            hint="a library of another compiler with tvm-ffi functions opens with tvm_ffi.load_module",
        ) from None
    length = int.from_bytes(ctypes.string_at(address, 8), "little")
    try:
        table: dict[str, Any] = json.loads(ctypes.string_at(address + 8, length))
    except ValueError as e:
        raise files.damaged(path, f"its metadata is no JSON ({e})") from e
    return table
