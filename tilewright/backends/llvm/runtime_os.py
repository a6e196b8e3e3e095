"""The operating system's part of the runtime support, as LLVM IR text: waiting, waking, cores and threads.

Each layer defines `os_wait(ptr at, i32 seen)` (sleep while *at == seen; may wake for no reason), `os_wake(ptr at, i32
count)`, `i32 os_cpus()` (how many cores this process may use), `os_pin(i32 cpu)`, `i32 os_this_cpu()` (-1: unknown),
`i1 os_spawn(i32 index)` (start a thread that runs `worker(index)`), and `os_once()` (what is done once before the first
worker). They see `@cpu_ids` and `@cpu_count`, `worker` and `after_fork` of the pool.
"""

from __future__ import annotations

__all__ = ["FUTEX", "os_layer", "pause"]

FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "powerpc64le": 221, "s390x": 238}
"""The number of Linux's futex system call, by architecture (64-bit ones: the text uses 64-bit lengths)."""


def pause(arch: str) -> str:
    """The hint that a loop waits, of an architecture."""
    return _PAUSE.get(arch, _PAUSE[""])


def os_layer(system: str, arch: str, atfork: str) -> str:
    """os_wait, os_wake, os_cpus, os_pin, os_spawn, os_once of a system, each a few lines."""
    if system == "windows":
        return _WINDOWS
    if system == "darwin":
        return _DARWIN + _pthreads(block=1, setmask=3) + _register("pthread_atfork")
    return _LINUX.replace("$FUTEX$", str(FUTEX[arch])) + _pthreads(block=0, setmask=2) + _register(atfork)


def _pthreads(block: int, setmask: int) -> str:
    return _PTHREADS.replace("$SIG_BLOCK$", str(block)).replace("$SIG_SETMASK$", str(setmask))


def _register(name: str) -> str:
    if name == "__register_atfork":
        declared, call = "ptr, ptr, ptr, ptr", "ptr null, ptr null, ptr @after_fork, ptr null"
    else:
        declared, call = "ptr, ptr, ptr", "ptr null, ptr null, ptr @after_fork"
    return f"""
declare i32 @{name}({declared})
define internal void @os_once() {{
  %r = call i32 @{name}({call})
  ret void
}}
"""


_PAUSE = {
    "x86_64": """
declare void @llvm.x86.sse2.pause()
define internal void @pause() alwaysinline { call void @llvm.x86.sse2.pause() ret void }
""",
    "aarch64": """
declare void @llvm.aarch64.hint(i32)
define internal void @pause() alwaysinline { call void @llvm.aarch64.hint(i32 1) ret void }
""",
    "": """
define internal void @pause() alwaysinline { fence seq_cst ret void }
""",
}


# Linux: futex on 32-bit words (private to the process: operations 128 and 129); affinity by masks of 1024 cores.
_LINUX = """
declare i64 @syscall(i64, ...)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
define internal void @os_wait(ptr %at, i32 %seen) {
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX$, ptr %at, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  ret void
}
define internal void @os_wake(ptr %at, i32 %count) {
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX$, ptr %at, i32 129, i32 %count, ptr null, ptr null, i32 0)
  ret void
}
define internal i32 @os_cpus() {
entry:
  %mask = alloca [16 x i64], align 8
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %r = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %known = load i32, ptr @cpu_count, align 4
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %next ]
  %n = phi i32 [ 0, %entry ], [ %n1, %next ]
  %word = lshr i32 %i, 6
  %slot = getelementptr i64, ptr %mask, i32 %word
  %bits = load i64, ptr %slot, align 8
  %low = and i32 %i, 63
  %shift = zext i32 %low to i64
  %b = lshr i64 %bits, %shift
  %on = trunc i64 %b to i1
  br i1 %on, label %set, label %next
set:
  %store = icmp eq i32 %known, 0
  %where = getelementptr [1024 x i32], ptr @cpu_ids, i64 0, i32 %n
  %old = load i32, ptr %where, align 4
  %value = select i1 %store, i32 %i, i32 %old
  store i32 %value, ptr %where, align 4
  %n0 = add i32 %n, 1
  br label %next
next:
  %n1 = phi i32 [ %n, %loop ], [ %n0, %set ]
  %i1 = add i32 %i, 1
  %end = icmp eq i32 %i1, 1024
  br i1 %end, label %done, label %loop
done:
  %none = icmp eq i32 %n1, 0
  %count = select i1 %none, i32 1, i32 %n1
  %keep = icmp eq i32 %known, 0
  br i1 %keep, label %write, label %out
write:
  store i32 %n1, ptr @cpu_count, align 4
  br label %out
out:
  ret i32 %count
}
define internal void @os_pin(i32 %cpu) {
  %mask = alloca [16 x i64], align 8
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %word = lshr i32 %cpu, 6
  %slot = getelementptr i64, ptr %mask, i32 %word
  %low = and i32 %cpu, 63
  %shift = zext i32 %low to i64
  %bit = shl i64 1, %shift
  store i64 %bit, ptr %slot, align 8
  %r = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  ret void
}
declare i32 @sched_getcpu()
define internal i32 @os_this_cpu() {
  %c = call i32 @sched_getcpu()
  ret i32 %c
}
"""

# macOS: the ulock calls of libSystem compare and wait on 32 bits (operation 1; 0x100 wakes all). No pinning there.
_DARWIN = """
declare i32 @__ulock_wait(i32, ptr, i64, i32)
declare i32 @__ulock_wake(i32, ptr, i64)
declare i64 @sysconf(i32)
define internal void @os_wait(ptr %at, i32 %seen) {
  %v = zext i32 %seen to i64
  %r = call i32 @__ulock_wait(i32 1, ptr %at, i64 %v, i32 0)
  ret void
}
define internal void @os_wake(ptr %at, i32 %count) {
  %r = call i32 @__ulock_wake(i32 257, ptr %at, i64 0)
  ret void
}
define internal i32 @os_cpus() {
  %n = call i64 @sysconf(i32 58)
  %t = trunc i64 %n to i32
  %few = icmp slt i32 %t, 1
  %count = select i1 %few, i32 1, i32 %t
  ret i32 %count
}
define internal void @os_pin(i32 %cpu) { ret void }
define internal i32 @os_this_cpu() { ret i32 -1 }
"""

# Workers are detached and take no signals, so that the handlers of the process run in threads of its own.
_PTHREADS = """
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
define internal ptr @thread_main(ptr %arg) {
  %i = ptrtoint ptr %arg to i64
  %index = trunc i64 %i to i32
  call void @worker(i32 %index)
  ret ptr null
}
define internal i1 @os_spawn(i32 %index) {
  %all = alloca [16 x i64], align 8
  %old = alloca [16 x i64], align 8
  %thread = alloca ptr, align 8
  call void @llvm.memset.p0.i64(ptr %all, i8 -1, i64 128, i1 false)
  %m = call i32 @pthread_sigmask(i32 $SIG_BLOCK$, ptr %all, ptr %old)
  %wide = zext i32 %index to i64
  %arg = inttoptr i64 %wide to ptr
  %r = call i32 @pthread_create(ptr %thread, ptr null, ptr @thread_main, ptr %arg)
  %n = call i32 @pthread_sigmask(i32 $SIG_SETMASK$, ptr %old, ptr null)
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %detach, label %out
detach:
  %id = load ptr, ptr %thread, align 8
  %d = call i32 @pthread_detach(ptr %id)
  br label %out
out:
  ret i1 %ok
}
"""

_WINDOWS = """
declare i32 @WaitOnAddress(ptr, ptr, i64, i32)
declare void @WakeByAddressAll(ptr)
declare i32 @GetActiveProcessorCount(i16)
declare ptr @CreateThread(ptr, i64, ptr, ptr, i32, ptr)
declare i32 @CloseHandle(ptr)
define internal void @os_wait(ptr %at, i32 %seen) {
  %v = alloca i32, align 4
  store i32 %seen, ptr %v, align 4
  %r = call i32 @WaitOnAddress(ptr %at, ptr %v, i64 4, i32 -1)
  ret void
}
define internal void @os_wake(ptr %at, i32 %count) {
  call void @WakeByAddressAll(ptr %at)
  ret void
}
define internal i32 @os_cpus() {
  %n = call i32 @GetActiveProcessorCount(i16 -1)
  %few = icmp slt i32 %n, 1
  %count = select i1 %few, i32 1, i32 %n
  ret i32 %count
}
define internal void @os_pin(i32 %cpu) { ret void }
define internal i32 @os_this_cpu() { ret i32 -1 }
define internal i32 @thread_main(ptr %arg) {
  %i = ptrtoint ptr %arg to i64
  %index = trunc i64 %i to i32
  call void @worker(i32 %index)
  ret i32 0
}
define internal i1 @os_spawn(i32 %index) {
  %wide = zext i32 %index to i64
  %arg = inttoptr i64 %wide to ptr
  %h = call ptr @CreateThread(ptr null, i64 0, ptr @thread_main, ptr %arg, i32 0, ptr null)
  %ok = icmp ne ptr %h, null
  br i1 %ok, label %close, label %out
close:
  %c = call i32 @CloseHandle(ptr %h)
  br label %out
out:
  ret i1 %ok
}
define internal void @os_once() { ret void }
"""
