"""Run compiled kernels of another processor: static programs under qemu's user mode, WebAssembly in wasmtime.

`run_elsewhere(f, arch, *arrays)` gives the arrays after the kernel ran on them. A small C program, compiled by ziglang's
clang without any library, reads the arrays from its input, calls the kernel, and writes them to its output.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tilewright.backends.llvm.codegen import compile_object
from tilewright.backends.llvm.emit import emit_module, function_symbol
from tilewright.ir.target import Target

ZIG = [sys.executable, "-m", "ziglang"]


class Arch:
    """`target`: what is compiled for; `run`: the emulator; `zig`: clang's options for the frame around the kernel."""

    def __init__(self, target, run, zig):
        self.target, self.run, self.zig = Target(target), run, zig


ARCHES = {
    "aarch64": Arch(
        "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
        ["qemu-aarch64", "-cpu", "cortex-a72"],
        ["-target", "aarch64-freestanding-none"],
    ),
    "sve": Arch(
        "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1",
        ["qemu-aarch64", "-cpu", "max,sve256=on"],
        ["-target", "aarch64-freestanding-none"],
    ),
    "riscv64": Arch(
        "llvm -mtriple=riscv64-linux-gnu -mattr=+m,+a,+f,+d",
        ["qemu-riscv64", "-cpu", "rv64"],
        ["-target", "riscv64-freestanding-none", "-mcpu=generic_rv64+m+a+f+d"],
    ),
    "rvv": Arch(
        "llvm -mtriple=riscv64-linux-gnu -mattr=+m,+a,+f,+d,+v,+zvl256b -vector-width=256",
        ["qemu-riscv64", "-cpu", "rv64,v=true,vlen=256,vext_spec=v1.0"],
        ["-target", "riscv64-freestanding-none", "-mcpu=generic_rv64+m+a+f+d"],
    ),
    "wasm32": Arch("llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128", None, ["-target", "wasm32-freestanding"]),
}

FRAME = """
typedef __SIZE_TYPE__ size_t;
void *memset(void *d, int c, size_t n) { volatile char *p = d; while (n--) *p++ = (char)c; return d; }
void *memcpy(void *d, const void *s, size_t n) { volatile char *p = d; const char *q = s; while (n--) *p++ = *q++; return d; }
void *memmove(void *d, const void *s, size_t n) {
    volatile char *p = d; const char *q = s;
    if (d < s) while (n--) *p++ = *q++; else while (n--) p[n] = q[n];
    return d;
}
static _Alignas(64) char heap[1 << 24];
static size_t used;
void *tw_alloc(long long n) { void *p = heap + used; used += ((size_t)n + 63) & ~(size_t)63; return used > sizeof heap ? 0 : p; }
void tw_free(void *p) { (void)p; }
int tw_parallel_for(int (*f)(void *, long long, long long), void *closure, long long n) { return f(closure, 0, n); }
"""
SYSTEM = """
static long sys(long n, long x, long y, long z) {
#if defined(__aarch64__)
    register long x8 __asm__("x8") = n; register long x0 __asm__("x0") = x;
    register long x1 __asm__("x1") = y; register long x2 __asm__("x2") = z;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#else
    register long a7 __asm__("a7") = n; register long a0 __asm__("a0") = x;
    register long a1 __asm__("a1") = y; register long a2 __asm__("a2") = z;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2) : "memory");
    return a0;
#endif
}
static void whole(long call, long fd, char *p, long n) { while (n > 0) { long k = sys(call, fd, (long)p, n); if (k <= 0) sys(93, 9, 0, 0); p += k; n -= k; } }
"""


def missing(arch):
    """Why kernels for `arch` cannot be run here, or None."""
    if importlib.util.find_spec("ziglang") is None:
        return "the package ziglang is not installed"
    if arch == "wasm32":
        return None if importlib.util.find_spec("wasmtime") else "the package wasmtime is not installed"
    return None if shutil.which(ARCHES[arch].run[0]) else f"{ARCHES[arch].run[0]} is not installed (Debian: qemu-user)"


def run(command, **options):
    cache = os.path.join(tempfile.gettempdir(), "tilewright-zig-cache")
    env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    done = subprocess.run(command, capture_output=True, check=False, env=env, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.returncode}\n{done.stderr.decode()[-3000:]}"
    return done.stdout


def c_program(symbol, arrays, system):
    """The frame with static arrays and a call of the kernel."""
    lines = [FRAME, SYSTEM if system else ""]
    lines += [f"static _Alignas(64) char a{i}[{max(a.nbytes, 1)}];" for i, a in enumerate(arrays)]
    kernel = symbol if symbol.isidentifier() else "kernel"
    lines.append(f'extern int {kernel}({", ".join("void *" for _ in arrays)}) __asm__("{symbol}");')
    call = f"{kernel}({', '.join(f'a{i}' for i in range(len(arrays)))})"
    if system:
        reads = "".join(f"whole(63, 0, a{i}, {a.nbytes});" for i, a in enumerate(arrays))
        writes = "".join(f"whole(64, 1, a{i}, {a.nbytes});" for i, a in enumerate(arrays))
        lines.append(f"void _start(void) {{ {reads} int r = {call}; {writes} sys(93, r, 0, 0); }}")
    else:
        lines += [f"void *array{i}(void) {{ return a{i}; }}" for i in range(len(arrays))]
        lines.append(f"int run(void) {{ return {call}; }}")
    return "\n".join(lines)


def run_elsewhere(f, arch, *arrays, opt="auto"):
    """The arrays after the flat function `f` (all params are pointers) ran on them on `arch`."""
    a = ARCHES[arch]
    emitted = emit_module([f], a.target)
    assert not emitted.constants
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernel.o").write_bytes(compile_object(emitted.text, a.target, opt))
        (folder / "frame.c").write_text(c_program(function_symbol(f), arrays, arch != "wasm32"))
        options = ["-std=c11", "-ffreestanding", "-nostdlib", "-fno-builtin", "-O1"]
        run([*ZIG, "cc", *a.zig, *options, "-c", folder / "frame.c", "-o", folder / "frame.o"])
        objects = [folder / "frame.o", folder / "kernel.o"]
        if arch == "wasm32":
            return wasm(folder, objects, arrays)
        run([*ZIG, "ld.lld", "-static", "-o", folder / "program", *objects])
        given = b"".join(np.ascontiguousarray(x).tobytes() for x in arrays)
        return split(run([*a.run, folder / "program"], input=given), arrays)


def split(data, arrays):
    out, start = [], 0
    for x in arrays:
        out.append(np.frombuffer(data[start : start + x.nbytes], x.dtype).reshape(x.shape))
        start += x.nbytes
    assert start == len(data)
    return out


def wasm(folder, objects, arrays):
    import wasmtime

    exports = [f"--export={n}" for n in ("run", *(f"array{i}" for i in range(len(arrays))))]
    run([*ZIG, "wasm-ld", "--no-entry", *exports, "-o", folder / "program.wasm", *objects])
    store = wasmtime.Store()
    instance = wasmtime.Instance(store, wasmtime.Module(store.engine, (folder / "program.wasm").read_bytes()), [])
    found = instance.exports(store)
    memory = found["memory"]
    places = [found[f"array{i}"](store) for i in range(len(arrays))]
    for place, x in zip(places, arrays, strict=True):
        memory.write(store, np.ascontiguousarray(x).tobytes(), place)
    assert found["run"](store) == 0
    data = b"".join(bytes(memory.read(store, p, p + x.nbytes)) for p, x in zip(places, arrays, strict=True))
    return split(data, arrays)
