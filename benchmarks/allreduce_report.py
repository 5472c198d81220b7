"""What benchmarks.allreduce measured, as tables, verdicts and plots.

    python -m benchmarks.allreduce_report out/allreduce/allreduce.csv

writes them again from the CSV of a run, beside it. A row is one contestant at one point: wire, workers, bytes.
"""

from __future__ import annotations

import csv
import dataclasses
import statistics
import sys
from pathlib import Path
from typing import Iterator, Sequence

from benchmarks import allreduce_plot
from benchmarks.allreduce_contestants import ALGORITHMS, CONTESTANTS
from benchmarks.contest import Measured

__all__ = ["COLUMNS", "TARGETS", "Target", "Verdict", "read", "rows_of", "table", "verdict", "write_report"]

COLUMNS = {
    "wire": str, "workers": int, "bytes": int, "contestant": str, "calls": int, "rounds": int, "median_ms": float,
    "min_ms": float, "max_ms": float, "ratio_to_core": float, "limit_ms": float, "extra_bytes": int,
}  # fmt: skip
_KIB, _MIB = 1 << 10, 1 << 20
_FIXED_ALGORITHMS = tuple(f"core_{name}" for name in ALGORITHMS)
_OPEN_MPI = ("openmpi", "openmpi_ring")
_COPY, _AGAIN = "copy", "core_again"
# A row's limit takes part in comparisons as if it had been measured.
_LIMIT = "limit"

Row = dict
Point = dict  # contestant -> median in ms, at one wire, workers, bytes


@dataclasses.dataclass(frozen=True)
class Target:
    """Something to reach: `one` takes `factor` times less than the best of `others`, at the points that count.

    A factor below 1 allows it to take more: 1 / 1.5 is "within 1.5 times".
    """

    text: str
    one: str
    others: tuple[str, ...]
    factor: float
    workers: int | None = None
    from_bytes: int = 0
    below_bytes: int | None = None

    def counts(self, workers: int, size: int) -> bool:
        return (
            (self.workers is None or workers == self.workers)
            and size >= self.from_bytes
            and (self.below_bytes is None or size < self.below_bytes)
        )


TARGETS = (
    Target("op ≥ 6× TF RING", "op", ("ring",), 6),
    Target("op ≥ 2.5× Horovod", "op", ("horovod",), 2.5),
    Target("op ≥ 12× TF RING, P=2, from 4 MB", "op", ("ring",), 12, workers=2, from_bytes=4 * _MIB),
    Target("op ≥ 3× Horovod, P=2, from 4 MB", "op", ("horovod",), 3, workers=2, from_bytes=4 * _MIB),
    Target("core ≥ 2× Gloo from 64 KB", "core", ("gloo",), 2, from_bytes=64 * _KIB),
    Target("core ≥ 1.3× the better Open MPI from 64 KB", "core", _OPEN_MPI, 1.3, from_bytes=64 * _KIB),
    Target("core ≥ the better Open MPI below 64 KB", "core", _OPEN_MPI, 1, below_bytes=64 * _KIB),
    Target("op within 1.5× of the core", "op", ("core",), 1 / 1.5),
    Target("auto within 10 % of the best algorithm", "core", _FIXED_ALGORITHMS, 1 / 1.1),
    Target(
        "core, 64 MB, P=2, within 1.5× of the limit", "core", (_LIMIT,), 1 / 1.5, workers=2, from_bytes=64 * _MIB
    ),
)  # fmt: skip
_RATIOS = (
    ("op vs RING", "op", ("ring",)),
    ("op vs Horovod", "op", ("horovod",)),
    ("core vs Gloo", "core", ("gloo",)),
    ("core vs better Open MPI", "core", _OPEN_MPI),
    ("op / core", "core", ("op",)),
    ("core / best algorithm", _FIXED_ALGORITHMS, ("core",)),
    ("core / limit", _LIMIT, ("core",)),
)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """At how many of the points a target is met, and the worst of them: its ratio, workers and bytes."""

    met: int
    points: int
    worst: tuple[float, int, int]


def rows_of(
    wire: str, workers: int, size: int, measured: dict[str, Measured], limit_seconds: float | None
) -> list[Row]:
    """The rows of one point, but for the memory. The ratio is the median over that of the core; None where there is no core."""
    core = statistics.median(measured["core"].seconds) if "core" in measured else None
    rows = []
    for name, each in measured.items():
        median = statistics.median(each.seconds)
        rows.append(
            {
                "wire": wire,
                "workers": workers,
                "bytes": size,
                "contestant": name,
                "calls": each.calls,
                "rounds": len(each.seconds),
                "median_ms": 1e3 * median,
                "min_ms": 1e3 * min(each.seconds),
                "max_ms": 1e3 * max(each.seconds),
                "ratio_to_core": None if core is None else median / core,
                "limit_ms": None if limit_seconds is None else 1e3 * limit_seconds,
                "extra_bytes": None,
            }
        )
    return rows


def read(path: Path) -> list[Row]:
    """The rows of a CSV file."""
    with path.open(newline="") as file:
        return [
            {name: kind(row[name]) if row[name] else None for name, kind in COLUMNS.items()}
            for row in csv.DictReader(file)
        ]


def points(rows: Sequence[Row], wire: str) -> dict[tuple[int, int], Point]:
    """By workers and bytes the medians of the contestants, and the limit."""
    found: dict[tuple[int, int], Point] = {}
    for row in rows:
        if row["wire"] == wire:
            point = found.setdefault((row["workers"], row["bytes"]), {})
            point[row["contestant"]] = row["median_ms"]
            if row["limit_ms"] is not None:
                point[_LIMIT] = row["limit_ms"]
    return found


def ratio(point: Point, one: str | tuple[str, ...], others: Sequence[str]) -> float | None:
    """How many times less the best of `one` takes than the best of the others; None where one side is missing."""
    ones = [point[name] for name in ([one] if isinstance(one, str) else one) if name in point]
    theirs = [point[name] for name in others if name in point]
    return min(theirs) / min(ones) if ones and theirs else None


def verdict(target: Target, rows: Sequence[Row], wire: str) -> Verdict | None:
    """Holds a target against what was measured on a wire; None where nothing of it was."""
    ratios = [
        (found, workers, size)
        for (workers, size), point in points(rows, wire).items()
        if target.counts(workers, size) and (found := ratio(point, target.one, target.others)) is not None
    ]
    if not ratios:
        return None
    return Verdict(sum(found >= target.factor for found, _, _ in ratios), len(ratios), min(ratios))


def table(rows: Sequence[Row], wire: str, workers: int) -> str:
    """Markdown: bytes down, milliseconds of a call across (medians), then ratios and the limit."""
    mine = {size: point for (count, size), point in points(rows, wire).items() if count == workers}
    names = [name for name in CONTESTANTS if any(name in point for point in mine.values())]
    ratios = [
        entry for entry in _RATIOS if any(ratio(point, *entry[1:]) is not None for point in mine.values())
    ]
    heads = [
        "bytes", *(CONTESTANTS[name].title for name in names), *(title for title, *_ in ratios), "limit"
    ]  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for size, point in sorted(mine.items()):
        cells = [f"{size:,}", *(_milliseconds(point.get(name)) for name in names)]
        for _, one, others in ratios:
            found = ratio(point, one, others)
            cells.append("–" if found is None else _times(found))
        lines.append(f"| {' | '.join([*cells, _milliseconds(point.get(_LIMIT))])} |")
    return "\n".join(lines)


def spread(rows: Sequence[Row], wire: str, workers: int) -> str:
    """In words, how far the rounds lay apart: (max − min) / median."""
    spreads = [
        ((row["max_ms"] - row["min_ms"]) / row["median_ms"], row["contestant"], row["bytes"])
        for row in rows
        if (row["wire"], row["workers"]) == (wire, workers)
    ]
    worst, name, size = max(spreads)
    middle = statistics.median(each for each, _, _ in spreads)
    return f"Spread, (max − min) / median: {middle:.0%} in the middle, {worst:.0%} at most ({name}, {size:,} bytes)."


def verdicts(rows: Sequence[Row], wire: str) -> str:
    """Markdown: every target, at how many points it is met, and the worst of them."""
    lines = ["| target | met at | worst | where |", "|---|---|---|---|"]
    for target in TARGETS:
        found = verdict(target, rows, wire)
        if found is None:
            lines.append(f"| {target.text} | not measured | | |")
            continue
        value, workers, size = found.worst
        shown = _times(value) if target.factor >= 1 else f"{_times(1 / value)} the time"
        lines.append(
            f"| {target.text} | {found.met} of {found.points} | {shown} | P={workers}, {size:,} bytes |"
        )
    return "\n".join(lines)


def chance(rows: Sequence[Row], wire: str) -> str:
    """In words, how far the medians of one program in two groups of processes lie apart; "" where it was measured once."""
    apart = [
        (max(first, again) / min(first, again) - 1, workers, size)
        for (workers, size), point in points(rows, wire).items()
        if (first := point.get("core")) and (again := point.get(_AGAIN))
    ]
    if not apart:
        return ""
    worst, workers, size = max(apart)
    middle = statistics.median(each for each, _, _ in apart)
    return (
        f"Chance: the medians of the core and of the core, again, are {middle:.0%} apart in the middle and {worst:.0%} at most "
        f"(P={workers}, {size:,} bytes); no ratio above means more."
    )


def memory(rows: Sequence[Row], wire: str) -> str:
    """Markdown: at the largest message the most memory that a rank needed beyond it, in bytes of the message."""
    largest = max(row["bytes"] for row in rows if row["wire"] == wire)
    mine = [row for row in rows if (row["wire"], row["bytes"]) == (wire, largest)]
    workers = sorted({row["workers"] for row in mine})
    lines = [
        f"| {largest:,} bytes | {' | '.join(f'P={count}' for count in workers)} |",
        "|---" * (len(workers) + 1) + "|",
    ]
    for name, contestant in CONTESTANTS.items():
        of = {
            row["workers"]: row["extra_bytes"] / largest
            for row in mine
            if row["contestant"] == name and row["extra_bytes"] is not None
        }
        if of:
            cells = (f"{of[count]:.2f}×" if count in of else "–" for count in workers)
            lines.append(f"| {contestant.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def report(rows: Sequence[Row]) -> str:
    """All of it as Markdown."""
    parts = ["# All-reduce, float32 sum, milliseconds of a call (medians)"]
    for wire in dict.fromkeys(row["wire"] for row in rows):
        parts.append(f"## {wire}")
        for workers in sorted({row["workers"] for row in rows if row["wire"] == wire}):
            parts += [f"### P = {workers}", table(rows, wire, workers), spread(rows, wire, workers)]
        parts += ["### Targets", verdicts(rows, wire), *filter(None, [chance(rows, wire)])]
        parts += ["### Memory beyond the message, of the rank that needs most", memory(rows, wire)]
    return "\n\n".join(parts) + "\n"


def write_report(rows: Sequence[Row], folder: Path) -> Iterator[Path]:
    """Writes allreduce.md and a plot for each wire; yields what it wrote. Where but the limit was measured nothing is said.

    Raises:
        ModuleNotFoundError: matplotlib is missing; the Markdown is written before.
    """
    rows = [row for row in rows if row["contestant"] != _COPY]
    path = folder / "allreduce.md"
    path.write_text(report(rows))
    yield path
    for wire in dict.fromkeys(row["wire"] for row in rows):
        path = folder / f"allreduce_{wire}.png"
        allreduce_plot.plot(rows, wire, path)
        yield path


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if 0.001 <= value < 1000 else f"{value:.0f}" if value >= 1000 else "< 0.001"


def _times(value: float) -> str:
    return f"{value:.2f}×" if value < 100 else f"{value:.0f}×"


def main(arguments: Sequence[str]) -> None:
    (path,) = map(Path, arguments)
    for written in write_report(read(path), path.parent):
        print(written)


if __name__ == "__main__":
    main(sys.argv[1:])
