"""Matrix products."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tilewright import topi
from tilewright.ops.common import (
    as_int,
    dims_equal,
    fail,
    fields,
    known,
    numpy_dtype,
    out,
    result_shape,
    rng,
    same_dtype,
    tensor,
)
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.topi.linalg import parse_einsum


@operator
class MatMul(Op, name="matmul", onnx="MatMul@1", torch=("aten.matmul.default", "aten.mm.default", "aten.bmm.default")):
    """numpy.matmul: the last two dimensions multiply, those before broadcast; a vector is a row or a column.

    `packed_b` p > 0: the second operand is [ceil(n/p), K, p], zero padded, for a matrix [K, n].
    """

    out_dtype: str = ""
    transpose_a: bool = False
    transpose_b: bool = False
    packed_b: int = 0
    n: int = 0

    def infer(self, a: Any, b: Any) -> TensorStructInfo:
        dtype = same_dtype(
            self, [tensor(self, a, "the left operand"), tensor(self, b, "the right operand")], ["left", "right"]
        )
        sa, sb = known(self, a, "the left operand"), known(self, b, "the right operand")
        for s, x, what in ((sa, a, "left"), (sb, b, "right")):
            if not s:
                fail(self, "TW0205", f"the {what} operand is a scalar", "use multiply", x)
        k_a = sa[0] if len(sa) == 1 else sa[-2] if self.transpose_a else sa[-1]
        rows = [] if len(sa) == 1 else [sa[-1] if self.transpose_a else sa[-2]]
        if self.packed_b:
            if len(sb) != 3 or as_int(sb[2]) not in (None, self.packed_b):
                fail(self, "TW0205", f"a packed operand is [blocks, K, {self.packed_b}]", None, b)
            k_b, columns, batch_b = sb[1], [self.n], ()
        else:
            k_b = sb[0] if len(sb) == 1 else sb[-1] if self.transpose_b else sb[-2]
            columns = [] if len(sb) == 1 else [sb[-2] if self.transpose_b else sb[-1]]
            batch_b = sb[:-2]
        dims_equal(self, k_a, k_b, "the dimensions that are summed over differ")
        batch = result_shape(self, sa[:-2], batch_b)
        return out([*batch, *rows, *columns], self.out_dtype or dtype)

    def compute(self, a: Any, b: Any) -> Any:
        return topi.matmul(
            a,
            b,
            self.transpose_a,
            self.transpose_b,
            self.out_dtype or None,
            self.packed_b,
            self.n if self.packed_b else None,
        )

    def reference(self, a: Any, b: Any) -> Any:
        if self.packed_b:
            b = np.moveaxis(b, 1, 0).reshape(b.shape[1], -1)[:, : self.n]
        if self.transpose_a and a.ndim > 1:
            a = np.swapaxes(a, -1, -2)
        if self.transpose_b and b.ndim > 1:
            b = np.swapaxes(b, -1, -2)
        dtype = numpy_dtype(self.out_dtype) if self.out_dtype else a.dtype
        wide = np.float32 if dtype == np.float16 else dtype
        return np.asarray(np.matmul(a.astype(wide), b.astype(wide))).astype(dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        g = rng()

        def f(*shape: int) -> Any:
            return g.uniform(-1, 1, shape).astype(np.float32)

        bytes_ = [g.integers(-9, 9, s).astype(np.int8) for s in ((2, 5), (5, 3))]
        return [
            Sample(cls(), (f(3, 5), f(5, 4))),
            Sample(cls(), (f(2, 3, 5), f(5, 4))),
            Sample(cls(), (f(2, 1, 3, 5), f(4, 5, 2))),
            Sample(cls(), (f(5), f(5, 4))),
            Sample(cls(), (f(2, 3, 5), f(5))),
            Sample(cls(), (f(5), f(5))),
            Sample(cls(transpose_b=True), (f(2, 3, 5), f(2, 4, 5))),
            Sample(cls(transpose_a=True), (f(5, 3), f(5, 4))),
            Sample(cls(out_dtype="int32"), tuple(bytes_)),
            Sample(cls(packed_b=4, n=6), (f(2, 3, 5), f(2, 5, 4))),
        ]


@operator
class Einsum(Op, name="einsum"):
    """The sum of products that the letters of `subscripts` say; one tuple of tensors as the operand."""

    subscripts: str = ""

    def infer(self, operands: Any) -> TensorStructInfo:
        infos = fields(self, operands)
        dtype = same_dtype(self, infos, [f"operand {k}" for k in range(len(infos))])
        shapes = [known(self, si, f"operand {k}") for k, si in enumerate(infos)]
        try:
            inputs, output = parse_einsum(self.subscripts, [len(s) for s in shapes])
        except ValueError as e:
            fail(self, "TW0206", f"subscripts {e}", 'examples: "ij,jk->ik", "b...i,b...i->b..."')
        extent: dict[str, Any] = {}
        for letters, shape in zip(inputs, shapes, strict=True):
            for letter, d in zip(letters, shape, strict=True):
                found = extent.get(letter)
                if found is None or as_int(found) == 1:
                    extent[letter] = d
                elif as_int(d) != 1:
                    extent[letter] = dims_equal(self, found, d, f"dimension {letter!r} of {self.subscripts!r}")
        return out([extent[c] for c in output], dtype)

    def compute(self, operands: Any) -> Any:
        return topi.einsum(self.subscripts, *operands)

    def reference(self, operands: Any) -> Any:
        return np.asarray(np.einsum(self.subscripts, *operands)).astype(operands[0].dtype)

    @classmethod
    def samples(cls) -> list[Sample]:
        g = rng()

        def f(*shape: int) -> Any:
            return g.uniform(-1, 1, shape).astype(np.float32)

        return [
            Sample(cls("ij,jk->ik"), ([f(2, 3), f(3, 4)],)),
            Sample(cls("bij,bjk->bik"), ([f(2, 2, 3), f(2, 3, 4)],)),
            Sample(cls("ii->i"), ([f(3, 3)],)),
            Sample(cls("...i,...i->..."), ([f(2, 3, 4), f(3, 4)],)),
            Sample(cls("ij,kj"), ([f(2, 3), f(4, 3)],)),
            Sample(cls("i,i"), ([f(5), f(5)],)),
        ]


@operator
class Linear(Op, name="linear", torch="aten.linear.default"):
    """data @ weight.T (+ bias); the weight is [N, K]."""

    out_dtype: str = ""
    composite: ClassVar[bool] = True

    def infer(self, data: Any, weight: Any, bias: Any = None) -> TensorStructInfo:
        known(self, weight, "the weight", (1, 2))
        si = MatMul(self.out_dtype, transpose_b=True).infer(data, weight)
        if bias is not None:
            known(self, bias, "the bias", 1)
        return si

    def lower(self, b: Any, data: Any, weight: Any, bias: Any = None) -> Any:
        from tilewright.ops.binary import Add

        product = MatMul(self.out_dtype, transpose_b=True)(data, weight)
        return b.emit(product) if bias is None else b.emit(Add()(b.emit(product), bias))

    def reference(self, data: Any, weight: Any, bias: Any = None) -> Any:
        product = MatMul(self.out_dtype, transpose_b=True).reference(data, weight)
        return product if bias is None else product + bias

    @classmethod
    def samples(cls) -> list[Sample]:
        g = rng()
        x, w, b = (g.uniform(-1, 1, s).astype(np.float32) for s in ((2, 3, 5), (4, 5), (4,)))
        return [Sample(cls(), (x, w)), Sample(cls(), (x, w, b))]
