"""The environment of each process: TF_CONFIG, a fair share of the cores, huge pages, GPUs of its own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Mapping, Sequence

from tf_strategies.launch.cluster_plan import PlannedProcess

THREAD_VARIABLES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
# Lets the C library use huge pages for large tensors, if the machine has them on request. Other processes copy from them 1.6
# times as fast (benchmarks/NOTES.md). Older C libraries ignore it.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
_GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"


def fair_threads(processes: int) -> int:
    """Returns the cores of this machine that this process may use, divided among `processes`; at least 1."""
    return max(1, len(os.sched_getaffinity(0)) // processes)


def visible_gpus(environ: Mapping[str, str]) -> list[str]:
    """Returns the GPUs to give out: what CUDA_VISIBLE_DEVICES names when it is set, else all of this machine."""
    if _GPU_VARIABLE in environ:
        return [name.strip() for name in environ[_GPU_VARIABLE].split(",") if name.strip() not in ("", "-1")]
    found = (re.search(r"\d+$", path.name) for path in Path("/dev").glob("nvidia[0-9]*"))
    return sorted((match.group() for match in found if match), key=int)


def environments(
    processes: Sequence[PlannedProcess],
    environ: Mapping[str, str],
    threads: int | None,
    gpus_per_worker: int | None,
) -> list[dict[str, str]]:
    """Returns the environment of each of this host's processes.

    Args:
        processes: those of this host.
        environ: what they inherit.
        threads: for `THREAD_VARIABLES`; None sets a fair share where the variable is unset.
        gpus_per_worker: GPUs for each training process, none in common; others get none. None: leaves GPUs
        alone.

    Raises:
        ValueError: there are not enough GPUs.
    """
    gpus = visible_gpus(environ) if gpus_per_worker else []
    needed = (gpus_per_worker or 0) * sum(process.trains for process in processes)
    if needed > len(gpus):
        raise ValueError(
            f"--gpus-per-worker {gpus_per_worker} needs {needed} GPUs here; there are {len(gpus)}"
        )
    result = []
    for process in processes:
        env = {**environ, "TF_CONFIG": process.tf_config}
        for variable, value in {"PYTHONUNBUFFERED": "1", **HUGE_PAGES}.items():
            env.setdefault(variable, value)
        for variable in THREAD_VARIABLES:
            if threads is not None or variable not in environ:
                env[variable] = str(threads if threads is not None else fair_threads(len(processes)))
        if gpus_per_worker is not None:
            share = gpus_per_worker if process.trains else 0
            env[_GPU_VARIABLE] = ",".join(gpus[:share])
            gpus = gpus[share:]
        result.append(env)
    return result
