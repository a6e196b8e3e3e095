"""The thread pool: every iteration runs once, whatever else goes on."""

import ctypes
import os
import subprocess
import sys
import threading
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import llvmlite.binding as ll
import numpy as np
import pytest

from tilewright.backends.llvm.runtime_ir import EXPORTS, runtime_text, system_of
from tilewright.runtime import threads
from tilewright.support.diagnostics import CompileError

_spec = spec_from_file_location("runtime_native", Path(__file__).with_name("native.py"))
_module = module_from_spec(_spec)
_spec.loader.exec_module(_module)
native = _module.native


@pytest.fixture(autouse=True)
def _restore_threads():
    yield
    threads.set_num_threads(0)


def run(n: int, times: int) -> np.ndarray:
    counts = np.zeros(n + 8, np.int32)
    assert native().many(counts.ctypes.data, n, times) == 0
    assert not counts[n:].any(), "iterations beyond the end ran"
    return counts[:n]


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [1, 2, 3, 9, 100, 1000])
def test_every_iteration_runs_once(workers, n):
    threads.set_num_threads(workers)
    assert (run(n, 300) == 300).all()


def test_no_iterations():
    assert native().many(0, 0, 3) == 0


def test_thousands_of_regions():
    threads.set_num_threads(2)
    assert (run(64, 20000) == 20000).all()


def test_number_of_threads_changes_between_regions():
    for workers in [2, 5, 1, 3, 2, 6, 1, 4] * 3:
        threads.set_num_threads(workers)
        assert threads.get_num_threads() == workers
        assert (run(50, 50) == 50).all()


def test_nested_regions_run():
    threads.set_num_threads(3)
    counts = np.zeros(20 * 100, np.int32)
    for _ in range(50):
        assert native().nested(counts.ctypes.data, 20) == 0
    assert (counts == 50).all()


def test_many_python_threads_at_once():
    threads.set_num_threads(2)
    native()
    wrong: list[int] = []

    def work():
        for _ in range(20):
            wrong.append(int((run(100, 200) != 200).sum()))

    started = [threading.Thread(target=work) for _ in range(5)]
    for t in started:
        t.start()
    for t in started:
        t.join()
    assert len(wrong) == 100
    assert not any(wrong)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork_while_regions_run():
    threads.set_num_threads(2)
    native()
    stop = threading.Event()

    def work():
        while not stop.is_set():
            run(100, 50)

    busy = [threading.Thread(target=work) for _ in range(2)]
    for t in busy:
        t.start()
    try:
        for _ in range(15):
            child = os.fork()
            if child == 0:
                os._exit(0 if (run(100, 100) == 100).all() else 3)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
    finally:
        stop.set()
        for t in busy:
            t.join()
    assert (run(100, 100) == 100).all()


@pytest.mark.parametrize("place", [0, 41, 99])
def test_error_of_a_task_reaches_the_caller(place):
    from tilewright.runtime.ffi import function_at

    threads.set_num_threads(2)
    counts = np.zeros(100, np.int32)
    checked = function_at(native().engine.address("__tvm_ffi_checked"), native().engine)
    for _ in range(200):
        counts[place] = 7
        with pytest.raises(ValueError, match="iteration"):
            checked(counts.ctypes.data, 100)
        counts[place] = 0
        checked(counts.ctypes.data, 100)


def test_allocator_aligns_and_recycles():
    a = native().pool.addresses
    alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(a["tw_alloc"])
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(a["tw_free"])
    for size in (0, 1, 100, 1 << 16, 5 << 20):
        block = alloc(size)
        assert block % 64 == 0
        ctypes.memset(block, 1, size)
        free(block)
    first = alloc(8 << 20)
    free(first)
    assert alloc(8 << 20) == first, "a big block is not recycled"
    second = alloc(8 << 20)
    assert second != first
    free(first)
    free(second)
    free(None)
    assert alloc(-1) is None
    assert alloc(1 << 60) is None
    native().pool.trim()


def test_allocator_from_many_threads():
    a = native().pool.addresses
    alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(a["tw_alloc"])
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(a["tw_free"])
    wrong: list[int] = []

    def work(tag: int):
        for i in range(300):
            size = 70000 + 1000 * ((i * 7 + tag) % 50)
            block = alloc(size)
            ctypes.memset(block, tag, size)
            held = ctypes.string_at(block, size)
            if held.count(bytes([tag])) != size:
                wrong.append(tag)
            free(block)

    started = [threading.Thread(target=work, args=(k + 1,)) for k in range(4)]
    for t in started:
        t.start()
    for t in started:
        t.join()
    assert not wrong


@pytest.mark.parametrize("n", [-1, 2000, True, 1.5, "2"])
def test_bad_number_of_threads(n):
    with pytest.raises(ValueError, match="number of threads"):
        threads.set_num_threads(n)


def test_environment_sets_the_default(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "3")
    threads.set_num_threads(0)
    assert threads.default_num_threads() == 3
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "many")
    with pytest.raises(CompileError, match="TW0720"):
        threads.default_num_threads()
    monkeypatch.delenv("TILEWRIGHT_NUM_THREADS")
    assert threads.default_num_threads() == threads.physical_cores() >= 1


def test_process_ends_cleanly_while_workers_spin():
    code = (
        f"from tilewright.support.lazy import resolve\nimport sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport native\n"
        "n = native.native(); n.pool.set_num_threads(4)\n"
        "import numpy as np\nc = np.zeros(100, np.int32)\nn.many(c.ctypes.data, 100, 50)\nprint(c.min())"
    )
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.strip()) == (0, "50"), done.stderr


@pytest.mark.parametrize("library", [False, True])
@pytest.mark.parametrize(
    "triple",
    [
        "x86_64-unknown-linux-gnu",
        "aarch64-unknown-linux-gnu",
        "riscv64-unknown-linux-gnu",
        "x86_64-unknown-linux-musl",
        "arm64-apple-macosx",
        "x86_64-pc-windows-msvc",
        "wasm32-unknown-unknown",
    ],
)
def test_text_is_sound_for_every_system(triple, library):
    atfork = "pthread_atfork" if "musl" in triple else "__register_atfork"
    module = ll.parse_assembly(runtime_text(triple, library=library, atfork=atfork))
    module.verify()
    defined = {f.name for f in module.functions if not f.is_declaration}
    assert set(EXPORTS) <= defined
    assert ("__tw_bind" in defined) == library
    if system_of(triple) == "none":
        assert "worker" not in defined
