"""Targets: parsing, printing, refusing."""

import pickle

import pytest

import tilewright as tvm
from tilewright.ir.target import KINDS, Target, list_tags
from tilewright.support.diagnostics import CompileError


def test_prints_as_it_is_parsed():
    text = "llvm -mattr=+avx2,-fma -mcpu=znver3 -num-cores=2"
    assert str(Target(text)) == text
    assert Target(str(Target(text))) == Target(text)
    assert Target({"kind": "llvm", "mcpu": "znver3"}).mcpu == "znver3"


def test_features_follow_mattr():
    target = Target("llvm -mcpu=haswell -mattr=-fma,+avx512f")
    assert "avx512f" in target.features
    assert "fma" not in target.features
    assert target.vector_bytes == 64


@pytest.mark.parametrize("text", ["", "llwm", "llvm mcpu=x", "llvm -num-cores=two"])
def test_bad_targets_are_refused(text):
    with pytest.raises(CompileError, match="TW0901"):
        Target(text)


def test_scope():
    assert Target.current() is None
    with Target("llvm -num-cores=3") as t:
        assert Target.current() is t
    with pytest.raises(ValueError, match="with Target"):
        Target.current(allow_none=False)


def test_options_have_types():
    target = Target("cuda -arch=sm_80 -libs=cublas,cudnn -model=mine --max_num_threads 512")
    assert (target.arch, target.libs, target.model, target.max_num_threads) == (
        "sm_80",
        ["cublas", "cudnn"],
        "mine",
        512,
    )
    assert (target.thread_warp_size, target.keys) == (32, ["cuda", "gpu"])
    assert Target("vulkan --supports_float16=True").attrs["supports_float16"] == 1
    assert Target("llvm -cl-opt='-a=1,-b=2'").attrs["cl-opt"] == ["-a=1", "-b=2"]
    named = Target("vulkan -device_name='a name with spaces'")
    assert Target(str(named)) == named
    assert Target("opencl -device=mali").keys == ["mali", "opencl", "gpu"]
    assert Target("metal").max_shared_memory_per_block == 32768
    with pytest.raises(ValueError, match="says nothing of max_shared_memory_per_block"):
        _ = Target("webgpu").max_shared_memory_per_block


@pytest.mark.parametrize(
    "given",
    [
        "cuda -max_num_thread=3",
        "nvidia/no-such-gpu",
        {"kind": "llvm", "libs": {"a": 1}},
        "vulkan -supports_int8=2",
        "{x",
    ],
)
def test_options_that_make_no_sense_are_refused(given):
    with pytest.raises(CompileError, match="TW0901"):
        Target(given)


def test_machines_by_name():
    target = Target("nvidia/geforce-rtx-3070")
    assert (target.kind.name, target.arch, target.tag) == ("cuda", "sm_86", "nvidia/geforce-rtx-3070")
    changed = Target({"tag": "nvidia/nvidia-a100", "l2_cache_size_bytes": 1})
    assert (changed.arch, changed.attrs["l2_cache_size_bytes"], changed.attrs["registers_per_block"]) == (
        "sm_80",
        1,
        65536,
    )
    assert Target("apple/m1-gpu").host.mtriple == "arm64-apple-macos"
    assert Target("raspberry-pi/4b-aarch64").mcpu == "cortex-a72"
    assert all(t.kind.name in KINDS for t in list_tags().values())


def test_hosts():
    assert Target("cuda", host="llvm -mcpu=znver3").host == Target("llvm -mcpu=znver3")
    assert Target("cuda --host nvidia/jetson-nano").host.arch == "sm_53"
    assert Target({"kind": "cuda", "host": {"kind": "llvm"}}).host == Target("llvm")
    assert Target(Target("cuda", host="c")).host == Target("c")
    assert Target("cuda").with_host("llvm").host == Target("llvm")
    assert Target("cuda", host="llvm") != Target("cuda")
    both = Target("composite --host=llvm --devices=cuda,opencl")
    assert [d.kind.name for d in both.attrs["devices"]] == ["cuda", "opencl"]
    with pytest.raises(ValueError, match="string or dictionary"):
        Target("cuda", 12.5)
    target, host = Target.canon_target_and_host("cuda", "llvm")
    assert (target.kind.name, host) == ("cuda", Target("llvm"))


@pytest.mark.parametrize(
    "name", ["nvidia/nvidia-a100", "llvm -mcpu=znver3 -mattr=+avx2", "apple/m2-gpu", "composite --devices=cuda,llvm"]
)
def test_export_and_pickle_give_the_same_target(name):
    target = Target(name)
    assert Target(target.export()) == target
    assert pickle.loads(pickle.dumps(target)) == target
    assert hash(Target(target.export())) == hash(target)


def test_functions_by_target():
    @tvm.target.generic_func
    def f(x):
        return x + 1

    @f.register(["cuda", "gpu"])
    def on_gpu(x):
        return x + 2

    f.register("cpu", lambda x: x + 10)
    assert f(1) == 2
    for target, want in (("cuda", 3), ("metal", 3), ("llvm", 11)):
        with Target(target):
            assert f(1) == want
    with pytest.raises(ValueError, match="has a function for 'cuda' already"):
        f.register("cuda", on_gpu)
    assert tvm.target.cuda(arch="sm_90").arch == "sm_90"
    assert tvm.target.arm_cpu("rasp4b64").keys == ["arm_cpu", "cpu"]
    assert Target("llvm -mtriple=aarch64-linux-gnu -mattr=+dotprod").features.has_dotprod
    assert Target("cuda").get_target_device_type() == 2
    assert "opencl" in Target.list_kinds()
