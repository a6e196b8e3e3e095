"""What packed functions need to return tensors, as LLVM IR text.

    i32 tw_tensor_alloc(ptr prototype, ptr out)         a new tensor like the DLTensor `prototype` (its data is not read)
    i32 tw_return_tensors(ptr objects, i32 n, i32 tuple, ptr ret)
                                                        hand n owned tensors to the caller: the one, or an ffi.Array
    i32 tw_release_tensors(ptr objects, i32 n)          drop those of n owned tensors that are not null
    ptr tw_type_name(i32 index), ptr tw_dtype_name(i32 word)    text for messages: "an int", "float32"

The memory comes from the allocator that the caller has set in the FFI's environment (torch does so for calls with torch
tensors); without one, from tw_alloc, which recycles big blocks. Status -1: an error has been raised.
"""

from __future__ import annotations

__all__ = ["TENSOR_EXPORTS", "TENSOR_LAYER"]

TENSOR_EXPORTS = ("tw_tensor_alloc", "tw_return_tensors", "tw_release_tensors", "tw_type_name", "tw_dtype_name")
"""What the text defines."""

# A tensor of our own is one block: a DLManagedTensorVersioned (80 bytes: version 0, context 8, deleter 16, flags 24,
# DLTensor 32: data 32, device 40, ndim 48, dtype 52, shape 56, strides 64, byte_offset 72), the shape, the strides, and
# from the next multiple of 64 on the data.
_TENSORS = """
declare ptr @TVMFFIEnvGetDLPackManagedTensorAllocator()
declare i32 @TVMFFIEnvTensorAlloc(ptr, ptr)
declare i32 @TVMFFITensorFromDLPackVersioned(ptr, i32, i32, ptr)
declare void @TVMFFIErrorSetRaisedFromCStr(ptr, ptr)
declare i32 @TVMFFIFunctionGetGlobal(ptr, ptr)
declare i32 @TVMFFIFunctionCall(ptr, ptr, i32, ptr)
@memory_kind = internal constant [12 x i8] c"MemoryError\\00"
@memory_text = internal constant [27 x i8] c"no memory for a new tensor\\00"
@array_name = internal constant [9 x i8] c"ffi.Array"
@array_function = internal global ptr null, align 8

define internal void @tensor_deleter(ptr %self) {
  call void @$OWN$free(ptr %self)
  ret void
}

define $HIDDEN$i32 @tw_tensor_alloc(ptr %like, ptr %out) {
entry:
  %set = call ptr @TVMFFIEnvGetDLPackManagedTensorAllocator()
  %has = icmp ne ptr %set, null
  br i1 %has, label %environment, label %own
environment:
  %r = call i32 @TVMFFIEnvTensorAlloc(ptr %like, ptr %out)
  ret i32 %r
own:
  %ndim_at = getelementptr i8, ptr %like, i64 16
  %ndim = load i32, ptr %ndim_at, align 8
  %dtype_at = getelementptr i8, ptr %like, i64 20
  %dtype = load i32, ptr %dtype_at, align 4
  %shape_at = getelementptr i8, ptr %like, i64 24
  %shape = load ptr, ptr %shape_at, align 8
  %b = lshr i32 %dtype, 8
  %bits = and i32 %b, 255
  %lanes = lshr i32 %dtype, 16
  %width = mul i32 %bits, %lanes
  %width64 = zext i32 %width to i64
  br label %count
count:
  %i = phi i32 [ 0, %own ], [ %i1, %dim ]
  %elements = phi i64 [ 1, %own ], [ %elements1, %dim ]
  %more = icmp slt i32 %i, %ndim
  br i1 %more, label %dim, label %make
dim:
  %d_at = getelementptr i64, ptr %shape, i32 %i
  %d = load i64, ptr %d_at, align 8
  %elements1 = mul i64 %elements, %d
  %i1 = add i32 %i, 1
  br label %count
make:
  %total_bits = mul i64 %elements, %width64
  %tb = add i64 %total_bits, 7
  %bytes = lshr i64 %tb, 3
  %nd64 = zext i32 %ndim to i64
  %arrays = shl i64 %nd64, 4
  %h0 = add i64 %arrays, 143
  %head = and i64 %h0, -64
  %size = add i64 %head, %bytes
  %m = call ptr @$OWN$alloc(i64 %size)
  %failed = icmp eq ptr %m, null
  br i1 %failed, label %error, label %fill
error:
  call void @TVMFFIErrorSetRaisedFromCStr(ptr @memory_kind, ptr @memory_text)
  ret i32 -1
fill:
  store i32 1, ptr %m, align 8
  %minor = getelementptr i8, ptr %m, i64 4
  store i32 0, ptr %minor, align 4
  %context = getelementptr i8, ptr %m, i64 8
  store ptr null, ptr %context, align 8
  %deleter = getelementptr i8, ptr %m, i64 16
  store ptr @tensor_deleter, ptr %deleter, align 8
  %flags = getelementptr i8, ptr %m, i64 24
  store i64 0, ptr %flags, align 8
  %data_at = getelementptr i8, ptr %m, i64 32
  %data = getelementptr i8, ptr %m, i64 %head
  store ptr %data, ptr %data_at, align 8
  %device = getelementptr i8, ptr %m, i64 40
  store i64 1, ptr %device, align 8
  %n_at = getelementptr i8, ptr %m, i64 48
  store i32 %ndim, ptr %n_at, align 8
  %t_at = getelementptr i8, ptr %m, i64 52
  store i32 %dtype, ptr %t_at, align 4
  %s_at = getelementptr i8, ptr %m, i64 56
  %new_shape = getelementptr i8, ptr %m, i64 80
  store ptr %new_shape, ptr %s_at, align 8
  %st_at = getelementptr i8, ptr %m, i64 64
  %half = shl i64 %nd64, 3
  %new_strides = getelementptr i8, ptr %new_shape, i64 %half
  store ptr %new_strides, ptr %st_at, align 8
  %offset = getelementptr i8, ptr %m, i64 72
  store i64 0, ptr %offset, align 8
  br label %dims
dims:
  %j = phi i32 [ %ndim, %fill ], [ %j1, %set_dim ]
  %stride = phi i64 [ 1, %fill ], [ %stride1, %set_dim ]
  %any = icmp sgt i32 %j, 0
  br i1 %any, label %set_dim, label %hand
set_dim:
  %j1 = sub i32 %j, 1
  %from = getelementptr i64, ptr %shape, i32 %j1
  %v = load i64, ptr %from, align 8
  %to = getelementptr i64, ptr %new_shape, i32 %j1
  store i64 %v, ptr %to, align 8
  %to2 = getelementptr i64, ptr %new_strides, i32 %j1
  store i64 %stride, ptr %to2, align 8
  %stride1 = mul i64 %stride, %v
  br label %dims
hand:
  %r2 = call i32 @TVMFFITensorFromDLPackVersioned(ptr %m, i32 0, i32 0, ptr %out)
  ret i32 %r2
}

define $HIDDEN$i32 @tw_release_tensors(ptr %objects, i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %next ]
  %more = icmp slt i32 %i, %n
  br i1 %more, label %one, label %out
one:
  %at = getelementptr ptr, ptr %objects, i32 %i
  %o = load ptr, ptr %at, align 8
  %null = icmp eq ptr %o, null
  br i1 %null, label %next, label %drop
drop:
  %r = call i32 @TVMFFIObjectDecRef(ptr %o)
  br label %next
next:
  %i1 = add i32 %i, 1
  br label %loop
out:
  ret i32 0
}

define $HIDDEN$i32 @tw_return_tensors(ptr %objects, i32 %n, i32 %tuple, ptr %ret) {
entry:
  %one = icmp eq i32 %n, 1
  %bare = icmp eq i32 %tuple, 0
  %single = and i1 %one, %bare
  br i1 %single, label %lone, label %several
lone:
  %o = load ptr, ptr %objects, align 8
  store i32 70, ptr %ret, align 8
  %payload = getelementptr i8, ptr %ret, i64 8
  store ptr %o, ptr %payload, align 8
  ret i32 0
several:
  %known = load atomic ptr, ptr @array_function acquire, align 8
  %missing = icmp eq ptr %known, null
  br i1 %missing, label %find, label %pack
find:
  %name = alloca { ptr, i64 }, align 8
  store ptr @array_name, ptr %name, align 8
  %length = getelementptr i8, ptr %name, i64 8
  store i64 9, ptr %length, align 8
  %slot = alloca ptr, align 8
  store ptr null, ptr %slot, align 8
  %g = call i32 @TVMFFIFunctionGetGlobal(ptr %name, ptr %slot)
  %bad = icmp ne i32 %g, 0
  br i1 %bad, label %fail, label %found
fail:
  %dropped = call i32 @tw_release_tensors(ptr %objects, i32 %n)
  ret i32 -1
found:
  %f = load ptr, ptr %slot, align 8
  store atomic ptr %f, ptr @array_function release, align 8
  br label %pack
pack:
  %function = phi ptr [ %known, %several ], [ %f, %found ]
  %args = alloca { i32, i32, ptr }, i32 %n, align 8
  br label %loop
loop:
  %i = phi i32 [ 0, %pack ], [ %i1, %item ]
  %more = icmp slt i32 %i, %n
  br i1 %more, label %item, label %call
item:
  %from = getelementptr ptr, ptr %objects, i32 %i
  %t = load ptr, ptr %from, align 8
  %to = getelementptr { i32, i32, ptr }, ptr %args, i32 %i
  store i64 70, ptr %to, align 8
  %value = getelementptr i8, ptr %to, i64 8
  store ptr %t, ptr %value, align 8
  %i1 = add i32 %i, 1
  br label %loop
call:
  %r = call i32 @TVMFFIFunctionCall(ptr %function, ptr %args, i32 %n, ptr %ret)
  %freed = call i32 @tw_release_tensors(ptr %objects, i32 %n)
  ret i32 %r
}
"""

TYPE_NAMES = {
    0: "None", 1: "an int", 2: "a bool", 3: "a float", 4: "a pointer", 5: "a dtype", 6: "a device", 7: "a tensor", 8: "a str",
    11: "a str", 65: "a str", 66: "bytes", 68: "a function", 69: "a shape", 70: "a tensor", 71: "a list or tuple", 72: "a dict",
}  # fmt: skip
DTYPE_NAMES = {
    f"{name}{bits}": code | bits << 8 | 1 << 16
    for name, code, widths in (("int", 0, (4, 8, 16, 32, 64)), ("uint", 1, (1, 4, 8, 16, 32, 64)), ("float", 2, (16, 32, 64)), ("bfloat", 4, (16,)), ("complex", 5, (64, 128)))
    for bits in widths
} | {"bool": 6 | 8 << 8 | 1 << 16} | {
    f"float8_{form}": 7 + i | 8 << 8 | 1 << 16
    for i, form in enumerate(("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"))
}  # fmt: skip


def _names(function: str, table: dict[int, str], otherwise: str) -> str:
    """A function from a number to a text."""
    constants: list[str] = []
    cases: list[str] = []
    blocks: list[str] = []
    for i, (key, text) in enumerate([*table.items(), (-1, otherwise)]):
        constants.append(f'@{function}.{i} = internal constant [{len(text) + 1} x i8] c"{text}\\00"')
        if key >= 0:
            cases.append(f"    i32 {key}, label %case{i}")
            blocks.append(f"case{i}:\n  ret ptr @{function}.{i}")
    lines = [
        *constants,
        f"define $HIDDEN$ptr @{function}(i32 %key) {{",
        "  switch i32 %key, label %other [",
        *cases,
        "  ]",
        *blocks,
        f"other:\n  ret ptr @{function}.{len(table)}",
        "}",
    ]
    return "\n".join(lines)


TENSOR_LAYER = "\n".join(
    [
        _TENSORS,
        _names("tw_type_name", TYPE_NAMES, "an object of another type"),
        _names("tw_dtype_name", {word: name for name, word in DTYPE_NAMES.items()}, "another dtype"),
    ]
)
"""The definitions; `$OWN$` and `$HIDDEN$` stand as in runtime_ir.py."""
