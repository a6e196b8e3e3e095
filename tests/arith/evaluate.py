"""Expressions on numpy arrays of integers, without wrap-around: the meaning that the simplifier is tested against."""

import numpy as np

from tilewright.arith import expr as ex

_OPS = {
    ex.Add: np.add, ex.Sub: np.subtract, ex.Mul: np.multiply, ex.FloorDiv: np.floor_divide, ex.FloorMod: np.mod,
    ex.Min: np.minimum, ex.Max: np.maximum, ex.EQ: np.equal, ex.NE: np.not_equal, ex.LT: np.less, ex.LE: np.less_equal,
    ex.GT: np.greater, ex.GE: np.greater_equal, ex.And: np.logical_and, ex.Or: np.logical_or, ex.Mod: np.fmod,
}  # fmt: skip


def evaluate(e, env):
    """The values of `e`; `env` maps variables to arrays of one shape."""
    if isinstance(e, ex.IntImm):
        return np.bool_(e.value) if e.dtype == "bool" else np.int64(e.value)
    if isinstance(e, ex.Var):
        return env[e]
    if isinstance(e, ex.Not):
        return np.logical_not(evaluate(e.a, env))
    if isinstance(e, ex.Select):
        return np.where(evaluate(e.condition, env), evaluate(e.true_value, env), evaluate(e.false_value, env))
    if isinstance(e, ex.Call):
        args = [evaluate(a, env) for a in e.args]
        if e.op.name == "tir.if_then_else":
            return np.where(*args)
        if e.op.name == "tir.likely":
            return args[0]
        table = {"tir.shift_left": np.left_shift, "tir.shift_right": np.right_shift, "tir.bitwise_and": np.bitwise_and}
        return table[e.op.name](*args)
    if isinstance(e, ex.Cast):
        return evaluate(e.value, env)
    if isinstance(e, ex.Let):
        return evaluate(e.body, {**env, e.var: evaluate(e.value, env)})
    a, b = evaluate(e.a, env), evaluate(e.b, env)
    if isinstance(e, ex.Div):
        return (a - np.fmod(a, b)) // b
    return _OPS[type(e)](a, b)


def grid(ranges):
    """All points of the ranges: {variable: array}."""
    points = np.meshgrid(*[np.arange(lo, hi + 1) for lo, hi in ranges.values()], indexing="ij")
    return {v: p.ravel() for v, p in zip(ranges, points)}
