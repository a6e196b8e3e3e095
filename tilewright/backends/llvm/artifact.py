"""Artifacts: compiled programs linked into this process, and files of them.

    .tw    our archive: machine code, weights, metadata in one file. Loading needs no linker: LLVM's JIT linker takes the code
           and the weights are mapped, not read.
    .so    a shared library with everything in it, for Python, C++ and Rust through tvm-ffi's C ABI (link.py)
    .o     one relocatable object of the same
    .ll    LLVM IR text
    .s     assembly text

The archive, little-endian:

    magic "TWARCH01" | u32 checksum of the header | u32 0 | u64 length of the header | u64 length of the file
    header: JSON with the target, the functions' signatures, and where each object and constant lies
    objects, each at a multiple of 16; constants, the first at a page, each at a multiple of 64

The header and the objects carry checksums. Weights do not (that would mean to read them all); a truncated file is found
by its length. Files appear by a rename: nobody sees half of one.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tilewright.backends.llvm.jit import Engine
from tilewright.ir import dtype as dt
from tilewright.ir.target import Target, host_info
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.executable import Executable
from tilewright.runtime.module import Module
from tilewright.support.diagnostics import CompileError
from tilewright.version import __version__

__all__ = ["artifact_of", "atomic_file", "executable", "link_in_process", "load", "metadata", "module", "read", "write"]

PREFIX = "__tvm_ffi_"
METADATA_SYMBOL = "__tilewright_metadata"
FORMAT = 1
_MAGIC = b"TWARCH01"
_HEAD = struct.Struct("<8sIIQQ")
_PAGE = 4096
_SYSTEM_FEATURES = (
    "pku", "invpcid", "wbnoinvd", "cl", "rdp", "rds", "rdr", "xsave", "fsgsbase", "shstk", "sgx", "ptwrite", "pconfig", "prf",
    "sha", "aes", "vaes", "pclmul", "vpclmul", "mwaitx", "waitpkg", "serialize", "uintr", "tsx", "rtm", "movdir", "enqcmd",
    "hreset", "kl", "widekl", "lwp", "usermsr", "cx8", "cx16", "fxsr", "crc32", "sahf", "mmx", "64bit", "cmov",
)  # fmt: skip
"""Beginnings of CPU features that the compiler never makes code for by itself: an artifact does not depend on them."""


def artifact_of(compiled: Any) -> Artifact:
    """What the driver compiled (`driver.compile.Compiled`) as an artifact."""
    target: Target = compiled.target
    shown = compiled.module
    return Artifact(
        objects=dict(compiled.objects),
        constants=[(name, np.require(array, requirements=["C"])) for name, array in compiled.constants],
        entries=dict(compiled.entries),
        triple=target.mtriple,
        target=str(target),
        features=tuple(sorted(f for f in target.features if not f.startswith(_SYSTEM_FEATURES))),
        stats=compiled.stats,
        source=getattr(compiled, "source", None),
        script=shown.script if shown is not None else None,
    )


def executable(compiled: Any) -> Executable:
    """What the driver compiled, linked into this process and ready to call."""
    return Executable.from_artifact(artifact_of(compiled))


def module(compiled: Any) -> Module:
    """What the driver compiled, linked into this process, as functions by name.

    Code for another machine is not linked: its module can be looked at and exported, and says why when a function is called.
    """
    artifact = artifact_of(compiled)
    try:
        check_machine(artifact, "the program")
    except CompileError as error:
        return Module({name: _refusal(error) for name in artifact.entries}, artifact)
    return link_in_process(artifact)


def _refusal(error: CompileError) -> Callable[..., Any]:
    """A function that cannot run here."""

    def refuse(*args: Any) -> Any:
        raise error.with_traceback(None)

    return refuse


def link_in_process(artifact: Artifact) -> Module:
    """Link an artifact's code into this process. Raises CompileError TW0704 or TW0705 if it was made for another machine."""
    from tilewright.runtime.ffi import function_at

    check_machine(artifact, "the program")
    arrays = [(name, _aligned(a)) for name, a in artifact.constants]
    engine = Engine(list(artifact.objects.values()), {name: a.ctypes.data for name, a in arrays})
    keep = (engine, arrays, artifact.keep)
    functions = {name: function_at(engine.address(PREFIX + name), keep) for name in artifact.entries}
    return Module(functions, artifact, keep)


def _aligned(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in memory that starts at a multiple of 64; itself if it does."""
    if a.ctypes.data % 64 == 0 and a.flags.c_contiguous:
        return a
    raw = np.empty(a.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    out = raw[start : start + a.nbytes].view(a.dtype).reshape(a.shape)
    out[...] = a
    return out


def check_machine(artifact: Artifact, what: str) -> None:
    """Raise CompileError unless this process can run the code."""
    host = host_info()
    ours, theirs = host.triple.split("-"), artifact.triple.split("-")
    if ours[0] != theirs[0] or _system(host.triple) != _system(artifact.triple):
        raise CompileError.at(
            "TW0704",
            f"{what} was made for {artifact.triple}; this machine is {host.triple}",
            hint="compile the model for this machine",
        )
    missing = sorted(set(artifact.features) - set(host.features))
    if missing:
        raise CompileError.at(
            "TW0705",
            f"{what} uses CPU features that this machine lacks: {', '.join(missing)}",
            hint='compile for the older machine, for example with target "llvm -mcpu=x86-64-v3"',
        )


def _system(triple: str) -> str:
    from tilewright.backends.llvm.runtime_ir import system_of

    return system_of(triple)


def metadata(artifact: Artifact) -> dict[str, Any]:
    """What a file says about itself besides code and weights."""
    stats = {k: v for k, v in artifact.stats.items() if isinstance(v, (int, float, str, bool, type(None)))}
    return {
        "format": FORMAT,
        "version": __version__,
        "triple": artifact.triple,
        "target": artifact.target,
        "features": list(artifact.features),
        "entries": artifact.entries,
        "stats": stats,
    }


# ---- writing -----------------------------------------------------------------------------------------------------------


def write(artifact: Artifact, path: Path) -> None:
    """Write a file by its ending. Raises CompileError TW0710 to TW0714; nothing half-written is left behind."""
    from tilewright.backends.llvm import link

    writers: dict[str, Callable[[Artifact, Path], None]] = {
        ".tw": write_archive,
        ".so": link.write_shared,
        ".dylib": link.write_shared,
        ".o": link.write_object,
        ".ll": write_text,
        ".s": write_text,
    }
    writer = writers.get(path.suffix)
    if writer is None:
        raise CompileError.at(
            "TW0713",
            f"cannot tell how to write {path.name!r} from its ending",
            hint="use .so (shared library), .o (object), .s (assembly), .ll (LLVM IR) or .tw (archive that needs no linker)",
        )
    writer(artifact, path)


@contextlib.contextmanager
def atomic_file(path: Path) -> Generator[Path]:
    """A name beside `path` to write to; it becomes `path` when the body succeeds and vanishes when it does not.

    Raises CompileError TW0712 where the file cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, (0o777 if path.suffix in (".so", ".dylib") else 0o666) & ~umask)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as e:
        raise CompileError.at(
            "TW0712", f"cannot write {path}: {e.strerror or e}", hint="is there such a folder, and space?"
        ) from e


def write_text(artifact: Artifact, path: Path) -> None:
    """LLVM IR (`.ll`) or the machine's assembly (`.s`) as text."""
    if artifact.source is None:
        raise CompileError.at(
            "TW0714",
            "an artifact that was loaded from a file holds machine code only, no source",
            hint="compile the model again",
        )
    text = artifact.source("asm" if path.suffix == ".s" else "ll")
    with atomic_file(path) as temporary:
        temporary.write_text(text)


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def write_archive(artifact: Artifact, path: Path) -> None:
    """The `.tw` archive of an artifact."""
    table = metadata(artifact)
    objects, constants = _layout(artifact, table)
    text = json.dumps(table, separators=(",", ":")).encode()
    body = _round_up(_HEAD.size + len(text), 16)
    weights = _round_up(body + objects, _PAGE)
    total = weights + constants
    with atomic_file(path) as temporary, open(temporary, "wb") as f:
        f.write(_HEAD.pack(_MAGIC, zlib.crc32(text), 0, len(text), total))
        f.write(text)
        for row, data in zip(table["objects"], artifact.objects.values(), strict=True):
            _pad_to(f, body + row["offset"])
            f.write(data)
        for row, (_, array) in zip(table["constants"], artifact.constants, strict=True):
            _pad_to(f, weights + row["offset"])
            f.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        _pad_to(f, total)


def _layout(artifact: Artifact, table: dict[str, Any]) -> tuple[int, int]:
    """Put where everything lies, counted from the start of its part, into the table; the lengths of both parts."""
    at = 0
    table["objects"] = []
    for name, data in artifact.objects.items():
        table["objects"].append({"name": name, "offset": at, "size": len(data), "checksum": zlib.crc32(data)})
        at = _round_up(at + len(data), 16)
    objects, at = at, 0
    table["constants"] = []
    for symbol, a in artifact.constants:
        row = {"symbol": symbol, "dtype": str(a.dtype), "shape": list(a.shape), "offset": at, "size": a.nbytes}
        table["constants"].append(row)
        at = _round_up(at + a.nbytes, 64)
    return objects, at


def _pad_to(f: BinaryIO, offset: int) -> None:
    f.write(b"\0" * (offset - f.tell()))


# ---- reading -----------------------------------------------------------------------------------------------------------


def load(path: Path) -> Module:
    """The module in a `.tw` or `.so` file, told apart by its contents.

    Raises FileNotFoundError; CompileError TW0701 (another kind of file), TW0702 (damaged), TW0703 (another version),
    TW0704, TW0705 (another machine).
    """
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    with open(path, "rb") as f:
        start = f.read(8)
    if start == _MAGIC:
        found = link_in_process(read(path))
        found.path = str(path)
        return found
    if start[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe") or start[:2] == b"MZ":
        from tilewright.backends.llvm import link

        return link.load_shared(path)
    if start[: len(start)] == _MAGIC[: len(start)]:
        raise damaged(path, "it ends within its first bytes")
    raise CompileError.at(
        "TW0701",
        f"{path} is no compiled artifact of tilewright",
        hint="artifacts are .tw and .so files that `tilewright compile` or export_library wrote",
    )


def damaged(path: Path, why: str) -> CompileError:
    """The error for a file that is not what it once was."""
    return CompileError.at("TW0702", f"{path} is damaged: {why}", hint="write the artifact again, or copy it again")


def read(path: Path) -> Artifact:
    """The contents of a `.tw` archive; the weights are mapped into memory, not read."""
    size = path.stat().st_size
    with open(path, "rb") as f:
        head = f.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise damaged(path, "it ends within its first bytes")
        _, checksum, _, length, total = _HEAD.unpack(head)
        if size != total:
            raise damaged(path, f"it has {size} bytes instead of {total}")
        text = f.read(length)
        if zlib.crc32(text) != checksum:
            raise damaged(path, "the checksum of its header is wrong")
        table: dict[str, Any] = json.loads(text)
        check_format(path, table)
        view = memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)) if size else memoryview(b"")
    try:
        return _contents(path, table, view, _round_up(_HEAD.size + length, 16))
    except (KeyError, IndexError, ValueError, TypeError) as e:
        raise damaged(path, f"its table does not fit its contents ({e})") from e


def check_format(path: Path, table: dict[str, Any]) -> None:
    """Raise CompileError TW0703 for a file of a version that this package does not read."""
    if table.get("format") != FORMAT:
        raise CompileError.at(
            "TW0703",
            f"{path} has format {table.get('format')} (tilewright {table.get('version')}); this is tilewright {__version__}, which reads {FORMAT}",
            hint="compile the model again with this version",
        )


def _contents(path: Path, table: dict[str, Any], view: memoryview, body: int) -> Artifact:
    objects: dict[str, bytes] = {}
    end = body
    for row in table["objects"]:
        data = bytes(view[body + row["offset"] : body + row["offset"] + row["size"]])
        if len(data) != row["size"] or zlib.crc32(data) != row["checksum"]:
            raise damaged(path, f"the checksum of the code {row['name']!r} is wrong")
        objects[row["name"]] = data
        end = body + _round_up(row["offset"] + row["size"], 16)
    weights = _round_up(end, _PAGE)
    constants: list[tuple[str, np.ndarray[Any, Any]]] = []
    for row in table["constants"]:
        element = dt.to_numpy(row["dtype"])
        count = row["size"] // element.itemsize
        raw = np.frombuffer(view, np.uint8, row["size"], weights + row["offset"])
        constants.append((row["symbol"], raw[: count * element.itemsize].view(element).reshape(row["shape"])))
    return from_metadata(table, objects, constants, view)


def from_metadata(
    table: dict[str, Any], objects: dict[str, bytes], constants: list[tuple[str, np.ndarray[Any, Any]]], keep: Any
) -> Artifact:
    """An artifact from what a file says about itself."""
    return Artifact(
        objects=objects,
        constants=constants,
        entries=table["entries"],
        triple=table["triple"],
        target=table["target"],
        features=tuple(table["features"]),
        stats=table["stats"],
        keep=keep,
    )
