"""The classes of errors, under the field's names."""

from tilewright.support.diagnostics import CompileError, Diagnostic

__all__ = ["CompileError", "Diagnostic", "DiagnosticError", "TVMError"]

TVMError = CompileError
"""What the compiler raises for a fault of the input."""
DiagnosticError = CompileError
"""The same, where a program of the field expects this name."""
