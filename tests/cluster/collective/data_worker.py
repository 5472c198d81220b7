"""One of several workers that check how data are split, counted and put together again.

python -m tests.cluster.collective.data_worker LOCAL_REPLICAS FOLDER CHECK...
"""

from __future__ import annotations

import importlib
import sys

from tests.cluster.collective.data import MODULES
from tests.support.checks import run_checks
from tests.support.replicas import on_cpus


def main(local: int, folder: str, names: list) -> None:
    strategy = on_cpus(local)
    for module in MODULES:
        run_checks(vars(importlib.import_module(module)), strategy, folder, only=names)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
