"""Index maps: applied, inverted, padded."""

import itertools

import pytest

from tilewright.arith.expr import Var, const
from tilewright.tir.index_map import IndexMap


def ints(exprs):
    return [int(e) for e in exprs]


def points(shape):
    return itertools.product(*[range(n) for n in shape])


MAPS = [
    (lambda i, j: (j, i), (3, 5)),
    (lambda i, j: (i // 4, j, i % 4), (16, 8)),
    (lambda i, j: (i * 8 + j,), (4, 8)),
    (lambda i: (i // 6, i // 2 % 3, i % 2), (24,)),
    (lambda n, c, h, w: (n, c // 8, h, w, c % 8), (2, 16, 3, 3)),
    (lambda i, j: ((i * 8 + j) // 16, (i * 8 + j) % 16), (4, 8)),
    (lambda i, j: (i // 2, j // 4, i % 2, j % 4), (4, 8)),
]


@pytest.mark.parametrize("f, shape", MAPS)
def test_maps_and_inverses(f, shape):
    m = IndexMap.from_func(f)
    out = ints(m.map_shape(shape))
    inverse = m.inverse(shape)
    seen = set()
    for p in points(shape):
        q = ints(m.map_indices(p))
        want = f(*p)
        assert q == list(want)
        assert all(0 <= a < b for a, b in zip(q, out))
        assert ints(inverse.map_indices(q)) == list(p)
        seen.add(tuple(q))
    assert len(seen) == len(list(points(out)))
    assert inverse.inverse(out) is m


def test_symbolic_shapes():
    n = Var("n", "int64")
    m = IndexMap.from_func(lambda i, j: (j, i))
    shape = m.map_shape((n, const(4, "int64")))
    assert shape[0].value == 4
    assert shape[1] is n
    i, j = m.inverse((n, const(4, "int64"))).map_indices((Var("a", "int64"), Var("b", "int64")))
    assert (i.name, j.name) == ("b", "a")


def test_padding():
    m = IndexMap.from_func(lambda i: (i // 4, i % 4))
    with pytest.raises(ValueError, match="no inverse over"):
        m.inverse((14,))
    inverse, padding = m.non_surjective_inverse((14,))
    assert ints(m.map_shape((14,))) == [4, 4]
    from tilewright.ir.rewrite import substitute

    for a, b in points((4, 4)):
        (i,) = ints(inverse.map_indices((a, b)))
        assert i == a * 4 + b
        table = dict(zip(inverse.initial_indices, (const(a, "int64"), const(b, "int64"))))
        from tilewright.arith.analyzer import simplify

        assert bool(simplify(substitute(padding, table))) == (i >= 14)
    inverse, padding = m.non_surjective_inverse((16,))
    assert not padding.value


def test_what_is_no_bijection():
    with pytest.raises(ValueError, match="multiplies iterators"):
        IndexMap.from_func(lambda i, j: (i * j,)).inverse((4, 4))
    with pytest.raises(ValueError, match="does not occur"):
        IndexMap.from_func(lambda i, j: (i,)).inverse((4, 4))


def test_building():
    m = IndexMap.from_func(lambda *i: [i[1], i[0]], ndim=2, index_dtype="int32")
    assert m.initial_indices[0].dtype == "int32"
    assert "lambda" in repr(m)
    with pytest.raises(ValueError, match="give ndim"):
        IndexMap.from_func(lambda *i: i)
    with pytest.raises(ValueError, match="takes 1 indices, not 2"):
        IndexMap.from_func(lambda i: i, ndim=2)
    with pytest.raises(ValueError, match="takes 2 indices, got 1"):
        m.map_indices([1])
    given = IndexMap.from_func(lambda i: i + 1, inverse_index_map=lambda i: i - 1)
    assert ints(given.inverse((4,)).map_indices([3])) == [2]
    a, b = IndexMap.from_func(lambda i: (i // 2 * 2 + i % 2,)), IndexMap.from_func(lambda k: k)
    assert a.is_equivalent_to(b)
    assert not a.is_equivalent_to(IndexMap.from_func(lambda k: k + 1))
