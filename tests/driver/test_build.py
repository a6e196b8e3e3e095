"""The public ways in, under the names of the field."""

import numpy as np
import pytest

import tilewright as tvm
from tests.relax.test_lower_to_host import chain, expected
from tilewright import te
from tilewright.driver import kernels, workers
from tilewright.support.diagnostics import CompileError


def add_func(n=8):
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    return te.create_prim_func([a, b, te.compute((n,), lambda i: a[i] + b[i], name="C")])


def arrays(n=8):
    rng = np.random.default_rng(0)
    return [rng.random(n, np.float32) for _ in range(3)]


@pytest.mark.parametrize("way", [tvm.build, tvm.compile])
def test_build_a_loop_program(way):
    rt = way(tvm.IRModule({tvm.ir.GlobalVar("add"): add_func()}), target="llvm")
    a, b, c = (tvm.nd.array(x) for x in arrays())
    rt["add"](a, b, c)
    tvm.testing.assert_allclose(c.numpy(), a.numpy() + b.numpy())
    assert rt.time_evaluator("add", tvm.cpu(), number=3)(a, b, c).mean > 0


def test_build_one_function_by_name():
    rt = tvm.build(add_func(), name="sum")
    a, b, c = arrays()
    rt["sum"](a, b, c)
    np.testing.assert_array_equal(c, a + b)


def test_build_refuses_what_is_no_program():
    with pytest.raises(TypeError, match="build takes"):
        tvm.build("model")


def test_virtual_machine():
    mod = chain((3, 5), 3)
    ex = tvm.relax.build(mod, target="llvm")
    vm = tvm.relax.VirtualMachine(ex, tvm.cpu())
    x = np.random.default_rng(0).random((3, 5), np.float32)
    out = vm["main"](tvm.nd.array(x))
    tvm.testing.assert_allclose(out.numpy(), expected(x, 3), rtol=1e-6)
    vm.set_input("main", tvm.nd.array(x))
    vm.invoke_stateful("main")
    tvm.testing.assert_allclose(vm.get_outputs("main").numpy(), expected(x, 3), rtol=1e-6)
    with pytest.raises(ValueError, match="set_input"):
        tvm.relax.VirtualMachine(ex, tvm.cpu()).invoke_stateful("main")


def test_executable_takes_and_gives_the_callers_kind():
    exe = tvm.compile(chain((3, 5), 2))
    x = np.random.default_rng(0).random((3, 5), np.float32)
    assert isinstance(exe(x), np.ndarray)
    np.testing.assert_allclose(exe(x=x), expected(x, 2), rtol=1e-6)
    torch = pytest.importorskip("torch")
    out = exe(torch.from_numpy(x))
    assert isinstance(out, torch.Tensor)
    np.testing.assert_allclose(out.numpy(), expected(x, 2), rtol=1e-6)


@pytest.mark.parametrize(
    "args, kind, says",
    [
        ((np.zeros((3, 4), np.float32),), ValueError, "x"),
        ((np.zeros((3, 5), np.float64),), TypeError, "float64"),
        ((np.zeros((3,), np.float32),), ValueError, "x"),
        ((None,), TypeError, "x"),
        ((), TypeError, "x"),
        ((np.zeros((3, 5), np.float32),) * 3, TypeError, "1"),
    ],
)
def test_wrong_arguments_name_the_parameter(args, kind, says):
    exe = tvm.compile(chain((3, 5), 2))
    with pytest.raises(kind, match=says):
        exe(*args)


def test_wrong_name():
    exe = tvm.compile(chain((3, 5), 2))
    with pytest.raises((TypeError, ValueError), match="x"):
        exe(y=np.zeros((3, 5), np.float32))


def test_the_cache_serves_the_second_compilation(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    first = tvm.compile(chain((3, 7), 3)).stats
    again = tvm.compile(chain((3, 7), 3)).stats
    assert first["kernels_cached"] == 0
    assert again["kernels_cached"] == again["kernels"] == first["kernels"]
    assert tvm.compile(chain((3, 7), 3), cache=False).stats["kernels_cached"] == 0


def test_equal_kernels_are_compiled_once():
    done = kernels.compile_kernels(
        [("a", add_func(9)), ("b", add_func(9)), ("c", add_func(10))], tvm.target.Target("llvm"), use_cache=False
    )
    assert done[0] is done[1]
    assert done[0].symbol != done[2].symbol


def test_workers_give_what_this_process_gives(monkeypatch):
    monkeypatch.setattr(workers, "worker_count", lambda jobs: 1)
    got = {}
    jobs = [(str(n), add_func(n), f"add_{n}") for n in range(2, 14)]
    workers.run_all(jobs, tvm.target.Target("llvm"), lambda key, code: got.update({key: code}))
    assert set(got) == {key for key, _, _ in jobs}
    assert all(code[:4] == b"\x7fELF" or code for code in got.values())


def test_an_error_in_a_worker_is_raised_here(monkeypatch):
    monkeypatch.setattr(workers, "worker_count", lambda jobs: 1)
    broken = [(str(n), add_func(n).with_body(None), f"bad_{n}") for n in range(4)]
    with pytest.raises(Exception, match=r".+"):
        workers.run_all(broken, tvm.target.Target("llvm"), lambda key, code: None)


def test_an_unknown_target_says_what_there_is():
    with pytest.raises(CompileError, match="TW0651"):
        tvm.compile(chain((2, 2), 1), target="cuda")


def test_dump_ir(tmp_path):
    tvm.compile(chain((2, 2), 2), dump_ir=tmp_path)
    assert (tmp_path / "000-imported.py").read_text().startswith("# from tilewright.script")


def test_progress_is_told():
    seen = []
    tvm.compile(chain((2, 3), 2), progress=lambda *args: seen.append(args), cache=False)
    assert ("kernels", seen[-1][2], seen[-1][2]) == seen[-1]
