"""Forms: named states of a module between passes, each with a verifier.

A pass says which form it needs and which it gives, so the order of a pipeline can be checked without any IR
(`passes.check_pipeline`), and in debug mode (`PassContext(config={"ir.debug": True})`, or TILEWRIGHT_DEBUG=1) the verifiers of
the forms that hold run after each pass that changed something.

    graph       relax functions of operators, normal form
    legal       relax functions of call_tir, views and control flow; PrimFuncs in block form
    blocks      PrimFuncs of loops and blocks
    flat        PrimFuncs of loops over flat memory, vectors explicit: what code generators take
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.support.lazy import resolve

__all__ = ["FORMS", "verify_form"]

FORMS: dict[str, str] = {
    "graph": "verify.relax",
    "legal": "verify.relax",
    "blocks": "verify.blocks",
    "flat": "verify.flat",
}
"""The verifier of each form, by its name in support/lazy.py. It takes an IRModule and raises CompileError."""


def verify_form(form: str, mod: Any) -> None:
    """Raise CompileError if `mod` is not in `form`."""
    verifier: Callable[[Any], Any] = resolve(FORMS[form])
    verifier(mod)
