"""Prints any node as TVMScript: text that reads as Python, runs as Python, and parses back to an equal node.

The engine is one loop over a stack of *items*, so that depth costs no recursion and the time is linear in the output:

    str               text to write                LINE              begin a new line at the current indentation
    (node, prec)      print the node there         INDENT, DEDENT    change the indentation
    a callable        called when its turn comes; may return more items

`HANDLERS` maps a node class to the function that gives the items of a node. Names are given when a variable is defined
and released when its scope closes; a variable that nobody defined is declared above the text (`i = T.int32()`).
Constants of more than a few elements stay out of the text: `metadata["relax.expr.Constant"][0]`.
"""

from __future__ import annotations

import base64
import io
import keyword
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from importlib import import_module
from typing import Any

from tilewright.arith.expr import IntImm, PrimExpr, StringImm
from tilewright.ir.node import INFO, Node
from tilewright.ir.op import GlobalVar
from tilewright.script.printer_marks import START, STOP, close_mark, finish_marks, has_suite, node_at, open_mark
from tilewright.support.span import Span

__all__ = ["HANDLERS", "Printer", "handler", "locate", "show", "to_repr", "to_script"]


class _Mark:
    """A sentinel item."""

    def __init__(self, name: str) -> None:
        self.name = name


LINE = _Mark("LINE")
INDENT = _Mark("INDENT")
DEDENT = _Mark("DEDENT")

Item = Any
"""str, (node, precedence), a sentinel, or a callable; see the head of the module."""
Handler = Callable[["Printer", Any, int], "list[Item]"]

HANDLERS: dict[type, Handler] = {}
"""How to print each node class; a subclass without an entry takes its base's."""

INLINE_ELEMENTS = 16
"""Arrays of at most so many elements are printed in place, larger ones go to the metadata."""

MAX_PARENS = 80
"""Python reads at most 200 nested parentheses; from this depth on, a part of an expression gets a line of its own."""

_RESERVED = {*keyword.kwlist, "T", "R", "I", "cls", "range", "metadata", "float", "print", "Module"}
_PREC_ATOM = 20


def handler(*classes: type) -> Callable[[Handler], Handler]:
    """Decorator: the function prints nodes of these classes."""

    def register(f: Handler) -> Handler:
        for c in classes:
            HANDLERS[c] = f
        return f

    return register


class Names:
    """Unique names of what is in scope; a name is free again when its scope closes."""

    def __init__(self) -> None:
        self.of: dict[Any, str] = {}
        self.used: set[str] = set(_RESERVED)
        self.next: dict[str, int] = {}
        self.scopes: list[list[tuple[Any, str, str, int]]] = [[]]
        self.waiting: dict[Any, list[Any]] = {}  # variable -> what can be declared when it is there
        self.woken: list[Any] = []
        self.addresses = False  # names carry the address of their object

    def define(self, key: Any, hint: str, *, outermost: bool = False) -> str:
        """A fresh name for `key`, close to `hint`, until the current (or the outermost) scope closes."""
        base = hint if hint.isidentifier() else re.sub(r"\W", "_", hint) or "v"
        if base[0].isdigit():
            base = f"v{base}"
        if self.addresses:
            base = f"{base}_0x{id(key):x}"
        name, n = base, 0
        if name in self.used:
            n = self.next.get(base, 1)
            while f"{base}_{n}" in self.used:
                n += 1
            name = f"{base}_{n}"
            self.next[base] = n + 1
        self.used.add(name)
        self.of[key] = name
        if key in self.waiting:
            self.woken += self.waiting[key]
        self.scopes[0 if outermost else -1].append((key, name, base, n))
        return name

    def alias(self, key: Any, text: str) -> None:
        """`key` is written `text` (such as `A.data`) until the current scope closes."""
        self.of[key] = text
        self.scopes[-1].append((key, "", "", 0))
        if key in self.waiting:
            self.woken += self.waiting[key]

    def open(self) -> None:
        """Begin a scope."""
        self.scopes.append([])

    def close(self) -> None:
        """End the scope begun last: its names are free again."""
        for key, name, base, n in reversed(self.scopes.pop()):
            self.of.pop(key, None)
            self.used.discard(name)
            if n and n < self.next.get(base, 1):
                self.next[base] = n


class Printer:
    """The state of one printing; see the head of the module."""

    def __init__(
        self,
        *,
        ir_prefix: str = "I",
        tir_prefix: str = "T",
        relax_prefix: str = "R",
        module_alias: str = "cls",
        metadata: dict[str, list[Any]] | None = None,
        mark: Any = None,
        int_dtype: str = "int32",
        float_dtype: str = "void",
        buffer_dtype: str = "float32",
        indent_spaces: int = 4,
        syntax_sugar: bool = True,
        show_object_address: bool = False,
    ) -> None:
        self.int_dtype, self.float_dtype, self.buffer_dtype = int_dtype, float_dtype, buffer_dtype
        self.step, self.sugar, self.marks = " " * indent_spaces, syntax_sugar, dict[int, int]()
        self.I, self.T, self.R, self.cls = ir_prefix, tir_prefix, relax_prefix, module_alias
        self.out: list[str] = []
        self.indent = 0
        self.names = Names()
        self.names.addresses = show_object_address
        self.names.used |= {ir_prefix, tir_prefix, relax_prefix, module_alias}
        self.prelude: list[str] = []
        self.metadata: dict[str, list[Any]] = {} if metadata is None else metadata
        self.meta_text: dict[int, str] = {}
        self.slot: tuple[list[str], int] | None = None  # where lines above the current statement go
        self.slot_indent = 0
        self.max_parens = MAX_PARENS
        self.parens = 0  # how many are open in the line being printed
        self.loops: dict[Any, Any] = {}  # loop variable -> (min, extent), for T.axis.remap
        self.env_threads: set[Any] = set()  # variables of `T.env_thread`
        self.module: Any = None  # the IRModule being printed
        self.in_module_func = False  # `cls` is at hand
        self.signature = False  # symbolic dimensions are quoted, as Python evaluates annotations before they exist
        self.dims = False  # a bare number beside an int64 expression is int64 anyway
        self.function_depth = 0
        self.mark = mark  # the node whose place in the text is asked for
        self.mark_range: tuple[int, int] | None = None

    # ---- the engine

    def run(self, items: Iterable[Item]) -> None:
        """Print the items, in order."""
        stack = list(items)
        stack.reverse()
        out = self.out
        while stack:
            item = stack.pop()
            kind = type(item)
            if kind is str:
                out.append(item)
                if "(" in item or ")" in item:
                    self.parens += item.count("(") - item.count(")")
            elif kind is tuple:
                node, prec = item
                if self.mark is not None and node is self.mark and self.mark_range is None:
                    stack.append(self._mark_end(sum(map(len, out))))
                if self.marks and id(node) in self.marks:
                    number = self.marks[id(node)]
                    out.append(open_mark(number))
                    stack.append(close_mark(number))
                if self.parens > self.max_parens and isinstance(node, PrimExpr):
                    out.append(self._aside(node))
                    continue
                f = HANDLERS.get(type(node)) or _find_handler(type(node))
                more = f(self, node, prec)
                stack.extend(reversed(more))
            elif item is LINE:
                self.slot, self.slot_indent, self.parens = (out, len(out)), self.indent, 0
                out.append("")
                out.append("\n" + self.step * self.indent)
            elif item is INDENT:
                self.indent += 1
            elif item is DEDENT:
                self.indent -= 1
            else:
                more = item()
                if more:
                    stack.extend(reversed(more))

    def _aside(self, node: Any) -> str:
        """A name for an expression that nests too deeply for Python's parser, given above the statement."""
        saved, self.parens = self.parens, 0
        text = self.text_of([(node, 0)])
        self.parens = saved
        name = self.names.define(object(), "part", outermost=self.slot is None)
        self.before(f"{name} = {self.T}.meta_var({text})")
        return name

    def _mark_end(self, start: int) -> Callable[[], None]:
        def end() -> None:
            self.mark_range = (start, sum(map(len, self.out)))

        return end

    def text_of(self, items: Iterable[Item]) -> str:
        """The text of the items alone, for a place other than the current one."""
        saved, self.out = self.out, []
        self.run(items)
        text = "".join(self.out)
        self.out = saved
        return text

    def before(self, text: str) -> None:
        """Write the line `text` above the statement being printed (or at the head, outside of any)."""
        if self.slot is None:
            self.prelude.append(text)
        else:
            out, at = self.slot
            out[at] += "\n" + self.step * self.slot_indent + text

    # ---- names

    def scope(self, items: list[Item]) -> list[Item]:
        """The items with a scope of names of their own."""
        return [self.names.open, *items, self.names.close]

    def suite(self, body: Any) -> list[Item]:
        """`body` (statement or items), indented, in its own scope."""
        items = body if isinstance(body, list) else [(body, 0)]
        return [INDENT, self.names.open, *items, self.names.close, DEDENT]

    def comma(self, values: Iterable[Any], prec: int = 0) -> list[Item]:
        """The nodes separated by commas."""
        out: list[Item] = []
        for v in values:
            if out:
                out.append(", ")
            out.append((v, prec))
        return out

    def tuple_of(self, values: Iterable[Any]) -> list[Item]:
        """The nodes as a Python tuple."""
        items = list(values)
        return ["(", *self.comma(items), ",)" if len(items) == 1 else ")"]

    def list_of(self, values: Iterable[Any]) -> list[Item]:
        """The nodes as a Python list."""
        return ["[", *self.comma(values), "]"]

    # ---- plain values

    def value(self, v: Any) -> list[Item]:
        """An attribute value: Python data, or a node written so that its kind and dtype show."""
        if v is None or isinstance(v, (bool, str)):
            return [_quote(v) if isinstance(v, str) else repr(v)]
        if isinstance(v, Enum):
            return self.value(v.value)
        if isinstance(v, (int, float)):
            return [repr(v) if math.isfinite(v) else f'float("{v}")']
        if isinstance(v, (tuple, list)):
            ends = "()" if isinstance(v, tuple) else "[]"
            out: list[Item] = [ends[0]]
            for i, item in enumerate(v):  # pyright: ignore[reportUnknownVariableType]
                out += [", "] * (i > 0) + self.value(item)
            return [*out, ",)" if isinstance(v, tuple) and len(v) == 1 else ends[1]]  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(v, Mapping):
            out = ["{"]
            for i, (k, item) in enumerate(v.items()):  # pyright: ignore[reportUnknownVariableType]
                out += [", "] * (i > 0) + self.value(k) + [": "] + self.value(item)
            return [*out, "}"]
        if isinstance(v, IntImm) and v.dtype == "int32":
            return [f"{self.T}.int32({v.value})"]
        if isinstance(v, StringImm):
            return [f"{self.T}.StringImm({_quote(v.value)})"]
        if isinstance(v, Node):
            return [(v, 0)]
        if type(v).__name__ == "Target":
            return [f"{self.T}.target({_quote(str(v))})"]
        if hasattr(v, "dtype") and hasattr(v, "shape"):
            return [self.meta("runtime.NDArray", v)]
        return [self.meta("object", v)]

    def meta(self, kind: str, value: Any) -> str:
        """`value` kept out of the text."""
        known = self.meta_text.get(id(value))
        if known is None:
            table = self.metadata.setdefault(kind, [])
            table.append(value)  # which keeps it alive, so that its id stays its own
            known = self.meta_text[id(value)] = f'metadata["{kind}"][{len(table) - 1}]'
        return known

    def finish(self) -> str:
        """The whole text: declarations of what nobody defined, then what was printed."""
        body = "".join(self.out)
        body = body.lstrip("\n") if not self.marks else _MARKED_HEAD.sub(r"\1", body, count=1)
        return "\n".join([*self.prelude, body]) if self.prelude else body


_MARKED_HEAD = re.compile(f"^((?:{START}\\d+{STOP})*)\n+")


def _quote(text: str) -> str:
    """A string literal with double quotes."""
    body = repr(text)[1:-1]
    return '"' + body.replace("\\'", "'").replace('"', '\\"') + '"' if '"' not in text else repr(text)


def _find_handler(cls: type) -> Handler:
    _load()
    for base in cls.__mro__:
        found = HANDLERS.get(base)
        if found is not None:
            HANDLERS[cls] = found
            return found
    return _generic


_LOADED: list[bool] = []


def _load() -> None:
    """Register the printers of both IRs (once)."""
    if not _LOADED:
        _LOADED.append(True)
        for name in ("expr", "buffer", "tir", "func", "relax"):
            import_module(f"tilewright.script.printer_{name}")
        HANDLERS.setdefault(Node, _generic)


def _generic(p: Printer, node: Any, prec: int) -> list[Item]:
    """A node of a class without a syntax of its own: `Class(field=value, ...)`; this does not parse back."""
    del prec
    out: list[Item] = [f"{type(node).__name__}("]
    for f in getattr(node, "node_fields", ()):
        if f.role != INFO and hasattr(node, f.name):
            out += [", "] * (len(out) > 1) + [f"{f.name}="] + p.value(getattr(node, f.name))
    return [*out, ")"]


def print_global_var(p: Printer, v: GlobalVar, prec: int) -> list[Item]:
    """`cls.f` in a function of the module that has it, else `I.GlobalVar("f")`."""
    del prec
    if p.in_module_func and v in p.module.functions:
        return [f"{p.cls}.{v.name_hint}" if v.name_hint.isidentifier() else f"{p.cls}[{_quote(v.name_hint)}]"]
    return [f"{p.I}.GlobalVar({_quote(v.name_hint)})"]


def print_module(p: Printer, mod: Any, prec: int) -> list[Item]:
    """The module as a class."""
    del prec
    p.module = mod
    items: list[Item] = [LINE, f"@{p.I}.ir_module", LINE, "class Module:", INDENT]
    if mod.attrs:
        items += [LINE, f"{p.I}.module_attrs(", *p.value(mod.attrs), ")"]
    if not mod.functions and not mod.attrs:
        items += [LINE, "pass"]
    for i, (var, func) in enumerate(mod.functions.items()):
        gap: list[Item] = ["\n"] if i or mod.attrs else []
        items += [*gap, lambda func=func, var=var: print_function(p, func, var.name_hint)]
    return [*items, DEDENT]


def print_function(p: Printer, func: Any, name: str) -> list[Item]:
    """A function of either IR under that name."""
    _load()
    for base in type(func).__mro__:
        printer = FUNCTIONS.get(base)
        if printer is not None:
            number = p.marks.get(id(func))
            items = printer(p, func, name)
            return items if number is None else [open_mark(number), *items, close_mark(number)]
    return [LINE, f"{name} = ", (func, 0)]


FUNCTIONS: dict[type, Callable[[Printer, Any, str], list[Item]]] = {}
"""How to print each class of functions, under a name."""


def _register() -> None:
    from tilewright.ir.module import IRModule

    HANDLERS[IRModule] = print_module
    HANDLERS[GlobalVar] = print_global_var


_register()


def _header(p: Printer, text: str) -> list[str]:
    lines: list[str] = []
    for prefix, module in ((p.I, "ir"), (p.T, "tir"), (p.R, "relax")):
        if f"{prefix}." in text:
            lines.append(f"# from tilewright.script import {module}" + f" as {prefix}" * (prefix != module))
    return [*lines, ""] if lines else []


def _is_top(node: Any) -> bool:
    from tilewright.ir.module import BaseFunc, IRModule

    return isinstance(node, (BaseFunc, IRModule))


def to_script(
    node: Any,
    *,
    name: str | None = None,
    show_meta: bool = False,
    metadata: dict[str, list[Any]] | None = None,
    header: bool = True,
    verbose_expr: bool = True,
    print_line_numbers: bool = False,
    num_context_lines: int | None = None,
    path_to_underline: Sequence[Any] | None = None,
    path_to_annotate: Mapping[Any, str] | None = None,
    obj_to_underline: Sequence[Any] | None = None,
    obj_to_annotate: Mapping[Any, str] | None = None,
    show_all_struct_info: bool = True,
    extra_config: Mapping[str, Any] | None = None,
    **options: Any,
) -> str:
    """`node` as TVMScript text, which `tilewright.script.from_source` turns back into an equal node.

    Large constants print as `metadata["kind"][i]`. `metadata` (an empty dict) receives their values, to be handed to
    `from_source(text, metadata=...)`; with `show_meta=True` the text itself carries them, encoded, and needs nothing else.
    `name` is the name of a lone function (default: its `global_symbol`, or `main`).

    `options`: ir_prefix, tir_prefix, relax_prefix, module_alias; int_dtype, float_dtype, buffer_dtype (the dtypes that are
    not written); indent_spaces; syntax_sugar=False (loops, axes, parameters and the root block one by one);
    show_object_address. `verbose_expr=False` leaves out what declares the free variables of an expression. Objects (or paths
    to them: `"<root>.body.seq[1]"`) may be underlined and annotated by a comment; `num_context_lines` prints only so many
    lines around them. Only texts without these reads back. Raises TypeError on an unknown option.
    """
    if not show_all_struct_info or extra_config:
        raise TypeError("script() here has neither show_all_struct_info=False nor extra_config")
    p = Printer(metadata=metadata, **options)
    underlined = [*(obj_to_underline or ()), *(node_at(node, path) for path in path_to_underline or ())]
    notes = [*(obj_to_annotate or {}).items(), *((node_at(node, k), v) for k, v in (path_to_annotate or {}).items())]
    marked = list({id(x): x for x in (*underlined, *(k for k, _ in notes))}.values())
    p.marks = {id(x): i for i, x in enumerate(marked)}
    text = _print(p, node, name)
    if not verbose_expr and p.prelude and not _is_top(node):
        text = text[len("\n".join(p.prelude)) + 1 :]
    if show_meta and p.metadata:
        text = f'metadata = {p.I}.load_metadata("{encode_metadata(p.metadata)}")\n{text}'
    if header and _is_top(node):
        text = "\n".join([*_header(p, text), text])
    if not marked and not print_line_numbers:
        return text
    numbers = [p.marks[id(x)] for x in underlined]
    return finish_marks(
        text,
        underline=numbers,
        head_only=[p.marks[id(x)] for x in underlined if has_suite(x)],
        comments={p.marks[id(k)]: v for k, v in notes},
        line_numbers=print_line_numbers,
        context=num_context_lines,
    )


def _print(p: Printer, node: Any, name: str | None = None) -> str:
    from tilewright.ir.module import BaseFunc, attrs_of

    _load()
    if isinstance(node, BaseFunc):
        p.run(print_function(p, node, name or str(attrs_of(node).get("global_symbol") or "main")))
    elif isinstance(node, Node) and type(node) in ROOT:
        number = p.marks.get(id(node))
        items = ROOT[type(node)](p, node)
        p.run(items if number is None else [open_mark(number), *items, close_mark(number)])
    elif isinstance(node, Node):
        p.run([(node, 0)])
    else:
        p.run(p.value(node))
    return p.finish()


ROOT: dict[type, Callable[[Printer, Any], list[Item]]] = {}
"""Node classes that print otherwise when they are the whole text."""


def encode_metadata(metadata: Mapping[str, list[Any]]) -> str:
    """The arrays of the metadata as one line of text. Raises TypeError on a value that is no array."""
    import numpy as np

    arrays: dict[str, Any] = {}
    for kind, values in metadata.items():
        for i, v in enumerate(values):
            if not isinstance(v, np.ndarray):
                raise TypeError(f"metadata[{kind!r}][{i}] is a {type(v).__name__}: only arrays can be written as text")
            arrays[f"{kind}:{i}:{v.dtype.name}"] = v if v.dtype.kind != "V" else v.view(np.uint8)
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return base64.b64encode(file.getvalue()).decode()


def decode_metadata(text: str) -> dict[str, list[Any]]:
    """The metadata that `encode_metadata` wrote."""
    import numpy as np

    from tilewright.ir.dtype import to_numpy

    out: dict[str, list[Any]] = {}
    with np.load(io.BytesIO(base64.b64decode(text))) as file:
        for key in file.files:
            kind, _, dtype = key.split(":")
            array = file[key]
            out.setdefault(kind, []).append(array if array.dtype.name == dtype else array.view(to_numpy(dtype)))
    return out


def to_repr(node: Any) -> str:
    """Short text for any node, for people and debuggers: an expression or statement as script. Never raises."""
    try:
        p = Printer()
        p.max_parens = sys.maxsize
        text = _print(p, node)
        p.prelude.clear()
        return p.finish() if not _is_top(node) else text
    except Exception as err:
        return f"<{type(node).__name__}, which cannot be printed: {type(err).__name__}: {err}>"


def locate(root: Any, node: Any, source: str = "<printed IR>") -> Span | None:
    """Where `node` stands in the printed text of `root`, as a span that carries the text; None if it is not in it."""
    p = Printer(mark=node)
    text = _print(p, root)
    if p.mark_range is None:
        return None
    raw = "".join(p.out)
    shift = (len(raw) - len(raw.lstrip("\n"))) - len("".join(f"{line}\n" for line in p.prelude))
    start, end = (x - shift for x in p.mark_range)
    while start < end and text[start] in "\n ":
        start += 1
    line, column = text.count("\n", 0, start) + 1, start - (text.rfind("\n", 0, start) + 1) + 1
    end_line, end_column = text.count("\n", 0, end) + 1, end - (text.rfind("\n", 0, end) + 1) + 1
    return Span(source, line, column, end_line, end_column, text)


def show(node: Any, style: str | None = None, black_format: bool | None = None, **options: Any) -> None:
    """Print `node` as script, in colour where that is possible; `options` as of `to_script`, the rest as of `cprint`."""
    from tilewright.script.highlight import cprint

    cprint(to_script(node, **options), style, black_format)


def names_in(values: Iterable[Any], kind: type) -> Iterator[Any]:
    """The nodes of class `kind` in the expressions, each once, in order."""
    seen: set[int] = set()
    stack = [v for v in values if isinstance(v, Node)]
    stack.reverse()
    while stack:
        n = stack.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        if isinstance(n, kind):
            yield n
        below: list[Any] = []
        for f in n.node_fields:
            if f.role != INFO:
                _collect(getattr(n, f.name), below)
        stack.extend(reversed(below))


def _collect(value: Any, out: list[Any]) -> None:
    if isinstance(value, Node):
        out.append(value)
    elif isinstance(value, (tuple, list)):
        for v in value:  # pyright: ignore[reportUnknownVariableType]
            _collect(v, out)
    elif isinstance(value, dict):
        for v in value.values():  # pyright: ignore[reportUnknownVariableType]
            _collect(v, out)
