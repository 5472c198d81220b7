"""One process of a contestant: reads orders, measures, answers. benchmarks/contest.py gives the orders.

In a folder lie the pipes "orders.R", one a rank, and "answers". An order is a line "BYTES CALLS": all ranks meet, then each
runs so many all-reduces of BYTES of float32 and writes a line of JSON: its rank, the seconds of one call, and `extra_bytes`.
The orders end when nobody holds the pipe any more. ops/bench/allreduce_bench.cc does the same for the core.

`extra_bytes` is what the process needs beyond the message: the peak of its resident memory (VmHWM) since this size began,
warm-up with it, less what was resident when the group had done one all-reduce of 1 KB, less one message. So it has all
buffers, kept ones too; of a TensorFlow op, which is not in place, the result beside its operand. What malloc keeps of freed
smaller messages would count as well, so memory is asked of processes that have had none. 0 where it is less than was resident
then.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import time
from pathlib import Path
from typing import Callable, TextIO

__all__ = ["Calls", "forget_peak", "memory", "serve", "total"]

Calls = Callable[[int], object]

_FIRST = 1 << 10


def total(ranks: int) -> float:
    """What every element is after the first all-reduce, to which rank r gives r + 1: 1 + 2 + … + P."""
    return float(ranks * (ranks + 1) // 2)


def serve(folder: Path, rank: int, *, barrier: Callable[[], object], prepare: Callable[[int], Calls]) -> None:
    """Carries out orders until they end.

    Args:
        folder: with the pipes.
        rank: of this process.
        barrier: returns when all ranks are in it.
        prepare: given a number of elements, allocates, does one all-reduce and checks its sum, and returns the
            function that does so many.
    """
    with _pipe(folder / f"orders.{rank}", "r") as orders, _pipe(folder / "answers", "w") as answers:
        run = prepare(_FIRST // 4)
        before, held = memory("VmRSS"), 0
        for line in orders:
            size, calls = map(int, line.split())
            if size != held:
                del run
                forget_peak()
                run, held = prepare(size // 4), size
            barrier()
            start = time.perf_counter()
            run(calls)
            seconds = (time.perf_counter() - start) / calls
            extra = max(0, memory("VmHWM") - before - size)
            answers.write(json.dumps({"rank": rank, "seconds": seconds, "extra_bytes": extra}) + "\n")
            answers.flush()


def _pipe(path: Path, mode: str) -> TextIO:
    """Opens a pipe of the front without waiting for the front, which may be gone."""
    flags = os.O_RDONLY if mode == "r" else os.O_WRONLY
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, mode)


def memory(field: str) -> int:
    """Bytes of this process: "VmRSS", what is resident, or "VmHWM", the highest of it since `forget_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    return 0


def forget_peak() -> None:
    """Gives back what malloc keeps of freed memory, and lets VmHWM begin anew.

    Where the kernel forbids it the peak of smaller messages remains, which is lower.
    """
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
