"""Tensor cores of NVIDIA's GPUs, in two ways.

wmma: fragments of a matrix are opaque; `wmma_load`, `wmma_fill`, `wmma_sync` (multiply and add) and `wmma_store` work on tiles of
16x16x16 (int4: 8x8x32). `get_wmma_intrin_group` names those that belong together.

mma: a fragment is 32 x n elements in registers, row t held by thread t of a warp (scope `warp`). `shared_16x16_to_ldmatrix_32x8_layout`
and its like say where the elements of a tile lie. `mma_ldmatrix` loads, `mma_...` multiplies, `mma_fill` and `mma_store` do what
their names say. `get_mma_intrin_group` names those that belong together.

The names of the intrinsics are constants of this module: `WMMA_LOAD_16x16x16_F16_A_INTRIN` is "wmma_load_16x16x16_f16_a_shared".
(The older m16n8k8 family is not here.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.expr import IntImm, PrimExpr, Var, cast, const
from tilewright.support.diagnostics import Diagnostic
from tilewright.tir.build import floordiv, floormod
from tilewright.tir.ir import Buffer, BufferLoad, BufferStore, For, ForKind, Stmt
from tilewright.tir.tensor_intrin.build import beginning, call, loop_nest, operand, over_threads, program
from tilewright.tir.tensor_intrin.registry import IntrinError, TensorIntrin, register_lazily

WARP = 32
_SHORT = {
    "float16": "f16", "float32": "f32", "int8": "i8", "int32": "i32", "int4": "i4", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip
_PTX = {
    "float16": "fp16", "float32": "fp32", "int8": "int8", "int32": "int32", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip


# ---- where the elements of a tile lie in a warp's registers ------------------------------------------------------------


def shared_16x16_to_ldmatrix_32x8_layout(i: Any, j: Any) -> tuple[Any, Any]:
    """(thread, register) of element (i, j) of a tile of 16 x 16 halves."""
    return 4 * (i % 8) + (j % 8) // 2, 4 * (j // 8) + (i // 8) * 2 + (j % 2)


def shared_16x32_to_ldmatrix_32x16_layout(i: Any, j: Any) -> tuple[Any, Any]:
    """(thread, register) of element (i, j) of a tile of 16 x 32 bytes."""
    return 4 * (i % 8) + (j % 16) // 4, 8 * (j // 16) + (i // 8) * 4 + j % 4


def shared_32x16_to_ldmatrix_32x16_layout(i: Any, j: Any) -> tuple[Any, Any]:
    """(thread, register) of element (i, j) of a tile of 32 x 16 bytes."""
    return (i % 16) // 4 + 4 * (j % 8), 8 * (j // 8) + (i // 16) * 4 + i % 4


def ldmatrix_32x8_to_shared_16x16_layout(thread_id: Any, local_id: Any) -> tuple[Any, Any]:
    """(row, column) of a thread's register in a tile of 16 x 16 halves."""
    return 8 * (local_id % 4 // 2) + thread_id // 4, 8 * (local_id // 4) + (thread_id % 4) * 2 + local_id % 2


# ---- mma ---------------------------------------------------------------------------------------------------------------


def _copy(name: str, source: Buffer, dest: Buffer, rows: int, columns: int, at_source: Any, at_dest: Any) -> Stmt:
    """A nest that copies a tile element by element."""

    def store(i: Var, j: Var) -> BufferStore:
        return BufferStore(dest, BufferLoad(source, at_source(i, j)), at_dest(i, j))

    return loop_nest((rows, columns), "SS", store, lambda i, j: (BufferLoad(source, at_source(i, j)),), name)


def _plain(i: Any, j: Any) -> tuple[Any, Any]:
    return i, j


def get_ldmatrix_intrin(
    k_dim: int, dtype: str, matrix_name: str, transposed: bool, shared_scope: str = "shared"
) -> tuple[Any, Any]:
    """(desc, impl): a tile of operand A (16 x k) or B (k x 16) from shared memory into a warp's registers."""
    is_a = matrix_name == "A"
    rows, columns = (16, k_dim) if is_a != transposed else (k_dim, 16)
    turned = transposed if is_a else not transposed
    layout, offset = _ldmatrix(k_dim, is_a, transposed)
    local = 16 * k_dim // WARP

    def operands(strided: bool) -> tuple[Buffer, Buffer]:
        warp = operand("warp", (WARP, local), dtype, "warp", factor=columns)
        return warp, operand("shared", (rows, columns), dtype, shared_scope, strided=strided, factor=columns)

    warp, shared = operands(False)
    nest = _copy("shared_warp", shared, warp, rows, columns, _plain, layout)
    desc = program((warp, shared), (shared,), (warp,), nest)
    warp, shared = operands(True)
    at, start = warp.data, beginning(warp)

    def load(tx: Var) -> Stmt:
        pointer = shared.access_ptr("r")
        return call(
            "ptx_ldmatrix",
            turned,
            4,
            ".b16",
            at,
            start + local * tx,
            pointer,
            offset(tx, shared.strides[0]),
            dtype=dtype,
        )

    return desc, program((warp, shared), (shared,), (warp,), over_threads(WARP, load))


def _ldmatrix(k_dim: int, is_a: bool, transposed: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(where elements go, where in shared memory each thread points)"""
    if k_dim == 16:
        if transposed:
            return (
                shared_16x16_to_ldmatrix_32x8_layout,
                lambda tx, s: s * 8 * (tx // 16) + s * (tx % 8) + 8 * ((tx % 16) // 8),
            )
        return shared_16x16_to_ldmatrix_32x8_layout, lambda tx, s: s * (tx % 16) + 8 * (tx // 16)
    if is_a:
        return shared_16x32_to_ldmatrix_32x16_layout, lambda tx, s: s * (tx % 16) + 16 * (tx // 16)
    if transposed:
        return (
            shared_16x32_to_ldmatrix_32x16_layout,
            lambda tx, s: s * 8 * (tx // 16) + (tx % 8) * s + 16 * ((tx % 16) // 8),
        )
    return (
        shared_32x16_to_ldmatrix_32x16_layout,
        lambda _, s: s,
    )  # no such instruction: the code generator loads by a loop


def get_mma_intrin(
    k_dim: int,
    a_dtype: str = "float16",
    b_dtype: str = "float16",
    out_dtype: str = "float16",
    a_transposed: bool = False,
    b_transposed: bool = False,
) -> tuple[Any, Any]:
    """(desc, impl): C += A * B for a tile of 16 x 16 x k in a warp's registers, by two instructions of eight columns each."""
    local, local_c = 16 * k_dim // WARP, 8
    at_c = shared_16x16_to_ldmatrix_32x8_layout
    if k_dim == 16:
        at_a = at_b = at_c
    else:
        at_a = shared_16x32_to_ldmatrix_32x16_layout
        at_b = shared_16x32_to_ldmatrix_32x16_layout if b_transposed else shared_32x16_to_ldmatrix_32x16_layout

    def operands() -> tuple[Buffer, Buffer, Buffer]:
        return (
            operand("A", (WARP, local), a_dtype, "warp", factor=16 if a_transposed else k_dim),
            operand("B", (WARP, local), b_dtype, "warp", factor=k_dim if b_transposed else 16),
            operand("C", (WARP, local_c), out_dtype, "warp", factor=16),
        )

    a, b, c = operands()

    def points(i: Var, j: Var, k: Var) -> tuple[BufferLoad, BufferLoad, BufferLoad]:
        left = at_a(k, i) if a_transposed else at_a(i, k)
        right = at_b(j, k) if b_transposed else at_b(k, j)
        return BufferLoad(c, at_c(i, j)), BufferLoad(a, left), BufferLoad(b, right)

    def store(i: Var, j: Var, k: Var) -> BufferStore:
        old, x, y = points(i, j, k)
        return BufferStore(c, old + cast(x, out_dtype) * cast(y, out_dtype), old.indices)

    desc = program((a, b, c), (c, a, b), (c,), loop_nest((16, 16, k_dim), "SSR", store, points, "C"))
    a, b, c = operands()
    types = _PTX[a_dtype], _PTX[b_dtype], _PTX[out_dtype]

    def multiply(tx: Var) -> list[Stmt]:
        def half(n: int) -> Stmt:
            at = [beginning(x) + tx * size for x, size in ((a, local), (b, local), (c, local_c))]
            if n:
                at[1:] = [at[1] + local // 2, at[2] + local_c // 2]
            pointers = (a.data, at[0], b.data, at[1], c.data, at[2])
            return call("ptx_mma", f"m16n8k{k_dim}", "row", "col", *types, *pointers, False, dtype=out_dtype)

        return [half(0), half(1)]

    return desc, program((a, b, c), (c, a, b), (c,), over_threads(WARP, multiply))


def get_mma_fill_intrin(dtype: str, local_size: int) -> tuple[Any, Any]:
    """(desc, impl): zeros into the accumulator of a tile of 16 x 16."""
    c = operand("C_warp", (WARP, local_size), dtype, "warp")

    def store(i: Var, j: Var) -> BufferStore:
        return BufferStore(c, const(0, dtype), shared_16x16_to_ldmatrix_32x8_layout(i, j))

    desc = program((c,), (), (c,), loop_nest((16, 16), "SS", store, lambda i, j: (), "C_warp"))
    w = operand("C_warp", (WARP, local_size), dtype, "warp")
    fill = over_threads(WARP, lambda tx: call("mma_fill", local_size, w.data, w.elem_offset, dtype=dtype))
    return desc, program((w,), (), (w,), fill)


def get_mma_store_intrin(
    dtype: str, local_size: int, scope: str = "global", use_mma_store_intrinic: bool = True
) -> tuple[Any, Any]:
    """(desc, impl): the accumulator of a tile of 16 x 16 into memory, by `mma_store` or element by element."""

    def operands(strided: bool) -> tuple[Buffer, Buffer]:
        return operand("C_warp", (WARP, local_size), dtype, "warp"), operand(
            "C", (16, 16), dtype, scope, strided=strided
        )

    w, c = operands(False)
    desc = program((w, c), (w,), (c,), _copy("C_warp", w, c, 16, 16, shared_16x16_to_ldmatrix_32x8_layout, _plain))
    w, c = operands(True)

    def store(tx: Var) -> Stmt:
        if use_mma_store_intrinic:
            return call("mma_store", 16, 16, c.access_ptr("w"), w.data, w.elem_offset, c.strides[0], dtype=dtype)
        n = Var("local_id", "int32")
        at = ldmatrix_32x8_to_shared_16x16_layout(tx, n)
        return For(
            n,
            IntImm("int32", 0),
            IntImm("int32", local_size),
            ForKind.SERIAL,
            BufferStore(c, BufferLoad(w, (tx, n)), at),
        )

    return desc, program((w, c), (w,), (c,), over_threads(WARP, store))


# ---- wmma --------------------------------------------------------------------------------------------------------------


def get_wmma_fragment_index(buffer: Buffer, stride: Any, m_dim: int, n_dim: int) -> PrimExpr:
    """Which fragment of its memory a tile of m x n is, by where it begins."""
    start = beginning(buffer)
    row, column = floordiv(floordiv(start, stride), m_dim), floordiv(floormod(start, stride), n_dim)
    return row * floordiv(stride, n_dim) + column


def get_wmma_load_intrin(
    m_dim: int, n_dim: int, k_dim: int, dtype: str, shared_scope: str, is_b: bool, is_col_major: bool
) -> tuple[Any, Any]:
    """(desc, impl): a fragment of A or B from memory."""
    rows, columns = (k_dim, n_dim) if is_b else (m_dim, k_dim)
    if is_col_major:
        rows, columns = columns, rows
    scope = f"wmma.matrix_{'b' if is_b else 'a'}"

    def operands(strided: bool) -> tuple[Buffer, Buffer]:
        return (
            operand("A", (rows, columns), dtype, shared_scope, strided=strided, factor=columns),
            operand("C", (rows, columns), dtype, scope, strided=strided, factor=columns),
        )

    a, c = operands(False)
    desc = program((a, c), (a,), (c,), _copy("load", a, c, rows, columns, _plain, _plain))
    a, c = operands(True)
    index = get_wmma_fragment_index(c, c.strides[0], rows, columns)
    layout = "col_major" if is_col_major else "row_major"
    load = call("tvm_load_matrix_sync", c.data, m_dim, n_dim, k_dim, index, a.access_ptr("r"), a.strides[0], layout)
    return desc, program((a, c), (a,), (c,), load)


def get_wmma_fill_intrin(m_dim: int, n_dim: int, k_dim: int, dtype: str) -> tuple[Any, Any]:
    """(desc, impl): zeros into an accumulator."""

    def accumulator(strided: bool) -> Buffer:
        return operand("C", (m_dim, n_dim), dtype, "wmma.accumulator", strided=strided, factor=n_dim)

    c = accumulator(False)
    nest = loop_nest(
        (m_dim, n_dim), "SS", lambda i, j: BufferStore(c, const(0, dtype), (i, j)), lambda i, j: (), "init"
    )
    d = accumulator(True)
    index = get_wmma_fragment_index(d, d.strides[0], m_dim, n_dim)
    fill = call("tvm_fill_fragment", d.data, m_dim, n_dim, k_dim, index, const(0.0, "float32"))
    return program((c,), (), (c,), nest), program((d,), (), (d,), fill)


def get_wmma_store_intrin(m_dim: int, n_dim: int, k_dim: int, dtype: str, scope: str) -> tuple[Any, Any]:
    """(desc, impl): an accumulator into memory."""

    def operands(strided: bool) -> tuple[Buffer, Buffer]:
        return (
            operand("A", (m_dim, n_dim), dtype, "wmma.accumulator", strided=strided, factor=n_dim),
            operand("C", (m_dim, n_dim), dtype, scope, strided=strided, factor=n_dim),
        )

    a, c = operands(False)
    desc = program((a, c), (a,), (c,), _copy("store", a, c, m_dim, n_dim, _plain, _plain))
    a, c = operands(True)
    index = get_wmma_fragment_index(a, a.strides[0], m_dim, n_dim)
    pointer = c.access_ptr("w")
    store = call("tvm_store_matrix_sync", a.data, m_dim, n_dim, k_dim, index, pointer, c.strides[0], "row_major")
    return desc, program((a, c), (a,), (c,), store)


def get_wmma_sync_intrin(
    m_dim: int, n_dim: int, k_dim: int, in_dtype: str, out_dtype: str, b_transposed: bool
) -> tuple[Any, Any]:
    """(desc, impl): C += A * B on fragments."""
    b_shape = (n_dim, k_dim) if b_transposed else (k_dim, n_dim)

    def operands(strided: bool) -> tuple[Buffer, Buffer, Buffer]:
        return (
            operand("A", (m_dim, k_dim), in_dtype, "wmma.matrix_a", strided=strided, factor=k_dim),
            operand("B", b_shape, in_dtype, "wmma.matrix_b", strided=strided, factor=b_shape[1]),
            operand("C", (m_dim, n_dim), out_dtype, "wmma.accumulator", strided=strided, factor=n_dim),
        )

    a, b, c = operands(False)

    def points(i: Var, j: Var, k: Var) -> tuple[BufferLoad, BufferLoad, BufferLoad]:
        return BufferLoad(c, (i, j)), BufferLoad(a, (i, k)), BufferLoad(b, (j, k) if b_transposed else (k, j))

    def store(i: Var, j: Var, k: Var) -> BufferStore:
        old, x, y = points(i, j, k)
        return BufferStore(c, old + cast(x, out_dtype) * cast(y, out_dtype), (i, j))

    desc = program((a, b, c), (c, a, b), (c,), loop_nest((m_dim, n_dim, k_dim), "SSR", store, points, ""))
    a, b, c = operands(True)
    at_c = get_wmma_fragment_index(c, c.strides[0], m_dim, n_dim)
    at_a = get_wmma_fragment_index(a, a.strides[0], m_dim, k_dim)
    at_b = get_wmma_fragment_index(b, b.strides[0], *b_shape)
    multiply = call("tvm_mma_sync", c.data, at_c, a.data, at_a, b.data, at_b, c.data, at_c)
    return desc, program((a, b, c), (c, a, b), (c,), multiply)


# ---- names -------------------------------------------------------------------------------------------------------------


def _named(make: Callable[..., tuple[Any, Any]], *arguments: Any) -> Callable[[], TensorIntrin]:
    return lambda: TensorIntrin(*make(*arguments))


def _mma_names() -> dict[str, str]:
    """The constants of the mma family; their intrinsics are registered."""
    out: dict[str, str] = {}

    def add(constant: str, name: str, make: Callable[..., tuple[Any, Any]], *arguments: Any) -> None:
        end = "_INTRIN_SIMPLE" if constant.endswith("_SIMPLE") else "_INTRIN"
        out[constant.removesuffix("_SIMPLE") + end] = register_lazily(name, _named(make, *arguments))

    for dtype, k in (("float16", 16), ("int8", 32), ("float8_e4m3fn", 32), ("float8_e5m2", 32)):
        short = _SHORT[dtype]
        for matrix in "AB":
            for trans in (False, True):
                if k == 32 and matrix == "A" and trans:
                    continue
                for scope in ("shared", "shared.dyn"):
                    dyn, t = scope == "shared.dyn", trans
                    constant = f"LDMATRIX_{short}_{matrix}{'_TRANS' * t}{'_DYN' * dyn}"
                    name = f"mma_ldmatrix_{short}_{matrix.lower()}{'_trans' * t}{'_dyn' * dyn}"
                    add(constant, name, get_ldmatrix_intrin, k, dtype, matrix, trans, scope)
        for result in ("float32", "float16") if k == 16 else ("int32",) if dtype == "int8" else ("float32",):
            kind = short + short + _SHORT[result]
            for ta in (False, True) if k == 16 else (False,):
                for tb in (False, True):
                    constant = f"MMA_{kind}{'_TRANS_A' * ta}{'_TRANS_B' * tb}"
                    name = f"mma_{kind}{'_trans_a' * ta}{'_trans_b' * tb}"
                    add(constant, name, get_mma_intrin, k, dtype, dtype, result, ta, tb)
    for dtype in ("float32", "float16", "int32"):
        short = _SHORT[dtype]
        add(f"MMA_fill_16x16_{short}", f"mma_fill_16x16_{short}", get_mma_fill_intrin, dtype, 8)
        for scope in ("global", "shared", "shared.dyn"):
            place = scope.replace(".", "_")
            for simple in (False, True):
                constant = f"MMA_store_16x16_{short}_{place}{'_SIMPLE' * simple}"
                name = f"mma_store_16x16_{short}_{place}_{'simple_' * simple}"
                add(constant, name, get_mma_store_intrin, dtype, 8, scope, not simple)
    return out


def _wmma_names() -> dict[str, str]:
    """The constants of the wmma family; their intrinsics are registered."""
    out: dict[str, str] = {}

    def add(what: str, name: str, make: Callable[..., tuple[Any, Any]], *arguments: Any) -> None:
        out[f"WMMA_{what}_INTRIN"] = register_lazily(f"wmma_{name}", _named(make, *arguments))

    families = (
        ((16, 16, 16), "float16", "f16", ("float32", "float16"), (False, True)),
        ((16, 16, 16), "int8", "s8", ("int32",), (False, True)),
        ((8, 8, 32), "int4", "s4", ("int32",), (True,)),
    )
    results: dict[tuple[str, tuple[int, int, int]], str] = {}
    for tile, dtype, short, outputs, turns in families:
        shape = "x".join(map(str, tile))
        for scope in ("shared", "shared.dyn"):
            dyn, place = "_DYN" * (scope == "shared.dyn"), scope.replace(".", "_")
            for matrix in "AB":
                for trans in (False, True) if dtype != "int4" else (matrix == "B",):
                    what = f"LOAD_{shape}_{short.upper()}_{matrix}{'_TRANS' * trans}{dyn}"
                    name = f"load_{shape}_{short}_{matrix.lower()}{'_trans' * trans}_{place}"
                    add(what, name, get_wmma_load_intrin, *tile, dtype, scope, matrix == "B", trans)
        for result in outputs:
            kind = short + short + {"float32": "f32", "float16": "f16", "int32": "s32"}[result]
            results[result, tile] = shape
            for trans in turns:
                what, name = f"SYNC_{shape}_{kind}{'_TRANS' * trans}", f"sync_{shape}_{kind}{'_trans' * trans}"
                add(what, name, get_wmma_sync_intrin, *tile, dtype, result, trans)
    for (result, tile), shape in results.items():
        short = {"float32": "f32", "float16": "f16", "int32": "s32"}[result]
        add(f"FILL_{shape}_{short.upper()}", f"fill_{shape}_{short}", get_wmma_fill_intrin, *tile, result)
        for scope in ("shared", "shared.dyn", "global"):
            place = scope.replace(".", "_")
            what = f"STORE_{shape}_{short.upper()}_{place.upper()}"
            add(what, f"store_{shape}_{short}_{place}", get_wmma_store_intrin, *tile, result, scope)
    return out


globals().update(_mma_names())
globals().update(_wmma_names())


def _check(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise IntrinError(
            Diagnostic("TW0490", f"there is no tensor core intrinsic whose {what} is {value!r}", hint=f"choose among: {', '.join(allowed)}")
        )  # fmt: skip


def get_wmma_intrin_group(
    load_scope: str, store_scope: str, in_dtype: str, out_dtype: str, trans_b: bool
) -> dict[str, str]:
    """The names of the wmma intrinsics for a product: `init`, `load_a`, `load_b`, `compute`, `store`. Raises ValueError
    TW0490 for a scope or type that there is none of."""
    _check("load scope", load_scope, ("shared", "shared.dyn"))
    _check("store scope", store_scope, ("global", "shared", "shared.dyn"))
    _check("input type", in_dtype, ("float16", "int8"))
    _check("output type", out_dtype, ("float16", "float32", "int32"))
    a = {"float16": "f16", "int8": "s8"}[in_dtype]
    c = {"float16": "f16", "float32": "f32", "int32": "s32"}[out_dtype]
    turned, load, store = "_trans" * trans_b, load_scope.replace(".", "_"), store_scope.replace(".", "_")
    return {
        "init": f"wmma_fill_16x16x16_{c}",
        "load_a": f"wmma_load_16x16x16_{a}_a_{load}",
        "load_b": f"wmma_load_16x16x16_{a}_b{turned}_{load}",
        "compute": f"wmma_sync_16x16x16_{a}{a}{c}{turned}",
        "store": f"wmma_store_16x16x16_{c}_{store}",
    }


def get_mma_intrin_group(
    load_scope: str,
    store_scope: str,
    in_dtype: str,
    out_dtype: str,
    trans_a: bool,
    trans_b: bool,
    not_use_mma_store_intrinic: bool = True,
    store_to_smem_dtype: str | None = None,
) -> dict[str, str]:
    """The names of the mma intrinsics for a product: `init`, `load_a`, `load_b`, `compute`, `store`. Raises ValueError TW0490
    for a scope or type that there is none of."""
    _check("load scope", load_scope, ("shared", "shared.dyn"))
    _check("store scope", store_scope, ("global", "shared", "shared.dyn"))
    _check("input type", in_dtype, ("float16", "int8", "float8_e4m3fn", "float8_e5m2"))
    _check("output type", out_dtype, ("float16", "float32", "int32"))
    a, c = _SHORT[in_dtype], _SHORT[out_dtype]
    ta, tb, dyn = "_trans" * trans_a, "_trans" * trans_b, "_dyn" * (load_scope == "shared.dyn")
    stored = _SHORT[store_to_smem_dtype] if store_to_smem_dtype else c
    simple = "simple_" * not_use_mma_store_intrinic
    return {
        "init": f"mma_fill_16x16_{c}",
        "load_a": f"mma_ldmatrix_{a}_a{ta}{dyn}",
        "load_b": f"mma_ldmatrix_{a}_b{tb}{dyn}",
        "compute": f"mma_{a}{a}{c}{'_trans_a' * trans_a}{'_trans_b' * trans_b}",
        "store": f"mma_store_16x16_{stored}_{store_scope.replace('.', '_')}_{simple}",
    }
