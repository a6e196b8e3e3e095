"""The check of a tensor argument, as LLVM IR text: what packed functions call once for every tensor.

    ptr tw_check_tensor(ptr function, ptr parameter, ptr needs, ptr argument, i32 dtype, i32 ndim, i32 alignment, i32 any_strides)

`argument` points to a value of the FFI (16 bytes). Returns its DLTensor if it is a tensor on the CPU with that dtype (a
DLDataType as an int32) and rank, whose strides are row-major and compact (unless `any_strides`; its bits from 8 on may say another device type than the CPU's), and whose memory is there
and aligned; else null, after raising a TypeError or ValueError that names the function, the parameter, what it got and what
it needs (`needs`: "float32 [n, 4]"). Sizes are for the caller to check.
"""

from __future__ import annotations

__all__ = ["CHECK_EXPORTS", "CHECK_LAYER"]

CHECK_EXPORTS = ("tw_check_tensor",)
"""What the text defines."""

_TEXTS = {
    "type_error": "TypeError",
    "value_error": "ValueError",
    "null_pointer": "a null pointer",
    "plural": "s",
    "singular": "",
    "no_tensor": "%s(): parameter '%s' must be a tensor (%s), got %s",
    "rank": "%s(): parameter '%s' must have %d dimension%s (%s), got %d",
    "dtype": "%s(): parameter '%s' must be of dtype %s, got %s",
    "device": "%s(): parameter '%s' must be in the memory of the CPU (device type 1), got device type %d",
    "other_device": "%s(): parameter '%s' must be on a device of type %d (%s), got device type %d; array.copyto(device) moves it",
    "device_2": "CUDA",
    "device_4": "OpenCL",
    "device_15": "WebGPU",
    "device_any": "no CPU",
    "strides": "%s(): parameter '%s' must be row-major and compact: its strides are (%s), they must be (%s)",
    "no_data": "%s(): parameter '%s' has a null data pointer",
    "misaligned": "%s(): parameter '%s' must be aligned to %d bytes, its address is %d past that",
    "first": "%lld",
    "further": ", %lld",
}


def _constants() -> str:
    return "\n".join(
        f'@check.{name} = internal constant [{len(text) + 1} x i8] c"{text}\\00"' for name, text in _TEXTS.items()
    )


def _raise(label: str, kind: str, text: str, args: str) -> str:
    """A block that raises and leaves."""
    return f"""{label}:
  call i32 (ptr, i64, ptr, ...) @snprintf(ptr %text, i64 1024, ptr @check.{text}, ptr %function, ptr %parameter{args})
  call void @TVMFFIErrorSetRaisedFromCStr(ptr @check.{kind}, ptr %text)
  ret ptr null
"""


_CODE = """
declare i32 @snprintf(ptr, i64, ptr, ...)

; "1, 2, 3" of %n numbers
define internal void @numbers_text(ptr %buffer, ptr %numbers, i32 %n) noinline {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %one ]
  %used = phi i32 [ 0, %entry ], [ %used1, %one ]
  %more = icmp slt i32 %i, %n
  %room = icmp slt i32 %used, 200
  %go = and i1 %more, %room
  br i1 %go, label %one, label %out
one:
  %at = getelementptr i8, ptr %buffer, i32 %used
  %from = getelementptr i64, ptr %numbers, i32 %i
  %v = load i64, ptr %from, align 8
  %begins = icmp eq i32 %i, 0
  %format = select i1 %begins, ptr @check.first, ptr @check.further
  %w = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %at, i64 40, ptr %format, i64 %v)
  %used1 = add i32 %used, %w
  %i1 = add i32 %i, 1
  br label %loop
out:
  ret void
}

define $HIDDEN$ptr @tw_check_tensor(ptr %function, ptr %parameter, ptr %needs, ptr %argument, i32 %dtype, i32 %ndim, i32 %alignment, i32 %any_strides) {
entry:
  %text = alloca [1024 x i8], align 16
  %text1 = alloca [256 x i8], align 16
  %text2 = alloca [256 x i8], align 16
  %code = load i32, ptr %argument, align 8
  %value_at = getelementptr i8, ptr %argument, i64 8
  %value = load ptr, ptr %value_at, align 8
  %object = icmp eq i32 %code, 70
  %bare = icmp eq i32 %code, 7
  %tensor = or i1 %object, %bare
  br i1 %tensor, label %there, label %other
other:
  %type = call ptr @tw_type_name(i32 %code)
  br label %no_tensor
there:
  %null = icmp eq ptr %value, null
  br i1 %null, label %no_tensor, label %ranked
ranked:
  %skip = select i1 %object, i64 24, i64 0
  %dl = getelementptr i8, ptr %value, i64 %skip
  %ndim_at = getelementptr i8, ptr %dl, i64 16
  %rank = load i32, ptr %ndim_at, align 4
  %same_rank = icmp eq i32 %rank, %ndim
  br i1 %same_rank, label %kind, label %bad_rank.
kind:
  %dtype_at = getelementptr i8, ptr %dl, i64 20
  %word = load i32, ptr %dtype_at, align 4
  %same_dtype = icmp eq i32 %word, %dtype
  br i1 %same_dtype, label %place, label %bad_dtype.
place:
  %device_at = getelementptr i8, ptr %dl, i64 8
  %device = load i32, ptr %device_at, align 4
  %elsewhere = lshr i32 %any_strides, 8
  %on_host = icmp eq i32 %elsewhere, 0
  %right_device = select i1 %on_host, i32 1, i32 %elsewhere
  %in_place = icmp eq i32 %device, %right_device
  br i1 %in_place, label %size, label %bad_place
bad_place:
  br i1 %on_host, label %bad_device, label %other_device.
size:
  %shape_at = getelementptr i8, ptr %dl, i64 24
  %shape = load ptr, ptr %shape_at, align 8
  %strides_at = getelementptr i8, ptr %dl, i64 32
  %strides = load ptr, ptr %strides_at, align 8
  %dense = icmp eq ptr %strides, null
  %any = and i32 %any_strides, 255
  %free = icmp ne i32 %any, 0
  %unchecked = or i1 %dense, %free
  br label %loop
loop:
  %i = phi i32 [ %ndim, %size ], [ %i1, %next ]
  %count = phi i64 [ 1, %size ], [ %count1, %next ]
  %fits = phi i1 [ true, %size ], [ %fits1, %next ]
  %more = icmp sgt i32 %i, 0
  br i1 %more, label %dim, label %checked
dim:
  %i1 = add i32 %i, -1
  %d_at = getelementptr i64, ptr %shape, i32 %i1
  %d = load i64, ptr %d_at, align 8
  br i1 %unchecked, label %next, label %stride
stride:
  %s_at = getelementptr i64, ptr %strides, i32 %i1
  %s = load i64, ptr %s_at, align 8
  %equal = icmp eq i64 %s, %count
  %single = icmp eq i64 %d, 1
  %right = or i1 %equal, %single
  br label %next
next:
  %fine = phi i1 [ true, %dim ], [ %right, %stride ]
  %fits1 = and i1 %fits, %fine
  %count1 = mul i64 %count, %d
  br label %loop
checked:
  %empty = icmp eq i64 %count, 0
  br i1 %empty, label %good, label %filled
filled:
  br i1 %fits, label %memory, label %bad_strides.
memory:
  %data = load i64, ptr %dl, align 8
  %absent = icmp eq i64 %data, 0
  br i1 %absent, label %no_data, label %position
position:
  %offset_at = getelementptr i8, ptr %dl, i64 40
  %offset = load i64, ptr %offset_at, align 8
  %address = add i64 %data, %offset
  %low = trunc i64 %address to i32
  %mask = sub i32 %alignment, 1
  %past = and i32 %low, %mask
  %aligned = icmp eq i32 %past, 0
  br i1 %aligned, label %good, label %misaligned
good:
  ret ptr %dl
bad_rank.:
  %one = icmp eq i32 %ndim, 1
  %ending = select i1 %one, ptr @check.singular, ptr @check.plural
  br label %bad_rank
other_device.:
  %is_cuda = icmp eq i32 %elsewhere, 2
  %is_opencl = icmp eq i32 %elsewhere, 4
  %is_webgpu = icmp eq i32 %elsewhere, 15
  %name0 = select i1 %is_cuda, ptr @check.device_2, ptr @check.device_any
  %name1 = select i1 %is_opencl, ptr @check.device_4, ptr %name0
  %device_name = select i1 %is_webgpu, ptr @check.device_15, ptr %name1
  br label %other_device
bad_dtype.:
  %wanted = call ptr @tw_dtype_name(i32 %dtype)
  %found = call ptr @tw_dtype_name(i32 %word)
  br label %bad_dtype
bad_strides.:
  %compact = alloca i64, i32 %ndim, align 8
  br label %fill
fill:
  %j = phi i32 [ %ndim, %bad_strides. ], [ %j1, %put ]
  %product = phi i64 [ 1, %bad_strides. ], [ %product1, %put ]
  %left = icmp sgt i32 %j, 0
  br i1 %left, label %put, label %show
put:
  %j1 = add i32 %j, -1
  %c_at = getelementptr i64, ptr %compact, i32 %j1
  store i64 %product, ptr %c_at, align 8
  %e_at = getelementptr i64, ptr %shape, i32 %j1
  %e = load i64, ptr %e_at, align 8
  %product1 = mul i64 %product, %e
  br label %fill
show:
  call void @numbers_text(ptr %text1, ptr %strides, i32 %ndim)
  call void @numbers_text(ptr %text2, ptr %compact, i32 %ndim)
  br label %bad_strides
"""


def _check_layer() -> str:
    blocks = [
        _raise("no_tensor", "type_error", "no_tensor", ", ptr %needs, ptr %got").replace(
            "no_tensor:\n", "no_tensor:\n  %got = phi ptr [ %type, %other ], [ @check.null_pointer, %there ]\n", 1
        ),
        _raise("bad_rank", "value_error", "rank", ", i32 %ndim, ptr %ending, ptr %needs, i32 %rank"),
        _raise("bad_dtype", "type_error", "dtype", ", ptr %wanted, ptr %found"),
        _raise("bad_device", "value_error", "device", ", i32 %device"),
        _raise("other_device", "value_error", "other_device", ", i32 %elsewhere, ptr %device_name, i32 %device"),
        _raise("bad_strides", "value_error", "strides", ", ptr %text1, ptr %text2"),
        _raise("no_data", "value_error", "no_data", ""),
        _raise("misaligned", "value_error", "misaligned", ", i32 %alignment, i32 %past"),
    ]
    return "\n".join([_constants(), _CODE + "".join(blocks) + "}"])


CHECK_LAYER = _check_layer()
"""The definitions; `$HIDDEN$` stands as in runtime_ir.py."""
