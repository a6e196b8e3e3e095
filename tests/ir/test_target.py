"""Targets: parsing, printing, refusing."""

import pytest

from tilewright.ir.target import Target
from tilewright.support.diagnostics import CompileError


def test_prints_as_it_is_parsed():
    text = "llvm -mattr=+avx2,-fma -mcpu=znver3 -num-cores=2"
    assert str(Target(text)) == text
    assert Target(str(Target(text))) == Target(text)
    assert Target({"kind": "llvm", "mcpu": "znver3"}).mcpu == "znver3"


def test_features_follow_mattr():
    target = Target("llvm -mcpu=haswell -mattr=-fma,+avx512f")
    assert "avx512f" in target.features
    assert "fma" not in target.features
    assert target.vector_bytes == 64


@pytest.mark.parametrize("text", ["", "llwm", "llvm mcpu=x", "llvm -num-cores=two"])
def test_bad_targets_are_refused(text):
    with pytest.raises(CompileError, match="TW0901"):
        Target(text)


def test_scope():
    assert Target.current() is None
    with Target("llvm -num-cores=3") as t:
        assert Target.current() is t
    with pytest.raises(ValueError, match="with Target"):
        Target.current(allow_none=False)
