"""The schedule fuzzer: random sequences of primitives on small programs, each compared with the program as it was.

    python -m tests.fuzz.schedules --count 2000 --seed 0 [--native 1.0] [--program matmul]

A step that is refused (ScheduleError) is fine; anything else that is raised, and any wrong result (by the interpreter, and by
native code for the share `--native` of the sequences), is a fault: the sequence's seed and its trace are printed.
"""

from __future__ import annotations

import argparse
import random
import time
import traceback
from typing import Any

import numpy as np

import tilewright as tvm
from tests.fuzz.programs import PROGRAMS, SIZES
from tests.tir.schedule.meaning import data, results
from tilewright.support.diagnostics import CompileError
from tilewright.tir.interp import interpret
from tilewright.tir.ir import PrimFunc
from tilewright.tir.schedule import BlockRV, LoopRV, Schedule, ScheduleError

STEPS = 9
"""How many steps a sequence tries at most."""


class Fault(Exception):
    """A sequence that broke the program, or an error that is no ScheduleError."""

    def __init__(self, name: str, seed: int, what: str, trace: str) -> None:
        super().__init__(f"{name}, seed {seed}: {what}\n{trace}")
        self.what = what


class Chooser:
    """Picks steps for a schedule at random."""

    def __init__(self, sch: Schedule, rng: random.Random) -> None:
        self.sch, self.rng = sch, rng

    def blocks(self) -> list[str]:
        names = [b for b in self.sch.state.block_names("main") if b != "root"]
        return [b for b in names if names.count(b) == 1]

    def block(self) -> BlockRV:
        return self.sch.get_block(self.rng.choice(self.blocks()))

    def loops(self) -> list[LoopRV]:
        return self.sch.get_loops(self.block())

    def loop(self) -> LoopRV:
        found = self.loops()
        if not found:
            raise ScheduleError(tvm_diagnostic())
        return self.rng.choice(found)

    # ---- the steps -------------------------------------------------------------------------------------------------------

    def split(self) -> None:
        n = self.rng.choice([2, 2, 3])
        factors: list[Any] = [self.rng.choice([1, 2, 3, 4, 5]) for _ in range(n)]
        factors[self.rng.randrange(n)] = None
        self.sch.split(self.loop(), factors, preserve_unit_iters=self.rng.random() < 0.7)

    def tile(self) -> None:
        loop = self.loop()
        self.sch.split(loop, self.sch.sample_perfect_tile(loop, self.rng.choice([2, 3]), 8))

    def partitioned_tile(self) -> None:
        loop = self.loop()
        self.sch.split(loop, self.sch.sample_partitioned_tile(loop, 3, self.rng.randrange(3), self.rng.choice([1, 2])))

    def fuse(self) -> None:
        loops = self.loops()
        start = self.rng.randrange(max(1, len(loops)))
        self.sch.fuse(*loops[start : start + self.rng.choice([2, 2, 3])], preserve_unit_iters=self.rng.random() < 0.7)

    def reorder(self) -> None:
        loops = self.loops()
        self.sch.reorder(*self.rng.sample(loops, min(len(loops), self.rng.choice([2, 3, 4]))))

    def loop_partition(self) -> None:
        self.sch.loop_partition(self.loop(), self.rng.choice([[1], [2, 1], [2, None], [None, 1]]))

    def merge(self) -> None:
        self.sch.merge(self.loop(), self.loop())

    def reorder_block_iter_var(self) -> None:
        block = self.block()
        order = list(range(len(self.sch.get(block).iter_vars)))
        self.rng.shuffle(order)
        self.sch.reorder_block_iter_var(block, order)

    def add_unit_loop(self) -> None:
        self.sch.add_unit_loop(self.block() if self.rng.random() < 0.5 else self.loop())

    def parallel(self) -> None:
        self.sch.parallel(self.loop())

    def vectorize(self) -> None:
        self.sch.vectorize(self.loop())

    def unroll(self) -> None:
        self.sch.unroll(self.loop())

    def annotate(self) -> None:
        where = self.block() if self.rng.random() < 0.5 else self.loop()
        self.sch.annotate(where, "note", self.sch.sample_categorical([1, 2], [0.5, 0.5]))
        if self.rng.random() < 0.5:
            self.sch.unannotate(where, "note")

    def compute_at(self) -> None:
        self.sch.compute_at(self.block(), self.loop(), preserve_unit_loops=self.rng.random() < 0.5)

    def reverse_compute_at(self) -> None:
        self.sch.reverse_compute_at(self.block(), self.loop(), preserve_unit_loops=self.rng.random() < 0.5)

    def sampled_location(self) -> None:
        block = self.block()
        self.sch.compute_at(block, self.sch.sample_compute_location(block))

    def compute_inline(self) -> None:
        self.sch.compute_inline(self.block())

    def reverse_compute_inline(self) -> None:
        self.sch.reverse_compute_inline(self.block())

    def cache_read(self) -> None:
        block = self.block()
        n = len(self.sch.get(block).reads)
        self.sch.cache_read(block, self.rng.randrange(max(1, n)), "global")

    def cache_write(self) -> None:
        self.sch.cache_write(self.block(), 0, "global")

    def reindex(self) -> None:
        block = self.block()
        n = len(self.sch.get(block).reads)
        where = ("write", 0) if self.rng.random() < 0.4 else ("read", self.rng.randrange(max(1, n)))
        self.sch.reindex(block, where)

    def read_at(self) -> None:
        block = self.block()
        self.sch.read_at(self.rng.choice(self.sch.get_loops(block)), block, 0, "global")

    def write_at(self) -> None:
        block = self.block()
        self.sch.write_at(self.rng.choice(self.sch.get_loops(block)), block, 0, "global")

    def cache_index(self) -> None:
        self.sch.cache_index(self.block(), "global", 0)

    def decompose_reduction(self) -> None:
        block = self.block()
        self.sch.decompose_reduction(block, self.rng.choice(self.sch.get_loops(block)))

    def rfactor(self) -> None:
        self.sch.rfactor(self.loop(), self.rng.choice([0, -1]))

    def decompose_padding(self) -> None:
        block = self.block()
        self.sch.decompose_padding(block, self.rng.choice(self.sch.get_loops(block)))

    def pad_einsum(self) -> None:
        block = self.block()
        n = len(self.sch.get(block).iter_vars)
        self.sch.pad_einsum(block, [self.rng.choice([1, 2, 4]) for _ in range(n)])

    def blockize(self) -> None:
        self.sch.blockize(self.loop(), preserve_unit_iters=self.rng.random() < 0.5)

    def storage_align(self) -> None:
        self.sch.storage_align(self.block(), 0, 0, 8, self.rng.choice([0, 4]))

    def set_scope(self) -> None:
        self.sch.set_scope(self.block(), 0, self.rng.choice(["global", "local"]))

    def transform_layout(self) -> None:
        block = self.block()
        buffer = self.sch.get(block).writes[0].buffer
        if buffer in self.sch.mod["main"].buffer_map.values():
            raise ScheduleError(tvm_diagnostic())  # the caller's arrays would change
        n = len(buffer.shape)
        maps: list[Any] = [lambda *i: i[::-1], lambda *i: (*i[:-1], i[-1] // 2, i[-1] % 2)]
        self.sch.transform_layout(block, ("write", 0), self.rng.choice(maps[: 1 if n == 0 else 2]))

    def transform_block_layout(self) -> None:
        block = self.block()
        n = len(self.sch.get(block).iter_vars)
        turn = self.rng.randrange(max(1, n))
        self.sch.transform_block_layout(block, lambda *i: (*i[turn:], *i[:turn]))


def tvm_diagnostic() -> Any:
    """What a step raises that does not apply."""
    from tilewright.support.diagnostics import Diagnostic

    return Diagnostic("TW0400", "the step does not apply here")


CHOICES = [name for name in vars(Chooser) if name[0] != "_" and name not in ("blocks", "block", "loops", "loop")]
WEIGHTS = [4 if name in ("split", "fuse", "reorder", "compute_at", "reverse_compute_at", "decompose_reduction") else 1 for name in CHOICES]  # fmt: skip


def sequence(name: str, seed: int, native: bool) -> tuple[int, list[str]]:
    """One random sequence on a program; (how many steps were taken, their names). Raises Fault."""
    rng = random.Random(f"{name}/{seed}")
    f = PROGRAMS[name]
    sch = Schedule(f, seed=rng.randrange(1 << 30), error_render_level="none")
    chooser = Chooser(sch, rng)
    done: list[str] = []
    for _ in range(rng.randint(3, STEPS)):
        step = rng.choices(CHOICES, WEIGHTS)[0]
        before = sch.mod["main"]
        try:
            getattr(chooser, step)()
            done.append(step)
        except ScheduleError:
            if step != "annotate" and step not in ("tile", "partitioned_tile") and sch.mod["main"] is not before:
                raise Fault(name, seed, f"the refused step {step} changed the program", str(sch.trace)) from None
        except (IndexError, ValueError) as error:
            if str(error) in (
                "list index out of range",
                "Cannot choose from an empty sequence",
                "tuple index out of range",
            ):
                frames = traceback.extract_tb(error.__traceback__)
                if frames[-1].filename.endswith(("schedules.py", "random.py")):
                    continue
            raise Fault(name, seed, f"{step} raised {type(error).__name__}: {error}", _tail(sch)) from error
        except Exception as error:
            raise Fault(name, seed, f"{step} raised {type(error).__name__}: {error}", _tail(sch)) from error
    compare(name, seed, f, sch, native)
    return len(done), done


def _tail(sch: Schedule) -> str:
    return f"{traceback.format_exc()}\n{sch.trace}\n{sch.mod.script()}"


def culprit(f: PrimFunc, sch: Schedule, args: list[Any], want: list[Any], how: str) -> str:
    """The first step of a trace after which the program is wrong, with the program before it."""
    again, before = Schedule(f), f
    known: dict[Any, Any] = {}
    for inst in sch.trace.insts:
        part = type(sch.trace)([inst], {inst: sch.trace.decisions[inst]} if inst in sch.trace.decisions else {})
        for old, new in part.replay(again, known):
            known[old] = new
        now = again.mod["main"]
        if now is before:
            continue
        try:
            right = all(
                np.allclose(x, y, rtol=1e-4, atol=1e-4) for x, y in zip(want, _run(now, args, how), strict=True)
            )
        except Exception:
            right = False
        if not right:
            return f"broken by {sch.trace.as_python()[sch.trace.insts.index(inst)]}\n{before.script()}\n{now.script()}"
        before = now
    return "broken by no single step"


def compare(name: str, seed: int, f: PrimFunc, sch: Schedule, native: bool) -> None:
    """Run the program before and after. Raises Fault where the results differ."""
    args = data(f, SIZES, seed)
    want = results(f, args)
    now = sch.mod["main"]
    for how in ("interpreter", "native") if native else ("interpreter",):
        try:
            got = _run(now, args, how)
        except Exception as error:
            what = (
                f"{how}: {type(error).__name__}: {error}" if not isinstance(error, CompileError) else f"{how}: {error}"
            )
            raise Fault(name, seed, what[:600], culprit(f, sch, args, want, how)) from error
        for x, y in zip(want, got, strict=True):
            if not np.allclose(x, y, rtol=1e-4, atol=1e-4):
                raise Fault(name, seed, f"{how}: wrong result", culprit(f, sch, args, want, how))


def _run(f: PrimFunc, args: list[Any], how: str) -> list[Any]:
    if how == "interpreter":
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        interpret(f, *copies)
        return copies
    arrays = [tvm.nd.array(a) if isinstance(a, np.ndarray) else a for a in args]
    tvm.build(f, target="llvm")(*arrays)
    return [a.numpy() if not isinstance(a, int) else a for a in arrays]


def main() -> int:
    """Run sequences; 1 where there was a fault."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--native", type=float, default=1.0)
    options.add_argument("--program", default="")
    options.add_argument("--seconds", type=float, default=1e9)
    o = options.parse_args()
    names = [o.program] if o.program else list(PROGRAMS)
    start, faults, steps, n = time.time(), 0, 0, 0
    tally: dict[str, int] = {}
    for i in range(o.count):
        if time.time() - start > o.seconds:
            break
        seed = o.seed + i
        n += 1
        try:
            native = (seed * 7919 % 1000) / 1000 < o.native
            taken, done = sequence(names[seed % len(names)], seed, native)
            steps += taken
            for step in done:
                tally[step] = tally.get(step, 0) + 1
        except Fault as fault:
            faults += 1
            print(f"---- {fault}\n", flush=True)
    print(f"{n} sequences, {steps} steps, {faults} faults, {time.time() - start:.0f} s")
    print(", ".join(f"{k} {v}" for k, v in sorted(tally.items(), key=lambda x: -x[1])))
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
