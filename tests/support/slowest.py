"""Prints what the sessions of a run took: the slowest tests and the totals, or the measured seconds as budgets.

python -m tests.support.slowest FOLDER             where the folder holds what tests/support/budgets.py recorded
python -m tests.support.slowest --budgets FOLDER   as lines for tests/budgets.txt
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from typing import Iterator

from tests.support.budgets import BUDGETS_FILE, LINES, NONE, read_budgets

_SHOWN = 25
_LEAST_SECONDS = 10  # below this, what a machine does besides decides


def read_records(folder: Path) -> Iterator[tuple[str, str, float]]:
    """Yields line, test and seconds, of every session."""
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_text().splitlines():
            line, test, seconds = json.loads(text)
            yield line, test, seconds


def report(records: list[tuple[str, str, float]]) -> str:
    """Returns the slowest tests, the seconds of each line and their total."""
    slowest = sorted(records, key=lambda record: -record[2])[:_SHOWN]
    lines = [f"the {len(slowest)} slowest of {len(records)} tests:"]
    lines += [f"{seconds:8.1f} s  {line:8}  {test}" for line, test, seconds in slowest]
    totals: dict[str, float] = defaultdict(float)
    for line, _, seconds in records:
        totals[line] += seconds
    lines.append("seconds of tests, some of them side by side:")
    lines += [f"{seconds:8.1f} s  {line}" for line, seconds in totals.items()]
    lines.append(f"{sum(totals.values()):8.1f} s  in all")
    return "\n".join(lines)


def as_budgets(records: list[tuple[str, str, float]], old: dict[str, dict[str, float]]) -> str:
    """Returns a line for each file: measured seconds, rounded up; those of `old` where a line was not measured."""
    measured: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for line, test, seconds in records:
        if line in LINES:
            measured[test.partition("::")[0]][line] += seconds
    rows = []
    for name in sorted({*old, *measured}):
        values = dict(old.get(name, {}))
        values.update({line: max(_LEAST_SECONDS, math.ceil(taken)) for line, taken in measured[name].items()})
        rows.append(f"{name:66}" + "".join(f"{_text(values.get(line)):>9}" for line in LINES))
    return "\n".join(rows)


def _text(seconds: float | None) -> str:
    return NONE if seconds is None else f"{seconds:g}"


def main(arguments: list[str]) -> None:
    records = list(read_records(Path(arguments[-1])))
    if not records:
        raise SystemExit(f"{arguments[-1]} has no records of tests")
    if arguments[0] == "--budgets":
        old = read_budgets(BUDGETS_FILE.read_text())
        print(as_budgets(records, {name: seconds for name, seconds in old.items() if Path(name).exists()}))
    else:
        print(report(records))


if __name__ == "__main__":
    main(sys.argv[1:])
