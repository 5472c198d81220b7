"""What a process holds, read from Linux and from its own allocators."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import re
import sys
import threading
from pathlib import Path

__all__ = ["Sample", "measure", "shared_segments_of"]


@dataclasses.dataclass(frozen=True)
class Sample:
    """What a process holds after a step.

    Attributes:
        step: steps (or strategies) so far.
        resident: bytes of private memory in RAM (RssAnon).
        heap: bytes that malloc has given out and not got back, in all arenas.
        blocks: objects of Python's own allocator.
        descriptors: open file descriptors.
        threads: of the process, Python's or not.
        python_threads: those that Python knows.
        mappings: lines of /proc/self/maps.
        shared: bytes of System V and /dev/shm segments that are mapped.
    """

    step: int
    resident: int
    heap: int
    blocks: int
    descriptors: int
    threads: int
    python_threads: int
    mappings: int
    shared: int


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


_libc = ctypes.CDLL(None)
_libc.mallinfo2.restype = _Mallinfo2


def measure(step: int) -> Sample:
    """Measures this process, after collecting garbage."""
    gc.collect()
    status = dict(re.findall(r"^(\w+):\s+(\d+)", Path("/proc/self/status").read_text(), re.M))
    maps = Path("/proc/self/maps").read_text().splitlines()
    heap = _libc.mallinfo2()
    return Sample(
        step=step,
        resident=int(status["RssAnon"]) * 1024,
        heap=heap.uordblks + heap.hblkhd,
        blocks=sys.getallocatedblocks(),
        descriptors=sum(1 for _ in Path("/proc/self/fd").iterdir()),
        threads=int(status["Threads"]),
        python_threads=threading.active_count(),
        mappings=len(maps),
        shared=sum(_length(line) for line in maps if "/SYSV" in line or "/dev/shm/" in line),
    )


def shared_segments_of(pids: set) -> list:
    """The System V shared memory segments on this machine that these processes made."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()
    creator = lines[0].split().index("cpid")
    return [line for line in lines[1:] if int(line.split()[creator]) in pids]


def _length(line: str) -> int:
    start, end = line.split(maxsplit=1)[0].split("-")
    return int(end, 16) - int(start, 16)
