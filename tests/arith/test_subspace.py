"""Maps of iterators divided by a subspace; iterators padded; sums of digits."""

import numpy as np
import pytest
from evaluate import evaluate, grid

from tilewright import arith, tir
from tilewright.arith.expr import IntImm, SizeVar, Var, const
from tilewright.ir.structure import structural_equal
from tilewright.tir.ir import Range

A, B, C = (Var(n, "int32") for n in "abc")
ZERO = IntImm("int32", 0)


def dom(**extents):
    return {{"a": A, "b": B, "c": C}[k]: Range(const(0), const(e)) for k, e in extents.items()}


def divided(bindings, doms, sub, *args, **kw):
    out = arith.subspace_divide(bindings, doms, sub, *args, **kw)
    pairs = [[arith.normalize_iter_map_to_expr(m.source) for m in pair] for pair in out[:-1]]
    return pairs, [m.extent for m in out[-1]] if out else None


def same(a, b):
    return structural_equal(a, b)


def test_an_index_is_outer_times_extent_plus_inner():
    ((outer, inner),), conditions = divided([A * 20 + B * 5 + C], dom(a=3, b=4, c=5), [C])
    assert same(outer, A * 4 + B)
    assert same(inner, C)
    assert all(isinstance(c, IntImm) and c.value == 1 for c in conditions)


def test_symbolic_offsets_stay_inside():
    n = SizeVar("n", "int32")
    ((outer, inner),), _ = divided([A * 20 + B * 5 + C + n], dom(a=3, b=4, c=5), [B, C])
    assert same(outer, A)
    assert same(inner, B * 5 + C + n)


@pytest.mark.parametrize(("sub", "expected"), [([B], True), ([A, B], True), ([A], False)])
def test_what_divides(sub, expected):
    # the inner part must be the lower digits
    fused = A * 8 + B
    found, _ = divided([fused // 8, fused % 8], dom(a=4, b=8), sub)
    assert bool(found) is expected
    if not expected:
        return
    extents = arith.subspace_divide([fused // 8, fused % 8], dom(a=4, b=8), sub)
    env = grid({A: (0, 3), B: (0, 7)})
    for binding, (outer, inner), marks in zip([fused // 8, fused % 8], found, extents):
        whole = evaluate(outer, env) * marks[1].extent.value + evaluate(inner, env)
        assert np.all(whole == evaluate(binding, env))


def test_conditions_go_to_their_side():
    fused = A * 4 + B
    _, (outer, inner) = divided([fused, C], dom(a=3, b=4, c=5), [C], tir.all(fused < 10, C < 4))
    assert same(outer, fused < 10)
    assert isinstance(inner, IntImm)
    found, _ = divided([A * 20 + B * 5 + C], dom(a=3, b=4, c=5), [C], A * 20 + B * 5 + C < 50)
    assert not found  # the condition speaks of both sides


def test_unit_iterators_are_kept_when_asked():
    ((outer, inner),), _ = divided([A * 16 + B], dom(a=1, b=16), [B], simplify_trivial_iterators=False)
    assert same(outer, A)
    assert same(inner, B)


def test_unknown_level():
    with pytest.raises(ValueError, match="bijective, surjective or nocheck"):
        arith.detect_iter_map([A], dom(a=4), check_level="some")


def test_padding_takes_whole_digits():
    r = arith.detect_iter_map([(A + 71) // 32], dom(a=45))
    assert r.indices[0].args[0].extent.value == 2
    assert r.indices[0].base.value == 2
    assert not arith.detect_iter_map([A % 16], dom(a=3)).indices  # not all 16 values occur
    assert not arith.detect_iter_map([A // 4, A % 4], dom(a=18)).indices  # padding makes them dependent
    assert arith.detect_iter_map([A // 4, A % 4], dom(a=18), check_level="nocheck").indices


def test_surjective_maps_take_every_value():
    rng = np.random.default_rng(3)
    accepted = 0
    for _ in range(300):
        doms = dom(a=int(rng.integers(1, 30)), b=int(rng.integers(1, 9)))
        k, d, off = (int(v) for v in (rng.integers(1, 9), rng.integers(1, 9), rng.integers(0, 20)))
        e = [A * k + B + off, A + B, A + off][rng.integers(3)]
        indices = [[e // d], [e % d], [e // d, e % d], [e // d // 2, e // d % 2]][rng.integers(4)]
        r = arith.detect_iter_map(indices, doms)
        if not r.indices:
            continue
        accepted += 1
        env = grid({v: (0, r_.extent.value - 1) for v, r_ in doms.items()})
        size = len(env[A])
        got = [np.broadcast_to(evaluate(i, env), (size,)) for i in indices]
        points = set(zip(*[g.tolist() for g in got]))
        whole = 1
        for s in r.indices:
            whole *= s.args[0].extent.value if s.args else 1
        assert len(points) == whole, (indices, doms, r)
    assert accepted > 50


def test_sums_of_digits_by_scale():
    n = Var("n", "int32")
    s = arith.normalize_to_iter_sum(C + (B + A * 4 + 2) * n + 3, dom(a=9, b=4, c=3))
    assert [str(a.scale) for a in s.args] == ["n * 4", "n", "1"]
    assert arith.Analyzer().can_prove_equal(s.base, 2 * n + 3)
    (whole,) = arith.normalize_to_iter_sum(A // 4 * 4 + A % 4, dom(a=32)).args
    assert whole.source.source is A
    (part,) = arith.normalize_to_iter_sum(A // 5, dom(a=4096)).args
    assert (part.lower_factor.value, part.extent.value) == (5, 820)


def test_levels_and_nodes():
    assert arith.IterMapLevel.from_str("surjective") == arith.IterMapLevel.Surjective
    mark = arith.IterMark(A * B + 1, 1024)
    assert same(arith.normalize_iter_map_to_expr(arith.IterSplitExpr(mark, 1, 1024, 1)), A * B + 1)
    one, other = (arith.IterSumExpr([arith.IterSplitExpr(arith.IterMark(A, 8), 2, 4, 3)], 5) for _ in range(2))
    assert same(one, other)
