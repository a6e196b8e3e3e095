"""Reductions over axes. `axis` is one int, several, or None for all; `keepdims` leaves extents of 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright import topi
from tilewright.ops.common import axes, axis, check_dtype, known, member, out, rng, tensor
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import TensorStructInfo

Axis = int | tuple[int, ...] | None


def reduced(op: Op, shape: Sequence[Any], over: Sequence[int], keepdims: bool) -> list[Any]:
    """The shape without the axes, or with 1 in their place."""
    del op
    if keepdims:
        return [1 if k in over else d for k, d in enumerate(shape)]
    return [d for k, d in enumerate(shape) if k not in over]


@operator
class Reduction(Op):
    """The family of reductions; made by `reduction`. An empty tuple of axes reduces nothing."""

    axis: Axis = None
    keepdims: bool = False

    kinds: ClassVar[str] = "fi"
    numpy: ClassVar[Callable[..., Any]]
    tensor: ClassVar[Callable[..., Any]]

    def infer(self, x: Any) -> TensorStructInfo:
        si = tensor(self, x)
        check_dtype(self, si.dtype, self.kinds, operand=x)
        shape = known(self, x)
        return out(reduced(self, shape, axes(self, self.axis, len(shape)), self.keepdims), si.dtype)

    def compute(self, x: Any) -> Any:
        return type(self).tensor(x, self.axis, self.keepdims)

    def reference(self, x: Any) -> Any:
        over = tuple(range(x.ndim)) if self.axis is None else self.axis
        narrow = x.dtype.kind == "f" and x.dtype.itemsize < 4
        wide = x.astype(np.float32) if narrow else x
        return np.asarray(type(self).numpy(wide, axis=over, keepdims=self.keepdims)).astype(x.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        g = rng()
        x = g.uniform(0.3, 2, (2, 3, 4)) * g.choice([-1, 1], (2, 3, 4))
        if cls.kinds == "b":
            b = g.integers(0, 2, (2, 3, 4)).astype(bool)
            return [Sample(cls(1), (b,)), Sample(cls(None), (b,)), Sample(cls((0, 2), True), (b,))]
        f = x.astype(np.float32)
        out = [
            Sample(cls(-1), (f,)),
            Sample(cls((0, 2), True), (f,)),
            Sample(cls(None), (f,)),
            Sample(cls(None, True), (f,)),
            Sample(cls((1,)), (f.astype(np.float16),)),
            Sample(cls(0), (f.astype(np.float64),)),
        ]
        if "i" in cls.kinds:
            out.append(Sample(cls(1), (g.integers(-5, 6, (2, 3, 4)).astype(np.int64),)))
        return out


def reduction(
    name: str,
    reference: Callable[..., Any],
    build: Callable[..., Any],
    *,
    torch: str | Sequence[str] = (),
    kinds: str = "fi",
    doc: str,
) -> type[Reduction]:
    """An operator class that reduces over axes."""
    body: dict[str, Any] = {
        "__doc__": f"{doc} over `axis` (None: all).",
        "__module__": __name__,
        "kinds": kinds,
        "numpy": staticmethod(reference),
        "tensor": staticmethod(build),
    }
    return member(name.title(), Reduction, body, name=name, torch=torch)


def _std(x: Any, axis: Any, keepdims: bool) -> Any:
    return topi.sqrt(topi.variance(x, axis, keepdims))


Sum = reduction("sum", np.sum, topi.sum, torch="aten.sum.dim_IntList", doc="The sum")
Prod = reduction("prod", np.prod, topi.prod, torch="aten.prod.dim_int", doc="The product")
Max = reduction("max", np.max, topi.max, torch="aten.amax.default", doc="The greatest")
Min = reduction("min", np.min, topi.min, torch="aten.amin.default", doc="The smallest")
All = reduction("all", np.all, topi.all, torch="aten.all.dim", kinds="b", doc="Are all true")
Any_ = reduction("any", np.any, topi.any, torch="aten.any.dim", kinds="b", doc="Is one true")
Mean = reduction("mean", np.mean, topi.mean, torch="aten.mean.dim", kinds="f", doc="The arithmetic mean")
Variance = reduction("variance", np.var, topi.variance, kinds="f", doc="The mean squared distance from the mean")
Std = reduction("std", np.std, _std, kinds="f", doc="The root of the variance")


@operator
class LogSumExp(Op, name="logsumexp", torch="aten.logsumexp.default"):
    """log(sum(exp(x))) over `axis`, computed around the maximum."""

    axis: Axis = None
    keepdims: bool = False

    def infer(self, x: Any) -> TensorStructInfo:
        si = tensor(self, x)
        check_dtype(self, si.dtype, "f", operand=x)
        shape = known(self, x)
        return out(reduced(self, shape, axes(self, self.axis, len(shape)), self.keepdims), si.dtype)

    def compute(self, x: Any) -> Any:
        top = topi.max(x, self.axis, True)
        total = topi.sum(topi.exp(topi.subtract(x, top)), self.axis, self.keepdims)
        return topi.add(topi.log(total), top if self.keepdims else topi.reshape(top, total.shape))

    def reference(self, x: Any) -> Any:
        top = x.max(axis=self.axis, keepdims=True)
        return np.asarray(
            np.log(np.exp(x - top).sum(axis=self.axis, keepdims=self.keepdims))
            + (top if self.keepdims else top.reshape(np.sum(x, axis=self.axis).shape))
        ).astype(x.dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().uniform(-40, 60, (2, 3, 4)).astype(np.float32)
        return [Sample(cls(a, k), (x,)) for a in (-1, (0, 1), None) for k in (False, True)]


@operator
class ArgReduction(Op):
    """The position of an extreme element along `axis` (None: in the flattened tensor), int64; of equals the first."""

    axis: int | None = None
    keepdims: bool = False
    select_last_index: bool = False

    numpy: ClassVar[Callable[..., Any]]
    tensor: ClassVar[Callable[..., Any]]

    def infer(self, x: Any) -> TensorStructInfo:
        check_dtype(self, tensor(self, x).dtype, "fi", operand=x)
        shape = known(self, x)
        over = range(len(shape)) if self.axis is None else (axis(self, self.axis, len(shape)),)
        return out(reduced(self, shape, list(over), self.keepdims), "int64")

    def compute(self, x: Any) -> Any:
        return type(self).tensor(x, self.axis, self.keepdims, self.select_last_index)

    def reference(self, x: Any) -> Any:
        f = type(self).numpy
        if not self.select_last_index:
            return np.asarray(f(x, axis=self.axis, keepdims=self.keepdims)).astype(np.int64)
        n = x.size if self.axis is None else x.shape[self.axis]
        flipped = x.reshape(-1)[::-1] if self.axis is None else np.flip(x, self.axis)
        out = n - 1 - np.asarray(f(flipped, axis=self.axis, keepdims=self.keepdims))
        return out.reshape((1,) * x.ndim) if self.axis is None and self.keepdims else out.astype(np.int64)

    @classmethod
    def samples(cls) -> list[Sample]:
        x = rng().integers(0, 3, (3, 4, 5))  # many equals
        f = x.astype(np.float32)
        return [
            Sample(cls(1), (f,)),
            Sample(cls(-1, True), (f,)),
            Sample(cls(0, False, True), (f,)),
            Sample(cls(None), (x.astype(np.int32),)),
            Sample(cls(None, True), (f,)),
        ]


@operator
class ArgMax(ArgReduction, name="argmax", torch="aten.argmax.default"):
    """The position of the greatest element along `axis`, int64; of equals the first (or the last)."""

    numpy = staticmethod(np.argmax)
    tensor = staticmethod(topi.argmax)


@operator
class ArgMin(ArgReduction, name="argmin", torch="aten.argmin.default"):
    """The position of the smallest element along `axis`, int64; of equals the first (or the last)."""

    numpy = staticmethod(np.argmin)
    tensor = staticmethod(topi.argmin)
