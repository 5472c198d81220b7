"""Runs a command as one task of a SLURM job step, with the TF_CONFIG of its place.

    srun --distribution=block python -m tf_strategies.launcher.slurm_task --port-base 20000 python script.py ...

Task n of the step is worker n, at its node and the port base plus its number on that node.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Mapping, Sequence

from tf_strategies.launcher.host_lists import expand_counts, expand_hosts
from tf_strategies.launcher.task_program import become_task


def tf_config(environ: Mapping[str, str], port_base: int) -> str:
    """Returns the TF_CONFIG of this task.

    Args:
        environ: with SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE and SLURM_PROCID, as srun sets them.
        port_base: task k of a node listens on this port plus k.

    Raises:
        ValueError: the variables are missing or do not fit together.
    """
    missing = [
        name
        for name in ("SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_PROCID")
        if name not in environ
    ]
    if missing:
        raise ValueError(f"{', '.join(missing)} not set; start this program with srun")
    hosts = expand_hosts(environ["SLURM_STEP_NODELIST"])
    counts = expand_counts(environ["SLURM_STEP_TASKS_PER_NODE"])
    if len(hosts) != len(counts):
        raise ValueError(
            f"SLURM names {len(hosts)} nodes ({environ['SLURM_STEP_NODELIST']}) but the tasks of {len(counts)} "
            f"({environ['SLURM_STEP_TASKS_PER_NODE']})"
        )
    workers = [f"{host}:{port_base + task}" for host, count in zip(hosts, counts) for task in range(count)]
    task = {"type": "worker", "index": int(environ["SLURM_PROCID"])}
    return json.dumps({"cluster": {"worker": workers}, "task": task})


def main(argv: Sequence[str] | None = None) -> None:
    """Becomes the command of the arguments, with TF_CONFIG set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port-base", type=int, required=True)
    become_task(parser, argv, lambda given: tf_config(os.environ, given.port_base))


if __name__ == "__main__":
    main()
