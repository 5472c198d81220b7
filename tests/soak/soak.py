"""Runs workers for long and gathers what they said they held."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path
from typing import Callable, Dict, List

from tests.soak.resources import Sample, shared_segments_of
from tests.support.processes import ProcessGroup, ReservedPorts, tf_config, wait_until

__all__ = ["Report", "run"]

_PROGRESS_SECONDS = 20.0


@dataclasses.dataclass(frozen=True)
class Report:
    """What the workers said.

    Attributes:
        samples: phase -> worker -> its samples.
        weights: worker -> "step digest" of each comparison.
        left_behind: shared memory segments that outlived their processes.
        seconds: from start to end.
    """

    samples: Dict[str, Dict[str, List[Sample]]]
    weights: Dict[str, List[str]]
    left_behind: List[str]
    seconds: float


def run(
    module: str,
    plan: dict,
    workers: int,
    folder: Path,
    timeout: float,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Starts `python -m module PLAN` as so many workers, and waits for their end.

    Args:
        say: gets a line of progress now and then.

    Raises:
        AssertionError: a worker failed, or took longer than `timeout` seconds.
    """
    start = time.monotonic()
    names = [f"worker{index}" for index in range(workers)]
    with ReservedPorts(workers) as ports, ProcessGroup(folder) as group:
        for index, name in enumerate(names):
            config = tf_config({"worker": ports.addresses}, "worker", index)
            group.start_python(name, "-m", module, json.dumps(plan), env={"TF_CONFIG": config})
        told = [start]

        def ended() -> bool:
            if time.monotonic() - told[0] > _PROGRESS_SECONDS:
                told[0] = time.monotonic()
                say(f"{told[0] - start:6.0f} s  {_last_sample(group[names[0]].log())}")
            failed = [name for name in names if group[name].returncode not in (None, 0)]
            if failed:
                raise AssertionError(f"{failed[0]} ended with status {group[failed[0]].returncode}")
            return all(group[name].returncode == 0 for name in names)

        wait_until(ended, timeout, f"the end of {workers} workers of {module}")
        left = shared_segments_of({group[name].pid for name in names})
        samples: Dict[str, Dict[str, List[Sample]]] = {}
        weights: Dict[str, List[str]] = {}
        for name in names:
            log = group[name].log()
            weights[name] = re.findall(r"^weights (\d+ [0-9a-f]{64}) ", log, re.M)
            for phase, text in re.findall(r"^sample (\w+) (\{.*\})$", log, re.M):
                samples.setdefault(phase, {}).setdefault(name, []).append(Sample(**json.loads(text)))
    return Report(samples, weights, left, time.monotonic() - start)


def _last_sample(log: str) -> str:
    found = re.findall(r"^sample \w+ (\{.*\})$", log, re.M)
    if not found:
        return "starting"
    sample = Sample(**json.loads(found[-1]))
    return f"step {sample.step:6,}: resident {sample.resident / 1e6:.1f} MB, heap {sample.heap / 1e6:.1f} MB"
