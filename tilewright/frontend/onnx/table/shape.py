"""Operators that move or view elements: reshape, transpose, concat, slice, pad, ... and constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arith import expr as e
from tilewright.arith.expr import IntImm
from tilewright.frontend.onnx.node import NodeContext
from tilewright.frontend.onnx.reader import tensor_array
from tilewright.frontend.onnx.registry import onnx_op


@onnx_op("Identity", symbolic=(0,))
def identity(n: NodeContext, x: Any) -> Any:
    """The operand itself"""
    return x


@onnx_op("Dropout", since=1, ignore=("ratio", "seed", "is_test"))
def dropout(n: NodeContext, x: Any, ratio: Any = None, training: Any = None) -> Any:
    """Nothing at inference; the mask is all true"""
    if training is not None and n.array(training, "training_mode").any():
        raise n.unsupported("training mode is not supported")
    if not n.wants(1):
        return x
    kind = "bool" if n.opset >= 10 else n.dtype(x)
    return [x, n.op("ones_like", n.astype(x, kind))]


@onnx_op("Constant", ignore=("sparse_value",))
def constant(n: NodeContext) -> Any:
    """A tensor that the node holds"""
    for name, dtype in (("value", None), ("value_float", "float32"), ("value_int", "int64"),
                        ("value_floats", "float32"), ("value_ints", "int64")):  # fmt: skip
        if name in n.attributes:
            return n.const(n.attr(name), dtype)
    raise n.unsupported("only tensors and numbers are supported as constants")


@onnx_op("Shape", "Size")
def shape_of(n: NodeContext, x: Any) -> Any:
    """The dimensions (where they are known at compile time the importer has answered already)"""
    n.shape(x)
    raise n.unsupported("the shape of this operand is not supported")


@onnx_op("Reshape", since=5, symbolic=(1,))
def reshape(n: NodeContext, x: Any, shape: Any) -> Any:
    """Another shape: 0 keeps a dimension (unless allowzero), -1 is what is left"""
    new, old = n.formulas(shape, "the new shape"), n.shape(x)
    if not n.attr("allowzero", 0):
        if any(_is(d, 0) and i >= len(old) for i, d in enumerate(new)):
            raise n.unsupported(f"the new shape {tuple(new)} keeps a dimension that the operand has not")
        new = [old[i] if _is(d, 0) else d for i, d in enumerate(new)]
    if any(_is(d, 0) for d in new):  # no elements; to `reshape`, 0 would mean to keep a dimension
        return n.op("full", n.shape_expr(new), n.scalar(0, x), dtype=n.dtype(x))
    left = [i for i, d in enumerate(new) if _is(d, -1)]
    if len(left) > 1:
        raise n.unsupported(f"the new shape {tuple(new)} leaves more than one dimension open")
    if left:
        new[left[0]] = _rest(n, old, new[: left[0]] + new[left[0] + 1 :])
    return n.reshape(x, new)


def _is(d: Any, value: int) -> bool:
    return (isinstance(d, (int, float)) and int(d) == value) or (isinstance(d, IntImm) and d.value == value)


def _rest(n: NodeContext, old: Any, others: Any) -> Any:
    """The one open dimension of a reshape: what is equal on both sides cancels, then one division."""
    from tilewright.relax.dims import prove_equal, simplify_dim

    top, bottom = list(old), [d if isinstance(d, e.PrimExpr) else IntImm("int64", int(d)) for d in others]
    for d in list(bottom):
        same = next((t for t in top if prove_equal(t, d)), None)
        if same is not None:
            top = [t for t in top if t is not same]
            bottom = [b for b in bottom if b is not d]
    return simplify_dim(e.floordiv(n.product(top), n.product(bottom)))


@onnx_op("Flatten")
def flatten(n: NodeContext, x: Any) -> Any:
    """Two dimensions: those before `axis` together, the others together"""
    shape = n.shape(x)
    axis = n.attr("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return n.reshape(x, [n.product(shape[:axis]), n.product(shape[axis:])])


@onnx_op("Transpose")
def transpose(n: NodeContext, x: Any) -> Any:
    """Dimensions in another order; reversed by default"""
    perm = n.attr("perm", None)
    return n.op("permute_dims", x, axes=perm if perm is not None else list(range(n.rank(x)))[::-1])


@onnx_op("Squeeze", symbolic=(1,))
def squeeze(n: NodeContext, x: Any, axes: Any = None) -> Any:
    """Without dimensions of size 1; axes are an operand from operator set 13 on"""
    where = n.int_list("axes", axes)
    rank = n.rank(x)
    if where is None:
        where = [i for i, d in enumerate(n.shape(x)) if _is(d, 1)]
    return n.op("squeeze", x, axis=sorted(n.axis(a, rank, "axes") for a in where)) if where else x


@onnx_op("Unsqueeze", symbolic=(1,))
def unsqueeze(n: NodeContext, x: Any, axes: Any = None) -> Any:
    """With new dimensions of size 1"""
    where = n.int_list("axes", axes)
    if where is None:
        raise n.malformed("the attribute 'axes' is missing")
    rank = n.rank(x) + len(where)
    return n.op("expand_dims", x, axis=sorted(n.axis(a, rank, "axes") for a in where)) if where else x


@onnx_op("Concat", since=4)
def concat(n: NodeContext, *xs: Any) -> Any:
    """Tensors one after the other along an axis"""
    axis = n.axis(n.attr("axis"), n.rank(xs[0]))
    full = [x for x in xs if not _empty(n, x)] or list(xs[:1])
    return full[0] if len(full) == 1 else n.emit(n.operator("concat", axis=axis)(n.tuple(full)))


def _empty(n: NodeContext, x: Any) -> bool:
    return n.rank(x) == 1 and _is(n.shape(x)[0], 0)


@onnx_op("Split", symbolic=(1,))
def split(n: NodeContext, x: Any, sizes: Any = None) -> Any:
    """Parts along an axis: of the given sizes, or equal ones (the last may be smaller)"""
    axis = n.axis(n.attr("axis", 0), n.rank(x))
    given = n.int_list("split", sizes)
    parts = n.attr("num_outputs", len(n.proto.output))
    if given is None:
        total = n.shape(x)[axis]
        if not isinstance(total, IntImm):
            raise n.unknown("the size of the dimension to split")
        step = -(-total.value // parts)
        given = [min(step, total.value - i * step) for i in range(parts)]
    if len(given) == 1:
        return [x]
    cuts = [int(c) for c in np.cumsum(given)[:-1]]
    made = n.op("split", x, indices_or_sections=cuts, axis=axis)
    return [n.item(made, i) for i in range(len(given))]


@onnx_op("Expand", since=8, symbolic=(1,))
def expand(n: NodeContext, x: Any, shape: Any) -> Any:
    """Broadcast to a shape, in which 1 keeps the operand's dimension"""
    want, have = n.formulas(shape, "the new shape"), list(n.shape(x))
    rank = max(len(want), len(have))
    want = [1] * (rank - len(want)) + want
    have = [IntImm("int64", 1)] * (rank - len(have)) + have
    target = [h if _is(w, 1) else w for w, h in zip(want, have)]
    return n.op("broadcast_to", x, n.shape_expr(target))


@onnx_op("Tile", since=6, symbolic=(1,))
def tile(n: NodeContext, x: Any, repeats: Any) -> Any:
    """The tensor repeated along each dimension"""
    return n.op("tile", x, repeats=n.numbers(repeats, "the repeats"))


@onnx_op("ConstantOfShape", since=9, symbolic=(0,))
def constant_of_shape(n: NodeContext, shape: Any) -> Any:
    """A tensor of one value"""
    value = n.attr("value", None)
    value = np.zeros(1, np.float32) if value is None else value
    dims = n.formulas(shape, "the shape")
    if all(not isinstance(d, e.PrimExpr) for d in dims):
        return n.const(np.full([int(d) for d in dims], value.reshape(()), value.dtype))
    return n.op("full", n.shape_expr(dims), n.const(value.reshape(())), dtype=str(value.dtype))


@onnx_op("EyeLike", since=9)
def eye_like(n: NodeContext, x: Any) -> Any:
    """Ones on a diagonal, of the shape of the operand"""
    rows, columns = n.static_shape(x, "the operand")
    return n.const(np.eye(rows, columns, n.attr("k", 0)), n.dtype_attr("dtype", n.dtype(x)))


@onnx_op("Range", since=11, symbolic=(0, 1, 2))
def range_of(n: NodeContext, start: Any, limit: Any, delta: Any) -> Any:
    """Numbers from start to limit by delta; the bounds may be formulas of dimensions"""
    ends = [n.formulas(v, name)[0] for v, name in ((start, "start"), (limit, "limit"), (delta, "delta"))]
    dtype = n.dtype(start)
    if all(not isinstance(v, e.PrimExpr) for v in ends):
        return n.const(np.arange(*ends), dtype)
    return n.op("arange", *(n.prim(v, dtype) for v in ends), dtype=dtype)


@onnx_op("Slice", since=1)
def slice_1(n: NodeContext, x: Any) -> Any:
    """Bounds are attributes before operator set 10"""
    starts, ends = n.attr("starts"), n.attr("ends")
    return _slice(n, x, starts, ends, n.attr("axes", None), None)


@onnx_op("Slice", since=10, symbolic=(1, 2, 3, 4))
def slice_10(n: NodeContext, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    """Bounds are operands: constants, or formulas of dimensions"""
    return _slice(
        n, x, n.formulas(starts, "the start"), n.formulas(ends, "the end"),
        None if axes is None else n.numbers(axes, "the axes"), None if steps is None else n.numbers(steps, "the steps"),
    )  # fmt: skip


def _slice(n: NodeContext, x: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> Any:
    """numpy's rules hold in ONNX too; bounds of the whole dimension leave it alone."""
    rank, shape = n.rank(x), n.shape(x)
    axes = [n.axis(a, rank, "axes") for a in (axes if axes is not None else range(len(starts)))]
    steps = steps or [1] * len(axes)
    if not len(axes) == len(starts) == len(ends) == len(steps):
        raise n.malformed(f"it has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
    keep = [
        i
        for i, a in enumerate(axes)
        if not (steps[i] == 1 and _is(starts[i], 0) and (_at_least(ends[i], shape[a]) or n.same(ends[i], shape[a])))
    ]
    if not keep:
        return x
    return n.op(
        "strided_slice", x, n.shape_expr([starts[i] for i in keep]), n.shape_expr([ends[i] for i in keep]),
        axes=[axes[i] for i in keep], strides=[steps[i] for i in keep],
    )  # fmt: skip


def _at_least(end: Any, size: Any) -> bool:
    """Is a constant end behind the dimension, whatever its size may be?"""
    if not isinstance(end, int):
        return False
    return end >= (size.value if isinstance(size, IntImm) else 2**31 - 1)


@onnx_op("Pad", since=2)
def pad_2(n: NodeContext, x: Any) -> Any:
    """Widths are an attribute before operator set 11"""
    return _pad(n, x, n.attr("pads"), n.attr("value", 0.0), None)


@onnx_op("Pad", since=11, symbolic=(1, 3))
def pad_11(n: NodeContext, x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    """Widths are an operand"""
    fill = 0.0 if value is None else n.array(value, "the fill value").reshape(-1)[0].item() if n.size(value) else 0.0
    return _pad(n, x, n.numbers(pads, "the widths"), fill, None if axes is None else n.numbers(axes, "the axes"))


def _pad(n: NodeContext, x: Any, pads: list[int], value: float, axes: list[int] | None) -> Any:
    rank = n.rank(x)
    where = [n.axis(a, rank, "axes") for a in (axes if axes is not None else range(rank))]
    before, after = [0] * rank, [0] * rank
    for i, a in enumerate(where):
        before[a], after[a] = pads[i], pads[i + len(where)]
    mode = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "circular"}.get(
        n.attr("mode", "constant")
    )
    if mode is None:
        raise n.unsupported(f"the mode {n.attr('mode')!r} is not supported")
    if any(w < 0 for w in before + after):
        x, before, after = _crop(n, x, before, after)
    if not any(before + after):
        return x
    widths = [w for pair in zip(before, after) for w in pair]
    return n.op("nn.pad", x, pad_width=widths, pad_mode=mode, pad_value=value)


def _crop(n: NodeContext, x: Any, before: list[int], after: list[int]) -> Any:
    """Negative widths cut elements off."""
    shape = n.shape(x)
    cut = [i for i in range(len(shape)) if before[i] < 0 or after[i] < 0]
    x = _slice(n, x, [max(-before[i], 0) for i in cut], [shape[i] - max(-after[i], 0) for i in cut], cut, None)
    return x, [max(w, 0) for w in before], [max(w, 0) for w in after]


@onnx_op("DepthToSpace")
def depth_to_space(n: NodeContext, x: Any) -> Any:
    """Blocks of channels to blocks of pixels, depth first (DCR) or column first (CRD)"""
    block, mode = n.attr("blocksize"), n.attr("mode", "DCR")
    batch, c, h, w = n.shape(x)
    deep = e.floordiv(c, block * block)
    if mode == "DCR":
        six, order = [batch, block, block, deep, h, w], [0, 3, 4, 1, 5, 2]
    else:
        six, order = [batch, deep, block, block, h, w], [0, 1, 4, 2, 5, 3]
    return n.reshape(n.op("permute_dims", n.reshape(x, six), axes=order), [batch, deep, h * block, w * block])


@onnx_op("SpaceToDepth")
def space_to_depth(n: NodeContext, x: Any) -> Any:
    """Blocks of pixels to blocks of channels"""
    block = n.attr("blocksize")
    batch, c, h, w = n.shape(x)
    hb, wb = e.floordiv(h, block), e.floordiv(w, block)
    six = n.op("permute_dims", n.reshape(x, [batch, c, hb, block, wb, block]), axes=[0, 3, 5, 1, 2, 4])
    return n.reshape(six, [batch, c * (block * block), hb, wb])


def graph_constant(n: NodeContext, tensor: Any) -> Any:
    """The constant of a TensorProto of a subgraph"""
    return n.const(tensor_array(n.importer.source, tensor))
