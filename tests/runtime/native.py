"""Small native functions that the tests of the runtime call: a loop whose iterations count, one that fails, one that nests."""

import ctypes
from functools import cache
from typing import Any

from tilewright.backends.llvm.codegen import compile_object
from tilewright.backends.llvm.jit import Engine
from tilewright.ir.target import Target
from tilewright.support.lazy import resolve

TEXT = """
declare i32 @tw_parallel_for(ptr, ptr, i64)
declare void @TVMFFIErrorSetRaisedFromCStr(ptr, ptr)
@kind = internal constant [11 x i8] c"ValueError\\00"
@text = internal constant [10 x i8] c"iteration\\00"

define i32 @count(ptr %counts, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %at = getelementptr i32, ptr %counts, i64 %i
  %v = load i32, ptr %at
  %v1 = add i32 %v, 1
  store i32 %v1, ptr %at
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}

define i32 @many(ptr %counts, i64 %n, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %r = call i32 @tw_parallel_for(ptr @count, ptr %counts, i64 %n)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %times
  br i1 %more, label %loop, label %out
out:
  ret i32 %r
}

; fails where the count of an iteration is 7
define i32 @check(ptr %counts, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %next ]
  %at = getelementptr i32, ptr %counts, i64 %i
  %v = load i32, ptr %at
  %bad = icmp eq i32 %v, 7
  br i1 %bad, label %fail, label %next
fail:
  call void @TVMFFIErrorSetRaisedFromCStr(ptr @kind, ptr @text)
  ret i32 -1
next:
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}

define i32 @checked(ptr %counts, i64 %n) {
  %r = call i32 @tw_parallel_for(ptr @check, ptr %counts, i64 %n)
  ret i32 %r
}

; the packed form of `checked`: two integers
define i32 @__tvm_ffi_checked(ptr %self, ptr %args, i32 %n, ptr %ret) {
  %a = getelementptr i8, ptr %args, i64 8
  %p = load ptr, ptr %a
  %b = getelementptr i8, ptr %args, i64 24
  %count = load i64, ptr %b
  %r = call i32 @checked(ptr %p, i64 %count)
  ret i32 %r
}

; every iteration of the outer region starts a region over its own row of 100
define i32 @row(ptr %counts, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %o = mul i64 %i, 100
  %at = getelementptr i32, ptr %counts, i64 %o
  %r = call i32 @tw_parallel_for(ptr @count, ptr %at, i64 100)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}
define i32 @nested(ptr %counts, i64 %n) {
  %r = call i32 @tw_parallel_for(ptr @row, ptr %counts, i64 %n)
  ret i32 %r
}
"""


class Native:
    """The functions above, callable; the GIL is released while they run."""

    def __init__(self) -> None:
        self.pool: Any = resolve("runtime.pool")()
        target = Target("llvm")
        self.engine = Engine([compile_object(TEXT, target, "kernel")], {})
        p, i = ctypes.c_void_p, ctypes.c_int64
        self.many: Any = ctypes.CFUNCTYPE(ctypes.c_int32, p, i, i)(self.engine.address("many"))
        self.checked: Any = ctypes.CFUNCTYPE(ctypes.c_int32, p, i)(self.engine.address("checked"))
        self.nested: Any = ctypes.CFUNCTYPE(ctypes.c_int32, p, i)(self.engine.address("nested"))


@cache
def native() -> Native:
    """The functions, compiled once."""
    return Native()
