"""docs/benchmarks.md: each benchmark keeps its own section of the page up to date."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"


def write(section: str, title: str, text: str) -> None:
    """Put `text` between the section's marks; a new section goes to the end."""
    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else "# Benchmarks\n"
    if begin not in page:
        page = page.rstrip() + f"\n\n## {title}\n\n{begin}\n{end}\n"
    before, after = page.split(begin)[0], page.split(end)[1]
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def provenance(command: str) -> str:
    """How and where figures were made: the command, the day, the commit, the machine."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    return (
        f"`{command.strip()}`, {datetime.date.today()}, commit {done.stdout.strip()}, {processor()}, {os.cpu_count()} CPUs, "
        f"Python {platform.python_version()}"
    )


def processor() -> str:
    """The name of the CPU."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
