"""One of several workers that check what `CollectiveAllReduceStrategy` promises.

python -m tests.cluster.collective.strategy_behaviour_worker FOLDER
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from tests.cluster.collective.behaviour import MODULES
from tests.support.checks import run_checks
from tests.support.replicas import on_cpus


def main(folder: Path) -> None:
    strategy = on_cpus(2)
    for module in MODULES:
        run_checks(vars(importlib.import_module(module)), strategy, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
