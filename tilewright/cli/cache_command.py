"""`tilewright cache info|clear`"""

from __future__ import annotations

from typing import Any

from tilewright.cli.output import Output, format_bytes
from tilewright.driver import cache


def run(args: Any, output: Output) -> int:
    """Show or empty the cache of compiled kernels."""
    info = cache.clear() if args.action == "clear" else cache.info()
    what = "removed" if args.action == "clear" else "holds"
    if not info.enabled:
        output.say("the cache is off (TILEWRIGHT_CACHE_DIR=off)")
    else:
        output.say(
            f"{info.path} {what} {info.entries} kernels, {format_bytes(info.bytes)} (at most {format_bytes(info.max_bytes)})"
        )
    output.result({"action": args.action, **info.to_json()})
    return 0
