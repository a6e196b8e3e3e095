"""Tensor expressions for images."""

from tilewright.topi.image.resize import resize
