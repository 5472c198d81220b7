"""The long soak, `make soak`: tells whether a week of training would end as it began.

python -m tests.soak [--workers 4] [--steps 20000] [--minutes 40]

Trains a tiny Keras model for so many steps after 2,000 of warm-up, with an epoch each 500 steps, validation, callbacks,
`evaluate` and `predict` between. Prints what each worker holds, and fails when memory, descriptors, threads or shared memory
have grown, or weights differ by a bit.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.soak import flatness, soak

_STEPS_A_ROUND = 1000
# Each epoch, TensorFlow's own iterators leave some 12 KB with any strategy; allocators settle for long.
_LIMITS = {"heap": 5e6, "resident": 12e6, "blocks": 20_000, "descriptors": 0, "threads": 0, "shared": 0}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=40.0, help="the most it may take")
    arguments = parser.parse_args()
    rounds = -(-arguments.steps // _STEPS_A_ROUND)
    plan = {"rounds": {"warm": 2, "flat": rounds}, "epochs": 2, "steps": 500, "every": 100, "leak": ""}
    with tempfile.TemporaryDirectory() as folder:
        report = soak.run(
            "tests.soak.fit_worker",
            plan,
            arguments.workers,
            Path(folder),
            timeout=arguments.minutes * 60,
            say=lambda line: print(line, flush=True),
        )
    print(flatness.table(report.samples["flat"]))
    digests = set(map(tuple, report.weights.values()))
    wrong = [f"weights differ between workers: {report.weights}"] if len(digests) > 1 else []
    wrong += [f"left behind: {line}" for line in report.left_behind]
    for name, samples in report.samples["flat"].items():
        wrong += [f"{name}: {what}" for what in flatness.too_much(samples, _LIMITS)]
    print(
        f"weights bit-identical at {len(next(iter(digests)))} comparisons"
        if len(digests) == 1
        else "weights differ"
    )
    print("\n".join(wrong) or f"flat, in {report.seconds:.0f} s")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
