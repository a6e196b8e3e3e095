"""Every node class: records that rebuild, compare, hash and travel as JSON."""

import pytest

from tilewright.ir.node import Node, replace
from tilewright.ir.op import Op


def subclasses(cls):
    for sub in cls.__subclasses__():
        yield sub
        yield from subclasses(sub)


NODES = sorted(
    {c for c in subclasses(Node) if "node_fields" in c.__dict__}, key=lambda c: f"{c.__module__}.{c.__name__}"
)


@pytest.mark.parametrize("cls", NODES, ids=lambda c: f"{c.__module__}.{c.__name__}")
def test_declared_as_slots(cls):
    assert "__dict__" not in dir(cls) or not any(
        hasattr(b, "__dict__") and "__dict__" in b.__dict__ for b in cls.__mro__[:-1]
    )
    assert cls.__match_args__ == tuple(f.name for f in cls.node_fields)
    assert cls.__doc__


def test_replace_keeps_the_span_and_derives_anew():
    from tilewright.arith.expr import Add, Var
    from tilewright.support.span import Span

    x, y = Var("x", "int32"), Var("y", "int64")
    e = Add(x, x, span=Span("f.py", 1))
    changed = replace(e, a=y, b=y)
    assert changed.dtype == "int64"
    assert changed.span == e.span


def test_operators_are_interned():
    assert Op.get("tir.exp") is Op.get("tir.exp")
