"""ELF files: an object of read-only data, written directly, and a look at a library before the system loads it.

The object is how weights get into a shared library without an assembler.

One section with a symbol a piece, each piece at a multiple of 64. On x86-64 it is a large section, which linkers
put where more than 2 GB of it keep nothing else apart. 64-bit little-endian processors.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tilewright.support.diagnostics import CompileError

__all__ = ["DataObject", "library_problem"]

_MACHINES = {
    "x86_64": (62, 0),
    "aarch64": (183, 0),
    "arm64": (183, 0),
    "riscv64": (243, 5),
    "powerpc64le": (21, 2),
    "loongarch64": (258, 0x43),
}
"""(e_machine, e_flags) by architecture; riscv64: compressed code and hardware doubles, as Linux has them."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SECTIONS = ("", ".lrodata.tilewright", ".symtab", ".strtab", ".shstrtab", ".note.GNU-stack")
_RETAIN = 0x200000  # SHF_GNU_RETAIN: not to be collected
_LARGE = 0x10000000  # SHF_X86_64_LARGE


class DataObject:
    """An object file in the making. Raises CompileError TW0715 for a processor it does not know."""

    def __init__(self, triple: str) -> None:
        arch = triple.split("-")[0]
        if arch not in _MACHINES:
            raise CompileError.at("TW0715", f"weights cannot be linked for {triple} yet", hint="write .tw instead")
        self._machine, self._flags = _MACHINES[arch]
        self._large = arch == "x86_64"
        self._pieces: list[tuple[str, Any, int, int, bool]] = []  # name, data, offset, size, exported
        self._size = 0

    def add(self, symbol: str, data: bytes | np.ndarray[Any, Any], *, exported: bool = False) -> None:
        """Add a piece. Without `exported` other objects of the same library see the symbol, users of the library do not."""
        size = data.nbytes if isinstance(data, np.ndarray) else len(data)
        offset = -(-self._size // 64) * 64
        self._pieces.append((symbol, data, offset, size, exported))
        self._size = offset + max(size, 1)

    def write(self, f: BinaryIO) -> None:
        """Write the object to an open, empty file."""
        names, symbols = self._symbols()
        sections = [s if self._large else s.replace(".lrodata", ".rodata") for s in _SECTIONS]
        section_names = b"\0".join(s.encode() for s in sections) + b"\0"
        at_data = 64
        at_symbols = -(-(at_data + self._size) // 8) * 8
        at_names = at_symbols + len(symbols)
        at_section_names = at_names + len(names)
        at_sections = -(-(at_section_names + len(section_names)) // 8) * 8
        f.write(
            _HEADER.pack(
                b"\x7fELF\x02\x01\x01" + b"\0" * 9, 1, self._machine, 1, 0, 0, at_sections, self._flags, 64, 0, 0, 64,
                len(sections), sections.index(".shstrtab"),
            )
        )  # fmt: skip
        for _, data, offset, _, _ in self._pieces:
            f.write(b"\0" * (at_data + offset - f.tell()))
            f.write(_bytes(data))
        f.write(b"\0" * (at_symbols - f.tell()))
        f.write(symbols + names + section_names)
        f.write(b"\0" * (at_sections - f.tell()))
        starts = {s: section_names.index(b"\0" + s.encode() + b"\0") + 1 if s else 0 for s in sections}
        f.write(bytes(64))
        f.write(
            _SECTION.pack(
                starts[sections[1]],
                1,
                2 | _RETAIN | (_LARGE if self._large else 0),
                0,
                at_data,
                self._size,
                0,
                0,
                64,
                0,
            )
        )
        f.write(_SECTION.pack(starts[".symtab"], 2, 0, 0, at_symbols, len(symbols), 3, 2, 8, 24))
        f.write(_SECTION.pack(starts[".strtab"], 3, 0, 0, at_names, len(names), 0, 0, 1, 0))
        f.write(_SECTION.pack(starts[".shstrtab"], 3, 0, 0, at_section_names, len(section_names), 0, 0, 1, 0))
        f.write(_SECTION.pack(starts[".note.GNU-stack"], 1, 0, 0, at_sections, 0, 0, 0, 1, 0))

    def _symbols(self) -> tuple[bytes, bytes]:
        """The string table and the symbol table: the null symbol, the section's, then the pieces (global, from index 2)."""
        names = bytearray(b"\0")
        table = bytearray(_SYMBOL.pack(0, 0, 0, 0, 0, 0) + _SYMBOL.pack(0, 3, 0, 1, 0, 0))
        for symbol, _, offset, size, exported in self._pieces:
            table += _SYMBOL.pack(len(names), 0x11, 0 if exported else 2, 1, offset, size)
            names += symbol.encode() + b"\0"
        return bytes(names), bytes(table)


def _bytes(data: Any) -> Any:
    if not isinstance(data, np.ndarray):
        return data
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8).data


def library_problem(path: Path, arch: str) -> tuple[str, str] | None:
    """What keeps an ELF file from being loaded: ("damaged", "machine" or "kind", why). The system's loader dies of a file that is
    shorter than its headers say."""
    size = path.stat().st_size
    with open(path, "rb") as f:
        head = f.read(64)
        if len(head) < 64 or head[4] != 2 or head[5] != 1:
            short = len(head) < 64
            return (
                ("damaged", "it ends within its header")
                if short
                else ("machine", "it is no 64-bit little-endian library")
            )
        fields = _HEADER.unpack(head)
        machine, at_segments, at_sections = fields[2], fields[5], fields[6]
        segment_size, segments, section_size, sections = fields[9], fields[10], fields[11], fields[12]
        if fields[1] != 3:
            return "kind", "it is a single object or a program, no shared library"
        known = _MACHINES.get(arch)
        if known is not None and machine != known[0]:
            return "machine", f"its code is for machine number {machine} of the ELF standard, not for {arch}"
        if at_sections + section_size * sections > size or at_segments + segment_size * segments > size:
            return "damaged", f"it has only {size} bytes"
        f.seek(at_segments)
        table = f.read(segment_size * segments)
    for k in range(segments):
        kind, _, offset, _, _, in_file = _SEGMENT.unpack_from(table, k * segment_size)
        if kind == 1 and offset + in_file > size:
            return "damaged", f"it has only {size} bytes"
    return None


def exported_names(path: Path) -> list[str]:
    """The global symbols that a 64-bit little-endian ELF library defines for others; none for other files."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return []
    fields = _HEADER.unpack(data[:64])
    start, count = fields[6], fields[12]
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * 64) for i in range(count)]
    found: list[str] = []
    for header in headers:
        if header[1] != 11:  # SHT_DYNSYM
            continue
        strings = headers[header[6]][4]
        for at in range(header[4], header[4] + header[5], 24):
            name, info, _, section = struct.unpack_from("<IBBH", data, at)
            if info >> 4 and name and section:
                found.append(data[strings + name : data.index(b"\0", strings + name)].decode())
    return sorted(found)
