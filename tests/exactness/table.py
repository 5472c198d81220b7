"""Prints the table of docs/losses_and_train_steps.md from what the exactness tests kept.

python -m tests.exactness.table FOLDER

FOLDER is what TFS_EXACTNESS_KEEP named for the tests: a folder for each Keras, with "plain" and the groups.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.exactness.compare import differences
from tests.exactness.programs import PROGRAMS

__all__ = ["main"]


def main(folder: str) -> None:
    columns = {}
    for line in sorted(each for each in Path(folder).iterdir() if each.is_dir()):
        for group in sorted(each for each in line.iterdir() if (each / "worker0.json").exists()):
            columns[f"{line.name}, {group.name}"] = differences(group, line / "plain")
    print("| program | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name in PROGRAMS:
        cells = [_cell(found.get(name)) for found in columns.values()]
        print(f"| {name.replace('_', ' ')} | " + " | ".join(cells) + " |")


def _cell(found: dict | None) -> str:
    return "–" if found is None else f"{found['weights']:.0e}, {found['logs']:.0e}"


if __name__ == "__main__":
    main(sys.argv[1])
