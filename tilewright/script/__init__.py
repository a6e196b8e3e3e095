"""TVMScript: IR as Python text, printed and parsed. `from tilewright.script import ir as I, tir as T, relax as R`."""

from tilewright.script import ir, relax, tir
from tilewright.script.ir import ir_module
from tilewright.script.parser import from_source, parse
from tilewright.script.printer import locate, show, to_script
