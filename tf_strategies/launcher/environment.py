"""Makes the environment of each process: TF_CONFIG, a share of the cores, huge pages, and its GPUs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Mapping, Sequence

from tf_strategies.launcher.cluster_plan import PlannedProcess

THREAD_VARIABLES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
# Lets the C library use huge pages for large tensors, where the machine offers them. Other processes copy
# from huge pages 1.6 times as fast (benchmarks/NOTES.md). Older C libraries ignore this setting.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
_GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"


def fair_threads(processes: int) -> int:
    """Returns the number of cores for each of `processes` processes, at least 1."""
    return max(1, len(os.sched_getaffinity(0)) // processes)


def visible_gpus(environ: Mapping[str, str]) -> list[str]:
    """Returns the GPUs that may be used: those in CUDA_VISIBLE_DEVICES if it is set, else all GPUs of this machine."""
    if _GPU_VARIABLE in environ:
        return [name.strip() for name in environ[_GPU_VARIABLE].split(",") if name.strip() not in ("", "-1")]
    found = (re.search(r"\d+$", path.name) for path in Path("/dev").glob("nvidia[0-9]*"))
    return sorted((match.group() for match in found if match), key=int)


def share_gpus(
    processes: Sequence[PlannedProcess], gpus: Sequence[str], gpus_per_worker: int | None
) -> int | None:
    """Returns the number of GPUs for each training process of this host; None leaves GPUs as they are.

    TensorFlow takes the memory of all GPUs that it sees, so two processes must not see the same GPU. By default
    each training process gets an equal share, which may be none. A process that runs alone sees all GPUs.

    Args:
        processes: the processes of this host.
        gpus: the GPUs of this host.
        gpus_per_worker: the number that the user gave, if any.
    """
    training = sum(process.trains for process in processes)
    if gpus_per_worker is not None or not gpus or not training or len(processes) == 1:
        return gpus_per_worker
    return len(gpus) // training


def environments(
    processes: Sequence[PlannedProcess],
    environ: Mapping[str, str],
    threads: int | None,
    gpus_per_worker: int | None,
) -> list[dict[str, str]]:
    """Returns the environment of each process of this host.

    Args:
        processes: the processes of this host.
        environ: the environment that they inherit.
        threads: the value for `THREAD_VARIABLES`. None sets a share of the cores where a variable is unset.
        gpus_per_worker: the number of GPUs for each training process. No GPU is given to two processes, and
            other processes get no GPU. None leaves GPUs as they are.

    Raises:
        ValueError: there are not enough GPUs.
    """
    gpus = visible_gpus(environ) if gpus_per_worker else []
    needed = (gpus_per_worker or 0) * sum(process.trains for process in processes)
    if needed > len(gpus):
        raise ValueError(
            f"--gpus-per-worker {gpus_per_worker} needs {needed} GPUs on this host, which has {len(gpus)}"
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
