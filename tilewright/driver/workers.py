"""Compiling kernels on several processes.

LLVM in Python holds one lock, so threads do not help; processes do. A worker is `python -m tilewright.driver.workers`: a plain
child that reads pickled jobs from its standard input and writes results to its standard output. Unlike `multiprocessing` this
asks nothing of the user's program (no `if __name__ == "__main__":`). This process compiles too. If a worker dies, what it held is
compiled here, so that an error shows itself.
"""

from __future__ import annotations

import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from tilewright.driver.kernels import compile_kernel
from tilewright.ir.target import Target, default_num_cores
from tilewright.tir.ir import PrimFunc

__all__ = ["run_all"]

Job = tuple[str, PrimFunc, str]

_JOBS_PER_WORKER = 6
"""A worker takes a third of a second to start: worth it from this many jobs on."""


def worker_count(jobs: int) -> int:
    """How many child processes to start; TILEWRIGHT_COMPILE_JOBS bounds all processes together."""
    limit = int(os.environ.get("TILEWRIGHT_COMPILE_JOBS") or default_num_cores())
    return max(0, min(limit - 1, jobs // _JOBS_PER_WORKER))


def run_all(jobs: Sequence[Job], target: Target, finished: Callable[[str, bytes], None]) -> None:
    """Compile every `(key, function, symbol)`; `finished(key, object code)` is called in this thread. Raises the first error."""
    todo: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    for job in jobs:
        todo.put(job)
    threads = [
        threading.Thread(target=_serve, args=(todo, done, target), daemon=True) for _ in range(worker_count(len(jobs)))
    ]
    for t in threads:
        t.start()
    left = len(jobs)
    try:
        while left:
            job = _next(todo)
            if job is not None:
                finished(job[0], compile_kernel(job[1], job[2], target))
                left -= 1
            while left and (job is None or not done.empty()):
                key, result = done.get()
                if isinstance(result, Exception):
                    raise result
                finished(key, result)
                left -= 1
    finally:
        while _next(todo) is not None:
            pass


def _next(todo: queue.SimpleQueue[Job | None]) -> Job | None:
    try:
        return todo.get_nowait()
    except queue.Empty:
        return None


def _serve(todo: queue.SimpleQueue[Job | None], done: queue.SimpleQueue[tuple[str, Any]], target: Target) -> None:
    """One thread of this process: feeds a child and hands on what it gives."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]),
    }
    child = None
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "tilewright.driver.workers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        while (job := _next(todo)) is not None:
            done.put((job[0], _ask(child, job, target)))
    except OSError as error:  # no more processes: the main loop does the rest
        if child is not None:
            done.put(("", error))
    finally:
        if child is not None:
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
            child.wait()


def _ask(child: subprocess.Popen[bytes], job: Job, target: Target) -> Any:
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        _send(child.stdin, (job[1], job[2], target))
        return _receive(child.stdout)
    except (OSError, EOFError):
        try:
            return compile_kernel(job[1], job[2], target)
        except Exception as error:
            return error


def _send(pipe: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    pipe.write(struct.pack("<Q", len(data)) + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    head = pipe.read(8)
    if len(head) < 8:
        raise EOFError
    return pickle.loads(pipe.read(struct.unpack("<Q", head)[0]))


def _main() -> None:
    """The child: answers jobs until its input ends."""
    sys.setrecursionlimit(20000)
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints goes to standard error, not between the answers
    while True:
        try:
            func, symbol, target = _receive(source)
        except EOFError:
            return
        try:
            answer: Any = compile_kernel(func, symbol, target)
        except Exception as error:
            answer = error
        try:
            _send(sink, answer)
        except (pickle.PicklingError, TypeError, AttributeError):
            _send(sink, RuntimeError(f"{type(answer).__name__}: {answer}"))


if __name__ == "__main__":
    _main()
