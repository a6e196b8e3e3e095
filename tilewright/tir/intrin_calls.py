"""Intrinsics that stay calls until a code generator or a pass knows what to do with them: their signatures, one a line.

    name(parameters) -> dtype | effect | what it is

`-> dtype` is the dtype of the call; `-> dtype` spelled `dtype` means that the caller gives it as the first parameter, and
`=x` that of the argument `x`. `tir/intrin.py` makes a row of each line and `tir/build.py` a function with these parameters,
so that a line here is all that a new intrinsic of this kind needs. `*args` takes any number of arguments.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SIGNATURES", "Signature"]

_TEXT = """
tvm_check_return(expected, return_unexpected, nested_call) -> int32 | opaque | returns `return_unexpected` unless the call gives `expected`
tvm_stack_alloca(dtype_str, num) -> handle | opaque | memory on the stack for `num` values of a kind: shape, array, arg_value, arg_tcode
tvm_stack_make_shape(*args) -> handle | opaque | the numbers as a shape on the stack
tvm_stack_make_array(data, shape, strides, ndim, arr_dtype, elem_offset) -> handle | opaque | a DLTensor on the stack
tvm_tuple(*value) -> handle | opaque | several values as one
tvm_struct_get(arr, index, field, dtype) -> =dtype | read | a field of a structure: DLTensor, call arguments
tvm_struct_set(arr, index, field, value) -> int32 | opaque | sets a field of a structure
lookup_param(param_name) -> handle | pure | a parameter of the model by its name
tvm_thread_invariant(cond) -> =cond | pure | the condition has the same value in every thread
tvm_static_handle() -> handle | opaque | a pointer that keeps its value between calls
tvm_throw_last_error() -> handle | opaque | raises the error noted last
tvm_call_packed_lowered(*args) -> int32 | opaque | a call of a packed function with its arguments on the stack
tvm_call_cpacked_lowered(*args) -> int32 | opaque | the same by symbol
tvm_call_trace_packed(*args) -> int32 | opaque | a call of a packed function whose last argument comes back
type_annotation(dtype) -> dtype | pure | stands for a dtype among arguments
start_profile_intrinsic(id) -> handle | opaque | begin of a region that is timed
end_profile_intrinsic(id) -> handle | opaque | its end
ignore_loop_partition(predicate) -> bool | pure | a condition that loop partitioning leaves alone
vscale() -> int32 | pure | how many times the least vector the machine's scalable vectors hold
get_active_lane_mask(dtype, base, limit) -> dtype | pure | one bool a lane: base + lane < limit
dp4a(vec1, vec2, acc=0) -> int32 | pure | the dot product of four int8 pairs, added to `acc`
q_multiply_shift(x, y, q, s) -> int32 | pure | x * y * 2**-s rounded, y a fixed-point number with q fractional bits
q_multiply_shift_per_axis(x, y, ls, rs, q, is_lshift_required, is_rshift_required) -> int32 | pure | the same with shifts left and right
TVMBackendAllocWorkspace(device_type, device_id, nbytes, dtype_code_hint, dtype_bits_hint) -> handle | opaque | temporary memory of the run time
TVMBackendFreeWorkspace(device_type, device_id, ptr) -> int32 | opaque | gives it back
anylist_getitem(list_handle, index) -> handle | opaque | an item of the register file
anylist_resetitem(list_handle, index) -> int32 | opaque | clears an item
anylist_setitem_call_packed(list_handle, index, func_name, *args) -> int32 | opaque | sets an item to the result of a packed function
anylist_setitem_call_cpacked(list_handle, index, func_name, *args) -> int32 | opaque | the same by symbol
dma_copy(queue, dst, src, size, bypass_cache=0) -> int32 | opaque | begin a copy of bytes
dma_wait(queue, inflight) -> int32 | opaque | wait until at most so many copies are under way
dma_start_group(queue) -> int32 | opaque | begin a group of copies
dma_end_group(queue) -> int32 | opaque | end it
texture2d_load(dtype, *args) -> dtype | opaque | a vector of a texture
texture2d_store(dtype, *args) -> dtype | opaque | stores a vector into a texture
tvm_load_matrix_sync(fragment, m, n, k, index, buffer_ptr, stride, layout) -> handle | opaque | loads a fragment of a tensor core (wmma)
tvm_mma_sync(fragment_d, index_d, fragment_a, index_a, fragment_b, index_b, fragment_c, index_c) -> handle | opaque | d = a * b + c on fragments
tvm_bmma_sync(fragment_d, index_d, fragment_a, index_a, fragment_b, index_b, fragment_c, index_c) -> handle | opaque | the same on bits
tvm_fill_fragment(fragment, m, n, k, index, value) -> handle | opaque | fills a fragment
tvm_store_matrix_sync(fragment, m, n, k, index, buffer_ptr, stride, layout) -> handle | opaque | stores a fragment
ptx_mma(dtype, shape, A_layout, B_layout, A_dtype, B_dtype, C_dtype, multiplicand_a, a_index, multiplicand_b, b_index, accumulator, c_index, saturate, operator=None) -> dtype | opaque | mma.sync of PTX
ptx_mma_sp(dtype, shape, A_layout, B_layout, A_dtype, B_dtype, C_dtype, multiplicand_a, a_index, multiplicand_b, b_index, accumulator, c_index, metadata, meta_index, sparse_selector, saturate) -> dtype | opaque | mma.sp.sync of PTX
mma_store(dtype, m, n, dst_ptr, src_ptr, src_offset, dst_stride) -> dtype | opaque | stores the result of ptx_mma
mma_fill(dtype, local_size, local_ptr, offset) -> dtype | opaque | zeroes an accumulator of ptx_mma
ptx_ldmatrix(dtype, trans, num, type, local_ptr, local_offset, smem_ptr, smem_offset) -> dtype | opaque | ldmatrix of PTX
ptx_cp_async(dtype, shared_ptr, shared_offset, global_ptr, global_offset, bytes, predicate=None) -> dtype | opaque | cp.async of PTX
ptx_cp_async_bulk(dtype, shared_ptr, shared_offset, global_ptr, global_offset, bytes, barrier_id) -> dtype | opaque | cp.async.bulk of PTX
ptx_commit_group() -> void | opaque | cp.async.commit_group
ptx_wait_group(num) -> void | opaque | cp.async.wait_group
ptx_cp_async_barrier(barrier_id) -> void | opaque | cp.async.mbarrier.arrive
ptx_init_barrier_thread_count(barrier_id, thread_count) -> void | opaque | mbarrier.init
ptx_arrive_barrier(barrier_id) -> void | opaque | mbarrier.arrive
ptx_arrive_barrier_expect_tx(barrier_id, byte_count) -> void | opaque | mbarrier.arrive.expect_tx
ptx_wait_barrier(barrier_id) -> void | opaque | mbarrier.try_wait
create_barriers(barrier_count) -> void | opaque | declares barriers
make_filled_simdgroup_matrix(d, index, value, col=8, row=8) -> handle | opaque | fills a matrix of a SIMD group (Metal)
simdgroup_load(d, index, ptr, stride, col=8, row=8, transpose_matrix=False) -> handle | opaque | loads one
simdgroup_store(d, index, ptr, stride, col=8, row=8, transpose_matrix=False) -> handle | opaque | stores one
simdgroup_multiply_accumulate(d, index_d, a, index_a, b, index_b, c, index_c) -> handle | opaque | d = a * b + c
tvm_warp_shuffle(mask, value, warp_id, width, warp_size) -> =value | opaque | the value of that lane
tvm_warp_shuffle_up(mask, value, offset, width, warp_size) -> =value | opaque | the value of the lane `offset` below
tvm_warp_shuffle_down(mask, value, offset, width, warp_size) -> =value | opaque | the value of the lane `offset` above
tvm_warp_activemask() -> uint32 | opaque | one bit for each thread of the warp that is here
tvm_context_id() -> int32 | opaque | which virtual thread this is
ptx_ldg32(register, guard, global_load, local_addr) -> =global_load | opaque | a predicated load of 32 bits
tvm_thread_allreduce(*freduce_args) -> handle | opaque | n, values, condition, results, thread indices to reduce over
tvm_access_ptr(ptype, data, offset, extent, rw_mask) -> handle | pure | data + offset elements
tvm_call_cpacked(*args) -> int32 | opaque | a function with the packed calling convention, by symbol
"""


class Signature(NamedTuple):
    """One line of the table; `params` are `(name, default)`, the default None where there is none."""

    name: str
    params: tuple[tuple[str, str | None], ...]
    result: str
    effect: str
    doc: str

    @property
    def arity(self) -> int | None:
        """How many arguments the call has; None where that varies."""
        if any(name.startswith("*") or default == "None" for name, default in self.params):
            return None
        return len(self.params) - (self.result == "dtype" or self.result == "=dtype")


def _parse(line: str) -> Signature:
    head, _, rest = line.partition(" -> ")
    name, _, params = head.partition("(")
    result, effect, doc = (part.strip() for part in rest.split(" | ", 2))
    parts = [p.partition("=") for p in params.rstrip(")").split(", ") if p]
    return Signature(name, tuple((p, d if eq else None) for p, eq, d in parts), result, effect, doc)


SIGNATURES: dict[str, Signature] = {s.name: s for s in map(_parse, _TEXT.strip().splitlines())}
"""The signatures by name, without the prefix `tir.`."""
