"""The writer of a function in a C-like language: lines, names, what is known of variables; and the module it belongs to.

An expression is written as text with the precedence of its outermost operator, so that parentheses appear only where the
language needs them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilewright.arith import expr as E
from tilewright.backends.source.bounds import Range, fits, range_of
from tilewright.ir import dtype as dt
from tilewright.ir.node import walk
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import BufferLoad

if TYPE_CHECKING:
    from collections.abc import Generator

    from tilewright.backends.source.dialect import Dialect

__all__ = ["ADD", "ATOM", "COND", "MUL", "POSTFIX", "UNARY", "SourceModule", "Text", "Writer"]

Text = tuple[str, int]
"""An expression and its precedence."""

ATOM, POSTFIX, UNARY, MUL, ADD, SHIFT, RELATION, EQUALITY = 16, 15, 14, 13, 12, 11, 10, 9
BIT_AND, BIT_XOR, BIT_OR, AND, OR, COND, COMMA = 8, 7, 6, 5, 4, 3, 1

_WIDENS = (E.Add, E.Sub, E.Mul, E.Var, E.SizeVar, E.IntImm, E.Cast)
"""What passes the width of an index on to its operands."""
_UNFIT = re.compile(r"\W")


class SourceModule:
    """The parts of a source file in the making: what it includes, helper functions in use, function texts."""

    def __init__(self, dialect: Dialect, signatures: Mapping[str, Any] | None = None) -> None:
        self.dialect = dialect
        self.includes: dict[str, None] = {}
        self.helpers: dict[str, str] = {}
        self.globals: list[str] = []
        self.functions: list[str] = []
        self.declarations: dict[str, str] = {}
        self.signatures = dict(signatures or {})

    def helper(self, name: str) -> str:
        """The name of a helper function, whose text the file then holds."""
        if name not in self.helpers:
            text = self.dialect.helper(self, name)
            self.helpers[name] = text
        return name

    def include(self, header: str) -> None:
        """The file needs this header."""
        self.includes[header] = None


class Writer:
    """Writes one function named `name`."""

    def __init__(self, mod: SourceModule, name: str) -> None:
        self.mod, self.dialect, self.name = mod, mod.dialect, name
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[E.Var, str] = {}
        self.used: set[str] = set(self.dialect.reserved)
        self.ranges: dict[E.Var, Range] = {}
        self.pointers: dict[E.Var, tuple[str, str]] = {}
        """Of pointer variables: dtype of the elements as declared ("" for void), storage scope."""
        self.exact = False  # integers are known not to wrap (indices, loop bounds)
        self.wide = False  # 32-bit variables are written as 64-bit ones
        self.lazy = 0  # inside an operand that may not be evaluated
        self.cleanups: list[str] = []  # what must run before the function is left, outermost first
        self.values: dict[E.Var, E.PrimExpr] = {}  # variables that stand for their value
        self.fragments: dict[Any, dict[str, str]] = {}  # shape and layout of matrix fragments, by variable
        self.wholes: set[E.Var] = set()  # pointers that whole vectors are accessed through
        self.vectored = False  # the array being declared is accessed by whole vectors
        self.axes: dict[tuple[str, str], str] = {}  # variables of thread axes, by axis and dtype
        self.dynamic = self.dynamic_used = False  # dynamic shared memory: is there any, was it declared
        self.shared: list[str] = []  # declarations at the head of the function

    # ---- lines and names

    def line(self, text: str) -> None:
        """A line at the current depth."""
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """`head {`, what is written inside, `}`."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    def fresh(self, hint: str) -> str:
        """A name that nothing in the function has yet."""
        base = _UNFIT.sub("_", hint) or "x"
        if base[0].isdigit():
            base = "_" + base
        name, n = base, 0
        while name in self.used:
            n += 1
            name = f"{base}_{n}"
        self.used.add(name)
        return name

    def bind(self, v: E.Var, known: Range | None = None) -> str:
        """A name for a variable that begins to exist here."""
        name = self.names[v] = self.fresh(v.name)
        if known is not None:
            self.ranges[v] = known
        return name

    # ---- what is known

    def range(self, e: E.PrimExpr) -> Range:
        """The least and the greatest value of a scalar integer expression."""
        return range_of(e, self.ranges)

    def natural(self, e: E.PrimExpr) -> bool:
        """Is an integer certainly not negative, and without wrapping?"""
        found = self.range(e)
        return found[0] >= 0 and fits(found, e.dtype)

    def plain_integer(self, e: Any) -> bool:
        """Is it an integer made of variables and constants only, which nobody means to wrap?"""
        return dt.is_int(e.dtype) and not any(isinstance(n, (E.Call, BufferLoad)) for n in walk(e))

    # ---- expressions

    def expr(self, e: Any) -> Text:
        """The text of an expression."""
        handler = self.dialect.expressions.get(type(e))
        if handler is None:
            raise self.unsupported(type(e).__name__)
        if self.wide and type(e) not in _WIDENS and dt.is_int(e.dtype) and dt.bits(e.dtype) < 64:
            with self.value_context():
                text, own = handler(self, e)
            return f"({self.dialect.type('int64')}){text if own >= UNARY else f'({text})'}", UNARY
        return handler(self, e)

    def at(self, e: Any, precedence: int) -> str:
        """The text of an expression as an operand of an operator of that precedence."""
        text, own = self.expr(e)
        return text if own >= precedence else f"({text})"

    def text(self, e: Any) -> str:
        """The text of an expression where none needs parentheses."""
        return self.expr(e)[0]

    def index(self, e: Any, precedence: int = 0) -> str:
        """The text of an index or a bound: integers that do not wrap, 64 bits wide where 32 may not do."""
        before = self.exact, self.wide
        self.exact = True
        if self.dialect.wide_indices and dt.bits(e.dtype) == 32 and not fits(self.range(e), e.dtype):
            self.wide = True
        text = self.at(e, precedence)
        self.exact, self.wide = before
        return text

    @contextmanager
    def value_context(self) -> Generator[None]:
        """Inside, integers may wrap: an operand that is data again."""
        before = self.exact, self.wide
        self.exact = self.wide = False
        yield
        self.exact, self.wide = before

    @contextmanager
    def maybe(self) -> Generator[None]:
        """Inside, what is written may not be evaluated when the statement runs."""
        self.lazy += 1
        yield
        self.lazy -= 1

    def unsupported(self, what: str, why: str = "") -> CompileError:
        """The error of a thing that the language cannot express."""
        return CompileError.at(
            "TW0661",
            f"{self.dialect.title} cannot express {what} (in function {self.name!r}){': ' + why if why else ''}",
            hint="functions must be in flat form, and use what the target has",
        )
