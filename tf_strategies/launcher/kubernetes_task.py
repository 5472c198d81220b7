"""Runs a command in a pod of an Indexed Job of Kubernetes, or of a JobSet, with the TF_CONFIG of its place.

    python -m tf_strategies.launcher.kubernetes_task --workers 4 --service digits python script.py ...

The pod with completion index n is worker n. Pods find one another by the names that a headless service gives them. With
--max-workers 8, the Job may be scaled up to so many pods: the pods beyond --workers join those that train.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Mapping, Sequence

from tf_strategies.launcher.task_program import become_task

INDEX = "JOB_COMPLETION_INDEX"


def tf_config(
    environ: Mapping[str, str], workers: int, service: str, port: int, max_workers: int | None = None
) -> str:
    """Returns the TF_CONFIG of this pod.

    Args:
        environ: with JOB_COMPLETION_INDEX and HOSTNAME, as Kubernetes sets them.
        workers: the number of pods with which the Job begins, `completions`.
        service: the name of the headless service, `subdomain` of the pods.
        port: on which each pod listens.
        max_workers: the most pods of a Job that is scaled up; None if it is not.

    Raises:
        ValueError: the variables are missing or do not fit together.
    """
    missing = [name for name in (INDEX, "HOSTNAME") if not environ.get(name)]
    if missing:
        raise ValueError(
            f"{', '.join(missing)} not set; start this program in a pod of a Job with completionMode: Indexed"
        )
    index, host = environ[INDEX], environ["HOSTNAME"]
    most = workers if max_workers is None else max_workers
    if most < workers:
        raise ValueError(f"--max-workers {most} is less than --workers {workers}")
    if not index.isdecimal() or int(index) >= most:
        option = "--workers" if max_workers is None else "--max-workers"
        raise ValueError(f"{INDEX} is {index}, but {option} is {most}; give it the completions of the Job")
    if not host.endswith(f"-{index}"):
        raise ValueError(
            f"HOSTNAME is {host}, and does not end with the index of the pod, -{index}; leave hostname: out of the pods"
        )
    name = host[: -len(index)]
    addresses = [f"{name}{number}.{service}:{port}" for number in range(max(workers, int(index) + 1))]
    task = {"type": "worker", "index": int(index)}
    return json.dumps({"cluster": {"worker": addresses}, "task": task})


def main(argv: Sequence[str] | None = None) -> None:
    """Becomes the command of the arguments, with TF_CONFIG set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--max-workers", type=int)
    parser.add_argument("--service", required=True)
    parser.add_argument("--port", type=int, default=2222)
    become_task(
        parser,
        argv,
        lambda given: tf_config(os.environ, given.workers, given.service, given.port, given.max_workers),
    )


if __name__ == "__main__":
    main()
