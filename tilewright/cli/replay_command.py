"""`tilewright replay FILE`"""

from __future__ import annotations

from typing import Any

from tilewright.cli.output import Output
from tilewright.ir.reproduce import replay


def run(args: Any, output: Output) -> int:
    """Run the failing pass again; its error shows itself, with where it was raised."""
    args.traceback = True
    result = replay(args.file)
    output.say("the pass went through; it gives:")
    output.say(result.script())
    output.result({"failed": False})
    return 0
