"""One of several workers that check layers and modes.

python -m tests.cluster.collective.strategy_modes_worker LOCAL_REPLICAS CHECK...
"""

from __future__ import annotations

import importlib
import sys

from tests.cluster.collective.modes import MODULES
from tests.support.checks import run_checks
from tests.support.replicas import on_cpus


def main(local: int, names: list) -> None:
    strategy = on_cpus(local, logical=2)
    for module in MODULES:
        run_checks(vars(importlib.import_module(module)), strategy, only=names)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
