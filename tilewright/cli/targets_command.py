"""`tilewright targets`"""

from __future__ import annotations

from typing import Any

from tilewright.cli.output import Output
from tilewright.ir.target import KINDS, Target


def run(args: Any, output: Output) -> int:
    """Each kind of target that has a backend here."""
    del args
    host = Target("llvm")
    rows = [["llvm", "yes", f"this CPU: {host.mcpu}, {host.vector_bytes * 8}-bit vectors, {host.num_cores} cores"]]
    rows += [[name, "no", "no backend yet"] for name in sorted(KINDS) if name != "llvm"]
    output.table(["target", "supported", "notes"], rows)
    output.say('options: "llvm -mcpu=NAME -mattr=+FEATURE,-FEATURE -mtriple=TRIPLE -num-cores=N"')
    output.result(
        {
            "targets": {r[0]: r[1] == "yes" for r in rows},
            "host": {"cpu": host.mcpu, "triple": host.mtriple, "features": sorted(host.features)},
        }
    )
    return 0
