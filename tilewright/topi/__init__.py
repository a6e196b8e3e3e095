"""Operators as tensor expressions, under their known names."""

from tilewright.topi import image, nn
from tilewright.topi.broadcast import *
from tilewright.topi.elemwise import *
from tilewright.topi.elemwise import abs, round
from tilewright.topi.linalg import batch_matmul, dense, einsum, matmul
from tilewright.topi.reduction import all, any, argmax, argmin, max, mean, min, prod, sum, variance
from tilewright.topi.transform import *
