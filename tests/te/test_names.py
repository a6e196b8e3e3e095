"""Names around tensor expressions: tags, and what schedules of tensor expressions were replaced by."""

import pytest

import tilewright as tvm
from tilewright import te


def test_tags_reach_the_computes_inside():
    a = te.placeholder((4,), name="a")
    with te.tag_scope("elemwise"):
        b = te.compute((4,), lambda i: a[i] + 1)
        c = te.compute((4,), lambda i: b[i] * 2, tag="mine")
        with pytest.raises(ValueError, match="nested"), te.tag_scope("inner"):
            pass
    assert (b.op.tag, c.op.tag, te.compute((4,), lambda i: a[i]).op.tag) == ("elemwise", "mine", "")


@pytest.mark.parametrize(
    "call, hint",
    [
        (lambda: te.create_schedule(None), "tir.Schedule"),
        (lambda: te.scan(None), "axis.scan"),
        (lambda: te.hybrid(None), "prim_func"),
    ],
)
def test_schedules_of_tensor_expressions_say_what_replaced_them(call, hint):
    with pytest.raises(tvm.TVMError, match="TW0590") as error:
        call()
    assert hint in str(error.value)
