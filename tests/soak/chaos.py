"""Random losses of workers in `fit` with `elastic=`, against the result of one process, `make chaos`.

python -m tests.soak.chaos [--minutes 30] [--seed 1] [--workers 4,5,6]

Each round starts some workers and lets some of them fail at random moments: killed, asked to end by SIGTERM, stopped, with an
exception; in a step, in the validation, several at once. In half of the rounds, those that have ended start again and join the
others. As root, each worker of every second round has a host, a network namespace, and can also fail because its host is cut
off, or can send nothing any more.

It prints the plan of the round and fails when a worker hangs, ends with an error, or has other weights or logs than one process.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Sequence

from tests.cluster.elastic.fit_worker import HOST_FAULTS
from tests.cluster.elastic.job import Job, require_expected, seconds_to_next_batch
from tests.cluster.elastic.task import BATCHES, EPOCHS
from tests.support import namespaces
from tests.support.switch import Switch

_KINDS = ("kill", "kill", "terminate", "raise", "stop")
_ON_HOSTS = ("kill", "terminate", "raise", "stop", *HOST_FAULTS, *HOST_FAULTS)


def make_faults(chance: random.Random, size: int, kinds: Sequence[str] = _KINDS) -> Dict[int, List[Any]]:
    """Returns the faults of a round, by rank. After each, more than half of the workers of the moment are left."""
    faults: Dict[int, List[Any]] = {}
    moments: List[int] = []
    left = size
    while left > 2 and (not faults or chance.random() < 0.7):
        at_once = chance.randint(1, (left - 1) // 2)
        moment = chance.randint(*sorted((moments[-1] + 3 if moments else 1, BATCHES * EPOCHS + 2)))
        if moment > BATCHES * EPOCHS:
            break
        in_validation = not moments and chance.random() < 0.2
        moment = BATCHES if in_validation else moment
        for rank in chance.sample([each for each in range(size) if each not in faults], at_once):
            faults[rank] = [chance.choice(kinds), "validation" if in_validation else moment]
        moments.append(moment)
        left -= at_once
    return faults or {size - 1: ["kill", 1]}


def run_round(
    seed: int, size: int, folder: Path, *, fresh: bool = False, on_hosts: bool = False
) -> List[float]:
    """Runs a round. Returns the seconds from each fault until the survivors went on, if they did not wait for the others."""
    faults = make_faults(random.Random(seed), size, _ON_HOSTS if on_hosts else _KINDS)
    meet = 0
    if random.Random(f"{seed} again").random() < 0.5:
        faults = {
            rank: ["kill" if kind in ("stop", "raise") else kind, min(at, BATCHES * EPOCHS - 3)]
            for rank, (kind, at) in faults.items()
            if at != "validation"
        } or {0: ["kill", 3]}
        meet = max(at for _, at in faults.values()) + 1
    where = " on hosts" if on_hosts else ""
    print(
        f"seed {seed}: {size} workers{where}, faults {faults}{', which start again' if meet else ''}",
        flush=True,
    )
    with Switch(size) if on_hosts else contextlib.nullcontext() as hosts:
        job = Job(folder, size, "arrays", faults, meet=meet, hosts=hosts)
        workers = job.run(fresh=fresh)
    for result in job.results(workers):
        require_expected(result)
    if meet:
        return []
    survivor = min(set(workers) - set(faults))
    return [seconds_to_next_batch(workers[survivor], lost) for lost in job.lost.values()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--workers", default="4,5,6")
    given = parser.parse_args()
    sizes = [int(each) for each in given.workers.split(",")]
    end, seed, seconds = time.monotonic() + 60 * given.minutes, given.seed, []
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory() as folder:
            on_hosts = seed % 2 == 0 and not namespaces.missing()
            seconds += run_round(seed, sizes[seed % len(sizes)], Path(folder), fresh=True, on_hosts=on_hosts)
        seed += 1
    print(
        f"{seed - given.seed} rounds. From a fault to the next step, where nobody came back: "
        f"{statistics.median(seconds or [0.0]):.1f} s in the median of {len(seconds)}, {max(seconds, default=0.0):.1f} s at most"
    )


if __name__ == "__main__":
    main()
