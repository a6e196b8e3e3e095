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


PADDED = [
    (lambda i: (i // 4, i % 4), (15,)),
    (lambda i: ((i + 1) // 4, (i + 1) % 4), (14,)),
    (lambda i: (i // 32, (i // 4) % 8, i % 4), (116,)),
    (lambda i: ((i // 4) % 8, i // 32, i % 4), (116,)),
    (lambda i: (((i + 5) // 4) % 8, (i + 5) // 32, (i + 5) % 4), (123,)),
    (lambda i, j: ((i + 1) // 4, (j + 5) // 8, (i + 1) % 4, (j + 5) % 8), (14, 31)),
    (lambda i, j: ((i * 7 + j) // 4, (i * 7 + j) % 4), (3, 7)),
    (lambda i: (i // 4, i % 4), (3,)),
    (lambda i: (i - i, (i + 1) // 8, (i + 1) % 8), (16,)),
]


@pytest.mark.parametrize("f, shape", PADDED)
def test_padding_is_what_no_element_maps_to(f, shape):
    from tilewright.arith.analyzer import simplify
    from tilewright.ir.rewrite import substitute

    m = IndexMap.from_func(f, index_dtype="int32")
    inverse, padding = m.non_surjective_inverse(shape)
    out = ints(m.map_shape(shape))
    taken = {tuple(ints(m.map_indices(p))): p for p in points(shape)}
    for q in points(out):
        table = dict(zip(inverse.initial_indices, (const(x, "int32") for x in q)))
        assert bool(simplify(substitute(padding, table))) == (q not in taken)
        if q in taken:
            assert tuple(ints(inverse.map_indices(q))) == taken[q]


@pytest.mark.parametrize("n", [1, 4, 13, 16])
def test_padding_of_a_symbolic_length(n):
    from tilewright.arith.analyzer import simplify
    from tilewright.ir.rewrite import substitute

    size = Var("n", "int32")
    m = IndexMap.from_func(lambda i: (i // 4, i % 4), index_dtype="int32")
    inverse, padding = m.non_surjective_inverse((size,))
    shape = [int(simplify(substitute(e, {size: const(n, "int32")}))) for e in m.map_shape((size,))]
    assert shape == [-(-n // 4), 4]
    for a, b in points(shape):
        table = {**dict(zip(inverse.initial_indices, (const(a, "int32"), const(b, "int32")))), size: const(n, "int32")}
        assert bool(simplify(substitute(padding, table))) == (a * 4 + b >= n)


def test_index_types_follow_what_is_mapped():
    m = IndexMap.from_func(lambda i: (i // 4, i % 4), index_dtype="int32")
    assert [e.dtype for e in m.map_indices([const(42, "int64")])] == ["int64", "int64"]
    assert [e.dtype for e in m.map_shape([const(14, "int64")])] == ["int64", "int64"]
    assert [e.dtype for e in m.map_indices([42])] == ["int32", "int32"]
    with pytest.raises(ValueError, match=r"TW0480.*given|TW0480.*takes 1 indices"):
        m.map_indices([1, 2])


def test_separators_and_keyword_indices():
    m, separators = IndexMap.from_func_with_separators(lambda i: (i // 4, IndexMap.AXIS_SEPARATOR, i % 4))
    assert separators == [1]
    assert len(m.final_indices) == 2
    with pytest.raises(ValueError, match="from_func_with_separators"):
        IndexMap.from_func(lambda i: (i // 4, IndexMap.AXIS_SEPARATOR, i % 4))
    m = IndexMap.from_func(lambda *lead, k: (*lead, k // 4, k % 4), ndim=3)
    assert ints(m.map_indices([1, 2, 7])) == [1, 2, 1, 3]


def test_arrays():
    import numpy as np

    import tilewright as tvm

    x = np.random.default_rng(0).standard_normal((3, 3, 16, 32)).astype("float16")
    m = IndexMap.from_func(lambda a, b, c, d: (d // 16, a, c // 8, b, c % 8, d % 16))
    y = m.map_ndarray(tvm.nd.array(x))
    assert np.array_equal(y.numpy(), x.reshape(3, 3, 2, 8, 2, 16).transpose(4, 0, 2, 1, 3, 5))
    assert np.array_equal(m.inverse(x.shape).map_ndarray(y).numpy(), x)
