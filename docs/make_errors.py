"""Writes docs/errors.md: every error code, where it is raised and what it says.

python docs/make_errors.py            (--check: only say whether the page is up to date)
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "errors.md"
CODE = re.compile(r"TW\d{4}$")
AREAS = {
    "01": "Script", "02": "Graphs and operators", "03": "Importing ONNX", "04": "Schedules", "05": "Lowering",
    "06": "Code generation", "07": "Run time and artifacts", "08": "Command line", "09": "Passes, targets, IR as data",
}  # fmt: skip


def text_of(node: ast.expr) -> str:
    """A message as its template: `softmax axis {axis} is out of range`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(v) if isinstance(v, ast.Constant) else "{…}" for v in node.values)
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    return "{…}"


def collect() -> dict[str, dict[str, set[str]]]:
    """code -> message templates -> the files that raise it."""
    found: dict[str, dict[str, set[str]]] = {}
    for path in sorted((ROOT / "tilewright").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        where = str(path.relative_to(ROOT / "tilewright"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            args = [*node.args, *(k.value for k in node.keywords)]
            for i, arg in enumerate(args):
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str) and CODE.match(arg.value):
                    message = text_of(args[i + 1]) if i + 1 < len(args) else ""
                    found.setdefault(arg.value, {}).setdefault(" ".join(message.split()), set()).add(where)
        for node in ast.walk(tree):  # codes kept in tables and constants
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.match(node.value):
                found.setdefault(node.value, {}).setdefault("", set()).add(where)
    return found


def page() -> str:
    lines = ["# Error codes", "", "Made by `python docs/make_errors.py` from the source; `{…}` stands for a value.", ""]
    area = ""
    for code, messages in sorted(collect().items()):
        if AREAS.get(code[2:4]) != area:
            area = AREAS.get(code[2:4], "Other")
            lines += [f"## {area}", ""]
        texts = [m for m in messages if m and m != "{…}"]
        files = ", ".join(f"`{f}`" for f in sorted({f for fs in messages.values() for f in fs}))
        lines.append(f"- **{code}** ({files})" + ("" if not texts else ": " + "; ".join(texts[:6])))
    return "\n".join(lines).replace("\n## ", "\n\n## ") + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        raise SystemExit(
            0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else "docs/errors.md is out of date"
        )
    PAGE.write_text(page(), encoding="utf-8")
