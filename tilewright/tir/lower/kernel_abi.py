"""The calling convention of kernels: data pointers and scalars in the order of the params, then the free symbols.

A kernel `f(a: handle, n: int32, b: handle)` over buffers A[h, w], B[h, w] is called as `f(A.data, n, B.data, h, w)`: the
symbolic sizes that occur in the buffers' shapes, strides and offsets, and are no params themselves, are passed by value in
the order in which they first appear.
"""

from __future__ import annotations

from tilewright.arith.expr import Var
from tilewright.ir.rewrite import collect
from tilewright.tir.ir import PrimFunc

__all__ = ["kernel_params"]


def kernel_params(f: PrimFunc) -> tuple[list[Var], list[Var]]:
    """(flat params, symbols) of the kernel that `f` becomes; see the head of the module."""
    flat = [f.buffer_map[p].data if p in f.buffer_map else p for p in f.params]
    known = set(f.params) | set(flat)
    symbols: list[Var] = []
    for p in f.params:
        buffer = f.buffer_map.get(p)
        if buffer is None:
            continue
        parts = [*buffer.shape, *buffer.strides, *(() if buffer.elem_offset is None else (buffer.elem_offset,))]
        for part in parts:
            for var in collect(part, Var):
                if var not in known:
                    known.add(var)
                    symbols.append(var)
    return flat, symbols
