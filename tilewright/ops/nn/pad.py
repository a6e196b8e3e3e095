"""Padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ops.common import as_int, fail, known, out, rng, shape_operand, tensor
from tilewright.ops.nn.conv import set_field
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import TensorStructInfo

_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "circular": "wrap", "symmetric": "symmetric"}


@operator
class Pad(Op, name="nn.pad"):
    """`x` with something around it: `pad_width` has (before, after) for each dimension in turn; negative amounts cut.

    `pad_mode`: constant (`pad_value`), reflect (without the edge), symmetric (with the edge), edge, circular. Amounts that
    are symbolic are given as a second operand, a shape, instead of the attribute.
    """

    pad_width: tuple[int, ...] = ()
    pad_mode: str = "constant"
    pad_value: float = 0.0

    def __post_init__(self) -> None:
        flat: list[int] = []
        for v in self.pad_width:
            flat += list(v) if isinstance(v, (tuple, list)) else [v]  # pyright: ignore
        set_field(self, pad_width=tuple(int(v) for v in flat))
        if self.pad_mode not in _MODES:
            fail(self, "TW0206", f"pad_mode {self.pad_mode!r} is not known", f"use one of {', '.join(_MODES)}")

    def _amounts(self, widths: Any, ndim: int) -> tuple[list[Any], list[Any]]:
        if len(widths) != 2 * ndim:
            fail(self, "TW0206", f"pad_width has {len(widths)} values, needs two for each of {ndim} dimensions")
        return list(widths[0::2]), list(widths[1::2])

    def infer(self, x: Any, pad_width: Any = None) -> TensorStructInfo:
        si = tensor(self, x)
        shape = known(self, x)
        widths = self.pad_width if pad_width is None else shape_operand(self, pad_width, "pad_width")
        before, after = self._amounts(widths, len(shape))
        if self.pad_mode != "constant":
            for k, (n, b, a) in enumerate(zip(shape, before, after, strict=True)):
                self._check_inside(k, as_int(n), as_int(b), as_int(a))
        return out([n + b + a for n, b, a in zip(shape, before, after, strict=True)], si.dtype)

    def _check_inside(self, k: int, n: int | None, b: int | None, a: int | None) -> None:
        if n is None or b is None or a is None or self.pad_mode not in ("reflect", "symmetric"):
            return
        limit = n - 1 if self.pad_mode == "reflect" else n
        if max(a, b) > max(limit, 0) and self.pad_mode == "reflect" and n > 1:
            return  # reflects again and again, as numpy does
        if n == 0 and max(a, b) > 0:
            fail(self, "TW0206", f"dimension {k} is empty: there is nothing to {self.pad_mode}")

    def compute(self, x: Any, pad_width: Any = None) -> Any:
        before, after = self._amounts(self.pad_width if pad_width is None else pad_width, len(x.shape))
        if self.pad_mode == "constant":
            value = self.pad_value if "float" in x.dtype else int(self.pad_value)
            made = topi.nn.pad(x, before, after, value)
            return topi.identity(x) if made is x else made
        return topi.nn.pad_by(x, before, after, self.pad_mode)

    def reference(self, x: Any, pad_width: Any = None) -> Any:
        before, after = self._amounts(self.pad_width if pad_width is None else pad_width, x.ndim)
        cut = tuple(slice(max(-b, 0), n - max(-a, 0)) for n, b, a in zip(x.shape, before, after, strict=True))
        x = x[cut]
        widths = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
        if self.pad_mode == "constant":
            return np.pad(x, widths, constant_values=np.asarray(self.pad_value).astype(x.dtype))
        return np.pad(x, widths, mode=_MODES[self.pad_mode])  # pyright: ignore

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-3, 3, (3, 4)).astype(np.float32)
        return [
            Sample(cls((0, 0, 1, 2)), (x,)),
            Sample(cls((1, 0, 0, 2), pad_value=-1.5), (x,)),
            Sample(cls((0, 1, 2, 0), pad_value=7), (x.astype(np.int64),)),
            Sample(cls((1, 2, 3, 3), "reflect"), (x,)),
            Sample(cls((1, 2, 3, 4), "symmetric"), (x,)),
            Sample(cls((1, 2, 3, 0), "edge"), (x,)),
            Sample(cls((1, 2, 3, 3), "circular"), (x,)),
            Sample(cls((0, 0, 0, 0)), (x,)),
            Sample(cls((-1, 1, 0, -2)), (x,)),
            Sample(cls(), (x, (1, 0, 2, 1))),
        ]
