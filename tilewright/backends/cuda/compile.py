"""CUDA C to PTX and cubin: by NVRTC where its wheel is installed, else by nvcc on the PATH. Neither needs a GPU."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.support.diagnostics import CompileError

__all__ = ["compile_source", "compiler", "include_paths"]


@cache
def include_paths() -> tuple[str, ...]:
    """Folders with CUDA's headers: of the wheels (nvidia-cuda-runtime, -crt, -cccl), else of the toolkit beside nvcc."""
    found: list[str] = []
    spec = importlib.util.find_spec("nvidia") if importlib.util.find_spec("nvidia") is not None else None
    for root in list(spec.submodule_search_locations or []) if spec is not None else []:
        for header in sorted(Path(root).glob("*/include/cuda_fp16.h")):
            found.append(str(header.parent))
            cccl = header.parent / "cccl"
            if cccl.is_dir():
                found.append(str(cccl))
    nvcc = shutil.which("nvcc")
    if not found and nvcc:
        beside = Path(nvcc).resolve().parent.parent / "include"
        if (beside / "cuda_fp16.h").is_file():
            found.append(str(beside))
    return tuple(found)


@cache
def _nvrtc() -> Any:
    """The bindings of NVRTC, if they and its library are there."""
    try:
        found = importlib.import_module("cuda.bindings.nvrtc")
        found.nvrtcVersion()
    except Exception:  # without the library the bindings raise errors of many kinds
        return None
    return found


def compiler() -> str | None:
    """What compiles CUDA C here: "nvrtc", "nvcc", or None."""
    if _nvrtc() is not None:
        return "nvrtc"
    return "nvcc" if shutil.which("nvcc") else None


@cache
def compile_source(source: str, arch: str = "sm_75", form: str = "ptx") -> bytes:
    """The source compiled for an architecture (`sm_80`), as "ptx" or "cubin".

    Raises CompileError: TW0674 without a compiler, TW0675 with the compiler's words where it refuses.
    """
    chosen = compiler()
    if chosen is None:
        raise CompileError.at(
            "TW0674",
            "there is no compiler for CUDA C: neither NVRTC nor nvcc was found",
            hint="pip install 'tilewright[cuda]' brings NVRTC; it needs no GPU",
        )
    return _by_nvrtc(source, arch, form) if chosen == "nvrtc" else _by_nvcc(source, arch, form)


def _refused(name: str, log: str) -> CompileError:
    return CompileError.at("TW0675", f"{name} refused the source:\n{log[:3000]}", hint="get_source() shows it")


def _by_nvrtc(source: str, arch: str, form: str) -> bytes:
    nvrtc = _nvrtc()
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], [])
    try:
        where = arch if form == "cubin" else arch.replace("sm_", "compute_")
        options = [f"--gpu-architecture={where}", "-default-device", *(f"--include-path={p}" for p in include_paths())]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            _, size = nvrtc.nvrtcGetProgramLogSize(program)
            log = bytearray(size)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise _refused("NVRTC", bytes(log).rstrip(b"\0").decode(errors="replace") or str(status))
        sizes, get = (
            (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
            if form == "cubin"
            else (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
        )
        _, size = sizes(program)
        out = bytearray(size)
        get(program, out)
        return bytes(out)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _by_nvcc(source: str, arch: str, form: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="tilewright-cuda-") as folder:
        path = Path(folder) / "kernels.cu"
        path.write_text(source)
        output = Path(folder) / f"kernels.{form}"
        done = subprocess.run(
            ["nvcc", f"-{form}", f"-arch={arch}", "-o", str(output), str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise _refused("nvcc", done.stderr or done.stdout)
        return output.read_bytes()
