"""CUDA's own intrinsics: barriers, shuffles, atomics, and the tensor cores as WMMA and as inline PTX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as E
from tilewright.backends.cuda.dialect import CudaDialect
from tilewright.backends.source.writer import ADD, ATOM, POSTFIX, UNARY, Text, Writer
from tilewright.ir import dtype as dt
from tilewright.support.diagnostics import CompileError

__all__ = ["fragment_type"]

Handler = Callable[[Writer, Any], Text]


def _row(*names: str) -> Callable[[Handler], Handler]:
    def enter(f: Handler) -> Handler:
        for name in names:
            CudaDialect.intrinsics[name] = f
        return f

    return enter


def _done() -> Text:
    """Nothing is left to write of a call that was written as statements."""
    return "", ATOM


def _text_of(a: Any) -> str:
    return str(getattr(a, "value", a))


# ---- threads -----------------------------------------------------------------------------------------------------------


@_row("tvm_storage_sync")
def _sync(w: Writer, e: E.Call) -> Text:
    scope = e.args[0].value
    if scope == "warp":
        return "__syncwarp()", POSTFIX
    if scope in ("shared", "shared.dyn"):
        return "__syncthreads()", POSTFIX
    raise w.unsupported(f"a barrier of {scope!r}", "shared and warp have one; end the kernel to synchronise all blocks")


@_row("tvm_warp_shuffle", "tvm_warp_shuffle_up", "tvm_warp_shuffle_down")
def _shuffle(w: Writer, e: E.Call) -> Text:
    name = {"": "__shfl_sync", "_up": "__shfl_up_sync", "_down": "__shfl_down_sync"}[
        e.op.name.removeprefix("tir.tvm_warp_shuffle")  # pyright: ignore[reportAttributeAccessIssue]
    ]
    mask, value, lane, width = (w.text(a) for a in e.args[:4])
    return f"{name}({mask}, {value}, {lane}, {width})", POSTFIX


@_row("tvm_warp_activemask")
def _active(w: Writer, e: E.Call) -> Text:
    return "__activemask()", POSTFIX


@_row("atomic_add", "tvm_atomic_add")
def _atomic_add(w: Writer, e: E.Call) -> Text:
    return f"atomicAdd({w.text(e.args[0])}, {w.text(e.args[1])})", POSTFIX


@_row("popcount")
def _popcount(w: Writer, e: E.Call) -> Text:
    return f"__popc{'ll' if dt.bits(e.args[0].dtype) == 64 else ''}({w.text(e.args[0])})", POSTFIX


@_row("clz")
def _clz(w: Writer, e: E.Call) -> Text:
    dtype = e.args[0].dtype
    if dt.bits(dtype) < 32:
        return w.dialect.call(
            w, "clz", dtype, [(f"({w.dialect.type('u' + dtype.lstrip('u'))})({w.text(e.args[0])})", ATOM)]
        )
    return f"__clz{'ll' if dt.bits(dtype) == 64 else ''}({w.text(e.args[0])})", POSTFIX


@_row("call_extern", "call_pure_extern")
def _extern(w: Writer, e: E.Call) -> Text:
    return f"{_text_of(e.args[0])}({', '.join(w.text(a) for a in e.args[1:])})", POSTFIX


@_row("__dp4a", "dp4a")
def _dp4a(w: Writer, e: E.Call) -> Text:
    return f"__dp4a({', '.join(w.text(a) for a in e.args)})", POSTFIX


# ---- WMMA --------------------------------------------------------------------------------------------------------------

_WMMA = "nvcuda::wmma::"
_WMMA_TYPES = {"int4": _WMMA + "experimental::precision::s4", "uint4": _WMMA + "experimental::precision::u4", "int1": _WMMA + "experimental::precision::b1"}  # fmt: skip


def fragment_type(w: Writer, v: E.Var, scope: str, dtype: str) -> tuple[str, int]:
    """The C++ type of a fragment, and how many elements it holds. Its shape and layout stand in attributes around it."""
    known = w.fragments.get(v, {})
    if "shape" not in known:
        raise CompileError.at(
            "TW0676",
            f"the fragment {v.name!r} ({scope}) of kernel {w.name!r} has no shape",
            hint="run InferFragment: it sets fragment_shape and fragment_layout",
        )
    m, n, k = (int(x) for x in known["shape"].split(","))
    role = scope.removeprefix("wmma.")
    element = _WMMA_TYPES.get(dtype) or w.dialect.type(dtype)
    layout = ""
    if role != "accumulator":
        layout = f", {_WMMA}{known.get('layout', 'row_major')}"
    size = {"matrix_a": m * k, "matrix_b": k * n, "accumulator": m * n}[role]
    return f"{_WMMA}fragment<{_WMMA}{role}, {m}, {n}, {k}, {element}{layout}>", size


def _fragment(w: Writer, v: Any, index: Any) -> str:
    return f"{w.text(v)}[{w.index(index)}]"


@_row("tvm_fill_fragment")
def _fill(w: Writer, e: E.Call) -> Text:
    v, _, _, _, index, value = e.args
    return f"{_WMMA}fill_fragment({_fragment(w, v, index)}, {w.text(value)})", POSTFIX


@_row("tvm_load_matrix_sync")
def _load_matrix(w: Writer, e: E.Call) -> Text:
    v, _, _, _, index, pointer, stride, layout = e.args
    args = f"{_fragment(w, v, index)}, {w.text(pointer)}, {w.index(stride)}"
    if w.pointers.get(v, ("", ""))[1] == "wmma.accumulator":
        args += f", {_WMMA}mem_{_text_of(layout)}"
    return f"{_WMMA}load_matrix_sync({args})", POSTFIX


@_row("tvm_store_matrix_sync")
def _store_matrix(w: Writer, e: E.Call) -> Text:
    v, _, _, _, index, pointer, stride, layout = e.args
    place = f"{_WMMA}mem_{_text_of(layout)}"
    return f"{_WMMA}store_matrix_sync({w.text(pointer)}, {_fragment(w, v, index)}, {w.index(stride)}, {place})", POSTFIX


@_row("tvm_mma_sync", "tvm_bmma_sync")
def _mma_sync(w: Writer, e: E.Call) -> Text:
    name = "bmma_sync" if e.op.name.endswith("bmma_sync") else "mma_sync"  # pyright: ignore[reportAttributeAccessIssue]
    parts = [_fragment(w, e.args[i], e.args[i + 1]) for i in range(0, 8, 2)]
    return f"{_WMMA}{name}({', '.join(parts)})", POSTFIX


# ---- inline PTX --------------------------------------------------------------------------------------------------------

_PTX_TYPES = {
    "fp16": "f16", "fp32": "f32", "fp64": "f64", "bf16": "bf16", "tf32": "tf32", "int8": "s8", "uint8": "u8", "int4": "s4", "uint4": "u4",
    "int32": "s32", "int1": "b1", "uint1": "b1", "float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16", "e4m3": "e4m3",
    "e5m2": "e5m2", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip
_PTX_BITS = {"f16": 16, "f32": 32, "f64": 64, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "s32": 32, "b1": 1, "e4m3": 8, "e5m2": 8}  # fmt: skip


def _ptx_type(w: Writer, a: Any) -> str:
    name = _text_of(a)
    found = _PTX_TYPES.get(name)
    if found is None:
        raise w.unsupported(f"an mma of {name}", f"known: {', '.join(_PTX_TYPES)}")
    return found


def _registers(w: Writer, kind: str, count: int, pointer: str) -> tuple[str, list[str]]:
    """The asm constraint of a register, and the places in memory that the registers are."""
    constraint = {"f32": "f", "f64": "d"}.get(kind, "r")
    ty = {"f": "float", "d": "double", "r": "unsigned int"}[constraint]
    return constraint, [f"(({ty}*)({pointer}))[{i}]" for i in range(count)]


def _offset(w: Writer, v: Any, offset: Any) -> str:
    text = w.at(v, ADD)
    if isinstance(offset, E.IntImm) and offset.value == 0:
        return text
    return f"{text} + {w.index(offset, ADD + 1)}"


def _asm(w: Writer, text: str, outs: list[str], ins: list[str]) -> None:
    """An asm statement over several lines."""
    w.line("asm volatile(")
    w.depth += 1
    w.line(f'"{text}\\n"')
    w.line(f": {', '.join(outs)}")
    w.line(f": {', '.join(ins)});")
    w.depth -= 1


def _numbered(start: int, count: int) -> str:
    return "{" + ", ".join(f"%{start + i}" for i in range(count)) + "}"


@_row("ptx_mma", "ptx_mma_sp")
def _ptx_mma(w: Writer, e: E.Call) -> Text:
    sparse = e.op.name.endswith("_sp")  # pyright: ignore[reportAttributeAccessIssue]
    shape, layout_a, layout_b = (_text_of(a) for a in e.args[:3])
    kinds = [_ptx_type(w, a) for a in e.args[3:6]]
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    sizes = [int(m) * int(k) // (2 if sparse else 1), int(k) * int(n), int(m) * int(n)]
    counts = [max(1, s * _PTX_BITS[t] // 32 // (64 if t == "f64" else 32)) for s, t in zip(sizes, kinds)]
    pointers = [_offset(w, e.args[i], e.args[i + 1]) for i in (6, 8, 10)]
    regs = [_registers(w, t, c, p) for t, c, p in zip(kinds, counts, pointers)]
    (ca, a), (cb, b), (cc, c) = regs
    tail = list(e.args[12:])
    extra, more = "", [] if not sparse else [f'"r"(((unsigned int*)({_offset(w, tail[0], tail[1])}))[0])']
    n_c, n_a, n_b = len(c), len(a), len(b)
    if sparse:
        extra = f", %{2 * n_c + n_a + n_b}, 0x{int(tail[2]):x}"
        tail = tail[3:]
    saturate = bool(tail) and bool(getattr(tail[0], "value", tail[0]))
    operator = (
        f".{_text_of(tail[1])}.popc" if len(tail) > 1 and _text_of(tail[1]) else ".xor.popc" if kinds[0] == "b1" else ""
    )
    head = f"mma{'.sp' if sparse else ''}.sync.aligned.{shape}.{layout_a}.{layout_b}{'.satfinite' if saturate else ''}"
    text = (
        f"{head}.{kinds[2]}.{kinds[0]}.{kinds[1]}.{kinds[2]}{operator} {_numbered(0, n_c)}, {_numbered(n_c, n_a)}, "
        f"{_numbered(n_c + n_a, n_b)}, {_numbered(n_c + n_a + n_b, n_c)}{extra};"
    )
    ins = [f'"{ca}"({x})' for x in a] + [f'"{cb}"({x})' for x in b] + [f'"{cc}"({x})' for x in c] + more
    _asm(w, text, [f'"={cc}"({x})' for x in c], ins)
    return _done()


@_row("ptx_ldmatrix")
def _ldmatrix(w: Writer, e: E.Call) -> Text:
    transposed = bool(getattr(e.args[0], "value", e.args[0]))
    count, kind = int(e.args[1]), _text_of(e.args[2])
    local, shared = _offset(w, e.args[3], e.args[4]), _offset(w, e.args[5], e.args[6])
    w.mod.helper("tw_shared_address")
    text = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared{kind} {_numbered(0, count)}, [%{count}];"
    outs = [f'"=r"(((unsigned int*)({local}))[{i}])' for i in range(count)]
    _asm(w, text, outs, [f'"r"(tw_shared_address({shared}))'])
    return _done()


@_row("ptx_cp_async")
def _cp_async(w: Writer, e: E.Call) -> Text:
    shared, source = _offset(w, e.args[0], e.args[1]), _offset(w, e.args[2], e.args[3])
    size = int(e.args[4])
    w.mod.helper("tw_shared_address")
    mode = "cg" if size == 16 else "ca"
    ins = [f'"r"(tw_shared_address({shared}))', f'"l"((const void*)({source}))', f'"n"({size})']
    if len(e.args) > 5:  # bytes beyond the predicate are zeros
        ins.append(f'"r"({w.at(e.args[5], UNARY)} ? {size} : 0)')
        _asm(w, f"cp.async.{mode}.shared.global [%0], [%1], %2, %3;", [], ins)
    else:
        _asm(w, f"cp.async.{mode}.shared.global [%0], [%1], %2;", [], ins)
    return _done()


@_row("ptx_commit_group")
def _commit(w: Writer, e: E.Call) -> Text:
    return 'asm volatile("cp.async.commit_group;\\n" ::)', POSTFIX


@_row("ptx_wait_group")
def _wait(w: Writer, e: E.Call) -> Text:
    return f'asm volatile("cp.async.wait_group {int(e.args[0])};\\n" ::)', POSTFIX


@_row("mma_fill")
def _mma_fill(w: Writer, e: E.Call) -> Text:
    count, v, offset = e.args
    i = w.fresh("i")
    zero = w.text(E.FloatImm(e.dtype, 0.0) if dt.is_float(e.dtype) else E.IntImm("int32", 0))
    with w.block(f"for (int {i} = 0; {i} < {w.index(count)}; ++{i})"):
        w.line(f"{w.text(v)}[{w.index(offset, ADD)} + {i}] = {zero};")
    return _done()


@_row("mma_store")
def _mma_store(w: Writer, e: E.Call) -> Text:
    """A 16 x 16 accumulator of `mma` from the registers of a warp to memory."""
    m, n, target, source, offset, stride = e.args
    if (int(m), int(n)) != (16, 16):
        raise w.unsupported(f"mma_store of {int(m)} x {int(n)}", "16 x 16 has a layout")
    i, p = w.fresh("i"), w.at(target, POSTFIX)
    row = f"({i} % 4 / 2 * 8 + threadIdx.x / 4)"
    column = f"{i} / 4 * 8 + threadIdx.x % 4 * 2 + {i} % 2"
    with w.block(f"for (int {i} = 0; {i} < 8; ++{i})"):
        w.line(f"({p})[{row} * {w.index(stride, 13)} + {column}] = {w.text(source)}[{w.index(offset, ADD)} + {i}];")
    return _done()
