"""Rules made into Python functions: one for each operation and pair of classes of its sides, compiled when first needed.

A rule of `rules` becomes straight-line code that compares classes, binds the pattern's variables, checks the condition and
builds the result. So an expression costs a dictionary look-up and the few rules that can begin with its sides.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.rewrite.rules import Rule

__all__ = ["RuleTable", "parse", "variants"]

_BINARY: dict[type, str] = {
    ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.FloorDiv: "FloorDiv", ast.Mod: "FloorMod", ast.BitAnd: "And",
    ast.BitOr: "Or", ast.Lt: "LT", ast.LtE: "LE", ast.Eq: "EQ", ast.NotEq: "NE",
}  # fmt: skip
_CALLS = {
    "min": "Min",
    "max": "Max",
    "tdiv": "Div",
    "tmod": "Mod",
    "sel": "Select",
    "ramp": "Ramp",
    "bcast": "Broadcast",
}
_FIELDS = {"Select": ("condition", "true_value", "false_value"), "Ramp": ("base", "stride", "lanes"),
           "Broadcast": ("value", "lanes"), "Not": ("a",)}  # fmt: skip
_COMMUTE = ("Add", "Mul")

Term = tuple[Any, ...]
"""A parsed expression: (operation, *parts); ("var", name), ("const", name), ("int", value), ("bool", value), ("call", ...)."""


def parse(text: str) -> Term:
    """The term of a rule's side."""
    return _term(ast.parse(text, mode="eval").body)


def _term(e: Any) -> Term:
    if isinstance(e, ast.Name):
        return ("const", e.id) if e.id[0] == "c" else ("lanes", e.id) if e.id[0] == "l" else ("var", e.id)
    if isinstance(e, ast.Constant):
        return ("bool", e.value) if isinstance(e.value, bool) else ("int", e.value)
    if isinstance(e, ast.BinOp):
        return (_BINARY[type(e.op)], _term(e.left), _term(e.right))
    if isinstance(e, ast.Compare):
        return (_BINARY[type(e.ops[0])], _term(e.left), _term(e.comparators[0]))
    if isinstance(e, ast.UnaryOp):
        if isinstance(e.op, ast.Invert):
            return ("Not", _term(e.operand))
        inner = _term(e.operand)
        return ("int", -inner[1]) if inner[0] == "int" else ("Sub", ("int", 0), inner)
    assert isinstance(e, ast.Call)
    assert isinstance(e.func, ast.Name)
    args = tuple(_term(a) for a in e.args)
    return (_CALLS[e.func.id], *args) if e.func.id in _CALLS else ("call", e.func.id, *args)


def variants(t: Term) -> Iterator[Term]:
    """The term with the sides of sums and products in every order; constants stay on the right."""
    if t[0] in ("var", "const", "int", "bool", "lanes"):
        yield t
        return
    for parts in itertools.product(*(list(variants(p)) for p in t[1:])):
        yield (t[0], *parts)
        if t[0] in _COMMUTE and parts[0] != parts[1] and not _constant(parts[1]) and not _constant(parts[0]):
            yield (t[0], parts[1], parts[0])


def _constant(t: Term) -> bool:
    return t[0] in ("const", "int") or (t[0] in _BINARY.values() and all(_constant(p) for p in t[1:]))


class _Code:
    """The code of one rule variant."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.bound: set[str] = set()
        self.temps = 0

    def fail_unless(self, condition: str) -> None:
        self.lines.append(f"if not ({condition}): break")

    def match(self, t: Term, path: str) -> None:
        """Code that breaks out unless the expression at `path` is of the form of the term."""
        kind = t[0]
        if kind == "var":
            if t[1] in self.bound:
                self.lines.append(f"if {t[1]} is not {path} and not same({t[1]}, {path}): break")
            else:
                self.bound.add(t[1])
                self.lines.append(f"{t[1]} = {path}")
        elif kind == "const":
            self.lines.append(f"if {path}.__class__ is not IntImm: break")
            if t[1] in self.bound:
                self.lines.append(f"if {path}.value != {t[1]}: break")
            else:
                self.bound.add(t[1])
                self.lines.append(f"{t[1]} = {path}.value")
        elif kind == "lanes":
            if t[1] in self.bound:
                self.lines.append(f"if {path} is not {t[1]} and not same_lanes({path}, {t[1]}): break")
            else:
                self.bound.add(t[1])
                self.lines.append(f"{t[1]} = {path}")
        elif kind in ("int", "bool"):
            self.lines.append(f"if {path}.__class__ is not IntImm or {path}.value != {int(t[1])}: break")
        else:
            self.lines.append(f"if {path}.__class__ is not {kind}: break")
            self.parts(t, path)

    def parts(self, t: Term, path: str) -> None:
        for field, part in zip(_FIELDS.get(t[0], ("a", "b")), t[1:]):
            self.temps += 1
            name = f"t{self.temps}"
            self.lines.append(f"{name} = {path}.{field}")
            self.match(part, name)

    def number(self, t: Term) -> str:
        """Python code of a term of constants."""
        if t[0] == "const":
            return t[1]
        if t[0] == "int":
            return repr(t[1])
        op = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%"}[t[0]]
        return f"({self.number(t[1])} {op} {self.number(t[2])})"

    def build(self, t: Term, again: bool) -> str:
        """Python code that builds the result."""
        kind = t[0]
        if kind == "var" or kind == "lanes":
            return t[1]
        if kind == "bool":
            return "TRUE" if t[1] else "FALSE"
        if _constant(t):
            return f"imm({self.number(t)}, dtype)"
        if kind == "call":
            return f"s.{t[1]}({', '.join(self.argument(a) for a in t[2:])}, dtype)"
        args = [self.build(p, again) for p in t[1:]]
        return f"{'s.make' if again else 'raw'}_{kind}({', '.join(args)})"

    def argument(self, t: Term) -> str:
        return self.number(t) if _constant(t) else self.build(t, False)


def _condition(text: str) -> str:
    """The condition with functions of what is known as methods of the simplifier, and arithmetic on parts built."""
    tree = ast.parse(text, mode="eval").body
    return _condition_code(tree)


def _condition_code(e: Any) -> str:
    if isinstance(e, ast.BoolOp):
        op = " and " if isinstance(e.op, ast.And) else " or "
        return "(" + op.join(_condition_code(v) for v in e.values) + ")"
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
        return f"not {_condition_code(e.operand)}"
    if isinstance(e, ast.Call):
        assert isinstance(e.func, ast.Name)
        code = _Code()
        args = [code.argument(_term(a)) for a in e.args]
        return f"s.{e.func.id}({', '.join(args)})"
    return f"({ast.unparse(e)})"


class _Prepared:
    """A rule with its variants parsed, and which classes the sides of each variant may have."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        text = rule.pattern.lstrip("!")
        pattern = parse(text)
        self.patterns = [pattern] if rule.pattern.startswith("!") else list(dict.fromkeys(variants(pattern)))
        self.again = rule.result.startswith(">")
        self.result = parse(rule.result.lstrip("> "))


def _may_be(t: Term, kind: str) -> bool:
    if t[0] == "var":
        return True
    if t[0] in ("const", "int", "bool"):
        return kind == "IntImm"
    return t[0] == kind


class RuleTable:
    """The rules of all operations. `function(op, kind_a, kind_b)` gives f(a, b, s, dtype): the result, or None."""

    def __init__(self, rules: dict[str, list[Rule]], scope: dict[str, Any]) -> None:
        self.rules = rules
        self.prepared: dict[str, list[_Prepared]] = {}
        self.functions: dict[Any, Callable[..., Any] | None] = {}
        self.scope = scope

    def prepare(self, op: str) -> list[_Prepared]:
        """The rules of an operation, parsed."""
        found = self.prepared.get(op)
        if found is None:
            found = self.prepared[op] = [_Prepared(r) for r in self.rules.get(op, ())]
        return found

    def function(self, op: str, *kinds: type) -> Callable[..., Any] | None:
        """The compiled rules for sides of these classes; None where no rule can match."""
        names = [k.__name__ for k in kinds]
        sides = _SIDES[len(kinds)]
        body: list[str] = []
        for rule in self.prepare(op):
            for pattern in rule.patterns:
                if all(_may_be(p, n) for p, n in zip(pattern[1:], names)):
                    body += self.variant(rule, pattern, sides)
        f: Callable[..., Any] | None = None
        if body:
            source = f"def rules_{op}({', '.join(sides)}, s, dtype):\n" + "\n".join(" " + line for line in body)
            out: dict[str, Any] = {}
            exec(compile(source, f"<rules {op} {' '.join(names)}>", "exec"), self.scope, out)
            f = out[f"rules_{op}"]
        self.functions[(op, *kinds)] = f
        return f

    def variant(self, rule: _Prepared, pattern: Term, sides: tuple[str, ...]) -> list[str]:
        """The code of one variant of a rule."""
        code = _Code()
        for part, side in zip(pattern[1:], sides):
            code.match(part, side)
        if rule.rule.when:
            code.fail_unless(_condition(rule.rule.when))
        code.lines.append(f"return {code.build(rule.result, rule.again)}")
        return ["while True:", *("  " + line for line in code.lines)]


_SIDES: dict[int, tuple[str, ...]] = {1: ("a",), 2: ("a", "b"), 3: ("c", "a", "b")}
_NODES = ("Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod", "Min", "Max", "EQ", "NE", "LT", "LE", "GT", "GE",
          "And", "Or", "Not", "Select", "Ramp", "Broadcast", "IntImm")  # fmt: skip


def node_scope() -> dict[str, Any]:
    """The classes that compiled rules name."""
    return {name: getattr(ex, name) for name in _NODES}
