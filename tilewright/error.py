"""The classes of errors, under the field's names.

A fault of the input is a CompileError, whatever part finds it, so the names below that stand for such faults are one class: code
that catches any of them catches what it expects. Wrong Python arguments raise TypeError, ValueError and the like.
"""

from tilewright.support.diagnostics import CompileError, Diagnostic

__all__ = [
    "CompileError", "Diagnostic", "DiagnosticError", "InternalError", "OpAttributeInvalid", "OpAttributeRequired",
    "OpAttributeUnImplemented", "OpError", "OpNotImplemented", "RPCError", "TVMError",
]  # fmt: skip

TVMError = CompileError
"""What the compiler raises for a fault of the input."""
DiagnosticError = CompileError
"""The same, where a program of the field expects this name."""
InternalError = CompileError
"""The same: what is a failed internal check elsewhere is told as a fault of the input here."""
OpError = CompileError
"""Faults of an operator in an imported model."""
OpNotImplemented = CompileError
"""An operator that is not supported; the message names it."""
OpAttributeRequired = CompileError
"""An operator without an attribute that it needs."""
OpAttributeInvalid = CompileError
"""An attribute with a value that the operator does not take."""
OpAttributeUnImplemented = CompileError
"""An attribute that is not supported; the message names it."""


class RPCError(CompileError):
    """A fault of a remote machine."""
