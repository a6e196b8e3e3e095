"""What packed functions in C need, as C text: only what a file uses is written into it.

The structures mirror the FFI's C ABI (`TVMFFIAny`, `DLTensor`); `tw_check_tensor` is the same check as that of
backends/llvm/runtime_check.py, with the same messages.
"""

from __future__ import annotations

from tilewright.backends.llvm.runtime_tensor import DTYPE_NAMES, TYPE_NAMES

__all__ = ["SUPPORT", "SUPPORT_NEEDS"]


def _names(function: str, table: dict[int, str], otherwise: str) -> str:
    rows = [f'    case {key}: return "{text}";' for key, text in table.items()]
    body = "\n".join(rows)
    return f'static inline const char* {function}(int32_t key) {{\n  switch (key) {{\n{body}\n  }}\n  return "{otherwise}";\n}}'


SUPPORT = {
    "tw_any": """/* a value of the FFI */
typedef struct {
  int32_t type_index;
  uint32_t padding;
  union {
    int64_t whole;
    double number;
    void* pointer;
    const char* text;
  } v;
} tw_any;""",
    "tw_dltensor": """/* a tensor, as DLPack has it; dtype is code | bits << 8 | lanes << 16 */
typedef struct {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  int32_t dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} tw_dltensor;""",
    "tw_raise": """void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);

/* Raise an error in the caller's language; -1. */
static int32_t tw_raise(const char* kind, const char* format, ...) {
  char message[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(message, sizeof message, format, values);
  va_end(values);
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}""",
    "tw_type_name": _names("tw_type_name", TYPE_NAMES, "an object of another type"),
    "tw_dtype_name": _names("tw_dtype_name", {word: name for name, word in DTYPE_NAMES.items()}, "another dtype"),
    "tw_call_packed": """typedef struct {
  const char* data;
  size_t size;
} tw_bytes;
int TVMFFIFunctionGetGlobal(const tw_bytes* name, void** out);
int TVMFFIFunctionCall(void* function, tw_any* args, int32_t num_args, tw_any* result);
int TVMFFIObjectDecRef(void* object);

/* Call the function that is registered as `name`. */
static int32_t tw_call_packed(const char* name, tw_any* args, int32_t num_args, tw_any* result) {
  tw_bytes key;
  void* function = NULL;
  int status;
  key.data = name;
  key.size = strlen(name);
  if (TVMFFIFunctionGetGlobal(&key, &function) != 0) return -1;
  if (function == NULL) {
    return tw_raise("ValueError", "no function is registered as '%s': register it with tilewright.register_func before the call", name);
  }
  status = TVMFFIFunctionCall(function, args, num_args, result);
  TVMFFIObjectDecRef(function);
  if (status == 0 && result->type_index >= 64) TVMFFIObjectDecRef(result->v.pointer);
  return status;
}""",
    "tw_numbers": """/* "1, 2, 3" of n numbers */
static inline void tw_numbers(char* out, size_t room, const int64_t* numbers, int32_t n) {
  size_t used = 0;
  int32_t i;
  out[0] = 0;
  for (i = 0; i < n && used + 40 < room; ++i) {
    used += (size_t)snprintf(out + used, room - used, i == 0 ? "%lld" : ", %lld", (long long)numbers[i]);
  }
}""",
    "tw_check_tensor": """/* The tensor in an argument, once it is known to have that dtype and rank, to be compact (unless any_strides), and to be
   in aligned memory of the CPU; NULL after raising what is wrong. */
static inline void* tw_check_tensor(const char* function, const char* parameter, const char* needs, const void* argument,
                             int32_t dtype, int32_t ndim, int32_t alignment, int32_t any_strides) {
  const tw_any* value = (const tw_any*)argument;
  const tw_dltensor* t;
  int64_t count = 1, compact[32];
  int32_t i, fits = 1;
  if ((value->type_index != 70 && value->type_index != 7) || value->v.pointer == NULL) {
    const char* got = value->type_index == 70 || value->type_index == 7 ? "a null pointer" : tw_type_name(value->type_index);
    tw_raise("TypeError", "%s(): parameter '%s' must be a tensor (%s), got %s", function, parameter, needs, got);
    return NULL;
  }
  t = (const tw_dltensor*)((const char*)value->v.pointer + (value->type_index == 70 ? 24 : 0));
  if (t->ndim != ndim) {
    tw_raise("ValueError", "%s(): parameter '%s' must have %d dimension%s (%s), got %d", function, parameter, (int)ndim,
             ndim == 1 ? "" : "s", needs, (int)t->ndim);
    return NULL;
  }
  if (t->dtype != dtype) {
    tw_raise("TypeError", "%s(): parameter '%s' must be of dtype %s, got %s", function, parameter, tw_dtype_name(dtype),
             tw_dtype_name(t->dtype));
    return NULL;
  }
  if (t->device_type != 1) {
    tw_raise("ValueError", "%s(): parameter '%s' must be in the memory of the CPU (device type 1), got device type %d", function,
             parameter, (int)t->device_type);
    return NULL;
  }
  for (i = ndim - 1; i >= 0; --i) {
    if (i < 32) compact[i] = count;
    if (!any_strides && t->strides != NULL && t->strides[i] != count && t->shape[i] != 1) fits = 0;
    count *= t->shape[i];
  }
  if (count == 0) return (void*)t;
  if (!fits) {
    char got[256], want[256];
    tw_numbers(got, sizeof got, t->strides, ndim);
    tw_numbers(want, sizeof want, compact, ndim < 32 ? ndim : 32);
    tw_raise("ValueError", "%s(): parameter '%s' must be row-major and compact: its strides are (%s), they must be (%s)", function,
             parameter, got, want);
    return NULL;
  }
  if (t->data == NULL) {
    tw_raise("ValueError", "%s(): parameter '%s' has a null data pointer", function, parameter);
    return NULL;
  }
  if ((((uintptr_t)t->data + t->byte_offset) & (uintptr_t)(alignment - 1)) != 0) {
    tw_raise("ValueError", "%s(): parameter '%s' must be aligned to %d bytes, its address is %d past that", function, parameter,
             (int)alignment, (int)(((uintptr_t)t->data + t->byte_offset) & (uintptr_t)(alignment - 1)));
    return NULL;
  }
  return (void*)t;
}""",
}
"""Text by name."""

SUPPORT_NEEDS = {
    "tw_raise": ("stdarg.h",),
    "tw_call_packed": ("tw_any", "tw_raise", "string.h"),
    "tw_check_tensor": ("tw_any", "tw_dltensor", "tw_raise", "tw_type_name", "tw_dtype_name", "tw_numbers"),
}
"""What each needs before it: headers and other texts."""
