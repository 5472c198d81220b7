"""Finds what the host gives a task: cores, threads, shared memory and limits."""

from __future__ import annotations

import math
import os
import resource
import tempfile
from pathlib import Path
from typing import Dict, List, Mapping, Tuple

from tf_strategies.texts import described

__all__ = [
    "THREAD_VARIABLES",
    "cores",
    "cores_of_host",
    "limit",
    "quota",
    "shared_memory",
    "thread_variables",
]

THREAD_VARIABLES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
_SHARED = "/dev/shm"
_GROUPS = Path("/sys/fs/cgroup")


def cores() -> List[int]:
    """Returns the numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def cores_of_host() -> int:
    """Returns the number of cores that are online."""
    return os.cpu_count() or 1


def quota(root: Path = _GROUPS) -> float:
    """Returns the cores that the control group of this process allows, rounded to hundredths; 0 for no limit.

    Args:
        root: where control groups are mounted.
    """
    try:
        most, period = (root / "cpu.max").read_text().split()
        return 0.0 if most == "max" else round(int(most) / int(period), 2)
    except (OSError, ValueError):
        pass
    try:
        used = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        return max(0.0, round(used / int((root / "cpu" / "cpu.cfs_period_us").read_text()), 2))
    except (OSError, ValueError, ZeroDivisionError):
        return 0.0


def thread_variables(environ: Mapping[str, str]) -> Dict[str, str]:
    """Returns the variables that set numbers of threads; "" for one that is unset."""
    return {name: environ.get(name, "")[:100] for name in THREAD_VARIABLES}


def shared_memory(folder: str = _SHARED) -> Tuple[int, int, str]:
    """Returns all bytes and the free bytes of /dev/shm, and why no file can be written there; "" if one can."""
    try:
        found = os.statvfs(folder)
        with tempfile.TemporaryFile(dir=folder, prefix="tfs-doctor-") as file:
            os.posix_fallocate(file.fileno(), 0, 4096)
    except OSError as error:
        return 0, 0, described(error, 200)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, ""


def limit(kind: int) -> int:
    """Returns a soft limit of `resource`, or -1 for none."""
    soft = resource.getrlimit(kind)[0]
    return -1 if soft == resource.RLIM_INFINITY or soft > math.ldexp(1, 62) else soft
