"""The system's C compiler."""

from tilewright.backends.c.cc import create_executable, create_object, create_shared, get_cc

__all__ = ["create_executable", "create_object", "create_shared", "get_cc"]
