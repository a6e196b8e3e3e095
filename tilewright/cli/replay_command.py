"""`tilewright replay FILE`"""

from __future__ import annotations

from typing import Any

from tilewright.cli.output import Output
from tilewright.ir.reproduce import read


def run(args: Any, output: Output) -> int:
    """Run the failing pass again; its error shows itself, with where it was raised."""
    failing_pass, module = read(args.file)
    args.traceback = True
    result = failing_pass(module)
    output.say("the pass went through; it gives:")
    output.say(result.script())
    output.result({"failed": False})
    return 0
