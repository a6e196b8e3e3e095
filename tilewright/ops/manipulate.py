"""Rearranging: the elements stay, their places change."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from tilewright import topi
from tilewright.arith.expr import IntImm
from tilewright.ops.common import (
    as_int,
    axes,
    axis,
    dims_equal,
    fail,
    fields,
    known,
    out,
    same_dtype,
    shape_operand,
    show_shape,
    tensor,
)
from tilewright.ops.nn.conv import set_field
from tilewright.relax.dims import difference, shape_product, simplify_dim
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import TensorStructInfo


def _cube(*shape: int) -> Any:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


def resolved_shape(op: Op, old: Any, new: Any) -> list[Any]:
    """`new` with -1 replaced by what is left, and 0 by the old dimension at its place. Raises TW0209, TW0206."""
    dims = [old[k] if as_int(d) == 0 and k < len(old) and not _empty(old) else d for k, d in enumerate(new)]
    holes = [k for k, d in enumerate(dims) if as_int(d) == -1]
    if len(holes) > 1:
        fail(op, "TW0206", f"shape {show_shape(new)} has more than one -1")
    total = shape_product(old)
    if holes:
        rest = shape_product([d for d in dims if as_int(d) != -1])
        n, m = as_int(total), as_int(rest)
        if n is not None and m is not None and (m == 0 or n % m):
            fail(op, "TW0209", f"{n} elements of shape {show_shape(old)} do not fit {show_shape(new)}")
        dims[holes[0]] = simplify_dim(total // rest)
        if m is not None and n is None and as_int(simplify_dim(total % rest)) != 0:
            dims_equal(
                op, simplify_dim(dims[holes[0]] * rest), total, f"shape {show_shape(new)} does not divide the elements"
            )
        return dims
    gap = difference(total, shape_product(dims))
    if gap not in (0, None):
        n, m = total, shape_product(dims)
        fail(
            op,
            "TW0209",
            f"{show_shape(old)} has {as_int(n)} elements, {show_shape(new)} has {as_int(m)}",
            "use -1 for one size",
        )
    if gap is None:
        dims_equal(
            op,
            total,
            shape_product(dims),
            f"{show_shape(old)} and {show_shape(new)} have different numbers of elements",
        )
    return dims


def _empty(shape: Any) -> bool:
    return any(as_int(d) == 0 for d in shape)


@operator
class Reshape(Op, name="reshape", torch=("aten.view.default", "aten.reshape.default")):
    """The elements in row-major order, in another shape; -1 stands for what is left, 0 for the old dimension there."""

    def infer(self, x: Any, shape: Any) -> TensorStructInfo:
        si = tensor(self, x)
        new = shape_operand(self, shape)
        return out(resolved_shape(self, known(self, x), new), si.dtype)

    def compute(self, x: Any, shape: Any) -> Any:
        return topi.reshape(x, resolved_shape(self, x.shape, shape))

    def reference(self, x: Any, shape: Any) -> Any:
        return x.reshape(
            [
                int(d)
                for d in resolved_shape(
                    self, [IntImm("int64", n) for n in x.shape], [IntImm("int64", d) for d in shape]
                )
            ]
        )

    @classmethod
    def samples(cls) -> list[Sample]:
        x = _cube(2, 3, 4)
        shapes: list[tuple[int, ...]] = [(6, 4), (24,), (2, 12), (4, 3, 2), (2, 1, 3, 4), (-1, 4), (0, -1), (3, 2, 4)]
        return [*(Sample(cls(), (x, s)) for s in shapes), Sample(cls(), (_cube(1), ()))]


@operator
class Flatten(Op, name="flatten"):
    """All elements in one dimension."""

    def infer(self, x: Any) -> TensorStructInfo:
        return out([shape_product(known(self, x))], tensor(self, x).dtype)

    def compute(self, x: Any) -> Any:
        return topi.flatten(x)

    def reference(self, x: Any) -> Any:
        return x.reshape(-1)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(), (_cube(2, 3),)), Sample(cls(), (np.float32(3).reshape(()),))]


@operator
class PermuteDims(Op, name="permute_dims", torch="aten.permute.default"):
    """Dimension k of the result is dimension axes[k] of the operand; None reverses them."""

    axes: Any = None

    def _order(self, ndim: int) -> tuple[int, ...]:
        if self.axes is None:
            return tuple(range(ndim))[::-1]
        order = axes(self, self.axes, ndim, "axes")
        if len(order) != ndim:
            fail(self, "TW0207", f"axes {list(self.axes)} do not name each of {ndim} dimensions once")
        return order

    def infer(self, x: Any) -> TensorStructInfo:
        shape = known(self, x)
        return out([shape[a] for a in self._order(len(shape))], tensor(self, x).dtype)

    def compute(self, x: Any) -> Any:
        return topi.transpose(x, self._order(len(x.shape)))

    def reference(self, x: Any) -> Any:
        return np.ascontiguousarray(np.transpose(x, self.axes))

    @classmethod
    def samples(cls) -> list[Sample]:
        x = _cube(2, 3, 4)
        return [Sample(cls(a), (x,)) for a in (None, (0, 2, 1), (-1, 0, 1), (0, 1, 2))]


@operator
class ExpandDims(Op, name="expand_dims", torch="aten.unsqueeze.default"):
    """New dimensions of extent 1 at the places `axis` of the result."""

    axis: Any = 0

    def _axes(self, ndim: int) -> tuple[int, ...]:
        items = (self.axis,) if isinstance(self.axis, int) else tuple(self.axis)
        return tuple(sorted(axes(self, items, ndim + len(items))))

    def infer(self, x: Any) -> TensorStructInfo:
        shape = known(self, x)
        new = self._axes(len(shape))
        rest = iter(shape)
        return out([1 if k in new else next(rest) for k in range(len(shape) + len(new))], tensor(self, x).dtype)

    def compute(self, x: Any) -> Any:
        return topi.expand_dims(x, self._axes(len(x.shape)))

    def reference(self, x: Any) -> Any:
        return np.expand_dims(x, self._axes(x.ndim))

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(a), (_cube(2, 3),)) for a in (0, -1, (0, 2), (1, 3))] + [
            Sample(cls(0), (np.float32(2).reshape(()),))
        ]


@operator
class Squeeze(Op, name="squeeze", torch=("aten.squeeze.dims", "aten.squeeze.dim")):
    """Without the dimensions `axis`, which have extent 1; None: without all that are known to."""

    axis: Any = None

    def _axes(self, shape: Any) -> tuple[int, ...]:
        if self.axis is None:
            return tuple(k for k, d in enumerate(shape) if as_int(d) == 1)
        return axes(self, self.axis, len(shape))

    def infer(self, x: Any) -> TensorStructInfo:
        shape = known(self, x)
        drop = self._axes(shape)
        for a in drop:
            dims_equal(self, shape[a], IntImm("int64", 1), f"dimension {a} cannot be squeezed")
        return out([d for k, d in enumerate(shape) if k not in drop], tensor(self, x).dtype)

    def compute(self, x: Any) -> Any:
        return topi.squeeze(x, self._axes(x.shape))

    def reference(self, x: Any) -> Any:
        return np.squeeze(x, self._axes(x.shape))

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(a), (_cube(1, 3, 1),)) for a in (None, 0, (0, -1), 2, ())]


@operator
class BroadcastTo(Op, name="broadcast_to", torch="aten.expand.default"):
    """The operand repeated along dimensions of extent 1, and along new leading ones, to the shape."""

    def infer(self, x: Any, shape: Any) -> TensorStructInfo:
        si = tensor(self, x)
        old, new = known(self, x), shape_operand(self, shape)
        if len(old) > len(new):
            fail(self, "TW0205", f"{show_shape(old)} has more dimensions than {show_shape(new)}", None, x)
        skip = len(new) - len(old)
        for k, d in enumerate(old):
            if as_int(d) != 1:
                dims_equal(self, d, new[skip + k], f"{show_shape(old)} does not broadcast to {show_shape(new)}")
        return out(new, si.dtype)

    def compute(self, x: Any, shape: Any) -> Any:
        return topi.broadcast_to(x, shape)

    def reference(self, x: Any, shape: Any) -> Any:
        return np.broadcast_to(x, shape).copy()

    @classmethod
    def samples(cls) -> list[Sample]:
        return [
            Sample(cls(), (_cube(3, 1), (2, 3, 4))),
            Sample(cls(), (_cube(4), (3, 4))),
            Sample(cls(), (np.float32(2).reshape(()), (2, 2))),
            Sample(cls(), (np.array([[True]]), (2, 3))),
        ]


@operator
class Concat(Op, name="concat", torch="aten.cat.default"):
    """The tensors of a tuple one after the other along `axis`."""

    axis: int = 0

    def infer(self, tensors: Any) -> TensorStructInfo:
        infos = fields(self, tensors, "tensor")
        dtype = same_dtype(self, infos, [f"tensor {k}" for k in range(len(infos))])
        shapes = [known(self, si, f"tensor {k}") for k, si in enumerate(infos)]
        first = list(shapes[0])
        a = axis(self, self.axis, len(first))
        for k, s in enumerate(shapes[1:], 1):
            if len(s) != len(first):
                fail(self, "TW0205", f"tensor {k} has {len(s)} dimensions, tensor 0 has {len(first)}")
            for j, d in enumerate(s):
                first[j] = first[j] + d if j == a else dims_equal(self, first[j], d, f"tensor {k}, dimension {j}")
        return out(first, dtype)

    def compute(self, tensors: Any) -> Any:
        return topi.concatenate(tensors, self.axis)

    def reference(self, tensors: Any) -> Any:
        return np.concatenate(tensors, self.axis)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [
            Sample(cls(0), ([_cube(2, 3), _cube(1, 3), _cube(3, 3)],)),
            Sample(cls(-1), ([_cube(2, 3), _cube(2, 1)],)),
            Sample(cls(1), ([_cube(2, 3)],)),
            Sample(cls(0), ([np.array([1], np.int64), np.array([2, 3], np.int64)],)),
            Sample(cls(1), ([_cube(2, 0), _cube(2, 2)],)),
        ]


@operator
class Stack(Op, name="stack", torch="aten.stack.default"):
    """The tensors of a tuple as slices of a new dimension `axis`."""

    axis: int = 0

    def infer(self, tensors: Any) -> TensorStructInfo:
        infos = fields(self, tensors, "tensor")
        dtype = same_dtype(self, infos, [f"tensor {k}" for k in range(len(infos))])
        shapes = [known(self, si, f"tensor {k}") for k, si in enumerate(infos)]
        first = list(shapes[0])
        a = axis(self, self.axis, len(first) + 1)
        for k, s in enumerate(shapes[1:], 1):
            if len(s) != len(first):
                fail(self, "TW0205", f"tensor {k} has {len(s)} dimensions, tensor 0 has {len(first)}")
            first = [
                dims_equal(self, d, e, f"tensor {k}, dimension {j}")
                for j, (d, e) in enumerate(zip(first, s, strict=True))
            ]
        return out([*first[:a], len(shapes), *first[a:]], dtype)

    def compute(self, tensors: Any) -> Any:
        return topi.stack(tensors, self.axis)

    def reference(self, tensors: Any) -> Any:
        return np.stack(tensors, self.axis)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(a), ([_cube(2, 3), -_cube(2, 3)],)) for a in (0, 1, -1)]


@operator
class Flip(Op, name="flip", torch="aten.flip.default"):
    """The elements along `axis` in the opposite order."""

    axis: int = 0

    def infer(self, x: Any) -> TensorStructInfo:
        axis(self, self.axis, len(known(self, x)))
        return tensor(self, x)

    def compute(self, x: Any) -> Any:
        return topi.flip(x, self.axis)

    def reference(self, x: Any) -> Any:
        return np.flip(x, self.axis).copy()

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(a), (_cube(2, 3),)) for a in (0, 1, -1)]


@operator
class Tile(Op, name="tile"):
    """The whole tensor repeated; one number for each dimension (an attribute, or a shape as second operand)."""

    repeats: Any = ()

    def __post_init__(self) -> None:
        set_field(self, repeats=(self.repeats,) if isinstance(self.repeats, int) else tuple(self.repeats))

    def _sizes(self, shape: Any, repeats: Any) -> tuple[list[Any], list[Any]]:
        n = max(len(shape), len(repeats))
        dims = [1] * (n - len(shape)) + list(shape)
        times = [1] * (n - len(repeats)) + list(repeats)
        return times, [simplify_dim(IntImm("int64", 1) * d * r) for d, r in zip(dims, times, strict=True)]

    def infer(self, x: Any, repeats: Any = None) -> TensorStructInfo:
        times = self.repeats if repeats is None else shape_operand(self, repeats, "repeats")
        return out(self._sizes(known(self, x), times)[1], tensor(self, x).dtype)

    def compute(self, x: Any, repeats: Any = None) -> Any:
        times, shape = self._sizes(x.shape, self.repeats if repeats is None else repeats)
        return topi.tile(x, times, shape)

    def reference(self, x: Any, repeats: Any = None) -> Any:
        return np.tile(x, self.repeats if repeats is None else repeats)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [
            Sample(cls((2, 1)), (_cube(2, 3),)),
            Sample(cls((2, 1, 3)), (_cube(2, 3),)),
            Sample(cls(2), (_cube(2, 3),)),
            Sample(cls(), (_cube(2, 3), (3, 2))),
        ]


@operator
class Repeat(Op, name="repeat", torch="aten.repeat_interleave.self_int"):
    """Every element `repeats` times along `axis` (None: of the flattened tensor)."""

    repeats: int = 1
    axis: int | None = None

    def infer(self, x: Any) -> TensorStructInfo:
        shape = list(known(self, x))
        if self.axis is None:
            return out([shape_product(shape) * self.repeats], tensor(self, x).dtype)
        a = axis(self, self.axis, len(shape))
        shape[a] = shape[a] * self.repeats
        return out(shape, tensor(self, x).dtype)

    def compute(self, x: Any) -> Any:
        return topi.repeat(x, self.repeats, self.axis)

    def reference(self, x: Any) -> Any:
        return np.repeat(x, self.repeats, self.axis)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(2, a), (_cube(2, 3),)) for a in (None, 0, -1)]


@operator
class DepthToSpace(Op, name="nn.depth_to_space"):
    """Blocks of channels (NCHW) as blocks of pixels; `mode` DCR: the block is outermost in the channels, CRD: innermost."""

    block_size: int = 2
    mode: str = "DCR"
    composite: ClassVar[bool] = True

    def infer(self, x: Any) -> TensorStructInfo:
        n, c, h, w = known(self, x, "the operand (NCHW)", 4)
        b = self.block_size
        if self.mode not in ("DCR", "CRD"):
            fail(self, "TW0206", f"mode {self.mode!r} is not known", "use DCR or CRD")
        if (count := as_int(c)) is not None and count % (b * b):
            fail(self, "TW0206", f"{count} channels do not divide into blocks of {b} x {b}")
        return out([n, c // (b * b), h * b, w * b], tensor(self, x).dtype)

    def lower(self, b: Any, x: Any) -> Any:
        n, c, h, w = known(self, x)
        k = self.block_size
        inner = c // (k * k)
        first = (n, k, k, inner, h, w) if self.mode == "DCR" else (n, inner, k, k, h, w)
        order = (0, 3, 4, 1, 5, 2) if self.mode == "DCR" else (0, 1, 4, 2, 5, 3)
        y = b.emit(Reshape()(x, first))
        y = b.emit(PermuteDims(order)(y))
        return b.emit(Reshape()(y, (n, inner, h * k, w * k)))

    def reference(self, x: Any) -> Any:
        n, c, h, w = x.shape
        k = self.block_size
        inner = c // (k * k)
        if self.mode == "DCR":
            y = x.reshape(n, k, k, inner, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            y = x.reshape(n, inner, k, k, h, w).transpose(0, 1, 4, 2, 5, 3)
        return y.reshape(n, inner, h * k, w * k)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(2, m), (_cube(1, 8, 2, 3),)) for m in ("DCR", "CRD")]


@operator
class SpaceToDepth(Op, name="nn.space_to_depth"):
    """Blocks of pixels (NCHW) as blocks of channels, the block outermost."""

    block_size: int = 2
    composite: ClassVar[bool] = True

    def infer(self, x: Any) -> TensorStructInfo:
        n, c, h, w = known(self, x, "the operand (NCHW)", 4)
        b = self.block_size
        for d, what in ((h, "height"), (w, "width")):
            if (count := as_int(d)) is not None and count % b:
                fail(self, "TW0206", f"{what} {count} does not divide into blocks of {b}")
        return out([n, c * (b * b), h // b, w // b], tensor(self, x).dtype)

    def lower(self, b: Any, x: Any) -> Any:
        n, c, h, w = known(self, x)
        k = self.block_size
        y = b.emit(Reshape()(x, (n, c, h // k, k, w // k, k)))
        y = b.emit(PermuteDims((0, 3, 5, 1, 2, 4))(y))
        return b.emit(Reshape()(y, (n, c * (k * k), h // k, w // k)))

    def reference(self, x: Any) -> Any:
        n, c, h, w = x.shape
        k = self.block_size
        y = x.reshape(n, c, h // k, k, w // k, k).transpose(0, 3, 5, 1, 2, 4)
        return y.reshape(n, c * k * k, h // k, w // k)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(2), (_cube(1, 2, 4, 6),))]
