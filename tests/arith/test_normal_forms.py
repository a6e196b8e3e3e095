"""The identities behind the normal forms of quotients and remainders (head of simplify/divide.py), each proved."""

import itertools

import pytest
import z3

# name: (condition, left, right), in Python over x, y, k, c, d, g (floor division); proved by enumeration, and by z3 for
# every value of x and y at fixed small constants
IDENTITIES = {
    "multiples come out of a quotient": ("c > 0", "(c*y + x) // c", "y + x // c"),
    "multiples vanish from a remainder": ("c > 0", "(c*y + x) % c", "x % c"),
    "a common divisor": ("d > 0 and g > 0 and 0 <= y < g", "(g*x + y) // (g*d)", "x // d"),
    "a common divisor in a remainder": ("d > 0 and g > 0 and 0 <= y < g", "(g*x + y) % (g*d)", "g*(x % d) + y"),
    "a negated quotient": ("c > 0", "(k - x) // c", "-((x + c - 1 - k) // c)"),
    "a negated remainder": ("c > 0", "(k - x) % c", "c - 1 - (x + c - 1 - k) % c"),
    "a quotient of a quotient": ("c > 0 and d > 0", "(x // d + k) // c", "(x + k*d) // (d*c)"),
    "a quotient of a remainder": ("c > 0 and d > 0", "(x % (c*d)) // c", "(x // c) % d"),
    "a remainder in a remainder": ("c > 0 and d > 0 and (k*d) % c == 0", "(k*(x % d) + y) % c", "(k*x + y) % c"),
    "a negative divisor": ("c > 0", "x // -c", "(-x) // c"),
    "a negative modulus": ("c > 0", "x % -c", "-((-x) % c)"),
    "quotient and remainder": ("c > 0", "(x // c)*c + x % c", "x"),
    "a compared quotient": ("c > 0", "x // c >= k", "x >= k*c"),
    "a quotient compared from above": ("c > 0", "x // c <= k", "x <= k*c + c - 1"),
    "multiples of a divisor of either sign": ("c != 0", "(c*y + x) // c", "y + x // c"),
}
SMALL = {"c": range(-4, 7), "d": range(1, 5), "g": range(1, 5), "k": range(-5, 6)}


@pytest.mark.parametrize("name", IDENTITIES)
def test_by_enumeration(name):
    condition, left, right = IDENTITIES[name]
    codes = [compile(x, name, "eval") for x in (condition, left, right)]
    used = [v for v in "cdgkxy" if any(v in x for x in IDENTITIES[name])]
    checked = 0
    for values in itertools.product(*[SMALL.get(v, range(-9, 10)) for v in used]):
        env = dict(zip(used, values))
        if eval(codes[0], {}, env):
            checked += 1
            assert eval(codes[1], {}, env) == eval(codes[2], {}, env), env
    assert checked > 50


class Z:
    """A z3 integer with Python's floor division by constants of either sign."""

    def __init__(self, e):
        self.e = e

    def __add__(self, o):
        return Z(self.e + _raw(o))

    __radd__ = __add__

    def __sub__(self, o):
        return Z(self.e - _raw(o))

    def __rsub__(self, o):
        return Z(_raw(o) - self.e)

    def __mul__(self, o):
        return Z(self.e * _raw(o))

    __rmul__ = __mul__

    def __neg__(self):
        return Z(-self.e)

    def __floordiv__(self, c):
        return Z(self.e / c) if c > 0 else Z(-self.e / -c)  # z3's quotient leaves a remainder >= 0

    def __mod__(self, c):
        return self - (self // c) * c

    def __ge__(self, o):
        return self.e >= _raw(o)

    def __le__(self, o):
        return self.e <= _raw(o)

    def __lt__(self, o):
        return self.e < _raw(o)


def _raw(o):
    return o.e if isinstance(o, Z) else o


@pytest.mark.parametrize("name", IDENTITIES)
def test_for_all_integers(name):
    condition, left, right = IDENTITIES[name]
    used = [v for v in "cdgk" if any(v in x for x in IDENTITIES[name])]
    x, y = z3.Ints("x y")
    constants = {"c": (3, 4, -3), "d": (2, 5), "g": (4,), "k": (-2, 1, 8)}
    proved = 0
    for values in itertools.product(*[constants[v] for v in used]):
        env = {**dict(zip(used, values)), "x": Z(x), "y": Z(y)}
        bounded = "0 <= y < g" in condition
        plain = condition.replace(" and 0 <= y < g", "")
        if not eval(plain, {}, env):
            continue
        solver = z3.Solver()
        solver.set("timeout", 2000)
        if bounded:
            solver.add(y >= 0, y < env["g"])
        a, b = eval(left, {}, env), eval(right, {}, env)
        solver.add(_raw(a) != _raw(b))
        answer = solver.check()
        assert answer != z3.sat, (env, solver.model())
        proved += answer == z3.unsat
    assert proved
