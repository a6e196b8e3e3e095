"""The runtime support of compiled code, as LLVM IR text: a thread pool and an allocator for big blocks.

    i32  tw_parallel_for(ptr fn, ptr closure, i64 n)     fn = i32 (ptr closure, i64 begin, i64 end); first non-zero status
    ptr  tw_alloc(i64 bytes)                             64-byte aligned, null when there is no memory
    void tw_free(ptr block)
    void tw_trim()                                       give cached blocks back to the system
    void tw_set_num_threads(i32 n)                       0: choose again
    i32  tw_get_num_threads()
    void tw_set_cpus(ptr ids, i32 count)                 the cores to pin workers to, best first
    tw_tensor_alloc, tw_return_tensors, tw_release_tensors     (runtime_tensor.py)
    tw_check_tensor                                            (runtime_check.py)

The pool. One atomic word `generation(32) | tasks(16) | next(16)` holds the state of the one region that may run. Whoever
finds `next < tasks` claims a task by a compare-and-swap of next + 1; since the generation is in the same word, a thread
that was late cannot claim a task of another region, and once it has claimed one, the region's fields stand until it has
counted the task as done. The caller works like everybody else and then waits for the tasks that others still run: for
finished tasks, not for workers, so a worker that the system has not scheduled costs nothing. Workers spin for some tens
of microseconds and then sleep on the generation half of the word; they start at the first region and are pinned.

A region that starts while another runs, be it nested or of another thread, runs serially in its caller: the lock of the
pool says so by itself, without thread-local state. After a fork the child has no workers and starts its own
(pthread_atfork). An error that a task raised on a worker is moved to the caller's thread.

A task that forks, in the child, must not return into the region: the child has no workers to finish it.

Systems: Linux (futex), macOS (ulock), Windows (WaitOnAddress). Only Linux has been run by the project's tests on every
change; the other two are compiled by the tests, and run by CI.

The pool is one per process: `runtime/threads.py` loads it once, and every engine binds to its addresses. A shared
library carries its own copy (`library=True`): it works without Python, and `__tw_bind(ptr table)` redirects it to the
process's pool.
"""

from __future__ import annotations

from functools import cache

from tilewright.backends.llvm.runtime_check import CHECK_EXPORTS, CHECK_LAYER
from tilewright.backends.llvm.runtime_memory import BIG, HUGE, KEEP, SLOTS, memory_layer
from tilewright.backends.llvm.runtime_os import FUTEX, os_layer, pause
from tilewright.backends.llvm.runtime_tensor import TENSOR_EXPORTS, TENSOR_LAYER

__all__ = ["BOUND_SYMBOLS", "EXPORTS", "runtime_text", "system_of"]

EXPORTS = (
    "tw_parallel_for",
    "tw_alloc",
    "tw_free",
    "tw_trim",
    "tw_set_num_threads",
    "tw_get_num_threads",
    "tw_set_cpus",
    *TENSOR_EXPORTS,
    *CHECK_EXPORTS,
)
"""What the text defines."""

BOUND_SYMBOLS = ("tw_parallel_for", "tw_alloc", "tw_free")
"""The order of the table that `__tw_bind` of a shared library takes."""

_SPIN_WORKER = 2000  # pauses before a worker sleeps: 40 us or so
_SPIN_CALLER = 4000
_TASKS_PER_THREAD = 4  # pieces of a region a thread: evens out what the system takes away


def system_of(triple: str) -> str:
    """The operating system of an LLVM triple: `linux`, `darwin`, `windows`, or `none` (threads are not used then)."""
    lowered = triple.lower()
    for word, name in (
        ("linux", "linux"),
        ("darwin", "darwin"),
        ("macos", "darwin"),
        ("windows", "windows"),
        ("win32", "windows"),
    ):
        if word in lowered:
            return name
    return "none"


def _arch_of(triple: str) -> str:
    arch = triple.partition("-")[0]
    if arch == "arm64":
        return "aarch64"
    return "arm" if arch.startswith(("armv", "thumbv")) else "i386" if arch in ("i586", "i686") else arch


@cache
def runtime_text(triple: str, *, library: bool = False, atfork: str = "__register_atfork") -> str:
    """The module as LLVM IR text for `triple`.

    `library`: the form for a shared library, where the three functions that kernels call go through a table of pointers
    that `__tw_bind` may redirect. `atfork`: the name by which libc exports pthread_atfork (glibc: `__register_atfork`,
    which takes a fourth argument; musl and macOS: `pthread_atfork`). Unknown systems get the serial form: regions run in
    their caller.
    """
    system, arch = system_of(triple), _arch_of(triple)
    if system == "linux" and arch not in FUTEX:
        system = "none"
    own = "tw_own_" if library else "tw_"
    linkage = "internal " if library else ""
    parts = [f'target triple = "{triple}"', "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"]
    if system == "none":
        parts.append(_SERIAL)
    else:
        parts += [_POOL_STATE, pause(arch), os_layer(system, arch, atfork), _POOL]
    parts += [memory_layer(system), _ERRORS, TENSOR_LAYER, CHECK_LAYER]
    if library:
        parts.append(_LIBRARY)
    text = "\n".join(parts)
    values = {
        "OWN": own,
        "LINKAGE": linkage,
        "HIDDEN": "hidden " if library else "",
        "SPIN_WORKER": _SPIN_WORKER,
        "SPIN_CALLER": _SPIN_CALLER,
        "PER_THREAD": _TASKS_PER_THREAD,
        "BIG": BIG,
        "SLOTS": SLOTS,
        "HUGE": HUGE,
        "KEEP": KEEP,
    }
    for name, value in values.items():
        text = text.replace(f"${name}$", str(value))
    return text


_ERRORS = """
declare void @TVMFFIErrorMoveFromRaised(ptr)
declare void @TVMFFIErrorSetRaised(ptr)
declare i32 @TVMFFIObjectDecRef(ptr)
"""

_POOL_STATE = """
@word = internal global i64 0, align 128        ; generation(32) | tasks(16) | next(16)
@done = internal global i32 0, align 128        ; finished tasks of the region
@waiting = internal global i32 0, align 4       ; does the caller sleep on @done?
@region_fn = internal global ptr null, align 128
@region_closure = internal global ptr null, align 8
@region_n = internal global i64 0, align 8
@status = internal global i32 0, align 4        ; first non-zero status of a task
@error = internal global ptr null, align 8      ; the error object that came with it
@lock = internal global i32 0, align 128        ; 1 while a region runs
@sleepers = internal global i32 0, align 128
@threads = internal global i32 0, align 128     ; threads a region uses, the caller included; 0: not chosen yet
@workers = internal global i32 0, align 4       ; threads started
@first_cpu = internal global i32 0, align 4     ; index in @cpu_ids of the caller's core when workers started
@once = internal global i32 0, align 4
@cpu_count = internal global i32 0, align 4
@cpu_ids = internal global [1024 x i32] zeroinitializer, align 4
@env_name = internal constant [23 x i8] c"TILEWRIGHT_NUM_THREADS\\00"
"""

_POOL = """
declare ptr @getenv(ptr)
declare i32 @atoi(ptr)

define internal void @after_fork() {
  %w = load atomic i64, ptr @word monotonic, align 8
  %g = and i64 %w, -4294967296
  store atomic i64 %g, ptr @word monotonic, align 8
  store i32 0, ptr @done, align 4
  store i32 0, ptr @waiting, align 4
  store i32 0, ptr @workers, align 4
  store i32 0, ptr @sleepers, align 4
  store atomic i32 0, ptr @lock release, align 4
  ret void
}

define internal i32 @choose_threads() noinline {
entry:
  %text = call ptr @getenv(ptr @env_name)
  %unset = icmp eq ptr %text, null
  br i1 %unset, label %count, label %read
read:
  %given = call i32 @atoi(ptr %text)
  %good = icmp sgt i32 %given, 0
  br i1 %good, label %store, label %count
count:
  %cpus = call i32 @os_cpus()
  br label %store
store:
  %n = phi i32 [ %given, %read ], [ %cpus, %count ]
  %most = call i32 @llvm.umin.i32(i32 %n, i32 1024)
  store atomic i32 %most, ptr @threads monotonic, align 4
  ret i32 %most
}
declare i32 @llvm.umin.i32(i32, i32)
declare i64 @llvm.umin.i64(i64, i64)

define i32 @tw_get_num_threads() {
entry:
  %n = load atomic i32, ptr @threads monotonic, align 4
  %known = icmp sgt i32 %n, 0
  br i1 %known, label %out, label %choose
choose:
  %c = call i32 @choose_threads()
  br label %out
out:
  %r = phi i32 [ %n, %entry ], [ %c, %choose ]
  ret i32 %r
}

define void @tw_set_num_threads(i32 %n) {
  %low = icmp slt i32 %n, 0
  %a = select i1 %low, i32 0, i32 %n
  %b = call i32 @llvm.umin.i32(i32 %a, i32 1024)
  store atomic i32 %b, ptr @threads monotonic, align 4
  ret void
}

define void @tw_set_cpus(ptr %ids, i32 %count) {
entry:
  %n = call i32 @llvm.umin.i32(i32 %count, i32 1024)
  %none = icmp eq i32 %n, 0
  br i1 %none, label %out, label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %loop ]
  %from = getelementptr i32, ptr %ids, i32 %i
  %to = getelementptr i32, ptr @cpu_ids, i32 %i
  %v = load i32, ptr %from, align 4
  store i32 %v, ptr %to, align 4
  %i1 = add i32 %i, 1
  %end = icmp eq i32 %i1, %n
  br i1 %end, label %out, label %loop
out:
  store i32 %n, ptr @cpu_count, align 4
  ret void
}

; The first failure of a region: keep its status, and its error object for the caller's thread.
define internal void @fail(i32 %s) noinline {
entry:
  %x = cmpxchg ptr @status, i32 0, i32 %s acq_rel monotonic
  %first = extractvalue { i32, i1 } %x, 1
  br i1 %first, label %keep, label %out
keep:
  %slot = alloca ptr, align 8
  store ptr null, ptr %slot, align 8
  call void @TVMFFIErrorMoveFromRaised(ptr %slot)
  %e = load ptr, ptr %slot, align 8
  store ptr %e, ptr @error, align 8
  br label %out
out:
  ret void
}

; Claim tasks of the current region and run them until none is left. After a failure the rest are only counted.
define internal void @work() {
entry:
  br label %look
look:
  %w = load atomic i64, ptr @word acquire, align 8
  %next = and i64 %w, 65535
  %t = lshr i64 %w, 16
  %tasks = and i64 %t, 65535
  %more = icmp ult i64 %next, %tasks
  br i1 %more, label %claim, label %out
claim:
  %w1 = add i64 %w, 1
  %x = cmpxchg weak ptr @word, i64 %w, i64 %w1 acq_rel monotonic
  %ok = extractvalue { i64, i1 } %x, 1
  br i1 %ok, label %claimed, label %look
claimed:
  %failed = load atomic i32, ptr @status monotonic, align 4
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %count, label %run
run:
  %fn = load ptr, ptr @region_fn, align 8
  %closure = load ptr, ptr @region_closure, align 8
  %n = load i64, ptr @region_n, align 8
  %each = udiv i64 %n, %tasks
  %extra = urem i64 %n, %tasks
  %b0 = mul i64 %next, %each
  %bx = call i64 @llvm.umin.i64(i64 %next, i64 %extra)
  %begin = add i64 %b0, %bx
  %longer = icmp ult i64 %next, %extra
  %one = zext i1 %longer to i64
  %e0 = add i64 %begin, %each
  %end = add i64 %e0, %one
  %s = call i32 %fn(ptr %closure, i64 %begin, i64 %end)
  %fine = icmp eq i32 %s, 0
  br i1 %fine, label %count, label %failure
failure:
  call void @fail(i32 %s)
  br label %count
count:
  %d = atomicrmw add ptr @done, i32 1 seq_cst, align 4
  %asleep = load atomic i32, ptr @waiting seq_cst, align 4
  %wake = icmp ne i32 %asleep, 0
  br i1 %wake, label %signal, label %look
signal:
  call void @os_wake(ptr @done, i32 1)
  br label %look
out:
  ret void
}

define internal i1 @is_work(i64 %w, i32 %index) alwaysinline {
  %next = and i64 %w, 65535
  %t = lshr i64 %w, 16
  %tasks = and i64 %t, 65535
  %more = icmp ult i64 %next, %tasks
  %a = call i1 @is_active(i32 %index)
  %r = and i1 %more, %a
  ret i1 %r
}
define internal i1 @is_active(i32 %index) alwaysinline {
  %n = load atomic i32, ptr @threads monotonic, align 4
  %i = add i32 %index, 1
  %r = icmp slt i32 %i, %n
  ret i1 %r
}

; A worker's life. Beyond the number of threads in use it only sleeps.
define internal void @worker(i32 %index) {
entry:
  %cpus = load i32, ptr @cpu_count, align 4
  %second = add i32 %index, 1
  %room = icmp slt i32 %second, %cpus
  br i1 %room, label %pin, label %begin
pin:
  %first = load i32, ptr @first_cpu, align 4
  %p = add i32 %first, %second
  %q = urem i32 %p, %cpus
  %slot = getelementptr i32, ptr @cpu_ids, i32 %q
  %cpu = load i32, ptr %slot, align 4
  call void @os_pin(i32 %cpu)
  br label %begin
begin:
  br label %look
look:
  %spins = phi i32 [ 0, %begin ], [ %spins1, %spin ], [ 0, %busy ], [ 0, %awake ], [ %spins, %asleep ]
  %w = load atomic i64, ptr @word acquire, align 8
  %is = call i1 @is_work(i64 %w, i32 %index)
  br i1 %is, label %busy, label %idle
busy:
  call void @work()
  br label %look
idle:
  %active = call i1 @is_active(i32 %index)
  %few = icmp slt i32 %spins, $SPIN_WORKER$
  %again = and i1 %active, %few
  br i1 %again, label %spin, label %sleep
spin:
  call void @pause()
  %spins1 = add i32 %spins, 1
  br label %look
sleep:
  %s = atomicrmw add ptr @sleepers, i32 1 seq_cst, align 4
  %w2 = load atomic i64, ptr @word seq_cst, align 8
  %is2 = call i1 @is_work(i64 %w2, i32 %index)
  br i1 %is2, label %asleep, label %wait
wait:
  %high = lshr i64 %w2, 32
  %seen = trunc i64 %high to i32
  %at = getelementptr i8, ptr @word, i64 4
  call void @os_wait(ptr %at, i32 %seen)
  br label %awake
awake:
  %u = atomicrmw sub ptr @sleepers, i32 1 seq_cst, align 4
  br label %look
asleep:
  %v = atomicrmw sub ptr @sleepers, i32 1 seq_cst, align 4
  br label %look
}

; Under the lock: start workers up to %want.
define internal void @start_workers(i32 %want) noinline {
entry:
  %begun = load i32, ptr @once, align 4
  %is = icmp eq i32 %begun, 0
  br i1 %is, label %first, label %place
first:
  store i32 1, ptr @once, align 4
  call void @os_once()
  %cpus = call i32 @os_cpus()
  br label %place
place:
  %have0 = load i32, ptr @workers, align 4
  %fresh = icmp eq i32 %have0, 0
  br i1 %fresh, label %search, label %loop
search:
  %here = call i32 @os_this_cpu()
  %count = load i32, ptr @cpu_count, align 4
  br label %find
find:
  %i = phi i32 [ 0, %search ], [ %i1, %miss ]
  %over = icmp sge i32 %i, %count
  br i1 %over, label %unknown, label %probe
probe:
  %slot = getelementptr i32, ptr @cpu_ids, i32 %i
  %id = load i32, ptr %slot, align 4
  %same = icmp eq i32 %id, %here
  br i1 %same, label %found, label %miss
miss:
  %i1 = add i32 %i, 1
  br label %find
unknown:
  br label %found
found:
  %pos = phi i32 [ %i, %probe ], [ 0, %unknown ]
  store i32 %pos, ptr @first_cpu, align 4
  br label %loop
loop:
  %have = phi i32 [ %have0, %place ], [ 0, %found ], [ %have1, %started ]
  %less = icmp slt i32 %have, %want
  br i1 %less, label %spawn, label %out
spawn:
  %ok = call i1 @os_spawn(i32 %have)
  br i1 %ok, label %started, label %out
started:
  %have1 = add i32 %have, 1
  store i32 %have1, ptr @workers, align 4
  br label %loop
out:
  ret void
}

define $LINKAGE$i32 @$OWN$parallel_for(ptr %fn, ptr %closure, i64 %n) {
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %ask, label %nothing
nothing:
  ret i32 0
ask:
  %nt = call i32 @tw_get_num_threads()
  %alone = icmp slt i32 %nt, 2
  %single = icmp eq i64 %n, 1
  %serial = or i1 %alone, %single
  br i1 %serial, label %inline, label %try
inline:
  %s = call i32 %fn(ptr %closure, i64 0, i64 %n)
  ret i32 %s
try:
  %held = load atomic i32, ptr @lock monotonic, align 4
  %free = icmp eq i32 %held, 0
  br i1 %free, label %take, label %inline
take:
  %x = cmpxchg ptr @lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %x, 1
  br i1 %mine, label %prepare, label %inline
prepare:
  %want = sub i32 %nt, 1
  %have = load i32, ptr @workers, align 4
  %enough = icmp sge i32 %have, %want
  br i1 %enough, label %publish, label %start
start:
  call void @start_workers(i32 %want)
  br label %publish
publish:
  %nt64 = zext i32 %nt to i64
  %many = mul i64 %nt64, $PER_THREAD$
  %tasks = call i64 @llvm.umin.i64(i64 %n, i64 %many)
  %tasks32 = trunc i64 %tasks to i32
  store ptr %fn, ptr @region_fn, align 8
  store ptr %closure, ptr @region_closure, align 8
  store i64 %n, ptr @region_n, align 8
  store atomic i32 0, ptr @status monotonic, align 4
  store atomic i32 0, ptr @done monotonic, align 4
  %old = load atomic i64, ptr @word monotonic, align 8
  %gen = lshr i64 %old, 32
  %gen1 = add i64 %gen, 1
  %high = shl i64 %gen1, 32
  %mid = shl i64 %tasks, 16
  %new = or i64 %high, %mid
  store atomic i64 %new, ptr @word seq_cst, align 8
  %sleeping = load atomic i32, ptr @sleepers seq_cst, align 4
  %any = icmp sgt i32 %sleeping, 0
  br i1 %any, label %wake, label %go
wake:
  ; idle workers beyond the number in use would take a wake-up meant for another: then wake all
  %spare = icmp sgt i32 %have, %want
  %others = sub i32 %tasks32, 1
  %count = select i1 %spare, i32 2147483647, i32 %others
  %at = getelementptr i8, ptr @word, i64 4
  call void @os_wake(ptr %at, i32 %count)
  br label %go
go:
  call void @work()
  br label %check
check:
  %spins = phi i32 [ 0, %go ], [ %spins1, %spin ], [ %spins, %woken ]
  %d = load atomic i32, ptr @done acquire, align 4
  %complete = icmp eq i32 %d, %tasks32
  br i1 %complete, label %finish, label %later
later:
  %few = icmp slt i32 %spins, $SPIN_CALLER$
  br i1 %few, label %spin, label %sleep
spin:
  call void @pause()
  %spins1 = add i32 %spins, 1
  br label %check
sleep:
  store atomic i32 1, ptr @waiting seq_cst, align 4
  %d2 = load atomic i32, ptr @done seq_cst, align 4
  %complete2 = icmp eq i32 %d2, %tasks32
  br i1 %complete2, label %woken, label %wait
wait:
  call void @os_wait(ptr @done, i32 %d2)
  br label %woken
woken:
  store atomic i32 0, ptr @waiting monotonic, align 4
  br label %check
finish:
  %status = load atomic i32, ptr @status monotonic, align 4
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %unlock, label %raise
raise:
  %error = load ptr, ptr @error, align 8
  store ptr null, ptr @error, align 8
  %bare = icmp eq ptr %error, null
  br i1 %bare, label %unlock, label %hand
hand:
  call void @TVMFFIErrorSetRaised(ptr %error)
  %r = call i32 @TVMFFIObjectDecRef(ptr %error)
  br label %unlock
unlock:
  store atomic i32 0, ptr @lock release, align 4
  ret i32 %status
}
"""

_SERIAL = """
define $LINKAGE$i32 @$OWN$parallel_for(ptr %fn, ptr %closure, i64 %n) {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %run, label %out
run:
  %s = call i32 %fn(ptr %closure, i64 0, i64 %n)
  ret i32 %s
out:
  ret i32 0
}
define i32 @tw_get_num_threads() { ret i32 1 }
define void @tw_set_num_threads(i32 %n) { ret void }
define void @tw_set_cpus(ptr %ids, i32 %count) { ret void }
"""


# A shared library's kernels call through this table, so that the process's pool can take over (threads.bind).
_LIBRARY = """
@bound_parallel_for = internal global ptr @tw_own_parallel_for, align 8
@bound_alloc = internal global ptr @tw_own_alloc, align 8
@bound_free = internal global ptr @tw_own_free, align 8
define hidden i32 @tw_parallel_for(ptr %fn, ptr %closure, i64 %n) {
  %f = load ptr, ptr @bound_parallel_for, align 8
  %r = tail call i32 %f(ptr %fn, ptr %closure, i64 %n)
  ret i32 %r
}
define hidden ptr @tw_alloc(i64 %bytes) {
  %f = load ptr, ptr @bound_alloc, align 8
  %r = tail call ptr %f(i64 %bytes)
  ret ptr %r
}
define hidden void @tw_free(ptr %block) {
  %f = load ptr, ptr @bound_free, align 8
  tail call void %f(ptr %block)
  ret void
}
define void @__tw_bind(ptr %table) {
  %a = load ptr, ptr %table, align 8
  %p1 = getelementptr ptr, ptr %table, i64 1
  %b = load ptr, ptr %p1, align 8
  %p2 = getelementptr ptr, ptr %table, i64 2
  %c = load ptr, ptr %p2, align 8
  store ptr %a, ptr @bound_parallel_for, align 8
  store ptr %b, ptr @bound_alloc, align 8
  store ptr %c, ptr @bound_free, align 8
  ret void
}
"""
