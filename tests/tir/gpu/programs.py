"""Loop programs for GPUs that several tests use."""

from tilewright.script import tir as T


@T.prim_func
def blocked_matmul(
    A: T.Buffer((32, 32), "float32"), B: T.Buffer((32, 32), "float32"), C: T.Buffer((32, 32), "float32")
):
    A_shared = T.alloc_buffer((32, 32), scope="shared")
    B_shared = T.alloc_buffer((32, 32), scope="shared")
    C_local = T.alloc_buffer((32, 32), scope="local")
    for by in T.thread_binding(2, thread="blockIdx.y"):
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for ty in T.thread_binding(8, thread="threadIdx.y"):
                for tx in T.thread_binding(8, thread="threadIdx.x"):
                    for i, j in T.grid(2, 2):
                        with T.block("start"):
                            vi = T.axis.spatial(32, by * 16 + ty * 2 + i)
                            vj = T.axis.spatial(32, bx * 16 + tx * 2 + j)
                            C_local[vi, vj] = T.float32(0)
                    for k0 in range(4):
                        for y in T.thread_binding(8, thread="threadIdx.y"):
                            for x in T.thread_binding(8, thread="threadIdx.x"):
                                for v in T.vectorized(2):
                                    with T.block("A_shared"):
                                        vi = T.axis.spatial(32, by * 16 + (y * 16 + x * 2 + v) // 8)
                                        vk = T.axis.spatial(32, k0 * 8 + (y * 16 + x * 2 + v) % 8)
                                        A_shared[vi, vk] = A[vi, vk]
                        for y in T.thread_binding(8, thread="threadIdx.y"):
                            for x in T.thread_binding(8, thread="threadIdx.x"):
                                for v in T.vectorized(2):
                                    with T.block("B_shared"):
                                        vk = T.axis.spatial(32, k0 * 8 + (y * 16 + x * 2 + v) // 16)
                                        vj = T.axis.spatial(32, bx * 16 + (y * 16 + x * 2 + v) % 16)
                                        B_shared[vk, vj] = B[vk, vj]
                        for k1, i, j in T.grid(8, 2, 2):
                            with T.block("update"):
                                vi = T.axis.spatial(32, by * 16 + ty * 2 + i)
                                vj = T.axis.spatial(32, bx * 16 + tx * 2 + j)
                                vk = T.axis.reduce(32, k0 * 8 + k1)
                                C_local[vi, vj] = C_local[vi, vj] + A_shared[vi, vk] * B_shared[vk, vj]
                    for i, j in T.grid(2, 2):
                        with T.block("C"):
                            vi = T.axis.spatial(32, by * 16 + ty * 2 + i)
                            vj = T.axis.spatial(32, bx * 16 + tx * 2 + j)
                            C[vi, vj] = C_local[vi, vj]


@T.prim_func
def row_sum(A: T.Buffer((4, 100), "float32"), B: T.Buffer((4,), "float32")):
    for i in T.thread_binding(4, thread="blockIdx.x"):
        for ko in range(4):
            for ki in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    vk = T.axis.reduce(100, ko * 32 + ki)
                    T.where(ko * 32 + ki < 100)
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def softmax_rows(A: T.Buffer((4, 96), "float32"), B: T.Buffer((4, 96), "float32")):
    most = T.alloc_buffer((4,), scope="shared")
    total = T.alloc_buffer((4,), scope="shared")
    for i in T.thread_binding(4, thread="blockIdx.x"):
        for ko in range(3):
            for ki in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("most"):
                    vi = T.axis.spatial(4, i)
                    vk = T.axis.reduce(96, ko * 32 + ki)
                    with T.init():
                        most[vi] = T.float32(-3.4e38)
                    most[vi] = T.max(most[vi], A[vi, vk])
        for ko in range(3):
            for ki in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("total"):
                    vi = T.axis.spatial(4, i)
                    vk = T.axis.reduce(96, ko * 32 + ki)
                    with T.init():
                        total[vi] = T.float32(0)
                    total[vi] = total[vi] + T.exp(A[vi, vk] - most[vi])
        for jo in range(3):
            for ji in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    vj = T.axis.spatial(96, jo * 32 + ji)
                    B[vi, vj] = T.exp(A[vi, vj] - most[vi]) / total[vi]


@T.prim_func
def argmax_rows(V: T.Buffer((4, 64), "float32"), I: T.Buffer((4,), "int32"), M: T.Buffer((4,), "float32")):
    for i in T.thread_binding(4, thread="blockIdx.x"):
        for ko in range(2):
            for ki in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("best"):
                    vi = T.axis.spatial(4, i)
                    vk = T.axis.reduce(64, ko * 32 + ki)
                    T.reads(V[vi, vk])
                    T.writes(I[vi], M[vi])
                    with T.init():
                        I[vi] = -1
                        M[vi] = T.float32(-3.4e38)
                    index: T.int32 = T.Select(M[vi] >= V[vi, vk], I[vi], vk)
                    value: T.float32 = T.Select(M[vi] >= V[vi, vk], M[vi], V[vi, vk])
                    I[vi] = index
                    M[vi] = value


@T.prim_func
def window_sum(A: T.Buffer((258,), "float32"), B: T.Buffer((256,), "float32")):
    A_shared = T.alloc_buffer((258,), scope="shared")
    for bx in T.thread_binding(4, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for o in range(2):
                for x in T.thread_binding(64, thread="threadIdx.x"):
                    with T.block("A_shared"):
                        v = T.axis.spatial(258, bx * 64 + (o * 64 + x))
                        T.where(o * 64 + x < 66)
                        A_shared[v] = A[v]
            with T.block("B"):
                vi = T.axis.spatial(256, bx * 64 + tx)
                B[vi] = A_shared[vi] + A_shared[vi + 1] + A_shared[vi + 2]


@T.prim_func
def two_virtual(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    L = T.alloc_buffer((64,), scope="local")
    for vt in T.thread_binding(2, thread="vthread.x"):
        for tx in T.thread_binding(8, thread="threadIdx.x"):
            for i in range(4):
                with T.block("L"):
                    v = T.axis.spatial(64, vt * 32 + tx * 4 + i)
                    L[v] = A[v] * T.float32(2)
            for i in range(4):
                with T.block("B"):
                    v = T.axis.spatial(64, vt * 32 + tx * 4 + i)
                    B[v] = L[v] + T.float32(1)


@T.prim_func
def scaled(a: T.handle, b: T.handle, n: T.int32):
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for bx in T.thread_binding((n + 31) // 32, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.block("B"):
                v = T.axis.spatial(n, bx * 32 + tx)
                T.where(bx * 32 + tx < n)
                B[v] = A[v] * T.float32(3)


@T.prim_func
def two_kernels(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    M = T.alloc_buffer((64,))
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.block("M"):
                v = T.axis.spatial(64, bx * 32 + tx)
                M[v] = A[v] + T.float32(1)
    for bx in T.thread_binding(4, thread="blockIdx.x"):
        for tx in T.thread_binding(16, thread="threadIdx.x"):
            with T.block("B"):
                v = T.axis.spatial(64, bx * 16 + tx)
                B[v] = M[63 - v]


@T.prim_func
def unbound(A: T.Buffer((6, 20), "float32"), W: T.Buffer((20, 5), "float32"), B: T.Buffer((6, 5), "float32")):
    M = T.alloc_buffer((6, 5))
    for i, j, k in T.grid(6, 5, 20):
        with T.block("M"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                M[vi, vj] = T.float32(0)
            M[vi, vj] = M[vi, vj] + A[vi, vk] * W[vk, vj]
    for i, j in T.grid(6, 5):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.max(M[vi, vj], T.float32(0))
