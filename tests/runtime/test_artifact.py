"""Files of compiled programs: what is written is what is read, and what is broken says so."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright.arith.expr import Var, const, pointer_var
from tilewright.backends.llvm import artifact as files
from tilewright.backends.llvm import link
from tilewright.backends.llvm.codegen import compile_object
from tilewright.backends.llvm.emit import emit_module
from tilewright.ir.target import Target, host_info
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.executable import Executable, load
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import AllocateConst, BufferLoad, BufferStore, For, ForKind, PrimFunc, decl_buffer
from tilewright.tir.lower.make_packed_api import make_packed_api

HAS_LD = shutil.which("ld") is not None
needs_linker = pytest.mark.skipif(not (HAS_LD or shutil.which("cc") or find_spec("ziglang")), reason="no linker")
ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="libraries are made for Linux only")


def program(weights: np.ndarray, parallel: bool = False) -> Artifact:
    """y[n] = x[n] + weights[n], the weights a constant; `parallel`: on all threads."""
    n = weights.size
    dtype = str(weights.dtype)
    x, y = decl_buffer((n,), dtype, "x"), decl_buffer((n,), dtype, "y")
    data = pointer_var("w", dtype)
    w = decl_buffer((n,), dtype, "w", data=data)
    i = Var("i", "int64")
    kind = ForKind.PARALLEL if parallel else ForKind.SERIAL
    body = For(
        i, const(0, "int64"), const(n, "int64"), kind, BufferStore(y, BufferLoad(x, (i,)) + BufferLoad(w, (i,)), (i,))
    )
    const_body = AllocateConst(data, dtype, (const(n, "int64"),), weights, body)
    px, py = Var("x", "handle"), Var("y", "handle")
    f = PrimFunc((px, py), const_body, None, {px: x, py: y}, {"global_symbol": "main", "num_outputs": 1})
    target = Target("llvm")
    emitted = emit_module([make_packed_api(f)], target)
    params = [{"name": s, "dtype": dtype, "shape": [n]} for s in "xy"]
    return Artifact(
        objects={"main": compile_object(emitted.text, target, "kernel")},
        constants=list(emitted.constants),
        entries={"main": {"inputs": params[:1], "outputs": params[1:], "returns_tuple": False}},
        triple=target.mtriple,
        target=str(target),
        stats={"compile_seconds": 0.5, "kernels": 1},
        source=lambda fmt: emitted.text,
    )


W = np.arange(1000, dtype=np.float32)
X = np.random.default_rng(0).standard_normal(1000).astype(np.float32)


@pytest.fixture(scope="module")
def made() -> Executable:
    return Executable.from_artifact(program(W))


def test_in_process(made):
    np.testing.assert_array_equal(made(X), X + W)


@pytest.mark.parametrize("ending", [".tw", pytest.param(".so", marks=[needs_linker, ON_LINUX])])
def test_round_trip(made, ending, tmp_path):
    path = tmp_path / f"model{ending}"
    made.export_library(path)
    assert os.listdir(tmp_path) == [path.name], "something else was left behind"
    again = load(path)
    np.testing.assert_array_equal(again(X), X + W)
    np.testing.assert_array_equal(again(x=X), X + W)
    assert again.signature == made.signature
    assert again.stats["kernels"] == 1
    assert tvm.runtime.load_module(str(path))["main"](X).shape == (1000,)
    with pytest.raises(ValueError, match=r"input 'x' has shape \(3,\), but dimension 0 must be 1000"):
        again(X[:3])


def test_archive_of_an_archive(made, tmp_path):
    made.export_library(tmp_path / "a.tw")
    load(tmp_path / "a.tw").export_library(tmp_path / "b.tw")
    assert (tmp_path / "a.tw").read_bytes() == (tmp_path / "b.tw").read_bytes()


@needs_linker
@ON_LINUX
def test_parallel_library_uses_the_pool_of_the_process(tmp_path):
    exe = Executable.from_artifact(program(W, parallel=True))
    exe.export_library(tmp_path / "p.so")
    again = load(tmp_path / "p.so")
    for threads in (1, 2, 4):
        tvm.set_num_threads(threads)
        np.testing.assert_array_equal(again(X), X + W)
    tvm.set_num_threads(0)


@needs_linker
@ON_LINUX
def test_library_runs_without_this_package(tmp_path):
    Executable.from_artifact(program(W, parallel=True)).export_library(tmp_path / "p.so")
    code = f"""
import sys, numpy as np, tvm_ffi
m = tvm_ffi.load_module({str(tmp_path / "p.so")!r})
x = np.ones(1000, np.float32)
for _ in range(50):
    y = np.from_dlpack(m["main"](x))
assert (y == 1 + np.arange(1000)).all()
try:
    m["main"](x[:5])
except ValueError as e:
    print(e)
assert "tilewright" not in sys.modules
"""
    env = {**os.environ, "TILEWRIGHT_NUM_THREADS": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "dimension 0 of parameter 'x' is 5, it must be 1000" in done.stdout


@needs_linker
@ON_LINUX
@pytest.mark.parametrize("dtype", ["int8", "float64", "bfloat16", "bool"])
@pytest.mark.parametrize("ending", [".tw", ".so"])
def test_constants_of_other_dtypes(dtype, ending, tmp_path):
    from tilewright.ir.dtype import to_numpy

    values = np.arange(100).astype(to_numpy(dtype))
    artifact = program(W)
    artifact.constants.append(("extra", values))
    files.write(artifact, tmp_path / f"m{ending}")
    if ending == ".tw":
        back = dict(files.read(tmp_path / "m.tw").constants)["extra"]
        assert back.dtype == values.dtype
        assert (back == values).all()
        assert back.ctypes.data % 64 == 0
    np.testing.assert_array_equal(load(tmp_path / f"m{ending}")(X), X + W)


@needs_linker
@ON_LINUX
def test_object_links_into_a_library(made, tmp_path):
    made.export_library(tmp_path / "m.o")
    assert os.listdir(tmp_path) == ["m.o"]
    with pytest.raises(CompileError, match="TW0701.*single object"):
        load(tmp_path / "m.o")
    kind, command = link.find_linker(host_info().triple)[0]
    flags = ["-nostdlib"] if kind == "cc" else []
    subprocess.run([*command, *flags, "-shared", "-o", str(tmp_path / "m.so"), str(tmp_path / "m.o")], check=True)
    np.testing.assert_array_equal(load(tmp_path / "m.so")(X), X + W)


def test_text(made, tmp_path):
    made.export_library(tmp_path / "m.ll")
    assert "define" in (tmp_path / "m.ll").read_text()
    made.export_library(tmp_path / "m.tw")
    with pytest.raises(CompileError, match="TW0714"):
        load(tmp_path / "m.tw").export_library(tmp_path / "again.ll")
    assert sorted(os.listdir(tmp_path)) == ["m.ll", "m.tw"]


# ---- what goes wrong


def test_unknown_ending(made, tmp_path):
    with pytest.raises(CompileError, match=r"TW0713.*'m.xyz'"):
        made.export_library(tmp_path / "m.xyz")


@pytest.mark.parametrize("ending", [".tw", ".ll", pytest.param(".so", marks=[needs_linker, ON_LINUX])])
def test_no_such_folder(made, ending, tmp_path):
    with pytest.raises(CompileError, match="TW0712.*No such file or directory"):
        made.export_library(tmp_path / "missing" / f"m{ending}")
    assert os.listdir(tmp_path) == []


def test_failed_write_leaves_nothing_and_keeps_the_old_file(made, tmp_path, monkeypatch):
    path = tmp_path / "m.tw"
    made.export_library(path)
    before = path.read_bytes()

    def full(f, offset):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_pad_to", full)
    with pytest.raises(CompileError, match=r"TW0712.*m.tw: No space left on device"):
        made.export_library(path)
    assert os.listdir(tmp_path) == ["m.tw"]
    assert path.read_bytes() == before


@needs_linker
@ON_LINUX
def test_no_space_for_the_linkers_inputs(made, tmp_path, monkeypatch):
    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CompileError, match=r"TW0712.*m.so: No space left on device"):
        made.export_library(tmp_path / "m.so")
    assert os.listdir(tmp_path) == []


@ON_LINUX
def test_no_linker_names_all_three(made, tmp_path, monkeypatch):
    monkeypatch.setattr(link.shutil, "which", lambda name: None)
    monkeypatch.setattr(link.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        CompileError, match=r"(?s)TW0710.*ld, cc \(gcc\), and ziglang's ld.lld.*pip install 'tilewright\[link\]'"
    ):
        made.export_library(tmp_path / "m.so")
    assert os.listdir(tmp_path) == []


@ON_LINUX
def test_linkers_are_tried_in_order(monkeypatch):
    monkeypatch.setattr(link.shutil, "which", lambda name: f"/bin/{name}" if name != "gcc" else None)
    monkeypatch.setattr(link.importlib.util, "find_spec", lambda name: object())
    found = link.find_linker(host_info().triple)
    assert [c[0] for _, c in found] == ["/bin/ld", "/bin/cc", sys.executable]
    assert link.find_linker("aarch64-unknown-linux-gnu" if "x86" in host_info().triple else "x86_64-unknown-linux-gnu")[
        0
    ][1][1:] == ["-m", "ziglang", "ld.lld"]


@ON_LINUX
def test_failing_linkers_say_why(made, tmp_path, monkeypatch):
    bad = tmp_path / "ld"
    bad.write_text("#!/bin/sh\necho the linker is ill >&2\nexit 1\n")
    bad.chmod(0o755)
    monkeypatch.setattr(link, "_candidates", lambda foreign: [("ld", [str(bad)])])
    with pytest.raises(CompileError, match="(?s)TW0711.*the linker is ill"):
        made.export_library(tmp_path / "m.so")
    assert os.listdir(tmp_path) == ["ld"]


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
@ON_LINUX
def test_c_compiler_as_linker(made, tmp_path, monkeypatch):
    monkeypatch.setattr(link, "_candidates", lambda foreign: [("cc", [shutil.which("cc")])])
    made.export_library(tmp_path / "m.so")
    np.testing.assert_array_equal(load(tmp_path / "m.so")(X), X + W)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*nothing.tw"):
        load(tmp_path / "nothing.tw")


@pytest.mark.parametrize("contents", [b"", b"hello world, this is no model", b"PK\x03\x04" + b"\0" * 100])
def test_foreign_file(contents, tmp_path):
    path = tmp_path / "m.tw"
    path.write_bytes(contents)
    with pytest.raises(CompileError, match="TW0701|TW0702"):
        load(path)


def test_every_truncation_of_an_archive(made, tmp_path):
    path = tmp_path / "m.tw"
    made.export_library(path)
    whole = path.read_bytes()
    for length in [1, 7, 8, 20, 40, 100, 500, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(CompileError, match="TW0702"):
            load(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(CompileError, match="TW0702"):
        load(path)


def test_damage_in_header_and_code(made, tmp_path):
    path = tmp_path / "m.tw"
    made.export_library(path)
    whole = bytearray(path.read_bytes())
    code = whole.index(b"\x7fELF") if b"\x7fELF" in whole else 2000
    for at in (45, 200, code + 3, code + 900):
        changed = bytearray(whole)
        changed[at] ^= 0x55
        path.write_bytes(changed)
        with pytest.raises(CompileError, match=r"TW0702.*checksum"):
            load(path)


def test_other_version(made, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FORMAT", 99)
    made.export_library(tmp_path / "m.tw")
    monkeypatch.undo()
    with pytest.raises(CompileError, match="TW0703.*format 99"):
        load(tmp_path / "m.tw")


def test_other_machine(tmp_path):
    foreign = program(W)
    foreign.triple = "s390x-unknown-linux-gnu"
    files.write_archive(foreign, tmp_path / "m.tw")
    with pytest.raises(CompileError, match="TW0704.*made for s390x"):
        load(tmp_path / "m.tw")
    lacking = program(W)
    lacking.features = ("amx-of-the-future",)
    files.write_archive(lacking, tmp_path / "m.tw")
    with pytest.raises(CompileError, match="TW0705.*amx-of-the-future"):
        load(tmp_path / "m.tw")


@needs_linker
@ON_LINUX
def test_broken_libraries(made, tmp_path):
    path = tmp_path / "m.so"
    made.export_library(path)
    whole = path.read_bytes()
    for length in (4, 100, len(whole) // 3):
        cut = tmp_path / f"cut{length}.so"
        cut.write_bytes(whole[:length])
        with pytest.raises(CompileError, match="TW0702|TW0704"):
            load(cut)
    import tvm_ffi

    with pytest.raises(CompileError, match=r"TW0701.*none that tilewright made"):
        load(Path(tvm_ffi.libinfo.find_libtvm_ffi()))


@ON_LINUX
def test_library_for_another_machine(tmp_path, monkeypatch):
    foreign = program(W)
    foreign.triple = "wasm32-unknown-unknown"
    with pytest.raises(CompileError, match="TW0715"):
        files.write(foreign, tmp_path / "m.so")


@pytest.mark.slow
@needs_linker
@ON_LINUX
@pytest.mark.parametrize("ending", [".tw", ".so"])
def test_half_a_gigabyte_of_weights(ending, tmp_path):
    weights = np.arange(125_000_000, dtype=np.float32)
    Executable.from_artifact(program(weights)).export_library(tmp_path / f"m{ending}")
    again = load(tmp_path / f"m{ending}")
    x = np.ones(weights.size, np.float32)
    y = again(x)
    assert (y == weights + 1).all()


HOST = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
typedef struct { void *data; int32_t device, id, ndim; uint8_t code, bits; uint16_t lanes; int64_t *shape, *strides; uint64_t offset; } Tensor;
typedef struct { int32_t type; uint32_t pad; void *value; } Any;
typedef int (*Packed)(void *, Any *, int32_t, Any *);
int main(int argc, char **argv) {
  if (!dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) return puts(dlerror()), 2;
  void *lib = dlopen(argv[2], RTLD_NOW);
  if (!lib) return puts(dlerror()), 3;
  Packed f = (Packed)dlsym(lib, "__tvm_ffi_main");
  void (*threads)(int) = (void (*)(int))dlsym(lib, "tw_set_num_threads");
  static float x[1000], y[1000];
  int64_t n = 1000;
  Tensor a = {x, 1, 0, 1, 2, 32, 1, &n, 0, 0}, b = {y, 1, 0, 1, 2, 32, 1, &n, 0, 0};
  Any args[2] = {{7, 0, &a}, {7, 0, &b}}, ret = {0, 0, 0};
  for (int k = 0; k < 200; k++) {
    threads(1 + k % 3);
    if (f(0, args, 2, &ret)) return 4;
  }
  for (int i = 0; i < 1000; i++) if (y[i] != i) return 5;
  n = 5;
  printf("%d\n", f(0, args, 2, &ret));
  return 0;
}
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
@needs_linker
@ON_LINUX
def test_library_in_a_c_program(tmp_path):
    import tvm_ffi

    Executable.from_artifact(program(W, parallel=True)).export_library(tmp_path / "m.so")
    (tmp_path / "host.c").write_text(HOST)
    subprocess.run(["cc", "-o", "host", "host.c", "-ldl"], cwd=tmp_path, check=True)
    done = subprocess.run(
        [tmp_path / "host", tvm_ffi.libinfo.find_libtvm_ffi(), tmp_path / "m.so"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "-1\n"), done.stderr


@pytest.mark.skipif(find_spec("ziglang") is None, reason="no ziglang")
@ON_LINUX
@pytest.mark.parametrize(
    "target, machine",
    [
        ("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=cortex-a72", 183),
        ("llvm -mtriple=riscv64-unknown-linux-gnu -mattr=+m,+a,+f,+d,+c", 243),
    ],
)
def test_library_for_another_processor(target, machine, tmp_path):
    from tilewright import te
    from tilewright.driver.compile import compile_module
    from tilewright.ir.module import IRModule

    n = te.var("n", "int64")
    a = te.placeholder((n, 4), "float32", "a")
    c = te.compute((n, 4), lambda i, j: te.exp(a[i, j]), "c")
    func = te.create_prim_func([a, c]).with_attr({"global_symbol": "main", "num_outputs": 1})
    made = files.artifact_of(compile_module(IRModule.from_expr(func), Target(target)))
    files.write(made, tmp_path / "m.so")
    assert int.from_bytes((tmp_path / "m.so").read_bytes()[18:20], "little") == machine
    with pytest.raises(CompileError, match="TW0704"):
        load(tmp_path / "m.so")


def test_calls_from_many_threads_at_once():
    import threading

    exe = Executable.from_artifact(program(W, parallel=True))
    wrong: list[str] = []

    def work(seed: int):
        x = np.random.default_rng(seed).standard_normal(1000).astype(np.float32)
        for _ in range(200):
            if not np.array_equal(exe(x), x + W):
                wrong.append("values")
            try:
                exe(x[:7])
                wrong.append("no error")
            except ValueError:
                pass

    started = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in started:
        t.start()
    for t in started:
        t.join()
    assert not wrong
