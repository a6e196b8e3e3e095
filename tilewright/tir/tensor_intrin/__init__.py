"""Tensor intrinsics by machine; importing one registers its names. See `registry.py`."""

from tilewright.tir.tensor_intrin.registry import TensorIntrin

__all__ = ["TensorIntrin"]
