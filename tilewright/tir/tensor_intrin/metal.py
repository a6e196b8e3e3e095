"""Tensor intrinsics of Apple's GPUs (matrices of a SIMD group): none yet, the names are not known."""

__all__: list[str] = []
