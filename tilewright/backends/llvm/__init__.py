"""Machine code by LLVM."""

from tilewright.ir.backend import Backend

BACKEND = Backend("llvm", ("llvm",), "machine code", "tilewright.driver.build:build_llvm")
