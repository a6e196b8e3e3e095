"""The allocator of the runtime support, as LLVM IR text: tw_alloc, tw_free, tw_trim.

A block is 64 bytes of header (its capacity) and the memory behind it. Freed blocks of at least BIG bytes stay in SLOTS
slots, each an atomic pointer that is taken by an exchange, so that nobody reads a block it does not own. A model asks for
the same arena at each call and so gets pages that are there already. When the slots hold more than KEEP bytes, all go. Blocks of at least HUGE bytes ask for huge pages.
"""

from __future__ import annotations

__all__ = ["BIG", "HUGE", "KEEP", "SLOTS", "memory_layer"]

BIG = 1 << 16
SLOTS = 16
HUGE = 1 << 22
KEEP = 1 << 31


def memory_layer(system: str) -> str:
    """The allocator on `system` (`system_of`)."""
    if system == "windows":
        declared = "declare ptr @_aligned_malloc(i64, i64)\ndeclare void @_aligned_free(ptr)"
        get = "%p = call ptr @_aligned_malloc(i64 %bytes, i64 64)\n  ret ptr %p"
        return _MEMORY.replace("$DECLARE$", declared).replace("$GET$", get).replace("$PUT$", "_aligned_free")
    declared = "declare i32 @posix_memalign(ptr, i64, i64)\ndeclare void @free(ptr)"
    huge = "call void @advise(ptr %p, i64 %bytes)" if system == "linux" else ""
    get = _POSIX_GET.replace("$ADVISE$", huge)
    if system == "linux":
        declared += _ADVISE
    return _MEMORY.replace("$DECLARE$", declared).replace("$GET$", get).replace("$PUT$", "free")


_ADVISE = """
declare i32 @madvise(ptr, i64, i32)
define internal void @advise(ptr %p, i64 %bytes) {
  %big = icmp uge i64 %bytes, $HUGE$
  br i1 %big, label %yes, label %out
yes:
  %r = call i32 @madvise(ptr %p, i64 %bytes, i32 14)
  br label %out
out:
  ret void
}
"""

_POSIX_GET = """%slot = alloca ptr, align 8
  store ptr null, ptr %slot, align 8
  %big = icmp uge i64 %bytes, $HUGE$
  %align = select i1 %big, i64 2097152, i64 64
  %r = call i32 @posix_memalign(ptr %slot, i64 %align, i64 %bytes)
  %bad = icmp ne i32 %r, 0
  br i1 %bad, label %none, label %got
none:
  ret ptr null
got:
  %p = load ptr, ptr %slot, align 8
  $ADVISE$
  ret ptr %p"""

_MEMORY = """
$DECLARE$
@slots = internal global [$SLOTS$ x ptr] zeroinitializer, align 64
@victim = internal global i32 0, align 4
@cached = internal global i64 0, align 8

define internal ptr @os_get(i64 %bytes) noinline {
  $GET$
}

define internal ptr @from_slots(i64 %need) noinline {
entry:
  %n4 = lshr i64 %need, 2
  %n5 = add i64 %need, %n4
  %most = add i64 %n5, 4096
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %next ]
  %slot = getelementptr ptr, ptr @slots, i32 %i
  %seen = load atomic ptr, ptr %slot monotonic, align 8
  %empty = icmp eq ptr %seen, null
  br i1 %empty, label %next, label %take
take:
  %p = atomicrmw xchg ptr %slot, ptr null acquire, align 8
  %gone = icmp eq ptr %p, null
  br i1 %gone, label %next, label %look
look:
  %capacity = load i64, ptr %p, align 8
  %ge = icmp uge i64 %capacity, %need
  %le = icmp ule i64 %capacity, %most
  %fits = and i1 %ge, %le
  br i1 %fits, label %hit, label %back
back:
  %x = cmpxchg ptr %slot, ptr null, ptr %p release monotonic
  %put = extractvalue { ptr, i1 } %x, 1
  br i1 %put, label %next, label %drop
drop:
  %u = atomicrmw sub ptr @cached, i64 %capacity monotonic, align 8
  call void @$PUT$(ptr %p)
  br label %next
next:
  %i1 = add i32 %i, 1
  %end = icmp eq i32 %i1, $SLOTS$
  br i1 %end, label %miss, label %loop
hit:
  %v = atomicrmw sub ptr @cached, i64 %capacity monotonic, align 8
  ret ptr %p
miss:
  ret ptr null
}

define $LINKAGE$ptr @$OWN$alloc(i64 %bytes) {
entry:
  %negative = icmp slt i64 %bytes, 0
  br i1 %negative, label %none, label %size
none:
  ret ptr null
size:
  %more = add i64 %bytes, 127
  %need = and i64 %more, -64
  %big = icmp uge i64 %need, $BIG$
  br i1 %big, label %cached, label %fresh
cached:
  %c = call ptr @from_slots(i64 %need)
  %hit = icmp ne ptr %c, null
  br i1 %hit, label %out, label %fresh
fresh:
  %f = call ptr @os_get(i64 %need)
  %failed = icmp eq ptr %f, null
  br i1 %failed, label %trim, label %head
trim:
  call void @tw_trim()
  %f2 = call ptr @os_get(i64 %need)
  %failed2 = icmp eq ptr %f2, null
  br i1 %failed2, label %none, label %head
head:
  %g = phi ptr [ %f, %fresh ], [ %f2, %trim ]
  store i64 %need, ptr %g, align 8
  br label %out
out:
  %p = phi ptr [ %c, %cached ], [ %g, %head ]
  %r = getelementptr i8, ptr %p, i64 64
  ret ptr %r
}

define $LINKAGE$void @$OWN$free(ptr %block) {
entry:
  %null = icmp eq ptr %block, null
  br i1 %null, label %out, label %base
base:
  %p = getelementptr i8, ptr %block, i64 -64
  %capacity = load i64, ptr %p, align 8
  %big = icmp uge i64 %capacity, $BIG$
  br i1 %big, label %loop, label %give
loop:
  %i = phi i32 [ 0, %base ], [ %i1, %next ]
  %slot = getelementptr ptr, ptr @slots, i32 %i
  %seen = load atomic ptr, ptr %slot monotonic, align 8
  %empty = icmp eq ptr %seen, null
  br i1 %empty, label %put, label %next
put:
  %x = cmpxchg ptr %slot, ptr null, ptr %p release monotonic
  %ok = extractvalue { ptr, i1 } %x, 1
  br i1 %ok, label %kept, label %next
next:
  %i1 = add i32 %i, 1
  %end = icmp eq i32 %i1, $SLOTS$
  br i1 %end, label %replace, label %loop
replace:
  ; all taken: the new block is the likelier to be asked for again
  %v = atomicrmw add ptr @victim, i32 1 monotonic, align 4
  %which = urem i32 %v, $SLOTS$
  %place = getelementptr ptr, ptr @slots, i32 %which
  %old = atomicrmw xchg ptr %place, ptr %p acq_rel, align 8
  %was = icmp ne ptr %old, null
  br i1 %was, label %drop, label %kept
drop:
  %gone = load i64, ptr %old, align 8
  %w = atomicrmw sub ptr @cached, i64 %gone monotonic, align 8
  call void @$PUT$(ptr %old)
  br label %kept
kept:
  %before = atomicrmw add ptr @cached, i64 %capacity monotonic, align 8
  %now = add i64 %before, %capacity
  %over = icmp sgt i64 %now, $KEEP$
  br i1 %over, label %trim, label %out
trim:
  call void @tw_trim()
  br label %out
give:
  call void @$PUT$(ptr %p)
  br label %out
out:
  ret void
}

define void @tw_trim() {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %next ]
  %slot = getelementptr ptr, ptr @slots, i32 %i
  %p = atomicrmw xchg ptr %slot, ptr null acquire, align 8
  %some = icmp ne ptr %p, null
  br i1 %some, label %drop, label %next
drop:
  %capacity = load i64, ptr %p, align 8
  %u = atomicrmw sub ptr @cached, i64 %capacity monotonic, align 8
  call void @$PUT$(ptr %p)
  br label %next
next:
  %i1 = add i32 %i, 1
  %end = icmp eq i32 %i1, $SLOTS$
  br i1 %end, label %out, label %loop
out:
  ret void
}
"""
