"""Every rewriting rule is proved: by enumeration over small integers always, and by z3 for all integers where it can."""

import ast
import itertools
import random

import numpy as np
import pytest
import z3

from tilewright.arith.rewrite.compile import parse, variants
from tilewright.arith.rewrite.rules import INDEX_RULES, VECTOR_RULES
from tilewright.arith.rewrite.rules_logic import LOGIC_RULES

TABLES = [INDEX_RULES, VECTOR_RULES, LOGIC_RULES]
RULES = [(op, r) for table in TABLES for op, rules in table.items() for r in rules]


def names(term):
    """The variables of a term, with their kind."""
    if term[0] in ("var", "const", "lanes"):
        return {term[1]: term[0]}
    out = {}
    for part in term[1:]:
        if isinstance(part, tuple):
            out.update(names(part))
    return out


class Numbers:
    """What terms mean for arrays of integers; divisions by zero are noted in `bad`."""

    def __init__(self, env, lane=0):
        self.env, self.lane, self.bad = env, lane, False

    def choose(self, c, a, b):
        return np.where(c, a, b)

    def quotient(self, a, b, floor):
        self.bad = self.bad | (np.asarray(b) == 0)
        b = np.where(np.asarray(b) == 0, 1, b)
        q = a // b
        return q if floor else np.where((a % b != 0) & (q < 0), q + 1, q)

    def __call__(self, t):
        kind = t[0]
        if kind in ("var", "const", "lanes"):
            return self.env[t[1]]
        if kind in ("int", "bool"):
            return t[1]
        if kind == "call":
            return self.known(t[1], *[self(a) for a in t[2:]])
        if kind == "Ramp":
            return self(t[1]) + self(t[2]) * self.lane
        if kind == "Broadcast":
            return self(t[1])
        args = [self(a) for a in t[1:]]
        return self.operation(kind, *args)

    def operation(self, kind, a, b=None, c=None):
        if kind == "Select":
            return self.choose(a, b, c)
        if kind == "Not":
            return self.negate(a)
        if kind in ("FloorDiv", "Div"):
            return self.quotient(a, b, kind == "FloorDiv")
        if kind in ("FloorMod", "Mod"):
            return a - self.quotient(a, b, kind == "FloorMod") * b
        return {
            "Add": lambda: a + b, "Sub": lambda: a - b, "Mul": lambda: a * b, "Min": lambda: self.choose(a < b, a, b),
            "Max": lambda: self.choose(a > b, a, b), "LT": lambda: a < b, "LE": lambda: a <= b, "EQ": lambda: a == b,
            "NE": lambda: a != b, "And": lambda: self.both(a, b), "Or": lambda: self.either(a, b),
        }[kind]()  # fmt: skip

    def negate(self, a):
        return np.logical_not(a)

    def both(self, a, b):
        return np.logical_and(a, b)

    def either(self, a, b):
        return np.logical_or(a, b)

    def known(self, name, *args):
        """What the functions of conditions and results say of numbers."""
        x, *rest = args
        both, rem = self.both, lambda a, b: a - self.quotient(a, b, True) * b
        if name == "nonneg":
            return x >= 0
        if name == "pos":
            return x > 0
        if name in ("less", "between", "reduced"):
            return both(x >= 0, x < rest[0])
        if name in ("whole",):
            return rem(x, rest[0]) == 0
        if name in ("isconst", "known", "has_gap"):
            return x == x
        if name in ("rest", "base"):
            return rem(x, rest[0])
        if name in ("one_block", "in_block"):
            step, lanes, c = rest
            return rem(x, c) + (lanes - 1) * step < c
        if name == "same_gap":
            return x - rest[0] == rest[1] - rest[2]
        if name == "gap":
            return x - rest[0]
        if name == "cancels":
            return x == rest[0]
        if name == "block":
            c1, c2, c3 = rest
            return self.quotient(rem(x + c2, c3) + (c1 - c2), c3, True)
        y, z, w = rest
        total = x + y if name == "padded" else x - y
        return both(rem(z, w) == 0, rem(total, w) == 0)

    def condition(self, e):
        """A condition of a rule."""
        if isinstance(e, ast.BoolOp):
            out = self.condition(e.values[0])
            for v in e.values[1:]:
                more = self.condition(v)
                out = self.both(out, more) if isinstance(e.op, ast.And) else self.either(out, more)
            return out
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
            if getattr(getattr(e.operand, "func", None), "id", "") in ("known", "isconst"):
                return self.condition(e.operand)  # what is not known may be anything
            return self.negate(self.condition(e.operand))
        if isinstance(e, ast.Compare):
            sides = [self(parse(ast.unparse(s))) for s in (e.left, *e.comparators)]
            ops = {ast.Lt: "LT", ast.LtE: "LE", ast.Eq: "EQ", ast.NotEq: "NE"}
            out = None
            for a, b, op in zip(sides, sides[1:], e.ops):
                if isinstance(op, (ast.Gt, ast.GtE)):
                    part = self.operation("LT" if isinstance(op, ast.Gt) else "LE", b, a)
                else:
                    part = self.operation(ops[type(op)], a, b)
                out = part if out is None else self.both(out, part)
            return out
        assert isinstance(e, ast.Call)
        return self.known(e.func.id, *[self(parse(ast.unparse(a))) for a in e.args])


def sides(rule):
    return parse(rule.pattern.lstrip("!")), parse(rule.result.lstrip("> "))


def points(used, seed):
    """Arrays of values for the variables: a grid of small ones, and random greater ones."""
    rng = random.Random(seed)
    values = {}
    for name, kind in used.items():
        if name[0] in "pqr":
            values[name] = [0, 1]
        elif kind == "lanes":
            values[name] = [2, 4]
        else:
            values[name] = list(range(-6, 9)) if kind == "const" else list(range(-7, 8))
    total = np.prod([len(v) for v in values.values()])
    if total <= 20000:
        grid = list(itertools.product(*values.values()))
    else:
        grid = [tuple(rng.choice(v) for v in values.values()) for _ in range(20000)]
    wide = [v if n[0] in "pqr" or used[n] == "lanes" else range(-40, 70) for n, v in values.items()]
    grid += [tuple(rng.choice(v) for v in wide) for _ in range(12000)]
    columns = np.array(grid, dtype=np.int64).T
    return {n: (c.astype(bool) if n[0] in "pqr" else c) for n, c in zip(values, columns)}


@pytest.mark.parametrize("op, rule", RULES, ids=lambda r: r if isinstance(r, str) else r.pattern)
def test_by_enumeration(op, rule):
    pattern, result = sides(rule)
    used = names(pattern)
    env = points(used, rule.pattern)
    if op in ("And", "Or") and "bcast" in rule.pattern:
        env = {n: (v % 2).astype(bool) if n in "xy" else v for n, v in env.items()}
    held = 0
    for lane in range(4) if "lanes" in used.values() else [0]:
        run = Numbers(env, lane)
        with np.errstate(all="ignore"):
            keep = np.ones(len(next(iter(env.values()))), bool)
            if rule.when:
                keep &= run.condition(ast.parse(rule.when, mode="eval").body)
            before = run(pattern)
            keep &= ~np.asarray(run.bad)
            if "l1" in env:
                keep &= env["l1"] > lane
            run.bad = False
            after = run(result)
        held += int(keep.sum())
        wrong = keep & ((before != after) | np.asarray(run.bad))
        assert not wrong.any(), {n: v[wrong][:3].tolist() for n, v in env.items()}
    assert held > 0, "the condition never holds"


class Z3(Numbers):
    """What terms mean for z3's integers. Its division leaves a remainder that is not negative, whatever the divisor."""

    def __init__(self, env):
        super().__init__(env)
        self.divisors = []

    def choose(self, c, a, b):
        return z3.If(c, a, b)

    def quotient(self, a, b, floor):
        a, b = (z3.IntVal(v) if isinstance(v, int) else v for v in (a, b))
        self.divisors.append(b)
        down = z3.If(b > 0, a / b, (-a) / (-b))
        if floor:
            return down
        return z3.If(b > 0, z3.If(a >= 0, a / b, -((-a) / b)), z3.If(a >= 0, -(a / (-b)), (-a) / (-b)))

    def negate(self, a):
        return z3.Not(a)

    def both(self, a, b):
        return z3.And(a, b)

    def either(self, a, b):
        return z3.Or(a, b)


def products(term):
    """Are two variables multiplied, or is something divided by what is no constant?"""
    if term[0] in ("Mul", "FloorDiv", "FloorMod", "Div", "Mod"):
        second = term[2]
        if second[0] not in ("int",):
            return True
    return any(products(p) for p in term[1:] if isinstance(p, tuple))


SCALAR = [(op, r) for op, r in RULES if "l1" not in r.pattern]


@pytest.mark.parametrize("op", sorted({op for op, _ in SCALAR}))
def test_by_z3(op):
    proved = 0
    for _, rule in [x for x in SCALAR if x[0] == op]:
        pattern, result = sides(rule)
        used = names(pattern)
        small = [n for n, k in used.items() if k == "const"] if products(pattern) else []
        choices = [{}] if not small else [dict(zip(small, v)) for v in SMALL[len(small)]]
        for fixed in choices:
            env = {n: (z3.Bool(n) if n[0] in "pqr" else z3.Int(n)) for n in used}
            env.update(fixed)
            run = Z3(env)
            solver = z3.Solver()
            solver.set("timeout", 60)
            try:
                if rule.when:
                    held = run.condition(ast.parse(rule.when, mode="eval").body)
                    if held is False or held is np.False_:
                        continue
                    solver.add(held)
                before, after = run(pattern), run(result)
            except (ZeroDivisionError, z3.Z3Exception):
                continue
            solver.add(*[d != 0 for d in run.divisors])
            solver.add(before != after)
            answer = solver.check()
            assert answer != z3.sat, (rule, fixed, solver.model())
            proved += answer == z3.unsat
            if answer == z3.unknown:
                break  # nonlinear: enumeration has checked it
    assert proved


SMALL = {1: [(2,), (3,), (-3,)], 2: [(2, 4), (6, 3), (3, 2), (2, -2)], 3: [(2, 3, 6), (4, 2, 3), (3, 6, 2), (6, 2, 12)],
         4: [(3, 4, 4, 1), (3, 4, 8, 2)]}  # fmt: skip


def test_variants_swap_sums_and_products_only():
    found = {str(v) for v in variants(parse("x * y - min(z, w + c1)"))}
    assert len(found) == 2  # the constant stays on the right, `-` and `min` in order
