"""`tilewright doctor`"""

from __future__ import annotations

import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from tilewright.cli.output import Output, format_bytes
from tilewright.driver import cache
from tilewright.ir.target import Target
from tilewright.version import __version__

REQUIRED = ("numpy", "ml-dtypes", "llvmlite", "apache-tvm-ffi", "rich")
OPTIONAL = (
    ("onnx", "onnx", "reading ONNX models", "pip install 'tilewright[onnx]'"),
    ("onnxruntime", "onnxruntime", "comparing with onnxruntime", "pip install onnxruntime"),
    ("torch", "torch", "PyTorch tensors and models", "pip install 'tilewright[torch]'"),
    ("ziglang", "ziglang", "linking .so files without a system linker", "pip install 'tilewright[link]'"),
    ("pillow", "PIL", "the demo's pictures", "pip install 'tilewright[demo]'"),
    ("rapidocr-onnxruntime", "rapidocr_onnxruntime", "the demo's networks",
     "pip install --no-deps --ignore-requires-python rapidocr-onnxruntime==1.4.4"),
)  # fmt: skip


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def run(args: Any, output: Output) -> int:
    """Versions, the CPU, threads, the cache, and optional parts with the line that brings each."""
    del args
    from tilewright.runtime.threads import get_num_threads

    host = Target("llvm")
    features = [
        f for f in ("sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avxvnni", "neon", "sve") if f in host.features
    ]
    info = cache.info()
    linker = next(
        (name for name in ("ld", "cc", "gcc") if shutil.which(name)), "ziglang" if find_spec("ziglang") else None
    )
    facts = [
        ["tilewright", __version__],
        ["Python", f"{platform.python_version()} ({sys.executable})"],
        ["system", f"{platform.system()} {platform.machine()}"],
        ["CPU", f"{host.mcpu}: {', '.join(features) or 'no vector extensions known'}"],
        ["caches", f"{format_bytes(host.l1_bytes)} L1, {format_bytes(host.l2_bytes)} L2"],
        ["threads", f"{get_num_threads()} (TILEWRIGHT_NUM_THREADS)"],
        ["kernel cache", f"{info.path}: {info.entries} kernels, {format_bytes(info.bytes)}" if info.enabled else "off"],
        ["linker", linker or "none: .so needs ld, cc or pip install 'tilewright[link]'; .tw needs none"],
    ]
    output.table(["what", "here"], facts)
    output.say()
    rows: list[list[str]] = []
    for package in REQUIRED:
        rows.append(
            [package, _version(package) or "missing", "required", "" if _version(package) else f"pip install {package}"]
        )
    for package, module, purpose, how in OPTIONAL:
        present = find_spec(module) is not None
        rows.append(
            [package, (_version(package) or "present") if present else "missing", purpose, "" if present else how]
        )
    output.table(["package", "version", "for", "to get it"], rows)
    missing = [r[0] for r in rows if r[1] == "missing" and r[2] == "required"]
    output.result(
        {
            "facts": dict(facts),
            "packages": {r[0]: None if r[1] == "missing" else r[1] for r in rows},
            "ok": not missing,
        }
    )
    return 1 if missing else 0
