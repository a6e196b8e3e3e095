"""Writes the list of operators into docs/onnx.md.

python docs/make_onnx.py            (--check: only say whether the page is up to date)
"""

import sys
from pathlib import Path

from tilewright.frontend.onnx import supported_operators

PAGE = Path(__file__).resolve().parent / "onnx.md"
BEGIN, END = "<!-- operators: begin -->", "<!-- operators: end -->"


def page() -> str:
    """The page with the list as the importer has it now."""
    text = PAGE.read_text(encoding="utf-8")
    names = [f"{op} ({since}+)" if since > 7 else op for op, since in supported_operators().items()]
    note = "In brackets the operator set from which on, where that is newer than 7."
    return f"{text.split(BEGIN)[0]}{BEGIN}\n{len(names)} operators. {note}\n\n{', '.join(names)}\n{END}{text.split(END)[1]}"


if __name__ == "__main__":
    made = page()
    if "--check" in sys.argv:
        sys.exit(0 if made == PAGE.read_text(encoding="utf-8") else "docs/onnx.md is old: run python docs/make_onnx.py")
    PAGE.write_text(made, encoding="utf-8")
