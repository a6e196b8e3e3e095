"""Programs for the schedule fuzzer: small, of the kinds that networks are made of."""

from __future__ import annotations

from tilewright.script import tir as T


@T.prim_func
def matmul(A: T.Buffer((6, 8), "float32"), B: T.Buffer((8, 10), "float32"), C: T.Buffer((6, 10), "float32")):
    for i, j, k in T.grid(6, 10, 8):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def matmul_bias_relu(
    A: T.Buffer((8, 6), "float32"),
    B: T.Buffer((6, 12), "float32"),
    b: T.Buffer((12,), "float32"),
    D: T.Buffer((8, 12), "float32"),
):
    C = T.alloc_buffer((8, 12), "float32")
    E = T.alloc_buffer((8, 12), "float32")
    for i, j, k in T.grid(8, 12, 6):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(8, 12):
        with T.block("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = C[vi, vj] + b[vj]
    for i, j in T.grid(8, 12):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(E[vi, vj], 0.0)


@T.prim_func
def batch_matmul(
    A: T.Buffer((3, 4, 5), "float32"), B: T.Buffer((3, 6, 5), "float32"), C: T.Buffer((3, 4, 6), "float32")
):
    for b, i, j, k in T.grid(3, 4, 6, 5):
        with T.block("C"):
            vb, vi, vj, vk = T.axis.remap("SSSR", [b, i, j, k])
            with T.init():
                C[vb, vi, vj] = 0.0
            C[vb, vi, vj] = C[vb, vi, vj] + A[vb, vi, vk] * B[vb, vj, vk]


@T.prim_func
def conv1d(X: T.Buffer((3, 14), "float32"), W: T.Buffer((4, 3, 3), "float32"), Y: T.Buffer((4, 14), "float32")):
    P = T.alloc_buffer((3, 16), "float32")
    for c, x in T.grid(3, 16):
        with T.block("P"):
            vc, vx = T.axis.remap("SS", [c, x])
            P[vc, vx] = T.if_then_else(vx >= 1 and vx < 15, X[vc, vx - 1], T.float32(0))
    for o, x, c, k in T.grid(4, 14, 3, 3):
        with T.block("Y"):
            vo, vx, vc, vk = T.axis.remap("SSRR", [o, x, c, k])
            with T.init():
                Y[vo, vx] = 0.0
            Y[vo, vx] = Y[vo, vx] + P[vc, vx + vk] * W[vo, vc, vk]


@T.prim_func
def conv2d(
    X: T.Buffer((1, 7, 7, 3), "float32"), W: T.Buffer((3, 3, 3, 4), "float32"), Y: T.Buffer((1, 4, 4, 4), "float32")
):
    P = T.alloc_buffer((1, 9, 9, 3), "float32")
    C = T.alloc_buffer((1, 4, 4, 4), "float32")
    for n, h, w, c in T.grid(1, 9, 9, 3):
        with T.block("P"):
            vn, vh, vw, vc = T.axis.remap("SSSS", [n, h, w, c])
            P[vn, vh, vw, vc] = T.if_then_else(
                vh >= 1 and vh < 8 and vw >= 1 and vw < 8, X[vn, vh - 1, vw - 1, vc], T.float32(0)
            )
    for n, h, w, o, r, s, c in T.grid(1, 4, 4, 4, 3, 3, 3):
        with T.block("C"):
            vn, vh, vw, vo, vr, vs, vc = T.axis.remap("SSSSRRR", [n, h, w, o, r, s, c])
            with T.init():
                C[vn, vh, vw, vo] = 0.0
            C[vn, vh, vw, vo] = C[vn, vh, vw, vo] + P[vn, vh * 2 + vr, vw * 2 + vs, vc] * W[vr, vs, vc, vo]
    for n, h, w, o in T.grid(1, 4, 4, 4):
        with T.block("Y"):
            vn, vh, vw, vo = T.axis.remap("SSSS", [n, h, w, o])
            Y[vn, vh, vw, vo] = T.max(C[vn, vh, vw, vo], 0.0)


@T.prim_func
def conv3d(
    X: T.Buffer((2, 5, 5, 5), "float32"), W: T.Buffer((2, 2, 2, 2, 2), "float32"), Y: T.Buffer((2, 4, 4, 4), "float32")
):
    for o, d, h, w, c, p, q, r in T.grid(2, 4, 4, 4, 2, 2, 2, 2):
        with T.block("Y"):
            vo, vd, vh, vw, vc, vp, vq, vr = T.axis.remap("SSSSRRRR", [o, d, h, w, c, p, q, r])
            with T.init():
                Y[vo, vd, vh, vw] = 0.0
            Y[vo, vd, vh, vw] = Y[vo, vd, vh, vw] + X[vc, vd + vp, vh + vq, vw + vr] * W[vo, vc, vp, vq, vr]


@T.prim_func
def depthwise(X: T.Buffer((4, 8, 8), "float32"), W: T.Buffer((4, 3, 3), "float32"), Y: T.Buffer((4, 6, 6), "float32")):
    C = T.alloc_buffer((4, 6, 6), "float32")
    for c, h, w, r, s in T.grid(4, 6, 6, 3, 3):
        with T.block("C"):
            vc, vh, vw, vr, vs = T.axis.remap("SSSRR", [c, h, w, r, s])
            with T.init():
                C[vc, vh, vw] = 0.0
            C[vc, vh, vw] = C[vc, vh, vw] + X[vc, vh + vr, vw + vs] * W[vc, vr, vs]
    for c, h, w in T.grid(4, 6, 6):
        with T.block("Y"):
            vc, vh, vw = T.axis.remap("SSS", [c, h, w])
            Y[vc, vh, vw] = T.min(T.max(C[vc, vh, vw], 0.0), 6.0)


@T.prim_func
def group_conv(X: T.Buffer((6, 9), "float32"), W: T.Buffer((4, 3, 3), "float32"), Y: T.Buffer((4, 7), "float32")):
    for o, x, c, k in T.grid(4, 7, 3, 3):
        with T.block("Y"):
            vo, vx, vc, vk = T.axis.remap("SSRR", [o, x, c, k])
            with T.init():
                Y[vo, vx] = 0.0
            Y[vo, vx] = Y[vo, vx] + X[vo // 2 * 3 + vc, vx + vk] * W[vo, vc, vk]


@T.prim_func
def transposed_conv(X: T.Buffer((2, 5), "float32"), W: T.Buffer((2, 3, 3), "float32"), Y: T.Buffer((3, 9), "float32")):
    D = T.alloc_buffer((2, 11), "float32")
    for c, x in T.grid(2, 11):
        with T.block("D"):
            vc, vx = T.axis.remap("SS", [c, x])
            D[vc, vx] = T.if_then_else(vx >= 1 and vx < 10 and (vx - 1) % 2 == 0, X[vc, (vx - 1) // 2], T.float32(0))
    for o, x, c, k in T.grid(3, 9, 2, 3):
        with T.block("Y"):
            vo, vx, vc, vk = T.axis.remap("SSRR", [o, x, c, k])
            with T.init():
                Y[vo, vx] = 0.0
            Y[vo, vx] = Y[vo, vx] + D[vc, vx + vk] * W[vc, vo, 2 - vk]


@T.prim_func
def max_pool(X: T.Buffer((3, 8, 8), "float32"), Y: T.Buffer((3, 4, 4), "float32")):
    for c, h, w, r, s in T.grid(3, 4, 4, 2, 2):
        with T.block("Y"):
            vc, vh, vw, vr, vs = T.axis.remap("SSSRR", [c, h, w, r, s])
            with T.init():
                Y[vc, vh, vw] = T.min_value("float32")
            Y[vc, vh, vw] = T.max(Y[vc, vh, vw], X[vc, vh * 2 + vr, vw * 2 + vs])


@T.prim_func
def mean_pool(X: T.Buffer((3, 6, 6), "float32"), Y: T.Buffer((3, 4, 4), "float32")):
    S = T.alloc_buffer((3, 4, 4), "float32")
    for c, h, w, r, s in T.grid(3, 4, 4, 3, 3):
        with T.block("S"):
            vc, vh, vw, vr, vs = T.axis.remap("SSSRR", [c, h, w, r, s])
            with T.init():
                S[vc, vh, vw] = 0.0
            S[vc, vh, vw] = S[vc, vh, vw] + X[vc, vh + vr, vw + vs]
    for c, h, w in T.grid(3, 4, 4):
        with T.block("Y"):
            vc, vh, vw = T.axis.remap("SSS", [c, h, w])
            Y[vc, vh, vw] = S[vc, vh, vw] * T.float32(0.125)


@T.prim_func
def softmax(X: T.Buffer((6, 10), "float32"), Y: T.Buffer((6, 10), "float32")):
    M = T.alloc_buffer((6,), "float32")
    E = T.alloc_buffer((6, 10), "float32")
    S = T.alloc_buffer((6,), "float32")
    for i, k in T.grid(6, 10):
        with T.block("M"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                M[vi] = T.min_value("float32")
            M[vi] = T.max(M[vi], X[vi, vk])
    for i, j in T.grid(6, 10):
        with T.block("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = T.exp(X[vi, vj] - M[vi])
    for i, k in T.grid(6, 10):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = 0.0
            S[vi] = S[vi] + E[vi, vk]
    for i, j in T.grid(6, 10):
        with T.block("Y"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = E[vi, vj] / S[vi]


@T.prim_func
def layer_norm(X: T.Buffer((5, 8), "float32"), G: T.Buffer((8,), "float32"), Y: T.Buffer((5, 8), "float32")):
    S = T.alloc_buffer((5,), "float32")
    Q = T.alloc_buffer((5,), "float32")
    for i, k in T.grid(5, 8):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = 0.0
            S[vi] = S[vi] + X[vi, vk]
    for i, k in T.grid(5, 8):
        with T.block("Q"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Q[vi] = 0.0
            Q[vi] = Q[vi] + X[vi, vk] * X[vi, vk]
    for i, j in T.grid(5, 8):
        with T.block("Y"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = (
                (X[vi, vj] - S[vi] * T.float32(0.125))
                * G[vj]
                / T.sqrt(Q[vi] * T.float32(0.125) - S[vi] * S[vi] * T.float32(0.015625) + T.float32(1))
            )


@T.prim_func
def gather(X: T.Buffer((9, 6), "float32"), I: T.Buffer((7,), "int32"), Y: T.Buffer((7, 6), "float32")):
    B = T.alloc_buffer((7, 6), "float32")
    for i, j in T.grid(7, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = X[(I[vi] + 9) % 9, vj]
    for i, j in T.grid(7, 6):
        with T.block("Y"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = B[vi, vj] + T.float32(1)


@T.prim_func
def running_sum(X: T.Buffer((4, 8), "float32"), Y: T.Buffer((4, 8), "float32")):
    for i, j, k in T.grid(4, 8, 8):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = 0.0
            Y[vi, vj] = Y[vi, vj] + T.if_then_else(vk <= vj, X[vi, vk], T.float32(0))


@T.prim_func
def argmax(X: T.Buffer((5, 9), "float32"), V: T.Buffer((5,), "float32"), I: T.Buffer((5,), "int32")):
    v = T.alloc_buffer((5,), "float32")
    n = T.alloc_buffer((5,), "int32")
    for i, k in T.grid(5, 9):
        with T.block("R"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                n[vi] = -1
                v[vi] = T.min_value("float32")
            new_n: T.int32 = T.Select(v[vi] >= X[vi, vk], n[vi], vk)
            new_v: T.float32 = T.Select(v[vi] >= X[vi, vk], v[vi], X[vi, vk])
            n[vi] = new_n
            v[vi] = new_v
    for i in range(5):
        with T.block("V"):
            vi = T.axis.spatial(5, i)
            V[vi] = v[vi]
    for i in range(5):
        with T.block("I"):
            vi = T.axis.spatial(5, i)
            I[vi] = n[vi]


@T.prim_func
def chain(A: T.Buffer((9, 8), "float32"), D: T.Buffer((8, 9), "float32")):
    B = T.alloc_buffer((9, 8), "float32")
    C = T.alloc_buffer((9, 8), "float32")
    for i, j in T.grid(9, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
    for i, j in T.grid(9, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] * B[vi, vj]
    for i, j in T.grid(8, 9):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C[vj, vi] - T.float32(3)


@T.prim_func
def blur(A: T.Buffer((20,), "float32"), C: T.Buffer((16,), "float32")):
    B = T.alloc_buffer((18,), "float32")
    for i in range(18):
        with T.block("B"):
            vi = T.axis.spatial(18, i)
            B[vi] = A[vi] + A[vi + 1] + A[vi + 2]
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = B[vi] + B[vi + 1] + B[vi + 2]


@T.prim_func
def symbolic_matmul(a: T.handle, b: T.handle, c: T.handle):
    n, m = T.int32(), T.int32()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (m, 8), "float32")
    D = T.match_buffer(c, (n, 8), "float32")
    C = T.alloc_buffer((n, 8), "float32")
    for i, j, k in T.grid(n, 8, m):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(n, 8):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], 0.0)


@T.prim_func
def symbolic_chain(a: T.handle, c: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, 4), "float32")
    C = T.match_buffer(c, (n, 4), "float32")
    B = T.alloc_buffer((n, 4), "float32")
    for i, j in T.grid(n, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(n, 4):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[n - 1 - vi, vj] + A[vi, vj]


PROGRAMS = {
    "matmul": matmul, "matmul_bias_relu": matmul_bias_relu, "batch_matmul": batch_matmul, "conv1d": conv1d, "conv2d": conv2d,
    "conv3d": conv3d, "depthwise": depthwise, "group_conv": group_conv, "transposed_conv": transposed_conv,
    "max_pool": max_pool, "mean_pool": mean_pool, "softmax": softmax, "layer_norm": layer_norm, "gather": gather,
    "running_sum": running_sum, "argmax": argmax, "chain": chain, "blur": blur, "symbolic_matmul": symbolic_matmul,
    "symbolic_chain": symbolic_chain,
}  # fmt: skip
"""All programs by name."""
SIZES = {"n": 7, "m": 5}
"""The values of symbolic dimensions."""
