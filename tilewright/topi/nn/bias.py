"""Adding a bias to channels, and flattening all but the batch."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.topi.transform import reshape
from tilewright.topi.util import axes_of, prod

__all__ = ["bias_add", "flatten"]


def bias_add(data: te.Tensor, bias: te.Tensor, axis: int = 1) -> te.Tensor:
    """data + bias, the bias along `axis`."""
    (a,) = axes_of(axis, len(data.shape))

    def value(*i: Any) -> Any:
        return data(*i) + bias(i[a])

    return te.compute(data.shape, value, name="bias_add")


def flatten(data: te.Tensor) -> te.Tensor:
    """All dimensions but the first as one."""
    return reshape(data, [data.shape[0], prod(data.shape[1:])])
