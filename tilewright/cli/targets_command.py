"""`tilewright targets`"""

from __future__ import annotations

from typing import Any

from tilewright.backends.registry import backends
from tilewright.cli.output import Output
from tilewright.ir.target import KINDS, Target


def run(args: Any, output: Output) -> int:
    """Each kind of target that has a backend here."""
    del args
    host = Target("llvm")
    rows = [["llvm", "yes", f"this CPU: {host.mcpu}, {host.vector_bytes * 8}-bit vectors, {host.num_cores} cores"]]
    known = backends()
    for name in sorted(set(KINDS) | set(known)):
        if name == "llvm":
            continue
        backend = known.get(name)
        reason = backend.runs() if backend is not None else None
        if backend is None:
            rows.append([name, "no", "no backend"])
        elif reason is None:
            rows.append([name, "yes", f"{backend.title}; runs here"])
        else:
            rows.append([name, "source", f"{backend.title} only: {reason}"])
    output.table(["target", "supported", "notes"], rows)
    output.say('options: "llvm -mcpu=NAME -mattr=+FEATURE,-FEATURE -mtriple=TRIPLE -num-cores=N"')
    output.result(
        {
            "targets": {r[0]: r[1] == "yes" for r in rows},
            "sources": {r[0]: r[1] != "no" for r in rows},
            "reasons": {r[0]: r[2] for r in rows if r[1] != "yes"},
            "host": {"cpu": host.mcpu, "triple": host.mtriple, "features": sorted(host.features)},
        }
    )
    return 0
