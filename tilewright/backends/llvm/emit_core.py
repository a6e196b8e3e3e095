"""What emitting LLVM IR as text rests on: types, constants, names, and the writers of a module and of a function.

A value is the text that names it: `%v12`, or a constant's literal. Pure instructions go through `Writer.op`, which gives the
same name to the same text as long as the first one dominates (value numbering while writing: LLVM then has less to read).
Loads go through `Writer.load`, which does the same until a store may have changed the memory.

Storage and value types: bool is `i1` in registers and `i8` in memory; bfloat16 is `i16` and float8 `i8` everywhere
(`emit_cast.py` converts them by bit operations, as no arithmetic on them is assumed of the target).
"""

from __future__ import annotations

import re
import struct
from functools import cache
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.support.diagnostics import CompileError

__all__ = [
    "ModuleWriter",
    "Writer",
    "float_literal",
    "like",
    "llvm_type",
    "memory_type",
    "splat",
    "suffix",
    "symbol",
    "unsupported",
    "vector",
]

_PLAIN = re.compile(r"[A-Za-z_.$][A-Za-z0-9_.$]*$")
_FLOATS = {"float16": "half", "float32": "float", "float64": "double", "bfloat16": "i16"}
_BYTES_OF = {"half": 2, "float": 4, "double": 8, "ptr": 8}


def unsupported(code: str, message: str, hint: str | None = None) -> CompileError:
    """The error of a thing that this emitter does not take."""
    return CompileError.at(code, message, hint=hint)


@cache
def llvm_type(dtype: str) -> str:
    """The LLVM type of a value of `dtype` in a register. Raises CompileError TW0601 for a dtype without one."""
    d = dt.parse(dtype)
    if d.code == "handle":
        base = "ptr"
    elif d.code == "void":
        return "void"
    elif d.code in ("int", "uint", "bool"):
        if d.code != "bool" and d.bits not in (8, 16, 32, 64):
            raise unsupported(
                "TW0601",
                f"the LLVM emitter has no arithmetic for dtype {dtype}",
                "convert it to int8 or wider before lowering",
            )
        base = f"i{d.bits}"
    elif d.code.startswith("float8"):
        base = "i8"
    elif dt.element(dtype) in _FLOATS:
        base = _FLOATS[dt.element(dtype)]
    else:
        raise unsupported("TW0601", f"the LLVM emitter does not know dtype {dtype}")
    return vector(d.lanes, base)


@cache
def memory_type(dtype: str) -> str:
    """The LLVM type of a value of `dtype` in memory: bool as a byte, everything else as in registers."""
    if dt.is_bool(dtype):
        return vector(dt.lanes(dtype), "i8")
    return llvm_type(dtype)


def vector(lanes: int, base: str) -> str:
    """The LLVM type of `lanes` elements: one is a scalar, a negative number a scalable vector."""
    if lanes == 1:
        return base
    return f"<{lanes} x {base}>" if lanes > 0 else f"<vscale x {-lanes} x {base}>"


def like(ty: str, base: str) -> str:
    """The vector type with as many lanes as the vector type `ty`, of elements `base`."""
    return f"{ty[: ty.rindex(' x ')]} x {base}>"


@cache
def suffix(ty: str) -> str:
    """How intrinsic names spell an LLVM type: `<8 x float>` is `v8f32`."""
    if ty[0] == "<":
        scalable = "nx" if ty.startswith("<vscale") else ""
        n, _, base = ty[10 if scalable else 1 : -1].partition(" x ")
        return f"{scalable}v{n}{suffix(base)}"
    return {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}.get(ty, ty)


@cache
def element_bytes(dtype: str) -> int:
    """Bytes between two neighbours in memory of elements of `dtype`."""
    base = memory_type(dt.element(dtype))
    return _BYTES_OF.get(base) or max(1, int(base[1:]) // 8)


@cache
def splat(literal: str, base: str, lanes: int) -> str:
    """A constant of `lanes` equal elements."""
    if lanes == 1:
        return literal
    return "zeroinitializer" if literal in ("0", "0x0000000000000000", "0xH0000") else f"splat ({base} {literal})"


@cache
def float_literal(value: float, dtype: str) -> str:
    """`value` as the literal of one element of a floating-point dtype, rounded to it."""
    base = dt.element(dtype)
    if base == "float64":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if base == "float32":
        with np.errstate(over="ignore"):
            rounded = float(np.float32(value))
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    with np.errstate(over="ignore"):
        raw: Any = np.array(value, dtype=np.float64).astype(dt.to_numpy(base))
    if base == "float16":
        return f"0xH{int(raw.view(np.uint16)):04X}"
    return str(int(raw.view(np.uint16 if base == "bfloat16" else np.uint8)))


@cache
def symbol(name: str) -> str:
    """A global name as LLVM text."""
    return f"@{name}" if _PLAIN.match(name) else '@"' + name.replace("\\", "\\5C").replace('"', "\\22") + '"'


def c_string(text: str) -> tuple[str, int]:
    """A zero-terminated string constant as LLVM text, and its length with the zero."""
    raw = text.encode() + b"\0"
    body = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in raw)
    return f'c"{body}"', len(raw)


_FMA_ALWAYS = ("aarch64", "arm64", "riscv64", "powerpc64le", "loongarch64", "s390x")

PLAIN_LOOPS = "; holds scalar loops that LLVM may vectorise"
"""A comment in the head of such modules: what `opt="auto"` goes by."""

_METADATA = (
    "!0 = distinct !{!0, !3, !4}",
    '!1 = !{!"branch_weights", i32 1, i32 4000}',
    '!2 = !{!"branch_weights", i32 4000, i32 1}',
    '!3 = !{!"llvm.loop.vectorize.enable", i1 false}',
    '!4 = !{!"llvm.loop.unroll.disable"}',
)


class ModuleWriter:
    """The parts of a module in the making: function texts, declarations by name, constants, strings, helpers.

    `features` are the target's feature names (`avx2`, `fma`, `f16c`), `arch` its architecture (`x86_64`).
    """

    def __init__(self, features: frozenset[str], arch: str, vector_bytes: int) -> None:
        self.features, self.arch, self.vector_bytes = features, arch, vector_bytes
        self.functions: list[str] = []
        self.declarations: dict[str, str] = {}
        self.defined: set[str] = set()
        self.constants: list[tuple[str, Any]] = []
        self.strings: dict[str, str] = {}
        self.helpers: dict[str, str] = {}
        self.globals: list[str] = []
        self.counters: dict[str, int] = {}
        self.plain = False

    def counter(self, name: str) -> int:
        """0, 1, 2, ...: how often it was asked for `name` before."""
        n = self.counters.get(name, 0)
        self.counters[name] = n + 1
        return n

    @property
    def has_fma(self) -> bool:
        """Does the target have a fused multiply-add instruction?"""
        return "fma" in self.features or self.arch in _FMA_ALWAYS

    @property
    def has_half(self) -> bool:
        """Does the target convert half precision in hardware?"""
        return "f16c" in self.features or "avx512f" in self.features or self.arch in ("aarch64", "arm64")

    def declare(self, name: str, signature: str) -> str:
        """Declare the external function `name`; `signature` is `ret (params)`. Gives its symbol."""
        if name not in self.declarations:
            result, _, params = signature.partition(" (")
            self.declarations[name] = f"declare {result} {symbol(name)}({params}"
        return symbol(name)

    def string(self, text: str) -> str:
        """The symbol of a zero-terminated string."""
        found = self.strings.get(text)
        if found is None:
            found = self.strings[text] = f"@.str.{len(self.strings)}"
            literal, size = c_string(text)
            self.globals.append(f"{found} = private unnamed_addr constant [{size} x i8] {literal}, align 1")
        return found

    def text(self, name: str) -> str:
        """The whole module."""
        head = [f"; ModuleID = '{name}'", PLAIN_LOOPS if self.plain else "", f'source_filename = "{name}"']
        declared = [line for key, line in self.declarations.items() if key not in self.defined]
        wide = ' "prefer-vector-width"="512"' if self.vector_bytes == 64 else ""
        tail = [
            f"attributes #0 = {{ nounwind{wide} }}",
            f"attributes #1 = {{ nounwind alwaysinline{wide} }}",
            *_METADATA,
        ]
        return "\n".join([*head, *self.globals, *declared, *self.helpers.values(), *self.functions, *tail, ""])


class Writer:
    """Writes the body of one function: lines, names, blocks, and the values known in the scope being written."""

    def __init__(self, mod: ModuleWriter) -> None:
        self.mod = mod
        self.out: list[str] = []
        self.entry: list[str] = []
        self.block = "entry"
        self.n = 0
        self.known: dict[str, str] = {}
        self.journal: list[str] = []
        self.epoch = 0
        self.epochs: dict[str, int] = {}
        self.message_buffer = ""

    # ---- instructions

    def op(self, text: str) -> str:
        """A pure instruction, or the name of the same one written before."""
        name = self.known.get(text)
        if name is None:
            self.n += 1
            name = f"%v{self.n}"
            self.known[text] = name
            self.journal.append(text)
            self.out.append(f"  {name} = {text}")
        return name

    def inst(self, text: str) -> str:
        """An instruction with a result that must not be shared."""
        self.n += 1
        name = f"%v{self.n}"
        self.out.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self.out.append(f"  {text}")

    def load(self, ty: str, pointer: str, align: int, root: str) -> str:
        """Load `ty`; the same load is shared until a store to memory that may be the same. `root` names the allocation."""
        text = f"load {ty}, ptr {pointer}, align {align}"
        key = f"{text} {self.epoch} {self.epochs.get(root, 0)}"
        name = self.known.get(key)
        if name is None:
            self.n += 1
            name = f"%v{self.n}"
            self.known[key] = name
            self.journal.append(key)
            self.out.append(f"  {name} = {text}")
        return name

    def clobber(self, root: str | None) -> None:
        """Memory changed: that of the allocation `root` only, or any."""
        if root is None:
            self.epoch += 1
        else:
            self.epochs[root] = self.epochs.get(root, 0) + 1

    def intrinsic(self, name: str, ty: str, *args: str) -> str:
        """A call of the pure intrinsic `llvm.<name>.<ty>` whose operands all have type `ty`."""
        full = f"llvm.{name}.{suffix(ty)}"
        callee = self.mod.declare(full, f"{ty} ({', '.join([ty] * len(args))})")
        return self.op(f"call {ty} {callee}({', '.join(f'{ty} {a}' for a in args)})")

    # ---- blocks

    def label(self, hint: str) -> str:
        """A fresh block name."""
        self.n += 1
        return f"{hint}{self.n}"

    def start(self, name: str) -> None:
        """Begin the block `name`."""
        self.out.append(f"{name}:")
        self.block = name

    def branch(self, name: str) -> None:
        """End the block by a jump."""
        self.out.append(f"  br label %{name}")

    def branch_if(self, condition: str, then: str, other: str, weight: str = "") -> None:
        """End the block by a conditional jump."""
        self.out.append(f"  br i1 {condition}, label %{then}, label %{other}{weight}")

    def push(self) -> int:
        """Enter a scope whose values do not dominate what follows it."""
        self.epoch += 1
        return len(self.journal)

    def pop(self, mark: int) -> None:
        """Leave the scope: forget what was computed in it."""
        journal, known = self.journal, self.known
        while len(journal) > mark:
            del known[journal.pop()]
        self.epoch += 1

    # ---- small things every part needs

    def buffer_for_messages(self) -> str:
        """Stack memory for the text of an error, one for all places that raise: a packed function has hundreds."""
        if not self.message_buffer:
            self.message_buffer = self.alloca("[1024 x i8], align 16")
        return self.message_buffer

    def alloca(self, text: str) -> str:
        """Stack memory, in the entry block."""
        self.n += 1
        name = f"%s{self.n}"
        self.entry.append(f"  {name} = alloca {text}")
        return name

    def splat_value(self, value: str, base: str, lanes: int) -> str:
        """A vector with the scalar `value` in every lane."""
        if value[0] != "%":
            return splat(value, base, lanes)
        vec = vector(lanes, base)
        first = self.op(f"insertelement {vec} poison, {base} {value}, i64 0")
        return self.op(f"shufflevector {vec} {first}, {vec} poison, {vector(lanes, 'i32')} zeroinitializer")
