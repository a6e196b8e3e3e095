"""Constant right operands of matmuls are packed at compile time, in the order the kernel reads them.

[K, N] becomes [ceil(N/b), K, b], zero padded: each block of b columns is contiguous. `b` is two vectors wide.
"""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

import numpy as np

from tilewright.ir.module import IRModule
from tilewright.ir.passes import Pass, PassContext
from tilewright.relax.ir import Call, Constant, Expr, Var
from tilewright.relax.op import OPS
from tilewright.relax.rewrite import GraphMutator
from tilewright.relax.transform.layout import vector_block

__all__ = ["pack_matmul_weight", "pack_weights_pass"]


def pack_matmul_weight(w: np.ndarray[Any, Any], block: int) -> np.ndarray[Any, Any]:
    """[K, N] to [ceil(N/block), K, block], zero padded."""
    k, n = w.shape
    padded = w
    if n % block:
        padded = np.zeros((k, -(-n // block) * block), w.dtype)
        padded[:, :n] = w
    return np.ascontiguousarray(padded.reshape(k, -1, block).transpose(1, 0, 2))


class _Pack(GraphMutator):
    def __init__(self, mod: IRModule, block: int) -> None:
        super().__init__(mod)
        self.block_size = block
        self.done: dict[tuple[int, bool], tuple[Any, Constant]] = {}

    def call(self, call: Call, var: Var) -> Expr:
        name = getattr(call.op, "name", "")
        if name == "linear" and isinstance(call.args[1], Constant) and call.args[1].data.ndim == 2:
            op: Any = call.op
            weight = Constant(np.ascontiguousarray(call.args[1].data.T))
            product = Call(OPS["matmul"](out_dtype=op.out_dtype), (call.args[0], weight))
            packed = self.matmul(product) or product
            return packed if len(call.args) < 3 else Call(OPS["add"](), (packed, call.args[2]))
        if name == "matmul":
            return self.matmul(call) or call
        return call

    def matmul(self, call: Call) -> Call | None:
        op: Any = call.op
        a, b = call.args
        if op.packed_b or op.transpose_a or not isinstance(b, Constant) or b.data.ndim != 2:
            return None
        if b.data.dtype != np.float32 or op.out_dtype not in ("", "float32") or getattr(a.struct_info, "ndim", 0) < 2:
            return None
        n = b.data.shape[0 if op.transpose_b else 1]
        if n < self.block_size // 2 or b.data.size == 0:
            return None
        key = (id(b.data), op.transpose_b)
        found = self.done.get(key)
        if found is None:
            w = b.data.T if op.transpose_b else b.data
            found = self.done[key] = (b.data, Constant(pack_matmul_weight(w, self.block_size)))
        return Call(with_fields(op, transpose_b=False, packed_b=self.block_size, n=int(n)), (a, found[1]))


def pack_weights_pass(target: Any = None) -> Pass:
    """The pass for `target`'s vector width."""
    block = vector_block(target)

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        return _Pack(mod, block).run()

    return Pass(run, "PackWeights", needs="graph", doc=__doc__)
