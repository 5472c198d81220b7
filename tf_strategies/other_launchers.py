"""Recognizes a process that another launcher has started as one of several. Imports no TensorFlow."""

from __future__ import annotations

import logging
import os
from typing import Mapping, NamedTuple

__all__ = ["LaunchedTask", "launched_task", "warn_if_alone"]

_log = logging.getLogger("tf_strategies")


class LaunchedTask(NamedTuple):
    """A process as its launcher numbers it.

    Attributes:
        launcher: the name of the launcher.
        rank: the number of this process, from 0.
        size: the number of processes, at least 2.
    """

    launcher: str
    rank: int
    size: int


# The first variable has the number of processes, the second the number of this one. A batch script of SLURM
# is no step, and has no SLURM_STEP_NUM_TASKS.
_VARIABLES = {
    "Horovod": ("HOROVOD_SIZE", "HOROVOD_RANK"),
    "Open MPI": ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    "SLURM": ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    "MPI": ("PMI_SIZE", "PMI_RANK"),
    "torchrun": ("WORLD_SIZE", "RANK"),
}


def launched_task(environ: Mapping[str, str] = os.environ) -> LaunchedTask | None:
    """Returns what another launcher says of this process; None if none has started it as one of several.

    Args:
        environ: the environment of the process.
    """
    for launcher, (size, rank) in _VARIABLES.items():
        numbers = environ.get(size, ""), environ.get(rank, "")
        if all(text.isascii() and text.isdigit() for text in numbers) and int(numbers[0]) > 1:
            return LaunchedTask(launcher, int(numbers[1]), int(numbers[0]))
    return None


def warn_if_alone(environ: Mapping[str, str] = os.environ) -> None:
    """Logs a warning if a launcher started several processes that know nothing of each other.

    Each of them would train a model of its own. A TF_CONFIG, even an empty one such as `{}`, says that this is meant.

    Args:
        environ: the environment of the process.
    """
    task = None if "TF_CONFIG" in environ else launched_task(environ)
    if task is not None:
        _log.warning(
            "%s started this process as number %d of %d, but TF_CONFIG is not set: each process trains a model of its own. "
            "To train one model together, set TF_CONFIG for each process or give the strategy a cluster "
            "(docs/clusters.md). To train many models, set TF_CONFIG='{}'",
            task.launcher,
            task.rank,
            task.size,
        )
